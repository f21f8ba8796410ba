//! Records of quota: what an id uses and how much it may have, 136 bytes each, as many as fit into
//! a block of a quota inode; the record of id N is record N modulo that number of block N divided
//! by it.
//!
//! The log holds the first 104 bytes of a record; checksum, sequence number and UUID behind them
//! are of version 5. The record of id 0 has the default limits of its kind, and as timers the grace
//! periods.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on quota inodes; `xfs_db -c 'dquot -u 0'
//! -c p` on images of mkfs.xfs 7.2.

pub use vfs::quota::Kind;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::super_block::RawSuper;
use super::verifier::checksum_at;
use super::{
    At, Corrupt, CorruptKind, U16, U32, U64, assert_layout, put_u32, put_u64, u32_at, views,
};

/// Bytes of a record in its block.
pub const RECORD_SIZE: usize = 136;
/// Bytes of a record in the log.
pub const DQUOT_SIZE: usize = 104;
/// `d_magic`: "DQ".
pub const MAGIC: u16 = 0x4451;
const VERSION: u8 = 1;
/// Timers count units of four seconds.
const BIGTIME: u8 = 0x80;
const CRC: usize = 108;
const LSN: usize = 112;
const UUID: usize = 120;

/// A record as it lies on the disk and in the log, without checksum, sequence number and UUID.
#[derive(
    Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug,
)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawDquot {
    pub d_magic: U16,
    pub d_version: u8,
    pub d_type: u8,
    pub d_id: U32,
    pub d_blk_hardlimit: U64,
    pub d_blk_softlimit: U64,
    pub d_ino_hardlimit: U64,
    pub d_ino_softlimit: U64,
    pub d_bcount: U64,
    pub d_icount: U64,
    pub d_itimer: U32,
    pub d_btimer: U32,
    pub d_iwarns: U16,
    pub d_bwarns: U16,
    pub d_pad0: U32,
    pub d_rtb_hardlimit: U64,
    pub d_rtb_softlimit: U64,
    pub d_rtbcount: U64,
    pub d_rtbtimer: U32,
    pub d_rtbwarns: U16,
    pub d_pad: U16,
}

assert_layout!(RawDquot, DQUOT_SIZE, d_blk_hardlimit @ 8, d_bcount @ 40, d_itimer @ 56,
    d_rtb_hardlimit @ 72, d_rtbtimer @ 96);
views!(RawDquot);

/// The type of a kind's records.
pub const fn type_of(kind: Kind) -> u8 {
    match kind {
        Kind::User => 1,
        Kind::Project => 2,
        Kind::Group => 4,
    }
}

/// The kind of a type, whose flag of large timers does not count.
pub fn kind_of(d_type: u8) -> Option<Kind> {
    Kind::ALL.into_iter().find(|&kind| type_of(kind) == d_type & !BIGTIME)
}

bitflags::bitflags! {
    /// `sb_qflags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct QuotaFlags: u16 {
        /// Users are counted.
        const USER_COUNTED = 1;
        /// Limits of users hold.
        const USER_ENFORCED = 2;
        /// The counts of users are right.
        const USER_CHECKED = 4;
        /// Projects are counted.
        const PROJECT_COUNTED = 8;
        /// Groups are counted.
        const GROUP_COUNTED = 0x40;
        /// Limits of groups hold.
        const GROUP_ENFORCED = 0x80;
        /// The counts of groups are right.
        const GROUP_CHECKED = 0x100;
        /// Limits of projects hold.
        const PROJECT_ENFORCED = 0x200;
        /// The counts of projects are right.
        const PROJECT_CHECKED = 0x400;
        const _ = !0;
    }
}

impl QuotaFlags {
    /// Those of a superblock.
    pub fn of(raw: &RawSuper) -> QuotaFlags {
        QuotaFlags::from_bits_retain(raw.sb_qflags.get())
    }

    /// The flag of a kind that is counted.
    pub const fn counted(kind: Kind) -> QuotaFlags {
        match kind {
            Kind::User => QuotaFlags::USER_COUNTED,
            Kind::Group => QuotaFlags::GROUP_COUNTED,
            Kind::Project => QuotaFlags::PROJECT_COUNTED,
        }
    }

    /// The flag of a kind whose limits hold.
    pub const fn enforced(kind: Kind) -> QuotaFlags {
        match kind {
            Kind::User => QuotaFlags::USER_ENFORCED,
            Kind::Group => QuotaFlags::GROUP_ENFORCED,
            Kind::Project => QuotaFlags::PROJECT_ENFORCED,
        }
    }

    /// The flag of a kind whose counts are right.
    pub const fn checked(kind: Kind) -> QuotaFlags {
        match kind {
            Kind::User => QuotaFlags::USER_CHECKED,
            Kind::Group => QuotaFlags::GROUP_CHECKED,
            Kind::Project => QuotaFlags::PROJECT_CHECKED,
        }
    }

    /// All three of a kind.
    pub const fn all_of(kind: Kind) -> QuotaFlags {
        QuotaFlags::counted(kind).union(QuotaFlags::enforced(kind)).union(QuotaFlags::checked(kind))
    }
}

