//! Buffers: blocks of metadata in memory, locked one by one, and kept while a transaction needs
//! them.
//!
//! A buffer stands for one extent of the device or, for a directory block that is scattered, for
//! several. Its memory is *mapped*, one piece at one address, or *unmapped*, a list of pages; inode
//! clusters are unmapped, as in Linux, because only single inodes in them are ever looked at.
//!
//! A task that reads or changes a buffer holds its lock, a sleeping lock. A [`LockedBuf`] releases
//! it when it is dropped, a transaction when it ends. Write-back holds it until the write has
//! completed, so the content of a write in flight never changes.
//!
//! Checksum and log sequence number are set when the buffer is written, from its [`Kind`]; nobody
//! else computes them.

mod cache;
mod io;
mod lsn;
pub(crate) mod map;
pub(crate) mod memory;
pub(crate) mod meta;
pub(crate) mod recent;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use base::{Page, Sector};
use rt::{Cx, Semaphore, SpinLock};
use smallvec::SmallVec;

use crate::format::{At, Corrupt, Kind};
use crate::log::buf_item::BufItem;
use crate::log::item::ItemCore;

pub use cache::{BufCache, BufCacheConfig, BufStats};
pub use map::BufMap;
pub(crate) use memory::Memory;
pub use memory::PAGE_SIZE;
pub(crate) use recent::RecentBlocks;

/// Checks the structure of a block behind its header.
pub type Check = fn(&[u8], At) -> Result<(), Corrupt>;

/// What the blocks that a caller reads must look like.
#[derive(Debug)]
pub struct BufOps {
    /// What errors call it.
    pub name: &'static str,
    /// The kinds that it may be of, by magic number. Empty: raw content, neither verified on read
    /// nor on write. Checksum, UUID and address are checked by the kind.
    pub kinds: &'static [Kind],
    /// Checks the structure behind the header, once, when the block was read.
    pub check: Option<Check>,
    /// Kept in pages instead of one piece. For inode clusters: each inode has its own checksum.
    pub unmapped: bool,
}

/// Content that is neither verified on read nor on write.
pub static RAW: BufOps = BufOps { name: "raw block", kinds: &[], check: None, unmapped: false };

/// A cluster of inodes. Inodes are checked one by one by who reads them.
pub static INODE_CLUSTER: BufOps =
    BufOps { name: "inode cluster", kinds: &[Kind::Inode], check: None, unmapped: true };

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct BufState: u32 {
        /// The content is valid.
        const UPTODATE = 1 << 0;
        /// Its blocks are free or about to be: it is never written again.
        const STALE = 1 << 1;
        /// Used since the reclaim's last look.
        const REFERENCED = 1 << 2;
    }
}

/// No kind is known: raw content.
const NO_KIND: u8 = u8::MAX;

/// A block of metadata in memory.
pub struct Buf {
    maps: SmallVec<[BufMap; 1]>,
    bytes: usize,
    kind: AtomicU8,
    state: AtomicU32,
    lock: Semaphore,
    /// Number of the transaction that holds the lock; 0 for nobody or a [`LockedBuf`].
    owner: AtomicU64,
    memory: SpinLock<Memory>,
    /// What is dirty. Changed by the holder of the lock, and by write-back, which holds it too.
    pub(crate) item: SpinLock<BufItem>,
    /// Its place in the CIL and in the AIL.
    pub(crate) core: ItemCore,
}

impl Buf {
    fn new(maps: &[BufMap], ops: &BufOps) -> Buf {
        let bytes = maps.iter().map(BufMap::bytes).sum();
        let memory = Memory::zeroed(bytes, ops.unmapped);
        let item = BufItem::new(maps, ops.unmapped);
        Buf {
            maps: maps.into(),
            bytes,
            kind: AtomicU8::new(ops.kinds.first().map_or(NO_KIND, |kind| *kind as u8)),
            state: AtomicU32::new(0),
            lock: Semaphore::named("xfs buffer", 1),
            owner: AtomicU64::new(0),
            memory: SpinLock::named("xfs buffer memory", memory),
            item: SpinLock::named("xfs buffer item", item),
            core: ItemCore::new(),
        }
    }

