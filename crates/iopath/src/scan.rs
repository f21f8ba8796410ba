//! Superblocks anywhere on a device, put together to the file systems that they describe.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use base::Sector;
use base::unit::SECTOR_SIZE;
use block::{DeviceError, Queue};
use ext4::format::RawSuper as ExtSuper;
use ext4::format::features::RoCompat;
use rt::Cx;
use xfs::format::{Kind, RawSuper as XfsSuper};

/// Bytes behind a place that [`Scanner::look`] needs to see.
const AHEAD: u64 = 4096;
/// Bytes that are looked at at once.
const PIECE: u64 = 1 << 20;

/// A family of formats.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// ext2, ext3, ext4.
    Ext,
    /// XFS.
    Xfs,
}

impl Family {
    /// What a user calls it.
    pub fn name(self) -> &'static str {
        match self {
            Family::Ext => "ext2, ext3 or ext4",
            Family::Xfs => "XFS",
        }
    }
}

/// What all superblocks of one file system say alike.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shape {
    /// The format.
    pub family: Family,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks of a group.
    pub group_blocks: u64,
    /// The block where groups begin.
    pub first: u64,
    /// Only some groups of an ext have a copy.
    pub sparse: bool,
}

impl Shape {
    /// Bytes of the file system.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size)
    }

    /// Number of groups.
    pub fn groups(&self) -> u64 {
        self.blocks.saturating_sub(self.first).div_ceil(self.group_blocks)
    }

    /// Number of superblocks that it was made with.
    pub fn copies(&self) -> u64 {
        let groups = self.groups();
        if !self.sparse {
            return groups;
        }
        let powers = |base: u64| {
            let powers = std::iter::successors(Some(base), move |power| power.checked_mul(base));
            powers.take_while(move |&power| power < groups).count() as u64
        };
        groups.min(2) + powers(3) + powers(5) + powers(7)
    }

    /// Where the file system begins whose superblock of a group was seen.
    fn start(&self, group: u64, seen: &Seen) -> Option<u64> {
        let inside = match (self.family, group) {
            (Family::Ext, 0) => 1024,
            (_, group) => {
                let block = group.checked_mul(self.group_blocks)?.checked_add(self.first)?;
                block.checked_mul(self.block_size)?
            }
        };
        seen.at.checked_sub(inside).filter(|_| group < self.groups())
    }
}

/// A superblock at its place.
#[derive(Clone, Debug)]
struct Seen {
    at: u64,
    /// Its group; none where an XFS does not say.
    group: Option<u64>,
    shape: Shape,
    label: Vec<u8>,
    written: u32,
}

/// A file system that superblocks speak for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// The byte where it begins.
    pub start: u64,
    /// What its superblocks say.
    pub shape: Shape,
    /// Its label.
    pub label: Vec<u8>,
    /// Seconds since 1970 of the last write that a superblock of an ext knows.
    pub written: Option<u32>,
    /// The groups whose superblocks were found, with the byte of each.
    pub found: BTreeMap<u64, u64>,
    /// The superblock that only a journal holds, where none was found in its own place.
    pub in_journal: Option<u64>,
}

/// The first block of a journal, a log or metadata that only one family of formats has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace {
    /// The family.
    pub family: Family,
    /// What it is.
    pub what: &'static str,
    /// The byte where it lies.
    pub at: u64,
}

/// Collects superblocks and logs.
#[derive(Default)]
pub struct Scanner {
    seen: Vec<Seen>,
    /// The first one of each family.
    pub traces: BTreeMap<Family, Trace>,
    /// The last superblock of XFS, and where the header of its group's free space lies.
    waiting: Option<(usize, u64)>,
}

impl Scanner {
    /// Reads the bytes `range` of a device and looks at them; `done` learns how many more are.
    /// Parks.
    ///
    /// # Errors
    /// The device's.
    pub fn read(
        &mut self,
        cx: &mut Cx,
        queue: &Arc<Queue>,
        range: Range<u64>,
        mut done: impl FnMut(u64),
    ) -> Result<(), DeviceError> {
        for at in range.clone().step_by(PIECE as usize) {
            let rest = range.end - at;
            let len = rest.min(PIECE + AHEAD) as usize;
            let page = queue.read(cx, Sector::from_bytes(at), len)?;
            if !base::page::is_zero(&page) {
                self.look(&page, PIECE as usize, at);
            }
            done(rest.min(PIECE));
        }
        Ok(())
    }

    /// Looks at the first `len` bytes of `bytes`, which lie at byte `from`. What lies behind `len`
    /// is looked at only as a part of what begins before; [`AHEAD`] is enough.
    fn look(&mut self, bytes: &[u8], len: usize, from: u64) {
        for start in (0..len.min(bytes.len())).step_by(SECTOR_SIZE as usize) {
            let (rest, at) = (&bytes[start..], from + start as u64);
            if rest.starts_with(b"XFSB") {
                self.super_of_xfs(rest, at);
            } else if rest.starts_with(b"XAGF") {
                self.group_of_xfs(rest, at);
            } else if rest.get(56..58) == Some(&[0x53, 0xef]) {
                self.seen.extend(ext(rest, at));
            } else if let Some(what) = trace_of_xfs(rest) {
                self.trace(Family::Xfs, what, at);
            } else if let Some(what) = trace_of_ext(rest) {
                self.trace(Family::Ext, what, at);
            }
        }
    }

