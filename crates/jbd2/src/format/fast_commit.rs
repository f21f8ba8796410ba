//! Fast commits: records in the last blocks of the journal, which continue the log's last
//! transaction.
//!
//! A record is a tag, a length and a value, little-endian and unaligned; it never crosses a block.
//! A fast commit begins on a new block and ends with a record that has a checksum over all its
//! bytes. All of them carry the number of the transaction that would be the next in the log: when
//! that one commits, they mean nothing any more. What the records say is the file system's.
//!
//! A record leaves room for one more header in its block; where it would not, the block is filled
//! and it goes to the next.
//!
//! Source: kernel `Documentation/filesystems/ext4/journal.rst`, and the areas that the kernel
//! writes.

use base::Page;
use base::crc::crc32c;

/// Fills a block.
pub const TAG_PAD: u16 = 7;
/// Ends a fast commit.
pub const TAG_TAIL: u16 = 8;
/// Begins the area.
pub const TAG_HEAD: u16 = 9;
/// Bytes of a tag and a length.
const HEADER: usize = 4;

/// A record of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub tag: u16,
    /// Its content.
    pub value: Vec<u8>,
    /// Where it lies: block of the journal, and byte in it.
    pub block: u32,
    /// See `block`.
    pub offset: u32,
}

/// A head asks for features that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fast commits in journal block {block} use unknown features {features:#x}")]
pub struct UnknownFeatures {
    /// Block of the journal.
    pub block: u32,
    /// The features.
    pub features: u32,
}

/// Complete fast commits that wait for their replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastCommits {
    /// The transaction that they stand for.
    pub tid: u32,
    /// How many there are.
    pub count: u32,
    /// Their records, oldest first.
    pub records: Vec<Record>,
}

/// Collects the fast commits of an area, block by block.
#[derive(Debug)]
pub(crate) struct Scan {
    pub found: FastCommits,
    /// Records of the one that is not complete yet.
    open: Vec<Record>,
    crc: u32,
    headed: bool,
}

/// A fast commit that is put together. What does not fit into the area is counted and dropped.
#[derive(Debug)]
pub struct FastCommitWriter {
    block_size: usize,
    blocks: Vec<Vec<u8>>,
    /// Blocks that the area has left.
    room: usize,
    records: usize,
    fits: bool,
}

impl FastCommitWriter {
    /// One of `room` blocks at the most, with a head where it is the first of transaction `head`.
    pub(crate) fn new(block_size: usize, room: usize, head: Option<u32>) -> FastCommitWriter {
        let (blocks, records, fits) = (Vec::new(), 0, true);
        let mut writer = FastCommitWriter { block_size, blocks, room, records, fits };
        if let Some(tid) = head {
            writer.put(TAG_HEAD, &[&[0; 4], &tid.to_le_bytes()]);
        }
        writer
    }

    /// Appends a record whose value is these parts, one after the other.
    pub fn push(&mut self, tag: u16, value: &[&[u8]]) {
        self.records += 1;
        self.put(tag, value);
    }

    /// True where no record was pushed.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    fn put(&mut self, tag: u16, value: &[&[u8]]) {
        let len: usize = value.iter().map(|part| part.len()).sum();
        if !self.make_room(HEADER + len) {
            return;
        }
        self.append_header(tag, len);
        let block = self.blocks.last_mut().expect("there is room in a block");
        value.iter().for_each(|part| block.extend_from_slice(part));
    }

    fn append_header(&mut self, tag: u16, len: usize) {
        let block = self.blocks.last_mut().expect("there is room in a block");
        block.extend_from_slice(&tag.to_le_bytes());
        block.extend_from_slice(&(len as u16).to_le_bytes());
    }

    /// Sees to a block with room for `bytes` and a header; false where there is none.
    fn make_room(&mut self, bytes: usize) -> bool {
        let needed = bytes + HEADER;
        let used = self.blocks.last().map(Vec::len);
        if used.is_none_or(|used| used + needed > self.block_size) {
            if let Some(used) = used {
                self.append_header(TAG_PAD, self.block_size - used - HEADER);
                self.fill();
            }
            self.fits &= needed <= self.block_size && self.blocks.len() < self.room;
            if self.fits {
                self.blocks.push(Vec::with_capacity(self.block_size));
            }
        }
        self.fits
    }

    fn fill(&mut self) {
        let size = self.block_size;
        self.blocks.last_mut().expect("there is a block to fill").resize(size, 0);
    }

    /// The blocks, closed by a tail; `None` where there are too many.
    pub(crate) fn seal(mut self, tid: u32) -> Option<Vec<Page>> {
        if !self.fits || !self.make_room(HEADER + 8) {
            return None;
        }
        let used = self.blocks.last().map_or(0, Vec::len);
        self.append_header(TAG_TAIL, self.block_size - used - HEADER);
        let (tail, before) = self.blocks.split_last_mut().expect("the tail has a block");
        tail.extend_from_slice(&tid.to_le_bytes());
        let crc = before.iter().fold(0, |crc, block| crc32c(crc, block));
        let crc = crc32c(crc, tail);
        tail.extend_from_slice(&crc.to_le_bytes());
        self.fill();
        Some(self.blocks.iter().map(|block| Page::from_slice(block)).collect())
    }
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

