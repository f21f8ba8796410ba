//! Fast commits: records in the last blocks of the journal, which continue the log's last
//! transaction.
//!
//! A record is a tag, a length and a value, little-endian and unaligned; it never crosses a block.
//! A fast commit begins on a new block and ends with a record that has a checksum over all its
//! bytes. All of them carry the number of the transaction that would be the next in the log: when
//! that one commits, they mean nothing any more. What the records say is the file system's.
//!
//! Source: kernel `Documentation/filesystems/ext4/journal.rst`, and the areas that the kernel
//! writes.

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
