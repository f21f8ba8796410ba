//! The active item list: what is in the log and not yet at its place, oldest first.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Sector;
use block::{BioResult, IoGroup, Plug};
use rt::{Cx, SpinLock};

use super::Log;
use super::item_ref::Item;
use crate::buf::{Buf, INODE_CLUSTER, LockedBuf};
use crate::error::Result;
use crate::log::dquot_item::{DQUOT_BLOCK, DquotItem};
use crate::log::inode_item::InodeItem;

/// Items that one pass of write-back looks at.
const BATCH: usize = 1024;

/// The place of an item in the list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct AilKey {
    /// Sequence number of the checkpoint.
    lsn: u64,
    /// Breaks ties.
    order: u64,
}

#[derive(Default)]
struct State {
    /// By sequence number, then by order of insertion.
    items: BTreeMap<AilKey, Item>,
    next: u64,
    /// The inodes in `items`, by their cluster.
    clusters: BTreeMap<u64, Vec<Arc<InodeItem>>>,
    /// The records of quota in `items`, by their block.
    dquots: BTreeMap<u64, Vec<Arc<DquotItem>>>,
}

/// Takes one of a list out of a map of lists.
fn take_out<T>(map: &mut BTreeMap<u64, Vec<Arc<T>>>, key: u64, item: &Arc<T>) {
    if let Some(list) = map.get_mut(&key) {
        list.retain(|other| !Arc::ptr_eq(other, item));
        if list.is_empty() {
            map.remove(&key);
        }
    }
}

/// The list. Its spin lock comes before an item's own.
pub(crate) struct Ail(SpinLock<State>);

impl Ail {
    pub fn new() -> Ail {
        Ail(SpinLock::named("AIL", State::default()))
    }

    /// The oldest item's sequence number.
    pub fn tail(&self) -> Option<u64> {
        self.0.lock_irq().items.keys().next().map(|key| key.lsn)
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock_irq().items.is_empty()
    }

    /// The newest item's sequence number.
    fn newest(&self) -> Option<u64> {
        self.0.lock_irq().items.keys().next_back().map(|key| key.lsn)
    }

    /// Puts an item in, or moves it up; but a cluster of inodes stays where it is until it is
    /// written: only its unlinked pointers were logged anew, while an older checkpoint may be all
    /// that has its inodes.
    pub fn insert(&self, item: &Item, lsn: u64) {
        let stays = matches!(item, Item::Buf(buf) if buf.item.lock_irq().holds_inodes());
        let mut state = self.0.lock_irq();
        let state = &mut *state;
        state.next += 1;
        let order = state.next;
        let mut core = item.core().lock();
        let old = AilKey { lsn: core.lsn, order: core.order };
        if stays && old.lsn != 0 {
            return;
        }
        (core.lsn, core.order) = (lsn, order);
        drop(core);
        if old.lsn != 0 {
            state.items.remove(&old);
        } else if let Item::Inode(inode) = item {
            let cluster = inode.place().cluster.daddr.0;
            state.clusters.entry(cluster).or_default().push(inode.clone());
        } else if let Item::Dquot(dquot) = item {
            let block = dquot.place.block.daddr.0;
            state.dquots.entry(block).or_default().push(dquot.clone());
        }
        state.items.insert(AilKey { lsn, order }, item.clone());
    }

    /// Takes an item out if it is there, and at `lsn` where that is given.
    pub fn remove(&self, item: &Item, lsn: Option<u64>) {
        let mut state = self.0.lock_irq();
        let mut core = item.core().lock();
        if core.lsn == 0 || lsn.is_some_and(|lsn| lsn != core.lsn) {
            return;
        }
        let key = AilKey { lsn: core.lsn, order: core.order };
        core.lsn = 0;
        drop(core);
        let removed = state.items.remove(&key);
        match item {
            Item::Inode(inode) => {
                take_out(&mut state.clusters, inode.place().cluster.daddr.0, inode);
            }
            Item::Dquot(dquot) => {
                take_out(&mut state.dquots, dquot.place.block.daddr.0, dquot);
            }
            Item::Buf(_) | Item::Intent(_) => {}
        }
        drop(state);
        drop(removed);
    }

