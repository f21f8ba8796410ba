//! Third pass: directory blocks and their entries.

use std::hash::Hasher;
use std::sync::Arc;

use base::Ino;
use base::map::{FxHasher, HashSet};
use block::DeviceError;

use super::Checker;
use super::index::{Role, Tree};
use super::inodes::InodeMap;
use super::mapping::FileBlocks;
use super::rule::Rule;
use crate::format::casefold;
use crate::format::dir::{self, DirLayout, Entry, Names};
use crate::format::extent::FileRun;
use crate::format::super_block::ROOT_INO;
use crate::format::{At, CorruptKind, FileKind, InodeFlags, InodeValues, htree};

/// Names of a directory for which the room is kept for the next one.
const NAMES_KEPT: usize = 4096;

/// A directory that waits for its entries to be checked, and then for its links.
pub struct DirRecord {
    /// Its inode.
    pub ino: u32,
    /// The directory with the entry that names it; 0 where none was found.
    pub parent: u32,
    /// What its `..` names; 0 where there is none.
    pub dotdot: u32,
    /// Directories whose parent it is.
    pub children: u32,
    generation: u32,
    index: bool,
    /// Its names ignore case.
    folds: bool,
    complete: bool,
    blocks: u64,
    runs: Vec<FileRun>,
    /// The bytes of one whose entries lie in the inode; empty otherwise.
    inline: Vec<u8>,
}

impl DirRecord {
    /// A directory whose blocks were walked over.
    pub fn new(ino: u32, values: &InodeValues, folds: bool, mapped: FileBlocks) -> DirRecord {
        DirRecord {
            ino,
            parent: 0,
            dotdot: 0,
            children: 0,
            generation: values.generation,
            index: values.flags.contains(InodeFlags::INDEX),
            folds,
            complete: mapped.complete,
            blocks: mapped.end,
            runs: mapped.runs,
            inline: Vec::new(),
        }
    }

    /// A directory whose entries lie in its inode.
    pub fn inline(ino: u32, folds: bool, content: Vec<u8>) -> DirRecord {
        DirRecord {
            ino,
            parent: 0,
            dotdot: dir::inline_parent(&content),
            children: 0,
            generation: 0,
            index: false,
            folds,
            complete: true,
            blocks: 0,
            runs: Vec::new(),
            inline: content,
        }
    }

    /// Its logical blocks: logical, device block.
    fn blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs
            .iter()
            .flat_map(|run| (0..run.len).map(|index| (run.logical + index, run.start + index)))
    }

    /// True where no block is missing, so that trees can be numbered.
    fn is_whole(&self) -> bool {
        self.complete && self.runs.iter().map(|run| run.len).sum::<u64>() == self.blocks
    }

    /// The device block of a logical block.
    pub fn device_block(&self, logical: u64) -> Option<u64> {
        let index = self.runs.partition_point(|run| run.logical + run.len <= logical);
        let run = self.runs.get(index).filter(|run| run.logical <= logical)?;
        Some(run.start + (logical - run.logical))
    }

    /// Number of logical blocks.
    pub fn len(&self) -> u64 {
        self.blocks
    }

    /// Seeds the checksums of its blocks.
    pub fn generation(&self) -> u32 {
        self.generation
    }
}

/// A directory that has a name.
pub struct Subdirectory {
    ino: u32,
    /// The directory with that name, and where it lies.
    parent: u32,
    at: At,
}

/// What is known while directories are read, and what is found.
#[derive(Default)]
pub struct DirPass {
    /// The inodes.
    pub known: Arc<InodeMap>,
    /// Directories that have a name.
    pub below: Vec<Subdirectory>,
    /// Some names are unknown: missing links prove nothing.
    pub names_unknown: bool,
}

/// What goes along while one directory is read.
struct Reading {
    dir: usize,
    ino: u32,
    /// Hashes of the names so far; those that collide are compared by bytes elsewhere.
    names: HashSet<u64>,
    /// Entries of the first block so far.
    entries: u64,
}

