//! The metadata directory tree of a new file system: its root, and for each group of the realtime
//! section the inodes of bitmap, summary, reverse map and reference counts.
//!
//! Source: images of mkfs.xfs 7.2.

use base::Ino;

use super::MkfsError;
use super::content::Birth;
use super::group::{Group, Run};
use super::realtime::{SpaceFile, free_space};
use super::shape::Shape;
use crate::format::dir::{
    BLOCK_TAIL, DATA_HEADER, FileType, LEAF_ENTRY, entry_size, fill_block, init_data,
};
use crate::format::dir_sf::{self, SfEntry};
use crate::format::inode::{CORE_SIZE, ForkFormat, InodeCore, MetadataType, fork_ranges};
use crate::format::record::{Rmap, owner};
use crate::format::{AgInode, At, Geometry, Kind, put_u16, verifier};
use crate::metadir::{GROUPS, new_core, set_holds, set_parent};

/// A file of a group of the section.
struct File {
    ino: Ino,
    name: String,
    group: u32,
    holds: MetadataType,
    /// Blocks of a file with content.
    blocks: Option<Run>,
}

/// The tree without its root, which lies beside the root of users.
pub(super) struct MetadataTree {
    /// `/rtgroups`.
    dir: Ino,
    /// Blocks of the directory where it does not fit its inode.
    dir_block: Option<Run>,
    /// Names that were in its inode before; their bytes stay there.
    small: usize,
    files: Vec<File>,
    /// Time and generation of all inodes.
    birth: Birth,
}

impl MetadataTree {
    /// Takes inodes and blocks for the tree; none where there is none.
    ///
    /// # Errors
    /// [`MkfsError::RealtimeGroups`], [`MkfsError::RealtimeFiles`].
    pub fn lay_out(
        shape: &Shape,
        geometry: &Geometry,
        groups: &mut [Group],
        birth: Birth,
    ) -> Result<Option<MetadataTree>, MkfsError> {
        if !shape.options.metadir {
            return Ok(None);
        }
        // Where mkfs.xfs puts an internal log.
        let ag = geometry.ag_count() / 2;
        let group = &mut groups[ag as usize];
        let ino = |group: &mut Group| {
            let agino = group.take_inode(shape).ok_or_else(|| too_many(geometry))?;
            Ok::<_, MkfsError>(geometry.ino_join(AgInode { ag, agino }))
        };
        let dir = ino(group)?;
        let mut tree = MetadataTree { dir, dir_block: None, small: 0, files: Vec::new(), birth };
        for number in 0..shape.raw.sb_rgcount.get() {
            for (what, holds) in MetadataType::OF_GROUP {
                let made = match holds {
                    MetadataType::RealtimeRmap => shape.options.rmapbt,
                    MetadataType::RealtimeRefcount => shape.options.reflink,
                    _ => true,
                };
                if made {
                    let (ino, name) = (ino(group)?, format!("{number}.{what}"));
                    tree.files.push(File { ino, name, group: number, holds, blocks: None });
                    tree.grow_dir(geometry, group)?;
                }
            }
            tree.give_blocks(geometry, group, number)?;
        }
        if group.rmap_count(shape) > shape.rmap_max() {
            return Err(too_many(geometry));
        }
        Ok(Some(tree))
    }

    /// Gives the directory a block where its inode has no room for its names.
    fn grow_dir(&mut self, geometry: &Geometry, group: &mut Group) -> Result<(), MkfsError> {
        let (entries, end) = self.group_names(geometry);
        let index = (entries.len() + 2) * LEAF_ENTRY;
        let fits = end + index + BLOCK_TAIL <= geometry.dir_block_size as usize;
        let top = self.files.last().map_or(self.dir, |file| file.ino);
        let wide = top.0 > u64::from(u32::MAX);
        let size = dir_sf::size(entries.iter().cloned(), wide, geometry.features.ftype());
        if self.dir_block.is_none() && size > self.data_fork(geometry) {
            let near = geometry.ino_place(self.dir).0.block;
            let place = group.take_file(near, geometry.dir_blocks(), self.dir.0);
            self.dir_block = Some(place.ok_or_else(|| too_many(geometry))?);
            self.small = self.files.len() - 1;
        }
        if fits { Ok(()) } else { Err(too_many(geometry)) }
    }

    /// Gives bitmap and summary of a group their blocks.
    fn give_blocks(
        &mut self,
        geometry: &Geometry,
        group: &mut Group,
        number: u32,
    ) -> Result<(), MkfsError> {
        let files = self.files.iter_mut().filter(|file| file.group == number);
        for file in files {
            let count = match file.holds {
                MetadataType::RealtimeBitmap => geometry.realtime.bitmap_blocks,
                MetadataType::RealtimeSummary => {
                    geometry.realtime.summary_blocks(geometry.block_size)
                }
                _ => continue,
            };
            let near = geometry.ino_place(file.ino).0.block;
            let run = group.take_file(near, count, file.ino.0);
            file.blocks = Some(run.ok_or(MkfsError::RealtimeFiles(count))?);
        }
        Ok(())
    }

    /// Bytes of the data fork of the directory.
    fn data_fork(&self, geometry: &Geometry) -> usize {
        let core = new_core(geometry, true, self.birth.now, self.birth.generation);
        fork_ranges(core.forkoff, geometry.inode_size as usize).0.len()
    }

