//! The metadata directory tree of a new file system: its root, and for each group of the realtime
//! section the inodes of bitmap, summary, reverse map and reference counts.
//!
//! Source: images of mkfs.xfs 7.2.

use base::Ino;

use super::MkfsError;
use super::content::Birth;
use super::group::{Group, Run};
use super::groups_dir::GroupsDir;
use super::realtime::{SpaceFile, free_space};
use super::shape::Shape;
use crate::format::dir::{DATA_HEADER, FileType, entry_size};
use crate::format::dir_sf::{self, SfEntry};
use crate::format::inode::{CORE_SIZE, ForkFormat, InodeCore, MetadataType, fork_ranges};
use crate::format::record::{Rmap, owner};
use crate::format::{AgInode, Geometry, Kind, Owner, put_u16};
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
    dir: GroupsDir,
    files: Vec<File>,
    /// Time and generation of all inodes.
    birth: Birth,
}

impl MetadataTree {
    /// Takes inodes and blocks for the tree below its root `top`; none where there is none.
    ///
    /// # Errors
    /// [`MkfsError::RealtimeGroups`], [`MkfsError::RealtimeFiles`].
    pub fn lay_out(
        shape: &Shape,
        geometry: &Geometry,
        groups: &mut [Group],
        top: Ino,
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
        let core = new_core(geometry, true, birth.now, birth.generation);
        let fork = fork_ranges(core.forkoff, geometry.inode_size as usize).0.len();
        let dir = GroupsDir::new(ino(group)?, top, fork);
        let mut tree = MetadataTree { dir, files: Vec::new(), birth };
        for number in 0..shape.raw.sb_rgcount.get() {
            for (what, holds) in MetadataType::OF_GROUP {
                let made = match holds {
                    MetadataType::RealtimeRmap => shape.options.rmapbt,
                    MetadataType::RealtimeRefcount => shape.options.reflink,
                    _ => true,
                };
                if made {
                    let (ino, name) = (ino(group)?, format!("{number}.{what}"));
                    let added = tree.dir.name_file(geometry, group, &name, ino);
                    added.ok_or_else(|| too_many(geometry))?;
                    tree.files.push(File { ino, name, group: number, holds, blocks: None });
                }
            }
            tree.give_blocks(geometry, group, number)?;
        }
        if group.chunk_records(shape) > shape.inobt_max() {
            return Err(too_many(geometry));
        }
        Ok(Some(tree))
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
            let run = group.take_file(near, count, Owner::fork(file.ino.0, false, 0, false));
            let run = group.end_transaction().and(run);
            file.blocks = Some(run.ok_or(MkfsError::RealtimeFiles(count))?);
        }
        Ok(())
    }

    /// Writes the root of the tree, beside the root of users.
    pub fn emit_top(&self, geometry: &Geometry, slot: &mut [u8]) -> InodeCore {
        let own = Ino(geometry.root_ino.0 + 1);
        let core = new_core(geometry, true, self.birth.now, self.birth.generation);
        let mut core = InodeCore { forkoff: 0, attr_format: ForkFormat::Extents, ..core };
        let ftype = geometry.features.ftype();
        let offset = (DATA_HEADER + entry_size(1, ftype) + entry_size(2, ftype)) as u16;
        let file_type = FileType::Directory;
        let entries = [SfEntry { name: GROUPS, offset, file_type, ino: self.dir.ino }];
        core.size = dir_sf::emit(&mut slot[CORE_SIZE..], own, &entries, ftype) as u64;
        (core.links, core.change_count) = (3, 3);
        set_holds(slot, MetadataType::Directory);
        core
    }

    /// Writes an inode of the tree; none where it is none of them.
    pub fn emit_inode(&self, geometry: &Geometry, ino: Ino, slot: &mut [u8]) -> Option<InodeCore> {
        if ino == self.dir.ino {
            return Some(self.emit_dir(geometry, slot));
        }
        let file = self.files.iter().find(|file| file.ino == ino)?;
        let mut core = new_core(geometry, false, self.birth.now, self.birth.generation);
        let (data, attr) = fork_ranges(core.forkoff, slot.len());
        // The number of the group stands in the place of the project's.
        (core.change_count, core.project) = (2, file.group);
        set_holds(slot, file.holds);
        if geometry.features.parent() {
            set_parent(&mut slot[attr], file.name.as_bytes(), self.dir.ino, core.generation);
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
        self.dir.emit_fork(geometry, &mut core, &mut slot[data]);
        core
    }

    /// What the blocks of the tree hold, by their places.
    pub fn block_writes(&self, geometry: &Geometry) -> Vec<(u64, Vec<u8>)> {
        let mut writes = self.dir.writes(geometry);
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
