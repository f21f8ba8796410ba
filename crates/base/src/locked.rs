//! Memory for keys: it is not swapped and not dumped where the system allows that, and it is
//! cleared.
//!
//! # Invariant of the unsafe code
//!
//! A [`Locked`] owns one slot: memory of its size class that no other value has, aligned to the
//! class. Slots are cut from arenas of [`ARENA`] bytes, which are never given back; free slots wait
//! in a list for each class, full of zeros. A [`LockedBytes`] owns whole pages and gives them back.
//! Tested below.
//!
//! Keys have arenas of their own, since mlock(2) and munlock(2) work on whole pages. Arenas that
//! the limit (`RLIMIT_MEMLOCK`) has no room for are used all the same: see [`is_locked`].

#![allow(clippy::disallowed_types, reason = "the lists of free slots cannot be seen in a run")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io::{self, Read};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// Bytes of an arena, and its alignment: a whole number of pages everywhere.
const ARENA: usize = 64 << 10;
/// Bytes of the smallest slot, a power of two.
const SLOT_MIN: usize = 64;
/// Classes of slots: up to that of 8 KiB.
const CLASSES: usize = 8;

struct Free(Vec<NonNull<u8>>);

// SAFETY: a free slot has no other owner.
unsafe impl Send for Free {}

static FREE: [Mutex<Free>; CLASSES] = [const { Mutex::new(Free(Vec::new())) }; CLASSES];
/// No arena was refused.
static ALL: AtomicBool = AtomicBool::new(true);

/// Is all memory of keys locked? True before there is any.
pub fn is_locked() -> bool {
    ALL.load(Ordering::Relaxed)
}

/// Bytes of the slots of a class.
const fn slot_len(class: usize) -> usize {
    SLOT_MIN << class
}

/// A value in memory for keys, of 8 KiB at most. What is dropped is cleared.
pub struct Locked<T>(NonNull<T>);

// SAFETY: it owns its value as a `Box` does.
unsafe impl<T: Send> Send for Locked<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// The class of the slots for such values.
    const CLASS: usize = {
        let mut class = 0;
        while slot_len(class) < size_of::<T>() || slot_len(class) < align_of::<T>() {
            class += 1;
        }
        assert!(class < CLASSES, "a key has 8 KiB at most");
        class
    };

    /// Moves a value there. What the caller had of it on its stack is the caller's to clear.
    pub fn new(value: T) -> Locked<T> {
        let slot = take(Self::CLASS).cast::<T>();
        // SAFETY: the slot is ours, large enough and aligned to its size, which T's alignment
        // divides.
        unsafe { slot.as_ptr().write(value) };
        Locked(slot)
    }
}

impl<T> Deref for Locked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the slot holds a value until `drop`.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for Locked<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and nobody else has a reference.
        unsafe { self.0.as_mut() }
    }
}

impl<T: Clone> Clone for Locked<T> {
    fn clone(&self) -> Locked<T> {
        Locked::new(T::clone(self))
    }
}

/// Never the value.
impl<T> fmt::Debug for Locked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Locked")
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        let slot = self.0.cast::<u8>();
        // SAFETY: the value is dropped once; then the slot is bytes, which nobody refers to.
        unsafe {
            self.0.as_ptr().drop_in_place();
            for index in 0..size_of::<T>() {
                slot.as_ptr().add(index).write_volatile(0);
            }
        }
        compiler_fence(Ordering::SeqCst);
        let mut free = FREE[Self::CLASS].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        free.0.push(slot);
    }
}

/// A slot of a class, of a new arena where none is free.
fn take(class: usize) -> NonNull<u8> {
    let mut free = FREE[class].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(slot) = free.0.pop() {
        return slot;
    }
    let layout = Layout::from_size_align(ARENA, ARENA).expect("powers of two");
    // SAFETY: the layout has a size.
    let Some(arena) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
        handle_alloc_error(layout)
    };
    protect(arena, ARENA);
    let len = slot_len(class);
    // SAFETY: each offset lies inside the arena.
    free.0.extend((0..ARENA / len).map(|slot| unsafe { arena.add(slot * len) }));
    free.0.pop().expect("an arena has slots")
}

#[cfg(target_os = "linux")]
fn protect(pages: NonNull<u8>, len: usize) {
    let start = pages.as_ptr().cast();
    // SAFETY: the pages are ours, whole and allocated; neither call changes their content.
    let (locked, undumped) = unsafe {
        (
            rustix::mm::mlock(start, len),
            rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxDontDump),
        )
    };
    if locked.is_err() || undumped.is_err() {
        ALL.store(false, Ordering::Relaxed);
    }
}

#[cfg(not(target_os = "linux"))]
fn protect(_: NonNull<u8>, _: usize) {
    ALL.store(false, Ordering::Relaxed);
}

/// The pages are used for other things from now on.
#[cfg(target_os = "linux")]
fn release(pages: NonNull<u8>, len: usize) {
    let start = pages.as_ptr().cast();
    // SAFETY: as in `protect`. Where a call fails, the pages are kept from swap or dumps: no harm.
    let _kept = unsafe {
        (
            rustix::mm::munlock(start, len),
            rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxDoDump),
        )
    };
}

#[cfg(not(target_os = "linux"))]
fn release(_: NonNull<u8>, _: usize) {}

/// Bytes of a page everywhere, and of the smallest [`LockedBytes`].
const PAGE: usize = 16 << 10;

