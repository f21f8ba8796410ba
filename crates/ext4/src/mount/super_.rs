//! A mounted file system: what all parts share.
//!
//! # Lock order
//!
//! From the outside in; whoever holds one may take only those below it.
//!
//! 1. `Inode::rwsem` of directories, then of other inodes (several of one kind: by inode number)
//! 2. `Inode::writeback` (one writer of an inode's dirty pages at a time; truncation takes it too)
//! 3. a [`Handle`](crate::trans::ext4_jbd2::Handle): starting or restarting one may wait for a
//!    commit, and the commit waits for all open handles; so nothing below this line is held there
//! 4. `Inode::xattr_lock`, then `Inode::map_lock` (the tree of blocks, the preallocation)
//! 5. `Ext4::orphans`; the tree of a quota file
//! 6. spin locks: `Inode::delayed`, then `Inode::core`; usage and limits of an id, a group's state,
//!    the inode cache, the windows, `Ext4::super_state`; then the content of a buffer. Nothing
//!    waits under them.
//!
//! A commit itself waits only for data writes that are already on their way
//! ([`jbd2::OrderedData`]); it takes none of these locks.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::{Errno, Ino, Timespec};
use block::{DeviceError, Queue};
use cache::{Backing, BufferCache, BufferRef};
use jbd2::{Journal, RecoveryReport};
use rt::{Cx, Mutex, SpinLock};
use vfs::InodeCache;

use crate::alloc::balloc::{Freed, Group};
use crate::alloc::reservation::Windows;
use crate::dir::namei::Names;
use crate::format::{At, Corrupt, CorruptKind, Geometry};
use crate::ialloc::orphan::Orphans;
use crate::inode::Inode;
use crate::mount::MountOptions;
use crate::mount::write_super::FirstError;
use crate::quota::Quota;

/// A mounted ext2, ext3 or ext4 file system.
///
/// Made by [`Ext4::mount`]; used through [`vfs::FileSystem`].
pub struct Ext4 {
    pub(crate) weak: Weak<Ext4>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) buffers: Arc<BufferCache>,
    pub(crate) backing: Arc<Backing>,
    journal: OnceLock<(Arc<Journal>, Option<RecoveryReport>)>,
    /// The shape of the file system; never changes.
    pub geometry: Geometry,
    pub(crate) options: MountOptions,
    pub(crate) groups: Box<[Group]>,
    /// Blocks of group descriptors, in memory for the whole mount.
    pub(crate) gdt: Box<[BufferRef]>,
    /// The block with the superblock, and where in it.
    pub(crate) super_buffer: BufferRef,
    pub(crate) super_offset: usize,
    pub(crate) counters: Counters,
    pub(crate) inodes: InodeCache<Inode>,
    pub(crate) orphans: Mutex<Orphans>,
    pub(crate) freed: Freed,
    pub(crate) windows: Windows,
    pub(crate) names: Names,
    /// Mounts read-only from the start.
    pub(crate) read_only: bool,
    /// Errno of the first error that stopped writing; 0 while there was none.
    error: AtomicI32,
    /// What the first error was, in words.
    pub(crate) first_error: SpinLock<Option<FirstError>>,
    /// The first metadata block that could not be read, in words.
    read_error: SpinLock<Option<String>>,
    /// Unmounted or shut down: every call answers `EIO`.
    stopped: AtomicBool,
    /// Who is charged for what; unset without the feature.
    pub(crate) quota: OnceLock<Quota>,
    /// Rotates the groups in which directories of the root are put.
    pub(crate) next_dir_group: AtomicU32,
    /// For each flexible group the block behind the last small file.
    pub(crate) stream_goals: Box<[AtomicU64]>,
}

/// Counts over the whole file system, kept beside the groups' own.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Free blocks by the descriptors, those freed by a transaction under way included.
    pub free_blocks: AtomicI64,
    /// Those of them that the allocator may take now: not claimed in memory, and not waiting for
    /// the commit that frees them.
    pub at_hand: AtomicI64,
    /// Blocks at hand that are promised: to dirty pages that have none yet and to the nodes of
    /// their trees, and to whoever is just taking some.
    pub reserved: AtomicI64,
    /// How often blocks came back to the allocator.
    pub returned: AtomicU64,
    /// Free inodes.
    pub free_inodes: AtomicI64,
    /// Directories.
    pub dirs: AtomicI64,
    /// Blocks that only root may use.
    pub root_blocks: AtomicI64,
    /// Blocks kept for what no write asked for (Linux: `s_resv_clusters`).
    pub pool: AtomicI64,
}

