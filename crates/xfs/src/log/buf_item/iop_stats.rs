//! The walks of an item once more, for who counts and times them.

use std::hint::black_box;

use super::bitmap::CHUNK;
use super::walk::{Probe, Unprobed, Variant, Visits};
use super::{BufItem, BufItemFlags, Segment, walk_format};
use crate::log::iop_stats::Formatted;

impl BufItem {
    /// Segments whose content a format copies.
    fn copied_segments(&self) -> impl Iterator<Item = &Segment> {
        let none = self.flags.intersects(BufItemFlags::ORDERED | BufItemFlags::STALE);
        self.segments.iter().filter(move |segment| !none && !segment.dirty.is_empty())
    }

    /// The format pass without the copy: calls `emit` with every run.
    fn walk(
        &self,
        variant: Variant,
        known: bool,
        emit: &mut impl FnMut(usize, usize),
        probe: &mut impl Probe,
    ) {
        let reuses = self.reuses(variant, known);
        for segment in self.copied_segments() {
            if !reuses {
                walk_format(segment, self.unmapped, variant, emit, probe);
                continue;
            }
            let mut at = 0;
            while let Some((first, count)) = segment.fresh.next_run(at) {
                probe.bit_visit();
                black_box(segment.dirty.rank(first));
                emit(first, count);
                at = first + count;
            }
        }
    }

    /// What the next format will do.
    pub(crate) fn iop_stats(&self, variant: Variant, known: bool) -> Formatted {
        let mut visits = Visits::default();
        let (mut regions, mut copied) = (0, 0);
        for segment in self.copied_segments() {
            self.walk_size_with(segment, variant, &mut visits);
        }
        let mut emit = |_: usize, count: usize| {
            regions += 1;
            copied += (count * CHUNK) as u64;
        };
        self.walk(variant, known, &mut emit, &mut visits);
        let dirty = self.copied_segments().map(|segment| segment.dirty.bits() as u64).sum();
        let fresh = self.fresh().iter().map(|(_, bytes)| (bytes / CHUNK) as u64).sum();
        let unmapped = self.unmapped;
        Formatted { unmapped, visits, dirty, fresh, regions, copied }
    }

    /// The walk of the next format, for its time.
    pub(crate) fn walk_only(&self, variant: Variant, known: bool) {
        let mut emit = |first: usize, count: usize| {
            black_box(first ^ count);
        };
        self.walk(variant, known, &mut emit, &mut Unprobed);
    }

    /// Offset and length of what the next format copies.
    pub(crate) fn ranges(&self, variant: Variant, known: bool) -> Vec<(usize, usize)> {
        if self.reuses(variant, known) {
            return self.fresh();
        }
        let mut ranges = Vec::new();
        for segment in self.copied_segments() {
            segment.dirty.for_each_run(|first, count| {
                ranges.push((segment.offset + first * CHUNK, count * CHUNK));
            });
        }
        ranges
    }

    /// Offset and length of what became dirty since the last format.
    pub(crate) fn fresh(&self) -> Vec<(usize, usize)> {
        let mut ranges = Vec::new();
        for segment in self.copied_segments() {
            let mut at = 0;
            while let Some((first, count)) = segment.fresh.next_run(at) {
                ranges.push((segment.offset + first * CHUNK, count * CHUNK));
                at = first + count;
            }
        }
        ranges
    }
}
