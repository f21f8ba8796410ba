//! The committed item list: what is committed in memory and not yet in the log.

use std::mem::take;
use std::sync::Arc;

use rt::Cx;
use smallvec::SmallVec;

use super::Log;
use super::dquot_item::{DquotChange, DquotItem};
use super::item::{ItemCore, LogVec};
use super::item_ref::Item;
use crate::buf::Buf;
use crate::error::Result;
use crate::log::inode_item::{Image, InodeFields, InodeItem};
use crate::trans::intent::{IntentItem, Work};

/// Gathers until a push takes it.
pub(crate) struct Cil {
    /// Number of the checkpoint that is being gathered, from 1.
    pub seq: u64,
    /// The newest checkpoint that is on the device.
    pub done: u64,
    /// In the order in which they were first committed.
    pub items: Vec<Item>,
    /// Bytes of their vectors with operation headers.
    pub used: u64,
    /// Log space that is set aside for them.
    pub reserved: u64,
}

impl Cil {
    pub fn new() -> Cil {
        Cil { seq: 1, done: 0, items: Vec::new(), used: 0, reserved: 0 }
    }
}

/// What a push takes out of the CIL.
pub(crate) struct Checkpoint {
    pub seq: u64,
    pub entries: Vec<Entry>,
    pub reserved: u64,
}

/// One item of a checkpoint.
pub(crate) struct Entry {
    pub item: Item,
    pub vec: LogVec,
    /// A buffer that was freed: it leaves the AIL when the checkpoint is on the device.
    pub stale: bool,
}

impl Entry {
    /// An item that recovery passes over: the end of an intent that no log has. Linux does not
    /// recover a checkpoint without items ("committed log item has no regions").
    pub fn meaningless(id: u64) -> Entry {
        let none = Work::free(0, 1, None);
        let done = IntentItem::done(&IntentItem::intent(id, vec![none]));
        let mut vec = LogVec::default();
        done.format(&mut vec);
        done.core.lock().pins = 1;
        Entry { item: Item::Intent(done), vec, stale: false }
    }
}

