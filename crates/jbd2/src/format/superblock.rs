//! The journal's superblock.

use base::crc::crc32c;
use thiserror::Error;

use super::raw;
use super::{BlockType, Checksums, Compat, Header, Incompat, MAGIC};

/// Bytes of the superblock, whatever the block size.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// Fast commit blocks where the superblock names no number.
const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;
/// `s_checksum_type` of CRC-32C.
const CHECKSUM_TYPE_CRC32C: u8 = 4;
/// Where `s_checksum` lies.
const CHECKSUM_OFFSET: usize = 0xfc;
/// Users that fit into `s_users`.
const USERS_MAX: u32 = 48;

/// Why a superblock was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum SuperblockError {
    #[error("journal superblock has {0} bytes, 1024 are needed")]
    Short(usize),
    #[error("journal superblock has magic {found:#010x}, expected {MAGIC:#010x}")]
    Magic { found: u32 },
    #[error("journal superblock has block type {0}, expected 3 or 4")]
    BlockType(u32),
    #[error("journal superblock has checksum {found:#010x}, computed {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
    #[error("journal has checksum type {0}, only 4 (crc32c) is known")]
    ChecksumType(u8),
    #[error("journal has both checksum version 2 and 3")]
    TwoChecksums,
    #[error("journal has a block size of {0}, expected a power of two from 1024 to 65536")]
    BlockSize(u32),
    #[error(
        "journal has {maxlen} blocks, the log begins at {first}, {fast_commit} are for fast commits"
    )]
    Length { maxlen: u32, first: u32, fast_commit: u32 },
    #[error("journal's log starts at block {start}, outside of {first}..{end}")]
    Start { start: u32, first: u32, end: u32 },
    #[error("journal has {0} users, at most 48 are possible")]
    Users(u32),
    #[error("unsupported journal features: incompat {incompat:#x}, ro_compat {ro_compat:#x}")]
    Unsupported { incompat: u32, ro_compat: u32 },
}

/// A valid superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Version 1 has none of the fields from the features on.
    pub version: u8,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of the journal, the superblock's included.
    pub maxlen: u32,
    /// First block of the log.
    pub first: u32,
    /// Sequence number of the first transaction in the log, or of the next one where it is empty.
    pub sequence: u32,
    /// Log block of the first transaction; 0 where the log is empty.
    pub start: u32,
    /// Error of an abort, as a positive errno; 0 where there was none.
    pub errno: u32,
    /// Compatible features.
    pub compat: Compat,
    /// Incompatible features.
    pub incompat: Incompat,
    /// UUID: seeds the checksums.
    pub uuid: [u8; 16],
    /// Blocks at the end that belong to fast commits, where that feature is set; else 0.
    pub fast_commit_blocks: u32,
    /// Where the log ended at a clean shutdown (a hint that Linux 5.15 and later write).
    pub head: u32,
    /// UUIDs of the file systems that share an external journal.
    pub users: Vec<[u8; 16]>,
}

impl Superblock {
    /// A superblock for a new, empty, internal journal, as `mke2fs` makes it.
    pub fn new(block_size: u32, maxlen: u32, uuid: [u8; 16]) -> Superblock {
        Superblock {
            version: 2,
            block_size,
            maxlen,
            first: 1,
            sequence: 1,
            start: 0,
            errno: 0,
            compat: Compat::empty(),
            incompat: Incompat::empty(),
            uuid,
            fast_commit_blocks: 0,
            head: 0,
            users: vec![uuid],
        }
    }

    /// Checksums that the features ask for.
    pub fn checksums(&self) -> Checksums {
        if self.incompat.contains(Incompat::CSUM_V3) {
            Checksums::V3
        } else if self.incompat.contains(Incompat::CSUM_V2) {
            Checksums::V2
        } else if self.compat.contains(Compat::CHECKSUM) {
            Checksums::V1
        } else {
            Checksums::None
        }
    }

    /// Blocks that a journal's first block keeps for fast commits, whether or not the feature is
    /// set.
    pub(crate) fn fast_commit_blocks_of(bytes: &[u8]) -> u32 {
        match raw::view::<raw::Superblock>(bytes).map_or(0, |raw| raw.s_num_fc_blks.get()) {
            0 => FAST_COMMIT_BLOCKS_DEFAULT,
            blocks => blocks,
        }
    }

    /// Says in a journal's first block how many of the last ones are kept for fast commits. The
    /// feature is set when they are written.
    pub fn set_fast_commit_blocks(bytes: &mut [u8], blocks: u32) {
        let raw = raw::view_mut::<raw::Superblock>(bytes).expect("a block holds a superblock");
        raw.s_num_fc_blks.set(blocks);
    }

    /// One past the last block of the log: what follows belongs to fast commits.
    pub fn log_end(&self) -> u32 {
        self.maxlen - self.fast_commit_blocks
    }

