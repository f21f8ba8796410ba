//! All buffers of one device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::map::HashMap;
use block::Queue;
use rt::{Cx, SpinLock};

use super::lsn::Lsns;
use super::{Buf, BufMap, BufOps, BufState, LockedBuf};
use crate::error::Result;
use crate::format::{At, CorruptKind, Geometry};

/// Parts of the index, each with a lock of its own.
const SHARDS: usize = 16;

/// How a [`BufCache`] is made.
#[derive(Clone, Debug)]
pub struct BufCacheConfig {
    /// The UUID that blocks of metadata carry.
    pub uuid: [u8; 16],
    /// Blocks have the forms of version 4.
    pub v4: bool,
    /// Memory above which clean buffers that nobody uses are dropped, in bytes.
    pub limit_bytes: u64,
}

impl BufCacheConfig {
    /// For a file system of this shape.
    pub fn of(geometry: &Geometry, limit_bytes: u64) -> BufCacheConfig {
        BufCacheConfig { uuid: geometry.meta_uuid, v4: geometry.v4(), limit_bytes }
    }
}

/// Counters of a [`BufCache`] since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufStats {
    /// Lookups that found a buffer in memory.
    pub hits: u64,
    /// Buffers made.
    pub created: u64,
    /// Buffers read from the device.
    pub reads: u64,
    /// Buffers dropped to stay within the limit.
    pub reclaimed: u64,
}

#[derive(Default)]
struct Shard {
    /// By the address of the first extent.
    bufs: HashMap<u64, Arc<Buf>>,
    /// The order in which reclaim looks at them.
    clock: VecDeque<u64>,
    /// Lookups that found a buffer.
    hits: u64,
}

impl Shard {
    /// Takes a buffer out that nobody uses, and returns its bytes; none if somebody does. Who
    /// holds a [`Weak`](std::sync::Weak) reference may come between a look at the count and this,
    /// and goes on with the buffer that is in the index.
    fn drop_unused(&mut self, daddr: u64) -> Option<usize> {
        match Arc::try_unwrap(self.bufs.remove(&daddr)?) {
            Ok(buf) => Some(buf.len()),
            Err(used) => {
                self.bufs.insert(daddr, used);
                None
            }
        }
    }
}

/// The buffers of one device, by the address of their first extent.
///
/// Locks, in this order: a buffer's sleeping lock, a shard's spin lock.
pub struct BufCache {
    queue: Arc<Queue>,
    config: BufCacheConfig,
    shards: [SpinLock<Shard>; SHARDS],
    lsns: Lsns,
    bytes: AtomicUsize,
    created: AtomicU64,
    reads: AtomicU64,
    reclaimed: AtomicU64,
}

impl BufCache {
    /// An empty cache over `queue`.
    pub fn new(queue: Arc<Queue>, config: BufCacheConfig) -> Arc<BufCache> {
        Arc::new(BufCache {
            queue,
            config,
            shards: std::array::from_fn(|_| SpinLock::named("xfs buffer index", Shard::default())),
            lsns: Lsns::default(),
            bytes: AtomicUsize::new(0),
            created: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
        })
    }

    /// The device below.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// The UUID that blocks of metadata carry.
    pub fn uuid(&self) -> [u8; 16] {
        self.config.uuid
    }

    /// Sequence numbers of the blocks that were read.
    pub(crate) fn lsns(&self) -> &Lsns {
        &self.lsns
    }

    fn shard(&self, daddr: u64) -> &SpinLock<Shard> {
        &self.shards[(daddr ^ daddr >> 3 ^ daddr >> 8) as usize % SHARDS]
    }

    /// The buffer of `maps` if it is in memory. Does not lock it.
    pub(crate) fn find(&self, daddr: u64) -> Option<Arc<Buf>> {
        self.shard(daddr).lock_irq().bufs.get(&daddr).cloned()
    }

    fn find_or_make(&self, maps: &[BufMap], ops: &BufOps) -> Result<Arc<Buf>> {
        let daddr = maps[0].daddr.0;
        let mut shard = self.shard(daddr).lock_irq();
        let mut listed = false;
        if let Some(buf) = shard.bufs.get(&daddr) {
            // A stale one comes to life again with the same extents: its log item must be the same,
            // so that a new content replaces the record of its end in the same checkpoint.
            if buf.maps() == maps {
                buf.note_used();
                let buf = buf.clone();
                shard.hits += 1;
                return Ok(buf);
            }
            // The blocks were freed and serve something else now. What was stale is never written;
            // anything else with other extents must be clean and unused.
            let (found, stale) = (buf.len(), buf.is_stale());
            if !stale && shard.drop_unused(daddr).is_none() {
                let expected = maps.iter().map(|map| map.bytes() as u64).sum();
                let kind = CorruptKind::Overlap { what: ops.name, found: found as u64, expected };
                return Err(kind.at(At::Block(daddr)).into());
            }
            self.bytes.fetch_sub(found, Ordering::Relaxed);
            listed = true;
        }
        let buf = Arc::new(Buf::new(maps, ops));
        shard.bufs.insert(daddr, buf.clone());
        if !listed {
            shard.clock.push_back(daddr);
        }
        self.created.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.fetch_add(buf.len(), Ordering::Relaxed) + buf.len();
        if bytes as u64 > self.config.limit_bytes {
            self.reclaim(&mut shard);
        }
        Ok(buf)
    }

