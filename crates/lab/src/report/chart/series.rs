//! Throughput over time, distributions of latencies, idle time by cause.

use crate::record::{Detail, IdleCause, RunRecord};
use crate::report::svg::{Axis, Plot, Scale, Svg, WIDTH, colour, label};

const PLOT: Plot = Plot { left: 70.0, top: 30.0, right: WIDTH - 250.0, bottom: 230.0 };

/// Points of a series at the most.
const POINTS: usize = 150;

fn legend(svg: &mut Svg, index: usize, name: &str) {
    let Plot { top, right, .. } = PLOT;
    let at = (right + 24.0, top + 10.0 + index as f64 * 22.0);
    svg.line(&format!("series {} d{}", colour(index), index % 6), at, (at.0 + 26.0, at.1));
    svg.text("row", (at.0 + 34.0, at.1 + 4.0), "start", name);
}

/// Every rate of a run, one panel for each unit.
pub fn throughput(detail: &Detail) -> Option<String> {
    let mut units: Vec<&str> = detail.series.iter().map(|series| series.unit.as_str()).collect();
    units.dedup();
    units.sort_unstable();
    units.dedup();
    let panels: String = units.into_iter().map(|unit| panel(detail, unit)).collect();
    (!panels.is_empty()).then_some(panels)
}

fn panel(detail: &Detail, unit: &str) -> String {
    let Plot { left, top, right, bottom } = PLOT;
    let mut svg = Svg::new(WIDTH, bottom + 46.0, &format!("{unit} over time"));
    let series: Vec<_> = detail.series.iter().filter(|series| series.unit == unit).collect();
    let seconds = series.iter().map(|s| s.values.len() as f64 * s.step_ns as f64 / 1e9);
    let most = series.iter().flat_map(|s| &s.values).copied().fold(0.0, f64::max);
    let x = Scale::linear(0.0, seconds.fold(0.0, f64::max), left, right);
    let y = Scale::linear(0.0, most * 1.05, bottom, top);
    svg.axes(PLOT, Axis::new(&x, "s"), Axis::new(&y, unit));
    for (index, one) in series.iter().enumerate() {
        let step = one.step_ns as f64 / 1e9;
        // More points than pixels say nothing more: neighbours are joined.
        let join = one.values.len().div_ceil(POINTS).max(1);
        let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64;
        let points: Vec<(f64, f64)> = one
            .values
            .chunks(join)
            .enumerate()
            .map(|(i, chunk)| (x.at((i * join) as f64 * step), y.at(mean(chunk))))
            .collect();
        svg.path(&format!("series {} d{}", colour(index), index % 6), &points, true);
        legend(&mut svg, index, &one.name);
    }
    svg.finish()
}

/// The share of latencies below each value, on a logarithmic axis.
pub fn latencies(runs: &[(&str, &RunRecord)]) -> Option<String> {
    let Plot { left, top, right, bottom } = PLOT;
    let all: Vec<(String, &[(u64, u64)])> = runs
        .iter()
        .flat_map(|(title, run)| {
            let details = run.detail.iter().flat_map(|detail| &detail.latencies);
            details.map(move |one| (format!("{title}, {}", one.name), one.buckets.as_slice()))
        })
        .filter(|(_, buckets)| !buckets.is_empty())
        .collect();
    if all.is_empty() {
        return None;
    }
    let bottom = bottom.max(top + 20.0 + all.len() as f64 * 22.0);
    let plot = Plot { left, top, right, bottom };
    let mut svg = Svg::new(WIDTH, bottom + 46.0, "distribution of latencies");
    let values = || all.iter().flat_map(|(_, b)| b.iter()).map(|b| b.0 as f64 / 1e6);
    let least = values().fold(f64::MAX, f64::min).max(0.001);
    let x = Scale::log(least, values().fold(0.0, f64::max), left, right);
    let y = Scale::linear(0.0, 100.0, bottom, top);
    svg.axes(plot, Axis::new(&x, "ms (log)"), Axis::new(&y, "% below"));
    for (index, (name, buckets)) in all.iter().enumerate() {
        let total: u64 = buckets.iter().map(|bucket| bucket.1).sum();
        let mut seen = 0;
        let points: Vec<(f64, f64)> = buckets
            .iter()
            .map(|(value, count)| {
                seen += count;
                (x.at(*value as f64 / 1e6), y.at(seen as f64 / total as f64 * 100.0))
            })
            .collect();
        svg.path(&format!("series {} d{}", colour(index), index % 6), &points, true);
        legend(&mut svg, index, &format!("{name} ({total})"));
    }
    Some(svg.finish())
}

/// The device's time in each run: busy, and idle by cause.
pub fn idle_bars(runs: &[(&str, &RunRecord)]) -> Option<String> {
    if runs.is_empty() {
        return None;
    }
    let (left, right, row) = (250.0, WIDTH - 60.0, 30.0);
    let bottom = 60.0 + runs.len() as f64 * row;
    let mut svg = Svg::new(WIDTH, bottom + 40.0, "what the device's time went to");
    let x = Scale::linear(0.0, 100.0, left, right);
    let classes = ["others-wait", "nothing-waits", "held", "no-request"];
    let mut at = left;
    for (class, words) in
        classes.iter().zip(IdleCause::ALL.map(IdleCause::title)).chain([(&"busy", "busy")])
    {
        svg.rect(&format!("idle {class}"), (at, 14.0), (12.0, 12.0), "");
        svg.text("tick", (at + 17.0, 24.0), "start", words);
        at += 30.0 + words.len() as f64 * 6.1;
    }
    for (index, (title, run)) in runs.iter().enumerate() {
        let y = 44.0 + index as f64 * row;
        svg.text("row", (left - 12.0, y + 15.0), "end", title);
        let total = run.seconds.max(1e-9) * 1e9;
        let mut from = 0.0;
        let idle = IdleCause::ALL.map(|cause| run.idle_ns.get(&cause).copied().unwrap_or(0));
        let busy = (total - idle.iter().sum::<u64>() as f64).max(0.0);
        let parts = classes.iter().zip(idle.map(|ns| ns as f64)).chain([(&"busy", busy)]);
        for (class, ns) in parts {
            let share = ns / total * 100.0;
            let (start, end) = (x.at(from), x.at(from + share));
            let tip = format!("{title}: {class} {} %", label(share));
            svg.rect(&format!("idle {class}"), (start, y), (end - start, 21.0), &tip);
            if share >= 6.0 {
                let place = ((start + end) / 2.0, y + 15.0);
                svg.text("inbar", place, "middle", &format!("{share:.0} %"));
            }
            from += share;
        }
    }
    svg.text("name", ((left + right) / 2.0, bottom + 24.0), "middle", "% of the simulated time");
    Some(svg.finish())
}
