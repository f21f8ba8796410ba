//! The buffers of one device.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::unit::SECTOR_SIZE;
use base::{Page, Sector};
use block::{Bio, BioFlags, BioResult, DeviceError, IoGroup, Op, Plug, Queue, Segment, Segments};
use rt::{Charge, Cx, Mutex, SpinLock, WaitQueue};

use super::BufferRef;
use super::index::Index;
use super::lru::{Lru, LruKind};

/// Wait queues that the buffers of one cache share, by block number.
const WAIT_QUEUES: usize = 64;
/// Bytes of one bio at the most, where the device allows it.
const BIO_BYTES_MAX: u32 = 1 << 20;

/// How a [`BufferCache`] is made.
#[derive(Clone, Debug)]
pub struct BufferConfig {
    /// Bytes of a buffer: a power of two, at least the device's logical block.
    pub block_size: u32,
    /// What each CPU keeps in front of the index.
    pub lru: LruKind,
    /// Memory above which clean buffers that nobody uses are dropped, in bytes.
    pub limit_bytes: u64,
    /// What writes of buffers carry, beside the flag that somebody waits.
    pub write_flags: BioFlags,
}

impl Default for BufferConfig {
    fn default() -> BufferConfig {
        BufferConfig {
            block_size: 4096,
            lru: LruKind::default(),
            limit_bytes: 256 << 20,
            write_flags: BioFlags::META,
        }
    }
}

/// Counters of a [`BufferCache`], all since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferStats {
    /// LRU hits by depth (of sets: by age), over all CPUs.
    pub lru_hits: Vec<u64>,
    /// Lookups that no LRU entry answered.
    pub lru_misses: u64,
    /// Keys that lookups in LRUs compared.
    pub lru_compares: u64,
    /// Bytes of buffers that LRU entries keep in memory now. At most the entries of a CPU times
    /// the CPUs times the block size.
    pub lru_pinned_bytes: u64,
    /// Lookups that the index answered.
    pub index_hits: u64,
    /// Buffers made.
    pub created: u64,
    /// Blocks read from the device.
    pub device_reads: u64,
    /// Blocks written to the device.
    pub device_writes: u64,
    /// Buffers dropped to stay within the limit.
    pub reclaimed: u64,
    /// Buffers in memory now.
    pub buffers: u64,
}

/// What the buffers of a cache share. Owned by the cache and by each buffer.
pub(crate) struct Shared {
    pub block_size: u32,
    /// Blocks to be written by `sync`, sorted.
    pub dirty: SpinLock<BTreeSet<u64>>,
    waits: [WaitQueue; WAIT_QUEUES],
    write_error: SpinLock<Option<DeviceError>>,
}

impl Shared {
    pub fn waits(&self, block: u64) -> &WaitQueue {
        &self.waits[block as usize % WAIT_QUEUES]
    }
}

#[derive(Default)]
struct Counters {
    index_hits: AtomicU64,
    created: AtomicU64,
    device_reads: AtomicU64,
    device_writes: AtomicU64,
    reclaimed: AtomicU64,
    buffers: AtomicUsize,
}

/// One CPU's LRU on a cache line of its own.
#[repr(align(128))]
struct CpuLru(SpinLock<Lru>);

/// All buffers of one device, keyed by block number: an LRU per CPU in front of one index.
///
/// Locks, in this order: an LRU's, a shard's of the index, a buffer's, the dirty set's. All are
/// spin locks and held for a few instructions. Writers of dirty buffers hold a sleeping lock
/// outside of them.
pub struct BufferCache {
    queue: Arc<Queue>,
    config: BufferConfig,
    /// What `lrus` are; the config's until `exchange_lrus`.
    lru_kind: SpinLock<LruKind>,
    lrus: Box<[CpuLru]>,
    index: Index,
    shared: Arc<Shared>,
    counters: Counters,
    bio_blocks: usize,
    /// Held by who writes dirty buffers: a `sync` that finds nothing to write must still wait for
    /// those who are writing.
    write_lock: Mutex<()>,
}

/// What may stand in front of a cache's index, kept aside.
pub struct SpareLrus {
    kind: LruKind,
    lrus: Vec<Lru>,
}

