//! What was done when: operations and bytes per interval of a run.

use base::Nanos;

/// Intervals of one timeline at most; a longer run gets longer intervals.
const SLOTS_MAX: usize = 1 << 16;

/// Counts per interval since a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    start: Nanos,
    interval: Nanos,
    slots: Vec<(u64, u64)>,
}

impl Timeline {
    /// A timeline that begins at `start` with intervals of `interval` (not zero).
    ///
    /// # Panics
    /// Where `interval` is zero.
    pub fn new(start: Nanos, interval: Nanos) -> Timeline {
        assert!(interval > Nanos::ZERO, "an interval takes time");
        Timeline { start, interval, slots: Vec::new() }
    }

    /// The start, on the clock of the run.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// The length of an interval. It doubles where a run would need more than 65,536 of them.
    pub fn interval(&self) -> Nanos {
        self.interval
    }

    /// Counts an operation of `bytes` that ended at `when`; before the start counts as the start.
    pub fn add(&mut self, when: Nanos, bytes: u64) {
        self.add_many(when, 1, bytes);
    }

    fn add_many(&mut self, when: Nanos, count: u64, bytes: u64) {
        let slot = loop {
            let slot = when.since(self.start).0 / self.interval.0;
            if slot < SLOTS_MAX as u64 {
                break slot as usize;
            }
            self.coarsen();
        };
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, (0, 0));
        }
        self.slots[slot].0 += count;
        self.slots[slot].1 += bytes;
    }

    fn coarsen(&mut self) {
        self.interval = self.interval + self.interval;
        let halves = self.slots.chunks(2);
        let sum = |pair: &[(u64, u64)]| {
            pair.iter().fold((0, 0), |sum, slot| (sum.0 + slot.0, sum.1 + slot.1))
        };
        self.slots = halves.map(sum).collect();
    }

    /// Operations and bytes of each interval, in order.
    pub fn slots(&self) -> &[(u64, u64)] {
        &self.slots
    }

    /// Adds what another timeline counted. Where its intervals begin elsewhere, a count goes to the
    /// interval that holds its interval's begin.
    pub fn merge(&mut self, other: &Timeline) {
        while self.interval < other.interval {
            self.coarsen();
        }
        for (number, &(count, bytes)) in other.slots.iter().enumerate() {
            if count > 0 {
                let begin = other.start + Nanos(other.interval.0.saturating_mul(number as u64));
                self.add_many(begin, count, bytes);
            }
        }
    }

    /// Operations in all.
    pub fn operations(&self) -> u64 {
        self.slots.iter().map(|slot| slot.0).sum()
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_gets_longer_intervals_and_loses_nothing() {
        let mut timeline = Timeline::new(Nanos(100), Nanos(10));
        timeline.add(Nanos(0), 1);
        timeline.add(Nanos(109), 2);
        timeline.add(Nanos(110), 4);
        assert_eq!(timeline.slots(), &[(2, 3), (1, 4)]);
        timeline.add(Nanos(u64::MAX), 8);
        assert!(timeline.slots().len() <= SLOTS_MAX);
        assert_eq!((timeline.operations(), timeline.bytes()), (4, 15));
    }

    #[test]
    fn merging_keeps_the_counts_of_both() {
        let mut coarse = Timeline::new(Nanos(0), Nanos(100));
        coarse.add(Nanos(250), 5);
        let mut fine = Timeline::new(Nanos(0), Nanos(10));
        fine.add(Nanos(30), 1);
        fine.merge(&coarse);
        assert_eq!(fine.interval(), Nanos(160));
        assert_eq!((fine.operations(), fine.bytes()), (2, 6));
    }
}
