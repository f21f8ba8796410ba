//! Direct I/O on a file: locks, pages that are in the way, growth, and direct and buffered parts in
//! turn.

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use block::HostRange;
use cache::{Intent, Mapping};
use rt::Cx;

use super::{DirectWrites, FileState, IomapFile};
use crate::direct::{Engine, Memory, Stop, Transfer, check};

fn engine<'m>(file: &impl IomapFile, mapping: &'m Mapping) -> Engine<'m> {
    let block_bits = mapping.backing().block_size().trailing_zeros();
    Engine { queue: mapping.backing().queue(), block_bits, options: file.parts().direct }
}

/// Reads from `off` on into `buf`; returns how many bytes the file had there. May park.
///
/// # Errors
/// `EISDIR`, `EINVAL` not a regular file; `EINVAL` where offset or length is not a multiple of
/// [`alignment`](crate::direct::alignment); `EIO` of the device before anything was read, or of
/// the write-back before it; those of the file system's map.
pub fn read_direct(
    cx: &mut Cx,
    file: &impl IomapFile,
    off: u64,
    buf: &mut [u8],
) -> Result<usize, Errno> {
    let (guard, state) = file.lock_shared(cx)?;
    state.kind.check_regular()?;
    let result = read_locked(cx, file, &state, off, buf);
    drop(guard);
    result
}

fn read_locked(
    cx: &mut Cx,
    file: &impl IomapFile,
    state: &FileState,
    off: u64,
    buf: &mut [u8],
) -> Result<usize, Errno> {
    let (mapping, len) = (file.mapping(cx), buf.len() as u64);
    check(mapping, off, len)?;
    if state.inline
        && let Some(count) = file.read_inline(cx, off, buf)?
    {
        return Ok(count);
    }
    if file.direct_writes(cx) == DirectWrites::Cached {
        return mapping.read(cx, off, buf);
    }
    let end = (off + len).min(mapping.size());
    if off >= end {
        return Ok(0);
    }
    mapping.flush(cx, off..end)?;
    let mut iter = file.walk(Intent::Read, off..end);
    let transfer = engine(file, mapping).read(cx, &mut iter, off, end, &mut |chunk| {
        let place = &mut buf[(chunk.off - off) as usize..][..chunk.len as usize];
        match chunk.data {
            Some(seg) => place.copy_from_slice(&seg.bytes()[..chunk.len as usize]),
            None => place.fill(0),
        }
    });
    match transfer.stop {
        Stop::Failed(errno) if transfer.bytes == 0 => Err(errno),
        _ => Ok(transfer.bytes as usize),
    }
}

