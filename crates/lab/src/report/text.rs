//! The report for a terminal, in at most 100 columns.

use super::model::{
    Band, CellReport, ComparisonReport, RelationReport, Report, Role, RowReport, SweepLine,
    SweepReport, TableReport,
};
use super::number::{number, optional};
use super::table::{Align, TextTable, wrap};
use super::{changes, tail};
use crate::stats::verdict::{ALPHA, pairs_for};
use crate::stats::{Better, Comparison, Interval, Verdict, geometric_mean};

/// Columns of a terminal.
const COLUMNS: usize = 100;

pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let document = &report.document;
    out.push_str(&format!("{}\n", report.experiment));
    out.push_str(&format!("  {}\n  {}, {}\n\n", document.title, document.author, document.date));
    out.push_str(&wrap(&report.question, COLUMNS, "  "));
    out.push_str(&format!("\n  {}\n  {}\n", report.machine, super::text::summary(report)));
    for table in &report.tables {
        out.push_str(&format!("\n{}, {}\n\n", table.title, table.filesystem));
        out.push_str(&if table.wide { wide(table) } else { grouped(table) }.text());
        table
            .changes
            .iter()
            .for_each(|line| out.push_str(&format!("\n{}", wrap(line, COLUMNS, "  "))));
        out.push_str(&outside(table));
    }
    out.push_str(&relations(report));
    out.push_str(&comparisons(report));
    out.push_str(&frontier(report));
    let tail = tail::table(report);
    if !tail.is_empty() {
        out.push_str(&format!("\nLatencies of the first seed, ms\n\n{}", tail.text()));
    }
    for sweep in sweeps(report) {
        out.push_str(&format!("\n{}\n\n{}", sweep.0, sweep.1.text()));
    }
    let bases = report.bases();
    out.push_str(&format!("\nAll figures are {bases}. Again: {}\n", report.command));
    out
}

/// How many cells and relations lie where, in a sentence.
pub fn summary(report: &Report) -> String {
    let summary = report.summary;
    let [inside, outside] = summary.cells;
    let [holds, accepted, broken] = summary.relations;
    let accepted = match accepted {
        0 => String::new(),
        n => format!(" ({n} in the wider range)"),
    };
    format!(
        "predicted cells: {inside} inside, {outside} outside; relations: {} hold{accepted}, \
         {broken} do not; calibrated cells: {}",
        holds + summary.relations[1],
        summary.calibrated
    )
}

/// One row for each cell: the shape that programs and people can both read.
pub fn table(table: &TableReport) -> TextTable {
    use Align::{Left, Right};
    let mut text = TextTable::new([
        ("variant", Left),
        ("case", Left),
        ("metric", Left),
        ("published", Right),
        ("obtained", Right),
        ("ratio", Right),
        ("basis", Left),
        ("role", Left),
        ("band", Left),
    ]);
    for row in &table.rows {
        for (cell, column) in row.cells.iter().zip(&table.columns) {
            if cell.obtained.is_none() && cell.published.is_none() {
                continue;
            }
            text.row([
                row.title.clone(),
                column.case.clone(),
                format!("{} {}", column.metric, column.unit),
                published(cell),
                optional(cell.obtained, cell.decimals),
                optional(cell.ratio, 2),
                cell.basis.word().to_owned(),
                role(cell).to_owned(),
                cell.band.word().to_owned(),
            ]);
        }
    }
    text
}

/// The same without the column of variants, which head their rows: narrow enough for a terminal.
fn grouped(table: &TableReport) -> TextTable {
    use Align::{Left, Right};
    let mut text = TextTable::new([
        ("variant, case", Left),
        ("metric", Left),
        ("published", Right),
        ("obtained", Right),
        ("ratio", Right),
        ("basis", Left),
        ("role", Left),
        ("band", Left),
    ]);
    for row in &table.rows {
        text.row([row.title.clone()]);
        for (cell, column) in row.cells.iter().zip(&table.columns) {
            if cell.obtained.is_none() && cell.published.is_none() {
                continue;
            }
            text.row([
                format!("  {}", column.case),
                format!("{} {}", column.metric, column.unit),
                published(cell),
                optional(cell.obtained, cell.decimals),
                optional(cell.ratio, 2),
                cell.basis.word().to_owned(),
                role(cell).to_owned(),
                cell.band.word().to_owned(),
            ]);
        }
    }
    text
}

