//! Ratios with their bands, one row each.

use crate::report::model::{Band, CellReport, Report, Role, TableReport};
use crate::report::svg::{Scale, Svg, WIDTH};
use crate::report::{number, text};

const LEFT: f64 = 330.0;
const RIGHT: f64 = WIDTH - 150.0;
const ROW: f64 = 24.0;

/// Obtained by published of every published cell of a table, with its band.
pub fn forest(table: &TableReport) -> Option<String> {
    let rows: Vec<(String, &CellReport)> = table
        .rows
        .iter()
        .flat_map(|row| {
            row.cells.iter().zip(&table.columns).map(move |(cell, column)| {
                (format!("{}, {}: {}", row.title, column.case, column.metric), cell)
            })
        })
        .filter(|(_, cell)| cell.ratio.is_some())
        .collect();
    if rows.is_empty() {
        return None;
    }
    let title = format!("obtained by published, {}", table.filesystem);
    let bottom = 30.0 + rows.len() as f64 * ROW;
    let mut svg = Svg::new(WIDTH, bottom + 40.0, &title);
    let scale = Scale::log(0.2, 5.0, LEFT, RIGHT);
    frame(&mut svg, &scale, bottom, "obtained / published (log)");
    for (index, (name, cell)) in rows.iter().enumerate() {
        let y = 30.0 + (index as f64 + 0.5) * ROW;
        svg.text("row", (LEFT - 12.0, y + 4.0), "end", name);
        let published = cell.published.unwrap_or(1.0);
        let by = |value: f64| value / published;
        if let Some([low, high]) = cell.within {
            bar(&mut svg, &scale, y, [by(low), by(high)], "band");
        }
        if let Some([low, high]) = cell.range {
            svg.line("range", (scale.at(by(low)), y), (scale.at(by(high)), y));
        }
        let ratio = cell.ratio.unwrap_or(1.0);
        let tip = format!("{} of {published} {}", number::optional(cell.obtained, 2), cell.unit);
        let class = if cell.role == Role::Calibrated { "calibrated" } else { cell.band.word() };
        svg.mark(class, shape(class), (scale.at(ratio), y), &tip);
        let words = match class {
            "calibrated" => format!("{ratio:.2} ◆ calibrated"),
            _ => format!("{ratio:.2} {} {}", cell.band.sign(), cell.band.word()),
        };
        svg.text("value", (RIGHT + 12.0, y + 4.0), "start", &words);
    }
    Some(svg.finish())
}

fn shape(class: &str) -> usize {
    match class {
        "calibrated" => 3,
        "outside" => 2,
        _ => 0,
    }
}

fn frame(svg: &mut Svg, scale: &Scale, bottom: f64, title: &str) {
    for tick in [0.2, 0.5, 1.0, 2.0, 5.0] {
        let class = if tick == 1.0 { "one" } else { "grid" };
        svg.line(class, (scale.at(tick), 22.0), (scale.at(tick), bottom));
        svg.text("tick", (scale.at(tick), 14.0), "middle", &format!("{tick}"));
    }
    svg.text("name", ((LEFT + RIGHT) / 2.0, bottom + 24.0), "middle", title);
}

fn bar(svg: &mut Svg, scale: &Scale, y: f64, [low, high]: [f64; 2], class: &str) {
    let (from, to) = (scale.at(low), scale.at(high.min(1e9)));
    svg.rect(class, (from, y - 7.0), ((to - from).max(2.0), 14.0), "");
}

/// Each relation by the middle of its range.
pub fn relations(report: &Report) -> Option<String> {
    if report.relations.is_empty() {
        return None;
    }
    let bottom = 30.0 + report.relations.len() as f64 * ROW;
    let mut svg = Svg::new(WIDTH, bottom + 40.0, "relations and their ranges");
    let scale = Scale::log(0.2, 5.0, LEFT, RIGHT);
    frame(&mut svg, &scale, bottom, "value / middle of its range (log)");
    for (index, one) in report.relations.iter().enumerate() {
        let y = 30.0 + (index as f64 + 0.5) * ROW;
        svg.text(
            "row",
            (LEFT - 12.0, y + 4.0),
            "end",
            &format!("{}, {}", one.title, one.filesystem),
        );
        let [low, high] = one.within;
        let middle = match (low > 0.0, high.is_finite()) {
            (true, true) => (low * high).sqrt(),
            (true, false) => low,
            _ => high,
        };
        if let Some([low, high]) = one.accept {
            bar(&mut svg, &scale, y, [low / middle, high / middle], "wide");
        }
        bar(&mut svg, &scale, y, [low / middle, high / middle], "band");
        if let Some(published) = one.published {
            let at = scale.at(published / middle);
            svg.line("published", (at, y - 9.0), (at, y + 9.0));
        }
        let value = one.obtained.unwrap_or(middle);
        let class = if one.accepted { "none" } else { one.band.word() };
        let tip = format!("{} = {value:.3}; {}", one.value, one.evidence);
        svg.mark(class, shape(class), (scale.at(value / middle), y), &tip);
        let sign = if one.accepted { "~" } else { one.band.sign() };
        let words = format!("{} {sign} {}", number::number(value, 2), text::holds(one));
        let class = if one.band == Band::Outside { "value strong" } else { "value" };
        svg.text(class, (RIGHT + 12.0, y + 4.0), "start", &words);
    }
    Some(svg.finish())
}
