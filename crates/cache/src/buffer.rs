//! One block of metadata in memory.

pub mod cache;
mod index;
pub mod lru;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
#[cfg(not(iopath_shuttle))]
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(iopath_shuttle)]
use shuttle::sync::atomic::{AtomicU32, Ordering};

use base::Page;
use block::DeviceError;
use rt::SpinLock;

use self::cache::Shared;

/// A counted reference to a [`Buffer`]. While one exists outside of the index and of the LRUs, the
/// buffer stays in memory.
pub type BufferRef = Arc<Buffer>;

/// Runs on a block's content just before it is written: the place for its checksum.
///
/// Called with the block number and the bytes, under the buffer's spin lock: it must not wait nor
/// look at other buffers.
pub type Trigger = Arc<dyn Fn(u64, &mut [u8]) + Send + Sync>;

/// The content equals the device's or is newer.
const UPTODATE: u32 = 1;
/// To be written by `sync` (never set where a journal cares for the buffer).
const DIRTY: u32 = 2;
/// A checksum or a structure check has succeeded.
const VERIFIED: u32 = 4;
/// A read is under way; whoever needs the content waits.
const READING: u32 = 8;
/// A write is under way; a second one waits, so that two versions cannot change places.
const WRITING: u32 = 16;
/// Used since the clock hand passed.
const REFERENCED: u32 = 32;
/// No longer in the index: whoever finds it in an LRU must not use it.
const FORGOTTEN: u32 = 64;
/// The last write failed.
const WRITE_ERROR: u32 = 128;

/// What the journal keeps with a buffer. Only the `jbd2` crate writes to it.
#[derive(Default)]
pub struct JournalHead {
    /// The last transaction that the buffer joined, or 0.
    pub joined: AtomicU64,
    /// The last transaction that is going to log the buffer, or 0.
    pub dirtied: AtomicU64,
    /// The last transaction that has logged the buffer since it came into memory, or 0.
    pub logged: AtomicU64,
}

#[derive(Default)]
struct Content {
    /// `None` until the block is read or first looked at.
    page: Option<Page>,
    /// Somebody has written to it: a read that is still under way must not replace it.
    changed: bool,
    trigger: Option<Trigger>,
    read_error: Option<DeviceError>,
}

/// One block of the device: its content, its state, and what a journal needs to know about it.
///
/// Locks: the content has a spin lock of its own, innermost of all. Not waited under.
pub struct Buffer {
    block: u64,
    flags: AtomicU32,
    content: SpinLock<Content>,
    /// State of the journal that the buffer belongs to.
    pub journal_head: JournalHead,
    shared: Arc<Shared>,
}

impl Buffer {
    pub(crate) fn new(block: u64, shared: Arc<Shared>) -> Buffer {
        Buffer {
            block,
            flags: AtomicU32::new(REFERENCED),
            content: SpinLock::new(Content::default()),
            journal_head: JournalHead::default(),
            shared,
        }
    }

    /// Its place on the device, in blocks of the cache's size.
    #[inline]
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Bytes of its content.
    #[inline]
    pub fn size(&self) -> usize {
        self.shared.block_size as usize
    }

    #[inline]
    fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    /// Sets the flag; true where it was not set before.
    #[inline]
    fn raise(&self, flag: u32) -> bool {
        self.flags.fetch_or(flag, Ordering::AcqRel) & flag == 0
    }

    /// Clears the flag; true where it was set before.
    #[inline]
    fn drop_flag(&self, flag: u32) -> bool {
        self.flags.fetch_and(!flag, Ordering::AcqRel) & flag != 0
    }

    /// A snapshot of the content: a reference that later changes do not reach.
    pub fn page(&self) -> Page {
        let mut content = self.content.lock_irq();
        content.page.get_or_insert_with(|| Page::zeroed(self.size())).clone()
    }

