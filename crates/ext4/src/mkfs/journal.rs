//! The journal's blocks: where they lie, how they are mapped, and its superblock.

use std::ops::Range;

use jbd2::format::Superblock;

use super::MkfsError;
use super::place::Placed;
use crate::format::extent::{self, Extent, ExtentIdx};
use crate::format::inode::BLOCK_AREA;
use crate::format::{Geometry, features::Incompat};

/// A file of whole blocks and how it is mapped.
pub struct MappedFile {
    /// `i_block`.
    pub block: [u8; BLOCK_AREA],
    /// All blocks of the clusters taken, those that map included.
    pub blocks: u64,
    /// Runs of data blocks in order.
    pub pieces: Vec<(u64, u64)>,
    /// Extent or indirect blocks: block, content (extent blocks without their checksum).
    pub nodes: Vec<(u64, Vec<u8>)>,
    /// Mapped by extents.
    pub extents: bool,
}

/// Where mke2fs wants the journal: the group with the most free blocks near the middle.
pub fn goal(g: &Geometry, placed: &Placed) -> u64 {
    let middle = (g.blocks_count - u64::from(g.first_data_block)) / 2;
    let mut group = g.group_of_block(middle).map_or(0, |(group, _)| group);
    let mut start = group.saturating_sub(1);
    if g.flex_size > 1 && group > g.flex_size {
        group &= !(g.flex_size - 1);
        while group < g.groups_count && placed.free_clusters(g, group) == 0 {
            group += 1;
        }
        group = if group == g.groups_count { 0 } else { group };
        start = group;
    }
    let end = (group + 1).min(g.groups_count - 1);
    let mut best = start;
    for candidate in start + 1..=end {
        if placed.free_clusters(g, candidate) > placed.free_clusters(g, best) {
            best = candidate;
        }
    }
    g.group_first_block(best)
}

/// Takes `len` blocks from `goal` on and maps them, by extents where the file system has them.
///
/// # Errors
/// Too few free blocks, or more runs than two levels of extents hold.
pub fn map(
    g: &Geometry,
    placed: &mut Placed,
    goal: u64,
    len: u64,
) -> Result<MappedFile, MkfsError> {
    let full = MkfsError::JournalSize { blocks: len, limit: 0 };
    if g.features.incompat.contains(Incompat::EXTENTS) {
        map_extents(g, placed, goal, len).ok_or(full)
    } else {
        map_indirect(g, placed, goal, len).ok_or(full)
    }
}

/// As [`map`] from the start on, but the first of these blocks of the file is taken behind the
/// others.
///
/// # Errors
/// As [`map`].
pub fn map_late(
    g: &Geometry,
    placed: &mut Placed,
    len: u64,
    late: Option<Range<u64>>,
) -> Result<MappedFile, MkfsError> {
    let full = MkfsError::JournalSize { blocks: len, limit: 0 };
    let taken = placed.take_pieces(0, len).ok_or(full.clone())?;
    let mut list: Vec<u64> = taken.iter().flat_map(|&(start, len)| start..start + len).collect();
    let late = late.map(|late| late.start as usize..late.end.min(len) as usize);
    let cut = match late.filter(|late| late.end <= list.len() && late.len() > 1) {
        // The place in a cluster is given, but the two parts stay apart.
        Some(late) if g.cluster_ratio > 1 => late.start + 1,
        Some(late) => {
            list[late].rotate_right(1);
            0
        }
        None => 0,
    };
    let pieces = [join(&list[..cut]), join(&list[cut..])].concat();
    let mapped = match g.features.incompat.contains(Incompat::EXTENTS) {
        true => map_pieces(g, placed, 0, pieces),
        false => map_these(g, placed, &list),
    };
    mapped.ok_or(full)
}

/// Blocks as runs.
fn join(list: &[u64]) -> Vec<(u64, u64)> {
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    for &block in list {
        match pieces.last_mut() {
            Some((start, count)) if *start + *count == block => *count += 1,
            _ => pieces.push((block, 1)),
        }
    }
    pieces
}

fn map_extents(g: &Geometry, placed: &mut Placed, goal: u64, len: u64) -> Option<MappedFile> {
    let pieces = placed.take_pieces(goal, len)?;
    map_pieces(g, placed, goal, pieces)
}

