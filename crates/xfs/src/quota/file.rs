//! The inode that holds the records of a kind.

use std::sync::Arc;

use base::{FsBlock, Ino};
use rt::Cx;
use vfs::quota::Kind;

use crate::alloc::{AllocRequest, BlockReservation, Space};
use crate::bmap::blocks::worst_case;
use crate::bmap::{Fork, Which, lookup};
use crate::buf::BufMap;
use crate::error::Result;
use crate::format::dquot::{self, DquotId, RECORD_SIZE, RawDquot};
use crate::format::extent::Extent;
use crate::format::inode::{Flags2, InodeCore};
use crate::format::{At, CorruptKind, Geometry, Owner};
use crate::ialloc::Inodes;
use crate::log::buf_item::BufItemFlags;
use crate::log::dquot_item::{DQUOT_BLOCK, DquotPlace, DquotTable};
use crate::trans::{Trans, reservations};
use crate::uncached::UncachedInode;

/// A quota inode. Whoever holds its lock may read and make records.
pub(crate) struct QuotaFile {
    pub kind: Kind,
    inode: UncachedInode,
    /// The map of its data, with all extents.
    fork: Fork,
}

/// A record and where it lies.
pub(crate) struct Found {
    pub place: DquotPlace,
    pub raw: RawDquot,
}

/// The blocks of some extents, with their places on the device.
pub(crate) fn places(extents: &[Extent], geometry: &Geometry) -> Vec<(u64, BufMap)> {
    let len = geometry.block_sectors() as u32;
    let place = |extent: &Extent, offset: u64| {
        let daddr = geometry.sector(extent.start + (offset - extent.offset));
        (offset, BufMap { daddr, len })
    };
    let blocks = |extent: &Extent| {
        let extent = *extent;
        (extent.offset..extent.end()).map(move |offset| place(&extent, offset))
    };
    extents.iter().flat_map(blocks).collect()
}

/// How the log calls buffers with records of a kind.
fn buffer_flag(kind: Kind) -> BufItemFlags {
    match kind {
        Kind::User => BufItemFlags::USER_DQUOTS,
        Kind::Group => BufItemFlags::GROUP_DQUOTS,
        Kind::Project => BufItemFlags::PROJECT_DQUOTS,
    }
}

/// The core of a new quota inode: a regular file without a name.
fn new_core(cx: &mut Cx, geometry: &Geometry) -> InodeCore {
    let features = geometry.features;
    let now = cx.realtime();
    let mut flags2 = Flags2::empty();
    flags2.set(Flags2::BIGTIME, features.bigtime());
    flags2.set(Flags2::NREXT64, features.nrext64());
    InodeCore {
        flags2,
        generation: cx.random() as u32,
        change_count: 1,
        ..InodeCore::fresh(0x8000, now)
    }
}

impl QuotaFile {
    /// The inode with this number. May park.
    ///
    /// # Errors
    /// It is no quota inode, or damaged; the device failed.
    pub fn open(cx: &mut Cx, space: &Space, kind: Kind, ino: Ino) -> Result<QuotaFile> {
        let inode = UncachedInode::read(cx, space, ino)?;
        let mode = inode.core.mode;
        if inode.core.file_type() != 0x8000 {
            return Err(CorruptKind::InodeMode { mode }.at(At::Inode(ino)).into());
        }
        QuotaFile::new(cx, space, kind, inode)
    }

    /// The file of an inode. May park.
    ///
    /// # Errors
    /// Its map is damaged; the device failed.
    pub fn new(cx: &mut Cx, space: &Space, kind: Kind, inode: UncachedInode) -> Result<QuotaFile> {
        let fork = inode.whole_fork(cx, space, Which::Data)?;
        Ok(QuotaFile { kind, inode, fork })
    }

    /// Makes an inode, as part of a transaction. May park.
    ///
    /// # Errors
    /// No space; the device failed.
    pub fn create(
        cx: &mut Cx,
        trans: &mut Trans,
        inodes: &Inodes,
        kind: Kind,
        table: &DquotTable,
    ) -> Result<QuotaFile> {
        let space = &inodes.space;
        let geometry = &space.geometry;
        let ino = inodes.allocate(cx, trans, geometry.root_ino, false)?;
        // Nobody is charged for it, also where other kinds are counted already.
        table.set_ino(kind, ino.0);
        let core = new_core(cx, geometry);
        let inode = UncachedInode::new(geometry, ino, core);
        inode.log(trans);
        QuotaFile::new(cx, space, kind, inode)
    }

