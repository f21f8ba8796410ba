//! Frees inodes that lost their last name: first their blocks, then the inodes.
//!
//! Recovery finds them on the unlinked lists of the groups. Each transaction takes a few extents
//! off the end, so that a crash in the middle leaves a shorter file on the same list.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;

use crate::Xfs;
use crate::alloc::Space;
use crate::bmap::blocks::FileBlocks;
use crate::bmap::{Fork, Which};
use crate::buf::{BufMap, RAW};
use crate::error::Result;
use crate::file::DataFile;
use crate::format::ag::UNLINKED_BUCKETS;
use crate::format::extent::{Extent, OFFSET_MAX};
use crate::format::inode::{self, Flags2, ForkFormat};
use crate::format::{Geometry, Section};
use crate::fs::WriteSide;
use crate::ialloc::{FreedInode, Inodes};
use crate::inode::Inode;
use crate::log::inode_item::{Image, InodeFields, InodeItem};
use crate::log::{Log, LogError};
use crate::trans::{LogReservation, Trans, reservations};
use crate::uncached::UncachedInode;

/// Log space of one step.
const STEP: LogReservation = LogReservation { bytes: 160 << 10, count: 2 };
/// Extents that one step frees at the most.
const EXTENTS: usize = 4;

/// More blocks than the target of a symbolic link takes.
const SYMLINK_BLOCKS: u64 = 4;

/// Frees what nobody names any more.
pub(crate) struct Inactive<'a> {
    space: &'a Space,
    inodes: &'a Inodes,
    log: &'a Arc<Log>,
    /// The items of those that were changed: a chunk that goes takes them along.
    items: Vec<Arc<InodeItem>>,
    /// The mount, for the items of inodes in memory.
    mount: Option<&'a Xfs>,
}

