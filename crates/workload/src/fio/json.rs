//! fio's JSON: its keys, its order, its spacing.

use std::fmt::Write;

use super::job::Direction;
use super::measure::{BANDS, BANDS_MS, Latency};
use super::output::{VERSION, share};
use super::report::{DirectionReport, FioReport, JobReport};
use crate::Stats;
use crate::calendar::ctime;

/// A document under construction: objects and arrays nest, keys keep their order.
struct Document {
    text: String,
    depth: usize,
    first: bool,
}

impl Document {
    fn new() -> Document {
        Document { text: String::new(), depth: 0, first: true }
    }

    fn item(&mut self) {
        if !self.first {
            self.text.push(',');
        }
        if self.depth > 0 {
            self.text.push('\n');
        }
        self.text.push_str(&"  ".repeat(self.depth));
        self.first = false;
    }

    fn key(&mut self, key: &str) {
        self.item();
        self.string(key);
        self.text.push_str(" : ");
    }

    fn string(&mut self, text: &str) {
        let quoted = serde_json::to_string(text).expect("a string becomes JSON");
        self.text.push_str(&quoted);
    }

    fn nest(&mut self, open: char, close: char, body: impl FnOnce(&mut Document)) {
        self.text.push(open);
        self.depth += 1;
        self.first = true;
        body(self);
        self.depth -= 1;
        self.text.push('\n');
        self.text.push_str(&"  ".repeat(self.depth));
        self.text.push(close);
        self.first = false;
    }

    fn object(&mut self, key: &str, body: impl FnOnce(&mut Document)) {
        self.key(key);
        self.nest('{', '}', body);
    }

    fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        write!(self.text, "{value}").expect("writing to a string");
    }

    fn float(&mut self, key: &str, value: f64) {
        self.key(key);
        write!(self.text, "{value:.6}").expect("writing to a string");
    }

    fn word(&mut self, key: &str, value: &str) {
        self.key(key);
        self.string(value);
    }
}

impl FioReport {
    /// The output of `--output-format=json`, or with `bins` that of `json+`.
    pub fn json(&self, bins: bool) -> String {
        let mut document = Document::new();
        document.nest('{', '}', |top| {
            let ms = self.ended.as_nanos() / 1_000_000;
            top.word("fio version", VERSION);
            top.number("timestamp", self.ended.sec.max(0) as u64);
            top.number("timestamp_ms", ms.max(0) as u64);
            top.word("time", &ctime(self.ended));
            if !self.globals.is_empty() {
                top.object("global options", |object| options(object, &self.globals));
            }
            top.key("jobs");
            top.nest('[', ']', |jobs| {
                for job in &self.jobs {
                    jobs.item();
                    jobs.nest('{', '}', |object| job_object(object, job, bins));
                }
            });
        });
        document.text.push('\n');
        document.text
    }
}

/// Flags without a value are not listed, as by fio.
fn options(object: &mut Document, options: &[(String, String)]) {
    for (key, value) in options.iter().filter(|(_, value)| !value.is_empty()) {
        object.word(key, value);
    }
}

fn job_object(object: &mut Document, report: &JobReport, bins: bool) {
    let job = &report.job;
    object.word("jobname", &job.name);
    object.number("groupid", u64::from(report.group));
    object.number("error", report.error.map_or(0, |errno| errno.0 as u64));
    object.number("eta", 0);
    object.number("elapsed", report.runtime.0 / 1_000_000_000 + 1);
    object.object("job options", |object| options(object, &job.options));
    for direction in Direction::ALL {
        let figures = report.direction(direction);
        object.object(direction.word(), |object| {
            direction_object(object, report, figures, bins);
        });
    }
    object.object("sync", |object| {
        object.number("total_ios", report.sync.stats.count());
        let shown = (report.sync.stats.count() > 0).then_some(&job.percentile_list[..]);
        latency_object(object, "lat_ns", &report.sync, shown, bins);
    });
    object.number("job_runtime", report.runtime.0 / 1_000_000);
    object.float("usr_cpu", 0.0);
    object.float("sys_cpu", 0.0);
    for key in ["ctx", "majf", "minf"] {
        object.number(key, 0);
    }
    depths(object, report);
    bands(object, report);
    object.number("latency_depth", job.depth());
    object.number("latency_target", 0);
    object.float("latency_percentile", 100.0);
    object.number("latency_window", 0);
    if !job.description.is_empty() {
        object.word("desc", &job.description);
    }
}

