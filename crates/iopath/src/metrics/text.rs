//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

use super::requests::{Histogram, bound_seconds};

/// A text that grows by families of samples.
#[derive(Default)]
pub struct Text {
    text: String,
    family: &'static str,
}

impl Text {
    /// A family begins: counters, whose name ends with `_total`.
    pub fn counter(&mut self, name: &'static str, help: &str) -> &mut Text {
        self.begin(name, "counter", help)
    }

    /// A family begins: values that go up and down.
    pub fn gauge(&mut self, name: &'static str, help: &str) -> &mut Text {
        self.begin(name, "gauge", help)
    }

    /// A family begins: latencies in seconds.
    pub fn histograms(&mut self, name: &'static str, help: &str) -> &mut Text {
        self.begin(name, "histogram", help)
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) -> &mut Text {
        self.family = name;
        let _always_ok =
            write!(self.text, "# HELP iopath_{name} {help}\n# TYPE iopath_{name} {kind}\n");
        self
    }

    /// A sample of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Text {
        self.line("", labels, None, value);
        self
    }

    /// The samples of a histogram.
    pub fn histogram(&mut self, labels: &[(&str, &str)], latency: &Histogram) -> &mut Text {
        let mut below = 0;
        for (at, count) in latency.buckets.iter().enumerate() {
            below += count;
            let bound = bound_seconds(at).map_or("+Inf".to_owned(), |bound| bound.to_string());
            self.line("_bucket", labels, Some(&bound), below);
        }
        self.line("_sum", labels, None, latency.seconds);
        self.line("_count", labels, None, below);
        self
    }

    fn line(
        &mut self,
        end: &str,
        labels: &[(&str, &str)],
        bound: Option<&str>,
        value: impl Display,
    ) {
        let labels = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
        let labels: Vec<_> =
            labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let _always_ok = match labels.is_empty() {
            true => writeln!(self.text, "iopath_{}{end} {value}", self.family),
            false => {
                writeln!(self.text, "iopath_{}{end}{{{}}} {value}", self.family, labels.join(","))
            }
        };
    }

    /// The text.
    pub fn end(self) -> String {
        self.text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
