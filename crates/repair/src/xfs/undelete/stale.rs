//! Names that were removed: in what directories do not use any more, and in the blocks of removed
//! directories, which lie in free space.

use std::collections::{BTreeMap, BTreeSet};

use base::Ino;
use block::DeviceError;
use xfs::format::dir::{DataBlock, FREE_TAG, FileType, Item, SPACES, entry_size};
use xfs::format::dir_sf::Shortform;
use xfs::format::inode::ForkFormat;
use xfs::format::{AgBlock, At, verifier};

use super::{Freed, Fs, directory_kind};
use crate::undelete::Known;

/// The names of freed inodes, and of the directories in use that lead to them.
pub type Names = BTreeMap<u64, (Known, FileType)>;

/// The number of an inode as a removed entry still has it.
#[derive(Clone, Copy)]
enum Number {
    Whole(u64),
    /// The upper half was overwritten.
    Lower(u32),
}

impl Fs<'_> {
    /// The names of freed inodes that can be found; `removed` may be blocks of removed directories,
    /// `small` are directories in their inodes as the log has them.
    pub(super) fn stale_names(
        &mut self,
        freed: &BTreeMap<u64, Freed>,
        removed: Vec<AgBlock>,
        small: &[(u64, Vec<u8>)],
    ) -> Result<Names, DeviceError> {
        let mut lower: BTreeMap<u32, u64> = BTreeMap::new();
        freed.keys().for_each(|&ino| {
            lower.insert(ino as u32, ino);
        });
        let all = self.inodes.iter().filter(|(_, inode)| inode.core.file_type() == 0x4000);
        let dirs: BTreeSet<u64> = all.map(|(&ino, _)| ino).collect();
        let (names, ftype) = (Names::new(), self.g.features.ftype());
        let mut found = Finder { freed, dirs, lower, names, ftype };
        // Directories in use know best where their names belong.
        for block in self.blocks_in_use() {
            self.look(block, &mut found)?;
        }
        self.look_into_inodes(&mut found)?;
        found.dirs.clear();
        for block in removed {
            self.look(block, &mut found)?;
        }
        for (dir, bytes) in small.iter().rev() {
            let Ok(local) = Shortform::parse(bytes, &self.g.features, At::Inode(Ino(*dir))) else {
                continue;
            };
            for entry in local.entries() {
                found.take(Number::Whole(entry.ino.0), entry.name, entry.file_type, *dir);
            }
        }
        Ok(found.names)
    }

    /// Takes the names in directories in use that lie in their inodes.
    fn look_into_inodes(&mut self, found: &mut Finder<'_>) -> Result<(), DeviceError> {
        for ino in found.dirs.iter().copied().collect::<Vec<u64>>() {
            if self.inodes[&ino].core.format == ForkFormat::Local {
                for name in self.names_in(Ino(ino))? {
                    found.directory(name.ino.0, &name.name, ino);
                }
            }
        }
        Ok(())
    }

    /// The data blocks of directories in use.
    fn blocks_in_use(&self) -> Vec<AgBlock> {
        let index = SPACES[1] >> self.g.block_bits;
        let dirs = self.inodes.values().filter(|inode| inode.core.file_type() == 0x4000);
        let mut list = Vec::new();
        for extent in dirs.flat_map(|inode| &inode.data.extents) {
            if extent.offset < index {
                let first = self.g.split(extent.start);
                let step = self.g.dir_blocks() as usize;
                let blocks = (first.block..first.block + extent.count).step_by(step);
                list.extend(blocks.map(|block| AgBlock { ag: first.ag, block }));
            }
        }
        list
    }

    /// Takes the names of a block if it is one of a directory.
    fn look(&mut self, place: AgBlock, found: &mut Finder<'_>) -> Result<(), DeviceError> {
        let first = self.g.linear(place);
        let mut data = self.view.read(first)?;
        let at = At::AgBlock(place.ag, place.block);
        let Some(kind) = directory_kind(&data, at) else { return Ok(()) };
        for index in 1..u64::from(self.g.dir_blocks()) {
            data.extend_from_slice(&self.view.read(first + index)?);
        }
        let expect = self.g.expect(self.g.ag_sector(place), None);
        if verifier::verify(kind, &data, &expect, at).is_err() {
            return Ok(());
        }
        // Where the owner lies in the header.
        let owner = u64::from_be_bytes(data[40..48].try_into().expect("eight bytes"));
        if let Ok(block) = DataBlock::new(kind, &data, found.ftype, at) {
            found.block(&block, &data, owner, at);
        }
        Ok(())
    }
}

