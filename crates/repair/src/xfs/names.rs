//! The names in directories: those that can be read, and those that damaged places still hold.

use std::collections::{BTreeMap, BTreeSet};

use base::Ino;
use block::DeviceError;
use xfs::Rule;
use xfs::format::dir::{DataBlock, FileType, Item, SPACES, check_entry};
use xfs::format::dir_sf::Shortform;
use xfs::format::inode::{ForkFormat, fork_ranges};
use xfs::format::{At, Kind};

use super::attributes::Attribute;
use super::forks::Fork;
use super::{Fs, lossy, safe};

/// The mode of a directory that is made again.
const MADE_AGAIN: u16 = 0x4000 | 0o755;

/// So many names of inodes that are not in use may have damaged numbers; of more, none has.
const ALIKE_MAX: usize = 64;

/// A name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// The bytes.
    pub name: Vec<u8>,
    /// The inode.
    pub ino: Ino,
    /// The inode's type.
    pub kind: FileType,
}

/// What a directory holds.
#[derive(Default, Debug)]
pub struct Directory {
    /// What `..` names.
    pub above: Option<Ino>,
    /// The names without `.` and `..`, in their order.
    pub names: Vec<Name>,
    /// It is to be written anew.
    pub rebuild: bool,
}

/// What a read of a directory found.
#[derive(Default)]
struct Found {
    names: Vec<Name>,
    /// Names of damaged blocks.
    weak: Vec<Name>,
    /// Something could not be read, or is not as it should be.
    damaged: bool,
}

/// The rules of `check` that speak of a directory's form.
fn is_of_form(rule: &Rule) -> bool {
    use Rule::*;
    let forms = [DirectoryBlock, DirectoryEntry, DirectoryDots, DirectoryIndex, DirectoryFree];
    forms.contains(rule) || matches!(rule, Checksum | Identity | InodeExtents | BtreeBlock)
}

