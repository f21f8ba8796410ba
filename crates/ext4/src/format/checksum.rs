//! Metadata checksums: CRC-32C of `metadata_csum`, CRC-16 of `uninit_bg`.
//!
//! Every structure's checksum is computed with its own checksum field taken as zero (or left out),
//! and starts from a seed that names *which* file system, inode or block it belongs to, so that a
//! misdirected write is noticed.
//!
//! Source: kernel `Documentation/filesystems/ext4/checksums.rst`; details observed with debugfs.

use base::Ino;
use base::crc::{crc16, crc32c};
use zerocopy::FromBytes;

use super::features::Incompat;
use super::{Features, RawSuper};

/// Bytes of the checksum tail of a directory block.
pub const DIR_TAIL_SIZE: usize = 12;
/// The `file type` by which a directory block's tail is known.
pub const DIR_TAIL_FILE_TYPE: u8 = 0xde;
/// Bytes of the tail of a hash tree node.
pub const HTREE_TAIL_SIZE: usize = 8;
/// Bytes of the tail of an extent block.
pub const EXTENT_TAIL_SIZE: usize = 4;
/// Where `s_checksum` lies in the superblock.
const SUPER_CHECKSUM: usize = 0x3fc;
/// Where `bg_checksum` lies in a group descriptor.
const GROUP_CHECKSUM: usize = 0x1e;
/// Bytes of a group descriptor at the most, as mke2fs makes them.
const GROUP_DESC_USUAL: usize = 64;
/// Where the low half of an inode's checksum lies, `l_i_checksum_lo`.
pub const INODE_CHECKSUM_LO: usize = 0x7c;
/// Where the high half lies in slots that have it, `i_checksum_hi`.
pub const INODE_CHECKSUM_HI: usize = 0x82;
/// Bytes of an inode's slot on usual file systems.
const INODE_USUAL: usize = 256;
/// Where `h_checksum` lies in an attribute block.
const XATTR_CHECKSUM: usize = 0x10;

/// The checksum of a superblock over its first 1020 bytes.
///
/// # Panics
/// Where `bytes` is shorter than a superblock.
pub fn super_block(bytes: &[u8]) -> u32 {
    crc32c(!0, &bytes[..SUPER_CHECKSUM])
}

/// How the structures of one file system are checksummed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checksums {
    /// `metadata_csum` is set: every structure carries a CRC-32C.
    pub metadata: bool,
    /// `uninit_bg` is set (and `metadata_csum` is not): group descriptors carry a CRC-16.
    pub group_crc16: bool,
    /// The file system's seed: of its UUID, or `s_checksum_seed` with `metadata_csum_seed`.
    pub seed: u32,
    uuid: [u8; 16],
}

/// A seed for the structures of one inode: file system, inode number and generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeSeed(pub u32);

impl Checksums {
    /// The checksums that these features and this superblock ask for.
    pub fn new(raw: &RawSuper, features: &Features) -> Checksums {
        let seed = if features.incompat.contains(Incompat::CSUM_SEED) {
            raw.s_checksum_seed.get()
        } else {
            uuid_seed(&raw.s_uuid)
        };
        let metadata = features.metadata_csum();
        Checksums {
            metadata,
            group_crc16: !metadata && features.group_csum(),
            seed,
            uuid: raw.s_uuid,
        }
    }