/// An item that a transaction has changed, as the commit finds it. Most buffers are in the CIL
/// already, which then needs no reference of its own.
pub(crate) enum Commit<'a> {
    Buf(&'a Arc<Buf>),
    /// With its new image, and what of it has changed.
    Inode(Arc<InodeItem>, Image, InodeFields),
    Intent(Arc<IntentItem>),
    /// With what the transaction does to it.
    Dquot(&'a Arc<DquotItem>, DquotChange),
}

/// Items of a transaction that the CIL does not have yet.
type NewItems = SmallVec<[Item; 8]>;

/// Formats an item that has a lock of its own above that of `core`; returns the bytes that it took
/// in the CIL before and takes now, and reports `is_new` where it took none.
fn format_item(
    core: &ItemCore,
    seq: u64,
    format: impl FnOnce(&mut LogVec),
    is_new: impl FnOnce(),
) -> (u64, u64) {
    let (mut vec, known) = {
        let mut state = core.lock();
        let known = state.enter(seq);
        (take(&mut state.vec), known)
    };
    let before = if known { vec.log_bytes() } else { 0 };
    if !known {
        is_new();
    }
    format(&mut vec);
    let after = vec.log_bytes();
    let mut state = core.lock();
    (state.vec, state.stale) = (vec, false);
    (before, after)
}

impl Log {
    /// Formats the items that `each` hands to its argument, and puts them into the CIL; returns the
    /// checkpoint's number and how much of `reserved` was used. The caller holds the items' locks.
    /// May park.
    pub(crate) fn commit_items<F>(&self, cx: &mut Cx, reserved: u64, each: F) -> Result<(u64, u64)>
    where
        F: FnOnce(&mut dyn FnMut(Commit<'_>)),
    {
        let context = self.context.read(cx);
        self.check()?;
        let seq = self.cil.lock(cx).seq;
        let (mut grown, mut shrunk) = (0, 0);
        let mut new = NewItems::new();
        each(&mut |commit| {
            let (before, after) = match commit {
                Commit::Buf(buf) => self.commit_buf(cx, buf, seq, &mut new),
                Commit::Inode(inode, image, fields) => {
                    let item = || Item::Inode(inode.clone());
                    let format = |vec: &mut LogVec| inode.commit_image(image, fields, vec);
                    format_item(inode.core(), seq, format, || new.push(item()))
                }
                Commit::Intent(intent) => {
                    let item = || Item::Intent(intent.clone());
                    let format = |vec: &mut LogVec| intent.format(vec);
                    format_item(&intent.core, seq, format, || new.push(item()))
                }
                Commit::Dquot(dquot, change) => {
                    self.commit_dquot(cx, dquot, &change, seq, &mut new)
                }
            };
            grown += after;
            shrunk += before;
        });
        let used = self.account(cx, new, grown, shrunk, reserved);
        drop(context);
        Ok((seq, used))
    }

    /// Adds to the CIL and moves log space from the transaction to it.
    fn account(&self, cx: &Cx, new: NewItems, grown: u64, shrunk: u64, reserved: u64) -> u64 {
        let mut cil = self.cil.lock(cx);
        let first = cil.items.is_empty();
        cil.items.extend(new);
        cil.used = (cil.used + grown).saturating_sub(shrunk);
        let needed = self.wire_bytes(cil.used).saturating_sub(cil.reserved);
        cil.reserved += needed;
        drop(cil);
        if first {
            self.task.stir();
        }
        if needed > reserved {
            self.stats.note_overrun();
        }
        self.grant.use_for_cil(needed, needed.min(reserved));
        needed.min(reserved)
    }

    /// Formats a buffer; returns the bytes that it took in the CIL before and takes now.
    fn commit_buf(&self, cx: &Cx, buf: &Arc<Buf>, seq: u64, new: &mut NewItems) -> (u64, u64) {
        let mut state = buf.core.lock();
        let known = state.enter(seq);
        let before = if known { state.vec.log_bytes() } else { 0 };
        let stale = self.format_buf(cx, buf, &mut state.vec, known);
        state.stale = stale;
        let after = state.vec.log_bytes();
        drop(state);
        if !known {
            new.push(Item::Buf(Arc::clone(buf)));
        }
        if !stale && self.debug_check(cx, buf).is_err() {
            self.force_shutdown("a directory's leaf was wrong after a change");
        }
        (before, after)
    }

    /// Changes and formats a record of quota, whose lock nobody holds beside this: changes of
    /// several transactions add up. Returns the bytes that it took in the CIL before and takes now.
    fn commit_dquot(
        &self,
        cx: &Cx,
        dquot: &Arc<DquotItem>,
        change: &DquotChange,
        seq: u64,
        new: &mut NewItems,
    ) -> (u64, u64) {
        let table = self.dquots().expect("whoever changes a record has found it there");
        let now = cx.realtime().sec.max(0) as u64;
        let mut state = dquot.core.lock();
        let known = state.enter(seq);
        let before = if known { state.vec.log_bytes() } else { 0 };
        dquot.commit(change, table, now, &mut state.vec);
        let after = state.vec.log_bytes();
        drop(state);
        if !known {
            new.push(Item::Dquot(dquot.clone()));
        }
        (before, after)
    }

    /// After a commit: starts a push where much has gathered, and waits where far too much has. May
    /// park.
    pub(crate) fn throttle(&self, cx: &mut Cx) {
        let limit = self.cil_limit();
        let (used, seq) = {
            let cil = self.cil.lock(cx);
            (cil.used, cil.seq)
        };
        if used <= limit {
            return;
        }
        self.task.kick();
        if used > 2 * limit && self.options.background {
            self.committed.wait_until(cx, "a push of the CIL", || {
                let cil = self.cil.lock_irq();
                cil.seq > seq || cil.used <= 2 * limit || self.shut_down().is_some()
            });
        }
    }

    /// Takes everything out of the CIL. Parks until no transaction is formatting.
    pub(crate) fn detach(&self, cx: &mut Cx) -> Checkpoint {
        let context = self.context.write(cx);
        let mut checkpoint = {
            let mut cil = self.cil.lock(cx);
            let seq = cil.seq;
            cil.seq += 1;
            cil.used = 0;
            let entries = Vec::with_capacity(cil.items.len());
            let reserved = take(&mut cil.reserved);
            let items = take(&mut cil.items);
            drop(cil);
            let mut checkpoint = Checkpoint { seq, entries, reserved };
            for item in items {
                let (vec, stale) = {
                    let mut state = item.core().lock();
                    state.seq = 0;
                    (take(&mut state.vec), take(&mut state.stale))
                };
                checkpoint.entries.push(Entry { item, vec, stale });
            }
            checkpoint
        };
        drop(context);
        checkpoint.entries.shrink_to_fit();
        checkpoint
    }
}