    /// The names of the directory, and where the next one would lie in a block.
    fn group_names(&self, geometry: &Geometry) -> (Vec<SfEntry<'_>>, usize) {
        let ftype = geometry.features.ftype();
        let mut offset = DATA_HEADER + entry_size(1, ftype) + entry_size(2, ftype);
        let names = self.files.iter().map(|file| {
            let place = offset as u16;
            offset += entry_size(file.name.len(), ftype);
            let (name, file_type) = (file.name.as_bytes(), FileType::Regular);
            SfEntry { name, offset: place, file_type, ino: file.ino }
        });
        (names.collect(), offset)
    }

    /// Writes the root of the tree, beside the root of users.
    pub fn emit_top(&self, geometry: &Geometry, slot: &mut [u8]) -> InodeCore {
        let own = Ino(geometry.root_ino.0 + 1);
        let core = new_core(geometry, true, self.birth.now, self.birth.generation);
        let mut core = InodeCore { forkoff: 0, attr_format: ForkFormat::Extents, ..core };
        let ftype = geometry.features.ftype();
        let offset = (DATA_HEADER + entry_size(1, ftype) + entry_size(2, ftype)) as u16;
        let file_type = FileType::Directory;
        let entries = [SfEntry { name: GROUPS, offset, file_type, ino: self.dir }];
        core.size = dir_sf::emit(&mut slot[CORE_SIZE..], own, &entries, ftype) as u64;
        (core.links, core.change_count) = (3, 3);
        set_holds(slot, MetadataType::Directory);
        core
    }

    /// Writes an inode of the tree; none where it is none of them.
    pub fn emit_inode(&self, geometry: &Geometry, ino: Ino, slot: &mut [u8]) -> Option<InodeCore> {
        if ino == self.dir {
            return Some(self.emit_dir(geometry, slot));
        }
        let file = self.files.iter().find(|file| file.ino == ino)?;
        let mut core = new_core(geometry, false, self.birth.now, self.birth.generation);
        let (data, attr) = fork_ranges(core.forkoff, slot.len());
        // The number of the group stands in the place of the project's.
        (core.change_count, core.project) = (2, file.group);
        set_holds(slot, file.holds);
        if geometry.features.parent() {
            set_parent(&mut slot[attr], file.name.as_bytes(), self.dir, core.generation);
        }
        match file.blocks {
            Some(run) => {
                run.map(geometry, &mut core, &mut slot[data]);
                core.change_count += 1;
            }
            None => {
                core.format = ForkFormat::MetaBtree;
                if file.holds == MetadataType::RealtimeRmap && file.group == 0 {
                    let data = &mut slot[data];
                    put_u16(data, 2, 1);
                    let len = geometry.realtime.extent_blocks;
                    Rmap { start: 0, len, owner: owner::FS, offset: 0 }.write(&mut data[4..]);
                    core.change_count += 1;
                }
            }
        }
        Some(core)
    }

    fn emit_dir(&self, geometry: &Geometry, slot: &mut [u8]) -> InodeCore {
        let above = Ino(geometry.root_ino.0 + 1);
        let mut core = new_core(geometry, true, self.birth.now, self.birth.generation);
        let (data, attr) = fork_ranges(core.forkoff, slot.len());
        set_holds(slot, MetadataType::Directory);
        if geometry.features.parent() {
            set_parent(&mut slot[attr], GROUPS, above, core.generation);
        }
        let (names, ftype) = (self.group_names(geometry).0, geometry.features.ftype());
        match self.dir_block {
            None => core.size = dir_sf::emit(&mut slot[data], above, &names, ftype) as u64,
            Some(run) => {
                dir_sf::emit(&mut slot[data.clone()], above, &names[..self.small], ftype);
                run.map(geometry, &mut core, &mut slot[data]);
            }
        }
        core.change_count = 2 + self.files.len() as u64;
        core
    }

    /// What the blocks of the tree hold, by their places.
    pub fn block_writes(&self, geometry: &Geometry) -> Vec<(u64, Vec<u8>)> {
        let mut writes = Vec::new();
        if let Some(run) = self.dir_block {
            let address = geometry.ag_sector(run.start);
            let mut data = vec![0; geometry.dir_block_size as usize];
            init_data(Kind::DirBlock, &mut data, &geometry.expect(address, Some(self.dir.0)));
            let names = self.group_names(geometry).0;
            let dots = [self.dir, Ino(geometry.root_ino.0 + 1)];
            fill_block(&mut data, dots, &names, &geometry.features, At::Inode(self.dir))
                .expect("the names fit, as was checked");
            verifier::update_lsn_crc(Kind::DirBlock, &mut data, 0);
            writes.push((address.bytes(), data));
        }
        for file in &self.files {
            let Some(run) = file.blocks else { continue };
            let kind = match file.holds {
                MetadataType::RealtimeBitmap => Kind::RealtimeBitmap,
                _ => Kind::RealtimeSummary,
            };
            let space = SpaceFile { kind, group: file.group, ino: file.ino };
            writes.push(free_space(geometry, run, &space));
        }
        writes
    }
}

fn too_many(geometry: &Geometry) -> MkfsError {
    MkfsError::RealtimeGroups(geometry.realtime.group_count())
}
