//! Changing the map of a fork: extents are added and taken out, and the map takes the form that
//! holds them, a list in the inode or a btree.

use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

use base::{FsBlock, Ino};
use rt::Cx;
use smallvec::SmallVec;

use super::{Extents, Fork, Which};
use crate::alloc::{AllocRequest, Space};
use crate::btree::{Store, Tree, key};
use crate::buf::BufMap;
use crate::error::Result;
use crate::format::btree::{self, MapRoot};
use crate::format::extent::{COUNT_MAX, EXTENT_SIZE, Extent};
use crate::format::inode::ForkFormat;
use crate::format::{AgBlock, At, Expect, Kind, Owner, RealtimeShape, Section};
use crate::trans::Trans;
use crate::trans::intent::Work;

/// Extents of one change.
type Few = SmallVec<[Extent; 4]>;

/// A fork whose map is changed in a transaction. The caller holds the inode's locks, has read the
/// extents, and logs the inode afterwards: core and fork.
pub(crate) struct MapEdit<'a> {
    pub space: &'a Space,
    pub ino: Ino,
    pub which: Which,
    pub fork: &'a mut Fork,
    /// Blocks of the inode, those of btrees included.
    pub blocks: &'a mut u64,
    /// Where blocks of the btree should lie.
    pub near: AgBlock,
    /// Blocks of the realtime section that the fork has, where somebody counts them.
    pub content: Option<&'a AtomicI64>,
}

/// The btree below a root in the inode.
struct MapTree<'a> {
    space: &'a Space,
    ino: Ino,
    which: Which,
    root: &'a mut Vec<u8>,
    blocks: &'a mut u64,
    near: AgBlock,
}

impl MapTree<'_> {
    fn owner(&self) -> Owner {
        Owner::block_map(self.ino.0, self.which == Which::Attr)
    }
}

impl Store for MapTree<'_> {
    fn kind(&self) -> Kind {
        Kind::Bmap
    }

    fn block_size(&self) -> usize {
        self.space.geometry.block_size as usize
    }

    fn root(&self) -> (u64, u32) {
        (u64::MAX, u32::from(crate::format::u16_at(self.root, 0)) + 1)
    }

    fn set_root(&mut self, _trans: &mut Trans, _block: u64, levels: u32) {
        crate::format::put_u16(self.root, 0, levels as u16 - 1);
    }

    fn map(&self, block: u64) -> BufMap {
        self.space.block_map(self.space.geometry.split(FsBlock(block)))
    }

    fn expect(&self, block: u64) -> Expect {
        self.space.geometry.expect(self.map(block).daddr, Some(self.ino.0))
    }

    fn at(&self, _block: u64) -> At {
        At::Inode(self.ino)
    }

    fn allocate(&mut self, cx: &mut Cx, trans: &mut Trans, near: u64) -> Result<u64> {
        let near = match self.space.geometry.block_valid(FsBlock(near)) {
            true => self.space.geometry.split(FsBlock(near)),
            false => self.near,
        };
        let want = AllocRequest { this_group: false, ..AllocRequest::block(near, self.owner()) };
        let found = self.space.allocate_metadata(cx, trans, &want)?;
        *self.blocks += 1;
        Ok(self.space.geometry.join(found.start).0)
    }

    fn free(&mut self, _cx: &mut Cx, trans: &mut Trans, block: u64) -> Result<()> {
        *self.blocks -= 1;
        trans.defer(Work::free(block, 1, Some(self.owner())));
        Ok(())
    }

    fn inode_root(&mut self) -> Option<&mut Vec<u8>> {
        Some(self.root)
    }
}

/// Joins neighbours that continue each other. Those of the realtime section do not reach over the
/// border of a group, where numbers may go on.
fn joined(extents: Few, section: Option<&RealtimeShape>) -> Few {
    let whole = |start, count| section.is_none_or(|section| section.holds(start, count));
    let mut all = Few::new();
    for extent in extents {
        match all.last_mut() {
            Some(last)
                if last.joins(&extent)
                    && u64::from(last.count) + u64::from(extent.count) <= COUNT_MAX
                    && whole(last.start, u64::from(last.count) + u64::from(extent.count)) =>
            {
                last.count += extent.count;
            }
            _ => all.push(extent),
        }
    }
    all
}

/// Puts `new` in the place of a run of `extents`; what lies behind moves once at the most.
fn replace(extents: &mut Extents, range: Range<usize>, new: &[Extent]) {
    let (same, more) = new.split_at(new.len().min(range.len()));
    let middle = range.start + same.len();
    extents[range.start..middle].copy_from_slice(same);
    extents.drain(middle..range.end);
    extents.insert_from_slice(middle, more);
}

