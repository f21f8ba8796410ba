//! Requests over time: one lane for each task, and where on the device they go.

use std::collections::BTreeMap;

use crate::record::{Detail, Shown};
use crate::report::svg::{Axis, Plot, Scale, Svg, WIDTH, colour};

const LEFT: f64 = 150.0;
const RIGHT: f64 = WIDTH - 20.0;
const LANE: f64 = 40.0;

/// The time line of a run: above, each task's requests (waiting pale, in the device solid) and the
/// elevator's idle periods; below, their sectors.
pub fn timeline(detail: &Detail) -> Option<String> {
    let first = detail.timeline.iter().map(|shown| shown.queued.min(shown.dispatched)).min()?;
    let last = detail.timeline.iter().map(|shown| shown.completed).max()?;
    let lanes: BTreeMap<u64, usize> =
        detail.tasks.keys().enumerate().map(|(index, ioc)| (*ioc, index)).collect();
    let top = 34.0;
    let middle = top + lanes.len() as f64 * LANE + 20.0;
    let bottom = middle + 150.0;
    let mut svg = Svg::new(WIDTH, bottom + 46.0, "requests by task and sector");
    let ms = |ns: u64| ns as f64 / 1e6;
    let x = Scale::linear(ms(first), ms(last), LEFT, RIGHT);
    for (ioc, lane) in &lanes {
        let y = top + *lane as f64 * LANE;
        svg.line("grid", (LEFT, y + LANE - 6.0), (RIGHT, y + LANE - 6.0));
        let name = detail.tasks.get(ioc).map_or("", String::as_str);
        svg.text("row", (LEFT - 12.0, y + 19.0), "end", name);
    }
    let clip = |from: u64, until: u64| (x.at(ms(from)), x.at(ms(until)));
    svg.open("idling");
    for (from, until, ioc) in &detail.idles {
        let Some(lane) = lanes.get(ioc) else { continue };
        let (start, end) = clip(*from, *until);
        let y = top + *lane as f64 * LANE + 27.0;
        svg.item(
            ((start, y), ((end - start).max(0.5), 5.0)),
            &format!("i {}", (until - from) / 1000),
        );
    }
    svg.close();
    for (ioc, index) in &lanes {
        svg.open(&colour(*index));
        lane(&mut svg, detail, *ioc, top + *index as f64 * LANE + 4.0, &clip);
        svg.close();
    }
    let plot = Plot { left: LEFT, top: middle + 14.0, right: RIGHT, bottom };
    sectors(&mut svg, detail, &lanes, &x, plot);
    svg.text(
        "name",
        (LEFT, top - 14.0),
        "start",
        "tasks: pale waits, solid is in the device, \
              hatched below: the elevator idles for the task",
    );
    Some(svg.finish())
}

/// The requests of one task.
fn lane(svg: &mut Svg, detail: &Detail, ioc: u64, y: f64, clip: &dyn Fn(u64, u64) -> (f64, f64)) {
    let own = || detail.timeline.iter().filter(|shown| shown.ioc == ioc);
    let waits = own().filter_map(|shown| {
        let (queued, dispatched) = clip(shown.queued, shown.dispatched);
        let span = dispatched - queued;
        (span > 0.3).then_some(((queued, y + 5.0), (span, 12.0)))
    });
    svg.boxes("wait", &waits.collect::<Vec<_>>(), "");
    for (sync, class) in [(true, "device"), (false, "device async")] {
        svg.open(class);
        for shown in own().filter(|shown| shown.sync == sync) {
            let (start, end) = clip(shown.dispatched, shown.completed);
            svg.item(((start, y), ((end - start).max(0.8), 22.0)), &data(shown));
        }
        svg.close();
    }
}

/// What the page's script makes the tooltip of: direction and kind, KiB, sector, microseconds
/// waited and in the device.
fn data(shown: &Shown) -> String {
    let word = if shown.write { 'w' } else { 'r' };
    let sync = if shown.sync { 's' } else { 'a' };
    let us = |from: u64, until: u64| (until - from) / 1000;
    let waited = us(shown.queued, shown.dispatched);
    let took = us(shown.dispatched, shown.completed);
    format!("{word}{sync} {} {} {waited} {took}", shown.count / 2, shown.sector)
}

fn sectors(svg: &mut Svg, detail: &Detail, lanes: &BTreeMap<u64, usize>, x: &Scale, plot: Plot) {
    let gib = |sector: u64| sector as f64 * 512.0 / (1u64 << 30) as f64;
    let places = || detail.timeline.iter().map(|shown| gib(shown.sector));
    let (low, high) = (places().fold(f64::MAX, f64::min), places().fold(0.0, f64::max));
    let y = Scale::linear(low.min(high), high.max(low + 0.001), plot.bottom, plot.top);
    svg.axes(plot, Axis::new(x, "ms since the start"), Axis::new(&y, "GiB"));
    for (ioc, lane) in lanes {
        let own = detail.timeline.iter().filter(|shown| shown.ioc == *ioc).map(|shown| {
            let at = (x.at(shown.dispatched as f64 / 1e6) - 1.5, y.at(gib(shown.sector)) - 1.5);
            (at, if shown.write { (3.0, 3.0) } else { (5.0, 2.0) })
        });
        svg.boxes(&format!("device {}", colour(*lane)), &own.collect::<Vec<_>>(), "");
    }
}
