//! Write-back: who writes dirty folios, when, and who waits for it.
//!
//! Each [`Backing`] (Linux: `backing_dev_info`) has a list of its dirty mappings and one flusher
//! task. The flusher is spawned when the first mapping gets dirty, writes when there is more dirty
//! data than the background limit or data older than the expiry, and ends by itself when an
//! interval passes with nothing dirty; so it keeps no world from ending. Writers above the dirty
//! limit wait for completions.
//!
//! Bios are collected in a [`WritePlug`] that lives across files, so that neighbours on the device
//! become one request. A plug is shared with those who wait: whoever waits for a write that still
//! sits in somebody's plug submits it. So a task may hold a plug while it waits for a journal
//! commit that waits for the plug's data.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::{Errno, Nanos};
use block::{Bio, Plug, Queue};
use rt::{Cx, JoinHandle, Mutex, SpinLock, WaitQueue};

use crate::mapping::{ErrorLatch, ErrorMark, IomapOps, Mapping};
use crate::page_cache::{PageCache, count};

/// No readahead bound of its own.
const READAHEAD_OF_CACHE: u32 = u32::MAX;
/// Longest wait at the dirty limit before the state is looked at again.
const THROTTLE_MAX: Nanos = Nanos::from_secs(10);

/// Bios that wait in a plug. Shared with those who wait for their completion.
pub(crate) struct Held {
    bios: SpinLock<Vec<Bio>>,
    bytes: AtomicU64,
}

impl Held {
    /// Adds a bio. The caller holds the mapping's lock.
    pub(crate) fn push(&self, bio: Bio) {
        self.bytes.fetch_add(bio.bytes(), Ordering::Relaxed);
        self.bios.lock_irq().push(bio);
    }

    /// Submits what is there. May park: waits for free requests.
    pub(crate) fn submit(&self, cx: &mut Cx, queue: &Arc<Queue>) {
        let bios = {
            let mut bios = self.bios.lock(cx);
            self.bytes.store(0, Ordering::Relaxed);
            std::mem::take(&mut *bios)
        };
        if bios.is_empty() {
            return;
        }
        let mut plug = Plug::new();
        for bio in bios {
            queue.submit_plugged(cx, &mut plug, bio);
        }
        plug.finish(cx);
    }
}

/// Collects the bios of a round of write-back, of one backing and any number of files.
pub struct WritePlug {
    backing: Arc<Backing>,
    held: Arc<Held>,
}

impl WritePlug {
    /// An empty plug.
    pub fn new(backing: &Arc<Backing>) -> WritePlug {
        let bios = SpinLock::named("write plug", Vec::new());
        let held = Arc::new(Held { bios, bytes: AtomicU64::new(0) });
        WritePlug { backing: backing.clone(), held }
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// True where it has grown so far that it should be submitted.
    pub(crate) fn is_full(&self) -> bool {
        let config = &self.backing.cache.config;
        self.held.bytes.load(Ordering::Relaxed) >= config.plug_bytes
            || self.held.bios.lock_irq().len() >= config.plug_bios
    }

    /// Submits what it holds; it may be used on. May park: waits for free requests.
    pub fn submit(&mut self, cx: &mut Cx) {
        self.held.submit(cx, &self.backing.queue);
    }
}

/// One call of [`IomapOps::writepages`]: what to write, and why.
pub struct WritebackControl<'a> {
    /// Bytes to be written. The start is the cursor: [`Mapping::next_dirty`] looks from it on, and
    /// [`Mapping::write_extent`] moves it.
    pub range: Range<u64>,
    /// Somebody waits for all of it: nothing may be passed over. Otherwise write-back in the
    /// background.
    pub sync: bool,
    /// Bytes that may still be written in this call.
    pub budget: u64,
    /// Bytes taken out so far.
    pub written: u64,
    /// Where the bios go; shared with other files.
    pub plug: &'a mut WritePlug,
    /// Longest run that [`Mapping::next_dirty`] looks for, and the end of the last one.
    pub(crate) run_max: u64,
    pub(crate) run_end: u64,
}

impl<'a> WritebackControl<'a> {
    /// A call for `range` with `budget` bytes.
    pub fn new(
        range: Range<u64>,
        sync: bool,
        budget: u64,
        plug: &'a mut WritePlug,
    ) -> WritebackControl<'a> {
        let run_max = crate::mapping::RUN_MAX;
        WritebackControl { range, sync, budget, written: 0, plug, run_max, run_end: 0 }
    }
}

