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
mod truncate;

pub use buffered::{append, read, write};
pub use direct::{read_at_host, read_direct, write_direct};
pub use fallocate::fallocate;
pub use read_many::read_many;
pub use seek::{fiemap, seek};
pub use truncate::set_size;

use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use cache::{Intent, IomapIter, IomapOps, Mapping};
use rt::{Cx, Mutex, ReadGuard, RwLock, WriteGuard};

use crate::FileType;
use crate::direct::DirectOptions;

/// The parts of an inode that serve its data, in all formats.
pub struct FileParts<'a> {
    /// The file's map.
    pub ops: &'a dyn IomapOps,
    /// Held alone by whoever changes data or map, shared by readers (Linux: `i_rwsem`).
    pub rwsem: &'a RwLock<()>,
    /// Held by whoever gives dirty pages their places, or takes places away. Taken after `rwsem`.
    pub writeback: &'a Mutex<()>,
    /// The pages, if there ever were any.
    pub pages: Option<&'a Arc<Mapping>>,
    /// Bytes of a block.
    pub block_size: u32,
    /// How direct I/O is done.
    pub direct: DirectOptions,
}

/// A file at one moment.
#[derive(Clone, Copy, Debug)]
pub struct FileState {
    /// The type.
    pub kind: FileType,
    /// The size in bytes.
    pub size: u64,
    /// The size on the disk, in bytes: that of a file grows when the content is there.
    pub size_on_disk: u64,
    /// The largest size that the file can have, in bytes.
    pub size_max: u64,
    /// It was freed.
    pub freed: bool,
    /// Its map has an unwritten state, so that space can be allocated ahead.
    pub has_unwritten: bool,
    /// Its content lies in the inode, or may still be put there: reads and changes are asked for
    /// with [`IomapFile::read_inline`], [`IomapFile::write_inline`] and
    /// [`IomapFile::resize_inline`] first.
    pub inline: bool,
}

/// What direct writes of a file may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectWrites {
    /// The page cache has to carry all data, since the device may lack the newest.
    Cached,
    /// One at a time.
    Alone,
    /// Those to blocks that there are run beside others.
    Shared,
}

/// A file whose data the drivers read and write: its map ([`IomapOps`]), and what a format does in
/// the middle of their steps.
///
/// Methods that take `&mut Cx` may park, and return the errors of the device (`EIO`), of damaged
/// metadata (`EUCLEAN`) and of missing space (`ENOSPC`, `EDQUOT`).
pub trait IomapFile {
    /// Its map, its locks, its pages.
    fn parts(&self) -> FileParts<'_>;

    /// What it is now.
    fn state(&self, cx: &Cx) -> FileState;

    /// The file's pages; made at first use.
    fn mapping(&self, cx: &Cx) -> &Arc<Mapping>;

    /// Whether its content lies in the inode, and has no blocks.
    fn is_inline(&self, cx: &mut Cx) -> bool;

    /// Reads content that lies in the inode, up to the end of the file; `None` where it lies in
    /// blocks. Called under the file's lock where [`FileState::inline`] says so.
    ///
    /// # Errors
    /// See the trait.
    fn read_inline(
        &self,
        _cx: &mut Cx,
        _offset: u64,
        _buf: &mut [u8],
    ) -> Result<Option<usize>, Errno> {
        Ok(None)
    }

    /// Writes content into the inode, which may grow by that, with its times. False where there is
    /// no room: the content lies in blocks then. Called with the file locked alone where
    /// [`FileState::inline`] says so.
    ///
    /// # Errors
    /// See the trait.
    fn write_inline(&self, _cx: &mut Cx, _offset: u64, _data: &[u8]) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Sets the size of content in the inode; false where it lies in blocks now. As
    /// [`write_inline`](Self::write_inline).
    ///
    /// # Errors
    /// See the trait.
    fn resize_inline(&self, _cx: &mut Cx, _size: u64) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Moves content that lies in the inode to blocks, for good. As
    /// [`write_inline`](Self::write_inline).
    ///
    /// # Errors
    /// See the trait.
    fn leave_inline(&self, _cx: &mut Cx) -> Result<(), Errno> {
        Ok(())
    }

    /// Whether dirty pages wait for a place.
    fn has_delalloc(&self, cx: &Cx) -> bool;

    /// What direct writes may do.
    fn direct_writes(&self, cx: &Cx) -> DirectWrites;

    /// Whether the mount takes changes.
    ///
    /// # Errors
    /// `EROFS`, `EIO` it does not.
    fn check_writable(&self) -> Result<(), Errno>;

    /// The content changes now; the times go to the disk with the data.
    fn stamp_times(&self, cx: &Cx);

    /// Writes out what is dirty of `range`, and has the metadata say so.
    ///
    /// # Errors
    /// See the trait.
    fn flush(&self, cx: &mut Cx, range: Range<u64>) -> Result<(), Errno>;

    /// Before content lands at `offset`: what the disk has between the end of the file and there
    /// reads as zeros afterwards.
    ///
    /// # Errors
    /// See the trait.
    fn clear_gap(&self, _cx: &mut Cx, _offset: u64) -> Result<(), Errno> {
        Ok(())
    }

