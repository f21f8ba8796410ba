//! The reverse map: who owns which blocks of a group, or of a group of the realtime section.
//!
//! Records of one owner that continue each other are one record. Blocks that files share have a
//! record for each of them, so that records may overlap.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on the reverse mapping btree.

use std::ops::RangeInclusive;

use rt::Cx;

use super::store::AgfTree;
use super::{Agf, Space};
use crate::btree::key::record_order;
use crate::btree::{Store, Tree};
use crate::error::Result;
use crate::format::log_item::{
    RMAP_ATTR_FORK as LOG_ATTR_FORK, RMAP_BMBT_BLOCK, RMAP_UNWRITTEN as LOG_UNWRITTEN, RmapOp,
};
use crate::format::record::{RMAP_ATTR_FORK, RMAP_BMBT, RMAP_UNWRITTEN, Rmap};
use crate::format::{Kind, Owner};
use crate::trans::Trans;

const FLAGS: u64 = RMAP_ATTR_FORK | RMAP_BMBT | RMAP_UNWRITTEN;

/// Whether `part` lies within `whole`, as the same thing.
fn covers(whole: &Rmap, part: &Rmap) -> bool {
    let within = whole.start <= part.start && part.start + part.len <= whole.start + whole.len;
    let skip = u64::from(part.start.wrapping_sub(whole.start));
    let offset = if whole.has_offset() { whole.offset + skip } else { whole.offset };
    within && whole.owner == part.owner && offset == part.offset
}

/// The flags of deferred work that does `op` to what `owner` has.
pub(crate) fn work_flags(owner: Owner, op: RmapOp) -> u32 {
    let flag = |bit: u64, flag: u32| if owner.offset & bit != 0 { flag } else { 0 };
    op as u32
        | flag(RMAP_ATTR_FORK, LOG_ATTR_FORK)
        | flag(RMAP_BMBT, RMAP_BMBT_BLOCK)
        | flag(RMAP_UNWRITTEN, LOG_UNWRITTEN)
}

fn bytes(record: &Rmap) -> [u8; 24] {
    let mut data = [0; 24];
    record.write(&mut data);
    data
}

