//! Sums that show whether two sets of records are the same, without holding either.
//!
//! Every record has a value of 128 bits: SipHash-1-3 under a key that is drawn for each check. One
//! set adds the values of its records, the other one takes them away, modulo 2^128. What is left
//! is zero if every record occurs in both equally often. Otherwise it is zero by chance only: some
//! value remains `times` times, and whatever the other values are, at most `times` of the 2^128
//! that it could be make the sum zero. As `times` is less than 2^33, the chance is below 2^-95 for
//! each sum, as far as SipHash is random to whoever does not know the key. So who makes an image
//! cannot prepare one whose sums lie.
//!
//! A run of blocks adds the value of its end and takes away that of its start. Runs that touch
//! cancel where they do, so the sum shows which blocks are covered how often, however the runs
//! are cut.

use std::sync::Arc;

use base::Ino;
use rt::Cx;
use siphasher::sip128::SipHasher13;

use super::records::{Known, NameOf};
use crate::format::Geometry;
use crate::format::dir::FileType;
use crate::format::features::Features;
use crate::format::record::{
    FreeExtent, RMAP_ATTR_FORK, RMAP_BMBT, RMAP_OFFSET_MASK, RMAP_UNWRITTEN, Refcount, Rmap, owner,
};

/// What a value is of, so that those of different records differ.
#[derive(Clone, Copy)]
enum What {
    /// A boundary between blocks of a group.
    Block,
    /// A boundary between blocks of one owner, at one distance from its offset.
    Owned,
    /// A free extent.
    Free,
    /// A name of a directory, by that and by the one that it is in.
    NameOfDirectory,
    /// A name of anything else, by its type.
    Name,
    /// A directory that another one is in.
    Holds,
    /// A name of an inode in a directory of a generation.
    Pointer,
}

/// The key of all values of one check.
#[derive(Clone, Copy)]
pub(super) struct Key(SipHasher13);

impl Key {
    /// A key that nobody knows: from the task's random stream, which in real time is seeded by
    /// the system.
    pub fn new(cx: &mut Cx) -> Key {
        Key(SipHasher13::new_with_keys(cx.random(), cx.random()))
    }

    fn of(&self, what: What, words: [u64; 4]) -> u128 {
        let mut bytes = [0; 40];
        for (place, word) in bytes.chunks_exact_mut(8).zip([what as u64].iter().chain(&words)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.0.hash(&bytes).as_u128()
    }

    fn of_name(&self, ino: Ino, dir: Ino, generation: u32, name: &[u8]) -> u128 {
        let name = self.0.hash(name);
        let generation = u64::from(generation);
        // The generation and the name are independent of each other.
        self.of(What::Pointer, [ino.0, dir.0, name.h1 ^ generation.rotate_left(32), name.h2])
    }
}

/// A sum of values.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum(u128);

impl Sum {
    fn add(&mut self, value: u128, times: i64) {
        self.0 = self.0.wrapping_add(value.wrapping_mul(times as i128 as u128));
    }

    /// Adds a free extent.
    pub fn add_free(&mut self, key: &Key, extent: FreeExtent) {
        self.add(key.of(What::Free, [extent.start.into(), extent.len.into(), 0, 0]), 1);
    }

    fn absorb(&mut self, other: Sum) {
        self.0 = self.0.wrapping_add(other.0);
    }

    fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// Whether blocks are content that files may share.
pub(super) fn is_data(claim: &Rmap) -> bool {
    owner::is_inode(claim.owner) && claim.offset & (RMAP_ATTR_FORK | RMAP_BMBT) == 0
}

/// What is known of the blocks of a group.
#[derive(Clone, Default)]
struct OfGroup {
    /// How often each block is claimed or free, less how often it should be.
    cover: Sum,
    /// Claims, less reverse mappings.
    owners: Sum,
    /// Runs that several files share, as the reference counts say: starts and ends, in order.
    shared: Arc<Vec<(u32, u32)>>,
    /// Runs that nobody may share, met before the reference counts.
    alone: Vec<(u32, u32)>,
    /// The reference counts were read.
    complete: bool,
    /// Something is not as it should be.
    differs: bool,
}

impl OfGroup {
    /// Nobody may share this run.
    fn hold_alone(&mut self, start: u32, len: u32) {
        let end = start.saturating_add(len);
        if !self.complete {
            self.alone.push((start, end));
        } else if self.is_shared(start, end) {
            self.differs = true;
        }
    }

