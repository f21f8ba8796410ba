//! The inodes that the kernel knows: how often it looked each of them up, and which inodes without
//! names wait for the kernel to forget them.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::Ino;
use base::map::HashMap;
use rt::SpinLock;

const SHARDS: usize = 64;
/// Inodes of one line: neighbours in a directory mostly have neighbouring numbers.
const LINE: usize = 16;

/// How often the kernel looked up each inode of a line: answers that named it, less the references
/// given back by FORGET. A million inodes in a row take some 6 MiB.
type Line = [u32; LINE];

/// Lookups of an inode beyond what a line counts.
const FULL: u32 = 1 << 31;

#[derive(Default)]
struct Shard {
    /// By the inode's number / [`LINE`].
    lines: HashMap<u64, Line>,
    /// How often a line of [`FULL`] was carried over, by inode.
    carried: HashMap<u64, u64>,
    /// How often an inode is open in the file system because its last name is removed.
    pins: HashMap<u64, u32>,
}

impl Shard {
    fn lookups(&self, ino: Ino) -> u64 {
        let (line, at) = place(ino);
        let counted = self.lines.get(&line).map_or(0, |line| line[at]);
        let carried = self.carried.get(&ino.0).copied().unwrap_or(0);
        u64::from(counted) + carried * u64::from(FULL)
    }

    fn set_lookups(&mut self, ino: Ino, lookups: u64) {
        let (number, at) = place(ino);
        let line = self.lines.entry(number).or_default();
        line[at] = (lookups % u64::from(FULL)) as u32;
        if *line == Line::default() {
            self.lines.remove(&number);
        }
        match lookups / u64::from(FULL) {
            0 => self.carried.remove(&ino.0),
            carried => self.carried.insert(ino.0, carried),
        };
    }
}

/// The line of an inode, and its place there.
fn place(ino: Ino) -> (u64, usize) {
    (ino.0 / LINE as u64, (ino.0 % LINE as u64) as usize)
}

/// The inodes that the kernel holds references on.
pub(crate) struct Nodes {
    shards: Box<[SpinLock<Shard>]>,
    pinned: AtomicUsize,
    /// How many were closed so far.
    freed: AtomicUsize,
}

impl Nodes {
    pub fn new() -> Nodes {
        let shards = (0..SHARDS).map(|_| SpinLock::named("fuse nodes", Shard::default()));
        let pinned = AtomicUsize::new(0);
        Nodes { shards: shards.collect(), pinned, freed: AtomicUsize::new(0) }
    }

    fn shard(&self, ino: Ino) -> &SpinLock<Shard> {
        &self.shards[place(ino).0 as usize % SHARDS]
    }

    /// Counts an answer that will name this inode.
    pub fn add_lookup(&self, ino: Ino) {
        let (number, at) = place(ino);
        let mut shard = self.shard(ino).lock_irq();
        let count = &mut shard.lines.entry(number).or_default()[at];
        *count += 1;
        if *count == FULL {
            *count = 0;
            *shard.carried.entry(ino.0).or_default() += 1;
        }
    }

    /// Keeps an open inode without names until the kernel forgets it. False where the kernel does
    /// not know it: the caller closes it.
    pub fn pin(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino).lock_irq();
        if shard.lookups(ino) == 0 {
            return false;
        }
        *shard.pins.entry(ino.0).or_default() += 1;
        drop(shard);
        self.pinned.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Whether an inode is without names and waits for the kernel to forget it.
    pub fn is_pinned(&self, ino: Ino) -> bool {
        self.pinned() > 0 && self.shard(ino).lock_irq().pins.contains_key(&ino.0)
    }

    /// The kernel gives references back. Returns how often the inode is to be closed now.
    pub fn forget(&self, ino: Ino, lookups: u64) -> u32 {
        let mut shard = self.shard(ino).lock_irq();
        let before = shard.lookups(ino);
        if before == 0 {
            return 0;
        }
        let left = before.saturating_sub(lookups);
        shard.set_lookups(ino, left);
        match left {
            0 => shard.pins.remove(&ino.0).unwrap_or(0),
            _ => 0,
        }
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

    /// Bytes of the tables, at least.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let of = |shard: &SpinLock<Shard>| shard.lock_irq().lines.allocation_size();
        self.shards.iter().map(of).sum()
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

    /// What the kernel knows after `find` through a million names: each took 25 bytes and more, in
    /// tables that are up to half empty.
    #[test]
    fn a_million_inodes_in_a_row_take_few_bytes() {
        let nodes = Nodes::new();
        (0..1_000_000).for_each(|number| nodes.add_lookup(Ino(11 + number)));
        assert!(nodes.bytes() <= 10 << 20, "{} bytes", nodes.bytes());
        (0..1_000_000).for_each(|number| assert_eq!(nodes.forget(Ino(11 + number), 1), 0));
        assert!(nodes.shards.iter().all(|shard| shard.lock_irq().lines.is_empty()));
    }

    #[test]
    fn more_lookups_than_a_line_counts() {
        let (nodes, ino) = (Nodes::new(), Ino(1 << 40));
        let shard = nodes.shard(ino);
        shard.lock_irq().set_lookups(ino, u64::from(FULL) - 1);
        nodes.add_lookup(ino);
        nodes.add_lookup(ino);
        assert_eq!(shard.lock_irq().lookups(ino), u64::from(FULL) + 1);
        assert!(nodes.pin(ino));
        assert_eq!(nodes.forget(ino, 2), 0, "{FULL} - 1 are left");
        assert_eq!(nodes.forget(ino, u64::from(FULL) - 1), 1);
        assert_eq!(shard.lock_irq().lookups(ino), 0);
    }
}
