//! Runs of free extents of the realtime section in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use base::bitmap;
use smallvec::SmallVec;

use super::realtime::RealtimeRequest;

/// Extents of the realtime section, by number.
pub(crate) type Run = Range<u64>;

/// Runs that a search looks at before it waits for busy ones.
const CANDIDATES: usize = 64;

/// What a search has found.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Picked {
    At(Run),
    /// Nothing but what is busy.
    OnlyBusy,
    Nothing,
}

/// The runs of bits that are set among the first `count`.
pub(crate) fn set_runs(bytes: &[u8], count: u64) -> impl Iterator<Item = Run> {
    let (mut at, end) = (0, count as usize);
    std::iter::from_fn(move || {
        let start = bitmap::find_next_set(bytes, at, end)?;
        at = start + bitmap::run_of_ones(bytes, start, end);
        Some(start as u64..at as u64)
    })
}

/// Runs of free extents, none beside another.
#[derive(Default)]
pub(super) struct FreeRuns {
    /// Their ends by their starts.
    by_start: BTreeMap<u64, u64>,
    /// Length and start.
    by_length: BTreeSet<(u64, u64)>,
    total: u64,
    /// Extents of a group: no run lies in two. 0 where there are no groups.
    group: u64,
}

impl FreeRuns {
    /// No run, in a section of such groups.
    pub fn new(group: u64) -> FreeRuns {
        FreeRuns { group, ..FreeRuns::default() }
    }

    /// Whether runs may meet before an extent.
    fn joins_at(&self, extent: u64) -> bool {
        self.group == 0 || !extent.is_multiple_of(self.group)
    }

