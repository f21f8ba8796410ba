//! Intents from the log, and which of them were never finished.

use std::collections::BTreeMap;

mod attribute;
mod exchange;

use super::transaction::LoggedItem;
use crate::error::Result;
use crate::format::Section;
use crate::format::log::Lsn;
use crate::format::log_item::{
    ItemKind, RawExtent, RawFreeIntent, RawIntent, RawIntentDone, RawMapExtent, RawPhysExtent,
    RefcountOp, RmapOp,
};
use crate::log::LogError;
use crate::trans::intent::Work;

/// An intent that has no done item.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// Its number in the log.
    pub id: u64,
    /// The record in which its transaction begins.
    pub lsn: Lsn,
    /// What it promises.
    pub work: Vec<Work>,
}

/// An intent or a done item, checked.
pub(super) enum Logged {
    Intent(ItemKind, u64, Vec<Work>),
    Done(ItemKind, u64),
}

/// Extents of an intent at the most; Linux writes far fewer.
const EXTENTS_MAX: u32 = 4096;

/// Checks an intent or a done item.
pub(super) fn parse(
    tid: u32,
    kind: ItemKind,
    item: &LoggedItem,
    logged_attributes: bool,
) -> Result<Logged> {
    if kind == ItemKind::Attri {
        return attribute::parse_attribute(tid, item, logged_attributes);
    }
    let bytes = &item.regions[0][..];
    let short =
        || LogError::ItemLength { tid, what: kind.name(), found: bytes.len() as u64, expected: 16 };
    if item.regions.len() != 1 || bytes.len() < 16 {
        return Err(short().into());
    }
    let intent_of = match kind {
        ItemKind::Efd => Some((ItemKind::Efi, RawFreeIntent::view(bytes).map(|raw| raw.id.get()))),
        ItemKind::Rud => Some((ItemKind::Rui, RawIntentDone::view(bytes).map(|raw| raw.id.get()))),
        ItemKind::Cud => Some((ItemKind::Cui, RawIntentDone::view(bytes).map(|raw| raw.id.get()))),
        ItemKind::Bud => Some((ItemKind::Bui, RawIntentDone::view(bytes).map(|raw| raw.id.get()))),
        ItemKind::Attrd => {
            Some((ItemKind::Attri, RawIntentDone::view(bytes).map(|raw| raw.id.get())))
        }
        ItemKind::Xmd => Some((ItemKind::Xmi, RawIntentDone::view(bytes).map(|raw| raw.id.get()))),
        ItemKind::EfdRealtime => {
            Some((ItemKind::EfiRealtime, RawFreeIntent::view(bytes).map(|raw| raw.id.get())))
        }
        ItemKind::RudRealtime => {
            Some((ItemKind::RuiRealtime, RawIntentDone::view(bytes).map(|raw| raw.id.get())))
        }
        ItemKind::CudRealtime => {
            Some((ItemKind::CuiRealtime, RawIntentDone::view(bytes).map(|raw| raw.id.get())))
        }
        _ => None,
    };
    if let Some((intent, id)) = intent_of {
        return Ok(Logged::Done(intent, id.ok_or_else(short)?));
    }
    if kind == ItemKind::Xmi {
        return exchange::parse_exchange(tid, bytes);
    }
    let raw = RawIntent::view(bytes).ok_or_else(short)?;
    let (id, count) = (raw.id.get(), raw.nextents.get());
    if count == 0 || count > EXTENTS_MAX {
        let (what, found) = ("extents of an intent", u64::from(count));
        return Err(LogError::ItemValue { tid, what, found }.into());
    }
    Ok(Logged::Intent(kind, id, work(tid, kind, &bytes[16..], count as usize)?))
}

fn work(tid: u32, kind: ItemKind, bytes: &[u8], count: usize) -> Result<Vec<Work>> {
    let full = match kind {
        ItemKind::Efi | ItemKind::EfiRealtime => size_of::<RawExtent>(),
        ItemKind::Cui | ItemKind::CuiRealtime => size_of::<RawPhysExtent>(),
        _ => size_of::<RawMapExtent>(),
    };
    // Hosts of 32 bits leave the padding of a free extent out.
    let packed = kind == ItemKind::Efi && bytes.len() == count * 12;
    let size = if packed { 12 } else { full };
    if bytes.len() != count * size {
        let (found, expected) = (bytes.len() as u64, (count * size) as u64);
        return Err(LogError::ItemLength { tid, what: kind.name(), found, expected }.into());
    }
    bytes.chunks_exact(size).map(|extent| one(tid, kind, extent)).collect()
}

fn one(tid: u32, kind: ItemKind, bytes: &[u8]) -> Result<Work> {
    let bad = |what, flags: u32| LogError::ItemValue { tid, what, found: u64::from(flags) };
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let section = Section::of(matches!(
        kind,
        ItemKind::EfiRealtime | ItemKind::RuiRealtime | ItemKind::CuiRealtime
    ));
    Ok(match kind {
        ItemKind::Efi | ItemKind::EfiRealtime => {
            Work::Free { section, start: number(0), len: half(8), owner: None }
        }
        ItemKind::Cui | ItemKind::CuiRealtime => {
            let flags = half(12);
            RefcountOp::from_flags(flags).ok_or_else(|| bad("operation of a CUI", flags))?;
            Work::Refcount { section, flags, start: number(0), len: half(8) }
        }
        _ => {
            let (owner, start, offset) = (number(0), number(8), number(16));
            let (len, flags) = (half(24), half(28));
            if kind == ItemKind::Bui {
                if !matches!(flags & 0xff, 1 | 2) {
                    return Err(bad("operation of a BUI", flags).into());
                }
                Work::Bmap { flags, ino: owner, start, offset, len }
            } else {
                RmapOp::from_flags(flags).ok_or_else(|| bad("operation of a RUI", flags))?;
                Work::Rmap { section, flags, owner, start, offset, len }
            }
        }
    })
}

/// Which intents are open.
#[derive(Default)]
pub(super) struct Intents {
    open: BTreeMap<(ItemKind, u64), (u64, super::IntentWork)>,
    next: u64,
}

impl Intents {
    pub fn take(&mut self, lsn: Lsn, logged: Logged) {
        match logged {
            Logged::Intent(kind, id, work) => {
                self.next += 1;
                self.open.insert((kind, id), (self.next, (lsn, work)));
            }
            Logged::Done(kind, id) => {
                self.open.remove(&(kind, id));
            }
        }
    }

    /// The name of an open one that is of none of these kinds.
    pub fn first_open_but(&self, kinds: &[ItemKind]) -> Option<&'static str> {
        let mut open = self.open.keys().map(|key| key.0);
        open.find(|kind| !kinds.contains(kind)).map(ItemKind::name)
    }

    /// All that are open, in the order of the log.
    pub fn into_open(self) -> Vec<Unfinished> {
        let mut open: Vec<_> = self.open.into_iter().collect();
        open.sort_by_key(|(_, (order, _))| *order);
        let unfinished = open.into_iter();
        unfinished.map(|((_, id), (_, (lsn, work)))| Unfinished { id, lsn, work }).collect()
    }
}
