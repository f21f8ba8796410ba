//! The journal's format on disk, apart from all policy: pure functions over bytes.
//!
//! All numbers are big-endian. A journal is a sequence of blocks: the superblock, then a circular
//! log of transactions. A transaction is revoke blocks, then descriptor blocks, each followed by
//! the blocks that its tags describe, then one commit block. Everything but the described blocks
//! begins with the magic, a type and the transaction's sequence number.
//!
//! Source: kernel `Documentation/filesystems/ext4/journal.rst`, and observation of `mke2fs`,
//! `debugfs logdump` and journals that the kernel wrote.

pub mod commit;
pub mod descriptor;
pub mod fast_commit;
pub mod raw;
pub mod revoke;
pub mod superblock;

use base::crc::crc32c;

pub use commit::CommitBlock;
pub use descriptor::{Tag, TagLayout};
pub use superblock::{Superblock, SuperblockError};

/// First four bytes of every block that the journal itself owns.
pub const MAGIC: u32 = 0xC03B_3998;

/// What a block with the magic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// Describes the blocks that follow.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// Superblock of the first version, without features.
    SuperblockV1,
    /// Superblock.
    SuperblockV2,
    /// Lists blocks that must not be replayed.
    Revoke,
}

impl BlockType {
    /// The number on disk.
    pub fn number(self) -> u32 {
        match self {
            BlockType::Descriptor => 1,
            BlockType::Commit => 2,
            BlockType::SuperblockV1 => 3,
            BlockType::SuperblockV2 => 4,
            BlockType::Revoke => 5,
        }
    }

    /// The type with that number, if there is one.
    pub fn from_number(number: u32) -> Option<BlockType> {
        Some(match number {
            1 => BlockType::Descriptor,
            2 => BlockType::Commit,
            3 => BlockType::SuperblockV1,
            4 => BlockType::SuperblockV2,
            5 => BlockType::Revoke,
            _ => return None,
        })
    }
}

/// The parsed first twelve bytes of a journal block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the block is; a number that nobody has defined is kept for the report.
    pub kind: Result<BlockType, u32>,
    /// Sequence number of the transaction.
    pub sequence: u32,
}

impl Header {
    /// Reads the header, or `None` where the magic is missing or the block too short.
    pub fn parse(block: &[u8]) -> Option<Header> {
        let raw = raw::view::<raw::Header>(block)?;
        (raw.h_magic.get() == MAGIC).then(|| Header {
            kind: BlockType::from_number(raw.h_blocktype.get()).ok_or(raw.h_blocktype.get()),
            sequence: raw.h_sequence.get(),
        })
    }

    /// Writes the header at the front of `block`.
    ///
    /// # Panics
    /// Where the block has less than 12 bytes.
    pub fn emit(kind: BlockType, sequence: u32, block: &mut [u8]) {
        let raw = raw::view_mut::<raw::Header>(block).expect("a block holds a header");
        raw.h_magic.set(MAGIC);
        raw.h_blocktype.set(kind.number());
        raw.h_sequence.set(sequence);
    }
}

bitflags::bitflags! {
    /// Compatible features of a journal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Compat: u32 {
        /// Commit blocks carry a CRC-32 over the transaction (checksum version 1).
        const CHECKSUM = 0x1;
    }
}

bitflags::bitflags! {
    /// Incompatible features of a journal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Incompat: u32 {
        /// There may be revoke blocks.
        const REVOKE = 0x1;
        /// Block numbers have 64 bits.
        const BIT64 = 0x2;
        /// The commit block may be written before the blocks it ends.
        const ASYNC_COMMIT = 0x4;
        /// CRC-32C everywhere, 16 bits of it per described block.
        const CSUM_V2 = 0x8;
        /// CRC-32C everywhere, whole per described block.
        const CSUM_V3 = 0x10;
        /// The last blocks of the area hold fast commits.
        const FAST_COMMIT = 0x20;
    }
}

/// The checksums that a journal's features ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Checksums {
    /// None.
    #[default]
    None,
    /// One CRC-32 over a transaction, in its commit block.
    V1,
    /// CRC-32C per block, 16 bits in a tag.
    V2,
    /// CRC-32C per block, 32 bits in a tag.
    V3,
}

/// What is needed to read and write the blocks of one journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a block.
    pub block_size: u32,
    /// Checksums in use.
    pub checksums: Checksums,
    /// 64-bit block numbers.
    pub bit64: bool,
    /// Seed of all CRC-32C of this journal: that of its UUID.
    pub seed: u32,
    /// The journal's UUID, which follows the first tag of a descriptor.
    pub uuid: [u8; 16],
}

impl Layout {
    /// The layout that a superblock describes.
    pub fn new(sb: &Superblock) -> Layout {
        Layout {
            block_size: sb.block_size,
            checksums: sb.checksums(),
            bit64: sb.incompat.contains(Incompat::BIT64),
            seed: crc32c(!0, &sb.uuid),
            uuid: sb.uuid,
        }
    }

    /// True where descriptor and revoke blocks end with a checksum.
    pub fn has_tail(&self) -> bool {
        matches!(self.checksums, Checksums::V2 | Checksums::V3)
    }

    /// Bytes at the end of descriptor and revoke blocks that hold their checksum.
    pub fn tail_len(&self) -> usize {
        if self.has_tail() { 4 } else { 0 }
    }

    /// Puts the checksum into the tail of a descriptor or revoke block, where there is one.
    pub fn set_tail(&self, block: &mut [u8]) {
        if !self.has_tail() {
            return;
        }
        let at = block.len() - 4;
        block[at..].fill(0);
        let sum = crc32c(self.seed, block);
        block[at..].copy_from_slice(&sum.to_be_bytes());
    }

    /// Compares the tail of a descriptor or revoke block: `Err((found, computed))`.
    pub fn verify_tail(&self, block: &[u8]) -> Result<(), (u32, u32)> {
        if !self.has_tail() {
            return Ok(());
        }
        let (body, tail) = block.split_at(block.len() - 4);
        let found = u32::from_be_bytes(tail.try_into().expect("a tail of four bytes"));
        let computed = crc32c(crc32c(self.seed, body), &[0; 4]);
        if found == computed { Ok(()) } else { Err((found, computed)) }
    }

    /// Checksum of a described block as it stands in the log (after escaping), whole.
    pub fn block_checksum(&self, sequence: u32, logged: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &sequence.to_be_bytes()), logged)
    }
}

/// True where a block's content begins with the magic, so that it must be escaped in the log.
pub fn must_escape(content: &[u8]) -> bool {
    content.starts_with(&MAGIC.to_be_bytes())
}
