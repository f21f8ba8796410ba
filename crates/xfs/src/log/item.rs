//! What every log item has: its vector, its place in the CIL, its place in the AIL.

use rt::SpinLock;
use smallvec::SmallVec;

/// Bytes of the header in front of every region.
pub const OP_HEADER: usize = 12;

/// The formatted content of an item: regions one behind the other.
#[derive(Clone, Debug, Default)]
pub struct LogVec {
    bytes: Vec<u8>,
    /// Where each region ends.
    ends: SmallVec<[u32; 4]>,
}

impl LogVec {
    /// Forgets the content and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Makes room for `bytes` more bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Appends a region of `len` bytes, a multiple of four, and returns its memory, zeroed.
    pub fn region(&mut self, len: usize) -> &mut [u8] {
        debug_assert!(len.is_multiple_of(4), "a region of {len} bytes");
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        self.ends.push(self.bytes.len() as u32);
        &mut self.bytes[start..]
    }

    /// Appends a region of what `fill` appends.
    pub fn append(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        fill(&mut self.bytes);
        debug_assert!(self.bytes.len().is_multiple_of(4), "regions are multiples of four bytes");
        self.ends.push(self.bytes.len() as u32);
    }

    /// Bytes of all regions.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if it has no region.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Number of regions.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// All bytes, for filling a region later.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The regions in order.
    pub fn regions(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let region = &self.bytes[start..end as usize];
            start = end as usize;
            region
        })
    }

    /// Bytes that it takes in the log: the regions, each with its operation header.
    pub fn log_bytes(&self) -> u64 {
        (self.bytes.len() + self.ends.len() * OP_HEADER) as u64
    }
}

/// The state of an item in CIL and AIL.
#[derive(Debug, Default)]
pub(crate) struct ItemState {
    /// Content for the checkpoint that is being gathered; with `seq`.
    pub vec: LogVec,
    /// Number of the checkpoint that `vec` is for; 0 where the item is in none.
    pub seq: u64,
    /// Place in the AIL; 0 where it is not there. For the same item, grows only.
    pub lsn: u64,
    /// Checkpoints that hold it and are not yet on the device.
    pub pins: u32,
    /// Number of the last checkpoint that it was committed to.
    pub last_seq: u64,
    /// `vec` says that the item's blocks were freed.
    pub stale: bool,
    /// Breaks ties in the AIL; with `lsn`.
    pub order: u64,
}

impl ItemState {
    /// Notes that checkpoint `seq` has it; true if that had it already.
    pub fn enter(&mut self, seq: u64) -> bool {
        let known = self.seq == seq;
        if !known {
            // Pinned before its content changes, so that write-back leaves it alone.
            self.pins += 1;
            self.seq = seq;
        }
        self.last_seq = seq;
        known
    }
}

/// The part of an item that CIL and AIL work with. The spin lock is innermost, but for a buffer's
/// bitmap and memory.
pub(crate) struct ItemCore(SpinLock<ItemState>);

impl ItemCore {
    pub fn new() -> ItemCore {
        ItemCore(SpinLock::named("xfs log item", ItemState::default()))
    }

    pub fn lock(&self) -> rt::SpinGuard<'_, ItemState> {
        self.0.lock_irq()
    }

    /// True while a checkpoint that holds it is not on the device: it must not be written.
    pub fn is_pinned(&self) -> bool {
        self.lock().pins > 0
    }
}
