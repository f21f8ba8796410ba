//! Inodes that get other numbers, and everything that names them.

use std::collections::{BTreeMap, BTreeSet};

use base::Ino;
use xfs::format::inode::{ForkFormat, emit_free};
use xfs::format::record::{FreeExtent, InodeChunk};
use xfs::format::{Kind, remote, verifier};

use super::Shrink;
use crate::RepairError;
use crate::volume::{EditError, refuse};
use crate::xfs::Fs;
use crate::xfs::attributes::Attribute;
use crate::xfs::forks::{Fork, Which};
use crate::xfs::names::Name;

/// What is written anew, by the old numbers.
#[derive(Default)]
pub struct Anew {
    /// Attributes of inodes, with old numbers.
    attributes: BTreeMap<u64, Vec<Attribute>>,
    /// Directories.
    dirs: BTreeSet<u64>,
    /// Targets of symbolic links that have blocks of their own.
    targets: BTreeMap<u64, Vec<u8>>,
    /// Records of btrees of a realtime section, with new numbers.
    trees: BTreeMap<u64, Vec<u8>>,
}

impl Shrink<'_> {
    /// The inodes whose chunk does not stay.
    pub fn moving_inodes(&self) -> Vec<u64> {
        let (g, chunk) = (&self.fs.g, self.fs.g.chunks.blocks);
        let goes = |ino: u64| {
            let place = g.ino_split(Ino(ino));
            let chunks = &self.fs.groups[place.ag as usize].chunks;
            let at = chunks.partition_point(|chunk| chunk.start <= place.agino);
            let start = at.checked_sub(1).map_or(place.agino, |at| chunks[at].start);
            g.agino_block(start) + chunk > self.new.ag_length(place.ag)
        };
        self.fs.inodes.keys().copied().filter(|&ino| goes(ino)).collect()
    }

    /// Gives inodes other numbers: free ones in chunks that stay, then those of new chunks.
    pub fn number(&mut self, moving: &[u64]) -> Result<(), EditError> {
        let fixed = self.fs.roots().into_iter().chain(self.fs.g.realtime_inos);
        let fixed: Vec<u64> = fixed.map(|ino| ino.0).collect();
        if let Some(ino) = moving.iter().find(|ino| fixed.contains(ino)) {
            return refuse(format!(
                "inode {ino} of the file system itself lies behind the new end"
            ));
        }
        let groups = self.new.ag_count();
        for &ino in moving {
            let first = self.fs.g.ino_split(Ino(ino)).ag % groups;
            let order = || (first..groups).chain(0..first);
            let to = order().find_map(|ag| self.free_number(ag));
            let to = match to {
                Some(to) => to,
                None => {
                    let made = order().find(|&ag| self.new_chunk(ag));
                    let Some(ag) = made else {
                        let text = "there is no room for the inodes behind the new end";
                        return Err(EditError::NoRoom(text.into()));
                    };
                    self.free_number(ag).expect("a new chunk has free inodes")
                }
            };
            self.fs.mark_slot(to, false);
            self.numbers.insert(ino, to);
        }
        Ok(())
    }

    /// A free inode of a group, in a chunk that stays.
    fn free_number(&self, ag: u32) -> Option<Ino> {
        let (length, blocks) = (self.new.ag_length(ag), self.new.chunks.blocks);
        let stays = |chunk: &&InodeChunk| self.new.agino_block(chunk.start) + blocks <= length;
        let mut chunks = self.fs.groups[ag as usize].chunks.iter().filter(stays);
        let chunk = chunks.find(|chunk| chunk.available() != 0)?;
        Some(self.fs.ino(ag, chunk.start + chunk.available().trailing_zeros()))
    }

    /// Makes a chunk of free inodes, or a block of them, in a group; false where there is no room
    /// for it.
    fn new_chunk(&mut self, ag: u32) -> bool {
        let (blocks, align) = (self.new.chunks.blocks, self.new.chunks.align.max(1));
        let Some(spare) = &mut self.fs.spare else { return false };
        let list = &mut spare[ag as usize];
        let fits = |extent: &FreeExtent| {
            let start = extent.start.next_multiple_of(align);
            start + blocks <= extent.start + extent.len
        };
        let Some(at) = list.iter().position(fits) else { return false };
        let FreeExtent { start, len } = list.swap_remove(at);
        let first = start.next_multiple_of(align);
        list.push(FreeExtent { start, len: first - start });
        list.push(FreeExtent { start: first + blocks, len: start + len - first - blocks });
        // A large block holds several chunks.
        for index in 0..(self.new.inodes_per_block() / 64).max(1) {
            let start = self.new.block_agino(first) + 64 * index;
            let free = InodeChunk { start, holes: 0, count: 64, free_count: 64, free: u64::MAX };
            let chunks = &mut self.fs.groups[ag as usize].chunks;
            let place = chunks.partition_point(|chunk| chunk.start < start);
            chunks.insert(place, free);
            self.made.push(self.fs.ino(ag, start));
        }
        true
    }

    /// Reads what must be written anew because it moves, or names something that does.
    pub fn read_anew(&mut self) -> Result<Anew, EditError> {
        let mut anew = Anew::default();
        let parents = self.fs.g.features.parent();
        for ino in self.fs.inodes.keys().copied().collect::<Vec<_>>() {
            let inode = &self.fs.inodes[&ino];
            let moved = self.numbers.contains_key(&ino);
            let blocks = !inode.attr.extents.is_empty();
            let mut pointers = inode.pointers.iter().filter_map(Attribute::directory);
            let renamed = parents && pointers.any(|(dir, _)| self.numbers.contains_key(&dir.0));
            if renamed || moved && blocks || self.fork_goes(inode, Which::Attr) {
                let found = self.fs.read_attributes(Ino(ino), true)?;
                if found.lost > 0 {
                    return refuse(format!("attributes of inode {ino} cannot be read: repair it"));
                }
                anew.attributes.insert(ino, found.list);
            }
            let inode = &self.fs.inodes[&ino];
            let goes = moved || self.fork_goes(inode, Which::Data);
            match inode.core.file_type() {
                0x4000 if goes || self.names_moved(ino) => {
                    anew.dirs.insert(ino);
                }
                0xa000 if goes && inode.core.format != ForkFormat::Local => {
                    let target = self.fs.remote_target(Ino(ino))?;
                    let Some(target) = target else {
                        return refuse(format!("the target of inode {ino} cannot be read"));
                    };
                    anew.targets.insert(ino, target);
                }
                0x8000 if inode.core.format == ForkFormat::MetaBtree => {
                    let (records, renamed) = self.fs.section_records(Ino(ino), &self.numbers)?;
                    if goes || renamed {
                        anew.trees.insert(ino, records);
                    }
                }
                _ => {}
            }
        }
        Ok(anew)
    }

    /// Whether a directory names an inode that moves.
    fn names_moved(&self, dir: u64) -> bool {
        let dir = &self.fs.dirs[&dir];
        let names = dir.names.iter().map(|name| name.ino);
        names.chain(dir.above).any(|ino| self.numbers.contains_key(&ino.0))
    }

    /// The number of an inode after the move.
    fn now(&self, ino: Ino) -> Ino {
        self.numbers.get(&ino.0).copied().unwrap_or(ino)
    }

    /// Puts the inodes that move into their new places.
    pub fn renumber(&mut self) -> Result<(), EditError> {
        self.free_slots()?;
        for (&old, &to) in &self.numbers {
            let mut slot = self.fs.slot(Ino(old))?;
            let expect = self.fs.g.expect(base::Sector(0), Some(to.0));
            verifier::stamp(Kind::Inode, &mut slot, &expect);
            self.fs.put_slot(to, &mut slot)?;
            let mut inode = self.fs.inodes.remove(&old).expect("an inode in use");
            inode.dirty = true;
            for which in Which::BOTH {
                let map = which == Which::Attr || inode.core.format != ForkFormat::MetaBtree;
                if map && !inode.fork(which).tree.is_empty() {
                    inode.renew(which);
                }
            }
            self.fs.inodes.insert(to.0, inode);
            if let Some(dir) = self.fs.dirs.remove(&old) {
                self.fs.dirs.insert(to.0, dir);
            }
        }
        Ok(())
    }

    /// Writes the free inodes of new chunks.
    fn free_slots(&mut self) -> Result<(), EditError> {
        let generation = self.fs.view.now();
        for first in self.made.clone() {
            for bit in 0..64 {
                let ino = Ino(first.0 + bit);
                let mut slot = vec![0; self.new.inode_size as usize];
                emit_free(&mut slot, ino, generation, &self.new);
                self.fs.put_slot(ino, &mut slot)?;
            }
        }
        Ok(())
    }

    /// Writes directories, attributes and targets for the new places and numbers.
    pub fn write_anew(&mut self, anew: Anew) -> Result<(), EditError> {
        for (old, mut list) in anew.attributes {
            for attr in &mut list {
                if let Some((dir, generation)) = attr.directory() {
                    *attr = Attribute::parent(self.now(dir), generation, &attr.name);
                }
            }
            self.fs.build_attributes(self.now(Ino(old)), &list)?;
        }
        for old in anew.dirs {
            let ino = self.now(Ino(old));
            let dir = &self.fs.dirs[&ino.0];
            let above = self.now(dir.above.unwrap_or(ino));
            let moved = |name: &Name| Name { ino: self.now(name.ino), ..name.clone() };
            let names = dir.names.iter().map(moved).collect();
            self.fs.build_directory(ino, above, names)?;
        }
        for (old, target) in anew.targets {
            let ino = self.now(Ino(old));
            write_target(&mut self.fs, ino, &target)?;
        }
        for (old, records) in anew.trees {
            self.fs.build_section_tree(self.now(Ino(old)), &records)?;
        }
        Ok(self.fs.stamp_section_files()?)
    }
}

/// Writes the target of a symbolic link into blocks of its own.
fn write_target(fs: &mut Fs<'_>, ino: Ino, target: &[u8]) -> Result<(), RepairError> {
    let size = fs.g.block_size as usize;
    let runs = fs.take_blocks(remote::blocks(target.len() as u64, size) as u32)?;
    let (mut done, mut fork) = (0, Fork::default());
    for &(start, count) in &runs {
        let mut data = vec![0; size * count as usize];
        let len = (data.len() - remote::HEADER).min(target.len() - done);
        let expect = fs.g.expect(fs.g.sector(start), Some(ino.0));
        let piece = &target[done..done + len];
        remote::emit(Kind::Symlink, &mut data, done as u64, piece, &expect);
        verifier::update_crc(Kind::Symlink, &mut data);
        fs.write_runs(&[(start, count)], &data);
        done += len;
    }
    fork.append_runs(0, &runs);
    let inode = fs.inodes.get_mut(&ino.0).expect("an inode in use");
    inode.data = fork;
    inode.renew(Which::Data);
    Ok(())
}