    /// The inodes of a cluster that are in the list.
    pub fn inodes_of(&self, cluster: Sector) -> Vec<Arc<InodeItem>> {
        self.0.lock_irq().clusters.get(&cluster.0).cloned().unwrap_or_default()
    }

    /// The records of quota of a block that are in the list.
    fn dquots_of(&self, block: Sector) -> Vec<Arc<DquotItem>> {
        self.0.lock_irq().dquots.get(&block.0).cloned().unwrap_or_default()
    }

    /// Items up to `target`, oldest first, behind `from`.
    fn batch(&self, from: AilKey, target: u64) -> Vec<(AilKey, Item)> {
        let state = self.0.lock_irq();
        let range =
            state.items.range((std::ops::Bound::Excluded(from), std::ops::Bound::Unbounded));
        range
            .take_while(|(key, _)| key.lsn <= target)
            .take(BATCH)
            .map(|(key, item)| (*key, item.clone()))
            .collect()
    }
}

/// A locked buffer that is to be written, and the inodes and records of quota that were copied into
/// it.
struct Write {
    buf: LockedBuf,
    copied: Vec<CopiedItem>,
}

/// An item that was copied into its buffer, as it was at a sequence number.
struct CopiedItem {
    item: Item,
    lsn: u64,
}

/// What a pass of write-back found.
#[derive(Default)]
struct WritePass {
    writes: BTreeMap<u64, Write>,
    /// Something is pinned: the CIL must go to the log first.
    pinned: bool,
    /// Something was locked by a task.
    locked: bool,
}

/// What is left after write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AilLeft {
    pub pinned: bool,
    pub locked: bool,
}

impl Log {
    /// Writes everything up to `target` to its place, as far as that is possible without waiting
    /// for a lock, and waits for the device. May park.
    pub(crate) fn write_back(self: &Arc<Self>, cx: &mut Cx, target: u64) -> Result<AilLeft> {
        let mut left = AilLeft { pinned: false, locked: false };
        let mut from = AilKey::default();
        loop {
            let batch = self.ail.batch(from, target);
            let Some(last) = batch.last() else { return Ok(left) };
            from = last.0;
            let mut pass = WritePass::default();
            for (_, item) in &batch {
                self.check()?;
                match item {
                    Item::Buf(buf) => self.take_buf(buf, &mut pass),
                    Item::Inode(inode) => self.take_cluster(cx, inode, &mut pass)?,
                    Item::Dquot(dquot) => self.take_dquots(cx, dquot, &mut pass)?,
                    // Leaves the list when its work is done and that is in the log.
                    Item::Intent(_) => pass.pinned = true,
                }
            }
            drop(batch);
            left.pinned |= pass.pinned;
            left.locked |= pass.locked;
            self.write_all(cx, pass.writes)?;
        }
    }

    /// The target that writes everything back.
    pub(crate) fn newest(&self) -> u64 {
        self.ail.newest().unwrap_or(0)
    }

    fn take_buf(&self, buf: &Arc<Buf>, pass: &mut WritePass) {
        let daddr = buf.daddr().0;
        if pass.writes.contains_key(&daddr) {
            return;
        }
        if buf.core.is_pinned() {
            pass.pinned = true;
            return;
        }
        let Some(buf) = LockedBuf::try_new(buf.clone()) else {
            pass.locked = true;
            return;
        };
        // Before it was locked it may have changed again, or been written by somebody else.
        let in_list = buf.core.lock().lsn != 0;
        if buf.core.is_pinned() {
            pass.pinned = true;
        } else if in_list && !buf.is_stale() {
            let copied = self.copy_items(&buf);
            pass.writes.insert(daddr, Write { buf, copied });
        }
    }

    /// The block of a record of quota.
    fn take_dquots(&self, cx: &mut Cx, dquot: &DquotItem, pass: &mut WritePass) -> Result<()> {
        if dquot.core.is_pinned() {
            pass.pinned = true;
        }
        let block = dquot.place.block;
        if pass.writes.contains_key(&block.daddr.0) {
            return Ok(());
        }
        let buf = self.bufs.try_read(cx, &[block], &DQUOT_BLOCK)?;
        self.take_copied(buf, pass);
        Ok(())
    }

