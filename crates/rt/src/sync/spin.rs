//! Spin locks: for sections that are short and never wait.
//!
//! # Safety invariant
//!
//! The value in the cell is reached only through a [`SpinGuard`], and a guard exists only between
//! the compare-and-swap that set `locked` and the store that clears it. Tested by `explore`
//! and `tests/both_clocks.rs`.
#![allow(unsafe_code)]

use super::shim::{AtomicU32, Ordering, spin_loop, yield_now};
use crate::Cx;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// Attempts before a waiter gives its processor away: the holder may need it (2-core machines).
const SPINS: u32 = 64;
/// A spin lock that is held as long as this is held by somebody who waits, which is a bug.
const STUCK: Duration = Duration::from_secs(30);
/// The same in virtual time, where only another OS thread could give it back.
const STUCK_VIRTUAL: Duration = Duration::from_secs(1);

/// A lock whose waiters spin. Sections under it must be short and cannot wait: the guard of
/// [`lock`](SpinLock::lock) borrows the task's [`Cx`].
///
/// In virtual time such a lock is always free when it is taken, since a task switches only where it
/// waits.
pub struct SpinLock<T> {
    locked: AtomicU32,
    name: &'static str,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out the value to one thread at a time (module invariant), so sharing it
// needs no more than that the value may move between threads.
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// An unlocked lock without a name.
    pub fn new(value: T) -> Self {
        SpinLock::named("spin lock", value)
    }

    /// An unlocked lock that reports call `name`.
    pub fn named(name: &'static str, value: T) -> Self {
        SpinLock { locked: AtomicU32::new(0), name, value: UnsafeCell::new(value) }
    }

    /// Takes the lock in process context. The guard borrows `cx`, so that nothing that may wait can
    /// be called while it lives. Spins; never parks.
    ///
    /// # Panics
    /// Where the lock cannot be had for 30 s (1 s in virtual time): its holder waits, or this task
    /// holds it already.
    ///
    /// ```compile_fail
    /// fn wait_under_a_spin_lock(lock: &rt::SpinLock<u32>, cx: &mut rt::Cx) {
    ///     let guard = lock.lock(cx);
    ///     cx.sleep(rt::Nanos(1)); // error: `*cx` is borrowed by `guard`
    ///     drop(guard);
    /// }
    /// ```
    #[inline]
    pub fn lock<'a>(&'a self, cx: &'a Cx) -> SpinGuard<'a, T> {
        if !self.take() {
            self.lock_slow(if cx.is_virtual() { STUCK_VIRTUAL } else { STUCK });
        }
        SpinGuard { lock: self, not_send: PhantomData }
    }

    /// Takes the lock in event context, or in a function that has no [`Cx`]. The caller must not
    /// wait while the guard lives. Spins; never parks.
    ///
    /// # Panics
    /// As [`lock`](SpinLock::lock).
    #[inline]
    pub fn lock_irq(&self) -> SpinGuard<'_, T> {
        if !self.take() {
            self.lock_slow(STUCK);
        }
        SpinGuard { lock: self, not_send: PhantomData }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        self.take().then(|| SpinGuard { lock: self, not_send: PhantomData })
    }

    /// The value of a lock that nobody else can reach.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// The value of a lock that is borrowed exclusively.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline]
    fn take(&self) -> bool {
        self.locked.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self, patience: Duration) {
        let mut since = None;
        loop {
            for _ in 0..SPINS {
                if self.locked.load(Ordering::Relaxed) == 0 && self.take() {
                    return;
                }
                spin_loop();
            }
            yield_now();
            let since = *since.get_or_insert_with(Instant::now);
            assert!(
                since.elapsed() < patience,
                "spin lock `{}` is not given back: its holder waits, or takes it twice",
                self.name
            );
        }
    }
}

impl<T: Default> Default for SpinLock<T> {
    fn default() -> Self {
        SpinLock::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.try_lock();
        f.debug_struct("SpinLock").field("name", &self.name).field("value", &value).finish()
    }
}

/// Access to the value of a [`SpinLock`]; dropping it unlocks. It stays on its thread.
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: sharing a guard shares `&T` and nothing else.
unsafe impl<T: Sync> Sync for SpinGuard<'_, T> {}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard lives only while its lock is held (module invariant).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.locked.store(0, Ordering::Release);
    }
}

impl<T: fmt::Debug> fmt::Debug for SpinGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
