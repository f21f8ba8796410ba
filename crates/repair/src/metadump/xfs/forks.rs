//! The blocks that the forks of an inode own.

use std::collections::BTreeSet;

use base::{FsBlock, Ino};
use xfs::format::btree::{MapRoot, ROOT_HEADER, Shape};
use xfs::format::dir::SPACES;
use xfs::format::inode::{Flags2, ForkFormat, InodeCore, MetadataType};
use xfs::format::{At, Extent, Kind, extent, verifier};

use super::blocks::{self, Owner};
use super::inodes::Content;
use super::{Branch, Dump};
use crate::metadump::DumpError;

/// What a block of attributes may be.
const ATTRIBUTES: &[Kind] = &[Kind::AttrLeaf, Kind::DaNode, Kind::AttrRemote];
/// What a block of a directory's index may be.
const INDEX: &[Kind] = &[Kind::DirLeaf1, Kind::DirLeafN, Kind::DaNode];

impl Dump<'_> {
    /// The blocks behind a fork: those of its map, and what they map if it is metadata.
    pub fn fork(
        &mut self,
        ino: Ino,
        core: &InodeCore,
        fork: &[u8],
        content: Content,
    ) -> Result<(), DumpError> {
        let of_attributes = content == Content::Attributes;
        let (format, count) = match of_attributes {
            true => (core.attr_format, core.attr_extents as usize),
            false => (core.format, core.extents as usize),
        };
        let mut extents = Vec::new();
        match format {
            ForkFormat::Extents => extents.extend(extent::list(fork).take(count)),
            ForkFormat::Btree => {
                let Ok(root) = MapRoot::parse(fork, At::Inode(ino)) else { return Ok(()) };
                let branches = (0..root.len())
                    .rev()
                    .map(|index| Branch { block: root.pointer(index), level: root.level - 1 });
                let keep = content != Content::Private;
                self.branches(ino, Kind::Bmap, branches.collect(), &mut |record| {
                    extents.extend(keep.then(|| Extent::read(record)));
                })?;
            }
            _ => {}
        }
        if content == Content::Private || (core.is_realtime() && !of_attributes) {
            return Ok(());
        }
        let metadata = core.flags2.contains(Flags2::METADATA);
        extents.retain(|extent| self.g.extent_valid(extent.start, extent.count.into()));
        extents.sort_by_key(|extent| extent.offset);
        self.contents(ino, metadata, &extents, content)
    }

    /// The tree of a group of the realtime section, whose root is the fork.
    pub fn section_tree(&mut self, ino: Ino, slot: &[u8], root: &[u8]) -> Result<(), DumpError> {
        let number = u16::from_be_bytes([slot[6], slot[7]]);
        let Some(kind) = MetadataType::tree_of(number) else { return Ok(()) };
        let half = |at: usize| u16::from_be_bytes([root[at], root[at + 1]]);
        let (level, count) = (half(0), usize::from(half(2)));
        let shape = Shape::of(kind);
        let most = shape.root_max(root.len(), level);
        if level == 0 || count > most {
            return Ok(());
        }
        let pointers = ROOT_HEADER + most * shape.key * shape.keys;
        let branches = (0..count).rev().map(|index| {
            let bytes = &root[pointers + index * shape.pointer..][..8];
            let block = u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
            Branch { block, level: level - 1 }
        });
        self.branches(ino, kind, branches.collect(), &mut |_| {})
    }

    /// The blocks below a root in an inode; `each` gets the records of the leaves.
    fn branches(
        &mut self,
        ino: Ino,
        kind: Kind,
        mut todo: Vec<Branch>,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DumpError> {
        let mut seen = BTreeSet::new();
        while let Some(Branch { block, level }) = todo.pop() {
            let at = At::Inode(ino);
            if !self.g.block_valid(FsBlock(block)) || !seen.insert(block) {
                self.out.leave_out(format!("{at}: a node of its map at {block}"));
                continue;
            }
            let linear = self.g.linear(self.g.split(FsBlock(block)));
            let below = self.node(kind, &Branch { block: linear, level }, at, each)?;
            let branch = |block| Branch { block, level: level - 1 };
            todo.extend(below.into_iter().rev().map(branch));
        }
        Ok(())
    }

    /// The blocks that extents of metadata map.
    fn contents(
        &mut self,
        ino: Ino,
        metadata: bool,
        extents: &[Extent],
        content: Content,
    ) -> Result<(), DumpError> {
        let [_, index, free] = SPACES.map(|space| space >> self.g.block_bits);
        let options = self.out.options;
        let owner = Owner { options: &options, ino, metadata, ftype: self.g.features.ftype() };
        let mut next = 0;
        for extent in extents {
            let unit = match content {
                // A directory block may lie in several extents.
                Content::Directory => u64::from(self.g.dir_blocks()),
                // One header for each extent.
                Content::Target => extent.count.clamp(1, 64).into(),
                _ => 1,
            };
            let mut offset = (extent.offset - extent.offset % unit).max(next);
            if content == Content::Target {
                offset = extent.offset;
            }
            while offset < extent.end() {
                let kinds = match content {
                    Content::Attributes => ATTRIBUTES,
                    Content::Target => &[Kind::Symlink],
                    Content::Directory if offset >= free => &[Kind::DirFree],
                    Content::Directory if offset >= index => INDEX,
                    Content::Directory => &[Kind::DirBlock, Kind::DirData],
                    _ => &[],
                };
                let places = (offset..offset + unit).filter_map(|at| place(extents, at));
                let places: Vec<u64> =
                    places.map(|block| self.g.linear(self.g.split(block))).collect();
                let at = At::InodeBlock(ino, offset);
                match places.len() as u64 == unit {
                    true => self.content(&places, kinds, &owner, at)?,
                    false => self.out.leave_out(format!("{at}: not all of its block is mapped")),
                }
                offset += unit;
            }
            next = offset;
        }
        Ok(())
    }

    /// One piece of metadata, of one of these kinds, or of the file system's own content.
    fn content(
        &mut self,
        places: &[u64],
        kinds: &[Kind],
        owner: &Owner<'_>,
        at: At,
    ) -> Result<(), DumpError> {
        let size = self.g.block_size as usize;
        let mut data = Vec::with_capacity(size * places.len());
        for &place in places {
            data.extend_from_slice(&self.view.read(place)?);
        }
        let kind = kinds.iter().find(|&&kind| verifier::verify_magic(kind, &data, at).is_ok());
        if let Some(&kind) = kind {
            let (sound, old) = (self.is_sound(kind, &data), data.clone());
            if blocks::clean(kind, &mut data, owner, at) {
                self.seal(kind, &mut data, sound);
            } else if self.out.keeps_names() {
                data = old;
            } else {
                self.out.leave_out(format!("{at}: a damaged {}", kind.name()));
                return Ok(());
            }
        } else if !kinds.is_empty() && !self.out.keeps_names() {
            self.out.leave_out(format!("{at}: no {}", kinds[0].name()));
            return Ok(());
        }
        for (block, &place) in data.chunks_exact(size).zip(places) {
            self.out.put(place * u64::from(self.g.block_size), block)?;
        }
        Ok(())
    }
}

/// The block of the file system at a place of a fork.
fn place(extents: &[Extent], offset: u64) -> Option<FsBlock> {
    let index = extents.partition_point(|extent| extent.end() <= offset);
    let extent = extents.get(index).filter(|extent| extent.offset <= offset)?;
    Some(FsBlock(extent.start.0 + (offset - extent.offset)))
}
