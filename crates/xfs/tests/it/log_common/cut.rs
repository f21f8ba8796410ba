//! Logs of the kernel that end behind one of their records.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use xfs::format::log::{LOG_BLOCK, RawRecordHeader};

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
