//! A mounted file system: what all parts share.
//!
//! # Lock order
//!
//! From the outside in; whoever holds one may take only those below it.
//!
//! 1. `Inode::rwsem` of directories, then of other inodes (several of one kind: by inode number)
//! 2. `Inode::forks`
//! 3. spin locks: `Inode::state`, the inode cache; nothing waits under them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use base::Errno;
use block::Queue;
use cache::Backing;
use rt::SpinLock;
use vfs::{InodeCache, StatFs};

use crate::fault::Fault;
use crate::format::{Geometry, RawSuper};
use crate::inode::Inode;
use crate::meta::Reader;
use crate::mount::MountOptions;

/// A mounted XFS file system, read-only.
///
/// Made by [`Xfs::mount`]; used through [`vfs::FileSystem`].
pub struct Xfs {
    pub(crate) weak: Weak<Xfs>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) reader: Reader,
    pub(crate) backing: Arc<Backing>,
    pub(crate) inodes: InodeCache<Inode>,
    counts: Counts,
    /// What the first damage was, in words.
    first_error: SpinLock<Option<String>>,
    /// Unmounted or shut down: every call answers `EIO`.
    stopped: AtomicBool,
}

/// Counts of the superblock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub free_blocks: u64,
    pub inodes: u64,
    pub free_inodes: u64,
}

impl Counts {
    /// The counts that a superblock holds; they are right after a clean unmount.
    pub(crate) fn new(raw: &RawSuper) -> Counts {
        Counts {
            free_blocks: raw.sb_fdblocks.get(),
            inodes: raw.sb_icount.get(),
            free_inodes: raw.sb_ifree.get(),
        }
    }
}

impl Xfs {
    /// Puts a mount together. Nothing waits.
    pub(crate) fn assemble(
        queue: Arc<Queue>,
        reader: Reader,
        backing: Arc<Backing>,
        counts: Counts,
        options: &MountOptions,
    ) -> Arc<Xfs> {
        Arc::new_cyclic(|weak| Xfs {
            weak: weak.clone(),
            queue,
            reader,
            backing,
            inodes: InodeCache::new(options.inode_cache),
            counts,
            first_error: SpinLock::new(None),
            stopped: AtomicBool::new(false),
        })
    }

    /// The shape of the file system; never changes.
    pub fn geometry(&self) -> &Geometry {
        &self.reader.geometry
    }

    /// The queue of the device: its counters and its trace.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// The first damage or device error that was met, in words: for messages.
    pub fn error(&self) -> Option<String> {
        self.first_error.lock_irq().clone()
    }

    /// Takes note of a fault and gives the errno for the caller.
    pub(crate) fn fault(&self, fault: Fault) -> Errno {
        let errno = fault.to_errno();
        self.first_error.lock_irq().get_or_insert_with(|| fault.to_string());
        errno
    }

    /// Whether the mount still answers.
    ///
    /// # Errors
    /// `EIO` after unmount or shutdown.
    pub(crate) fn check_alive(&self) -> Result<(), Errno> {
        if self.stopped.load(Ordering::Relaxed) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Makes every later call answer `EIO`. True the first time.
    pub(crate) fn stop(&self) -> bool {
        !self.stopped.swap(true, Ordering::AcqRel)
    }

    /// State and limits.
    pub(crate) fn stat_fs(&self) -> StatFs {
        let geometry = self.geometry();
        let uuid = u128::from_be_bytes(geometry.uuid);
        let log = if geometry.log_start.0 == 0 { 0 } else { u64::from(geometry.log_blocks) };
        // Inodes are made of free blocks, so that every block could become some.
        let per_block = u64::from(geometry.inodes_per_block());
        let possible = self.counts.free_blocks.saturating_mul(per_block);
        let percent = match geometry.inode_percent_max {
            0 => 100,
            percent => u64::from(percent).min(100),
        };
        let limit = geometry.blocks_count.saturating_mul(per_block) / 100 * percent;
        let inodes = self.counts.inodes.saturating_add(possible).min(limit);
        StatFs {
            block_size: geometry.block_size,
            blocks: geometry.blocks_count.saturating_sub(log),
            blocks_free: self.counts.free_blocks,
            blocks_available: self.counts.free_blocks,
            inodes: inodes.max(self.counts.inodes),
            inodes_free: inodes.max(self.counts.inodes).saturating_sub(
                self.counts.inodes - self.counts.free_inodes.min(self.counts.inodes),
            ),
            name_max: 255,
            fsid: (uuid >> 64) as u64 ^ uuid as u64,
        }
    }
}