impl Scan {
    /// Those that continue the log before transaction `tid`.
    pub fn new(tid: u32) -> Scan {
        let found = FastCommits { tid, ..FastCommits::default() };
        Scan { found, open: Vec::new(), crc: 0, headed: false }
    }

    /// Takes block `number` of the journal; false where the area ends before or in it. What ends an
    /// area is no damage: older fast commits, or one that was being written.
    ///
    /// # Errors
    /// A head asks for features: nothing behind it is understood.
    pub fn block(&mut self, number: u32, bytes: &[u8]) -> Result<bool, UnknownFeatures> {
        let mut at = 0;
        while at + HEADER <= bytes.len() {
            let (tag, len) = (le16(bytes, at), usize::from(le16(bytes, at + 2)));
            let Some(value) = bytes.get(at + HEADER..at + HEADER + len) else { return Ok(false) };
            let whole = &bytes[at..at + HEADER + len];
            match tag {
                TAG_HEAD => {
                    if len < 8 || le32(&value[4..]) != self.found.tid {
                        return Ok(false);
                    }
                    let features = le32(value);
                    if features != 0 {
                        return Err(UnknownFeatures { block: number, features });
                    }
                    self.headed = true;
                }
                TAG_TAIL => return Ok(self.tail(whole)),
                TAG_PAD => {}
                1..=6 => {
                    let (block, offset) = (number, at as u32);
                    self.open.push(Record { tag, value: value.to_vec(), block, offset });
                }
                _ => return Ok(false),
            }
            if !self.headed {
                return Ok(false);
            }
            self.crc = crc32c(self.crc, whole);
            at += HEADER + len;
        }
        Ok(true)
    }

    /// The end of a fast commit: counts it where it is whole and of the right transaction.
    fn tail(&mut self, whole: &[u8]) -> bool {
        let value = &whole[HEADER..];
        let sound = self.headed
            && value.len() >= 8
            && le32(value) == self.found.tid
            && crc32c(self.crc, &whole[..HEADER + 4]) == le32(&value[4..]);
        if sound {
            self.found.records.append(&mut self.open);
            self.found.count += 1;
            self.crc = 0;
        }
        sound
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is written is found again, at every fill of the last block; a fast commit of
        /// another transaction behind it is not.
        #[test]
        fn written_then_scanned(
            lens in proptest::collection::vec(0usize..300, 1..40),
            shift in 10u32..13,
            tid in 1u32..1000,
        ) {
            let size = 1usize << shift;
            let mut scan = Scan::new(tid);
            let mut number = 1;
            let mut pushed = Vec::new();
            for (round, chunk) in lens.chunks(7).enumerate() {
                let mut writer = FastCommitWriter::new(size, 64, (round == 0).then_some(tid));
                for &len in chunk {
                    let value = vec![len as u8; len];
                    writer.push(1 + (len % 6) as u16, &[&value[..len / 2], &value[len / 2..]]);
                    pushed.push(value);
                }
                for page in writer.seal(tid).unwrap() {
                    prop_assert_eq!(page.len(), size);
                    scan.block(number, &page).unwrap();
                    number += 1;
                }
                prop_assert_eq!(scan.found.count as usize, round + 1);
            }
            let old = FastCommitWriter::new(size, 1, None).seal(tid.wrapping_sub(1)).unwrap();
            prop_assert!(!scan.block(number, &old[0]).unwrap());
            let found: Vec<Vec<u8>> = scan.found.records.into_iter().map(|r| r.value).collect();
            prop_assert_eq!(found, pushed);
        }
    }

    #[test]
    fn what_does_not_fit_is_no_fast_commit() {
        let mut writer = FastCommitWriter::new(1024, 1, Some(3));
        writer.push(3, &[&[1; 1000]]);
        assert!(writer.seal(3).is_none(), "no room for the tail");
        let mut writer = FastCommitWriter::new(1024, 9, Some(3));
        writer.push(3, &[&[1; 1020]]);
        assert!(writer.seal(3).is_none(), "larger than a block");
    }
}
