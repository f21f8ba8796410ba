//! Direct I/O: between the caller's pages and the device, past the page cache.
//!
//! ```text
//! check alignment -> write back and drop the cached range
//!   -> IomapOps: a part of the map -> pieces -> sections -> bios        (repeated)
//!   -> wait for all -> the file system makes new blocks part of the file, and the size grow
//!   -> drop what readers brought in meanwhile
//! ```
//!
//! The drivers are [`iomap::read_direct`](crate::iomap::read_direct) and its neighbours.
//! [`Engine`] is the part from the map to the bios. It
//! asks a walk over the file's map ([`cache::IomapIter`]) for parts that may be long, may hold
//! nothing yet, and may end at a *boundary*, where the map goes on in another metadata block; what
//! that mark is used for is a choice of the mount ([`Boundary`]).
//!
//! A read takes any range; holes and unwritten extents give zeros without the device. A write goes
//! to the device wherever its map has a sector; where it has none the page cache does it, as in
//! Linux's fallback to buffered I/O. New blocks become part of the file when their content is
//! there, so no crash and no error shows what was on the disk before.
//!
//! The inode's lock is held over the call (shared for a read and for a write that changes no map,
//! else exclusive), so that no truncate frees the blocks of bios in flight; the caller has no
//! journal handle open. Many calls are in flight where many tasks make them.
//!
//! Not modelled compared with Linux: pinning of user memory, and faults in it (slices are copied
//! through pages; [`Memory::Pages`] copies nothing); completion in the caller's absence.

mod boundary;
mod collect;
mod ends;
mod engine;
mod memory;

pub use boundary::Boundary;
pub use engine::{Chunk, DirectOptions, Engine, Stop, Transfer};
pub use memory::{Memory, Rest};

use base::Errno;
use cache::Mapping;

/// What offset and length of direct I/O on `mapping` must be multiples of, in bytes: the device's
/// logical block (Linux: `statx` `stx_dio_offset_align`).
pub fn alignment(mapping: &Mapping) -> u64 {
    u64::from(mapping.backing().queue().info().logical_block)
}

/// Whether direct I/O may ask for this range.
///
/// # Errors
/// `EINVAL` where offset or length is not a multiple of [`alignment`], or the end has no number.
pub fn check(mapping: &Mapping, off: u64, len: u64) -> Result<(), Errno> {
    let unit = alignment(mapping);
    if off.is_multiple_of(unit) && len.is_multiple_of(unit) && off.checked_add(len).is_some() {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}
