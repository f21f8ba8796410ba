//! The metadata directory: inodes of the file system itself, below a root of their own. Which
//! inodes are in it follows from the names; fields of an inode follow from that.

use std::collections::BTreeMap;

use base::Ino;
use block::DeviceError;
use xfs::Rule;
use xfs::format::At;
use xfs::format::dir::FileType;
use xfs::format::dquot::Kind as QuotaKind;
use xfs::format::inode::{Flags, Flags2, MetadataType, RawInode};

use super::names::Name;
use super::{Fs, lossy, safe};
use crate::RepairError;

/// The directory of quota files.
const QUOTA: &[u8] = b"quota";
/// The directory of the realtime section's files.
const GROUPS: &[u8] = b"rtgroups";
const DIRECTORY: u16 = 0x4000;

/// What an inode of the tree is.
#[derive(Clone, Copy)]
pub struct Held {
    /// What it holds.
    pub holds: MetadataType,
    /// Of which group of the realtime section, if it is a file of one.
    pub group: u32,
}

impl Held {
    /// What has no group.
    fn alone(holds: MetadataType) -> Held {
        Held { holds, group: 0 }
    }
}

impl Fs<'_> {
    /// The roots: of the users' directories, and of the metadata directory.
    pub fn roots(&self) -> Vec<Ino> {
        [self.g.root_ino].into_iter().chain(self.g.metadata_root).collect()
    }

    /// Decides what is in the metadata directory, and makes its inodes and names say so.
    ///
    /// # Errors
    /// The device's.
    pub fn settle_metadata(&mut self) -> Result<(), RepairError> {
        let Some(root) = self.g.metadata_root else { return Ok(()) };
        let names = self.section_names();
        self.name_again(root, &names)?;
        if self.g.realtime.blocks > 0 && self.child(root, GROUPS).is_none() {
            self.make_groups(root)?;
            self.name_again(root, &names)?;
        }
        let directory = Held::alone(MetadataType::Directory);
        let mut all: BTreeMap<u64, Held> = [(root.0, directory)].into();
        self.keep_names(root, &mut all, |name| {
            [QUOTA, GROUPS].contains(&name).then_some(directory)
        });
        self.quota_inos = [None; 3];
        if let Some(quota) = self.child(root, QUOTA) {
            self.keep_names(quota, &mut all, |name| {
                let kind = QuotaKind::ALL.into_iter().find(|kind| kind.name().as_bytes() == name);
                kind.map(|kind| Held::alone(MetadataType::of_quota(kind)))
            });
            for kind in QuotaKind::ALL {
                let file = self.child(quota, kind.name().as_bytes());
                self.quota_inos[kind as usize] = file.map(|ino| ino.0);
            }
        }
        if let Some(groups) = self.child(root, GROUPS) {
            self.keep_names(groups, &mut all, |name| names.get(name).copied());
            self.section_files_exist(groups, names, &mut all)?;
        }
        self.keep_apart(&all);
        for ino in self.inodes.keys().copied().collect::<Vec<_>>() {
            self.settle_fields(Ino(ino), all.get(&ino).copied())?;
        }
        Ok(())
    }

    /// Makes the directory of the realtime section's files.
    fn make_groups(&mut self, root: Ino) -> Result<(), RepairError> {
        let Some(ino) = self.free_inode() else {
            return Err(RepairError::Hopeless("no free inode for \"rtgroups\"".into()));
        };
        self.new_directory(ino, DIRECTORY)?;
        self.name_metadata(root, GROUPS.to_vec(), ino);
        let detail = "\"rtgroups\" is missing";
        self.note(safe(Rule::MetadataDirectory, At::Inode(root), detail, "make it anew"));
        Ok(())
    }

    /// Adds a name to a directory of the tree.
    pub fn name_metadata(&mut self, dir: Ino, name: Vec<u8>, ino: Ino) {
        let directory = self.dirs.contains_key(&ino.0);
        let kind = if directory { FileType::Directory } else { FileType::Regular };
        let parent = self.dirs.get_mut(&dir.0).expect("a directory");
        parent.names.push(Name { name, ino, kind });
        parent.rebuild = true;
        self.inodes.get_mut(&ino.0).expect("in use").names += 1;
    }

    /// What a name of a directory points at.
    pub fn child(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        let names = &self.dirs.get(&dir.0)?.names;
        names.iter().find(|entry| entry.name == name).map(|entry| entry.ino)
    }

    /// Gives names to inodes of the tree that have lost them, by what they hold.
    /// `files` are the names that files of the realtime section have.
    fn name_again(
        &mut self,
        root: Ino,
        files: &BTreeMap<Vec<u8>, Held>,
    ) -> Result<(), DeviceError> {
        let lost = |inode: &super::inodes::Inode| {
            inode.names == 0 && inode.core.flags2.contains(Flags2::METADATA)
        };
        let lost: Vec<u64> =
            self.inodes.iter().filter(|(_, inode)| lost(inode)).map(|(&ino, _)| ino).collect();
        for ino in lost.into_iter().filter(|&ino| ino != root.0) {
            let (directory, pointers) = {
                let inode = &self.inodes[&ino];
                (inode.core.file_type() == DIRECTORY, inode.pointers.clone())
            };
            let place = pointers.iter().find_map(|pointer| {
                let (dir, _) = pointer.directory()?;
                let free =
                    self.dirs.contains_key(&dir.0) && self.child(dir, &pointer.name).is_none();
                free.then(|| (dir, pointer.name.clone()))
            });
            // Without pointers its place follows from what it holds.
            let place = match (place, directory) {
                (None, true) if self.holds_quota(Ino(ino)) => Some((root, QUOTA.to_vec())),
                (None, true) if self.holds_names(Ino(ino), files) => Some((root, GROUPS.to_vec())),
                (None, false) => self.place_of_group_file(root, Ino(ino), files)?,
                (place, _) => place,
            };
            let Some((dir, name)) = place.filter(|(dir, name)| self.child(*dir, name).is_none())
            else {
                continue;
            };
            let text = name.escape_ascii().to_string();
            let action = format!("name it \"{text}\" again in directory {dir}");
            let detail = "an inode of the file system itself without a name";
            self.note(safe(Rule::Unconnected, At::Inode(Ino(ino)), detail, &action));
            self.name_metadata(dir, name, Ino(ino));
        }
        Ok(())
    }

    /// Whether a directory has names of files of the realtime section's groups.
    fn holds_names(&self, dir: Ino, files: &BTreeMap<Vec<u8>, Held>) -> bool {
        let mut held = self.dirs.get(&dir.0).into_iter().flat_map(|dir| &dir.names);
        held.any(|name| files.contains_key(&name.name))
    }

    /// Where a file of a group of the realtime section belongs, by what it says of itself.
    fn place_of_group_file(
        &mut self,
        root: Ino,
        ino: Ino,
        files: &BTreeMap<Vec<u8>, Held>,
    ) -> Result<Option<(Ino, Vec<u8>)>, DeviceError> {
        let Some(dir) = self.child(root, GROUPS).filter(|dir| self.dirs.contains_key(&dir.0))
        else {
            return Ok(None);
        };
        let number = RawInode::view(&self.slot(ino)?).expect("a slot holds a core").di_onlink;
        let group = self.inodes[&ino.0].core.project;
        let own = |held: &Held| held.holds as u16 == number.get() && held.group == group;
        let name = files.iter().find(|(_, held)| own(held));
        Ok(name.map(|(name, _)| (dir, name.clone())))
    }

    /// Whether a directory has a name of a quota file.
    fn holds_quota(&self, dir: Ino) -> bool {
        QuotaKind::ALL.iter().any(|kind| self.child(dir, kind.name().as_bytes()).is_some())
    }

    /// Keeps the names of a directory of the tree that belong there, with what they hold.
    fn keep_names(
        &mut self,
        dir: Ino,
        all: &mut BTreeMap<u64, Held>,
        belongs: impl Fn(&[u8]) -> Option<Held>,
    ) {
        let names = self.dirs.get(&dir.0).map_or(Vec::new(), |dir| dir.names.clone());
        for name in names {
            let holds = belongs(&name.name).filter(|holds| {
                let directory = holds.holds == MetadataType::Directory;
                let mode = if directory { DIRECTORY } else { 0x8000 };
                let inode = self.inodes.get(&name.ino.0);
                inode.is_some_and(|inode| inode.core.file_type() == mode)
                    && !all.contains_key(&name.ino.0)
                    && name.ino != self.g.root_ino
            });
            match holds {
                Some(holds) => {
                    all.insert(name.ino.0, holds);
                }
                None => {
                    let text = name.name.escape_ascii().to_string();
                    let detail = format!("\"{text}\" does not belong into the metadata directory");
                    let (rule, at) = (Rule::MetadataDirectory, At::Inode(dir));
                    self.note(lossy(rule, at, detail, "remove the name", "what it held"));
                    self.remove_name(dir, name.ino, false);
                }
            }
        }
    }

    /// Names of users do not point into the tree.
    fn keep_apart(&mut self, all: &BTreeMap<u64, Held>) {
        for dir in self.dirs.keys().copied().collect::<Vec<_>>() {
            if all.contains_key(&dir) {
                continue;
            }
            let wrong: Vec<Ino> = self.dirs[&dir].names.iter().map(|name| name.ino).collect();
            for ino in wrong.into_iter().filter(|ino| all.contains_key(&ino.0)) {
                let detail = format!("a name points at inode {ino} of the metadata directory");
                let (rule, at) = (Rule::MetadataDirectory, At::Inode(Ino(dir)));
                self.note(lossy(rule, at, detail, "remove it", "the name"));
                self.remove_name(Ino(dir), ino, false);
            }
        }
    }

    /// The fields of an inode that is in the tree, or is not.
    fn settle_fields(&mut self, ino: Ino, held: Option<Held>) -> Result<(), DeviceError> {
        let size = held.map(|held| self.blocks_of_group_file(held.holds));
        let size = u64::from(size.unwrap_or(0)) << self.g.block_bits;
        let inode = self.inodes.get_mut(&ino.0).expect("in use");
        let before = inode.core.clone();
        let core = &mut inode.core;
        match held {
            Some(Held { holds, group }) => {
                core.mode &= 0xf000;
                (core.uid, core.gid) = (0, 0);
                core.flags |= Flags::of_metadata(holds == MetadataType::Directory);
                core.flags2 |= Flags2::METADATA;
                core.flags2.remove(Flags2::DAX);
                if holds != MetadataType::Directory {
                    (core.size, core.project) = (size, group);
                }
            }
            None if core.flags2.contains(Flags2::METADATA) && inode.names > 0 => {
                core.flags2.remove(Flags2::METADATA);
            }
            None => return Ok(()),
        }
        let changed = *core != before;
        inode.dirty |= changed;
        let mut slot = self.slot(ino)?;
        let raw = RawInode::view_mut(&mut slot).expect("a slot holds a core");
        let number = held.map_or(0, |held| held.holds as u16);
        let renumbered = raw.di_onlink.get() != number;
        if renumbered {
            raw.di_onlink.set(number);
            self.put_slot(ino, &mut slot)?;
        }
        if changed || renumbered {
            let detail = match held {
                Some(_) => "is in the metadata directory, and its fields say otherwise",
                None => "is not in the metadata directory, and its fields say otherwise",
            };
            let rule = Rule::MetadataDirectory;
            self.note(safe(rule, At::Inode(ino), detail, "store what follows from its name"));
        }
        Ok(())
    }
}
