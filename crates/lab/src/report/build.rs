//! From records to a report.

use std::collections::BTreeMap;

use super::cells::{Records, evidence};
use super::changes;
use super::model::{
    Band, CellReport, ColumnReport, ComparisonReport, FrontierPoint, FrontierReport,
    HeadlineReport, RelationReport, Report, Role, RowReport, Summary, SweepLine, SweepReport,
    TableReport,
};
use super::surroundings::{machine, surroundings};
use crate::experiment::{
    self, CellName, Experiment, Frontier, Headline, Metric, Relation, Size, Sweep, Table,
};
use crate::record::{RunRecord, SCHEMA};
use crate::stats::{compare, compare_paired, holm, median, verdict};

pub fn build(experiment: &Experiment, mut records: Vec<RunRecord>, command: &str) -> Report {
    records.sort_by(|a, b| a.key.cmp(&b.key));
    let file = &experiment.file;
    let known = Records::new(experiment, &records);
    let mut tables: Vec<TableReport> =
        file.table.iter().flat_map(|table| self::tables(&known, table)).collect();
    adjust(&mut tables);
    let relations = relations(&known);
    let summary = summarize(&tables, &relations);
    let frontier = file.frontier.as_ref().and_then(|one| frontier(&known, one));
    let sweeps = file.sweep.iter().flat_map(|one| {
        let filesystems = std::iter::once(&one.filesystem).chain(&one.full_filesystems);
        filesystems.filter_map(|name| sweep(experiment, &records, one, name.get_ref()))
    });
    let sweeps = sweeps.collect();
    Report {
        schema: SCHEMA,
        experiment: experiment.name.clone(),
        digest: experiment.digest.clone(),
        document: (&file.document).into(),
        question: file.question.split_whitespace().collect::<Vec<_>>().join(" "),
        machine: machine(experiment),
        headline: file.headline.as_ref().map(|one| headline(&known, one)),
        part_of: file.part_of.clone(),
        surroundings: surroundings(experiment, &records),
        summary,
        tables,
        relations,
        frontier,
        sweeps,
        command: command.to_owned(),
        runs: records,
    }
}

fn cell_name(variant: &str, column: &str) -> CellName {
    let (case, metric) = column.split_once('.').expect("checked with the file");
    CellName { variant: variant.to_owned(), case: case.to_owned(), metric: metric.to_owned() }
}

fn headline(known: &Records<'_>, headline: &Headline) -> HeadlineReport {
    let filesystem = headline.filesystem.get_ref();
    let ours = headline.ours.as_ref().map(|cell| {
        let name = cell.get_ref();
        (title(known.experiment, &name.variant), known.cell(filesystem, name))
    });
    HeadlineReport {
        title: headline.title.clone(),
        cell: known.cell(filesystem, headline.cell.get_ref()),
        ours,
    }
}

/// The tables of one entry: one for each file system that has records.
fn tables(known: &Records<'_>, table: &Table) -> Vec<TableReport> {
    let columns = columns(table);
    let one = |filesystem: &str| {
        let rows: Vec<RowReport> = table
            .variants
            .iter()
            .map(|variant| row(known, &columns, filesystem, variant.get_ref()))
            .filter(|row| row.cells.iter().any(|cell| cell.obtained.is_some()))
            .collect();
        let mut report = TableReport {
            title: table.title.clone(),
            note: table.note.split_whitespace().collect::<Vec<_>>().join(" "),
            filesystem: filesystem.to_owned(),
            columns: columns.iter().map(|name| column(known.experiment, name)).collect(),
            wide: !table.cases.is_empty(),
            rows,
            changes: Vec::new(),
            comparisons: comparisons(known, table, filesystem),
        };
        report.changes = changes::sentences(&report);
        (!report.rows.is_empty()).then_some(report)
    };
    let all = table.filesystems.iter().chain(&table.full_filesystems);
    all.filter_map(|filesystem| one(filesystem.get_ref())).collect()
}

/// The columns as `case.metric`.
fn columns(table: &Table) -> Vec<String> {
    if table.cases.is_empty() {
        return table.columns.iter().map(|name| name.get_ref().clone()).collect();
    }
    let metrics = |case: &&str| -> Vec<String> {
        table.metrics.iter().map(|metric| format!("{case}.{}", metric.get_ref())).collect()
    };
    table.all_cases(Size::Full).iter().flat_map(metrics).collect()
}

fn title(experiment: &Experiment, variant: &str) -> String {
    let title = experiment.file.variant[variant].title.clone();
    title.unwrap_or_else(|| variant.to_owned())
}

fn row(known: &Records<'_>, columns: &[String], filesystem: &str, variant: &str) -> RowReport {
    let cell = |column: &str| known.cell(filesystem, &cell_name(variant, column));
    RowReport {
        variant: variant.to_owned(),
        title: title(known.experiment, variant),
        note: known.experiment.file.variant[variant].note.clone().unwrap_or_default(),
        cells: columns.iter().map(|column| cell(column)).collect(),
    }
}

