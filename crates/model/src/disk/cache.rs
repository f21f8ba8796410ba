//! The write cache of a disk: which sectors wait for the medium, and which writes they belong to.

use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A run of sectors that waits.
#[derive(Clone, Debug)]
pub(super) struct Dirty {
    pub end: u64,
    /// The oldest write in it decides which flush waits for it.
    pub age: u64,
    /// The writes that are lost where it is lost.
    pub writes: SmallVec<[u64; 2]>,
}

/// Disjoint runs by their first sector.
#[derive(Default)]
pub(super) struct WriteCache {
    runs: BTreeMap<u64, Dirty>,
    /// How many runs have each age.
    ages: BTreeMap<u64, u32>,
    pub sectors: u64,
}

impl WriteCache {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// A write has been taken. What it overwrites here is replaced, and must not become durable
    /// later than the old content had to.
    pub fn add(&mut self, start: u64, end: u64, number: u64) {
        let mut new = Dirty { end, age: number, writes: SmallVec::from_elem(number, 1) };
        for (at, old) in self.take(start, end) {
            new.age = new.age.min(old.age);
            new.writes.extend(old.writes.iter().copied());
            if at < start {
                self.put(at, Dirty { end: start, ..old.clone() });
            }
            if old.end > end {
                self.put(end, old);
            }
        }
        new.writes.sort_unstable();
        new.writes.dedup();
        self.put(start, new);
    }

    fn put(&mut self, start: u64, run: Dirty) {
        self.sectors += run.end - start;
        *self.ages.entry(run.age).or_default() += 1;
        self.runs.insert(start, run);
    }

    /// Takes out every run that touches `start..end`, whole.
    fn take(&mut self, start: u64, end: u64) -> SmallVec<[(u64, Dirty); 4]> {
        let touching: SmallVec<[u64; 4]> = self
            .runs
            .range(..end)
            .rev()
            .take_while(|(_, run)| run.end > start)
            .map(|(&at, _)| at)
            .collect();
        touching.into_iter().filter_map(|at| Some((at, self.remove(at)?))).collect()
    }

    fn remove(&mut self, start: u64) -> Option<Dirty> {
        let run = self.runs.remove(&start)?;
        self.sectors -= run.end - start;
        let count = self.ages.get_mut(&run.age).expect("every run's age is counted");
        *count -= 1;
        if *count == 0 {
            self.ages.remove(&run.age);
        }
        Some(run)
    }

    /// Drops what a write that goes directly to the medium replaces.
    pub fn overwrite(&mut self, start: u64, end: u64) {
        for (at, old) in self.take(start, end) {
            if at < start {
                self.put(at, Dirty { end: start, ..old.clone() });
            }
            if old.end > end {
                self.put(end, old);
            }
        }
    }

    /// True where all of `start..end` is here.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        let first = self.runs.range(..=start).next_back().map(|(&at, _)| at);
        for (&run, dirty) in self.runs.range(first.unwrap_or(start)..end) {
            if run > at {
                return false;
            }
            at = at.max(dirty.end);
        }
        at >= end
    }

    /// Up to `count` runs from `from` on, round the end, in the order of their places.
    pub fn around(&self, from: u64, count: usize) -> impl Iterator<Item = (u64, &Dirty)> {
        let above = self.runs.range(from..);
        let below = self.runs.range(..from);
        above.chain(below).take(count).map(|(&at, run)| (at, run))
    }

    /// Takes out the run at `start` and those that follow without a gap, up to `most` sectors.
    pub fn take_run(&mut self, start: u64, most: u64) -> (u64, SmallVec<[Dirty; 4]>) {
        let mut at = start;
        let mut taken = SmallVec::new();
        while let Some(run) = self.runs.get(&at) {
            if !taken.is_empty() && run.end - start > most {
                break;
            }
            let run = self.remove(at).expect("it was just there");
            at = run.end;
            taken.push(run);
        }
        (at, taken)
    }

    /// The age of the oldest run.
    pub fn oldest(&self) -> Option<u64> {
        self.ages.keys().next().copied()
    }

    /// All writes that have something here.
    pub fn writes(&self) -> impl Iterator<Item = u64> {
        self.runs.values().flat_map(|run| run.writes.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overwritten_run_keeps_its_age_and_its_writes() {
        let mut cache = WriteCache::default();
        cache.add(0, 8, 1);
        cache.add(4, 12, 2);
        assert_eq!(cache.sectors, 12);
        let runs: Vec<_> = cache.around(0, 9).map(|(at, run)| (at, run.end, run.age)).collect();
        assert_eq!(runs, [(0, 4, 1), (4, 12, 1)], "a flush of write 1 waits for both");
        assert_eq!(cache.oldest(), Some(1));
        let (end, taken) = cache.take_run(4, 100);
        assert_eq!((end, taken[0].writes.as_slice()), (12, &[1, 2][..]));
        assert_eq!(cache.writes().collect::<Vec<_>>(), [1]);
        cache.overwrite(1, 3);
        let rest: Vec<_> = cache.around(2, 9).map(|(at, run)| (at, run.end)).collect();
        assert_eq!((rest.as_slice(), cache.sectors), (&[(3, 4), (0, 1)][..], 2));
        assert!(cache.covers(3, 4) && !cache.covers(0, 2) && !cache.covers(2, 4));
    }

    #[test]
    fn a_run_is_taken_with_its_neighbours_up_to_a_limit() {
        let mut cache = WriteCache::default();
        for at in 0..10 {
            cache.add(at * 8, at * 8 + 8, at + 1);
        }
        assert!(cache.covers(3, 77) && !cache.covers(3, 81));
        let (end, taken) = cache.take_run(16, 32);
        assert_eq!((end, taken.len(), cache.sectors), (48, 4, 48));
    }
}
