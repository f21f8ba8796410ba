//! Directories: names in data blocks, the index over them, the lists of free room.

use std::collections::{BTreeMap, BTreeSet};

use base::Ino;
use block::DeviceError;

use super::da_tree::DaTree;
use super::inodes::Subject;
use super::{Checker, Rule};
use crate::dir::{Form, form_of, space_start};
use crate::format::dir::{
    BestFree, DataBlock, FileType, Item, LeafEntry, Leaves, check_entry, find_best_free,
};
use crate::format::dir_index::{Free, Leaf, NULL_BEST, free_room};
use crate::format::dir_sf::Shortform;
use crate::format::extent::Extent;
use crate::format::hash::Case;
use crate::format::{At, Kind};

/// What the data blocks of a directory hold.
#[derive(Default)]
struct Names {
    /// What the index must hold.
    index: Vec<LeafEntry>,
    /// The largest unused range of each data block that exists.
    bests: BTreeMap<u64, u16>,
    /// Every block could be read.
    complete: bool,
}

impl Checker<'_> {
    /// Checks a directory and takes note of its names.
    pub(super) fn directory(&mut self, subject: &Subject) -> Result<(), DeviceError> {
        let Some(list) = subject.data.clone() else {
            self.names_unknown = true;
            return Ok(());
        };
        let geometry = self.geometry();
        let end = list.last().map_or(0, Extent::end);
        let form = form_of(subject.core.format, end, &geometry);
        if form == Form::Local {
            return self.local_directory(subject);
        }
        let size = u64::from(geometry.dir_block_size);
        if subject.core.size == 0 || !subject.core.size.is_multiple_of(size) {
            let text = format!("size {} is no multiple of {size}", subject.core.size);
            self.findings.add(Rule::DirectoryBlock, subject.at(), text);
            self.names_unknown = true;
            return Ok(());
        }
        let names = self.data_blocks(subject, &list, form)?;
        self.names_unknown |= !names.complete;
        if form == Form::Indexed {
            self.indexed(subject, &list, &names)?;
        }
        Ok(())
    }

    /// Takes note of a name; `.` and `..` are looked at here.
    fn name(&mut self, dir: Ino, target: Ino, name: &[u8], file_type: FileType, at: At) {
        let dots = name == b"." || name == b"..";
        if dots && ![FileType::Directory, FileType::Unknown].contains(&file_type) {
            let text = format!("\"{}\" is of type {file_type:?}", name.escape_ascii());
            self.findings.add(Rule::DirectoryDots, at, text);
        }
        match name {
            b"." if target != dir => {
                let text = format!("\".\" points at {target}");
                self.findings.add(Rule::DirectoryDots, at, text);
            }
            b"." => {}
            b".." => {
                if let Some(known) = &mut self.current {
                    known.parent = Some(target);
                }
            }
            _ => {
                self.take_name(dir, target, file_type);
                self.expect_parent(dir, target, name);
            }
        }
    }

    fn local_directory(&mut self, subject: &Subject) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        let (ino, at) = (subject.ino, subject.at());
        let bytes = subject.forks.data.bytes.clone();
        let parsed = Shortform::parse(&bytes, &geometry.features, at);
        let Some(local) = self.keep(parsed.map_err(Into::into))? else {
            self.names_unknown = true;
            return Ok(());
        };
        self.name(ino, local.parent, b"..", FileType::Directory, at);
        for entry in local.entries() {
            let checked =
                check_entry(entry.name, entry.ino, usize::from(entry.offset), &geometry, at);
            if self.keep(checked.map_err(Into::into))?.is_some() {
                self.name(ino, entry.ino, entry.name, entry.file_type, at);
            }
        }
        self.double_names(at, local.entries().map(|entry| entry.name.to_vec()).collect());
        Ok(())
    }

    fn double_names(&mut self, at: At, mut names: Vec<Vec<u8>>) {
        let case = self.geometry().features.case();
        for name in names.iter_mut().filter(|_| case == Case::Ignored) {
            *name = case.fold(name).into_owned();
        }
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let text = format!("the name \"{}\" is there twice", pair[0].escape_ascii());
            self.findings.add(Rule::DirectoryEntry, at, text);
        }
    }

    fn data_blocks(
        &mut self,
        subject: &Subject,
        list: &[Extent],
        form: Form,
    ) -> Result<Names, DeviceError> {
        let geometry = self.geometry();
        let count = u64::from(geometry.dir_blocks());
        let leaf_space = space_start(&geometry, 1);
        let mut names = Names { complete: true, ..Names::default() };
        let kind = if form == Form::Block { Kind::DirBlock } else { Kind::DirData };
        let kinds = kind.alone();
        let mut index = 0;
        while let Some(extent) = list.get(list.partition_point(|e| e.end() <= index * count)) {
            index = index.max(extent.offset / count);
            if index * count >= leaf_space {
                break;
            }
            let read = self.fork_block(subject.ino, list, index * count, count, kinds)?;
            match read {
                Some((kind, data)) => self.data_block(subject, kind, &data, index, &mut names)?,
                None => names.complete = false,
            }
            index += 1;
        }
        let expected = subject.core.size / (count << geometry.block_bits);
        let last = names.bests.last_key_value().map_or(0, |(index, _)| index + 1);
        if names.complete && last != expected {
            let text = format!("{last} data blocks, the size needs {expected}");
            self.findings.add(Rule::DirectoryBlock, subject.at(), text);
        }
        let mut all = names.index.clone();
        all.sort_unstable();
        names.index = all;
        Ok(names)
    }

    /// One data block, or the one block of a small directory with its index.
    fn data_block(
        &mut self,
        subject: &Subject,
        kind: Kind,
        data: &[u8],
        index: u64,
        names: &mut Names,
    ) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        let at = At::InodeBlock(subject.ino, index * u64::from(geometry.dir_blocks()));
        let block = DataBlock::new(kind, data, geometry.features.ftype(), at);
        let Some(block) = self.keep(block.map_err(Into::into))? else {
            names.complete = false;
            return Ok(());
        };
        let base = index * u64::from(geometry.dir_block_size) / 8;
        let (mut was_unused, mut found) = (false, Vec::new());
        let mut ranges = BTreeSet::from([(0, 0)]);
        for item in block.items(block.start(), at) {
            let Some(item) = self.keep(item.map_err(Into::into))? else {
                names.complete = false;
                return Ok(());
            };
            let unused = matches!(item, Item::Unused { .. });
            if unused && was_unused {
                self.findings.add(Rule::DirectoryBlock, at, "two unused ranges touch");
            }
            was_unused = unused;
            if let Item::Unused { offset, len } = item {
                ranges.insert((offset as u16, len as u16));
            }
            let Item::Entry { offset, ino, name, file_type } = item else { continue };
            let checked = check_entry(name, ino, offset, &geometry, at);
            if self.keep(checked.map_err(Into::into))?.is_some() {
                self.name(subject.ino, ino, name, file_type, at);
            }
            found.push(name.to_vec());
            let address = (base + offset as u64 / 8) as u32;
            names.index.push(LeafEntry { hash: geometry.features.case().hash(name), address });
        }
        if index == 0 {
            let dots: Vec<&[u8]> = found.iter().take(2).map(Vec::as_slice).collect();
            if dots != [&b"."[..], b".."] {
                self.findings.add(Rule::DirectoryDots, at, "does not begin with \".\" and \"..\"");
            }
        }
        self.double_names(at, found);
        let best = find_best_free(&block, at).expect("all items were just read");
        let stored = block.best_free();
        // Among ranges of one length any may be listed.
        let is_one = |range: &BestFree| ranges.contains(&(range.offset, range.len));
        let longest = best.map(|range| range.len) == stored.map(|range| range.len);
        if !longest || !stored.iter().all(is_one) {
            let text = format!("largest unused ranges {stored:?} should be {best:?}");
            self.findings.add(Rule::DirectoryFree, at, text);
        }
        names.bests.insert(index, best[0].len);
        if kind == Kind::DirBlock {
            let (_, stale) = crate::format::dir::block_tail(data);
            let leaves = block.index();
            let checked = leaves.check(stale, at);
            if self.keep(checked.map_err(Into::into))?.is_some() {
                let mut expected = names.index.clone();
                expected.sort_unstable();
                self.compare_index(at, live(&leaves), &expected);
            }
        }
        Ok(())
    }

    fn compare_index(&mut self, at: At, mut found: Vec<LeafEntry>, expected: &[LeafEntry]) {
        found.sort_unstable();
        if found != expected {
            let (found, expected) = (found.len(), expected.len());
            let text = format!("the index of {found} entries is not that of the {expected} names");
            self.findings.add(Rule::DirectoryIndex, at, text);
        }
    }

    fn indexed(
        &mut self,
        subject: &Subject,
        list: &[Extent],
        names: &Names,
    ) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        let count = u64::from(geometry.dir_blocks());
        let kinds = &[Kind::DirLeaf1, Kind::DirLeafN, Kind::DaNode];
        let rule = Rule::DirectoryIndex;
        let tree = DaTree { ino: subject.ino, extents: list, count, kinds, rule };
        let mut found: Vec<LeafEntry> = Vec::new();
        let mut tail: Option<Vec<u16>> = None;
        let root = space_start(&geometry, 1);
        let whole = self.walk_da(&tree, root, &mut |checker, (block, kind, data)| {
            let at = At::InodeBlock(subject.ino, *block);
            match Leaf::parse(*kind, data, at) {
                Err(corrupt) => {
                    checker.findings.corrupt(&corrupt);
                    None
                }
                Ok(leaf) => {
                    found.extend(live(&leaf.entries()));
                    if *kind == Kind::DirLeaf1 {
                        tail = Some(leaf.bests().collect());
                    }
                    let last = leaf.entries().len().checked_sub(1);
                    last.map(|last| leaf.entries().get(last).hash)
                }
            }
        })?;
        if !whole || !names.complete {
            return Ok(());
        }
        self.compare_index(subject.at(), found, &names.index);
        let reached = self.seen.len() as u64 * count;
        let free_space = space_start(&geometry, 2);
        let mapped: u64 = list
            .iter()
            .filter(|extent| extent.offset >= root && extent.offset < free_space)
            .map(|extent| u64::from(extent.count))
            .sum();
        if mapped != reached {
            let text = format!("{mapped} blocks of index, {reached} of them in the tree");
            self.findings.add(Rule::DirectoryIndex, subject.at(), text);
        }
        match tail {
            Some(bests) => {
                let listed = bests.iter().copied().enumerate().map(|(i, best)| (i as u64, best));
                self.compare_room(subject, listed.collect(), names);
                Ok(())
            }
            None => self.free_blocks(subject, list, names),
        }
    }

    fn compare_room(&mut self, subject: &Subject, listed: BTreeMap<u64, u16>, names: &Names) {
        let listed: BTreeMap<u64, u16> =
            listed.into_iter().filter(|&(_, best)| best != NULL_BEST).collect();
        if listed != names.bests {
            let text = format!(
                "room is listed for {} data blocks, {} exist, or differs",
                listed.len(),
                names.bests.len()
            );
            self.findings.add(Rule::DirectoryFree, subject.at(), text);
        }
    }

    fn free_blocks(
        &mut self,
        subject: &Subject,
        list: &[Extent],
        names: &Names,
    ) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        let count = u64::from(geometry.dir_blocks());
        let start = space_start(&geometry, 2);
        let max = free_room(&geometry) as u64;
        let mut listed = BTreeMap::new();
        let mut index = 0;
        while let Some(extent) =
            list.get(list.partition_point(|e| e.end() <= start + index * count))
        {
            index = index.max((extent.offset - start.min(extent.offset)) / count);
            let offset = start + index * count;
            let read = self.fork_block(subject.ino, list, offset, count, &[Kind::DirFree])?;
            let Some((_, data)) = read else { return Ok(()) };
            let parsed = Free::parse(&data, index as u32, At::InodeBlock(subject.ino, offset));
            let Some(free) = self.keep(parsed.map_err(Into::into))? else { return Ok(()) };
            let used = free.bests().filter(|&best| best != NULL_BEST).count() as u32;
            if used != free.used {
                let text = format!("{} data blocks in use should be {used}", free.used);
                self.findings.add(Rule::DirectoryFree, subject.at(), text);
            }
            listed.extend(free.bests().enumerate().map(|(i, best)| (index * max + i as u64, best)));
            index += 1;
        }
        self.compare_room(subject, listed, names);
        Ok(())
    }
}

/// The entries that are not stale.
fn live(leaves: &Leaves<'_>) -> Vec<LeafEntry> {
    leaves.iter().filter(|entry| entry.address != 0).collect()
}
