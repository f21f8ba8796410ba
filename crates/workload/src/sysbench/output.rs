//! What the tool prints.

use std::fmt::Write;

use base::Nanos;

use super::options::{Dialect, Extra, IoMode, Mode, Options};
use super::run::{Prepared, Report};

/// As the tool writes sizes: a unit of 1024, few digits. Version 0.4 calls it `Kb`, 1.0 `KiB`.
fn short(bytes: f64, dialect: Dialect) -> String {
    let units = match dialect {
        Dialect::Old => ["b", "Kb", "Mb", "Gb", "Tb"],
        Dialect::New => ["B", "KiB", "MiB", "GiB", "TiB"],
    };
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{}{}", five_digits(value), units[unit])
}

/// `%.5g`.
fn five_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = value.abs().log10().floor() as i32;
    let places = (4 - digits).clamp(0, 12) as usize;
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn mode_name(mode: Mode) -> &'static str {
    Mode::ALL.iter().find(|(_, _, one)| *one == mode).expect("all modes are listed").1
}

fn title(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Old => "sysbench 0.4.12:  multi-threaded system evaluation benchmark\n\n",
        Dialect::New => "sysbench 1.0.20 (iopath)\n\n",
    }
}

fn flags(options: &Options) -> &'static str {
    let old = options.dialect == Dialect::Old;
    match (options.extra, old) {
        (Extra::None, true) => "0",
        (Extra::None, false) => "(none)",
        (Extra::Sync, true) => "sync",
        (Extra::Dsync, true) => "dsync",
        (Extra::Sync, false) => "sync ",
        (Extra::Dsync, false) => "dsync ",
        (Extra::Direct, _) => "directio",
    }
}

/// What `prepare` prints.
pub fn prepared(options: &Options, done: &Prepared) -> String {
    let mut out = String::from(title(options.dialect));
    let (files, each) = (options.files, options.file_size() >> 10);
    let _ = writeln!(out, "{files} files, {each}Kb each, {}Mb total", options.total_size >> 20);
    let _ = writeln!(out, "Creating files for the test...");
    let _ = writeln!(out, "Extra file open flags: {}", flags(options));
    for (index, reused) in done.reused.iter().enumerate() {
        let what = if *reused { "Reusing existing" } else { "Creating" };
        let _ = writeln!(out, "{what} file test_file.{index}");
    }
    let seconds = done.time.as_secs_f64().max(1e-9);
    let rate = done.bytes as f64 / f64::from(1 << 20) / seconds;
    let unit = if options.dialect == Dialect::Old { "MB" } else { "MiB" };
    let _ = match done.bytes {
        0 => writeln!(out, "No bytes written."),
        bytes => {
            writeln!(out, "{bytes} bytes written in {seconds:.2} seconds ({rate:.2} {unit}/sec).")
        }
    };
    out
}

/// A line on the time since the last one.
pub(super) fn interval(options: &Options, now: &Report, before: &Report, span: Nanos) -> String {
    let seconds = span.as_secs_f64().max(1e-9);
    let mib = |a: u64, b: u64| (a - b) as f64 / f64::from(1 << 20) / seconds;
    let (reads, writes) =
        (mib(now.read_bytes, before.read_bytes), mib(now.write_bytes, before.write_bytes));
    let syncs = (now.others - before.others) as f64 / seconds;
    let percent = options.percentile;
    let latency = now.latency.since(&before.latency).percentile(percent);
    format!(
        "[ {:.0}s ] reads: {reads:.2} MiB/s writes: {writes:.2} MiB/s fsyncs: {syncs:.2}/s \
         latency (ms,{percent}%): {latency:.3}\n",
        now.total.as_secs_f64()
    )
}

/// What is printed at a checkpoint.
pub(super) fn checkpoint(options: &Options, report: &Report) -> String {
    let at = report.total.as_secs_f64();
    format!("[ {at:.0}s ] Checkpoint report:\n{}", figures(options, report))
}