impl Checker<'_> {
    /// What the names of a directory are.
    pub fn names(&self, dir: usize) -> Names {
        self.g.names_of(Names::of(self.is_encrypted(self.dirs[dir].ino), self.dirs[dir].folds))
    }

    /// Goes over all directories.
    ///
    /// # Errors
    /// The device's.
    pub fn directories(&mut self) -> Result<(), DeviceError> {
        self.dirs.sort_by_key(|dir| dir.ino);
        self.inodes.start_names();
        self.pass.known = Arc::new(std::mem::take(&mut self.inodes));
        let mut shares = self.dir_shares().into_iter();
        let first = shares.next().expect("there is a share");
        let others: Vec<_> = shares.map(|share| self.start_directories(share)).collect();
        self.dirs = first;
        self.all_directories()?;
        for task in others {
            let share = task.join(self.io.cx())?;
            self.take_directories(share);
        }
        self.set_parents();
        let known = std::mem::take(&mut self.pass.known);
        self.inodes = Arc::into_inner(known).expect("the tasks have ended");
        Ok(())
    }

    /// Gives the directories with a name their parents.
    fn set_parents(&mut self) {
        for Subdirectory { ino, parent, at } in std::mem::take(&mut self.pass.below) {
            if self.set_parent(ino, parent) {
                self.pass.known.add_name(ino);
            } else {
                let detail = format!("a name of directory {ino}, which has a parent");
                self.findings.add(Rule::DirTwoParents, at, detail);
            }
        }
    }

    /// Goes over the directories at hand.
    ///
    /// # Errors
    /// The device's.
    pub fn all_directories(&mut self) -> Result<(), DeviceError> {
        let mut names = HashSet::default();
        for dir in 0..self.dirs.len() {
            // To empty one that was large takes longer than to make a new one.
            if names.capacity() > NAMES_KEPT {
                names = HashSet::default();
            }
            names.clear();
            let weight = self.dirs[dir].weight();
            names = self.directory(dir, names)?;
            self.io.meter.add(weight);
        }
        Ok(())
    }

    /// One directory. `names` is empty, and comes back to be emptied.
    fn directory(&mut self, dir: usize, names: HashSet<u64>) -> Result<HashSet<u64>, DeviceError> {
        let ino = self.dirs[dir].ino;
        if !self.dirs[dir].complete {
            self.pass.names_unknown = true;
        } else if !self.dirs[dir].is_whole() {
            let logical = self.first_hole(dir);
            let kind = CorruptKind::DirHole { logical };
            self.findings.corrupt(&kind.at(At::Inode(Ino(ino.into()))));
            self.pass.names_unknown = true;
        }
        let indexed = self.dirs[dir].index && self.dirs[dir].is_whole();
        let tree = if indexed { self.tree(dir)? } else { None };
        let mut reading = Reading { dir, ino, names, entries: 0 };
        self.inline_entries(&mut reading);
        // The runs are not needed afterwards.
        for run in std::mem::take(&mut self.dirs[dir].runs) {
            let mut done = 0;
            while done < run.len {
                let part = self.io.batch().min(run.len - done);
                let pages = self.io.read(run.start + done, part)?;
                for (index, data) in pages.chunks_exact(self.g.block_size as usize).enumerate() {
                    let offset = done + index as u64;
                    let (logical, start) = (run.logical + offset, run.start + offset);
                    let block = FileRun { logical, start, len: 1, unwritten: false };
                    self.dir_block(&mut reading, tree.as_ref(), block, data);
                }
                done += part;
            }
        }
        Ok(reading.names)
    }

    /// The entries of a directory in its inode.
    fn inline_entries(&mut self, reading: &mut Reading) {
        let content = std::mem::take(&mut self.dirs[reading.dir].inline);
        let (at, filetype) = (At::Inode(Ino(reading.ino.into())), self.g.dir_layout().filetype);
        let inodes = self.g.inodes_count;
        let runs = if content.is_empty() { 0 } else { dir::INLINE_RUNS };
        for index in 0..runs {
            let (run, layout) = dir::inline_run(&content, index, filetype);
            if let Err(kind) = dir::check(run, layout, inodes) {
                self.damaged_entries(kind, at);
            }
            let entries = dir::entries(run, layout);
            for entry in entries.filter(|entry| (1..=inodes).contains(&entry.ino)) {
                self.dir_entry(reading, &entry, at);
            }
        }
    }

    /// What is wrong with the entries of a block.
    fn damaged_entries(&mut self, kind: CorruptKind, at: At) {
        self.findings.corrupt(&kind.at(at));
        if !matches!(kind, CorruptKind::DirFileType { .. } | CorruptKind::DirNameByte { .. }) {
            self.pass.names_unknown = true;
        }
    }

    fn first_hole(&self, dir: usize) -> u64 {
        let logical = self.dirs[dir].blocks().zip(0u64..).find(|((at, _), index)| at != index);
        logical.map_or(0, |(_, index)| index)
    }

    /// One block: its role, its checksum, its entries.
    fn dir_block(
        &mut self,
        reading: &mut Reading,
        tree: Option<&Tree>,
        block: FileRun,
        data: &[u8],
    ) {
        let FileRun { logical, start, .. } = block;
        let at = At::Block(Ino(reading.ino.into()), start);
        let role = tree.map(|tree| tree.role(logical));
        let mut layout = DirLayout { names: self.names(reading.dir), ..self.g.dir_layout() };
        match role {
            Some(Role::Node) => return,
            Some(Role::Root) => layout.checksum = false,
            None if self.broken_tree_block(reading, logical, data) => layout.checksum = false,
            _ if layout.checksum && !dir::has_tail(data) => {
                self.findings.corrupt(&CorruptKind::DirTail.at(at));
                layout.checksum = false;
            }
            _ if layout.checksum => {
                let generation = self.dirs[reading.dir].generation();
                let seed = self.g.checksums.inode_seed(Ino(reading.ino.into()), generation);
                if let Err(kind) = dir::verify_checksum(seed, data) {
                    self.findings.corrupt(&kind.at(at));
                }
            }
            _ => {}
        }
        if let Err(kind) = dir::check(data, layout, self.g.inodes_count) {
            self.damaged_entries(kind, at);
        }
        for entry in dir::entries(data, layout) {
            if logical == 0 {
                reading.entries += 1;
                if reading.entries <= 2 {
                    self.dots(reading, &entry, data, at);
                    continue;
                }
            }
            if entry.ino == 0 || entry.ino > self.g.inodes_count {
                continue;
            }
            self.dir_entry(reading, &entry, at);
            if let Some(tree) = tree {
                self.hash_in_leaf(reading, tree, logical, &entry, at);
            }
        }
        if logical == 0 && reading.entries < 2 {
            let rule = if reading.entries == 0 { Rule::DirDot } else { Rule::DirDotdot };
            self.findings.add(rule, at, "the entry is missing");
        }
    }

    /// Blocks of a tree whose root is broken: what looks like a root or node has no tail.
    fn broken_tree_block(&self, reading: &Reading, logical: u64, data: &[u8]) -> bool {
        self.dirs[reading.dir].index && (logical == 0 || htree::is_node(data))
    }

    /// The first two entries.
    fn dots(&mut self, reading: &mut Reading, entry: &Entry<'_>, data: &[u8], at: At) {
        let behind = entry.offset as usize + dir::HEADER_LEN + entry.name.len();
        if entry.ino != 0 && entry.name.iter().all(|&byte| byte == b'.') && data[behind] != 0 {
            let rule = if reading.entries == 1 { Rule::DirDot } else { Rule::DirDotdot };
            let detail =
                format!("{:#04x} behind the name of entry {}", data[behind], reading.entries);
            self.findings.add(rule, at, detail);
        }
        let expected = self.g.dir_layout().stored_type(FileKind::Directory.dir_type());
        if entry.ino != 0 && ![0, expected].contains(&entry.file_type) && entry.file_type <= 7 {
            let (count, found) = (reading.entries, entry.file_type);
            let detail = format!("entry {count} has type {found}, should be {expected}");
            self.findings.add(Rule::DirEntryType, at, detail);
        }
        if reading.entries == 1 {
            if entry.name != b"." || entry.ino != reading.ino {
                let name = String::from_utf8_lossy(entry.name);
                let detail = format!("the first entry is {name:?}, inode {}", entry.ino);
                self.findings.add(Rule::DirDot, at, detail);
            }
            return;
        }
        self.dirs[reading.dir].dotdot = entry.ino;
        if entry.name != b".." || entry.ino == 0 {
            let name = String::from_utf8_lossy(entry.name);
            let detail = format!("the second entry is {name:?}, inode {}", entry.ino);
            self.findings.add(Rule::DirDotdot, at, detail);
        }
    }

    /// An entry in use behind the first two.
    fn dir_entry(&mut self, reading: &mut Reading, entry: &Entry<'_>, at: At) {
        let name = || String::from_utf8_lossy(entry.name).into_owned();
        let mut hasher = FxHasher::default();
        let folded = self.folded(reading, entry, at);
        hasher.write(folded.as_deref().unwrap_or(entry.name));
        let fresh = reading.names.insert(hasher.finish());
        if !fresh || entry.name == b"." || entry.name == b".." {
            self.findings.add(Rule::DirDuplicate, at, format!("{:?}", name()));
        }
        let ino = entry.ino;
        let reserved = ino < self.g.first_ino && ino != ROOT_INO;
        if reserved || self.is_system(ino) {
            let detail = format!("{:?} names inode {ino}, which is reserved", name());
            self.findings.add(Rule::DirEntryInode, at, detail);
            self.pass.names_unknown = true;
            return;
        }
        if self.group_unknown(ino) {
            return;
        }
        let info = self.pass.known.get(ino);
        if !info.has_names() {
            let detail = format!("{:?} names inode {ino}, which is not in use", name());
            self.findings.add(Rule::DirEntryUnused, at, detail);
            self.pass.names_unknown = true;
            return;
        }
        self.entry_policy(reading.ino, ino, at);
        if let Some(kind) = info.kind {
            let expected = self.g.dir_layout().stored_type(kind.dir_type());
            if entry.file_type != expected && entry.file_type <= 7 {
                let found = entry.file_type;
                let rule = if found == 0 { Rule::DirEntryUntyped } else { Rule::DirEntryType };
                let detail = format!("{:?} has type {found}, should be {expected}", name());
                self.findings.add(rule, at, detail);
            }
            if kind == FileKind::Directory {
                self.pass.below.push(Subdirectory { ino, parent: reading.ino, at });
                return;
            }
        }
        self.pass.known.add_name(ino);
    }

    /// Makes `parent` the parent of a directory; false where it has one, or is the root.
    fn set_parent(&mut self, ino: u32, parent: u32) -> bool {
        let Ok(index) = self.dirs.binary_search_by_key(&ino, |dir| dir.ino) else { return true };
        if ino == ROOT_INO || self.dirs[index].parent != 0 {
            return false;
        }
        self.dirs[index].parent = parent;
        true
    }

    /// The folded form of an entry's name, where its directory ignores case.
    fn folded(&mut self, reading: &Reading, entry: &Entry<'_>, at: At) -> Option<Vec<u8>> {
        let encoding = self.g.encoding.filter(|_| self.dirs[reading.dir].folds)?;
        if self.names(reading.dir) == Names::Hashed {
            return None;
        }
        if encoding.strict && !casefold::is_valid(entry.name) {
            let detail = format!("{:?} is no UTF-8", String::from_utf8_lossy(entry.name));
            self.findings.add(Rule::DirNameEncoding, at, detail);
        }
        casefold::fold(entry.name)
    }

    fn hash_in_leaf(
        &mut self,
        reading: &Reading,
        tree: &Tree,
        logical: u64,
        entry: &Entry<'_>,
        at: At,
    ) {
        let Role::Leaf { low, next } = tree.role(logical) else { return };
        let folds = self.dirs[reading.dir].folds;
        let hash = entry.tree_hash(tree.version, &self.g.hash_seed, folds).major;
        let below = match next {
            None => true,
            // Bit 0 says that names of exactly this hash begin in the leaf before.
            Some(next) => hash < next & !1 || next & 1 != 0 && hash == next & !1,
        };
        if hash < low & !1 || !below {
            let name = String::from_utf8_lossy(entry.name);
            let detail = format!("{name:?} has hash {hash:#010x}, the leaf begins at {low:#010x}");
            self.findings.add(Rule::HtreeHash, at, detail);
        }
    }

    /// True where the inode's group is left out of the check.
    fn group_unknown(&self, ino: u32) -> bool {
        let group = (ino - 1) / self.g.inodes_per_group;
        self.descs[group as usize].is_none()
    }
}
