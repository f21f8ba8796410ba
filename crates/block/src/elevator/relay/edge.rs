//! Edges from a waiter to the one whose work it waits for, and the parties that follow from them.

use super::Relay;
use super::stream::Sid;
use crate::elevator::{ElevatorNote, NoteKind};

/// `waiter` goes on when `holder` has done its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    pub waiter: u64,
    pub holder: u64,
}

/// Longest chain of waiters that is followed.
const CHAIN: usize = 16;

impl Relay {
    /// The waiter waits for `holder` from now on, and for nobody else.
    pub(super) fn wait_for(&mut self, waiter: u64, holder: u64) {
        let edge = Edge { waiter, holder };
        let known = self.contexts.contains_key(&waiter);
        if waiter == holder || !known {
            self.notes.push(note(NoteKind::YieldRefused, edge)); // It has nothing to lend here.
            return;
        }
        if self.edges.contains(&edge) {
            return;
        }
        self.stop_waiting(waiter);
        self.edges.push(edge);
        self.notes.push(note(NoteKind::YieldBegin, edge));
    }

    /// A request of its own shows that a context waits no longer.
    pub(super) fn stop_waiting(&mut self, waiter: u64) {
        self.end_edges(|edge| edge.waiter == waiter);
    }

    pub(super) fn end_edges(&mut self, over: impl Fn(&Edge) -> bool) {
        if self.edges.iter().any(&over) {
            let ended = self.edges.iter().filter(|edge| over(edge));
            self.notes.extend(ended.map(|&edge| note(NoteKind::YieldEnd, edge)));
            self.edges.retain(|edge| !over(edge));
        }
    }

    /// The context on whose behalf `ioc` works: the first one that waits for it, for that one, and
    /// so on; itself where nobody waits.
    pub(super) fn root(&self, ioc: u64) -> u64 {
        let mut root = ioc;
        for _ in 0..CHAIN {
            let first = self.edges.iter().find(|edge| edge.holder == root);
            match first {
                Some(edge) if edge.waiter != ioc => root = edge.waiter,
                _ => break,
            }
        }
        root
    }

    /// The stream that a stream's work counts for.
    pub(super) fn party(&self, s: Sid) -> Sid {
        if self.edges.is_empty() {
            return s;
        }
        let owner = self.streams[s].owner;
        self.contexts.get(&self.root(owner)).copied().unwrap_or(s)
    }

    /// Whether the one that `ioc` waits for in the end is known to this device.
    pub(super) fn works_here(&self, ioc: u64) -> bool {
        let mut last = ioc;
        for _ in 0..CHAIN {
            match self.edges.iter().find(|edge| edge.waiter == last) {
                Some(edge) => last = edge.holder,
                None => break,
            }
        }
        self.contexts.contains_key(&last)
    }

    pub(super) fn has_waiters(&self, ioc: u64) -> bool {
        self.edges.iter().any(|edge| edge.holder == ioc)
    }
}

fn note(kind: NoteKind, edge: Edge) -> ElevatorNote {
    ElevatorNote { kind, ioc: edge.waiter, value: edge.holder }
}