    /// A group descriptor's checksum, of the form that the file system uses; 0 where it uses none.
    ///
    /// `desc` is the whole descriptor (`s_desc_size` bytes).
    pub fn group_desc(&self, group: u32, desc: &[u8]) -> u16 {
        let (head, rest) = (&desc[..GROUP_CHECKSUM], &desc[GROUP_CHECKSUM + 2..]);
        let number = group.to_le_bytes();
        if self.metadata {
            let mut copy = [0; 4 + GROUP_DESC_USUAL];
            let Some(copy) = copy.get_mut(..4 + desc.len()) else {
                let crc = crc32c(crc32c(self.seed, &number), head);
                return crc32c(crc32c(crc, &[0; 2]), rest) as u16;
            };
            // One pass over a copy is half the work of four over the pieces.
            copy[..4].copy_from_slice(&number);
            copy[4..].copy_from_slice(desc);
            copy[4 + GROUP_CHECKSUM..][..2].fill(0);
            crc32c(self.seed, copy) as u16
        } else if self.group_crc16 {
            crc16(crc16(crc16(crc16(!0, &self.uuid), &number), head), rest)
        } else {
            0
        }
    }

    /// A bitmap's checksum; `bits` is the number of clusters or of inodes per group. A descriptor
    /// of 32 bytes keeps only the low half.
    pub fn bitmap(&self, bitmap: &[u8], bits: u32) -> u32 {
        crc32c(self.seed, &bitmap[..bits as usize / 8])
    }

    /// The seed for the structures of this inode.
    pub fn inode_seed(&self, ino: Ino, generation: u32) -> InodeSeed {
        // The number, then the generation, as one word: a call for each costs three times as much.
        let word = u64::from(ino.0 as u32) | u64::from(generation) << 32;
        InodeSeed(crc32c(self.seed, &word.to_le_bytes()))
    }

    /// An attribute block's checksum; it depends on where the block lies.
    pub fn xattr_block(&self, block: u64, data: &[u8]) -> u32 {
        let crc = crc32c(self.seed, &block.to_le_bytes());
        let crc = crc32c(crc32c(crc, &data[..XATTR_CHECKSUM]), &[0; 4]);
        crc32c(crc, &data[XATTR_CHECKSUM + 4..])
    }
}

/// The seed that a UUID gives, which is also the value that `metadata_csum_seed` stores at mkfs.
pub fn uuid_seed(uuid: &[u8; 16]) -> u32 {
    crc32c(!0, uuid)
}

/// Empties the checksum fields of an inode's slot; the second one where `high` says that it is one.
pub fn clear_inode(slot: &mut [u8], high: bool) {
    slot[INODE_CHECKSUM_LO..][..2].fill(0);
    if high {
        slot[INODE_CHECKSUM_HI..][..2].fill(0);
    }
}

impl InodeSeed {
    /// The inode's checksum over its whole slot, checksum fields taken as zero. The high half is
    /// stored where the extra size covers `i_checksum_hi` ([`inode_has_high`]).
    pub fn inode(self, slot: &[u8]) -> u32 {
        let high = inode_has_high(slot);
        let mut copy = [0; INODE_USUAL];
        let crc = if let Some(copy) = copy.get_mut(..slot.len()) {
            // One pass over a copy is half the work of seven over the pieces.
            copy.copy_from_slice(slot);
            clear_inode(copy, high);
            crc32c(self.0, copy)
        } else {
            let mut copy = slot.to_vec();
            clear_inode(&mut copy, high);
            crc32c(self.0, &copy)
        };
        if high { crc } else { crc & 0xffff }
    }

    /// Computes the inode's checksum and stores it.
    pub fn set_inode(self, slot: &mut [u8]) {
        let high = inode_has_high(slot);
        clear_inode(slot, high);
        let crc = crc32c(self.0, slot);
        slot[INODE_CHECKSUM_LO..][..2].copy_from_slice(&(crc as u16).to_le_bytes());
        if high {
            slot[INODE_CHECKSUM_HI..][..2].copy_from_slice(&((crc >> 16) as u16).to_le_bytes());
        }
    }

    /// The checksum of an extent block, whose tail lies after `max` entries. None where the tail
    /// does not fit.
    pub fn extent_block(self, data: &[u8]) -> Option<u32> {
        let tail = extent_tail(data)?;
        Some(crc32c(self.0, &data[..tail]))
    }

