//! Carries out intents without a done item.
//!
//! They are done in the order of the log. If one of them defers further work (a changed map needs a
//! change of the reverse map, blocks without references must be freed), that is done before the
//! next intent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base::{FsBlock, Ino};
use rt::{Cx, SpinLock};

use crate::alloc::Space;
use crate::attr::{self, parent};
use crate::bmap::blocks::FileBlocks;
use crate::bmap::exchange::{self, exchange_step};
use crate::bmap::{Fork, Forks, Mapped, Which};
use crate::error::Result;
use crate::format::extent::Extent;
use crate::format::inode::{Flags2, ForkFormat, InodeCore};
use crate::format::log_item::{BMAP_ATTR_FORK, BMAP_UNWRITTEN, ItemKind, RmapOp};
use crate::format::{AgExtent, At, CorruptKind, FsExtent, Owner, Section};
use crate::log::recovery::Unfinished;
use crate::trans::intent::{AttributeChange, Exchange, ExchangeSide, ParentChange, Work};
use crate::trans::{Finished, IntentFinisher, Trans, reservations};
use crate::uncached::UncachedInode;

/// The kinds of intents that can be carried out.
pub(crate) const CAN_FINISH: [ItemKind; 9] = [
    ItemKind::Efi,
    ItemKind::EfiRealtime,
    ItemKind::Rui,
    ItemKind::RuiRealtime,
    ItemKind::Cui,
    ItemKind::CuiRealtime,
    ItemKind::Bui,
    ItemKind::Attri,
    ItemKind::Xmi,
];

/// What a BUI asks for.
pub(crate) const MAP: u32 = 1;
pub(crate) const UNMAP: u32 = 2;

/// Carries out intents that recovery found. The log's finisher afterwards is the recovery's own;
/// whoever goes on sets another one. May park.
///
/// # Errors
/// What contradicts the file system; the device failed. The log is shut down then.
pub(crate) fn finish_intents(
    cx: &mut Cx,
    space: &Arc<Space>,
    unfinished: Vec<Unfinished>,
) -> Result<()> {
    let finisher = Arc::new(Finisher::new(space.clone()));
    space.log.set_finisher(finisher.clone());
    let first = || unfinished.iter().map(|intent| &intent.work[0]);
    let inodes = first().any(|work| {
        matches!(work, Work::Bmap { .. } | Work::Parent(_) | Work::Attribute(_) | Work::Exchange(_))
    });
    let values = first().any(|work| matches!(work, Work::Attribute(_)));
    let bytes = reservations::recovered(&space.geometry, values);
    space.log.finish_recovered(cx, unfinished, bytes)?;
    if inodes {
        // Others read inodes from their clusters.
        space.log.empty(cx)?;
        finisher.inodes.lock(cx).clear();
    }
    Ok(())
}

/// Carries out work of all kinds, also where nobody knows any more whose an extent was.
pub(crate) struct Finisher {
    space: Arc<Space>,
    /// Inodes that were changed: the newest images are here.
    inodes: SpinLock<BTreeMap<Ino, UncachedInode>>,
}

/// What a BUI asks for.
struct MapChange {
    ino: Ino,
    which: Which,
    /// [`MAP`] or [`UNMAP`].
    op: u32,
    extent: Extent,
}

impl IntentFinisher for Finisher {
    fn finish(&self, cx: &mut Cx, trans: &mut Trans, work: &Work) -> Result<Finished> {
        match *work {
            Work::Free { section: Section::Data, start, len, owner: None } => {
                let extent = FsExtent { start: FsBlock(start), len };
                match self.has_owner(extent) {
                    true => self.free(cx, trans, extent),
                    false => self.space.finish(cx, trans, work),
                }
            }
            Work::Bmap { flags, ino, start, offset, len } => {
                let unwritten = flags & BMAP_UNWRITTEN != 0;
                let extent = Extent { offset, start: FsBlock(start), count: len, unwritten };
                let attr = flags & BMAP_ATTR_FORK != 0;
                let which = if attr { Which::Attr } else { Which::Data };
                let change = MapChange { ino: Ino(ino), which, op: flags & 0xff, extent };
                self.change_map(cx, trans, &change)?;
                Ok(Finished::Done)
            }
            Work::Parent(ref change) => {
                self.change_parent(cx, trans, change)?;
                Ok(Finished::Done)
            }
            Work::Attribute(ref change) => {
                self.set_attribute(cx, trans, change)?;
                Ok(Finished::Done)
            }
            Work::Exchange(ref exchange) => self.exchange(cx, trans, exchange),
            _ => self.space.finish(cx, trans, work),
        }
    }
}

