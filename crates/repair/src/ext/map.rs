//! The blocks of a file, as far as its map can be followed.

use std::collections::BTreeSet;

use block::DeviceError;
use ext4::format::checksum::{InodeSeed, stored_extent_block};
use ext4::format::extent::{
    self, Extent, ExtentIdx, FileRun, MAGIC, RawExtent, RawExtentHeader, RawExtentIdx,
};
use ext4::format::{InodeFlags, InodeValues};
use zerocopy::FromBytes;

use super::Fs;
use crate::restore;

/// What the walk over a map found.
#[derive(Clone, Default, Debug)]
pub struct Map {
    /// The runs, in the order of the file.
    pub runs: Vec<FileRun>,
    /// The blocks that map.
    pub nodes: Vec<u64>,
    /// What is wrong with the map, in words; it must be written anew then.
    pub damage: Vec<String>,
    /// Blocks of the file that are lost with the damage, where their number is known.
    pub lost: u64,
    /// Blocks that were put right by their checksum or by the journal, with their new content.
    pub restored: Vec<(u64, Vec<u8>)>,
}

impl Map {
    /// One past the last logical block.
    pub fn end(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.logical + run.len)
    }

    /// One past the last logical block that is written.
    pub fn written_end(&self) -> u64 {
        let last = self.runs.iter().rev().find(|run| !run.unwritten);
        last.map_or(0, |run| run.logical + run.len)
    }

    /// Adds a run behind all others, and joins it with the last one where it continues it.
    pub fn push(&mut self, run: FileRun) {
        run.join(&mut self.runs);
    }

    /// Where a block of the file lies.
    pub fn find(&self, logical: u64) -> Option<u64> {
        let run = self.runs.iter().find(|run| {
            !run.unwritten && (run.logical..run.logical + run.len).contains(&logical)
        })?;
        Some(run.start + (logical - run.logical))
    }

    /// Leaves out what lies behind logical block `end`; true where there was anything.
    pub fn cut(&mut self, end: u64) -> bool {
        let long = self.end() > end;
        self.runs.retain(|run| run.logical < end);
        if let Some(run) = self.runs.last_mut() {
            run.len = run.len.min(end - run.logical);
        }
        long
    }

    /// Adds to what is wrong.
    pub fn wrong(&mut self, text: impl Into<String>, lost: u64) {
        self.lost += lost;
        // A wreck has thousands of them.
        if self.damage.len() < 8 {
            self.damage.push(text.into());
        }
    }
}

/// A node of an extent tree that waits for its visit.
struct Visit {
    pointer: ExtentIdx,
    depth: u16,
}

/// What a node should be.
#[derive(Clone, Copy)]
struct Level {
    depth: u16,
    /// Room for entries.
    room: u16,
}

/// One walk over an extent tree.
struct Walk {
    seed: InodeSeed,
    map: Map,
    seen: BTreeSet<u64>,
}

