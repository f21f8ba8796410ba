//! A sparse extent: grains behind two levels of tables, compressed or not.

use std::sync::Arc;

use crate::Error;
use crate::bytes::{le16, le32, le64};
use crate::chain::Chain;
use crate::error::{CONVERT, Subject};
use crate::lru::Lru;
use crate::packed::inflate_zlib;
use crate::source::{self, Source};

use super::{SECTOR, TEXT_MAX};

/// Grains are known to be zeros where their entry is 1.
const ZERO_GRAINS: u32 = 1 << 2;
/// Grains are compressed.
const COMPRESSED: u32 = 1 << 16;
/// The directory's place says: it stands in a copy of the header at the end.
const AT_END: u64 = u64::MAX;
/// Bytes of a table of grains that are read and kept together.
const SLICE: u64 = 4096;
/// Bytes of the directory.
const DIRECTORY_MAX: u64 = 32 << 20;

/// An open extent.
pub(super) struct Sparse {
    subject: Subject,
    source: Arc<dyn Source>,
    flags: u32,
    size: u64,
    grain: u64,
    /// Entries of a table of grains.
    per_table: u64,
    directory: Vec<u32>,
    /// Where the descriptor is, in bytes.
    text: (u64, u64),
    slices: Lru<Arc<Vec<u8>>>,
    unpacked: Lru<Arc<Vec<u8>>>,
}

