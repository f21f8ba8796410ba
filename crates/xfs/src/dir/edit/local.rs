//! A small directory in its inode.

use base::Ino;
use rt::Cx;
use smallvec::SmallVec;

use super::{DirEdit, Name};
use crate::bmap::Extents;
use crate::error::Result;
use crate::format::dir::{BLOCK_TAIL, DATA_HEADER, FileType, LEAF_ENTRY, entry_size, fill_block};
use crate::format::dir_sf::{self, SfEntry, Shortform};
use crate::format::inode::{ForkFormat, fork_ranges};
use crate::format::{At, Corrupt, Features, Geometry, Kind};
use crate::inode::Inode;

/// The bytes of a name; no allocation where it is short, as those in inodes are.
pub(super) type NameBytes = SmallVec<[u8; 24]>;

/// A name of a small directory with memory of its own.
#[derive(Clone)]
pub(super) struct Kept {
    pub name: NameBytes,
    /// Where it would lie in a block.
    pub offset: u16,
    pub file_type: FileType,
    pub ino: Ino,
}

impl Kept {
    fn entry(&self) -> SfEntry<'_> {
        let Kept { name, offset, file_type, ino } = self;
        SfEntry { name, offset: *offset, file_type: *file_type, ino: *ino }
    }
}

/// A small directory taken apart.
pub(super) struct Small {
    pub parent: Ino,
    pub names: Vec<Kept>,
}

impl Small {
    pub fn parse(data: &[u8], features: &Features, at: At) -> std::result::Result<Small, Corrupt> {
        let local = Shortform::parse(data, features, at)?;
        let names = local.entries().map(|entry| Kept {
            name: NameBytes::from_slice(entry.name),
            offset: entry.offset,
            file_type: entry.file_type,
            ino: entry.ino,
        });
        Ok(Small { parent: local.parent, names: names.collect() })
    }

    /// Bytes of the directory in the inode.
    pub fn size(&self, ftype: bool) -> usize {
        let wide = |ino: Ino| ino.0 > u64::from(u32::MAX);
        let any_wide = wide(self.parent) || self.names.iter().any(|kept| wide(kept.ino));
        dir_sf::size(self.names.iter().map(Kept::entry), any_wide, ftype)
    }

    pub fn emit(&self, ftype: bool) -> Vec<u8> {
        let mut data = vec![0; self.size(ftype)];
        let entries: Vec<_> = self.names.iter().map(Kept::entry).collect();
        dir_sf::emit(&mut data, self.parent, &entries, ftype);
        data
    }

    /// Where a name of `size` bytes would lie in a block of `block` bytes, and its place in the
    /// list: the first gap, or behind the last. None if the block would be full.
    fn place(&self, size: usize, block: usize, ftype: bool) -> Option<(u16, usize)> {
        let mut at = DATA_HEADER + entry_size(1, ftype) + entry_size(2, ftype);
        let mut gap = None;
        for (index, kept) in self.names.iter().enumerate() {
            if gap.is_none() && usize::from(kept.offset) >= at + size {
                gap = Some((at as u16, index));
            }
            at = usize::from(kept.offset) + entry_size(kept.name.len(), ftype);
        }
        let index = LEAF_ENTRY * (self.names.len() + 3) + BLOCK_TAIL;
        let end = if gap.is_some() { at } else { at + size };
        (end + index <= block).then(|| gap.unwrap_or((at as u16, self.names.len())))
    }
}

/// Whether a name of `len` bytes fits into the directory while it is a small one: a guess on the
/// safe side. False for any other form.
pub(super) fn fits(cx: &mut Cx, geometry: &Geometry, inode: &Inode, len: usize) -> bool {
    let forkoff = inode.with(cx, |state| state.core.forkoff);
    let room = fork_ranges(forkoff, geometry.inode_size as usize).0.len();
    let forks = inode.forks.read(cx);
    let bytes = &forks.data.bytes;
    // Every number may become wide.
    let names = bytes.first().map_or(0, |&count| usize::from(count));
    let worst = bytes.len() + 4 * (names + 1) + 3 + len + 1 + 8;
    let in_block = DATA_HEADER + 32 + (names + 1) * 280 < geometry.dir_block_size as usize;
    forks.data.format == ForkFormat::Local && worst <= room && in_block
}

impl DirEdit<'_> {
    fn small(&self, cx: &mut Cx) -> Result<Small> {
        let forks = self.inode.forks.read(cx);
        Ok(Small::parse(&forks.data.bytes, &self.geometry().features, At::Inode(self.inode.ino))?)
    }

    fn store_small(&self, cx: &mut Cx, small: &Small) -> bool {
        let (ftype, room) = (self.ftype(), self.room(cx));
        if small.size(ftype) > room || small.names.len() > 255 {
            return false;
        }
        self.inode.forks.write(cx).data.bytes = small.emit(ftype);
        true
    }

    /// Adds a name; false if it does not fit into the inode.
    pub(super) fn local_add(&mut self, cx: &mut Cx, name: Name<'_>) -> Result<bool> {
        let mut small = self.small(cx)?;
        let size = self.entry_size(name.name);
        let Some((offset, index)) = small.place(size, self.block_size(), self.ftype()) else {
            return Ok(false);
        };
        let Name { ino, file_type, .. } = name;
        let name = NameBytes::from_slice(name.name);
        small.names.insert(index, Kept { name, offset, file_type, ino });
        Ok(self.store_small(cx, &small))
    }

    pub(super) fn local_remove(&mut self, cx: &mut Cx, name: &[u8]) -> Result<()> {
        let mut small = self.small(cx)?;
        small.names.retain(|kept| *kept.name != *name);
        self.store_small(cx, &small);
        Ok(())
    }

    /// Gives a name another inode; false if a wide number does not fit into the inode.
    pub(super) fn local_replace(&mut self, cx: &mut Cx, name: Name<'_>) -> Result<bool> {
        let mut small = self.small(cx)?;
        if name.name == b".." {
            small.parent = name.ino;
        }
        for kept in small.names.iter_mut().filter(|kept| *kept.name == *name.name) {
            (kept.ino, kept.file_type) = (name.ino, name.file_type);
        }
        Ok(self.store_small(cx, &small))
    }

    /// A small directory becomes one block; names keep their places.
    pub(crate) fn local_to_block(&mut self, cx: &mut Cx) -> Result<()> {
        let small = self.small(cx)?;
        let room = self.room(cx);
        if self.reserved.left() < self.count() {
            return Err(crate::XfsError::NoSpace);
        }
        {
            let mut forks = self.inode.forks.write(cx);
            let fork = &mut forks.data;
            (fork.format, fork.bytes, fork.count) = (ForkFormat::Extents, vec![0; room], 0);
            fork.extents = Some(Extents::new());
        }
        let buf = self.grow(cx, 0, Kind::DirBlock)?;
        let (features, at, ino) = (self.geometry().features, self.block_at(0), self.inode.ino);
        let names: Vec<_> = small.names.iter().map(Kept::entry).collect();
        let dots = [ino, small.parent];
        buf.with_mut(|data| fill_block(data, dots, &names, &features, at))?;
        self.log_all(&buf);
        Ok(())
    }
}
