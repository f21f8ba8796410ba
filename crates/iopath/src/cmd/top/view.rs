//! One view: what happened between two moments.

use serde_json::{Map, Value, json};

use crate::metrics::scrape::{Latencies, Scrape};
use crate::text;

/// One operation.
struct Operation {
    name: String,
    total: f64,
    latencies: Latencies,
}

/// What happened between two moments, and what is so at the second.
pub struct View {
    seconds: f64,
    about: [String; 3],
    operations: Vec<Operation>,
    device: Vec<Operation>,
    elevator: Option<String>,
    errors: Vec<(String, f64)>,
    /// Values now, and how much some of them grew.
    now: Map<String, Value>,
}

/// Values that are shown as they are.
const STATES: [&str; 9] = [
    "requests_in_flight",
    "lost_bytes",
    "cache_bytes",
    "cache_dirty_bytes",
    "cache_writeback_bytes",
    "journal_free_bytes",
    "journal_size_bytes",
    "device_queued",
    "device_in_flight",
];
/// Counters that are shown by the second.
const RATES: [&str; 4] =
    ["journal_commits_total", "journal_waits_total", "device_errors_total", "device_merges_total"];
/// The same by what a label says: family, label, value, name of the rate.
const LABELLED: [[&str; 4]; 8] = [
    ["request_bytes_total", "op", "read", "read_bytes"],
    ["request_bytes_total", "op", "write", "written_bytes"],
    ["device_bytes_total", "op", "read", "device_read_bytes"],
    ["device_bytes_total", "op", "write", "device_written_bytes"],
    ["cache_hits_total", "cache", "pages", "page_hits"],
    ["cache_misses_total", "cache", "pages", "page_misses"],
    ["cache_hits_total", "cache", "metadata", "metadata_hits"],
    ["cache_misses_total", "cache", "metadata", "metadata_misses"],
];

fn operations(now: &Scrape, before: &Scrape, family: &str) -> Vec<Operation> {
    let earlier = before.latencies(family);
    let each = now.latencies(family).into_iter().map(|(name, latencies)| Operation {
        name: text::escape(name.as_bytes()),
        total: latencies.count,
        latencies: match earlier.get(name) {
            Some(earlier) => latencies.since(earlier),
            None => latencies,
        },
    });
    let mut operations: Vec<_> = each.collect();
    operations.sort_by(|a, b| b.latencies.count.total_cmp(&a.latencies.count));
    operations
}

impl View {
    /// Of the time between `before` and `now`.
    pub fn new(now: &Scrape, before: &Scrape, seconds: f64) -> View {
        let seconds = seconds.max(1e-3);
        let label = |name| text::escape(now.label("info", name).unwrap_or("unknown").as_bytes());
        let mut values = Map::new();
        for name in STATES {
            now.value(name)
                .into_iter()
                .for_each(|value| drop(values.insert(name.into(), json!(value))));
        }
        let rate = |now: f64, before: Option<f64>| json!((now - before.unwrap_or(0.0)) / seconds);
        for name in RATES {
            if let Some(value) = now.value(name) {
                let name_of_rate = name.replace("_total", "_per_second");
                values.insert(name_of_rate, rate(value, before.value(name)));
            }
        }
        for [family, label, value, name] in LABELLED {
            if let Some(count) = now.with(family, label, value) {
                let before = before.with(family, label, value);
                values.insert(format!("{name}_per_second"), rate(count, before));
            }
        }
        let errors = now.each("errors_total").map(|(labels, count)| {
            let errno = labels.get("errno").map_or("", String::as_str);
            (text::escape(errno.as_bytes()), *count)
        });
        View {
            seconds,
            about: ["face", "file_system", "version"].map(label),
            operations: operations(now, before, "request_duration_seconds"),
            device: operations(now, before, "device_request_duration_seconds"),
            elevator: now
                .label("device_info", "elevator")
                .map(|name| text::escape(name.as_bytes())),
            errors: errors.collect(),
            now: values,
        }
    }

    /// As one JSON document.
    pub fn document(&self) -> Value {
        let [face, file_system, version] = &self.about;
        let mut document = json!({
            "face": face,
            "file_system": file_system,
            "version": version,
            "seconds": self.seconds,
            "operations": self.documents(&self.operations),
            "device_operations": self.documents(&self.device),
            "elevator": self.elevator,
            "errors": self.errors.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        });
        if let Value::Object(all) = &mut document {
            all.extend(self.now.clone());
        }
        document
    }

