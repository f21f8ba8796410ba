//! Inodes from the log.

use std::sync::Arc;

use base::{Ino, Sector};
use rt::Cx;

use super::RecoveryContext;
use super::transaction::LoggedItem;
use crate::buf::{BufCache, BufMap, LockedBuf, RAW};
use crate::error::Result;
use crate::format::btree::LONG_HEADER;
use crate::format::inode::CORE_SIZE_V4;
use crate::format::log_item::{InodeFields, RawInodeItem};
use crate::format::{At, Kind, put_u16, u16_at, u64_at, verifier};
use crate::log::LogError;
use crate::log::inode_item::{CORE, swap_core};

/// An inode's change.
pub(super) struct InodeRecord {
    ino: u64,
    cluster: BufMap,
    offset: usize,
    fields: InodeFields,
    rdev: u32,
    /// In the log's byte order.
    core: Vec<u8>,
    data: Option<Vec<u8>>,
    attr: Option<Vec<u8>>,
}

impl InodeRecord {
    pub fn cluster(&self) -> BufMap {
        self.cluster
    }
}

const DATA: InodeFields = InodeFields::DDATA.union(InodeFields::DEXT).union(InodeFields::DBROOT);
const ATTR: InodeFields = InodeFields::ADATA.union(InodeFields::AEXT).union(InodeFields::ABROOT);

/// Bytes of a core of version 4 in the log, which ends where the pointer to the next unlinked inode
/// begins.
const CORE_V4: usize = 96;
/// Where an inode counts how often it was written to its place, in version 4.
const FLUSH_COUNT: usize = 30;

/// Where a core says what form the data fork has.
const FORMAT: usize = 5;
/// The form of a btree of the realtime section, in an inode of the file system's own.
const META_BTREE: u8 = 5;

/// Where the forks begin.
fn literal(context: &RecoveryContext) -> usize {
    if context.v4 { CORE_SIZE_V4 } else { CORE }
}

/// Bytes of the header that a block map's root has in the log.
fn root_header(context: &RecoveryContext) -> usize {
    if context.v4 { Kind::Bmap.header_v4() } else { LONG_HEADER }
}

/// Checks an inode item and takes it apart.
pub(super) fn parse(tid: u32, item: &LoggedItem, context: &RecoveryContext) -> Result<InodeRecord> {
    let first = &item.regions[0];
    let Some(raw) = RawInodeItem::view(first) else {
        let (what, found) = ("an inode item", first.len() as u64);
        return Err(LogError::ItemLength { tid, what, found, expected: 56 }.into());
    };
    let fields = InodeFields::from_bits_retain(raw.ilf_fields.get());
    if fields.intersects(InodeFields::DOWNER | InodeFields::AOWNER) {
        return Err(LogError::UnsupportedItem { tid, name: "change of a block map's owner" }.into());
    }
    let cluster = place(tid, raw, context)?;
    let mut regions = item.regions[1..].iter();
    let core = regions.next().cloned().unwrap_or_default();
    let expected = if context.v4 { CORE_V4 } else { CORE };
    if core.len() != expected {
        let (what, found, expected) = ("an inode's core", core.len() as u64, expected as u64);
        return Err(LogError::ItemLength { tid, what, found, expected }.into());
    }
    if core[..2] != *b"NI" {
        let found = u64::from(u16::from_le_bytes([core[0], core[1]]));
        return Err(LogError::ItemValue { tid, what: "magic number of an inode", found }.into());
    }
    let mut fork = |wanted: InodeFields| match fields.intersects(wanted) {
        true => regions.next().cloned().map(Some).ok_or(LogError::ItemLength {
            tid,
            what: "an inode's forks",
            found: item.regions.len() as u64,
            expected: item.regions.len() as u64 + 1,
        }),
        false => Ok(None),
    };
    let (data, attr) = (fork(DATA)?, fork(ATTR)?);
    let rdev = u32::from_le_bytes(raw.ilf_u[..4].try_into().expect("four bytes"));
    let (ino, offset) = (raw.ilf_ino.get(), raw.ilf_boffset.get() as usize);
    let record = InodeRecord { ino, cluster, offset, fields, rdev, core, data, attr };
    check_forks(tid, &record, context)?;
    Ok(record)
}

