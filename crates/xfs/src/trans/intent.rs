//! Deferred work: changes that take several transactions, announced in the log by intents.
//!
//! A transaction that needs an extent freed calls [`Trans::defer`](super::Trans::defer). At its
//! commit an *intent* goes into the log; then, in a transaction of its own, the work is carried
//! out by the [`IntentFinisher`](super::IntentFinisher) and a *done* item follows. After a crash
//! recovery finds intents without done items and carries them out.
//!
//! Source: "XFS Algorithms and Data Structures", chapters on EFI, RUI, CUI and BUI items; kernel
//! `Documentation/filesystems/xfs/xfs-online-fsck-design.rst` on deferred work.

use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::format::Owner;
use crate::format::log_item::{
    ItemKind, RawExtent, RawFreeIntent, RawIntent, RawIntentDone, RawMapExtent, RawPhysExtent,
};
use crate::log::item::{ItemCore, LogVec};

/// Extents that one intent names at the most.
const EXTENTS_MAX: usize = 16;

/// One piece of deferred work. Block numbers are file-system blocks, group in the high bits, as
/// the log holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// An extent becomes free space (EFI).
    Free {
        /// First block.
        start: u64,
        /// Blocks.
        len: u32,
        /// Whose it was, for the reverse map. None if the reverse map is not to be changed, and
        /// after a crash, when nobody knows.
        owner: Option<Owner>,
    },
    /// An extent of the realtime section becomes free (EFI_RT). Only recovery meets it: here the
    /// bitmap changes together with the file's map.
    FreeRealtime {
        /// First block.
        start: u64,
        /// Blocks.
        len: u32,
    },
    /// The reverse map changes (RUI).
    Rmap {
        /// An operation and flags, as the log holds them.
        flags: u32,
        /// Inode or special owner.
        owner: u64,
        /// First block.
        start: u64,
        /// Block in the owner's fork.
        offset: u64,
        /// Blocks.
        len: u32,
    },
    /// Reference counts change (CUI).
    Refcount {
        /// An operation, as the log holds it.
        flags: u32,
        /// First block.
        start: u64,
        /// Blocks.
        len: u32,
    },
    /// A file's map changes (BUI).
    Bmap {
        /// An operation and flags, as the log holds them.
        flags: u32,
        /// The file.
        ino: u64,
        /// First block.
        start: u64,
        /// Block in the file.
        offset: u64,
        /// Blocks.
        len: u32,
    },
    /// A parent pointer changes (ATTRI). Only recovery meets it: here pointers change together with
    /// their names.
    Parent(Arc<ParentChange>),
}

/// What an ATTRI for a parent pointer asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParentChange {
    /// The inode that has the pointer.
    pub ino: u64,
    /// Its generation.
    pub generation: u32,
    /// The pointer that goes: name and value.
    pub old: Option<(Vec<u8>, Vec<u8>)>,
    /// The pointer that comes.
    pub new: Option<(Vec<u8>, Vec<u8>)>,
}

impl Work {
    /// Pieces of this kind that one intent names at the most. Linux refuses more maps than one.
    pub(crate) fn most_together(&self) -> usize {
        match self {
            Work::Bmap { .. } | Work::Parent(_) => 1,
            _ => EXTENTS_MAX,
        }
    }

    /// Types of the intent and of its done item.
    pub(crate) fn kinds(&self) -> (ItemKind, ItemKind) {
        match self {
            Work::Free { .. } => (ItemKind::Efi, ItemKind::Efd),
            Work::FreeRealtime { .. } => (ItemKind::EfiRealtime, ItemKind::EfdRealtime),
            Work::Rmap { .. } => (ItemKind::Rui, ItemKind::Rud),
            Work::Refcount { .. } => (ItemKind::Cui, ItemKind::Cud),
            Work::Bmap { .. } => (ItemKind::Bui, ItemKind::Bud),
            Work::Parent(_) => (ItemKind::Attri, ItemKind::Attrd),
        }
    }