/// What [`Ext4::assemble`] needs: the parts that mounting has read.
pub(crate) struct Parts {
    pub queue: Arc<Queue>,
    pub buffers: Arc<BufferCache>,
    pub backing: Arc<Backing>,
    pub geometry: Geometry,
    pub options: MountOptions,
    pub groups: Box<[Group]>,
    pub gdt: Box<[BufferRef]>,
    pub super_buffer: BufferRef,
    pub super_offset: usize,
    pub counters: Counters,
    pub read_only: bool,
}

impl Ext4 {
    /// Puts a mount together. Nothing waits.
    pub(crate) fn assemble(parts: Parts) -> Arc<Ext4> {
        let flexes = parts.geometry.groups_count.div_ceil(parts.geometry.flex_size);
        let names = Names::new(parts.options.name_cache);
        Arc::new_cyclic(|weak| Ext4 {
            weak: weak.clone(),
            queue: parts.queue,
            buffers: parts.buffers,
            backing: parts.backing,
            journal: OnceLock::new(),
            inodes: InodeCache::new(parts.options.inode_cache),
            geometry: parts.geometry,
            options: parts.options,
            groups: parts.groups,
            gdt: parts.gdt,
            super_buffer: parts.super_buffer,
            super_offset: parts.super_offset,
            counters: parts.counters,
            orphans: Mutex::named("ext4 orphans", Orphans::default()),
            freed: Freed::default(),
            windows: Windows::default(),
            names,
            read_only: parts.read_only,
            error: AtomicI32::new(0),
            first_error: SpinLock::new(None),
            read_error: SpinLock::new(None),
            stopped: AtomicBool::new(false),
            quota: OnceLock::new(),
            next_dir_group: AtomicU32::new(0),
            stream_goals: (0..flexes).map(|_| Default::default()).collect(),
        })
    }

