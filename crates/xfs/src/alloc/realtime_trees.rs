//! The btrees of the realtime section: each group has a reverse map and reference counts of its
//! own. Their roots lie in inodes of the file system itself, their blocks on the device of the
//! data.
//!
//! Whoever changes one holds the section ([`Realtime::join`]), which stands for the locks of these
//! inodes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Errno, FsBlock, Ino};
use rt::{Cx, SpinLock};

use super::realtime::Realtime;
use super::{AllocRequest, Space};
use crate::btree::{Store, Tree};
use crate::buf::BufMap;
use crate::error::{Result, XfsError};
use crate::format::btree::Shape;
use crate::format::inode::{RawInode, fork_ranges};
use crate::format::record::Rmap;
use crate::format::{
    At, CorruptKind, Expect, FsExtent, Kind, Owner, RealtimeShape, Section, put_u16, u16_at,
};
use crate::log::inode_item::{InodeFields, InodeItem};
use crate::trans::intent::Work;
use crate::trans::{Finished, Trans, reservations};

/// Levels of a tree at the most.
const LEVELS_MAX: u16 = 9;
/// The part of the section, in blocks, for whose reverse maps there is room: one in so many.
const RMAP_SHARE: u64 = 100;
/// The same of reference counts.
const REFCOUNT_SHARE: u64 = 300;
/// The part of the device of the data that is kept for trees at the most.
const DATA_SHARE: u64 = 16;

/// An inode that holds the root of a tree.
pub(crate) struct TreeInode {
    kind: Kind,
    ino: Ino,
    item: Arc<InodeItem>,
    /// The newest image.
    image: Vec<u8>,
    /// The data fork, which holds the root.
    root: Vec<u8>,
    /// Blocks of the tree.
    blocks: u64,
}

impl TreeInode {
    /// The inode of this image.
    ///
    /// # Errors
    /// A root that is impossible.
    pub fn new(kind: Kind, ino: Ino, image: Vec<u8>, item: Arc<InodeItem>) -> Result<TreeInode> {
        let raw = RawInode::view(&image).expect("an inode");
        let (root, blocks) = (image[data_fork(&image)].to_vec(), raw.di_nblocks.get());
        let (level, found) = (u16_at(&root, 0), u16_at(&root, 2));
        let at = At::Inode(ino);
        if level >= LEVELS_MAX {
            return Err(CorruptKind::BtreeRootLevel(level).at(at).into());
        }
        let limit = Shape::of(kind).root_max(root.len(), level) as u16;
        if found > limit || (found == 0 && level > 0) {
            let what = kind.name();
            return Err(CorruptKind::BtreeCount { what, found, limit }.at(at).into());
        }
        Ok(TreeInode { kind, ino, item, image, root, blocks })
    }

    /// Logs the inode, where its root or the number of its blocks has changed.
    fn log_if_changed(&mut self, trans: &mut Trans) {
        let range = data_fork(&self.image);
        let raw = RawInode::view_mut(&mut self.image).expect("an inode");
        let same = raw.di_nblocks.get() == self.blocks;
        raw.di_nblocks.set(self.blocks);
        let slot = &mut self.image[range];
        if same && *slot == self.root[..] {
            return;
        }
        slot.copy_from_slice(&self.root);
        trans.log_inode(&self.item, &self.image, InodeFields::CORE | InodeFields::DATA);
    }
}

fn data_fork(image: &[u8]) -> Range<usize> {
    let raw = RawInode::view(image).expect("an inode");
    fork_ranges(raw.di_forkoff, image.len()).0
}

/// A tree whose root lies in such an inode.
pub(crate) struct SectionTree<'a> {
    space: &'a Space,
    inode: &'a mut TreeInode,
}

impl SectionTree<'_> {
    fn owner(&self) -> Owner {
        Owner::block_map(self.inode.ino.0, false)
    }
}

