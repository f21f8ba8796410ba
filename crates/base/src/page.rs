//! Page memory: aligned, reference counted, copied when a shared one is written to.
//!
//! # Invariant of the unsafe code
//!
//! A [`Page`] is a counted reference to one block of `len` initialised bytes. The bytes are read
//! through any reference and written only through the only reference (count 1, seen with acquire
//! ordering while the writer holds `&mut Page`), so there is never a writer beside a reader.
//!
//! Blocks of 4, 16 and 64 KiB are cut from arenas of 2 MiB, aligned to their size, whose first
//! 4 KiB hold the counts: one for each 4 KiB of the arena, found from the block's address. (Counts
//! behind the data would cost a second page of memory and a second page fault each.) Arenas are
//! never given back; their free blocks wait in a list for each length. Other blocks come from the
//! heap with the count behind the data, at the next multiple of 16, and the last reference gives
//! them back with the layout that they were allocated with; those of 1 and 2 KiB are kept for reuse
//! up to a limit. Tested below and by every layer above.

#![allow(clippy::disallowed_types, reason = "the pool of free blocks cannot be seen in a run")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Alignment in bytes of pages of 4 KiB and more: direct I/O on any device is content with it.
/// Shorter pages are aligned to 512 bytes.
pub const ALIGNMENT: usize = 4096;

/// True for zeros alone. Content that begins otherwise costs one look.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(256).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

