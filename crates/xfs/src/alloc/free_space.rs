//! Takes extents out of the two trees of free space, and puts them back.

use std::ops::Range;

use rt::Cx;

use super::{Agf, Change, Space};
use crate::btree::key::{Order, record_order};
use crate::btree::{Store, Tree};
use crate::error::Result;
use crate::format::record::FreeExtent;
use crate::format::{AgExtent, At, CorruptKind, Kind};
use crate::trans::Trans;

/// The order of a free extent in the tree of this kind.
fn order(kind: Kind, extent: FreeExtent) -> Order {
    record_order(kind, &bytes(extent))
}

fn bytes(extent: FreeExtent) -> [u8; 8] {
    let mut record = [0; 8];
    extent.write(&mut record);
    record
}

fn remove<S: Store>(
    store: &mut S,
    cx: &mut Cx,
    trans: &mut Trans,
    extent: FreeExtent,
) -> Result<()> {
    let kind = store.kind();
    let mut tree = Tree::new(store);
    let found = tree.find(cx, trans, order(kind, extent))?;
    match found.filter(|cursor| FreeExtent::read(&tree.record(cursor)) == extent) {
        Some(cursor) => tree.delete(cx, trans, cursor),
        None => Err(tree.broken("a free extent of the other tree is missing")),
    }
}

fn insert<S: Store>(
    store: &mut S,
    cx: &mut Cx,
    trans: &mut Trans,
    extent: FreeExtent,
) -> Result<()> {
    Tree::new(store).insert(cx, trans, &bytes(extent))
}

/// Takes an extent out of both trees.
fn remove_both(
    space: &Space,
    cx: &mut Cx,
    trans: &mut Trans,
    agf: &Agf,
    extent: FreeExtent,
) -> Result<()> {
    remove(&mut space.by_block(agf), cx, trans, extent)?;
    remove(&mut space.by_size(agf), cx, trans, extent)
}

/// Puts an extent into both trees.
fn insert_both(
    space: &Space,
    cx: &mut Cx,
    trans: &mut Trans,
    agf: &Agf,
    extent: FreeExtent,
) -> Result<()> {
    insert(&mut space.by_block(agf), cx, trans, extent)?;
    insert(&mut space.by_size(agf), cx, trans, extent)
}

/// Puts another extent in the place of one: same place in the order by block.
fn replace(
    space: &Space,
    cx: &mut Cx,
    trans: &mut Trans,
    agf: &Agf,
    change: Change<FreeExtent>,
) -> Result<()> {
    let mut store = space.by_block(agf);
    let mut tree = Tree::new(&mut store);
    match tree.find(cx, trans, order(Kind::FreeByBlock, change.old))? {
        Some(cursor) => tree.update(trans, &cursor, &bytes(change.new)),
        None => return Err(tree.broken("a free extent is missing")),
    }
    resize(space, cx, trans, agf, change)
}

/// The same in the order by size.
fn resize(
    space: &Space,
    cx: &mut Cx,
    trans: &mut Trans,
    agf: &Agf,
    change: Change<FreeExtent>,
) -> Result<()> {
    let mut store = space.by_size(agf);
    let mut tree = Tree::new(&mut store);
    let found = tree.find(cx, trans, order(Kind::FreeBySize, change.old))?;
    match found.filter(|cursor| FreeExtent::read(&tree.record(cursor)) == change.old) {
        Some(cursor) => tree.relocate(cx, trans, cursor, &bytes(change.new)),
        None => Err(tree.broken("a free extent of the other tree is missing")),
    }
}

impl Space {
    /// The free extent that holds or follows a block.
    pub(super) fn free_at(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        block: u32,
    ) -> Result<(Option<FreeExtent>, Option<FreeExtent>)> {
        let mut store = self.by_block(agf);
        let mut tree = Tree::new(&mut store);
        let before = tree.find_le(cx, trans, [u64::from(block), 0, 0])?;
        let before = before.map(|cursor| FreeExtent::read(&tree.record(&cursor)));
        let behind = tree.find_ge(cx, trans, [u64::from(block) + 1, 0, 0])?;
        let behind = behind.map(|cursor| FreeExtent::read(&tree.record(&cursor)));
        Ok((before, behind))
    }

    /// Takes blocks out of the free extent that holds them. May park.
    ///
    /// # Errors
    /// If they are not free; the device failed.
    pub(super) fn carve(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        extent: AgExtent,
    ) -> Result<()> {
        let (Range { start, end }, len) = (extent.blocks(), extent.len);
        let mut store = self.by_block(agf);
        let mut tree = Tree::new(&mut store);
        let cursor = tree.find_le(cx, trans, [u64::from(start), 0, 0])?;
        let found = cursor.map(|cursor| (FreeExtent::read(&tree.record(&cursor)), cursor));
        let (whole, cursor) = found
            .filter(|(whole, _)| whole.start + whole.len >= end)
            .ok_or_else(|| CorruptKind::NotFree { block: start, count: len }.at(At::Agf(agf.ag)))?;
        let left = FreeExtent { start: whole.start, len: start - whole.start };
        let right = FreeExtent { start: end, len: whole.start + whole.len - end };
        match (left.len, right.len) {
            (0, 0) => {
                remove_both(self, cx, trans, agf, whole)?;
            }
            (before, behind) => {
                let rest = if before > 0 { left } else { right };
                tree.update(trans, &cursor, &bytes(rest));
                resize(self, cx, trans, agf, Change { old: whole, new: rest })?;
                if before > 0 && behind > 0 {
                    insert_both(self, cx, trans, agf, right)?;
                }
            }
        }
        agf.edit(trans, |raw| raw.agf_freeblks.set(raw.agf_freeblks.get() - len));
        Ok(())
    }

    /// Adds blocks to the free space, joined with what is free beside them. May park.
    ///
    /// # Errors
    /// If some of them are free already; the device failed.
    pub(super) fn put_free(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        agf: &Agf,
        extent: AgExtent,
    ) -> Result<()> {
        let (Range { start, end }, len) = (extent.blocks(), extent.len);
        let (before, behind) = self.free_at(cx, trans, agf, start)?;
        let twice = before.is_some_and(|before| before.start + before.len > start)
            || behind.is_some_and(|behind| behind.start < end);
        if twice {
            return Err(CorruptKind::FreedTwice { block: start, count: len }
                .at(At::Agf(agf.ag))
                .into());
        }
        let before = before.filter(|before| before.start + before.len == start);
        let behind = behind.filter(|behind| behind.start == end);
        match (before, behind) {
            (None, None) => {
                let extent = FreeExtent { start, len };
                insert_both(self, cx, trans, agf, extent)?;
            }
            (Some(before), None) => {
                let new = FreeExtent { len: before.len + len, ..before };
                replace(self, cx, trans, agf, Change { old: before, new })?;
            }
            (None, Some(behind)) => {
                let new = FreeExtent { start, len: len + behind.len };
                replace(self, cx, trans, agf, Change { old: behind, new })?;
            }
            (Some(before), Some(behind)) => {
                remove_both(self, cx, trans, agf, behind)?;
                let new = FreeExtent { len: before.len + len + behind.len, ..before };
                replace(self, cx, trans, agf, Change { old: before, new })?;
            }
        }
        agf.edit(trans, |raw| raw.agf_freeblks.set(raw.agf_freeblks.get() + len));
        Ok(())
    }
}
