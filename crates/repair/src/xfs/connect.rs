//! One root, one parent for each directory, no circles, a name for each inode, link counts, and
//! parent pointers that say the same as the names.

use std::collections::{BTreeMap, BTreeSet};

use base::{Ino, Timespec};
use block::DeviceError;
use xfs::Rule;
use xfs::format::dir::FileType;
use xfs::format::dquot;
use xfs::format::inode::{Flags2, ForkFormat, InodeCore, RawInode, emit_free};
use xfs::format::{At, NULL32};

use super::attributes::{Attribute, Attributes};
use super::inodes::Inode;
use super::names::{Directory, Name};
use super::{Fs, lossy, safe};
use crate::RepairError;

/// Modes of directories that a repair makes.
const ROOT_MODE: u16 = 0x4000 | 0o755;
const LOST_MODE: u16 = 0x4000 | 0o700;
const LOST: &[u8] = b"lost+found";

impl Fs<'_> {
    /// Connects everything to the root.
    ///
    /// # Errors
    /// The device's; no room for what must be made.
    pub fn connect(&mut self) -> Result<(), RepairError> {
        for (ag, detail) in self.suspects.lists.clone() {
            self.touched.insert(ag);
            let action = "empty the lists: inodes on them are in use, or free";
            self.note(safe(Rule::UnlinkedList, At::Agi(ag), detail, action));
        }
        self.root_exists()?;
        self.realtime_files_exist()?;
        self.settle_metadata()?;
        let mut parents = self.one_parent();
        self.settle_quota()?;
        self.reach(&mut parents)?;
        self.name_all(&mut parents)?;
        self.dotdots(&parents);
        self.link_counts(&parents);
        self.pointers_anew()?;
        let rebuild = self.dirs.iter().filter(|(_, dir)| dir.rebuild);
        for ino in rebuild.map(|(&ino, _)| ino).collect::<Vec<_>>() {
            self.write_directory(Ino(ino), &parents)?;
        }
        Ok(())
    }

    fn write_directory(
        &mut self,
        ino: Ino,
        parents: &BTreeMap<u64, Ino>,
    ) -> Result<(), RepairError> {
        let above = if self.roots().contains(&ino) { ino } else { parents[&ino.0] };
        let names = self.dirs[&ino.0].names.clone();
        self.build_directory(ino, above, names)?;
        let action = "write the directory anew from its names";
        let detail = "its blocks, its index or its names are not what they should be";
        self.note(safe(Rule::DirectoryBlock, At::Inode(ino), detail, action));
        Ok(())
    }

    /// Inodes that have no name by their nature.
    pub fn is_system(&self, ino: u64) -> bool {
        self.roots().iter().any(|root| root.0 == ino)
            || self.g.realtime_inos.iter().any(|system| system.0 == ino)
            || dquot::Kind::ALL.iter().any(|&kind| self.raw.quota_ino(kind) == Some(ino))
    }

    /// The root directories exist.
    fn root_exists(&mut self) -> Result<(), RepairError> {
        for root in self.roots() {
            if self.dirs.contains_key(&root.0) {
                continue;
            }
            if !self.has_slot(root) {
                return Err(RepairError::Hopeless(
                    "the place of the root directory is gone".into(),
                ));
            }
            let (detail, loss) = ("is no directory", "the names in the root directory");
            let action = "make an empty one";
            self.note(lossy(Rule::Unconnected, At::Inode(root), detail, action, loss));
            self.new_directory(root, ROOT_MODE)?;
        }
        Ok(())
    }

    /// Whether a chunk holds this inode.
    pub fn has_slot(&self, ino: Ino) -> bool {
        let place = self.g.ino_split(ino);
        let chunks = &self.groups[place.ag as usize].chunks;
        let before = chunks.partition_point(|chunk| chunk.start <= place.agino);
        before.checked_sub(1).is_some_and(|at| {
            let index = place.agino - chunks[at].start;
            index < 64 && chunks[at].hole_mask() >> index & 1 == 0
        })
    }

    /// Takes an inode into use as an empty directory.
    pub fn new_directory(&mut self, ino: Ino, mode: u16) -> Result<(), DeviceError> {
        self.new_inode(ino, mode)?;
        let core = &mut self.inodes.get_mut(&ino.0).expect("it is new").core;
        (core.links, core.format) = (2, ForkFormat::Local);
        let directory = Directory { above: None, names: Vec::new(), rebuild: true };
        self.dirs.insert(ino.0, directory);
        Ok(())
    }

    /// Takes an inode into use, without content.
    pub fn new_inode(&mut self, ino: Ino, mode: u16) -> Result<(), DeviceError> {
        let old = self.slot(ino)?;
        let raw = RawInode::view(&old).expect("a slot holds a core");
        let generation = raw.di_gen.get().wrapping_add(1);
        let mut slot = vec![0; old.len()];
        emit_free(&mut slot, ino, generation, &self.g);
        self.put_slot(ino, &mut slot)?;
        let now = Timespec { sec: i64::from(self.view.now()), nsec: 0 };
        let mut core = InodeCore { generation, ..InodeCore::fresh(mode, now) };
        core.flags2.set(Flags2::BIGTIME, self.g.features.bigtime());
        core.flags2.set(Flags2::NREXT64, self.g.features.nrext64());
        let mut inode = Inode::new(core);
        inode.dirty = true;
        self.inodes.insert(ino.0, inode);
        self.use_slot(ino);
        Ok(())
    }

    /// Says in the chunk that an inode is in use.
    fn use_slot(&mut self, ino: Ino) {
        self.mark_slot(ino, false);
    }

    pub fn mark_slot(&mut self, ino: Ino, free: bool) {
        let place = self.g.ino_split(ino);
        self.touched.insert(place.ag);
        for chunk in &mut self.groups[place.ag as usize].chunks {
            if (chunk.start..chunk.start + 64).contains(&place.agino) {
                let bit = 1 << (place.agino - chunk.start);
                chunk.free = if free { chunk.free | bit } else { chunk.free & !bit };
                chunk.free_count = (chunk.free & !chunk.hole_mask()).count_ones() as u8;
            }
        }
    }

    /// Says in the chunk that an inode is free.
    fn free_slot(&mut self, ino: Ino) {
        self.mark_slot(ino, true);
    }

    /// A free inode.
    pub fn free_inode(&self) -> Option<Ino> {
        (0..self.g.ag_count()).find_map(|ag| {
            let chunks = self.groups[ag as usize].chunks.iter();
            let mut free = chunks.filter(|chunk| chunk.available() != 0);
            free.next().map(|chunk| self.ino(ag, chunk.start + chunk.available().trailing_zeros()))
        })
    }

    /// The directory that holds each directory: where two name it, the one that its `..` names.
    fn one_parent(&mut self) -> BTreeMap<u64, Ino> {
        let roots = self.roots();
        let mut named: BTreeMap<u64, Vec<Ino>> = BTreeMap::new();
        for (&dir, directory) in &self.dirs {
            let names = directory.names.iter();
            for name in names.filter(|name| self.dirs.contains_key(&name.ino.0)) {
                named.entry(name.ino.0).or_default().push(Ino(dir));
            }
        }
        let mut parents = BTreeMap::new();
        for (child, mut dirs) in named {
            let above = self.dirs[&child].above;
            let keep = match roots.contains(&Ino(child)) {
                true => None,
                false => dirs.iter().position(|&dir| Some(dir) == above).or(Some(0)),
            };
            if let Some(keep) = keep {
                parents.insert(child, dirs.swap_remove(keep));
            }
            for dir in dirs {
                let detail = match parents.get(&child) {
                    Some(parent) => format!("directories {parent} and {dir} name it"),
                    None => format!("directory {dir} names it"),
                };
                let action = "remove the name that its \"..\" does not know";
                let loss = "one of its names";
                self.note(lossy(Rule::DirectoryEntry, At::Inode(Ino(child)), detail, action, loss));
                self.remove_name(dir, Ino(child), parents.get(&child) == Some(&dir));
            }
        }
        parents
    }

    /// Takes a name of a directory out of another one: the last, or the only one.
    pub fn remove_name(&mut self, dir: Ino, child: Ino, last: bool) {
        let directory = self.dirs.get_mut(&dir.0).expect("a directory");
        let mut names = directory.names.iter();
        let at = match last {
            true => names.rposition(|name| name.ino == child),
            false => names.position(|name| name.ino == child),
        };
        if let Some(at) = at {
            directory.names.remove(at);
            directory.rebuild = true;
            let inode = self.inodes.get_mut(&child.0).expect("in use");
            inode.names = inode.names.saturating_sub(1);
        }
    }

    /// Breaks circles of directories.
    fn reach(&mut self, parents: &mut BTreeMap<u64, Ino>) -> Result<(), RepairError> {
        let mut known: BTreeSet<u64> = self.roots().iter().map(|root| root.0).collect();
        for start in self.dirs.keys().copied().collect::<Vec<_>>() {
            let (mut at, mut way) = (start, BTreeSet::new());
            while !known.contains(&at) {
                if !way.insert(at) {
                    let above = parents[&at];
                    let detail = "the directory is above itself";
                    let (action, loss) = ("move it to lost+found", "its place in the tree");
                    self.note(lossy(Rule::Unconnected, At::Inode(Ino(at)), detail, action, loss));
                    self.remove_name(above, Ino(at), false);
                    parents.remove(&at);
                    break;
                }
                match parents.get(&at) {
                    Some(parent) => at = parent.0,
                    None => break,
                }
            }
            known.extend(way);
        }
        Ok(())
    }

    /// Gives a name to every inode that has none, or frees it where it should not have one.
    fn name_all(&mut self, parents: &mut BTreeMap<u64, Ino>) -> Result<(), RepairError> {
        let lacks = |(_, inode): &(&u64, &Inode)| inode.names == 0;
        let all: Vec<u64> = self.inodes.iter().filter(lacks).map(|(&ino, _)| ino).collect();
        for ino in all.into_iter().filter(|&ino| !self.is_system(ino)).collect::<Vec<_>>() {
            let gone = self.inodes[&ino].core.flags2.contains(Flags2::METADATA);
            if gone {
                let detail = "an inode of the file system itself that no name points at";
                let (rule, at) = (Rule::Unconnected, At::Inode(Ino(ino)));
                self.note(lossy(rule, at, detail, "clear it", "what it held"));
            }
            let inode = &self.inodes[&ino];
            if inode.core.links == 0 || gone {
                self.finish_removal(Ino(ino))?;
                continue;
            }
            let mut pointers = inode.pointers.clone();
            pointers.retain(|pointer| pointer.directory().is_some());
            let case = self.g.features.case();
            let usable = pointers.iter().find_map(|pointer| {
                let (dir, _) = pointer.directory()?;
                let names = &self.dirs.get(&dir.0)?.names;
                let free = names.iter().all(|name| !case.same(&name.name, &pointer.name));
                (free && dir.0 != ino && !self.is_below(dir, Ino(ino), parents))
                    .then(|| (dir, pointer.name.clone()))
            });
            if let Some((dir, name)) = usable {
                let text = name.escape_ascii().to_string();
                let action = format!("name it \"{text}\" again in directory {dir}");
                let detail = "no name points here, but its parent pointer knows one";
                self.note(safe(Rule::Unconnected, At::Inode(Ino(ino)), detail, &action));
                self.add_name(dir, Ino(ino), name, parents);
                continue;
            }
            if self.take_quota(Ino(ino))? {
                continue;
            }
            let old = pointers.first().map(|pointer| pointer.name.clone());
            self.move_to_lost_found(Ino(ino), old, parents)?;
        }
        Ok(())
    }

    /// Whether `dir` lies below `top`.
    fn is_below(&self, dir: Ino, top: Ino, parents: &BTreeMap<u64, Ino>) -> bool {
        let (mut at, mut steps) = (dir, 0);
        while at != top {
            steps += 1;
            match parents.get(&at.0) {
                Some(&above) if steps <= parents.len() => at = above,
                _ => return false,
            }
        }
        true
    }

    fn add_name(&mut self, dir: Ino, ino: Ino, name: Vec<u8>, parents: &mut BTreeMap<u64, Ino>) {
        let inode = self.inodes.get_mut(&ino.0).expect("in use");
        inode.names += 1;
        let kind = FileType::of_mode(inode.core.mode);
        let directory = self.dirs.get_mut(&dir.0).expect("a directory");
        directory.names.push(Name { name, ino, kind });
        directory.rebuild = true;
        if kind == FileType::Directory {
            parents.insert(ino.0, dir);
        }
    }

    fn move_to_lost_found(
        &mut self,
        ino: Ino,
        old: Option<Vec<u8>>,
        parents: &mut BTreeMap<u64, Ino>,
    ) -> Result<(), RepairError> {
        let dir = self.lost_found(parents)?;
        let number = ino.0.to_string().into_bytes();
        let wanted = old.unwrap_or_else(|| number.clone());
        let case = self.g.features.case();
        let mut names = self.dirs[&dir.0].names.iter();
        let mut taken = |name: &[u8]| names.any(|other| case.same(&other.name, name));
        let name = if taken(&wanted) { number } else { wanted };
        let text = name.escape_ascii().to_string();
        let (detail, loss) = ("no name points here", "its place in the tree");
        let action = format!("name it \"{text}\" in lost+found");
        self.note(lossy(Rule::Unconnected, At::Inode(ino), detail, &action, loss));
        self.add_name(dir, ino, name, parents);
        Ok(())
    }

    /// The directory `lost+found`, made where it is missing.
    fn lost_found(&mut self, parents: &mut BTreeMap<u64, Ino>) -> Result<Ino, RepairError> {
        let root = self.g.root_ino;
        let names = &self.dirs[&root.0].names;
        let there = names.iter().find(|name| name.name == LOST).map(|name| name.ino);
        if let Some(ino) = there.filter(|ino| self.dirs.contains_key(&ino.0)) {
            return Ok(ino);
        }
        let Some(ino) = self.free_inode() else {
            return Err(RepairError::Hopeless("no free inode for lost+found".into()));
        };
        let name = if there.is_some() { b"lost+found.repair".to_vec() } else { LOST.to_vec() };
        self.new_directory(ino, LOST_MODE)?;
        self.add_name(root, ino, name, parents);
        Ok(ino)
    }

    /// An inode without links and names was removed while it was open: it goes.
    fn finish_removal(&mut self, ino: Ino) -> Result<(), RepairError> {
        self.inodes.remove(&ino.0);
        if self.dirs.remove(&ino.0).is_some() {
            // What it still holds is connected in the next round.
            self.again = true;
        }
        let slot = self.slot(ino)?;
        self.clear(ino, &slot, true, "it has neither a name nor links")?;
        self.free_slot(ino);
        Ok(())
    }

    /// `..` names the directory above.
    fn dotdots(&mut self, parents: &BTreeMap<u64, Ino>) {
        let roots = self.roots();
        for ino in self.dirs.keys().copied().collect::<Vec<_>>() {
            let above = if roots.contains(&Ino(ino)) { Ino(ino) } else { parents[&ino] };
            let directory = self.dirs.get_mut(&ino).expect("a directory");
            if directory.above == Some(above) {
                continue;
            }
            let found = directory.above.map_or("nothing".to_owned(), |ino| ino.to_string());
            directory.rebuild = true;
            let detail = format!("\"..\" points at {found}, the directory lies in {above}");
            self.note(safe(Rule::DirectoryDots, At::Inode(Ino(ino)), detail, "say that"));
        }
    }

    /// Links are the names; those of a directory its own and those of the directories in it.
    fn link_counts(&mut self, parents: &BTreeMap<u64, Ino>) {
        let mut below: BTreeMap<u64, u32> = BTreeMap::new();
        for dir in parents.values() {
            *below.entry(dir.0).or_default() += 1;
        }
        for ino in self.inodes.keys().copied().collect::<Vec<_>>() {
            let is_dir = self.dirs.contains_key(&ino);
            let system = self.is_system(ino) && !self.roots().contains(&Ino(ino));
            let inode = self.inodes.get_mut(&ino).expect("in use");
            let wanted = match (system, is_dir) {
                (true, _) => 1,
                (false, true) => 2 + below.get(&ino).copied().unwrap_or(0),
                (false, false) => inode.names,
            };
            let on_list = inode.core.next_unlinked != NULL32;
            if inode.core.links == wanted && !on_list {
                continue;
            }
            let found = inode.core.links;
            (inode.core.links, inode.core.next_unlinked) = (wanted, NULL32);
            inode.dirty = true;
            if found > wanted && !is_dir && self.names_damaged {
                // The inode is a witness of names that cannot be read.
                let detail = format!("{found} links, of {wanted} of which a name is left");
                let (at, act) = (At::Inode(Ino(ino)), "store the number of names");
                self.note(lossy(Rule::LinkCount, at, detail, act, "names, if the count was right"));
                continue;
            }
            self.note_links(Ino(ino), found, wanted);
        }
    }

    /// Reads parent pointers, and the attributes that are to be written anew.
    pub fn read_pointers(&mut self) -> Result<(), DeviceError> {
        let parents = self.g.features.parent();
        for ino in self.inodes.keys().copied().collect::<Vec<_>>() {
            let suspect = self.suspects.inodes.get(&ino).is_some_and(|rules| {
                let of_form = [Rule::Attribute, Rule::ParentForm, Rule::Checksum, Rule::Identity];
                rules.iter().any(|rule| of_form.contains(rule))
            });
            let wrong = self.inodes[&ino].attr.wrong.is_some() || suspect;
            if !(parents || wrong) || self.inodes[&ino].core.forkoff == 0 {
                continue;
            }
            let Attributes { list, lost } = self.read_attributes(Ino(ino), false)?;
            let pointers = list.into_iter().filter(Attribute::is_parent).collect();
            let inode = self.inodes.get_mut(&ino).expect("in use");
            inode.pointers = pointers;
            inode.attr_wrong = wrong || lost > 0;
        }
        Ok(())
    }

    /// Writes the attributes of inodes anew where they are damaged, or where their parent pointers
    /// are not the names.
    fn pointers_anew(&mut self) -> Result<(), RepairError> {
        let parents = self.g.features.parent();
        let mut wanted: BTreeMap<u64, Vec<Attribute>> = BTreeMap::new();
        for (&dir, directory) in self.dirs.iter().filter(|_| parents) {
            let generation = self.inodes[&dir].core.generation;
            for name in &directory.names {
                let pointer = Attribute::parent(Ino(dir), generation, &name.name);
                wanted.entry(name.ino.0).or_default().push(pointer);
            }
        }
        for ino in self.inodes.keys().copied().collect::<Vec<_>>() {
            let mut pointers = wanted.remove(&ino).unwrap_or_default();
            pointers.sort();
            let inode = &self.inodes[&ino];
            if !inode.attr_wrong && inode.pointers == pointers {
                continue;
            }
            let wrong = inode.attr_wrong;
            let Attributes { mut list, lost } = self.read_attributes(Ino(ino), true)?;
            list.retain(|attr| !attr.is_parent());
            list.extend(pointers);
            self.build_attributes(Ino(ino), &list)?;
            let at = At::Inode(Ino(ino));
            let action = "write its attributes anew";
            self.note(match (wrong, lost) {
                (true, 0) => safe(Rule::Attribute, at, "not well-formed", action),
                (true, lost) => {
                    let detail = format!("{lost} places cannot be read");
                    lossy(Rule::Attribute, at, detail, action, "what was there")
                }
                (false, _) => {
                    let detail = "the parent pointers are not its names";
                    safe(Rule::ParentMissing, at, detail, action)
                }
            });
        }
        Ok(())
    }
}
