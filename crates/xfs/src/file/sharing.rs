//! Which blocks of a file are shared with other files, for reports.

use std::ops::Range;

use base::{Errno, FsBlock, Ino};
use rt::Cx;

use super::DataFile;
use super::cow::shared_runs;
use crate::bmap::Mapped;
use crate::buf::meta::{Meta, ReadRequest, Reader};
use crate::error::Fault;
use crate::format::ag::RawAgf;
use crate::format::btree::{Node, ROOT_HEADER, Shape};
use crate::format::extent::COUNT_MAX;
use crate::format::inode::{ForkFormat, fork_ranges};
use crate::format::record::Refcount;
use crate::format::{
    AgBlock, AgHeader, At, CorruptKind, FsExtent, Kind, Section, u16_at, u32_at, u64_at,
};
use crate::metadir;

impl DataFile<'_> {
    /// Whether others share the first blocks of `mapped`, which is cut to those that have the same
    /// answer. May park.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub(super) fn cut_at_sharing(&self, cx: &mut Cx, mapped: &mut Mapped) -> Result<bool, Errno> {
        let Some(start) = mapped.start.filter(|_| self.inode.is_reflink(cx)) else {
            return Ok(false);
        };
        let extent = FsExtent { start, len: mapped.count.min(COUNT_MAX) as u32 };
        let run = match self.fs.write {
            Some(_) => shared_runs(self.fs, cx, self.section(cx), extent)?.into_iter().next(),
            None => {
                let run = self.fs.reader.shared_run(cx, self.section(cx), extent);
                run.map_err(|fault| self.fs.fault(fault))?
            }
        };
        let (shared, count) = match run {
            Some(run) if run.start == 0 => (true, run.end),
            Some(run) => (false, run.start),
            None => (false, extent.len),
        };
        mapped.count = u64::from(count);
        Ok(shared)
    }
}

impl Reader {
    /// The first run of an extent's blocks that one record says others share, counted from the
    /// start of the extent. For a mount that changes nothing. May wait for the device.
    ///
    /// # Errors
    /// The device failed; a tree that is wrong.
    fn shared_run(
        &self,
        cx: &mut Cx,
        section: Section,
        extent: FsExtent,
    ) -> Result<Option<Range<u32>>, Fault> {
        let (counts, first) = match section {
            Section::Data => {
                let AgBlock { ag, block } = self.geometry.split(extent.start);
                (Counts::Group(ag), block)
            }
            Section::Realtime => {
                let (group, block) = self.geometry.realtime.place_of(extent.start);
                let inos = metadir::realtime_inos(cx, self)?;
                let tree = inos.get(group as usize).and_then(|inos| inos.trees[1]);
                let Some(ino) = tree else { return Ok(None) };
                (Counts::Inode(ino), block)
            }
        };
        let end = first + extent.len;
        let mut from = first;
        while from < end {
            let (records, behind) = self.refcounts_at(cx, counts, from)?;
            let shared = |record: &&Refcount| !record.cow && record.start < end;
            for record in records.iter().filter(shared) {
                let upto = record.start.saturating_add(record.len).min(end);
                if upto > first {
                    return Ok(Some(record.start.max(first) - first..upto - first));
                }
            }
            from = behind.max(from + 1);
        }
        Ok(None)
    }

    /// The records of the leaf that has the counts of a block, and where the next leaf begins.
    fn refcounts_at(
        &self,
        cx: &mut Cx,
        counts: Counts,
        block: u32,
    ) -> Result<(Vec<Refcount>, u32), Fault> {
        let mut step = self.counts_root(cx, counts, block)?;
        loop {
            let Descent { at, level, mut behind } = match step {
                Step::Leaf(records, behind) => return Ok((records, behind)),
                Step::Down(descent) => descent,
            };
            let data = self.counts_block(cx, counts, at)?;
            let (kind, here) = (counts.kind(), counts.at(at));
            let node = Node::parse_trusted(kind, &data, Some(level), here)?;
            if level == 0 {
                let records = (0..node.len()).map(|index| Refcount::read(node.record(index)));
                return Ok((records.collect(), behind));
            }
            let keys = (0..node.len()).map(|index| u32_at(node.key(index), 0));
            let (index, next) = choose(keys, block);
            behind = next.unwrap_or(behind);
            step = Step::Down(Descent { at: node.pointer(index), level: level - 1, behind });
        }
    }

