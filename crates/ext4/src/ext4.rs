//! A mounted file system: its parts.
//!
//! # Lock order
//!
//! From the outside in; whoever holds one may take only those below it.
//!
//! 0. `Ext4::growing`
//! 1. `Inode::rwsem` of directories, then of other inodes (several of one kind: by inode number)
//! 2. `Inode::writeback` (one writer of an inode's dirty pages at a time; truncation takes it too)
//! 3. a [`Handle`](crate::trans::ext4_jbd2::Handle): starting or restarting one may wait for a
//!    commit, and the commit waits for all open handles; so nothing below this line is held there
//! 4. `Inode::xattr_lock`, then `Inode::map_lock` (the tree of blocks, the preallocation)
//! 5. `Inodes::orphans`; the tree of a quota file
//! 6. spin locks: `Inode::delayed`, then `Inode::core`; usage and limits of an id, a group's state,
//!    the inode cache, the windows; then the content of a buffer. Nothing
//!    waits under them.
//!
//! A commit itself waits only for data writes that are already on their way
//! ([`jbd2::OrderedData`]); it takes none of these locks.

use std::sync::{Arc, OnceLock};

use base::{Errno, Ino};
use block::Queue;
use cache::{Backing, BufferCache, PageCache};
use jbd2::{Journal, RecoveryReport};
use rt::{Cx, Mutex};
use vfs::NameCache;

use crate::alloc::BlockAllocator;
use crate::attr::context;
use crate::dquot::{InodeQuota, Owners};
use crate::format::Geometry;
use crate::inode::{Inode, Inodes};
use crate::quota::Quota;
use crate::sb::SuperBlock;
use crate::sb::mmp::Protection;

/// A mounted ext2, ext3 or ext4 file system.
///
/// Made by [`Ext4::mount`]; used through [`vfs::FileSystem`].
pub struct Ext4 {
    pub(crate) sb: Arc<SuperBlock>,
    pub(crate) alloc: Arc<BlockAllocator>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) names: Names,
    /// Who is charged for what; unset without the feature.
    pub(crate) quota: OnceLock<Quota>,
    /// Held while it grows.
    pub(crate) growing: Mutex<()>,
    /// The block of multi-mount protection; unset without the feature.
    pub(crate) mmp: OnceLock<Arc<Protection>>,
}

/// What the operations on names of one mount share.
pub(crate) struct Names {
    /// Held while a directory moves, and while two directories are locked.
    pub rename: Mutex<()>,
    /// Where names point. Changed under the directory's `rwsem`, for writing where a name goes.
    pub cache: NameCache,
}

impl Ext4 {
    /// Puts a mount together. Nothing waits.
    pub(crate) fn assemble(alloc: Arc<BlockAllocator>, backing: Arc<Backing>) -> Arc<Ext4> {
        let names = NameCache::new(alloc.sb.options.name_cache);
        Arc::new(Ext4 {
            sb: alloc.sb.clone(),
            inodes: Inodes::from_parts(alloc.clone(), backing),
            alloc,
            names: Names { rename: Mutex::named("ext4 rename", ()), cache: names },
            quota: OnceLock::new(),
            growing: Mutex::named("ext4 growing", ()),
            mmp: OnceLock::new(),
        })
    }

    /// The inode with this number, its owners' accounts in memory. May wait for the device.
    ///
    /// # Errors
    /// `ESTALE` where the inode is not in use or the number is out of range, `EUCLEAN` where it is
    /// damaged, `EIO`.
    #[inline]
    pub(crate) fn iget(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        self.inodes.find_or_read(cx, ino, |cx, inode| self.attach(cx, inode))
    }

    /// As [`Ext4::iget`], also for an inode without names: one of the orphan list.
    ///
    /// # Errors
    /// As [`Ext4::iget`].
    pub(crate) fn iget_orphan(&self, cx: &mut Cx, ino: Ino) -> Result<Arc<Inode>, Errno> {
        self.inodes.find_or_read_orphan(cx, ino, |cx, inode| self.attach(cx, inode))
    }

    /// What an inode that was just read needs from elsewhere.
    fn attach(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        context::load(&self.inodes, cx, inode)?;
        self.quota.get().map_or(Ok(()), |quota| quota.attach(&self.inodes, cx, inode))
    }

    /// Reserves an inode and `space` bytes for a new inode; `None` without quota. No handle is
    /// open.
    ///
    /// # Errors
    /// `EDQUOT`; those of [`Quota::dquots`].
    pub(crate) fn new_inode_quota(
        &self,
        cx: &mut Cx,
        owners: Owners,
        space: u64,
    ) -> Result<Option<Box<InodeQuota>>, Errno> {
        let quota = self.quota.get();
        quota.map(|quota| quota.new_inode(&self.inodes, cx, owners, space)).transpose()
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

    /// The first inode that was met whose key was not given, with the names of the key that its
    /// policy asks for and of those that were given: for messages.
    pub fn missing_key(&self) -> Option<String> {
        self.sb.missing_key()
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

    /// The pages of files, and their counters.
    pub fn page_cache(&self) -> &Arc<PageCache> {
        self.inodes.backing.cache()
    }

    /// The metadata buffers: their counters.
    pub fn buffers(&self) -> &Arc<BufferCache> {
        &self.sb.buffers
    }

    /// Inodes in memory: about `inode_cache` at the most, beside those that are open or dirty.
    pub fn cached_inodes(&self) -> usize {
        self.inodes.cache.count()
    }

    /// Memory that cached names take, in bytes: at most 64 for each of `name_cache`, rounded up to
    /// a power of two.
    pub fn name_cache_bytes(&self) -> u64 {
        self.names.cache.bytes()
    }

    /// The shape of the file system, as it is now.
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
