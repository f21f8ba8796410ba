//! Inodes in memory: their values, their locks, and the cache that finds them by number.
//!
//! The values live once, in [`InodeCore`]; [`Ext4::mark_inode_dirty`] writes them into the block of
//! the inode table. Attributes behind the extra fields live only in that block.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::{Errno, Ino};
use cache::{BufferRef, ErrorMark, Mapping, Trigger};
use rt::{Cx, Mutex, RwLock, SpinLock};
use vfs::{Attr, CachedInode, FileType};

use crate::Ext4;
use crate::alloc::mballoc::Prealloc;
use crate::alloc::reservation::Window;
use crate::file::delalloc::Delalloc;
use crate::format::inode::InodeValues;
use crate::format::{At, CorruptKind, InodeFlags, extent};
use crate::quota::InodeQuota;
use crate::trans::ext4_jbd2::{Handle, Tid};

/// Blocks of the inode table that are read together (the kernel's `inode_readahead_blks`).
const INODE_READAHEAD_BLOCKS: u64 = 32;

/// What may change of an inode, under its spin lock. Derefs to the values that go to the disk.
#[derive(Debug)]
pub(crate) struct InodeCore {
    pub values: InodeValues,
    /// Size in bytes as readers see it. `values.size` is the size on the disk, which follows when
    /// the data have their blocks (regular files); for all others both are the same.
    pub size: u64,
    /// How many times the inode is open.
    pub opens: u32,
    /// It was cut to nothing: its delayed data get their blocks when it is closed
    /// ([`MountOptions::auto_da_alloc`](crate::MountOptions::auto_da_alloc)).
    pub place_on_close: bool,
    /// Times were changed without a handle; they go to the disk with the data.
    pub times_dirty: bool,
    /// The inode was created and its slot never written.
    pub fresh: bool,
    /// Freed, or on its way: nobody may begin anything with it.
    pub dead: bool,
    /// The slot may belong to another inode by now: never written again.
    pub freed: bool,
    /// Freed: the next write of the slot is the last one.
    pub gone: bool,
    /// What the inode's owners are charged for; `None` without quota.
    pub quota: Option<Box<InodeQuota>>,
    /// Its attribute values in inodes of their own, which quota counts as inodes.
    pub large_values: u32,
    /// Never had a name, and may get one.
    pub linkable: bool,
    /// In the orphan list or file.
    pub orphan: crate::ialloc::orphan::Place,
    /// Transaction of the last change.
    pub tid: Tid,
    /// Transaction of the last change that is needed to find the data: of the inode's creation, its
    /// size or its map.
    pub datasync_tid: Tid,
    /// The size that the slot has.
    pub logged_size: u64,
    /// Transaction whose commit looks at the size.
    #[cfg(debug_assertions)]
    pub checked_tid: Tid,
    /// Transaction that waits for the inode's data.
    pub ordered_tid: Tid,
}

impl Deref for InodeCore {
    type Target = InodeValues;
    fn deref(&self) -> &InodeValues {
        &self.values
    }
}

impl DerefMut for InodeCore {
    fn deref_mut(&mut self) -> &mut InodeValues {
        &mut self.values
    }
}

impl InodeCore {
    fn new(values: InodeValues) -> InodeCore {
        InodeCore {
            size: values.size,
            logged_size: values.size,
            #[cfg(debug_assertions)]
            checked_tid: None,
            values,
            opens: 0,
            place_on_close: false,
            times_dirty: false,
            fresh: false,
            dead: false,
            freed: false,
            gone: false,
            quota: None,
            large_values: 0,
            linkable: false,
            orphan: Default::default(),
            tid: None,
            datasync_tid: None,
            ordered_tid: None,
        }
    }

    /// What stat reports; `delayed` are promised blocks, in units of 512 bytes.
    fn attr(&self, ino: Ino, block_size: u32, delayed: u64) -> Attr {
        let kind = FileType::from_mode(u32::from(self.mode)).unwrap_or(FileType::Regular);
        Attr {
            ino,
            kind,
            mode: self.mode & 0o7777,
            nlink: u32::from(self.links),
            uid: self.uid,
            gid: self.gid,
            rdev: if kind.is_device() { self.device() } else { 0 },
            size: self.size,
            blocks: self.blocks + delayed,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.crtime,
            generation: self.generation,
            flags: self.flags.bits(),
            blksize: block_size,
        }
    }