/// A file whose content is exchanged, with its map.
struct RecoveredFile {
    inode: UncachedInode,
    fork: Fork,
}

impl exchange::ExchangedFile for RecoveredFile {
    fn lookup(&mut self, _: &mut Cx, range: Range<u64>) -> Result<Mapped> {
        Ok(exchange::mapped(self.fork.extents.as_deref(), range))
    }

    fn edit<R>(
        &mut self,
        cx: &mut Cx,
        space: &Space,
        change: impl FnOnce(&mut Cx, &mut FileBlocks<'_, '_>) -> Result<R>,
    ) -> Result<R> {
        let reflink = self.inode.core.flags2.contains(Flags2::REFLINK);
        let edit = &mut self.inode.edit(space, &mut self.fork, Which::Data);
        change(cx, &mut FileBlocks { edit, reflink })
    }

    fn set(&mut self, _: &Cx, change: impl FnOnce(&mut InodeCore)) {
        change(&mut self.inode.core);
    }
}

impl Finisher {
    pub(crate) fn new(space: Arc<Space>) -> Finisher {
        Finisher { space, inodes: SpinLock::named("xfs recovered inodes", BTreeMap::new()) }
    }

    /// Whether the reverse map knows whose an extent was.
    fn has_owner(&self, extent: FsExtent) -> bool {
        let geometry = &self.space.geometry;
        geometry.features.rmapbt() && geometry.extent_valid(extent.start, u64::from(extent.len))
    }

    /// Frees an extent. Whoever deferred that has taken it out of the reverse map already, or left
    /// it to the freeing; then exactly one record covers it.
    fn free(&self, cx: &mut Cx, trans: &mut Trans, extent: FsExtent) -> Result<Finished> {
        let space = &self.space;
        let FsExtent { start, len } = extent;
        let extent = AgExtent { start: space.split(start), len };
        let place = extent.start;
        let range = place.block..=place.block + len.saturating_sub(1);
        let agf = space.lock(cx, trans, place.ag)?;
        let owners = space.owners(cx, trans, &agf, range)?;
        let [one] = owners[..] else {
            return space.finish(cx, trans, &Work::free(start.0, len, None));
        };
        let owner = Owner { owner: one.owner, offset: one.offset };
        let skip = u64::from(place.block.saturating_sub(one.start));
        let offset = if owner.has_offset() { one.offset + skip } else { one.offset };
        space.free(cx, trans, extent, Some(Owner { offset, ..owner }))?;
        Ok(Finished::Done)
    }

    /// The newest image of an inode, which the caller gives back.
    fn newest_image(&self, cx: &mut Cx, ino: Ino) -> Result<UncachedInode> {
        let known = self.inodes.lock(cx).remove(&ino);
        match known {
            Some(inode) => Ok(inode),
            None => UncachedInode::read(cx, &self.space, ino),
        }
    }

    /// The same, of an inode that must have this generation.
    fn newest_image_of(&self, cx: &mut Cx, ino: Ino, generation: u32) -> Result<UncachedInode> {
        let inode = self.newest_image(cx, ino)?;
        let found = inode.core.generation;
        if found != generation {
            let kind = CorruptKind::InodeGeneration { found, expected: generation };
            return Err(kind.at(At::Inode(ino)).into());
        }
        Ok(inode)
    }

    /// Changes a parent pointer. The pointer that comes replaces one of the same place.
    fn change_parent(&self, cx: &mut Cx, trans: &mut Trans, change: &ParentChange) -> Result<()> {
        let mut inode = self.newest_image_of(cx, Ino(change.ino), change.generation)?;
        let mut forks = inode.forks(cx, &self.space)?;
        parent::recover(cx, &self.space, trans, &mut inode, &mut forks, change)?;
        self.keep(cx, trans, inode, &mut forks);
        Ok(())
    }

    /// Changes an ordinary attribute, old value and new one in one step.
    fn set_attribute(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        change: &AttributeChange,
    ) -> Result<()> {
        let mut inode = self.newest_image(cx, Ino(change.ino))?;
        let mut forks = inode.forks(cx, &self.space)?;
        attr::recover_attribute(cx, &self.space, trans, &mut inode, &mut forks, change)?;
        self.keep(cx, trans, inode, &mut forks);
        Ok(())
    }

