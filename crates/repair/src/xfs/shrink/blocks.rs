//! Content of files that moves: each run of blocks once, for all files that share it.

use base::{FsBlock, Ino};
use xfs::format::dquot::Kind;
use xfs::format::inode::{Flags2, ForkFormat};
use xfs::format::{Extent, Geometry};

use super::Shrink;
use crate::RepairError;
use crate::resize::Move;
use crate::xfs::forks::{Fork, Which, part};
use crate::xfs::inodes::Inode;

/// A run of blocks, and where it goes.
struct Run {
    from: u64,
    to: u64,
    len: u64,
    /// Somebody has written it, and it is not in the plan itself.
    written: bool,
}

impl Run {
    fn end(&self) -> u64 {
        self.from + self.len
    }
}

/// Where content goes, in the order of where it was.
#[derive(Default)]
pub struct Moves(Vec<Run>);

impl Moves {
    /// What is copied.
    pub fn copies(&self, g: &Geometry) -> Vec<Move> {
        let linear = |block: u64| g.linear(g.split(FsBlock(block)));
        let written = self.0.iter().filter(|run| run.written);
        written
            .map(|run| Move { from: linear(run.from), to: linear(run.to), len: run.len })
            .collect()
    }

    /// The pieces of an extent where they are afterwards.
    fn apply(&self, extent: &Extent) -> Vec<Extent> {
        let (mut pieces, mut at) = (Vec::new(), extent.offset);
        while at < extent.end() {
            let block = extent.start.0 + (at - extent.offset);
            let index = self.0.partition_point(|run| run.end() <= block);
            let run = self.0.get(index);
            let (to, len) = match run.filter(|run| run.from <= block) {
                Some(run) => (Some(run.to + (block - run.from)), run.end() - block),
                None => (None, run.map_or(u64::MAX, |run| run.from - block)),
            };
            let end = extent.end().min(at.saturating_add(len));
            let piece = part(extent, at..end).expect("it has blocks");
            pieces.push(Extent { start: to.map_or(piece.start, FsBlock), ..piece });
            at = end;
        }
        pieces
    }
}

impl Shrink<'_> {
    /// Whether the content of an inode is a structure of the file system: records of quota, what is
    /// free in a realtime section. The plan has it, so that it can be checked.
    fn holds_records(&self, ino: u64, inode: &Inode) -> bool {
        let named = Kind::ALL.into_iter().any(|kind| self.fs.raw.quota_ino(kind) == Some(ino));
        match self.fs.g.metadata_root {
            Some(_) => inode.core.flags2.contains(Flags2::METADATA),
            None => named || self.fs.g.realtime_inos.contains(&Ino(ino)),
        }
    }

    /// Puts the records behind the new end to where they go.
    pub fn carry_records(&mut self) -> Result<(), RepairError> {
        let files = self.fs.inodes.iter().filter(|(_, inode)| inode.core.file_type() == 0x8000);
        let files = files.filter(|(ino, inode)| self.holds_records(**ino, inode));
        let extents: Vec<Extent> =
            files.flat_map(|(_, inode)| inode.data.extents.clone()).collect();
        for extent in extents {
            let run = |extent: &Extent| (extent.start, extent.count);
            let to: Vec<_> = self.moves.apply(&extent).iter().map(run).collect();
            if to != [run(&extent)] {
                let bytes = self.fs.read_runs(&[run(&extent)])?;
                self.fs.write_runs(&to, &bytes);
            }
        }
        Ok(())
    }

    /// The pieces of content behind the new end, by their place: start, end, whether it is copied.
    fn going(&self) -> Vec<(u64, u64, bool)> {
        let mut list = Vec::new();
        let files = self.fs.inodes.iter().filter(|(_, inode)| inode.core.file_type() == 0x8000);
        for (&ino, inode) in files {
            let records = self.holds_records(ino, inode);
            for extent in &inode.data.extents {
                let place = self.fs.g.split(extent.start);
                let end = self.new.ag_length(place.ag);
                let skip = end.saturating_sub(place.block).min(extent.count);
                if skip < extent.count {
                    let start = extent.start.0 + u64::from(skip);
                    let end = extent.start.0 + u64::from(extent.count);
                    list.push((start, end, !extent.unwritten && !records));
                }
            }
        }
        list.sort_unstable();
        list
    }

    /// Finds places for the content behind the new end.
    pub fn place_content(&mut self) -> Result<Moves, RepairError> {
        let mut runs: Vec<(u64, u64, bool)> = Vec::new();
        for (start, end, written) in self.going() {
            match runs.last_mut() {
                // Shared blocks are there several times.
                Some(last) if start < last.1 || start == last.1 && written == last.2 => {
                    last.1 = last.1.max(end);
                    last.2 |= written;
                }
                _ => runs.push((start, end, written)),
            }
        }
        let mut moves = Moves::default();
        for (start, end, written) in runs {
            let mut from = start;
            while from < end {
                let count = (end - from).min(1 << 20) as u32;
                for (to, len) in self.fs.take_blocks(count)? {
                    let len = u64::from(len);
                    moves.0.push(Run { from, to: to.0, len, written });
                    from += len;
                }
            }
        }
        Ok(moves)
    }

    /// Changes the maps of files whose content or whose map moves.
    pub fn map_anew(&mut self) {
        let (old, new) = (self.old.clone(), self.new.clone());
        let goes = |block: FsBlock| {
            let place = old.split(block);
            place.block >= new.ag_length(place.ag)
        };
        for inode in self.fs.inodes.values_mut() {
            // The btrees of a section are written with their records.
            if inode.core.file_type() != 0x8000 || inode.core.format == ForkFormat::MetaBtree {
                continue;
            }
            let fork = inode.fork(Which::Data);
            let last = |extent: &Extent| FsBlock(extent.start.0 + u64::from(extent.count) - 1);
            let content = fork.extents.iter().any(|extent| goes(last(extent)));
            if !content && !fork.tree.iter().any(|&block| goes(block)) {
                continue;
            }
            let (tree, section) = (fork.tree.clone(), fork.section.clone());
            let mut now = Fork { tree, section, ..Fork::default() };
            for extent in &fork.extents {
                self.moves.apply(extent).into_iter().for_each(|piece| now.append(piece));
            }
            *inode.fork_mut(Which::Data) = now;
            inode.renew(Which::Data);
        }
    }
}
