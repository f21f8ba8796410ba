//! What a file system does for its files' data: [`IomapOps`], and the walk over a file's map
//! ([`IomapIter`]) for one operation.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use base::Errno;
use rt::Cx;

use super::{InMemory, Mapping};
use crate::iomap::{Intent, Iomap};
use crate::writeback::WritebackControl;

/// A walk over the map of one file for one operation (Linux: `struct iomap_iter`). Whoever walks
/// holds the file's locks until the operation ends.
pub struct IomapIter<'a> {
    ops: &'a dyn IomapOps,
    /// What the operation does.
    pub intent: Intent,
    /// Bytes that the operation is about.
    pub bytes: Range<u64>,
    /// Number of the file ([`Mapping::id`]) where the page cache walks; else 0.
    pub file: u64,
    /// Of a write: it got blocks that hold nothing yet, which [`IomapOps::end`] makes part of the
    /// file.
    pub given: bool,
    private: Option<Box<dyn Any>>,
}

impl<'a> IomapIter<'a> {
    /// A walk that has not begun.
    pub fn new(ops: &'a dyn IomapOps, intent: Intent, bytes: Range<u64>) -> IomapIter<'a> {
        IomapIter { ops, intent, bytes, file: 0, given: false, private: None }
    }

    /// What the file system keeps with the walk: a default at first.
    pub fn private<T: Default + 'static>(&mut self) -> &mut T {
        let private = self.private.get_or_insert_with(|| Box::new(T::default()));
        private.downcast_mut().expect("one file system walks")
    }

    /// Takes out what the file system keeps with the walk.
    pub fn take_private<T: Default + 'static>(&mut self) -> T {
        let private = self.private.take().and_then(|private| private.downcast().ok());
        private.map(|private| *private).unwrap_or_default()
    }

    /// See [`IomapOps::begin`].
    ///
    /// # Errors
    /// Those of the file system.
    pub fn begin(&mut self, cx: &mut Cx, range: Range<u64>) -> Result<Iomap, Errno> {
        self.ops.begin(cx, self, range)
    }

    /// See [`IomapOps::end`].
    pub fn end(
        &mut self,
        cx: &mut Cx,
        range: Range<u64>,
        complete: bool,
    ) -> (u64, Result<(), Errno>) {
        self.ops.end(cx, self, range, complete)
    }

    /// See [`IomapOps::boundary`].
    pub fn boundary(&self, cx: &mut Cx, part: &Iomap) -> bool {
        self.ops.boundary(cx, part)
    }

    /// See [`IomapOps::prefetch`].
    pub fn prefetch(&self, cx: &mut Cx, at: u64) -> bool {
        self.ops.prefetch(cx, at)
    }
}

/// What a file system does for the data of its files (Linux: `struct iomap_ops` and
/// `struct iomap_writeback_ops`). One object may serve one file or all.
pub trait IomapOps: Send + Sync {
    /// Where the first bytes of `range`, whole blocks, lie: a part in whole blocks that begins with
    /// it, is not empty and does not reach behind it. The range may lie behind the end of the file,
    /// where there is a hole.
    ///
    /// A read gets [`Mapped`](crate::IomapKind::Mapped) for what it has to ask the device for; all
    /// else is zeros. A direct write goes where the answer has a place. What is
    /// [`Unwritten`](crate::IomapKind::Unwritten) holds nothing yet: the write fills up its first
    /// and its last block with zeros. Without a place the page cache has to do it. Blocks that are
    /// given here join the file when their content is there, not before. May park: reads metadata.
    ///
    /// # Errors
    /// Those of the file system; what was read or written before counts.
    fn begin(
        &self,
        cx: &mut Cx,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
    ) -> Result<Iomap, Errno>;

    /// The content of a direct write is at the places that the walk gave for `range`, from its
    /// first byte on: makes them part of the file, in the order of the file, and lets the file
    /// grow. `complete` unless the write was cut short: then the last block, if it held nothing
    /// before, does not count. Returns up to which byte the file has the content. May park.
    fn end(
        &self,
        _cx: &mut Cx,
        _iter: &mut IomapIter<'_>,
        range: Range<u64>,
        _complete: bool,
    ) -> (u64, Result<(), Errno>) {
        (range.end, Ok(()))
    }

    /// Whether the map of what lies behind `part` is in another metadata block: the boundary mark
    /// of `get_block`. Only maps made of tables of pointers have such.
    fn boundary(&self, _cx: &mut Cx, _part: &Iomap) -> bool {
        false
    }

    /// Called at a boundary, before the bytes in front of it are sent: begins to read what the map
    /// of byte `at`, the first one behind, needs. True if that is on its way, so that the next
    /// [`begin`](Self::begin) may wait. Does not park.
    fn prefetch(&self, _cx: &mut Cx, _at: u64) -> bool {
        false
    }

    /// The blocks of `part`, which has content, that are newer in memory than on the device:
    /// those that a journal holds. Asked when the part is about to be read into the page cache.
    /// Does not park.
    fn in_memory(&self, _cx: &mut Cx, _part: &Iomap) -> InMemory {
        InMemory::new()
    }

    /// Called before bytes are copied into the page cache: the blocks of `range` that have no place
    /// yet must find one later. May park.
    ///
    /// # Errors
    /// `ENOSPC` or `EDQUOT` if they will not; nothing is copied then.
    fn reserve(&self, _cx: &mut Cx, _range: Range<u64>) -> Result<(), Errno> {
        Ok(())
    }

    /// Writes dirty data out: for each range that [`Mapping::next_dirty`] gives, finds or allocates
    /// the blocks of it or of its first part, and calls [`Mapping::write_extent`]. May park; must
    /// not take locks that writers hold: the inode's read-write lock.
    ///
    /// # Errors
    /// The blocks cannot be had; the data stays dirty and the error is latched.
    fn writepages(
        &self,
        cx: &mut Cx,
        mapping: &Arc<Mapping>,
        wb: &mut WritebackControl<'_>,
    ) -> Result<(), Errno>;

    /// Whether the device holds something else than the content: see [`decode`](Self::decode).
    /// Asked once, when the mapping is made; see also [`Mapping::set_encoded`].
    fn is_encoded(&self) -> bool {
        false
    }

    /// Makes what the device has at byte `offset` of the file, whole blocks, content. Called before
    /// anybody sees it. Event context: must not wait.
    ///
    /// # Errors
    /// `EIO` it is no content; what [`begin`](Self::begin) would say.
    fn decode(&self, _offset: u64, _bytes: &mut [u8]) -> Result<(), Errno> {
        Ok(())
    }

    /// The same, of what the device had in `from`, to `to`, which is as long: one pass over memory
    /// less where that can be had.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn decode_to(&self, offset: u64, from: &[u8], to: &mut [u8]) -> Result<(), Errno> {
        to.copy_from_slice(from);
        self.decode(offset, to)
    }

    /// Makes content at byte `offset` of the file, whole blocks, what the device is to have: the
    /// reverse of [`decode`](Self::decode). Called with the lock of the pages held, of bytes that
    /// [`writepages`](Self::writepages) found a place for: must not wait.
    fn encode(&self, _offset: u64, _bytes: &mut [u8]) {}

    /// Called when a write of `range`, whole blocks that [`Mapping::write_extent`] took out, is
    /// complete, before anybody who waits for it goes on. Event context: must not wait.
    fn ioend(&self, _range: Range<u64>, _result: Result<(), Errno>) {}
}
