//! Where a file has data and where holes: `SEEK_DATA`, `SEEK_HOLE`, fiemap.

use std::ops::Range;

use base::Errno;
use cache::{Intent, Iomap, IomapKind};
use rt::Cx;

use super::IomapFile;
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
    if file.kind(cx) != FileType::Regular {
        return Err(Errno::EINVAL);
    }
    let size = file.size(cx);
    if offset >= size {
        return Err(Errno::ENXIO);
    }
    file.settle_map(cx)?;
    let _shared = file.lock_shared(cx)?;
    let block = u64::from(file.block_size());
    let range = offset / block * block..size.next_multiple_of(block);
    let mut iter = file.walk(Intent::Read, range.clone());
    whence.find(offset, size, |at| {
        let part = iter.begin(cx, at / block * block..range.end)?;
        Ok((part.content().is_some(), part.end()))
    })
}

/// Where the parts of `range` lie that have a place, or have one reserved; `range` is of whole
/// blocks. May park.
///
/// # Errors
/// Those of the map.
pub fn fiemap(cx: &mut Cx, file: &impl IomapFile, range: Range<u64>) -> Result<Vec<Iomap>, Errno> {
    let _shared = file.lock_shared(cx)?;
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
