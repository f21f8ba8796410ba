//! Several experiments at once: a line for each document, and one for each figure that lies outside
//! of its range.

use super::model::{Band, CellReport, Report, Role, Summary};
use super::number::optional;
use super::table::{Align, TextTable};
use super::text;
use serde::Serialize;

/// Columns of a terminal.
const COLUMNS: usize = 100;
/// What the columns are.
const LEGEND: &str = "\npublished: the document's figure; repeated: ours of the same; ours: our \
                      variant, which the document\ndoes not have; relations: hold/do not; \
                      ◆ calibrated\n";

/// Whether nothing lies outside of its range, but for what was accepted with a reason.
pub fn holds(reports: &[Report]) -> bool {
    reports.iter().all(|report| report.summary.holds())
}

/// A document's line.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The experiment.
    pub experiment: String,
    /// With the first author's last name and the year.
    pub name: String,
    /// What the figure is.
    pub figure: String,
    /// The document's figure, ours of the same, our variant's.
    pub figures: [String; 3],
    /// Cells in and out of their bands.
    pub cells: String,
    /// Relations that hold and that do not.
    pub relations: String,
    /// Goals of ours that are met, of all.
    pub goals: String,
    /// The experiments that count in it too.
    pub parts: Vec<String>,
}

/// One line for each document: its figure, ours, how many cells and relations lie where, and the
/// goals of ours that are met. An experiment that is part of another one counts in its line.
pub fn lines(reports: &[Report]) -> Vec<Line> {
    let is_part = |report: &Report| {
        let head = |name: &String| reports.iter().any(|other| other.experiment == *name);
        report.part_of.as_ref().is_some_and(head)
    };
    let line = |head: &Report| {
        let own = |report: &&Report| report.part_of.as_ref() == Some(&head.experiment);
        let parts: Vec<&Report> = reports.iter().filter(own).collect();
        let sum = parts.iter().map(|report| report.summary).fold(head.summary, add);
        let [inside, outside] = sum.cells;
        let [held, accepted, broken] = sum.relations;
        let [met, missed] = sum.goals;
        let all = met + missed;
        Line {
            experiment: head.experiment.clone(),
            name: name(head),
            figure: head.headline.as_ref().map_or(String::new(), |one| one.title.clone()),
            figures: figures(head),
            cells: format!("{inside}/{outside}"),
            relations: format!("{}/{broken}", held + accepted),
            goals: if all == 0 { "-".to_owned() } else { format!("{met}/{all}") },
            parts: parts.iter().map(|report| report.experiment.clone()).collect(),
        }
    };
    reports.iter().filter(|report| !is_part(report)).map(line).collect()
}

/// The lines as a table.
pub fn table(reports: &[Report]) -> TextTable {
    use Align::{Left, Right};
    let mut table = TextTable::new([
        ("document", Left),
        ("figure", Left),
        ("published", Right),
        ("repeated", Right),
        ("ours", Right),
        ("cells in/out", Right),
        ("relations", Right),
        ("goals", Right),
    ]);
    for line in lines(reports) {
        let [published, repeated, ours] = line.figures;
        let Line { name, figure, cells, relations, goals, .. } = line;
        table.row([name, figure, published, repeated, ours, cells, relations, goals]);
    }
    table
}

/// The experiment with the first author's last name and the year.
fn name(report: &Report) -> String {
    let author = report.document.author.split(',').next().unwrap_or_default();
    let author = author.split_whitespace().last().unwrap_or_default();
    let year = report.document.date.split('-').next().unwrap_or_default();
    format!("{}, {author} {year}", report.experiment)
}

fn figures(report: &Report) -> [String; 3] {
    let Some(headline) = &report.headline else { return ["-", "-", "-"].map(str::to_owned) };
    let figure = |cell: &CellReport| optional(cell.obtained, cell.decimals);
    let mark = if headline.cell.role == Role::Calibrated { "◆" } else { "" };
    [
        text::published(&headline.cell),
        format!("{}{mark}", figure(&headline.cell)),
        headline.ours.as_ref().map_or("-".to_owned(), |(_, cell)| figure(cell)),
    ]
}

fn add(a: Summary, b: Summary) -> Summary {
    fn both<const N: usize>(a: [usize; N], b: [usize; N]) -> [usize; N] {
        std::array::from_fn(|index| a[index] + b[index])
    }
    Summary {
        cells: both(a.cells, b.cells),
        calibrated: a.calibrated + b.calibrated,
        relations: both(a.relations, b.relations),
        goals: both(a.goals, b.goals),
    }
}

/// What lies outside of its range: one sentence each, without reasons.
pub fn outside(reports: &[Report]) -> Vec<String> {
    let of = |report: &Report| {
        let name = &report.experiment;
        let cells = report.tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells);
        let cells = cells.filter(|cell| cell.band == Band::Outside).map(|cell| {
            let within = text::span(cell.within.unwrap_or([f64::NAN; 2]));
            let figure = optional(cell.obtained, cell.decimals);
            format!("{name} {}: {} {figure}, not {within}", cell.filesystem, cell.cell)
        });
        let relations = report.relations.iter();
        let relations = relations.filter(|one| one.band == Band::Outside && !one.accepted);
        let relations = relations.map(|one| {
            let (within, figure) = (text::span(one.within), optional(one.obtained, 2));
            format!("{name} {}: {}: {figure}, not {within}", one.filesystem, one.title)
        });
        let mut all: Vec<String> = cells.chain(relations).collect();
        // A cell may be in two tables.
        all.sort();
        all.dedup();
        all
    };
    reports.iter().flat_map(of).collect()
}

/// For a terminal: the table, and what lies outside of its range in at most `most` lines.
pub fn text(reports: &[Report], most: usize) -> String {
    let mut out = table(reports).text();
    out.push_str(LEGEND);
    let outside = outside(reports);
    if outside.is_empty() {
        out.push_str("Nothing lies outside of its range.\n");
        return out;
    }
    out.push_str("\nOutside of their ranges:\n");
    for line in outside.iter().take(most) {
        out.push_str(&format!("  {}\n", cut(line)));
    }
    if outside.len() > most {
        out.push_str(&format!("  and {} more\n", outside.len() - most));
    }
    out
}

fn cut(line: &str) -> String {
    match line.chars().count() > COLUMNS - 2 {
        true => line.chars().take(COLUMNS - 5).chain("...".chars()).collect(),
        false => line.to_owned(),
    }
}
