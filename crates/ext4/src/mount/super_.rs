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

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};

use base::Ino;
use block::Queue;
use cache::{Backing, BufferCache, BufferRef};
use jbd2::{Journal, RecoveryReport};
use rt::Mutex;
use vfs::InodeCache;

use crate::alloc::balloc::{Freed, Group};
use crate::alloc::reservation::Windows;
use crate::dir::namei::Names;
use crate::format::Geometry;
use crate::ialloc::orphan::Orphans;
use crate::inode::Inode;
use crate::quota::Quota;
use crate::sb::SuperBlock;

/// A mounted ext2, ext3 or ext4 file system.
///
/// Made by [`Ext4::mount`]; used through [`vfs::FileSystem`].
pub struct Ext4 {
    pub(crate) weak: Weak<Ext4>,
    pub(crate) sb: Arc<SuperBlock>,
    pub(crate) backing: Arc<Backing>,
    pub(crate) groups: Box<[Group]>,
    /// Blocks of group descriptors, in memory for the whole mount.
    pub(crate) gdt: Box<[BufferRef]>,
    pub(crate) counters: Counters,
    pub(crate) inodes: InodeCache<Inode>,
    pub(crate) orphans: Mutex<Orphans>,
    pub(crate) freed: Freed,
    pub(crate) windows: Windows,
    pub(crate) names: Names,
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

impl Ext4 {
    /// Puts a mount together of what mounting has read. Nothing waits.
    pub(crate) fn assemble(
        sb: SuperBlock,
        backing: Arc<Backing>,
        groups: Box<[Group]>,
        gdt: Box<[BufferRef]>,
        counters: Counters,
    ) -> Arc<Ext4> {
        let flexes = sb.geometry.groups_count.div_ceil(sb.geometry.flex_size);
        Arc::new_cyclic(|weak| Ext4 {
            weak: weak.clone(),
            backing,
            inodes: InodeCache::new(sb.options.inode_cache),
            groups,
            gdt,
            counters,
            orphans: Mutex::named("ext4 orphans", Orphans::default()),
            freed: Freed::default(),
            windows: Windows::default(),
            names: Names::new(sb.options.name_cache),
            quota: OnceLock::new(),
            next_dir_group: AtomicU32::new(0),
            stream_goals: (0..flexes).map(|_| Default::default()).collect(),
            sb: Arc::new(sb),
        })
    }

    /// The journal, where there is one.
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.sb.journal()
    }

    /// What the mount replayed from the journal, where it had to.
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.sb.recovery()
    }

    /// The error that stopped writing, in words: for messages.
    pub fn error(&self) -> Option<String> {
        self.sb.error()
    }

    /// The first metadata that could not be read, in words. The mount goes on: whoever needed it
    /// was answered `EIO`, or `EOPNOTSUPP` where its form is not supported.
    pub fn read_error(&self) -> Option<String> {
        self.sb.read_error()
    }

    /// The queue of the device: its counters and its trace.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.sb.queue
    }

    /// The I/O context in which the journal is written; `None` without a writable journal.
    pub fn journal_task_ioc(&self) -> Option<u64> {
        self.sb.journal().map(|journal| journal.task_ioc()).filter(|&ioc| ioc != 0)
    }

    /// What the journal has done since the mount; `None` without one.
    pub fn journal_stats(&self) -> Option<jbd2::JournalStats> {
        self.sb.journal().map(|journal| journal.stats())
    }

    /// The metadata buffers: their counters.
    pub fn buffers(&self) -> &Arc<BufferCache> {
        &self.sb.buffers
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

    /// The shape of the file system; never changes.
    pub fn geometry(&self) -> &Geometry {
        &self.sb.geometry
    }

    /// Bytes per block.
    #[inline]
    pub fn block_size(&self) -> u32 {
        self.sb.geometry.block_size
    }

    /// The group in which an inode lies. The number was checked when the inode was read.
    pub(crate) fn group_of_inode(&self, ino: Ino) -> u32 {
        ((ino.0 - 1) / u64::from(self.sb.geometry.inodes_per_group)) as u32
    }
}

impl std::fmt::Debug for Ext4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Ext4({} blocks of {})",
            self.sb.geometry.blocks_count, self.sb.geometry.block_size
        )
    }
}
