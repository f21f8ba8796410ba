//! The report as one page: everything is in it, nothing is fetched.

use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::{Value, json};

use super::model::{CellReport, RelationReport, Report, Role, TableReport};
use super::table::{Align, TextTable};
use super::{chart, number, summary, svg, tail, text};
use crate::record::RunRecord;

const TEMPLATE: &str = include_str!("report.html");

/// The page of several experiments; `template` replaces ours.
pub fn render(reports: &[Report], template: Option<&str>) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::Html);
    let explain = |error: minijinja::Error| match error.line() {
        Some(line) => format!("template, line {line}: {error}"),
        None => format!("template: {error}"),
    };
    environment.add_template("report", template.unwrap_or(TEMPLATE)).map_err(explain)?;
    let template = environment.get_template("report").map_err(explain)?;
    let data = json!({
        "lines": summary::lines(reports),
        "outside": summary::outside(reports),
        "reports": reports.iter().map(page).collect::<Vec<Value>>(),
    });
    template.render(Serde(data)).map_err(explain)
}

/// What the template gets of a report.
fn page(report: &Report) -> Value {
    let mut data = report.json();
    // Raw samples are for programs; the page has its pictures instead.
    data["runs"] = json!([]);
    let tables: Vec<Value> = report.tables.iter().map(table).collect();
    let sweeps: Vec<Value> = report
        .sweeps
        .iter()
        .zip(text::sweeps(report))
        .map(|(sweep, (title, numbers))| {
            let picture = chart::sweep(sweep);
            let text = numbers.text();
            json!({ "title": title, "note": sweep.note, "picture": picture, "text": text })
        })
        .collect();
    let relations: Vec<Value> = report.relations.iter().map(relation).collect();
    json!({
        "data": data,
        "summary": text::summary(report),
        "relations": relations,
        "relation_plot": chart::relations(report),
        "tables": tables,
        "sweeps": sweeps,
        "frontier": report.frontier.as_ref().map(|one| {
            json!({ "title": one.title, "note": one.note, "filesystem": one.filesystem,
                       "picture": chart::frontier(one) })
        }),
        "scenes": scenes(report),
        "idle": idle(report),
        "latency": latency(report),
        "tail": Some(tail::table(report)).filter(|table| !table.is_empty())
            .map(|table| text_table(&table)),
        "bases": report.bases(),
        "calibrated": calibrated(report),
    })
}