    /// Keeps an inode whose forks have changed, and logs it.
    fn keep(&self, cx: &mut Cx, trans: &mut Trans, mut inode: UncachedInode, forks: &mut Forks) {
        inode.store_forks(forks);
        inode.log(trans);
        self.inodes.lock(cx).insert(inode.ino, inode);
    }

    /// Exchanges the first run of two ranges where one of the files has something; what is left
    /// goes on in the next transaction.
    fn exchange(&self, cx: &mut Cx, trans: &mut Trans, exchange: &Exchange) -> Result<Finished> {
        let [one, two] = exchange.sides;
        let first = self.exchanged_file(cx, &one)?;
        let mut files = match one.ino == two.ino {
            true => vec![first],
            false => vec![first, self.exchanged_file(cx, &two)?],
        };
        let mut left = *exchange;
        let done = exchange_step(cx, &self.space, trans, &mut files, &mut left);
        for RecoveredFile { mut inode, fork } in files {
            inode.store(Which::Data, &fork);
            inode.log(trans);
            self.inodes.lock(cx).insert(inode.ino, inode);
        }
        done?;
        Ok(match left.blocks {
            0 => Finished::Done,
            _ => Finished::Again(Work::Exchange(Arc::new(left))),
        })
    }

    fn exchanged_file(&self, cx: &mut Cx, side: &ExchangeSide) -> Result<RecoveredFile> {
        let inode = self.newest_image_of(cx, Ino(side.ino), side.generation)?;
        let fork = inode.whole_fork(cx, &self.space, Which::Data)?;
        let plain = matches!(fork.format, ForkFormat::Extents | ForkFormat::Btree);
        if !plain || inode.core.file_type() != 0x8000 {
            let (number, mode) = (fork.format as u8, inode.core.mode);
            return Err(CorruptKind::ForkFormatOfMode { number, mode }
                .at(At::Inode(inode.ino))
                .into());
        }
        Ok(RecoveredFile { inode, fork })
    }

    /// Puts an extent into a file's map, or takes it out; the reverse map follows.
    fn change_map(&self, cx: &mut Cx, trans: &mut Trans, change: &MapChange) -> Result<()> {
        let MapChange { ino, which, op, extent } = *change;
        let at = At::Inode(ino);
        let mut inode = self.newest_image(cx, ino)?;
        let section = Section::of(which == Which::Data && inode.core.is_realtime());
        extent.check(&self.space.geometry, section == Section::Realtime, at)?;
        let mut fork = inode.whole_fork(cx, &self.space, which)?;
        if !matches!(fork.format, ForkFormat::Extents | ForkFormat::Btree) {
            let number = fork.format as u8;
            return Err(CorruptKind::ForkFormatOfMode { number, mode: inode.core.mode }
                .at(at)
                .into());
        }
        let shared = inode.core.flags2.contains(Flags2::REFLINK) && which == Which::Data;
        let space = &self.space;
        let count = u64::from(extent.count);
        let known = fork.extents.as_deref().unwrap_or_default().iter();
        let overlap =
            known.filter(|known| known.offset < extent.end() && known.end() > extent.offset);
        match op {
            MAP if overlap.count() == 0 => {
                inode.edit(space, &mut fork, which).add(cx, trans, extent)?;
                inode.core.blocks += count;
                let op = if shared { RmapOp::MapShared } else { RmapOp::Map };
                self.owner_changes(trans, section, op, change, &extent);
            }
            UNMAP => {
                let mut edit = inode.edit(space, &mut fork, which);
                let gone = edit.remove(cx, trans, extent.offset..extent.end())?;
                let op = if shared { RmapOp::UnmapShared } else { RmapOp::Unmap };
                for extent in &gone {
                    inode.core.blocks -= u64::from(extent.count);
                    self.owner_changes(trans, section, op, change, extent);
                }
            }
            _ => {
                let (offset, end) = (extent.offset, extent.end());
                return Err(CorruptKind::ExtentOrder { offset, end }.at(at).into());
            }
        }
        inode.store(which, &fork);
        inode.log(trans);
        self.inodes.lock(cx).insert(ino, inode);
        Ok(())
    }

    fn owner_changes(
        &self,
        trans: &mut Trans,
        section: Section,
        op: RmapOp,
        change: &MapChange,
        extent: &Extent,
    ) {
        let attr = change.which == Which::Attr;
        let owner = Owner::fork(change.ino.0, attr, extent.offset, extent.unwritten);
        self.space.defer_rmap(trans, section, op, owner, extent.blocks());
    }
}
