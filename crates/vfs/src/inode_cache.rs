//! The inode cache: inodes by number, in shards, with a clock hand over each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Ino;
use base::map::HashMap;
use rt::SpinLock;

const SHARDS: usize = 16;

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
    slot_of: HashMap<u64, u32>,
    slots: Vec<Option<Arc<I>>>,
    free: Vec<u32>,
    hand: usize,
    /// How often an inode was taken out because it was freed.
    removals: u64,
}

impl<I> Default for Shard<I> {
    fn default() -> Self {
        let (slot_of, slots, free) = (HashMap::default(), Vec::new(), Vec::new());
        Shard { slot_of, slots, free, hand: 0, removals: 0 }
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
        &self.shards[ino.0 as usize / 16 % SHARDS]
    }

    /// The inode with this number, if it is here.
    #[inline]
    pub fn find(&self, ino: Ino) -> Option<Arc<I>> {
        let shard = self.shard(ino).lock_irq();
        let slot = *shard.slot_of.get(&ino.0)?;
        let inode = shard.slots[slot as usize].as_ref().expect("an indexed slot is filled");
        if !inode.referenced().load(Ordering::Relaxed) {
            inode.referenced().store(true, Ordering::Relaxed);
        }
        Some(inode.clone())
    }

    /// Puts an inode in. Where somebody was faster, his is the answer.
    pub fn insert(&self, inode: Arc<I>) -> Arc<I> {
        self.insert_if(inode, None).expect("nothing keeps it out")
    }

    /// A number that changes whenever an inode near this number is freed.
    pub fn removals(&self, ino: Ino) -> u64 {
        self.shard(ino).lock_irq().removals
    }

    /// As [`InodeCache::insert`], for an inode that was read when [`InodeCache::removals`] was
    /// `removals`. None where that has changed.
    pub fn insert_unless(&self, inode: Arc<I>, removals: u64) -> Option<Arc<I>> {
        self.insert_if(inode, Some(removals))
    }

    fn insert_if(&self, inode: Arc<I>, removals: Option<u64>) -> Option<Arc<I>> {
        let mut evicted: [Option<Arc<I>>; 2] = [None, None];
        let mut shard = self.shard(inode.ino()).lock_irq();
        if let Some(&slot) = shard.slot_of.get(&inode.ino().0) {
            return shard.slots[slot as usize].clone();
        }
        if removals.is_some_and(|removals| removals != shard.removals) {
            return None;
        }
        if shard.slot_of.len() >= self.limit {
            for place in &mut evicted {
                *place = shard.evict_one();
            }
        }
        let slot = match shard.free.pop() {
            Some(slot) => slot,
            None => {
                shard.slots.push(None);
                shard.slots.len() as u32 - 1
            }
        };
        shard.slots[slot as usize] = Some(inode.clone());
        shard.slot_of.insert(inode.ino().0, slot);
        // Dropping an inode drops its pages; that is not done under the lock.
        drop(shard);
        drop(evicted);
        Some(inode)
    }

    /// Takes an inode out: it is being freed, and its number may soon name another one.
    pub fn remove(&self, ino: Ino) {
        let mut shard = self.shard(ino).lock_irq();
        shard.removals += 1;
        if let Some(slot) = shard.slot_of.remove(&ino.0) {
            let gone = shard.slots[slot as usize].take();
            shard.free.push(slot);
            drop(shard);
            drop(gone);
        }
    }

    /// Every inode in the cache, in the order of their places.
    pub fn all(&self) -> Vec<Arc<I>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock_irq().slots.iter().flatten().cloned());
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
    /// Moves the hand over a few places and takes out the first inode that nobody needs.
    fn evict_one(&mut self) -> Option<Arc<I>> {
        for _ in 0..8.min(self.slots.len()) {
            let at = self.hand % self.slots.len();
            self.hand = at + 1;
            let idle = self.slots[at]
                .as_ref()
                .is_some_and(|inode| Arc::strong_count(inode) == 1 && inode.evictable());
            if idle {
                let inode = self.slots[at].take().expect("just seen");
                self.slot_of.remove(&inode.ino().0);
                self.free.push(at as u32);
                return Some(inode);
            }
        }
        None
    }
}
