//! The superblock's copy of how the journal's inode is mapped: a repair takes it where that inode
//! is damaged.

use super::checksum::u32_at;
use super::inode::BLOCK_AREA;
use super::{InodeValues, RawSuper};

/// `s_jnl_backup_type`: the superblock holds a copy of the journal's map and size.
const BACKUP_BLOCKS: u8 = 1;

impl RawSuper {
    /// Keeps a copy of how the journal's inode is mapped, for repair.
    pub fn keep_journal(&mut self, values: &InodeValues) {
        self.s_jnl_backup_type = BACKUP_BLOCKS;
        for (word, bytes) in self.s_jnl_blocks.iter_mut().zip(values.block.chunks_exact(4)) {
            word.set(u32_at(bytes, 0));
        }
        self.s_jnl_blocks[15].set((values.size >> 32) as u32);
        self.s_jnl_blocks[16].set(values.size as u32);
    }

    /// The journal in the file system is gone, and the copy of its map with it.
    pub fn forget_journal(&mut self) {
        self.s_journal_inum.set(0);
        self.s_jnl_backup_type = 0;
        self.s_jnl_blocks = Default::default();
    }

    /// Map and size of the journal's inode, as the superblock keeps them.
    pub fn kept_journal(&self) -> Option<([u8; BLOCK_AREA], u64)> {
        let words = self.s_jnl_blocks.map(|word| word.get());
        let mut block = [0; BLOCK_AREA];
        for (bytes, word) in block.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let size = u64::from(words[16]) | u64::from(words[15]) << 32;
        (self.s_jnl_backup_type == BACKUP_BLOCKS).then_some((block, size))
    }
}