    /// A buffer that was read for what is copied into it.
    fn take_copied(&self, buf: Option<LockedBuf>, pass: &mut WritePass) {
        let Some(buf) = buf else {
            pass.locked = true;
            return;
        };
        if buf.core.is_pinned() {
            pass.pinned = true;
            return;
        }
        let copied = self.copy_items(&buf);
        if !copied.is_empty() {
            pass.writes.insert(buf.daddr().0, Write { buf, copied });
        }
    }

    fn take_cluster(&self, cx: &mut Cx, inode: &InodeItem, pass: &mut WritePass) -> Result<()> {
        let cluster = inode.place().cluster;
        if inode.core().is_pinned() {
            pass.pinned = true;
        }
        if inode.is_stale() || pass.writes.contains_key(&cluster.daddr.0) {
            return Ok(());
        }
        let buf = self.bufs.try_read(cx, &[cluster], &INODE_CLUSTER)?;
        self.take_copied(buf, pass);
        Ok(())
    }

    /// Copies the dirty inodes of a cluster, or the changed records of a block of quota, into it,
    /// those that are not pinned.
    fn copy_items(&self, buf: &Buf) -> Vec<CopiedItem> {
        let mut copied = Vec::new();
        for inode in self.ail.inodes_of(buf.daddr()) {
            let lsn = inode.core().lock().lsn;
            if lsn != 0 && inode.flush(buf, lsn) {
                copied.push(CopiedItem { item: Item::Inode(inode), lsn });
            }
        }
        for dquot in self.ail.dquots_of(buf.daddr()) {
            let lsn = dquot.core.lock().lsn;
            if lsn != 0 && dquot.flush(buf, lsn) {
                copied.push(CopiedItem { item: Item::Dquot(dquot), lsn });
            }
        }
        copied
    }

    fn write_all(self: &Arc<Self>, cx: &mut Cx, writes: BTreeMap<u64, Write>) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let (group, mut plug) = (IoGroup::new(), Plug::new());
        for write in writes.into_values() {
            self.stats.note_write_back(write.buf.len() as u64);
            let lsn = write.buf.core.lock().lsn;
            if lsn != 0 {
                write.buf.write_verify(lsn);
            }
            let bios = write.buf.write_bios(&group);
            let ending = Arc::new(Ending::new(self.clone(), write, bios.len()));
            for mut bio in bios {
                let (ending, end) = (ending.clone(), bio.end);
                bio.end = Box::new(move |done: BioResult| {
                    ending.end_one(done.result.is_ok());
                    end(done);
                });
                self.bufs.queue().submit_plugged(cx, &mut plug, bio);
            }
        }
        plug.finish(cx);
        group.wait(cx)?;
        Ok(())
    }
}

/// The end of one buffer's write, which may be of several bios. Event context.
struct Ending {
    log: Arc<Log>,
    state: SpinLock<(usize, bool, Option<Write>)>,
}

impl Ending {
    fn new(log: Arc<Log>, write: Write, bios: usize) -> Ending {
        Ending { log, state: SpinLock::named("xfs write-back", (bios, true, Some(write))) }
    }

    fn end_one(&self, good: bool) {
        let write = {
            let mut state = self.state.lock_irq();
            state.0 -= 1;
            state.1 &= good;
            if state.0 > 0 {
                return;
            }
            state.2.take().map(|write| (write, state.1))
        };
        let (Write { buf, copied }, good) = write.expect("a write ends once");
        for CopiedItem { item, lsn } in copied {
            if let Item::Inode(inode) = &item {
                inode.flushed(good);
            }
            if good {
                self.log.ail.remove(&item, Some(lsn));
            }
        }
        if good {
            buf.item.lock_irq().clean();
            self.log.ail.remove(&Item::Buf(Arc::clone(&buf)), None);
        }
    }
}