fn place(tid: u32, raw: &RawInodeItem, context: &RecoveryContext) -> Result<BufMap> {
    let (daddr, len) = (raw.ilf_blkno.get(), raw.ilf_len.get());
    let end = daddr.checked_add(u64::from(len));
    if len == 0 || len > 128 || end.is_none_or(|end| end > context.sectors) {
        let (what, end) = ("an inode cluster", context.sectors);
        return Err(LogError::ItemPlace { tid, what, sector: daddr, end }.into());
    }
    let (offset, size) = (raw.ilf_boffset.get(), context.inode_size);
    if !offset.is_multiple_of(size) || offset.saturating_add(size) > len * 512 {
        let (what, found) = ("an inode's offset in its cluster", u64::from(offset));
        return Err(LogError::ItemValue { tid, what, found }.into());
    }
    Ok(BufMap { daddr: Sector(daddr), len })
}

/// The forks must fit where the core says that they are.
fn check_forks(tid: u32, record: &InodeRecord, context: &RecoveryContext) -> Result<()> {
    let room = context.inode_size as usize - literal(context);
    let split = usize::from(record.core[82]) * 8;
    let (data_room, attr_room) = match split {
        0 => (room, 0),
        split if split <= room => (split, room - split),
        split => {
            let (what, found) = ("an inode's fork offset", split as u64);
            return Err(LogError::ItemValue { tid, what, found }.into());
        }
    };
    let forks = [
        (&record.data, data_room, record.fields.contains(InodeFields::DBROOT)),
        (&record.attr, attr_room, record.fields.contains(InodeFields::ABROOT)),
    ];
    for (fork, room, is_root) in forks {
        let Some(bytes) = fork else { continue };
        let needed = match is_root {
            // Of a btree of the realtime section.
            true if record.core[FORMAT] == META_BTREE => {
                bytes.len().saturating_sub(root_header(context)) + 4
            }
            true => root_size(tid, bytes, room, context)?,
            // A fork may be padded to four bytes where the room is not.
            false => bytes.len(),
        };
        if needed > room {
            let (what, found) = ("a fork of an inode", needed as u64);
            return Err(LogError::ItemLength { tid, what, found, expected: room as u64 }.into());
        }
    }
    Ok(())
}

/// Bytes of a block map's root in the inode.
fn root_size(tid: u32, bytes: &[u8], room: usize, context: &RecoveryContext) -> Result<usize> {
    let header = root_header(context);
    let (what, found, expected) = ("a block map's root", bytes.len() as u64, header as u64);
    if bytes.len() < header || !(bytes.len() - header).is_multiple_of(16) || room < 4 {
        return Err(LogError::ItemLength { tid, what, found, expected }.into());
    }
    let count = usize::from(u16_at(bytes, 6));
    let most = (bytes.len() - header) / 16;
    if count > most || count > (room - 4) / 16 {
        let found = count as u64;
        return Err(
            LogError::ItemValue { tid, what: "records of a block map's root", found }.into()
        );
    }
    Ok(4 + count * 16)
}

