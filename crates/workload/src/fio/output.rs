//! fio's text for people.

use std::fmt::Write;

use super::job::{Direction, Job};
use super::jobfile::JobFile;
use super::measure::{BANDS, BANDS_MS, Latency};
use super::number::{binary, count, decimal, time};
use super::report::{DirectionReport, FioReport, JobReport};
use crate::Stats;
use crate::calendar::ctime;

/// The version whose output this is.
pub const VERSION: &str = "fio-3.33";

/// Adds a formatted line to a string.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {
        writeln!($out, $($format)*).expect("writing to a string")
    };
}

/// The lines before a run: one for each job, the version, the number of tasks.
pub fn preamble(file: &JobFile) -> String {
    let mut out = String::new();
    let mut group = 0;
    for (index, job) in file.jobs.iter().enumerate() {
        if index > 0 && (job.stonewall || job.new_group) {
            group += 1;
        }
        let range = |direction| {
            let (low, high) = (job.smallest(direction), job.largest(direction));
            format!("{}-{}", binary(low), binary(high))
        };
        line!(
            out,
            "{}: (g={group}): rw={}, bs=(R) {}, (W) {}, (T) {}, ioengine={}, iodepth={}",
            job.name,
            job.pattern.name,
            range(Direction::Read),
            range(Direction::Write),
            range(Direction::Trim),
            job.engine.name(),
            job.iodepth
        );
        if job.numjobs > 1 {
            out.push_str("...\n");
        }
    }
    line!(out, "{VERSION}");
    out.push_str(&starting(file));
    out
}

fn starting(file: &JobFile) -> String {
    let threads: u64 = file.jobs.iter().filter(|job| job.thread).map(|job| job.numjobs).sum();
    let processes = file.tasks() - threads;
    let plural = |count: u64, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let threads_text = plural(threads, "thread", "threads");
    let processes_text = plural(processes, "process", "processes");
    match (threads, processes) {
        (0, _) => format!("Starting {processes_text}\n"),
        (_, 0) => format!("Starting {threads_text}\n"),
        _ => format!("Starting {threads_text} and {processes_text}\n"),
    }
}

impl FioReport {
    /// The output of `--output-format=normal`: the preamble, the jobs, the groups.
    pub fn text(&self) -> String {
        let mut out = self.preamble.clone();
        out.push_str(&self.results());
        out
    }

    /// The output behind the preamble.
    pub fn results(&self) -> String {
        let mut out = String::new();
        for job in &self.jobs {
            out.push_str(&job_text(job));
        }
        let mut groups: Vec<u32> = self.jobs.iter().map(|job| job.group).collect();
        groups.dedup();
        for group in groups {
            line!(out, "\nRun status group {group} (all jobs):");
            let jobs: Vec<&JobReport> = self.jobs.iter().filter(|job| job.group == group).collect();
            for direction in Direction::ALL {
                group_line(&mut out, direction, &jobs);
            }
        }
        out
    }
}

fn job_text(report: &JobReport) -> String {
    let mut out = String::new();
    let job = &report.job;
    let error = report.error.map_or(0, |errno| errno.0);
    let date = ctime(report.ended);
    let reason = report
        .error
        .map_or(String::new(), |errno| format!(" ({}, error={})", report.error_text, errno.text()));
    let reason = if error == 0 { String::new() } else { reason };
    line!(
        out,
        "{}: (groupid={}, jobs={}): err={error:2}{reason}: pid={}: {date}",
        job.name,
        report.group,
        report.copies,
        report.pid
    );
    if !job.description.is_empty() {
        line!(out, "  Description  : [{}]", job.description);
    }
    for direction in Direction::ALL {
        let figures = report.direction(direction);
        if figures.ios > 0 {
            direction_text(&mut out, job, direction, figures, report);
        }
    }
    bands_text(&mut out, report);
    sync_text(&mut out, report);
    line!(out, "  cpu          : usr=0.00%, sys=0.00%, ctx=0, majf=0, minf=0");
    depth_text(&mut out, report);
    out
}