    /// The first step from a root.
    fn counts_root(&self, cx: &mut Cx, counts: Counts, block: u32) -> Result<Step, Fault> {
        let ino = match counts {
            Counts::Group(ag) => {
                let place = self.geometry.header_sector(ag, AgHeader::Agf);
                let sector = self.read_bytes(cx, place, self.geometry.sector_size as usize)?;
                let root = RawAgf::parse(&sector, ag, &self.geometry)?.refcount();
                let level = root.levels as u16 - 1;
                let at = u64::from(root.block);
                return Ok(Step::Down(Descent { at, level, behind: u32::MAX }));
            }
            Counts::Inode(ino) => ino,
        };
        let (slot, core) = self.read_inode(cx, ino)?;
        let (at, shape) = (At::Inode(ino), Shape::of(counts.kind()));
        let root = &slot[fork_ranges(core.forkoff, slot.len()).0];
        let (level, count) = (u16_at(root, 0), usize::from(u16_at(root, 2)));
        let most = shape.root_max(root.len(), level);
        if core.format != ForkFormat::MetaBtree || count > most || (count == 0 && level > 0) {
            let (what, found, limit) = (counts.kind().name(), count as u16, most as u16);
            return Err(CorruptKind::BtreeCount { what, found, limit }.at(at).into());
        }
        let entries = &root[ROOT_HEADER..];
        if level == 0 {
            let records = entries.chunks_exact(shape.record).take(count).map(Refcount::read);
            return Ok(Step::Leaf(records.collect(), u32::MAX));
        }
        let keys = entries.chunks_exact(shape.key).take(count).map(|key| u32_at(key, 0));
        let (index, next) = choose(keys, block);
        let pointer = u64_at(root, ROOT_HEADER + most * shape.key + index * shape.pointer);
        let behind = next.unwrap_or(u32::MAX);
        Ok(Step::Down(Descent { at: pointer, level: level - 1, behind }))
    }

    fn counts_block(&self, cx: &mut Cx, counts: Counts, block: u64) -> Result<Meta, Fault> {
        let (geometry, kind, at) = (&self.geometry, counts.kind(), counts.at(block));
        let inside = match counts {
            Counts::Group(ag) => block > 0 && block < u64::from(geometry.ag_length(ag)),
            Counts::Inode(_) => geometry.block_valid(FsBlock(block)),
        };
        if !inside {
            let what = kind.name();
            return Err(CorruptKind::BtreePointer { what, index: 0, block }.at(at).into());
        }
        match counts {
            Counts::Group(ag) => self.read_ag(cx, AgBlock { ag, block: block as u32 }, kind),
            Counts::Inode(ino) => {
                let want = ReadRequest { kinds: kind.alone(), owner: Some(ino.0), at };
                Ok(self.read(cx, &[(FsBlock(block), 1)], &want)?.1)
            }
        }
    }
}

/// A tree of reference counts: of a group, or of a group of the realtime section, whose root lies
/// in an inode.
#[derive(Clone, Copy)]
enum Counts {
    Group(u32),
    Inode(Ino),
}

impl Counts {
    fn kind(self) -> Kind {
        match self {
            Counts::Group(_) => Kind::Refcount,
            Counts::Inode(_) => Kind::RealtimeRefcount,
        }
    }

    fn at(self, block: u64) -> At {
        match self {
            Counts::Group(ag) => At::AgBlock(ag, block as u32),
            Counts::Inode(ino) => At::Inode(ino),
        }
    }
}

/// Where a search goes on.
enum Step {
    /// The records, and where the next leaf begins.
    Leaf(Vec<Refcount>, u32),
    Down(Descent),
}

/// A block to look into.
struct Descent {
    at: u64,
    level: u16,
    /// Where what lies behind it begins.
    behind: u32,
}

/// The child that has a block, and the key of the next one.
fn choose(keys: impl Iterator<Item = u32>, block: u32) -> (usize, Option<u32>) {
    let mut index = 0;
    for (number, key) in keys.enumerate().skip(1) {
        if key > block {
            return (index, Some(key));
        }
        index = number;
    }
    (index, None)
}