/// A mapping that is dirty or in flight.
pub(crate) struct Listed {
    mapping: Arc<Mapping>,
    /// Keeps the file-system object alive.
    ops: Arc<dyn IomapOps>,
    /// When it became dirty, or was last written.
    since: Nanos,
}

/// Written data that found no place on the device and were dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Bytes of them.
    pub bytes: u64,
    /// The numbers of the files that lost some.
    pub files: BTreeSet<u64>,
    /// The file that lost some first, by its number, and why.
    pub first: Option<(u64, Errno)>,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some((file, errno)) = self.first else { return write!(f, "nothing was lost") };
        let files = match self.files.len() {
            1 => "1 file".to_owned(),
            count => format!("{count} files"),
        };
        let bytes = self.bytes;
        write!(f, "{bytes} bytes of {files} could not be written, first of inode {file}: {errno}")
    }
}

/// File number, then the mapping's serial number: write-back goes in this order.
type Key = (u64, u64);

#[derive(Default)]
struct Flusher {
    running: bool,
    stop: bool,
    kicked: bool,
    task: Option<JoinHandle<()>>,
}

/// The files of one mounted file system, as write-back sees them: one queue, one block size, one
/// flusher task.
///
/// Lock order: a mapping's state, then `dirty`; `flusher`, then `dirty`.
pub struct Backing {
    cache: Arc<PageCache>,
    queue: Arc<Queue>,
    block_size: u32,
    /// Bound of readahead windows in bytes, or [`READAHEAD_OF_CACHE`].
    readahead: AtomicU32,
    serial: AtomicU64,
    dirty: SpinLock<BTreeMap<Key, Listed>>,
    flusher: SpinLock<Flusher>,
    flusher_wait: WaitQueue,
    /// Errors of all files, and how far `sync` has reported them.
    errors: SpinLock<(ErrorLatch, ErrorMark)>,
    /// What was dropped since it found no place.
    lost: SpinLock<Lost>,
    /// One `sync` at a time: those who wait find most of their work done.
    syncing: Mutex<()>,
}

impl Backing {
    pub(crate) fn new(cache: Arc<PageCache>, queue: Arc<Queue>, block_size: u32) -> Arc<Backing> {
        Arc::new(Backing {
            cache,
            queue,
            block_size,
            readahead: AtomicU32::new(READAHEAD_OF_CACHE),
            serial: AtomicU64::new(0),
            dirty: SpinLock::named("dirty mappings", BTreeMap::new()),
            flusher: SpinLock::named("flusher", Flusher::default()),
            flusher_wait: WaitQueue::named("flusher"),
            errors: SpinLock::named("backing errors", Default::default()),
            lost: SpinLock::named("lost data", Lost::default()),
            syncing: Mutex::named("sync", ()),
        })
    }

    /// The cache that it belongs to.
    pub fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    /// The queue of the device that its files are on.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Block size of the file system in bytes.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Bound of a readahead window of its files in bytes (Linux: `read_ahead_kb` of the device).
    pub fn readahead_bytes(&self) -> u32 {
        match self.readahead.load(Ordering::Relaxed) {
            READAHEAD_OF_CACHE => self.cache.config.readahead_bytes,
            bytes => bytes,
        }
    }

    /// Gives its files another bound than the cache's; 0 switches readahead off. Counts from the
    /// next window on.
    pub fn set_readahead(&self, bytes: u32) {
        self.readahead.store(bytes.min(READAHEAD_OF_CACHE - 1), Ordering::Relaxed);
    }

    /// How many mappings are dirty or in flight (or were, until the flusher looks again).
    pub fn dirty_mappings(&self) -> usize {
        self.dirty.lock_irq().len()
    }

    pub(crate) fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a mapping on the list of dirty ones. The caller holds its lock.
    pub(crate) fn list(&self, mapping: &Arc<Mapping>, ops: &Arc<dyn IomapOps>) {
        let since = self.cache.runtime.now();
        let listed = Listed { mapping: mapping.clone(), ops: ops.clone(), since };
        self.dirty.lock_irq().insert((mapping.id(), mapping.serial()), listed);
    }

    /// Takes a mapping off the list. The caller holds its lock, and drops the answer without it.
    pub(crate) fn unlist(&self, mapping: &Mapping) -> Option<Listed> {
        self.dirty.lock_irq().remove(&(mapping.id(), mapping.serial()))
    }

