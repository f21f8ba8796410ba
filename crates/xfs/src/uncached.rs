//! Inodes that recovery changes before the file system is mounted.
//!
//! The change is in the log, and in its cluster only after that was written back; until then the
//! image here is the newest one.

use std::sync::Arc;

use base::{FsBlock, Ino};
use rt::Cx;

use crate::alloc::Space;
use crate::bmap::edit::MapEdit;
use crate::bmap::{Fork, Forks, Which};
use crate::btree::key;
use crate::buf::INODE_CLUSTER;
use crate::error::Result;
use crate::format::btree::{MapRoot, Node};
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::inode::{self, ForkFormat, InodeCore};
use crate::format::{At, Corrupt, CorruptKind, Geometry, Kind, verifier};
use crate::ialloc::cluster_of;
use crate::log::inode_item::{InodeFields, InodeItem, InodePlace};
use crate::trans::Trans;

/// An inode without a mount.
pub(crate) struct UncachedInode {
    pub ino: Ino,
    pub core: InodeCore,
    pub image: Vec<u8>,
    pub item: Arc<InodeItem>,
}

impl UncachedInode {
    /// Reads an inode that is in use. May park.
    ///
    /// # Errors
    /// The first check that fails; the device failed.
    pub fn read(cx: &mut Cx, space: &Space, ino: Ino) -> Result<UncachedInode> {
        let geometry = &space.geometry;
        if !geometry.ino_valid(ino) {
            return Err(CorruptKind::InodeNumber(ino.0).at(At::Inode(ino)).into());
        }
        let (cluster, offset) = cluster_of(geometry, ino);
        let size = geometry.inode_size as usize;
        let buf = space.log.bufs().read(cx, &[cluster], &INODE_CLUSTER)?;
        let image = buf.with_range(offset, size, |slot| slot.to_vec());
        drop(buf);
        inode::verify(&image, ino, geometry)?;
        let core = InodeCore::parse(&image, ino, geometry)?;
        let item = InodeItem::new(InodePlace { ino: ino.0, cluster, offset: offset as u32 });
        let inode = UncachedInode { ino, core, image, item };
        let content = match inode.core.is_realtime() && space.log.dquots().is_some() {
            true => inode.whole_fork(cx, space, Which::Data)?.extents,
            false => None,
        };
        inode.item.begin_charge(&inode.image, content.as_deref().unwrap_or_default());
        Ok(inode)
    }

    /// A new inode.
    pub fn new(geometry: &Geometry, ino: Ino, core: InodeCore) -> UncachedInode {
        let (cluster, offset) = cluster_of(geometry, ino);
        let mut image = vec![0; geometry.inode_size as usize];
        let expect = geometry.expect(base::Sector(0), Some(ino.0));
        verifier::stamp(Kind::Inode, &mut image, &expect);
        core.emit(&mut image);
        let item = InodeItem::new(InodePlace { ino: ino.0, cluster, offset: offset as u32 });
        UncachedInode { ino, core, image, item }
    }

    /// One of its forks, without its extents.
    pub fn fork(&self, which: Which) -> Fork {
        let (data, attr) = inode::fork_ranges(self.core.forkoff, self.image.len());
        match which {
            Which::Data => {
                let bytes = self.image[data].to_vec();
                let fork = Fork::new(self.core.format, bytes, self.core.extents);
                fork.of_realtime(self.core.is_realtime())
            }
            Which::Attr => {
                let count = u64::from(self.core.attr_extents);
                Fork::new(self.core.attr_format, self.image[attr].to_vec(), count)
            }
        }
    }

    /// One of its forks with its extents. May park.
    ///
    /// # Errors
    /// A map that fails a check; the device failed.
    pub fn whole_fork(&self, cx: &mut Cx, space: &Space, which: Which) -> Result<Fork> {
        let mut fork = self.fork(which);
        if fork.extents.is_none() {
            fork.extents = Some(self.extents(cx, space, &fork)?.into());
        }
        Ok(fork)
    }

    /// Both forks with their extents. May park.
    ///
    /// # Errors
    /// As [`UncachedInode::whole_fork`].
    pub fn forks(&self, cx: &mut Cx, space: &Space) -> Result<Forks> {
        let mut forks = Forks::new(&self.image, &self.core);
        for which in [Which::Data, Which::Attr] {
            let fork = forks.get_mut(which);
            if fork.extents.is_none() {
                fork.extents = Some(self.extents(cx, space, fork)?.into());
            }
        }
        Ok(forks)
    }