    /// Does it hold an attribute's value? Then it has no name and no owner.
    pub(crate) fn is_value(&self) -> bool {
        self.flags.contains(InodeFlags::EA_INODE) && self.mode & 0xf000 == 0x8000
    }
}

/// The last extent that a lookup found: most lookups ask for its neighbourhood again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastExtent {
    pub lblk: u32,
    pub len: u32,
    pub pblk: u64,
    pub unwritten: bool,
}

/// An inode in memory.
// What stat looks at comes first, side by side with the count of references.
#[repr(C)]
pub(crate) struct Inode {
    pub ino: Ino,
    pub referenced: AtomicBool,
    pub core: SpinLock<InodeCore>,
    pub fs: Weak<Ext4>,
    weak: Weak<Inode>,
    /// Directories: entries. Files: size, and data against truncation. See the lock order.
    pub rwsem: RwLock<()>,
    /// One writer of dirty pages at a time.
    pub writeback: Mutex<()>,
    /// Attributes in the inode and in their block.
    pub xattr_lock: Mutex<()>,
    /// The tree of blocks; holds the preallocation.
    pub map_lock: RwLock<Prealloc>,
    /// Where its next blocks come from, where the mount has windows.
    pub window: SpinLock<Window>,
    /// What its dirty pages were promised.
    pub delayed: SpinLock<Delalloc>,
    pub last_extent: SpinLock<LastExtent>,
    mapping: OnceLock<Arc<Mapping>>,
    /// How far fsync has told of write errors.
    pub error_mark: SpinLock<ErrorMark>,
    /// Checksum triggers of the inode's blocks, one for each kind, made at first use.
    pub triggers: [OnceLock<Trigger>; 4],
}

impl Inode {
    fn new(ino: Ino, fs: Weak<Ext4>, core: InodeCore) -> Arc<Inode> {
        Arc::new_cyclic(|weak| Inode {
            ino,
            fs,
            weak: weak.clone(),
            rwsem: RwLock::named("inode rwsem", ()),
            writeback: Mutex::named("inode writeback", ()),
            xattr_lock: Mutex::named("inode xattr", ()),
            map_lock: RwLock::named("inode map", Prealloc::default()),
            window: SpinLock::named("inode window", Window::default()),
            core: SpinLock::named("inode core", core),
            delayed: SpinLock::named("inode delayed", Delalloc::default()),
            last_extent: SpinLock::new(LastExtent::default()),
            mapping: OnceLock::new(),
            error_mark: SpinLock::new(ErrorMark::default()),
            triggers: Default::default(),
            referenced: AtomicBool::new(true),
        })
    }

    /// Looks at or changes the values, in a short section that cannot wait.
    #[inline]
    pub(crate) fn with<R>(&self, cx: &Cx, f: impl FnOnce(&mut InodeCore) -> R) -> R {
        f(&mut self.core.lock(cx))
    }

    /// This inode, counted.
    pub(crate) fn arc(&self) -> Arc<Inode> {
        self.weak.upgrade().expect("whoever has a reference holds the inode")
    }

    /// The type. It never changes.
    #[inline]
    pub(crate) fn kind(&self, cx: &Cx) -> FileType {
        let mode = self.with(cx, |core| core.mode);
        FileType::from_mode(u32::from(mode)).expect("checked when the inode was read")
    }

    /// A regular file: its blocks hold data, not metadata.
    #[inline]
    pub(crate) fn is_regular(&self, cx: &Cx) -> bool {
        self.with(cx, |core| core.mode & 0xf000 == 0x8000)
    }

    /// Size in bytes as readers see it.
    #[inline]
    pub(crate) fn size(&self, cx: &Cx) -> u64 {
        self.core.lock(cx).size
    }

    /// Mapped by extents, not by indirect blocks.
    #[inline]
    pub(crate) fn has_extents(&self, cx: &Cx) -> bool {
        self.with(cx, |core| core.flags.contains(InodeFlags::EXTENTS))
    }

