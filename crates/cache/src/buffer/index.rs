//! The index of all buffers of a device, and the clock that reclaims them.

use std::sync::Arc;

use base::map::{HashMap, hash_map::Entry};
use rt::SpinLock;

use super::cache::Shared;
use super::{Buffer, BufferRef};

/// Shards, so that CPUs that miss their LRUs at once seldom meet.
const SHARDS: usize = 64;
/// Slots that one insertion into a full cache looks at for a victim.
const SCAN_MAX: usize = 64;

/// Block number to buffer. Slots, not the hash map, are walked: their order is that of insertion.
pub(crate) struct Index {
    shards: Box<[SpinLock<Shard>]>,
    /// Buffers above which a shard looks for a victim before it grows.
    shard_limit: usize,
}

#[derive(Default)]
struct Shard {
    slots_of: HashMap<u64, u32>,
    slots: Vec<Option<BufferRef>>,
    free: Vec<u32>,
    hand: usize,
}

/// What a lookup that creates has done.
pub(crate) struct FoundBuffer {
    pub buffer: BufferRef,
    pub created: bool,
    pub reclaimed: usize,
}

impl Index {
    pub fn new(limit_buffers: usize) -> Index {
        Index {
            shards: (0..SHARDS).map(|_| SpinLock::new(Shard::default())).collect(),
            shard_limit: (limit_buffers / SHARDS).max(1),
        }
    }

    #[inline]
    fn shard(&self, block: u64) -> &SpinLock<Shard> {
        &self.shards[(block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize]
    }

    #[inline]
    pub fn find(&self, block: u64) -> Option<BufferRef> {
        let shard = self.shard(block).lock_irq();
        let slot = *shard.slots_of.get(&block)?;
        let buffer = shard.slots[slot as usize].clone();
        if let Some(buffer) = &buffer {
            buffer.touch();
        }
        buffer
    }

    #[inline]
    pub fn find_or_create(&self, block: u64, shared: &Arc<Shared>) -> FoundBuffer {
        let mut shard = self.shard(block).lock_irq();
        if let Some(&slot) = shard.slots_of.get(&block) {
            let buffer = shard.slots[slot as usize].clone().expect("an indexed slot is filled");
            buffer.touch();
            return FoundBuffer { buffer, created: false, reclaimed: 0 };
        }
        let excess = (shard.slots_of.len() + 1).saturating_sub(self.shard_limit);
        let reclaimed = if excess > 0 { shard.reclaim(excess, SCAN_MAX) } else { 0 };
        let buffer = Arc::new(Buffer::new(block, shared.clone()));
        shard.insert(buffer.clone());
        FoundBuffer { buffer, created: true, reclaimed }
    }

    /// Takes a buffer out and marks it forgotten.
    pub fn remove(&self, block: u64) -> Option<BufferRef> {
        let mut shard = self.shard(block).lock_irq();
        let slot = shard.slots_of.remove(&block)?;
        let buffer = shard.slots[slot as usize].take().expect("an indexed slot is filled");
        shard.free.push(slot);
        buffer.set_forgotten();
        Some(buffer)
    }

    /// Drops clean buffers that nobody references until at most `limit` stay; returns how many
    /// went.
    pub fn shrink(&self, limit: usize) -> usize {
        let mut gone = 0;
        for shard in &self.shards {
            let mut shard = shard.lock_irq();
            let excess = shard.slots_of.len().saturating_sub(limit / SHARDS);
            let scan = 2 * shard.slots.len();
            gone += shard.reclaim(excess, scan);
        }
        gone
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock_irq().slots_of.len()).sum()
    }
}

impl Shard {
    fn insert(&mut self, buffer: BufferRef) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("a shard has fewer than 2^32 buffers")
        });
        match self.slots_of.entry(buffer.block()) {
            Entry::Vacant(vacant) => vacant.insert(slot),
            Entry::Occupied(_) => unreachable!("the caller has looked under this lock"),
        };
        self.slots[slot as usize] = Some(buffer);
    }

    /// The clock: passes over at most `scan` slots, gives every used buffer a second chance, drops
    /// up to `want` that are clean and referenced by the index only.
    fn reclaim(&mut self, want: usize, scan: usize) -> usize {
        let mut gone = 0;
        for _ in 0..scan.min(2 * self.slots.len()) {
            if gone == want {
                break;
            }
            let hand = self.hand % self.slots.len();
            self.hand = hand + 1;
            let Some(buffer) = &self.slots[hand] else { continue };
            if Arc::strong_count(buffer) > 1 || buffer.dirty() || buffer.untouch() {
                continue;
            }
            let block = buffer.block();
            if self.take_unused(hand) {
                self.slots_of.remove(&block);
                self.free.push(hand as u32);
                gone += 1;
            }
        }
        gone
    }

    /// Empties a slot unless somebody uses its buffer. A CPU may be making a reference of its weak
    /// one just now: one step, the last reference's end, decides who wins.
    fn take_unused(&mut self, slot: usize) -> bool {
        let Some(buffer) = self.slots[slot].take() else { return false };
        let kept = match Arc::try_unwrap(buffer) {
            // Somebody found it, changed it and let go of it since we looked.
            Ok(buffer) if buffer.dirty() => Arc::new(buffer),
            Ok(_gone) => return true,
            Err(used) => used,
        };
        self.slots[slot] = Some(kept);
        false
    }
}
