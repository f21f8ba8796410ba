//! Stacks for fibers: carved from large mappings, so that 40,000 of them stay far below
//! `vm.max_map_count`, and used again last in, first out, so that a warm one is taken.
//!
//! # Safety invariant
//!
//! A [`Stack`] is one slot of a mapping that lives as long as any of its slots (it holds an `Rc`),
//! and a slot is given out once until it comes back. The lowest page of a slot is a guard where the
//! kernel has lightweight guards (Linux 6.13) or while the pool is small; beyond that the slot
//! below would be overrun by a stack overflow, which the pool's limit of mprotect guards makes
//! rare. Exercised by every test in virtual time, and by the tests below.
#![allow(unsafe_code)]

use corosensei::stack::{Stack as CoStack, StackPointer};
use std::io;
use std::ptr;
use std::rc::Rc;

pub(super) const PAGE: usize = 4096;
/// Stacks in one mapping.
const SLOTS: usize = 64;
/// Stacks in the first mapping of a pool: a world that recovers a disk has few tasks, and each slot
/// costs a system call.
const SLOTS_FIRST: usize = 8;
/// Guards made with mprotect in one pool, where nothing better is available: each costs two of the
/// process's 65,530 mappings.
const MPROTECT_GUARDS: usize = 8192;
/// `MADV_GUARD_INSTALL`: a guard that costs no mapping.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// One mapping of some stacks.
struct Chunk {
    start: usize,
    slot_size: usize,
    slots: usize,
}

impl Chunk {
    fn map(slot_size: usize, slots: usize) -> io::Result<Chunk> {
        let len = slot_size * slots;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping disturbs nobody.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Huge pages would commit sixteen stacks at a touch. It is a hint: failing is harmless.
        // SAFETY: the range is our mapping.
        unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) };
        Ok(Chunk { start: start as usize, slot_size, slots })
    }

    /// Makes the lowest page of `slot` inaccessible; `split` allows the way that costs mappings.
    fn guard(&self, slot: usize, split: bool) -> bool {
        let page = (self.start + slot * self.slot_size) as *mut libc::c_void;
        // SAFETY: the page belongs to our mapping, and nobody uses the slot yet.
        unsafe {
            libc::madvise(page, PAGE, MADV_GUARD_INSTALL) == 0
                || split && libc::mprotect(page, PAGE, libc::PROT_NONE) == 0
        }
    }

    /// The largest number of bytes from the top of a slot down to its lowest page in memory.
    fn high_water(&self) -> usize {
        let pages = self.slot_size / PAGE;
        let mut resident = vec![0u8; pages * self.slots];
        let start = self.start as *mut libc::c_void;
        // SAFETY: the range is our mapping, and `resident` has a byte for each of its pages.
        let failed = unsafe { libc::mincore(start, resident.len() * PAGE, resident.as_mut_ptr()) };
        if failed != 0 {
            return 0;
        }
        let depth = |slot: &[u8]| slot.iter().position(|p| p & 1 != 0).map_or(0, |at| pages - at);
        resident.chunks(pages).map(depth).max().unwrap_or(0) * PAGE
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: no slot refers to the mapping any more: each holds an `Rc` of this chunk.
        let failed = unsafe { libc::munmap(self.start as *mut _, self.slot_size * self.slots) };
        debug_assert_eq!(failed, 0);
    }
}

/// One stack. Dropping it unmaps its chunk after the last slot; the pool takes it back instead.
pub(crate) struct Stack {
    chunk: Rc<Chunk>,
    slot: usize,
}

// SAFETY: the slot is mapped while `chunk` lives, at least 16 KiB large and page-aligned, and has a
// guard page under the conditions in the module's invariant.
unsafe impl CoStack for Stack {
    #[inline]
    fn base(&self) -> StackPointer {
        let top = self.chunk.start + (self.slot + 1) * self.chunk.slot_size;
        // Tasks that wait at the same place have the same frames: with all the tops at the same
        // offset in a page they would fight for a few sets of the cache.
        let color = self.slot * 13 % 32 * 64;
        StackPointer::new(top - color).expect("a mapping does not begin at zero")
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        let bottom = self.chunk.start + self.slot * self.chunk.slot_size;
        StackPointer::new(bottom).expect("a mapping does not begin at zero")
    }
}

/// The stacks of one world.
pub(crate) struct StackPool {
    slot_size: usize,
    free: Vec<Stack>,
    chunks: Vec<Rc<Chunk>>,
    split_guards: usize,
}

impl StackPool {
    /// Stacks of `size` usable bytes, rounded up to pages; at least 16 KiB.
    pub fn new(size: usize) -> StackPool {
        let slot_size = size.max(16 << 10).next_multiple_of(PAGE) + PAGE;
        StackPool { slot_size, free: Vec::new(), chunks: Vec::new(), split_guards: 0 }
    }

    /// A stack, warm if possible.
    ///
    /// # Panics
    /// Where the system gives no more address space.
    #[inline]
    pub fn take(&mut self) -> Stack {
        match self.free.pop() {
            Some(stack) => stack,
            None => self.grow(),
        }
    }

    #[inline]
    pub fn give_back(&mut self, stack: Stack) {
        self.free.push(stack);
    }

    #[cold]
    fn grow(&mut self) -> Stack {
        let slots = if self.chunks.is_empty() { SLOTS_FIRST } else { SLOTS };
        let chunk = match Chunk::map(self.slot_size, slots) {
            Ok(chunk) => Rc::new(chunk),
            Err(error) => panic!("no address space for more stacks: {error}"),
        };
        for slot in (0..slots).rev() {
            let split = self.split_guards < MPROTECT_GUARDS;
            if chunk.guard(slot, split) {
                self.split_guards += 1;
            }
            self.free.push(Stack { chunk: chunk.clone(), slot });
        }
        self.chunks.push(chunk);
        self.free.pop().expect("a chunk has slots")
    }

    /// Bytes of the deepest stack so far, by the pages that were touched; excludes the guard.
    pub fn high_water(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.high_water()).max().unwrap_or(0)
    }

    /// Usable bytes of a stack.
    pub fn stack_size(&self) -> usize {
        self.slot_size - PAGE
    }
}
