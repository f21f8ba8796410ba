//! Inodes in memory: their values, their locks, and the cache that finds them by number.
//!
//! The values live once, in [`InodeCore`]; [`Inodes::mark_dirty`] writes them into the block of
//! the inode table. Attributes behind the extra fields live only in that block.

mod arrivals;
pub(crate) mod delalloc;
pub(crate) mod fast_commit;
mod inodes;
mod legacy;
mod new;
pub(crate) mod orphan;
pub(crate) mod quota;
#[cfg(debug_assertions)]
mod size_rule;

pub(crate) use new::NewInode;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::{Errno, Ino, RangeSet};
use cache::{ErrorMark, IomapOps, Mapping, Trigger};
use jbd2::JournalMode;
use rt::{Cx, Mutex, RwLock, SpinLock};
use vfs::{Attr, CachedInode, FileType};

use crate::alloc::mballoc::Prealloc;
use crate::alloc::reservation::Window;
use crate::crypto::InodeCrypt;
use crate::dquot::InodeQuota;
use crate::format::InodeFlags;
use crate::format::inode::InodeValues;
use crate::inode::delalloc::Delalloc;
pub(crate) use crate::inode::inodes::Inodes;
use crate::sb::SuperBlock;
use crate::trans::ext4_jbd2::Tid;
use crate::verity::InodeVerity;

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
    /// New and never had blocks, so that its content may still be put into the inode.
    pub may_inline: bool,
    /// In the orphan list or file.
    pub orphan: orphan::OrphanPlace,
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
    /// Transaction that took blocks out of the map whose cluster stays the file's.
    pub unmapped_tid: Tid,
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
    /// The type. It never changes.
    #[inline]
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(u32::from(self.mode)).expect("checked when the inode was read")
    }

    pub(crate) fn new(values: InodeValues) -> InodeCore {
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
            may_inline: false,
            orphan: Default::default(),
            tid: None,
            datasync_tid: None,
            ordered_tid: None,
            unmapped_tid: None,
        }
    }

    /// What stat reports; `delayed` are reserved blocks, in units of 512 bytes.
    fn attr(&self, ino: Ino, block_size: u32, delayed: u64) -> Attr {
        let kind = FileType::from_mode(u32::from(self.mode)).unwrap_or(FileType::Regular);
        let inline = kind == FileType::Regular && self.flags.contains(InodeFlags::INLINE_DATA);
        let own = if inline { self.size.div_ceil(512) } else { 0 };
        Attr {
            ino,
            kind,
            mode: self.mode & 0o7777,
            nlink: u32::from(self.links),
            uid: self.uid,
            gid: self.gid,
            rdev: if kind.is_device() { self.device() } else { 0 },
            size: self.size,
            blocks: self.blocks + delayed + own,
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
    pub fs: Weak<Inodes>,
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
    /// What is reserved for its dirty pages.
    pub delayed: SpinLock<Delalloc>,
    /// Unwritten blocks whose content is on the device, with
    /// [`dioread_nolock`](crate::MountOptions::dioread_nolock).
    pub arrived: SpinLock<RangeSet>,
    pub last_extent: SpinLock<LastExtent>,
    /// All that lookups found, by their first block, on mounts that keep them
    /// ([`LegacyLookups`](crate::LegacyLookups)).
    pub known_extents: SpinLock<BTreeMap<u32, LastExtent>>,
    mapping: OnceLock<Arc<Mapping>>,
    crypt: OnceLock<Box<InodeCrypt>>,
    verity: OnceLock<Box<InodeVerity>>,
    /// How far fsync has reported write errors.
    pub error_mark: SpinLock<ErrorMark>,
    /// Checksum triggers of the inode's blocks, one for each kind, made at first use.
    pub triggers: [OnceLock<Trigger>; 4],
}

impl Inode {
    pub(crate) fn new(ino: Ino, fs: Weak<Inodes>, core: InodeCore) -> Arc<Inode> {
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
            arrived: SpinLock::named("inode arrived", RangeSet::new()),
            last_extent: SpinLock::new(LastExtent::default()),
            known_extents: SpinLock::new(BTreeMap::new()),
            mapping: OnceLock::new(),
            crypt: OnceLock::new(),
            verity: OnceLock::new(),
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
        self.with(cx, |core| core.file_type())
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
        // First: a reserved block that becomes a real one may be counted twice, but never as
        // neither.
        let delayed = self.delayed.lock(cx).blocks() * u64::from(block_size / 512);
        let core = self.core.lock(cx);
        usable(&core).then(|| core.attr(self.ino, block_size, delayed))
    }

    /// The file's pages; made at first use.
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        self.mapping.get_or_init(|| {
            let fs = self.fs.upgrade().expect("an inode is used only while its mount lives");
            let ops: Arc<dyn IomapOps> = self.arc();
            let size = self.core.lock_irq().size;
            Mapping::new(&fs.backing, self.ino.0, size, Arc::downgrade(&ops))
        })
    }

    /// The file's pages, if there ever were any.
    pub(crate) fn mapping_if_any(&self) -> Option<&Arc<Mapping>> {
        self.mapping.get()
    }

    /// How the inode is encrypted; `None` where it is not.
    #[inline]
    pub(crate) fn crypt(&self) -> Option<&InodeCrypt> {
        self.crypt.get().map(|crypt| &**crypt)
    }

    /// Notes how the inode is encrypted: before anybody else knows it, or under its lock.
    pub(crate) fn set_crypt(&self, crypt: InodeCrypt) {
        let first = self.crypt.set(Box::new(crypt)).is_ok();
        assert!(first, "an inode is encrypted once");
    }

    /// That the file has verity; `None` where it has not.
    #[inline]
    pub(crate) fn verity(&self) -> Option<&InodeVerity> {
        self.verity.get().map(|verity| &**verity)
    }

    /// Notes that the file has verity: before anybody else knows it, or under its lock.
    pub(crate) fn set_verity(&self) {
        let first = self.verity.set(Box::default()).is_ok();
        assert!(first, "a file gets verity once");
    }

    /// Whether its content can be read and written.
    ///
    /// # Errors
    /// As [`InodeCrypt::key`].
    #[inline]
    pub(crate) fn check_key(&self) -> Result<(), Errno> {
        self.crypt().map_or(Ok(()), |crypt| crypt.key().map(|_| ()))
    }

    /// Whether the data of this file goes through the journal. Never changes for an inode: those
    /// of encrypted files never do.
    pub(crate) fn journals_data(&self, cx: &Cx, sb: &SuperBlock) -> bool {
        if sb.journal().is_none() || !self.is_regular(cx) || self.crypt().is_some() {
            return false;
        }
        sb.options.data_mode == JournalMode::Data
            || self.with(cx, |core| core.flags.contains(InodeFlags::JOURNAL_DATA))
    }

    /// Whether blocks of this inode may stand in the log, so that freeing them revokes them:
    /// everything but the data of most regular files.
    pub(crate) fn logs_content(&self, cx: &Cx, sb: &SuperBlock) -> bool {
        !self.is_regular(cx) || self.with(cx, |core| core.is_value()) || self.journals_data(cx, sb)
    }

    /// Whether the buffers may have newer data of this file than the device: a transaction has, or
    /// a log that a read-only mount replayed in memory.
    pub(crate) fn data_in_buffers(&self, cx: &Cx, sb: &SuperBlock) -> bool {
        let replayed = || sb.recovery().is_some_and(|report| report.in_memory);
        self.journals_data(cx, sb) || self.crypt().is_none() && replayed()
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
