//! fio's terse output, version 3: one line of fields for each job.

use std::fmt::Write;

use super::job::Direction;
use super::measure::Latency;
use super::output::{VERSION, share};
use super::report::{DirectionReport, FioReport, JobReport};
use crate::Stats;

/// Percentiles that have a field.
const PERCENTILES: usize = 20;

impl FioReport {
    /// The output of `--output-format=terse`.
    pub fn terse(&self) -> String {
        let mut out = String::new();
        for job in &self.jobs {
            let mut line = Line(String::new());
            job_line(&mut line, job);
            out.push_str(line.0.trim_end_matches(';'));
            out.push('\n');
        }
        out
    }
}

struct Line(String);

impl Line {
    fn add(&mut self, field: std::fmt::Arguments) {
        write!(self.0, "{field};").expect("writing to a string");
    }
}

fn job_line(line: &mut Line, report: &JobReport) {
    let error = report.error.map_or(0, |errno| errno.0);
    line.add(format_args!("3;{VERSION};{};{};{error}", report.job.name, report.group));
    for direction in [Direction::Read, Direction::Write] {
        direction_fields(line, report, report.direction(direction));
    }
    // Processor time, switches and faults are not measured.
    line.add(format_args!("0.000000%;0.000000%;0;0;0"));
    let ios: u64 = report.depths.iter().sum();
    for count in report.depths {
        let percent = if ios == 0 { 0.0 } else { count as f64 * 100.0 / ios as f64 };
        line.add(format_args!("{percent:.1}%"));
    }
    let all: u64 = report.directions.iter().map(|figures| figures.lat.stats.count()).sum();
    // Below 2 us counts all that took less, nanoseconds included.
    let mut us = report.bands.us;
    us[0] += report.bands.ns.iter().sum::<u64>();
    for &count in us.iter().chain(&report.bands.ms) {
        line.add(format_args!("{:.2}%", share(count, all)));
    }
    if !report.job.description.is_empty() {
        line.add(format_args!("{}", report.job.description));
    }
}

fn direction_fields(line: &mut Line, report: &JobReport, figures: &DirectionReport) {
    let bandwidth = figures.bandwidth() as u64 >> 10;
    let rate = figures.rate() as u64;
    let ms = figures.runtime_ms();
    line.add(format_args!("{};{bandwidth};{rate};{ms}", figures.bytes >> 10));
    times(line, &figures.slat.stats);
    times(line, &figures.clat.stats);
    percentiles(line, &figures.clat, &report.job.percentile_list);
    times(line, &figures.lat.stats);
    let bw = &figures.bw;
    let whole = figures.bandwidth() / 1024.0;
    let share = if whole > 0.0 { (bw.mean() * 100.0 / whole).min(100.0) } else { 0.0 };
    line.add(format_args!("{};{};{share:.6}%", bw.min(), bw.max()));
    line.add(format_args!("{:.6};{:.6}", bw.mean(), bw.deviation()));
}

/// Minimum, maximum, mean and deviation in microseconds.
fn times(line: &mut Line, stats: &Stats) {
    let (mean, deviation) = (stats.mean() / 1000.0, stats.deviation() / 1000.0);
    line.add(format_args!("{};{}", stats.min() / 1000, stats.max() / 1000));
    line.add(format_args!("{mean:.6};{deviation:.6}"));
}

fn percentiles(line: &mut Line, latency: &Latency, list: &[f64]) {
    for number in 0..PERCENTILES {
        match list.get(number) {
            Some(&percent) => {
                let us = latency.histogram.percentile(percent) / 1000;
                line.add(format_args!("{percent:.6}%={us}"));
            }
            None => line.add(format_args!("0%=0")),
        }
    }
}
