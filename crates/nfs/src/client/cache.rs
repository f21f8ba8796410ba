//! Memory: the limit of folios, a clock that gives up what was not used lately, and the flusher.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::{Errno, Nanos};
use rt::{Cx, JoinHandle, SpinLock, WaitQueue};

use super::ahead::SyncRun;
use super::inode::{Inode, NodePlace, State};
use super::{NfsClient, NfsOptions, count};

/// What all files share.
pub(super) struct Cache {
    limit: u64,
    /// Bytes of folios.
    memory: AtomicU64,
    /// Bytes of folios with something of ours, as far as their files were looked at.
    dirty: AtomicU64,
    /// Folios in the order in which they came: file, index.
    clock: SpinLock<VecDeque<(Weak<Inode>, u64)>>,
    /// Files with something of ours, by their places.
    files: SpinLock<BTreeMap<NodePlace, (Arc<Inode>, Nanos)>>,
    flusher: SpinLock<Flusher>,
    wait: WaitQueue,
    pub syncs: SyncRun,
}

#[derive(Default)]
struct Flusher {
    running: bool,
    kicked: bool,
    stop: bool,
    task: Option<JoinHandle<()>>,
}

impl Cache {
    pub fn new(options: &NfsOptions) -> Cache {
        Cache {
            limit: options.cache_bytes.max(16 * u64::from(options.folio_size)),
            memory: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
            clock: SpinLock::named("nfs clock", VecDeque::new()),
            files: SpinLock::named("nfs dirty files", BTreeMap::new()),
            flusher: SpinLock::named("nfs flusher", Flusher::default()),
            wait: WaitQueue::named("nfs flusher"),
            syncs: SyncRun::default(),
        }
    }
}

impl NfsClient {
    pub(super) fn folio_size(&self) -> u64 {
        self.options.folio_size.into()
    }

    /// Takes memory for a folio. May park: gives up others, and where all are ours, writes some.
    pub(super) fn charge(&self, cx: &mut Cx) {
        let size = self.folio_size();
        let mut tried = 0;
        while self.cache.memory.load(Ordering::Relaxed) + size > self.cache.limit && tried < 3 {
            tried += 1;
            // A little more than needed, so that not every folio pays for a scan.
            if self.evict_clean(cx, 32) > 0 {
                break;
            }
            let Some(inode) = self.next_file(cx, (0, 0), Nanos::MAX) else { break };
            // An error is latched in the file.
            let _ = self.flush_and_commit(cx, &inode);
            self.retire(cx, &inode);
        }
        self.cache.memory.fetch_add(size, Ordering::Relaxed);
    }

    /// Gives a folio's memory back.
    pub(super) fn uncharge(&self, folios: u64) {
        self.cache.memory.fetch_sub(folios * self.folio_size(), Ordering::Relaxed);
    }

    /// Puts a new folio into the clock.
    pub(super) fn track(&self, inode: &Arc<Inode>, index: u64) {
        self.cache.clock.lock_irq().push_back((Arc::downgrade(inode), index));
    }

    /// Gives up at least `want` folios if it can; returns how many. Does not wait.
    pub(super) fn evict_clean(&self, cx: &Cx, want: u64) -> u64 {
        let mut left = 2 * self.cache.clock.lock(cx).len();
        let mut freed = 0;
        while left > 0 && freed < want {
            left -= 1;
            let Some((weak, index)) = self.cache.clock.lock(cx).pop_front() else { break };
            let Some(inode) = weak.upgrade() else { continue };
            let keep = {
                let mut state = inode.state.lock(cx);
                match state.folios.get_mut(&index) {
                    None => false,
                    Some(folio) if !folio.is_idle() => true,
                    Some(folio) if folio.referenced => {
                        folio.referenced = false;
                        true
                    }
                    Some(_) => {
                        state.folios.remove(&index);
                        freed += 1;
                        false
                    }
                }
            };
            if keep {
                self.cache.clock.lock(cx).push_back((weak, index));
            }
        }
        self.uncharge(freed);
        count(&self.counters.evicted, freed);
        freed
    }

    /// Forgets what is cached of a range, but for what is ours. READs under way are stale.
    pub(super) fn forget_range(&self, cx: &Cx, inode: &Inode, range: Range<u64>) {
        let size = self.folio_size();
        let mut state = inode.state.lock(cx);
        state.epoch += 1;
        let epoch = state.epoch;
        let folios = range.start / size..range.end.div_ceil(size);
        state.folios.range_mut(folios).for_each(|(_, folio)| folio.invalidate(epoch));
        state.holes.remove(range);
        drop(state);
        inode.wait.wake_all();
    }

    /// Drops all folios of a file.
    pub(super) fn drop_folios(&self, cx: &Cx, inode: &Inode) {
        let folios = {
            let mut state = inode.state.lock(cx);
            state.epoch += 1;
            self.note_dirty(-(std::mem::take(&mut state.ours) as i64));
            std::mem::take(&mut state.folios)
        };
        self.uncharge(folios.len() as u64);
        inode.wait.wake_all();
    }

