//! Directories: looking names up and listing them, in all forms.
//!
//! A directory's blocks lie in three spaces of its fork: data blocks from 0, hash index from
//! 32 GiB, free blocks from 64 GiB. Which form a directory has follows from its fork: local form is
//! in the inode; one block in all is a single-block directory; otherwise the block at 32 GiB is a
//! leaf or a node.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;
use vfs::{DirEntry, FileType as VfsType};

use crate::Xfs;
use crate::bmap::{self, Which};
use crate::buf::meta::{Meta, ReadRequest, Reader};
use crate::da_btree::{self, LeafBlock};
use crate::error::Fault;
use crate::format::dir::{DataBlock, FileType, Item, SPACES, check_entry};
use crate::format::dir_index::Leaf;
use crate::format::dir_sf::Shortform;
use crate::format::hash::Case;
use crate::format::inode::ForkFormat;
use crate::format::{At, CorruptKind, Geometry, Kind, da};
use crate::inode::Inode;

pub(crate) mod edit;
mod readdir;

/// The form of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// In the inode.
    Local,
    /// One block with names and index.
    Block,
    /// Data blocks, and a leaf or a tree of them.
    Indexed,
}

/// A directory that is being looked at. The caller holds its `rwsem`.
pub(crate) struct Dir<'a> {
    pub fs: &'a Xfs,
    pub inode: &'a Arc<Inode>,
    pub form: Form,
}

/// What a look for a name found.
pub(crate) struct Found {
    pub ino: Ino,
    /// The name as it is stored, where that may be in another case.
    pub stored: Option<Vec<u8>>,
}

/// The type in a directory entry as the layers above know it.
pub(crate) fn vfs_type(file_type: FileType) -> Option<VfsType> {
    Some(match file_type {
        FileType::Regular => VfsType::Regular,
        FileType::Directory => VfsType::Directory,
        FileType::CharDevice | FileType::Whiteout => VfsType::CharDevice,
        FileType::BlockDevice => VfsType::BlockDevice,
        FileType::Fifo => VfsType::Fifo,
        FileType::Socket => VfsType::Socket,
        FileType::Symlink => VfsType::Symlink,
        FileType::Unknown => return None,
    })
}

/// Block of the fork, in file system blocks, where a space begins.
pub(crate) fn space_start(geometry: &Geometry, space: usize) -> u64 {
    SPACES[space] >> geometry.block_bits
}

/// The form of a directory whose fork has this format and ends behind block `end`.
pub(crate) fn form_of(format: ForkFormat, end: u64, geometry: &Geometry) -> Form {
    match format {
        ForkFormat::Local => Form::Local,
        _ if end == u64::from(geometry.dir_blocks()) => Form::Block,
        _ => Form::Indexed,
    }
}

