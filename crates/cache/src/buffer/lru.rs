//! The buffers that a CPU used last, in front of the index of all buffers.
//!
//! An operation on a directory looks up the same few blocks again and again. Linux keeps eight,
//! later sixteen buffer heads per CPU in a scanned array: [`ArrayLru`] here. Two things are wrong
//! with it: every lookup pays for the scan, so that a larger array costs where it does not help;
//! and each entry keeps its block in memory. [`SetLru`] is made without either and is the default.
//!
//! Nobody sets a size: who makes a cache says how many blocks one of its transactions touches
//! ([`LruKind::for_transactions`]). (Linux, the thread "Allow increasing the buffer-head per-CPU
//! LRU size", S. Buisson, A. Kleen, A. Morton, July 2014: no knob, set by the file system, bounded
//! memory.)

mod array;
mod sets;

pub use array::ArrayLru;
pub use sets::SetLru;

use super::BufferRef;

/// The most entries of a CPU.
pub const LRU_MAX: usize = 64;

/// Which structure holds a CPU's buffers, and how large it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LruKind {
    /// Sets of four entries that pin no memory; this many sets, a power of two up to 16.
    Sets(usize),
    /// The array of Linux with so many entries, 1..=64.
    Array(usize),
    /// The same, and a list of all blocks that were looked up: to replay them elsewhere.
    Recorded(usize),
}

impl LruKind {
    /// The structure for transactions that touch `blocks` different blocks: four entries for each.
    pub fn for_transactions(blocks: usize) -> LruKind {
        LruKind::Sets(blocks.next_power_of_two().clamp(1, LRU_MAX / sets::WAYS))
    }

    /// The array of Linux for such transactions: 8, 16, .. 64, the least that holds them.
    pub fn array_for_transactions(blocks: usize) -> LruKind {
        LruKind::Array(blocks.next_multiple_of(8).clamp(8, LRU_MAX))
    }

    /// The most entries that a CPU gets.
    pub fn entries(self) -> usize {
        match self {
            LruKind::Sets(sets) => sets.next_power_of_two().min(LRU_MAX / sets::WAYS) * sets::WAYS,
            LruKind::Array(size) | LruKind::Recorded(size) => size.clamp(1, LRU_MAX),
        }
    }
}

impl Default for LruKind {
    fn default() -> LruKind {
        LruKind::Sets(LRU_MAX / sets::WAYS)
    }
}

/// What a CPU's lookups have found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LruCounts {
    /// Hits of an array by depth, how many entries were used more recently: of a large array they
    /// show what every smaller one would have found. Hits of sets by age, youngest first.
    pub hits: Vec<u64>,
    /// Lookups that found nothing.
    pub misses: u64,
    /// Keys compared.
    pub compares: u64,
    /// Entries that keep their buffer in memory.
    pub pinned: usize,
}

/// The buffers that one CPU used last. Not synchronised: the owner holds a spin lock.
pub(crate) enum Lru {
    Sets(SetLru),
    Array(ArrayLru),
    Recorded(Box<Recorded>),
}

/// An array, and the blocks that were asked of it, in order.
pub(crate) struct Recorded {
    array: ArrayLru,
    blocks: Vec<u64>,
}

impl Recorded {
    fn lookup(&mut self, block: u64) -> Option<BufferRef> {
        self.blocks.push(block);
        self.array.lookup(block)
    }
}

impl Lru {
    pub fn new(kind: LruKind) -> Lru {
        match kind {
            LruKind::Sets(_) => Lru::Sets(SetLru::new(kind.entries() / sets::WAYS)),
            LruKind::Array(_) => Lru::Array(ArrayLru::new(kind.entries())),
            LruKind::Recorded(_) => {
                let array = ArrayLru::new(kind.entries());
                Lru::Recorded(Box::new(Recorded { array, blocks: Vec::new() }))
            }
        }
    }

    /// The blocks that were looked up since the last call, of one that records them.
    pub fn take_recorded(&mut self) -> Vec<u64> {
        match self {
            Lru::Recorded(recorded) => std::mem::take(&mut recorded.blocks),
            Lru::Sets(_) | Lru::Array(_) => Vec::new(),
        }
    }

    #[inline]
    pub fn lookup(&mut self, block: u64) -> Option<BufferRef> {
        match self {
            Lru::Sets(sets) => sets.lookup(block),
            Lru::Array(array) => array.lookup(block),
            Lru::Recorded(recorded) => recorded.lookup(block),
        }
    }

    #[inline]
    pub fn install(&mut self, buffer: &BufferRef) {
        match self {
            Lru::Sets(sets) => sets.install(buffer),
            Lru::Array(array) => array.install(buffer.clone()),
            Lru::Recorded(recorded) => recorded.array.install(buffer.clone()),
        }
    }

    pub fn clear(&mut self) {
        match self {
            Lru::Sets(sets) => sets.clear(),
            Lru::Array(array) => array.clear(),
            Lru::Recorded(recorded) => recorded.array.clear(),
        }
    }

    pub fn counts(&self) -> LruCounts {
        match self {
            Lru::Sets(sets) => sets.counts(),
            Lru::Array(array) => array.counts(),
            Lru::Recorded(recorded) => recorded.array.counts(),
        }
    }
}