    /// Reads the first 1024 bytes of a journal.
    ///
    /// # Errors
    /// The first failed check: length, magic, type, checksum, features, then bounds.
    pub fn parse(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let raw = raw::view::<raw::Superblock>(bytes).ok_or(SuperblockError::Short(bytes.len()))?;
        let version = parse_version(bytes, raw)?;
        let mut sb = Superblock {
            version,
            block_size: raw.s_blocksize.get(),
            maxlen: raw.s_maxlen.get(),
            first: raw.s_first.get(),
            sequence: raw.s_sequence.get(),
            start: raw.s_start.get(),
            errno: (raw.s_errno.get() as i32).unsigned_abs(),
            ..Superblock::new(0, 0, [0; 16])
        };
        sb.users.clear();
        if version == 2 {
            sb.parse_v2(bytes, raw)?;
        }
        sb.check_bounds()?;
        Ok(sb)
    }

    fn parse_v2(&mut self, bytes: &[u8], raw: &raw::Superblock) -> Result<(), SuperblockError> {
        let (incompat, ro_compat) = (raw.s_feature_incompat.get(), raw.s_feature_ro_compat.get());
        // Before any feature is trusted: one that we do not know might change what follows.
        if Incompat::from_bits(incompat).is_none() || ro_compat != 0 {
            return Err(SuperblockError::Unsupported { incompat, ro_compat });
        }
        self.incompat = Incompat::from_bits_truncate(incompat);
        self.compat = Compat::from_bits_retain(raw.s_feature_compat.get());
        self.uuid = raw.s_uuid;
        self.head = raw.s_head.get();
        if self.incompat.contains(Incompat::CSUM_V2 | Incompat::CSUM_V3) {
            return Err(SuperblockError::TwoChecksums);
        }
        if matches!(self.checksums(), Checksums::V2 | Checksums::V3) {
            if raw.s_checksum_type != CHECKSUM_TYPE_CRC32C {
                return Err(SuperblockError::ChecksumType(raw.s_checksum_type));
            }
            let (found, computed) = (raw.s_checksum.get(), checksum(bytes));
            if found != computed {
                return Err(SuperblockError::Checksum { found, computed });
            }
        }
        if self.incompat.contains(Incompat::FAST_COMMIT) {
            self.fast_commit_blocks = Superblock::fast_commit_blocks_of(bytes);
        }
        let users = raw.s_nr_users.get();
        if users > USERS_MAX {
            return Err(SuperblockError::Users(users));
        }
        let uuids = raw.s_users.chunks_exact(16).take(users as usize);
        self.users = uuids.map(|uuid| uuid.try_into().expect("chunks of 16")).collect();
        Ok(())
    }

    fn check_bounds(&self) -> Result<(), SuperblockError> {
        let Superblock { block_size, maxlen, first, start, .. } = *self;
        if !block_size.is_power_of_two() || !(1024..=65536).contains(&block_size) {
            return Err(SuperblockError::BlockSize(block_size));
        }
        let fast_commit = self.fast_commit_blocks;
        // At least one transaction of one block must fit: descriptor, block, commit, a spare one.
        let end = maxlen
            .checked_sub(fast_commit)
            .filter(|&end| first >= 1 && first.checked_add(4).is_some_and(|least| least <= end));
        let end = end.ok_or(SuperblockError::Length { maxlen, first, fast_commit })?;
        if start != 0 && !(first..end).contains(&start) {
            return Err(SuperblockError::Start { start, first, end });
        }
        Ok(())
    }

    /// [`emit`](Superblock::emit), with zeros in the places of users that are none any more.
    pub fn emit_users(&self, bytes: &mut [u8]) {
        let raw = raw::view_mut::<raw::Superblock>(bytes).expect("a block holds a superblock");
        raw.s_users.fill(0);
        self.emit(bytes);
    }

