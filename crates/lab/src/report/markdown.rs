//! The report as Markdown, for documents.

use super::model::{Band, Report};
use super::{tail, text};

pub fn render(report: &Report) -> String {
    let document = &report.document;
    let mut out = format!("# {}\n\n", report.experiment);
    out.push_str(&format!("*{}*, {}, {}\n\n", document.title, document.author, document.date));
    out.push_str(&format!("{}\n\n{}\n\n", report.question, document.summary));
    out.push_str(&format!("Made by `{}`. {}.\n", report.command, text::summary(report)));
    for table in &report.tables {
        out.push_str(&format!("\n## {}, {}\n\n", table.title, table.filesystem));
        if !table.note.is_empty() {
            out.push_str(&format!("{}\n\n", table.note));
        }
        let rows = if table.wide { text::wide(table) } else { text::table(table) };
        out.push_str(&rows.markdown());
        if !table.changes.is_empty() {
            out.push('\n');
        }
        table.changes.iter().for_each(|line| out.push_str(&format!("- {line}\n")));
        let outside = table.rows.iter().flat_map(|row| &row.cells);
        let outside: Vec<_> = outside.filter(|cell| cell.band == Band::Outside).collect();
        if !outside.is_empty() {
            out.push_str("\nOutside:\n\n");
        }
        outside.iter().for_each(|cell| out.push_str(&format!("- {}\n", text::because(cell))));
    }
    let relations = text::relation_table(report);
    if !relations.is_empty() {
        out.push_str(&format!("\n## What must hold\n\n{}\n", relations.markdown()));
        for one in report.relations.iter().filter(|one| one.band == Band::Outside) {
            out.push_str(&format!("- {}\n", text::relation_because(one)));
        }
    }
    for table in report.tables.iter().filter(|table| !table.comparisons.is_empty()) {
        let head = format!("{} and others, {}", table.comparisons[0].before, table.filesystem);
        let rows = text::comparison_table(table).markdown();
        out.push_str(&format!("\n## Before and after: {head}\n\n{rows}\n"));
        let lines = text::standings(table).into_iter().chain(text::p_note(table));
        lines.for_each(|line| out.push_str(&format!("- {line}\n")));
    }
    let tail = tail::table(report);
    if !tail.is_empty() {
        out.push_str(&format!("\n## Latencies of the first seed, ms\n\n{}", tail.markdown()));
    }
    for (sweep, (title, table)) in report.sweeps.iter().zip(text::sweeps(report)) {
        out.push_str(&format!("\n## {title}\n\n"));
        if !sweep.note.is_empty() {
            out.push_str(&format!("{}\n\n", sweep.note));
        }
        out.push_str(&table.markdown());
    }
    out.push_str("\n## Surroundings\n\n");
    for (name, value) in &report.surroundings {
        out.push_str(&format!("- {name}: `{value}`\n"));
    }
    out
}
