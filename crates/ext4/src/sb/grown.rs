//! What grows with a mounted file system. What somebody looks at stays where it is, so looking
//! takes no lock.

use std::ops::{Deref, Index};
use std::sync::OnceLock;

/// A value that newer ones follow. Older ones stay until the end of the mount.
#[derive(Debug)]
pub(crate) struct Newest<T> {
    value: T,
    next: OnceLock<Box<Newest<T>>>,
}

impl<T> Newest<T> {
    pub(crate) fn new(value: T) -> Newest<T> {
        Newest { value, next: OnceLock::new() }
    }

    /// Whoever looks from now on sees this one. One task at a time.
    pub(crate) fn replace(&self, value: T) {
        let mut last = self;
        while let Some(next) = last.next.get() {
            last = next;
        }
        let alone = last.next.set(Box::new(Newest::new(value))).is_ok();
        assert!(alone, "two tasks replace one value");
    }

    #[cold]
    #[inline(never)]
    fn last(&self) -> &T {
        let mut last = self;
        while let Some(next) = last.next.get() {
            last = next;
        }
        &last.value
    }
}

impl<T> Deref for Newest<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        if self.next.get().is_none() { &self.value } else { self.last() }
    }
}

/// A list that more follows.
#[derive(Debug)]
pub(crate) struct Parts<T> {
    part: Box<[T]>,
    rest: OnceLock<Box<Parts<T>>>,
}

impl<T> Parts<T> {
    pub(crate) fn new(part: Box<[T]>) -> Parts<T> {
        Parts { part, rest: OnceLock::new() }
    }

    /// Puts more behind the last one. One task at a time.
    pub(crate) fn push(&self, more: Box<[T]>) {
        let mut last = self;
        while let Some(rest) = last.rest.get() {
            last = rest;
        }
        let alone = last.rest.set(Box::new(Parts::new(more))).is_ok();
        assert!(alone, "two tasks lengthen one list");
    }

    #[cold]
    fn later(&self, index: usize) -> &T {
        let rest = self.rest.get().expect("the index is in the list");
        &rest[index - self.part.len()]
    }
}

impl<T> Index<usize> for Parts<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        match self.part.get(index) {
            Some(item) => item,
            None => self.later(index),
        }
    }
}