/// A reverse map: that of a group, or of a group of the realtime section.
impl<S: Store> Tree<'_, S> {
    /// The records that have one of these blocks, in order.
    pub(crate) fn owners(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        blocks: RangeInclusive<u32>,
    ) -> Result<Vec<Rmap>> {
        let records = self.overlapping(cx, trans, blocks)?;
        Ok(records.iter().map(|record| Rmap::read(record)).collect())
    }

    fn delete_owner(&mut self, cx: &mut Cx, trans: &mut Trans, old: &Rmap) -> Result<()> {
        match self.find(cx, trans, record_order(Kind::Rmap, &bytes(old)))? {
            Some(cursor) => self.delete(cx, trans, cursor),
            None => Err(self.broken("a record vanished")),
        }
    }

    fn resize_owner(&mut self, cx: &mut Cx, trans: &mut Trans, old: &Rmap, len: u32) -> Result<()> {
        match self.find(cx, trans, record_order(Kind::Rmap, &bytes(old)))? {
            Some(cursor) => self.update(trans, &cursor, &bytes(&Rmap { len, ..*old })),
            None => return Err(self.broken("a record vanished")),
        }
        Ok(())
    }

    /// Notes an owner of blocks. May park.
    ///
    /// # Errors
    /// What the tree says.
    pub(super) fn add_owner(&mut self, cx: &mut Cx, trans: &mut Trans, new: Rmap) -> Result<()> {
        let around = new.start.saturating_sub(1)..=new.start + new.len;
        let near = self.owners(cx, trans, around)?;
        let left = near.iter().find(|record| record.is_continued_by(&new));
        let right = near.iter().find(|record| new.is_continued_by(record));
        let more = right.map_or(0, |right| right.len);
        if let Some(right) = right {
            self.delete_owner(cx, trans, right)?;
        }
        match left {
            Some(left) => self.resize_owner(cx, trans, left, left.len + new.len + more),
            None => self.insert(cx, trans, &bytes(&Rmap { len: new.len + more, ..new })),
        }
    }

    /// Notes that an owner has blocks no more. May park.
    ///
    /// # Errors
    /// If it did not own them; what the tree says.
    pub(super) fn remove_owner(&mut self, cx: &mut Cx, trans: &mut Trans, old: Rmap) -> Result<()> {
        let end = old.start + old.len;
        let owners = self.owners(cx, trans, old.start..=end - 1)?;
        let Some(whole) = owners.iter().find(|record| covers(record, &old)).copied() else {
            return Err(self.broken("an owner is not known"));
        };
        let behind = whole.start + whole.len - end;
        if whole.start == old.start {
            self.delete_owner(cx, trans, &whole)?;
        } else {
            self.resize_owner(cx, trans, &whole, old.start - whole.start)?;
        }
        if behind > 0 {
            let skip = u64::from(end - whole.start);
            let offset = if whole.has_offset() { whole.offset + skip } else { whole.offset };
            let rest = Rmap { start: end, len: behind, offset, ..whole };
            self.insert(cx, trans, &bytes(&rest))?;
        }
        Ok(())
    }

    /// Carries out deferred work, as the log holds it: an operation with its flags, and a record
    /// whose flags are ignored.
    pub(super) fn change_owner(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        flags: u32,
        record: Rmap,
    ) -> Result<()> {
        let bit = |flag: u32, bit: u64| if flags & flag != 0 { bit } else { 0 };
        let kind = bit(LOG_ATTR_FORK, RMAP_ATTR_FORK) | bit(RMAP_BMBT_BLOCK, RMAP_BMBT);
        let offset = record.offset & !FLAGS | kind | bit(LOG_UNWRITTEN, RMAP_UNWRITTEN);
        let record = Rmap { offset, ..record };
        use RmapOp::*;
        match RmapOp::from_flags(flags) {
            Some(Map | MapShared | Alloc) => self.add_owner(cx, trans, record),
            Some(Unmap | UnmapShared | Free) => self.remove_owner(cx, trans, record),
            Some(Convert | ConvertShared) => {
                // The flags say how it shall be.
                let old = Rmap { offset: record.offset ^ RMAP_UNWRITTEN, ..record };
                self.remove_owner(cx, trans, old)?;
                self.add_owner(cx, trans, record)
            }
            None => Err(self.broken("an operation is not known")),
        }
    }
}

impl Space {
    fn rmap_tree<'a>(&'a self, agf: &'a Agf) -> AgfTree<'a> {
        AgfTree { space: self, agf, kind: Kind::Rmap }
    }

    /// The records that have one of these blocks, in order.
    pub(crate) fn owners(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        blocks: RangeInclusive<u32>,
    ) -> Result<Vec<Rmap>> {
        Tree::new(&mut self.rmap_tree(agf)).owners(cx, trans, blocks)
    }

    /// Notes an owner of blocks. Nothing where the file system keeps no reverse map. May park.
    ///
    /// # Errors
    /// What the tree says.
    pub(crate) fn map(&self, cx: &mut Cx, trans: &mut Trans, agf: &Agf, new: Rmap) -> Result<()> {
        match self.geometry.features.rmapbt() {
            true => Tree::new(&mut self.rmap_tree(agf)).add_owner(cx, trans, new),
            false => Ok(()),
        }
    }

    /// Notes that an owner has blocks no more. Nothing where the file system keeps no reverse map.
    /// May park.
    ///
    /// # Errors
    /// If it did not own them; what the tree says.
    pub(crate) fn unmap(&self, cx: &mut Cx, trans: &mut Trans, agf: &Agf, old: Rmap) -> Result<()> {
        match self.geometry.features.rmapbt() {
            true => Tree::new(&mut self.rmap_tree(agf)).remove_owner(cx, trans, old),
            false => Ok(()),
        }
    }

    /// Carries out deferred work on the reverse map of a group.
    pub(super) fn finish_rmap(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        flags: u32,
        record: Rmap,
    ) -> Result<()> {
        Tree::new(&mut self.rmap_tree(agf)).change_owner(cx, trans, flags, record)
    }
}
