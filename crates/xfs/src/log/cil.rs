//! The committed item list: what is committed in memory and not yet in the log.

use std::mem::take;
use std::sync::Arc;

use rt::Cx;
use smallvec::SmallVec;

use super::Log;
use super::item::{Item, ItemCore, LogVec};
use crate::buf::Buf;
use crate::error::Result;
use crate::inode_item::{Image, InodeFields, InodeItem};
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
        let none = Work::Free { start: 0, len: 1, owner: None };
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
}

impl Commit<'_> {
    fn core(&self) -> &ItemCore {
        match self {
            Commit::Buf(buf) => &buf.core,
            Commit::Inode(inode, ..) => inode.core(),
            Commit::Intent(intent) => &intent.core,
        }
    }

    fn item(&self) -> Item {
        match self {
            Commit::Buf(buf) => Item::Buf(Arc::clone(buf)),
            Commit::Inode(inode, ..) => Item::Inode(inode.clone()),
            Commit::Intent(intent) => Item::Intent(intent.clone()),
        }
    }
}

/// All that a transaction has changed.
pub(crate) type Commits<'a> = SmallVec<[Commit<'a>; 8]>;
/// Those of them that the CIL does not have yet.
type NewItems = SmallVec<[Item; 8]>;

impl Log {
    /// Formats the items and puts them into the CIL; answers the checkpoint's number and how much
    /// of `reserved` was used. The caller holds the items' locks. May park.
    pub(crate) fn commit_items(
        &self,
        cx: &mut Cx,
        commits: Commits<'_>,
        reserved: u64,
    ) -> Result<(u64, u64)> {
        let context = self.context.read(cx);
        self.check()?;
        let seq = self.cil.lock(cx).seq;
        let (mut grown, mut shrunk) = (0, 0);
        let mut new = NewItems::new();
        for commit in commits {
            let (before, after) = self.format_item(cx, commit, seq, &mut new);
            grown += after;
            shrunk += before;
        }
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

    /// Formats one item; answers the bytes that it took in the CIL before and takes now.
    fn format_item(
        &self,
        cx: &Cx,
        mut commit: Commit<'_>,
        seq: u64,
        new: &mut NewItems,
    ) -> (u64, u64) {
        let (mut vec, known) = {
            let mut state = commit.core().lock();
            let known = state.seq == seq;
            if !known {
                // Pinned before its content changes, so that write-back leaves it alone.
                state.pins += 1;
                state.seq = seq;
            }
            state.last_seq = seq;
            (take(&mut state.vec), known)
        };
        let before = if known { vec.log_bytes() } else { 0 };
        if !known {
            new.push(commit.item());
        }
        let mut stale = false;
        match &mut commit {
            Commit::Buf(buf) => {
                stale = self.format_buf(cx, buf, &mut vec, known);
                if !stale && self.debug_check(cx, buf).is_err() {
                    self.force_shutdown("a directory's leaf was wrong after a change");
                }
            }
            Commit::Inode(inode, image, fields) => {
                inode.commit_image(take(image), *fields, &mut vec)
            }
            Commit::Intent(intent) => intent.format(&mut vec),
        }
        let after = vec.log_bytes();
        let mut state = commit.core().lock();
        (state.vec, state.stale) = (vec, stale);
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
