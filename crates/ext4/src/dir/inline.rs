//! Directories whose entries lie in the inode: the number of the directory above, then entries up
//! to the 60th byte, and a second run of entries in the attribute. No entry spans both, and `.` and
//! `..` have none.
//!
//! When a name finds no room, all entries move to a block, where they keep their distances, so that
//! a listing goes on where it was.

use base::Errno;
use rt::Cx;

use super::{Dir, EntryPlace, Place, Slot, Target, insert};
use crate::attr::inline;
use crate::format::dir::{self, DirLayout, FoundEntry, INLINE_RUNS, Key};
use crate::format::{At, CorruptKind, FileKind};
use crate::trans::ext4_jbd2::Handle;

/// One of the two runs of entries: 0 in the place of the map, 1 in the attribute.
pub(crate) type RunIndex = usize;

/// The entries of a directory in its inode.
pub(super) struct Entries {
    bytes: Vec<u8>,
    filetype: bool,
}

impl Entries {
    /// A run of entries, and how it is laid out.
    pub fn run(&self, index: RunIndex) -> (&[u8], DirLayout) {
        dir::inline_run(&self.bytes, index, self.filetype)
    }

    fn run_mut(&mut self, index: RunIndex) -> (&mut [u8], DirLayout) {
        let (layout, len) = (self.run(index).1, self.bytes.len());
        (&mut self.bytes[dir::inline_range(index, len)], layout)
    }

    /// The directory above.
    pub fn parent(&self) -> u32 {
        dir::inline_parent(&self.bytes)
    }

    /// The entries that are in use, with their distance from the first byte of the runs.
    pub fn used(&self) -> impl Iterator<Item = (u64, dir::Entry<'_>)> {
        (0..INLINE_RUNS).flat_map(|index| {
            let (run, layout) = self.run(index);
            let before = dir::inline_range(index, 0).start - dir::inline_range(0, 0).start;
            let used = dir::entries(run, layout).filter(|entry| entry.ino != 0);
            used.map(move |entry| (before as u64 + u64::from(entry.offset), entry))
        })
    }

    fn check(&self, inodes: u32) -> Result<(), CorruptKind> {
        (0..INLINE_RUNS).try_for_each(|index| {
            let (run, layout) = self.run(index);
            dir::check(run, layout, inodes)
        })
    }

    fn find(&self, key: &Key) -> Option<(RunIndex, FoundEntry)> {
        (0..INLINE_RUNS).find_map(|index| {
            let (run, layout) = self.run(index);
            Some((index, dir::find(run, layout, key)?))
        })
    }

    fn room(&self, need: usize) -> Option<(RunIndex, u32)> {
        (0..INLINE_RUNS).find_map(|index| {
            let (run, layout) = self.run(index);
            Some((index, dir::room(run, layout, need)?))
        })
    }
}