    /// Writes the fields that it owns over `bytes` and sets the checksum. The rest stays.
    ///
    /// # Panics
    /// Where `bytes` is shorter than 1024.
    pub fn emit(&self, bytes: &mut [u8]) {
        let kind = match self.version {
            1 => BlockType::SuperblockV1,
            _ => BlockType::SuperblockV2,
        };
        Header::emit(kind, 0, bytes);
        let raw = raw::view_mut::<raw::Superblock>(bytes).expect("a block holds a superblock");
        raw.s_blocksize.set(self.block_size);
        raw.s_maxlen.set(self.maxlen);
        raw.s_first.set(self.first);
        raw.s_sequence.set(self.sequence);
        raw.s_start.set(self.start);
        // Linux stores the negative number.
        raw.s_errno.set((self.errno as i32).wrapping_neg() as u32);
        if self.version == 1 {
            return;
        }
        raw.s_feature_compat.set(self.compat.bits());
        raw.s_feature_incompat.set(self.incompat.bits());
        raw.s_uuid = self.uuid;
        raw.s_head.set(self.head);
        let fast_commit = self.incompat.contains(Incompat::FAST_COMMIT);
        // 0 stays where it means the same.
        let kept = raw.s_num_fc_blks.get() == 0;
        if fast_commit && !(kept && self.fast_commit_blocks == FAST_COMMIT_BLOCKS_DEFAULT) {
            raw.s_num_fc_blks.set(self.fast_commit_blocks);
        }
        raw.s_nr_users.set(self.users.len() as u32);
        for (place, uuid) in raw.s_users.chunks_exact_mut(16).zip(&self.users) {
            place.copy_from_slice(uuid);
        }
        let summed = matches!(self.checksums(), Checksums::V2 | Checksums::V3);
        raw.s_checksum_type = if summed { CHECKSUM_TYPE_CRC32C } else { 0 };
        raw.s_checksum.set(0);
        if summed {
            let sum = checksum(bytes);
            bytes[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

fn parse_version(bytes: &[u8], raw: &raw::Superblock) -> Result<u8, SuperblockError> {
    let header =
        Header::parse(bytes).ok_or(SuperblockError::Magic { found: raw.s_header.h_magic.get() })?;
    match header.kind {
        Ok(BlockType::SuperblockV1) => Ok(1),
        Ok(BlockType::SuperblockV2) => Ok(2),
        Ok(other) => Err(SuperblockError::BlockType(other.number())),
        Err(number) => Err(SuperblockError::BlockType(number)),
    }
}

/// CRC-32C over the 1024 bytes with the checksum's own place taken as zero.
fn checksum(bytes: &[u8]) -> u32 {
    let sum = crc32c(!0, &bytes[..CHECKSUM_OFFSET]);
    crc32c(crc32c(sum, &[0; 4]), &bytes[CHECKSUM_OFFSET + 4..SUPERBLOCK_SIZE])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is emitted is parsed, and bytes that we do not own stay.
        #[test]
        fn emit_then_parse(
            shift in 10u32..17,
            maxlen in 16u32..1 << 20,
            start in 0u32..1 << 20,
            (sequence, errno, head) in (any::<u32>(), 0u32..133, any::<u32>()),
            (compat, incompat) in (0u32..2, 0u32..0x40),
            uuid in any::<[u8; 16]>(),
            users in proptest::collection::vec(any::<[u8; 16]>(), 0..48),
            rest in any::<u8>(),
        ) {
            let incompat = Incompat::from_bits_retain(incompat);
            prop_assume!(!incompat.contains(Incompat::CSUM_V2 | Incompat::CSUM_V3));
            let fast_commit = incompat.contains(Incompat::FAST_COMMIT);
            let sb = Superblock {
                start: start % (maxlen - 8),
                sequence,
                errno,
                head,
                compat: Compat::from_bits_retain(compat),
                incompat,
                users,
                fast_commit_blocks: if fast_commit { 7 } else { 0 },
                ..Superblock::new(1 << shift, maxlen, uuid)
            };
            let mut bytes = [rest; 1024];
            // Read-only compatible features would be refused.
            bytes[0x2c..0x30].fill(0);
            sb.emit(&mut bytes);
            prop_assert_eq!(Superblock::parse(&bytes).unwrap(), sb);
            prop_assert_eq!(bytes[0x60], rest, "padding is preserved");
        }

        /// Any bytes give an answer.
        #[test]
        fn parse_anything(bytes in proptest::collection::vec(any::<u8>(), 0..1100)) {
            let _ = Superblock::parse(&bytes);
        }
    }

    #[test]
    fn every_check_has_its_error() {
        let good =
            Superblock { incompat: Incompat::CSUM_V3, ..Superblock::new(4096, 4096, [3; 16]) };
        let mut bytes = [0; 1024];
        good.emit(&mut bytes);
        let parse = |at: usize, value: u32| {
            let mut bytes = bytes;
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
            // Where the checksum is not what is tested, it is made right.
            if at != 0xfc {
                let sum = checksum(&bytes);
                bytes[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
            }
            Superblock::parse(&bytes).unwrap_err()
        };
        assert_eq!(Superblock::parse(&bytes[..1000]).unwrap_err(), SuperblockError::Short(1000));
        assert_eq!(parse(0, 7), SuperblockError::Magic { found: 7 });
        assert_eq!(parse(4, 1), SuperblockError::BlockType(1));
        assert_eq!(parse(4, 9), SuperblockError::BlockType(9));
        assert_eq!(parse(0x0c, 3000), SuperblockError::BlockSize(3000));
        let length = SuperblockError::Length { maxlen: 4, first: 1, fast_commit: 0 };
        assert_eq!(parse(0x10, 4), length);
        let length = SuperblockError::Length { maxlen: 4096, first: 0, fast_commit: 0 };
        assert_eq!(parse(0x14, 0), length);
        let start = SuperblockError::Start { start: 4096, first: 1, end: 4096 };
        assert_eq!(parse(0x1c, 4096), start);
        assert_eq!(parse(0x28, 0x18), SuperblockError::TwoChecksums);
        let unknown = SuperblockError::Unsupported { incompat: 0x110, ro_compat: 0 };
        assert_eq!(parse(0x28, 0x110), unknown);
        assert!(matches!(parse(0x2c, 1), SuperblockError::Unsupported { ro_compat: 1, .. }));
        assert_eq!(parse(0x50, 1 << 24), SuperblockError::ChecksumType(1));
        assert_eq!(parse(0x40, 49), SuperblockError::Users(49));
        assert!(matches!(parse(0xfc, 1), SuperblockError::Checksum { found: 1, .. }));
    }
}