    /// Looks at a few buffers of a shard and drops those that nobody uses.
    fn reclaim(&self, shard: &mut Shard) {
        for _ in 0..shard.clock.len().min(8) {
            let Some(daddr) = shard.clock.pop_front() else { return };
            let Some(buf) = shard.bufs.get(&daddr) else { continue };
            let used = Arc::strong_count(buf) > 1 || buf.state(BufState::REFERENCED);
            if used {
                buf.clear_state(BufState::REFERENCED);
            }
            match (!used).then(|| shard.drop_unused(daddr)).flatten() {
                Some(bytes) => {
                    self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                    self.reclaimed.fetch_add(1, Ordering::Relaxed);
                }
                None => shard.clock.push_back(daddr),
            }
        }
    }

    /// The buffer of these extents, locked, whatever its content is: the caller fills it. A buffer
    /// whose blocks were freed before comes back without content. May park: waits for the holder of
    /// its lock.
    ///
    /// # Errors
    /// If a buffer with other extents begins at the same place and is in use: two structures
    /// claim the same blocks.
    pub fn get(&self, cx: &mut Cx, maps: &[BufMap], ops: &BufOps) -> Result<LockedBuf> {
        let buf = self.find_or_make(maps, ops)?;
        buf.lock(cx);
        if buf.is_stale() {
            buf.revive(ops);
        }
        Ok(LockedBuf::new(buf))
    }

    /// The buffer of these extents with its content, locked; read and checked where it was not in
    /// memory. May park.
    ///
    /// # Errors
    /// The device's, what the checks of `ops` say, and those of [`BufCache::get`].
    pub fn read(&self, cx: &mut Cx, maps: &[BufMap], ops: &BufOps) -> Result<LockedBuf> {
        let buf = self.get(cx, maps, ops)?;
        if !buf.state(BufState::UPTODATE) {
            self.reads.fetch_add(1, Ordering::Relaxed);
            buf.fill(cx, &self.queue)?;
            if let Err(error) = buf.verify(ops, &self.config, &self.lsns) {
                buf.clear_state(BufState::UPTODATE);
                return Err(error);
            }
        }
        Ok(buf)
    }

    /// As [`BufCache::read`] for an inode cluster, unless somebody holds the lock. May park: waits
    /// for the device, not for the lock.
    pub(crate) fn try_read(
        &self,
        cx: &mut Cx,
        maps: &[BufMap],
        ops: &BufOps,
    ) -> Result<Option<LockedBuf>> {
        let buf = self.find_or_make(maps, ops)?;
        let Some(buf) = LockedBuf::try_new(buf) else { return Ok(None) };
        if buf.is_stale() {
            return Ok(None);
        }
        if !buf.state(BufState::UPTODATE) {
            buf.fill(cx, &self.queue)?;
        }
        Ok(Some(buf))
    }

    /// As [`BufCache::read`], without any check: for log recovery, which may find anything.
    pub(crate) fn read_unchecked(
        &self,
        cx: &mut Cx,
        maps: &[BufMap],
        ops: &BufOps,
    ) -> Result<LockedBuf> {
        let buf = self.get(cx, maps, ops)?;
        if !buf.state(BufState::UPTODATE) {
            buf.fill(cx, &self.queue)?;
        }
        Ok(buf)
    }

    /// Drops every buffer that nobody uses: as after an unmount, or before a measurement with a
    /// cold cache. Dirty buffers are in use.
    pub fn drop_clean(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock_irq();
            for _ in 0..shard.clock.len() {
                let Some(daddr) = shard.clock.pop_front() else { break };
                if !shard.bufs.contains_key(&daddr) {
                    continue;
                }
                match shard.drop_unused(daddr) {
                    Some(bytes) => drop(self.bytes.fetch_sub(bytes, Ordering::Relaxed)),
                    None => shard.clock.push_back(daddr),
                }
            }
        }
    }

    /// Drops the buffers that overlap a range and have other extents, if nobody uses them.
    pub(crate) fn drop_clean_at(&self, daddr: u64, bytes: usize) {
        let end = daddr + bytes as u64 / 512;
        for start in daddr.saturating_sub(127)..end {
            let mut shard = self.shard(start).lock_irq();
            let Some(buf) = shard.bufs.get(&start) else { continue };
            let overlaps = start + buf.len() as u64 / 512 > daddr;
            let same = start == daddr && buf.len() == bytes;
            if overlaps
                && !same
                && let Some(bytes) = shard.drop_unused(start)
            {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }

    /// The counters so far.
    pub fn stats(&self) -> BufStats {
        BufStats {
            hits: self.shards.iter().map(|shard| shard.lock_irq().hits).sum(),
            created: self.created.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            reclaimed: self.reclaimed.load(Ordering::Relaxed),
        }
    }
}
