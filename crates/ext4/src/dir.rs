//! Directories: their blocks, verified once, and searching, adding and removing names in them.
//!
//! A directory is either *linear* (its blocks are searched one after the other) or *indexed* by a
//! hash tree ([`crate::dir::htree`]); the leaves of a tree are linear blocks too.
//!
//! Locks: a [`Dir`] is used while its inode's `rwsem` is held, for writing where names change. No
//! handle is open during a search, except where a rename looks for its old name again.

pub(crate) mod htree;
pub(crate) mod namei;

use std::sync::Arc;

use base::{Errno, Ino};
use cache::BufferRef;
use rt::Cx;

use crate::Ext4;
use crate::bmap::map::State;
use crate::dir::htree::Path;
use crate::format::casefold::Encoding;
use crate::format::checksum::InodeSeed;
use crate::format::dir::{self, Behind, DirLayout, FoundEntry, Key, Names};
use crate::format::features::Compat;
use crate::format::htree::{self as raw, NODE_ARRAY};
use crate::format::{At, CorruptKind, FileKind, InodeFlags};
use crate::inode::Inode;
use crate::inode::fast_commit::Change;
use crate::trans::ext4_jbd2::Handle;

mod above;
mod behind;
mod casefold;
mod crypt;
mod inline;
mod readdir;
mod target;

pub(crate) use target::Target;
use target::file_type;

/// Bytes of a directory that are read together, a power of two.
const READAHEAD_BYTES: u32 = 64 << 10;

/// Index of a directory's trigger in [`Inode::triggers`].
const TRIGGER: usize = 1;

/// Blocks that adding a name to a block with room changes: that block. The directory's inode is
/// counted by the caller.
pub(crate) const ADD_CREDITS: u32 = 1;
/// Blocks that adding a name changes at most: a new leaf beside the old one, and for each level of
/// the tree, the new root level included, a new node beside the old one.
pub(crate) const GROW_CREDITS: u32 = 4 * (crate::trans::credits::APPEND + 2);

/// Where a name was found.
pub(crate) struct EntryPlace {
    pub place: Place,
    pub found: FoundEntry,
}

/// What holds an entry.
pub(crate) enum Place {
    /// This block.
    Block(BufferRef),
    /// This run of entries in the inode.
    Inode(inline::RunIndex),
}

/// Where a name can be added.
pub(crate) enum Slot {
    /// Behind (or in) the entry at this offset.
    Room(BufferRef, u32),
    /// The leaf at the end of this path is full.
    Split(Path),
    /// The only block of a linear directory is full and becomes a hash tree.
    Convert,
    /// The linear directory is full and gets a further block.
    Append,
    /// Among the entries in the inode.
    Inode,
    /// The inode is full, and its entries move to a block.
    LeaveInode,
}

impl Slot {
    /// Credits that [`Dir::add`] needs for this slot.
    pub(crate) fn credits(&self) -> u32 {
        match self {
            Slot::Room(..) => ADD_CREDITS,
            // Attributes may take the room before the name is added.
            Slot::Inode | Slot::LeaveInode => crate::trans::credits::APPEND + GROW_CREDITS,
            _ => GROW_CREDITS,
        }
    }
}

/// What a block of a directory is taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Entries.
    Leaf,
    /// The root of a hash tree.
    Root,
    /// Another node of a hash tree.
    Node,
}

/// A directory, looked at under its lock.
pub(crate) struct Dir<'a> {
    pub fs: &'a Ext4,
    pub inode: &'a Arc<Inode>,
    pub layout: DirLayout,
    /// Length in blocks.
    pub blocks: u32,
    /// It has a hash tree that this file system uses.
    pub indexed: bool,
    /// Its entries lie in the inode.
    pub inline: bool,
    /// It ignores the case of names, which are encoded like this.
    pub encoding: Option<Encoding>,
}

/// Puts a name where there is room for it.
fn insert(data: &mut [u8], layout: DirLayout, room: u32, key: &Key, target: Target) {
    let at = dir::insert(data, layout, room, target.ino, target.dir_type, key.name());
    if !key.behind().is_empty() {
        key.behind().set_behind(data, at);
    }
    if let Some((hash, _)) = key.fold().and_then(|fold| fold.secret) {
        dir::set_hash(data, at, hash);
    }
}

