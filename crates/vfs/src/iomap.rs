//! The file data of formats whose content lies in blocks of a device (Linux: `fs/iomap`): what
//! every such format does in the same steps stands here once. A format gives what differs: its
//! locks, its map ([`IomapOps`]), and what it does before and after.

mod buffered;
mod direct;
mod fallocate;
mod read_many;
mod seek;
#[cfg(test)]
mod tests;

pub use buffered::{append, read, write};
pub use direct::{read_at_host, read_direct, write_direct};
pub use fallocate::fallocate;
pub use read_many::read_many;
pub use seek::{fiemap, seek};

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use cache::{Intent, IomapIter, IomapOps, Mapping};
use rt::{Cx, ReadGuard, WriteGuard};

use crate::FileType;
use crate::direct::DirectOptions;

/// A file whose data the drivers read and write.
pub trait IomapFile {
    /// Its map.
    fn ops(&self) -> &dyn IomapOps;

    /// A walk over the map for an operation on `bytes`. The caller holds the file's lock: alone for
    /// [`Intent::Write`].
    fn walk(&self, intent: Intent, bytes: Range<u64>) -> IomapIter<'_> {
        IomapIter::new(self.ops(), intent, bytes)
    }

    /// The type.
    fn kind(&self, cx: &Cx) -> FileType;

    /// The size in bytes.
    fn size(&self, cx: &Cx) -> u64;

    /// Bytes of a block.
    fn block_size(&self) -> u32;

    /// The file's pages.
    fn mapping(&self, cx: &Cx) -> &Arc<Mapping>;

    /// Locks the file against changes of its map. May park.
    ///
    /// # Errors
    /// `ESTALE` freed meanwhile.
    fn lock_shared(&self, cx: &mut Cx) -> Result<ReadGuard<'_, ()>, Errno>;

    /// As [`lock_shared`](Self::lock_shared) without waiting; `None` where that is not possible.
    fn try_lock_shared(&self) -> Option<ReadGuard<'_, ()>>;

    /// Locks the file for a change of its data. May park.
    ///
    /// # Errors
    /// `ESTALE` freed meanwhile.
    fn lock_alone(&self, cx: &mut Cx) -> Result<WriteGuard<'_, ()>, Errno>;

    /// Whether the mount takes changes.
    ///
    /// # Errors
    /// `EROFS`, `EIO` it does not.
    fn check_writable(&self) -> Result<(), Errno>;

    /// The largest size that the file can have, in bytes.
    fn size_max(&self, cx: &Cx) -> u64;

    /// The size on the disk, in bytes: that of a file grows when the content is there.
    fn size_on_disk(&self, cx: &Cx) -> u64;

    /// Writes out what is dirty of `range`, and has the metadata say so. May park.
    ///
    /// # Errors
    /// Those of the device and of the file system.
    fn flush(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno>;

    /// Writes out what is dirty, and has the metadata say where it lies. May park.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn settle_map(&self, cx: &mut Cx) -> Result<(), Errno>;

    /// Whether the device has the newest content of the file, whose lock is held: no page of it is
    /// cached, and none waits for a place. False also where a format cannot say so cheaply.
    fn only_on_device(&self, _cx: &Cx) -> bool {
        false
    }

    /// Before data are copied into the page cache from `offset` on: what lies between the end of
    /// the file and `offset` reads as zeros afterwards, and the times are those of now. May park.
    ///
    /// # Errors
    /// Those of the file system.
    fn prepare_write(&self, cx: &mut Cx, offset: u64) -> Result<(), Errno>;

    /// Whether a write of `len` bytes to the page cache that failed may have space for some of its
    /// blocks: now, or after the file system made room. May park.
    fn writes_blocks_singly(&self, cx: &mut Cx, errno: Errno, len: usize) -> bool;

    /// After a write to the page cache, under the lock.
    fn end_write(&self, _cx: &mut Cx) {}

    /// Whether space can be allocated ahead in this file.
    ///
    /// # Errors
    /// `EOPNOTSUPP` it cannot.
    fn check_allocate(&self, _cx: &Cx) -> Result<(), Errno> {
        Ok(())
    }

    /// Gives the bytes `range` blocks that read as zeros, where there are none. May park.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    fn allocate(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno>;

    /// Makes the bytes `range` a hole, as far as blocks go, and zeros the rest. May park.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EUCLEAN`.
    fn punch_hole(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno>;

    /// Sets the size. May park.
    ///
    /// # Errors
    /// `EFBIG`, `EIO`, `EUCLEAN`.
    fn set_size(&self, cx: &mut Cx, size: u64) -> Result<(), Errno>;

    /// After fallocate: times and size go to the inode. May park.
    ///
    /// # Errors
    /// `EIO`.
    fn note_fallocate(&self, cx: &mut Cx) -> Result<(), Errno>;

    /// How direct I/O is done.
    fn direct_options(&self) -> DirectOptions;

    /// Whether the page cache has to carry all data, since the device may lack the newest.
    fn only_cached(&self, _cx: &Cx) -> bool {
        false
    }

    /// Whether direct writes to blocks that there are run beside others.
    fn shares_overwrites(&self, cx: &Cx) -> bool;

    /// Before a direct write that begins at `offset`, behind the end of the file: makes sure that
    /// what lies between reads as zeros. May park.
    ///
    /// # Errors
    /// Those of the file system.
    fn prepare_gap(&self, _cx: &mut Cx, _offset: u64) -> Result<(), Errno> {
        Ok(())
    }

    /// Before each step of a direct write that has the file to itself, to `bytes`: what went
    /// through the pages is part of the file before the map is asked. May park.
    ///
    /// # Errors
    /// Those of the file system.
    fn prepare_direct(&self, _cx: &mut Cx, _bytes: Range<u64>) -> Result<(), Errno> {
        Ok(())
    }

    /// After the last step of a direct write that had the file to itself, and `failed` or not. May
    /// park.
    ///
    /// # Errors
    /// Those of the file system.
    fn settle_direct(&self, _cx: &mut Cx, _failed: bool) -> Result<(), Errno> {
        Ok(())
    }

    /// Content has changed past the page cache: times, and what else the next sync must know. May
    /// park.
    ///
    /// # Errors
    /// Those of the file system.
    fn note_direct_write(&self, cx: &mut Cx) -> Result<(), Errno>;
}
