//! Pieces of a device that are read together: neighbours on the device with one request, whatever
//! files they belong to.
//!
//! ```text
//! let mut gather = Gather::new();
//! gather.add(sector, len, tag) for each piece
//! gather.read(cx, queue, |tag, bytes| copy them to their place)  -> tags that failed
//! ```
//!
//! The caller holds what keeps the pieces where they are, and the content on the device is the
//! newest. Small files lie side by side where they were written side by side; a tree of them is
//! read with a few large requests.

use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Page, Sector};
use block::{Bio, BioFlags, IoGroup, Op, Plug, Queue, Segment, Segments};
use rt::{Cx, SpinLock};

/// Longest piece, and the memory that neighbours share, in bytes.
pub const PIECE_MAX: u64 = 64 << 10;

/// Bytes between two pieces that are rather read than left out.
const GAP_MAX: u64 = 4096;

/// A piece and what the caller knows it by.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    sector: Sector,
    len: u64,
    tag: usize,
}

impl Wanted {
    fn end(&self, unit: u64) -> u64 {
        self.sector.bytes() + self.len.next_multiple_of(unit)
    }
}

/// Pieces that are to be read.
#[derive(Debug, Default)]
pub struct Gather {
    wanted: Vec<Wanted>,
}

impl Gather {
    /// Nothing yet.
    pub fn new() -> Gather {
        Gather::default()
    }

    /// One more piece: `len` bytes, 1 to [`PIECE_MAX`], from `sector` on, a multiple of the
    /// device's logical block.
    ///
    /// # Panics
    /// Where `len` is out of range.
    pub fn add(&mut self, sector: Sector, len: u64, tag: usize) {
        assert!((1..=PIECE_MAX).contains(&len), "a piece of {len} bytes cannot be gathered");
        self.wanted.push(Wanted { sector, len, tag });
    }

    /// Reads everything, and gives each piece with its tag to `give`, in the order on the device.
    /// Returns the tags of those that could not be read. Parks.
    pub fn read(
        mut self,
        cx: &mut Cx,
        queue: &Arc<Queue>,
        mut give: impl FnMut(usize, &[u8]),
    ) -> Vec<usize> {
        self.wanted.sort_by_key(|wanted| wanted.sector);
        let unit = u64::from(queue.info().logical_block);
        let runs = runs(&self.wanted, unit);
        let filled: Arc<SpinLock<Vec<Option<Segments>>>> =
            Arc::new(SpinLock::new(vec![None; runs.len()]));
        let (group, mut plug) = (IoGroup::new(), Plug::new());
        for (index, run) in runs.iter().enumerate() {
            let start = run[0].sector;
            let len = run[run.len() - 1].end(unit) - start.bytes();
            let filled = filled.clone();
            let end = group.end_with(move |segs| filled.lock_irq()[index] = Some(segs));
            let bio = Bio::new(Op::Read, start, memory(len), BioFlags::SYNC, end);
            queue.submit_plugged(cx, &mut plug, bio);
        }
        plug.finish(cx);
        // Which of them failed is seen from what is missing.
        let _ = group.wait(cx);
        let filled = std::mem::take(&mut *filled.lock(cx));
        let mut failed = Vec::new();
        for (run, segs) in runs.iter().zip(&filled) {
            for wanted in *run {
                let from = (wanted.sector.0 - run[0].sector.0) * SECTOR_SIZE;
                match segs {
                    Some(segs) => {
                        give(wanted.tag, &segs[0].bytes()[from as usize..][..wanted.len as usize])
                    }
                    None => failed.push(wanted.tag),
                }
            }
        }
        failed
    }
}

/// One segment of `len` bytes, in memory of a length that is kept for reuse.
fn memory(len: u64) -> Segments {
    let pooled = [4096, 16384, PIECE_MAX].into_iter().find(|&pooled| len <= pooled);
    let page = Page::zeroed(pooled.unwrap_or(len) as usize);
    Segments::from_iter([Segment { page, offset: 0, len: len as u32 }])
}

/// Cuts sorted pieces into runs without large gaps, none longer than [`PIECE_MAX`].
fn runs(wanted: &[Wanted], unit: u64) -> Vec<&[Wanted]> {
    let mut runs = Vec::new();
    let (mut first, mut at) = (0, 1);
    while first < wanted.len() {
        let joins = wanted.get(at).is_some_and(|next| {
            let end = wanted[at - 1].end(unit);
            (end..=end + GAP_MAX).contains(&next.sector.bytes())
                && next.end(unit) - wanted[first].sector.bytes() <= PIECE_MAX
        });
        if !joins {
            runs.push(&wanted[first..at]);
            first = at;
        }
        at += 1;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Device, QueueConfig};
    use device::MemoryDevice;
    use rt::{World, WorldConfig};

    /// Neighbours come with one request, each piece with its own bytes, in any order of asking.
    #[test]
    fn neighbours_are_read_together() {
        let memory = MemoryDevice::new(4 << 20);
        for sector in 0..8192u64 {
            memory.write_at(sector * 512, &[sector as u8 ^ (sector >> 8) as u8; 512]);
        }
        let device: Arc<dyn Device> = Arc::new(memory);
        let (requests, seen, failed) = World::new(WorldConfig::default()).run("gather", |cx| {
            let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("a queue");
            let mut gather = Gather::new();
            // 40 neighbours of one block, the last bytes of each not wanted; and two far away.
            let places = (0..40).map(|n| 64 + n * 8).rev().chain([4000, 8000]);
            for (tag, sector) in places.enumerate() {
                gather.add(Sector(sector), 3000 + tag as u64, tag);
            }
            let mut seen = Vec::new();
            let failed = gather.read(cx, &queue, |tag, bytes| {
                seen.push((tag, bytes.len(), bytes[0], bytes[600]));
            });
            (queue.stats().reads, seen, failed)
        });
        assert!(failed.is_empty());
        assert_eq!(seen.len(), 42);
        for (tag, len, first, second) in seen {
            let sector = if tag < 40 { 64 + (39 - tag) * 8 } else { [4000, 8000][tag - 40] };
            let byte = |sector: usize| sector as u8 ^ (sector >> 8) as u8;
            assert_eq!((len, first, second), (3000 + tag, byte(sector), byte(sector + 1)), "{tag}");
        }
        assert!(requests <= 5, "{requests} requests");
    }
}