impl SpareLrus {
    /// The blocks that were looked up while these stood in front of the index, by CPU and in order,
    /// if they record them ([`LruKind::Recorded`]). The next call begins behind them.
    pub fn take_recorded(&mut self) -> Vec<Vec<u64>> {
        self.lrus.iter_mut().map(Lru::take_recorded).collect()
    }
}

impl BufferCache {
    /// An empty cache over `queue`.
    ///
    /// # Panics
    /// Where the block size is no power of two or below 512 bytes.
    pub fn new(queue: Arc<Queue>, config: BufferConfig) -> Arc<BufferCache> {
        let size = config.block_size;
        assert!(size.is_power_of_two() && size >= 512, "a buffer of {size} bytes");
        let info = queue.info();
        let by_bytes = info.max_bytes.clamp(size, BIO_BYTES_MAX.max(size)) / size;
        let bio_blocks = (by_bytes as usize).min(info.max_segments.max(1) as usize);
        let cpus = queue.runtime().cpus().max(1);
        Arc::new(BufferCache {
            lrus: (0..cpus).map(|_| CpuLru(SpinLock::new(Lru::new(config.lru)))).collect(),
            lru_kind: SpinLock::named("buffer LRU kind", config.lru),
            index: Index::new((config.limit_bytes / u64::from(size)) as usize),
            shared: Arc::new(Shared {
                block_size: size,
                dirty: SpinLock::new(BTreeSet::new()),
                waits: std::array::from_fn(|_| WaitQueue::default()),
                write_error: SpinLock::new(None),
            }),
            counters: Counters::default(),
            bio_blocks,
            write_lock: Mutex::named("buffer write-back", ()),
            queue,
            config,
        })
    }

    /// Bytes of a buffer.
    pub fn block_size(&self) -> u32 {
        self.config.block_size
    }

    /// What each CPU keeps in front of the index.
    pub fn lru_kind(&self) -> LruKind {
        *self.lru_kind.lock_irq()
    }

    /// Structures of this kind for all CPUs, empty, for [`BufferCache::exchange_lrus`].
    pub fn spare_lrus(&self, kind: LruKind) -> SpareLrus {
        SpareLrus { kind, lrus: self.lrus.iter().map(|_| Lru::new(kind)).collect() }
    }

    /// Puts `spare` in front of the index and what was there into `spare`, with all that they hold
    /// and have counted: for measurements that compare structures over the same buffers.
    ///
    /// # Panics
    /// Where `spare` was made by a cache with another number of CPUs.
    pub fn exchange_lrus(&self, spare: &mut SpareLrus) {
        assert_eq!(self.lrus.len(), spare.lrus.len(), "one structure for each CPU");
        let mut current = self.lru_kind.lock_irq();
        std::mem::swap(&mut *current, &mut spare.kind);
        for (lru, spare) in self.lrus.iter().zip(&mut spare.lrus) {
            std::mem::swap(&mut *lru.0.lock_irq(), spare);
        }
    }

    /// The device below.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Blocks of the device.
    pub fn blocks(&self) -> u64 {
        self.queue.info().sectors / self.sectors_per_block()
    }

    fn sectors_per_block(&self) -> u64 {
        u64::from(self.config.block_size) / SECTOR_SIZE
    }

    fn sector(&self, block: u64) -> Sector {
        Sector(block.saturating_mul(self.sectors_per_block()))
    }

    #[inline]
    fn lru(&self, cx: &Cx) -> &SpinLock<Lru> {
        &self.lrus[cx.cpu() % self.lrus.len()].0
    }

    /// Finds `block` in memory, without making or reading anything.
    #[inline]
    pub fn find(&self, cx: &Cx, block: u64) -> Option<BufferRef> {
        let mut lru = self.lru(cx).lock(cx);
        if let Some(buffer) = lru.lookup(block) {
            return Some(buffer);
        }
        let buffer = self.index.find(block)?;
        self.counters.index_hits.fetch_add(1, Ordering::Relaxed);
        lru.install(&buffer);
        Some(buffer)
    }

    /// Finds or makes the buffer of `block`. It may not be up to date: its maker fills it whole and
    /// calls `set_uptodate`, or [`BufferCache::read`] is what was wanted.
    #[inline]
    pub fn get(&self, cx: &Cx, block: u64) -> BufferRef {
        let mut lru = self.lru(cx).lock(cx);
        if let Some(buffer) = lru.lookup(block) {
            return buffer;
        }
        let buffer = self.get_slow(block);
        lru.install(&buffer);
        buffer
    }

