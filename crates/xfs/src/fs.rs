//! A mounted file system: what all parts share.
//!
//! # Lock order
//!
//! From the outside in; whoever holds one may take only those below it.
//!
//! 0. `Xfs::growing`
//! 1. `Xfs::rename`: one directory moves between directories at a time
//! 2. `Inode::rwsem` of directories, then of other inodes (several of one kind: by inode number)
//! 3. `Inode::writeback` (those of small files by inode number, behind the first one only where
//!    nobody has it), `Finisher::busy`
//! 4. space in the log: a transaction begins
//! 5. inodes of the transaction ([`crate::trans::Trans::join_inode`]), by inode number
//! 6. `Inode::forks`, by inode number
//! 7. locks of buffers, in a transaction: AGI before AGF, both by group; then those of trees and
//!    directories, from the root down. Those of a directory, from its `rwsem` on, at any time:
//!    nobody without that waits for one under the lock of another buffer
//! 8. the log's own, see [`crate::log`]
//! 9. spin locks: `Inode::state`, `Inode::cow_fork`, `Inode::io`, the inode cache; nothing waits
//!    under them.

mod finisher;
pub mod options;
mod quota;
mod transact;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use base::{Errno, Ino, Nanos};
use block::Queue;
use cache::{Backing, Lost};
use rt::{Cx, Mutex, SpinLock};
use vfs::direct::DirectOptions;
use vfs::{InodeCache, NameCache, StatFs};

use crate::buf::meta::Reader;
use crate::error::Fault;
use crate::format::dquot::QuotaFlags;
use crate::format::hash::Case;
use crate::format::{Geometry, RawSuper};
use crate::inode::Inode;
use crate::log::recovery::RecoveryReport;
use crate::metadir;
use finisher::Finisher;
use options::MountOptions;
pub(crate) use writer::{Resources, WriteSide};

/// A mounted XFS file system.
///
/// Made by [`Xfs::mount`]; used through [`vfs::FileSystem`].
pub struct Xfs {
    pub(crate) weak: Weak<Xfs>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) reader: Reader,
    pub(crate) backing: Arc<Backing>,
    /// The realtime section; none where the mount has not its device.
    pub(crate) realtime: Option<RealtimeSection>,
    pub(crate) inodes: InodeCache<Inode>,
    /// Names that were looked up.
    pub(crate) names: NameCache,
    /// None on a read-only mount.
    pub(crate) write: Option<WriteSide>,
    /// What recovery did at the mount, if anything.
    recovery: Option<RecoveryReport>,
    /// Each transaction is durable when its call returns (`wsync`).
    pub(crate) synchronous: bool,
    /// Leaves of directories get gaps for names to come.
    pub(crate) leaf_gaps: bool,
    /// How direct I/O is done.
    pub(crate) direct: DirectOptions,
    /// Held while it grows, and while it is unmounted.
    pub(crate) growing: Mutex<()>,
    /// Held while a directory moves to another one.
    pub(crate) rename: Mutex<()>,
    /// Files whose content has reached the device.
    pub(crate) finisher: Finisher,
    /// Files that have blocks ahead of their content.
    pub(crate) ahead: SpinLock<BTreeSet<Ino>>,
    /// Of these the files that have them in their CoW forks, and when those go.
    pub(crate) cow_surplus: SpinLock<BTreeMap<Ino, Nanos>>,
    /// Files with few reserved blocks: see [`crate::file::small_files`]. Some may be gone.
    pub(crate) small: SpinLock<BTreeSet<Ino>>,
    counts: Counts,
    /// Quota as the superblock had it at the mount.
    pub(crate) quota_super: QuotaSuper,
    /// What the first damage was, in words.
    first_error: SpinLock<Option<String>>,
    /// Unmounted or shut down: every call returns `EIO`.
    stopped: AtomicBool,
}

