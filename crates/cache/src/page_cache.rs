//! The page cache of a machine: limits, counters and what all mappings share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::{Nanos, Page};
use block::Queue;
use rt::{Runtime, SpinLock, WaitQueue};

use crate::mapping::Mapping;
use crate::ring::Ring;
use crate::writeback::Backing;

/// Settings of a [`PageCache`].
#[derive(Clone, Debug)]
pub struct PageCacheConfig {
    /// Bytes of one folio: 4096, 16384 or 65536.
    pub folio_size: u32,
    /// Bytes of folio memory that the cache may hold; at least 16 folios are granted. Copies that
    /// exist because a writer changed a folio in flight are not counted.
    pub limit_bytes: u64,
    /// Bytes of dirty folios above which the flusher starts to write. At most half of
    /// `dirty_limit_bytes` is used.
    pub dirty_background_bytes: u64,
    /// Bytes of dirty folios and of writes in flight above which writers wait. At most three
    /// quarters of `limit_bytes` are used, so that there is always something to reclaim.
    pub dirty_limit_bytes: u64,
    /// Age at which dirty data is written although nothing is short (Linux:
    /// `dirty_expire_centisecs`).
    pub dirty_expire: Nanos,
    /// How often the flusher looks for such data (Linux: `dirty_writeback_centisecs`).
    pub dirty_interval: Nanos,
    /// Bound of a readahead window in bytes, a multiple of 4096; 0 switches readahead off. A
    /// backing may have a bound of its own.
    pub readahead_bytes: u32,
    /// A reader who reaches the marker sends for the next window before he waits for the bytes
    /// there, as Linux does; else when they are there, so that one window is on its way at a time.
    pub readahead_early: bool,
    /// Bytes that the flusher writes of one file before it goes to the next.
    pub flush_share_bytes: u64,
    /// Bytes that a round of write-back collects before it submits them.
    pub plug_bytes: u64,
    /// Bios that a round of write-back collects before it submits them.
    pub plug_bios: usize,
}

impl Default for PageCacheConfig {
    /// Folios of 4 KiB in 1 GiB, a fifth and two fifths of it dirty, 30 s, 5 s, 128 KiB.
    fn default() -> PageCacheConfig {
        PageCacheConfig::with_limit(1 << 30)
    }
}

impl PageCacheConfig {
    /// The least size of folios that hold blocks of `block_size` bytes, at most 65,536.
    pub fn folio_size_for(block_size: u32) -> u32 {
        match block_size {
            0..=4096 => 4096,
            4097..=16384 => 16384,
            _ => 65536,
        }
    }

    /// The default settings with `limit_bytes` and dirty limits of a fifth and two fifths of it.
    pub fn with_limit(limit_bytes: u64) -> PageCacheConfig {
        PageCacheConfig {
            folio_size: 4096,
            limit_bytes,
            dirty_background_bytes: limit_bytes / 5,
            dirty_limit_bytes: limit_bytes / 5 * 2,
            dirty_expire: Nanos::from_secs(30),
            dirty_interval: Nanos::from_secs(5),
            readahead_bytes: 128 << 10,
            readahead_early: false,
            flush_share_bytes: 4 << 20,
            plug_bytes: 8 << 20,
            plug_bios: 2048,
        }
    }

