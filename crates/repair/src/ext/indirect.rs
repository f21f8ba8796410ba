//! Indirect blocks: the map of ext2 and ext3.

use std::collections::BTreeSet;

use block::DeviceError;
use ext4::format::InodeValues;

use super::Fs;
use super::map::Map;
use ext4::format::extent::FileRun;

/// Slots of `i_block`.
const SLOTS: u64 = 15;
/// Slots that name data.
const DIRECT: u64 = 12;

/// A pointer that waits for its visit.
struct Visit {
    block: u64,
    levels: u32,
    logical: u64,
}

/// A word of a block of pointers.
fn pointer(data: &[u8], index: usize) -> u64 {
    let bytes = data[index * 4..index * 4 + 4].try_into().expect("four bytes");
    u32::from_le_bytes(bytes).into()
}

impl Fs<'_> {
    /// Logical blocks that a pointer with `levels` blocks of pointers below it reaches.
    pub(super) fn span(&self, levels: u32) -> u64 {
        u64::from(self.g.block_size / 4).pow(levels)
    }

    /// Follows the pointers of an inode.
    ///
    /// # Errors
    /// The device's.
    pub fn indirect_map(&mut self, values: &InodeValues) -> Result<Map, DeviceError> {
        let mut map = Map::default();
        let mut seen = BTreeSet::new();
        let mut todo = Vec::new();
        let mut logical = 0;
        for slot in 0..SLOTS {
            let levels = slot.saturating_sub(DIRECT - 1) as u32;
            todo.push(Visit { block: pointer(&values.block, slot as usize), levels, logical });
            logical += self.span(levels);
        }
        todo.reverse();
        while let Some(visit) = todo.pop() {
            let Visit { block, levels, logical } = visit;
            if block == 0 {
                continue;
            }
            if !self.in_range(block..block + 1) {
                map.wrong(format!("a pointer names block {block}"), self.span(levels).min(1));
                continue;
            }
            if levels == 0 {
                map.push(FileRun { logical, start: block, len: 1, unwritten: false });
                continue;
            }
            if self.meta.get(block) || !seen.insert(block) {
                map.wrong(format!("block {block} cannot be a block of pointers"), 0);
                continue;
            }
            let mut content = self.pointers(block)?;
            let per = (self.g.block_size / 4) as usize;
            if !self.may_be_pointers(&content)
                && let Some(copy) = self.old_pointers(block)?
            {
                map.restored.push((block, copy.clone()));
                content = copy;
            }
            // A block that is full of nonsense was never one of pointers.
            if !self.may_be_pointers(&content) {
                map.wrong(format!("block {block} is no block of pointers"), 0);
                continue;
            }
            map.nodes.push(block);
            let span = self.span(levels - 1);
            for index in (0..per).rev() {
                let block = pointer(&content, index);
                if block != 0 {
                    let logical = logical + index as u64 * span;
                    todo.push(Visit { block, levels: levels - 1, logical });
                }
            }
        }
        Ok(map)
    }

    /// Are most of the words numbers of blocks?
    /// A block of pointers; of a removed inode the newest version that has any.
    fn pointers(&mut self, block: u64) -> Result<Vec<u8>, DeviceError> {
        if !self.of_deleted {
            return self.view.read(block);
        }
        let mut versions = self.versions(block)?;
        let full = versions.iter().position(|(data, _)| data.iter().any(|&byte| byte != 0));
        Ok(versions.swap_remove(full.unwrap_or(0)).0)
    }

    fn may_be_pointers(&self, data: &[u8]) -> bool {
        let words = (0..data.len() / 4).map(|index| pointer(data, index));
        let (mut all, mut bad) = (0, 0);
        for to in words.filter(|&to| to != 0) {
            all += 1;
            bad += u32::from(!self.in_range(to..to + 1));
        }
        all > 0 && bad * 2 <= all
    }

    /// The journal's newest copy of a block of pointers.
    fn old_pointers(&mut self, block: u64) -> Result<Option<Vec<u8>>, DeviceError> {
        let g = self.g.clone();
        let valid = |to: u64| to == 0 || g.data_blocks_valid(to, 1);
        let sound = |data: &[u8]| {
            let mut words = (0..data.len() / 4).map(|index| pointer(data, index));
            words.clone().any(|to| to != 0) && words.all(valid)
        };
        Ok(self.old_copy(block, sound)?.map(|(copy, _)| copy))
    }
}
