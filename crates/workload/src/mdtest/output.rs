//! What mdtest prints.

use std::fmt::Write;

use rt::Cx;

use super::options::Options;
use super::run::{Report, Row};
use crate::calendar::short;
use crate::{Space, Target};

/// Everything above the summary.
pub(super) fn start(cx: &mut Cx, target: &Target, options: &Options) -> String {
    let mut text = format!("-- started at {} --\n\n", short(cx.realtime()));
    let tasks = options.tasks;
    writeln!(text, "mdtest-4.1.0+dev was launched with {tasks} total task(s) on 1 node(s)")
        .expect("writing to a string");
    let quoted: Vec<String> =
        options.arguments.iter().map(|argument| format!("'{argument}'")).collect();
    writeln!(text, "Command line used: mdtest {}", quoted.join(" ")).expect("writing to a string");
    if options.read && options.read_bytes == 0 && options.files_too {
        text.push_str(
            "WARNING: Read bytes is 0, thus, a read test will actually just open/close\n",
        );
    }
    writeln!(text, "Nodemap: {}", "1".repeat(tasks as usize)).expect("writing to a string");
    for directory in &options.directories {
        writeln!(text, "{:<20}: {directory}", "Path").expect("writing to a string");
        let place = directory.rsplit_once('/').map_or(".", |(above, _)| above);
        let here = target.space(cx, directory.as_bytes());
        let space = here.or_else(|_| target.space(cx, place.as_bytes()));
        writeln!(text, "{:<20}: {}", "FS", space.map_or("unknown".into(), space_line))
            .expect("writing to a string");
    }
    let kinds = match (options.directories_too, options.files_too) {
        (true, true) => "files/directories",
        (true, false) => "directories",
        _ => "files",
    };
    writeln!(text, "{tasks} tasks, {} {kinds}", tasks * options.items_of_a_task())
        .expect("writing to a string");
    text
}

fn space_line(space: Space) -> String {
    let gib = (space.blocks * space.block_size) as f64 / (1u64 << 30) as f64;
    let (size, unit) = if gib >= 1024.0 { (gib / 1024.0, "TiB") } else { (gib, "GiB") };
    let share = |free: u64, all: u64| 100.0 * (1.0 - free as f64 / all.max(1) as f64);
    format!(
        "{size:.1} {unit}   Used FS: {:.1}%   Inodes: {:.1} Mi   Used Inodes: {:.1}%",
        share(space.free, space.blocks),
        space.inodes as f64 / f64::from(1 << 20),
        share(space.inodes_free, space.inodes)
    )
}

/// The tables.
pub(super) fn summary(options: &Options, report: &Report) -> String {
    let mut text = String::new();
    if !options.times_only {
        table(&mut text, options, "rate (in ops/sec)", report, |_, rate| rate);
    }
    if options.times_only || options.times_too {
        let millis = |row: &Row, rate: f64| if row.items == 0 { 0.0 } else { 1000.0 / rate };
        table(&mut text, options, "time (in ms/op)", report, millis);
    }
    text
}

fn table(
    text: &mut String,
    options: &Options,
    what: &str,
    report: &Report,
    value: impl Fn(&Row, f64) -> f64,
) {
    writeln!(text, "\nSUMMARY {what}: (of {} iterations)", options.iterations)
        .expect("writing to a string");
    text.push_str(
        "   Operation                     Max            Min           Mean        Std Dev\n",
    );
    text.push_str(
        "   ---------                     ---            ---           ----        -------\n",
    );
    for row in &report.rows {
        let values: Vec<f64> = row.rates.iter().map(|&rate| value(row, rate)).collect();
        let count = values.len() as f64;
        let max = values.iter().copied().fold(f64::MIN, f64::max);
        let min = values.iter().copied().fold(f64::MAX, f64::min);
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        let label = row.operation.label();
        writeln!(text, "   {label:<22} {max:>14.3} {min:>14.3} {mean:>14.3} {deviation:>14.3}")
            .expect("writing to a string");
    }
}

/// The last lines.
pub(super) fn end(cx: &Cx) -> String {
    format!("-- finished at {} --\n\n", short(cx.realtime()))
}