/// A piece of aligned memory of fixed length that is shared by reference.
///
/// Cloning takes a reference and copies nothing. [`Page::make_mut`] gives a writable view: the same
/// memory where this is the only reference, else a copy. Lengths are 1 byte to 1 GiB; the usual
/// ones are 1, 2, 4, 16 and 64 KiB.
pub struct Page {
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes are immutable while shared and the count is atomic (see the module invariant).
unsafe impl Send for Page {}
// SAFETY: as above; `&Page` only reads.
unsafe impl Sync for Page {}

/// Lengths whose blocks are kept for reuse; those of 4 KiB and more are cut from arenas.
const POOL_LENGTHS: [usize; 5] = [1024, 2048, 4096, 16384, 65536];
/// Bytes that one list of heap blocks keeps at the most.
const POOL_BYTES: usize = 32 << 20;
/// Bytes of an arena, and its alignment.
const ARENA: usize = 2 << 20;
/// Bytes of an arena that one count stands for.
const ARENA_UNIT: usize = 4096;

struct Free {
    blocks: Vec<NonNull<u8>>,
    /// The arena that is being cut, and where.
    arena: Option<(NonNull<u8>, usize)>,
    /// Arenas that were begun.
    arenas: usize,
}
// SAFETY: a free block, and the rest of an arena, have no other owner.
unsafe impl Send for Free {}

static POOL: [Mutex<Free>; 5] =
    [const { Mutex::new(Free { blocks: Vec::new(), arena: None, arenas: 0 }) }; 5];

fn pool_index(len: usize) -> Option<usize> {
    POOL_LENGTHS.iter().position(|&pooled| pooled == len)
}

fn in_arena(len: usize) -> bool {
    matches!(len, 4096 | 16384 | 65536)
}

fn layout(len: usize) -> Layout {
    let size = len.next_multiple_of(16) + size_of::<AtomicUsize>();
    let align = if len >= ALIGNMENT { ALIGNMENT } else { 512 };
    Layout::from_size_align(size, align).expect("page length is within the address space")
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: no layout of this module is empty.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

/// An arena. Where many are needed they are to be huge pages: one page fault instead of 512. A
/// program that needs a few blocks does not pay for clearing 2 MiB.
fn new_arena(many: bool) -> NonNull<u8> {
    let layout = Layout::from_size_align(ARENA, ARENA).expect("an arena fits into memory");
    let arena = allocate(layout);
    #[cfg(target_os = "linux")]
    if many {
        use rustix::mm::{Advice, madvise};
        // SAFETY: the range was just allocated, and the advice does not change its content.
        // A kernel without huge pages refuses, which costs speed alone.
        let _ = unsafe { madvise(arena.as_ptr().cast(), ARENA, Advice::LinuxHugepage) };
    }
    #[cfg(not(target_os = "linux"))]
    let _same_everywhere = many;
    arena
}

impl Free {
    /// The next block of `len` bytes of the arena; of a new one where it is used up.
    fn cut(&mut self, len: usize) -> NonNull<u8> {
        let (arena, at) = self
            .arena
            .take()
            .filter(|(_, at)| at + len <= ARENA)
            .unwrap_or_else(|| (new_arena(self.arenas > 0), len.max(ARENA_UNIT)));
        self.arenas += usize::from(at == len.max(ARENA_UNIT));
        self.arena = Some((arena, at + len));
        // SAFETY: `at + len` lies within the arena; `at` is above 0.
        unsafe { arena.add(at) }
    }
}

impl Page {
    /// A page of `len` bytes, all zero.
    ///
    /// # Panics
    /// Where `len` is zero or above 1 GiB.
    pub fn zeroed(len: usize) -> Page {
        Page::with(len, |data| {
            // SAFETY: `with` gives a block of `len` bytes that nobody else knows.
            unsafe { data.write_bytes(0, len) }
        })
    }

    /// A page of `len` bytes for whoever overwrites all of it: what it holds is anything, mostly
    /// what a page held that is no longer used. Costs no clearing where there is such a page.
    ///
    /// # Panics
    /// Where `len` is zero or above 1 GiB.
    pub fn stale(len: usize) -> Page {
        let page = Page::take(len, |data, used| {
            if !used {
                // SAFETY: `take` gives a block of `len` bytes that nobody else knows.
                unsafe { data.write_bytes(0, len) }
            }
        });
        // Tests see whoever reads what he has not written.
        #[cfg(debug_assertions)]
        let page = {
            let mut page = page;
            page.make_mut().fill(0xd5);
            page
        };
        page
    }

    /// A page with a copy of `bytes`.
    ///
    /// # Panics
    /// Where `bytes` is empty or above 1 GiB.
    pub fn from_slice(bytes: &[u8]) -> Page {
        Page::with(bytes.len(), |data| {
            // SAFETY: `with` gives a block of that many bytes, fresh, so it cannot overlap `bytes`.
            unsafe { data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
        })
    }

    /// A page of `len` bytes whose first bytes are `bytes` and whose rest is zero.
    ///
    /// # Panics
    /// Where `len` is zero, above 1 GiB, or below the length of `bytes`.
    pub fn padded(bytes: &[u8], len: usize) -> Page {
        assert!(bytes.len() <= len, "{} bytes do not fit into a page of {len}", bytes.len());
        Page::with(len, |data| {
            // SAFETY: the block has `len` bytes; the two parts lie within it; it is fresh.
            unsafe {
                data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                data.add(bytes.len()).write_bytes(0, len - bytes.len());
            }
        })
    }

    /// Takes a block of `len` bytes and lets `init` initialise all of it.
    fn with(len: usize, init: impl FnOnce(*mut u8)) -> Page {
        Page::take(len, |data, _| init(data))
    }

    /// The same; `init` gets to know whether the block was a page's before, so that all of it is
    /// initialised already.
    fn take(len: usize, init: impl FnOnce(*mut u8, bool)) -> Page {
        assert!((1..=1 << 30).contains(&len), "a page of {len} bytes was asked for");
        let pooled = pool_index(len).and_then(|index| {
            let mut free = POOL[index].lock().unwrap_or_else(|e| e.into_inner());
            let used = free.blocks.pop().map(|block| (block, true));
            used.or_else(|| in_arena(len).then(|| (free.cut(len), false)))
        });
        let (data, used) = pooled.unwrap_or_else(|| (allocate(layout(len)), false));
        init(data.as_ptr(), used);
        let page = Page { data, len };
        // SAFETY: the count's place is aligned and belongs to this block alone.
        unsafe { page.count_ptr().write(AtomicUsize::new(1)) };
        page
    }

    #[inline]
    fn count_ptr(&self) -> *mut AtomicUsize {
        if in_arena(self.len) {
            let arena = self.data.as_ptr().map_addr(|addr| addr & !(ARENA - 1));
            let index = (self.data.as_ptr() as usize - arena as usize) / ARENA_UNIT;
            // SAFETY: the block was cut from the arena that begins at the multiple of `ARENA`
            // below it; the counts, one for each unit, take no more than its first unit, and no
            // block is cut there. Blocks do not overlap, so no two have the same count.
            return unsafe { arena.cast::<AtomicUsize>().add(index) };
        }
        // SAFETY: `layout` made the block long enough for the count at this offset.
        unsafe { self.data.as_ptr().add(self.len.next_multiple_of(16)).cast() }
    }

    #[inline]
    fn count(&self) -> &AtomicUsize {
        // SAFETY: initialised by `with`, alive as long as a reference is.
        unsafe { &*self.count_ptr() }
    }

    /// Length in bytes. Never zero.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True where this is the only reference, so that [`Page::make_mut`] copies nothing.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.count().load(Ordering::Acquire) == 1
    }

    /// True where both are references to the same memory.
    pub fn ptr_eq(&self, other: &Page) -> bool {
        self.data == other.data
    }

    /// The bytes for writing. Where the page is shared, `self` becomes a copy first; the others
    /// keep the old content.
    #[inline]
    pub fn make_mut(&mut self) -> &mut [u8] {
        if !self.is_unique() {
            *self = Page::from_slice(self);
        }
        // SAFETY: this is the only reference and it is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }

    /// Copies `bytes` to `at`. A shared page that holds them there already stays shared, and one
    /// that is replaced as a whole is not copied first.
    ///
    /// # Panics
    /// Where `bytes` do not lie within the page.
    #[inline]
    pub fn copy_in(&mut self, at: usize, bytes: &[u8]) {
        let range = at..at + bytes.len();
        if !self.is_unique() {
            if self[range.clone()] == *bytes {
                return;
            }
            if bytes.len() == self.len {
                *self = Page::from_slice(bytes);
                return;
            }
        }
        self.make_mut()[range].copy_from_slice(bytes);
    }

    /// The bytes for writing, or `None` where the page is shared.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        self.is_unique().then(|| self.make_mut())
    }

    /// Address of the first byte, for the device that reads from it. Valid while a reference lives.
    pub fn as_ptr(&self) -> *const u8 {
        self.data.as_ptr()
    }
}

impl Deref for Page {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are initialised, and nobody writes while a shared borrow exists.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl Clone for Page {
    #[inline]
    fn clone(&self) -> Page {
        let before = self.count().fetch_add(1, Ordering::Relaxed);
        assert!(before < isize::MAX as usize, "more references to a page than memory could hold");
        Page { data: self.data, len: self.len }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.count().fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        if let Some(index) = pool_index(self.len) {
            let mut free = POOL[index].lock().unwrap_or_else(|e| e.into_inner());
            if in_arena(self.len) || free.blocks.len() < POOL_BYTES / self.len {
                free.blocks.push(self.data);
                return;
            }
        }
        // SAFETY: this was the last reference; the layout is that of the allocation.
        unsafe { dealloc(self.data.as_ptr(), layout(self.len)) };
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({} bytes at {:p})", self.len, self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_leaves_the_other_references_as_they_were() {
        let mut page = Page::from_slice(&[1; 4096]);
        let in_flight = page.clone();
        page.make_mut()[0] = 9;
        assert_eq!((page[0], in_flight[0]), (9, 1));
        assert!(!page.ptr_eq(&in_flight));
        let before = page.as_ptr();
        page.make_mut()[1] = 9;
        assert_eq!(page.as_ptr(), before, "the only reference is written in place");
        assert!(page.get_mut().is_some());
        let _other = page.clone();
        assert!(page.get_mut().is_none());
    }

    #[test]
    fn reused_blocks_come_back_zeroed_and_aligned() {
        for len in [512, 1000, 1024, 2048, 4096, 16384, 65536, 100_000] {
            drop(Page::from_slice(&vec![0xaa; len]));
            let page = Page::zeroed(len);
            assert!(page.iter().all(|&byte| byte == 0), "{len}");
            let align = if len >= ALIGNMENT { ALIGNMENT } else { 512 };
            assert_eq!(page.as_ptr() as usize % align, 0, "{len}");
        }
        assert_eq!(&Page::padded(&[1, 2], 4)[..], [1, 2, 0, 0]);
        for len in [512, 4096, 16384] {
            let mut page = Page::stale(len);
            page.make_mut().fill(7);
            assert_eq!((page.len(), page[len - 1]), (len, 7));
        }
    }

    #[test]
    fn many_threads_may_hold_and_copy_one_page() {
        let page = Page::from_slice(&[7; 1024]);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let mut mine = page.clone();
                scope.spawn(move || {
                    for _ in 0..1000 {
                        mine.make_mut()[0] = thread;
                        let shared = mine.clone();
                        assert_eq!(shared[0], thread);
                    }
                });
            }
        });
        assert_eq!(page[0], 7);
    }
}
