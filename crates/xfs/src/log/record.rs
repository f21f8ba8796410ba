//! Writing records: regions in, blocks of the log out.

use base::Page;
use block::{Bio, BioFlags, IoGroup, Op, Segment};
use rt::Cx;
use zerocopy::IntoBytes;

use super::item::LogVec;
use super::{Log, LogError, LogGeometry, LogHead, LogOptions, OP_HEADER};
use crate::error::Result;
use crate::format::log::{
    CLIENT_LOG, CLIENT_TRANSACTION, FORMAT_LITTLE, LOG_BLOCK, Lsn, OpFlags, RECORD_MAGIC,
    RawExtHeader, RawRecordHeader, RawTransHeader, TRANS_CHECKPOINT, TRANS_MAGIC, UNMOUNT_MAGIC,
    VERSION_2, header_blocks, record_checksum,
};

/// Records of a checkpoint that are on their way to the device at once. With records of 256 KiB
/// this is how far behind the head recovery looks for holes.
const IN_FLIGHT: u32 = 7;
/// The transaction number of an unmount record.
const UNMOUNT_TID: u32 = 0xb0c0_d0d0;

/// The end of the log that is written.
pub(crate) struct Writer {
    geometry: LogGeometry,
    record_bytes: usize,
    /// Bytes of a record that are used.
    filled: usize,
    head: Lsn,
    previous: u32,
    /// The tail that a record on the device names.
    tail: Lsn,
    record: Option<Record>,
    group: IoGroup,
    in_flight: u32,
    tid: u32,
}

/// A record that is being filled.
struct Record {
    bytes: Vec<u8>,
    operations: u32,
}

/// How a record goes to the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// More follows.
    More,
    /// It makes everything before it valid, and names this tail.
    Last(Lsn),
}

impl Writer {
    pub fn new(geometry: LogGeometry, options: &LogOptions, head: LogHead) -> Writer {
        let record_bytes = options.record_bytes as usize;
        Writer {
            geometry,
            record_bytes,
            filled: options.filled(&geometry) as usize,
            head: head.head,
            previous: head.previous,
            tail: head.tail,
            record: None,
            group: IoGroup::new(),
            in_flight: 0,
            tid: 0x1000,
        }
    }

    /// Where the next record begins.
    pub fn head(&self) -> Lsn {
        self.head
    }

    /// The tail that a record on the device names.
    pub fn tail(&self) -> Lsn {
        self.tail
    }

    fn header_bytes(&self) -> usize {
        header_blocks(self.record_bytes) * LOG_BLOCK
    }

