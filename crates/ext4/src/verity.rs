//! What is known in memory of a file with verity; `file::verity` finds it on the disk.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use base::Errno;
use base::map::HashMap;
use rt::SpinLock;

use crate::format::verity::{Descriptor, Levels};

/// Verified blocks of a tree, by level and number.
type TreeBlocks = HashMap<(usize, u64), Arc<[u8]>>;

/// That an inode has verity, and what is known of it since it was first looked at.
#[derive(Debug, Default)]
pub(crate) struct InodeVerity(OnceLock<Result<Verity, Errno>>);

/// The tree of one file.
#[derive(Debug)]
pub(crate) struct Verity {
    pub descriptor: Descriptor,
    pub levels: Levels,
    pub blocks: SpinLock<TreeBlocks>,
    /// The hash of a block of zeros.
    zeros: OnceLock<Vec<u8>>,
}

impl InodeVerity {
    /// What was found, or why nothing was; `None` before the first look.
    pub fn found(&self) -> Option<Result<&Verity, Errno>> {
        self.0.get().map(|found| found.as_ref().map_err(|errno| *errno))
    }

    /// Keeps what was found, unless somebody was faster.
    pub fn keep(&self, found: Result<Verity, Errno>) -> Result<&Verity, Errno> {
        self.0.get_or_init(|| found).as_ref().map_err(|errno| *errno)
    }

    /// Compares content at byte `offset`, whole blocks, with hashes that are at hand.
    ///
    /// # Errors
    /// Where it begins to differ.
    pub fn compare(&self, offset: u64, bytes: &mut [u8]) -> Result<(), u64> {
        match self.found() {
            Some(Ok(verity)) => verity.compare(offset, bytes),
            _ => Err(offset),
        }
    }
}

impl Verity {
    pub fn new(descriptor: Descriptor, levels: Levels) -> Verity {
        let blocks = SpinLock::named("verity", TreeBlocks::default());
        Verity { descriptor, levels, blocks, zeros: OnceLock::new() }
    }

    pub fn block_size(&self) -> u64 {
        self.descriptor.params.block_size.into()
    }

    /// Hashes in a block of the tree.
    pub fn per_block(&self) -> u64 {
        self.block_size() / self.descriptor.params.alg.size() as u64
    }

    /// The numbers of the content's blocks in a range of bytes.
    pub fn numbers(&self, bytes: Range<u64>) -> Range<u64> {
        let end = bytes.end.min(self.descriptor.data_size).div_ceil(self.block_size());
        bytes.start / self.block_size()..end
    }

    /// The hash of a block of zeros.
    pub fn zeros(&self) -> &[u8] {
        self.zeros.get_or_init(|| {
            self.descriptor.params.hash(&vec![0; self.descriptor.params.block_size as usize])
        })
    }

    /// The hash that block `number` of the content must have, if it is at hand.
    pub fn expected(&self, number: u64) -> Option<Vec<u8>> {
        if self.levels.get(0).is_none() {
            return Some(self.descriptor.root_hash.clone());
        }
        let block = self.blocks.lock_irq().get(&(0, number / self.per_block())).cloned()?;
        Some(self.hash_in(&block, number).to_vec())
    }

    /// The hash of block `number` of the level below, in a block of the tree.
    pub fn hash_in<'a>(&self, block: &'a [u8], number: u64) -> &'a [u8] {
        let size = self.descriptor.params.alg.size();
        &block[(number % self.per_block()) as usize * size..][..size]
    }

    fn compare(&self, offset: u64, bytes: &mut [u8]) -> Result<(), u64> {
        let size = self.descriptor.data_size;
        let numbers = self.numbers(offset..offset + bytes.len() as u64);
        for (number, block) in numbers.zip(bytes.chunks_exact_mut(self.block_size() as usize)) {
            let at = number * self.block_size();
            if at + block.len() as u64 > size {
                // Nobody sees what the device has behind the end.
                block[(size - at) as usize..].fill(0);
            }
            let expected = self.expected(number);
            if expected.as_deref() != Some(&self.descriptor.params.hash(block)) {
                return Err(at);
            }
        }
        Ok(())
    }
}