    /// The journal, where there is one.
    #[inline]
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.get().map(|(journal, _)| journal)
    }

    /// What the mount replayed from the journal, where it had to.
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.journal.get().and_then(|(_, report)| report.as_ref())
    }

    pub(crate) fn set_journal(&self, journal: Arc<Journal>, report: Option<RecoveryReport>) {
        let first = self.journal.set((journal, report)).is_ok();
        assert!(first, "a mount opens its journal once");
    }

    /// The queue of the device: its counters and its trace.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// The I/O context in which the journal is written; `None` without a writable journal.
    pub fn journal_task_ioc(&self) -> Option<u64> {
        self.journal().map(|journal| journal.task_ioc()).filter(|&ioc| ioc != 0)
    }

    /// What the journal has done since the mount; `None` without one.
    pub fn journal_stats(&self) -> Option<jbd2::JournalStats> {
        self.journal().map(|journal| journal.stats())
    }

    /// The metadata buffers: their counters.
    pub fn buffers(&self) -> &Arc<BufferCache> {
        &self.buffers
    }

    /// Inodes in memory: about `inode_cache` at the most, beside those that are open or dirty.
    pub fn cached_inodes(&self) -> usize {
        self.inodes.count()
    }

    /// Memory that cached names take, in bytes: at most 64 for each of `name_cache`, rounded up to
    /// a power of two.
    pub fn name_cache_bytes(&self) -> u64 {
        self.names.cache.bytes()
    }

    /// Bytes per block.
    #[inline]
    pub fn block_size(&self) -> u32 {
        self.geometry.block_size
    }

    /// The time for time stamps.
    #[inline]
    pub(crate) fn now(&self, cx: &Cx) -> Timespec {
        self.stamp(cx.realtime())
    }

    /// A time as inodes can store it: whole seconds up to 2038 in those of 128 bytes, nanoseconds
    /// up to 2446 in larger ones, the nearest where it lies outside; the first and the last second
    /// are whole ones.
    #[inline]
    pub(crate) fn stamp(&self, time: Timespec) -> Timespec {
        let wide = self.geometry.inode_size > 128;
        let max = i64::from(i32::MAX) + if wide { 3 << 32 } else { 0 };
        let min = i64::from(i32::MIN);
        let nsec = if wide && (min + 1..max).contains(&time.sec) { time.nsec } else { 0 };
        Timespec { sec: time.sec.clamp(min, max), nsec }
    }

    /// Whether changes are possible.
    ///
    /// # Errors
    /// `EROFS` on a read-only mount and after an error, `EIO` after the end of the mount.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<(), Errno> {
        self.check_alive()?;
        if self.read_only || self.error.load(Ordering::Relaxed) != 0 {
            return Err(Errno::EROFS);
        }
        if let Some(errno) = self.journal().and_then(|journal| journal.aborted()) {
            self.latch(errno, format!("the journal was aborted: {errno}"), None);
            return Err(Errno::EROFS);
        }
        Ok(())
    }

    /// Whether the mount still answers.
    ///
    /// # Errors
    /// `EIO` after unmount or shutdown.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<(), Errno> {
        if self.stopped.load(Ordering::Relaxed) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Makes every later call answer `EIO`. True the first time.
    pub(crate) fn stop(&self) -> bool {
        !self.stopped.swap(true, Ordering::AcqRel)
    }

    /// The error that stopped writing, in words: for messages.
    pub fn error(&self) -> Option<String> {
        self.first_error.lock_irq().as_ref().map(|first| first.text.clone())
    }

    /// Keeps what [`read_error`](Ext4::read_error) answers, if it is the first.
    pub(crate) fn note_read_error(&self, text: String) {
        self.read_error.lock_irq().get_or_insert(text);
    }

    /// The first metadata that could not be read, in words. The mount goes on: whoever needed it
    /// was answered `EIO`, or `EOPNOTSUPP` where its form is not supported.
    pub fn read_error(&self) -> Option<String> {
        self.read_error.lock_irq().clone()
    }

    /// True once an error has stopped writing.
    pub(crate) fn has_error(&self) -> bool {
        self.error.load(Ordering::Relaxed) != 0
    }

    /// Latches the first error: the mount becomes read-only, and unmount marks the file system so
    /// that the next check is a full one.
    pub(crate) fn latch(&self, errno: Errno, text: String, at: Option<At>) {
        let first = self.error.compare_exchange(0, errno.0, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_ok() {
            *self.first_error.lock_irq() = Some(FirstError { text, errno, at });
        }
    }

    /// Takes note of a damaged structure and gives the errno for the caller.
    ///
    /// A wrong checksum and every other damage answer `EUCLEAN`; the mount becomes read-only.
    pub(crate) fn corrupt(&self, _cx: &Cx, corrupt: &Corrupt) -> Errno {
        self.latch(Errno::EFSCORRUPTED, corrupt.to_string(), Some(corrupt.at));
        Errno::EFSCORRUPTED
    }

    /// Takes note of a damaged structure; as [`Ext4::corrupt`].
    pub(crate) fn corrupt_kind(&self, cx: &Cx, kind: CorruptKind, at: At) -> Errno {
        self.corrupt(cx, &kind.at(at))
    }

    /// The errno of a device error. A failed write latches: what is in memory can no longer be
    /// kept in step with the disk. A failed read does not.
    pub(crate) fn device_error(&self, _cx: &Cx, error: &DeviceError) -> Errno {
        let errno = error.to_errno();
        if error.op != block::Op::Read {
            self.latch(errno, error.to_string(), None);
        }
        errno
    }

    /// Reads a metadata block.
    ///
    /// # Errors
    /// `EIO` and what else the device answers.
    pub(crate) fn read_block(&self, cx: &mut Cx, block: u64) -> Result<BufferRef, Errno> {
        match self.buffers.read(cx, block) {
            Ok(buffer) => Ok(buffer),
            Err(error) => {
                self.note_read_error(format!("block {block}: {error}"));
                Err(self.device_error(cx, &error))
            }
        }
    }

    /// The group in which an inode lies. The number was checked when the inode was read.
    pub(crate) fn group_of_inode(&self, ino: Ino) -> u32 {
        ((ino.0 - 1) / u64::from(self.geometry.inodes_per_group)) as u32
    }
}

impl std::fmt::Debug for Ext4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ext4({} blocks of {})", self.geometry.blocks_count, self.geometry.block_size)
    }
}