    /// Where its first extent begins.
    pub fn daddr(&self) -> Sector {
        self.maps[0].daddr
    }

    /// Its extents on the device.
    pub fn maps(&self) -> &[BufMap] {
        &self.maps
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True if its memory is a list of pages.
    pub fn is_unmapped(&self) -> bool {
        self.memory.lock_irq().is_unmapped()
    }

    /// What it holds; decides where checksum and sequence number lie. None for raw content.
    pub fn kind(&self) -> Option<Kind> {
        Kind::ALL.get(self.kind.load(Ordering::Relaxed) as usize).copied()
    }

    /// Says that it holds another kind from now on, e.g. a leaf that becomes a node. The caller
    /// holds the lock.
    pub fn set_kind(&self, kind: Kind) {
        self.kind.store(kind as u8, Ordering::Relaxed);
    }

    pub(crate) fn state(&self, flag: BufState) -> bool {
        self.state.load(Ordering::Acquire) & flag.bits() != 0
    }

    pub(crate) fn set_state(&self, flag: BufState) {
        self.state.fetch_or(flag.bits(), Ordering::AcqRel);
    }

    pub(crate) fn clear_state(&self, flags: BufState) {
        self.state.fetch_and(!flags.bits(), Ordering::AcqRel);
    }

    /// Reclaim spares it at its next look.
    fn note_used(&self) {
        if !self.state(BufState::REFERENCED) {
            self.set_state(BufState::REFERENCED);
        }
    }

    /// Locks a buffer that was read before; none if its content is gone. May park.
    pub(crate) fn lock_again(self: Arc<Buf>, cx: &mut Cx) -> Option<LockedBuf> {
        self.lock(cx);
        let buf = LockedBuf::new(self);
        let valid = buf.state(BufState::UPTODATE) && !buf.is_stale();
        valid.then(|| {
            buf.note_used();
            buf
        })
    }

    pub(crate) fn make_stale(&self) {
        self.set_state(BufState::STALE);
    }

    /// True once its blocks were freed: it is never written again.
    pub fn is_stale(&self) -> bool {
        self.state(BufState::STALE)
    }

    /// The blocks serve again; the content of before is gone. The caller holds the lock.
    pub(crate) fn revive(&self, ops: &BufOps) {
        self.clear_state(BufState::STALE | BufState::UPTODATE);
        self.kind.store(ops.kinds.first().map_or(NO_KIND, |kind| *kind as u8), Ordering::Relaxed);
        let mut memory = self.memory.lock_irq();
        if memory.is_unmapped() != ops.unmapped {
            *memory = Memory::zeroed(self.bytes, ops.unmapped);
            *self.item.lock_irq() = BufItem::new(&self.maps, ops.unmapped);
        }
    }

    /// True if it is of one of these kinds, and not freed.
    pub(crate) fn is_of(&self, kinds: &[Kind]) -> bool {
        !self.is_stale() && self.kind().is_some_and(|kind| kinds.contains(&kind))
    }

    /// True if a task holds the lock.
    pub fn is_locked(&self) -> bool {
        self.lock.available() == 0
    }

    pub(crate) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }

    pub(crate) fn set_owner(&self, transaction: u64) {
        self.owner.store(transaction, Ordering::Relaxed);
    }

    /// Takes the lock. May park: waits for its holder, which may be a write to the device.
    pub(crate) fn lock(&self, cx: &mut Cx) {
        self.lock.acquire(cx);
    }

    pub(crate) fn try_lock(&self) -> bool {
        self.lock.try_acquire()
    }

    /// Gives the lock back. Any context.
    pub(crate) fn unlock(&self) {
        self.owner.store(0, Ordering::Relaxed);
        self.lock.release(1);
    }

    /// The whole content. The caller holds the lock; `f` must not wait.
    ///
    /// # Panics
    /// If the buffer is unmapped and longer than a page.
    #[inline]
    pub fn with<T>(&self, f: impl FnOnce(&[u8]) -> T) -> T {
        f(self.memory.lock_irq().piece(0, self.bytes))
    }