    /// Writes a checkpoint of these vectors and waits until it is on the device; returns its
    /// sequence number. May park.
    ///
    /// # Errors
    /// The device's; [`LogError::Overrun`] where the log has no room. Nothing of the checkpoint is
    /// valid then.
    pub fn checkpoint<'a>(
        &mut self,
        cx: &mut Cx,
        log: &Log,
        vecs: impl Iterator<Item = &'a LogVec> + Clone,
        tail: Option<Lsn>,
    ) -> Result<Lsn> {
        self.tid = self.tid.wrapping_add(1);
        let (tid, start) = (self.tid, self.head);
        self.operation(cx, log, tid, OpFlags::START, &[])?;
        let regions: usize = vecs.clone().map(LogVec::count).sum();
        let mut header = RawTransHeader::zeroed();
        header.th_magic.set(TRANS_MAGIC);
        header.th_type.set(TRANS_CHECKPOINT);
        header.th_tid.set(tid);
        header.th_num_items.set(regions as u32 + 1);
        self.operation(cx, log, tid, OpFlags::empty(), header.as_bytes())?;
        for vec in vecs {
            for region in vec.regions() {
                self.operation(cx, log, tid, OpFlags::empty(), region)?;
            }
        }
        self.operation(cx, log, tid, OpFlags::COMMIT, &[])?;
        self.close(cx, log, Ending::Last(tail.unwrap_or(start)))?;
        Ok(start)
    }

    /// Writes the record that says that nothing needs to be recovered. May park.
    pub fn unmount(&mut self, cx: &mut Cx, log: &Log) -> Result<()> {
        let start = self.head;
        let mut region = [0; 8];
        region[..2].copy_from_slice(&UNMOUNT_MAGIC.to_le_bytes());
        self.open_record();
        self.put(UNMOUNT_TID, CLIENT_LOG, OpFlags::UNMOUNT, &region);
        self.close(cx, log, Ending::Last(start))
    }

    fn open_record(&mut self) {
        if self.record.is_none() {
            let mut bytes = Vec::with_capacity(self.filled);
            bytes.resize(self.header_bytes(), 0);
            self.record = Some(Record { bytes, operations: 0 });
        }
    }

    /// Bytes that an operation's region may have in this record.
    fn room(&self) -> usize {
        let used = self.record.as_ref().map_or(self.header_bytes(), |record| record.bytes.len());
        self.filled.saturating_sub(used + OP_HEADER) & !3
    }

    fn put(&mut self, tid: u32, client: u8, flags: OpFlags, region: &[u8]) {
        let record = self.record.as_mut().expect("a record is open");
        record.bytes.extend_from_slice(&tid.to_be_bytes());
        record.bytes.extend_from_slice(&(region.len() as u32).to_be_bytes());
        record.bytes.extend_from_slice(&[client, flags.bits(), 0, 0]);
        record.bytes.extend_from_slice(region);
        record.operations += 1;
    }

    /// Writes one region, over several records where it must.
    fn operation(
        &mut self,
        cx: &mut Cx,
        log: &Log,
        tid: u32,
        flags: OpFlags,
        mut region: &[u8],
    ) -> Result<()> {
        let mut first = true;
        loop {
            // Not for the sake of a few bytes only.
            let least = OP_HEADER + region.len().min(64);
            if self.record.is_some() && self.room() < least {
                self.close(cx, log, Ending::More)?;
            }
            self.open_record();
            let part = region.len().min(self.room());
            let last = part == region.len();
            let mut flags = flags;
            match (first, last) {
                (true, true) => {}
                (true, false) => flags |= OpFlags::CONTINUE,
                (false, true) => flags |= OpFlags::WAS_CONTINUED | OpFlags::END,
                (false, false) => flags |= OpFlags::WAS_CONTINUED | OpFlags::CONTINUE,
            }
            self.put(tid, CLIENT_TRANSACTION, flags, &region[..part]);
            if last {
                return Ok(());
            }
            region = &region[part..];
            first = false;
        }
    }

    /// Sends the open record to the device.
    fn close(&mut self, cx: &mut Cx, log: &Log, ending: Ending) -> Result<()> {
        let record = self.record.take().expect("a record is open");
        let stripe = self.geometry.stripe.max(LOG_BLOCK as u32) as usize;
        let total = record.bytes.len().next_multiple_of(stripe);
        let free = log.grant.space_left();
        if total as u64 >= free {
            return Err(LogError::Overrun { needed: total as u64, free }.into());
        }
        let mut page = Page::padded(&record.bytes, total);
        self.finish_header(page.make_mut(), record.operations, ending);
        let flags = match ending {
            Ending::More => BioFlags::empty(),
            Ending::Last(_) => BioFlags::PREFLUSH | BioFlags::FUA,
        };
        if self.in_flight == IN_FLIGHT || ending != Ending::More {
            // What was written before is there when the last record makes it valid.
            self.wait(cx)?;
        }
        if let Ending::Last(_) = ending {
            log.flush_beside(cx)?;
        }
        self.submit(cx, log, page, flags);
        let blocks = (total / LOG_BLOCK) as u32;
        log.stats.note_record(total as u64);
        self.advance(log, blocks);
        if let Ending::Last(tail) = ending {
            self.wait(cx)?;
            self.tail = tail;
        }
        Ok(())
    }

    fn wait(&mut self, cx: &mut Cx) -> Result<()> {
        self.in_flight = 0;
        self.group.wait(cx).map_err(|error| LogError::Device(error).into())
    }

    fn advance(&mut self, log: &Log, blocks: u32) {
        self.previous = self.head.block;
        self.head = advance(self.head, blocks, self.geometry.blocks);
        log.bufs.lsns().set_end(self.head);
        log.grant.advance_head(u64::from(blocks) * LOG_BLOCK as u64);
    }

    /// Fills the headers, stamps the cycle into every block and sums it up.
    fn finish_header(&self, page: &mut [u8], operations: u32, ending: Ending) {
        let (headers, data) = page.split_at_mut(self.header_bytes());
        let (main, extended) = headers.split_at_mut(LOG_BLOCK);
        let raw = RawRecordHeader::view_mut(main).expect("a block holds a header");
        raw.h_magicno.set(RECORD_MAGIC);
        raw.h_cycle.set(self.head.cycle);
        raw.h_version.set(VERSION_2);
        raw.h_len.set(data.len() as u32);
        raw.h_lsn.set(self.head.bits());
        let tail = match ending {
            Ending::More => self.tail,
            Ending::Last(tail) => tail,
        };
        raw.h_tail_lsn.set(tail.bits());
        raw.h_prev_block.set(self.previous);
        raw.h_num_logops.set(operations);
        raw.h_fmt.set(FORMAT_LITTLE);
        raw.h_fs_uuid = self.geometry.uuid;
        raw.h_size.set(self.record_bytes as u32);
        stamp_cycles(raw, extended, data, self.head.cycle);
        self.bump_wrapped(page);
        let (headers, data) = page.split_at_mut(self.header_bytes());
        let (main, extended) = headers.split_at_mut(LOG_BLOCK);
        let crc = record_checksum(main, extended, data);
        RawRecordHeader::view_mut(main).expect("a block holds a header").h_crc.set(crc);
    }

    /// Blocks behind the end of the ring lie at its start and carry the next cycle.
    fn bump_wrapped(&self, page: &mut [u8]) {
        let before = (self.geometry.blocks - self.head.block) as usize;
        for block in page.chunks_exact_mut(LOG_BLOCK).skip(before) {
            block[..4].copy_from_slice(&next_cycle(self.head.cycle).to_be_bytes());
        }
    }

    fn submit(&mut self, cx: &mut Cx, log: &Log, page: Page, flags: BioFlags) {
        let before = (self.geometry.blocks - self.head.block) as usize * LOG_BLOCK;
        let cut = before.min(page.len());
        let pieces = [(self.head.block, 0, cut), (0, cut, page.len() - cut)];
        for (block, offset, len) in pieces {
            if len == 0 {
                continue;
            }
            let seg = Segment { page: page.clone(), offset: offset as u32, len: len as u32 };
            let sector = self.geometry.sector(block);
            let flags = flags | BioFlags::META | BioFlags::SYNC;
            let segs = std::iter::once(seg).collect();
            let bio = Bio::new(Op::Write, sector, segs, flags, self.group.end());
            log.device.submit(cx, bio);
        }
        self.in_flight += 1;
    }
}

