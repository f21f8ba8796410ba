//! Inodes that lost their last name: their blocks are freed, then they are.
//!
//! Recovery finds them on the unlinked lists of the groups. Each transaction takes a few extents
//! off the end, so that a crash in the middle leaves a shorter file on the same list.

use std::sync::Arc;

use base::{FsBlock, Ino};
use rt::Cx;

use crate::alloc::{Owner, Space};
use crate::bmap::edit::MapEdit;
use crate::bmap::{Fork, Which};
use crate::buf::INODE_CLUSTER;
use crate::error::Result;
use crate::format::ag::UNLINKED_BUCKETS;
use crate::format::btree::{MapRoot, Node};
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::inode::{self, Flags2, ForkFormat, InodeCore};
use crate::format::{AgBlock, At, Corrupt, CorruptKind, Kind};
use crate::ialloc::{FreedInode, Inodes};
use crate::inode_item::{InodeFields, InodeItem, InodePlace};
use crate::log::{Log, LogError};
use crate::trans::intent::Work;
use crate::trans::{Reservation, Trans};
use crate::tree::key;

/// Log space of one step.
const STEP: Reservation = Reservation { bytes: 160 << 10, count: 2 };
/// Extents that one step frees at the most.
const EXTENTS: usize = 4;

/// Frees what nobody names any more.
pub(crate) struct Inactive<'a> {
    space: &'a Space,
    inodes: &'a Inodes,
    log: &'a Arc<Log>,
    /// The items of those that were changed: a chunk that goes takes them along.
    items: Vec<Arc<InodeItem>>,
}

/// An inode that is being freed.
struct Dying {
    ino: Ino,
    core: InodeCore,
    image: Vec<u8>,
    item: Arc<InodeItem>,
}