    fn get_slow(&self, block: u64) -> BufferRef {
        let found = self.index.find_or_create(block, &self.shared);
        let counters = &self.counters;
        if !found.created {
            counters.index_hits.fetch_add(1, Ordering::Relaxed);
            return found.buffer;
        }
        counters.created.fetch_add(1, Ordering::Relaxed);
        counters.buffers.fetch_add(1, Ordering::Relaxed);
        if found.reclaimed > 0 {
            counters.buffers.fetch_sub(found.reclaimed, Ordering::Relaxed);
            counters.reclaimed.fetch_add(found.reclaimed as u64, Ordering::Relaxed);
        }
        found.buffer
    }

    /// The buffer of `block` with its content, read where it is not in memory. Of several readers
    /// one reads and the others wait. May park.
    ///
    /// # Errors
    /// The device's, also for a block beyond its end.
    #[inline]
    pub fn read(&self, cx: &mut Cx, block: u64) -> Result<BufferRef, DeviceError> {
        let buffer = self.get(cx, block);
        if !buffer.uptodate() {
            self.fill(cx, &buffer)?;
        }
        Ok(buffer)
    }

    fn fill(&self, cx: &mut Cx, buffer: &BufferRef) -> Result<(), DeviceError> {
        self.balance(cx)?;
        loop {
            if buffer.uptodate() {
                return Ok(());
            }
            if buffer.begin_read() {
                let bio = self.read_bio(vec![buffer.clone()], BioFlags::META | BioFlags::SYNC);
                self.queue.submit(cx, bio);
            }
            let waits = self.shared.waits(buffer.block());
            waits.wait_until(cx, "a buffer's read", || !buffer.reading());
            cx.charge_for(Charge::Interrupt, 1);
            cx.charge_for(Charge::BioComplete, 1);
            if let Some(error) = buffer.read_error() {
                return Err(error);
            }
        }
    }

    /// A bio that reads a run of consecutive buffers, each of which is marked as being read.
    fn read_bio(&self, run: Vec<BufferRef>, flags: BioFlags) -> Bio {
        self.counters.device_reads.fetch_add(run.len() as u64, Ordering::Relaxed);
        let size = self.config.block_size as usize;
        let segs = run.iter().map(|_| Segment::whole(Page::zeroed(size))).collect();
        let ahead = flags.contains(BioFlags::RAHEAD);
        let sector = self.sector(run[0].block());
        Bio::new(
            Op::Read,
            sector,
            segs,
            flags,
            Box::new(move |done: BioResult| match done.result {
                Ok(()) => {
                    for (buffer, segment) in run.iter().zip(done.segs) {
                        buffer.end_read(Ok(segment.page));
                    }
                }
                Err(error) => {
                    for buffer in &run {
                        // A failed read-ahead is nobody's error; who needs the block reads again.
                        buffer.end_read(Err((!ahead).then(|| error.clone())));
                    }
                }
            }),
        )
    }

    /// Starts to read `count` blocks from `block` on that are not in memory; does not wait for
    /// them. May park where the queue is full.
    pub fn readahead(&self, cx: &mut Cx, block: u64, count: u64) {
        let end = block.saturating_add(count).min(self.blocks());
        let mut run: Vec<BufferRef> = Vec::new();
        let mut plug = Plug::new();
        for block in block..end {
            let buffer = self.get_slow(block);
            let wanted = !buffer.uptodate() && buffer.begin_read();
            if !run.is_empty() && (!wanted || run.len() == self.bio_blocks) {
                let bio = self.read_bio(std::mem::take(&mut run), Self::READAHEAD);
                self.queue.submit_plugged(cx, &mut plug, bio);
            }
            if wanted {
                run.push(buffer);
            }
        }
        if !run.is_empty() {
            self.queue.submit_plugged(cx, &mut plug, self.read_bio(run, Self::READAHEAD));
        }
        plug.finish(cx);
    }

    const READAHEAD: BioFlags = BioFlags::META.union(BioFlags::RAHEAD);

