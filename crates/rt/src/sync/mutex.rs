//! The sleeping lock.
//!
//! # Safety invariant
//!
//! The value in the cell is reached only through a [`MutexGuard`], and a guard exists only while
//! the raw lock is held for writing. Tested by `explore`
//! and `tests/both_clocks.rs`.
#![allow(unsafe_code)]

use super::raw::RawLock;
use crate::Cx;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A lock whose waiters sleep. Its guard may be held across waits, and dropped in event context.
///
/// Uncontended, taking it is one compare-and-swap in both clocks. A free lock goes to whoever comes
/// first; a waiter who came too late once gets it next, so nobody starves. Taking it twice in one
/// task is a deadlock (reported in virtual time).
pub struct Mutex<T> {
    raw: RawLock,
    name: &'static str,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out the value to one task at a time (module invariant), so sharing it
// needs no more than that the value may move between threads.
unsafe impl<T: Send> Sync for Mutex<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: Send> Send for Mutex<T> {}

impl<T> Mutex<T> {
    /// An unlocked mutex without a name.
    pub fn new(value: T) -> Self {
        Mutex::named("mutex", value)
    }

    /// An unlocked mutex that reports call `name`.
    pub fn named(name: &'static str, value: T) -> Self {
        Mutex { raw: RawLock::new(), name, value: UnsafeCell::new(value) }
    }

    /// Takes the lock. May park: waits for the holder.
    #[inline]
    pub fn lock(&self, cx: &mut Cx) -> MutexGuard<'_, T> {
        self.raw.write(cx, self.name);
        MutexGuard { lock: self, marker: PhantomData }
    }

    /// Takes the lock if it is free and nobody waits for it. Any context.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.raw.try_write(0).then(|| MutexGuard { lock: self, marker: PhantomData })
    }

    /// True while somebody holds the lock; for assertions.
    pub fn is_locked(&self) -> bool {
        self.raw.is_held()
    }

    /// The value of a mutex that nobody else can reach.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// The value of a mutex that is borrowed exclusively.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", &self.name)
            .field("owner", &self.raw.owner())
            .field("value", &self.try_lock())
            .finish()
    }
}

/// Access to the value of a [`Mutex`]; dropping it unlocks.
#[must_use = "dropping the guard unlocks"]
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    marker: PhantomData<&'a mut T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard lives only while its lock is held (module invariant).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.release_write();
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