impl<'a> Inactive<'a> {
    pub fn new(space: &'a Space, inodes: &'a Inodes, log: &'a Arc<Log>) -> Inactive<'a> {
        Inactive { space, inodes, log, items: Vec::new() }
    }

    /// Frees all inodes on the unlinked lists; answers how many. May park.
    ///
    /// # Errors
    /// A list or an inode that fails a check; [`LogError::Unfinished`] for one that shares blocks.
    pub fn free_all(&mut self, cx: &mut Cx) -> Result<u64> {
        let mut count = 0;
        for ag in 0..self.space.geometry.ag_count {
            for bucket in 0..UNLINKED_BUCKETS {
                let mut trans = Trans::alloc(cx, self.log, Reservation::new(4096))?;
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
        let mut dying = self.read(cx, ino)?;
        if dying.core.links > 0 {
            return Err(LogError::Unfinished { what: "unlinked inodes that have names" }.into());
        }
        if dying.core.flags2.contains(Flags2::REFLINK) {
            return Err(LogError::Unfinished { what: "unlinked files that share blocks" }.into());
        }
        for which in [Which::Data, Which::Attr] {
            self.empty_fork(cx, &mut dying, which)?;
        }
        self.free_inode(cx, dying)
    }

    fn read(&mut self, cx: &mut Cx, ino: Ino) -> Result<Dying> {
        let geometry = &self.space.geometry;
        let (cluster, offset) = self.inodes.cluster_of(ino);
        let size = geometry.inode_size as usize;
        let buf = self.log.bufs().read(cx, &[cluster], &INODE_CLUSTER)?;
        let image = buf.with_range(offset, size, |slot| slot.to_vec());
        inode::verify(&image, ino, geometry)?;
        let core = InodeCore::parse(&image, ino, geometry)?;
        let item = InodeItem::new(InodePlace { ino: ino.0, cluster, offset: offset as u32 });
        self.items.push(item.clone());
        Ok(Dying { ino, core, image, item })
    }

    /// Takes all extents out of a fork and frees them.
    fn empty_fork(&self, cx: &mut Cx, dying: &mut Dying, which: Which) -> Result<()> {
        let mut fork = fork_of(dying, which);
        if !matches!(fork.format, ForkFormat::Extents | ForkFormat::Btree) {
            return Ok(());
        }
        fork.extents = Some(self.extents(cx, dying.ino, &fork, dying.core.blocks)?);
        loop {
            let extents = fork.extents.as_deref().unwrap_or_default();
            let Some(end) = extents.last().map(Extent::end) else { return Ok(()) };
            let from = extents[extents.len().saturating_sub(EXTENTS)].offset;
            let mut trans = Trans::alloc(cx, self.log, STEP)?;
            let mut edit = MapEdit {
                space: self.space,
                ino: dying.ino,
                which,
                fork: &mut fork,
                blocks: &mut dying.core.blocks,
                near: AgBlock { ag: 0, block: 0 },
            };
            let gone = edit.remove(cx, &mut trans, from, end - from)?;
            for extent in gone.iter().rev() {
                dying.core.blocks -= u64::from(extent.count);
                let attr = which == Which::Attr;
                let owner = Owner::fork(dying.ino.0, attr, extent.offset, extent.unwritten);
                let owner = Some((owner.owner, owner.offset, 0));
                trans.defer(Work::Free { start: extent.start.0, len: extent.count, owner });
            }
            store_fork(dying, which, &fork);
            let fields = InodeFields::CORE | InodeFields::DATA | InodeFields::ATTR;
            trans.log_inode(&dying.item, &dying.image, fields);
            trans.commit(cx)?;
        }
    }

    /// The extents of a fork in order.
    fn extents(&self, cx: &mut Cx, ino: Ino, fork: &Fork, limit: u64) -> Result<Vec<Extent>> {
        let at = At::Inode(ino);
        let mut extents = Vec::new();
        if fork.format == ForkFormat::Extents {
            let list = fork.bytes.chunks_exact(EXTENT_SIZE).take(fork.count as usize);
            extents.extend(list.map(Extent::read));
        } else {
            let root = MapRoot::parse(&fork.bytes, at)?;
            let mut row: Vec<u64> = (0..root.len()).map(|index| root.pointer(index)).collect();
            for level in (0..root.level).rev() {
                if row.len() as u64 > limit {
                    return Err(CorruptKind::InodeBlocks { found: limit }.at(at).into());
                }
                row = self.descend(cx, at, (&row, level), &mut extents)?;
            }
        }
        check_extents(&extents, fork.count, &self.space.geometry, at)?;
        Ok(extents)
    }

    /// Reads a row of blocks of a btree: answers the row below, or appends the records.
    fn descend(
        &self,
        cx: &mut Cx,
        at: At,
        (row, level): (&[u64], u16),
        extents: &mut Vec<Extent>,
    ) -> Result<Vec<u64>> {
        let mut below = Vec::new();
        for &block in row {
            let place = FsBlock(block);
            if !self.space.geometry.block_valid(place) {
                let what = Kind::Bmap.name();
                return Err(CorruptKind::BtreePointer { what, index: 0, block }.at(at).into());
            }
            let map = self.space.block_map(self.space.split(place));
            let buf = self.log.bufs().read(cx, &[map], key::ops(Kind::Bmap))?;
            buf.with(|data| -> std::result::Result<(), Corrupt> {
                let node = Node::parse_trusted(Kind::Bmap, data, Some(level), at)?;
                for index in 0..node.len() {
                    match level {
                        0 => extents.push(Extent::read(node.record(index))),
                        _ => below.push(node.pointer(index)),
                    }
                }
                Ok(())
            })?;
        }
        Ok(below)
    }

    /// Takes it off its list and marks it as free.
    fn free_inode(&mut self, cx: &mut Cx, dying: Dying) -> Result<()> {
        let geometry = &self.space.geometry;
        let mut trans = Trans::alloc(cx, self.log, STEP)?;
        self.inodes.remove_unlinked(cx, &mut trans, dying.ino)?;
        let mut image = dying.image;
        inode::emit_free(&mut image, dying.ino, dying.core.generation.wrapping_add(1), geometry);
        trans.log_inode(&dying.item, &image, InodeFields::CORE);
        if let FreedInode::Chunk(first) = self.inodes.free(cx, &mut trans, dying.ino)? {
            let chunk = first.0..first.0 + 64;
            for item in self.items.iter().filter(|item| chunk.contains(&item.place().ino)) {
                trans.invalidate_inode(item);
            }
        }
        trans.commit(cx)?;
        Ok(())
    }
}

fn fork_of(dying: &Dying, which: Which) -> Fork {
    let (data, attr) = inode::fork_ranges(dying.core.forkoff, dying.image.len());
    let core = &dying.core;
    match which {
        Which::Data => Fork::new(core.format, dying.image[data].to_vec(), core.extents),
        Which::Attr => {
            let count = u64::from(core.attr_extents);
            Fork::new(core.attr_format, dying.image[attr].to_vec(), count)
        }
    }
}

/// Puts a changed fork into the inode's image.
fn store_fork(dying: &mut Dying, which: Which, fork: &Fork) {
    let (data, attr) = inode::fork_ranges(dying.core.forkoff, dying.image.len());
    match which {
        Which::Data => {
            (dying.core.format, dying.core.extents) = (fork.format, fork.count);
            dying.image[data].copy_from_slice(&fork.bytes);
        }
        Which::Attr => {
            (dying.core.attr_format, dying.core.attr_extents) = (fork.format, fork.count as u32);
            dying.image[attr].copy_from_slice(&fork.bytes);
        }
    }
    dying.core.emit(&mut dying.image);
}

fn check_extents(
    extents: &[Extent],
    count: u64,
    geometry: &crate::format::Geometry,
    at: At,
) -> std::result::Result<(), Corrupt> {
    let (found, expected) = (extents.len() as u64, count);
    if found != expected {
        return Err(CorruptKind::ExtentCount { found, expected }.at(at));
    }
    let mut end = 0;
    for extent in extents {
        extent.check(geometry, at)?;
        if extent.offset < end {
            return Err(CorruptKind::ExtentOrder { offset: extent.offset, end }.at(at));
        }
        end = extent.end();
    }
    Ok(())
}
