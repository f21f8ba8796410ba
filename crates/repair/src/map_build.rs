//! Maps of files written anew: extent trees and indirect blocks out of runs.

use ext4::format::checksum::InodeSeed;
use ext4::format::extent::{self, Extent, ExtentIdx, FileRun};

/// Direct pointers of an inode.
const DIRECT: u64 = 12;
/// Slots behind them: blocks of pointers of one, two and three levels.
const LEVELS: u32 = 3;

/// Where the blocks of a map go.
pub trait NodeStore {
    /// What goes wrong.
    type Error;

    /// Takes a block, near `goal`. None where there is none: the rest of the map is left out.
    fn take_node(&mut self, goal: u64) -> Result<Option<u64>, Self::Error>;

    /// Writes a block.
    fn put_node(&mut self, block: u64, data: &[u8]);

    /// Bytes of a block.
    fn block_size(&self) -> u32;
}

/// Builds an extent tree; answers the root, and the blocks of the tree.
///
/// # Errors
/// Those of the store.
pub fn extents<S: NodeStore>(
    store: &mut S,
    seed: InodeSeed,
    runs: &[FileRun],
) -> Result<([u8; 60], Vec<u64>), S::Error> {
    let size = store.block_size();
    let extents = split(runs);
    let goal = runs.first().map_or(0, |run| run.start);
    let mut root = [0; 60];
    let mut nodes = Vec::new();
    if extents.len() <= usize::from(extent::ROOT_MAX) {
        extent::init_node(&mut root, extent::ROOT_MAX, 0);
        extent::set_header(&mut root, extents.len() as u16, extent::ROOT_MAX, 0);
        for (index, extent) in extents.iter().enumerate() {
            extent::set_extent(&mut root, index, extent);
        }
        return Ok((root, nodes));
    }
    let max = extent::block_max(size);
    let mut level: Vec<ExtentIdx> = Vec::new();
    for part in extents.chunks(max.into()) {
        let mut data = vec![0; size as usize];
        extent::set_header(&mut data, part.len() as u16, max, 0);
        for (index, extent) in part.iter().enumerate() {
            extent::set_extent(&mut data, index, extent);
        }
        let Some(block) = store.take_node(goal)? else { break };
        seed.set_extent_block(&mut data);
        store.put_node(block, &data);
        nodes.push(block);
        level.push(ExtentIdx { block: part[0].block, leaf: block });
    }
    let mut depth = 1;
    while level.len() > usize::from(extent::ROOT_MAX) {
        let mut above = Vec::new();
        for part in level.chunks(max.into()) {
            let mut data = vec![0; size as usize];
            put_indexes(&mut data, part, max, depth);
            let Some(block) = store.take_node(goal)? else { break };
            seed.set_extent_block(&mut data);
            store.put_node(block, &data);
            nodes.push(block);
            above.push(ExtentIdx { block: part[0].block, leaf: block });
        }
        level = above;
        depth += 1;
    }
    put_indexes(&mut root, &level, extent::ROOT_MAX, depth);
    Ok((root, nodes))
}

/// Builds blocks of pointers; answers the slots of the inode, and the blocks.
///
/// # Errors
/// Those of the store.
pub fn indirect<S: NodeStore>(
    store: &mut S,
    runs: &[FileRun],
) -> Result<([u8; 60], Vec<u64>), S::Error> {
    let size = store.block_size();
    let mut root = [0; 60];
    let mut nodes = Vec::new();
    let per = u64::from(size / 4);
    let goal = runs.first().map_or(0, |run| run.start);
    let each = runs.iter().flat_map(|run| (0..run.len).map(|i| (run.logical + i, run.start + i)));
    let mut rest: Vec<(u64, u64)> = each.collect();
    let direct = rest.partition_point(|(logical, _)| *logical < DIRECT);
    for (logical, block) in rest.drain(..direct) {
        put(&mut root, logical as usize, block);
    }
    let mut first = DIRECT;
    for levels in 1..=LEVELS {
        let span = per.pow(levels);
        let end = rest.partition_point(|(logical, _)| *logical < first + span);
        let mut level: Vec<(u64, u64)> =
            rest.drain(..end).map(|(logical, block)| (logical - first, block)).collect();
        for _ in 0..levels {
            let mut above: Vec<(u64, u64)> = Vec::new();
            for part in level.chunk_by(|a, b| a.0 / per == b.0 / per) {
                let mut data = vec![0; size as usize];
                for (logical, block) in part {
                    put(&mut data, (logical % per) as usize, *block);
                }
                let Some(block) = store.take_node(goal)? else { break };
                store.put_node(block, &data);
                nodes.push(block);
                above.push((part[0].0 / per, block));
            }
            level = above;
        }
        if let Some((_, block)) = level.first() {
            put(&mut root, (DIRECT + u64::from(levels) - 1) as usize, *block);
        }
        first += span;
    }
    Ok((root, nodes))
}

/// Stores a block number in a block of pointers.
pub fn put(data: &mut [u8], index: usize, block: u64) {
    data[index * 4..index * 4 + 4].copy_from_slice(&(block as u32).to_le_bytes());
}

fn put_indexes(data: &mut [u8], part: &[ExtentIdx], max: u16, depth: u16) {
    extent::set_header(data, part.len() as u16, max, depth);
    for (index, pointer) in part.iter().enumerate() {
        extent::set_index(data, index, pointer);
    }
}

/// Runs as extents, which have a largest length.
fn split(runs: &[FileRun]) -> Vec<Extent> {
    let mut extents = Vec::new();
    for run in runs {
        let most = match run.unwritten {
            true => extent::UNWRITTEN_LEN_MAX,
            false => extent::LEN_MAX,
        };
        let mut done = 0;
        while done < run.len {
            let len = (run.len - done).min(most.into()) as u32;
            let (block, start) = ((run.logical + done) as u32, run.start + done);
            extents.push(Extent { block, len, start, unwritten: run.unwritten });
            done += u64::from(len);
        }
    }
    extents
}