/// The cells that fixed the machine, and what each fixed.
fn calibrated(report: &Report) -> Vec<String> {
    let cells = report.tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells);
    let fixing = cells.filter(|cell| cell.role == Role::Calibrated);
    let mut all: Vec<String> = fixing
        .map(|cell| match &cell.fixes {
            Some(what) => format!("{}: {what}", cell.cell),
            None => cell.cell.clone(),
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

fn table(table: &TableReport) -> Value {
    let rows: Vec<Value> = table
        .rows
        .iter()
        .map(|row| {
            let cells: Vec<Value> = row.cells.iter().map(cell).collect();
            json!({ "title": row.title, "note": row.note, "cells": cells })
        })
        .collect();
    let comparisons: Vec<Value> = table
        .comparisons
        .iter()
        .map(|one| {
            let figures = &one.figures;
            json!({
                "metric": one.metric, "unit": one.unit, "after": one.after, "before": one.before,
                "arrow": if one.better == crate::stats::Better::Higher { "↑" } else { "↓" },
                "n": figures.n.0.min(figures.n.1),
                "from": number::number(figures.before, 1), "to": number::number(figures.after, 1),
                "change": text::change(figures), "effect": format!("{:+.2}", figures.effect),
                "p": text::p_value(table, figures), "verdict": figures.verdict.word(),
                "sign": figures.verdict.sign(), "reason": figures.reason,
            })
        })
        .collect();
    let mut standings = text::standings(table);
    standings.extend(text::p_note(table));
    json!({
        "title": table.title, "note": table.note, "filesystem": table.filesystem,
        "columns": &table.columns, "rows": rows, "comparisons": comparisons,
        "forest": chart::forest(table), "standings": standings,
        "wide": table.wide.then(|| text_table(&text::wide(table))), "changes": &table.changes,
    })
}

fn cell(cell: &CellReport) -> Value {
    json!({
        "name": cell.cell,
        "published": text::published(cell),
        "obtained": number::optional(cell.obtained, cell.decimals),
        "range": cell.range.filter(|range| range[0] != range[1]).map(|[low, high]| {
            [low, high].map(|end| number::number(end, cell.decimals)).join(" – ")
        }),
        "n": cell.n,
        "unit": cell.unit,
        "ratio": cell.ratio.map(|ratio| number::number(ratio, 2)),
        "role": text::role(cell),
        "fixes": cell.fixes,
        "band": cell.band.word(),
        "sign": cell.band.sign(),
        "within": cell.within.map(text::span),
        "reason": cell.reason,
        "evidence": cell.evidence,
        "notes": cell.notes,
        "command": cell.command,
    })
}

fn relation(one: &RelationReport) -> Value {
    json!({
        "title": one.title, "value": one.value, "filesystem": one.filesystem,
        "published": number::optional(one.published, 2),
        "obtained": number::optional(one.obtained, 2),
        "within": text::span(one.within), "band": one.band.word(), "holds": text::holds(one),
        "sign": if one.accepted { "~" } else { one.band.sign() },
        "reason": one.reason, "evidence": one.evidence,
    })
}

/// The runs with pictures, by title.
fn detailed(report: &Report) -> Vec<(String, &RunRecord)> {
    let title = |run: &RunRecord| {
        let rows = report.tables.iter().flat_map(|table| &table.rows);
        let row = rows.into_iter().find(|row| row.variant == run.key.variant);
        let variant = row.map_or(run.key.variant.clone(), |row| row.title.clone());
        format!("{variant}, {}, {}", run.key.case, run.key.filesystem)
    };
    let runs = report.runs.iter().filter(|run| run.detail.is_some());
    runs.map(|run| (title(run), run)).collect()
}

fn scenes(report: &Report) -> Vec<Value> {
    let scene = |(title, run): (String, &RunRecord)| {
        let detail = run.detail.as_ref()?;
        let picture = chart::timeline(detail)?;
        Some(json!({
            "title": title, "picture": picture, "seed": run.key.seed, "hash": run.event_hash,
            "throughput": chart::throughput(detail),
            "command": format!(
                "iopath lab run {} --filesystem {} --variant {} --case {} --seeds {} --trace DIR",
                report.experiment, run.key.filesystem, run.key.variant, run.key.case, run.key.seed
            ),
        }))
    };
    detailed(report).into_iter().filter_map(scene).collect()
}

fn named<'a>(runs: &'a [(String, &'a RunRecord)]) -> Vec<(&'a str, &'a RunRecord)> {
    runs.iter().map(|(title, run)| (title.as_str(), *run)).collect()
}

fn idle(report: &Report) -> Option<String> {
    chart::idle_bars(&named(&detailed(report)))
}

/// One picture for each case that has latencies.
fn latency(report: &Report) -> Vec<Value> {
    let runs = detailed(report);
    let mut groups: Vec<(&str, &str)> =
        runs.iter().map(|(_, r)| (r.key.case.as_str(), r.key.filesystem.as_str())).collect();
    groups.sort_unstable();
    groups.dedup();
    let picture = |(case, filesystem): (&str, &str)| {
        let same = |run: &RunRecord| run.key.case == case && run.key.filesystem == filesystem;
        let own: Vec<(&str, &RunRecord)> = named(&runs)
            .into_iter()
            .filter(|(_, run)| same(run))
            .map(|(title, run)| (title.split(',').next().unwrap_or(title), run))
            .collect();
        let picture = chart::latencies(&own)?;
        Some(json!({ "title": format!("{case}, {filesystem}"), "picture": picture }))
    };
    groups.into_iter().filter_map(picture).collect()
}

/// A table as HTML.
fn text_table(table: &TextTable) -> String {
    // Words stand left, figures right.
    let words = |cell: &str| cell.chars().filter(|c| c.is_alphabetic()).count() > 3;
    let left = |index: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(index));
        let all = cells.clone().count();
        table.columns.get(index).is_some_and(|head| head.1 == Align::Left)
            && cells.clone().any(|cell| words(cell))
            || 2 * cells.filter(|cell| words(cell)).count() > all
            || index == 0
    };
    let class = |index| if left(index) { " class=\"left\"" } else { "" };
    let cell = |element: &str, index: usize, text: &str| {
        format!("<{element}{}>{}</{element}>", class(index), marked(text))
    };
    // Rows without a head of their own lie beside that of the one above them.
    let goes_on = |row: &Vec<String>| row.first().is_some_and(String::is_empty);
    let row = |(number, row): (usize, &Vec<String>)| {
        let below = table.rows[number + 1..].iter().take_while(|row| goes_on(row)).count();
        let head = match row.first() {
            Some(head) if below > 0 && !goes_on(row) => {
                let span = below + 1;
                format!("<td class=\"left\" rowspan=\"{span}\">{}</td>", marked(head))
            }
            Some(head) if !goes_on(row) || number == 0 => cell("td", 0, head),
            _ => String::new(),
        };
        let cells = row.iter().enumerate().skip(1);
        let cells: String = cells.map(|(index, text)| cell("td", index, text)).collect();
        let class = if goes_on(row) { " class=\"more\"" } else { "" };
        format!("<tr{class}>{head}{cells}</tr>\n")
    };
    let heads = table.columns.iter().enumerate();
    let heads: String = heads.map(|(index, head)| cell("th", index, &head.0)).collect();
    format!(
        "<div class=\"scroll\"><table class=\"plain\">\n<thead><tr>{heads}</tr></thead><tbody>\n\
         {}</tbody></table></div>\n",
        table.rows.iter().enumerate().map(row).collect::<String>()
    )
}

/// Words that say where a figure lies get the colour and the sign that they have elsewhere.
fn marked(text: &str) -> String {
    let chip = |class: &str, sign: &str| {
        format!("<span class=\"chip {class}\">{sign} {}</span>", text.to_lowercase())
    };
    match text {
        "same sign" => chip("inside", "✓"),
        "other sign" => chip("outside", "✗"),
        _ => inline(text),
    }
}

/// Text with the letters that HTML reserves replaced, and code between back quotes.
fn inline(text: &str) -> String {
    let text = svg::escape(text);
    let parts = text.split('`').enumerate().map(|(index, part)| match index % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 2]]) -> String {
        let mut table = TextTable::new([("a", Align::Left), ("n", Align::Right)]);
        rows.iter().for_each(|row| table.row(row.map(str::to_owned)));
        text_table(&table)
    }

    #[test]
    fn rows_without_a_head_lie_beside_the_one_above_them() {
        let html = table(&[["one", "1"], ["", "2"], ["two", "3"]]);
        let one = "<tr><td class=\"left\" rowspan=\"2\">one</td><td>1</td></tr>\n";
        assert!(html.contains(&format!("{one}<tr class=\"more\"><td>2</td></tr>\n")), "{html}");
        assert!(html.contains("<tr><td class=\"left\">two</td><td>3</td></tr>"), "{html}");
    }

    #[test]
    fn reserved_letters_are_replaced_and_words_get_their_colour() {
        let html = table(&[["<a> `b`", "&"], ["c", "same sign"]]);
        assert!(html.contains("&lt;a&gt; <code>b</code></td><td>&amp;</td>"), "{html}");
        assert!(html.contains("<span class=\"chip inside\">✓ same sign</span>"), "{html}");
    }
}
