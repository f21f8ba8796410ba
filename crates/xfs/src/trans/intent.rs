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

use crate::format::attr::AttrFlags;
use crate::format::log_item::{
    ItemKind, RawExtent, RawFreeIntent, RawIntent, RawIntentDone, RawMapExtent, RawPhysExtent,
};
use crate::format::{Owner, Section};
use crate::log::item::{ItemCore, LogVec};

/// Extents that one intent names at the most.
const EXTENTS_MAX: usize = 16;

/// One piece of deferred work. Block numbers are file-system blocks, group in the high bits, as
/// the log holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// An extent becomes free space (EFI, EFI_RT).
    Free {
        /// Where it lies.
        section: Section,
        /// First block.
        start: u64,
        /// Blocks.
        len: u32,
        /// Whose it was, for the reverse map. None if the reverse map is not to be changed, and
        /// after a crash, when nobody knows.
        owner: Option<Owner>,
    },
    /// The reverse map changes (RUI, RUI_RT).
    Rmap {
        /// Which one.
        section: Section,
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
    /// Reference counts change (CUI, CUI_RT).
    Refcount {
        /// Which ones.
        section: Section,
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
    /// An ordinary attribute changes (ATTRI). Only recovery meets it.
    Attribute(Arc<AttributeChange>),
    /// Two files exchange ranges of their content (XMI). Who defers it carries it out.
    Exchange(Arc<Exchange>),
}

/// What is left of an exchange of ranges between two files, as an XMI names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// The two files; where one is on its own, twice the same.
    pub sides: [ExchangeSide; 2],
    /// Blocks.
    pub blocks: u64,
    /// See [`exchange_flags`].
    pub flags: u64,
}

/// One of the two files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExchangeSide {
    /// Its inode.
    pub ino: u64,
    /// The inode's generation.
    pub generation: u32,
    /// The first block of the range in it.
    pub start: u64,
    /// Its size afterwards.
    pub size: u64,
}

/// What an exchange is to do.
pub mod exchange_flags {
    /// Attributes, not content.
    pub const ATTR_FORK: u64 = 1;
    /// Both files get new sizes.
    pub const SET_SIZES: u64 = 2;
    /// Only what is written in the first file.
    pub const WRITTEN_ONLY: u64 = 4;
    /// The first file, or the second one, shares no blocks afterwards.
    pub const CLEAR_REFLINK: [u64; 2] = [8, 0x10];
    /// All of them.
    pub const ALL: u64 = 0x1f;
}

impl Exchange {
    /// The item of the log, without its first 16 bytes.
    fn append(&self, to: &mut Vec<u8>) {
        let [one, two] = &self.sides;
        [one.ino, two.ino].iter().for_each(|ino| to.extend_from_slice(&ino.to_le_bytes()));
        let generations = [one.generation, two.generation];
        generations.iter().for_each(|number| to.extend_from_slice(&number.to_le_bytes()));
        let numbers = [one.start, two.start, self.blocks, self.flags, one.size, two.size];
        numbers.iter().for_each(|number| to.extend_from_slice(&number.to_le_bytes()));
    }
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

/// What an ATTRI for an ordinary attribute asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttributeChange {
    /// The inode that has the attribute.
    pub ino: u64,
    /// The space of its name.
    pub space: AttrFlags,
    /// What follows the prefix of its name.
    pub name: Vec<u8>,
    /// Its value from now on; none if it goes.
    pub value: Option<Vec<u8>>,
}

impl Work {
    /// An extent of the file system's device becomes free.
    pub(crate) fn free(start: u64, len: u32, owner: Option<Owner>) -> Work {
        Work::Free { section: Section::Data, start, len, owner }
    }

    /// Pieces of this kind that one intent names at the most. Linux refuses more maps than one.
    pub(crate) fn most_together(&self) -> usize {
        match self {
            Work::Bmap { .. } | Work::Parent(_) | Work::Attribute(_) | Work::Exchange(_) => 1,
            _ => EXTENTS_MAX,
        }
    }

    /// Types of the intent and of its done item.
    pub(crate) fn kinds(&self) -> (ItemKind, ItemKind) {
        use Section::{Data, Realtime};
        match self {
            Work::Free { section: Data, .. } => (ItemKind::Efi, ItemKind::Efd),
            Work::Free { section: Realtime, .. } => (ItemKind::EfiRealtime, ItemKind::EfdRealtime),
            Work::Rmap { section: Data, .. } => (ItemKind::Rui, ItemKind::Rud),
            Work::Rmap { section: Realtime, .. } => (ItemKind::RuiRealtime, ItemKind::RudRealtime),
            Work::Refcount { section: Data, .. } => (ItemKind::Cui, ItemKind::Cud),
            Work::Refcount { section: Realtime, .. } => {
                (ItemKind::CuiRealtime, ItemKind::CudRealtime)
            }
            Work::Bmap { .. } => (ItemKind::Bui, ItemKind::Bud),
            Work::Parent(_) | Work::Attribute(_) => (ItemKind::Attri, ItemKind::Attrd),
            Work::Exchange(_) => (ItemKind::Xmi, ItemKind::Xmd),
        }
    }

    fn append(&self, to: &mut Vec<u8>) {
        match *self {
            Work::Exchange(ref exchange) => exchange.append(to),
            Work::Free { start, len, .. } => {
                let mut raw = RawExtent::zeroed();
                raw.start.set(start);
                raw.len.set(len);
                to.extend_from_slice(raw.as_bytes());
            }
            Work::Rmap { flags, owner, start, offset, len, .. }
            | Work::Bmap { flags, ino: owner, start, offset, len } => {
                let mut raw = RawMapExtent::zeroed();
                raw.owner.set(owner);
                raw.start.set(start);
                raw.offset.set(offset);
                raw.len.set(len);
                raw.flags.set(flags);
                to.extend_from_slice(raw.as_bytes());
            }
            Work::Refcount { flags, start, len, .. } => {
                let mut raw = RawPhysExtent::zeroed();
                raw.start.set(start);
                raw.len.set(len);
                raw.flags.set(flags);
                to.extend_from_slice(raw.as_bytes());
            }
            // Never logged from here.
            Work::Parent(_) | Work::Attribute(_) => {}
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
            // Padding where there is only ever one.
            raw.nextents.set(if kind == ItemKind::Xmi { 0 } else { count });
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
