//! The forks of an inode: which blocks it has.

use std::collections::BTreeSet;

use base::{FsBlock, Ino};
use block::DeviceError;
use xfs::format::btree::{MapRoot, Neighbours, Node};
use xfs::format::inode::{ForkFormat, InodeCore, fork_ranges};
use xfs::format::{At, Extent, Kind, extent};

use super::Fs;
use super::tree_read::Walked;

/// A fork of an inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Which {
    /// Content.
    Data,
    /// Attributes.
    Attr,
}

impl Which {
    /// Both.
    pub const BOTH: [Which; 2] = [Which::Data, Which::Attr];
}

/// A device of the file system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Device {
    /// That of metadata, and of most content.
    Data,
    /// The realtime section.
    Realtime,
}

impl Device {
    /// Both.
    pub const BOTH: [Device; 2] = [Device::Data, Device::Realtime];
}

/// The blocks of a fork.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Fork {
    /// What it maps, in order.
    pub extents: Vec<Extent>,
    /// The same in the realtime section, for a file there; the other list is empty then.
    pub section: Option<Vec<Extent>>,
    /// Blocks of its block map.
    pub tree: Vec<FsBlock>,
    /// What is wrong with it.
    pub wrong: Option<String>,
    /// A key of its block map that is not that of its child. Nothing lacks for it.
    pub wrong_key: Option<String>,
}

impl Fork {
    /// What it maps, wherever that lies.
    pub fn mapped(&self) -> &Vec<Extent> {
        self.section.as_ref().unwrap_or(&self.extents)
    }

    /// The device on which it maps blocks.
    pub fn device(&self) -> Device {
        if self.section.is_some() { Device::Realtime } else { Device::Data }
    }

    fn mapped_mut(&mut self) -> &mut Vec<Extent> {
        self.section.as_mut().unwrap_or(&mut self.extents)
    }

    /// What is wrong with it or with its block map.
    pub fn flaw(&self) -> Option<&String> {
        self.wrong.as_ref().or(self.wrong_key.as_ref())
    }

    /// Blocks, those of the block map included.
    pub fn blocks(&self) -> u64 {
        let mapped = self.mapped().iter().map(|extent| u64::from(extent.count));
        mapped.sum::<u64>() + self.tree.len() as u64
    }

    /// Where some blocks of the fork lie; none where one is a hole.
    pub fn runs(&self, offset: u64, count: u32) -> Option<Vec<(FsBlock, u32)>> {
        let (mut at, end, mut runs) = (offset, offset + u64::from(count), Vec::new());
        while at < end {
            let place = self.mapped().partition_point(|extent| extent.end() <= at);
            let extent = self.mapped().get(place).filter(|extent| extent.offset <= at)?;
            let len = extent.end().min(end) - at;
            runs.push((FsBlock(extent.start.0 + at - extent.offset), len as u32));
            at += len;
        }
        Some(runs)
    }

    /// Adds an extent behind the others, to the last one where that can hold both.
    pub fn append(&mut self, extent: Extent) {
        let list = self.mapped_mut();
        match list.last_mut().filter(|last| last.joins(&extent)) {
            Some(last) => last.count += extent.count,
            None => list.push(extent),
        }
    }

    /// Adds runs of blocks that map the file from `offset` on.
    pub fn append_runs(&mut self, offset: u64, runs: &[(FsBlock, u32)]) {
        let mut at = offset;
        for &(start, count) in runs {
            self.append(Extent { offset: at, start, count, unwritten: false });
            at += u64::from(count);
        }
    }

    /// Takes a range of the file out of the map.
    pub fn cut(&mut self, range: std::ops::Range<u64>) {
        let list = self.mapped_mut();
        let mut kept = Vec::with_capacity(list.len() + 1);
        for extent in std::mem::take(list) {
            kept.extend(part(&extent, extent.offset..range.start.min(extent.end())));
            kept.extend(part(&extent, range.end.max(extent.offset)..extent.end()));
        }
        *list = kept;
    }

    /// Puts an extent in the place of whatever is mapped there.
    pub fn place(&mut self, extent: Extent) {
        self.cut(extent.offset..extent.end());
        let list = self.mapped_mut();
        let at = list.partition_point(|other| other.offset < extent.offset);
        list.insert(at, extent);
        let list = std::mem::take(list);
        list.into_iter().for_each(|extent| self.append(extent));
    }

    /// Takes an extent if it is possible behind the others; says what is wrong otherwise.
    fn take(&mut self, fs: &Fs<'_>, extent: Extent, at: At) {
        let realtime = self.section.is_some();
        let list = self.mapped_mut();
        let behind = list.last().is_none_or(|last| last.end() <= extent.offset);
        match extent.check(&fs.g, realtime, at) {
            Ok(()) if behind => list.push(extent),
            Ok(()) => self.wrong = Some(format!("extents overlap at block {}", extent.offset)),
            Err(corrupt) => self.wrong = Some(corrupt.kind.to_string()),
        }
    }
}

