//! One root, one parent for each directory, no circles, a name for each file.

use std::collections::{BTreeMap, BTreeSet};

use base::map::HashSet;
use block::DeviceError;
use ext4::format::dir::{self, Key};
use ext4::format::super_block::ROOT_INO;
use ext4::format::{FileKind, InodeFlags, InodeValues, htree};
use ext4::{Policies, Rule};

use super::Fs;
use super::dirs::Name;
use super::inodes::Inode;
use super::map::Map;
use crate::RepairError;
use ext4::format::extent::FileRun;

/// Links that a directory counts at most.
pub const LINK_MAX: u32 = 65_000;
/// Permissions of a directory that a repair makes.
const ROOT_MODE: u16 = 0o755;
const LOST_MODE: u16 = 0o700;

/// What is known of the names of a file system.
#[derive(Default)]
pub struct Tree {
    /// What `..` of a directory names.
    pub dotdot: BTreeMap<u32, u32>,
    /// What lies behind `.` and `..` of a directory, where there is something.
    pub behind_dots: BTreeMap<u32, [Vec<u8>; 2]>,
    /// The directories that name a directory.
    pub parents: BTreeMap<u32, Vec<u32>>,
    /// The parent of each directory, once decided.
    pub parent: BTreeMap<u32, u32>,
    /// Names that only damaged or old places hold, with their directory.
    pub weak: Vec<(u32, Name)>,
    /// The directory for what has no name, 0 where there is none.
    pub lost_found: u32,
    /// A directory and the names that it has, folded: the one that names were added to last.
    taken: Option<(u32, HashSet<Vec<u8>>)>,
}

