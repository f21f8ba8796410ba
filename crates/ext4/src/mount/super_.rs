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

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock, Weak};

use block::Queue;
use cache::{Backing, BufferCache};
use jbd2::{Journal, RecoveryReport};
use rt::Mutex;
use vfs::InodeCache;

use crate::alloc::BlockAllocator;
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
    pub(crate) alloc: Arc<BlockAllocator>,
    pub(crate) backing: Arc<Backing>,
    pub(crate) inodes: InodeCache<Inode>,
    pub(crate) orphans: Mutex<Orphans>,
    pub(crate) names: Names,
    /// Who is charged for what; unset without the feature.
    pub(crate) quota: OnceLock<Quota>,
    /// Rotates the groups in which directories of the root are put.
    pub(crate) next_dir_group: AtomicU32,
}

impl Ext4 {
    /// Puts a mount together. Nothing waits.
    pub(crate) fn assemble(alloc: Arc<BlockAllocator>, backing: Arc<Backing>) -> Arc<Ext4> {
        let sb = alloc.sb.clone();
        Arc::new_cyclic(|weak| Ext4 {
            weak: weak.clone(),
            backing,
            inodes: InodeCache::new(sb.options.inode_cache),
            orphans: Mutex::named("ext4 orphans", Orphans::default()),
            names: Names::new(sb.options.name_cache),
            quota: OnceLock::new(),
            next_dir_group: AtomicU32::new(0),
            alloc,
            sb,
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