/// One row for each variant of each case, one column for each metric; beside a metric that the
/// document has, its figure and, of a change, what both say together.
pub fn wide(table: &TableReport) -> TextTable {
    use Align::{Left, Right};
    let mut cases: Vec<&str> = table.columns.iter().map(|column| column.case.as_str()).collect();
    cases.dedup();
    let metrics = table.columns.len() / cases.len().max(1);
    // Cells of a metric over all cases.
    let all = |metric: usize| {
        let of_row = move |row: &'_ RowReport| {
            row.cells.iter().skip(metric).step_by(metrics).cloned().collect::<Vec<_>>()
        };
        table.rows.iter().flat_map(of_row)
    };
    let shown: Vec<usize> =
        (0..metrics).filter(|&metric| all(metric).any(|cell| cell.obtained.is_some())).collect();
    let said = |metric: usize| all(metric).any(|cell| cell.published.is_some());
    let mut heads = vec![("case".to_owned(), Left), ("variant".to_owned(), Left)];
    for &metric in &shown {
        let column = &table.columns[metric];
        let against = column.against.as_ref().map(|what| format!(" to {what}"));
        let against = against.unwrap_or_default();
        heads
            .push((format!("{}{against} {}", column.metric, column.unit).trim().to_owned(), Right));
        if said(metric) {
            heads.push(("document".to_owned(), Right));
            if column.against.is_some() {
                heads.push(("beside it".to_owned(), Left));
            }
        }
    }
    let mut text = TextTable::new(heads.iter().map(|(head, align)| (head.as_str(), *align)));
    for (number, case) in cases.iter().enumerate() {
        let mut head = (*case).to_owned();
        for row in &table.rows {
            let cells = &row.cells[number * metrics..(number + 1) * metrics];
            if cells.iter().all(|cell| cell.obtained.is_none()) {
                continue;
            }
            let mut line = vec![std::mem::take(&mut head), row.title.clone()];
            for &metric in &shown {
                line.push(obtained(&cells[metric]));
                if said(metric) {
                    line.extend(beside(&cells[metric], table.columns[metric].against.is_some()));
                }
            }
            text.row(line);
        }
    }
    text
}

/// The figure with its interval; a sign where it is calibrated, or outside of its range.
fn obtained(cell: &CellReport) -> String {
    let sign = match (cell.role, cell.band) {
        (Role::Calibrated, _) => " ◆",
        (_, Band::Outside) => " ✗",
        _ => "",
    };
    let text = match changes::of(cell) {
        Some(change) => format!("{:+.1} ±{:.1}", change.percent, change.interval.half()),
        None => cell.obtained.map_or(String::new(), |value| number(value, cell.decimals)),
    };
    text + sign
}

/// The published figure and, of a change, what both say together.
fn beside(cell: &CellReport, change: bool) -> Vec<String> {
    let said = cell.published.map_or(String::new(), |_| published(cell));
    let word = cell.published.and_then(|_| changes::of(cell));
    let word = word.map_or(String::new(), |one| one.beside(cell.published).to_owned());
    if change { vec![said, word] } else { vec![said] }
}

/// The published figures, as many decimals as the document has.
pub fn published(cell: &CellReport) -> String {
    let all = cell.published.iter().chain(&cell.also);
    let all: Vec<String> = all.map(|value| format!("{value}")).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(" or ") }
}

pub fn role(cell: &CellReport) -> &'static str {
    if cell.role == Role::Calibrated { "calibrated" } else { "predicted" }
}

/// What the events say about each cell outside its band.
fn outside(table: &TableReport) -> String {
    let cells = table.rows.iter().flat_map(|row| &row.cells);
    let outside = cells.filter(|cell| cell.band == Band::Outside);
    outside.map(|cell| format!("\n{}", wrap(&because(cell), COLUMNS, "  "))).collect()
}

/// One sentence on a cell outside its band.
pub fn because(cell: &CellReport) -> String {
    let [low, high] = cell.within.unwrap_or([f64::NAN, f64::NAN]);
    let reason = why(cell.reason.as_deref());
    format!(
        "{} is {} {}, not within {}{reason}{}",
        cell.cell,
        optional(cell.obtained, cell.decimals),
        cell.unit,
        span([low, high]),
        events(&cell.evidence)
    )
}

