//! Memory for keys: it is not swapped and not dumped where the system allows that, and it is
//! cleared.
//!
//! # Invariant of the unsafe code
//!
//! A [`Locked`] owns one slot: memory of its size class that no other value has, aligned to the
//! class. Slots are cut from arenas of [`ARENA`] bytes, which are never given back; free slots wait
//! in a list for each class, full of zeros. Tested below.
//!
//! Keys have arenas of their own, since mlock(2) and munlock(2) work on whole pages. Arenas that
//! the limit (`RLIMIT_MEMLOCK`) has no room for are used all the same: see [`is_locked`].

#![allow(clippy::disallowed_types, reason = "the lists of free slots cannot be seen in a run")]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::fmt;
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
    protect(arena);
    let len = slot_len(class);
    // SAFETY: each offset lies inside the arena.
    free.0.extend((0..ARENA / len).map(|slot| unsafe { arena.add(slot * len) }));
    free.0.pop().expect("an arena has slots")
}

#[cfg(target_os = "linux")]
fn protect(arena: NonNull<u8>) {
    let start = arena.as_ptr().cast();
    // SAFETY: the arena is ours and page aligned, and stays; neither call changes its content.
    let (locked, undumped) = unsafe {
        (
            rustix::mm::mlock(start, ARENA),
            rustix::mm::madvise(start, ARENA, rustix::mm::Advice::LinuxDontDump),
        )
    };
    if locked.is_err() || undumped.is_err() {
        ALL.store(false, Ordering::Relaxed);
    }
}

#[cfg(not(target_os = "linux"))]
fn protect(_: NonNull<u8>) {
    ALL.store(false, Ordering::Relaxed);
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