fn direction_text(
    out: &mut String,
    job: &Job,
    direction: Direction,
    figures: &DirectionReport,
    report: &JobReport,
) {
    let (ms, bandwidth) = (figures.runtime_ms(), figures.bandwidth() as u64);
    let zones = if direction == Direction::Write { "; 0 zone resets" } else { "" };
    line!(
        out,
        "  {}: IOPS={}, BW={}/s ({}/s)({}/{ms}msec){zones}",
        direction.word(),
        count(figures.rate() as u64),
        binary(bandwidth),
        decimal(bandwidth),
        binary(figures.bytes)
    );
    if figures.slat.stats.count() > 0 {
        latency_line(out, "slat", &figures.slat.stats);
    }
    if figures.clat.stats.count() > 0 {
        latency_line(out, "clat", &figures.clat.stats);
    }
    if figures.lat.stats.count() > 0 {
        latency_line(out, " lat", &figures.lat.stats);
    }
    for (wanted, name, latency) in [
        (job.slat_percentiles, "slat", &figures.slat),
        (job.clat_percentiles && !job.lat_percentiles, "clat", &figures.clat),
        (job.lat_percentiles, "lat", &figures.lat),
    ] {
        if wanted && latency.stats.count() > 0 {
            percentiles_text(out, name, latency, &job.percentile_list);
        }
    }
    samples_text(out, direction, figures, report);
}

/// The unit in which a time is printed: its name and its nanoseconds.
fn unit_of(stats: &Stats) -> (&'static str, u64) {
    let fits = |unit: u64| {
        stats.min() / unit > 2000
            && stats.max() / unit > 99_999
            && stats.deviation() / unit as f64 > 1000.0
    };
    match (fits(1), fits(1000)) {
        (true, true) => ("msec", 1_000_000),
        (true, false) => ("usec", 1000),
        _ => ("nsec", 1),
    }
}

fn latency_line(out: &mut String, name: &str, stats: &Stats) {
    let (unit, ns) = unit_of(stats);
    let mean = stats.mean() / ns as f64;
    let deviation = stats.deviation() / ns as f64;
    let (min, max) = (time(stats.min() / ns), time(stats.max() / ns));
    line!(out, "    {name} ({unit}): min={min}, max={max}, avg={mean:5.2}, stdev={deviation:5.2}");
}

/// The line of fsyncs is the same with another name.
fn percentiles_text(out: &mut String, name: &str, latency: &Latency, list: &[f64]) {
    let values: Vec<u64> = list.iter().map(|&p| latency.histogram.percentile(p)).collect();
    let (low, high) = (values.iter().min(), values.iter().max());
    let (low, high) = (low.copied().unwrap_or(0), high.copied().unwrap_or(0));
    let fits = |unit: u64| low / unit > 2000 && high / unit > 99_999;
    let (unit, ns) = match (fits(1), fits(1000)) {
        (true, true) => ("msec", 1_000_000),
        (true, false) => ("usec", 1000),
        _ => ("nsec", 1),
    };
    let width = (high / ns).to_string().len().max(5);
    let per_line = (73 / (width + 13)).max(1);
    line!(out, "    {name} percentiles ({unit}):");
    let items: Vec<String> = list
        .iter()
        .zip(&values)
        .map(|(percent, value)| format!("{percent:6.2}th=[{:>width$}]", value / ns))
        .collect();
    let lines: Vec<String> = items.chunks(per_line).map(|items| items.join(",")).collect();
    line!(out, "     |{}", lines.join(",\n     |"));
}

fn samples_text(
    out: &mut String,
    direction: Direction,
    figures: &DirectionReport,
    report: &JobReport,
) {
    let (bw, iops) = (&figures.bw, &figures.iops);
    if bw.count() == 0 {
        return;
    }
    let whole = report.direction(direction).bandwidth() / 1024.0;
    let share = if whole > 0.0 { (bw.mean() * 100.0 / whole).min(100.0) } else { 0.0 };
    let (unit, by) = if bw.mean() > 1_048_576.0 { ("MiB", 1024) } else { ("KiB", 1) };
    line!(
        out,
        "   bw ({unit:>5}/s): min={:5}, max={:5}, per={share:3.2}%, avg={:5.2}, stdev={:5.2}, \
         samples={}",
        bw.min() / by,
        bw.max() / by,
        bw.mean() / by as f64,
        bw.deviation() / by as f64,
        bw.count()
    );
    line!(
        out,
        "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}",
        iops.min(),
        iops.max(),
        iops.mean(),
        iops.deviation(),
        iops.count()
    );
}

