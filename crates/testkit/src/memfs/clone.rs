//! Sharing blocks: in memory, copying bytes.

use base::{Errno, Ino, Timespec};

use super::{Limits, State};

/// As [`vfs::FileSystem::clone_range`], with blocks as the limits say.
pub fn clone_range(
    (state, limits): (&mut State, &Limits),
    (from, offset): (Ino, u64),
    (to, target): (Ino, u64),
    len: u64,
    now: Timespec,
) -> Result<(), Errno> {
    state.node(to)?;
    let size = state.node(from)?.file()?.size();
    let old = state.node(to)?.file()?.size();
    let len = if len == 0 { size.saturating_sub(offset) } else { len };
    let end = offset.checked_add(len).filter(|&end| end <= size).ok_or(Errno::EINVAL)?;
    let stop = target.checked_add(len).filter(|&stop| stop <= limits.size_max);
    let stop = stop.ok_or(Errno::EFBIG)?;
    if len == 0 {
        return Ok(());
    }
    let even = |at: u64| at.is_multiple_of(limits.block_size);
    let whole = even(end) || (end == size && stop >= old);
    let apart = from != to || end <= target || stop <= offset;
    if !even(offset) || !even(target) || !whole || !apart {
        return Err(Errno::EINVAL);
    }
    let mut data = vec![0; len as usize];
    state.node(from)?.file()?.read(offset, &mut data);
    let node = state.node(to)?;
    node.file()?.write(target, &data);
    (node.attr.mtime, node.attr.ctime) = (now, now);
    Ok(())
}
