//! Maps written anew: extent trees and indirect blocks out of the runs that are kept.

use block::DeviceError;
use ext4::format::InodeFlags;
use ext4::format::extent::{self, Extent, ExtentIdx};

use super::Fs;
use ext4::format::extent::FileRun;

/// Direct pointers of an inode.
const DIRECT: u64 = 12;
/// Slots behind them: blocks of pointers of one, two and three levels.
const LEVELS: u32 = 3;

impl Fs<'_> {
    /// Writes the map of an inode anew, and its pointers into the inode.
    ///
    /// # Errors
    /// The device's.
    pub fn store_map(&mut self, ino: u32) -> Result<(), DeviceError> {
        let inode = self.inodes[&ino].clone();
        let mut spare = inode.map.nodes.clone();
        spare.reverse();
        let (block, nodes) = match inode.flags.contains(InodeFlags::EXTENTS) {
            true => self.store_extents(ino, inode.generation, &inode.map.runs, &mut spare)?,
            false => self.store_indirect(&inode.map.runs, &mut spare)?,
        };
        for node in spare {
            self.used.clear(node);
        }
        let kept = self.inodes.get_mut(&ino).expect("it is there");
        kept.map.nodes = nodes;
        kept.map.damage.clear();
        kept.rewrite = false;
        self.edit(ino, |values| values.block = block)
    }

    /// A block for a node: one of the old ones, or a free one.
    fn node_block(&mut self, spare: &mut Vec<u64>, goal: u64) -> Result<Option<u64>, DeviceError> {
        match spare.pop() {
            Some(block) => Ok(Some(block)),
            None => self.take_block(goal),
        }
    }

    fn store_extents(
        &mut self,
        ino: u32,
        generation: u32,
        runs: &[FileRun],
        spare: &mut Vec<u64>,
    ) -> Result<([u8; 60], Vec<u64>), DeviceError> {
        let seed = self.seed(ino, generation);
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
        let max = extent::block_max(self.g.block_size);
        let mut level: Vec<ExtentIdx> = Vec::new();
        for part in extents.chunks(max.into()) {
            let mut data = vec![0; self.g.block_size as usize];
            extent::set_header(&mut data, part.len() as u16, max, 0);
            for (index, extent) in part.iter().enumerate() {
                extent::set_extent(&mut data, index, extent);
            }
            let Some(block) = self.node_block(spare, goal)? else { break };
            seed.set_extent_block(&mut data);
            self.view.write(block, &data);
            nodes.push(block);
            level.push(ExtentIdx { block: part[0].block, leaf: block });
        }
        let mut depth = 1;
        while level.len() > usize::from(extent::ROOT_MAX) {
            let mut above = Vec::new();
            for part in level.chunks(max.into()) {
                let mut data = vec![0; self.g.block_size as usize];
                put_indexes(&mut data, part, max, depth);
                let Some(block) = self.node_block(spare, goal)? else { break };
                seed.set_extent_block(&mut data);
                self.view.write(block, &data);
                nodes.push(block);
                above.push(ExtentIdx { block: part[0].block, leaf: block });
            }
            level = above;
            depth += 1;
        }
        put_indexes(&mut root, &level, extent::ROOT_MAX, depth);
        Ok((root, nodes))
    }

    fn store_indirect(
        &mut self,
        runs: &[FileRun],
        spare: &mut Vec<u64>,
    ) -> Result<([u8; 60], Vec<u64>), DeviceError> {
        let mut root = [0; 60];
        let mut nodes = Vec::new();
        let per = u64::from(self.g.block_size / 4);
        let goal = runs.first().map_or(0, |run| run.start);
        let each =
            runs.iter().flat_map(|run| (0..run.len).map(|i| (run.logical + i, run.start + i)));
        let mut rest: Vec<(u64, u64)> = each.collect();
        let direct = rest.partition_point(|(logical, _)| *logical < DIRECT);
        for (logical, block) in rest.drain(..direct) {
            put(&mut root, logical as usize, block);
        }
        let mut first = DIRECT;
        for levels in 1..=LEVELS {
            let span = self.span(levels);
            let end = rest.partition_point(|(logical, _)| *logical < first + span);
            let mut level: Vec<(u64, u64)> =
                rest.drain(..end).map(|(logical, block)| (logical - first, block)).collect();
            for _ in 0..levels {
                let mut above: Vec<(u64, u64)> = Vec::new();
                for part in level.chunk_by(|a, b| a.0 / per == b.0 / per) {
                    let mut data = vec![0; self.g.block_size as usize];
                    for (logical, block) in part {
                        put(&mut data, (logical % per) as usize, *block);
                    }
                    let Some(block) = self.node_block(spare, goal)? else { break };
                    self.view.write(block, &data);
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
}

/// Stores a pointer.
fn put(data: &mut [u8], index: usize, block: u64) {
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
