//! Sets of half-open ranges of numbers: the parts of a folio that are valid or dirty, blocks of a
//! file.
//!
//! Nearly every folio has no range or one, so those two cases hold no memory on the heap.

use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq, Default)]
enum Repr<T> {
    #[default]
    Empty,
    One(T, T),
    /// Two or more ranges, sorted, with a gap between neighbours.
    Many(Vec<(T, T)>),
}

/// A set of numbers, kept as sorted ranges that neither overlap nor touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges<T>(Repr<T>);

/// Numbers of 32 bits.
pub type RangeSet = Ranges<u32>;
/// Numbers of 64 bits.
pub type RangeSet64 = Ranges<u64>;

impl<T> Default for Ranges<T> {
    fn default() -> Ranges<T> {
        Ranges(Repr::Empty)
    }
}

impl<T: Copy + Ord + Into<u64>> Ranges<T> {
    /// The empty set.
    pub const fn new() -> Ranges<T> {
        Ranges(Repr::Empty)
    }

    /// The set of the one range `range`; empty where the range is.
    pub fn from_range(range: Range<T>) -> Ranges<T> {
        let mut set = Ranges::new();
        set.insert(range);
        set
    }

    fn slice(&self) -> &[(T, T)] {
        match &self.0 {
            Repr::Empty => &[],
            Repr::One(..) => unreachable!("callers handle one range themselves"),
            Repr::Many(ranges) => ranges,
        }
    }

