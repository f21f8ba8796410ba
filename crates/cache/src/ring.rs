//! The ring that the clock of reclaim goes round.

use std::collections::VecDeque;
use std::sync::Weak;

/// Entries below which the ring is not searched for dead ones.
const SEARCHED_MIN: usize = 1024;

/// What the clock visits, in order.
pub(crate) struct Ring<T> {
    list: VecDeque<Weak<T>>,
    /// Entries that were alive when the list was searched last.
    alive: usize,
}

impl<T> Default for Ring<T> {
    fn default() -> Ring<T> {
        Ring { list: VecDeque::new(), alive: 0 }
    }
}

impl<T> Ring<T> {
    /// Adds an entry. Those that are gone leave the list when they may be half of it: they would
    /// keep their memory, and where files are evicted with their folios no clock ever comes.
    pub(crate) fn enter(&mut self, entry: Weak<T>) {
        if self.list.len() >= (2 * self.alive).max(SEARCHED_MIN) {
            self.list.retain(|entry| entry.strong_count() > 0);
            self.alive = self.list.len();
        }
        self.list.push_back(entry);
    }

    /// Takes out the entry whose turn it is.
    pub(crate) fn turn(&mut self) -> Option<Weak<T>> {
        self.list.pop_front()
    }

    /// Puts an entry back whose turn is over.
    pub(crate) fn go_round(&mut self, entry: Weak<T>) {
        self.list.push_back(entry);
    }

    /// Entries, dead ones too.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }
}