    /// The default settings with dirty limits in percent of `limit_bytes`, as Linux's
    /// `dirty_background_ratio` and `dirty_ratio` (10 and 20 since 2.6.22).
    pub fn with_ratios(limit_bytes: u64, background: u32, dirty: u32) -> PageCacheConfig {
        PageCacheConfig {
            dirty_background_bytes: limit_bytes / 100 * u64::from(background.min(100)),
            dirty_limit_bytes: limit_bytes / 100 * u64::from(dirty.min(100)),
            ..PageCacheConfig::with_limit(limit_bytes)
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a [`PageCache`] since it was made, and its state now.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PageCacheStats {
            /// Bytes of folio memory now.
            pub memory_bytes: u64,
            /// Bytes of folios with dirty data now; counted in whole folios.
            pub dirty_bytes: u64,
            /// Bytes of data being written now.
            pub writeback_bytes: u64,
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* }

        impl Counters {
            fn snapshot(&self) -> PageCacheStats {
                PageCacheStats {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    ..PageCacheStats::default()
                }
            }
        }
    };
}

counters! {
    /// Calls of `read` that found everything in memory.
    hits,
    /// Calls of `read` that had to wait for the device or for a hole to be looked up.
    misses,
    /// Readahead windows that a reader waited for.
    windows_sync,
    /// Readahead windows that were read ahead of need.
    windows_ahead,
    /// Bios that read.
    read_bios,
    /// Bytes that they read.
    read_bytes,
    /// Bios that wrote.
    write_bios,
    /// Bytes that they wrote.
    write_bytes,
    /// Writes that failed.
    write_errors,
    /// Parts of blocks that had to be read before the block could be written.
    completions,
    /// Folios given up for their memory.
    reclaimed,
    /// Times that a task waited for memory.
    reclaim_waits,
    /// Folios granted above the limit because nothing could be given up.
    overcommitted,
    /// Times that a writer waited at the dirty limit.
    throttled,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Queues that readers of folios wait at, by a fixed hash: few enough for memory, many enough that
/// a completion wakes few strangers.
const FOLIO_WAITS: usize = 64;

/// The folios of all files of one machine: how much memory they may take and how much of it may be
/// dirty.
///
/// Lock order: a mapping's state, then `ring` or a backing's dirty list; never two mappings.
pub struct PageCache {
    pub(crate) runtime: Runtime,
    pub(crate) config: PageCacheConfig,
    pub(crate) folio_shift: u32,
    /// What folios of zeros share.
    pub(crate) zeros: Page,
    /// Bytes of folio memory.
    pub(crate) memory: AtomicU64,
    /// Bytes of folios with dirty bytes.
    pub(crate) dirty: AtomicU64,
    /// Bytes in write bios that are not complete.
    pub(crate) writeback: AtomicU64,
    pub(crate) counters: Counters,
    /// Mappings that have folios: the clock of reclaim goes round here.
    pub(crate) ring: SpinLock<Ring<Mapping>>,
    pub(crate) backings: SpinLock<Vec<Weak<Backing>>>,
    pub(crate) folio_waits: [WaitQueue; FOLIO_WAITS],
    /// Writers at the dirty limit and tasks that need memory wait here for writes to complete.
    pub(crate) progress_wait: WaitQueue,
    /// Counts completions of writes.
    pub(crate) progress: AtomicU64,
    /// Counts rounds of a flusher that found nothing that it could write.
    pub(crate) stalls: AtomicU64,
    /// Somebody needs memory and everything is dirty: flushers write whatever there is.
    pub(crate) pressure: AtomicBool,
}

impl PageCache {
    /// An empty cache.
    ///
    /// # Panics
    /// Where the folio size is not one of the three.
    pub fn new(runtime: &Runtime, mut config: PageCacheConfig) -> Arc<PageCache> {
        assert!(
            matches!(config.folio_size, 4096 | 16384 | 65536),
            "a folio has 4, 16 or 64 KiB, not {} bytes",
            config.folio_size
        );
        config.limit_bytes = config.limit_bytes.max(16 * u64::from(config.folio_size));
        config.dirty_limit_bytes =
            config.dirty_limit_bytes.clamp(1, config.limit_bytes / 4 * 3).max(1);
        config.dirty_background_bytes =
            config.dirty_background_bytes.min(config.dirty_limit_bytes / 2);
        Arc::new(PageCache {
            runtime: runtime.clone(),
            folio_shift: config.folio_size.trailing_zeros(),
            zeros: Page::zeroed(config.folio_size as usize),
            config,
            memory: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
            writeback: AtomicU64::new(0),
            counters: Counters::default(),
            ring: SpinLock::named("folio clock", Ring::default()),
            backings: SpinLock::named("backings", Vec::new()),
            folio_waits: std::array::from_fn(|_| WaitQueue::new()),
            progress_wait: WaitQueue::new(),
            progress: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            pressure: AtomicBool::new(false),
        })
    }

    /// A new backing: the files of one mounted file system with blocks of `block_size` bytes on the
    /// device behind `queue`.
    ///
    /// # Panics
    /// Where the block size is not a power of two between 512 bytes and the folio size.
    pub fn backing(self: &Arc<Self>, queue: Arc<Queue>, block_size: u32) -> Arc<Backing> {
        assert!(
            block_size.is_power_of_two() && (512..=self.config.folio_size).contains(&block_size),
            "blocks of {block_size} bytes do not fit folios of {} bytes",
            self.config.folio_size
        );
        let backing = Backing::new(self.clone(), queue, block_size);
        let mut backings = self.backings.lock_irq();
        backings.retain(|backing| backing.strong_count() > 0);
        backings.push(Arc::downgrade(&backing));
        backing
    }

    /// The settings in use.
    pub fn config(&self) -> &PageCacheConfig {
        &self.config
    }

    /// The runtime whose clock the cache goes by.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Counters and the state now.
    pub fn stats(&self) -> PageCacheStats {
        PageCacheStats {
            memory_bytes: self.memory.load(Ordering::Relaxed),
            dirty_bytes: self.dirty.load(Ordering::Relaxed),
            writeback_bytes: self.writeback.load(Ordering::Relaxed),
            ..self.counters.snapshot()
        }
    }

    pub(crate) fn folio_size(&self) -> u32 {
        self.config.folio_size
    }

    /// Where readers of folio `index` of the mapping with `serial` wait.
    pub(crate) fn folio_wait(&self, serial: u64, index: u64) -> &WaitQueue {
        let hash = (serial.wrapping_mul(31) ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.folio_waits[(hash >> 58) as usize % FOLIO_WAITS]
    }

    /// Brings the dirty count up to date after `change` folios became dirty (or clean, below 0).
    pub(crate) fn note_dirty(&self, change: i64) {
        let bytes = change.unsigned_abs() << self.folio_shift;
        match change.signum() {
            1 => drop(self.dirty.fetch_add(bytes, Ordering::Relaxed)),
            -1 => drop(self.dirty.fetch_sub(bytes, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// Wakes those who wait for memory or for less dirty data: something happened. Event
    /// context.
    pub(crate) fn note_progress(&self) {
        self.progress.fetch_add(1, Ordering::Release);
        self.progress_wait.wake_all();
    }

    /// Reports to those who wait that a flusher found nothing that it could write.
    pub(crate) fn note_stall(&self) {
        self.stalls.fetch_add(1, Ordering::Release);
        self.progress_wait.wake_all();
    }

    /// Backings that live.
    pub(crate) fn live_backings(&self) -> Vec<Arc<Backing>> {
        self.backings.lock_irq().iter().filter_map(Weak::upgrade).collect()
    }
}
