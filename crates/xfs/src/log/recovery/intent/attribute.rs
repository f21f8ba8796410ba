//! Intents to change an attribute, in the forms for parent pointers.
//!
//! The head is followed by regions for the name, for the new name where one pointer replaces
//! another, and for the value or both values. Names are padded to four bytes.
//!
//! Source: logs of the kernel, `xfs_logprint`.

use super::{Logged, LoggedItem};
use crate::error::Result;
use crate::format::attr::AttrFlags;
use crate::format::log_item::ItemKind;
use crate::log::LogError;
use crate::trans::intent::{ParentChange, Work};

/// Bytes of the head.
const HEAD: usize = 40;
/// A pointer is set, removed, or replaced by another.
const OPERATIONS: [u32; 3] = [4, 5, 6];

/// Checks an intent.
pub(super) fn parse_parent_change(tid: u32, item: &LoggedItem) -> Result<Logged> {
    let what = ItemKind::Attri.name();
    let length = |found: usize, expected: usize| {
        let (found, expected) = (found as u64, expected as u64);
        LogError::ItemLength { tid, what, found, expected }
    };
    let value = |what, found: u64| LogError::ItemValue { tid, what, found };
    let head = &item.regions[0];
    if head.len() != HEAD {
        return Err(length(head.len(), HEAD).into());
    }
    let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    let (operation, filter) = (half(24), half(36));
    if !OPERATIONS.contains(&operation) {
        return Err(value("operation of an ATTRI", operation.into()).into());
    }
    if filter != u32::from(AttrFlags::PARENT.bits()) {
        return Err(value("name space of an ATTRI", filter.into()).into());
    }
    let replaces = operation == OPERATIONS[2];
    let (names, values) = (half(28), half(32) as usize);
    let names = match replaces {
        true => vec![(names & 0xffff) as usize, (names >> 16) as usize],
        false => vec![names as usize],
    };
    let lengths: Vec<usize> = names.iter().copied().chain(names.iter().map(|_| values)).collect();
    if item.regions.len() != 1 + lengths.len() {
        return Err(length(item.regions.len(), 1 + lengths.len()).into());
    }
    let mut parts = Vec::with_capacity(lengths.len());
    for (region, len) in item.regions[1..].iter().zip(lengths) {
        if region.len() != len.next_multiple_of(4) || len == 0 {
            return Err(length(region.len(), len).into());
        }
        parts.push(region[..len].to_vec());
    }
    let mut pairs = parts[..names.len()].iter().zip(&parts[names.len()..]);
    let mut pair = || pairs.next().map(|(name, value)| (name.clone(), value.clone()));
    let (old, new) = match operation {
        4 => (None, pair()),
        _ => (pair(), pair()),
    };
    let change = ParentChange { ino: number(16), generation: half(4), old, new };
    let work = vec![Work::Parent(change.into())];
    Ok(Logged::Intent(ItemKind::Attri, number(8), work))
}
