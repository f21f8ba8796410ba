//! Intents to change an attribute, in the forms for ordinary ones and for parent pointers.
//!
//! The head is followed by regions for the name, for the new name where one pointer replaces
//! another, and for the value, if any, or both values. All are padded to four bytes.
//!
//! Source: logs of the kernel, `xfs_logprint`; what Linux 6.18 takes and refuses in logs that were
//! written by hand (`xfs_it log_attributes::`).

use super::{Logged, LoggedItem};
use crate::error::Result;
use crate::format::attr::AttrFlags;
use crate::format::attr_leaf::VALUE_MAX;
use crate::format::log_item::ItemKind;
use crate::log::LogError;
use crate::trans::intent::{AttributeChange, ParentChange, Work};

/// Bytes of the head.
const HEAD: usize = 40;
/// An ordinary attribute is set, removed, or replaced; the first and the last mean the same.
const ORDINARY: [u32; 3] = [1, 2, 3];
/// A pointer is set, removed, or replaced by another.
const OF_PARENTS: [u32; 3] = [4, 5, 6];

/// The head of an intent.
struct Head<'a> {
    tid: u32,
    item: &'a LoggedItem,
    generation: u32,
    id: u64,
    ino: u64,
    operation: u32,
    names: u32,
    values: u32,
    /// The space of the name.
    filter: u32,
}

/// Checks an intent; those of ordinary attributes are `allowed` where the superblock says so.
pub(super) fn parse_attribute(tid: u32, item: &LoggedItem, allowed: bool) -> Result<Logged> {
    let head = Head::parse(tid, item)?;
    let work = match head.operation {
        operation if ORDINARY.contains(&operation) && allowed => head.ordinary()?,
        operation if OF_PARENTS.contains(&operation) => head.of_parents()?,
        operation => return Err(head.bad("operation of an ATTRI", operation).into()),
    };
    Ok(Logged::Intent(ItemKind::Attri, head.id, vec![work]))
}

impl<'a> Head<'a> {
    fn parse(tid: u32, item: &'a LoggedItem) -> Result<Head<'a>> {
        let head = &item.regions[0];
        if head.len() != HEAD {
            return Err(bad_length(tid, head.len(), HEAD).into());
        }
        let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        Ok(Head {
            tid,
            item,
            generation: half(4),
            id: number(8),
            ino: number(16),
            operation: half(24),
            names: half(28),
            values: half(32),
            filter: half(36),
        })
    }

    fn bad(&self, what: &'static str, found: u32) -> LogError {
        LogError::ItemValue { tid: self.tid, what, found: found.into() }
    }

    /// The regions behind the head, which have these lengths without their padding.
    fn cut_parts(&self, lengths: &[usize]) -> Result<Vec<Vec<u8>>> {
        let regions = &self.item.regions[1..];
        if regions.len() != lengths.len() {
            return Err(bad_length(self.tid, 1 + regions.len(), 1 + lengths.len()).into());
        }
        let cut = |(region, &len): (&Vec<u8>, &usize)| {
            if region.len() != len.next_multiple_of(4) || len == 0 {
                return Err(bad_length(self.tid, region.len(), len).into());
            }
            Ok(region[..len].to_vec())
        };
        regions.iter().zip(lengths).map(cut).collect()
    }

    /// A change of an ordinary attribute.
    fn ordinary(&self) -> Result<Work> {
        let removes = self.operation == ORDINARY[1];
        let spaces = [AttrFlags::empty(), AttrFlags::ROOT, AttrFlags::SECURE];
        let Some(space) = spaces.into_iter().find(|space| u32::from(space.bits()) == self.filter)
        else {
            return Err(self.bad("name space of an ATTRI", self.filter).into());
        };
        if self.values > if removes { 0 } else { VALUE_MAX } {
            return Err(self.bad("bytes of a value in an ATTRI", self.values).into());
        }
        if self.names as usize > vfs::XATTR_NAME_MAX {
            return Err(self.bad("bytes of a name in an ATTRI", self.names).into());
        }
        let lengths = [self.names as usize, self.values as usize];
        let mut parts =
            self.cut_parts(&lengths[..if self.values > 0 { 2 } else { 1 }])?.into_iter();
        let name = parts.next().unwrap_or_default();
        if name.contains(&0) {
            return Err(self.bad("byte of a name in an ATTRI", 0).into());
        }
        let value = (!removes).then(|| parts.next().unwrap_or_default());
        Ok(Work::Attribute(AttributeChange { ino: self.ino, space, name, value }.into()))
    }

    /// A change of a parent pointer.
    fn of_parents(&self) -> Result<Work> {
        if self.filter != u32::from(AttrFlags::PARENT.bits()) {
            return Err(self.bad("name space of an ATTRI", self.filter).into());
        }
        let names = match self.operation == OF_PARENTS[2] {
            true => vec![(self.names & 0xffff) as usize, (self.names >> 16) as usize],
            false => vec![self.names as usize],
        };
        let values = names.iter().map(|_| self.values as usize);
        let lengths: Vec<usize> = names.iter().copied().chain(values).collect();
        let parts = self.cut_parts(&lengths)?;
        let mut pairs = parts[..names.len()].iter().zip(&parts[names.len()..]);
        let mut pair = || pairs.next().map(|(name, value)| (name.clone(), value.clone()));
        let (old, new) = match self.operation {
            4 => (None, pair()),
            _ => (pair(), pair()),
        };
        let change = ParentChange { ino: self.ino, generation: self.generation, old, new };
        Ok(Work::Parent(change.into()))
    }
}

fn bad_length(tid: u32, found: usize, expected: usize) -> LogError {
    let (found, expected) = (found as u64, expected as u64);
    LogError::ItemLength { tid, what: ItemKind::Attri.name(), found, expected }
}