/// The part of an extent within a range.
pub(crate) fn part(extent: &Extent, range: Range<u64>) -> Extent {
    let first = extent.offset.max(range.start);
    let count = (extent.end().min(range.end) - first) as u32;
    Extent { offset: first, start: extent.start + (first - extent.offset), count, ..*extent }
}

impl MapEdit<'_> {
    fn extents(&self) -> &[Extent] {
        self.fork.extents.as_deref().expect("the extents were read")
    }

    /// Where the extents lie.
    pub fn place(&self) -> Section {
        Section::of(self.fork.realtime)
    }

    /// The realtime section, where the extents lie there.
    fn section(&self) -> Option<&RealtimeShape> {
        self.fork.realtime.then_some(&self.space.geometry.realtime)
    }

    /// Extents that the fork holds without a btree.
    fn room(&self) -> usize {
        self.fork.room() / EXTENT_SIZE
    }

    /// Puts an extent where the file has none, joined with its neighbours where they continue each
    /// other. May park.
    ///
    /// # Errors
    /// [`XfsError::NoSpace`](crate::XfsError::NoSpace) for the btree; the device failed.
    ///
    /// # Panics
    /// If the file has blocks there.
    pub fn add(&mut self, cx: &mut Cx, trans: &mut Trans, extent: Extent) -> Result<()> {
        let at = self.extents().partition_point(|known| known.end() <= extent.offset);
        let next = self.extents().get(at);
        assert!(next.is_none_or(|next| next.offset >= extent.end()), "{extent:?} has blocks");
        let first = at.saturating_sub(1);
        let last = (at + 1).min(self.extents().len());
        let mut new: Few = self.extents()[first..last].into();
        new.insert(at - first, extent);
        let new = joined(new, self.section());
        self.splice(cx, trans, first..last, new)
    }

    /// Takes blocks out of the map; returns the extents that lay there, which the caller frees. May
    /// park.
    ///
    /// # Errors
    /// As [`MapEdit::add`]: cutting an extent in two adds one.
    pub fn remove(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        range: Range<u64>,
    ) -> Result<Vec<Extent>> {
        let Range { start: offset, end } = range;
        let first = self.extents().partition_point(|known| known.end() <= offset);
        let last = self.extents().partition_point(|known| known.offset < end);
        let old: Few = self.extents()[first..last].into();
        let (mut left, mut gone) = (Few::new(), Vec::new());
        for extent in &old {
            gone.push(part(extent, offset..end));
            if extent.offset < offset {
                left.push(part(extent, extent.offset..offset));
            }
            if extent.end() > end {
                left.push(part(extent, end..extent.end()));
            }
        }
        if !gone.is_empty() {
            self.splice(cx, trans, first..last, left)?;
        }
        Ok(gone)
    }

    /// Marks blocks as written, or as unwritten. May park.
    ///
    /// # Errors
    /// As [`MapEdit::add`].
    pub fn convert(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        range: Range<u64>,
        unwritten: bool,
    ) -> Result<Few> {
        let Range { start: offset, end } = range;
        let first = self.extents().partition_point(|known| known.end() <= offset);
        let last = self.extents().partition_point(|known| known.offset < end);
        let (from, upto) = (first.saturating_sub(1), (last + 1).min(self.extents().len()));
        let (mut new, mut changed) = (Few::new(), Few::new());
        for extent in self.extents()[from..upto].iter().copied() {
            let inside = extent.offset < end && extent.end() > offset;
            if !inside || extent.unwritten == unwritten {
                new.push(extent);
                continue;
            }
            let middle = part(&extent, offset..end);
            changed.push(middle);
            if extent.offset < offset {
                new.push(part(&extent, extent.offset..offset));
            }
            new.push(Extent { unwritten, ..middle });
            if extent.end() > end {
                new.push(part(&extent, end..extent.end()));
            }
        }
        if !changed.is_empty() {
            let new = joined(new, self.section());
            self.splice(cx, trans, from..upto, new)?;
        }
        Ok(changed)
    }

    /// Puts `new` in the place of a run of extents, in memory and in the inode or the btree.
    fn splice(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        range: Range<usize>,
        new: Few,
    ) -> Result<()> {
        let total = self.extents().len() - range.len() + new.len();
        let old: Few = self.extents()[range.clone()].into();
        if self.fork.format == ForkFormat::Extents && total > self.room() {
            self.make_tree(cx, trans)?;
        }
        if self.fork.format == ForkFormat::Btree {
            self.splice_tree(cx, trans, &old, &new)?;
        }
        replace(self.fork.extents.as_mut().expect("the extents were read"), range, &new);
        self.fork.count = total as u64;
        if let Some(content) = self.content.filter(|_| self.fork.realtime) {
            let sum = |list: &[Extent]| list.iter().map(|it| i64::from(it.count)).sum::<i64>();
            content.fetch_add(sum(&new) - sum(&old), Ordering::Relaxed);
        }
        if self.fork.format == ForkFormat::Btree {
            self.make_list(cx, trans)?;
        }
        if self.fork.format == ForkFormat::Extents {
            self.fork.write_list();
        }
        Ok(())
    }

    fn tree(&mut self) -> MapTree<'_> {
        MapTree {
            space: self.space,
            ino: self.ino,
            which: self.which,
            root: &mut self.fork.bytes,
            blocks: self.blocks,
            near: self.near,
        }
    }

    fn splice_tree(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        old: &[Extent],
        new: &[Extent],
    ) -> Result<()> {
        let mut store = self.tree();
        let mut tree = Tree::new(&mut store);
        let mut wanted = new.iter().peekable();
        for extent in old {
            let order = [extent.offset, 0, 0];
            let Some(cursor) = tree.find(cx, trans, order)? else {
                return Err(tree.broken("an extent is missing"));
            };
            // The same place in the order: changed where it is. New ones in front of it first.
            while let Some(front) = wanted.next_if(|new| new.offset < extent.offset) {
                if !old.iter().any(|old| old.offset == front.offset) {
                    tree.insert(cx, trans, &front.record())?;
                }
            }
            match wanted.next_if(|new| new.offset == extent.offset) {
                Some(same) if same == extent => {}
                Some(same) => {
                    let cursor = tree.find(cx, trans, order)?.unwrap_or(cursor);
                    tree.update(trans, &cursor, &same.record());
                }
                None => {
                    let cursor = tree.find(cx, trans, order)?.unwrap_or(cursor);
                    tree.delete(cx, trans, cursor)?;
                }
            }
        }
        for extent in wanted {
            tree.insert(cx, trans, &extent.record())?;
        }
        Ok(())
    }

    /// Makes a list of extents a btree, so that the fork can do with less room in the inode. May
    /// park.
    ///
    /// # Errors
    /// As [`MapEdit::add`].
    pub fn force_tree(&mut self, cx: &mut Cx, trans: &mut Trans) -> Result<()> {
        match self.fork.format {
            ForkFormat::Extents => self.make_tree(cx, trans),
            _ => Ok(()),
        }
    }

    /// Sees to it that the root of a btree has no more children than `room` bytes hold. May park.
    ///
    /// # Errors
    /// As [`MapEdit::add`].
    pub fn fit_root(&mut self, cx: &mut Cx, trans: &mut Trans, room: usize) -> Result<()> {
        let root = MapRoot::parse(&self.fork.bytes, At::Inode(self.ino))?;
        if root.len() > btree::root_max(room) {
            let mut store = self.tree();
            Tree::new(&mut store).push_down(cx, trans)?;
        }
        Ok(())
    }

    /// The list becomes a btree of one leaf.
    fn make_tree(&mut self, cx: &mut Cx, trans: &mut Trans) -> Result<()> {
        self.fork.make_bytes();
        let records: Vec<_> = self.extents().iter().map(Extent::record).collect();
        let first = self.extents().first().map_or(0, |extent| extent.offset);
        let mut store = self.tree();
        let block = store.allocate(cx, trans, u64::MAX)?;
        let (map, expect) = (store.map(block), store.expect(block));
        let buf = trans.get_buf(cx, &[map], key::ops(Kind::Bmap))?;
        buf.zero();
        buf.with_mut(|data| {
            btree::init(Kind::Bmap, data, 0, &expect);
            btree::set_len(data, records.len());
            let shape = btree::Shape::of(Kind::Bmap);
            for (index, record) in records.iter().enumerate() {
                let at = shape.record_at(index);
                data[at..at + EXTENT_SIZE].copy_from_slice(record);
            }
        });
        let used = btree::LONG_HEADER + records.len() * EXTENT_SIZE;
        trans.log_buf(&buf, 0, used - 1);
        self.fork.bytes.fill(0);
        btree::emit_root(&mut self.fork.bytes, 1, &[(first, block)]);
        self.fork.format = ForkFormat::Btree;
        Ok(())
    }

    /// A btree of one leaf becomes a list, where that has room.
    fn make_list(&mut self, cx: &mut Cx, trans: &mut Trans) -> Result<()> {
        let root = MapRoot::parse(&self.fork.bytes, At::Inode(self.ino))?;
        if root.level > 1 || root.len() > 1 || self.extents().len() > self.room() {
            return Ok(());
        }
        let block = root.pointer(0);
        let mut store = self.tree();
        let map = store.map(block);
        let buf = trans.read_buf(cx, &[map], key::ops(Kind::Bmap))?;
        trans.invalidate(&buf);
        store.free(cx, trans, block)?;
        self.fork.format = ForkFormat::Extents;
        Ok(())
    }
}
