//! What the headers and btrees of the groups say.

use block::DeviceError;
use xfs::format::ag::{RawAgf, RawAgi};
use xfs::format::record::{FreeExtent, InodeChunk, Refcount, Rmap, owner};
use xfs::format::{AgHeader, At, Kind};

use super::Fs;
use super::tree_read::Walked;

/// What a group says of itself.
pub struct Group {
    /// The header of inodes, as it reads.
    pub agi: RawAgi,
    /// Chunks of inodes: those of the inode btree first, then what the repair made of them.
    pub chunks: Vec<InodeChunk>,
    /// The inode btree could be read whole.
    pub chunks_whole: bool,
    /// Reverse mappings of inode chunks; None if their btree could not be read whole, or is not
    /// there.
    pub inode_runs: Option<Vec<Rmap>>,
    /// What its btrees say of its blocks.
    pub records: Records,
    /// A header or a btree is wrong.
    pub wrong: bool,
}

/// What the btrees of a group say of its blocks: of a group of the data device, or of one of the
/// realtime section.
#[derive(Default)]
pub struct Records {
    /// What both btrees of free extents name, by place; None if none could be read whole, and of
    /// the section.
    pub free: Option<Vec<FreeExtent>>,
    /// Reverse mappings; None if their btree could not be read whole, or is not there.
    pub rmaps: Option<Vec<Rmap>>,
    /// Reference counts; None if their btree could not be read whole, or is not there.
    pub refcounts: Option<Vec<Refcount>>,
}

impl Records {
    /// Whether a block is free, as far as the group knows.
    pub fn says_free(&self, block: u32) -> bool {
        let Some(free) = &self.free else { return false };
        let at = free.partition_point(|extent| extent.start <= block);
        at.checked_sub(1).is_some_and(|at| block - free[at].start < free[at].len)
    }

    /// How many owners of a block the reference counts know of, if it is shared.
    pub fn refs(&self, block: u32) -> Option<u32> {
        let covers = |count: &&Refcount| {
            !count.cow && count.start <= block && block < count.start + count.len
        };
        let counts = self.refcounts.iter().flatten();
        counts.filter(covers).map(|count| count.refs).max()
    }
}

impl Group {
    /// Whether the reverse mappings say that a block holds inodes; None where they say nothing.
    pub fn says_inodes(&self, block: u32) -> Option<bool> {
        let runs = self.inode_runs.as_ref()?;
        let at = runs.partition_point(|rmap| rmap.start <= block);
        Some(at.checked_sub(1).is_some_and(|at| block - runs[at].start < runs[at].len))
    }
}

/// The records of a tree that could be read whole, if each run ends below 2^32.
pub fn records<T>(
    walked: &Walked,
    kind: Kind,
    read: impl Fn(&[u8]) -> T,
    run: impl Fn(&T) -> (u32, u32),
) -> Option<Vec<T>> {
    let list = walked.whole.then(|| walked.list(kind, read))?;
    let sound = list.iter().map(run).all(|(start, len)| start.checked_add(len).is_some());
    sound.then_some(list)
}

/// Extents by their place; None where they overlap.
fn in_order(mut list: Vec<FreeExtent>) -> Option<Vec<FreeExtent>> {
    list.sort_unstable_by_key(|extent| extent.start);
    let apart = list.is_sorted_by(|one, next| one.start + one.len <= next.start);
    apart.then_some(list)
}

/// What two lists, each in order, have in common.
fn both(one: &[FreeExtent], other: &[FreeExtent]) -> Vec<FreeExtent> {
    let mut common = Vec::new();
    let mut at = 0;
    for extent in one {
        let end = extent.start + extent.len;
        while let Some(theirs) = other.get(at) {
            let start = extent.start.max(theirs.start);
            let last = end.min(theirs.start + theirs.len);
            if start < last {
                common.push(FreeExtent { start, len: last - start });
            }
            if theirs.start + theirs.len > end {
                break;
            }
            at += 1;
        }
    }
    common
}

impl Fs<'_> {
    /// Reads headers and btrees of all groups.
    pub fn read_groups(&mut self) -> Result<(), DeviceError> {
        self.groups.clear();
        for ag in 0..self.g.ag_count() {
            let group = self.read_group(ag)?;
            self.groups.push(group);
        }
        Ok(())
    }

    fn read_group(&mut self, ag: u32) -> Result<Group, DeviceError> {
        let features = self.g.features;
        let sector = self.g.header_sector(ag, AgHeader::Agf);
        let (bytes, agf_sound) = self.header(sector, Kind::Agf, At::Agf(ag))?;
        let agf = *RawAgf::view(&bytes).expect("a sector holds it");
        let sector = self.g.header_sector(ag, AgHeader::Agi);
        let (bytes, agi_sound) = self.header(sector, Kind::Agi, At::Agi(ag))?;
        let agi = *RawAgi::view(&bytes).expect("a sector holds it");
        let sector = self.g.header_sector(ag, AgHeader::Agfl);
        let (_, agfl_sound) = self.header(sector, Kind::Agfl, At::Agfl(ag))?;
        let by_block = self.walk_tree(ag, Kind::FreeByBlock, agf.by_block())?;
        let by_size = self.walk_tree(ag, Kind::FreeBySize, agf.by_size())?;
        let inodes = self.walk_tree(ag, Kind::Inobt, agi.inobt())?;
        let mut whole = by_block.whole && by_size.whole && inodes.whole;
        if features.finobt() {
            whole &= self.walk_tree(ag, Kind::Finobt, agi.finobt())?.whole;
        }
        let mut rmaps = None;
        if features.rmapbt() {
            let walked = self.walk_tree(ag, Kind::Rmap, agf.rmap())?;
            whole &= walked.whole;
            rmaps = records(&walked, Kind::Rmap, Rmap::read, |rmap| (rmap.start, rmap.len));
        }
        let mut refcounts = None;
        if features.reflink() {
            let walked = self.walk_tree(ag, Kind::Refcount, agf.refcount())?;
            whole &= walked.whole;
            let run = |count: &Refcount| (count.start, count.len);
            refcounts = records(&walked, Kind::Refcount, Refcount::read, run);
        }
        let sparse = features.sparse();
        let chunks = inodes.list(Kind::Inobt, |data| InodeChunk::read(data, sparse));
        let trees = [(&by_block, Kind::FreeByBlock), (&by_size, Kind::FreeBySize)];
        let free = trees
            .into_iter()
            .filter_map(|(walked, kind)| {
                records(walked, kind, FreeExtent::read, |extent| (extent.start, extent.len))
            })
            .filter_map(in_order)
            .reduce(|one, other| both(&one, &other));
        let is_inodes = |rmap: &&Rmap| rmap.owner == owner::INODES;
        let inode_runs =
            rmaps.as_ref().map(|list| list.iter().filter(is_inodes).copied().collect());
        Ok(Group {
            agi,
            chunks,
            chunks_whole: inodes.whole,
            inode_runs,
            records: Records { free, rmaps, refcounts },
            wrong: !(whole && agf_sound && agi_sound && agfl_sound),
        })
    }
}