    /// What stat reports.
    pub(crate) fn attr(&self, cx: &Cx, block_size: u32) -> Attr {
        self.attr_if(cx, block_size, |_| true).expect("nothing is refused")
    }

    /// The same where `usable` says so.
    #[inline]
    pub(crate) fn attr_if(
        &self,
        cx: &Cx,
        block_size: u32,
        usable: impl Fn(&InodeCore) -> bool,
    ) -> Option<Attr> {
        let core = self.core.lock(cx);
        if !usable(&core) {
            return None;
        }
        if core.size == 0 || core.mode & 0xf000 != 0x8000 {
            return Some(core.attr(self.ino, block_size, 0));
        }
        drop(core);
        // First: while a promise becomes a block it may be counted twice, but never as neither.
        let delayed = self.delayed.lock(cx).blocks() * u64::from(block_size / 512);
        let core = self.core.lock(cx);
        usable(&core).then(|| core.attr(self.ino, block_size, delayed))
    }

    /// The file's pages; made at first use.
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        self.mapping.get_or_init(|| {
            let fs = self.fs.upgrade().expect("an inode is used only while its mount lives");
            crate::file::new_mapping(&fs, self.arc())
        })
    }

    /// The file's pages, if there ever were any.
    pub(crate) fn mapping_if_any(&self) -> Option<&Arc<Mapping>> {
        self.mapping.get()
    }

    /// The trigger of this kind, made by `make` at first use.
    pub(crate) fn trigger(&self, kind: usize, make: impl FnOnce() -> Trigger) -> Trigger {
        self.triggers[kind].get_or_init(make).clone()
    }
}

impl CachedInode for Inode {
    fn ino(&self) -> Ino {
        self.ino
    }

    fn referenced(&self) -> &AtomicBool {
        &self.referenced
    }

    fn evictable(&self) -> bool {
        if self.referenced.swap(false, Ordering::Relaxed) {
            return false;
        }
        if !self.delayed.lock_irq().is_empty() {
            return false;
        }
        let Some(core) = self.core.try_lock() else { return false };
        let idle = core.opens == 0 && !core.times_dirty && !core.orphan.linked() && !core.fresh;
        idle && !self.mapping.get().is_some_and(|mapping| mapping.is_dirty())
    }
}

impl Drop for Inode {
    /// What the inode keeps of the allocator's goes back; of an inode that is still open it does so
    /// with the last close.
    fn drop(&mut self) {
        if let Some(fs) = self.fs.upgrade() {
            fs.alloc.release_prealloc(self.map_lock.get_mut());
            fs.alloc.discard_window(&self.window);
        }
    }
}

impl std::fmt::Debug for Inode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inode({})", self.ino)
    }
}

impl Ext4 {
    /// The inode with this number, from the cache or from the disk. May wait for the device.
    ///
    /// # Errors
    /// `ESTALE` where the inode is not in use or the number is out of range, `EUCLEAN` where it is
    /// damaged, `EIO`.
    pub(crate) fn iget(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        self.sb.check_alive()?;
        let inode = match self.inodes.find(ino) {
            Some(inode) => inode,
            None => self.inodes.read_in(ino, || {
                let inode = self.read_inode(cx, ino)?;
                if inode.with(cx, |core| core.links == 0 || core.is_value()) {
                    return Err(Errno::ESTALE);
                }
                self.attach_quota(cx, &inode)?;
                Ok(inode)
            })?,
        };
        let hidden = inode.with(cx, |core| core.dead || core.is_value());
        if hidden { Err(Errno::ESTALE) } else { Ok(inode) }
    }

    /// As [`Ext4::iget`], also for an inode without names: one of the orphan list.
    ///
    /// # Errors
    /// As [`Ext4::iget`].
    pub(crate) fn iget_orphan(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        match self.inodes.find(ino) {
            Some(inode) => Ok(inode),
            None => {
                let inode = self.read_inode(cx, ino)?;
                self.attach_quota(cx, &inode)?;
                Ok(self.inodes.insert(inode))
            }
        }
    }

