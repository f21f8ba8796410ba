//! The content of a file in memory: folios with sets of byte ranges, and the holes that are known.
//!
//! - *valid*: the memory holds what a reader must see. It survives the flush.
//! - *dirty*: to be sent. Always valid.
//! - *writing*: in a WRITE that is not answered. May be dirty again.
//! - *unstable*: in the server's memory, not committed; kept until it is, since a server that
//!   restarts has forgotten it.
//! - *committing*: unstable, with a COMMIT under way.
//! - *reading*: a READ is under way; it fills only what is not valid when it comes.
//!
//! What is dirty, writing, unstable or committing is *ours*: it stays valid whatever others do to
//! the file.

use std::collections::BTreeMap;
use std::ops::Range;

use base::Page;
use base::page::is_zero;
use base::range::RangeSet;
use rt::Cred;

/// One folio.
pub(super) struct Folio {
    pub page: Page,
    pub valid: RangeSet,
    pub dirty: RangeSet,
    pub writing: RangeSet,
    pub unstable: RangeSet,
    pub committing: RangeSet,
    pub reading: RangeSet,
    /// Who wrote what is ours.
    pub cred: Option<Cred>,
    /// Reads begun before this epoch of the file are stale.
    pub epoch: u64,
    /// Used since the clock of reclaim came by.
    pub referenced: bool,
    /// Counted among those with something of ours.
    pub counted: bool,
}

fn add(to: &mut RangeSet, from: &RangeSet) {
    from.iter().for_each(|range| to.insert(range));
}

impl Folio {
    /// A folio of which nothing is valid. `zeros` is a page of zeros that all may share.
    pub fn new(zeros: Page, epoch: u64) -> Folio {
        Folio {
            page: zeros,
            valid: RangeSet::new(),
            dirty: RangeSet::new(),
            writing: RangeSet::new(),
            unstable: RangeSet::new(),
            committing: RangeSet::new(),
            reading: RangeSet::new(),
            cred: None,
            epoch,
            referenced: true,
            counted: false,
        }
    }

    /// Bytes that the server may not have for good.
    pub fn ours(&self) -> RangeSet {
        let mut ours = self.dirty.clone();
        add(&mut ours, &self.writing);
        add(&mut ours, &self.unstable);
        add(&mut ours, &self.committing);
        ours
    }

    /// True where something is ours.
    pub fn is_ours(&self) -> bool {
        !(self.dirty.is_empty()
            && self.writing.is_empty()
            && self.unstable.is_empty()
            && self.committing.is_empty())
    }

    /// True where nothing would be lost with it and nothing is on its way into it.
    pub fn is_idle(&self) -> bool {
        !self.is_ours() && self.reading.is_empty()
    }

    /// Copies `bytes` to `at`: valid and dirty.
    pub fn write(&mut self, at: u32, bytes: &[u8]) {
        let range = at..at + bytes.len() as u32;
        self.page.copy_in(at as usize, bytes);
        self.valid.insert(range.clone());
        self.dirty.insert(range);
    }

    /// Fills what is not valid of `range` from `bytes`, which begin at `range.start`, and with
    /// zeros behind their end.
    pub fn fill(&mut self, range: Range<u32>, bytes: &[u8]) {
        let gaps = self.valid.gaps(range.clone());
        if gaps.is_empty() {
            return;
        }
        for gap in gaps {
            let (start, end) = (gap.start as usize, gap.end as usize);
            let have = bytes.get(start - range.start as usize..).unwrap_or(&[]);
            let len = have.len().min(end - start);
            self.page.copy_in(start, &have[..len]);
            if !is_zero(&self.page[start + len..end]) {
                self.page.make_mut()[start + len..end].fill(0);
            }
        }
        self.valid.insert(range);
    }

    /// Another has changed the file: only what is ours stays valid, and what is being read is old.
    pub fn invalidate(&mut self, epoch: u64) {
        self.valid = self.ours();
        self.reading.clear();
        self.epoch = epoch;
    }

    /// Everything uncommitted is to be sent again.
    pub fn send_again(&mut self) {
        let unstable = std::mem::take(&mut self.unstable);
        add(&mut self.dirty, &unstable);
    }

    /// What was being committed was not: it is to be sent again.
    pub fn commit_failed(&mut self) {
        let committing = std::mem::take(&mut self.committing);
        add(&mut self.dirty, &committing);
    }

    /// What was being committed is still to be.
    pub fn commit_is_due(&mut self) {
        let committing = std::mem::take(&mut self.committing);
        add(&mut self.unstable, &committing);
    }

