//! The sleeping lock with shared readers.
//!
//! # Safety invariant
//!
//! The value in the cell is reached through a [`ReadGuard`] (shared) or a [`WriteGuard`] (alone),
//! and those exist only while the raw lock is held in that mode. Tested by `explore`
//! and `tests/both_clocks.rs`.
#![allow(unsafe_code)]

use super::raw::RawLock;
use crate::Cx;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A reader-writer lock whose waiters sleep, as Linux's `rw_semaphore`.
///
/// Once anybody waits, new readers wait behind him, so a task must not take the read side twice:
/// with a writer between the two it would wait for itself. Guards may be held across waits.
pub struct RwLock<T> {
    raw: RawLock,
    name: &'static str,
    value: UnsafeCell<T>,
}

// SAFETY: writers have the value alone and readers share `&T` (module invariant).
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: Send> Send for RwLock<T> {}

impl<T> RwLock<T> {
    /// An unlocked lock without a name.
    pub fn new(value: T) -> Self {
        RwLock::named("rwlock", value)
    }

    /// An unlocked lock that reports call `name`.
    pub fn named(name: &'static str, value: T) -> Self {
        RwLock { raw: RawLock::new(), name, value: UnsafeCell::new(value) }
    }

    /// Takes the lock together with other readers. May park: waits for a writer, or behind one who
    /// waits.
    #[inline]
    pub fn read(&self, cx: &mut Cx) -> ReadGuard<'_, T> {
        self.raw.read(cx, self.name);
        ReadGuard { lock: self, marker: PhantomData }
    }

    /// Takes the lock alone. May park: waits for readers and writers.
    #[inline]
    pub fn write(&self, cx: &mut Cx) -> WriteGuard<'_, T> {
        self.raw.write(cx, self.name);
        WriteGuard { lock: self, marker: PhantomData }
    }

    /// Takes the lock alone, unless `done` is true first: for whoever has asked the holder to do
    /// his work. `done` stays true once it is; none says that it was true, a guard does not say
    /// that it was not, since nobody looks at it who sleeps. May park: as [`write`].
    ///
    /// [`write`]: RwLock::write
    #[inline]
    pub fn write_unless(
        &self,
        cx: &mut Cx,
        done: impl FnMut() -> bool,
    ) -> Option<WriteGuard<'_, T>> {
        let taken = self.raw.write_unless(cx, self.name, done);
        taken.then(|| WriteGuard { lock: self, marker: PhantomData })
    }

    /// Takes the lock for reading if no writer holds it and nobody waits. Any context.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        self.raw.try_read().then(|| ReadGuard { lock: self, marker: PhantomData })
    }

    /// Takes the lock alone if nobody holds it or waits. Any context.
    #[inline]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        self.raw.try_write(0).then(|| WriteGuard { lock: self, marker: PhantomData })
    }

    /// True while somebody holds the lock; for assertions.
    pub fn is_locked(&self) -> bool {
        self.raw.is_held()
    }

    /// The value of a lock that nobody else can reach.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// The value of a lock that is borrowed exclusively.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        RwLock::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock")
            .field("name", &self.name)
            .field("owner", &self.raw.owner())
            .field("value", &self.try_read().as_deref())
            .finish()
    }
}

/// Shared access to the value of an [`RwLock`]; dropping it gives the share back.
#[must_use = "dropping the guard unlocks"]
pub struct ReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    marker: PhantomData<&'a T>,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while this guard lives there is no writer (module invariant).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.release_read();
    }
}

/// Exclusive access to the value of an [`RwLock`]; dropping it unlocks.
#[must_use = "dropping the guard unlocks"]
pub struct WriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    marker: PhantomData<&'a mut T>,
}

impl<'a, T> WriteGuard<'a, T> {
    /// Turns the guard into a reader's, without a moment in which another writer could come in.
    pub fn downgrade(self) -> ReadGuard<'a, T> {
        let lock = self.lock;
        std::mem::forget(self);
        lock.raw.downgrade();
        ReadGuard { lock, marker: PhantomData }
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while this guard lives nobody else reaches the value (module invariant).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.release_write();
    }
}
