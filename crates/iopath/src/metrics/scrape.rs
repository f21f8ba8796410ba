//! Metrics as they come from a mount or a server.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};

use super::address::Address;
use super::http;

/// Labels of a sample.
pub type Labels = BTreeMap<String, String>;

/// The samples of one moment, by the names of their families without `iopath_`.
#[derive(Default)]
pub struct Scrape(BTreeMap<String, Vec<(Labels, f64)>>);

/// Latencies of one operation up to a moment.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Latencies {
    /// Bounds in seconds, and how many took no longer.
    pub below: Vec<(f64, f64)>,
    /// How many there were.
    pub count: f64,
    /// All together, seconds.
    pub seconds: f64,
}

impl Latencies {
    /// What came after an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Latencies) -> Latencies {
        let before = |at: usize| earlier.below.get(at).map_or(0.0, |(_, count)| *count);
        let below = self.below.iter().enumerate();
        Latencies {
            below: below.map(|(at, (bound, count))| (*bound, count - before(at))).collect(),
            count: self.count - earlier.count,
            seconds: self.seconds - earlier.seconds,
        }
    }

    /// The mean, seconds; 0 where there were none.
    pub fn mean(&self) -> f64 {
        if self.count > 0.0 { self.seconds / self.count } else { 0.0 }
    }

    /// A bound that the part `q`, of 1, did not pass, seconds: at most twice too high, and the
    /// largest bound for all that is above it.
    pub fn quantile(&self, q: f64) -> f64 {
        let rank = (self.count * q).ceil();
        let holds = |(_, count): &&(f64, f64)| *count >= rank;
        let found = self.below.iter().find(holds).or(self.below.last());
        found.filter(|_| self.count > 0.0).map_or(0.0, |(bound, _)| *bound)
    }
}

impl Scrape {
    /// The metrics at a place now.
    ///
    /// # Errors
    /// Nobody answers there, or not with metrics.
    pub fn of(place: &Address) -> Result<Scrape> {
        let text = http::get(place).with_context(|| place.to_string())?;
        Scrape::parse(&text).with_context(|| place.to_string())
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// Names the line that is none.
    pub fn parse(text: &str) -> Result<Scrape> {
        let mut scrape = Scrape::default();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let sample = sample(line).ok_or_else(|| anyhow!("`{}` is no sample", shown(line)))?;
            let (name, labels, value) = sample;
            scrape.0.entry(name.to_owned()).or_default().push((labels, value));
        }
        Ok(scrape)
    }

    /// The samples of a family.
    pub fn each(&self, family: &str) -> impl Iterator<Item = &(Labels, f64)> {
        self.0.get(family).into_iter().flatten()
    }

    /// The sample whose label has this value; none where there is no such.
    pub fn with(&self, family: &str, label: &str, value: &str) -> Option<f64> {
        let found =
            self.each(family).find(|(labels, _)| labels.get(label).is_some_and(|is| is == value));
        found.map(|(_, value)| *value)
    }

    /// The only sample of a family.
    pub fn value(&self, family: &str) -> Option<f64> {
        self.each(family).next().map(|(_, value)| *value)
    }

    /// What a label of the only sample of a family is.
    pub fn label(&self, family: &str, label: &str) -> Option<&str> {
        self.each(family).next()?.0.get(label).map(String::as_str)
    }

    /// The latencies of a family by operation.
    pub fn latencies(&self, family: &str) -> BTreeMap<&str, Latencies> {
        let mut all = BTreeMap::<&str, Latencies>::new();
        for (end, set) in ["bucket", "sum", "count"].into_iter().zip(0..) {
            for (labels, value) in self.each(&format!("{family}_{end}")) {
                let operation = labels.get("op").map_or("", String::as_str);
                let latencies = all.entry(operation).or_default();
                match (set, labels.get("le").and_then(|bound| bound.parse().ok())) {
                    (0, Some(bound)) if f64::is_finite(bound) => {
                        latencies.below.push((bound, *value));
                    }
                    (0, _) => {}
                    (1, _) => latencies.seconds = *value,
                    _ => latencies.count = *value,
                }
            }
        }
        all
    }
}

fn shown(line: &str) -> String {
    crate::text::escape(line.chars().take(80).collect::<String>().as_bytes())
}

/// `iopath_name{label="value",..} number`.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let (head, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, mut rest) = match head.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}')?),
        None => (head, ""),
    };
    let mut labels = Labels::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"")?;
        let (text, after) = quoted(after)?;
        labels.insert(label.to_owned(), text);
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    Some((name.strip_prefix("iopath_").unwrap_or(name), labels, value))
}

/// A text up to its quotation mark, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((out, &text[at + 1..])),
            '\\' => out.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => out.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::requests::Requests;
    use super::super::text::Text;
    use super::*;
    use base::Nanos;

    #[test]
    fn what_is_written_is_read() {
        let requests = Requests::new("mount", &["read", "write"]);
        (0..98).for_each(|_| requests.note(0, Nanos(3000), None));
        (0..2).for_each(|_| requests.note(0, Nanos(1 << 40), None));
        let mut text = Text::default();
        text.histograms("d", "Latencies.");
        for (name, latencies) in requests.latencies() {
            text.histogram(&[("op", name)], &latencies);
        }
        text.gauge("g", "Odd labels.").sample(&[("a", "x\\\"\n}, "), ("b", "")], 1.5);
        let text = text.end();
        let scrape = Scrape::parse(&text).expect("it is well formed");
        assert_eq!(scrape.with("g", "a", "x\\\"\n}, "), Some(1.5));
        assert_eq!((scrape.label("g", "b"), scrape.value("none")), (Some(""), None));
        let all = scrape.latencies("d");
        let read = &all["read"];
        assert_eq!((all.len(), read.count, read.quantile(0.98)), (1, 100.0, 4.096e-6));
        assert_eq!(read.quantile(0.99), (1u64 << 33) as f64 / 1e9);
        assert!((read.mean() - read.seconds / 100.0).abs() < 1e-12);
        let none = read.since(read);
        assert_eq!((none.count, none.mean(), none.quantile(0.99)), (0.0, 0.0, 0.0));
        for line in ["iopath_a", "iopath_a x", "iopath_a{b=\"c} 1", "iopath_a{b} 1", "a{b=\"\\"] {
            assert!(Scrape::parse(line).is_err(), "{line}");
        }
    }
}
