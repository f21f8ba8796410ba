//! What grows with a mounted file system. What somebody looks at stays where it is, so looking
//! takes no lock.

use std::ops::{Deref, Index};
use std::sync::OnceLock;

/// A value that newer ones follow. Older ones stay until the end of the mount.
#[derive(Debug)]
pub struct Newest<T> {
    value: T,
    next: OnceLock<Box<Newest<T>>>,
}

impl<T> Newest<T> {
    /// No newer one follows it yet.
    pub fn new(value: T) -> Newest<T> {
        Newest { value, next: OnceLock::new() }
    }

    /// Whoever looks from now on sees this one. One task at a time.
    ///
    /// # Panics
    /// Another task does so at the same time.
    pub fn replace(&self, value: T) {
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
pub struct Parts<T> {
    part: Box<[T]>,
    rest: OnceLock<Box<Parts<T>>>,
}

impl<T> Parts<T> {
    /// Nothing follows it yet.
    pub fn new(part: Box<[T]>) -> Parts<T> {
        Parts { part, rest: OnceLock::new() }
    }

    /// Puts more behind the last one. One task at a time.
    ///
    /// # Panics
    /// Another task does so at the same time.
    pub fn push(&self, more: Box<[T]>) {
        let mut last = self;
        while let Some(rest) = last.rest.get() {
            last = rest;
        }
        let alone = last.rest.set(Box::new(Parts::new(more))).is_ok();
        assert!(alone, "two tasks lengthen one list");
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let parts = std::iter::successors(Some(self), |part| part.rest.get().map(|rest| &**rest));
        parts.flat_map(|part| &part.part)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_on_behind_its_parts() {
        let list = Parts::new(vec![0, 1].into());
        let first: *const i32 = &list[0];
        for more in [vec![2], vec![3, 4, 5]] {
            list.push(more.into());
        }
        assert!(list.iter().copied().eq(0..6) && (0..6).all(|at| list[at as usize] == at));
        assert_eq!(first, &list[0] as *const i32, "it stays where it is");
    }

    #[test]
    fn the_newest_value_is_seen() {
        let value = Newest::new(1);
        for next in 2..5 {
            assert_eq!(*value, next - 1);
            value.replace(next);
        }
        assert_eq!(*value, 4);
    }
}