impl Fs<'_> {
    /// Reads all directories, and decides which of their names hold.
    pub fn read_names(&mut self) -> Result<(), DeviceError> {
        self.dirs.clear();
        self.names_damaged = false;
        let is_dir = |(_, inode): &(&u64, &super::inodes::Inode)| inode.core.file_type() == 0x4000;
        let list: Vec<u64> = self.inodes.iter().filter(is_dir).map(|(&ino, _)| ino).collect();
        let (mut weak, mut lost) = (Vec::new(), Vec::new());
        self.view.meter.begin("reading directories", list.len() as u64);
        for ino in list {
            self.view.meter.add(1);
            let mut found = Found::default();
            self.names_of(Ino(ino), &mut found)?;
            let suspect = self.suspects.inodes.get(&ino);
            let suspect = suspect.is_some_and(|rules| rules.iter().any(is_of_form));
            self.names_damaged |= found.damaged;
            let rebuild = found.damaged || suspect;
            let directory = Directory { above: None, names: Vec::new(), rebuild };
            self.dirs.insert(ino, directory);
            self.take_names(Ino(ino), found.names, &mut lost);
            weak.extend(found.weak.into_iter().map(|name| (Ino(ino), name)));
        }
        let unknown = self.take_weak(weak);
        self.drop_lost(lost)?;
        if unknown.len() <= ALIKE_MAX {
            for (dir, name) in unknown {
                self.take_alike(dir, &name);
            }
        }
        Ok(())
    }

    /// Names of inodes that are not in use go, but for those of directories that parent pointers
    /// name: these are made again.
    fn drop_lost(&mut self, lost: Vec<(Ino, Name)>) -> Result<(), DeviceError> {
        let mut pointed: BTreeMap<u64, u32> = BTreeMap::new();
        for inode in self.inodes.values() {
            pointed.extend(inode.pointers.iter().filter_map(|pointer| {
                let (dir, generation) = pointer.directory()?;
                (!self.inodes.contains_key(&dir.0)).then_some((dir.0, generation))
            }));
        }
        let few = lost.len() <= ALIKE_MAX;
        for (dir, name) in lost {
            let (ino, text) = (name.ino, name.name.escape_ascii().to_string());
            let again = pointed
                .remove(&ino.0)
                .filter(|_| name.kind == FileType::Directory && self.has_slot(ino));
            self.dirs.get_mut(&dir.0).expect("just read").rebuild = true;
            if again.is_none() && few && self.take_alike(dir, &name) {
                continue;
            }
            let Some(generation) = again else {
                let detail = format!("\"{text}\" points at inode {ino}, which is not in use");
                let at = At::Inode(dir);
                self.note(lossy(Rule::DirectoryEntry, at, detail, "remove it", "the name"));
                continue;
            };
            self.dirs.get_mut(&dir.0).expect("just read").names.push(name);
            self.new_directory(ino, MADE_AGAIN)?;
            let inode = self.inodes.get_mut(&ino.0).expect("just made");
            (inode.names, inode.core.generation) = (1, generation);
            let detail = format!("the directory \"{text}\" is gone, and parent pointers name it");
            let (action, loss) = ("make it again", "its mode, owners, times and attributes");
            self.note(lossy(Rule::Inode, At::Inode(ino), detail, action, loss));
        }
        Ok(())
    }

    /// Gives a name whose inode is not in use to the one that it may have meant; false if there is
    /// none.
    fn take_alike(&mut self, dir: Ino, name: &Name) -> bool {
        let case = self.g.features.case();
        let names = &self.dirs[&dir.0].names;
        let taken = names.iter().any(|other| case.same(&other.name, &name.name));
        let Some(alike) = self.alike(dir, name).filter(|_| !taken) else { return false };
        self.inodes.get_mut(&alike.0).expect("in use").names += 1;
        let directory = self.dirs.get_mut(&dir.0).expect("read before");
        directory.names.push(Name { ino: alike, ..name.clone() });
        directory.rebuild = true;
        let (text, ino) = (name.name.escape_ascii(), name.ino);
        let detail = format!("\"{text}\" points at inode {ino}, which is not in use");
        let action = format!("let it point at inode {alike}, which lacks a name");
        self.note(lossy(Rule::DirectoryEntry, At::Inode(dir), detail, &action, "it is a guess"));
        true
    }

    /// The one inode that a name may have meant whose number was damaged: it is of the same type,
    /// has fewer names than links, and its number differs in two bytes at most. One that has
    /// parent pointers has this name only if one of them says so.
    fn alike(&self, dir: Ino, name: &Name) -> Option<Ino> {
        let near = |ino: u64| {
            let differ = (ino ^ name.ino.0).to_be_bytes();
            differ.iter().filter(|&&byte| byte != 0).count() <= 2
        };
        let mut fitting = self.inodes.iter().filter(|&(&ino, inode)| {
            let kind = FileType::of_mode(inode.core.mode);
            let links = if kind == FileType::Directory { 1 } else { inode.core.links };
            let below = || {
                let above = self.dirs.get(&ino).and_then(|directory| directory.above);
                kind != FileType::Directory || above == Some(dir)
            };
            let pointed = || {
                let its = |pointer: &Attribute| {
                    pointer.name == name.name
                        && pointer.directory().is_some_and(|(parent, _)| parent == dir)
                };
                inode.pointers.is_empty() || inode.pointers.iter().any(its)
            };
            let fits = kind == name.kind && inode.names < links && below() && pointed();
            near(ino) && fits && !self.is_system(ino)
        });
        let one = fitting.next().map(|(&ino, _)| Ino(ino));
        one.filter(|_| fitting.next().is_none())
    }

    /// Takes the names of a directory that can be.
    fn take_names(&mut self, dir: Ino, names: Vec<Name>, lost: &mut Vec<(Ino, Name)>) {
        let (mut seen, case) = (BTreeSet::new(), self.g.features.case());
        for mut name in names {
            let directory = self.dirs.get_mut(&dir.0).expect("just read");
            if name.name == b".." {
                directory.above = directory.above.or(Some(name.ino));
                continue;
            }
            if name.name == b"." {
                directory.rebuild |= name.ino != dir;
                continue;
            }
            let (at, text) = (At::Inode(dir), name.name.escape_ascii().to_string());
            let Some(inode) = self.inodes.get_mut(&name.ino.0) else {
                lost.push((dir, name));
                continue;
            };
            if !seen.insert(case.fold(&name.name).into_owned()) {
                directory.rebuild = true;
                let detail = format!("\"{text}\" is there twice");
                let action = "remove the second one";
                self.note(lossy(Rule::DirectoryEntry, at, detail, action, "one name"));
                continue;
            }
            let kind = FileType::of_mode(inode.core.mode);
            let whiteout = name.kind == FileType::Whiteout && kind == FileType::CharDevice;
            inode.names += 1;
            let ftype = self.g.features.ftype();
            if name.kind != kind && !whiteout && ftype {
                directory.rebuild = true;
                let detail = format!("\"{text}\" says {:?}, the inode is {kind:?}", name.kind);
                self.note(safe(Rule::DirectoryEntry, at, detail, "say that"));
            }
            if !whiteout || !ftype {
                name.kind = kind;
            }
            self.dirs.get_mut(&dir.0).expect("just read").names.push(name);
        }
    }

    /// Takes names of damaged blocks where their inodes have too few without them. Those whose
    /// inodes are not in use are left.
    fn take_weak(&mut self, weak: Vec<(Ino, Name)>) -> Vec<(Ino, Name)> {
        let case = self.g.features.case();
        let mut unknown = Vec::new();
        for (dir, name) in weak {
            let Some(inode) = self.inodes.get_mut(&name.ino.0) else {
                unknown.push((dir, name));
                continue;
            };
            let kind = FileType::of_mode(inode.core.mode);
            let is_dir = kind == FileType::Directory;
            let wanted = if is_dir { 1 } else { inode.core.links.max(1) };
            let fits = kind == name.kind || !self.g.features.ftype();
            let directory = self.dirs.get_mut(&dir.0).expect("read before");
            let taken = {
                let same = |other: &Name| case.same(&other.name, &name.name);
                directory.names.iter().any(same)
            };
            if !fits || taken || inode.names >= wanted || name.ino == dir {
                continue;
            }
            inode.names += 1;
            let text = name.name.escape_ascii().to_string();
            directory.names.push(Name { kind, ..name });
            let detail = format!("a damaged block holds the name \"{text}\"");
            self.note(safe(Rule::DirectoryEntry, At::Inode(dir), detail, "keep it"));
        }
        unknown
    }

    /// The names of a directory as they can be read, with `..`.
    ///
    /// # Errors
    /// The device's.
    pub fn names_in(&mut self, dir: Ino) -> Result<Vec<Name>, DeviceError> {
        let mut found = Found::default();
        self.names_of(dir, &mut found)?;
        Ok(found.names)
    }

    fn names_of(&mut self, ino: Ino, found: &mut Found) -> Result<(), DeviceError> {
        let inode = &self.inodes[&ino.0];
        let (format, forkoff, size) = (inode.core.format, inode.core.forkoff, inode.core.size);
        if format == ForkFormat::Local {
            let slot = self.slot(ino)?;
            let (range, _) = fork_ranges(forkoff, slot.len());
            let bytes = &slot[range];
            self.read_small(ino, bytes, size, found);
            return Ok(());
        }
        let fork = inode.data.clone();
        found.damaged |= fork.wrong.is_some();
        let index = SPACES[1] >> self.g.block_bits;
        let count = u64::from(self.g.dir_blocks());
        let mut next = 0;
        for extent in fork.extents.iter().filter(|extent| extent.offset < index) {
            let mut offset = (extent.offset - extent.offset % count).max(next);
            while offset < extent.end() {
                self.read_block(ino, &fork, offset, found)?;
                offset += count;
            }
            next = offset;
        }
        found.damaged |= next == 0;
        Ok(())
    }

    /// Reads a directory inside its inode.
    fn read_small(&self, ino: Ino, bytes: &[u8], size: u64, found: &mut Found) {
        let at = At::Inode(ino);
        let used = &bytes[..(size as usize).min(bytes.len())];
        let whole = Shortform::parse(used, &self.g.features, at);
        if let Ok(local) = whole {
            found.names.push(dots(local.parent));
            for entry in local.entries() {
                let (name, ino, kind) = (entry.name.to_vec(), entry.ino, entry.file_type);
                self.take_possible(Name { name, ino, kind }, at, found);
            }
            return;
        }
        found.damaged = true;
        for name in loose_small(bytes, self.g.features.ftype()) {
            self.take_possible(name, at, found);
        }
    }

    /// Takes a name that can be one.
    fn take_possible(&self, name: Name, at: At, found: &mut Found) {
        match check_entry(&name.name, name.ino, 0, &self.g, at) {
            Ok(()) => found.names.push(name),
            Err(_) => found.damaged = true,
        }
    }

    /// Reads a data block: what is sound in it, or what still looks like names.
    fn read_block(
        &mut self,
        ino: Ino,
        fork: &Fork,
        offset: u64,
        found: &mut Found,
    ) -> Result<(), DeviceError> {
        let at = At::InodeBlock(ino, offset);
        let Some(runs) = fork.runs(offset, self.g.dir_blocks()) else {
            found.damaged = true;
            return Ok(());
        };
        let kinds = [Kind::DirBlock, Kind::DirData];
        let (sound, (kind, data)) = match self.meta(&runs, &kinds, ino.0, at)? {
            Some(both) => (true, both),
            None => {
                let data = self.read_runs(&runs)?;
                let kind = Kind::recognise(&data).filter(|kind| *kind == Kind::DirBlock);
                (false, (kind.unwrap_or(Kind::DirData), data))
            }
        };
        found.damaged |= !sound;
        let ftype = self.g.features.ftype();
        let block = DataBlock::new(kind, &data, ftype, at)
            .or_else(|_| DataBlock::new(Kind::DirData, &data, ftype, at));
        let Ok(block) = block else { return Ok(()) };
        let mut place = block.start();
        while place < block.end() {
            let Ok((item, next)) = block.item(place, at) else {
                found.damaged = true;
                place += 8;
                continue;
            };
            place = next;
            let Item::Entry { ino, name, file_type, .. } = item else { continue };
            let name = Name { name: name.to_vec(), ino, kind: file_type };
            if check_entry(&name.name, ino, 0, &self.g, at).is_err() {
                found.damaged = true;
            } else if sound || name.name == b".." {
                found.names.push(name);
            } else if name.name != b"." {
                found.weak.push(name);
            }
        }
        Ok(())
    }
}

