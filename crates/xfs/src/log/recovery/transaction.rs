//! Operations of many records, put together to transactions.

use std::collections::BTreeMap;

use rt::Cx;

use super::record::Record;
use crate::error::Result;
use crate::format::log::{
    CLIENT_LOG, CLIENT_TRANSACTION, Lsn, OpFlags, RawOpHeader, RawTransHeader, TRANS_MAGIC,
};
use crate::format::log_item::{ItemKind, RawItemHead};
use crate::log::{LogError, LogGeometry, OP_HEADER};

/// Regions of one item at the most: a header and a region for each of 512 chunks, with room.
const REGIONS_MAX: u16 = 600;

/// One item: its regions, of which the first says what it is.
pub(super) struct LoggedItem {
    /// How many regions it will have.
    pub total: usize,
    pub regions: Vec<Vec<u8>>,
}

impl LoggedItem {
    /// Its type; the first region has at least the four bytes that say it.
    pub fn kind(&self) -> u16 {
        u16::from_le_bytes([self.regions[0][0], self.regions[0][1]])
    }
}

/// A whole transaction.
pub(super) struct Transaction {
    pub tid: u32,
    /// The record in which it begins.
    pub lsn: Lsn,
    pub items: Vec<LoggedItem>,
    /// Its header, which may come in two pieces.
    header: Vec<u8>,
    /// The last region is not complete.
    open: bool,
    /// A part of it is lost: items are taken where one can be seen to begin.
    lost: bool,
}

/// Who wants the transactions of a log, in the order in which they were committed.
pub(super) trait Sink {
    fn transaction(&mut self, cx: &mut Cx, transaction: Transaction) -> Result<()>;
}

/// Transactions that have begun.
pub(super) struct Assembly {
    open: BTreeMap<u32, Transaction>,
    bytes: u64,
    limit: u64,
    /// A record was left out.
    gap: bool,
}

impl Assembly {
    pub fn new(geometry: &LogGeometry) -> Assembly {
        Assembly { open: BTreeMap::new(), bytes: 0, limit: geometry.bytes(), gap: false }
    }

    /// A record is left out: of what has begun, whole items are kept.
    pub fn leave_out(&mut self) {
        self.gap = true;
        self.open.values_mut().for_each(Transaction::lose);
    }

    /// What began before a record that is left out was committed in it, or with it.
    pub fn end(&mut self, cx: &mut Cx, sink: &mut dyn Sink) -> Result<()> {
        let open = std::mem::take(&mut self.open);
        open.into_values().filter(|one| one.lost).try_for_each(|mut one| {
            one.lose();
            sink.transaction(cx, one)
        })
    }

    /// Takes the operations of a record.
    pub fn record(&mut self, cx: &mut Cx, record: &Record, sink: &mut dyn Sink) -> Result<()> {
        let data = record.unpacked();
        let mut rest = &data[..];
        let lsn = record.lsn;
        for index in 0..record.header().h_num_logops.get() {
            let Some(raw) = RawOpHeader::view(rest) else {
                return Err(LogError::Operation { lsn, index, len: 0 }.into());
            };
            let len = raw.oh_len.get();
            let end = OP_HEADER + len as usize;
            if end > rest.len() {
                return Err(LogError::Operation { lsn, index, len }.into());
            }
            let client = raw.oh_clientid;
            if client != CLIENT_TRANSACTION && client != CLIENT_LOG {
                return Err(LogError::Client { lsn, index, client }.into());
            }
            self.operation(cx, lsn, index, raw, &rest[OP_HEADER..end], sink)?;
            rest = &rest[end..];
        }
        Ok(())
    }