    /// The whole content for writing; [`Trans::log_buf`](crate::trans::Trans::log_buf) says which
    /// bytes were changed. Otherwise as [`Buf::with`].
    #[inline]
    pub fn with_mut<T>(&self, f: impl FnOnce(&mut [u8]) -> T) -> T {
        f(self.memory.lock_irq().piece_mut(0, self.bytes))
    }

    /// A part of the content, of an unmapped buffer within one page. The caller holds the lock;
    /// `f` must not wait.
    ///
    /// # Panics
    /// If the range leaves the buffer, or the page of an unmapped one.
    #[inline]
    pub fn with_range<T>(&self, offset: usize, len: usize, f: impl FnOnce(&[u8]) -> T) -> T {
        f(self.memory.lock_irq().piece(offset, len))
    }

    /// A part of the content for writing. Otherwise as [`Buf::with_range`].
    #[inline]
    pub fn with_range_mut<T>(
        &self,
        offset: usize,
        len: usize,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        f(self.memory.lock_irq().piece_mut(offset, len))
    }

    /// Copies a part of the content, across pages where it must.
    pub(crate) fn copy_out(&self, offset: usize, to: &mut [u8]) {
        self.memory.lock_irq().copy_out(offset, to);
    }

    /// Fills a part of the content, across pages where it must.
    pub(crate) fn copy_in(&self, offset: usize, from: &[u8]) {
        self.memory.lock_irq().copy_in(offset, from);
    }

    /// The memory as it is, for the log's format pass.
    pub(crate) fn with_memory<T>(&self, f: impl FnOnce(&Memory) -> T) -> T {
        f(&self.memory.lock_irq())
    }

    /// The whole content in one piece of memory of its own.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.copy_out(0, &mut bytes);
        bytes
    }

    /// The whole content as it is now, without a copy where it is in one piece. The caller holds
    /// the lock.
    pub(crate) fn page(&self) -> Page {
        let memory = self.memory.lock_irq();
        memory.page().cloned().unwrap_or_else(|| {
            let mut bytes = Vec::with_capacity(self.bytes);
            memory.append_to(0, self.bytes, &mut bytes);
            Page::from_slice(&bytes)
        })
    }

    /// Zeroes everything and calls it valid. For blocks that are made new; the caller holds the
    /// lock and logs what it writes.
    pub fn zero(&self) {
        self.memory.lock_irq().zero();
        self.set_state(BufState::UPTODATE);
    }

    /// The pages of one extent, for a bio.
    fn segments(&self, map: usize) -> block::Segments {
        let before: usize = self.maps[..map].iter().map(BufMap::bytes).sum();
        self.memory.lock_irq().segments(before, self.maps[map].bytes())
    }

    fn replace_memory(&self, pages: Vec<Page>) {
        self.memory.lock_irq().replace(pages);
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({:?} at {} + {} bytes)", self.kind(), self.daddr(), self.bytes)
    }
}

/// A buffer whose lock is held; dropping it unlocks.
#[must_use = "dropping it unlocks the buffer"]
pub struct LockedBuf {
    buf: Option<Arc<Buf>>,
}

impl LockedBuf {
    fn new(buf: Arc<Buf>) -> LockedBuf {
        LockedBuf { buf: Some(buf) }
    }

    /// The buffer, if nobody holds its lock.
    pub(crate) fn try_new(buf: Arc<Buf>) -> Option<LockedBuf> {
        buf.try_lock().then(|| LockedBuf::new(buf))
    }

    /// The buffer, still locked: whoever takes it must unlock it.
    pub(crate) fn keep_locked(mut self) -> Arc<Buf> {
        self.buf.take().expect("a locked buffer is there until it is dropped")
    }
}

impl Deref for LockedBuf {
    type Target = Arc<Buf>;

    fn deref(&self) -> &Arc<Buf> {
        self.buf.as_ref().expect("a locked buffer is there until it is dropped")
    }
}

impl Drop for LockedBuf {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            buf.unlock();
        }
    }
}
