//! The two passes over the transactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::{IoGroup, Plug};
use rt::Cx;
use vfs::quota::Kind;

use super::buffer::BufferItem;
use super::dquot::{self, DquotRecord};
use super::inode::InodeRecord;
use super::intent::{self, Intents};
use super::stamp::Stamps;
use super::transaction::{LoggedItem, Sink, Transaction};
use super::{Cancelled, Recovered, RecoveryContext, buffer, icreate, inode};
use crate::buf::{Buf, BufCache, BufMap, LockedBuf};
use crate::error::Result;
use crate::format::dquot::QuotaFlags;
use crate::format::log_item::ItemKind;
use crate::log::LogError;

/// Bytes of recovered buffers that are kept before they are written.
const DIRTY_MAX: usize = 64 << 20;

/// What an item is, after its own checks.
enum Parsed {
    Buffer(BufferItem),
    Inode(InodeRecord),
    Icreate(icreate::Icreate),
    Dquot(DquotRecord),
    /// Kinds of quota that are no longer counted.
    Quotaoff(QuotaFlags),
    /// An intent or a done item.
    Intent(intent::Logged),
}

fn parse(tid: u32, item: &LoggedItem, context: &RecoveryContext) -> Result<Parsed> {
    let number = item.kind();
    let Some(kind) = ItemKind::from_number(number) else {
        return Err(LogError::UnknownItem { tid, kind: number }.into());
    };
    Ok(match kind {
        ItemKind::Buffer => Parsed::Buffer(buffer::parse(tid, item, context)?),
        ItemKind::Inode => Parsed::Inode(inode::parse(tid, item, context)?),
        ItemKind::Icreate => Parsed::Icreate(icreate::parse(tid, item, context)?),
        ItemKind::Dquot => Parsed::Dquot(dquot::parse(tid, item, context)?),
        ItemKind::Quotaoff => Parsed::Quotaoff(dquot::parse_quotaoff(tid, item)?),
        kind if kind.supported() => {
            Parsed::Intent(intent::parse(tid, kind, item, context.logged_attributes)?)
        }
        kind => return Err(LogError::UnsupportedItem { tid, name: kind.name() }.into()),
    })
}

/// Looks at everything and writes nothing.
pub(super) struct FirstPass {
    /// With the size that the log says so far.
    context: RecoveryContext,
    /// Sectors of the device.
    sectors: u64,
    cancelled: Cancelled,
    intents: Intents,
    quota_off: QuotaFlags,
}

impl FirstPass {
    pub fn new(context: &RecoveryContext, sectors: u64) -> FirstPass {
        let (cancelled, quota_off) = (BTreeMap::new(), QuotaFlags::empty());
        let context = context.clone();
        FirstPass { context, sectors, cancelled, intents: Intents::default(), quota_off }
    }

    /// The file system may have grown: what is logged with that, or later, lies anywhere in it.
    fn note_size(&mut self, tid: u32, item: &LoggedItem) -> Result<()> {
        let Some(size) = buffer::logged_size(item) else { return Ok(()) };
        let Some(sectors) = size.sectors(&self.context) else {
            let (what, found) = ("size in a superblock", size.blocks);
            return Err(LogError::ItemValue { tid, what, found }.into());
        };
        if sectors > self.context.sectors {
            if sectors > self.sectors {
                let (what, end) = ("a file system that has grown", self.sectors);
                return Err(LogError::ItemPlace { tid, what, sector: sectors, end }.into());
            }
            self.context.grow(size.blocks);
        }
        Ok(())
    }

    /// Kinds of quota that are no longer counted.
    pub fn quota_off(&self) -> QuotaFlags {
        self.quota_off
    }

    /// The table of cancelled buffers, if everything in the log can be recovered; what is known of
    /// the file system, with the size that it has at the end.
    pub fn finish(self) -> Result<(Cancelled, RecoveryContext)> {
        match self.intents.first_open_but(self.context.can_finish) {
            Some(what) if !self.context.leave_out => Err(LogError::Unfinished { what }.into()),
            _ => Ok((self.cancelled, self.context)),
        }
    }
}

