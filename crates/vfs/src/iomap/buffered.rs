//! Reads and writes through the page cache.

use base::Errno;
use rt::Cx;

use super::{FileState, IomapFile};

/// Bytes that are written between two looks at what is left.
const WRITE_CHUNK: usize = 1 << 20;

/// Reads file data; returns how many bytes the file had there. May park.
///
/// # Errors
/// `EISDIR`, `EINVAL` not a regular file, `ESTALE`, `EIO`, `EUCLEAN`.
pub fn read(
    cx: &mut Cx,
    file: &impl IomapFile,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize, Errno> {
    let (guard, state) = file.lock_shared(cx)?;
    state.kind.check_regular()?;
    if state.inline
        && let Some(count) = file.read_inline(cx, offset, buf)?
    {
        return Ok(count);
    }
    let result = file.mapping(cx).read(cx, offset, buf);
    drop(guard);
    result
}

/// Writes file data into the page cache, as much as there is space for. May park.
///
/// # Errors
/// `EISDIR`, `EINVAL` not a regular file, `ESTALE`, `EFBIG`, `ENOSPC`, `EROFS`, `EIO`, `EUCLEAN`.
#[inline]
pub fn write(cx: &mut Cx, file: &impl IomapFile, offset: u64, data: &[u8]) -> Result<usize, Errno> {
    let (guard, state) = file.lock_alone(cx)?;
    let result = write_locked(cx, file, &state, offset, data);
    drop(guard);
    result
}

/// As [`write`], at the end of the file; returns where that was.
///
/// # Errors
/// As [`write`].
pub fn append(cx: &mut Cx, file: &impl IomapFile, data: &[u8]) -> Result<(u64, usize), Errno> {
    let (guard, state) = file.lock_alone(cx)?;
    let result = write_locked(cx, file, &state, state.size, data);
    drop(guard);
    result.map(|count| (state.size, count))
}

#[inline]
fn write_locked(
    cx: &mut Cx,
    file: &impl IomapFile,
    state: &FileState,
    offset: u64,
    data: &[u8],
) -> Result<usize, Errno> {
    state.kind.check_regular()?;
    file.check_writable()?;
    let limit = state.size_max;
    let room = limit.saturating_sub(offset).min(usize::MAX as u64) as usize;
    if room == 0 && !data.is_empty() || offset > limit {
        return Err(Errno::EFBIG);
    }
    let data = &data[..data.len().min(room)];
    if data.is_empty() {
        return Ok(0);
    }
    if state.inline && file.write_inline(cx, offset, data)? {
        return Ok(data.len());
    }
    file.clear_gap(cx, offset)?;
    // Before the pages are dirty, so that whoever writes them out sees it.
    file.stamp_times(cx);
    let (mapping, block) = (file.mapping(cx), file.parts().block_size as usize);
    let (mut done, mut result) = (0, Ok(()));
    for chunk in data.chunks(WRITE_CHUNK) {
        result = mapping.write(cx, offset + done as u64, chunk);
        match result {
            Ok(()) => done += chunk.len(),
            Err(errno @ (Errno::ENOSPC | Errno::EDQUOT))
                if file.make_space(cx, errno) || chunk.len() > block =>
            {
                // The last blocks of a full disk are filled one by one.
                for piece in chunk.chunks(block) {
                    result = mapping.write(cx, offset + done as u64, piece);
                    if result.is_err() {
                        break;
                    }
                    done += piece.len();
                }
            }
            Err(_) => {}
        }
        if result.is_err() {
            break;
        }
    }
    file.end_write(cx);
    if done > 0 { Ok(done) } else { result.map(|()| 0) }
}
