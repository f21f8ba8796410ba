//! The reverse map: who owns which blocks of a group.
//!
//! Records of one owner that continue each other are one record. Blocks that files share have a
//! record for each of them, so that records may overlap.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on the reverse mapping btree.

use std::ops::RangeInclusive;

use rt::Cx;

use super::store::AgfTree;
use super::{Agf, Space};
use crate::btree::Tree;
use crate::btree::key::record_order;
use crate::error::Result;
use crate::format::log_item::{
    RMAP_ATTR_FORK as LOG_ATTR_FORK, RMAP_BMBT_BLOCK, RMAP_UNWRITTEN as LOG_UNWRITTEN, RmapOp,
};
use crate::format::record::{RMAP_ATTR_FORK, RMAP_BMBT, RMAP_UNWRITTEN, Rmap};
use crate::format::{Kind, Owner};
use crate::trans::Trans;

const FLAGS: u64 = RMAP_ATTR_FORK | RMAP_BMBT | RMAP_UNWRITTEN;

/// Whether `next` continues `record`.
fn joins(record: &Rmap, next: &Rmap) -> bool {
    let offset = if record.has_offset() { u64::from(record.len) } else { 0 };
    record.owner == next.owner
        && record.start + record.len == next.start
        && record.offset & FLAGS == next.offset & FLAGS
        && record.offset + offset == next.offset
}

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
        let mut store = self.rmap_tree(agf);
        let records = Tree::new(&mut store).overlapping(cx, trans, blocks)?;
        Ok(records.iter().map(|record| Rmap::read(record)).collect())
    }

    fn delete_record(&self, cx: &mut Cx, trans: &mut Trans, agf: &Agf, old: &Rmap) -> Result<()> {
        let mut store = self.rmap_tree(agf);
        let mut tree = Tree::new(&mut store);
        match tree.find(cx, trans, record_order(Kind::Rmap, &bytes(old)))? {
            Some(cursor) => tree.delete(cx, trans, cursor),
            None => Err(tree.broken("a record vanished")),
        }
    }

    fn resize_record(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        old: &Rmap,
        len: u32,
    ) -> Result<()> {
        let mut store = self.rmap_tree(agf);
        let mut tree = Tree::new(&mut store);
        match tree.find(cx, trans, record_order(Kind::Rmap, &bytes(old)))? {
            Some(cursor) => tree.update(trans, &cursor, &bytes(&Rmap { len, ..*old })),
            None => return Err(tree.broken("a record vanished")),
        }
        Ok(())
    }

    fn insert_record(&self, cx: &mut Cx, trans: &mut Trans, agf: &Agf, new: &Rmap) -> Result<()> {
        let mut store = self.rmap_tree(agf);
        Tree::new(&mut store).insert(cx, trans, &bytes(new))
    }

    /// Notes an owner of blocks. Nothing where the file system keeps no reverse map. May park.
    ///
    /// # Errors
    /// What the tree says.
    pub(crate) fn map(&self, cx: &mut Cx, trans: &mut Trans, agf: &Agf, new: Rmap) -> Result<()> {
        if !self.geometry.features.rmapbt() {
            return Ok(());
        }
        let around = new.start.saturating_sub(1)..=new.start + new.len;
        let near = self.owners(cx, trans, agf, around)?;
        let left = near.iter().find(|record| joins(record, &new));
        let right = near.iter().find(|record| joins(&new, record));
        let more = right.map_or(0, |right| right.len);
        if let Some(right) = right {
            self.delete_record(cx, trans, agf, right)?;
        }
        match left {
            Some(left) => self.resize_record(cx, trans, agf, left, left.len + new.len + more),
            None => self.insert_record(cx, trans, agf, &Rmap { len: new.len + more, ..new }),
        }
    }

    /// Notes that an owner has blocks no more. Nothing where the file system keeps no reverse map.
    /// May park.
    ///
    /// # Errors
    /// If it did not own them; what the tree says.
    pub(crate) fn unmap(&self, cx: &mut Cx, trans: &mut Trans, agf: &Agf, old: Rmap) -> Result<()> {
        if !self.geometry.features.rmapbt() {
            return Ok(());
        }
        let end = old.start + old.len;
        let owners = self.owners(cx, trans, agf, old.start..=end - 1)?;
        let Some(whole) = owners.iter().find(|record| covers(record, &old)).copied() else {
            return Err(Tree::new(&mut self.rmap_tree(agf)).broken("an owner is not known"));
        };
        let behind = whole.start + whole.len - end;
        if whole.start == old.start {
            self.delete_record(cx, trans, agf, &whole)?;
        } else {
            self.resize_record(cx, trans, agf, &whole, old.start - whole.start)?;
        }
        if behind > 0 {
            let skip = u64::from(end - whole.start);
            let offset = if whole.has_offset() { whole.offset + skip } else { whole.offset };
            let rest = Rmap { start: end, len: behind, offset, ..whole };
            self.insert_record(cx, trans, agf, &rest)?;
        }
        Ok(())
    }

    /// Carries out deferred work, as the log holds it: an operation with its flags, and a record
    /// whose flags are ignored.
    pub(super) fn finish_rmap(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        flags: u32,
        record: Rmap,
    ) -> Result<()> {
        let bit = |flag: u32, bit: u64| if flags & flag != 0 { bit } else { 0 };
        let kind = bit(LOG_ATTR_FORK, RMAP_ATTR_FORK) | bit(RMAP_BMBT_BLOCK, RMAP_BMBT);
        let offset = record.offset & !FLAGS | kind | bit(LOG_UNWRITTEN, RMAP_UNWRITTEN);
        let record = Rmap { offset, ..record };
        use RmapOp::*;
        match RmapOp::from_flags(flags) {
            Some(Map | MapShared | Alloc) => self.map(cx, trans, agf, record),
            Some(Unmap | UnmapShared | Free) => self.unmap(cx, trans, agf, record),
            Some(Convert | ConvertShared) => {
                // The flags say how it shall be.
                let old = Rmap { offset: record.offset ^ RMAP_UNWRITTEN, ..record };
                self.unmap(cx, trans, agf, old)?;
                self.map(cx, trans, agf, record)
            }
            None => Err(Tree::new(&mut self.rmap_tree(agf)).broken("an operation is not known")),
        }
    }
}
