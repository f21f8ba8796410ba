//! The inode cache: inodes by number, in shards, with a clock hand over each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Ino;
use base::map::hash_map::HashMap;
use rt::SpinLock;
use std::hash::{BuildHasherDefault, Hasher};

const SHARDS: usize = 16;
/// Neighbouring numbers in one shard.
const NEAR: u64 = 16;

/// Hashes inode numbers so that neighbours lie side by side in the table: names that are made one
/// after the other have such numbers, and are looked at one after the other.
#[derive(Default)]
struct NearHasher(u64);

impl Hasher for NearHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("inode numbers are hashed as u64");
    }

    fn write_u64(&mut self, ino: u64) {
        let far = (ino / NEAR).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
        // The table looks at the low bits for the place and at the upper seven for the rest.
        self.0 = ((far & !(NEAR - 1)) | (ino % NEAR)) ^ ((ino % NEAR) << 58);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Numbers<T> = HashMap<u64, T, BuildHasherDefault<NearHasher>>;

/// What the cache must know of a file system's inode.
pub trait CachedInode {
    /// Its number; never changes.
    fn ino(&self) -> Ino;

    /// Set by every lookup, cleared by [`CachedInode::evictable`].
    fn referenced(&self) -> &AtomicBool;

    /// Whether the cache may drop it: nobody has it open, nothing in memory is newer than the
    /// buffers, and it was not referenced since the last look. Called under a spin lock.
    fn evictable(&self) -> bool;
}

struct Shard<I> {
    /// The inode and its slot, by number.
    inodes: Numbers<(Arc<I>, u32)>,
    /// Where the clock hand goes round: numbers, 0 in a free slot.
    slots: Vec<u64>,
    free: Vec<u32>,
    hand: usize,
    reading: Vec<Reading>,
}

/// A number whose inode is being read from the device.
struct Reading {
    ino: u64,
    /// The tasks that do so.
    readers: usize,
    /// How often what they read may have become old.
    changes: u64,
}

impl<I> Default for Shard<I> {
    fn default() -> Self {
        let (inodes, slots, free) = (Numbers::default(), Vec::new(), Vec::new());
        Shard { inodes, slots, free, hand: 0, reading: Vec::new() }
    }
}

/// Finds inodes by number. Keeps about as many as its limit; those in use, open or dirty stay.
pub struct InodeCache<I> {
    shards: Box<[SpinLock<Shard<I>>]>,
    limit: usize,
}

impl<I: CachedInode> InodeCache<I> {
    /// A cache of about `limit` inodes.
    pub fn new(limit: usize) -> InodeCache<I> {
        let shards = (0..SHARDS).map(|_| SpinLock::named("inode cache", Shard::default()));
        InodeCache { shards: shards.collect(), limit: (limit / SHARDS).max(4) }
    }

    fn shard(&self, ino: Ino) -> &SpinLock<Shard<I>> {
        &self.shards[(ino.0 / NEAR) as usize % SHARDS]
    }

    /// The inode with this number, if it is here.
    #[inline]
    pub fn find(&self, ino: Ino) -> Option<Arc<I>> {
        let shard = self.shard(ino).lock_irq();
        let (inode, _) = shard.inodes.get(&ino.0)?;
        if !inode.referenced().load(Ordering::Relaxed) {
            inode.referenced().store(true, Ordering::Relaxed);
        }
        Some(inode.clone())
    }

    /// Inserts an inode. If another task was faster, returns that task's inode.
    pub fn insert(&self, inode: Arc<I>) -> Arc<I> {
        let mut evicted = [None, None];
        let found = self.shard(inode.ino()).lock_irq().insert(inode, self.limit, &mut evicted);
        // Dropping an inode drops its pages; that is not done under the lock.
        drop(evicted);
        found
    }

    /// Puts a new inode in the place of the one that had its number before, in one step: nobody
    /// finds neither, nor reads the old one into the cache again.
    pub fn replace(&self, inode: Arc<I>) {
        let mut evicted = [None, None];
        let mut shard = self.shard(inode.ino()).lock_irq();
        let gone = shard.take(inode.ino());
        shard.insert(inode, self.limit, &mut evicted);
        drop(shard);
        drop((gone, evicted));
    }

    /// Brings in the inode that `read` finds on the device. Where the number was freed, given to
    /// another or dropped from the cache meanwhile, it is read again. Parks where `read` does.
    ///
    /// # Errors
    /// What `read` returns.
    pub fn read_in<E>(
        &self,
        ino: Ino,
        mut read: impl FnMut() -> Result<Arc<I>, E>,
    ) -> Result<Arc<I>, E> {
        loop {
            let before = self.shard(ino).lock_irq().begin_read(ino);
            let inode = read();
            let mut evicted = [None, None];
            let mut shard = self.shard(ino).lock_irq();
            let current = shard.end_read(ino) == before;
            let cached = shard.inodes.contains_key(&ino.0);
            let found = match inode {
                Ok(inode) if current || cached => shard.insert(inode, self.limit, &mut evicted),
                Ok(_) => continue,
                Err(error) => return Err(error),
            };
            drop(shard);
            drop(evicted);
            return Ok(found);
        }
    }

    /// Takes an inode out: it is being freed, and its number may soon name another one.
    pub fn remove(&self, ino: Ino) {
        let gone = self.shard(ino).lock_irq().take(ino);
        drop(gone);
    }

    /// Whoever is reading this number from the device now reads again: the inode was freed, and
    /// stays in the cache until the number is used again.
    pub fn outdate(&self, ino: Ino) {
        self.shard(ino).lock_irq().outdate(ino);
    }

    /// Inodes in the cache now.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock_irq().inodes.len()).sum()
    }

    /// Every inode in the cache, in the order of their places.
    pub fn all(&self) -> Vec<Arc<I>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock_irq();
            let of_slot = |ino: &u64| shard.inodes.get(ino).map(|(inode, _)| inode.clone());
            all.extend(shard.slots.iter().filter_map(of_slot));
        }
        all
    }

    /// Empties the cache at the end of the mount.
    pub fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.lock_irq());
            drop(gone);
        }
    }
}

