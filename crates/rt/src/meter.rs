//! How far a long piece of work has come.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Steps that are reported of one piece of work at the most.
const STEPS: u64 = 1000;

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What is done now, in words.
    pub what: &'static str,
    /// What is done, in thousandths of the whole. Grows until other work begins.
    pub done: u64,
}

impl Step {
    /// The part that is done: 0 to 1.
    pub fn part(self) -> f64 {
        self.done as f64 / STEPS as f64
    }
}

/// Counts work that is done, and reports it. Clones count the same work, in any thread. By default
/// nobody hears of it, and it costs nothing.
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<Inner>>);

struct Inner {
    report: Box<dyn Fn(Step) + Send + Sync>,
    count: Mutex<Count>,
}

#[derive(Default)]
struct Count {
    what: &'static str,
    /// In the unit of the work.
    done: u64,
    all: u64,
    /// The thousandths that were reported.
    reported: u64,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Meter(reports)" } else { "Meter" })
    }
}

impl Meter {
    /// `report` is called where other work begins, and where a further thousandth is done; it must
    /// not call the meter.
    pub fn new(report: impl Fn(Step) + Send + Sync + 'static) -> Meter {
        Meter(Some(Arc::new(Inner { report: Box::new(report), count: Mutex::default() })))
    }

    /// Other work begins, so much in all, in a unit of its own.
    pub fn begin(&self, what: &'static str, all: u64) {
        self.change(|count| {
            *count = Count { what, all, ..Count::default() };
            true
        });
    }

    /// The same work goes on with something else; so much is left of all of it, as is known now.
    pub fn go_on(&self, what: &'static str, left: u64) {
        self.change(|count| {
            (count.what, count.all) = (what, count.done.saturating_add(left));
            true
        });
    }

    /// So much more is done.
    pub fn add(&self, more: u64) {
        self.change(|count| {
            count.done = count.done.saturating_add(more).min(count.all);
            false
        });
    }

    /// Changes the counts; reports it where `change` says so, or where there is something new.
    fn change(&self, change: impl FnOnce(&mut Count) -> bool) {
        let Some(inner) = &self.0 else { return };
        // Steps are reported in their order.
        let mut count = inner.count.lock().unwrap_or_else(PoisonError::into_inner);
        let always = change(&mut count);
        let done = u128::from(count.done) * u128::from(STEPS) / u128::from(count.all.max(1));
        if always || done as u64 > count.reported {
            count.reported = count.reported.max(done as u64);
            (inner.report)(Step { what: count.what, done: count.reported });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thousandth_is_reported_once_and_never_fewer_than_before() {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let to = steps.clone();
        let meter = Meter::new(move |step| to.lock().unwrap().push((step.what, step.done)));
        meter.begin("one", 4000);
        (0..10).for_each(|_| meter.clone().add(1));
        meter.add(u64::MAX);
        assert_eq!(*steps.lock().unwrap(), [("one", 0), ("one", 1), ("one", 2), ("one", 1000)]);
        steps.lock().unwrap().clear();
        meter.begin("two", 10);
        meter.add(5);
        meter.go_on("three", 15);
        meter.add(3);
        meter.add(10);
        let all = [("two", 0), ("two", 500), ("three", 500), ("three", 900)];
        assert_eq!(*steps.lock().unwrap(), all);
        assert_eq!(Step { what: "three", done: 900 }.part(), 0.9);
        Meter::default().add(1);
    }
}