/// Brings an inode's change into its cluster, which is answered; None if the device has a newer
/// inode. May park.
pub(super) fn recover(
    cx: &mut Cx,
    bufs: &Arc<BufCache>,
    record: &InodeRecord,
    context: &RecoveryContext,
    lsn: u64,
) -> Result<Option<LockedBuf>> {
    let buf = bufs.read_unchecked(cx, &[record.cluster], &RAW)?;
    let size = context.inode_size as usize;
    let at = At::Inode(Ino(record.ino));
    buf.with_range(record.offset, size, |inode| verifier::verify_magic(Kind::Inode, inode, at))?;
    if context.v4 {
        let newer = buf.with_range(record.offset, size, |inode| is_newer_v4(record, inode));
        if !newer {
            buf.with_range_mut(record.offset, size, |inode| apply(record, inode, context));
        }
        return Ok((!newer).then_some(buf));
    }
    let own = buf.with_range(record.offset, size, |inode| {
        // A torn inode says nothing; see `buffer::is_newer`.
        let sums =
            (verifier::checksum(Kind::Inode, inode), verifier::stored_checksum(Kind::Inode, inode));
        if sums.0 == sums.1 { u64_at(inode, 112) } else { 0 }
    });
    if own != 0 && own != u64::MAX && own >= lsn {
        return Ok(None);
    }
    buf.with_range_mut(record.offset, size, |inode| {
        apply(record, inode, context);
        verifier::update_lsn_crc(Kind::Inode, inode, lsn);
    });
    Ok(Some(buf))
}

/// How often an inode of version 4 had been written to its place.
fn flush_count(record: &InodeRecord) -> u16 {
    u16::from_le_bytes([record.core[FLUSH_COUNT], record.core[FLUSH_COUNT + 1]])
}

/// True if the device has a later state of an inode of version 4. The count begins anew behind its
/// largest value.
fn is_newer_v4(record: &InodeRecord, inode: &[u8]) -> bool {
    let (logged, stored) = (flush_count(record), u16_at(inode, FLUSH_COUNT));
    logged < stored && !(stored == u16::MAX && logged < u16::MAX / 2)
}

fn apply(record: &InodeRecord, inode: &mut [u8], context: &RecoveryContext) {
    let mut core = record.core.clone();
    core.resize(CORE, 0);
    swap_core(&mut core);
    // The pointer to the next unlinked inode is logged through the cluster alone.
    inode[..96].copy_from_slice(&core[..96]);
    if context.v4 {
        // One number in version 5, two in version 4: padding and the count of writes.
        inode[24..30].fill(0);
        put_u16(inode, FLUSH_COUNT, flush_count(record));
    } else {
        inode[104..CORE].copy_from_slice(&core[104..]);
    }
    let room = &mut inode[literal(context)..];
    let split = match usize::from(core[82]) * 8 {
        0 => room.len(),
        split => split,
    };
    let (data, attr) = room.split_at_mut(split);
    if record.fields.contains(InodeFields::DEV) {
        data[..4].copy_from_slice(&record.rdev.to_be_bytes());
    }
    let header = root_header(context);
    if let Some(bytes) = &record.data {
        let meta = core[FORMAT] == META_BTREE;
        put_fork(data, bytes, record.fields.contains(InodeFields::DBROOT), meta, header);
    }
    if let Some(bytes) = &record.attr {
        put_fork(attr, bytes, record.fields.contains(InodeFields::ABROOT), false, header);
    }
}

/// Puts what the log holds of a fork into its place; a root has `header` bytes in front in the log.
fn put_fork(room: &mut [u8], bytes: &[u8], is_root: bool, records_in_root: bool, header: usize) {
    if !is_root {
        room[..bytes.len()].copy_from_slice(bytes);
        return;
    }
    if records_in_root {
        // Levels and count, then records: a root with keys and pointers is not read here, and
        // such file systems are not written.
        if u16_at(bytes, 4) == 0 {
            room[..4].copy_from_slice(&bytes[4..8]);
            let records = &bytes[header..];
            room[4..4 + records.len()].copy_from_slice(records);
        }
        return;
    }
    // From the log's packing, for as many records as the region holds, to the inode's.
    let count = usize::from(u16_at(bytes, 6));
    let (packed, most) = ((bytes.len() - header) / 16, (room.len() - 4) / 16);
    room[..4].copy_from_slice(&bytes[4..8]);
    room[4..4 + count * 8].copy_from_slice(&bytes[header..header + count * 8]);
    let from = header + packed * 8;
    let to = 4 + most * 8;
    room[to..to + count * 8].copy_from_slice(&bytes[from..from + count * 8]);
}