impl<I: CachedInode> Shard<I> {
    fn begin_read(&mut self, ino: Ino) -> u64 {
        match self.reading.iter_mut().find(|reading| reading.ino == ino.0) {
            Some(reading) => {
                reading.readers += 1;
                reading.changes
            }
            None => {
                self.reading.push(Reading { ino: ino.0, readers: 1, changes: 0 });
                0
            }
        }
    }

    /// Returns the changes until now.
    fn end_read(&mut self, ino: Ino) -> u64 {
        let is_it = |reading: &Reading| reading.ino == ino.0;
        let at = self.reading.iter().position(is_it).expect("a read that has begun");
        self.reading[at].readers -= 1;
        let changes = self.reading[at].changes;
        if self.reading[at].readers == 0 {
            self.reading.swap_remove(at);
        }
        changes
    }

    fn outdate(&mut self, ino: Ino) {
        if let Some(reading) = self.reading.iter_mut().find(|reading| reading.ino == ino.0) {
            reading.changes += 1;
        }
    }

    fn insert(&mut self, inode: Arc<I>, limit: usize, evicted: &mut [Option<Arc<I>>; 2]) -> Arc<I> {
        let ino = inode.ino().0;
        if let Some((old, _)) = self.inodes.get(&ino) {
            return old.clone();
        }
        if self.inodes.len() >= limit {
            evicted.fill_with(|| self.evict_one());
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(0);
                self.slots.len() as u32 - 1
            }
        };
        self.slots[slot as usize] = ino;
        self.inodes.insert(ino, (inode.clone(), slot));
        inode
    }

    fn take(&mut self, ino: Ino) -> Option<Arc<I>> {
        self.outdate(ino);
        let (inode, slot) = self.inodes.remove(&ino.0)?;
        self.free.push(slot);
        self.slots[slot as usize] = 0;
        Some(inode)
    }

    /// Moves the hand over a few places and takes out the first inode that nobody needs.
    fn evict_one(&mut self) -> Option<Arc<I>> {
        for _ in 0..8.min(self.slots.len()) {
            let at = self.hand % self.slots.len();
            self.hand = at + 1;
            let ino = self.slots[at];
            let inode = self.inodes.get(&ino).map(|(inode, _)| inode);
            if inode.is_some_and(|inode| Arc::strong_count(inode) == 1 && inode.evictable()) {
                return self.take(Ino(ino));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Node {
        ino: u64,
        version: u32,
        referenced: AtomicBool,
    }

    impl CachedInode for Node {
        fn ino(&self) -> Ino {
            Ino(self.ino)
        }

        fn referenced(&self) -> &AtomicBool {
            &self.referenced
        }

        fn evictable(&self) -> bool {
            true
        }
    }

    fn node(ino: u64, version: u32) -> Arc<Node> {
        Arc::new(Node { ino, version, referenced: AtomicBool::new(false) })
    }

    /// The version that a read brings in, where `meanwhile` happens during its first attempt, and
    /// the attempts.
    fn read_beside(meanwhile: impl Fn(&InodeCache<Node>)) -> (u32, u32) {
        let cache = InodeCache::new(0);
        let mut attempts = 0;
        let read = cache.read_in(Ino(1), || {
            attempts += 1;
            if attempts == 1 {
                meanwhile(&cache);
            }
            Ok::<_, ()>(node(1, attempts))
        });
        let version = read.expect("nothing fails").version;
        assert_eq!(cache.find(Ino(1)).expect("cached").version, version);
        assert!(cache.shards.iter().all(|shard| shard.lock_irq().reading.is_empty()));
        (version, attempts)
    }

    #[test]
    fn what_is_read_while_nothing_changes_comes_in() {
        assert_eq!(read_beside(|_| ()), (1, 1));
        assert_eq!(read_beside(|cache| cache.remove(Ino(2))), (1, 1));
    }

    #[test]
    fn what_was_freed_while_it_was_read_is_read_again() {
        assert_eq!(read_beside(|cache| cache.remove(Ino(1))), (2, 2));
        assert_eq!(read_beside(|cache| cache.outdate(Ino(1))), (2, 2));
    }

    #[test]
    fn what_was_replaced_while_it_was_read_stays() {
        assert_eq!(read_beside(|cache| cache.replace(node(1, 7))), (7, 1));
    }

    #[test]
    fn what_came_and_went_while_it_was_read_is_read_again() {
        let come_and_go = |cache: &InodeCache<Node>| {
            cache.insert(node(1, 7));
            (2..16).for_each(|ino| drop(cache.insert(node(ino, 0))));
            assert!(cache.find(Ino(1)).is_none(), "not evicted");
        };
        assert_eq!(read_beside(come_and_go), (2, 2));
    }

    #[test]
    fn a_failed_read_leaves_nothing() {
        let cache = InodeCache::<Node>::new(0);
        assert_eq!(cache.read_in(Ino(1), || Err(5)).map(|_| ()), Err(5));
        assert!(cache.find(Ino(1)).is_none());
        assert!(cache.shards.iter().all(|shard| shard.lock_irq().reading.is_empty()));
    }
}
