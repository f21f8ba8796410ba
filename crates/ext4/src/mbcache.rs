//! Attribute blocks and values that inodes may share, by the hash of their content (Linux:
//! `mbcache`).

use std::collections::BTreeMap;

/// How many blocks, and inodes, are remembered as candidates for sharing.
const SHARED_LIMIT: usize = 4096;

/// What was written or read lately, by the hash of its content: where an inode gets the same
/// attributes it uses the same block, and where an entry gets the same value the same inode.
#[derive(Default)]
pub(crate) struct SharedBlocks {
    /// Attribute blocks.
    pub blocks: ByHash,
    /// Inodes of large values.
    pub values: ByHash,
}

/// Numbers of blocks or inodes by a hash.
#[derive(Default)]
pub(crate) struct ByHash {
    by_hash: BTreeMap<u32, Vec<u64>>,
    count: usize,
}

impl ByHash {
    pub fn insert(&mut self, hash: u32, number: u64) {
        if self.count >= SHARED_LIMIT {
            self.by_hash.clear();
            self.count = 0;
        }
        let numbers = self.by_hash.entry(hash).or_default();
        if !numbers.contains(&number) {
            numbers.push(number);
            self.count += 1;
        }
    }

    pub fn remove(&mut self, hash: u32, number: u64) {
        let Some(numbers) = self.by_hash.get_mut(&hash) else { return };
        let before = numbers.len();
        numbers.retain(|&other| other != number);
        self.count -= before - numbers.len();
        if numbers.is_empty() {
            self.by_hash.remove(&hash);
        }
    }

    pub fn candidates(&self, hash: u32) -> Vec<u64> {
        self.by_hash.get(&hash).cloned().unwrap_or_default()
    }
}
