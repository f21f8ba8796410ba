//! VHD and VHDX by the crates `rust-img-vhd` and `rust-img-vhdx`, behind a door: sizes that they
//! would allocate are looked at before, a panic is caught and named, and what a log of VHDX brings
//! to the image stays in memory.

#![allow(clippy::disallowed_types, reason = "threads of the host, not tasks, meet here")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fs_core::{BlockDevice, BlockRead};
use img_vhd::VhdReader;
use img_vhdx::reader::VhdxReader;

use crate::Error;
use crate::bytes::{be32, be64, le32, le64};
use crate::chain::Chain;
use crate::device::panic_text;
use crate::error::{CONVERT, Subject};
use crate::image::{Fact, Image};
use crate::kind::Format;
use crate::source::{self, Source};

/// Bytes of one table.
const TABLE_MAX: u64 = 64 << 20;
/// Sectors of a log's changes that are kept in memory.
const CHANGED_MAX: usize = (256 << 20) / 512;
const SECTOR: u64 = 512;

/// Whether these 512 bytes are the footer of a fixed VHD, with the right checksum.
pub(crate) fn is_fixed_footer(tail: &[u8]) -> bool {
    let sum = tail.iter().enumerate().filter(|(at, _)| !(64..68).contains(at));
    let sum = sum.fold(0u32, |sum, (_, &byte)| sum.wrapping_add(byte.into()));
    tail.len() == 512 && tail.starts_with(b"conectix") && be32(tail, 64) == !sum
}

/// A source as these crates want it. What they write is kept in memory.
struct Door {
    source: Arc<dyn Source>,
    changed: Mutex<BTreeMap<u64, [u8; SECTOR as usize]>>,
    size: Mutex<u64>,
}

impl Door {
    fn changed(&self) -> MutexGuard<'_, BTreeMap<u64, [u8; SECTOR as usize]>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The source, with zeros behind its end.
    fn below(&self, offset: u64, buf: &mut [u8]) -> fs_core::Result<()> {
        let there = self.source.size().saturating_sub(offset).min(buf.len() as u64);
        let (there, behind) = buf.split_at_mut(there as usize);
        behind.fill(0);
        if there.is_empty() { Ok(()) } else { Ok(self.source.read_at(offset, there)?) }
    }
}

impl BlockRead for Door {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fs_core::Result<()> {
        let (len, size) = (buf.len() as u64, self.size_bytes());
        if len > TABLE_MAX {
            let text = format!("a table of {len} bytes, at most {TABLE_MAX} are read");
            return Err(fs_core::Error::Custom(text));
        }
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(fs_core::Error::OutOfBounds { offset, len, size });
        }
        self.below(offset, buf)?;
        let changed = self.changed();
        for (&sector, bytes) in changed.range(offset / SECTOR..(offset + len).div_ceil(SECTOR)) {
            let start = sector * SECTOR;
            let (from, to) = (start.max(offset), (start + SECTOR).min(offset + len));
            let bytes = &bytes[(from - start) as usize..(to - start) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockDevice for Door {
    fn write_at(&self, offset: u64, buf: &[u8]) -> fs_core::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (sector, within) = (at / SECTOR, (at % SECTOR) as usize);
            let len = (SECTOR as usize - within).min(buf.len() - done);
            let mut bytes = [0; SECTOR as usize];
            let known = self.changed().get(&sector).copied();
            match known {
                Some(known) => bytes = known,
                None if len < bytes.len() => self.below(sector * SECTOR, &mut bytes)?,
                None => {}
            }
            bytes[within..within + len].copy_from_slice(&buf[done..done + len]);
            let mut changed = self.changed();
            changed.insert(sector, bytes);
            if changed.len() > CHANGED_MAX {
                return Err(fs_core::Error::Custom("its log changes too much".to_owned()));
            }
            done += len;
        }
        let mut size = self.size.lock().unwrap_or_else(PoisonError::into_inner);
        *size = (*size).max(offset + buf.len() as u64);
        Ok(())
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn set_len(&self, new_len: u64) -> fs_core::Result<()> {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner) = new_len;
        Ok(())
    }

    fn can_grow(&self) -> bool {
        true
    }
}

/// One of the two readers.
enum Reader {
    Vhd(Box<VhdReader>),
    Vhdx(Box<VhdxReader>),
}

struct Foreign {
    subject: Subject,
    source: Arc<dyn Source>,
    door: Arc<Door>,
    reader: Reader,
}

/// Opens an image.
pub(crate) fn open(
    source: Arc<dyn Source>,
    format: Format,
    chain: &mut Chain<'_>,
) -> Result<Arc<dyn Image>, Error> {
    let name = if format == Format::Vhd { "VHD" } else { "VHDX" };
    let subject = Subject { name: source.name().to_owned(), format: name };
    let tables = match format {
        Format::Vhd => look_at_vhd(&*source, &subject)?,
        _ => look_at_vhdx(&*source, &subject)?,
    };
    chain.take(&subject, "tables", tables)?;
    let (changed, size) = (Mutex::default(), Mutex::new(source.size()));
    let door = Arc::new(Door { source: source.clone(), changed, size });
    let device: Arc<dyn BlockDevice> = door.clone();
    let reader = guard(&subject, "opening it", || match format {
        Format::Vhd => VhdReader::open_on_device(device)
            .map(|r| Reader::Vhd(Box::new(r)))
            .map_err(|e| answer(&e)),
        _ => VhdxReader::open_on_device(device)
            .map(|r| Reader::Vhdx(Box::new(r)))
            .map_err(|e| answer(&e)),
    })?;
    Ok(Arc::new(Foreign { subject, source, door, reader }))
}

/// An error of a library: what it says, and whether that is a limit of its own.
struct Answer {
    text: String,
    limit: bool,
}

/// The two libraries mark a limit by a variant of this name.
fn answer(error: &(impl std::fmt::Display + std::fmt::Debug)) -> Answer {
    Answer { text: error.to_string(), limit: format!("{error:?}").starts_with("Unsupported") }
}

/// Calls a library; its errors and its panics become ours.
fn guard<T>(
    subject: &Subject,
    doing: &str,
    call: impl FnOnce() -> Result<T, Answer>,
) -> Result<T, Error> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(answer)) if answer.limit => Err(subject.unsupported(answer.text, CONVERT)),
        Ok(Err(answer)) => Err(subject.damaged(doing, answer.text)),
        Err(panic) => Err(Error::Panic {
            name: subject.name.clone(),
            format: subject.format,
            library: if subject.format == "VHD" { "rust-img-vhd" } else { "rust-img-vhdx" },
            doing: doing.to_owned(),
            what: panic_text(&*panic),
        }),
    }
}

