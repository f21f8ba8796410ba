//! The log: records of up to 256 KiB, the operations in them, the header of a transaction.
//!
//! The log is a ring of 512-byte blocks. A record is a header block (with extended headers for each
//! 32 KiB beyond the first), then its data; the first word of every data block is replaced by the
//! cycle number and kept in the headers. Numbers are big-endian up to the operation headers, and
//! in the byte order of the host that wrote them inside the operations.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on the journaling log; `xfs_logprint`.

use base::crc::crc32c;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{At, Corrupt, CorruptKind, L16, L32, U32, U64, assert_layout, views};

/// `h_magicno`.
pub const RECORD_MAGIC: u32 = 0xfeed_babe;
/// `h_version` of records with extended headers.
pub const VERSION_2: u32 = 2;
/// Bytes of a block of the log.
pub const LOG_BLOCK: usize = 512;
/// Bytes of data whose cycle words one header keeps.
pub(crate) const CYCLE_DATA: usize = 32 << 10;
/// Bytes of a record's data at the most.
pub const RECORD_MAX: usize = 256 << 10;
/// `h_fmt`: items in little-endian order.
pub const FORMAT_LITTLE: u32 = 1;
/// `th_magic`: "TRAN".
pub const TRANS_MAGIC: u32 = 0x5452_414e;
/// `th_type` of a checkpoint.
pub const TRANS_CHECKPOINT: u32 = 40;
/// `oh_clientid` of operations of a transaction.
pub const CLIENT_TRANSACTION: u8 = 0x69;
/// `oh_clientid` of the log's own operations (the unmount record).
pub const CLIENT_LOG: u8 = 0xaa;
/// The magic number of an unmount record's only region.
pub const UNMOUNT_MAGIC: u16 = 0x556e;

bitflags::bitflags! {
    /// `oh_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct OpFlags: u8 {
        /// The transaction begins.
        const START = 0x01;
        /// The transaction is complete.
        const COMMIT = 0x02;
        /// The region goes on in the next record.
        const CONTINUE = 0x04;
        /// The region began in an earlier record.
        const WAS_CONTINUED = 0x08;
        /// The last piece of a continued region.
        const END = 0x10;
        /// The file system was unmounted.
        const UNMOUNT = 0x20;
        const _ = !0;
    }
}

/// A log sequence number: cycle of the ring, and block in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lsn {
    /// How often the ring has been gone round, from 1.
    pub cycle: u32,
    /// The block in the log, in units of 512 bytes.
    pub block: u32,
}

impl Lsn {
    /// The number in its 64 bits.
    pub fn from_bits(bits: u64) -> Lsn {
        Lsn { cycle: (bits >> 32) as u32, block: bits as u32 }
    }

    /// Its 64 bits.
    pub fn bits(self) -> u64 {
        u64::from(self.cycle) << 32 | u64::from(self.block)
    }
}

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.cycle, self.block)
    }
}

/// The header of a record as it lies on the disk; the rest of its block is zero.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawRecordHeader {
    pub h_magicno: U32,
    pub h_cycle: U32,
    pub h_version: U32,
    /// Bytes of data.
    pub h_len: U32,
    pub h_lsn: U64,
    pub h_tail_lsn: U64,
    pub h_crc: L32,
    /// Block of the record before.
    pub h_prev_block: U32,
    pub h_num_logops: U32,
    pub h_cycle_data: [U32; 64],
    pub h_fmt: U32,
    pub h_fs_uuid: [u8; 16],
    /// Bytes of the writer's record buffers.
    pub h_size: U32,
}

assert_layout!(RawRecordHeader, 324, h_lsn @ 16, h_crc @ 32, h_cycle_data @ 44, h_fmt @ 300,
    h_size @ 320);
views!(RawRecordHeader);

/// Bytes of the header that its checksum covers: the structure padded to a multiple of eight.
pub(crate) const HEADER_SUMMED: usize = 328;

/// An extended header: the cycle words of 32 KiB more.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawExtHeader {
    pub xh_cycle: U32,
    pub xh_cycle_data: [U32; 64],
}

assert_layout!(RawExtHeader, 260, xh_cycle_data @ 4);
views!(RawExtHeader);

/// The header in front of every region.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawOpHeader {
    pub oh_tid: U32,
    /// Bytes of the region that follow.
    pub oh_len: U32,
    pub oh_clientid: u8,
    pub oh_flags: u8,
    pub oh_res2: [u8; 2],
}

assert_layout!(RawOpHeader, 12, oh_clientid @ 8);
views!(RawOpHeader);

/// The first region of a transaction.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawTransHeader {
    pub th_magic: L32,
    pub th_type: L32,
    pub th_tid: L32,
    /// Items of the transaction.
    pub th_num_items: L32,
}