/// The cycle behind `cycle`: never the magic number, which would make a data block look like a
/// header.
pub(crate) fn next_cycle(cycle: u32) -> u32 {
    match cycle.wrapping_add(1) {
        RECORD_MAGIC => RECORD_MAGIC + 1,
        cycle => cycle,
    }
}

/// The place `count` blocks behind `lsn` in a ring of `blocks`.
pub(crate) fn advance(lsn: Lsn, count: u32, blocks: u32) -> Lsn {
    let block = u64::from(lsn.block) + u64::from(count);
    match block >= u64::from(blocks) {
        true => {
            let block = (block - u64::from(blocks)) as u32;
            Lsn { cycle: next_cycle(lsn.cycle), block }
        }
        false => Lsn { cycle: lsn.cycle, block: block as u32 },
    }
}

/// Moves the first word of every block of data into the headers and puts the cycle there.
fn stamp_cycles(raw: &mut RawRecordHeader, extended: &mut [u8], data: &mut [u8], cycle: u32) {
    let (mut groups, mut ext) = (data.chunks_mut(64 * LOG_BLOCK), extended.chunks_mut(LOG_BLOCK));
    for (word, block) in raw.h_cycle_data.iter_mut().zip(blocks_of(groups.next())) {
        take_word(word.as_mut_bytes(), block, cycle);
    }
    for header in ext.by_ref() {
        let header = RawExtHeader::view_mut(header).expect("a block holds a header");
        header.xh_cycle.set(cycle);
        for (word, block) in header.xh_cycle_data.iter_mut().zip(blocks_of(groups.next())) {
            take_word(word.as_mut_bytes(), block, cycle);
        }
    }
}

fn blocks_of(group: Option<&mut [u8]>) -> impl Iterator<Item = &mut [u8]> {
    group.into_iter().flat_map(|group| group.chunks_mut(LOG_BLOCK))
}

fn take_word(word: &mut [u8], block: &mut [u8], cycle: u32) {
    word.copy_from_slice(&block[..4]);
    block[..4].copy_from_slice(&cycle.to_be_bytes());
}
