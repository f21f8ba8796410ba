//! fallocate: space before it is needed, holes, and zeroed ranges.

use std::ops::Range;

use base::Errno;
use rt::Cx;

use super::IomapFile;
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
    match file.kind(cx) {
        FileType::Regular => {}
        FileType::Directory => return Err(Errno::EISDIR),
        _ => return Err(Errno::ENODEV),
    }
    file.check_writable()?;
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    let limit = file.size_max(cx);
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
    let guard = file.lock_alone(cx)?;
    let result = change(cx, file, mode, offset..end);
    drop(guard);
    result
}

fn change(
    cx: &mut Cx,
    file: &impl IomapFile,
    mode: FallocMode,
    bytes: Range<u64>,
) -> Result<(), Errno> {
    let keep_size = match mode {
        FallocMode::PunchHole => None,
        FallocMode::Allocate { keep_size } | FallocMode::ZeroRange { keep_size } => Some(keep_size),
    };
    if keep_size.is_some() {
        file.check_allocate(cx)?;
    }
    let punches = !matches!(mode, FallocMode::Allocate { .. });
    let mut result = if punches { file.punch_hole(cx, bytes.clone()) } else { Ok(()) };
    if let (Ok(()), Some(keep_size)) = (result, keep_size) {
        result = file.allocate(cx, bytes.clone());
        if result.is_ok() && !keep_size && bytes.end > file.size(cx) {
            result = file.set_size(cx, bytes.end);
        }
    }
    // What was punched has changed the file also where the rest failed.
    match punches || result.is_ok() {
        true => result.and(file.note_fallocate(cx)),
        false => result,
    }
}