fn direction_object(
    object: &mut Document,
    report: &JobReport,
    figures: &DirectionReport,
    bins: bool,
) {
    let bandwidth = figures.bandwidth() as u64;
    object.number("io_bytes", figures.bytes);
    object.number("io_kbytes", figures.bytes >> 10);
    object.number("bw_bytes", bandwidth);
    object.number("bw", bandwidth >> 10);
    object.float("iops", figures.rate());
    object.number("runtime", figures.runtime_ms());
    object.number("total_ios", figures.ios);
    object.number("short_ios", figures.short_ios);
    object.number("drop_ios", 0);
    let job = &report.job;
    let any = figures.ios > 0;
    let list = &job.percentile_list[..];
    let shown = |wanted: bool| (wanted && any).then_some(list);
    latency_object(object, "slat_ns", &figures.slat, shown(job.slat_percentiles), bins);
    let clat = job.clat_percentiles && !job.lat_percentiles;
    latency_object(object, "clat_ns", &figures.clat, shown(clat), bins);
    latency_object(object, "lat_ns", &figures.lat, shown(job.lat_percentiles), bins);
    samples(object, figures);
}

fn latency_object(
    object: &mut Document,
    key: &str,
    latency: &Latency,
    percentiles: Option<&[f64]>,
    bins: bool,
) {
    object.object(key, |object| {
        let stats = &latency.stats;
        object.number("min", stats.min());
        object.number("max", stats.max());
        object.float("mean", stats.mean());
        object.float("stddev", stats.deviation());
        object.number("N", stats.count());
        let Some(percentiles) = percentiles else { return };
        object.object("percentile", |object| {
            for &percent in percentiles {
                object.number(&format!("{percent:.6}"), latency.histogram.percentile(percent));
            }
        });
        if bins {
            object.object("bins", |object| {
                for (ns, count) in latency.histogram.buckets() {
                    object.number(&ns.to_string(), count);
                }
            });
        }
    });
}

fn samples(object: &mut Document, figures: &DirectionReport) {
    let (bw, iops): (&Stats, &Stats) = (&figures.bw, &figures.iops);
    let whole = figures.bandwidth() / 1024.0;
    let share = if whole > 0.0 { (bw.mean() * 100.0 / whole).min(100.0) } else { 0.0 };
    object.number("bw_min", bw.min());
    object.number("bw_max", bw.max());
    object.float("bw_agg", if bw.count() > 0 { share } else { 0.0 });
    object.float("bw_mean", bw.mean());
    object.float("bw_dev", bw.deviation());
    object.number("bw_samples", bw.count());
    object.number("iops_min", iops.min());
    object.number("iops_max", iops.max());
    object.float("iops_mean", iops.mean());
    object.float("iops_stddev", iops.deviation());
    object.number("iops_samples", iops.count());
}

fn depths(object: &mut Document, report: &JobReport) {
    let ios: u64 = report.depths.iter().sum();
    object.object("iodepth_level", |object| {
        for (name, count) in ["1", "2", "4", "8", "16", "32", ">=64"].iter().zip(report.depths) {
            let percent = if ios == 0 { 0.0 } else { count as f64 * 100.0 / ios as f64 };
            object.float(name, percent);
        }
    });
    for key in ["iodepth_submit", "iodepth_complete"] {
        object.object(key, |object| {
            for name in ["0", "4", "8", "16", "32", "64", ">=64"] {
                object.float(name, if name == "4" && ios > 0 { 100.0 } else { 0.0 });
            }
        });
    }
}

fn bands(object: &mut Document, report: &JobReport) {
    let all: u64 = report.directions.iter().map(|figures| figures.lat.stats.count()).sum();
    let mut list = |key: &str, ends: &[u64], counts: &[u64]| {
        object.object(key, |object| {
            for (number, &count) in counts.iter().enumerate() {
                let name = ends.get(number).map_or(">=2000".into(), |end| end.to_string());
                object.float(&name, share(count, all));
            }
        });
    };
    list("latency_ns", &BANDS, &report.bands.ns);
    list("latency_us", &BANDS, &report.bands.us);
    list("latency_ms", &BANDS_MS, &report.bands.ms);
}
