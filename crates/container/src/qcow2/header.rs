//! The header of a qcow2 image and its extensions.

use crate::Error;
use crate::bytes::{be32, be64, text};
use crate::error::{CONVERT, Subject};
use crate::source::{self, Source};

use super::L1_MAX;
use super::snapshot::Snapshot;

/// Bits of the features that a reader must know.
pub(super) mod incompatible {
    pub const DIRTY: u64 = 1;
    pub const CORRUPT: u64 = 1 << 1;
    pub const DATA_FILE: u64 = 1 << 2;
    pub const COMPRESSION: u64 = 1 << 3;
    pub const EXTENDED_L2: u64 = 1 << 4;
    pub const KNOWN: u64 = DIRTY | CORRUPT | DATA_FILE | COMPRESSION | EXTENDED_L2;
}

/// Type of the extension that names the format of the file behind.
pub(crate) const BACKING_FORMAT: u32 = 0xe279_2aca;
/// Longest name of a backing file, as QEMU has it.
pub(crate) const NAME_MAX: u32 = 1023;

/// How compressed clusters are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compression {
    Deflate,
    Zstd,
}

impl Compression {
    pub fn name(self) -> &'static str {
        match self {
            Compression::Deflate => "zlib",
            Compression::Zstd => "zstd",
        }
    }
}

/// The file behind an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Backing {
    pub name: String,
    pub format: Option<String>,
}

/// What the header says, checked.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub version: u32,
    pub cluster_bits: u32,
    /// Bytes of the disk.
    pub size: u64,
    /// Entries of the table of the first level.
    pub l1_size: u32,
    pub l1_offset: u64,
    pub snapshots: u32,
    pub snapshots_offset: u64,
    pub extended_l2: bool,
    pub compression: Compression,
    pub backing: Option<Backing>,
    pub data_file: Option<String>,
    incompatible: u64,
    pub bitmaps: bool,
}

impl Header {
    /// Bytes of a cluster.
    pub fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Whether a bit of the features is set that a reader must know.
    pub fn is(&self, bit: u64) -> bool {
        self.incompatible & bit != 0
    }

    /// Bytes of an entry of a table of the second level.
    pub fn l2_entry(&self) -> u64 {
        if self.extended_l2 { 16 } else { 8 }
    }

    /// Bytes of a table of the second level: one cluster.
    pub fn l2_bytes(&self) -> u64 {
        self.cluster()
    }

    /// Bytes of the disk below one entry of the first level.
    pub fn l1_span(&self) -> u64 {
        (self.l2_bytes() / self.l2_entry()) << self.cluster_bits
    }

    /// The entry of the first level that the byte `at` of the disk lies below, and that of the
    /// second.
    pub fn entries_of(&self, at: u64) -> (usize, usize) {
        let (index, within) = (at / self.l1_span(), at % self.l1_span());
        (index as usize, (within / self.cluster()) as usize)
    }

    /// Reads and checks the header.
    pub fn read(source: &dyn Source, subject: &Subject) -> Result<Header, Error> {
        let start = source::read_some(source, 0, 112)?;
        let bad = |what: String| subject.damaged("header", what);
        if start.len() < 72 || &start[..4] != b"QFI\xfb" {
            return Err(bad(format!("no qcow2 header ({} bytes)", start.len())));
        }
        let version = be32(&start, 4);
        if !(2..=3).contains(&version) {
            return Err(subject.unsupported(format!("version {version}, known are 2 and 3"), ""));
        }
        let cluster_bits = be32(&start, 20);
        if !(9..=21).contains(&cluster_bits) {
            return Err(bad(format!("clusters of 2^{cluster_bits} bytes, known are 2^9 to 2^21")));
        }
        let size = be64(&start, 24);
        if size > 1 << 61 {
            return Err(bad(format!("a disk of {size} bytes")));
        }
        match be32(&start, 32) {
            0 => {}
            1 => return Err(subject.unsupported("it is encrypted (AES of old)", decrypt())),
            2 => return Err(subject.unsupported("it is encrypted (LUKS)", decrypt())),
            other => return Err(bad(format!("unknown encryption {other}"))),
        }
        let (mut features, mut header_len) = (0, 72);
        if version == 3 {
            if start.len() < 104 {
                return Err(bad(format!("{} bytes, a header has 104", start.len())));
            }
            features = be64(&start, 72);
            header_len = be32(&start, 100);
            let cluster = 1u32 << cluster_bits;
            if header_len < 104 || header_len > cluster || header_len % 8 != 0 {
                return Err(bad(format!("{header_len} bytes long")));
            }
        }
        let mut compression = Compression::Deflate;
        if header_len > 104 && start.len() > 104 {
            compression = match start[104] {
                0 => Compression::Deflate,
                1 => Compression::Zstd,
                other => {
                    let what = format!("compression of kind {other}, known are zlib and zstd");
                    return Err(subject.unsupported(what, CONVERT));
                }
            };
        }
        let mut header = Header {
            version,
            cluster_bits,
            size,
            l1_size: be32(&start, 36),
            l1_offset: be64(&start, 40),
            snapshots: be32(&start, 60),
            snapshots_offset: be64(&start, 64),
            extended_l2: features & incompatible::EXTENDED_L2 != 0,
            compression,
            backing: None,
            data_file: None,
            incompatible: features,
            bitmaps: false,
        };
        let area = source::read_some(source, 0, header.cluster() as usize)?;
        header.extensions(&area, header_len as usize, subject)?;
        header.refuse(subject)?;
        header.backing_name(&area, be64(&start, 8), be32(&start, 16), subject)?;
        Ok(header)
    }

