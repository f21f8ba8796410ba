//! Inodes from the log.

use std::sync::Arc;

use base::{Ino, Sector};
use rt::Cx;

use super::RecoveryContext;
use super::transaction::LoggedItem;
use crate::buf::{BufCache, BufMap, LockedBuf, RAW};
use crate::error::Result;
use crate::format::btree::{LONG_HEADER, Shape};
use crate::format::inode::{CORE_SIZE_V4, MetadataType};
use crate::format::log_item::{InodeFields, RawInodeItem};
use crate::format::{At, Kind, put_u16, u16_at, u64_at, verifier};
use crate::log::LogError;
use crate::log::inode_item::{CORE, META_BTREE, swap_core};

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
/// Where a core says what an inode of the file system itself holds.
const METATYPE: usize = 6;

/// Where the forks begin.
fn literal(context: &RecoveryContext) -> usize {
    if context.v4 { CORE_SIZE_V4 } else { CORE }
}

/// How the root of a tree is laid out, and the bytes of the header that it has in the log.
#[derive(Clone, Copy)]
struct RootShape {
    shape: Shape,
    header: usize,
}

impl RootShape {
    /// That of a block map.
    fn of_map(context: &RecoveryContext) -> RootShape {
        let header = if context.v4 { Kind::Bmap.header_v4() } else { LONG_HEADER };
        RootShape { shape: Shape::of(Kind::Bmap), header }
    }

    /// That in the data fork of an inode with this core, in the log's byte order.
    fn of_data(core: &[u8], context: &RecoveryContext) -> Option<RootShape> {
        let map = RootShape::of_map(context);
        if core[FORMAT] != META_BTREE {
            return Some(map);
        }
        let number = u16::from_le_bytes([core[METATYPE], core[METATYPE + 1]]);
        let kind = MetadataType::tree_of(number)?;
        Some(RootShape { shape: Shape::of(kind), ..map })
    }

    /// Bytes of an entry's record or keys, and of its pointer.
    fn entry(&self, level: u16) -> [usize; 2] {
        match level {
            0 => [self.shape.record, 0],
            _ => [self.shape.key * self.shape.keys, self.shape.pointer],
        }
    }
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
    let map = RootShape::of_map(context);
    let Some(data) = RootShape::of_data(&record.core, context) else {
        let found =
            u64::from(u16::from_le_bytes([record.core[METATYPE], record.core[METATYPE + 1]]));
        return Err(LogError::ItemValue { tid, what: "type of a metadata inode", found }.into());
    };
    let forks = [
        (&record.data, data_room, record.fields.contains(InodeFields::DBROOT).then_some(data)),
        (&record.attr, attr_room, record.fields.contains(InodeFields::ABROOT).then_some(map)),
    ];
    for (fork, room, root) in forks {
        let Some(bytes) = fork else { continue };
        let needed = match root {
            Some(root) => root_size(tid, bytes, room, &root)?,
            // A fork may be padded to four bytes where the room is not.
            None => bytes.len(),
        };
        if needed > room {
            let (what, found) = ("a fork of an inode", needed as u64);
            return Err(LogError::ItemLength { tid, what, found, expected: room as u64 }.into());
        }
    }
    Ok(())
}

/// Bytes of a btree's root in the inode.
fn root_size(tid: u32, bytes: &[u8], room: usize, root: &RootShape) -> Result<usize> {
    let (what, found, expected) = ("a btree's root", bytes.len() as u64, root.header as u64);
    let short = LogError::ItemLength { tid, what, found, expected };
    if bytes.len() < root.header || room < 4 {
        return Err(short.into());
    }
    let (level, count) = (u16_at(bytes, 4), usize::from(u16_at(bytes, 6)));
    let [key, pointer] = root.entry(level);
    let (entry, packed) = (key + pointer, bytes.len() - root.header);
    // The log pads a region to four bytes, which all entries are multiples of.
    if !packed.is_multiple_of(entry) {
        return Err(short.into());
    }
    if count > packed / entry || count > root.shape.root_max(room, level) {
        let found = count as u64;
        return Err(LogError::ItemValue { tid, what: "records of a btree's root", found }.into());
    }
    Ok(4 + count * entry)
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
    // An equal number may be that of another checkpoint in the same record.
    if own != 0 && own != u64::MAX && own > lsn {
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
    let root_of = |field, root| record.fields.contains(field).then_some(root).flatten();
    if let Some(bytes) = &record.data {
        let root = RootShape::of_data(&record.core, context);
        put_fork(data, bytes, root_of(InodeFields::DBROOT, root));
    }
    if let Some(bytes) = &record.attr {
        let root = Some(RootShape::of_map(context));
        put_fork(attr, bytes, root_of(InodeFields::ABROOT, root));
    }
}

/// Puts what the log holds of a fork into its place.
fn put_fork(room: &mut [u8], bytes: &[u8], root: Option<RootShape>) {
    let Some(root) = root else {
        room[..bytes.len()].copy_from_slice(bytes);
        return;
    };
    // From the log's packing, for as many entries as the region holds, to the inode's.
    let (level, count) = (u16_at(bytes, 4), usize::from(u16_at(bytes, 6)));
    let [key, pointer] = root.entry(level);
    let packed = (bytes.len() - root.header) / (key + pointer);
    let most = root.shape.root_max(room.len(), level);
    room[..4].copy_from_slice(&bytes[4..8]);
    room[4..4 + count * key].copy_from_slice(&bytes[root.header..root.header + count * key]);
    let (from, to) = (root.header + packed * key, 4 + most * key);
    room[to..to + count * pointer].copy_from_slice(&bytes[from..from + count * pointer]);
}