    /// Writes those of `buffers` that are dirty and waits for them. May park.
    ///
    /// # Errors
    /// The device's. A buffer that could not be written is no longer dirty and says so with
    /// `write_error`.
    pub fn write_dirty(&self, cx: &mut Cx, buffers: &[BufferRef]) -> Result<(), DeviceError> {
        let mut sorted = buffers.to_vec();
        sorted.sort_by_key(|buffer| buffer.block());
        let _alone = self.write_lock.lock(cx);
        self.write_sorted(cx, sorted.into_iter())
    }

    /// Writes all dirty buffers in the order of their blocks and waits: they are synchronous. No
    /// flush. May park.
    ///
    /// # Errors
    /// The first error of a write since the last call.
    pub fn sync(&self, cx: &mut Cx) -> Result<(), DeviceError> {
        let _alone = self.write_lock.lock(cx);
        let blocks = std::mem::take(&mut *self.shared.dirty.lock_irq());
        let buffers = blocks.into_iter().filter_map(|block| self.index.find(block));
        let written = self.write_sorted(cx, buffers);
        let latched = self.shared.write_error.lock_irq().take();
        written?;
        latched.map_or(Ok(()), Err)
    }

    /// Writes all dirty buffers where they take more than half of the memory limit: for those who
    /// make many without ever waiting for one. May park.
    ///
    /// # Errors
    /// As [`BufferCache::sync`].
    pub fn balance(&self, cx: &mut Cx) -> Result<(), DeviceError> {
        let dirty = self.shared.dirty.lock_irq().len() as u64;
        if dirty * u64::from(self.config.block_size) <= self.config.limit_bytes / 2 {
            return Ok(());
        }
        self.sync(cx)
    }

    fn write_sorted(
        &self,
        cx: &mut Cx,
        buffers: impl Iterator<Item = BufferRef>,
    ) -> Result<(), DeviceError> {
        let mut writer = BufferWriter::new(self, self.queue.sync_write_flags());
        for buffer in buffers {
            // In this order: whoever marks it dirty in between has changed it already, so the
            // change is in what we take below; whoever does later puts it into the set again.
            self.shared.dirty.lock_irq().remove(&buffer.block());
            if !buffer.clear_dirty() {
                continue;
            }
            writer.claim(cx, &buffer);
            // The content is taken after the earlier write of this block has ended.
            let page = buffer.page_for_write();
            writer.push(cx, buffer, page);
        }
        writer.finish(cx)
    }

    /// Writes snapshots to the places of their buffers and waits. `writes` must be sorted by block
    /// and name none twice. May park. For the journal's checkpoint: the buffers' own state, which
    /// may be newer, is left alone.
    ///
    /// # Errors
    /// The device's first.
    pub fn write_snapshots(
        &self,
        cx: &mut Cx,
        writes: impl Iterator<Item = (BufferRef, Page)>,
    ) -> Result<(), DeviceError> {
        let mut writer = BufferWriter::new(self, BioFlags::empty());
        for (buffer, page) in writes {
            writer.claim(cx, &buffer);
            writer.push(cx, buffer, page);
        }
        writer.finish(cx)
    }

    /// Drops `count` buffers from `block` on, dirty or not: they are not written any more. Waits
    /// for writes of them that are under way, so that the blocks may be used for other things.
    pub fn forget(&self, cx: &mut Cx, block: u64, count: u64) {
        for block in block..block.saturating_add(count) {
            if let Some(buffer) = self.forget_one(block) {
                let waits = self.shared.waits(block);
                waits.wait_until(cx, "a buffer's write", || !buffer.writing());
            }
        }
    }

    /// Drops the buffer of `block` without waiting for a write of it that may be under way.
    pub fn forget_one(&self, block: u64) -> Option<BufferRef> {
        let buffer = self.index.remove(block)?;
        self.counters.buffers.fetch_sub(1, Ordering::Relaxed);
        self.shared.dirty.lock_irq().remove(&block);
        Some(buffer)
    }

    /// Drops every clean buffer that nobody uses, and the LRUs' references: as after `unmount`, or
    /// before a measurement with a cold cache.
    pub fn drop_clean(&self) {
        for lru in &self.lrus {
            lru.0.lock_irq().clear();
        }
        self.drop_clean_unpinned();
    }