    fn trace(&mut self, family: Family, what: &'static str, at: u64) {
        self.traces.entry(family).or_insert(Trace { family, what, at });
    }

    fn super_of_xfs(&mut self, bytes: &[u8], at: u64) {
        let Some(raw) = XfsSuper::view(bytes) else { return };
        let block_size = u64::from(raw.sb_blocksize.get());
        let (blocks, group_blocks) = (raw.sb_dblocks.get(), u64::from(raw.sb_agblocks.get()));
        let sector = u64::from(raw.sb_sectsize.get());
        let sizes = block_size.is_power_of_two() && (512..=65536).contains(&block_size);
        if !sizes || blocks == 0 || group_blocks == 0 || !sector.is_power_of_two() {
            return;
        }
        let shape = Shape {
            family: Family::Xfs,
            uuid: raw.sb_uuid,
            block_size,
            blocks,
            group_blocks,
            first: 0,
            sparse: false,
        };
        self.waiting = Some((self.seen.len(), at + sector));
        self.seen.push(Seen { at, group: None, shape, label: trimmed(&raw.sb_fname), written: 0 });
    }

    /// The header behind a superblock of XFS says which group it is.
    fn group_of_xfs(&mut self, bytes: &[u8], at: u64) {
        let Some((index, place)) = self.waiting else { return };
        if let (true, Some(number)) = (place == at, bytes.get(8..12)) {
            let number = u32::from_be_bytes(number.try_into().expect("four bytes"));
            self.seen[index].group = Some(number.into());
        }
    }

    /// The file systems, by their place, on a device of `end` bytes.
    pub fn file_systems(&self, end: u64) -> Vec<FileSystem> {
        let mut all = BTreeMap::<(u64, &Shape), FileSystem>::new();
        let known = |seen: &&Seen| seen.group.is_some();
        for seen in self.seen.iter().filter(known) {
            let group = seen.group.expect("it is known");
            if let Some(start) = seen.shape.start(group, seen) {
                let new = || FileSystem::new(start, seen);
                all.entry((start, &seen.shape)).or_insert_with(new).add(group, seen);
            }
        }
        for seen in self.seen.iter().filter(|seen| !known(seen)) {
            place_by_others(seen, &mut all);
        }
        let all: Vec<FileSystem> = all.into_values().collect();
        let copies: BTreeSet<usize> =
            (0..all.len()).filter(|&index| is_a_copy(&all, index)).collect();
        let kept = all.into_iter().enumerate().filter(|(index, _)| !copies.contains(index));
        let mut kept: Vec<FileSystem> = kept.map(|(_, found)| found.out_of_journal(end)).collect();
        kept.sort_by_key(|found| found.start);
        kept.dedup_by(|found, before| {
            found.in_journal.is_some()
                && (found.start, &found.shape) == (before.start, &before.shape)
        });
        kept
    }
}

/// A superblock of XFS whose group is not known belongs where others of its file system put it,
/// else to one that begins with the device.
fn place_by_others<'a>(seen: &'a Seen, all: &mut BTreeMap<(u64, &'a Shape), FileSystem>) {
    let group_bytes = seen.shape.group_blocks.saturating_mul(seen.shape.block_size);
    let fits = |found: &&mut FileSystem| {
        let inside = seen.at.checked_sub(found.start);
        found.shape == seen.shape && inside.is_some_and(|at| at.is_multiple_of(group_bytes))
    };
    if let Some(found) = all.values_mut().find(fits) {
        let group = (seen.at - found.start) / group_bytes;
        return found.add(group, seen);
    }
    let group = seen.at / group_bytes;
    if seen.at.is_multiple_of(group_bytes) && group < seen.shape.groups() {
        let new = || FileSystem::new(0, seen);
        all.entry((0, &seen.shape)).or_insert_with(new).add(group, seen);
    }
}

/// A journal holds superblocks, too: one alone, inside of the file system that it is of.
fn is_a_copy(all: &[FileSystem], index: usize) -> bool {
    let one = &all[index];
    let holds = |other: &FileSystem| {
        let inside = other.start..other.start.saturating_add(other.shape.bytes());
        let stronger = other.found.len() > one.found.len() || other.start < one.start;
        inside.contains(&one.start) && other.shape.uuid == one.shape.uuid && stronger
    };
    one.found.len() == 1 && all.iter().enumerate().any(|(at, other)| at != index && holds(other))
}

impl FileSystem {
    fn new(start: u64, seen: &Seen) -> FileSystem {
        let (shape, label) = (seen.shape.clone(), seen.label.clone());
        FileSystem { start, shape, label, written: None, found: BTreeMap::new(), in_journal: None }
    }

