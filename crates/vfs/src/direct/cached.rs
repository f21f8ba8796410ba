//! Direct I/O on the files of [`cache::Mapping`], through their own maps: for file systems whose
//! blocks carry no marks.

use std::sync::Arc;

use base::Errno;
use block::{HostRange, Segment};
use cache::Mapping;
use rt::Cx;

use super::{Chunk, DirectOptions, Engine, GetBlock, Memory, Run, Stop, Transfer, check};

/// The map of a file with a mapping.
struct Blocks<'a> {
    mapping: &'a Arc<Mapping>,
    /// Bytes that the call is about.
    off: u64,
    end: u64,
    /// Where the call, or the last whole block inside the file, ends: behind it the file grows.
    inside: u64,
    bits: u32,
}

impl GetBlock for Blocks<'_> {
    fn get_block(
        &mut self,
        cx: &mut Cx,
        block: u64,
        count: u64,
        create: bool,
    ) -> Result<Run, Errno> {
        let start = block << self.bits;
        let (mut from, mut to) = (start, (block + count) << self.bits);
        if create {
            if start.max(self.off) >= self.inside {
                return Ok(Run { count, sector: None, new: false, boundary: false });
            }
            (from, to) = (from.max(self.off), to.min(self.end).min(self.inside));
        }
        let pieces = match create {
            true => self.mapping.map_write(cx, from, to - from)?,
            false => self.mapping.map(cx, from, to - from)?,
        };
        // The map answers in blocks, and begins at the block with `from`.
        let found = pieces.first().filter(|part| part.offset <= start && start < part.end());
        let end = found.ok_or(Errno::EIO)?.end().min(to.next_multiple_of(1 << self.bits));
        let part = found.ok_or(Errno::EIO)?.part(start, end);
        Ok(Run {
            count: part.len >> self.bits,
            sector: part.content(),
            new: false,
            boundary: false,
        })
    }
}

fn engine(mapping: &Mapping) -> Engine<'_> {
    let block_bits = mapping.backing().block_size().trailing_zeros();
    Engine { queue: mapping.backing().queue(), block_bits, options: DirectOptions::default() }
}

fn blocks(mapping: &Arc<Mapping>, off: u64, end: u64) -> Blocks<'_> {
    let (size, bits) = (mapping.size(), engine(mapping).block_bits);
    let inside = if end <= size { end } else { size >> bits << bits };
    Blocks { mapping, off, end, inside, bits }
}

/// Reads from `off` on into `buf`; answers how many bytes the file had there. May park.
///
/// # Errors
/// `EINVAL` where offset or length is not a multiple of [`alignment`](super::alignment); `EIO` of
/// the device before anything was read, or of the write-back before it; those of the file system's
/// map.
pub fn read(cx: &mut Cx, mapping: &Arc<Mapping>, off: u64, buf: &mut [u8]) -> Result<usize, Errno> {
    let end = off.saturating_add(buf.len() as u64);
    let mut map = blocks(mapping, off, end);
    read_with(cx, mapping, &engine(mapping), &mut map, off, buf)
}

/// As [`read()`], with an engine and a map of the file system's own.
///
/// # Errors
/// As [`read()`].
pub fn read_with(
    cx: &mut Cx,
    mapping: &Arc<Mapping>,
    engine: &Engine<'_>,
    map: &mut dyn GetBlock,
    off: u64,
    buf: &mut [u8],
) -> Result<usize, Errno> {
    let len = buf.len() as u64;
    let transfer = read_chunks(cx, mapping, engine, map, off, len, &mut |chunk| {
        let place = &mut buf[(chunk.off - off) as usize..][..chunk.len as usize];
        match chunk.data {
            Some(seg) => place.copy_from_slice(&seg.bytes()[..chunk.len as usize]),
            None => place.fill(0),
        }
    })?;
    done(transfer).map(|bytes| bytes as usize)
}

/// Reads `off..off + len`, as far as the file goes, into new pages and copies nothing. May park.
///
/// # Errors
/// As [`read()`].
pub fn read_pages(
    cx: &mut Cx,
    mapping: &Arc<Mapping>,
    off: u64,
    len: u64,
) -> Result<Vec<Chunk>, Errno> {
    let mut chunks = Vec::new();
    let mut map = blocks(mapping, off, off.saturating_add(len));
    let mut take = |chunk| chunks.push(chunk);
    let transfer = read_chunks(cx, mapping, &engine(mapping), &mut map, off, len, &mut take)?;
    let end = off + done(transfer)?;
    chunks.retain(|chunk: &Chunk| chunk.off < end);
    chunks.iter_mut().for_each(|chunk| chunk.len = chunk.len.min(end - chunk.off));
    chunks.sort_by_key(|chunk| chunk.off);
    Ok(chunks)
}