impl Store for SectionTree<'_> {
    fn kind(&self) -> Kind {
        self.inode.kind
    }

    fn block_size(&self) -> usize {
        self.space.geometry.block_size as usize
    }

    fn root(&self) -> (u64, u32) {
        (u64::MAX, u32::from(u16_at(&self.inode.root, 0)) + 1)
    }

    fn set_root(&mut self, _trans: &mut Trans, _block: u64, levels: u32) {
        put_u16(&mut self.inode.root, 0, levels as u16 - 1);
    }

    fn map(&self, block: u64) -> BufMap {
        self.space.block_map(self.space.geometry.split(FsBlock(block)))
    }

    fn expect(&self, block: u64) -> Expect {
        self.space.geometry.expect(self.map(block).daddr, Some(self.inode.ino.0))
    }

    fn at(&self, _block: u64) -> At {
        At::Inode(self.inode.ino)
    }

    fn allocate(&mut self, cx: &mut Cx, trans: &mut Trans, near: u64) -> Result<u64> {
        let geometry = &self.space.geometry;
        let near = match geometry.block_valid(FsBlock(near)) {
            true => geometry.split(FsBlock(near)),
            false => geometry.ino_place(self.inode.ino).0,
        };
        let want = AllocRequest { this_group: false, ..AllocRequest::block(near, self.owner()) };
        let found = self.space.allocate_metadata(cx, trans, &want)?;
        self.space.section_kept.fetch_sub(1, Ordering::Relaxed);
        self.inode.blocks += 1;
        Ok(geometry.join(found.start).0)
    }

    fn free(&mut self, _cx: &mut Cx, trans: &mut Trans, block: u64) -> Result<()> {
        self.space.section_kept.fetch_add(1, Ordering::Relaxed);
        self.inode.blocks -= 1;
        trans.defer(Work::free(block, 1, Some(self.owner())));
        Ok(())
    }

    fn inode_root(&mut self) -> Option<&mut Vec<u8>> {
        Some(&mut self.inode.root)
    }
}

/// The trees of one group; none where the section does without.
#[derive(Default)]
pub(crate) struct GroupTrees {
    rmap: SpinLock<Option<TreeInode>>,
    refcounts: SpinLock<Option<TreeInode>>,
}

impl GroupTrees {
    /// Those of these inodes.
    pub fn new(rmap: Option<TreeInode>, refcounts: Option<TreeInode>) -> GroupTrees {
        GroupTrees {
            rmap: SpinLock::named("realtime reverse map", rmap),
            refcounts: SpinLock::named("realtime reference counts", refcounts),
        }
    }

    /// Blocks that they have.
    pub(super) fn blocks(&self) -> u64 {
        let blocks = |tree: &SpinLock<Option<TreeInode>>| {
            tree.lock_irq().as_ref().map_or(0, |inode| inode.blocks)
        };
        blocks(&self.rmap) + blocks(&self.refcounts)
    }
}

/// Blocks of the device of the data that trees of the section shall have room in.
pub(super) fn blocks_wanted(space: &Space, shape: &RealtimeShape) -> u64 {
    let features = space.geometry.features;
    let share = |has: bool, share: u64| if has { shape.blocks / share } else { 0 };
    let rmaps = share(features.rmapbt(), RMAP_SHARE);
    let wanted = rmaps + share(features.reflink(), REFCOUNT_SHARE);
    wanted.min(space.geometry.blocks_count() / DATA_SHARE)
}

/// Blocks of one group of the section.
struct GroupBlocks {
    group: u32,
    blocks: Range<u32>,
}

impl Realtime {
    /// Looks into a tree of a group, or changes it. May park.
    fn with_tree<R>(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        space: &Space,
        tree: &SpinLock<Option<TreeInode>>,
        change: impl FnOnce(&mut Cx, &mut Trans, &mut Tree<'_, SectionTree<'_>>) -> Result<R>,
    ) -> Result<R> {
        self.join(cx, trans);
        // The section is held, so that nobody else looks for it.
        let taken = tree.lock(cx).take();
        let Some(mut inode) = taken else { return Err(XfsError::Answer(Errno::EOPNOTSUPP)) };
        let mut store = SectionTree { space, inode: &mut inode };
        let done = change(cx, trans, &mut Tree::new(&mut store));
        inode.log_if_changed(trans);
        *tree.lock(cx) = Some(inode);
        done
    }
}

