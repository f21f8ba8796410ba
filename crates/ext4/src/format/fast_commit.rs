//! What the records of fast commits say.
//!
//! Source: kernel `Documentation/filesystems/ext4/journal.rst`, and the areas that the kernel
//! writes. Little-endian, unaligned.

use base::Ino;
use jbd2::Record;

use super::Geometry;
use super::extent::{Extent, LEN_MAX};
use super::inode::BASE_SIZE;
use super::super_block::ROOT_INO;

/// Blocks of an inode lie there.
pub(crate) const TAG_ADD_RANGE: u16 = 1;
/// Blocks of an inode are a hole.
pub(crate) const TAG_DEL_RANGE: u16 = 2;
/// A name of a new inode.
pub(crate) const TAG_CREATE: u16 = 3;
/// One more name of an inode.
pub(crate) const TAG_LINK: u16 = 4;
/// A name that is gone.
pub(crate) const TAG_UNLINK: u16 = 5;
/// The fields of an inode.
pub(crate) const TAG_INODE: u16 = 6;

/// A record of a fast commit that cannot be replayed, and where it lies in the journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fast commit record at journal block {block}, byte {offset}: {kind}")]
pub struct BadRecord {
    /// Block of the journal.
    pub block: u32,
    /// Byte in the block.
    pub offset: u32,
    /// What is wrong.
    pub kind: BadRecordKind,
}

/// What can be wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum BadRecordKind {
    #[error("record of kind {tag} has {len} bytes")]
    Length { tag: u16, len: usize },
    #[error("inode {ino} is none of {first}..={last}")]
    Inode { ino: u32, first: u32, last: u32 },
    #[error("{len} logical blocks from {first} are no part of a file")]
    Logical { first: u32, len: u32 },
    #[error("blocks {start}+{len} are not for data: the file system has {end}")]
    Blocks { start: u64, len: u32, end: u64 },
    #[error("name of {len} bytes is not allowed")]
    Name { len: usize },
    #[error("inode {ino} has mode {mode:#o}")]
    Mode { ino: u32, mode: u16 },
    #[error("inode {ino} is not a directory")]
    NotDirectory { ino: u32 },
    #[error("inode {ino} is to hold its content of {size} bytes, which the record has not whole")]
    Content { ino: u32, size: u64 },
    #[error("inode {ino} has no extents")]
    NoExtents { ino: u32 },
}

/// What a record says. Numbers of inodes, of logical blocks, and how many blocks.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// These blocks of the inode lie there.
    AddRange { ino: u32, extent: Extent },
    /// These blocks of the inode are a hole.
    DelRange { ino: u32, first: u32, len: u32 },
    /// The directory has a name for a new inode.
    Create(Entry<'a>),
    /// The directory has one more name for an inode.
    Link(Entry<'a>),
    /// The directory has the name no more.
    Unlink(Entry<'a>),
    /// The fields of the inode.
    Inode { ino: u32, raw: &'a [u8] },
}

/// A name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Entry<'a> {
    pub parent: u32,
    pub ino: u32,
    pub name: &'a [u8],
}

impl Change<'_> {
    /// What a record says, once everything in it is known to be in range.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn of_record<'a>(record: &'a Record, geometry: &Geometry) -> Result<Change<'a>, BadRecord> {
        let bad = |kind| BadRecord { block: record.block, offset: record.offset, kind };
        parse_record(record.tag, &record.value, geometry).map_err(bad)
    }
}

fn parse_record<'a>(tag: u16, value: &'a [u8], g: &Geometry) -> Result<Change<'a>, BadRecordKind> {
    let short = BadRecordKind::Length { tag, len: value.len() };
    let word = |at: usize| {
        let bytes = value.get(at..at + 4).ok_or(short.clone())?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    };
    match tag {
        TAG_ADD_RANGE if value.len() == 16 => {
            let ino = allowed_inode(word(0)?, g)?;
            let half = |at: usize| u16::from_le_bytes([value[at], value[at + 1]]);
            let len = u32::from(half(8));
            let unwritten = len > LEN_MAX;
            let extent = Extent {
                block: word(4)?,
                len: if unwritten { len - LEN_MAX } else { len },
                start: u64::from(word(12)?) | u64::from(half(10)) << 32,
                unwritten,
            };
            check_extent(&extent, g)?;
            Ok(Change::AddRange { ino, extent })
        }
        TAG_DEL_RANGE if value.len() == 12 => Ok(Change::DelRange {
            ino: allowed_inode(word(0)?, g)?,
            first: word(4)?,
            len: word(8)?,
        }),
        TAG_CREATE => Ok(Change::Create(parse_entry(value, short, g)?)),
        TAG_LINK => Ok(Change::Link(parse_entry(value, short, g)?)),
        TAG_UNLINK => Ok(Change::Unlink(parse_entry(value, short, g)?)),
        TAG_INODE if value.len() >= 4 + BASE_SIZE && value.len() - 4 <= g.inode_size as usize => {
            Ok(Change::Inode { ino: allowed_inode(word(0)?, g)?, raw: &value[4..] })
        }
        _ => Err(short),
    }
}

/// An inode that a record may name.
fn allowed_inode(ino: u32, g: &Geometry) -> Result<u32, BadRecordKind> {
    let (first, last) = (g.first_ino, g.inodes_count);
    if ino == ROOT_INO || ((first..=last).contains(&ino) && ino != g.orphan_file_ino) {
        return Ok(ino);
    }
    Err(BadRecordKind::Inode { ino, first, last })
}

fn check_extent(extent: &Extent, g: &Geometry) -> Result<(), BadRecordKind> {
    let Extent { block, len, start, .. } = *extent;
    if len == 0 || block.checked_add(len).is_none() {
        return Err(BadRecordKind::Logical { first: block, len });
    }
    if !g.data_blocks_valid(start, u64::from(len)) {
        return Err(BadRecordKind::Blocks { start, len, end: g.blocks_count });
    }
    Ok(())
}

fn parse_entry<'a>(
    value: &'a [u8],
    short: BadRecordKind,
    g: &Geometry,
) -> Result<Entry<'a>, BadRecordKind> {
    let (fixed, name) = value.split_at_checked(8).ok_or(short)?;
    let word = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().expect("four bytes"));
    let dots = name == b"." || name == b"..";
    if dots || !(1..=255).contains(&name.len()) || name.iter().any(|byte| b"\0/".contains(byte)) {
        return Err(BadRecordKind::Name { len: name.len() });
    }
    Ok(Entry { parent: allowed_inode(word(0), g)?, ino: allowed_inode(word(4), g)?, name })
}

/// The number as the rest of the crate has it.
pub(crate) fn ino_of(ino: u32) -> Ino {
    Ino(ino.into())
}