impl<'a> Dir<'a> {
    /// The directory of an inode. May wait for the device.
    ///
    /// # Errors
    /// `ENOTDIR`; the fork cannot be read.
    pub fn open(fs: &'a Xfs, cx: &mut Cx, inode: &'a Arc<Inode>) -> Result<Dir<'a>, Errno> {
        if inode.kind(cx) != VfsType::Directory {
            return Err(Errno::ENOTDIR);
        }
        let format = inode.with(cx, |state| state.core.format);
        let end = inode
            .extents(cx, Which::Data, |list| list.last().map_or(0, |last| last.end()))
            .map_err(|fault| fs.fault(fault))?;
        let form = form_of(format, end, fs.geometry());
        let dir = Dir { fs, inode, form };
        if form != Form::Local && !dir.size(cx).is_multiple_of(dir.block_size()) {
            let kind = CorruptKind::DirSize { size: dir.size(cx) };
            return Err(fs.fault(kind.at(dir.at()).into()));
        }
        Ok(dir)
    }

    fn at(&self) -> At {
        At::Inode(self.inode.ino)
    }

    fn size(&self, cx: &Cx) -> u64 {
        self.inode.size(cx)
    }

    fn block_size(&self) -> u64 {
        u64::from(self.fs.geometry().dir_block_size)
    }

    fn case(&self) -> Case {
        self.fs.geometry().features.case()
    }

    fn ftype(&self) -> bool {
        self.fs.geometry().features.ftype()
    }

    /// Looks at the small directory in the inode.
    fn with_local<R>(
        &self,
        cx: &mut Cx,
        look: impl FnOnce(&Shortform<'_>) -> R,
    ) -> Result<R, Fault> {
        let forks = self.inode.forks.read(cx);
        let directory =
            Shortform::parse(&forks.data.bytes, &self.fs.geometry().features, self.at())?;
        Ok(look(&directory))
    }

    /// Reads the directory block that begins at block `offset` of the fork. None in a hole.
    fn block(
        &self,
        cx: &mut Cx,
        offset: u64,
        kinds: &'static [Kind],
    ) -> Result<Option<(Kind, Meta)>, Fault> {
        let count = u64::from(self.fs.geometry().dir_blocks());
        let runs = self.inode.extents(cx, Which::Data, |list| {
            let range = offset..offset + count;
            bmap::runs(list, range.clone()).ok_or_else(|| bmap::lookup(list, range))
        })?;
        match runs {
            Ok(runs) => {
                read_block(&self.fs.reader, cx, self.inode.ino, offset, &runs, kinds).map(Some)
            }
            Err(hole) if hole.start.is_none() && hole.count == count => Ok(None),
            Err(_) => Err(CorruptKind::DirHole { block: offset }.at(self.at()).into()),
        }
    }

    /// As [`Dir::block`], where a hole is damage.
    fn block_must(
        &self,
        cx: &mut Cx,
        offset: u64,
        kinds: &'static [Kind],
    ) -> Result<(Kind, Meta), Fault> {
        let kind = CorruptKind::DirHole { block: offset };
        self.block(cx, offset, kinds)?.ok_or_else(|| kind.at(self.at()).into())
    }

    /// Reads data block number `index`. None in a hole.
    fn data_block(&self, cx: &mut Cx, index: u64) -> Result<Option<(Kind, Meta)>, Fault> {
        let kind = if self.form == Form::Block { Kind::DirBlock } else { Kind::DirData };
        self.block(cx, index * u64::from(self.fs.geometry().dir_blocks()), kind.alone())
    }

    /// True if it has no name but `.` and `..`. May wait for the device.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub fn is_empty(&self, cx: &mut Cx) -> Result<bool, Errno> {
        let mut empty = true;
        let listed = self.list(cx, 0, &mut |entry| {
            empty = matches!(entry.name, b"." | b"..");
            empty
        });
        listed.map_err(|fault| self.fs.fault(fault))?;
        Ok(empty)
    }

    /// Finds a name; `.` and `..` as well. May wait for the device.
    ///
    /// # Errors
    /// `ENOENT`, `ENAMETOOLONG`, `EUCLEAN`, `EIO`.
    pub fn lookup(&self, cx: &mut Cx, name: &[u8]) -> Result<Ino, Errno> {
        Ok(self.find(cx, name)?.ino)
    }

    /// As [`Dir::lookup`], with the name as it is stored.
    ///
    /// # Errors
    /// Those of [`Dir::lookup`].
    pub fn find(&self, cx: &mut Cx, name: &[u8]) -> Result<Found, Errno> {
        if name.len() > vfs::NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let found = match (self.form, name) {
            (_, b".") => Ok(Some(Found { ino: self.inode.ino, stored: None })),
            (Form::Local, b"..") => {
                self.with_local(cx, |local| Some(Found { ino: local.parent, stored: None }))
            }
            (Form::Local, _) => self.with_local(cx, |local| {
                let found = local.entries().find(|entry| self.case().same(entry.name, name));
                found.map(|entry| self.found(entry.ino, entry.name))
            }),
            (Form::Block, _) => self.lookup_block(cx, name),
            (Form::Indexed, _) => self.lookup_indexed(cx, name),
        };
        let found = found.map_err(|fault| self.fs.fault(fault))?.ok_or(Errno::ENOENT)?;
        if !self.fs.geometry().ino_valid(found.ino) {
            let kind = CorruptKind::DirInode { offset: 0, ino: found.ino.0 };
            return Err(self.fs.fault(kind.at(self.at()).into()));
        }
        Ok(found)
    }

    fn found(&self, ino: Ino, name: &[u8]) -> Found {
        Found { ino, stored: (self.case() == Case::Ignored).then(|| name.to_vec()) }
    }

    /// The entry at `address` where it has this name.
    fn matches(
        &self,
        block: &DataBlock<'_>,
        address: u32,
        hash: u32,
        name: &[u8],
        at: At,
    ) -> Result<Option<Found>, Fault> {
        let offset = (u64::from(address) << 3) % self.block_size();
        let (item, _) = block.item(offset as usize, at)?;
        let Item::Entry { ino, name: stored, offset, .. } = item else {
            return Err(CorruptKind::DirAddress { hash, address }.at(at).into());
        };
        if !self.case().same(stored, name) {
            return Ok(None);
        }
        check_entry(stored, ino, offset, self.fs.geometry(), at)?;
        Ok(Some(self.found(ino, stored)))
    }

    fn lookup_block(&self, cx: &mut Cx, name: &[u8]) -> Result<Option<Found>, Fault> {
        let at = At::InodeBlock(self.inode.ino, 0);
        let (kind, data) = self.block_must(cx, 0, &[Kind::DirBlock])?;
        let block = DataBlock::new(kind, &data, self.ftype(), at)?;
        let (index, hash) = (block.index(), self.case().hash(name));
        let from = index.lower_bound(hash);
        for place in from..index.len() {
            let entry = index.get(place);
            if entry.hash != hash {
                break;
            }
            if entry.address != 0
                && let Some(found) = self.matches(&block, entry.address, hash, name, at)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn lookup_indexed(&self, cx: &mut Cx, name: &[u8]) -> Result<Option<Found>, Fault> {
        let hash = self.case().hash(name);
        let root = space_start(self.fs.geometry(), 1);
        let at = |block| At::InodeBlock(self.inode.ino, block);
        let kinds = &[Kind::DirLeaf1, Kind::DirLeafN, Kind::DaNode];
        let leaf = da_btree::find_leaf(root, hash, at, |block| self.block_must(cx, block, kinds))?;
        let Some(LeafBlock { mut kind, mut data, .. }) = leaf else { return Ok(None) };
        // Names of one hash may go on in the next leaves: no more of them than there are blocks.
        let mut left = self.size(cx) / self.block_size() + 2;
        loop {
            let leaf = Leaf::parse_counts(kind, &data, self.at())?;
            let entries = leaf.entries();
            for place in entries.lower_bound(hash)..entries.len() {
                let entry = entries.get(place);
                if entry.hash != hash {
                    return Ok(None);
                }
                if entry.address != 0
                    && let Some(found) = self.match_in_block(cx, entry.address, hash, name)?
                {
                    return Ok(Some(found));
                }
            }
            let right = da::siblings(&data).right;
            left = left.saturating_sub(1);
            if right == 0 || kind == Kind::DirLeaf1 {
                return Ok(None);
            }
            if left == 0 {
                return Err(CorruptKind::DaLoop { block: right }.at(self.at()).into());
            }
            (kind, data) = self.block_must(cx, u64::from(right), &[Kind::DirLeafN])?;
        }
    }

    fn match_in_block(
        &self,
        cx: &mut Cx,
        address: u32,
        hash: u32,
        name: &[u8],
    ) -> Result<Option<Found>, Fault> {
        let index = (u64::from(address) << 3) / self.block_size();
        let at = At::InodeBlock(self.inode.ino, index * u64::from(self.fs.geometry().dir_blocks()));
        let found = self.data_block(cx, index)?;
        let kind = CorruptKind::DirAddress { hash, address };
        let (kind, data) = found.ok_or_else(|| kind.at(at))?;
        let block = DataBlock::new(kind, &data, self.ftype(), at)?;
        self.matches(&block, address, hash, name, at)
    }
}

/// Reads the blocks of one directory block of `ino`, which begins at block `offset` of its fork.
pub(crate) fn read_block(
    reader: &Reader,
    cx: &mut Cx,
    ino: Ino,
    offset: u64,
    runs: &[(base::FsBlock, u32)],
    kinds: &'static [Kind],
) -> Result<(Kind, Meta), Fault> {
    let want = ReadRequest { kinds, owner: Some(ino.0), at: At::InodeBlock(ino, offset) };
    reader.read(cx, runs, &want)
}

/// Lists what `emit` takes. See [`vfs::FileSystem::readdir`].
pub(crate) type Emit<'e> = &'e mut dyn FnMut(DirEntry) -> bool;
