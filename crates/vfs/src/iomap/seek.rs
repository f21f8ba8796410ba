//! Where a file has data and where holes: `SEEK_DATA`, `SEEK_HOLE`, fiemap.

use std::ops::Range;

use base::Errno;
use cache::{Intent, Iomap, IomapKind};
use rt::Cx;

use super::{FileState, IomapFile};
use crate::{FileType, SeekWhence};

/// The next data or hole at or behind `offset`; unwritten blocks count as holes. Dirty pages are
/// written first, so that the map knows them all. May park.
///
/// # Errors
/// `EINVAL` not a regular file; `ENXIO`; those of writing dirty pages, and of the map.
pub fn seek(
    cx: &mut Cx,
    file: &impl IomapFile,
    offset: u64,
    whence: SeekWhence,
) -> Result<u64, Errno> {
    let FileState { kind, size, inline, .. } = file.state(cx);
    if kind != FileType::Regular {
        return Err(Errno::EINVAL);
    }
    if offset >= size {
        return Err(Errno::ENXIO);
    }
    if inline && file.is_inline(cx) {
        return whence.find(offset, size, |_| Ok((true, size)));
    }
    let parts = file.parts();
    if parts.pages.is_some_and(|mapping| !mapping.is_idle()) {
        file.flush(cx, 0..u64::MAX)?;
    }
    let (_shared, _) = file.lock_shared(cx)?;
    let block = u64::from(parts.block_size);
    let range = offset / block * block..size.next_multiple_of(block);
    let mut iter = file.walk(Intent::Read, range.clone());
    whence.find(offset, size, |at| {
        let part = iter.begin(cx, at / block * block..range.end)?;
        Ok((part.content().is_some(), part.end()))
    })
}

/// Where the parts of `bytes` lie that have a place, or have one reserved. May park.
///
/// # Errors
/// `ESTALE`; those of the map.
pub fn fiemap(cx: &mut Cx, file: &impl IomapFile, bytes: Range<u64>) -> Result<Vec<Iomap>, Errno> {
    let FileState { kind, size, .. } = file.state(cx);
    if !matches!(kind, FileType::Regular | FileType::Directory | FileType::Symlink) {
        return Ok(Vec::new());
    }
    if file.is_inline(cx) {
        let inline = Iomap { offset: 0, len: size, kind: IomapKind::Inline };
        return Ok(if bytes.start < size { vec![inline] } else { Vec::new() });
    }
    let block = u64::from(file.parts().block_size);
    let end = bytes.end.min(u64::MAX / block * block).next_multiple_of(block);
    let range = bytes.start / block * block..end;
    let (_shared, _) = file.lock_shared(cx)?;
    let mut parts: Vec<Iomap> = Vec::new();
    let mut iter = file.walk(Intent::Report, range.clone());
    let mut at = range.start;
    while at < range.end {
        let part = iter.begin(cx, at..range.end)?;
        at = part.end();
        if part.kind != IomapKind::Hole {
            push(&mut parts, part);
        }
    }
    Ok(parts)
}

/// Adds a part, to the last one where it goes on.
fn push(parts: &mut Vec<Iomap>, part: Iomap) {
    if let Some(last) = parts.last_mut()
        && last.end() == part.offset
        && (Iomap { len: last.len + part.len, ..*last }).part(part.offset, part.end()) == part
    {
        last.len += part.len;
        return;
    }
    parts.push(part);
}