impl Ext4 {
    /// Does this file system index directories?
    pub(crate) fn has_dir_index(&self) -> bool {
        self.sb.geometry.features.compat.contains(Compat::DIR_INDEX)
    }
}

impl<'a> Dir<'a> {
    /// Fast commits report that `inode` has `name` here, or (`removed`) has it no more.
    pub(crate) fn track_name(&self, cx: &Cx, handle: &Handle, inode: &Inode, name: Change) {
        if let Some(tracker) = self.fs.inodes.fast_tracker() {
            tracker.track_name(cx, handle, self.inode, inode, name);
        }
    }

    /// Looks at a directory whose lock is held.
    ///
    /// # Errors
    /// `ENOTDIR`; `ENOENT` where the directory itself was removed: its blocks may be gone.
    pub(crate) fn open(fs: &'a Ext4, cx: &mut Cx, inode: &'a Arc<Inode>) -> Result<Dir<'a>, Errno> {
        let (mode, size, flags, links) =
            inode.with(cx, |core| (core.mode, core.size, core.flags, core.links));
        if FileKind::from_mode(mode) != Some(FileKind::Directory) {
            return Err(Errno::ENOTDIR);
        }
        if links == 0 {
            return Err(Errno::ENOENT);
        }
        let blocks = (size >> fs.sb.geometry.block_bits).min(u64::from(u32::MAX)) as u32;
        let indexed = fs.has_dir_index() && flags.contains(InodeFlags::INDEX);
        let inline = flags.contains(InodeFlags::INLINE_DATA);
        let casefold = flags.contains(InodeFlags::CASEFOLD);
        let encoding = if casefold { fs.sb.geometry.encoding } else { None };
        let names = fs.sb.geometry.names_of(Names::of(inode.crypt().is_some(), encoding.is_some()));
        let layout = DirLayout { names, ..fs.sb.geometry.dir_layout() };
        let indexed =
            indexed && (names != Names::Data || behind::knows_root(fs, cx, inode, layout));
        Ok(Dir { fs, inode, layout, blocks, indexed, inline, encoding })
    }

    fn seed(&self, cx: &Cx) -> InodeSeed {
        let (ino, generation) = (self.inode.ino, self.inode.with(cx, |core| core.generation));
        self.fs.sb.geometry.checksums.inode_seed(ino, generation)
    }

    /// Takes note of damage in one of the directory's blocks.
    pub(crate) fn corrupt(&self, cx: &Cx, buffer: &BufferRef, kind: CorruptKind) -> Errno {
        self.fs.sb.corrupt(cx, &kind.at(At::Block(self.inode.ino, buffer.block())))
    }

    /// Logical block `lblk`, up to date; its checksum and its structure are checked when it comes
    /// into memory.
    ///
    /// # Errors
    /// `EUCLEAN` for a hole or a damaged block, `EIO`.
    pub(crate) fn block(&self, cx: &mut Cx, lblk: u32, role: Role) -> Result<BufferRef, Errno> {
        let Some(buffer) = self.fs.inodes.bmap(self.inode).bread(cx, lblk)? else {
            let kind = CorruptKind::DirHole { logical: lblk.into() };
            return Err(self.fs.sb.corrupt(cx, &kind.at(At::Inode(self.inode.ino))));
        };
        if !buffer.verified() {
            self.readahead(cx, lblk)?;
            self.verify(cx, &buffer, role)?;
        }
        Ok(buffer)
    }

    /// Begins to read the blocks behind one that just came into memory: names that are looked up
    /// are spread over a whole tree, and a listing wants all blocks.
    #[cold]
    fn readahead(&self, cx: &mut Cx, lblk: u32) -> Result<(), Errno> {
        let window = READAHEAD_BYTES >> self.fs.sb.geometry.block_bits;
        let (first, end) = (lblk + 1, (lblk | (window - 1)).saturating_add(1).min(self.blocks));
        if first >= end {
            return Ok(());
        }
        let run = self.fs.inodes.bmap(self.inode).map_lookup(cx, first, end - first)?;
        if run.state == State::Written {
            self.fs.sb.buffers.readahead(cx, run.pblk, run.len.into());
        }
        Ok(())
    }

    /// A block that is looked at for its entries alone, whatever it is.
    fn any_block(&self, cx: &mut Cx, lblk: u32) -> Result<BufferRef, Errno> {
        let Some(buffer) = self.fs.inodes.bmap(self.inode).bread(cx, lblk)? else {
            let kind = CorruptKind::DirHole { logical: lblk.into() };
            return Err(self.fs.sb.corrupt(cx, &kind.at(At::Inode(self.inode.ino))));
        };
        if !buffer.verified() {
            self.readahead(cx, lblk)?;
            let leaf = buffer.with(|data| raw::is_leaf(data, self.layout));
            let role = match (self.indexed, lblk) {
                (true, 0) => Role::Root,
                // Without a checksum an empty leaf looks like a node.
                (true, _) if !leaf && self.layout.checksum => Role::Node,
                _ => Role::Leaf,
            };
            self.verify(cx, &buffer, role)?;
        }
        Ok(buffer)
    }

    #[cold]
    fn verify(&self, cx: &Cx, buffer: &BufferRef, role: Role) -> Result<(), Errno> {
        let seed = self.seed(cx);
        let (layout, blocks) = (self.layout, u64::from(self.blocks));
        let page = buffer.page();
        let check = || match role {
            Role::Leaf => self.check_entries(seed, &page),
            Role::Root | Role::Node => {
                let array = match role {
                    Role::Root => raw::root_array(&page, layout.names),
                    _ => NODE_ARRAY,
                };
                if layout.checksum {
                    raw::verify_checksum(seed, &page, array)?;
                }
                raw::check(&page, layout, array, blocks)
            }
        };
        check().map_err(|kind| self.corrupt(cx, buffer, kind))?;
        buffer.set_verified(true);
        Ok(())
    }

    fn check_entries(&self, seed: InodeSeed, page: &[u8]) -> Result<(), CorruptKind> {
        let mut layout = self.layout;
        if layout.names == Names::Data && !dir::has_tail(page) {
            // A block of an index that is not read.
            layout.checksum = false;
        }
        if layout.checksum {
            dir::verify_checksum(seed, page)?;
        }
        dir::check(page, layout, self.fs.sb.geometry.inodes_count)
    }

    /// Makes sure that the block's checksum is set whenever it is written.
    pub(crate) fn arm(&self, cx: &Cx, buffer: &BufferRef) {
        if self.layout.checksum && !buffer.has_trigger() {
            self.set_trigger(cx, buffer);
        }
    }

    #[cold]
    fn set_trigger(&self, cx: &Cx, buffer: &BufferRef) {
        let (seed, names) = (self.seed(cx), self.layout.names);
        let trigger = self.inode.trigger(TRIGGER, || {
            Arc::new(move |_, data: &mut [u8]| {
                // Not by the tail: a root that Linux made of a linear block ends with what was
                // the tail of that block.
                if raw::is_root(data, names) {
                    let array = raw::root_array(data, names);
                    raw::set_checksum(seed, data, array);
                } else if raw::is_node(data) {
                    raw::set_checksum(seed, data, NODE_ARRAY);
                } else {
                    dir::set_checksum(seed, data);
                }
            })
        });
        buffer.set_trigger(Some(trigger));
    }

    /// Changes a block of the directory as part of `handle`.
    pub(crate) fn change<R>(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        buffer: &BufferRef,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Errno> {
        handle.write_access(cx, buffer)?;
        let result = buffer.with_mut(change);
        self.arm(cx, buffer);
        handle.dirty(cx, buffer)?;
        Ok(result)
    }

    /// Appends a block and fills it.
    pub(crate) fn append(
        &mut self,
        cx: &mut Cx,
        handle: &mut Handle,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(u32, BufferRef), Errno> {
        let (lblk, buffer) = self.fs.inodes.bmap(self.inode).append_block(cx, handle)?;
        buffer.with_mut(fill);
        buffer.set_verified(true);
        if self.layout.checksum {
            self.set_trigger(cx, &buffer);
        }
        handle.dirty(cx, &buffer)?;
        self.blocks = lblk + 1;
        Ok((lblk, buffer))
    }

    /// Searches for a name, which is neither `.` nor `..`.
    ///
    /// A damaged tree is not trusted: the blocks are then searched one after the other.
    ///
    /// # Errors
    /// `EINVAL` no UTF-8, where nothing else is taken; `EUCLEAN`, `EIO`.
    pub(crate) fn find(&self, cx: &mut Cx, name: &[u8]) -> Result<Option<EntryPlace>, Errno> {
        if self.layout.names.is_encrypted() && self.inode.check_key().is_err() {
            return self.find_without_key(cx, name);
        }
        self.find_on_disk(cx, &self.sought(name)?.key())
    }

    fn find_on_disk(&self, cx: &mut Cx, key: &Key) -> Result<Option<EntryPlace>, Errno> {
        if self.indexed {
            match self.find_indexed(cx, key) {
                Err(Errno::EFSCORRUPTED) => self.find_anywhere(cx, key),
                result => result,
            }
        } else {
            self.find_linear(cx, key)
        }
    }

    fn find_linear(&self, cx: &mut Cx, key: &Key) -> Result<Option<EntryPlace>, Errno> {
        if self.inline {
            return self.find_inline(cx, key);
        }
        for lblk in 0..self.blocks {
            let buffer = self.block(cx, lblk, Role::Leaf)?;
            let found = buffer.with(|data| dir::find(data, self.layout, key));
            if let Some(found) = found {
                return Ok(Some(EntryPlace { place: Place::Block(buffer), found }));
            }
        }
        Ok(None)
    }

    /// Searches all blocks that can be read, for a directory with damaged ones. That a name is not
    /// there stays unknown.
    #[cold]
    fn find_anywhere(&self, cx: &mut Cx, key: &Key) -> Result<Option<EntryPlace>, Errno> {
        for lblk in 0..self.blocks {
            let Ok(buffer) = self.any_block(cx, lblk) else { continue };
            let found = buffer.with(|data| dir::find(data, self.layout, key));
            if let Some(found) = found {
                return Ok(Some(EntryPlace { place: Place::Block(buffer), found }));
            }
        }
        Err(Errno::EFSCORRUPTED)
    }

    /// Searches for a name that is to be added: returns where it is, or else where it can be put.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub(crate) fn find_or_slot(
        &self,
        cx: &mut Cx,
        name: &[u8],
    ) -> Result<Result<EntryPlace, Slot>, Errno> {
        self.find_or_slot_with(cx, name, &Behind::NONE)
    }

    /// As [`Dir::find_or_slot`], with room for this behind the name.
    pub(crate) fn find_or_slot_with(
        &self,
        cx: &mut Cx,
        name: &[u8],
        behind: &Behind,
    ) -> Result<Result<EntryPlace, Slot>, Errno> {
        self.find_or_slot_on_disk(cx, &self.sought(name)?.key().with_behind(behind))
    }

    fn find_or_slot_on_disk(
        &self,
        cx: &mut Cx,
        key: &Key,
    ) -> Result<Result<EntryPlace, Slot>, Errno> {
        if self.indexed {
            return self.find_or_slot_indexed(cx, key);
        }
        if self.inline {
            return self.find_or_slot_inline(cx, key);
        }
        let need = key.need(self.layout);
        let mut room = None;
        for lblk in 0..self.blocks {
            let buffer = self.block(cx, lblk, Role::Leaf)?;
            let scan = buffer.with(|data| dir::scan(data, self.layout, key, need));
            if let Some(found) = scan.found {
                return Ok(Ok(EntryPlace { place: Place::Block(buffer), found }));
            }
            if let (None, Some(offset)) = (&room, scan.room) {
                room = Some(Slot::Room(buffer, offset));
            }
        }
        if self.is_closed_index(cx) {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(Err(match room {
            Some(slot) => slot,
            None if self.blocks == 1 && self.fs.has_dir_index() => Slot::Convert,
            None => Slot::Append,
        }))
    }

    /// Adds a name at the slot that was found for it under the same lock.
    ///
    /// # Errors
    /// `ENOSPC` (also where the tree cannot get deeper); `EUCLEAN`, `EIO`.
    pub(crate) fn add(
        &mut self,
        cx: &mut Cx,
        handle: &mut Handle,
        slot: Slot,
        name: &[u8],
        target: Target,
    ) -> Result<(), Errno> {
        self.add_with(cx, handle, slot, name, target, &Behind::NONE)
    }

    /// As [`Dir::add`], with this behind the name as far as there is room.
    pub(crate) fn add_with(
        &mut self,
        cx: &mut Cx,
        handle: &mut Handle,
        slot: Slot,
        name: &[u8],
        target: Target,
        behind: &Behind,
    ) -> Result<(), Errno> {
        let sought = self.sought(name)?;
        self.add_on_disk(cx, handle, slot, &sought.key().with_behind(behind), target)
    }

    fn add_on_disk(
        &mut self,
        cx: &mut Cx,
        handle: &mut Handle,
        slot: Slot,
        key: &Key,
        target: Target,
    ) -> Result<(), Errno> {
        let layout = self.layout;
        match slot {
            Slot::Room(buffer, offset) => self.change(cx, handle, &buffer, |data| {
                insert(data, layout, offset, key, target);
            }),
            Slot::Append => {
                let filled = self.append(cx, handle, |data| {
                    dir::init_empty(data, layout);
                    insert(data, layout, 0, key, target);
                });
                filled.map(drop)
            }
            Slot::Split(path) => self.add_by_split(cx, handle, path, key, target),
            Slot::Inode => self.add_inline(cx, handle, key, target),
            Slot::LeaveInode => self.add_outside(cx, handle, key, target),
            Slot::Convert => {
                if !self.convert(cx, handle)? {
                    return self.add_on_disk(cx, handle, Slot::Append, key, target);
                }
                match self.find_or_slot_indexed(cx, key)? {
                    Err(slot) => self.add_on_disk(cx, handle, slot, key, target),
                    Ok(_) => Err(Errno::EEXIST),
                }
            }
        }
    }

    /// Removes a name that was found under the same lock.
    ///
    /// # Errors
    /// The journal's errno once it has aborted.
    pub(crate) fn remove(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        place: &EntryPlace,
    ) -> Result<(), Errno> {
        match &place.place {
            Place::Block(buffer) => {
                let layout = self.layout;
                self.change(cx, handle, buffer, |data| dir::remove(data, layout, &place.found))
            }
            Place::Inode(run) => self.change_inline(cx, handle, *run, |data, layout| {
                dir::remove(data, layout, &place.found);
            }),
        }
    }

    /// Makes a name that was found under the same lock point at another inode.
    ///
    /// # Errors
    /// The journal's errno once it has aborted.
    pub(crate) fn replace(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        place: &EntryPlace,
        target: Target,
    ) -> Result<(), Errno> {
        let set = |data: &mut [u8], layout| {
            dir::set_target(data, layout, place.found.offset, target.ino, target.dir_type);
        };
        match &place.place {
            Place::Block(buffer) => {
                let layout = self.layout;
                self.change(cx, handle, buffer, |data| set(data, layout))
            }
            Place::Inode(run) => self.change_inline(cx, handle, *run, set),
        }
    }

    /// Writes the first block of a new directory.
    ///
    /// # Errors
    /// `ENOSPC`; the journal's errno once it has aborted.
    pub(crate) fn init(
        &mut self,
        cx: &mut Cx,
        handle: &mut Handle,
        parent: Ino,
    ) -> Result<(), Errno> {
        let (layout, ino) = (self.layout, self.inode.ino.0 as u32);
        let dir_type = FileKind::Directory.dir_type();
        self.append(cx, handle, |data| {
            dir::init_dots(data, layout, ino, parent.0 as u32, dir_type);
        })?;
        Ok(())
    }

    /// Does the directory hold nothing but `.` and `..`?
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`: what cannot be read might hold names.
    pub(crate) fn is_empty(&self, cx: &mut Cx) -> Result<bool, Errno> {
        if self.inline {
            let entries = self.inline_entries(cx)?;
            return Ok(entries.used().next().is_none());
        }
        for lblk in 0..self.blocks {
            let buffer = self.any_block(cx, lblk)?;
            let skip = if lblk == 0 { 2 } else { 0 };
            let used = buffer.with(|data| {
                dir::entries(data, self.layout).skip(skip).any(|entry| entry.ino != 0)
            });
            if used {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