impl RawSuper {
    /// The inode with the records of a kind, if there is one.
    pub fn quota_ino(&self, kind: Kind) -> Option<u64> {
        let ino = match kind {
            Kind::User => self.sb_uquotino.get(),
            Kind::Group => self.sb_gquotino.get(),
            Kind::Project => self.sb_pquotino.get(),
        };
        (ino != 0 && ino != super::NULL64).then_some(ino)
    }

    /// Names the inode with the records of a kind.
    pub fn set_quota_ino(&mut self, kind: Kind, ino: u64) {
        match kind {
            Kind::User => self.sb_uquotino.set(ino),
            Kind::Group => self.sb_gquotino.set(ino),
            Kind::Project => self.sb_pquotino.set(ino),
        }
    }
}

/// Records of a block.
pub fn per_block(block_size: u32) -> u32 {
    block_size / RECORD_SIZE as u32
}

/// Which record is looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DquotId {
    /// Whose usage it counts.
    pub kind: Kind,
    /// Number of the user, group or project.
    pub id: u32,
}

impl RawDquot {
    /// Whether the id has anything.
    pub fn is_used(&self) -> bool {
        self.d_bcount.get() | self.d_icount.get() | self.d_rtbcount.get() != 0
    }

    /// A record of an id that uses nothing and has no limits.
    pub fn new(DquotId { kind, id }: DquotId, bigtime: bool) -> RawDquot {
        let mut raw = RawDquot::zeroed();
        raw.d_magic.set(MAGIC);
        raw.d_version = VERSION;
        raw.d_type = type_of(kind) | if bigtime && id != 0 { BIGTIME } else { 0 };
        raw.d_id.set(id);
        raw
    }

    /// The record in its place in a block.
    ///
    /// # Errors
    /// Another magic number, version, kind or id; in version 5 also checksum and UUID.
    pub fn parse(
        record: &[u8],
        DquotId { kind, id }: DquotId,
        uuid: Option<&[u8; 16]>,
        at: At,
    ) -> Result<RawDquot, Corrupt> {
        let raw = RawDquot::view(record).expect("a whole record");
        let (found, expected) = (u32::from(raw.d_magic.get()), u32::from(MAGIC));
        if found != expected || record.len() < RECORD_SIZE {
            return Err(CorruptKind::Magic { what: "quota record", found, expected }.at(at));
        }
        let fits = raw.d_version == VERSION && kind_of(raw.d_type) == Some(kind);
        if !fits || raw.d_id.get() != id {
            let (found, d_type) = (raw.d_id.get(), raw.d_type);
            return Err(CorruptKind::QuotaRecord { found, d_type, expected: id }.at(at));
        }
        if let Some(uuid) = uuid {
            let (found, expected) = (u32_at(record, CRC).swap_bytes(), checksum(record));
            if found != expected {
                return Err(CorruptKind::Checksum { what: "quota record", found, expected }.at(at));
            }
            if record[UUID..UUID + 16] != uuid[..] {
                return Err(CorruptKind::Uuid { what: "quota record" }.at(at));
            }
        }
        Ok(*raw)
    }

    /// True if timers count units of four seconds.
    fn wide(&self) -> bool {
        self.d_type & BIGTIME != 0
    }

    /// A timer in seconds since 1970.
    pub fn seconds(&self, timer: U32) -> u64 {
        let word = u64::from(timer.get());
        if self.wide() { word << 2 } else { word }
    }

    /// Seconds since 1970 as this record's timers hold them: never earlier.
    pub fn timer(&self, seconds: u64) -> U32 {
        let word = if self.wide() { seconds.div_ceil(4) } else { seconds };
        U32::new(u32::try_from(word).unwrap_or(u32::MAX))
    }
}

/// The checksum of a record.
pub fn checksum(record: &[u8]) -> u32 {
    checksum_at(&record[..RECORD_SIZE], CRC)
}

/// Computes the checksum of a record and stores it.
pub fn update_crc(record: &mut [u8]) {
    let crc = checksum(record);
    put_u32(record, CRC, crc.swap_bytes());
}

/// Whether the checksum of a record is right.
pub fn is_whole(record: &[u8]) -> bool {
    u32_at(record, CRC).swap_bytes() == checksum(record)
}

/// The sequence number of the log record that holds the last change.
pub fn lsn(record: &[u8]) -> u64 {
    super::u64_at(record, LSN)
}

/// Puts a record into its place, in version 5 with sequence number and checksum.
pub fn store(record: &mut [u8], raw: &[u8], lsn: Option<u64>) {
    record[..DQUOT_SIZE].copy_from_slice(&raw[..DQUOT_SIZE]);
    if let Some(lsn) = lsn {
        put_u64(record, LSN, lsn);
        update_crc(record);
    }
}

/// Fills a block with records that use nothing, from `first` on.
pub fn init_block(block: &mut [u8], first: DquotId, bigtime: bool, uuid: &[u8; 16]) {
    block.fill(0);
    for (index, record) in block.chunks_exact_mut(RECORD_SIZE).enumerate() {
        let id = DquotId { id: first.id.wrapping_add(index as u32), ..first };
        record[..DQUOT_SIZE].copy_from_slice(RawDquot::new(id, bigtime).as_bytes());
        record[UUID..UUID + 16].copy_from_slice(uuid);
        update_crc(record);
    }
}