    /// Puts a file on the list of those with something of ours. The caller has noted that in it.
    pub(super) fn list(&self, cx: &Cx, inode: &Arc<Inode>) {
        let since = cx.now();
        self.cache.files.lock(cx).entry(inode.place()).or_insert_with(|| (inode.clone(), since));
        let mut flusher = self.cache.flusher.lock(cx);
        if flusher.running || flusher.stop {
            return;
        }
        let Some(own) = self.own.upgrade() else { return };
        flusher.running = true;
        flusher.task = Some(cx.spawn("nfs-flush", move |cx| own.flusher_main(cx)));
    }

    /// Takes a file off the list where nothing is ours any more.
    pub(super) fn retire(&self, cx: &Cx, inode: &Inode) {
        {
            let mut state = inode.state.lock(cx);
            if !state.listed || state.is_ours() {
                return;
            }
            state.listed = false;
            state.verf = None;
        }
        let gone = self.cache.files.lock(cx).remove(&inode.place());
        drop(gone);
    }

    /// Brings the counts up to date after a folio's sets changed.
    pub(super) fn recount(&self, state: &mut State, index: u64) {
        let Some(folio) = state.folios.get_mut(&index) else { return };
        let ours = folio.is_ours();
        if ours == folio.counted {
            return;
        }
        folio.counted = ours;
        state.ours = if ours { state.ours + 1 } else { state.ours - 1 };
        self.note_dirty(if ours { 1 } else { -1 });
    }

    /// So many counted folios were dropped.
    pub(super) fn uncount(&self, folios: u64) {
        self.note_dirty(-(folios as i64));
    }

    /// Counts folios that became ours or, below 0, ceased to be.
    fn note_dirty(&self, folios: i64) {
        let bytes = folios.unsigned_abs() * self.folio_size();
        match folios.signum() {
            1 => drop(self.cache.dirty.fetch_add(bytes, Ordering::Relaxed)),
            -1 => drop(self.cache.dirty.fetch_sub(bytes, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// The first listed file behind the place `after` that became dirty not after `before`.
    pub(super) fn next_file(&self, cx: &Cx, after: NodePlace, before: Nanos) -> Option<Arc<Inode>> {
        let files = self.cache.files.lock(cx);
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        let found = files.range(behind).find(|(_, (_, since))| *since <= before);
        found.map(|(_, (inode, _))| inode.clone())
    }

    /// After a write: sends the flusher off above the background limit, and above the dirty limit
    /// writes the file itself.
    ///
    /// # Errors
    /// Above the limit, an error of writing: nothing more fits into memory.
    pub(super) fn balance(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        let dirty = self.cache.dirty.load(Ordering::Relaxed);
        if dirty <= self.options.dirty_background_bytes {
            return Ok(());
        }
        if dirty <= self.options.dirty_limit_bytes {
            let mut flusher = self.cache.flusher.lock(cx);
            if !flusher.kicked {
                flusher.kicked = true;
                drop(flusher);
                self.cache.wait.wake_all();
            }
            return Ok(());
        }
        self.flush_and_commit(cx, inode)
    }

    fn flusher_main(self: Arc<Self>, cx: &mut Cx) {
        loop {
            let woken = || {
                let flusher = self.cache.flusher.lock_irq();
                flusher.stop || flusher.kicked
            };
            let interval = self.options.dirty_interval;
            self.cache.wait.wait_until_timeout(cx, "flusher", interval, woken);
            self.cache.flusher.lock(cx).kicked = false;
            if let Some(before) = cx.now().0.checked_sub(self.options.dirty_expire.0) {
                self.flush_files(cx, Nanos(before), 0);
            }
            self.flush_files(cx, Nanos::MAX, self.options.dirty_background_bytes);
            let mut flusher = self.cache.flusher.lock(cx);
            if flusher.stop || self.cache.files.lock(cx).is_empty() {
                flusher.running = false;
                return;
            }
        }
    }

    /// Writes the files that became dirty not after `before`, while more than `limit` bytes are
    /// ours.
    fn flush_files(&self, cx: &mut Cx, before: Nanos, limit: u64) {
        let mut after = (0, 0);
        while self.cache.dirty.load(Ordering::Relaxed) > limit
            && !self.cache.flusher.lock(cx).stop
            && let Some(inode) = self.next_file(cx, after, before)
        {
            after = inode.place();
            if inode.state.lock(cx).failed {
                continue;
            }
            // Errors are latched in the file.
            let _ = self.flush_and_commit(cx, &inode);
            self.retire(cx, &inode);
            if let Some((_, since)) = self.cache.files.lock(cx).get_mut(&inode.place()) {
                *since = cx.now();
            }
        }
    }

    /// Ends the flusher. May park.
    pub(super) fn stop_flusher(&self, cx: &mut Cx) {
        let task = {
            let mut flusher = self.cache.flusher.lock(cx);
            flusher.stop = true;
            flusher.task.take()
        };
        self.cache.wait.wake_all();
        if let Some(task) = task {
            task.join(cx);
        }
    }

    /// Has the flusher end without waiting for it.
    pub(super) fn stop_flusher_hard(&self) {
        self.cache.flusher.lock_irq().stop = true;
        self.cache.wait.wake_all();
    }
}