/// Percent of `all`; what is there at all is at least 0.01.
pub fn share(part: u64, all: u64) -> f64 {
    match (part, all) {
        (0, _) | (_, 0) => 0.0,
        _ => (part as f64 * 100.0 / all as f64).max(0.01),
    }
}

fn bands_text(out: &mut String, report: &JobReport) {
    let bands = &report.bands;
    let all: u64 = report.directions.iter().map(|figures| figures.lat.stats.count()).sum();
    let names = |ends: &[u64]| ends.iter().map(|end| end.to_string()).collect::<Vec<_>>();
    let mut ms_names = names(&BANDS_MS);
    ms_names.push(">=2000".into());
    for (unit, names, counts) in [
        ("nsec", names(&BANDS), &bands.ns[..]),
        ("usec", names(&BANDS), &bands.us[..]),
        ("msec", ms_names, &bands.ms[..]),
    ] {
        let items: Vec<String> = names
            .iter()
            .zip(counts)
            .filter(|&(_, &count)| count > 0)
            .map(|(name, &count)| format!("{name}={:.2}%", share(count, all)))
            .collect();
        for items in items.chunks(5) {
            line!(out, "  lat ({unit})   : {}", items.join(", "));
        }
    }
}

fn sync_text(out: &mut String, report: &JobReport) {
    if report.sync.stats.count() > 0 {
        line!(out, "  fsync/fdatasync/sync_file_range:");
        latency_line(out, "sync", &report.sync.stats);
        percentiles_text(out, "sync", &report.sync, &report.job.percentile_list);
    }
}

fn depth_text(out: &mut String, report: &JobReport) {
    let ios: u64 = report.depths.iter().sum();
    let names = ["1", "2", "4", "8", "16", "32", ">=64"];
    let depths = names.iter().zip(report.depths);
    let depths: Vec<String> =
        depths.map(|(name, count)| format!("{name}={:.1}%", percent(count, ios))).collect();
    line!(out, "  IO depths    : {}", depths.join(", "));
    let one = if ios > 0 { 100.0 } else { 0.0 };
    for word in ["submit    ", "complete  "] {
        line!(
            out,
            "     {word}: 0=0.0%, 4={one:.1}%, 8=0.0%, 16=0.0%, 32=0.0%, 64=0.0%, >=64=0.0%"
        );
    }
    let [read, write, trim] = [0, 1, 2].map(|n| report.directions[n].ios);
    let [short_r, short_w, short_t] = [0, 1, 2].map(|n| report.directions[n].short_ios);
    line!(
        out,
        "     issued rwts: total={read},{write},{trim},{} short={short_r},{short_w},{short_t},0 \
         dropped=0,0,0,0",
        report.sync.stats.count()
    );
    let depth = report.job.depth();
    line!(out, "     latency   : target=0, window=0, percentile=100.00%, depth={depth}");
}

fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
}

fn group_line(out: &mut String, direction: Direction, jobs: &[&JobReport]) {
    let figures: Vec<&DirectionReport> =
        jobs.iter().map(|job| job.direction(direction)).filter(|figures| figures.ios > 0).collect();
    if figures.is_empty() {
        return;
    }
    let bytes: u64 = figures.iter().map(|figures| figures.bytes).sum();
    let rates = figures.iter().map(|figures| figures.bandwidth() as u64);
    let (low, high) = (rates.clone().min().unwrap_or(0), rates.max().unwrap_or(0));
    let spans = figures.iter().map(|figures| figures.runtime_ms());
    let (first, last) = (spans.clone().min().unwrap_or(0), spans.max().unwrap_or(0));
    let all = (bytes as f64 * 1000.0 / last.max(1) as f64) as u64;
    let name = direction.word().to_uppercase();
    line!(
        out,
        "{name:>7}: bw={}/s ({}/s), {}/s-{}/s ({}/s-{}/s), io={} ({}), run={first}-{last}msec",
        binary(all),
        decimal(all),
        binary(low),
        binary(high),
        decimal(low),
        decimal(high),
        binary(bytes),
        decimal(bytes)
    );
}