/// The end of a sentence: a reason, or nothing more.
fn why(reason: Option<&str>) -> String {
    reason.map_or(".".to_owned(), |reason| format!(": {reason}"))
}

/// What the events say, where there are any.
fn events(evidence: &str) -> String {
    if evidence.is_empty() { String::new() } else { format!(" Events: {evidence}.") }
}

/// `0.97 to 1.03`, `at least 12`, `at most 10`.
pub fn span([low, high]: [f64; 2]) -> String {
    match (low.is_finite(), high.is_finite()) {
        (true, true) => format!("{low} to {high}"),
        (true, false) => format!("at least {low}"),
        (false, true) => format!("at most {high}"),
        (false, false) => "anything".to_owned(),
    }
}

/// The word for a relation.
pub fn holds(relation: &RelationReport) -> &'static str {
    match relation.band {
        Band::Outside if relation.accepted => "accepted",
        other => other.word(),
    }
}

pub fn relation_table(report: &Report) -> TextTable {
    use Align::{Left, Right};
    let mut table = TextTable::new([
        ("relation", Left),
        ("fs", Left),
        ("document", Right),
        ("ours", Right),
        ("range", Left),
        ("band", Left),
    ]);
    for one in &report.relations {
        table.row([
            one.title.clone(),
            one.filesystem.clone(),
            optional(one.published, 2),
            optional(one.obtained, 2),
            span(one.within),
            holds(one).to_owned(),
        ]);
    }
    table
}

fn relations(report: &Report) -> String {
    let table = relation_table(report);
    if table.is_empty() {
        return String::new();
    }
    let mut out = format!("\nWhat must hold\n\n{}", table.text());
    for one in report.relations.iter().filter(|one| one.band == Band::Outside) {
        out.push_str(&format!("\n{}", wrap(&relation_because(one), COLUMNS, "  ")));
    }
    out
}

/// One sentence on a relation outside its range.
pub fn relation_because(one: &RelationReport) -> String {
    let reason = why(one.reason.as_deref());
    format!(
        "{} ({}): {} is {}, not within {}{reason}{}",
        one.title,
        one.filesystem,
        one.value,
        optional(one.obtained, 2),
        span(one.within),
        events(&one.evidence)
    )
}

/// `+12.3 %`.
pub fn percent(value: f64) -> String {
    if value.is_finite() { format!("{:+.1} %", value * 100.0) } else { "-".to_owned() }
}

pub fn change(figures: &Comparison) -> String {
    let shown = |interval: &Interval| {
        format!("{:.1}", interval.low * 100.0) != format!("{:.1}", interval.high * 100.0)
    };
    match figures.change_interval.filter(shown) {
        Some(interval) => format!(
            "{} [{:+.1} {:+.1}]",
            percent(figures.change),
            interval.low * 100.0,
            interval.high * 100.0
        ),
        None => percent(figures.change),
    }
}

/// The p of a comparison, where so many pairs can give one that shows anything.
pub fn p_value(table: &TableReport, figures: &Comparison) -> String {
    let enough = !figures.paired || figures.n.0 >= pairs_for(table.comparisons.len());
    if enough { format!("{:.3}", figures.p) } else { "-".to_owned() }
}

/// Why a table shows no p.
pub fn p_note(table: &TableReport) -> Option<String> {
    let rows = table.comparisons.len();
    let most = table.comparisons.iter().map(|one| one.figures.n.0).max()?;
    let needed = pairs_for(rows);
    (most < needed).then(|| {
        format!(
            "No p: {most} pairs cannot bring that of one of {rows} rows below {ALPHA} (Wilcoxon's \
             exact test, Holm); {needed} can: --seeds 1..{needed}."
        )
    })
}