/// Gives `give` the places in files of the host that have the bytes `off..off + len`, as far as the
/// file goes: what the kernel reads there is what [`read_direct`] reads, as long as `give` runs.
/// Returns what `give` does; false without asking it where there are no such places: in holes,
/// behind the end, on other devices. May park.
///
/// # Errors
/// As [`read_direct`].
pub fn read_at_host(
    cx: &mut Cx,
    file: &impl IomapFile,
    off: u64,
    len: u64,
    give: &mut dyn FnMut(&[HostRange<'_>]) -> bool,
) -> Result<bool, Errno> {
    let (guard, state) = file.lock_shared(cx)?;
    state.kind.check_regular()?;
    if state.inline {
        return Ok(false);
    }
    let given = at_host_locked(cx, file, off, len, give);
    drop(guard);
    given
}

fn at_host_locked(
    cx: &mut Cx,
    file: &impl IomapFile,
    off: u64,
    len: u64,
    give: &mut dyn FnMut(&[HostRange<'_>]) -> bool,
) -> Result<bool, Errno> {
    if file.direct_writes(cx) == DirectWrites::Cached {
        return Ok(false);
    }
    let mapping = file.mapping(cx);
    check(mapping, off, len)?;
    let end = (off + len).min(mapping.size());
    if off >= end {
        return Ok(false);
    }
    mapping.flush(cx, off..end)?;
    let mut iter = file.walk(Intent::Read, off..end);
    let engine = engine(file, mapping);
    let ranges = engine.at_host(cx, &mut iter, off, end)?;
    Ok(ranges.is_some_and(|ranges| give(&ranges)))
}

/// Writes `memory` to `off`; the file may grow. Returns how many bytes from the start have reached
/// the device (not yet the medium: `fsync` flushes). May park.
///
/// # Errors
/// `EISDIR`, `EINVAL` not a regular file; `EROFS`; `EINVAL` where offset or length is not a
/// multiple of [`alignment`](crate::direct::alignment); `EFBIG`; `ENOSPC` and what else the file
/// system says where blocks are needed; `EIO`: all before anything was written.
pub fn write_direct(
    cx: &mut Cx,
    file: &impl IomapFile,
    off: u64,
    memory: Memory<'_>,
) -> Result<u64, Errno> {
    file.state(cx).kind.check_regular()?;
    file.check_writable()?;
    let overwritten = overwrite(cx, file, off, memory)?;
    if overwritten == memory.len() && overwritten > 0 {
        return Ok(overwritten);
    }
    let (guard, state) = file.lock_alone(cx)?;
    let rest = memory.skip(overwritten);
    let result = write_alone(cx, file, &state, off + overwritten, rest.as_memory());
    drop(guard);
    match result {
        Err(errno) if overwritten == 0 => Err(errno),
        result => Ok(overwritten + result.unwrap_or(0)),
    }
}

/// Writes to blocks that there are, as far as they go: beside readers and other such writers.
fn overwrite(
    cx: &mut Cx,
    file: &impl IomapFile,
    off: u64,
    memory: Memory<'_>,
) -> Result<u64, Errno> {
    if file.direct_writes(cx) != DirectWrites::Shared {
        return Ok(0);
    }
    let (guard, state) = file.lock_shared(cx)?;
    let mapping = file.mapping(cx);
    let end = off.checked_add(memory.len()).ok_or(Errno::EFBIG)?;
    let shared = file.direct_writes(cx) == DirectWrites::Shared && !state.inline;
    if end > mapping.size() || memory.is_empty() || !shared {
        return Ok(0);
    }
    memory.check(mapping, off)?;
    let engine = engine(file, mapping);
    let mut iter = file.walk(Intent::Overwrite, off..end);
    let block = 1 << engine.block_bits;
    let first = off / block * block;
    if iter.begin(cx, first..first + block)?.content().is_none() {
        return Ok(0);
    }
    mapping.invalidate(cx, off..end)?;
    let transfer = engine.write(cx, &mut iter, off, memory);
    mapping.invalidate(cx, off..end)?;
    let noted = match transfer.bytes {
        0 => Ok(()),
        _ => file.note_direct_write(cx, Intent::Overwrite, false),
    };
    drop(guard);
    match transfer.stop {
        Stop::Failed(errno) if transfer.bytes == 0 => Err(errno),
        _ => noted.map(|()| transfer.bytes),
    }
}

/// The caller has the file to itself.
fn write_alone(
    cx: &mut Cx,
    file: &impl IomapFile,
    state: &FileState,
    off: u64,
    memory: Memory<'_>,
) -> Result<u64, Errno> {
    let mapping = file.mapping(cx);
    let limit = state.size_max;
    let end = off.checked_add(memory.len()).filter(|end| *end <= limit).ok_or(Errno::EFBIG)?;
    memory.check(mapping, off)?;
    if memory.is_empty() {
        return Ok(0);
    }
    if state.inline && write_inline(cx, file, off, memory)? {
        return Ok(memory.len());
    }
    let mut dropped = Ok(());
    let (bytes, result) = if file.direct_writes(cx) == DirectWrites::Cached {
        let result = write_buffered(cx, mapping, off, memory, memory.len());
        (if result.is_ok() { memory.len() } else { 0 }, result)
    } else {
        prepare_growth(cx, file, mapping, off..end)?;
        mapping.invalidate(cx, off..end)?;
        let done = write_steps(cx, file, mapping, off, memory);
        // A reader, or readahead beside us, may have brought old content in.
        dropped = mapping.invalidate(cx, off..end);
        done
    };
    let noted = file.note_direct_write(cx, Intent::Write, result.is_err());
    dropped?;
    match result {
        Err(errno) if bytes == 0 => Err(errno),
        _ => noted.map(|()| bytes),
    }
}

/// Writes into the inode what may fit there; false where the content lies in blocks.
fn write_inline(
    cx: &mut Cx,
    file: &impl IomapFile,
    off: u64,
    memory: Memory<'_>,
) -> Result<bool, Errno> {
    match memory {
        Memory::Bytes(bytes) => return file.write_inline(cx, off, bytes),
        Memory::Pages(segments) if memory.len() <= u64::from(file.parts().block_size) => {
            let bytes: Vec<u8> = segments.iter().flat_map(|part| part.bytes().to_vec()).collect();
            return file.write_inline(cx, off, &bytes);
        }
        Memory::Pages(_) | Memory::New(_) => {}
    }
    file.leave_inline(cx)?;
    Ok(false)
}

/// Before a write that makes the file longer: what the new size would show and is not on the disk
/// yet goes there, and what lies between the old end and the write is zeros.
fn prepare_growth(
    cx: &mut Cx,
    file: &impl IomapFile,
    mapping: &Arc<Mapping>,
    bytes: Range<u64>,
) -> Result<(), Errno> {
    let (size, block) = (mapping.size(), u64::from(mapping.backing().block_size()));
    let on_disk = file.state(cx).size_on_disk;
    if bytes.end > size && on_disk < size {
        file.flush(cx, on_disk / block * block..size.next_multiple_of(block))?;
    }
    if bytes.start > size {
        file.prepare_edge(cx, size)?;
        file.clear_gap(cx, bytes.start)?;
        if !size.is_multiple_of(block) {
            mapping.truncate(cx, size)?;
            file.flush(cx, size / block * block..size.next_multiple_of(block))?;
        }
    }
    Ok(())
}

/// Direct and, where the map says so, buffered parts in turn. Returns how many bytes have reached
/// the device, and what went wrong then.
fn write_steps(
    cx: &mut Cx,
    file: &impl IomapFile,
    mapping: &Arc<Mapping>,
    off: u64,
    memory: Memory<'_>,
) -> (u64, Result<(), Errno>) {
    let (mut bytes, end) = (0, off + memory.len());
    while off + bytes < end {
        let (at, rest) = (off + bytes, memory.skip(bytes));
        let mut iter = file.walk(Intent::Write, at..end);
        let transfer = engine(file, mapping).write(cx, &mut iter, at, rest.as_memory());
        let Transfer { bytes: sent, stop } = transfer;
        let (reached, mut result) = iter.end(cx, at..at + sent, stop == Stop::Done);
        bytes = reached - off;
        if result.is_ok() {
            match stop {
                Stop::Failed(errno) => result = Err(errno),
                // What was sent to a part of a new block does not count: it is sent again.
                Stop::Buffered(count) if reached == at + sent => {
                    let part = memory.skip(bytes);
                    result = write_buffered(cx, mapping, reached, part.as_memory(), count);
                    bytes += if result.is_ok() { count } else { 0 };
                }
                Stop::Buffered(_) | Stop::Done => {}
            }
        }
        if result.is_err() {
            return (bytes, result);
        }
    }
    (bytes, Ok(()))
}

/// Writes the first `count` bytes of `memory` through the cache, where blocks are missing or the
/// file grows, and waits until the device has them.
fn write_buffered(
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
