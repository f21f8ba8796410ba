//! Buffers from the log.

use std::mem::offset_of;
use std::sync::Arc;

use base::Sector;
use rt::Cx;
use vfs::quota::Kind as QuotaKind;

use super::RecoveryContext;
use super::stamp::Stamps;
use super::transaction::LoggedItem;
use crate::buf::{BufCache, BufMap, LockedBuf, RAW};
use crate::error::Result;
use crate::format::dquot::{self, RECORD_SIZE};
use crate::format::log_item::{BufferFlags, BufferType, CHUNK_SIZE, MAP_WORDS_MAX, RawBufferItem};
use crate::format::{Kind, RawSuper, verifier};
use crate::log::LogError;

/// Blocks of 512 bytes of a logged buffer at the most: 64 KiB.
const LEN_MAX: u16 = 128;
/// Where an inode keeps the pointer to the next unlinked one.
const NEXT_UNLINKED: usize = 96;

/// A buffer's change.
pub(super) struct BufferItem {
    daddr: u64,
    len: u32,
    flags: u16,
    /// Offset in the buffer, and content.
    pieces: Vec<(usize, Vec<u8>)>,
}

impl BufferItem {
    fn flags(&self) -> BufferFlags {
        BufferFlags::from_bits_retain(self.flags)
    }

    pub fn is_cancel(&self) -> bool {
        self.flags().contains(BufferFlags::CANCEL)
    }

    pub fn is_inode_buf(&self) -> bool {
        self.flags().contains(BufferFlags::INODE_BUF)
    }

    /// The kind of the records of quota that it holds.
    pub fn quota(&self) -> Option<QuotaKind> {
        match BufferType::from_flags(self.flags) {
            Some(BufferType::Udquot) => Some(QuotaKind::User),
            Some(BufferType::Pdquot) => Some(QuotaKind::Project),
            Some(BufferType::Gdquot) => Some(QuotaKind::Group),
            _ => None,
        }
    }

    pub fn map(&self) -> BufMap {
        BufMap { daddr: Sector(self.daddr), len: self.len }
    }
}

/// What a superblock in the log says of its file system's size.
pub(super) struct LoggedSize {
    pub blocks: u64,
    groups: u32,
}

/// The size in an item, where it is a superblock's.
pub(super) fn logged_size(item: &LoggedItem) -> Option<LoggedSize> {
    let [first, region, ..] = &item.regions[..] else { return None };
    let (raw, map) = (RawBufferItem::view(first)?, first.get(size_of::<RawBufferItem>()..)?);
    let kind = BufferType::from_flags(raw.blf_flags.get());
    // The first chunk has both numbers.
    if kind != Some(BufferType::Super) || raw.blf_blkno.get() != 0 || map.first()? & 1 == 0 {
        return None;
    }
    let blocks = region.get(offset_of!(RawSuper, sb_dblocks)..)?.first_chunk()?;
    let groups = region.get(offset_of!(RawSuper, sb_agcount)..)?.first_chunk()?;
    let (blocks, groups) = (u64::from_be_bytes(*blocks), u32::from_be_bytes(*groups));
    Some(LoggedSize { blocks, groups })
}

impl LoggedSize {
    /// The sectors, where groups of so many blocks make a file system of this size.
    pub fn sectors(&self, context: &RecoveryContext) -> Option<u64> {
        let groups = self.blocks.div_ceil(context.ag_blocks.0.into());
        let fits = groups == u64::from(self.groups);
        self.blocks.checked_mul(u64::from(context.block_size / 512)).filter(|_| fits)
    }
}

/// Checks a buffer item and takes it apart.
pub(super) fn parse(tid: u32, item: &LoggedItem, context: &RecoveryContext) -> Result<BufferItem> {
    let first = &item.regions[0];
    let length = |what, found: usize, expected: usize| {
        let (found, expected) = (found as u64, expected as u64);
        LogError::ItemLength { tid, what, found, expected }
    };
    let Some(raw) = RawBufferItem::view(first) else {
        return Err(length("a buffer item", first.len(), size_of::<RawBufferItem>()).into());
    };
    let (len, words) = (raw.blf_len.get(), raw.blf_map_size.get() as usize);
    let map = &first[size_of::<RawBufferItem>()..];
    if words > MAP_WORDS_MAX || map.len() < words * 4 {
        return Err(length("a buffer's map", map.len(), words * 4).into());
    }
    let flags = raw.blf_flags.get();
    let daddr = raw.blf_blkno.get();
    let end = daddr.checked_add(u64::from(len));
    if len == 0 || len > LEN_MAX || end.is_none_or(|end| end > context.sectors) {
        let (what, end) = ("a buffer", context.sectors);
        return Err(LogError::ItemPlace { tid, what, sector: daddr, end }.into());
    }
    if BufferType::from_flags(flags).is_none() {
        let (what, found) = ("type of a buffer", u64::from(flags >> 11));
        return Err(LogError::ItemValue { tid, what, found }.into());
    }
    let mut parsed = BufferItem { daddr, len: u32::from(len), flags, pieces: Vec::new() };
    if !parsed.is_cancel() {
        parsed.pieces = pieces(tid, item, map, words, usize::from(len) * 512)?;
    }
    Ok(parsed)
}