    fn documents(&self, operations: &[Operation]) -> Vec<Value> {
        let one = |operation: &Operation| {
            let latencies = &operation.latencies;
            json!({
                "op": operation.name,
                "total": operation.total,
                "count": latencies.count,
                "per_second": latencies.count / self.seconds,
                "mean_seconds": latencies.mean(),
                "p99_seconds": latencies.quantile(0.99),
            })
        };
        operations.iter().map(one).collect()
    }

    fn value(&self, name: &str) -> f64 {
        self.now.get(name).and_then(Value::as_f64).unwrap_or(0.0)
    }

    fn size(&self, name: &str) -> String {
        text::size(self.value(name) as u64)
    }

    fn rate(&self, name: &str) -> f64 {
        self.value(&format!("{name}_per_second"))
    }

    /// As lines of text.
    pub fn lines(&self) -> Vec<String> {
        let [face, file_system, version] = &self.about;
        let requests: f64 = self.operations.iter().map(|one| one.latencies.count).sum();
        let moved = |name| text::size(self.rate(name) as u64);
        let mut lines = vec![
            format!("iopath {version}: {face} of {file_system}, over {:.1} s", self.seconds),
            format!(
                "requests {:.1}/s, {} in flight; read {}/s, written {}/s",
                requests / self.seconds,
                self.value("requests_in_flight"),
                moved("read_bytes"),
                moved("written_bytes")
            ),
            String::new(),
        ];
        lines.extend(self.table("operation", &self.operations));
        lines.push(String::new());
        if self.now.contains_key("cache_bytes") {
            lines.push(format!(
                "cache    {}, {} dirty, {} being written; found: pages {}, metadata {}",
                self.size("cache_bytes"),
                self.size("cache_dirty_bytes"),
                self.size("cache_writeback_bytes"),
                self.found("page"),
                self.found("metadata")
            ));
        }
        if self.now.contains_key("journal_size_bytes") {
            lines.push(format!(
                "journal  {:.1} commits/s, {:.1} waits/s; {} of {} free",
                self.rate("journal_commits"),
                self.rate("journal_waits"),
                self.size("journal_free_bytes"),
                self.size("journal_size_bytes")
            ));
        }
        if let Some(elevator) = &self.elevator {
            lines.push(format!(
                "device   elevator {elevator}, {} queued, {} in flight; read {}/s, written {}/s",
                self.value("device_queued"),
                self.value("device_in_flight"),
                moved("device_read_bytes"),
                moved("device_written_bytes")
            ));
            lines.extend(self.table("", &self.device));
        }
        let errors = self.errors.iter().map(|(name, count)| format!("{name} {count}"));
        let errors = errors.collect::<Vec<_>>().join(", ");
        if !errors.is_empty() {
            lines.push(format!("errors   {errors}"));
        }
        if self.value("lost_bytes") > 0.0 {
            lines.push(format!("LOST     {} could not be written", self.size("lost_bytes")));
        }
        lines
    }

    /// The part of reads that were found in memory.
    fn found(&self, kind: &str) -> String {
        let hits = self.rate(&format!("{kind}_hits"));
        let all = hits + self.rate(&format!("{kind}_misses"));
        if all > 0.0 { format!("{:.1} %", 100.0 * hits / all) } else { "-".to_owned() }
    }

    fn table(&self, title: &str, operations: &[Operation]) -> Vec<String> {
        let head =
            format!("{title:<14}{:>12}{:>12}{:>12}{:>14}", "per second", "mean", "p99", "total");
        let line = |one: &Operation| {
            let (mean, p99) = (time(one.latencies.mean()), time(one.latencies.quantile(0.99)));
            let rate = one.latencies.count / self.seconds;
            format!("{:<14}{rate:>12.1}{mean:>12}{p99:>12}{:>14}", one.name, one.total)
        };
        let seen = operations.iter().filter(|one| one.total > 0.0);
        std::iter::once(head).chain(seen.map(line)).collect()
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        0.0 => "-".to_owned(),
        _ if seconds < 1e-3 => format!("{:.1} us", seconds * 1e6),
        _ if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}