impl Space {
    fn of_section(&self, extent: FsExtent) -> Result<(&Realtime, GroupBlocks)> {
        let (shape, FsExtent { start, len }) = (self.geometry.realtime, extent);
        let fits = len > 0 && shape.holds(start, u64::from(len));
        let Some(realtime) = self.realtime().filter(|_| fits) else {
            let place = CorruptKind::ExtentPlace { offset: 0, start: start.0, count: len };
            return Err(place.at(At::Super(0)).into());
        };
        let (group, block) = shape.place_of(start);
        Ok((realtime, GroupBlocks { group, blocks: block..block + len }))
    }

    /// Carries out deferred work on the reverse map of the section.
    pub(super) fn finish_realtime_rmap(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        flags: u32,
        owner: Owner,
        extent: FsExtent,
    ) -> Result<Finished> {
        let (realtime, place) = self.of_section(extent)?;
        let Owner { owner, offset } = owner;
        let record = Rmap { start: place.blocks.start, len: extent.len, owner, offset };
        let tree = &realtime.trees(place.group).rmap;
        realtime.with_tree(cx, trans, self, tree, |cx, trans, tree| {
            tree.change_owner(cx, trans, flags, record)
        })?;
        Ok(Finished::Done)
    }

    /// Carries out deferred work on the reference counts of the section.
    pub(super) fn finish_realtime_refcount(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        flags: u32,
        extent: FsExtent,
    ) -> Result<Finished> {
        let (realtime, place) = self.of_section(extent)?;
        let tree = &realtime.trees(place.group).refcounts;
        let first = place.blocks.start;
        let done = realtime.with_tree(cx, trans, self, tree, |cx, trans, tree| {
            tree.change_counts(cx, trans, flags, place.blocks)
        })?;
        for free in &done.free {
            let start = extent.start.0 + u64::from(free.start - first);
            let (section, len) = (Section::Realtime, free.end - free.start);
            trans.defer(Work::Free { section, start, len, owner: None });
        }
        Ok(done.finished(Section::Realtime, flags, extent))
    }

    /// As [`Space::shared_runs`], of the section.
    pub(super) fn shared_realtime_runs(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        extent: FsExtent,
    ) -> Result<Vec<Range<u32>>> {
        let (realtime, place) = self.of_section(extent)?;
        let tree = &realtime.trees(place.group).refcounts;
        realtime.with_tree(cx, trans, self, tree, |cx, trans, tree| {
            tree.shared_runs(cx, trans, place.blocks)
        })
    }

    /// Frees what a crash has left of CoW forks in the section; returns the blocks. May park.
    pub(super) fn recover_realtime_cow(&self, cx: &mut Cx) -> Result<u64> {
        let (shape, mut blocks) = (self.geometry.realtime, 0);
        let Some(realtime) = self.realtime() else { return Ok(blocks) };
        let unit = u64::from(shape.extent_blocks);
        for group in 0..shape.group_count() {
            let all = shape.extents_of(group);
            let end = ((all.end - all.start) * unit) as u32;
            let tree = &realtime.trees(group).refcounts;
            loop {
                let mut trans =
                    Trans::alloc(cx, &self.log, reservations::realtime(&self.geometry))?;
                let left = realtime.with_tree(cx, &mut trans, self, tree, |cx, trans, tree| {
                    tree.cow_extents(cx, trans, end)
                })?;
                for record in &left {
                    let start = shape.block_of(all.start) + u64::from(record.start);
                    let extent = FsExtent { start, len: record.len };
                    self.defer_cancel_cow(&mut trans, Section::Realtime, extent);
                    blocks += u64::from(record.len);
                }
                trans.commit(cx)?;
                if left.is_empty() {
                    break;
                }
            }
        }
        Ok(blocks)
    }
}