impl Xfs {
    /// What the log has done since the mount; none for a mount that does not write.
    pub fn log_stats(&self) -> Option<crate::log::LogStats> {
        self.write.as_ref().map(|writer| writer.log.stats())
    }

    /// Bytes of the log that are free, of how many; none for a mount that does not write.
    pub fn log_space(&self) -> Option<[u64; 2]> {
        let space = self.write.as_ref().map(|writer| writer.log.grant.space());
        space.map(|(free, all)| [free, all])
    }

    /// The counters of the pages of files.
    pub fn page_stats(&self) -> cache::PageCacheStats {
        self.backing.cache().stats()
    }

    /// What formatting buffers took since the mount: where [`MountOptions::iop_stats`] asked for
    /// it.
    pub fn iop_stats(&self) -> Option<crate::log::IopStats> {
        self.write.as_ref().and_then(|writer| writer.log.iop_stats())
    }
}

/// Forgotten without an unmount: as after a power cut.
impl Drop for Xfs {
    fn drop(&mut self) {
        if let Some(writer) = &self.write {
            writer.log.die();
        }
    }
}

/// What the mount made before the file system is put together.
pub(crate) struct MountParts {
    /// None on a read-only mount.
    pub write: Option<WriteSide>,
    pub recovery: Option<RecoveryReport>,
    pub counts: Counts,
    pub quota_super: QuotaSuper,
    pub realtime: Option<RealtimeSection>,
}

/// The realtime section of a mount.
pub(crate) struct RealtimeSection {
    /// Writes its files back.
    pub backing: Arc<Backing>,
    /// New files lie there unless a directory says otherwise: the root hands that down.
    pub by_default: bool,
}

/// What a superblock says of quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaSuper {
    pub flags: QuotaFlags,
    /// The inodes that hold the records, by kind.
    pub inos: [Option<u64>; 3],
}

impl QuotaSuper {
    /// What this superblock says. May park where a metadata directory names the inodes.
    ///
    /// # Errors
    /// A directory there that fails a check; the device failed.
    pub(crate) fn new(cx: &mut Cx, reader: &Reader, raw: &RawSuper) -> Result<QuotaSuper, Fault> {
        let flags = QuotaFlags::of(raw);
        let inos = match flags.is_empty() {
            true => [None; 3],
            false => metadir::quota_inos(cx, reader, raw)?,
        };
        Ok(QuotaSuper { flags, inos })
    }
}

/// Counts of the superblock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub free_blocks: u64,
    /// Extents of the realtime section.
    pub free_realtime: u64,
    pub inodes: u64,
    pub free_inodes: u64,
}

impl Counts {
    /// The counts that a superblock holds; they are right after a clean unmount.
    pub(crate) fn new(raw: &RawSuper) -> Counts {
        Counts {
            free_blocks: raw.sb_fdblocks.get(),
            free_realtime: raw.sb_frextents.get(),
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
        parts: MountParts,
        options: &MountOptions,
    ) -> Arc<Xfs> {
        let MountParts { write, recovery, counts, quota_super, realtime } = parts;
        let case = reader.geometry.features.case();
        Arc::new_cyclic(|weak| Xfs {
            weak: weak.clone(),
            queue,
            reader,
            backing,
            realtime,
            inodes: InodeCache::new(options.inode_cache),
            // A name that is removed may be kept in another case, too.
            names: NameCache::new(if case == Case::Ignored { 0 } else { options.name_cache }),
            write,
            recovery: recovery.filter(|report| !report.was_clean),
            synchronous: options.wsync,
            leaf_gaps: options.leaf_gaps,
            direct: options.direct,
            growing: Mutex::named("xfs growing", ()),
            rename: Mutex::named("xfs rename", ()),
            finisher: Finisher::new(),
            ahead: SpinLock::named("files with blocks ahead", BTreeSet::new()),
            cow_surplus: SpinLock::named("files with CoW blocks ahead", BTreeMap::new()),
            small: SpinLock::named("small files without places", BTreeSet::new()),
            counts,
            quota_super,
            first_error: SpinLock::new(None),
            stopped: AtomicBool::new(false),
        })
    }

    /// What writes the content of files back: those on the data device, or in the realtime section.
    pub(crate) fn backing_of(&self, realtime: bool) -> &Arc<Backing> {
        match &self.realtime {
            Some(section) if realtime => &section.backing,
            _ => &self.backing,
        }
    }

    /// Both of them.
    pub(crate) fn backings(&self) -> impl Iterator<Item = &Arc<Backing>> {
        let section = self.realtime.as_ref().map(|section| &section.backing);
        std::iter::once(&self.backing).chain(section)
    }

    /// What was dropped of all files.
    pub(crate) fn lost_content(&self) -> Lost {
        let mut lost = self.backing.lost();
        if let Some(section) = &self.realtime {
            let other = section.backing.lost();
            lost.bytes += other.bytes;
            lost.files.extend(other.files);
            lost.first = lost.first.or(other.first);
        }
        lost
    }

    /// The shape of the file system. Its size grows, all else never changes.
    pub fn geometry(&self) -> &Geometry {
        &self.reader.geometry
    }

    /// The counters of the metadata buffers.
    pub fn buf_stats(&self) -> crate::buf::BufStats {
        self.reader.bufs.stats()
    }

    /// The queue of the device: its counters and its trace.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// What recovery of a dirty log did at the mount; none if the log was clean.
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.recovery.as_ref()
    }