    /// The inode that holds an attribute's value: see [`crate::attr::xattr`].
    ///
    /// # Errors
    /// `ESTALE` where it is not in use or holds no value, `EUCLEAN` where it is damaged, `EIO`.
    pub(crate) fn iget_value(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        let inode = match self.inodes.find(ino) {
            Some(inode) => inode,
            None => self.inodes.read_in(ino, || {
                let inode = self.read_inode(cx, ino)?;
                // Only what is an orphan in memory has no links.
                match inode.with(cx, |core| core.is_value() && core.links > 0) {
                    true => Ok(inode),
                    false => Err(Errno::ESTALE),
                }
            })?,
        };
        let usable = inode.with(cx, |core| core.is_value() && !core.dead);
        if usable { Ok(inode) } else { Err(Errno::ESTALE) }
    }

    fn read_inode(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        let Ok((group, index)) = self.sb.geometry.inode_group(ino) else {
            return Err(Errno::ESTALE);
        };
        if self.inode_never_used(cx, group, index) {
            return Err(Errno::ESTALE);
        }
        let (buffer, offset) = self.inode_slot(cx, ino)?;
        let size = self.sb.geometry.inode_size as usize;
        let parsed = buffer
            .with(|data| InodeValues::parse(&data[offset..offset + size], ino, &self.sb.geometry));
        let values = parsed.map_err(|corrupt| self.sb.corrupt(cx, &corrupt))?;
        if values.mode == 0 {
            return Err(Errno::ESTALE);
        }
        if values.flags.contains(InodeFlags::EXTENTS) {
            let at = At::Inode(ino);
            let root = extent::Node::parse(&values.block, None, at)
                .and_then(|node| node.check_entries(&self.sb.geometry, at).map(|()| node.max()));
            match root {
                Ok(max) if max <= usize::from(extent::ROOT_MAX) => {}
                Ok(max) => {
                    let kind =
                        CorruptKind::ExtentMax { found: max as u16, limit: extent::ROOT_MAX };
                    return Err(self.sb.corrupt_kind(cx, kind, at));
                }
                Err(corrupt) => return Err(self.sb.corrupt(cx, &corrupt)),
            }
        }
        Ok(Inode::new(ino, self.weak.clone(), InodeCore::new(values)))
    }

    /// Makes the inode that [`Ext4::new_inode`] has found a number for.
    pub(crate) fn fresh_inode(
        &self,
        ino: Ino,
        values: InodeValues,
        quota: Option<Box<InodeQuota>>,
    ) -> Arc<Inode> {
        let core = InodeCore { fresh: true, quota, ..InodeCore::new(values) };
        self.inodes.insert(Inode::new(ino, self.weak.clone(), core))
    }

    /// Where inode `ino` lies: its block of the inode table, up to date, and the offset in it.
    ///
    /// # Errors
    /// `ESTALE` for a number out of range, `EIO`.
    pub(crate) fn inode_slot(&self, cx: &mut Cx, ino: Ino) -> Result<(BufferRef, usize), Errno> {
        self.inode_slot_of(cx, ino, false)
    }

    /// As [`Ext4::inode_slot`]. For a `fresh` inode, whose slot holds nothing yet, a block whose
    /// other inodes are all free is not read but taken as zeroes.
    fn inode_slot_of(
        &self,
        cx: &mut Cx,
        ino: Ino,
        fresh: bool,
    ) -> Result<(BufferRef, usize), Errno> {
        let (group, index) = self.sb.geometry.inode_group(ino).map_err(|_| Errno::ESTALE)?;
        let (block, offset) = self.sb.geometry.inode_offset(index);
        let block = self.inode_table(cx, group) + block;
        let buffer = self.sb.buffers.get(cx, block);
        if buffer.uptodate() {
            return Ok((buffer, offset));
        }
        if fresh && self.inode_block_unused(cx, group, index) {
            buffer.with_mut(|data| data.fill(0));
            buffer.set_uptodate();
            return Ok((buffer, offset));
        }
        self.readahead_inodes(cx, group, block);
        Ok((self.sb.read_block(cx, block)?, offset))
    }