    /// A first superblock that lies where its file system would end behind the device, and no
    /// other one: a journal holds it, of a file system that begins with the device.
    fn out_of_journal(mut self, end: u64) -> FileSystem {
        let first = self.found.get(&0).copied().filter(|_| self.found.len() == 1);
        let inside = self.start > 0 && self.shape.bytes() <= end;
        if let (Some(at), Family::Ext, true) = (first, self.shape.family, inside)
            && self.start.saturating_add(self.shape.bytes()) > end
        {
            self.start = 0;
            self.found.clear();
            self.in_journal = Some(at);
        }
        self
    }

    fn add(&mut self, group: u64, seen: &Seen) {
        self.found.entry(group).or_insert(seen.at);
        if seen.written > 0 {
            self.written = self.written.max(Some(seen.written));
        }
        if group == 0 {
            self.label.clone_from(&seen.label);
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} at byte {}", self.what, self.family.name(), self.at)
    }
}

/// A block of metadata of XFS, or of its log.
fn trace_of_xfs(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(&[0xfe, 0xed, 0xba, 0xbe]) {
        return Some("a log");
    }
    match Kind::recognise(bytes)? {
        Kind::DirBlock | Kind::DirData => Some("a block of a directory"),
        Kind::Agi | Kind::FreeByBlock | Kind::FreeBySize | Kind::Inobt | Kind::Finobt => {
            Some("a block of a group's metadata")
        }
        Kind::Inode if bytes.get(4) == Some(&3) => Some("a block of inodes"),
        _ => None,
    }
}

/// A block of a journal of ext3 or ext4, or the first block of a directory.
fn trace_of_ext(bytes: &[u8]) -> Option<&'static str> {
    let word = |at: usize| bytes.get(at..at + 4);
    if word(0) == Some(&[0xc0, 0x3b, 0x39, 0x98]) {
        let kind = word(4)?;
        return (kind[..3] == [0; 3] && (1..=5).contains(&kind[3])).then_some("a journal");
    }
    let dot = word(4)? == [12, 0, 1, 2] && word(8)? == *b".\0\0\0";
    let dotdot = word(16)?[2..] == [2, 2] && word(20)? == *b"..\0\0";
    (dot && dotdot).then_some("a block of a directory")
}

fn trimmed(label: &[u8]) -> Vec<u8> {
    label.iter().copied().take_while(|&byte| byte != 0).collect()
}

/// A superblock of ext2, ext3 or ext4 at byte `at`. What only looks like one mostly has a group
/// that the file system has not, or lies where its file system would begin before the device.
fn ext(bytes: &[u8], at: u64) -> Option<Seen> {
    let raw = ExtSuper::view(bytes.get(..1024)?)?;
    let shift = raw.s_log_block_size.get();
    if shift > 6 {
        return None;
    }
    let (group_blocks, first) = (raw.s_blocks_per_group.get(), raw.s_first_data_block.get());
    let sparse = raw.features().ro_compat.contains(RoCompat::SPARSE_SUPER);
    let shape = Shape {
        family: Family::Ext,
        uuid: raw.s_uuid,
        block_size: 1024 << shift,
        blocks: raw.blocks_count(),
        group_blocks: group_blocks.into(),
        first: first.into(),
        sparse,
    };
    let sane = group_blocks > 0 && first <= 1 && shape.blocks > u64::from(first);
    let group = raw.s_block_group_nr.get().into();
    let label = trimmed(raw.label());
    sane.then(|| Seen { at, group: Some(group), shape, label, written: raw.s_wtime.get() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A superblock of an ext with groups of 8 MiB.
    fn superblock(group: u16) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        let mut put = |at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
        put(4, &32768u32.to_le_bytes());
        put(20, &1u32.to_le_bytes());
        put(32, &8192u32.to_le_bytes());
        put(56, &[0x53, 0xef]);
        put(90, &group.to_le_bytes());
        put(100, &1u32.to_le_bytes());
        put(120, b"one");
        bytes
    }

    #[test]
    fn copies_are_put_together_and_strays_left_out() {
        let mut scanner = Scanner::default();
        let base = 1 << 20;
        scanner.look(&superblock(1), 1024, base + 8193 * 1024);
        scanner.look(&superblock(3), 1024, base + (3 * 8192 + 1) * 1024);
        // In the journal, and in a file.
        scanner.look(&superblock(0), 1024, base + 60_000 * 512);
        let found = scanner.file_systems(1 << 30);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].start, found[0].shape.copies()), (base, 3));
        assert_eq!(found[0].found.keys().copied().collect::<Vec<_>>(), [1, 3]);
        assert_eq!(found[0].label, b"one");
    }

    #[test]
    fn nonsense_is_no_file_system() {
        let mut scanner = Scanner::default();
        for (at, word) in [(24, 7u32), (32, 0), (20, 9), (4, 0)] {
            let mut bytes = superblock(1);
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            scanner.look(&bytes, 1024, 8193 * 1024);
        }
        scanner.look(&superblock(60000), 1024, u64::MAX / 2);
        scanner.look(&superblock(1)[..512], 512, 0);
        scanner.look(b"XFSB", 4, 0);
        scanner.look(b"XAGF", 4, 0);
        assert_eq!(scanner.file_systems(u64::MAX), []);
    }
}