/// Collects names.
struct Finder<'a> {
    freed: &'a BTreeMap<u64, Freed>,
    /// Directories in use, while those are read.
    dirs: BTreeSet<u64>,
    /// Freed inodes by the lower half of their numbers.
    lower: BTreeMap<u32, u64>,
    names: Names,
    ftype: bool,
}

impl Finder<'_> {
    fn block(&mut self, block: &DataBlock<'_>, data: &[u8], owner: u64, at: At) {
        let mut place = block.start();
        while place < block.end() {
            let Ok((item, next)) = block.item(place, at) else { return };
            match item {
                // In a removed directory's block all names may still be there.
                Item::Entry { ino: Ino(ino), name, file_type, .. } => {
                    self.take(Number::Whole(ino), name, file_type, owner);
                    self.directory(ino, name, owner);
                }
                Item::Unused { offset, len } => self.unused(data, offset..offset + len, owner),
            }
            place = next;
        }
    }

    /// Entries in a range that is not used any more. Of each, the first four bytes may have been
    /// overwritten, and the last two.
    fn unused(&mut self, data: &[u8], range: std::ops::Range<usize>, owner: u64) {
        let mut at = range.start;
        while at + 16 <= range.end {
            let len = usize::from(data[at + 8]);
            let next = at + entry_size(len, self.ftype);
            let name = data.get(at + 9..at + 9 + len).filter(|_| len > 0 && next <= range.end);
            let name = name.filter(|name| !name.iter().any(|&byte| byte == 0 || byte == b'/'));
            let tag = |at: usize| usize::from(u16::from_be_bytes([data[at], data[at + 1]]));
            let Some(name) = name.filter(|_| next == range.end || tag(next - 2) <= at) else {
                at += 8;
                continue;
            };
            let kind = if self.ftype { data[at + 9 + len] } else { 0 };
            let word =
                |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().expect("4 bytes"));
            let number = match tag(at) == usize::from(FREE_TAG) {
                true => Number::Lower(word(at + 4)),
                false => Number::Whole(u64::from(word(at)) << 32 | u64::from(word(at + 4))),
            };
            let Some(kind) = FileType::from_number(kind) else {
                at += 8;
                continue;
            };
            at = if self.take(number, name, kind, owner) { next } else { at + 8 };
        }
    }

    /// Takes a name, if it is one of a directory in use.
    fn directory(&mut self, ino: u64, name: &[u8], dir: u64) {
        if self.dirs.contains(&ino) && name != b"." && name != b".." {
            let known = Known { dir, name: name.to_vec() };
            self.names.entry(ino).or_insert((known, FileType::Directory));
        }
    }

    /// Takes a name, if it is one of a freed inode. Whether it is.
    fn take(&mut self, number: Number, name: &[u8], kind: FileType, owner: u64) -> bool {
        let ino = match number {
            Number::Whole(ino) => Some(ino),
            Number::Lower(half) => self.lower.get(&half).copied(),
        };
        let Some(ino) = ino.filter(|ino| self.freed.contains_key(ino) && *ino != owner) else {
            return false;
        };
        if name != b"." && name != b".." {
            let known = Known { dir: owner, name: name.to_vec() };
            self.names.entry(ino).or_insert((known, kind));
        }
        true
    }
}
