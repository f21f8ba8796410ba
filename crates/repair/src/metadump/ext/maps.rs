//! The blocks that map a file, as far as they can be followed.

use std::collections::BTreeSet;

use base::Ino;
use ext4::format::checksum::{extent_tail, stored_extent_block};
use ext4::format::extent::{FileRun, Node};
use ext4::format::{At, InodeFlags, InodeValues};

use super::Dump;
use crate::metadump::DumpError;
use crate::volume::map::{slots, word};

impl Dump<'_> {
    /// Passes on the blocks that map a file; the runs of those that hold metadata.
    pub fn map(&mut self, ino: u32, values: &InodeValues) -> Result<Vec<FileRun>, DumpError> {
        match values.flags.contains(InodeFlags::EXTENTS) {
            true => self.extents(ino, values),
            false => self.pointers(ino, values),
        }
    }

    fn extents(&mut self, ino: u32, values: &InodeValues) -> Result<Vec<FileRun>, DumpError> {
        let at = At::Inode(Ino(ino.into()));
        let (mut runs, mut seen, mut todo) = (Vec::new(), BTreeSet::new(), Vec::new());
        let Ok(root) = Node::parse(&values.block, None, at) else { return Ok(runs) };
        self.take(&root, &mut runs, &mut todo);
        let seed = self.seed(ino, values);
        while let Some((block, depth)) = todo.pop() {
            if !self.g.data_blocks_valid(block, 1) || !seen.insert(block) {
                self.out.leave_out(format!("{at}: a node of its extents at block {block}"));
                continue;
            }
            let mut data = self.view.read(block)?;
            let Ok(node) = Node::parse(&data, Some(depth), at) else {
                match self.out.keeps_names() {
                    true => self.put(block, &data)?,
                    false => self.out.leave_out(format!("{at}: no node of extents at {block}")),
                }
                continue;
            };
            self.take(&node, &mut runs, &mut todo);
            let used = 12 + 12 * node.len();
            let sound = stored_extent_block(&data) == seed.extent_block(&data);
            match extent_tail(&data) {
                Some(tail) if tail >= used => {
                    data[used..tail].fill(0);
                    data[tail + 4..].fill(0);
                }
                _ => data[used..].fill(0),
            }
            if sound && self.g.checksums.metadata {
                seed.set_extent_block(&mut data);
            }
            self.put(block, &data)?;
        }
        runs.sort_by_key(|run: &FileRun| run.logical);
        Ok(runs)
    }

    /// The entries of a node that can be followed.
    fn take(&self, node: &Node<'_>, runs: &mut Vec<FileRun>, todo: &mut Vec<(u64, u16)>) {
        if node.depth() > 0 {
            todo.extend(node.indexes().rev().map(|index| (index.leaf, node.depth() - 1)));
            return;
        }
        for extent in node.extents() {
            let (logical, len) = (u64::from(extent.block), u64::from(extent.len));
            let (start, unwritten) = (extent.start, extent.unwritten);
            if self.g.data_blocks_valid(start, len) && !unwritten {
                FileRun { logical, start, len, unwritten }.join(runs);
            }
        }
    }

    fn pointers(&mut self, ino: u32, values: &InodeValues) -> Result<Vec<FileRun>, DumpError> {
        let per = u64::from(self.g.block_size / 4);
        let (mut runs, mut seen, mut todo) = (Vec::new(), BTreeSet::new(), slots(values, per));
        while let Some((block, levels, logical)) = todo.pop() {
            if block == 0 || !self.g.data_blocks_valid(block, 1) {
                continue;
            }
            if levels == 0 {
                FileRun { logical, start: block, len: 1, unwritten: false }.join(&mut runs);
                continue;
            }
            let data = self.view.read(block)?;
            let all = self.g.blocks_count;
            let pointers = (0..per).map(|index| word(&data, index as usize));
            // Text that lies here by mistake names blocks that cannot be.
            let valid = pointers.clone().all(|block| block < all) && seen.insert(block);
            if !valid && !self.out.keeps_names() {
                self.out.leave_out(format!("inode {ino}: no block of pointers at {block}"));
                continue;
            }
            let span = per.pow(levels - 1);
            if valid {
                let below = pointers
                    .zip(0..)
                    .map(|(block, index)| (block, levels - 1, logical + index * span));
                let mut below: Vec<_> = below.filter(|place| place.0 != 0).collect();
                below.reverse();
                todo.append(&mut below);
            }
            self.put(block, &data)?;
        }
        Ok(runs)
    }
}