/// A secret of any length, as the content of a key file, in pages of its own. What is dropped is
/// cleared.
pub struct LockedBytes {
    pages: NonNull<u8>,
    /// Bytes of the pages.
    room: usize,
    len: usize,
}

// SAFETY: it owns its pages as a `Vec` does.
unsafe impl Send for LockedBytes {}
// SAFETY: as above.
unsafe impl Sync for LockedBytes {}

impl LockedBytes {
    fn layout(room: usize) -> Layout {
        Layout::from_size_align(room, PAGE).expect("whole pages")
    }

    /// Pages for so many bytes, all zeros.
    fn with_room(len: usize) -> LockedBytes {
        let room = len.next_multiple_of(PAGE).max(PAGE);
        let layout = LockedBytes::layout(room);
        // SAFETY: the layout has a size.
        let Some(pages) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        protect(pages, room);
        LockedBytes { pages, room, len }
    }

    /// A copy of bytes, which stay the caller's to clear.
    pub fn of(bytes: &[u8]) -> LockedBytes {
        let mut copy = LockedBytes::with_room(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }

    /// Reads to the end, but at most `most` bytes. The reader keeps no copy where it has no buffer.
    ///
    /// # Errors
    /// The reader's.
    pub fn read(from: &mut dyn Read, most: usize) -> io::Result<LockedBytes> {
        let (mut bytes, mut done) = (LockedBytes::with_room(PAGE.min(most)), 0);
        while done < most {
            if done == bytes.len {
                let mut more = LockedBytes::with_room((2 * done).min(most));
                more[..done].copy_from_slice(&bytes);
                bytes = more;
            }
            match from.read(&mut bytes[done..]) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.len = done;
        Ok(bytes)
    }
}

impl Deref for LockedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are ours until `drop`, initialised, and `len` is at most `room`.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr(), self.len) }
    }
}

impl DerefMut for LockedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has a reference.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_ptr(), self.len) }
    }
}

impl Clone for LockedBytes {
    fn clone(&self) -> LockedBytes {
        LockedBytes::of(self)
    }
}

/// Never the bytes.
impl fmt::Debug for LockedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockedBytes")
    }
}

impl Drop for LockedBytes {
    fn drop(&mut self) {
        for index in 0..self.room {
            // SAFETY: inside of the pages, which are ours.
            unsafe { self.pages.as_ptr().add(index).write_volatile(0) };
        }
        compiler_fence(Ordering::SeqCst);
        release(self.pages, self.room);
        // SAFETY: allocated with this layout, and nobody refers to it any more.
        unsafe { dealloc(self.pages.as_ptr(), LockedBytes::layout(self.room)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the mapping that holds an address (proc_pid_smaps(5)).
    fn flags(at: *const u8) -> String {
        let text = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut inside = false;
        for line in text.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let number = |word| usize::from_str_radix(word, 16);
            if let Some((Ok(from), Ok(to))) = range.map(|(a, b)| (number(a), number(b))) {
                inside = (from..to).contains(&at.addr());
            }
            if let (true, Some(flags)) = (inside, line.strip_prefix("VmFlags:")) {
                return flags.to_string();
            }
        }
        panic!("no mapping of {at:?}");
    }

    #[test]
    fn keys_are_locked_and_not_dumped() {
        let keys: Vec<Locked<[u8; 60]>> = (0..100).map(|n| Locked::new([n; 60])).collect();
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(**key, [n as u8; 60]);
            let flags = flags(key.as_ptr());
            assert!(flags.contains(" dd"), "{flags}");
            assert!(flags.contains(" lo") || !is_locked(), "{flags}");
        }
        assert_eq!(format!("{:?}", keys[7]), "Locked");
    }

    /// Lengths around a page, read in pieces; each has pages of its own, locked while it lives.
    #[test]
    fn secrets_of_any_length_are_locked() {
        for len in [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 5] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8 | 1).collect();
            let secret = LockedBytes::read(&mut &bytes[..], 100 << 10).expect("all of it");
            assert!(*secret == *bytes && *secret.clone() == *bytes, "{len}");
            let short = LockedBytes::read(&mut &bytes[..], 100).expect("a part");
            assert_eq!(*short, bytes[..len.min(100)]);
            let flags = flags(secret.as_ptr());
            assert!(flags.contains(" dd"), "{flags}");
            assert!(flags.contains(" lo") || !is_locked(), "{flags}");
            assert_eq!(format!("{secret:?}"), "LockedBytes");
        }
    }

    #[test]
    fn values_of_all_sizes_have_their_own_places() {
        let mut small: Vec<Locked<u8>> = (0..200).map(Locked::new).collect();
        let large: Vec<Locked<[u64; 1024]>> = (0..20).map(|n| Locked::new([n; 1024])).collect();
        *small[3] = 250;
        let copy = large[19].clone();
        drop(large);
        assert_eq!((*small[3], *small[4], *copy), (250, 4, [19; 1024]));
        assert!(copy.as_ptr().addr().is_multiple_of(8192));
    }

    #[test]
    fn what_is_dropped_is_cleared() {
        // No other test has slots of this class.
        let key = Locked::new([0xa5u8; 1500]);
        let at = NonNull::from(&*key).cast::<u8>();
        drop(key);
        // SAFETY: arenas stay, and no other test takes a slot of this class.
        let bytes = unsafe { std::slice::from_raw_parts(at.as_ptr(), 1500) };
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}
