//! Commit blocks: the end of a transaction.

use base::Timespec;
use base::crc::crc32c;

use super::raw;
use super::{BlockType, Checksums, Header, Layout};

/// `h_chksum_type` of CRC-32 (checksum version 1).
const TYPE_CRC32: u8 = 1;
/// `h_chksum_size` that goes with it.
const SIZE_CRC32: u8 = 4;
/// Where `h_chksum[0]` lies.
const CHECKSUM_OFFSET: usize = 16;

/// What a commit block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitBlock {
    /// Wall clock at the commit.
    pub time: Timespec,
    /// CRC-32 over the transaction's descriptors and blocks, with checksum version 1.
    pub transaction_crc: Option<u32>,
}

impl CommitBlock {
    /// Writes the block and its own checksum.
    pub fn emit(&self, layout: &Layout, sequence: u32, block: &mut [u8]) {
        block.fill(0);
        Header::emit(BlockType::Commit, sequence, block);
        let raw = raw::view_mut::<raw::Commit>(block).expect("a block holds it");
        raw.h_commit_sec.set(self.time.sec as u64);
        raw.h_commit_nsec.set(self.time.nsec);
        if let Some(crc) = self.transaction_crc {
            raw.h_chksum_type = TYPE_CRC32;
            raw.h_chksum_size = SIZE_CRC32;
            raw.h_chksum[0].set(crc);
        }
        if layout.has_tail() {
            let sum = crc32c(layout.seed, block);
            block[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Reads the block; `None` where it is too short. Its own checksum is not looked at.
    pub fn parse(layout: &Layout, block: &[u8]) -> Option<CommitBlock> {
        let raw = raw::view::<raw::Commit>(block)?;
        let summed = layout.checksums == Checksums::V1
            && raw.h_chksum_type == TYPE_CRC32
            && raw.h_chksum_size == SIZE_CRC32;
        Some(CommitBlock {
            time: Timespec { sec: raw.h_commit_sec.get() as i64, nsec: raw.h_commit_nsec.get() },
            transaction_crc: summed.then(|| raw.h_chksum[0].get()),
        })
    }

    /// Compares the block's own checksum (versions 2 and 3): `Err((found, computed))`.
    pub fn verify(layout: &Layout, block: &[u8]) -> Result<(), (u32, u32)> {
        if !layout.has_tail() {
            return Ok(());
        }
        let (before, rest) = block.split_at(CHECKSUM_OFFSET);
        let (field, after) = rest.split_at(4);
        let found = u32::from_be_bytes(field.try_into().expect("four bytes"));
        let computed = crc32c(crc32c(crc32c(layout.seed, before), &[0; 4]), after);
        if found == computed { Ok(()) } else { Err((found, computed)) }
    }

    /// True where the checksum fields are all zero: a journal with version 1 whose transaction was
    /// written before the feature was set.
    pub fn unsummed(block: &[u8]) -> bool {
        raw::view::<raw::Commit>(block).is_some_and(|raw| {
            raw.h_chksum_type == 0 && raw.h_chksum_size == 0 && raw.h_chksum[0].get() == 0
        })
    }
}