assert_layout!(RawTransHeader, 16, th_num_items @ 12);
views!(RawTransHeader);

/// The region of an unmount record.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawUnmount {
    pub magic: L16,
    pub pad1: L16,
    pub pad2: L32,
}

assert_layout!(RawUnmount, 8, pad2 @ 4);
views!(RawUnmount);

/// Blocks of headers of a record with `size` bytes of buffer (`h_size`).
pub fn header_blocks(size: usize) -> usize {
    size.div_ceil(CYCLE_DATA).max(1)
}

/// The checksum of a record: the header (its own field taken as zero), `extended` headers, and the
/// data with cycle words put back.
///
/// `header` is the header's block, `extended` the blocks of extended headers.
pub fn record_checksum(header: &[u8], extended: &[u8], data: &[u8]) -> u32 {
    let crc = crc32c(crc32c(!0, &header[..32]), &[0; 4]);
    let mut crc = crc32c(crc, &header[36..HEADER_SUMMED]);
    // Of the extended headers only those count that keep words of this record's data.
    let used = data.len().div_ceil(CYCLE_DATA).saturating_sub(1);
    for block in extended.chunks_exact(LOG_BLOCK).take(used) {
        crc = crc32c(crc, &block[..size_of::<RawExtHeader>()]);
    }
    !crc32c(crc, data)
}

/// The data of a record with the words that its headers keep back in their places. `headers` are
/// the blocks of all headers, `data` what lies behind them.
pub fn unpacked(headers: &[u8], data: &[u8]) -> Vec<u8> {
    let mut unpacked = data.to_vec();
    let groups = unpacked.chunks_mut(CYCLE_DATA);
    for (index, (group, header)) in groups.zip(headers.chunks_exact(LOG_BLOCK)).enumerate() {
        let words = match index {
            0 => RawRecordHeader::view(header).map(|raw| &raw.h_cycle_data),
            _ => RawExtHeader::view(header).map(|raw| &raw.xh_cycle_data),
        };
        let words = words.expect("a block holds a header");
        for (block, word) in group.chunks_mut(LOG_BLOCK).zip(words) {
            let len = block.len().min(4);
            block[..len].copy_from_slice(&word.to_bytes()[..len]);
        }
    }
    unpacked
}

impl RawRecordHeader {
    /// The record header in a block of the log, checked alone: magic, version, sizes. The block
    /// says its own place, so that `block` must be that of its sequence number.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(data: &[u8], block: u32) -> Result<&RawRecordHeader, Corrupt> {
        let at = At::Log(block);
        let what = "log record";
        let raw = RawRecordHeader::view(data)
            .ok_or_else(|| CorruptKind::Short { what, bytes: data.len() }.at(at))?;
        let found = raw.h_magicno.get();
        if found != RECORD_MAGIC {
            return Err(CorruptKind::Magic { what, found, expected: RECORD_MAGIC }.at(at));
        }
        let version = raw.h_version.get();
        if version == 0 || version & !3 != 0 {
            return Err(CorruptKind::LogVersion(version).at(at));
        }
        let (len, size) = (raw.h_len.get(), raw.h_size.get());
        if len as usize > RECORD_MAX || size as usize > RECORD_MAX || !len.is_multiple_of(4) {
            return Err(CorruptKind::LogLength { len, size }.at(at));
        }
        let lsn = Lsn::from_bits(raw.h_lsn.get());
        if lsn.block != block || lsn.cycle != raw.h_cycle.get() || lsn.cycle == 0 {
            let (found, expected) = (lsn.bits(), u64::from(block));
            return Err(CorruptKind::LogPlaceOfRecord { found, expected }.at(at));
        }
        Ok(raw)
    }

    /// Its sequence number.
    pub fn lsn(&self) -> Lsn {
        Lsn::from_bits(self.h_lsn.get())
    }

    /// The oldest record that is needed as of this one.
    pub fn tail_lsn(&self) -> Lsn {
        Lsn::from_bits(self.h_tail_lsn.get())
    }

    /// Blocks of headers in front of the data.
    pub fn header_blocks(&self) -> usize {
        if self.h_version.get() & VERSION_2 == 0 {
            1
        } else {
            header_blocks(self.h_size.get() as usize)
        }
    }

    /// Blocks of the record with its headers.
    pub fn total_blocks(&self) -> u32 {
        (self.header_blocks() + (self.h_len.get() as usize).div_ceil(LOG_BLOCK)) as u32
    }
}

impl RawOpHeader {
    /// Its flags.
    pub fn flags(&self) -> OpFlags {
        OpFlags::from_bits_retain(self.oh_flags)
    }
}
