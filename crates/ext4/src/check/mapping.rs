//! The blocks of a file: extent trees and indirect blocks, each followed once.

use std::ops::Range;

use base::{FsBlock, Ino};
use block::DeviceError;
use vfs::check::Holder;

use super::Checker;
use super::rule::Rule;
use crate::format::checksum::{InodeSeed, stored_extent_block, u32_at};
use crate::format::extent::{Extent, FileRun, Node};
use crate::format::{At, CorruptKind, FileKind, InodeFlags, InodeValues};

/// What the walk over a file's map found.
#[derive(Default)]
pub struct FileBlocks {
    /// Data blocks and blocks that map.
    pub blocks: u64,
    /// One past the last logical block that is written (unwritten extents may lie behind the end).
    pub written_end: u64,
    /// One past the last logical block.
    pub end: u64,
    /// Everything was followed: the counts are right.
    pub complete: bool,
    /// The runs, where they were asked for.
    pub runs: Vec<FileRun>,
}

/// The state of one walk.
struct Walk {
    ino: u32,
    seed: InodeSeed,
    mapped: FileBlocks,
    keep_runs: bool,
    /// Other files may have its data too.
    shares: bool,
    /// The last cluster that was seen: its number in the file, and its first block.
    cluster: Option<(u64, u64)>,
}

impl Walk {
    fn push(&mut self, logical: u64, start: u64, len: u64, unwritten: bool) {
        self.mapped.end = logical + len;
        if !unwritten {
            self.mapped.written_end = logical + len;
        }
        if !self.keep_runs {
            return;
        }
        FileRun { logical, start, len, unwritten }.join(&mut self.mapped.runs);
    }
}