/// The runs of the map, each with its region.
fn pieces(
    tid: u32,
    item: &LoggedItem,
    map: &[u8],
    words: usize,
    bytes: usize,
) -> Result<Vec<(usize, Vec<u8>)>> {
    let bit = |chunk: usize| map[chunk / 8] >> (chunk % 8) & 1 != 0;
    let chunks = words * 32;
    let (mut pieces, mut chunk) = (Vec::new(), 0);
    let mut regions = item.regions[1..].iter();
    while chunk < chunks {
        if !bit(chunk) {
            chunk += 1;
            continue;
        }
        // A region may be a part of a run only: unmapped buffers are cut at their pages.
        let mut count = 1;
        while chunk + count < chunks && bit(chunk + count) {
            count += 1;
        }
        while count > 0 {
            let region = regions.next();
            let found = region.map_or(0, Vec::len);
            let (whole, expected) = (found / CHUNK_SIZE, count * CHUNK_SIZE);
            if whole == 0 || whole > count || !found.is_multiple_of(CHUNK_SIZE) {
                let (what, found, expected) = ("a buffer's run", found as u64, expected as u64);
                return Err(LogError::ItemLength { tid, what, found, expected }.into());
            }
            let at = chunk * CHUNK_SIZE;
            if at + found > bytes {
                let (what, found) = ("a dirty chunk behind its buffer's end", at as u64);
                return Err(LogError::ItemValue { tid, what, found }.into());
            }
            pieces.push((at, region.expect("it has bytes").clone()));
            (chunk, count) = (chunk + whole, count - whole);
        }
    }
    if regions.next().is_some() {
        let (what, found) = ("a buffer's regions", item.regions.len() as u64);
        let expected = pieces.len() as u64 + 1;
        return Err(LogError::ItemLength { tid, what, found, expected }.into());
    }
    Ok(pieces)
}

/// Brings a buffer's change into the buffer, which is answered; None if the device has a newer
/// content. May park.
pub(super) fn recover(
    cx: &mut Cx,
    bufs: &Arc<BufCache>,
    item: &BufferItem,
    context: &RecoveryContext,
    stamps: &Stamps,
) -> Result<Option<LockedBuf>> {
    let map = BufMap { daddr: Sector(item.daddr), len: item.len };
    // Content that does not say what it is, and could look like anything.
    let plain = match BufferType::from_flags(item.flags) {
        Some(BufferType::Inodes) => true,
        Some(BufferType::RealtimeBitmap | BufferType::RealtimeSummary) => !context.realtime_groups,
        _ => false,
    };
    let buf = bufs.read_unchecked(cx, &[map], &RAW)?;
    if item.quota().is_some() {
        recover_dquots(&buf, item, context);
        return Ok(Some(buf));
    }
    if item.is_inode_buf() {
        recover_unlinked(&buf, item, context);
        return Ok(Some(buf));
    }
    // Blocks of version 4 carry no number that says how new they are.
    if !plain && !context.v4 && is_newer(&buf, context, stamps) {
        return Ok(None);
    }
    for (offset, bytes) in &item.pieces {
        buf.copy_in(*offset, bytes);
    }
    if !plain && !context.v4 {
        buf.with_mut(|bytes| {
            if let Some(kind) = Kind::recognise(bytes)
                && kind != Kind::Inode
            {
                verifier::update_lsn_crc(kind, bytes, stamps.lsn());
            }
        });
    }
    Ok(Some(buf))
}

/// True if the buffer holds a change of this or of a later transaction already.
fn is_newer(buf: &LockedBuf, context: &RecoveryContext, stamps: &Stamps) -> bool {
    buf.with(|bytes| {
        let Some(kind) = Kind::recognise(bytes).filter(|&kind| kind != Kind::Inode) else {
            return false;
        };
        // A block of another life, or of another file system, says nothing.
        if !verifier::has_uuid(kind, bytes, &context.meta_uuid) {
            return false;
        }
        let own = verifier::lsn(kind, bytes);
        // A block that was torn while it was written may carry the new number over old content.
        // Everything that could be missing in it is in the log: the tail moves on only when the
        // write has become durable.
        let whole = verifier::checksum(kind, bytes) == verifier::stored_checksum(kind, bytes);
        stamps.at(buf.daddr().0 * 512).is_newer(own) && whole
    })
}

/// A block of new records of quota. Each has a sequence number of its own, and what changed after
/// that is in the log behind it.
fn recover_dquots(buf: &LockedBuf, item: &BufferItem, context: &RecoveryContext) {
    for (offset, bytes) in &item.pieces {
        buf.copy_in(*offset, bytes);
    }
    if !context.v4 {
        let count = buf.len() / RECORD_SIZE;
        (0..count).for_each(|index| {
            buf.with_range_mut(index * RECORD_SIZE, RECORD_SIZE, dquot::update_crc);
        });
    }
}

/// Takes the unlinked pointers from an inode cluster's chunks, and nothing else.
fn recover_unlinked(buf: &LockedBuf, item: &BufferItem, context: &RecoveryContext) {
    let size = context.inode_size as usize;
    for slot in (0..buf.len()).step_by(size) {
        let at = slot + NEXT_UNLINKED;
        let piece = item
            .pieces
            .iter()
            .find(|(offset, bytes)| *offset <= at && at + 4 <= offset + bytes.len());
        if let Some((offset, bytes)) = piece {
            let pointer = &bytes[at - offset..at - offset + 4];
            buf.with_range_mut(slot, size, |inode| {
                inode[NEXT_UNLINKED..NEXT_UNLINKED + 4].copy_from_slice(pointer);
                if !context.v4 {
                    verifier::update_crc(Kind::Inode, inode);
                }
            });
        }
    }
}