impl Sparse {
    /// Reads header and directory.
    pub fn open(
        source: Arc<dyn Source>,
        subject: Subject,
        chain: &mut Chain<'_>,
    ) -> Result<Sparse, Error> {
        let first = header(&*source, &subject, 0)?;
        let text = (le64(&first, 28), le64(&first, 36));
        let header = match le64(&first, 56) {
            AT_END if source.size() >= 3 * SECTOR => {
                header(&*source, &subject, source.size() - 2 * SECTOR)?
            }
            _ => first,
        };
        let bad = |what: String| subject.damaged("header", what);
        let (version, flags) = (le32(&header, 4), le32(&header, 8));
        if !(1..=3).contains(&version) {
            return Err(subject.unsupported(format!("version {version}"), CONVERT));
        }
        let (capacity, grain) = (le64(&header, 12), le64(&header, 20));
        let per_table = u64::from(le32(&header, 44));
        if !grain.is_power_of_two() || !(8..=4096).contains(&grain) {
            return Err(bad(format!("grains of {grain} sectors")));
        }
        if !per_table.is_power_of_two() || !(128..=65536).contains(&per_table) {
            return Err(bad(format!("tables of {per_table} grains")));
        }
        if flags & COMPRESSED != 0 && le16(&header, 77) != 1 {
            let what = format!("compression of kind {}", le16(&header, 77));
            return Err(subject.unsupported(what, CONVERT));
        }
        let tables = capacity.div_ceil(grain * per_table);
        let (bytes, at) = (tables.saturating_mul(4), le64(&header, 56));
        let end = at.checked_mul(SECTOR).and_then(|at| at.checked_add(bytes));
        if bytes > DIRECTORY_MAX || end.is_none_or(|end| end > source.size()) {
            let what =
                format!("{tables} tables at sector {at}, the file has {} bytes", source.size());
            return Err(subject.damaged("directory of grains", what));
        }
        chain.take(&subject, "directory of grains", bytes)?;
        let directory = source::read_some(&*source, at * SECTOR, bytes as usize)?;
        let cache = chain.cache_bytes();
        Ok(Sparse {
            flags,
            size: capacity * SECTOR,
            grain: grain * SECTOR,
            per_table,
            directory: directory.chunks_exact(4).map(|entry| le32(entry, 0)).collect(),
            text,
            slices: Lru::new((cache / 4 / SLICE) as usize),
            unpacked: Lru::new((cache / (grain * SECTOR)) as usize),
            subject,
            source,
        })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of a grain.
    pub fn grain(&self) -> u64 {
        self.grain
    }

    pub fn compressed(&self) -> bool {
        self.flags & COMPRESSED != 0
    }

    /// The descriptor inside, where there is one.
    pub fn descriptor(&self) -> Result<Option<Vec<u8>>, Error> {
        let (at, len) = self.text;
        if at == 0 || len == 0 {
            return Ok(None);
        }
        let (at, len) = (at.saturating_mul(SECTOR), len.saturating_mul(SECTOR));
        if len > TEXT_MAX || at.saturating_add(len) > self.source.size() {
            let what = format!("{len} bytes at byte {at}, the file has {}", self.source.size());
            return Err(self.subject.damaged("descriptor", what));
        }
        source::read_some(&*self.source, at, len as usize).map(Some)
    }

    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (index, within) = (at / self.grain, at % self.grain);
            let len = ((self.grain - within) as usize).min(buf.len() - done);
            let part = &mut buf[done..done + len];
            match self.entry(index)? {
                0 => part.fill(0),
                1 if self.flags & ZERO_GRAINS != 0 => part.fill(0),
                sector => {
                    let at = u64::from(sector) * SECTOR;
                    self.read_grain(index as usize, at, within as usize, part)?;
                }
            }
            done += len;
        }
        Ok(())
    }

    fn read_grain(
        &self,
        index: usize,
        at: u64,
        within: usize,
        part: &mut [u8],
    ) -> Result<(), Error> {
        if self.compressed() {
            let grain = self.unpacked.get(at, || self.unpack(index, at))?;
            part.copy_from_slice(&grain[within..within + part.len()]);
            return Ok(());
        }
        // The file may end inside of the last grain.
        let from = at + within as u64;
        let there = self.source.size().saturating_sub(from).min(part.len() as u64);
        if self.source.size() <= at {
            let what = format!("at byte {at}, the file has {}", self.source.size());
            return Err(self.subject.damaged(format!("grain {index}"), what));
        }
        let (there, behind) = part.split_at_mut(there as usize);
        behind.fill(0);
        source::read(&*self.source, from, there)
    }

    /// The entry of a grain: its sector, or 0.
    fn entry(&self, index: u64) -> Result<u32, Error> {
        let table = self.directory.get((index / self.per_table) as usize).copied().unwrap_or(0);
        if table == 0 {
            return Ok(0);
        }
        let bytes = self.per_table * 4;
        let slice_len = bytes.min(SLICE);
        let byte = index % self.per_table * 4;
        let table = u64::from(table) * SECTOR;
        let start = table + byte / slice_len * slice_len;
        if table + bytes > self.source.size() {
            let what =
                format!("{bytes} bytes at byte {table}, the file has {}", self.source.size());
            return Err(self.subject.damaged(format!("table of grain {index}"), what));
        }
        let slice = self.slices.get(start, || {
            source::read_some(&*self.source, start, slice_len as usize).map(Arc::new)
        })?;
        Ok(le32(&slice, (byte % slice_len) as usize))
    }

    /// A compressed grain: a marker of its sector and length, then a zlib stream.
    fn unpack(&self, index: usize, at: u64) -> Result<Arc<Vec<u8>>, Error> {
        let place = || format!("compressed grain {index} at byte {at}");
        let marker = source::read_some(&*self.source, at, 12)?;
        if marker.len() < 12 {
            return Err(self.subject.damaged(place(), "it lies past the end of the file"));
        }
        let len = u64::from(le32(&marker, 8));
        if len > self.grain * 2 + 65536 || at + 12 + len > self.source.size() {
            return Err(self.subject.damaged(place(), format!("{len} bytes of compressed data")));
        }
        let packed = source::read_some(&*self.source, at + 12, len as usize)?;
        // The last grain may be shorter than the others.
        let left = self.size - index as u64 * self.grain;
        let mut grain = match inflate_zlib(&packed, self.grain as usize) {
            Err(_) if left < self.grain => inflate_zlib(&packed, left as usize),
            result => result,
        }
        .map_err(|what| self.subject.damaged(place(), what))?;
        grain.resize(self.grain as usize, 0);
        Ok(Arc::new(grain))
    }
}

/// The header at a byte of the file.
fn header(source: &dyn Source, subject: &Subject, at: u64) -> Result<Vec<u8>, Error> {
    let header = source::read_some(source, at, SECTOR as usize)?;
    if header.len() < SECTOR as usize || !header.starts_with(b"KDMV") {
        let what = format!("no header at byte {at} of {}", source.size());
        return Err(subject.damaged("header", what));
    }
    Ok(header)
}