    /// True where the set holds nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Repr::Empty)
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.0 = Repr::Empty;
    }

    /// How many ranges the set is made of.
    pub fn count(&self) -> usize {
        match &self.0 {
            Repr::Empty => 0,
            Repr::One(..) => 1,
            Repr::Many(ranges) => ranges.len(),
        }
    }

    /// How many numbers the set holds.
    pub fn len(&self) -> u64 {
        self.iter().map(|range| range.end.into() - range.start.into()).sum()
    }

    /// The last of its ranges.
    pub fn last(&self) -> Option<Range<T>> {
        match &self.0 {
            Repr::Empty => None,
            Repr::One(start, end) => Some(*start..*end),
            Repr::Many(ranges) => ranges.last().map(|&(start, end)| start..end),
        }
    }

    /// Adds `range`; ranges that touch become one.
    pub fn insert(&mut self, range: Range<T>) {
        let (start, end) = (range.start, range.end);
        if start >= end {
            return;
        }
        match &mut self.0 {
            Repr::Empty => self.0 = Repr::One(start, end),
            Repr::One(a, b) if start <= *b && *a <= end => {
                *a = start.min(*a);
                *b = end.max(*b);
            }
            Repr::One(a, b) => {
                let mut both = vec![(*a, *b), (start, end)];
                both.sort_unstable();
                self.0 = Repr::Many(both);
            }
            Repr::Many(ranges) => {
                let first = ranges.partition_point(|&(_, b)| b < start);
                let last = ranges.partition_point(|&(a, _)| a <= end);
                let mut merged = (start, end);
                if first < last {
                    merged.0 = start.min(ranges[first].0);
                    merged.1 = end.max(ranges[last - 1].1);
                }
                ranges.splice(first..last, [merged]);
                if let [(a, b)] = ranges[..] {
                    self.0 = Repr::One(a, b);
                }
            }
        }
    }

    /// Takes every number of `range` out of the set.
    pub fn remove(&mut self, range: Range<T>) {
        let (start, end) = (range.start, range.end);
        if start >= end || !self.intersects(range) {
            return;
        }
        if let Repr::One(a, b) = self.0
            && start <= a
            && b <= end
        {
            return self.clear();
        }
        let mut kept = Vec::with_capacity(self.count() + 1);
        for Range { start: a, end: b } in self.iter() {
            if a < start.min(b) {
                kept.push((a, b.min(start)));
            }
            if end.max(a) < b {
                kept.push((a.max(end), b));
            }
        }
        self.0 = match kept[..] {
            [] => Repr::Empty,
            [(a, b)] => Repr::One(a, b),
            _ => Repr::Many(kept),
        };
    }

    /// True where `value` is in the set.
    pub fn contains(&self, value: T) -> bool {
        match &self.0 {
            Repr::Empty => false,
            Repr::One(a, b) => *a <= value && value < *b,
            Repr::Many(ranges) => {
                let at = ranges.partition_point(|&(_, b)| b <= value);
                ranges.get(at).is_some_and(|&(a, _)| a <= value)
            }
        }
    }

    /// True where every number of `range` is in the set; an empty range always is.
    #[inline]
    pub fn covers(&self, range: Range<T>) -> bool {
        if range.start >= range.end {
            return true;
        }
        match &self.0 {
            Repr::Empty => false,
            Repr::One(a, b) => *a <= range.start && range.end <= *b,
            Repr::Many(ranges) => {
                let at = ranges.partition_point(|&(_, b)| b <= range.start);
                ranges.get(at).is_some_and(|&(a, b)| a <= range.start && range.end <= b)
            }
        }
    }

    /// True where at least one number of `range` is in the set.
    #[inline]
    pub fn intersects(&self, range: Range<T>) -> bool {
        if range.start >= range.end {
            return false;
        }
        match &self.0 {
            Repr::Empty => false,
            Repr::One(a, b) => *a < range.end && range.start < *b,
            Repr::Many(ranges) => {
                let at = ranges.partition_point(|&(_, b)| b <= range.start);
                ranges.get(at).is_some_and(|&(a, _)| a < range.end)
            }
        }
    }

    /// The ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<T>> + '_ {
        let one = match self.0 {
            Repr::One(a, b) => Some((a, b)),
            _ => None,
        };
        let many = if one.is_some() { &[][..] } else { self.slice() };
        one.into_iter().chain(many.iter().copied()).map(|(a, b)| a..b)
    }

    /// The parts of `range` that are in the set, in ascending order.
    pub fn within(&self, range: Range<T>) -> impl Iterator<Item = Range<T>> + '_ {
        let skipped = match &self.0 {
            Repr::Many(ranges) => ranges.partition_point(|&(_, end)| end <= range.start),
            _ => 0,
        };
        self.iter()
            .skip(skipped)
            .take_while(move |part| part.start < range.end)
            .map(move |part| part.start.max(range.start)..part.end.min(range.end))
            .filter(|part| part.start < part.end)
    }

    /// The parts of `range` that are not in the set, in ascending order.
    pub fn gaps(&self, range: Range<T>) -> Vec<Range<T>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for part in self.within(range.clone()) {
            if at < part.start {
                gaps.push(at..part.start);
            }
            at = part.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_numbers(
            ops in prop::collection::vec((any::<bool>(), 0u32..60, 0u32..60), 1..40),
            probe in 0u32..60, end in 0u32..60,
        ) {
            let mut set = RangeSet::new();
            let mut model = BTreeSet::new();
            for (insert, start, end) in ops {
                if insert {
                    set.insert(start..end);
                    model.extend(start..end);
                } else {
                    set.remove(start..end);
                    model.retain(|n| !(start..end).contains(n));
                }
                let numbers: BTreeSet<u32> = set.iter().flatten().collect();
                prop_assert_eq!(&numbers, &model);
                let parts: Vec<_> = set.iter().collect();
                prop_assert!(parts.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert_eq!(set.len(), model.len() as u64);
                prop_assert_eq!(set.count(), parts.len());
                prop_assert_eq!(set.is_empty(), model.is_empty());
            }
            let range = probe..end;
            prop_assert_eq!(set.contains(probe), model.contains(&probe));
            prop_assert_eq!(set.covers(range.clone()), range.clone().all(|n| model.contains(&n)));
            let any = range.clone().any(|n| model.contains(&n));
            prop_assert_eq!(set.intersects(range.clone()), any);
            let gaps: Vec<u32> = set.gaps(range.clone()).into_iter().flatten().collect();
            let missing: Vec<u32> = range.filter(|n| !model.contains(n)).collect();
            prop_assert_eq!(gaps, missing);
        }
    }
}