fn column(experiment: &Experiment, column: &str) -> ColumnReport {
    let (case, metric) = column.split_once('.').expect("checked with the file");
    let metric = &experiment.file.metric[metric];
    ColumnReport {
        case: experiment.file.case[case].title.clone(),
        metric: metric.title.clone(),
        against: metric.against.clone(),
        unit: metric.unit.clone(),
    }
}

/// Every variant beside the one that the table compares with; none with so few seeds that their
/// figures would be noise.
fn comparisons(known: &Records<'_>, table: &Table, filesystem: &str) -> Vec<ComparisonReport> {
    let Some(against) = &table.against else { return Vec::new() };
    let mut all = Vec::new();
    for variant in table.variants.iter().filter(|name| name.get_ref() != against.get_ref()) {
        for column in &table.columns {
            let before = known.samples(filesystem, &cell_name(against.get_ref(), column.get_ref()));
            let after = known.samples(filesystem, &cell_name(variant.get_ref(), column.get_ref()));
            if before.len().min(after.len()) < verdict::RUNS_MIN {
                continue;
            }
            let head = self::column(known.experiment, column.get_ref());
            let metric = column.get_ref().split_once('.').map_or("", |pair| pair.1);
            let metric: &Metric = &known.experiment.file.metric[metric];
            all.push(ComparisonReport {
                metric: format!("{}, {}", head.case, head.metric),
                unit: head.unit,
                better: metric.better,
                before: title(known.experiment, against.get_ref()),
                after: title(known.experiment, variant.get_ref()),
                figures: figures(&before, &after, metric),
            });
        }
    }
    all
}

/// Paired where both have the same seeds, which then differ in nothing else.
fn figures(
    before: &[(u64, f64)],
    after: &[(u64, f64)],
    metric: &Metric,
) -> crate::stats::Comparison {
    let seeds = |runs: &[(u64, f64)]| runs.iter().map(|run| run.0).collect::<Vec<_>>();
    let values = |runs: &[(u64, f64)]| runs.iter().map(|run| run.1).collect::<Vec<_>>();
    let (b, a) = (values(before), values(after));
    match seeds(before) == seeds(after) {
        true => compare_paired(&b, &a, metric.better, verdict::THRESHOLD),
        false => compare(&b, &a, metric.better, verdict::THRESHOLD),
    }
}

/// Holm's adjustment over the rows of each table, which asks one question.
fn adjust(tables: &mut [TableReport]) {
    for table in tables {
        let p: Vec<f64> = table.comparisons.iter().map(|one| one.figures.p).collect();
        let rows = table.comparisons.iter_mut();
        rows.zip(holm(&p)).for_each(|(row, p)| row.figures.p = p);
    }
}

fn relations(known: &Records<'_>) -> Vec<RelationReport> {
    let file = &known.experiment.file;
    let main: Vec<&str> = file
        .table
        .first()
        .map(|table| table.filesystems.iter().map(|name| name.get_ref().as_str()).collect())
        .unwrap_or_default();
    let one = |relation: &Relation| {
        let own: Vec<&str> = relation.filesystems.iter().map(|n| n.get_ref().as_str()).collect();
        let names = if own.is_empty() { main.clone() } else { own };
        let cases: Vec<&str> = match relation.cases.is_empty() {
            true => vec![""],
            false => relation.cases.iter().map(|name| name.get_ref().as_str()).collect(),
        };
        let all = names.into_iter().flat_map(|fs| cases.iter().map(move |case| (fs, *case)));
        all.filter_map(|(fs, case)| self::relation(known, relation, case, fs)).collect::<Vec<_>>()
    };
    file.relation.iter().flat_map(one).collect()
}

fn relation(
    known: &Records<'_>,
    relation: &Relation,
    case: &str,
    filesystem: &str,
) -> Option<RelationReport> {
    let expression = relation.value.get_ref().of_case(case);
    let other = relation.over.as_ref().map_or(filesystem, |name| name.get_ref());
    let obtained = expression
        .value_of(&|name| known.value(filesystem, name), &|name| known.value(other, name))?;
    let published = expression.value(&|name| known.published(name).map(|cell| cell.published));
    let within = *relation.within.get_ref();
    let accept = relation.accept.as_ref().map(|range| *range.get_ref());
    let band = Band::of(Some(obtained), Some(within));
    let accepted = band == Band::Outside && Band::of(Some(obtained), accept) == Band::Inside;
    let reason = if accepted { &relation.accepted_because } else { &relation.reason };
    let over = &expression.first;
    let title = match relation.cases.is_empty() {
        true => relation.title.clone(),
        false => format!("{}: {}", known.experiment.file.case[case].title, relation.title),
    };
    Some(RelationReport {
        title,
        value: expression.to_string(),
        filesystem: filesystem.to_owned(),
        published,
        obtained: Some(obtained),
        within,
        accept,
        band,
        accepted,
        reason: reason.clone().filter(|_| band == Band::Outside),
        goal: relation.goal,
        evidence: evidence(known.runs(filesystem, &over.variant, &over.case)),
    })
}

