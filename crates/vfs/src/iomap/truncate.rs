//! The size of a file.

use base::Errno;
use rt::Cx;

use super::IomapFile;

/// Sets the size of a regular file: frees what is behind the end, or leaves a hole. The caller
/// holds the file's lock alone. May park.
///
/// # Errors
/// `EFBIG`, `EIO`, `EUCLEAN`, `EROFS`.
pub fn set_size(cx: &mut Cx, file: &impl IomapFile, size: u64) -> Result<(), Errno> {
    file.check_writable()?;
    let state = file.state(cx);
    if size > state.size_max {
        return Err(Errno::EFBIG);
    }
    if state.inline && file.resize_inline(cx, size)? {
        return Ok(());
    }
    let (mapping, parts) = (file.mapping(cx), file.parts());
    let (old, block) = (mapping.size(), u64::from(parts.block_size));
    // The size on the disk is about to include what was not written yet: that goes first, so that
    // no crash shows zeros in its place.
    if state.size_on_disk < old.min(size) {
        let from = state.size_on_disk / block * block;
        file.flush(cx, from..old.min(size).next_multiple_of(block))?;
    }
    file.prepare_edge(cx, size.min(old))?;
    if size > old {
        file.clear_gap(cx, size)?;
        // The zeros behind the old end reach the disk before the new size does.
        mapping.truncate(cx, size)?;
        file.flush(cx, old / block * block..old.next_multiple_of(block))?;
        return file.extend(cx, size);
    }
    file.prepare_unmap(cx, size..u64::MAX)?;
    let writeback = parts.writeback.lock(cx);
    let mut result = mapping.truncate(cx, size);
    file.drop_delalloc(cx, size.div_ceil(block)..u64::MAX);
    if result.is_ok() {
        result = file.truncate(cx, size);
    }
    drop(writeback);
    result
}
