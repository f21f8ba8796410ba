//! Logs of the kernel that end behind one of their records.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use xfs::format::log::{
    CLIENT_TRANSACTION, LOG_BLOCK, OpFlags, RECORD_MAGIC, RECORD_MAX, RawRecordHeader,
    TRANS_CHECKPOINT, TRANS_MAGIC, VERSION_2, record_checksum,
};

use super::{Volume, copy, real};

/// A log that began in an empty one and has not gone round.
pub struct KernelLog {
    start: u64,
    bytes: Vec<u8>,
    /// The places of its records, in order: from, to.
    records: Vec<(usize, usize)>,
}

impl KernelLog {
    pub fn read(image: &Path) -> KernelLog {
        let (start, len) = real(|cx| {
            let geometry = Volume::open_to_read(cx, image).geometry;
            let blocks = u64::from(geometry.log_blocks);
            (geometry.sector(geometry.log_start).bytes(), blocks * u64::from(geometry.block_size))
        });
        let mut bytes = vec![0; len as usize];
        let file = File::open(image).expect("the image opens");
        file.read_exact_at(&mut bytes, start).expect("the log can be read");
        let mut records = Vec::new();
        let mut at = 0;
        while let Some(block) = bytes.get(at..at + LOG_BLOCK)
            && let Ok(raw) = RawRecordHeader::parse(block, (at / LOG_BLOCK) as u32)
        {
            let len = raw.header_blocks() * LOG_BLOCK + raw.h_len.get() as usize;
            let end = at + len.next_multiple_of(LOG_BLOCK);
            records.push((at, end));
            at = end;
        }
        KernelLog { start, bytes, records }
    }

    /// The records that hold an item of this kind, by their numbers.
    pub fn with_item(&self, kind: u16) -> Vec<usize> {
        let has = |&(from, to): &(usize, usize)| {
            self.bytes[from..to].chunks_exact(4).any(|word| word[..2] == kind.to_le_bytes())
        };
        (0..self.records.len()).filter(|&index| has(&self.records[index])).collect()
    }

    /// Writes a record with one transaction behind the last one; an item is its regions.
    pub fn append(image: &Path, items: &[Vec<Vec<u8>>]) {
        let log = KernelLog::read(image);
        let written = |&&(from, _): &&(usize, usize)| log.header(from).h_num_logops.get() > 0;
        let &(before, at) = log.records.iter().take_while(written).last().expect("a record");
        let raw = log.header(before);
        let mut data = operations(items);
        let mut headers = vec![0; RECORD_MAX.div_ceil(CYCLE_DATA) * LOG_BLOCK];
        let cycle = raw.h_cycle.get().to_be_bytes();
        for (index, block) in data.chunks_exact_mut(LOG_BLOCK).enumerate() {
            let first = if index < 64 { 44 } else { 4 };
            let word = index / 64 * LOG_BLOCK + first + index % 64 * 4;
            headers[word..word + 4].copy_from_slice(&block[..4]);
            block[..4].copy_from_slice(&cycle);
        }
        headers.chunks_exact_mut(LOG_BLOCK).for_each(|block| block[..4].copy_from_slice(&cycle));
        let half = |value: usize| (value as u32).to_be_bytes();
        let lsn = [cycle, half(at / LOG_BLOCK)].concat();
        let operations = items.iter().flatten().count() + 3;
        let start =
            [half(RECORD_MAGIC as usize), cycle, half(VERSION_2 as usize), half(data.len())];
        headers[..16].copy_from_slice(&start.concat());
        headers[16..24].copy_from_slice(&lsn);
        headers[24..32].copy_from_slice(&lsn);
        headers[36..40].copy_from_slice(&half(before / LOG_BLOCK));
        headers[40..44].copy_from_slice(&half(operations));
        headers[300..304].copy_from_slice(&half(1));
        headers[304..320].copy_from_slice(&raw.h_fs_uuid);
        headers[320..324].copy_from_slice(&half(RECORD_MAX));
        let sum = record_checksum(&headers[..LOG_BLOCK], &headers[LOG_BLOCK..], &data);
        headers[32..36].copy_from_slice(&sum.to_le_bytes());
        let file = fs::OpenOptions::new().write(true).open(image).expect("the image opens");
        let record = [headers, data].concat();
        file.write_all_at(&record, log.start + at as u64).expect("the log takes the record");
    }

    fn header(&self, at: usize) -> &RawRecordHeader {
        RawRecordHeader::view(&self.bytes[at..]).expect("a header")
    }

    /// A copy of the image whose log ends behind record `index`.
    pub fn cut(&self, image: &Path, index: usize, to: &Path) {
        copy(image, to);
        let end = self.records[index].1;
        let file = fs::OpenOptions::new().write(true).open(to).expect("the copy opens");
        let last = self.records.last().expect("a record").1;
        let zeroes = vec![0; (last - end).next_multiple_of(LOG_BLOCK)];
        file.write_all_at(&zeroes, self.start + end as u64).expect("the copy takes zeroes");
    }
}

/// Bytes of data whose cycle words one header keeps.
const CYCLE_DATA: usize = 64 * LOG_BLOCK;

/// The data of a record with one transaction.
fn operations(items: &[Vec<Vec<u8>>]) -> Vec<u8> {
    const TID: u32 = 0x77;
    let mut data = Vec::new();
    let mut push = |region: &[u8], flags: OpFlags| {
        data.extend([TID.to_be_bytes(), (region.len() as u32).to_be_bytes()].concat());
        data.extend([CLIENT_TRANSACTION, flags.bits(), 0, 0]);
        data.extend(region);
    };
    push(&[], OpFlags::START);
    let words = [TRANS_MAGIC, TRANS_CHECKPOINT, TID, items.len() as u32];
    push(&words.map(u32::to_le_bytes).concat(), OpFlags::empty());
    items.iter().flatten().for_each(|region| push(region, OpFlags::empty()));
    push(&[], OpFlags::COMMIT);
    data.resize(data.len().next_multiple_of(LOG_BLOCK), 0);
    data
}