    fn is_shared(&self, start: u32, end: u32) -> bool {
        let at = self.shared.partition_point(|run| run.1 <= start);
        self.shared.get(at).is_some_and(|run| run.0 < end)
    }
}

/// In place of a directory that is not known.
pub(super) const NOWHERE: u64 = u64::MAX;

/// What is known of names and inodes.
#[derive(Default)]
struct Links {
    /// Names, less those that the inodes count.
    names: Sum,
    /// Directories in directories, less those that the link counts need.
    subdirs: Sum,
    /// Names with their directory and its generation, less parent pointers.
    pointers: Sum,
    /// Every directory with the one above it, by its `..`: [`NOWHERE`] where it could not be read.
    directories: Vec<(u64, u64)>,
    /// Inodes that have no links.
    orphans: u64,
    differs: bool,
}

/// The sums of a file system.
pub(super) struct Sums {
    pub key: Key,
    rmapbt: bool,
    reflink: bool,
    groups: Vec<OfGroup>,
    links: Links,
}

impl Sums {
    pub fn new(key: Key, geometry: &Geometry) -> Sums {
        let lengths = (0..geometry.ag_count()).map(|ag| geometry.ag_length(ag));
        Sums::with_features(key, &geometry.features, lengths)
    }

    fn with_features(key: Key, features: &Features, lengths: impl Iterator<Item = u32>) -> Sums {
        let (rmapbt, reflink) = (features.rmapbt(), features.reflink());
        let (groups, links) = (Vec::new(), Links::default());
        let mut sums = Sums { key, rmapbt, reflink, groups, links };
        for (ag, length) in lengths.enumerate() {
            sums.groups.push(OfGroup::default());
            sums.cover(ag as u32, 0, length, -1);
        }
        // Without types in names nothing distinguishes those of directories.
        sums.links.differs = !features.ftype();
        sums
    }

    /// The sums of a part of the inodes, when the btrees of all groups are read.
    pub fn of_part(&self) -> Sums {
        let part = |group: &OfGroup| OfGroup {
            shared: group.shared.clone(),
            complete: true,
            ..OfGroup::default()
        };
        let groups = self.groups.iter().map(part).collect();
        Sums { groups, links: Links::default(), ..*self }
    }

    /// Adds those of a part of the inodes.
    pub fn add_part(&mut self, part: Sums) {
        for (group, part) in self.groups.iter_mut().zip(part.groups) {
            group.cover.absorb(part.cover);
            group.owners.absorb(part.owners);
            group.differs |= part.differs;
        }
        let Links { names, subdirs, pointers, mut directories, orphans, differs } = part.links;
        self.links.names.absorb(names);
        self.links.subdirs.absorb(subdirs);
        self.links.pointers.absorb(pointers);
        self.links.directories.append(&mut directories);
        self.links.orphans += orphans;
        self.links.differs |= differs;
    }

    /// Counts every block of a run `times`.
    fn cover(&mut self, ag: u32, start: u32, len: u32, times: i64) {
        let edge = |block| self.key.of(What::Block, [ag.into(), block, 0, 0]);
        let (start, end) = (u64::from(start), u64::from(start) + u64::from(len));
        let (first, last) = (edge(start), edge(end));
        let cover = &mut self.groups[ag as usize].cover;
        cover.add(last, times);
        cover.add(first, -times);
    }

    /// Counts the blocks of a claim or of a reverse mapping for their owner.
    fn own(&mut self, ag: u32, run: &Rmap, times: i64) {
        let placed = owner::is_inode(run.owner) && run.offset & RMAP_BMBT == 0;
        let flags = run.offset & !RMAP_OFFSET_MASK;
        // Two runs can be one record if they touch and have this in common.
        let apart = match placed {
            true => (run.offset & RMAP_OFFSET_MASK).wrapping_sub(run.start.into()),
            false => run.offset & RMAP_OFFSET_MASK,
        };
        let edge = |block: u64| self.key.of(What::Owned, [run.owner, flags, apart, block]);
        let (start, end) = (u64::from(run.start), u64::from(run.start) + u64::from(run.len));
        let (first, last) = (edge(start), edge(end));
        let owners = &mut self.groups[ag as usize].owners;
        owners.add(last, times);
        owners.add(first, -times);
    }

    /// Somebody claims blocks; `marked` is an inode that says that it shares some.
    pub fn add_claim(&mut self, ag: u32, claim: &Rmap, marked: bool) {
        if ag as usize >= self.groups.len() {
            return;
        }
        self.cover(ag, claim.start, claim.len, 1);
        if self.rmapbt {
            self.own(ag, claim, 1);
        }
        if self.reflink && !(marked && is_data(claim)) {
            self.groups[ag as usize].hold_alone(claim.start, claim.len);
        }
    }