    pub fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// The blocks that it has.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        let extents = self.fork.extents.as_deref().unwrap_or_default();
        extents.iter().flat_map(|extent| extent.offset..extent.end())
    }

    /// The blocks that it has, with their places on the device.
    pub fn places(&self, geometry: &Geometry) -> Vec<(u64, BufMap)> {
        places(self.fork.extents.as_deref().unwrap_or_default(), geometry)
    }

    fn place(&self, space: &Space, start: FsBlock, id: u32) -> DquotPlace {
        let geometry = &space.geometry;
        let block = BufMap { daddr: geometry.sector(start), len: geometry.block_sectors() as u32 };
        let index = id % dquot::per_block(geometry.block_size);
        DquotPlace { block, offset: index * RECORD_SIZE as u32 }
    }

    /// The record of an id; none where the file has a hole. May park.
    ///
    /// # Errors
    /// A record that fails a check; the device failed.
    pub fn read(&self, cx: &mut Cx, space: &Space, id: DquotId) -> Result<Option<Found>> {
        let geometry = &space.geometry;
        let block = u64::from(id.id / dquot::per_block(geometry.block_size));
        let extents = self.fork.extents.as_deref().unwrap_or_default();
        let Some(start) = lookup(extents, block..block + 1).start else { return Ok(None) };
        let place = self.place(space, start, id.id);
        let buf = space.log.bufs().read(cx, &[place.block], &DQUOT_BLOCK)?;
        let at = At::InodeBlock(self.inode.ino, block);
        let raw = buf.with_range(place.offset as usize, RECORD_SIZE, |record| {
            RawDquot::parse(record, id, Some(&geometry.meta_uuid), at)
        })?;
        Ok(Some(Found { place, raw }))
    }

    /// Makes the block with the record of an id, in a transaction of its own. May park.
    ///
    /// # Errors
    /// No space; the device failed.
    pub fn make(&mut self, cx: &mut Cx, space: &Arc<Space>, id: DquotId) -> Result<Found> {
        let geometry = space.geometry.clone();
        let map = worst_case(&geometry, self.inode.ino, &self.fork, 1);
        let mut reserved = BlockReservation::new(space, 1 + map)?;
        let mut trans = Trans::alloc(cx, &space.log, reservations::quota_block(&geometry))?;
        let made = self.add_block(cx, &mut trans, space, &mut reserved, id);
        match made {
            Ok(start) => {
                trans.commit(cx)?;
                let raw = RawDquot::new(id, geometry.features.bigtime());
                Ok(Found { place: self.place(space, start, id.id), raw })
            }
            Err(error) => {
                match trans.is_dirty() && !trans.has_substance() {
                    true => drop(trans.commit(cx)?),
                    false => trans.cancel(),
                }
                Err(error)
            }
        }
    }

    fn add_block(
        &mut self,
        cx: &mut Cx,
        trans: &mut Trans,
        space: &Space,
        reserved: &mut BlockReservation,
        id: DquotId,
    ) -> Result<FsBlock> {
        let geometry = &space.geometry;
        let per_block = dquot::per_block(geometry.block_size);
        let offset = u64::from(id.id / per_block);
        let owner = Owner::fork(self.inode.ino.0, false, offset, false);
        let goal = geometry.ino_place(self.inode.ino).0;
        let want = AllocRequest { this_group: false, ..AllocRequest::block(goal, owner) };
        let found = space.allocate(cx, trans, &want)?;
        reserved.take(1);
        let start = geometry.join(found.start);
        let extent = Extent { offset, start, count: 1, unwritten: false };
        self.inode.core.blocks += 1;
        self.inode.edit(space, &mut self.fork, Which::Data).add(cx, trans, extent)?;
        self.fork.make_bytes();
        self.inode.store(Which::Data, &self.fork);
        self.inode.log(trans);
        let place = self.place(space, start, id.id);
        let buf = trans.get_buf(cx, &[place.block], &DQUOT_BLOCK)?;
        buf.zero();
        let first = DquotId { id: id.id - id.id % per_block, ..id };
        let bigtime = geometry.features.bigtime();
        buf.with_mut(|bytes| dquot::init_block(bytes, first, bigtime, &geometry.meta_uuid));
        buf.item.lock_irq().flags.insert(buffer_flag(self.kind));
        trans.log_buf(&buf, 0, buf.len() - 1);
        Ok(start)
    }
}