/// What is printed before the work.
pub(super) fn start(options: &Options) -> String {
    let mut out = String::new();
    let old = options.dialect == Dialect::Old;
    if !old {
        for (name, instead) in &options.deprecated {
            let _ = writeln!(out, "WARNING: --{name} is deprecated, use --{instead} instead");
        }
    }
    out.push_str(title(options.dialect));
    let _ = writeln!(out, "Running the test with following options:");
    let _ = writeln!(out, "Number of threads: {}", options.threads);
    if options.rate > 0 {
        let _ = writeln!(out, "Target transaction rate: {}/sec", options.rate);
    }
    if options.report_interval > 0 {
        let seconds = options.report_interval;
        let _ = writeln!(out, "Report intermediate results every {seconds} second(s)");
    }
    if !options.checkpoints.is_empty() {
        let times: Vec<String> = options.checkpoints.iter().map(u64::to_string).collect();
        let _ = writeln!(out, "Report checkpoint(s) at {} seconds", times.join(", "));
    }
    if options.validate {
        let _ = writeln!(out, "Validation checks: on.\n");
    }
    let _ = match (old, options.seed) {
        (true, _) => writeln!(out),
        (false, 0) => writeln!(out, "Initializing random number generator from current time\n\n"),
        (false, seed) => {
            writeln!(out, "Initializing random number generator from seed ({seed}).\n\n")
        }
    };
    plan(&mut out, options);
    out.push_str(match old {
        true => "Threads started!\n",
        false => "Initializing worker threads...\n\nThreads started!\n\n",
    });
    out
}

/// Files, blocks, order and fsync.
fn plan(out: &mut String, options: &Options) {
    let old = options.dialect == Dialect::Old;
    let size = |bytes: u64| short(bytes as f64, options.dialect);
    let _ = writeln!(out, "Extra file open flags: {}", flags(options));
    let _ = writeln!(out, "{} files, {} each", options.files, size(options.file_size()));
    let _ = writeln!(out, "{} total file size", size(options.total_size));
    let _ = writeln!(out, "Block size {}", size(options.block_size));
    if options.merged > 0 {
        let most = size(options.merged * options.block_size);
        let _ = writeln!(out, "Merging requests up to {most} for sequential IO.");
    }
    if options.mode.is_random() {
        let title = if old { "random requests for random IO" } else { "IO requests" };
        let _ = writeln!(out, "Number of {title}: {}", options.requests);
        let ratio = options.rw_ratio;
        let _ = writeln!(out, "Read/Write ratio for combined random IO test: {ratio:.2}");
    }
    if options.fsync_all {
        let _ = writeln!(out, "Calling fsync() after each write operation.");
    } else {
        if options.fsync_freq > 0 {
            let freq = options.fsync_freq;
            let _ = writeln!(out, "Periodic FSYNC enabled, calling fsync() each {freq} requests.");
        }
        if options.fsync_end {
            let _ = writeln!(out, "Calling fsync() at the end of test, Enabled.");
        }
    }
    let io = IoMode::ALL.iter().find(|(_, _, mode)| *mode == options.io_mode);
    let _ = writeln!(out, "Using {} I/O mode", io.expect("all are listed").1);
    if options.validate {
        let _ = writeln!(out, "Using checksums validation.");
    }
    let _ = writeln!(out, "Doing {} test", mode_name(options.mode));
}

/// Mean and standard deviation, as the tool computes it: of the population.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The mean.
    pub average: f64,
    /// The deviation, in the same unit.
    pub deviation: f64,
}

impl Report {
    /// How alike the threads' numbers of requests were, and their seconds in them.
    pub fn fairness(&self) -> [Spread; 2] {
        let events = spread(self.threads.iter().map(|thread| thread.events as f64));
        let times = spread(self.threads.iter().map(|thread| thread.time.as_secs_f64()));
        [events, times]
    }
}

fn spread(values: impl Iterator<Item = f64> + Clone) -> Spread {
    let count = values.clone().count().max(1) as f64;
    let average = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - average).powi(2)).sum();
    Spread { average, deviation: (squares / count).sqrt() }
}

/// What is printed after the work.
pub(super) fn summary(options: &Options, report: &Report) -> String {
    let mut out = String::new();
    if options.verbosity >= 4 {
        let counted = options.requests > 0;
        out.push_str(if counted { "Event limit exceeded, exiting...\n" } else { "" });
        out.push_str("Done.\n\n");
    } else if options.dialect == Dialect::Old {
        out.push_str("Done.\n\n");
    }
    if options.histogram {
        out.push_str(&report.latency.drawing());
    }
    out + &figures(options, report)
}

fn figures(options: &Options, report: &Report) -> String {
    match options.dialect {
        Dialect::Old => old(options, report),
        Dialect::New => new(options, report),
    }
}

fn fairness(out: &mut String, report: &Report) {
    let [events, times] = report.fairness();
    let _ = writeln!(out, "\nThreads fairness:");
    let _ = writeln!(
        out,
        "    events (avg/stddev):           {:.4}/{:.2}",
        events.average, events.deviation
    );
    let _ = writeln!(
        out,
        "    execution time (avg/stddev):   {:.4}/{:.2}\n",
        times.average, times.deviation
    );
}