/// The part of an extent that maps a range of the file; none where that is empty.
pub fn part(extent: &Extent, range: std::ops::Range<u64>) -> Option<Extent> {
    let count = u32::try_from(range.end.checked_sub(range.start)?).ok()?;
    let start = FsBlock(extent.start.0 + (range.start - extent.offset));
    (count > 0).then_some(Extent { offset: range.start, start, count, ..*extent })
}

impl Fs<'_> {
    /// Reads a fork of the inode in `slot`, without what cannot be.
    pub fn read_fork(
        &mut self,
        ino: Ino,
        slot: &[u8],
        core: &InodeCore,
        which: Which,
    ) -> Result<Fork, DeviceError> {
        let (data, attr) = fork_ranges(core.forkoff, slot.len());
        let (range, format, count) = match which {
            Which::Data => (data, core.format, core.extents),
            Which::Attr => (attr, core.attr_format, core.attr_extents.into()),
        };
        let (bytes, at) = (slot[range].to_vec(), At::Inode(ino));
        let section = (which == Which::Data && core.is_realtime()).then(Vec::new);
        let mut fork = Fork { section, ..Fork::default() };
        match format {
            ForkFormat::MetaBtree if self.g.section_trees() => {
                let records = self.walk_section_tree(ino, slot, core, &mut fork)?;
                let whole = fork.wrong.is_none();
                self.tree_records.insert(ino.0, Walked { records, whole });
            }
            ForkFormat::Device | ForkFormat::Local | ForkFormat::MetaBtree => {}
            ForkFormat::Extents => {
                let room = bytes.len() / extent::EXTENT_SIZE;
                for extent in extent::list(&bytes).take(room.min(count as usize)) {
                    fork.take(self, extent, at);
                }
            }
            ForkFormat::Btree => self.walk_map(ino, &bytes, &mut fork)?,
        }
        let found = fork.mapped().len() as u64;
        if fork.wrong.is_none() && found != count && format != ForkFormat::Local {
            fork.wrong = Some(format!("{found} extents should be {count}"));
        }
        Ok(fork)
    }

    /// Reads a block map, as far as it can be followed.
    fn walk_map(&mut self, ino: Ino, bytes: &[u8], fork: &mut Fork) -> Result<(), DeviceError> {
        let at = At::Inode(ino);
        let root = match MapRoot::parse(bytes, at) {
            Ok(root) => root,
            Err(corrupt) => {
                fork.wrong = Some(corrupt.kind.to_string());
                return Ok(());
            }
        };
        let (mut seen, mut near) = (BTreeSet::new(), Neighbours::default());
        let of_root = |index| (root.pointer(index), root.level - 1, root.key(index));
        let mut todo: Vec<(u64, u16, u64)> = (0..root.len()).rev().map(of_root).collect();
        while let Some((block, level, key)) = todo.pop() {
            let number = FsBlock(block);
            if !self.g.extent_valid(number, 1) || !seen.insert(block) {
                fork.wrong = Some(format!("block {block} of the block map cannot be"));
                continue;
            }
            let data = self.meta(&[(number, 1)], &[Kind::Bmap], ino.0, at)?;
            let node =
                data.as_ref().map(|(kind, data)| Node::parse_trusted(*kind, data, Some(level), at));
            let Some(Ok(node)) = node else {
                fork.wrong = Some(format!("block {block} of the block map cannot be read"));
                continue;
            };
            if near.next(block, &node).is_some() {
                fork.wrong_key = Some(format!("neighbours of block {block} of the block map"));
            }
            fork.tree.push(number);
            let first = if level == 0 {
                let list: Vec<Extent> =
                    (0..node.len()).map(|index| Extent::read(node.record(index))).collect();
                let first = list.first().map(|extent| extent.offset);
                list.into_iter().for_each(|extent| fork.take(self, extent, at));
                first
            } else {
                let key =
                    |index| u64::from_be_bytes(node.key(index).try_into().expect("eight bytes"));
                let child = |index| (node.pointer(index), level - 1, key(index));
                todo.extend((0..node.len()).rev().map(child));
                (!node.is_empty()).then(|| key(0))
            };
            if let Some(first) = first.filter(|&first| first != key) {
                fork.wrong_key = Some(format!("key {key} of the block map should be {first}"));
            }
        }
        if let Some(block) = near.dangling() {
            fork.wrong_key = Some(format!("neighbours of block {block} of the block map"));
        }
        Ok(())
    }
}