    fn operation(
        &mut self,
        cx: &mut Cx,
        lsn: Lsn,
        index: u32,
        raw: &RawOpHeader,
        region: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<()> {
        let (tid, mut flags) = (raw.oh_tid.get(), raw.flags());
        if flags.contains(OpFlags::START) {
            self.open.insert(tid, Transaction::new(tid, lsn));
            return Ok(());
        }
        if self.gap {
            // It may have begun in what is left out.
            self.open.entry(tid).or_insert_with(|| Transaction::rest(tid, lsn));
        }
        // Before the tail's first transaction lies the rest of older ones.
        let Some(transaction) = self.open.get_mut(&tid) else { return Ok(()) };
        self.bytes += region.len() as u64;
        if self.bytes > self.limit {
            return Err(LogError::TooLarge { limit: self.limit }.into());
        }
        let ended = flags.contains(OpFlags::END);
        flags.remove(OpFlags::END);
        if flags.contains(OpFlags::WAS_CONTINUED) {
            flags.remove(OpFlags::CONTINUE);
        }
        match flags {
            OpFlags::COMMIT => {
                let mut whole = self.open.remove(&tid).expect("it was just there");
                self.bytes -= whole.bytes().min(self.bytes);
                if whole.lost {
                    whole.lose();
                }
                whole.check()?;
                sink.transaction(cx, whole)
            }
            OpFlags::WAS_CONTINUED => transaction.continue_region(region, ended),
            OpFlags::CONTINUE => transaction.begin_region(region, true),
            flags if flags.is_empty() => transaction.begin_region(region, false),
            OpFlags::UNMOUNT => Ok(()),
            other => Err(LogError::OperationFlags { lsn, index, flags: other.bits() }.into()),
        }
    }
}

impl Transaction {
    fn new(tid: u32, lsn: Lsn) -> Transaction {
        Transaction { tid, lsn, items: Vec::new(), header: Vec::new(), open: false, lost: false }
    }

    /// The rest of one whose start is lost.
    fn rest(tid: u32, lsn: Lsn) -> Transaction {
        let header = vec![0; size_of::<RawTransHeader>()];
        Transaction { header, lost: true, ..Transaction::new(tid, lsn) }
    }

    /// What comes next does not follow on what is there.
    fn lose(&mut self) {
        let cut = self.open;
        self.items.pop_if(|item| cut || item.regions.len() < item.total);
        (self.lost, self.open) = (true, false);
        self.header.resize(size_of::<RawTransHeader>(), 0);
    }

    fn bytes(&self) -> u64 {
        let regions = self.items.iter().flat_map(|item| &item.regions);
        self.header.len() as u64 + regions.map(|region| region.len() as u64).sum::<u64>()
    }

    /// All items have all their regions.
    fn check(&self) -> Result<()> {
        let Some(last) = self.items.last() else { return Ok(()) };
        if last.regions.len() != last.total {
            return Err(LogError::ItemLength {
                tid: self.tid,
                what: "the last item",
                found: last.regions.len() as u64,
                expected: last.total as u64,
            }
            .into());
        }
        Ok(())
    }

    fn begin_region(&mut self, region: &[u8], open: bool) -> Result<()> {
        const HEADER: usize = size_of::<RawTransHeader>();
        self.open = open;
        if self.header.len() < HEADER {
            return self.take_header(region);
        }
        if region.is_empty() {
            return Ok(());
        }
        match self.items.last_mut() {
            Some(item) if item.regions.len() < item.total => item.regions.push(region.to_vec()),
            _ => match self.new_item(region) {
                Err(_) if self.lost => self.open = false,
                item => self.items.push(item?),
            },
        }
        Ok(())
    }

    fn new_item(&self, region: &[u8]) -> Result<LoggedItem> {
        let tid = self.tid;
        let Some(head) = RawItemHead::view(region) else {
            let (what, found) = ("an item's first region", region.len() as u64);
            return Err(LogError::ItemLength { tid, what, found, expected: 4 }.into());
        };
        let (kind, regions) = (head.kind.get(), head.size.get());
        if self.lost && ItemKind::from_number(kind).is_none() {
            return Err(LogError::UnknownItem { tid, kind }.into());
        }
        if regions == 0 || regions > REGIONS_MAX {
            return Err(LogError::ItemRegions { tid, kind, regions }.into());
        }
        Ok(LoggedItem { total: usize::from(regions), regions: vec![region.to_vec()] })
    }

    fn take_header(&mut self, region: &[u8]) -> Result<()> {
        self.header.extend_from_slice(region);
        let tid = self.tid;
        let found = RawTransHeader::view(&self.header).map(|raw| raw.th_magic.get());
        if let Some(found) = found.filter(|&found| found != TRANS_MAGIC) {
            return Err(LogError::TransactionHeader { tid, found }.into());
        }
        if self.header.len() > size_of::<RawTransHeader>() {
            let (what, found) = ("the header", self.header.len() as u64);
            return Err(LogError::ItemLength { tid, what, found, expected: 16 }.into());
        }
        Ok(())
    }

    fn continue_region(&mut self, region: &[u8], ended: bool) -> Result<()> {
        if !self.open && self.lost {
            return Ok(());
        }
        if !self.open {
            return Err(LogError::Continuation { tid: self.tid }.into());
        }
        match self.items.last_mut().and_then(|item| item.regions.last_mut()) {
            Some(last) => last.extend_from_slice(region),
            None => self.take_header(region)?,
        }
        self.open = !ended;
        Ok(())
    }
}
