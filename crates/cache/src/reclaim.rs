//! Memory for folios: a limit, and a clock that gives up what was not used lately.
//!
//! The clock goes round the mappings and, inside each, through its folios by index. A folio that
//! was used again since the last pass, or that was read and not used yet, is passed once; so a
//! single pass through a big file does not drive out what is used repeatedly, and readahead is not
//! given up before the reader comes. Dirty folios, folios being read and folios in flight stay.
//!
//! Where everything is dirty, the flushers are sent off and the task waits for them. It does not
//! write itself: it may hold locks of the file system that writing needs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use base::{Nanos, Page};
use rt::Cx;

use crate::mapping::Mapping;
use crate::page_cache::{PageCache, count};

/// Folios looked at in one hold of a mapping's lock.
const SCAN_BATCH: u64 = 256;
/// Longest wait for a write to complete before the state is looked at again.
const WAIT_MAX: Nanos = Nanos::from_secs(10);

impl PageCache {
    /// Takes memory for `folios` folios from the limit. May park: gives up other folios, and waits
    /// for write-back where all are dirty. Where nothing can be given up at all (everything is
    /// being read by others), the limit is exceeded and counted.
    pub(crate) fn charge(self: &Arc<Self>, cx: &mut Cx, folios: u64) {
        let bytes = folios << self.folio_shift;
        loop {
            let before = self.memory.fetch_add(bytes, Ordering::Relaxed);
            if before + bytes <= self.config.limit_bytes {
                return;
            }
            self.memory.fetch_sub(bytes, Ordering::Relaxed);
            let seen = self.progress.load(Ordering::Acquire);
            // A little more than needed, so that not every folio pays for a scan.
            let want = folios.max((self.config.limit_bytes >> self.folio_shift).min(1024) / 16);
            if self.reclaim(cx, want) > 0 {
                continue;
            }
            let dirty = self.dirty.load(Ordering::Relaxed);
            if dirty + self.writeback.load(Ordering::Relaxed) == 0 {
                self.memory.fetch_add(bytes, Ordering::Relaxed);
                count(&self.counters.overcommitted, folios);
                return;
            }
            count(&self.counters.reclaim_waits, 1);
            if !self.wait_for_clean(cx, seen) {
                self.memory.fetch_add(bytes, Ordering::Relaxed);
                count(&self.counters.overcommitted, folios);
                return;
            }
        }
    }

    /// As [`charge`](PageCache::charge), but does not wait for write-back: rather exceeds the
    /// limit.
    pub(crate) fn charge_nowait(&self, cx: &Cx, folios: u64) {
        let bytes = folios << self.folio_shift;
        let before = self.memory.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.config.limit_bytes && self.reclaim(cx, folios) < folios {
            count(&self.counters.overcommitted, folios);
        }
    }

    /// Gives back memory of `folios` folios.
    pub(crate) fn uncharge(&self, folios: u64) {
        self.memory.fetch_sub(folios << self.folio_shift, Ordering::Relaxed);
    }

    /// Sends the flushers off and waits until a write completed. False where nothing happened for
    /// long, or a flusher found nothing that it could write.
    fn wait_for_clean(self: &Arc<Self>, cx: &mut Cx, seen: u64) -> bool {
        let stalls = self.stalls.load(Ordering::Acquire);
        self.pressure.store(true, Ordering::Release);
        for backing in self.live_backings() {
            backing.kick(cx);
        }
        let moved = || self.progress.load(Ordering::Acquire) != seen;
        let stalled = || self.stalls.load(Ordering::Acquire) != stalls;
        let done = || moved() || stalled();
        self.progress_wait.wait_until_timeout(cx, "folio memory", WAIT_MAX, done);
        moved() || (!stalled() && self.writeback.load(Ordering::Relaxed) > 0)
    }

    /// Gives up every folio that is clean and idle, used or not (Linux: `drop_caches`). Returns the
    /// bytes that became free. Does not wait.
    pub fn drop_clean(&self, cx: &Cx) -> u64 {
        let before = self.memory.load(Ordering::Relaxed);
        // The second pass takes what the first one spared.
        while self.reclaim(cx, u64::MAX) > 0 {}
        before.saturating_sub(self.memory.load(Ordering::Relaxed))
    }

    /// Gives up at least `want` folios if it can, and returns how many it did give up. Does not
    /// wait.
    pub(crate) fn reclaim(&self, cx: &Cx, want: u64) -> u64 {
        let total = self.memory.load(Ordering::Relaxed) >> self.folio_shift;
        let scan_max = 2 * total + 2 * SCAN_BATCH;
        let (mut freed, mut scanned) = (0, 0);
        let mut visits = 2 * self.ring.lock(cx).len() as u64 + scan_max / SCAN_BATCH;
        let mut pages = Vec::new();
        while freed < want && scanned < scan_max && visits > 0 {
            visits -= 1;
            let Some(next) = self.ring.lock(cx).turn() else { break };
            let Some(mapping) = Weak::upgrade(&next) else { continue };
            let pass = mapping.shrink(cx, want - freed, SCAN_BATCH, &mut pages);
            freed += pass.freed;
            scanned += pass.scanned.max(1);
            self.uncharge(pass.freed);
            pages.clear();
            if pass.remains {
                self.ring.lock(cx).go_round(next);
            }
        }
        count(&self.counters.reclaimed, freed);
        freed
    }
}

/// What one visit of the clock hand did.
pub(crate) struct Pass {
    pub(crate) freed: u64,
    pub(crate) scanned: u64,
    /// The mapping still has folios and stays in the ring.
    pub(crate) remains: bool,
}

impl Mapping {
    /// Moves the clock hand over up to `scan` folios and takes out up to `want`; their memory goes
    /// to `pages`, to be dropped without the lock.
    pub(crate) fn shrink(&self, cx: &Cx, want: u64, scan: u64, pages: &mut Vec<Page>) -> Pass {
        let shift = self.cache().folio_shift;
        let mut guard = self.state.lock(cx);
        let state = &mut *guard;
        let mut pass = Pass { freed: 0, scanned: 0, remains: true };
        let scan = scan.min(state.index.count());
        while pass.scanned < scan && pass.freed < want {
            let Some(at) = state.index.next(state.hand, u64::MAX) else {
                if state.hand == 0 {
                    break;
                }
                state.hand = 0;
                continue;
            };
            state.hand = at + 1;
            pass.scanned += 1;
            let in_flight = state.writes.overlaps(at << shift..(at + 1) << shift);
            let folio = state.index.get_mut(at).expect("the folio was just found");
            if !folio.is_idle() || in_flight {
                continue;
            }
            if folio.referenced || folio.fresh {
                folio.referenced = false;
                folio.fresh = false;
                continue;
            }
            let folio = state.index.remove(at).expect("the folio was just found");
            pages.extend(folio.page);
            pass.freed += 1;
        }
        if state.index.count() == 0 {
            state.in_ring = false;
            pass.remains = false;
        }
        pass
    }
}