fn summarize(tables: &[TableReport], relations: &[RelationReport]) -> Summary {
    let mut summary = Summary::default();
    let mut cells: BTreeMap<(&str, &str), &CellReport> = BTreeMap::new();
    for table in tables {
        let all = table.rows.iter().flat_map(|row| &row.cells);
        cells.extend(all.map(|cell| ((table.filesystem.as_str(), cell.cell.as_str()), cell)));
    }
    for cell in cells.values() {
        match (cell.role, cell.band) {
            (Role::Calibrated, _) => summary.calibrated += 1,
            (_, Band::Inside) => summary.cells[0] += 1,
            (_, Band::Outside) => summary.cells[1] += 1,
            (_, Band::None) => {}
        }
    }
    for relation in relations {
        match relation.band {
            Band::Inside => summary.relations[0] += 1,
            Band::Outside if relation.accepted => summary.relations[1] += 1,
            Band::Outside => summary.relations[2] += 1,
            Band::None => {}
        }
        let met = relation.band == Band::Inside || relation.accepted;
        summary.goals[usize::from(!met)] += usize::from(relation.goal);
    }
    summary
}

fn frontier(known: &Records<'_>, frontier: &Frontier) -> Option<FrontierReport> {
    let filesystem = frontier.filesystem.get_ref();
    let file = &known.experiment.file;
    let name = |variant: &str, metric: &str| CellName {
        variant: variant.to_owned(),
        case: frontier.case.get_ref().clone(),
        metric: metric.to_owned(),
    };
    let point = |variant: &str| {
        let [x, y] = [&frontier.x, &frontier.y].map(|metric| name(variant, metric.get_ref()));
        let published = known.published(&x).zip(known.published(&y));
        Some(FrontierPoint {
            variant: variant.to_owned(),
            title: title(known.experiment, variant),
            x: known.value(filesystem, &x)?,
            y: known.value(filesystem, &y)?,
            published: published.map(|(x, y)| [x.published, y.published]),
            best: false,
        })
    };
    let mut points: Vec<FrontierPoint> =
        frontier.variants.iter().filter_map(|name| point(name.get_ref())).collect();
    for index in 0..points.len() {
        let (x, y) = (points[index].x, points[index].y);
        points[index].best = !points.iter().any(|p| p.x >= x && p.y >= y && (p.x > x || p.y > y));
    }
    let axis = |metric: &str| {
        let metric = &file.metric[metric];
        format!("{}, {}", metric.title, metric.unit)
    };
    (!points.is_empty()).then(|| FrontierReport {
        title: frontier.title.clone(),
        note: frontier.note.split_whitespace().collect::<Vec<_>>().join(" "),
        filesystem: filesystem.clone(),
        axes: [axis(frontier.x.get_ref()), axis(frontier.y.get_ref())],
        goal: frontier.goal,
        points,
    })
}

fn sweep(
    experiment: &Experiment,
    records: &[RunRecord],
    sweep: &Sweep,
    filesystem: &str,
) -> Option<SweepReport> {
    let file = &experiment.file;
    let vary = sweep.point(0).vary;
    let line = |variant: &str| {
        let mut points: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for record in records {
            let key = &record.key;
            let same = key.variant == variant
                && key.case == *sweep.case.get_ref()
                && key.filesystem == filesystem;
            let point = key.point.as_ref().filter(|point| same && point.vary == vary);
            let value = record.values.get(sweep.metric.get_ref());
            if let (Some(point), Some(value)) = (point, value) {
                points.entry(point.value).or_default().push(*value);
            }
        }
        SweepLine {
            variant: variant.to_owned(),
            title: title(experiment, variant),
            points: points.into_iter().map(|(value, all)| (value, median(&all))).collect(),
        }
    };
    let lines: Vec<SweepLine> = sweep
        .variants
        .iter()
        .map(|name| line(name.get_ref()))
        .filter(|line| !line.points.is_empty())
        .collect();
    let metric = &file.metric[sweep.metric.get_ref()];
    let machine = sweep.limit.then(|| model::Profile::load(file.machine.profile.get_ref()).ok());
    (!lines.is_empty()).then(|| SweepReport {
        title: sweep.title.clone(),
        note: sweep.note.split_whitespace().collect::<Vec<_>>().join(" "),
        filesystem: filesystem.to_owned(),
        vary,
        unit: sweep.unit.clone(),
        metric: format!("{}, {}", metric.title, metric.unit),
        limit: machine.flatten().and_then(|profile| experiment::limit(&profile)),
        lines,
    })
}