    /// What was dropped of all files since the mount, for whoever unmounts.
    pub fn lost(&self) -> Lost {
        self.lost.lock_irq().clone()
    }

    /// Notes that written data of a file were dropped, by whoever had accepted them.
    pub fn note_lost(&self, file: u64, bytes: u64, errno: Errno) {
        let mut lost = self.lost.lock_irq();
        lost.bytes += bytes;
        lost.files.insert(file);
        lost.first = lost.first.or(Some((file, errno)));
    }

    pub(crate) fn note_error(&self, errno: Errno) {
        self.errors.lock_irq().0.set(errno);
    }

    /// The first mapping behind `key` that became dirty not after `before`.
    fn next_listed(
        &self,
        cx: &Cx,
        key: Option<Key>,
        before: Nanos,
    ) -> Option<(Key, Arc<Mapping>, Arc<dyn IomapOps>)> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        let dirty = self.dirty.lock(cx);
        let mut rest = dirty.range((from, Bound::Unbounded));
        let (key, listed) = rest.find(|(_, listed)| listed.since <= before)?;
        Some((*key, listed.mapping.clone(), listed.ops.clone()))
    }

    /// Writes everything that is dirty, in the order of the file numbers and under one plug, and
    /// waits for it and for what was in flight already. Does not flush the device's cache. May
    /// park.
    ///
    /// # Errors
    /// The latest write error of any file since the last `sync` that reported one.
    pub fn sync(self: &Arc<Self>, cx: &mut Cx) -> Result<(), Errno> {
        let guard = self.syncing.lock(cx);
        let mut plug = WritePlug::new(self);
        let (mut key, mut mappings) = (None, Vec::new());
        while let Some((next, mapping, ops)) = self.next_listed(cx, key, Nanos::MAX) {
            key = Some(next);
            // Its error is latched in the mapping and here.
            let _ = mapping.write_dirty(cx, &mut plug, 0..u64::MAX, true, u64::MAX);
            mappings.push((mapping, ops));
        }
        plug.submit(cx);
        for (mapping, ops) in mappings {
            mapping.wait_range(cx, 0..u64::MAX);
            mapping.retire(cx);
            drop(ops);
        }
        drop(guard);
        let mut errors = self.errors.lock(cx);
        let (latch, mark) = &mut *errors;
        latch.check(mark)
    }

    /// Ends the flusher task and waits until it has ended. Writes nothing: call
    /// [`sync`](Backing::sync) before. A mapping that gets dirty later starts it again. May park.
    pub fn shutdown(self: &Arc<Self>, cx: &mut Cx) {
        let task = {
            let mut flusher = self.flusher.lock(cx);
            flusher.stop = true;
            flusher.task.take()
        };
        self.flusher_wait.wake_all();
        if let Some(task) = task {
            task.join(cx);
        }
        self.flusher.lock(cx).stop = false;
    }

    /// Spawns the flusher if it does not run.
    pub(crate) fn start(self: &Arc<Self>, cx: &mut Cx) {
        let mut flusher = self.flusher.lock(cx);
        if flusher.running || flusher.stop {
            return;
        }
        flusher.running = true;
        let backing = self.clone();
        flusher.task = Some(cx.spawn("flusher", move |cx| backing.flusher_main(cx)));
    }

    /// Has the flusher look at once.
    pub(crate) fn kick(self: &Arc<Self>, cx: &mut Cx) {
        if self.dirty.lock(cx).is_empty() {
            return;
        }
        self.start(cx);
        let mut flusher = self.flusher.lock(cx);
        if !flusher.kicked {
            flusher.kicked = true;
            drop(flusher);
            self.flusher_wait.wake_all();
        }
    }

    /// Called by writers after each step: sends the flusher off above the background limit, and
    /// waits above the dirty limit until enough is written, or a flusher finds that it cannot
    /// write.
    pub(crate) fn balance(self: &Arc<Self>, cx: &mut Cx) {
        let cache = &self.cache;
        let config = &cache.config;
        if cache.dirty.load(Ordering::Relaxed) <= config.dirty_background_bytes
            && cache.unclean() <= config.dirty_limit_bytes
        {
            return;
        }
        // Before the kick: the flusher may find out that it cannot write before we wait.
        let stalls = cache.stalls.load(Ordering::Acquire);
        self.kick(cx);
        if cache.unclean() <= config.dirty_limit_bytes {
            return;
        }
        count(&cache.counters.throttled, 1);
        loop {
            let done = || {
                cache.unclean() <= config.dirty_limit_bytes
                    || cache.stalls.load(Ordering::Acquire) != stalls
            };
            let wait = &cache.progress_wait;
            if wait.wait_until_timeout(cx, "dirty limit", THROTTLE_MAX, done) {
                return;
            }
            for backing in cache.live_backings() {
                backing.kick(cx);
            }
        }
    }

    fn flusher_main(self: Arc<Self>, cx: &mut Cx) {
        loop {
            self.flush_background(cx);
            self.flush_expired(cx);
            self.retire_idle(cx);
            {
                let mut flusher = self.flusher.lock(cx);
                let idle = !flusher.kicked && self.dirty.lock(cx).is_empty();
                if flusher.stop || idle {
                    flusher.running = false;
                    return;
                }
            }
            let wake = || {
                let flusher = self.flusher.lock_irq();
                flusher.stop || flusher.kicked
            };
            let interval = self.cache.config.dirty_interval;
            self.flusher_wait.wait_until_timeout(cx, "flusher", interval, wake);
            self.flusher.lock(cx).kicked = false;
        }
    }

    /// Writes, file by file, until no more is dirty than the background limit allows; everything
    /// where somebody needs memory.
    fn flush_background(self: &Arc<Self>, cx: &mut Cx) {
        let cache = self.cache.clone();
        loop {
            let all = cache.pressure.swap(false, Ordering::AcqRel);
            let limit = if all { 0 } else { cache.config.dirty_background_bytes };
            let over = || cache.dirty.load(Ordering::Relaxed) > limit;
            if !over() {
                return;
            }
            let seen = cache.progress.load(Ordering::Acquire);
            let (mut plug, mut key, mut written) = (WritePlug::new(self), None, 0);
            while over()
                && let Some((next, mapping, _ops)) = self.next_listed(cx, key, Nanos::MAX)
            {
                key = Some(next);
                written += self.flush_one(cx, &mapping, &mut plug, cache.config.flush_share_bytes);
            }
            plug.submit(cx);
            if written > 0 {
                continue;
            }
            if cache.writeback.load(Ordering::Relaxed) == 0 || self.flusher.lock(cx).stop {
                // What is left cannot be written: nobody should wait for us.
                cache.note_stall();
                return;
            }
            // What is left may be dirty again while in flight: go on when something is complete.
            let done = || {
                cache.progress.load(Ordering::Acquire) != seen
                    || cache.writeback.load(Ordering::Relaxed) == 0
            };
            cache.progress_wait.wait_until_timeout(cx, "write-back", THROTTLE_MAX, done);
        }
    }

    /// Writes the files that have been dirty for longer than the expiry.
    fn flush_expired(self: &Arc<Self>, cx: &mut Cx) {
        let expire = self.cache.config.dirty_expire;
        let Some(before) = cx.now().0.checked_sub(expire.0) else { return };
        let (mut plug, mut key) = (WritePlug::new(self), None);
        while let Some((next, mapping, _ops)) = self.next_listed(cx, key, Nanos(before)) {
            key = Some(next);
            self.flush_one(cx, &mapping, &mut plug, u64::MAX);
        }
        plug.submit(cx);
    }

    fn flush_one(
        &self,
        cx: &mut Cx,
        mapping: &Arc<Mapping>,
        plug: &mut WritePlug,
        budget: u64,
    ) -> u64 {
        // The error is latched for fsync and sync.
        let (written, _) = mapping.write_dirty(cx, plug, 0..u64::MAX, false, budget);
        let now = cx.now();
        if let Some(listed) = self.dirty.lock(cx).get_mut(&(mapping.id(), mapping.serial())) {
            listed.since = now;
        }
        written
    }

    /// Lets go of the file-system objects of files that are clean and idle.
    fn retire_idle(&self, cx: &mut Cx) {
        let mut key = None;
        while let Some((next, mapping, ops)) = self.next_listed(cx, key, Nanos::MAX) {
            key = Some(next);
            mapping.retire(cx);
            drop(ops);
        }
    }
}

impl PageCache {
    /// Bytes that are dirty or in flight.
    pub(crate) fn unclean(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed) + self.writeback.load(Ordering::Relaxed)
    }
}