fn dots(above: Ino) -> Name {
    Name { name: b"..".to_vec(), ino: above, kind: FileType::Directory }
}

/// The names of a damaged directory in its inode, up to the first that cannot be one.
fn loose_small(bytes: &[u8], ftype: bool) -> Vec<Name> {
    let number = |at: usize, wide: bool| -> Option<Ino> {
        let len = if wide { 8 } else { 4 };
        let bytes = bytes.get(at..at + len)?;
        Some(Ino(bytes.iter().fold(0, |all, &byte| all << 8 | u64::from(byte))))
    };
    let Some(&[count, wide]) = bytes.get(..2) else { return Vec::new() };
    let mut list = Vec::new();
    for wide in [wide != 0, wide == 0] {
        let len = if wide { 8 } else { 4 };
        let Some(above) = number(2, wide) else { continue };
        let mut names = vec![dots(above)];
        let mut at = 2 + len;
        while names.len() <= usize::from(count.max(1)) {
            let Some(&size) = bytes.get(at).filter(|&&size| size > 0) else { break };
            let (start, end) = (at + 3, at + 3 + usize::from(size));
            let (Some(name), Some(kind)) = (bytes.get(start..end), bytes.get(end)) else { break };
            let kind = if ftype { FileType::from_number(*kind) } else { Some(FileType::Unknown) };
            let place = end + usize::from(ftype);
            let (Some(kind), Some(ino)) = (kind, number(place, wide)) else { break };
            names.push(Name { name: name.to_vec(), ino, kind });
            at = place + len;
        }
        if names.len() > list.len() {
            list = names;
        }
    }
    list
}