/// The comparisons of a table.
pub fn comparison_table(table: &TableReport) -> TextTable {
    use Align::{Left, Right};
    let mut text = TextTable::new([
        ("metric", Left),
        ("unit", Left),
        ("n", Right),
        ("before", Right),
        ("after", Right),
        ("change [95 %]", Right),
        ("effect", Right),
        ("p", Right),
        ("verdict", Left),
    ]);
    let mut after = "";
    for row in &table.comparisons {
        if after != row.after {
            text.row([row.after.clone()]);
            after = &row.after;
        }
        let figures = &row.figures;
        let arrow = if row.better == Better::Higher { "↑" } else { "↓" };
        text.row([
            format!("  {}", row.metric),
            format!("{} {arrow}", row.unit),
            figures.n.0.min(figures.n.1).to_string(),
            number(figures.before, 1),
            number(figures.after, 1),
            change(figures),
            format!("{:+.2}", figures.effect),
            p_value(table, figures),
            format!("{} {}", figures.verdict.sign(), figures.verdict.word()),
        ]);
    }
    text
}

/// For each variant of a table's comparisons: how many metrics became better, worse, stayed the
/// same or are unclear, and the geometric mean of the ratios, above 1 where they became better.
pub fn standings(table: &TableReport) -> Vec<String> {
    let mut names: Vec<&str> = table.comparisons.iter().map(|one| one.after.as_str()).collect();
    names.dedup();
    let standing = |name: &str| {
        let own: Vec<_> = table.comparisons.iter().filter(|one| one.after == name).collect();
        let ratio = |one: &&&ComparisonReport| match one.better {
            Better::Higher => one.figures.after / one.figures.before,
            Better::Lower => one.figures.before / one.figures.after,
        };
        let ratios: Vec<f64> = own.iter().map(|one| ratio(&one)).collect();
        let count = |verdict| own.iter().filter(|one| one.figures.verdict == verdict).count();
        let mean = match ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0) {
            true => format!("geometric mean of the ratios {}", number(geometric_mean(&ratios), 2)),
            false => "no mean of the ratios, one is zero".to_owned(),
        };
        format!(
            "{name}: {} better, {} worse, {} same, {} unclear; {mean}",
            count(Verdict::Better),
            count(Verdict::Worse),
            count(Verdict::Same),
            count(Verdict::Unclear)
        )
    };
    names.into_iter().map(standing).collect()
}

fn comparisons(report: &Report) -> String {
    let mut out = String::new();
    for table in report.tables.iter().filter(|table| !table.comparisons.is_empty()) {
        out.push_str(&format!(
            "\nBefore: {}, {}. Pairs of one seed each; + is better; p after Holm\n\n{}",
            table.comparisons[0].before,
            table.filesystem,
            comparison_table(table).text()
        ));
        out.push('\n');
        standings(table).iter().for_each(|line| out.push_str(&wrap(line, COLUMNS, "  ")));
        p_note(table).iter().for_each(|line| out.push_str(&wrap(line, COLUMNS, "  ")));
    }
    out
}

fn frontier(report: &Report) -> String {
    use Align::{Left, Right};
    let Some(frontier) = &report.frontier else { return String::new() };
    let [x, y] = &frontier.axes;
    let head = [("variant", Left), (x.as_str(), Right), (y.as_str(), Right), ("", Left)];
    let mut table = TextTable::new(head);
    for point in &frontier.points {
        let best = if point.best { "on the frontier" } else { "" };
        table.row([point.title.clone(), number(point.x, 1), number(point.y, 1), best.to_owned()]);
    }
    format!("\n{}, {}\n\n{}", frontier.title, frontier.filesystem, table.text())
}

/// Each sweep as a heading and a table: values down, variants across.
pub fn sweeps(report: &Report) -> Vec<(String, TextTable)> {
    use Align::{Left, Right};
    let one = |sweep: &SweepReport| {
        let first = format!("{} ({})", sweep.vary, sweep.unit);
        let heads = sweep.lines.iter().map(|line| (line.title.as_str(), Right));
        let mut table = TextTable::new([(first.as_str(), Left)].into_iter().chain(heads));
        let mut values: Vec<u64> =
            sweep.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
        values.sort_unstable();
        values.dedup();
        for value in values {
            let cell = |line: &SweepLine| {
                let point = line.points.iter().find(|point| point.0 == value);
                optional(point.map(|point| point.1), 1)
            };
            table.row([value.to_string()].into_iter().chain(sweep.lines.iter().map(cell)));
        }
        let limit = sweep.limit.as_ref();
        let limit = limit.map_or(String::new(), |(most, why)| format!("; at most {most} ({why})"));
        (format!("{}: {}, {}{limit}", sweep.title, sweep.metric, sweep.filesystem), table)
    };
    report.sweeps.iter().map(one).collect()
}
