//! The file data of formats whose content lies in blocks of a device (Linux: `fs/iomap`): what
//! every such format does in the same steps stands here and in [`direct`](crate::direct) once. A
//! format gives what differs: its locks, its map ([`IomapOps`]), and what it does before and after.

mod seek;

pub use seek::{fiemap, seek};

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use cache::{IomapOps, Mapping};
use rt::{Cx, ReadGuard, WriteGuard};

use crate::FileType;
use crate::direct::DirectOptions;

/// What a walk over the map of a file is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// To read content: what is on the device counts, also before the metadata say so.
    Read,
    /// To report what the metadata say, and what is promised to dirty pages.
    Report,
    /// To write past the page cache, with the file locked alone: what is missing is given.
    Write,
}

/// A file whose data the drivers read and write.
pub trait IomapFile {
    /// A walk over its map.
    type Ops: IomapOps;

    /// Begins a walk over the map for an operation on the bytes of `range`. The caller holds the
    /// file's lock: alone for [`Intent::Write`]. May park.
    ///
    /// # Errors
    /// Those of the file system.
    fn ops(&self, cx: &mut Cx, intent: Intent, range: Range<u64>) -> Result<Self::Ops, Errno>;

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