/// Bytes of the table of blocks of a VHD, refused where there are too many.
fn look_at_vhd(source: &dyn Source, subject: &Subject) -> Result<u64, Error> {
    let mut tables = 0;
    for at in [source.size().saturating_sub(512), 0] {
        let footer = source::read_some(source, at, 512)?;
        if footer.len() < 512 || !footer.starts_with(b"conectix") {
            continue;
        }
        if be64(&footer, 48) > 1 << 50 {
            let what = format!("a disk of {} bytes", be64(&footer, 48));
            return Err(subject.damaged(format!("footer at byte {at}"), what));
        }
        let dynamic = be64(&footer, 16);
        if dynamic == u64::MAX {
            continue;
        }
        let header = source::read_some(source, dynamic, 1024)?;
        if header.len() == 1024 && header.starts_with(b"cxsparse") {
            let (entries, block) = (be32(&header, 28), be32(&header, 32));
            let bytes = u64::from(entries) * 4;
            if bytes > TABLE_MAX || block > 1 << 30 {
                let what = format!("a table of {entries} blocks of {block} bytes");
                return Err(subject.damaged(format!("header at byte {dynamic}"), what));
            }
            // As read, as kept, and as sorted.
            tables = tables.max(bytes * 3);
        }
    }
    Ok(tables)
}

/// Bytes of the tables of a VHDX, refused where one is too long.
fn look_at_vhdx(source: &dyn Source, subject: &Subject) -> Result<u64, Error> {
    let mut log = 0;
    for at in [64 << 10, 128 << 10] {
        let header = source::read_some(source, at, 80)?;
        if header.len() < 80 || !header.starts_with(b"head") {
            continue;
        }
        let len = u64::from(le32(&header, 68));
        if len > TABLE_MAX {
            return Err(
                subject.damaged(format!("header at byte {at}"), format!("a log of {len} bytes"))
            );
        }
        log = log.max(len);
    }
    let mut regions = 0;
    for at in [192u64 << 10, 256 << 10] {
        let table = source::read_some(source, at, 64 << 10)?;
        if table.len() < 64 << 10 || !table.starts_with(b"regi") {
            continue;
        }
        let count = le32(&table, 8).min(2047) as usize;
        for entry in table[16..].chunks_exact(32).take(count) {
            let (offset, len) = (le64(entry, 16), u64::from(le32(entry, 24)));
            if len > TABLE_MAX {
                let what = format!("a region of {len} bytes at byte {offset}");
                return Err(subject.damaged(format!("table of regions at byte {at}"), what));
            }
            regions = regions.max(len);
        }
    }
    // An entry of 8 bytes is kept as 24.
    Ok(log + regions * 3)
}

impl Image for Foreign {
    fn format(&self) -> &'static str {
        match self.reader {
            Reader::Vhd(_) => Format::Vhd.name(),
            Reader::Vhdx(_) => Format::Vhdx.name(),
        }
    }

    fn size(&self) -> u64 {
        match &self.reader {
            Reader::Vhd(reader) => reader.virtual_size(),
            Reader::Vhdx(reader) => reader.virtual_size(),
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let doing = format!("reading {} bytes at {offset}", buf.len());
        guard(&self.subject, &doing, || match &self.reader {
            Reader::Vhd(reader) => reader.read_at(offset, buf).map_err(|e| answer(&e)),
            Reader::Vhdx(reader) => reader.read_at(offset, buf).map_err(|e| answer(&e)),
        })
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        let mut facts = Vec::new();
        match &self.reader {
            Reader::Vhd(reader) => {
                facts.push(("kind", format!("{:?}", reader.disk_type()).to_lowercase().into()));
                if let Some(header) = reader.dynamic_header() {
                    facts.push(("cluster_size", header.block_size.into()));
                }
                if reader.footer_recovered_from_mirror() {
                    facts.push(("damage", "the footer at the end; its copy is used".into()));
                }
            }
            Reader::Vhdx(reader) => {
                facts.push(("cluster_size", reader.block_size().into()));
                facts.push(("sector_size", reader.sector_size().into()));
                if !self.door.changed().is_empty() {
                    facts.push(("log", "not empty; replayed in memory".into()));
                }
            }
        }
        Ok(facts)
    }

    fn threads(&self) -> usize {
        self.source.threads()
    }
}