    /// Before pages up to `end` go away: they may be those that carry the size to the disk.
    ///
    /// # Errors
    /// See the trait.
    fn prepare_punch(&self, _cx: &mut Cx, _end: u64) -> Result<(), Errno> {
        Ok(())
    }

    /// Before what `bytes` have on the disk goes: pages beside them whose place depends on theirs
    /// get it. Called with the file locked alone.
    ///
    /// # Errors
    /// See the trait.
    fn prepare_unmap(&self, _cx: &mut Cx, _bytes: Range<u64>) -> Result<(), Errno> {
        Ok(())
    }

    /// Before the block that byte `at` is inside of, if it is, is zeroed in part: it will be
    /// written.
    ///
    /// # Errors
    /// See the trait.
    fn prepare_edge(&self, _cx: &mut Cx, _at: u64) -> Result<(), Errno> {
        Ok(())
    }

    /// After a write to the page cache had no space: gives back what is held ahead of need. True
    /// where that may have helped.
    fn make_space(&self, _cx: &mut Cx, _errno: Errno) -> bool {
        false
    }

    /// After a write to the page cache, under the lock.
    fn end_write(&self, _cx: &mut Cx) {}

    /// Gives the first of `blocks` that have no place blocks that read as zeros. Returns the block
    /// to go on with.
    ///
    /// # Errors
    /// See the trait.
    fn allocate(&self, cx: &mut Cx, blocks: Range<u64>) -> Result<u64, Errno>;

    /// The pages of `blocks` are gone: takes back what was reserved for them.
    fn drop_delalloc(&self, cx: &mut Cx, blocks: Range<u64>);

    /// Takes `blocks` out of the file, and frees them.
    ///
    /// # Errors
    /// See the trait.
    fn unmap(&self, cx: &mut Cx, blocks: Range<u64>) -> Result<(), Errno>;

    /// Moves what the file has behind `blocks` to their front, where they are a hole; or with
    /// `insert` what it has from their front on behind them. The pages are gone already.
    ///
    /// # Errors
    /// See the trait; `EOPNOTSUPP` the format cannot do it.
    fn shift(&self, _cx: &mut Cx, _blocks: Range<u64>, _insert: bool) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Blocks that move together: a range that is taken out or put in is a multiple of them. 0
    /// where the format cannot do it.
    fn shift_unit(&self) -> u64 {
        0
    }

    /// The file is longer now, by a hole.
    ///
    /// # Errors
    /// See the trait.
    fn extend(&self, cx: &mut Cx, size: u64) -> Result<(), Errno>;

    /// The file is shorter now: sets the size on the disk, and frees the blocks behind it.
    ///
    /// # Errors
    /// See the trait.
    fn truncate(&self, cx: &mut Cx, size: u64) -> Result<(), Errno>;

    /// After fallocate: times and size go to the inode, and whether space was `allocated` ahead.
    ///
    /// # Errors
    /// See the trait.
    fn note_fallocate(&self, cx: &mut Cx, allocated: bool) -> Result<(), Errno>;

    /// After a direct write, which has `failed` or not: times, and what else the next sync must
    /// know. `intent` is [`Intent::Write`] where it had the file to itself.
    ///
    /// # Errors
    /// See the trait.
    fn note_direct_write(&self, cx: &mut Cx, intent: Intent, failed: bool) -> Result<(), Errno>;

    /// A walk over the map for an operation on `bytes`. The caller holds the file's lock: alone for
    /// [`Intent::Write`].
    fn walk(&self, intent: Intent, bytes: Range<u64>) -> IomapIter<'_> {
        IomapIter::new(self.parts().ops, intent, bytes)
    }

    /// Locks the file against changes of its map. Returns what it is under the lock.
    ///
    /// # Errors
    /// `ESTALE` freed meanwhile.
    #[inline]
    fn lock_shared(&self, cx: &mut Cx) -> Result<(ReadGuard<'_, ()>, FileState), Errno> {
        let guard = self.parts().rwsem.read(cx);
        let state = self.state(cx);
        if state.freed { Err(Errno::ESTALE) } else { Ok((guard, state)) }
    }

    /// Locks the file for a change of its data. Returns what it is under the lock.
    ///
    /// # Errors
    /// `ESTALE` freed meanwhile.
    #[inline]
    fn lock_alone(&self, cx: &mut Cx) -> Result<(WriteGuard<'_, ()>, FileState), Errno> {
        let guard = self.parts().rwsem.write(cx);
        let state = self.state(cx);
        if state.freed { Err(Errno::ESTALE) } else { Ok((guard, state)) }
    }

    /// Whether the device has the newest content of the file, whose lock is held: no page of it is
    /// cached, and none waits for a place.
    fn only_on_device(&self, cx: &Cx) -> bool {
        let state = self.state(cx);
        let quiet = self.parts().pages.is_none_or(|mapping| mapping.memory_bytes() == 0);
        state.kind == FileType::Regular
            && !state.freed
            && !state.inline
            && quiet
            && !self.has_delalloc(cx)
            && self.direct_writes(cx) != DirectWrites::Cached
    }
}
