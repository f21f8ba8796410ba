//! The inodes that the kernel knows: how often it looked each of them up, and which inodes without
//! names wait for the kernel to forget them.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::Ino;
use base::map::HashMap;
use rt::SpinLock;

const SHARDS: usize = 64;

#[derive(Default)]
struct Node {
    /// Answers that named it, less the references given back by FORGET.
    lookups: u64,
    /// How often it is open in the file system because its last name is removed.
    pins: u32,
}

/// The inodes that the kernel holds references on.
pub(crate) struct Nodes {
    shards: Box<[SpinLock<HashMap<u64, Node>>]>,
    pinned: AtomicUsize,
    /// How many were closed so far.
    freed: AtomicUsize,
}

impl Nodes {
    pub fn new() -> Nodes {
        let shards = (0..SHARDS).map(|_| SpinLock::named("fuse nodes", HashMap::default()));
        let pinned = AtomicUsize::new(0);
        Nodes { shards: shards.collect(), pinned, freed: AtomicUsize::new(0) }
    }

    fn shard(&self, ino: Ino) -> &SpinLock<HashMap<u64, Node>> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// Counts an answer that will name this inode.
    pub fn add_lookup(&self, ino: Ino) {
        self.shard(ino).lock_irq().entry(ino.0).or_default().lookups += 1;
    }

    /// Keeps an open inode without names until the kernel forgets it. False where the kernel does
    /// not know it: the caller closes it.
    pub fn pin(&self, ino: Ino) -> bool {
        match self.shard(ino).lock_irq().get_mut(&ino.0) {
            Some(node) => node.pins += 1,
            None => return false,
        }
        self.pinned.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Whether an inode is without names and waits for the kernel to forget it.
    pub fn is_pinned(&self, ino: Ino) -> bool {
        self.pinned() > 0 && self.shard(ino).lock_irq().get(&ino.0).is_some_and(|n| n.pins > 0)
    }

    /// The kernel gives references back. Returns how often the inode is to be closed now.
    pub fn forget(&self, ino: Ino, lookups: u64) -> u32 {
        let mut shard = self.shard(ino).lock_irq();
        let Some(node) = shard.get_mut(&ino.0) else { return 0 };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 {
            return 0;
        }
        let pins = node.pins;
        shard.remove(&ino.0);
        drop(shard);
        pins
    }

    /// A pinned inode was closed, and its space is free.
    pub fn closed(&self, pins: u32) {
        // In this order: whoever finds none that waits finds them all freed.
        self.freed.fetch_add(pins as usize, Ordering::SeqCst);
        self.pinned.fetch_sub(pins as usize, Ordering::SeqCst);
    }

    /// How many inodes without names have been closed and their space freed, since the beginning.
    pub fn freed(&self) -> usize {
        self.freed.load(Ordering::SeqCst)
    }

    /// Inodes without names whose space is not free yet.
    pub fn pinned(&self) -> usize {
        self.pinned.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_inode_is_closed_when_the_last_reference_goes() {
        let nodes = Nodes::new();
        let ino = Ino(12);
        assert!(!nodes.pin(ino), "nobody knows it");
        nodes.add_lookup(ino);
        nodes.add_lookup(ino);
        assert!(nodes.pin(ino));
        assert!(nodes.is_pinned(ino) && !nodes.is_pinned(Ino(13)));
        assert_eq!(nodes.forget(ino, 1), 0);
        assert_eq!((nodes.forget(ino, 1), nodes.pinned()), (1, 1));
        nodes.closed(1);
        assert_eq!((nodes.forget(ino, 1), nodes.pinned(), nodes.freed()), (0, 0, 1));
    }
}