    /// Blocks are free.
    pub fn add_free_extent(&mut self, ag: u32, extent: FreeExtent) {
        self.cover(ag, extent.start, extent.len, 1);
        if self.reflink {
            self.groups[ag as usize].hold_alone(extent.start, extent.len);
        }
    }

    /// The reverse map has a record.
    pub fn add_mapping(&mut self, ag: u32, record: &Rmap, length: u32) {
        let end = record.start.checked_add(record.len);
        let unknown =
            record.offset & !RMAP_OFFSET_MASK & !(RMAP_ATTR_FORK | RMAP_BMBT | RMAP_UNWRITTEN);
        if record.len == 0 || end.is_none_or(|end| end > length) || unknown != 0 {
            self.groups[ag as usize].differs = true;
        }
        self.own(ag, record, -1);
    }

    /// The reference counts have a record, which is possible by itself.
    pub fn add_reference(&mut self, ag: u32, record: &Refcount) {
        if record.cow {
            let claim = Rmap { start: record.start, len: record.len, owner: owner::COW, offset: 0 };
            return self.add_claim(ag, &claim, false);
        }
        self.cover(ag, record.start, record.len, 1 - i64::from(record.refs));
        let shared = Arc::make_mut(&mut self.groups[ag as usize].shared);
        let end = record.start.saturating_add(record.len);
        match shared.last_mut() {
            Some(last) if last.1 == record.start => last.1 = end,
            _ => shared.push((record.start, end)),
        }
    }

    /// The btrees of a group were read; `differs` if one of them could not be, or has impossible
    /// records.
    pub fn group_is_read(&mut self, ag: u32, differs: bool) {
        let group = &mut self.groups[ag as usize];
        group.differs |= differs;
        group.complete = true;
        Arc::make_mut(&mut group.shared).shrink_to_fit();
        for (start, end) in std::mem::take(&mut group.alone) {
            group.differs |= group.is_shared(start, end);
        }
    }

    /// A directory that is not known has a name.
    pub fn add_name(&mut self, name: &NameOf) {
        let (target, metadata) = (name.target.0, u64::from(name.metadata));
        let value = match name.file_type {
            FileType::Directory => {
                self.key.of(What::NameOfDirectory, [target, metadata, name.dir.0, 0])
            }
            other => self.key.of(What::Name, [target, metadata, number_of(other), 0]),
        };
        self.links.names.add(value, 1);
    }

    /// An inode was read whole. `root` says whether it should have the flag of metadata, if it is
    /// one of the roots; one of the `system` needs no name.
    pub fn add_inode(&mut self, ino: Ino, known: &Known, root: Option<bool>, system: bool) {
        let metadata = u64::from(known.metadata);
        let links = i64::from(known.links);
        if !known.is_directory() {
            let counted = links - i64::from(system);
            let words = [ino.0, metadata, number_of(FileType::of_mode(known.mode)), 0];
            self.links.names.add(self.key.of(What::Name, words), -counted);
            self.links.orphans += u64::from(counted == 0 && !system);
            self.links.differs |= root.is_some();
            return;
        }
        let orphan = known.links == 0;
        self.links.directories.push((ino.0, known.parent.map_or(NOWHERE, |above| above.0)));
        self.links.differs |= system;
        if orphan && root.is_none() {
            self.links.orphans += 1;
            return;
        }
        let holds = |ino: Ino| self.key.of(What::Holds, [ino.0, 0, 0, 0]);
        self.links.subdirs.add(holds(ino), 2 - links);
        match (root, known.parent) {
            (Some(wanted), Some(above)) => {
                self.links.differs |= above != ino || known.metadata != wanted;
            }
            (None, Some(above)) => {
                self.links.subdirs.add(holds(above), 1);
                let words = [ino.0, metadata, above.0, 0];
                self.links.names.add(self.key.of(What::NameOfDirectory, words), -1);
            }
            (_, None) => self.links.differs = true,
        }
    }

    /// A name, or with `times` -1 a parent pointer.
    pub fn pointer(&mut self, ino: Ino, dir: Ino, generation: u32, name: &[u8], times: i64) {
        let value = self.key.of_name(ino, dir, generation, name);
        self.links.pointers.add(value, times);
    }

    /// Everything was read.
    pub fn inodes_are_read(&mut self) {
        self.links.directories.sort_unstable();
        self.links.directories.shrink_to_fit();
    }

    /// Whether an inode is a directory, when everything was read.
    pub fn is_directory(&self, ino: Ino) -> bool {
        self.links.directories.binary_search_by_key(&ino.0, |entry| entry.0).is_ok()
    }