    /// Free extents.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The runs from an extent on, in order.
    pub fn iter_from(&self, extent: u64) -> impl Iterator<Item = Run> + '_ {
        self.by_start.range(extent..).map(|(&start, &end)| start..end)
    }

    fn insert(&mut self, run: &Run) {
        self.by_start.insert(run.start, run.end);
        self.by_length.insert((run.end - run.start, run.start));
        self.total += run.end - run.start;
    }

    fn remove(&mut self, run: &Run) {
        self.by_start.remove(&run.start);
        self.by_length.remove(&(run.end - run.start, run.start));
        self.total -= run.end - run.start;
    }

    /// The run that holds an extent.
    fn around(&self, extent: u64) -> Option<Run> {
        let before = self.by_start.range(..=extent).next_back();
        before.filter(|&(_, &end)| end > extent).map(|(&start, &end)| start..end)
    }

    /// Adds the bits that are set of a piece of the bitmap, which is of these extents: behind all
    /// that are known.
    pub fn append_set(&mut self, bytes: &[u8], of: Run) {
        let runs = set_runs(bytes, of.end - of.start);
        for run in runs {
            let (mut at, end) = (of.start + run.start, of.start + run.end);
            while at < end {
                let piece = at..end.min(self.group_end(at));
                at = piece.end;
                self.append(piece);
            }
        }
    }

    /// Where the group of an extent ends.
    fn group_end(&self, extent: u64) -> u64 {
        extent.checked_div(self.group).map_or(u64::MAX, |group| (group + 1) * self.group)
    }

    /// Adds a run behind all others, perhaps beside the last one.
    fn append(&mut self, run: Run) {
        match self.by_start.last_key_value().map(|(&start, &end)| start..end) {
            Some(last) if last.end == run.start && self.joins_at(run.start) => {
                self.remove(&last);
                self.insert(&(last.start..run.end));
            }
            _ => self.insert(&run),
        }
    }

    /// Takes a run out of the one that holds it: that, and what is left of it.
    pub fn take(&mut self, run: &Run) -> (Run, SmallVec<[Run; 2]>) {
        let whole = self.around(run.start).expect("it was picked from here");
        self.remove(&whole);
        let parts = [whole.start..run.start, run.end..whole.end];
        let rest: SmallVec<[Run; 2]> =
            parts.into_iter().filter(|part| part.start < part.end).collect();
        rest.iter().for_each(|part| self.insert(part));
        (whole, rest)
    }

    /// Adds a run: those that were beside it, and the one that they are now. None if a part of it
    /// is free already.
    pub fn give(&mut self, run: &Run) -> Option<(SmallVec<[Run; 2]>, Run)> {
        let inside = self.by_start.range(run.start..run.end).next().is_some();
        if inside || self.around(run.start).is_some() {
            return None;
        }
        let before = run.start.checked_sub(1).and_then(|last| self.around(last));
        let before = before.filter(|_| self.joins_at(run.start));
        let behind = self.around(run.end).filter(|_| self.joins_at(run.end));
        let gone: SmallVec<[Run; 2]> = before.into_iter().chain(behind).collect();
        gone.iter().for_each(|run| self.remove(run));
        let start = gone.iter().map(|gone| gone.start).fold(run.start, u64::min);
        let joined = start..gone.iter().map(|gone| gone.end).fold(run.end, u64::max);
        self.insert(&joined);
        Some((gone, joined))
    }

    /// Where an allocation goes: at its goal, else where it fits best, else at the longest run.
    /// `busy` are the first extents of a run that must not be taken.
    pub fn pick(&self, want: &RealtimeRequest, busy: impl Fn(&Run) -> Option<Run>) -> Picked {
        let goal = want.goal.and_then(|goal| self.around(goal).map(|run| goal..run.end));
        let fitting = self.by_length.range((want.most, 0)..);
        let shorter = self.by_length.range(..(want.most, 0)).rev();
        let all = fitting.chain(shorter).map(|&(len, start)| start..start + len);
        let (mut best, mut met_busy): (Option<Run>, bool) = (None, false);
        let length = |run: &Run| run.end - run.start;
        for candidate in goal.into_iter().chain(all).take(CANDIDATES) {
            let at_goal = want.goal == Some(candidate.start);
            let mut at = candidate.start;
            while at < candidate.end {
                let hit = busy(&(at..candidate.end));
                met_busy |= hit.is_some();
                let stop = hit.as_ref().map_or(candidate.end, |hit| hit.start.max(at));
                let run = at..stop.min(at.saturating_add(want.most));
                if length(&run) > best.as_ref().map_or(0, length) {
                    best = Some(run);
                }
                at = hit.map_or(candidate.end, |hit| hit.end);
            }
            let found = best.as_ref().map_or(0, length);
            if found >= want.most || (at_goal && found > 0) {
                break;
            }
            // No later one is longer.
            if found > 0 && !met_busy && length(&candidate) < want.most {
                break;
            }
        }
        match best {
            Some(run) => Picked::At(run),
            None if met_busy => Picked::OnlyBusy,
            None => Picked::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: runs are what a bitmap says. Method: random extents taken and given back beside an
    /// array of bits.
    #[test]
    fn runs_are_those_of_a_bitmap() {
        const COUNT: u64 = 300;
        let mut rng = base::Rng::new(3, 3);
        let (mut runs, mut bits) = (FreeRuns::default(), [true; COUNT as usize]);
        runs.append_set(&[0xff; 40], 0..COUNT);
        assert_eq!((runs.iter_from(0).next(), runs.total()), (Some(0..COUNT), COUNT));
        for _ in 0..4000 {
            let want = RealtimeRequest {
                goal: Some(rng.below(COUNT)).filter(|goal| goal % 2 == 0),
                most: 1 + rng.below(12),
            };
            if rng.below(2) == 0 {
                match runs.pick(&want, |_| None) {
                    Picked::At(run) => {
                        runs.take(&run);
                        let own = &mut bits[run.start as usize..run.end as usize];
                        assert!(own.len() as u64 <= want.most && own.iter().all(|bit| *bit));
                        own.fill(false);
                    }
                    other => assert!(other == Picked::Nothing && bits.iter().all(|bit| !bit)),
                }
            } else {
                let start = rng.below(COUNT - 12);
                let run = start..start + want.most;
                let own = &mut bits[run.start as usize..run.end as usize];
                let fits = own.iter().all(|bit| !bit);
                assert_eq!(runs.give(&run).is_some(), fits);
                if fits {
                    own.fill(true);
                }
            }
            let mut bytes = [0u8; 40];
            bits.iter()
                .enumerate()
                .for_each(|(at, bit)| bytes[at / 8] |= u8::from(*bit) << (at % 8));
            let mut expected = FreeRuns::default();
            expected.append_set(&bytes[..20], 0..160);
            expected.append_set(&bytes[20..], 160..COUNT);
            assert_eq!(
                runs.iter_from(0).collect::<Vec<_>>(),
                expected.iter_from(0).collect::<Vec<_>>()
            );
            assert_eq!(runs.total(), expected.total());
            assert_eq!(runs.by_length, expected.by_length);
        }
    }

    /// Goal: no run lies in two groups. Method: all of three groups, one piece taken out over each
    /// border, and given back.
    #[test]
    fn runs_end_where_groups_do() {
        let mut runs = FreeRuns::new(8);
        runs.append_set(&[0xff; 3], 0..20);
        let all = [0..8, 8..16, 16..20];
        assert_eq!(runs.iter_from(0).collect::<Vec<_>>(), all);
        runs.take(&(6..8));
        runs.take(&(8..9));
        assert_eq!(runs.give(&(6..8)), Some((smallvec::smallvec![0..6], 0..8)));
        assert_eq!(runs.give(&(8..9)), Some((smallvec::smallvec![9..16], 8..16)));
        assert_eq!(runs.iter_from(8).collect::<Vec<_>>(), all[1..]);
    }

    /// Goal: nothing that is busy is given, and a search says where nothing else is left.
    #[test]
    fn what_is_busy_is_not_picked() {
        let mut runs = FreeRuns::default();
        runs.append_set(&[0xff], 0..8);
        let want = RealtimeRequest { goal: Some(0), most: 8 };
        assert_eq!(runs.pick(&want, |run| (run.start < 5).then_some(0..5)), Picked::At(5..8));
        assert_eq!(runs.pick(&want, |run| Some(run.clone())), Picked::OnlyBusy);
    }
}