    /// Looks at the content. Holds a spin lock: `look` must be short and must not wait, nor touch
    /// this buffer again.
    #[inline]
    pub fn with<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        let mut content = self.content.lock_irq();
        look(content.page.get_or_insert_with(|| Page::zeroed(self.size())))
    }

    /// Changes the content. Where it is in flight, the device keeps the old bytes and this buffer
    /// gets a copy. Holds a spin lock: `change` must be short and must not wait, nor touch this
    /// buffer again.
    ///
    /// The caller says afterwards that the buffer is dirty: to the journal, or with
    /// [`Buffer::mark_dirty`].
    #[inline]
    pub fn with_mut<R>(&self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut content = self.content.lock_irq();
        content.changed = true;
        change(content.page.get_or_insert_with(|| Page::zeroed(self.size())).make_mut())
    }

    /// Puts `page` in the place of the content, which is complete and must be verified again.
    pub fn replace(&self, page: Page) {
        let mut content = self.content.lock_irq();
        content.page = Some(page);
        content.changed = true;
        drop(content);
        self.drop_flag(VERIFIED);
        self.raise(UPTODATE);
    }

    /// True where the content may be used.
    #[inline]
    pub fn uptodate(&self) -> bool {
        self.has(UPTODATE)
    }

    /// Says that the content is complete: a new block that its maker has filled.
    pub fn set_uptodate(&self) {
        self.raise(UPTODATE);
    }

    /// True where `sync` would write it.
    #[inline]
    pub fn dirty(&self) -> bool {
        self.has(DIRTY)
    }

    /// Says that the content must be written by the next `sync`. Only without a journal.
    pub fn mark_dirty(&self) {
        if self.raise(DIRTY) {
            self.shared.dirty.lock_irq().insert(self.block);
        }
    }

    /// True where somebody has verified the content since it was read.
    #[inline]
    pub fn verified(&self) -> bool {
        self.has(VERIFIED)
    }

    /// Remembers that the content was verified, or (`false`) that it must be verified again.
    pub fn set_verified(&self, verified: bool) {
        if verified {
            self.raise(VERIFIED);
        } else {
            self.drop_flag(VERIFIED);
        }
    }

    /// True where the last write of the block has failed.
    pub fn write_error(&self) -> bool {
        self.has(WRITE_ERROR)
    }

    /// Sets what runs just before the content is written.
    pub fn set_trigger(&self, trigger: Option<Trigger>) {
        self.content.lock_irq().trigger = trigger;
    }

    /// True where a trigger is set.
    pub fn has_trigger(&self) -> bool {
        self.content.lock_irq().trigger.is_some()
    }

    /// Runs the trigger and takes a snapshot: what is to be written now.
    pub fn page_for_write(&self) -> Page {
        let mut content = self.content.lock_irq();
        let Content { page, trigger, .. } = &mut *content;
        let page = page.get_or_insert_with(|| Page::zeroed(self.size()));
        if let Some(trigger) = trigger {
            trigger(self.block, page.make_mut());
        }
        page.clone()
    }

    /// Runs the trigger on a snapshot that was taken with [`Buffer::page`] some time ago.
    ///
    /// Where the buffer still has that content, the buffer's own bytes are updated (no copy);
    /// else only the snapshot's.
    pub fn trigger_snapshot(&self, snapshot: Page) -> Page {
        let mut content = self.content.lock_irq();
        let Content { page, trigger, .. } = &mut *content;
        let Some(trigger) = trigger else { return snapshot };
        match page {
            Some(page) if page.ptr_eq(&snapshot) => {
                drop(snapshot);
                trigger(self.block, page.make_mut());
                page.clone()
            }
            _ => {
                let mut snapshot = snapshot;
                trigger(self.block, snapshot.make_mut());
                snapshot
            }
        }
    }

    /// True where the cache no longer knows this buffer.
    #[inline]
    pub fn forgotten(&self) -> bool {
        self.has(FORGOTTEN)
    }

    pub(crate) fn set_forgotten(&self) {
        self.raise(FORGOTTEN);
        self.drop_flag(DIRTY);
    }

    pub(crate) fn touch(&self) {
        // A plain look first: the flag is nearly always set, and a write would move the line.
        if !self.has(REFERENCED) {
            self.raise(REFERENCED);
        }
    }

    pub(crate) fn untouch(&self) -> bool {
        self.drop_flag(REFERENCED)
    }

    pub(crate) fn clear_dirty(&self) -> bool {
        self.drop_flag(DIRTY)
    }

    pub(crate) fn reading(&self) -> bool {
        self.has(READING)
    }

    pub(crate) fn begin_read(&self) -> bool {
        let first = self.raise(READING);
        if first {
            self.content.lock_irq().read_error = None;
        }
        first
    }

    pub(crate) fn end_read(&self, result: Result<Page, Option<DeviceError>>) {
        {
            let mut content = self.content.lock_irq();
            match result {
                Ok(page) if !content.changed => {
                    content.page = Some(page);
                    self.raise(UPTODATE);
                }
                // A maker of new content was faster than the device (a read-ahead).
                Ok(_) => {}
                Err(error) => content.read_error = error,
            }
        }
        self.drop_flag(READING);
        self.shared.waits(self.block).wake_all();
    }

    pub(crate) fn read_error(&self) -> Option<DeviceError> {
        self.content.lock_irq().read_error.clone()
    }

    pub(crate) fn writing(&self) -> bool {
        self.has(WRITING)
    }

    pub(crate) fn begin_write(&self) -> bool {
        self.raise(WRITING)
    }

    pub(crate) fn end_write(&self, failed: bool) {
        if failed {
            self.raise(WRITE_ERROR);
        } else if self.write_error() {
            self.drop_flag(WRITE_ERROR);
        }
        self.drop_flag(WRITING);
        self.shared.waits(self.block).wake_all();
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = self.flags.load(Ordering::Relaxed);
        write!(f, "Buffer(block {}, flags {flags:#x})", self.block)
    }
}