impl Checker<'_> {
    /// Walks over the blocks of an inode, marks them as used, and reports what is wrong with them.
    ///
    /// # Errors
    /// The device's.
    pub fn walk(
        &mut self,
        ino: u32,
        values: &InodeValues,
        keep_runs: bool,
    ) -> Result<FileBlocks, DeviceError> {
        let mut walk = self.begin(ino, values, keep_runs);
        if values.flags.contains(InodeFlags::EXTENTS) {
            let at = At::Inode(Ino(ino.into()));
            self.extent_node(&mut walk, &values.block, None, None, at)?;
        } else if self.g.has_clusters() && values.block.iter().any(|&byte| byte != 0) {
            let at = At::Inode(Ino(ino.into()));
            self.findings.corrupt(&CorruptKind::ClustersNeedExtents.at(at));
            walk.mapped.complete = false;
        } else {
            for slot in 0..15u64 {
                let block = u32_at(&values.block, slot as usize * 4);
                let levels = slot.saturating_sub(11) as u32;
                let logical = self.slot_start(slot);
                self.indirect(&mut walk, block, levels, logical)?;
            }
        }
        if !walk.mapped.complete {
            self.blocks_unknown = true;
        }
        Ok(walk.mapped)
    }

    fn begin(&self, ino: u32, values: &InodeValues, keep_runs: bool) -> Walk {
        Walk {
            ino,
            seed: self.g.checksums.inode_seed(Ino(ino.into()), values.generation),
            mapped: FileBlocks { complete: true, ..FileBlocks::default() },
            keep_runs,
            shares: self.shareable.is_some() && values.kind() == Some(FileKind::Regular),
            cluster: None,
        }
    }

    /// Takes blocks for a file, with all that lie in the same clusters; false where one of them has
    /// an owner already.
    pub fn claim(&mut self, ino: u32, start: u64, len: u64) -> bool {
        let ratio = u64::from(self.g.cluster_ratio);
        let end = (start + len).next_multiple_of(ratio);
        let start = start & !(ratio - 1);
        match self.used.set(start, end - start) {
            Some(block) => self.taken(ino, block, start..end),
            None => true,
        }
    }

    /// Takes blocks for the content of a file.
    fn claim_content(&mut self, walk: &Walk, run: Range<u64>) {
        let len = run.end - run.start;
        let Some(shareable) = self.shareable.as_mut().filter(|_| walk.shares) else {
            self.claim(walk.ino, run.start, len);
            return;
        };
        let taken = run.clone().find(|&b| self.used.get(b) && !shareable.get(b));
        shareable.set(run.start, len);
        self.used.set(run.start, len);
        if let Some(block) = taken {
            self.taken(walk.ino, block, run);
        }
    }

    /// Reports that a block of a run has an owner already.
    fn taken(&mut self, ino: u32, block: u64, run: Range<u64>) -> bool {
        let at = At::Block(Ino(ino.into()), block);
        let detail = format!("in {}+{}", run.start, run.end - run.start);
        let meta = self.meta.get(block);
        let rule = if meta { Rule::BlockIsMetadata } else { Rule::BlockClaimedTwice };
        self.findings.add(rule, at, detail);
        false
    }

    /// Takes the blocks of an extent, but for those of a cluster that the extent before it took.
    fn claim_extent(&mut self, walk: &mut Walk, extent: &Extent, at: At) {
        let ratio = u64::from(self.g.cluster_ratio);
        let mut from = extent.start & !(ratio - 1);
        let to = (extent.start + u64::from(extent.len)).next_multiple_of(ratio);
        let cluster = u64::from(extent.block) / ratio;
        match walk.cluster.filter(|last| last.0 == cluster) {
            Some((_, place)) if place == from => from += ratio,
            Some(_) => {
                let Extent { block, start, .. } = *extent;
                let ratio = self.g.cluster_ratio;
                let kind = CorruptKind::ExtentCluster { index: 0, block, start, ratio };
                self.findings.corrupt(&kind.at(at));
            }
            None => {}
        }
        if from < to {
            self.claim_content(walk, from..to);
        }
        walk.mapped.blocks += to - from;
        walk.cluster = Some(((extent.end() - 1) / ratio, to - ratio));
    }

    /// A structure of an inode lies in this block.
    pub fn note(&mut self, ino: u32, what: &str, block: u64) {
        let holder = |_| Holder::of_inode(what, Ino(ino.into()), None);
        self.watch.note(block..block + 1, holder);
    }

    /// The content of a file from logical block `logical` on lies in these blocks.
    fn note_content(&mut self, ino: u32, logical: u64, run: Range<u64>) {
        let (first, size) = (run.start, u64::from(self.g.block_size));
        let holder = |block: u64| {
            let offset = (logical + (block - first)).saturating_mul(size);
            Holder::of_inode("content", Ino(ino.into()), Some(offset))
        };
        self.watch.note(run, holder);
    }

    /// One node: header, checksum, entries; then what lies below.
    fn extent_node(
        &mut self,
        walk: &mut Walk,
        data: &[u8],
        depth: Option<u16>,
        key: Option<u32>,
        at: At,
    ) -> Result<(), DeviceError> {
        let node = match Node::parse(data, depth, at) {
            Ok(node) => node,
            Err(corrupt) => {
                self.findings.corrupt(&corrupt);
                walk.mapped.complete = false;
                return Ok(());
            }
        };
        if depth.is_some() && self.g.checksums.metadata {
            let found = stored_extent_block(data).unwrap_or(0);
            let expected = walk.seed.extent_block(data).unwrap_or(!found);
            if found != expected {
                self.findings.corrupt(&CorruptKind::ExtentChecksum { found, expected }.at(at));
            }
        }
        if let Err(corrupt) = node.check_entries(&self.g, at) {
            self.findings.corrupt(&corrupt);
            walk.mapped.complete = false;
            return Ok(());
        }
        let first = if node.is_empty() { None } else { Some(node.key(0)) };
        if let (Some(expected), Some(found)) = (key, first)
            && found != expected
        {
            self.findings.corrupt(&CorruptKind::ExtentParent { found, expected }.at(at));
        }
        if let Some(found) = first.filter(|&first| u64::from(first) < walk.mapped.end) {
            let (block, end) = (u64::from(found), walk.mapped.end);
            let kind = CorruptKind::ExtentOrder { index: 0, block, end };
            self.findings.corrupt(&kind.at(at));
            walk.mapped.complete = false;
            return Ok(());
        }
        if node.depth() == 0 {
            for extent in node.extents() {
                self.claim_extent(walk, &extent, at);
                let (logical, len) = (u64::from(extent.block), u64::from(extent.len));
                self.note_content(walk.ino, logical, extent.start..extent.start + len);
                walk.push(logical, extent.start, len, extent.unwritten);
            }
            return Ok(());
        }
        for pointer in node.indexes() {
            walk.mapped.blocks += u64::from(self.g.cluster_ratio);
            self.note(walk.ino, "a node of the extent tree", pointer.leaf);
            if !self.claim(walk.ino, pointer.leaf, 1) {
                // Whoever has it may be a node above: never follow a block twice.
                walk.mapped.complete = false;
                continue;
            }
            let page = self.io.read(pointer.leaf, 1)?;
            let at = At::Block(Ino(walk.ino.into()), pointer.leaf);
            self.extent_node(walk, &page, Some(node.depth() - 1), Some(pointer.block), at)?;
        }
        Ok(())
    }

    /// The logical block at which a slot of `i_block` begins.
    fn slot_start(&self, slot: u64) -> u64 {
        let per = u64::from(self.g.block_size / 4);
        match slot {
            0..=12 => slot,
            13 => 12 + per,
            _ => 12 + per + per * per,
        }
    }

    /// One pointer and what lies below it: data where `levels` is 0.
    fn indirect(
        &mut self,
        walk: &mut Walk,
        block: u32,
        levels: u32,
        logical: u64,
    ) -> Result<(), DeviceError> {
        let block = u64::from(block);
        if block == 0 {
            return Ok(());
        }
        if !self.in_range(FsBlock(block), 1) {
            let (first, end) = (u64::from(self.g.first_data_block) + 1, self.g.blocks_count);
            let kind = CorruptKind::MappedBlock { logical, block, first, end };
            self.findings.corrupt(&kind.at(At::Inode(Ino(walk.ino.into()))));
            walk.mapped.complete = false;
            return Ok(());
        }
        if levels == 0 {
            self.claim_content(walk, block..block + 1);
            self.note_content(walk.ino, logical, block..block + 1);
            walk.mapped.blocks += 1;
            walk.push(logical, block, 1, false);
            return Ok(());
        }
        walk.mapped.blocks += 1;
        self.note(walk.ino, "an indirect block", block);
        if !self.claim(walk.ino, block, 1) {
            walk.mapped.complete = false;
            return Ok(());
        }
        let page = self.io.read(block, 1)?;
        let per = u64::from(self.g.block_size / 4);
        let span = per.pow(levels - 1);
        for index in 0..per {
            let child = u32_at(&page, index as usize * 4);
            self.indirect(walk, child, levels - 1, logical + index * span)?;
        }
        Ok(())
    }
}