    /// Directories and the ones above them, by number.
    pub fn directories(&self) -> &[(u64, u64)] {
        &self.links.directories
    }

    /// The groups whose blocks must be compared one by one.
    pub fn differing_groups(&self) -> Vec<bool> {
        let zero = |group: &OfGroup| group.cover.is_zero() && group.owners.is_zero();
        self.groups.iter().map(|group| group.differs || !zero(group)).collect()
    }

    /// Whether names and inodes must be compared one by one, where so many inodes are on the
    /// unlinked lists.
    pub fn links_differ(&self, unlinked: usize) -> bool {
        let Links { names, subdirs, orphans, differs, .. } = self.links;
        differs || !names.is_zero() || !subdirs.is_zero() || orphans != unlinked as u64
    }

    /// Whether parent pointers must be compared one by one.
    pub fn pointers_differ(&self) -> bool {
        !self.links.pointers.is_zero()
    }
}

/// The number of a type in a name. A whiteout is a device.
fn number_of(file_type: FileType) -> u64 {
    match file_type {
        FileType::Whiteout => FileType::CharDevice as u64,
        other => other as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::RawSuper;
    use crate::format::features::{Incompat, RoCompat};
    use crate::format::record::InodeChunk;

    const LENGTH: u32 = 4_000_000;

    fn sums() -> Sums {
        let mut features = Features::new(&RawSuper::zeroed());
        features.number = 5;
        features.ro_compat = RoCompat::RMAPBT | RoCompat::REFLINK | RoCompat::FINOBT;
        features.incompat = Incompat::FTYPE | Incompat::PARENT;
        Sums::with_features(Key(SipHasher13::new_with_keys(1, 2)), &features, [LENGTH].into_iter())
    }

    fn mapping(start: u32, len: u32, owner: u64, offset: u64) -> Rmap {
        Rmap { start, len, owner, offset }
    }

    fn is_right(sums: &Sums) -> bool {
        sums.differing_groups() == [false]
    }

    /// Headers, a file in two pieces of which the reverse map knows as one, a shared run, and
    /// what is free, with one change of it.
    fn group_with(change: impl Fn(usize, &mut Rmap)) -> Sums {
        let mut sums = sums();
        let mut records = [
            mapping(0, 4, owner::FS, 0),
            mapping(10, 20, 131, 0),
            mapping(30, 5, 132, 7 | RMAP_UNWRITTEN),
            mapping(40, 10, 133, 0),
            mapping(42, 3, 134, 100),
        ];
        records.iter_mut().enumerate().for_each(|(index, record)| change(index, record));
        records.iter().for_each(|record| sums.add_mapping(0, record, LENGTH));
        sums.add_reference(0, &Refcount { start: 42, cow: false, len: 3, refs: 2 });
        for (start, len) in [(4, 6), (35, 5), (50, LENGTH - 50)] {
            sums.add_free_extent(0, FreeExtent { start, len });
        }
        sums.group_is_read(0, false);
        for (claim, marked) in [
            (mapping(0, 4, owner::FS, 0), false),
            (mapping(10, 12, 131, 0), false),
            (mapping(22, 8, 131, 12), false),
            (mapping(30, 5, 132, 7 | RMAP_UNWRITTEN), false),
            (mapping(40, 10, 133, 0), true),
            (mapping(42, 3, 134, 100), true),
        ] {
            sums.add_claim(0, &claim, marked);
        }
        sums
    }

    #[test]
    fn runs_may_be_cut_as_they_like_and_no_change_goes_unseen() {
        assert!(is_right(&group_with(|_, _| ())));
        for changed in 0..5 {
            for field in 0..5 {
                let sums = group_with(|index, record| {
                    if index == changed {
                        match field {
                            0 => record.start += 1,
                            1 => record.len += 1,
                            2 => record.owner ^= 1,
                            3 => record.offset += 1,
                            _ => record.offset ^= RMAP_ATTR_FORK,
                        }
                    }
                });
                assert!(!is_right(&sums), "field {field} of record {changed}");
            }
        }
    }

    /// Blocks that have as many owners as the counts say, but not of files that share them.
    #[test]
    fn what_only_counts_right_is_not_right() {
        for (claim, marked) in [
            (mapping(42, 3, owner::AG, 0), false),
            (mapping(42, 3, 134, RMAP_BMBT), true),
            (mapping(42, 3, 134, 100), false),
        ] {
            let mut sums = group_with(|index, record| {
                if index == 4 {
                    *record = claim;
                }
            });
            sums.add_claim(0, &mapping(42, 3, 134, 100), true);
            sums.own(0, &mapping(42, 3, 134, 100), -2);
            sums.cover(0, 42, 3, -2);
            sums.add_claim(0, &claim, marked);
            let OfGroup { cover, owners, differs, .. } = &sums.groups[0];
            assert!(cover.is_zero() && owners.is_zero() && *differs, "{claim:?}");
        }
    }

    fn known(mode: u16, links: u32, parent: Option<Ino>) -> Known {
        let (names, named, generation, reflink, metadata) = (0, false, 7, false, false);
        Known { mode, links, names, named, parent, generation, reflink, metadata }
    }

    const ROOT: Ino = Ino(128);

    /// So many files, a hundred in each directory, one block each, with parent pointers.
    fn filled(files: u64) -> Sums {
        let mut sums = sums();
        sums.group_is_read(0, false);
        let directories = files / 100;
        sums.add_inode(
            ROOT,
            &known(0x4000, 2 + directories as u32, Some(ROOT)),
            Some(false),
            false,
        );
        let mut name = |dir: Ino, target: Ino, file_type| {
            let (metadata, of_directory) = (false, false);
            sums.add_name(&NameOf { dir, metadata, target, file_type, of_directory });
            sums.pointer(target, dir, 7, b"name", 1);
            sums.pointer(target, dir, 7, b"name", -1);
        };
        for dir in 0..directories {
            let ino = Ino(1000 + 101 * dir);
            name(ROOT, ino, FileType::Directory);
            (1..=100).for_each(|file| name(ino, Ino(ino.0 + file), FileType::Regular));
        }
        for dir in 0..directories {
            let ino = Ino(1000 + 101 * dir);
            sums.add_inode(ino, &known(0x4000, 2, Some(ROOT)), None, false);
            for file in 1..=100 {
                sums.add_inode(Ino(ino.0 + file), &known(0x8000, 1, None), None, false);
                let claim = mapping((dir * 100 + file) as u32, 1, ino.0 + file, 0);
                sums.add_claim(0, &claim, false);
            }
        }
        sums.inodes_are_read();
        sums
    }

    #[test]
    fn names_and_inodes_must_agree() {
        let is_right = |sums: &Sums| !sums.links_differ(0) && !sums.pointers_differ();
        let changed = |change: &dyn Fn(&mut Sums)| {
            let mut sums = filled(300);
            change(&mut sums);
            is_right(&sums)
        };
        assert!(changed(&|_| ()));
        let name = |dir, target, file_type| {
            let (metadata, of_directory) = (false, false);
            NameOf { dir: Ino(dir), metadata, target: Ino(target), file_type, of_directory }
        };
        let more = |name: NameOf| move |sums: &mut Sums| sums.add_name(&name);
        assert!(!changed(&more(name(1000, 1001, FileType::Regular))), "a second name");
        assert!(!changed(&more(name(1000, 5, FileType::Regular))), "a name of nothing");
        assert!(!changed(&more(name(1000, 1101, FileType::Directory))), "a second parent");
        let inode = |ino, known: Known| {
            move |sums: &mut Sums| sums.add_inode(Ino(ino), &known, None, false)
        };
        assert!(!changed(&inode(5, known(0x8000, 1, None))), "no name");
        assert!(!changed(&inode(5, known(0x8000, 0, None))), "an orphan on no list");
        assert!(!changed(&inode(5, known(0x4000, 2, Some(ROOT)))), "a directory without a name");
        assert!(!changed(&|sums| sums.pointer(Ino(1001), ROOT, 7, b"name", -1)), "a pointer");
        let moved = |sums: &mut Sums| {
            sums.pointer(Ino(1001), Ino(1000), 7, b"name", 1);
            sums.pointer(Ino(1001), Ino(1000), 8, b"name", -1);
        };
        assert!(!changed(&moved), "a generation");
    }

    /// Goal: a check of 100 million inodes takes far less than 1 GiB. Method: what it keeps of a
    /// hundredth of them, a hundred files in each directory.
    #[test]
    fn sums_over_a_hundred_million_inodes_are_small() {
        const INODES: u64 = 1_000_000;
        let sums = filled(INODES);
        let group = &sums.groups[0];
        let runs = (group.shared.capacity() + group.alone.capacity()) * size_of::<(u32, u32)>();
        let directories = sums.links.directories.capacity() * size_of::<(u64, u64)>();
        // The list of chunks may have twice the room that it needs.
        let chunks = 2 * (INODES as usize).div_ceil(64) * size_of::<InodeChunk>();
        let all = 100 * (runs + directories + chunks) + super::super::CACHE as usize;
        assert!(all <= 256 << 20, "{} MiB", all >> 20);
        assert!(!sums.links_differ(0));
    }
}