    fn append(&self, to: &mut Vec<u8>) {
        match *self {
            Work::Free { start, len, .. } | Work::FreeRealtime { start, len } => {
                let mut raw = RawExtent::zeroed();
                raw.start.set(start);
                raw.len.set(len);
                to.extend_from_slice(raw.as_bytes());
            }
            Work::Rmap { flags, owner, start, offset, len }
            | Work::Bmap { flags, ino: owner, start, offset, len } => {
                let mut raw = RawMapExtent::zeroed();
                raw.owner.set(owner);
                raw.start.set(start);
                raw.offset.set(offset);
                raw.len.set(len);
                raw.flags.set(flags);
                to.extend_from_slice(raw.as_bytes());
            }
            Work::Refcount { flags, start, len } => {
                let mut raw = RawPhysExtent::zeroed();
                raw.start.set(start);
                raw.len.set(len);
                raw.flags.set(flags);
                to.extend_from_slice(raw.as_bytes());
            }
            // Never logged from here.
            Work::Parent(_) => {}
        }
    }
}

/// What an item that is logged once means for the AIL.
pub(crate) enum IntentRole {
    /// Stays in the AIL until its done item is in the log.
    Intent,
    /// Ends an intent.
    Done(Arc<IntentItem>),
    /// Is nothing after it was logged.
    Once,
}

/// An intent, a done item, or anything else that is formatted once.
pub(crate) struct IntentItem {
    pub core: ItemCore,
    pub role: IntentRole,
    /// What ties a done item to its intent.
    pub id: u64,
    pub work: Vec<Work>,
    region: Vec<u8>,
}

impl IntentItem {
    pub fn intent(id: u64, work: Vec<Work>) -> Arc<IntentItem> {
        let (kind, _) = work[0].kinds();
        let mut region = Vec::new();
        let count = work.len() as u32;
        if matches!(kind, ItemKind::Efi | ItemKind::EfiRealtime) {
            let mut raw = RawFreeIntent::zeroed();
            raw.kind.set(kind as u16);
            raw.size.set(1);
            raw.nextents.set(count);
            raw.id.set(id);
            region.extend_from_slice(raw.as_bytes());
        } else {
            let mut raw = RawIntent::zeroed();
            raw.kind.set(kind as u16);
            raw.size.set(1);
            raw.nextents.set(count);
            raw.id.set(id);
            region.extend_from_slice(raw.as_bytes());
        }
        work.iter().for_each(|work| work.append(&mut region));
        let role = IntentRole::Intent;
        Arc::new(IntentItem { core: ItemCore::new(), role, id, work, region })
    }

    pub fn done(intent: &Arc<IntentItem>) -> Arc<IntentItem> {
        let (_, kind) = intent.work[0].kinds();
        let mut region = Vec::new();
        if matches!(kind, ItemKind::Efd | ItemKind::EfdRealtime) {
            let mut raw = RawFreeIntent::zeroed();
            raw.kind.set(kind as u16);
            raw.size.set(1);
            raw.nextents.set(intent.work.len() as u32);
            raw.id.set(intent.id);
            region.extend_from_slice(raw.as_bytes());
            intent.work.iter().for_each(|work| work.append(&mut region));
        } else {
            let mut raw = RawIntentDone::zeroed();
            raw.kind.set(kind as u16);
            raw.size.set(1);
            raw.id.set(intent.id);
            region.extend_from_slice(raw.as_bytes());
        }
        let role = IntentRole::Done(intent.clone());
        let (id, work) = (intent.id, Vec::new());
        Arc::new(IntentItem { core: ItemCore::new(), role, id, work, region })
    }

    /// A region that is logged once and means nothing afterwards.
    pub fn once(region: Vec<u8>) -> Arc<IntentItem> {
        let role = IntentRole::Once;
        Arc::new(IntentItem { core: ItemCore::new(), role, id: 0, work: Vec::new(), region })
    }

    pub fn format(&self, vec: &mut LogVec) {
        vec.clear();
        vec.append(|bytes| bytes.extend_from_slice(&self.region));
    }
}
