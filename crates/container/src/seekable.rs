//! Seekable zstd: frames of zstd with a table of their sizes at the end.
//!
//! Source: "Zstandard Seekable Format", contrib/seekable_format of the zstd project (BSD licence).

use std::sync::Arc;

use xxhash_rust::xxh64::xxh64;

use crate::Error;
use crate::bytes::le32;
use crate::chain::Chain;
use crate::error::Subject;
use crate::image::{Fact, Image};
use crate::kind::Format;
use crate::lru::Lru;
use crate::packed::unzstd;
use crate::source::{self, Source};

/// Bytes behind the table.
const FOOTER: u64 = 9;
/// Bytes before it: those of a skippable frame.
const HEAD: u64 = 8;
/// Longest frame, packed and unpacked.
const FRAME_MAX: u32 = 64 << 20;
/// Bit of the descriptor: entries have checksums.
const SUMS: u8 = 0x80;
/// Bits of the descriptor that are 0.
const RESERVED: u8 = 0x7c;

/// Whether a file begins as zstd does: with a frame, or with one to skip.
pub(crate) fn starts(start: &[u8]) -> bool {
    start.len() >= 4 && (le32(start, 0) == 0xfd2f_b528 || le32(start, 0) >> 4 == 0x0184_d2a5)
}

/// Whether these last four bytes are those of a table.
pub(crate) fn ends(tail: &[u8]) -> bool {
    tail.len() == 4 && le32(tail, 0) == 0x8f92_eab1
}

/// A frame: where it begins, packed and unpacked.
struct Frame {
    packed: u64,
    start: u64,
    sum: u32,
}

struct Seekable {
    subject: Subject,
    source: Arc<dyn Source>,
    /// With one more behind the last.
    frames: Vec<Frame>,
    sums: bool,
    unpacked: Lru<Arc<Vec<u8>>>,
}

/// Opens an image.
pub(crate) fn open(
    source: Arc<dyn Source>,
    chain: &mut Chain<'_>,
) -> Result<Arc<dyn Image>, Error> {
    let subject = Subject { name: source.name().to_owned(), format: "seekable zstd" };
    let size = source.size();
    let bad = |what: String| subject.damaged("table of frames", what);
    let footer = source::read_some(&*source, size.saturating_sub(FOOTER), FOOTER as usize)?;
    if footer.len() < FOOTER as usize || !ends(&footer[5..]) {
        return Err(bad("there is none at the end of the file".to_owned()));
    }
    let (count, descriptor) = (le32(&footer, 0), footer[4]);
    if descriptor & RESERVED != 0 {
        return Err(
            subject.unsupported(format!("a table of kind {descriptor:#x}"), "zstd -d IMAGE")
        );
    }
    let sums = descriptor & SUMS != 0;
    let width = if sums { 12 } else { 8 };
    let bytes = u64::from(count) * width;
    let Some(at) = size.checked_sub(HEAD + FOOTER + bytes) else {
        return Err(bad(format!("{count} frames in a file of {size} bytes")));
    };
    chain.take(&subject, "table of frames", bytes + u64::from(count) * 24)?;
    let table = source::read_some(&*source, at, (HEAD + bytes) as usize)?;
    if le32(&table, 0) != 0x184d_2a5e || u64::from(le32(&table, 4)) != bytes + FOOTER {
        return Err(bad(format!("no frame of {} bytes at byte {at}", bytes + FOOTER)));
    }
    let (mut packed, mut start, mut largest) = (0, 0, 1);
    let mut frames = Vec::with_capacity(count as usize + 1);
    for entry in table[HEAD as usize..].chunks_exact(width as usize) {
        let (packed_len, len) = (le32(entry, 0), le32(entry, 4));
        if packed_len > FRAME_MAX || len > FRAME_MAX {
            let most = FRAME_MAX;
            let what = format!("a frame of {packed_len} bytes for {len}, at most {most} are read");
            return Err(subject.unsupported(what, "unpack it: zstd -d IMAGE"));
        }
        frames.push(Frame { packed, start, sum: if sums { le32(entry, 8) } else { 0 } });
        (packed, start) = (packed + u64::from(packed_len), start + u64::from(len));
        largest = largest.max(u64::from(len));
    }
    if packed > at {
        return Err(bad(format!("frames of {packed} bytes before a table at byte {at}")));
    }
    frames.push(Frame { packed, start, sum: 0 });
    let unpacked = Lru::new((chain.cache_bytes() / largest).max(2) as usize);
    Ok(Arc::new(Seekable { subject, source, frames, sums, unpacked }))
}

impl Seekable {
    fn unpack(&self, index: usize) -> Result<Arc<Vec<u8>>, Error> {
        let (frame, next) = (&self.frames[index], &self.frames[index + 1]);
        let place = || format!("frame {index} at byte {}", frame.packed);
        let packed =
            source::read_some(&*self.source, frame.packed, (next.packed - frame.packed) as usize)?;
        let bytes = unzstd(&packed, (next.start - frame.start) as usize);
        let bytes = bytes.map_err(|what| self.subject.damaged(place(), what))?;
        if self.sums && xxh64(&bytes, 0) as u32 != frame.sum {
            let what = format!("its checksum is not {:#010x}", frame.sum);
            return Err(self.subject.damaged(place(), what));
        }
        Ok(Arc::new(bytes))
    }
}

impl Image for Seekable {
    fn format(&self) -> &'static str {
        Format::SeekableZstd.name()
    }

    fn size(&self) -> u64 {
        self.frames.last().map_or(0, |end| end.start)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let index = self.frames.partition_point(|frame| frame.start <= at) - 1;
            let bytes = self.unpacked.get(index as u64, || self.unpack(index))?;
            let within = (at - self.frames[index].start) as usize;
            let len = (bytes.len() - within).min(buf.len() - done);
            buf[done..done + len].copy_from_slice(&bytes[within..within + len]);
            done += len;
        }
        Ok(())
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        let frames = self.frames.len() as u64 - 1;
        Ok(vec![("frames", frames.into()), ("checksums", Fact::Flag(self.sums))])
    }

    fn threads(&self) -> usize {
        self.source.threads()
    }
}