    /// Drops every clean buffer that neither somebody uses nor an LRU keeps in memory.
    pub fn drop_clean_unpinned(&self) {
        let gone = self.index.shrink(0);
        self.counters.buffers.fetch_sub(gone, Ordering::Relaxed);
    }

    /// True where the buffers take more memory than the limit allows, because they are in use or
    /// belong to a journal.
    pub fn over_limit(&self) -> bool {
        let bytes = self.counters.buffers.load(Ordering::Relaxed) as u64
            * u64::from(self.config.block_size);
        bytes > self.config.limit_bytes
    }

    /// The memory limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.config.limit_bytes
    }

    /// The counters so far.
    pub fn stats(&self) -> BufferStats {
        let counters = &self.counters;
        let mut stats = BufferStats {
            index_hits: counters.index_hits.load(Ordering::Relaxed),
            created: counters.created.load(Ordering::Relaxed),
            device_reads: counters.device_reads.load(Ordering::Relaxed),
            device_writes: counters.device_writes.load(Ordering::Relaxed),
            reclaimed: counters.reclaimed.load(Ordering::Relaxed),
            buffers: self.index.len() as u64,
            ..BufferStats::default()
        };
        for lru in &self.lrus {
            let counts = lru.0.lock_irq().counts();
            stats.lru_misses += counts.misses;
            stats.lru_compares += counts.compares;
            stats.lru_pinned_bytes += counts.pinned as u64 * u64::from(self.config.block_size);
            stats.lru_hits.resize(counts.hits.len(), 0);
            for (sum, hits) in stats.lru_hits.iter_mut().zip(&counts.hits) {
                *sum += hits;
            }
        }
        stats
    }
}

/// Collects sorted buffers into bios of consecutive blocks.
struct BufferWriter<'a> {
    cache: &'a BufferCache,
    run: Vec<BufferRef>,
    segs: Segments,
    group: IoGroup,
    plug: Plug,
    flags: BioFlags,
}

impl<'a> BufferWriter<'a> {
    fn new(cache: &'a BufferCache, flags: BioFlags) -> Self {
        let flags = flags | cache.config.write_flags;
        BufferWriter {
            cache,
            flags,
            run: Vec::new(),
            segs: Segments::new(),
            group: IoGroup::new(),
            plug: Plug::new(),
        }
    }

    /// Makes this task the only one that writes the buffer. Tasks claim in the order of blocks, so
    /// two of them cannot wait for each other.
    fn claim(&mut self, cx: &mut Cx, buffer: &crate::Buffer) {
        while !buffer.begin_write() {
            self.submit_run(cx);
            self.plug.flush(cx);
            let waits = self.cache.shared.waits(buffer.block());
            waits.wait_until(cx, "a buffer's write", || !buffer.writing());
        }
    }

    fn push(&mut self, cx: &mut Cx, buffer: BufferRef, page: Page) {
        let next = self.run.last().map(|last| last.block() + 1);
        if next != Some(buffer.block()) || self.run.len() == self.cache.bio_blocks {
            self.submit_run(cx);
        }
        self.segs.push(Segment::whole(page));
        self.run.push(buffer);
    }

    fn submit_run(&mut self, cx: &mut Cx) {
        if self.run.is_empty() {
            return;
        }
        let run = std::mem::take(&mut self.run);
        let cache = self.cache;
        cache.counters.device_writes.fetch_add(run.len() as u64, Ordering::Relaxed);
        let sector = cache.sector(run[0].block());
        let shared = cache.shared.clone();
        let end = self.group.end();
        let segs = std::mem::take(&mut self.segs);
        let bio = Bio::new(
            Op::Write,
            sector,
            segs,
            self.flags,
            Box::new(move |done: BioResult| {
                if let Err(error) = &done.result {
                    shared.write_error.lock_irq().get_or_insert_with(|| error.clone());
                }
                for buffer in &run {
                    buffer.end_write(done.result.is_err());
                }
                end(done);
            }),
        );
        cache.queue.submit_plugged(cx, &mut self.plug, bio);
    }

    fn finish(mut self, cx: &mut Cx) -> Result<(), DeviceError> {
        self.submit_run(cx);
        self.plug.finish(cx);
        self.group.wait(cx)
    }
}