    /// The first damage or device error that was met, in words: for messages.
    pub fn error(&self) -> Option<String> {
        self.first_error.lock_irq().clone()
    }

    /// Takes note of a fault and gives the errno for the caller.
    pub(crate) fn fault(&self, fault: Fault) -> Errno {
        if !matches!(fault, Fault::Answer(_)) {
            self.note_error(fault.to_string());
        }
        fault.to_errno()
    }

    /// Takes note of an error for [`Xfs::error`].
    pub(crate) fn note_error(&self, text: String) {
        self.first_error.lock_irq().get_or_insert(text);
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

    /// The counts as they are now.
    fn live_counts(&self) -> Counts {
        let Some(writer) = &self.write else { return self.counts };
        let [inodes, free_inodes] = writer.inodes.counts();
        let kept = writer.space.kept_back();
        let free_blocks = writer.space.available().saturating_sub(kept);
        Counts { free_blocks, inodes, free_inodes, ..self.counts }
    }

    /// State and limits.
    pub(crate) fn stat_fs(&self) -> StatFs {
        let geometry = self.geometry();
        let counts = self.live_counts();
        let uuid = u128::from_be_bytes(geometry.uuid);
        let log = if geometry.log_start.0 == 0 { 0 } else { u64::from(geometry.log_blocks) };
        let (mut blocks, mut free) =
            (geometry.blocks_count().saturating_sub(log), counts.free_blocks);
        if self.realtime.as_ref().is_some_and(|section| section.by_default) {
            let unit = u64::from(geometry.realtime.extent_blocks);
            let space = self.write.as_ref().and_then(|writer| writer.space.realtime());
            let extents = space.map_or(counts.free_realtime, |space| space.available());
            (blocks, free) = (geometry.realtime.extents * unit, extents * unit);
        }
        // Inodes are made of free blocks, so that every block could become some.
        let per_block = u64::from(geometry.inodes_per_block());
        let possible = counts.free_blocks.saturating_mul(per_block);
        let limit = geometry.inodes_limit().unwrap_or(u64::MAX);
        let inodes = counts.inodes.saturating_add(possible).min(limit).max(counts.inodes);
        StatFs {
            block_size: geometry.block_size,
            blocks,
            blocks_free: free,
            blocks_available: free,
            inodes,
            inodes_free: inodes
                .saturating_sub(counts.inodes - counts.free_inodes.min(counts.inodes)),
            name_max: 255,
            fsid: (uuid >> 64) as u64 ^ uuid as u64,
        }
    }
}
