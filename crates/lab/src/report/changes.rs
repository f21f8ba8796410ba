//! Changes in percent that were measured in pairs: what each says, and what all of a table say.

use super::model::{Band, CellReport, Role, RowReport, TableReport};
use crate::stats::{Change, Interval, Verdict};

/// The change of a cell, where it is one.
pub fn of(cell: &CellReport) -> Option<Change> {
    let spread = cell.spread?;
    let interval = Interval { low: spread.low, high: spread.high };
    Some(Change { percent: cell.obtained?, interval, pairs: spread.pairs })
}

/// A sentence for each variant and what it is compared with, and one on signs in the table.
pub fn sentences(table: &TableReport) -> Vec<String> {
    let mut all = of_changes(table);
    let mut cells = table.rows.iter().flat_map(|row| &row.cells);
    let signed = |cell: &CellReport| cell.role == Role::Calibrated || cell.band == Band::Outside;
    if table.wide && cells.any(signed) {
        all.push("◆ is calibrated, ✗ is outside of its range.".to_owned());
    }
    all
}

fn of_changes(table: &TableReport) -> Vec<String> {
    let against = table.columns.iter().filter_map(|column| column.against.as_deref());
    let mut against: Vec<&str> = against.collect();
    against.sort_unstable();
    against.dedup();
    let of_row = |row: &RowReport, against: &str| {
        let cells = row.cells.iter().zip(&table.columns);
        let own = cells.filter(|(_, column)| column.against.as_deref() == Some(against));
        let changes: Vec<(String, Change)> = own
            .filter_map(|(cell, column)| {
                Some((format!("{} of {}", column.metric, column.case), of(cell)?))
            })
            .collect();
        (!changes.is_empty()).then(|| sentence(&format!("{} to {against}", row.title), &changes))
    };
    let rows = table.rows.iter();
    rows.flat_map(|row| against.iter().filter_map(move |one| of_row(row, one))).collect()
}

fn sentence(what: &str, changes: &[(String, Change)]) -> String {
    let count = |test: &dyn Fn(&Change) -> bool| changes.iter().filter(|one| test(&one.1)).count();
    let verdict = |word: Verdict| count(&|change| change.verdict() == word);
    let lost = changes.iter().filter(|(_, change)| change.loses());
    let lost: Vec<String> =
        lost.map(|(name, change)| format!("{name} ({:+.1} %)", change.percent)).collect();
    let named = if lost.is_empty() { String::new() } else { format!(": {}", lost.join(", ")) };
    format!(
        "{what}: {} figures, {} with an interval narrower than 1 %; {} better, {} worse, {} the \
         same within 2 %, {} unclear; a loss of 1 % is excluded in {}, found in {}{named}.",
        changes.len(),
        count(&Change::narrow),
        verdict(Verdict::Better),
        verdict(Verdict::Worse),
        verdict(Verdict::Same),
        verdict(Verdict::Unclear),
        count(&Change::loses_nothing),
        lost.len()
    )
}