impl Fs<'_> {
    /// Connects everything to the root.
    ///
    /// # Errors
    /// The device's; no room for a root directory.
    pub fn connect(&mut self) -> Result<(), RepairError> {
        self.root()?;
        if self.again {
            return Ok(());
        }
        for inode in self.inodes.values_mut().filter(|inode| inode.names > 0) {
            inode.weak = false;
        }
        self.one_parent()?;
        self.old_names()?;
        self.reach()?;
        let nameless: Vec<u32> = self.without_name().collect();
        for ino in nameless {
            self.attach(ino, "it has no name")?;
        }
        let weak = self.inodes.iter().filter(|(_, inode)| inode.weak && inode.names == 0);
        for ino in weak.map(|(&ino, _)| ino).collect::<Vec<_>>() {
            self.inodes.remove(&ino);
            self.bury(ino, "no links and no name")?;
        }
        self.dotdots()?;
        Ok(())
    }

    /// Inodes that should have a name, and have none.
    fn without_name(&self) -> impl Iterator<Item = u32> + use<'_> {
        let lacks = |inode: &Inode| inode.names == 0 && !inode.nameless && !inode.weak;
        let all = self.inodes.iter().filter(move |(ino, inode)| **ino != ROOT_INO && lacks(inode));
        all.map(|(&ino, _)| ino)
    }

    /// The root directory exists.
    fn root(&mut self) -> Result<(), RepairError> {
        if self.inodes.get(&ROOT_INO).is_some_and(|inode| inode.kind == FileKind::Directory) {
            return Ok(());
        }
        let found = self.lost_root()?;
        let detail = "inode 2 is no directory";
        let wanted = match found {
            Some(block) => {
                let act = format!("take block {block}, which nobody owns, as its content");
                self.safe(Rule::RootMissing, Self::at(ROOT_INO), detail, &act)
            }
            None => {
                let act = "make a new one";
                let loss = "the names in it";
                self.lossy(Rule::RootMissing, Self::at(ROOT_INO), detail, act, loss)
            }
        };
        if !wanted {
            return Err(RepairError::Hopeless(
                "without a root directory there is no repair".into(),
            ));
        }
        let block = match found {
            Some(block) => block,
            None => self.take_block(0)?.ok_or(RepairError::Hopeless("no block is free".into()))?,
        };
        let first = self.cluster_of(block);
        self.used.set_run(first..first + u64::from(self.g.cluster_ratio));
        self.new_directory(ROOT_INO, ROOT_MODE, block)?;
        if found.is_some() {
            // The next round reads it as any other directory.
            self.store_map(ROOT_INO)?;
            self.again = true;
        } else {
            self.rebuilt.insert(ROOT_INO, Vec::new());
            self.tree.dotdot.insert(ROOT_INO, ROOT_INO);
        }
        Ok(())
    }

    /// A block that begins as the root directory does, and that nobody owns.
    fn lost_root(&mut self) -> Result<Option<u64>, DeviceError> {
        for block in u64::from(self.g.first_data_block)..self.g.blocks_count {
            if self.used.get(block) || self.meta.get(block) {
                continue;
            }
            let content = self.view.read(block)?;
            let dot = content[..12] == [2, 0, 0, 0, 12, 0, 1, content[7], b'.', 0, 0, 0];
            if dot && content[12..16] == [2, 0, 0, 0] && content[18] == 2 {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Writes the inode of a directory of one block.
    fn new_directory(&mut self, ino: u32, mode: u16, block: u64) -> Result<(), DeviceError> {
        let now = base::Timespec { sec: i64::from(self.view.now()), nsec: 0 };
        let extents = self.g.features.incompat;
        let mut values = InodeValues {
            mode: FileKind::Directory.mode_bits() | mode,
            size: self.g.block_size.into(),
            links: 2,
            blocks: u64::from(self.g.block_size / 512),
            extra_isize: self.g.want_extra_isize,
            atime: now,
            ctime: now,
            mtime: now,
            crtime: (self.g.inode_size > 128).then_some(now),
            ..InodeValues::default()
        };
        let wide = ext4::format::features::Incompat::EXTENTS;
        values.flags.set(InodeFlags::EXTENTS, extents.contains(wide));
        let mut map = Map::default();
        map.push(FileRun { logical: 0, start: block, len: 1, unwritten: false });
        let mut slot = vec![0; self.g.inode_size as usize];
        values.emit(&mut slot, base::Ino(ino.into()), &self.g);
        self.put_slot(ino, &slot)?;
        let mut inode = Inode::new(&values, FileKind::Directory, map);
        inode.rewrite = true;
        self.inodes.insert(ino, inode);
        Ok(())
    }

    /// A directory that two directories name belongs to the one that its `..` names.
    fn one_parent(&mut self) -> Result<(), DeviceError> {
        for (child, mut parents) in self.tree.parents.clone() {
            let dotdot = self.tree.dotdot.get(&child).copied().unwrap_or(0);
            let keep = parents.iter().position(|&parent| parent == dotdot).unwrap_or(0);
            let parent = parents.swap_remove(keep);
            self.tree.parent.insert(child, parent);
            for other in parents {
                let detail = format!("directories {parent} and {other} name it");
                let act = "remove the name that its `..` does not know";
                let loss = "one of its two names";
                if self.lossy(Rule::DirTwoParents, Self::at(child), detail, act, loss) {
                    let skip = usize::from(other == parent);
                    self.remove_name(other, child, skip)?;
                }
            }
        }
        Ok(())
    }

    /// Removes the name of a directory from another one, but for the first `skip` of them.
    fn remove_name(&mut self, dir: u32, child: u32, skip: usize) -> Result<(), DeviceError> {
        let names = self.names_of(dir)?;
        let at = names.iter().enumerate().filter(|(_, name)| name.ino == child).nth(skip);
        if let Some((index, _)) = at {
            names.remove(index);
        }
        if let Some(inode) = self.inodes.get_mut(&child) {
            inode.names = inode.names.saturating_sub(1);
        }
        Ok(())
    }

    /// Inodes without a name get the one that a damaged or an old place holds.
    fn old_names(&mut self) -> Result<(), DeviceError> {
        let lacking: BTreeSet<u32> = self.without_name().collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let mut done = BTreeSet::new();
        for (dir, name) in std::mem::take(&mut self.tree.weak) {
            let ino = name.ino;
            let kind = self.inodes.get(&ino).map(|inode| inode.kind.dir_type());
            let fits = lacking.contains(&ino) && kind == Some(name.file_type) && dir != ino;
            let there = self.inodes.get(&dir).is_some_and(|i| i.kind == FileKind::Directory);
            if !fits || !there || !done.insert(ino) {
                continue;
            }
            let folded = self.folded(dir, &name.name);
            let others = self.names_of(dir)?.clone();
            let taken = others.iter().any(|other| self.folded(dir, &other.name) == folded);
            let sealed = self.inodes[&dir].policy;
            let agree =
                Policies::agree(sealed, self.inodes[&ino].policy, Some(self.inodes[&ino].kind));
            let text = String::from_utf8_lossy(&name.name).into_owned();
            let act = format!("name it {text:?} again in directory {dir}");
            let detail = "it has no name, but a damaged or old entry names it";
            if taken || !agree || !self.safe(Rule::InodeUnconnected, Self::at(ino), detail, &act) {
                continue;
            }
            self.add_name(dir, name)?;
        }
        Ok(())
    }

    /// Adds a name to a directory that is written anew.
    fn add_name(&mut self, dir: u32, name: Name) -> Result<(), DeviceError> {
        let ino = name.ino;
        let folded = self.folded(dir, &name.name);
        if let Some((_, taken)) = self.tree.taken.as_mut().filter(|(of, _)| *of == dir) {
            taken.insert(folded);
        }
        self.names_of(dir)?.push(name);
        let inode = self.inodes.get_mut(&ino).expect("it has no name yet");
        inode.names += 1;
        inode.weak = false;
        if inode.kind == FileKind::Directory {
            self.tree.parent.insert(ino, dir);
        }
        Ok(())
    }

    /// Every directory is reached from the root.
    fn reach(&mut self) -> Result<(), RepairError> {
        let mut known: BTreeSet<u32> = [ROOT_INO].into();
        let dirs = self.inodes.iter().filter(|(_, i)| i.kind == FileKind::Directory && !i.weak);
        let dirs: Vec<u32> = dirs.map(|(&ino, _)| ino).collect();
        for start in dirs {
            let mut path = Vec::new();
            let mut walked = BTreeSet::new();
            let mut at = start;
            while !known.contains(&at) {
                let circle = !walked.insert(at);
                let parent = self.tree.parent.get(&at).copied();
                let there = parent.is_some_and(|parent| self.inodes.contains_key(&parent));
                if circle || !there {
                    if circle {
                        let above = parent.expect("a circle has parents");
                        let act = "move it to lost+found";
                        let loss = "its place in the tree";
                        let detail = "it is its own ancestor";
                        if self.lossy(Rule::DirUnconnected, Self::at(at), detail, act, loss) {
                            self.remove_name(above, at, 0)?;
                        } else {
                            break;
                        }
                    }
                    self.attach(at, "nothing leads to it")?;
                    break;
                }
                path.push(at);
                at = parent.expect("there");
            }
            known.extend(path);
            known.extend(walked);
        }
        Ok(())
    }

    /// Gives an inode a name in `lost+found`.
    fn attach(&mut self, ino: u32, why: &str) -> Result<(), RepairError> {
        let act = "move it to lost+found";
        let loss = "its name";
        if !self.lossy(Rule::InodeUnconnected, Self::at(ino), why, act, loss) {
            return Ok(());
        }
        let dir = self.lost_found(ino)?;
        let name = self.free_name(dir, format!("#{ino}").as_bytes())?;
        let file_type = self.g.dir_layout().stored_type(self.inodes[&ino].kind.dir_type());
        self.add_name(dir, Name::new(name, ino, file_type))?;
        Ok(())
    }

    /// The name, or one like it that the directory does not have.
    fn free_name(&mut self, dir: u32, name: &[u8]) -> Result<Vec<u8>, DeviceError> {
        let taken = match self.tree.taken.take().filter(|(of, _)| *of == dir) {
            Some((_, taken)) => taken,
            None => {
                let names = self.names_of(dir)?.clone();
                names.iter().map(|name| self.folded(dir, &name.name)).collect()
            }
        };
        let free = match taken.contains(&self.folded(dir, name)) {
            true => self.unique(dir, name, &taken),
            false => name.to_vec(),
        };
        self.tree.taken = Some((dir, taken));
        Ok(free)
    }

    /// The directory `lost+found`, made where it is missing.
    fn lost_found(&mut self, asking: u32) -> Result<u32, RepairError> {
        let known = self.tree.lost_found;
        let sound = self.inodes.get(&known).is_some_and(|i| i.kind == FileKind::Directory);
        if sound && known != asking && self.tree.parent.get(&known) == Some(&ROOT_INO) {
            return Ok(known);
        }
        let full = |what: &str| RepairError::Hopeless(format!("no free {what} for lost+found"));
        let ino = self.take_ino()?.ok_or_else(|| full("inode"))?;
        let block = self.take_block(0)?.ok_or_else(|| full("block"))?;
        let act = "make a new one";
        self.safe(Rule::DirUnconnected, Self::at(ROOT_INO), "there is no lost+found", act);
        self.new_directory(ino, LOST_MODE, block)?;
        self.rebuilt.insert(ino, Vec::new());
        self.tree.dotdot.insert(ino, ROOT_INO);
        let name = self.free_name(ROOT_INO, b"lost+found")?;
        let file_type = self.g.dir_layout().stored_type(FileKind::Directory.dir_type());
        self.add_name(ROOT_INO, Name::new(name, ino, file_type))?;
        self.tree.lost_found = ino;
        Ok(ino)
    }

    /// `..` names the parent.
    fn dotdots(&mut self) -> Result<(), DeviceError> {
        self.tree.parent.insert(ROOT_INO, ROOT_INO);
        let dirs = self.inodes.iter().filter(|(_, inode)| inode.kind == FileKind::Directory);
        for ino in dirs.map(|(&ino, _)| ino).collect::<Vec<_>>() {
            let (Some(&parent), Some(&dotdot)) =
                (self.tree.parent.get(&ino), self.tree.dotdot.get(&ino))
            else {
                continue;
            };
            if parent == dotdot || self.rebuilt.contains_key(&ino) {
                continue;
            }
            let detail = format!("`..` names inode {dotdot}, the parent is {parent}");
            let act = "name the parent";
            if self.safe(Rule::DirDotdot, Self::at(ino), detail, act) {
                self.set_dotdot(ino, parent)?;
            }
        }
        Ok(())
    }

    fn set_dotdot(&mut self, ino: u32, parent: u32) -> Result<(), DeviceError> {
        let inode = self.inodes[&ino].clone();
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            return self.edit(ino, |values| dir::set_inline_parent(&mut values.block, parent));
        }
        let Some(run) = inode.map.runs.first() else { return Ok(()) };
        let mut data = self.view.read(run.start)?;
        let layout = self.g.dir_layout();
        let plain = dir::DirLayout { checksum: false, ..layout };
        let Some(found) = dir::find(&data, plain, &Key::new(b"..")) else { return Ok(()) };
        let (seed, kind) = (self.seed(ino, inode.generation), FileKind::Directory.dir_type());
        let indexed = inode.flags.contains(InodeFlags::INDEX);
        match indexed {
            true => htree::set_root_parent(&mut data, layout, parent, kind),
            false => dir::set_target(&mut data, layout, found.offset, parent, kind),
        }
        if layout.checksum {
            match htree::array_of(&data, 0, indexed, layout) {
                Some(array) => htree::set_checksum(seed, &mut data, array),
                None => dir::set_checksum(seed, &mut data),
            }
        }
        self.view.write(run.start, &data);
        Ok(())
    }

    /// Links that an inode should count. None where nothing is known of it.
    pub fn links_of(&self, ino: u32, children: &BTreeMap<u32, u32>) -> Option<u32> {
        let inode = &self.inodes[&ino];
        if inode.nameless || inode.weak {
            return None;
        }
        if inode.kind != FileKind::Directory {
            return Some(inode.names);
        }
        let count = 2 + children.get(&ino).copied().unwrap_or(0);
        Some(if count >= LINK_MAX { 1 } else { count })
    }

    /// How many directories each directory holds.
    pub fn children(&self) -> BTreeMap<u32, u32> {
        let mut count = BTreeMap::new();
        for (child, parent) in &self.tree.parent {
            if *child != ROOT_INO && self.inodes.contains_key(child) {
                *count.entry(*parent).or_default() += 1;
            }
        }
        count
    }
}
