//! The files of a realtime section in groups, which lie in a directory of the metadata directory:
//! which inode is which, and their btrees. An inode says itself of which group it is and what it
//! holds; the name decides.

use std::collections::BTreeMap;

use base::Ino;
use block::DeviceError;
use xfs::Rule;
use xfs::format::btree::Shape;
use xfs::format::inode::{ForkFormat, MetadataType};
use xfs::format::record::{Refcount, Rmap};
use xfs::format::{At, Kind};

use super::forks::{Device, Which};
use super::group_build::{bytes_of, joined, shared};
use super::groups::records;
use super::metadata::Held;
use super::section::{FILE_MODE, SectionGroup};
use super::section_trees::kind_of;
use super::space::fork_claims;
use super::store::ROOM_USUAL;
use super::{Fs, safe};
use crate::RepairError;

/// Where a group has each of its files.
fn place_of(holds: MetadataType) -> Option<usize> {
    MetadataType::OF_GROUP.iter().position(|&(_, known)| known == holds)
}

impl Fs<'_> {
    /// Takes what the btrees of the section say, of which no name is known yet.
    ///
    /// # Errors
    /// The device's.
    pub fn read_section(&mut self) -> Result<(), DeviceError> {
        let shape = self.g.realtime;
        let count = if shape.blocks > 0 { shape.group_count() } else { 0 };
        self.section.clear();
        self.section.resize_with(count as usize, SectionGroup::default);
        for ino in self.tree_records.keys().copied().collect::<Vec<_>>() {
            let Some(inode) = self.inodes.get(&ino) else { continue };
            let group = inode.core.project as usize;
            let Some(kind) = kind_of(&self.slot(Ino(ino))?) else { continue };
            let Some(group) = self.section.get_mut(group) else { continue };
            let walked = &self.tree_records[&ino];
            if kind == Kind::RealtimeRmap {
                let run = |rmap: &Rmap| (rmap.start, rmap.len);
                group.records.rmaps = records(walked, kind, Rmap::read, run);
            } else {
                let run = |count: &Refcount| (count.start, count.len);
                group.records.refcounts = records(walked, kind, Refcount::read, run);
            }
        }
        Ok(())
    }

    /// The names that the directory of the groups is to have, and what is behind each.
    pub fn section_names(&self) -> BTreeMap<Vec<u8>, Held> {
        let (shape, features) = (self.g.realtime, self.g.features);
        let groups = if shape.blocks > 0 { shape.group_count() } else { 0 };
        let mut names = BTreeMap::new();
        for group in 0..groups {
            for (what, holds) in MetadataType::OF_GROUP {
                let there = match holds {
                    MetadataType::RealtimeRmap => features.rmapbt(),
                    MetadataType::RealtimeRefcount => features.reflink(),
                    _ => !shape.zoned,
                };
                if there {
                    names.insert(format!("{group}.{what}").into_bytes(), Held { holds, group });
                }
            }
        }
        names
    }

    /// The blocks that a file of a group has from its start on; none of the inode of a btree.
    pub fn blocks_of_group_file(&self, holds: MetadataType) -> u32 {
        let shape = self.g.realtime;
        match holds {
            MetadataType::RealtimeBitmap => shape.bitmap_blocks,
            MetadataType::RealtimeSummary => shape.summary_blocks(self.g.block_size),
            _ => 0,
        }
    }

    /// Makes those of the files with these `names` that are missing below their directory, and
    /// those anew that cannot hold what they must.
    ///
    /// # Errors
    /// The device's; no free inode, no room.
    pub fn section_files_exist(
        &mut self,
        dir: Ino,
        names: BTreeMap<Vec<u8>, Held>,
        all: &mut BTreeMap<u64, Held>,
    ) -> Result<(), RepairError> {
        for (name, held) in names {
            let text = name.escape_ascii().to_string();
            let ino = match self.child(dir, &name) {
                Some(ino) if self.is_group_file(ino, held.holds) => ino,
                found => {
                    let detail = match found {
                        Some(ino) => format!("inode {ino}, \"{text}\", cannot be that"),
                        None => format!("\"{text}\" is missing"),
                    };
                    let (rule, at) = (Rule::MetadataDirectory, At::Inode(dir));
                    self.note(safe(rule, at, detail, "make it anew"));
                    let ino = found.or_else(|| self.free_inode()).ok_or_else(|| {
                        RepairError::Hopeless(format!("no free inode for \"{text}\""))
                    })?;
                    self.new_group_file(ino, held)?;
                    if found.is_none() {
                        self.name_metadata(dir, name, ino);
                    }
                    all.insert(ino.0, held);
                    ino
                }
            };
            let place = place_of(held.holds).expect("it is a group's");
            self.section[held.group as usize].files[place] = Some(ino);
        }
        Ok(())
    }

    fn is_group_file(&self, ino: Ino, holds: MetadataType) -> bool {
        let core = &self.inodes[&ino.0].core;
        match holds.is_tree() {
            true => core.file_type() == FILE_MODE && core.format == ForkFormat::MetaBtree,
            false => {
                core.format != ForkFormat::MetaBtree
                    && self.holds_blocks(ino, self.blocks_of_group_file(holds))
            }
        }
    }

    /// Makes an inode a file of a group without content. Its names stay; its fields follow.
    fn new_group_file(&mut self, ino: Ino, held: Held) -> Result<(), RepairError> {
        let names = self.inodes.get(&ino.0).map_or(0, |inode| inode.names);
        self.dirs.remove(&ino.0);
        self.new_inode(ino, FILE_MODE)?;
        self.tree_records.remove(&ino.0);
        let parent = self.g.features.parent();
        let inode = self.inodes.get_mut(&ino.0).expect("it is new");
        inode.names = names;
        if held.holds.is_tree() {
            let border = if parent { (ROOM_USUAL / 8) as u8 } else { 0 };
            (inode.core.forkoff, inode.core.format) = (border, ForkFormat::MetaBtree);
        }
        self.give_blocks(ino, self.blocks_of_group_file(held.holds))
    }

    /// What the files of the section have of each of its groups.
    fn section_rmaps(&self) -> Vec<Vec<Rmap>> {
        let groups = 0..self.section.len() as u32;
        let mut claims: Vec<Vec<Rmap>> = groups.map(|group| self.section_fixed(group)).collect();
        for (&ino, inode) in &self.inodes {
            let mut add = |group: u32, claim| claims[group as usize].push(claim);
            fork_claims(self, ino, &inode.data, Which::Data, Device::Realtime, &mut add);
        }
        claims
    }

    /// Makes the btrees of the section say what its files have. Blocks of an unfinished copy on
    /// write are nobody's.
    ///
    /// # Errors
    /// The device's; no room.
    pub fn write_section_trees(&mut self) -> Result<(), RepairError> {
        if !self.g.section_trees() {
            return Ok(());
        }
        for (group, claims) in self.section_rmaps().into_iter().enumerate() {
            let [.., rmap, refcount] = self.section[group].files;
            if let Some(ino) = refcount {
                let size = Shape::of(Kind::RealtimeRefcount).record;
                let bytes = bytes_of(&shared(&claims), size, Refcount::write);
                self.write_section_tree(Rule::ReferenceCount, ino, &bytes)?;
            }
            if let Some(ino) = rmap {
                let size = Shape::of(Kind::RealtimeRmap).record;
                let bytes = bytes_of(&joined(claims), size, Rmap::write);
                self.write_section_tree(Rule::ReverseMapping, ino, &bytes)?;
            }
        }
        Ok(())
    }

    fn write_section_tree(
        &mut self,
        rule: Rule,
        ino: Ino,
        bytes: &[u8],
    ) -> Result<(), RepairError> {
        let known = self.tree_records.get(&ino.0).is_some_and(|walked| walked.records == bytes);
        let suspect = self.suspects.inodes.contains_key(&ino.0);
        if known && !suspect && self.inodes[&ino.0].data.flaw().is_none() {
            return Ok(());
        }
        self.build_section_tree(ino, bytes)?;
        let detail = "its btree does not say what the files of the group have";
        self.note(safe(rule, At::Inode(ino), detail, "write it anew"));
        Ok(())
    }
}