    /// Begins to read the neighbourhood of a block of the inode table, as far as inodes were ever
    /// used: who looks at one inode of a directory looks at the others.
    fn readahead_inodes(&self, cx: &mut Cx, group: u32, block: u64) {
        let table = self.inode_table(cx, group);
        let unused = if self.sb.geometry.features.group_csum() {
            self.alloc.groups[group as usize].state.lock(cx).desc.itable_unused
        } else {
            0
        };
        let used = self.sb.geometry.inodes_per_group.saturating_sub(unused);
        let end = table + u64::from(used.div_ceil(self.sb.geometry.inodes_per_block));
        let first = (block & !(INODE_READAHEAD_BLOCKS - 1)).max(table);
        let last = (block | (INODE_READAHEAD_BLOCKS - 1)).min(end.saturating_sub(1));
        if last > first {
            self.sb.buffers.readahead(cx, first, last - first + 1);
        }
    }

    /// Writes the inode's values into its block of the inode table, as part of `handle`: 1 credit.
    /// Its owners are charged for what the slot now says (the handle has credits for that).
    ///
    /// # Errors
    /// `EIO`; the journal's errno once it has aborted.
    pub(crate) fn mark_inode_dirty(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Inode,
    ) -> Result<(), Errno> {
        let fresh = inode.with(cx, |core| core.fresh);
        let (buffer, offset) = self.inode_slot_of(cx, inode.ino, fresh)?;
        handle.write_access(cx, &buffer)?;
        let size = self.sb.geometry.inode_size as usize;
        let tid = handle.tid();
        let promised = if self.quota().is_some() { self.promised_bytes(cx, inode) } else { 0 };
        let (large, changes) = {
            let mut core = inode.core.lock(cx);
            if core.mode & 0xf000 != 0x8000 {
                core.values.size = core.size;
            }
            core.times_dirty = false;
            if core.freed {
                // Somebody who looked before the inode was freed: its number may be another's.
                return Ok(());
            }
            core.tid = tid;
            let fresh = std::mem::take(&mut core.fresh);
            if fresh || core.logged_size != core.values.size {
                core.logged_size = core.values.size;
                core.datasync_tid = tid;
            }
            buffer.with_mut(|data| {
                let slot = &mut data[offset..offset + size];
                if fresh {
                    slot.fill(0);
                }
                core.values.emit(slot, inode.ino, &self.sb.geometry);
            });
            let changes = core.quota_changes(promised);
            (core.values.size > 0x7fff_ffff && core.mode & 0xf000 == 0x8000, changes)
        };
        handle.dirty(cx, &buffer)?;
        #[cfg(debug_assertions)]
        self.check_size_at_commit(cx, handle, inode);
        for change in &changes {
            self.charge(cx, handle, change)?;
        }
        if large && !self.sb.has_large_file() {
            self.sb.set_large_file(cx, handle)?;
        }
        Ok(())
    }

    /// After `ENOSPC`, and with no handle open: brings back blocks that wait for a commit or for
    /// files that may never use them. True where it is worth trying again; counts the tries.
    pub(crate) fn should_retry_alloc(&self, cx: &mut Cx, retries: &mut u32) -> bool {
        *retries += 1;
        *retries <= 3 && self.sb.check_writable().is_ok() && self.bring_blocks_back(cx)
    }

    /// True where some may have come back.
    fn bring_blocks_back(&self, cx: &mut Cx) -> bool {
        let released = self.release_preallocations();
        let waiting = self.alloc.frees_at_commit();
        match self.sb.journal() {
            Some(journal) if waiting => journal.clone().force_commit(cx).is_ok(),
            _ => released,
        }
    }

    /// Gives back what inodes that nobody is working on keep for themselves. True where there was
    /// anything.
    fn release_preallocations(&self) -> bool {
        let mut any = false;
        for inode in self.inodes.all() {
            if let Some(mut prealloc) = inode.map_lock.try_write() {
                any |= prealloc.len > 0 || prealloc.pool.1 > 0;
                self.alloc.release_prealloc(&mut prealloc);
            }
        }
        any
    }
}