impl Dir<'_> {
    /// The entries, checked.
    pub(super) fn inline_entries(&self, cx: &mut Cx) -> Result<Entries, Errno> {
        let mut bytes = inline::read(&self.fs.inodes, cx, self.inode)?;
        bytes.truncate(self.inode.size(cx) as usize);
        let entries = Entries { bytes, filetype: self.layout.filetype };
        let enough = entries.bytes.len() >= dir::INLINE_HEAD;
        let checked = match enough {
            true => entries.check(self.fs.sb.geometry.inodes_count),
            false => Err(CorruptKind::InlineSize { size: entries.bytes.len() as u64, has: 60 }),
        };
        match checked {
            Ok(()) => Ok(entries),
            Err(kind) => Err(self.fs.sb.corrupt_kind(cx, kind, At::Inode(self.inode.ino))),
        }
    }

    /// Searches for a name.
    pub(super) fn find_inline(&self, cx: &mut Cx, key: &Key) -> Result<Option<EntryPlace>, Errno> {
        let found = self.inline_entries(cx)?.find(key);
        Ok(found.map(|(run, found)| EntryPlace { place: Place::Inode(run), found }))
    }

    /// Searches for a name, or else for room for it; the attribute may grow for that.
    pub(super) fn find_or_slot_inline(
        &self,
        cx: &mut Cx,
        key: &Key,
    ) -> Result<Result<EntryPlace, Slot>, Errno> {
        let mut entries = self.inline_entries(cx)?;
        if let Some((run, found)) = entries.find(key) {
            return Ok(Ok(EntryPlace { place: Place::Inode(run), found }));
        }
        let need = dir::entry_len(key.name().len());
        if entries.room(need).is_none() {
            let capacity = inline::capacity(&self.fs.inodes, cx, self.inode)?;
            dir::grow_inline(&mut entries.bytes, capacity, entries.filetype);
        }
        Ok(Err(match entries.room(need) {
            Some(_) => Slot::Inode,
            None => Slot::LeaveInode,
        }))
    }

    /// Adds a name for which there is room.
    pub(super) fn add_inline(
        &mut self,
        cx: &mut Cx,
        handle: &mut Handle,
        key: &Key,
        target: Target,
    ) -> Result<(), Errno> {
        let need = dir::entry_len(key.name().len());
        let mut entries = self.inline_entries(cx)?;
        if entries.room(need).is_none() {
            let capacity = inline::capacity(&self.fs.inodes, cx, self.inode)?;
            dir::grow_inline(&mut entries.bytes, capacity, entries.filetype);
        }
        if let Some((run, offset)) = entries.room(need) {
            let (bytes, layout) = entries.run_mut(run);
            insert(bytes, layout, offset, key, target);
            if self.store_inline(cx, handle, &entries)? {
                return Ok(());
            }
        }
        // An attribute took the room meanwhile.
        self.add_outside(cx, handle, key, target)
    }

    /// Moves all entries to a block, and adds a name there.
    pub(super) fn add_outside(
        &mut self,
        cx: &mut Cx,
        handle: &mut Handle,
        key: &Key,
        target: Target,
    ) -> Result<(), Errno> {
        self.leave_inode(cx, handle)?;
        match self.find_or_slot_on_disk(cx, key)? {
            Err(slot) => self.add_on_disk(cx, handle, slot, key, target),
            Ok(_) => Err(Errno::EEXIST),
        }
    }

    /// Changes an entry that was found under the same lock.
    pub(super) fn change_inline(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        run: RunIndex,
        change: impl FnOnce(&mut [u8], DirLayout),
    ) -> Result<(), Errno> {
        let mut entries = self.inline_entries(cx)?;
        let (bytes, layout) = entries.run_mut(run);
        change(bytes, layout);
        self.store_same_size(cx, handle, &entries)
    }

    /// Makes another directory the one above.
    pub(super) fn set_inline_parent(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        parent: u32,
    ) -> Result<(), Errno> {
        let mut entries = self.inline_entries(cx)?;
        dir::set_inline_parent(&mut entries.bytes, parent);
        self.store_same_size(cx, handle, &entries)?;
        self.fs.inodes.mark_dirty(cx, handle, self.inode)
    }

    /// What is as long as what was there always fits.
    fn store_same_size(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        entries: &Entries,
    ) -> Result<(), Errno> {
        match self.store_inline(cx, handle, entries)? {
            true => Ok(()),
            false => Err(Errno::EFSCORRUPTED),
        }
    }

    /// Puts the entries into the inode; false where they do not fit. The caller writes the inode.
    fn store_inline(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        entries: &Entries,
    ) -> Result<bool, Errno> {
        let bytes = &entries.bytes;
        let stored = inline::write(&self.fs.inodes, cx, handle, self.inode, bytes)?;
        if stored {
            self.inode.with(cx, |core| core.size = bytes.len() as u64);
        }
        Ok(stored)
    }

    /// Moves the entries to a block. Where there is none everything stays.
    pub(crate) fn leave_inode(&mut self, cx: &mut Cx, handle: &mut Handle) -> Result<(), Errno> {
        let entries = self.inline_entries(cx)?;
        let (layout, ino) = (self.layout, self.inode.ino.0 as u32);
        inline::remove(&self.fs.inodes, cx, handle, self.inode)?;
        self.inode.with(cx, |core| core.size = 0);
        let appended = self.append(cx, handle, |block| {
            let dots = dir::Dots {
                ino,
                parent: entries.parent(),
                dir_type: FileKind::Directory.dir_type(),
            };
            dir::init_from_inline(block, layout, dots, &entries.bytes);
        });
        if let Err(errno) = appended {
            self.store_same_size(cx, handle, &entries)?;
            self.fs.inodes.mark_dirty(cx, handle, self.inode)?;
            return Err(errno);
        }
        self.inline = false;
        Ok(())
    }

    /// Makes a new directory one whose entries lie in the inode.
    pub(crate) fn init_inline(&mut self, cx: &mut Cx, parent: u32) {
        inline::begin(cx, self.inode, &dir::empty_inline(parent));
        self.inline = true;
    }
}