    /// Puts both forks into the image, with the core, which says where they lie.
    pub fn store_forks(&mut self, forks: &mut Forks) {
        let core = &mut self.core;
        (core.format, core.extents) = (forks.data.format, forks.data.count);
        (core.attr_format, core.attr_extents) = (forks.attr.format, forks.attr.count as u32);
        let (data, attr) = inode::fork_ranges(core.forkoff, self.image.len());
        for (range, fork) in [(data, &mut forks.data), (attr, &mut forks.attr)] {
            fork.make_bytes();
            let slot = &mut self.image[range];
            let used = fork.bytes.len().min(slot.len());
            slot[..used].copy_from_slice(&fork.bytes[..used]);
            slot[used..].fill(0);
        }
        self.core.emit(&mut self.image);
    }

    /// Puts a changed fork into the image.
    pub fn store(&mut self, which: Which, fork: &Fork) {
        let (data, attr) = inode::fork_ranges(self.core.forkoff, self.image.len());
        match which {
            Which::Data => {
                (self.core.format, self.core.extents) = (fork.format, fork.count);
                self.image[data].copy_from_slice(&fork.bytes);
            }
            Which::Attr => {
                (self.core.attr_format, self.core.attr_extents) = (fork.format, fork.count as u32);
                self.image[attr].copy_from_slice(&fork.bytes);
            }
        }
        self.core.emit(&mut self.image);
    }

    /// Notes the image as changed by a transaction.
    pub fn log(&self, trans: &mut Trans) {
        let fields = InodeFields::CORE | InodeFields::DATA | InodeFields::ATTR;
        trans.log_inode(&self.item, &self.image, fields);
    }

    /// For changing the map of one of its forks, which [`UncachedInode::store`] takes back.
    pub fn edit<'a>(
        &'a mut self,
        space: &'a Space,
        fork: &'a mut Fork,
        which: Which,
    ) -> MapEdit<'a> {
        let near = space.geometry.ino_place(self.ino).0;
        let content = Some(self.item.content());
        let blocks = &mut self.core.blocks;
        MapEdit { space, ino: self.ino, which, fork, blocks, near, content }
    }

    /// The extents of a fork in order.
    fn extents(&self, cx: &mut Cx, space: &Space, fork: &Fork) -> Result<Vec<Extent>> {
        let at = At::Inode(self.ino);
        let mut extents = Vec::new();
        if fork.format == ForkFormat::Extents {
            let list = fork.bytes.chunks_exact(EXTENT_SIZE).take(fork.count as usize);
            extents.extend(list.map(Extent::read));
        } else {
            let root = MapRoot::parse(&fork.bytes, at)?;
            let mut row: Vec<u64> = (0..root.len()).map(|index| root.pointer(index)).collect();
            for level in (0..root.level).rev() {
                if row.len() as u64 > self.core.blocks {
                    return Err(CorruptKind::InodeBlocks { found: self.core.blocks }.at(at).into());
                }
                row = descend(cx, space, at, &row, level, &mut extents)?;
            }
        }
        check_extents(&extents, fork, &space.geometry, at)?;
        Ok(extents)
    }
}

/// Reads a row of blocks of a btree: returns the row below, or appends the records.
fn descend(
    cx: &mut Cx,
    space: &Space,
    at: At,
    row: &[u64],
    level: u16,
    extents: &mut Vec<Extent>,
) -> Result<Vec<u64>> {
    let mut below = Vec::new();
    for &block in row {
        let place = FsBlock(block);
        if !space.geometry.block_valid(place) {
            let what = Kind::Bmap.name();
            return Err(CorruptKind::BtreePointer { what, index: 0, block }.at(at).into());
        }
        let map = space.block_map(space.split(place));
        let buf = space.log.bufs().read(cx, &[map], key::ops(Kind::Bmap))?;
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

fn check_extents(
    extents: &[Extent],
    fork: &Fork,
    geometry: &Geometry,
    at: At,
) -> std::result::Result<(), Corrupt> {
    let (found, expected) = (extents.len() as u64, fork.count);
    if found != expected {
        return Err(CorruptKind::ExtentCount { found, expected }.at(at));
    }
    let mut end = 0;
    for extent in extents {
        extent.check(geometry, fork.realtime, at)?;
        if extent.offset < end {
            return Err(CorruptKind::ExtentOrder { offset: extent.offset, end }.at(at));
        }
        end = extent.end();
    }
    Ok(())
}