/// Maps runs that are taken already.
fn map_pieces(
    g: &Geometry,
    placed: &mut Placed,
    goal: u64,
    pieces: Vec<(u64, u64)>,
) -> Option<MappedFile> {
    let mut list = Vec::new();
    let mut logical = 0u32;
    for &(start, count) in &pieces {
        let mut done = 0;
        while done < count {
            let part = (count - done).min(u64::from(extent::LEN_MAX)) as u32;
            list.push(Extent { block: logical, len: part, start: start + done, unwritten: false });
            logical += part;
            done += u64::from(part);
        }
    }
    let mut mapped = MappedFile {
        block: [0; BLOCK_AREA],
        blocks: u64::from(logical).next_multiple_of(g.cluster_ratio.into()),
        pieces,
        nodes: Vec::new(),
        extents: true,
    };
    if list.len() <= usize::from(extent::ROOT_MAX) {
        fill_leaf(&mut mapped.block, extent::ROOT_MAX, &list);
        return Some(mapped);
    }
    let per_leaf = extent::block_max(g.block_size);
    let leaves: Vec<&[Extent]> = list.chunks(usize::from(per_leaf)).collect();
    if leaves.len() > usize::from(extent::ROOT_MAX) {
        return None;
    }
    extent::init_node(&mut mapped.block, extent::ROOT_MAX, 1);
    extent::set_header(&mut mapped.block, leaves.len() as u16, extent::ROOT_MAX, 1);
    for (index, leaf) in leaves.into_iter().enumerate() {
        let block = placed.take_run(goal.saturating_sub(1), 1)?;
        let mut node = vec![0; g.block_size as usize];
        fill_leaf(&mut node, per_leaf, leaf);
        extent::set_index(
            &mut mapped.block,
            index,
            &ExtentIdx { block: leaf[0].block, leaf: block },
        );
        mapped.nodes.push((block, node));
        mapped.blocks += u64::from(g.cluster_ratio);
    }
    Some(mapped)
}

fn fill_leaf(data: &mut [u8], max: u16, list: &[Extent]) {
    extent::init_node(data, max, 0);
    extent::set_header(data, list.len() as u16, max, 0);
    for (index, extent) in list.iter().enumerate() {
        extent::set_extent(data, index, extent);
    }
}

/// Hands out single blocks of the runs that it takes.
struct Blocks<'a> {
    placed: &'a mut Placed,
    next: u64,
}

impl Blocks<'_> {
    fn take(&mut self) -> Option<u64> {
        let block = self.placed.take_run(self.next, 1).or_else(|| self.placed.take_run(0, 1))?;
        self.next = block + 1;
        Some(block)
    }
}

impl MappedFile {
    /// Without a block, and without extents.
    fn indirect() -> MappedFile {
        let (pieces, nodes) = (Vec::new(), Vec::new());
        MappedFile { block: [0; BLOCK_AREA], blocks: 0, pieces, nodes, extents: false }
    }
}

/// Where the next data block comes from.
type Source<'a> = &'a mut dyn FnMut(&mut Blocks<'_>) -> Option<u64>;

/// Maps by 12 direct, then indirect blocks, each of which lies before what it maps.
fn map_indirect(g: &Geometry, placed: &mut Placed, goal: u64, len: u64) -> Option<MappedFile> {
    let mut blocks = Blocks { placed, next: goal };
    let mut mapped = MappedFile::indirect();
    map_slots(g, &mut blocks, &mut mapped, len, &mut |blocks| blocks.take())?;
    Some(mapped)
}

fn map_slots(
    g: &Geometry,
    blocks: &mut Blocks<'_>,
    mapped: &mut MappedFile,
    len: u64,
    source: Source<'_>,
) -> Option<()> {
    let mut left = len;
    for slot in 0..15 {
        if left == 0 {
            break;
        }
        let levels = slot.max(11) - 11;
        let block = map_level(g, blocks, mapped, levels, &mut left, source)?;
        mapped.block[slot * 4..][..4].copy_from_slice(&(block as u32).to_le_bytes());
    }
    (left == 0).then_some(())
}

/// Maps these blocks, which are taken already, without extents.
pub fn map_these(g: &Geometry, placed: &mut Placed, list: &[u64]) -> Option<MappedFile> {
    let mut given = list.iter().copied();
    let mut blocks = Blocks { placed, next: 0 };
    let mut mapped = MappedFile::indirect();
    map_slots(g, &mut blocks, &mut mapped, list.len() as u64, &mut |_| given.next())?;
    Some(mapped)
}

/// Takes one block and, with `levels` above 0, what it maps. At most four calls deep.
fn map_level(
    g: &Geometry,
    blocks: &mut Blocks<'_>,
    mapped: &mut MappedFile,
    levels: usize,
    left: &mut u64,
    source: Source<'_>,
) -> Option<u64> {
    let own = if levels == 0 { source(blocks)? } else { blocks.take()? };
    mapped.blocks += 1;
    if levels == 0 {
        *left -= 1;
        match mapped.pieces.last_mut() {
            Some((start, count)) if *start + *count == own => *count += 1,
            _ => mapped.pieces.push((own, 1)),
        }
        return Some(own);
    }
    let mut node = vec![0; g.block_size as usize];
    for entry in node.chunks_exact_mut(4) {
        if *left == 0 {
            break;
        }
        let child = map_level(g, blocks, mapped, levels - 1, left, source)?;
        entry.copy_from_slice(&(child as u32).to_le_bytes());
    }
    mapped.nodes.push((own, node));
    Some(own)
}

/// The journal's superblock: empty, version 2, no features, as mke2fs writes it; the last
/// `fast_commit` of its blocks are for fast commits.
pub fn super_block(g: &Geometry, len: u32, fast_commit: u32) -> Vec<u8> {
    let mut bytes = vec![0; g.block_size as usize];
    let mut journal = Superblock::new(g.block_size, len, g.uuid);
    // One user, whose UUID an internal journal need not name.
    journal.users = vec![[0; 16]];
    journal.emit(&mut bytes);
    Superblock::set_fast_commit_blocks(&mut bytes, fast_commit);
    bytes
}