fn old(options: &Options, report: &Report) -> String {
    let (total_time, seconds) = (report.total.as_secs_f64(), report.span.as_secs_f64().max(1e-9));
    let (reads, writes, others) = (report.reads, report.writes, report.others);
    let total = (report.read_bytes + report.write_bytes) as f64;
    let short = |bytes: f64| short(bytes, Dialect::Old);
    let requests = &report.requests;
    let secs = |ns: f64| ns / 1e9;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "Operations performed:  {reads} Read, {writes} Write, {others} Other = {} Total",
        reads + writes + others
    );
    let _ = writeln!(
        out,
        "Read {}  Written {}  Total transferred {}  ({}/sec)",
        short(report.read_bytes as f64),
        short(report.write_bytes as f64),
        short(total),
        short(total / seconds)
    );
    let rate = requests.count() as f64 / seconds;
    let _ = writeln!(out, "{rate:8.2} Requests/sec executed\n");
    let _ = writeln!(out, "Test execution summary:");
    let _ = writeln!(out, "    total time:                          {total_time:.4}s");
    let _ = writeln!(out, "    total number of events:              {}", requests.count());
    let spent = secs(requests.sum());
    let _ = writeln!(out, "    total time taken by event execution: {spent:.4}");
    let _ = writeln!(out, "    per-request statistics:");
    let (min, max) = (requests.min() as f64, requests.max() as f64);
    let percent = options.percentile;
    let percentile = format!("approx. {percent:3} percentile:");
    for (name, ns) in [
        ("min:", min),
        ("avg:", requests.mean()),
        ("max:", max),
        (percentile.as_str(), report.latency.percentile(percent) * 1e6),
    ] {
        if percent > 0 || name.ends_with("x:") || name.len() == 4 {
            let _ = writeln!(out, "         {name:<33} {:8.4}s", secs(ns));
        }
    }
    fairness(&mut out, report);
    out
}

fn new(options: &Options, report: &Report) -> String {
    let (total_time, seconds) = (report.total.as_secs_f64(), report.span.as_secs_f64().max(1e-9));
    let by_second = |count: u64| count as f64 / seconds;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20) / seconds;
    let ms = |ns: f64| ns / 1e6;
    let requests = &report.requests;
    let mut out = String::from("\nFile operations:\n");
    for (name, count) in
        [("reads/s: ", report.reads), ("writes/s:", report.writes), ("fsyncs/s:", report.others)]
    {
        let _ = writeln!(out, "    {name:<30}{:.2}", by_second(count));
    }
    let _ = writeln!(out, "\nThroughput:");
    let _ = writeln!(out, "    read, MiB/s:                  {:.2}", mib(report.read_bytes));
    let _ = writeln!(out, "    written, MiB/s:               {:.2}", mib(report.write_bytes));
    let _ = writeln!(out, "\nGeneral statistics:");
    let _ = writeln!(out, "    total time:                          {total_time:.4}s");
    let _ = writeln!(out, "    total number of events:              {}", requests.count());
    let _ = writeln!(out, "\nLatency (ms):");
    let percent = options.percentile;
    let percentile = format!("{percent:3}th percentile:");
    for (name, value) in [
        ("min:", ms(requests.min() as f64)),
        ("avg:", ms(requests.mean())),
        ("max:", ms(requests.max() as f64)),
        (percentile.trim_start(), report.latency.percentile(percent)),
        ("sum:", ms(requests.sum())),
    ] {
        let _ = match percent == 0 && name.ends_with("percentile:") {
            true => writeln!(out, "         percentile stats:               disabled"),
            false => writeln!(out, "         {name:<16}{value:>28.2}"),
        };
    }
    fairness(&mut out, report);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_document() {
        let short = |bytes: f64| short(bytes, Dialect::Old);
        assert_eq!(short(33356.0 * 2048.0), "65.148Mb");
        assert_eq!(short(66682.0 * 2048.0), "130.24Mb");
        assert_eq!(short(100038.0 * 2048.0), "195.39Mb");
        assert_eq!(short(1_638_400.0), "1.5625Mb");
        assert_eq!(short(2048.0), "2Kb");
        assert_eq!(short(0.0), "0b");
    }

    #[test]
    fn deviations_are_of_the_population() {
        let spread = spread([2.0, 4.0].into_iter());
        assert_eq!((spread.average, spread.deviation), (3.0, 1.0));
    }
}