    /// Walks the extensions behind the header.
    fn extensions(&mut self, area: &[u8], from: usize, subject: &Subject) -> Result<(), Error> {
        let mut at = from;
        let mut unknown = Vec::new();
        let mut format = None;
        while at + 8 <= area.len() {
            let (kind, len) = (be32(area, at), be32(area, at + 4) as usize);
            if kind == 0 {
                break;
            }
            let Some(body) = area.get(at + 8..).and_then(|rest| rest.get(..len)) else {
                // A header of version 2 may be followed by anything.
                if self.version == 2 {
                    break;
                }
                let what = format!("{len} bytes pass the end of the first cluster");
                return Err(subject.damaged(format!("header extension at byte {at}"), what));
            };
            match kind {
                BACKING_FORMAT => format = Some(text(body)),
                0x4441_5441 => self.data_file = Some(utf8(body, "data file", subject)?),
                0x2385_2875 => self.bitmaps = true,
                0x6803_f857 => unknown = names_of(body, self.incompatible),
                _ => {}
            }
            at += 8 + len.next_multiple_of(8);
        }
        let odd = self.incompatible & !incompatible::KNOWN;
        if odd != 0 {
            let names =
                if unknown.is_empty() { format!("bits {odd:#x}") } else { unknown.join(", ") };
            return Err(subject.unsupported(format!("unknown features: {names}"), CONVERT));
        }
        if let Some(format) = format {
            self.backing = Some(Backing { name: String::new(), format: Some(format) });
        }
        Ok(())
    }

    /// Refuses what is known and cannot be read.
    fn refuse(&mut self, subject: &Subject) -> Result<(), Error> {
        if self.is(incompatible::CORRUPT) {
            return Err(subject.unsupported(
                "it is marked corrupt",
                format!("repair it: qemu-img check -r all {}", subject.name),
            ));
        }
        if self.extended_l2 && self.cluster_bits < 14 {
            let what = format!("extended tables with clusters of {} bytes", self.cluster());
            return Err(subject.damaged("header", what));
        }
        if self.is(incompatible::DATA_FILE) {
            if self.data_file.as_deref().unwrap_or_default().is_empty() {
                return Err(subject.damaged("header", "a data file without a name"));
            }
        } else {
            self.data_file = None;
        }
        if (self.compression == Compression::Zstd) != self.is(incompatible::COMPRESSION) {
            let what = format!(
                "compression {}, and the feature bit says otherwise",
                self.compression.name()
            );
            return Err(subject.damaged("header", what));
        }
        Ok(())
    }

    /// The name of the file behind.
    fn backing_name(
        &mut self,
        area: &[u8],
        offset: u64,
        len: u32,
        subject: &Subject,
    ) -> Result<(), Error> {
        let format = self.backing.take().and_then(|backing| backing.format);
        if offset == 0 || len == 0 {
            return Ok(());
        }
        let end = offset.checked_add(len.into()).filter(|&end| end <= area.len() as u64);
        let (Some(end), true) = (end, len <= NAME_MAX) else {
            let what = format!("{len} bytes at byte {offset}");
            return Err(subject.damaged("name of the backing file", what));
        };
        let name = utf8(&area[offset as usize..end as usize], "backing file", subject)?;
        self.backing = Some(Backing { name, format });
        Ok(())
    }

    /// Turns to a snapshot.
    pub fn show(&mut self, snapshot: &Snapshot) {
        self.l1_offset = snapshot.l1_offset;
        self.l1_size = snapshot.l1_size;
        self.size = snapshot.size.unwrap_or(self.size);
    }

    /// Checks that the table of the first level is there and long enough.
    pub fn check_l1(&self, source: &dyn Source, subject: &Subject) -> Result<(), Error> {
        let place = "the table of the first level (L1)";
        let bytes = u64::from(self.l1_size) * 8;
        let needed = self.size.div_ceil(self.l1_span());
        if bytes > L1_MAX || needed > L1_MAX / 8 {
            let entries = u64::from(self.l1_size).max(needed);
            return Err(subject.damaged(place, format!("{entries} entries, too many")));
        }
        if u64::from(self.l1_size) < needed {
            let what = format!("{} entries, the disk needs {needed}", self.l1_size);
            return Err(subject.damaged(place, what));
        }
        let end = self.l1_offset.checked_add(bytes);
        if end.is_none_or(|end| end > source.size())
            || !self.l1_offset.is_multiple_of(self.cluster())
        {
            let what =
                format!("{bytes} bytes at byte {}, the file has {}", self.l1_offset, source.size());
            return Err(subject.damaged(place, what));
        }
        Ok(())
    }

    /// What is marked in the header, in words.
    pub fn marks(&self) -> Vec<String> {
        let marks = [
            (self.is(incompatible::DIRTY), "reference counts are stale (dirty)"),
            (self.extended_l2, "extended tables (subclusters)"),
            (self.bitmaps, "dirty bitmaps for backups"),
        ];
        marks.into_iter().filter(|mark| mark.0).map(|mark| mark.1.to_owned()).collect()
    }
}

fn decrypt() -> String {
    format!("decrypt it with its key: {}", CONVERT.trim_start_matches("convert it: "))
}

fn utf8(bytes: &[u8], what: &str, subject: &Subject) -> Result<String, Error> {
    String::from_utf8(bytes.to_vec()).map_err(|_| {
        subject.unsupported(format!("name of its {what} is no UTF-8: {}", text(bytes)), "")
    })
}

/// Names of the unknown bits out of the feature name table.
fn names_of(table: &[u8], features: u64) -> Vec<String> {
    let rows = table.chunks_exact(48).filter(|row| row[0] == 0 && row[1] < 64);
    let odd = rows.filter(|row| features & !incompatible::KNOWN & 1 << row[1] != 0);
    odd.map(|row| text(row[2..].split(|&byte| byte == 0).next().unwrap_or_default())).collect()
}