impl<'a> Inactive<'a> {
    pub fn new(space: &'a Space, inodes: &'a Inodes, log: &'a Arc<Log>) -> Inactive<'a> {
        Inactive { space, inodes, log, items: Vec::new(), mount: None }
    }

    /// Frees all inodes on the unlinked lists; returns how many. May park.
    ///
    /// # Errors
    /// A list or an inode that fails a check; [`LogError::Unfinished`] for one that has a name.
    pub fn free_all(&mut self, cx: &mut Cx) -> Result<u64> {
        let mut count = 0;
        for ag in 0..self.space.geometry.ag_count() {
            for bucket in 0..UNLINKED_BUCKETS {
                let mut trans = Trans::alloc(cx, self.log, LogReservation::new(4096))?;
                let list = self.inodes.learn_unlinked(cx, &mut trans, ag, bucket);
                trans.cancel();
                for ino in list? {
                    self.free_one(cx, ino)?;
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    fn free_one(&mut self, cx: &mut Cx, ino: Ino) -> Result<()> {
        let mut dying = UncachedInode::read(cx, self.space, ino)?;
        self.items.push(dying.item.clone());
        if dying.core.links > 0 {
            return Err(LogError::Unfinished { what: "unlinked inodes that have names" }.into());
        }
        for which in [Which::Data, Which::Attr] {
            self.empty_fork(cx, &mut dying, which)?;
        }
        self.free_inode(cx, dying)
    }

    /// Frees an inode in memory that has no name any more and that nobody uses. The caller holds
    /// its `rwsem` for writing. May park.
    ///
    /// # Errors
    /// The device failed; a structure that is wrong.
    pub fn free_live(cx: &mut Cx, fs: &'a Xfs, writer: &'a WriteSide, inode: &Inode) -> Result<()> {
        let WriteSide { space, inodes, log, .. } = writer;
        let mut inactive = Inactive { space, inodes, log, items: Vec::new(), mount: Some(fs) };
        let image = inode.image(cx, &space.geometry).whole();
        let core = inode.with(cx, |state| state.core.clone());
        let mut dying = UncachedInode { ino: inode.ino, core, image, item: inode.item.clone() };
        for which in [Which::Data, Which::Attr] {
            inactive.empty_fork(cx, &mut dying, which)?;
        }
        inactive.free_inode(cx, dying)
    }

    /// Logs an inode in memory as a free one.
    pub fn log_free(cx: &mut Cx, trans: &mut Trans, geometry: &Geometry, inode: &Inode) {
        let generation = inode.with(cx, |state| state.core.generation).wrapping_add(1);
        // The core, and a device's number, which the log may ask for where it has the inode
        // already.
        let mut bytes = vec![0; inode::CORE_SIZE + 8];
        inode::emit_free(&mut bytes, inode.ino, generation, geometry);
        let image = Image { bytes, size: geometry.inode_size as usize };
        trans.log_image(&inode.item, image, InodeFields::CORE);
    }

    /// Blocks of metadata that are freed are never written again, nor brought back by recovery.
    /// `unit` are the blocks of the fork that a buffer takes, as far as they lie together.
    fn invalidate(&self, cx: &mut Cx, trans: &mut Trans, extent: &Extent, unit: u64) -> Result<()> {
        let bufs = self.log.bufs();
        let sectors = self.space.geometry.block_sectors();
        let first = self.space.geometry.sector(extent.start);
        let mut block = 0;
        while block < u64::from(extent.count) {
            let daddr = first + block * sectors;
            // Who is not in memory is in the log perhaps, with the length that it had there.
            let left = u64::from(extent.count) - block;
            let len = left.min(unit - (extent.offset + block) % unit) * sectors;
            let alone = [BufMap { daddr, len: len as u32 }];
            let known = bufs.find(daddr.0);
            let maps = known.as_ref().map_or(&alone[..], |buf| buf.maps());
            let len = u64::from(maps[0].len);
            let buf = trans.get_buf(cx, maps, &RAW)?;
            trans.invalidate(&buf);
            block += (len / sectors).max(1);
        }
        Ok(())
    }

    /// Blocks of a fork that a buffer takes at the most, and at a multiple of which it begins; none
    /// where the fork has the content of a file.
    fn unit(&self, which: Which, file_type: u16) -> Option<u64> {
        match (which, file_type) {
            (Which::Attr, _) => Some(1),
            (Which::Data, 0x4000) => Some(self.space.geometry.dir_blocks().into()),
            // One buffer for each run of a symbolic link.
            (Which::Data, 0xa000) => Some(SYMLINK_BLOCKS),
            (Which::Data, _) => None,
        }
    }

    /// Takes all extents out of a fork and frees them.
    fn empty_fork(&self, cx: &mut Cx, dying: &mut UncachedInode, which: Which) -> Result<()> {
        let core = &dying.core;
        let (format, count) = match which {
            Which::Data => (core.format, core.extents),
            Which::Attr => (core.attr_format, core.attr_extents.into()),
        };
        if format == ForkFormat::Extents && count == 0 {
            return Ok(());
        }
        let mut fork = dying.whole_fork(cx, self.space, which)?;
        if !matches!(fork.format, ForkFormat::Extents | ForkFormat::Btree) {
            return Ok(());
        }
        if fork.realtime {
            return self.empty_realtime(cx, dying, &mut fork);
        }
        let reflink = dying.core.flags2.contains(Flags2::REFLINK);
        loop {
            let extents = fork.extents.as_deref().unwrap_or_default();
            let Some(end) = extents.last().map(Extent::end) else { return Ok(()) };
            let from = extents[extents.len().saturating_sub(EXTENTS)].offset;
            let mut trans = Trans::alloc(cx, self.log, STEP)?;
            let mut edit = dying.edit(self.space, &mut fork, which);
            let gone = edit.remove(cx, &mut trans, from..end)?;
            let unit = self.unit(which, dying.core.file_type());
            for extent in gone.iter().rev() {
                if let Some(unit) = unit {
                    self.invalidate(cx, &mut trans, extent, unit)?;
                }
                dying.core.blocks -= u64::from(extent.count);
                self.space.defer_drop(&mut trans, Section::Data, dying.ino, which, extent, reflink);
            }
            dying.store(which, &fork);
            dying.log(&mut trans);
            trans.commit(cx)?;
        }
    }

    /// Gives back what a file has of the realtime section.
    fn empty_realtime(
        &self,
        cx: &mut Cx,
        dying: &mut UncachedInode,
        fork: &mut Fork,
    ) -> Result<()> {
        let space = self.space;
        let Some(realtime) = space.realtime() else {
            let what = "files in a realtime section that is not there";
            return Err(LogError::Unfinished { what }.into());
        };
        let mut more = fork.extents.as_deref().is_some_and(|extents| !extents.is_empty());
        while more {
            let mut trans = Trans::alloc(cx, self.log, reservations::realtime(&space.geometry))?;
            realtime.join(cx, &mut trans);
            let reflink = dying.core.flags2.contains(Flags2::REFLINK);
            let mut edit = dying.edit(space, fork, Which::Data);
            let mut file = FileBlocks { edit: &mut edit, reflink };
            more = file.unmap_last_realtime(cx, &mut trans, realtime, 0..OFFSET_MAX)?;
            dying.store(Which::Data, fork);
            dying.log(&mut trans);
            trans.commit(cx)?;
        }
        Ok(())
    }

    /// Takes it off its list and marks it as free.
    fn free_inode(&mut self, cx: &mut Cx, dying: UncachedInode) -> Result<()> {
        let geometry = &self.space.geometry;
        let mut trans = Trans::alloc(cx, self.log, STEP)?;
        self.inodes.remove_unlinked(cx, &mut trans, dying.ino)?;
        let mut image = dying.image;
        inode::emit_free(&mut image, dying.ino, dying.core.generation.wrapping_add(1), geometry);
        trans.log_inode(&dying.item, &image, InodeFields::CORE);
        if let FreedInode::Chunk(first) = self.inodes.free(cx, &mut trans, dying.ino)? {
            let chunk = first.0..first.0 + 64;
            if let Some(fs) = self.mount {
                for inode in chunk.clone().filter_map(|ino| fs.inodes.find(Ino(ino))) {
                    trans.invalidate_inode(&inode.item);
                }
                trans.invalidate_inode(&dying.item);
            }
            for item in self.items.iter().filter(|item| chunk.contains(&item.place().ino)) {
                trans.invalidate_inode(item);
            }
        }
        trans.commit(cx)?;
        Ok(())
    }
}

/// Frees an inode that has no name and that nobody has open. May park.
///
/// # Errors
/// The device failed; a structure that is wrong.
pub(crate) fn inactivate_if_unused(
    fs: &Xfs,
    cx: &mut Cx,
    inode: &Arc<Inode>,
) -> std::result::Result<(), Errno> {
    let mine = inode.with(cx, |state| {
        let unused = state.core.links == 0 && state.opens == 0 && !state.freed;
        state.freed |= unused;
        unused
    });
    if !mine {
        return Ok(());
    }
    let writer = fs.writer()?;
    let guard = inode.rwsem.write(cx);
    let file = DataFile::new(fs, inode);
    file.drop_content(cx);
    file.cancel_cow(cx, 0..u64::MAX)?;
    let freed = Inactive::free_live(cx, fs, writer, inode);
    drop(guard);
    // The number may be another's by now, so that the dead inode is not put back.
    fs.inodes.outdate(inode.ino);
    freed.map_err(|error| fs.fail(error))
}
