//! Points: the frontier, and sweeps.

use crate::report::model::{FrontierReport, SweepReport};
use crate::report::number;
use crate::report::svg::{Axis, Plot, Scale, Svg, WIDTH, colour};

const PLOT: Plot = Plot { left: 70.0, top: 34.0, right: WIDTH - 250.0, bottom: 380.0 };

/// Colours repeat after six: the shape then differs.
fn shape(index: usize) -> usize {
    index + index / 6
}

/// Two metrics against each other, every variant a point; the document's points are hollow.
pub fn frontier(report: &FrontierReport) -> String {
    let Plot { left, top, right, bottom } = PLOT;
    let mut svg = Svg::new(WIDTH, bottom + 46.0, &report.title);
    let published = report.points.iter().filter_map(|point| point.published);
    let all: Vec<[f64; 2]> =
        report.points.iter().map(|p| [p.x, p.y]).chain(published).chain(report.goal).collect();
    let most = |index: usize| all.iter().map(|p| p[index]).fold(0.0, f64::max) * 1.08;
    let (x, y) =
        (Scale::linear(0.0, most(0), left, right), Scale::linear(0.0, most(1), bottom, top));
    let [across, upwards] = &report.axes;
    svg.axes(PLOT, Axis::new(&x, across), Axis::new(&y, upwards));
    if let Some([gx, gy]) = report.goal {
        svg.rect("goal", (x.at(gx), top), (right - x.at(gx), y.at(gy) - top), "the goal");
        svg.text("note", (right - 6.0, top + 14.0), "end", "goal");
    }
    let mut best: Vec<(f64, f64)> =
        report.points.iter().filter(|p| p.best).map(|p| (x.at(p.x), y.at(p.y))).collect();
    best.sort_by(|a, b| a.0.total_cmp(&b.0));
    svg.path("front", &best, false);
    for (index, point) in report.points.iter().enumerate() {
        let class = colour(index);
        let at = (x.at(point.x), y.at(point.y));
        if let Some([px, py]) = point.published {
            let there = (x.at(px), y.at(py));
            svg.line("link", at, there);
            let tip = format!("{} in the document: {px}, {py}", point.title);
            svg.mark(&format!("hollow {class}"), shape(index), there, &tip);
        }
        let tip = format!("{}: {:.1}, {:.1}", point.title, point.x, point.y);
        svg.mark(&class, shape(index), at, &tip);
        let legend = (right + 24.0, top + 10.0 + index as f64 * 22.0);
        svg.mark(&class, shape(index), legend, "");
        let best = if point.best { " (frontier)" } else { "" };
        let words = format!("{}{best}", point.title);
        svg.text("row", (legend.0 + 12.0, legend.1 + 4.0), "start", &words);
    }
    let place = (right + 24.0, top + 20.0 + report.points.len() as f64 * 22.0);
    svg.text("note", place, "start", "hollow: the document's figures");
    svg.finish()
}

/// One line for each variant over a logarithmic axis.
pub fn sweep(report: &SweepReport) -> String {
    let Plot { left, top, right, bottom } = PLOT;
    let mut svg = Svg::new(WIDTH, bottom + 46.0, &report.title);
    let points = || report.lines.iter().flat_map(|line| &line.points);
    let values = || points().map(|point| point.0 as f64);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let log = low > 0.0 && high / low > 15.0;
    let x = match log {
        true => Scale::log(low, high, left, right),
        false => Scale::linear(low.min(0.0), high, left, right),
    };
    let limit = report.limit.as_ref().map(|limit| limit.0);
    let most = points().map(|point| point.1).chain(limit).fold(0.0, f64::max);
    let y = Scale::linear(0.0, most * 1.05, bottom, top);
    let unit = format!("{} ({})", report.vary, report.unit);
    svg.axes(PLOT, Axis::new(&x, &unit), Axis::new(&y, &report.metric));
    if let Some((limit, words)) = &report.limit {
        svg.path("front", &[(left, y.at(*limit)), (right, y.at(*limit))], false);
        svg.text("note", (left + 6.0, y.at(*limit) - 5.0), "start", words);
    }
    for (index, line) in report.lines.iter().enumerate() {
        let class = colour(index);
        let path: Vec<(f64, f64)> =
            line.points.iter().map(|(v, found)| (x.at(*v as f64), y.at(*found))).collect();
        svg.path(&format!("series {class}"), &path, false);
        for ((value, found), at) in line.points.iter().zip(&path) {
            let tip = format!(
                "{}: {value} {} gives {}",
                line.title,
                report.unit,
                number::number(*found, 1)
            );
            svg.mark(&class, shape(index), *at, &tip);
        }
        let legend = (right + 24.0, top + 10.0 + index as f64 * 22.0);
        svg.mark(&class, shape(index), legend, "");
        svg.text("row", (legend.0 + 12.0, legend.1 + 4.0), "start", &line.title);
    }
    svg.finish()
}
