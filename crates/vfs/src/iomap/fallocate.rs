//! fallocate: space before it is needed, holes, and zeroed ranges.

use std::ops::Range;

use base::Errno;
use rt::Cx;

use super::{IomapFile, set_size};
use crate::{FallocMode, FileType};

/// Allocates, punches or zeroes `offset..offset + len`. May park.
///
/// # Errors
/// Those of [`FileSystem::fallocate`](crate::FileSystem::fallocate).
pub fn fallocate(
    cx: &mut Cx,
    file: &impl IomapFile,
    mode: FallocMode,
    offset: u64,
    len: u64,
) -> Result<(), Errno> {
    match file.state(cx).kind {
        FileType::Regular => {}
        FileType::Directory => return Err(Errno::EISDIR),
        _ => return Err(Errno::ENODEV),
    }
    file.check_writable()?;
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    let limit = file.state(cx).size_max;
    let end = offset.checked_add(len).filter(|&end| end <= i64::MAX as u64);
    let mut end = end.ok_or(Errno::EFBIG)?;
    if mode == FallocMode::PunchHole {
        // Behind the largest file there is nothing to punch, but no room to allocate.
        end = end.min(limit);
        if offset >= end {
            return Ok(());
        }
    }
    if end > limit {
        return Err(Errno::EFBIG);
    }
    let (guard, state) = file.lock_alone(cx)?;
    if state.inline {
        file.leave_inline(cx)?;
    }
    let result = match mode {
        FallocMode::CollapseRange => shift(cx, file, offset..end, false),
        FallocMode::InsertRange => shift(cx, file, offset..end, true),
        FallocMode::PunchHole | FallocMode::Allocate { .. } | FallocMode::ZeroRange { .. } => {
            change(cx, file, mode, offset..end)
        }
    };
    drop(guard);
    result
}

/// Takes `bytes` out of a file, or puts a hole of that length in.
fn shift(cx: &mut Cx, file: &impl IomapFile, bytes: Range<u64>, insert: bool) -> Result<(), Errno> {
    let block = u64::from(file.parts().block_size);
    let unit = file.shift_unit() * block;
    if unit == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let (size, len) = (file.state(cx).size, bytes.end - bytes.start);
    let whole = bytes.start.is_multiple_of(unit) && len.is_multiple_of(unit);
    let inside = if insert { bytes.start < size } else { bytes.end < size };
    if !whole || !inside {
        return Err(Errno::EINVAL);
    }
    let new = if insert { size + len } else { size - len };
    if new > file.state(cx).size_max {
        return Err(Errno::EFBIG);
    }
    // Everything behind the front goes to the device, and its pages go.
    file.flush(cx, bytes.start..u64::MAX)?;
    if insert {
        set_size(cx, file, new)?;
    } else {
        punch_hole(cx, file, bytes.clone())?;
    }
    let mapping = file.mapping(cx);
    let writeback = file.parts().writeback.lock(cx);
    mapping.discard(cx, bytes.start..u64::MAX);
    let blocks = bytes.start / block..bytes.end / block;
    file.drop_delalloc(cx, blocks.start..u64::MAX);
    let shifted = file.shift(cx, blocks, insert);
    mapping.discard(cx, bytes.start..u64::MAX);
    drop(writeback);
    shifted?;
    if !insert {
        set_size(cx, file, new)?;
    }
    file.note_fallocate(cx, false)
}

fn change(
    cx: &mut Cx,
    file: &impl IomapFile,
    mode: FallocMode,
    bytes: Range<u64>,
) -> Result<(), Errno> {
    let keep_size = match mode {
        FallocMode::PunchHole | FallocMode::CollapseRange | FallocMode::InsertRange => None,
        FallocMode::Allocate { keep_size } | FallocMode::ZeroRange { keep_size } => Some(keep_size),
    };
    if keep_size.is_some() && !file.state(cx).has_unwritten {
        return Err(Errno::EOPNOTSUPP);
    }
    let punches = !matches!(mode, FallocMode::Allocate { .. });
    let mut result = if punches { punch_hole(cx, file, bytes.clone()) } else { Ok(()) };
    if let (Ok(()), Some(keep_size)) = (result, keep_size) {
        result = preallocate(cx, file, bytes.clone());
        if result.is_ok() && !keep_size && bytes.end > file.state(cx).size {
            result = set_size(cx, file, bytes.end);
        }
    }
    // What was punched has changed the file also where the rest failed.
    match punches || result.is_ok() {
        true => result.and(file.note_fallocate(cx, keep_size.is_some() && result.is_ok())),
        false => result,
    }
}

/// Makes `bytes` a hole, as far as blocks go, and zeros the rest.
fn punch_hole(cx: &mut Cx, file: &impl IomapFile, bytes: Range<u64>) -> Result<(), Errno> {
    let (mapping, parts) = (file.mapping(cx), file.parts());
    let block = u64::from(parts.block_size);
    file.prepare_punch(cx, bytes.end)?;
    file.prepare_unmap(cx, bytes.clone())?;
    let writeback = parts.writeback.lock(cx);
    file.prepare_edge(cx, bytes.start)?;
    file.prepare_edge(cx, bytes.end)?;
    let blocks = bytes.start.div_ceil(block)..bytes.end / block;
    let mut result = mapping.punch(cx, bytes);
    if !blocks.is_empty() && result.is_ok() {
        file.drop_delalloc(cx, blocks.clone());
        result = file.unmap(cx, blocks.clone());
        mapping.discard(cx, blocks.start * block..blocks.end * block);
    }
    drop(writeback);
    result
}

/// Gives `bytes` blocks that read as zeros.
fn preallocate(cx: &mut Cx, file: &impl IomapFile, bytes: Range<u64>) -> Result<(), Errno> {
    let block = u64::from(file.parts().block_size);
    // Afterwards no delayed allocation lies in the range.
    file.flush(cx, bytes.clone())?;
    if bytes.end > file.state(cx).size {
        // What is behind the end shall read as zeros when the file gets there.
        file.clear_gap(cx, bytes.end.next_multiple_of(block))?;
    }
    let (mut at, to) = (bytes.start / block, bytes.end.div_ceil(block));
    while at < to {
        at = file.allocate(cx, at..to)?;
    }
    Ok(())
}
