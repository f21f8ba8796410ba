//! Runs of sectors that wait in a write cache.

use std::collections::BTreeMap;

/// Disjoint runs of sectors; touching ones are one.
#[derive(Default)]
pub(crate) struct Runs {
    /// First sector to the sector behind the last.
    runs: BTreeMap<u64, u64>,
}

impl Runs {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds `start..end`; returns how many of its sectors are new.
    pub fn add(&mut self, start: u64, end: u64) -> u64 {
        let (mut low, mut high, mut known) = (start, end, 0);
        let touching = self.runs.range(..=end).rev().take_while(|run| *run.1 >= start);
        let touching: smallvec::SmallVec<[(u64, u64); 4]> =
            touching.map(|(&start, &end)| (start, end)).collect();
        for (run_start, run_end) in touching {
            self.runs.remove(&run_start);
            known += run_end.min(end).saturating_sub(run_start.max(start));
            low = low.min(run_start);
            high = high.max(run_end);
        }
        self.runs.insert(low, high);
        end - start - known
    }

    /// Takes out what lies in `start..end`.
    pub fn remove(&mut self, start: u64, end: u64) {
        let cut: smallvec::SmallVec<[(u64, u64); 4]> = self
            .runs
            .range(..end)
            .rev()
            .take_while(|run| *run.1 > start)
            .map(|(&start, &end)| (start, end))
            .collect();
        for (run_start, run_end) in cut {
            self.runs.remove(&run_start);
            if run_start < start {
                self.runs.insert(run_start, start);
            }
            if run_end > end {
                self.runs.insert(end, run_end);
            }
        }
    }

    /// True where all of `start..end` is here.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.runs.range(..=start).next_back().is_some_and(|(_, &run)| run >= end)
    }

    /// The first run that begins at `from` or later.
    pub fn at_or_after(&self, from: u64) -> Option<(u64, u64)> {
        self.runs.range(from..).next().map(|(&start, &end)| (start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    /// Goal: runs are a set of sectors. Method: random ranges against a plain bit per sector.
    #[test]
    fn runs_are_a_set_of_sectors() {
        let mut rng = Rng::new(5, 0);
        let (mut runs, mut plain) = (Runs::default(), [false; 200]);
        for _ in 0..5000 {
            let start = rng.below(190);
            let end = start + 1 + rng.below(10);
            let range = start as usize..end as usize;
            if rng.chance(0.5) {
                let new = plain[range.clone()].iter().filter(|&&set| !set).count() as u64;
                assert_eq!(runs.add(start, end), new);
                plain[range].fill(true);
            } else {
                runs.remove(start, end);
                plain[range].fill(false);
            }
            let probe = rng.below(190);
            let all = plain[probe as usize..][..6].iter().all(|&set| set);
            assert_eq!(runs.covers(probe, probe + 6), all);
            let mut from = 0;
            while let Some((start, end)) = runs.at_or_after(from) {
                assert!(!plain[from as usize..start as usize].contains(&true), "a run is missing");
                assert!(!plain[start as usize..end as usize].contains(&false), "a run too long");
                assert!(end as usize >= plain.len() || !plain[end as usize], "runs that touch");
                from = end;
            }
            assert!(!plain[from as usize..].contains(&true));
        }
    }
}