    /// Computes and stores the checksum of an extent block with a valid header.
    pub fn set_extent_block(self, data: &mut [u8]) {
        if let Some(tail) = extent_tail(data) {
            let crc = crc32c(self.0, &data[..tail]);
            put_u32(data, tail, crc);
        }
    }

    /// The checksum of a directory leaf block with a tail.
    pub fn dir_block(self, data: &[u8]) -> u32 {
        crc32c(self.0, &data[..data.len() - DIR_TAIL_SIZE])
    }

    /// Computes and stores the checksum in the tail of a directory leaf block.
    pub fn set_dir_block(self, data: &mut [u8]) {
        let crc = self.dir_block(data);
        put_u32(data, data.len() - 4, crc);
    }

    /// The checksum of a hash tree node whose count and limit lie at `count_offset`: its entries in
    /// use and its tail. None where count or limit reach beyond the block.
    pub fn htree_node(self, data: &[u8], count_offset: usize) -> Option<u32> {
        let (used, tail) = htree_tail(data, count_offset)?;
        let crc = crc32c(self.0, &data[..used]);
        Some(crc32c(crc32c(crc, &data[tail..tail + 4]), &[0; 4]))
    }

    /// Computes and stores the checksum of a valid hash tree node.
    pub fn set_htree_node(self, data: &mut [u8], count_offset: usize) {
        if let Some(crc) = self.htree_node(data, count_offset) {
            let (_, tail) = htree_tail(data, count_offset).expect("checked by the line above");
            put_u32(data, tail + 4, crc);
        }
    }

    /// The checksum of a block of the orphan file that lies in device block `block`.
    pub fn orphan_block(self, block: u64, data: &[u8]) -> u32 {
        crc32c(crc32c(self.0, &block.to_le_bytes()), &data[..data.len() - 8])
    }
}

/// True where an inode's slot has room for `i_checksum_hi`, the high half of its checksum.
pub fn inode_has_high(slot: &[u8]) -> bool {
    slot.len() > 128 && u16_at(slot, 0x80) >= 4
}

/// The checksum that an inode's slot holds.
pub fn stored_inode(slot: &[u8]) -> u32 {
    let low = u32::from(u16_at(slot, INODE_CHECKSUM_LO));
    let high = if inode_has_high(slot) { u16_at(slot, INODE_CHECKSUM_HI) } else { 0 };
    low | u32::from(high) << 16
}

/// Where the tail of an extent block lies: after the last possible entry.
pub fn extent_tail(data: &[u8]) -> Option<usize> {
    let tail = 12 + 12 * usize::from(u16_at(data, 4));
    (tail + EXTENT_TAIL_SIZE <= data.len()).then_some(tail)
}

/// The checksum that an extent block holds.
pub fn stored_extent_block(data: &[u8]) -> Option<u32> {
    extent_tail(data).map(|tail| u32_at(data, tail))
}

/// End of the entries in use and start of the tail of a hash tree node.
fn htree_tail(data: &[u8], count_offset: usize) -> Option<(usize, usize)> {
    let limit = usize::from(u16_at(data, count_offset));
    let count = usize::from(u16_at(data, count_offset + 2));
    let (used, tail) = (count_offset + count * 8, count_offset + limit * 8);
    (used <= tail && tail + HTREE_TAIL_SIZE <= data.len()).then_some((used, tail))
}

/// The checksum that a hash tree node holds.
pub fn stored_htree_node(data: &[u8], count_offset: usize) -> Option<u32> {
    htree_tail(data, count_offset).map(|(_, tail)| u32_at(data, tail + 4))
}

pub(crate) fn u16_at(data: &[u8], at: usize) -> u16 {
    super::U16::ref_from_prefix(&data[at..]).expect("offset lies in the structure").0.get()
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> u32 {
    super::U32::ref_from_prefix(&data[at..]).expect("offset lies in the structure").0.get()
}

pub(crate) fn put_u32(data: &mut [u8], at: usize, value: u32) {
    data[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