impl Sink for FirstPass {
    fn transaction(&mut self, _cx: &mut Cx, transaction: Transaction) -> Result<()> {
        for item in transaction.items.iter().filter(|item| item.kind() == ItemKind::Buffer as u16) {
            let noted = self.note_size(transaction.tid, item);
            self.context.or_left_out(noted, &mut 0)?;
        }
        for item in &transaction.items {
            let parsed = parse(transaction.tid, item, &self.context);
            let Some(parsed) = self.context.or_left_out(parsed, &mut 0)? else { continue };
            match parsed {
                Parsed::Buffer(buffer) if buffer.is_cancel() => {
                    *self.cancelled.entry(buffer.map()).or_default() += 1;
                }
                Parsed::Intent(logged) => self.intents.take(transaction.lsn, logged),
                Parsed::Quotaoff(kinds) => self.quota_off |= kinds,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Recovers.
pub(super) struct SecondPass<'a> {
    bufs: Arc<BufCache>,
    context: &'a RecoveryContext,
    cancelled: Cancelled,
    /// Kinds of quota of which nothing is recovered.
    quota_off: QuotaFlags,
    intents: Intents,
    stamps: Stamps,
    dirty: BTreeMap<(u64, usize), Arc<Buf>>,
    dirty_bytes: usize,
    transactions: u64,
    items: u64,
    skipped: u64,
    left_out: u64,
    written: u64,
}

impl<'a> SecondPass<'a> {
    pub fn new(
        bufs: Arc<BufCache>,
        context: &'a RecoveryContext,
        cancelled: Cancelled,
        quota_off: QuotaFlags,
    ) -> SecondPass<'a> {
        SecondPass {
            bufs,
            context,
            cancelled,
            quota_off,
            intents: Intents::default(),
            stamps: Stamps::default(),
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
            transactions: 0,
            items: 0,
            skipped: 0,
            left_out: 0,
            written: 0,
        }
    }

    /// Writes what is left, makes it durable and returns what was done.
    pub fn finish(mut self, cx: &mut Cx, recovered: &mut Recovered) -> Result<()> {
        self.write(cx)?;
        self.bufs.queue().flush(cx)?;
        recovered.transactions = self.transactions;
        recovered.items = self.items;
        recovered.skipped = self.skipped;
        recovered.left_out += self.left_out;
        recovered.buffers = self.written;
        recovered.unfinished = self.intents.into_open();
        Ok(())
    }

    fn note_dirty(&mut self, buf: &LockedBuf) {
        let key = (buf.daddr().0, buf.len());
        if self.dirty.insert(key, Arc::clone(buf)).is_none() {
            self.dirty_bytes += buf.len();
        }
    }

    fn write(&mut self, cx: &mut Cx) -> Result<()> {
        let (group, mut plug) = (IoGroup::new(), Plug::new());
        for buf in std::mem::take(&mut self.dirty).into_values() {
            self.written += 1;
            for bio in buf.write_bios(&group) {
                self.bufs.queue().submit_plugged(cx, &mut plug, bio);
            }
        }
        plug.finish(cx);
        self.dirty_bytes = 0;
        Ok(group.wait(cx)?)
    }

    fn recover_buffer(&mut self, cx: &mut Cx, item: &BufferItem) -> Result<()> {
        let map = item.map();
        if item.is_cancel() {
            if let Some(count) = self.cancelled.get_mut(&map) {
                *count -= 1;
                if *count == 0 {
                    self.cancelled.remove(&map);
                }
            }
            return Ok(());
        }
        let off = item.quota().is_some_and(|kind| self.is_off(kind));
        if off || self.cancelled.contains_key(&map) {
            self.skipped += 1;
            return Ok(());
        }
        self.drop_overlapping(cx, map)?;
        match buffer::recover(cx, &self.bufs, item, self.context, &self.stamps)? {
            Some(buf) => {
                self.stamps.insert(map.daddr.0 * 512);
                self.note_dirty(&buf);
            }
            None => self.skipped += 1,
        }
        Ok(())
    }

    fn is_off(&self, kind: Kind) -> bool {
        self.quota_off.contains(QuotaFlags::counted(kind))
    }

    fn recover_dquot(&mut self, cx: &mut Cx, item: &DquotRecord) -> Result<()> {
        if self.is_off(item.kind) || self.cancelled.contains_key(&item.map()) {
            self.skipped += 1;
            return Ok(());
        }
        self.drop_overlapping(cx, item.map())?;
        match dquot::recover(cx, &self.bufs, item, self.context, &self.stamps)? {
            Some(buf) => {
                self.stamps.insert(item.place());
                self.note_dirty(&buf);
            }
            None => self.skipped += 1,
        }
        Ok(())
    }

    /// A block that has served with another length must be on the device before it is read with
    /// this one.
    fn drop_overlapping(&mut self, cx: &mut Cx, map: BufMap) -> Result<()> {
        let (bytes, start) = (map.bytes(), map.daddr.0);
        let end = start + u64::from(map.len);
        let from = start.saturating_sub(128);
        let other = self.dirty.range((from, 0)..(end, 0)).any(|(&(daddr, len), _)| {
            daddr + len as u64 / 512 > start && (daddr, len) != (start, bytes)
        });
        if other {
            self.write(cx)?;
        }
        self.bufs.drop_clean_at(start, bytes);
        Ok(())
    }

    fn recover(&mut self, cx: &mut Cx, item: Parsed, transaction: &Transaction) -> Result<()> {
        let lsn = transaction.lsn;
        self.stamps.begin(lsn.bits());
        match item {
            Parsed::Buffer(buffer) => self.recover_buffer(cx, &buffer)?,
            Parsed::Inode(record) => {
                if self.cancelled.contains_key(&record.cluster()) {
                    self.skipped += 1;
                    return Ok(());
                }
                self.drop_overlapping(cx, record.cluster())?;
                match inode::recover(cx, &self.bufs, &record, self.context, lsn.bits())? {
                    Some(buf) => self.note_dirty(&buf),
                    None => self.skipped += 1,
                }
            }
            Parsed::Icreate(icreate) => {
                for map in icreate.clusters(self.context) {
                    if !self.cancelled.contains_key(&map) {
                        self.drop_overlapping(cx, map)?;
                        let buf = icreate::recover(cx, &self.bufs, &icreate, map, self.context)?;
                        self.note_dirty(&buf);
                    }
                }
            }
            Parsed::Dquot(record) => self.recover_dquot(cx, &record)?,
            Parsed::Quotaoff(_) => {}
            Parsed::Intent(logged) => self.intents.take(lsn, logged),
        }
        Ok(())
    }
}

/// The order inside a transaction: buffers and new inode chunks, then inodes and intents, then
/// unlinked pointers, then the ends of buffers.
fn rank(item: &Parsed) -> u8 {
    match item {
        Parsed::Buffer(buffer) if buffer.is_cancel() => 3,
        Parsed::Buffer(buffer) if buffer.is_inode_buf() => 2,
        Parsed::Buffer(_) | Parsed::Icreate(_) => 0,
        Parsed::Inode(_) | Parsed::Intent(_) | Parsed::Dquot(_) | Parsed::Quotaoff(_) => 1,
    }
}

impl Sink for SecondPass<'_> {
    fn transaction(&mut self, cx: &mut Cx, mut transaction: Transaction) -> Result<()> {
        self.transactions += 1;
        let items = std::mem::take(&mut transaction.items);
        self.items += items.len() as u64;
        let mut parsed = Vec::with_capacity(items.len());
        for item in items {
            let item = parse(transaction.tid, &item, self.context);
            parsed.extend(self.context.or_left_out(item, &mut self.left_out)?);
        }
        parsed.sort_by_key(rank);
        for item in parsed {
            let recovered = self.recover(cx, item, &transaction);
            self.context.or_left_out(recovered, &mut self.left_out)?;
        }
        if self.dirty_bytes > DIRTY_MAX {
            self.write(cx)?;
        }
        Ok(())
    }
}