    /// A COMMIT begins.
    pub fn commit_begins(&mut self) {
        let unstable = std::mem::take(&mut self.unstable);
        add(&mut self.committing, &unstable);
    }

    /// Forgets all from `from` on: the file ends there.
    pub fn cut(&mut self, from: u32, size: u32) {
        for set in [
            &mut self.valid,
            &mut self.dirty,
            &mut self.writing,
            &mut self.unstable,
            &mut self.committing,
            &mut self.reading,
        ] {
            set.remove(from..size);
        }
    }
}

/// Most holes of one file that are remembered.
const HOLES_MAX: usize = 1 << 16;

/// Ranges of a file that the client knows to be holes at the server: it made them itself.
#[derive(Default, Debug, PartialEq, Eq, Clone)]
pub(super) struct Holes(BTreeMap<u64, u64>);

impl Holes {
    /// `range` is a hole from now on. Beyond the bound it is not remembered, which costs a READ.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() || self.0.len() >= HOLES_MAX {
            return;
        }
        self.remove(range.clone());
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&before, &its_end)) = self.0.range(..start).next_back()
            && its_end == start
        {
            start = before;
        }
        if let Some(after) = self.0.remove(&end) {
            end = after;
        }
        self.0.insert(start, end);
    }

    /// `range` is none, or nobody knows any more.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() || self.0.is_empty() {
            return;
        }
        let touched: Vec<(u64, u64)> = self
            .0
            .range(..range.end)
            .rev()
            .take_while(|(_, end)| **end > range.start)
            .map(|(&start, &end)| (start, end))
            .collect();
        for (start, end) in touched {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, range.start);
            }
            if end > range.end {
                self.0.insert(range.end, end);
            }
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The parts of `range` that are holes.
    pub fn within(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut parts: Vec<Range<u64>> = self
            .0
            .range(..range.end)
            .rev()
            .take_while(|(_, end)| **end > range.start)
            .map(|(&start, &end)| start.max(range.start)..end.min(range.end))
            .collect();
        parts.reverse();
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    #[test]
    fn a_read_fills_only_what_is_not_valid() {
        let mut folio = Folio::new(Page::zeroed(4096), 0);
        folio.write(10, b"abc");
        folio.fill(8..16, b"01234567");
        assert_eq!(&folio.page[8..16], b"01abc567");
        folio.fill(16..20, b"x");
        assert_eq!(&folio.page[16..20], b"x\0\0\0");
        assert_eq!(folio.valid, RangeSet::from_range(8..20));
        assert_eq!(folio.dirty, RangeSet::from_range(10..13));
    }

    #[test]
    fn ours_survives_the_change_of_another() {
        let mut folio = Folio::new(Page::zeroed(4096), 0);
        folio.fill(0..4096, &[1; 4096]);
        folio.write(0, &[2; 10]);
        folio.unstable.insert(100..110);
        folio.reading.insert(0..4096);
        folio.invalidate(5);
        assert_eq!(folio.valid.iter().collect::<Vec<_>>(), [0..10, 100..110]);
        assert!(folio.reading.is_empty());
    }

    #[test]
    fn what_was_not_committed_is_sent_again() {
        let mut folio = Folio::new(Page::zeroed(4096), 0);
        folio.fill(0..4096, &[]);
        folio.unstable.insert(0..10);
        folio.commit_begins();
        folio.unstable.insert(20..30);
        folio.commit_failed();
        assert_eq!(folio.dirty, RangeSet::from_range(0..10));
        folio.send_again();
        assert_eq!(folio.dirty.iter().collect::<Vec<_>>(), [0..10, 20..30]);
        assert!(folio.is_ours() && folio.unstable.is_empty());
    }

    /// Holes against a plain array of bytes.
    #[test]
    fn holes_are_those_of_the_model() {
        let mut rng = Rng::new(3, 0);
        for _ in 0..50 {
            let (mut holes, mut model) = (Holes::default(), [false; 64]);
            for _ in 0..40 {
                let start = rng.below(64);
                let range = start..start + rng.below(64 - start + 1);
                let hole = rng.chance(0.5);
                let bytes = range.start as usize..range.end as usize;
                model[bytes].fill(hole);
                if hole {
                    holes.insert(range)
                } else {
                    holes.remove(range)
                }
                let mut seen = [false; 64];
                for part in holes.within(0..64) {
                    seen[part.start as usize..part.end as usize].fill(true);
                }
                assert_eq!(seen, model);
            }
        }
    }
}
