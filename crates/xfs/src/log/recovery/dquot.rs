//! Records of quota from the log, and the end of counting.

use std::sync::Arc;

use base::Sector;
use rt::Cx;
use vfs::quota::Kind;

use super::RecoveryContext;
use super::stamp::Stamps;
use super::transaction::LoggedItem;
use crate::buf::{BufCache, BufMap, LockedBuf};
use crate::error::Result;
use crate::format::dquot::{self, DQUOT_SIZE, MAGIC, QuotaFlags, RECORD_SIZE, RawDquot};
use crate::format::log_item::{RawDquotItem, RawQuotaoff};
use crate::log::LogError;
use crate::log::dquot_item::DQUOT_BLOCK;

/// A record's change.
pub(super) struct DquotRecord {
    pub kind: Kind,
    map: BufMap,
    offset: usize,
    /// As it lies on the disk.
    raw: Vec<u8>,
}

impl DquotRecord {
    pub fn map(&self) -> BufMap {
        self.map
    }

    /// Where the record lies, in bytes from the start of the device.
    pub fn place(&self) -> u64 {
        self.map.daddr.0 * 512 + self.offset as u64
    }
}

/// Checks a record's item and takes it apart.
pub(super) fn parse(tid: u32, item: &LoggedItem, context: &RecoveryContext) -> Result<DquotRecord> {
    let wrong = |what, found: u64| LogError::ItemValue { tid, what, found };
    let first = &item.regions[0];
    let Some(head) = RawDquotItem::view(first) else {
        let (what, found) = ("a quota record's item", first.len() as u64);
        return Err(LogError::ItemLength { tid, what, found, expected: 24 }.into());
    };
    let region = item.regions.get(1).filter(|_| item.regions.len() == 2);
    let raw = region.filter(|bytes| bytes.len() >= DQUOT_SIZE).ok_or(LogError::ItemLength {
        tid,
        what: "a quota record",
        found: region.map_or(0, Vec::len) as u64,
        expected: DQUOT_SIZE as u64,
    })?;
    let (daddr, blocks) = (head.qlf_blkno.get(), head.qlf_len.get());
    if blocks == 0 || blocks > 16 {
        return Err(wrong("blocks of a quota buffer", u64::from(blocks)).into());
    }
    let len = blocks * (context.block_size / 512);
    let end = daddr.checked_add(u64::from(len));
    if end.is_none_or(|end| end > context.sectors) {
        let (what, end) = ("a quota buffer", context.sectors);
        return Err(LogError::ItemPlace { tid, what, sector: daddr, end }.into());
    }
    let map = BufMap { daddr: Sector(daddr), len };
    let offset = head.qlf_boffset.get() as usize;
    if !offset.is_multiple_of(RECORD_SIZE) || offset + RECORD_SIZE > map.bytes() {
        return Err(wrong("offset of a quota record", offset as u64).into());
    }
    let dquot = RawDquot::view(raw).expect("as long as a record");
    if dquot.d_magic.get() != MAGIC {
        let found = u64::from(dquot.d_magic.get());
        return Err(wrong("magic number of a quota record", found).into());
    }
    if dquot.d_id.get() != head.qlf_id.get() {
        return Err(wrong("id of a quota record", u64::from(dquot.d_id.get())).into());
    }
    let Some(kind) = dquot::kind_of(dquot.d_type) else {
        return Err(wrong("type of a quota record", u64::from(dquot.d_type)).into());
    };
    Ok(DquotRecord { kind, map, offset, raw: raw.clone() })
}

/// The kinds that are no longer counted.
pub(super) fn parse_quotaoff(tid: u32, item: &LoggedItem) -> Result<QuotaFlags> {
    let first = &item.regions[0];
    let Some(raw) = RawQuotaoff::view(first).filter(|_| item.regions.len() == 1) else {
        let (what, found) = ("an end of counting", first.len() as u64);
        return Err(LogError::ItemLength { tid, what, found, expected: 8 }.into());
    };
    Ok(QuotaFlags::from_bits_retain(raw.qf_flags.get() as u16))
}

/// Brings a record's change into its block, which is answered; None if the device has a newer
/// content. May park.
pub(super) fn recover(
    cx: &mut Cx,
    bufs: &Arc<BufCache>,
    item: &DquotRecord,
    context: &RecoveryContext,
    stamps: &Stamps,
) -> Result<Option<LockedBuf>> {
    let buf = bufs.read_unchecked(cx, &[item.map], &DQUOT_BLOCK)?;
    let done = buf.with_range_mut(item.offset, RECORD_SIZE, |record| {
        if context.v4 {
            dquot::store(record, &item.raw, None);
            return true;
        }
        // As for every block: what is torn is old.
        let own = dquot::lsn(record);
        let newer = stamps.at(item.place()).is_newer(own) && dquot::is_whole(record);
        if !newer {
            dquot::store(record, &item.raw, Some(stamps.lsn()));
        }
        !newer
    });
    Ok(done.then_some(buf))
}