impl Fs<'_> {
    /// Follows the map of an inode. Parks.
    ///
    /// # Errors
    /// The device's.
    pub fn map(&mut self, ino: u32, values: &InodeValues) -> Result<Map, DeviceError> {
        if values.flags.contains(InodeFlags::INLINE_DATA) {
            Ok(Map::default())
        } else if values.flags.contains(InodeFlags::EXTENTS) {
            self.extent_map(ino, values)
        } else if self.g.has_clusters() {
            let mut map = Map::default();
            if values.block.iter().any(|&byte| byte != 0) {
                map.wrong("it has no extents, which clusters need", 0);
            }
            Ok(map)
        } else {
            self.indirect_map(values)
        }
    }

    fn extent_map(&mut self, ino: u32, values: &InodeValues) -> Result<Map, DeviceError> {
        let seed = self.seed(ino, values.generation);
        let mut walk = Walk { seed, map: Map::default(), seen: BTreeSet::new() };
        let (root, _) = RawExtentHeader::ref_from_prefix(&values.block).expect("60 bytes");
        let depth = root.eh_depth.get();
        let mut todo = Vec::new();
        self.extent_node(
            &mut walk,
            &values.block,
            Level { depth, room: extent::ROOT_MAX },
            &mut todo,
        );
        while let Some(visit) = todo.pop() {
            let block = visit.pointer.leaf;
            if !walk.seen.insert(block) {
                walk.map.wrong(format!("extent block {block} is named twice"), 0);
                continue;
            }
            let content = self.node_content(&mut walk, block)?;
            walk.map.nodes.push(block);
            let max = extent::block_max(self.g.block_size);
            let before = walk.map.damage.len();
            if !self.extent_node(
                &mut walk,
                &content,
                Level { depth: visit.depth, room: max },
                &mut todo,
            ) {
                walk.map.nodes.pop();
            }
            let first = node_first(&content);
            let sound = before == walk.map.damage.len();
            if sound && first.is_some_and(|first| first != visit.pointer.block) {
                let key = visit.pointer.block;
                walk.map.wrong(format!("extent block {block} should begin at {key}"), 0);
            }
        }
        Ok(walk.map)
    }

    /// Reads an extent block, and puts one byte of it right where the checksum shows which.
    fn node_content(&mut self, walk: &mut Walk, block: u64) -> Result<Vec<u8>, DeviceError> {
        let content = match self.of_deleted {
            true => self.full_node(walk.seed, block)?,
            false => self.view.read(block)?,
        };
        if !self.g.checksums.metadata {
            return Ok(content);
        }
        let seed = walk.seed;
        if stored_extent_block(&content) == seed.extent_block(&content) {
            return Ok(content);
        }
        // The tail lies behind the room for entries, whatever a damaged header says.
        let tail = 12 + 12 * usize::from(extent::block_max(self.g.block_size));
        let stored = |data: &[u8]| u32::from_le_bytes(data[tail..tail + 4].try_into().expect("4"));
        let sum = |data: &[u8]| base::crc::crc32c(seed.0, &data[..tail]);
        match restore::one_byte(&content, sum, stored) {
            Some(fixed) => {
                walk.map.restored.push((block, fixed.clone()));
                Ok(fixed)
            }
            None => {
                let sums = |data: &[u8]| stored_extent_block(data) == seed.extent_block(data);
                let sound =
                    |data: &[u8]| u16::from_le_bytes([data[0], data[1]]) == MAGIC && sums(data);
                if let Some((copy, _)) = self.old_copy(block, sound)? {
                    walk.map.restored.push((block, copy.clone()));
                    return Ok(copy);
                }
                walk.map.wrong(format!("extent block {block} fails its checksum"), 0);
                Ok(content)
            }
        }
    }

    /// The newest version of an extent block that has entries, else the block as it is.
    fn full_node(&mut self, seed: InodeSeed, block: u64) -> Result<Vec<u8>, DeviceError> {
        let summed = self.g.checksums.metadata;
        let mut versions = self.versions(block)?;
        let full = versions.iter().position(|(data, _)| {
            let sound = !summed || stored_extent_block(data) == seed.extent_block(data);
            data[..2] == MAGIC.to_le_bytes() && node_first(data).is_some() && sound
        });
        Ok(versions.swap_remove(full.unwrap_or(0)).0)
    }

    /// Takes what is sound of one node: extents into the map, nodes below onto the list. False if
    /// it is no node at all.
    fn extent_node(
        &self,
        walk: &mut Walk,
        data: &[u8],
        Level { depth, room }: Level,
        todo: &mut Vec<Visit>,
    ) -> bool {
        let (header, _) = RawExtentHeader::ref_from_prefix(data).expect("60 bytes or a block");
        let (entries, max) = (header.eh_entries.get(), header.eh_max.get());
        let is_node = header.eh_magic.get() == extent::MAGIC
            && header.eh_depth.get() == depth
            && depth <= extent::DEPTH_MAX
            && entries <= room
            && (entries > 0 || depth == 0);
        if !is_node {
            walk.map.wrong("an extent node has no sound header", 0);
            return false;
        }
        if max != room || entries > max {
            walk.map.wrong(format!("an extent node has room for {room} entries, not {max}"), 0);
        }
        let mut below = Vec::new();
        for index in 0..usize::from(entries) {
            let raw = &data[extent::ENTRY_SIZE * (index + 1)..][..extent::ENTRY_SIZE];
            if depth == 0 {
                self.leaf_entry(walk, Extent::read(RawExtent::ref_from_bytes(raw).expect("12")));
                continue;
            }
            let pointer = ExtentIdx::read(RawExtentIdx::ref_from_bytes(raw).expect("12"));
            let leaf = pointer.leaf;
            let sound = self.in_range(leaf..leaf + 1) && !self.meta.get(leaf);
            let order = below.last().is_none_or(|v: &Visit| v.pointer.block < pointer.block);
            if sound && order {
                below.push(Visit { pointer, depth: depth - 1 });
            } else {
                walk.map.wrong(format!("index entry {index} names block {}", pointer.leaf), 0);
            }
        }
        todo.extend(below.into_iter().rev());
        true
    }

    fn leaf_entry(&self, walk: &mut Walk, extent: Extent) {
        let (logical, len) = (u64::from(extent.block), u64::from(extent.len));
        let order = logical >= walk.map.end() && extent.end() <= u64::from(u32::MAX);
        let ratio = u64::from(self.g.cluster_ratio);
        // The same place in a cluster, and one cluster of blocks for one of the file.
        let last = walk.map.runs.last();
        let split = last.filter(|run| (run.logical + run.len - 1) / ratio == logical / ratio);
        let same =
            split.is_none_or(|run| (run.start + run.len - 1) / ratio == extent.start / ratio);
        let placed = logical % ratio == extent.start % ratio && same;
        if len == 0 || !order || !placed || !self.in_range(extent.start..extent.start + len) {
            let text = format!("extent {logical}+{len} at block {}", extent.start);
            walk.map.wrong(text, len);
            return;
        }
        let unwritten = extent.unwritten;
        walk.map.push(FileRun { logical, start: extent.start, len, unwritten });
    }
}

/// The first logical block of a node with entries.
fn node_first(data: &[u8]) -> Option<u32> {
    let (header, _) = RawExtentHeader::ref_from_prefix(data).expect("a block");
    let word = data[12..16].try_into().expect("four bytes");
    (header.eh_entries.get() > 0).then(|| u32::from_le_bytes(word))
}