/// Gives `give` the places in files of the host that have the bytes `off..off + len`, as far as the
/// file goes: what the kernel reads there is what [`read_with`] reads, as long as the caller holds
/// the locks of the file system. Answers what `give` does; false without asking it where there are
/// no such places: in holes, behind the end, on other devices. May park.
///
/// # Errors
/// As [`read_with`].
pub fn at_host(
    cx: &mut Cx,
    mapping: &Arc<Mapping>,
    engine: &Engine<'_>,
    map: &mut dyn GetBlock,
    off: u64,
    len: u64,
    give: &mut dyn FnMut(&[HostRange<'_>]) -> bool,
) -> Result<bool, Errno> {
    check(mapping, off, len)?;
    let end = (off + len).min(mapping.size());
    if off >= end {
        return Ok(false);
    }
    mapping.flush(cx, off..end)?;
    Ok(engine.at_host(cx, map, off, end)?.is_some_and(|ranges| give(&ranges)))
}

fn read_chunks(
    cx: &mut Cx,
    mapping: &Arc<Mapping>,
    engine: &Engine<'_>,
    map: &mut dyn GetBlock,
    off: u64,
    len: u64,
    take: &mut dyn FnMut(Chunk),
) -> Result<Transfer, Errno> {
    check(mapping, off, len)?;
    let end = (off + len).min(mapping.size());
    if off >= end {
        return Ok(Transfer { bytes: 0, stop: Stop::Done });
    }
    mapping.flush(cx, off..end)?;
    Ok(engine.read(cx, map, off, end, take))
}

/// What the caller is told: the bytes, or the error where there are none.
fn done(transfer: Transfer) -> Result<u64, Errno> {
    match transfer.stop {
        Stop::Failed(errno) if transfer.bytes == 0 => Err(errno),
        _ => Ok(transfer.bytes),
    }
}

/// Writes `data` to `off`; the file may grow. When it returns, the data has reached the device (not
/// yet the medium: `fsync` flushes). May park.
///
/// # Errors
/// `EINVAL` where offset or length is not a multiple of [`alignment`](super::alignment); `ENOSPC`
/// and what else the file system says where blocks are needed; `EIO`: before anything was written.
pub fn write(cx: &mut Cx, mapping: &Arc<Mapping>, off: u64, data: &[u8]) -> Result<usize, Errno> {
    write_memory(cx, mapping, off, Memory::Bytes(data)).map(|bytes| bytes as usize)
}

/// Writes the pages' bytes to `off` on and copies nothing where blocks are overwritten: the pages
/// must not be needed for writing until the call returns, or they are copied then. May park.
///
/// # Errors
/// As [`write()`].
pub fn write_pages(
    cx: &mut Cx,
    mapping: &Arc<Mapping>,
    off: u64,
    segs: &[Segment],
) -> Result<u64, Errno> {
    write_memory(cx, mapping, off, Memory::Pages(segs))
}

fn write_memory(
    cx: &mut Cx,
    mapping: &Arc<Mapping>,
    off: u64,
    memory: Memory<'_>,
) -> Result<u64, Errno> {
    memory.check(mapping, off)?;
    mapping.invalidate(cx, off..off + memory.len())?;
    let (mut bytes, len) = (0, memory.len());
    let mut result = Ok(());
    while bytes < len && result.is_ok() {
        let at = off + bytes;
        let rest = memory.skip(bytes);
        let mut map = blocks(mapping, at, off + len);
        let transfer = engine(mapping).write(cx, &mut map, at, rest.as_memory());
        if transfer.bytes > 0 {
            result = mapping.end_direct(cx, at, transfer.bytes);
        }
        bytes += if result.is_ok() { transfer.bytes } else { 0 };
        match transfer.stop {
            Stop::Failed(errno) => result = result.and(Err(errno)),
            Stop::Buffered(count) if result.is_ok() => {
                let part = memory.skip(bytes);
                result = write_buffered(cx, mapping, off + bytes, part.as_memory(), count);
                bytes += if result.is_ok() { count } else { 0 };
            }
            Stop::Buffered(_) | Stop::Done => {}
        }
    }
    // A reader, or readahead beside us, may have brought old content in.
    let dropped = mapping.invalidate(cx, off..off + len);
    match result.and(dropped) {
        Err(errno) if bytes == 0 => Err(errno),
        _ => Ok(bytes),
    }
}

/// Writes the first `count` bytes of `memory` through the cache, where blocks are missing or the
/// file grows, and waits until the device has them.
///
/// # Errors
/// Those of the file system where blocks are needed; `EIO`.
pub fn write_buffered(
    cx: &mut Cx,
    mapping: &Arc<Mapping>,
    off: u64,
    memory: Memory<'_>,
    count: u64,
) -> Result<(), Errno> {
    let end = off + count;
    match memory {
        Memory::Bytes(bytes) => mapping.write(cx, off, &bytes[..count as usize])?,
        Memory::Pages(segments) => {
            let mut at = off;
            for segment in segments {
                let len = u64::from(segment.len).min(end - at) as usize;
                mapping.write(cx, at, &segment.bytes()[..len])?;
                at += len as u64;
                if at == end {
                    break;
                }
            }
        }
        Memory::New(_) => return Err(Errno::EINVAL),
    }
    mapping.flush(cx, off..end)
}
