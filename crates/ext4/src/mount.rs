//! Mounting and unmounting.
//!
//! The order of a writable mount: superblock, features (refused by name before anything is
//! written), journal (recovered), then everything is read again as the journal has left it; the
//! superblock is marked "in use" on the disk; orphans are freed or truncated. Unmounting reverses
//! these steps.

mod fast_commit;
pub(crate) mod fs;
mod grow;
mod journal;
mod old_quota;
pub mod options;
mod orphan;
mod protection;
mod quota;
pub(crate) mod read_super;
mod replay;
mod verity;

pub use replay::replay_fast_commits;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Errno, Ino};
use block::{DeviceError, Queue};
use cache::{Backing, BufferCache, BufferConfig, PageCache};
use jbd2::{FlusherTimes, Journal, JournalArea, JournalError, JournalIo, JournalMode};
use jbd2::{JournalOptions, RecoveryReport};
use rt::Cx;
use vfs::StatFs;
use zerocopy::IntoBytes;

use crate::Ext4;
use crate::alloc::BlockAllocator;
use crate::alloc::balloc::Group;
use crate::bmap::map::State;
use crate::evict;
use crate::format::fast_commit::BadRecord;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::super_block::{STATE_CLEAN, STATE_ERROR, SUPER_OFFSET, SUPER_SIZE};
use crate::format::{At, Corrupt, CorruptKind, Geometry, GroupDesc, RawSuper, Unsupported};
use crate::mount::read_super::{check_features, join_super};
use crate::quota::Quota;
use crate::sb::SuperBlock;
use crate::sb::mmp::Busy;
use crate::sb::options::MountOptions;

/// Why a file system of the Hurd is not written.
pub const HURD: &str = "made for the GNU Hurd (creator OS 1): its translators and authors are not \
                        supported for writing";

/// Why a file system cannot be mounted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MountError {
    /// A structure is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// A feature forbids it.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The journal cannot be used.
    #[error("journal: {0}")]
    Journal(String),
    /// A fast commit cannot be replayed: nothing was written.
    #[error("{0}")]
    FastCommit(#[from] BadRecord),
    /// A way to mount that is not implemented.
    #[error("{0} is not supported")]
    Mode(&'static str),
    /// Made for the GNU Hurd: it is read only.
    #[error("{HURD}")]
    Hurd,
    /// An old quota file cannot be used.
    #[error("quota file {0}")]
    QuotaFile(String),
    /// Somebody else writes to the file system.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The device cannot be written.
    #[error("the device is read-only")]
    ReadOnlyDevice,
    /// Something inside answered this.
    #[error("{0}")]
    Errno(Errno),
}

impl From<Errno> for MountError {
    fn from(errno: Errno) -> MountError {
        MountError::Errno(errno)
    }
}

impl From<JournalError> for MountError {
    fn from(error: JournalError) -> MountError {
        MountError::Journal(error.to_string())
    }
}

impl MountError {
    /// The errno that mount(2) would answer.
    pub fn to_errno(&self) -> Errno {
        match self {
            MountError::Corrupt(corrupt) => match corrupt.kind {
                CorruptKind::SuperMagic { .. } => Errno::EINVAL,
                _ => Errno::EFSCORRUPTED,
            },
            MountError::Unsupported(_)
            | MountError::Hurd
            | MountError::Mode(_)
            | MountError::QuotaFile(_) => Errno::EINVAL,
            MountError::Device(error) => error.to_errno(),
            MountError::FastCommit(_) => Errno::EFSCORRUPTED,
            MountError::Journal(_) => Errno::EFSCORRUPTED,
            MountError::Busy(_) => Errno::EBUSY,
            MountError::ReadOnlyDevice => Errno::EROFS,
            MountError::Errno(errno) => *errno,
        }
    }
}

/// What both halves of a mount need.
pub(crate) struct Mounting {
    queue: Arc<Queue>,
    buffers: Arc<BufferCache>,
    backing: Arc<Backing>,
    options: MountOptions,
}

impl Mounting {
    pub(crate) fn new(
        queue: &Arc<Queue>,
        pages: &Arc<PageCache>,
        geometry: &Geometry,
        options: MountOptions,
    ) -> Mounting {
        let block_size = geometry.block_size;
        let limit_bytes = options.buffer_limit_bytes;
        let meta = options.journal_io == JournalIo::Meta;
        let write_flags = if meta { block::BioFlags::META } else { block::BioFlags::empty() };
        let lru = options.bh_lru.kind(geometry);
        let config = BufferConfig { block_size, lru, limit_bytes, write_flags };
        let backing = pages.backing(queue.clone(), block_size);
        if let Some(bytes) = options.readahead_bytes {
            backing.set_readahead(bytes);
        }
        let buffers = BufferCache::new(queue.clone(), config);
        Mounting { queue: queue.clone(), buffers, backing, options }
    }

    /// What the superblock's block holds once the journal is replayed, in memory alone; `None`
    /// where the journal is empty.
    pub(crate) fn replayed_super(
        &self,
        cx: &mut Cx,
        raw: &RawSuper,
        geometry: Geometry,
    ) -> Result<Option<Vec<u8>>, MountError> {
        assert!(self.options.read_only, "nothing is written for a look");
        let probe = self.assemble(cx, raw, geometry, false)?;
        let (journal, report) = self.open_journal(cx, &probe)?;
        let offset = probe.sb.offset;
        let found = self.buffers.read(cx, probe.sb.buffer.block())?;
        let bytes = found.with(|data| data[offset..offset + SUPER_SIZE].to_vec());
        journal.kill(cx);
        probe.inodes.cache.clear();
        Ok(report.is_some().then_some(bytes))
    }

    /// Reads the group descriptors and puts the mount together. `strict` checks all of them; before
    /// the journal is replayed they may be half written.
    fn assemble(
        &self,
        cx: &mut Cx,
        raw: &RawSuper,
        geometry: Geometry,
        strict: bool,
    ) -> Result<Arc<Ext4>, MountError> {
        let block_size = u64::from(geometry.block_size);
        let super_block = SUPER_OFFSET / block_size;
        let super_buffer = self.buffers.read(cx, super_block)?;
        let at = (SUPER_OFFSET % block_size) as usize;
        if super_buffer.with(|data| data[at..at + SUPER_SIZE] != *raw.as_bytes()) {
            // Joined from torn halves: the next write of the superblock restores it on the disk.
            super_buffer.with_mut(|data| data[at..at + SUPER_SIZE].copy_from_slice(raw.as_bytes()));
        }
        let mut gdt = Vec::with_capacity(geometry.desc_blocks as usize);
        let (first, _) = geometry.desc_place(0);
        self.buffers.readahead(cx, first.0, u64::from(geometry.desc_blocks));
        for index in 0..geometry.desc_blocks {
            let (block, _) = geometry.desc_place(index * geometry.descs_per_block);
            gdt.push(self.buffers.read(cx, block.0)?);
        }
        let mut groups = Vec::with_capacity(geometry.groups_count as usize);
        for group in 0..geometry.groups_count {
            let offset = ((group % geometry.descs_per_block) * geometry.desc_size) as usize;
            let size = geometry.desc_size as usize;
            let desc = gdt[(group / geometry.descs_per_block) as usize].with(|data| {
                let bytes = &data[offset..offset + size];
                if strict {
                    GroupDesc::parse(bytes, group, &geometry)
                } else {
                    Ok(GroupDesc::read(bytes))
                }
            })?;
            groups.push(Group::new(desc));
        }
        let (queue, buffers, options) = (&self.queue, &self.buffers, &self.options);
        let sb = SuperBlock::from_parts(queue, buffers, geometry, options, super_buffer, at);
        let alloc = BlockAllocator::from_parts(Arc::new(sb), groups.into(), gdt.into(), raw);
        Ok(Ext4::assemble(alloc, self.backing.clone()))
    }

    /// Opens the journal, where there is one, and puts the mount together as it was left there.
    fn open(
        &self,
        cx: &mut Cx,
        raw: RawSuper,
        geometry: Geometry,
    ) -> Result<Arc<Ext4>, MountError> {
        let needs_recovery = geometry.features.incompat.contains(Incompat::RECOVER);
        let without = self.options.without_journal && !needs_recovery;
        let lacking = !without && self.lacks_journal(&raw, &geometry)?;
        let skip = lacking || self.options.read_only && self.options.no_replay;
        let none = !geometry.features.compat.contains(Compat::HAS_JOURNAL);
        if none || skip || without {
            return self.assemble(cx, &raw, geometry, !needs_recovery);
        }
        let probe = self.assemble(cx, &raw, geometry, !needs_recovery)?;
        let fast_commits = match needs_recovery {
            true => self.fast_commits(cx, &probe)?,
            false => None,
        };
        if fast_commits.is_some() && self.options.read_only {
            probe.inodes.cache.clear();
            return self.open_replayed(cx);
        }
        let changes = match fast_commits {
            // First in memory: what cannot be replayed is refused before anything is written.
            Some(_) => {
                let journal = self.options.journal.as_ref();
                Some(replay::changed_blocks(cx, &self.queue, journal)?)
            }
            None => None,
        };
        let (journal, report) = self.open_journal(cx, &probe)?;
        if let Some(changes) = changes {
            self.commit_replay(cx, &journal, &changes)?;
        }
        let fs = if report.is_some() || needs_recovery {
            probe.inodes.cache.clear();
            let super_block = probe.sb.buffer.block();
            let offset = probe.sb.offset;
            drop(probe);
            if !self.options.read_only {
                self.buffers.drop_clean();
            }
            // On a read-only mount the buffers hold what the journal has and the device has not.
            let buffer = self.buffers.read(cx, super_block)?;
            let page = buffer.page();
            let before = raw;
            let (bytes, journal) = (&page[offset..offset + SUPER_SIZE], &self.options.journal);
            let (raw, geometry) = join_super(cx, bytes, &self.queue, journal.as_ref())?;
            check_features(&geometry, self.options.read_only)?;
            let fs = self.assemble(cx, &raw, geometry, true)?;
            fs.sb.change_super(|raw| raw.keep_errors_of(&before));
            fs
        } else {
            probe
        };
        fs.sb.set_journal(journal, report);
        fs.inodes.begin_tracking();
        Ok(fs)
    }

    /// Finds the journal and opens it, which recovers it.
    fn open_journal(
        &self,
        cx: &mut Cx,
        fs: &Arc<Ext4>,
    ) -> Result<(Arc<Journal>, Option<RecoveryReport>), MountError> {
        let area = self.journal_area(cx, fs)?;
        let options = self.journal_options(fs);
        Ok(Journal::open(cx, self.buffers.clone(), area, options)?)
    }

    /// Where the journal lies.
    fn journal_area(&self, cx: &mut Cx, fs: &Arc<Ext4>) -> Result<JournalArea, MountError> {
        if let Some(device) = &self.options.journal {
            let raw = fs.sb.super_field(|raw| *raw);
            return device.area(cx, &raw);
        }
        let ino = Ino(u64::from(fs.sb.geometry.journal_ino));
        let (group, _) = fs.sb.geometry.inode_group(ino)?;
        let desc = fs.alloc.groups[group as usize].state.lock(cx).desc;
        desc.check_places(group, &fs.sb.geometry)?;
        let inode = fs.iget_orphan(cx, ino).map_err(|errno| unused(errno, ino))?;
        let blocks = fs.inodes.blocks_of(inode.size(cx));
        let mut extents = Vec::new();
        let mut lblk = 0;
        while lblk < blocks {
            let mapped = fs.inodes.bmap(&inode).map_lookup(cx, lblk, blocks - lblk)?;
            if mapped.state != State::Written {
                let kind = CorruptKind::DirHole { logical: u64::from(lblk) };
                return Err(kind.at(At::Inode(ino)).into());
            }
            extents.push((mapped.pblk, mapped.len));
            lblk += mapped.len;
        }
        Ok(JournalArea::internal(extents))
    }

    /// Whether fsync writes fast commits: not where their replay would leave something uncounted.
    fn writes_fast_commits(&self, geometry: &Geometry) -> bool {
        geometry.features.compat.contains(Compat::FAST_COMMIT)
            && !geometry.features.ro_compat.contains(RoCompat::QUOTA)
            && self.options.quota_files == [None; 2]
            && geometry.features.compat.contains(Compat::HAS_JOURNAL)
            && self.options.data_mode != JournalMode::Data
    }

    fn journal_options(&self, fs: &Ext4) -> JournalOptions {
        let metadata_csum = fs.sb.geometry.features.metadata_csum();
        let times = self.backing.cache().config();
        let flusher = self
            .options
            .flush_metadata
            .then_some(FlusherTimes { interval: times.dirty_interval, expire: times.dirty_expire });
        JournalOptions {
            mode: self.options.data_mode,
            commit_interval: self.options.commit_interval,
            commit_record: self.options.barrier,
            journal_io: self.options.journal_io,
            yield_before_wait: self.options.journal_yield,
            chain_record: self.options.journal_chain,
            flusher,
            read_only: self.options.read_only,
            discard_log: !fs.sb.geometry.features.incompat.contains(Incompat::RECOVER),
            bit64: fs.sb.geometry.features.incompat.contains(Incompat::SIXTY_FOUR_BIT),
            checksums: metadata_csum.then_some(jbd2::Checksums::V3),
            fs_uuid: Some(fs.sb.geometry.uuid),
            keep_fast_commits: true,
            fast_commit: self.writes_fast_commits(&fs.sb.geometry),
            ..JournalOptions::default()
        }
    }
}

/// A special inode that is not in use is damage, not a stale number.
fn unused(errno: Errno, ino: Ino) -> MountError {
    match errno {
        Errno::ESTALE => CorruptKind::InodeMode { mode: 0 }.at(At::Inode(ino)).into(),
        other => other.into(),
    }
}

impl Ext4 {
    /// The rest of a mount, whose superblock was read.
    fn mount_read(
        cx: &mut Cx,
        queue: &Arc<Queue>,
        pages: &Arc<PageCache>,
        options: MountOptions,
        raw: RawSuper,
        geometry: Geometry,
    ) -> Result<Arc<Ext4>, MountError> {
        check_features(&geometry, options.read_only)?;
        let journal = geometry.features.compat.contains(Compat::HAS_JOURNAL);
        if options.data_mode == JournalMode::Data && !options.read_only && !journal {
            return Err(MountError::Mode("data=journal on a file system without a journal"));
        }
        if queue.info().read_only && !options.read_only {
            return Err(MountError::ReadOnlyDevice);
        }
        let fs =
            Mounting::new(queue, pages, &geometry, options).open_protected(cx, raw, geometry)?;
        fs.begin(cx).map_err(|error| {
            fs.abandon(cx);
            fs.error().map_or(error, MountError::Journal)
        })?;
        Ok(fs)
    }

    /// What a mount does once it can read and write.
    fn begin(&self, cx: &mut Cx) -> Result<(), MountError> {
        self.load_orphan_file(cx)?;
        let old = self.old_quota_files(cx)?;
        if let Some(quota) = Quota::load(&self.inodes, cx, old)? {
            quota.check_form(self.sb.options.quota_form)?;
            let first = self.quota.set(quota).is_ok();
            assert!(first, "a mount opens its quota files once");
        }
        if self.sb.options.read_only {
            return Ok(());
        }
        let head = self.sb.super_field(|raw| raw.s_last_orphan.get());
        let now = self.sb.now(cx).sec;
        let journaled = self.sb.journal().is_some();
        let failed = self.sb.journal().is_some_and(|journal| journal.recorded_errno().is_some());
        let present = self.orphan_present_flag();
        self.sb.put_super(cx, |raw| {
            raw.s_mtime.set(now as u32);
            raw.s_mtime_hi = (now >> 32) as u8;
            raw.s_mnt_count.set(raw.s_mnt_count.get().wrapping_add(1));
            let mut features = raw.features();
            if failed {
                // An earlier mount gave up: the next check is to be a full one.
                raw.s_state.set(raw.s_state.get() | STATE_ERROR);
            }
            if journaled {
                features.incompat |= Incompat::RECOVER;
            } else {
                raw.s_state.set(raw.s_state.get() & !STATE_CLEAN);
            }
            features.ro_compat |= present;
            raw.set_features(&features);
        })?;
        self.orphan_cleanup(cx, head)?;
        Ok(())
    }

    /// Gives a mount up that could not begin.
    fn abandon(&self, cx: &mut Cx) {
        self.sb.stop();
        if let Some(journal) = self.sb.journal() {
            journal.kill(cx);
        }
        // The device's errors are those that made it give up.
        let _given_back = self.end_protection(cx);
        self.names.cache.clear();
        self.inodes.cache.clear();
    }

    /// Writes everything out, and leaves the file system clean. May park.
    ///
    /// # Errors
    /// The first error of writing; the rest was done as far as possible.
    pub(crate) fn unmount_clean(&self, cx: &mut Cx) -> Result<(), Errno> {
        if self.sb.options.read_only {
            self.sb.stop();
            return self.close(cx, Ok(()));
        }
        let mut result = self.inodes.write_all_content(cx);
        for inode in self.inodes.cache.all() {
            let unused = inode.with(cx, |core| {
                let unused = core.links == 0 && !core.dead;
                if unused {
                    core.opens = 0;
                }
                unused
            });
            if unused && !self.sb.has_error() {
                result = result.and(evict::delete_if_unused(&self.inodes, cx, &inode));
            }
            if inode.with(cx, |core| core.times_dirty && !core.dead) {
                result = result.and(self.inodes.write_inode(cx, &inode));
            }
        }
        if !self.sb.has_error() {
            result = result.and(self.release_unused_ids(cx));
        }
        if let Some(quota) = self.quota.get().filter(|_| !self.sb.has_error()) {
            result = result.and(quota.let_go(&self.inodes, cx));
        }
        self.inodes.arrivals.end();
        self.sb.stop();
        self.close(cx, result)
    }

    /// `result` is what writing data and inodes out has given. Lost data was reported to who asked;
    /// only lost metadata makes the file system one with errors.
    fn close(&self, cx: &mut Cx, result: Result<(), Errno>) -> Result<(), Errno> {
        self.inodes.backing.shutdown(cx);
        let metadata = match self.sb.journal() {
            Some(journal) if self.sb.options.read_only => {
                journal.kill(cx);
                Ok(())
            }
            Some(journal) if self.sb.super_has_no_backup() => journal.flush(cx),
            Some(journal) => journal.shutdown(cx),
            None if self.sb.options.read_only => Ok(()),
            None => self.sb.buffers.sync(cx).map_err(|error| self.sb.device_error(cx, &error)),
        };
        let mut written = Ok(());
        if !self.sb.options.read_only && !self.sb.has_error() && metadata.is_ok() {
            written = self.sb.put_super(cx, |raw| self.final_super(raw));
        }
        if let Some(journal) = self.sb.journal().filter(|_| !self.sb.options.read_only) {
            written = written.and(journal.shutdown(cx));
        }
        if !self.sb.options.read_only
            && (self.sb.has_error() || metadata.is_err() || written.is_err())
        {
            written = written.and(self.sb.mark_broken(cx));
        }
        self.names.cache.clear();
        self.inodes.cache.clear();
        let released = self.end_protection(cx);
        result.and(metadata).and(written).and(released)
    }

    /// Free blocks and inodes as they are now.
    fn set_free_counts(&self, raw: &mut RawSuper) {
        let free = self.alloc.counters.free_blocks.load(Ordering::Relaxed).max(0) as u64;
        raw.set_free_blocks(free << self.sb.geometry.cluster_bits());
        let inodes = self.alloc.counters.free_inodes.load(Ordering::Relaxed).max(0);
        raw.s_free_inodes_count.set(inodes as u32);
    }

    /// What the superblock says after the mount.
    pub(crate) fn final_super(&self, raw: &mut RawSuper) {
        self.set_free_counts(raw);
        let mut features = raw.features();
        features.incompat.remove(Incompat::RECOVER);
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        raw.s_state.set(raw.s_state.get() | STATE_CLEAN);
        raw.set_features(&features);
    }

    /// Returns when everything done before survives a power cut.
    ///
    /// # Errors
    /// The first write error.
    pub(crate) fn sync_all(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.sb.check_alive()?;
        if self.sb.options.read_only {
            return Ok(());
        }
        let mut result = self.inodes.write_all_content(cx);
        if !self.sb.has_error() {
            result = result.and(self.release_unused_ids(cx));
        }
        let tid = self.sb.journal().and_then(|journal| journal.running_tid());
        let durable = match (tid, self.sb.journal()) {
            (None, Some(journal)) => {
                // A commit may be under way; nothing is behind it.
                let journal = journal.clone();
                journal.force_commit(cx).and_then(|()| self.sb.flush_device(cx))
            }
            _ => self.sb.make_durable(cx, tid),
        };
        result.and(durable)
    }

    /// Sizes and free space.
    pub(crate) fn stat_fs(&self, _cx: &Cx) -> Result<StatFs, Errno> {
        self.sb.check_alive()?;
        let reserved = self.alloc.counters.reserved.load(Ordering::Relaxed);
        let free =
            (self.alloc.counters.free_blocks.load(Ordering::Relaxed) - reserved).max(0) as u64;
        let free = free << self.sb.geometry.cluster_bits();
        let reserved = self.alloc.counters.root_blocks.load(Ordering::Relaxed).max(0) as u64;
        let uuid = &self.sb.geometry.uuid;
        let half = |from: usize| {
            u64::from_le_bytes(uuid[from..from + 8].try_into().expect("eight of sixteen bytes"))
        };
        Ok(StatFs {
            block_size: self.sb.geometry.block_size,
            blocks: self.sb.geometry.blocks_count.saturating_sub(self.overhead_blocks()),
            blocks_free: free,
            blocks_available: free.saturating_sub(reserved),
            inodes: u64::from(self.sb.geometry.inodes_count),
            inodes_free: self.alloc.counters.free_inodes.load(Ordering::Relaxed).max(0) as u64,
            name_max: 255,
            fsid: half(0) ^ half(8),
        })
    }

    /// Takes ids that nobody uses out of the quota files.
    fn release_unused_ids(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.quota.get().map_or(Ok(()), |quota| quota.release_unused_ids(&self.inodes, cx))
    }

    /// Blocks that hold no file's data: what `statfs` leaves out.
    pub(crate) fn overhead_blocks(&self) -> u64 {
        let stored = self.sb.super_field(|raw| raw.s_overhead_clusters.get());
        if stored != 0 {
            return u64::from(stored) << self.sb.geometry.cluster_bits();
        }
        let geometry = &*self.sb.geometry;
        let per_group = u64::from(geometry.itable_blocks) + 2;
        let groups = u64::from(geometry.groups_count);
        let base: u64 =
            (0..geometry.groups_count).map(|g| u64::from(geometry.base_meta_blocks(g))).sum();
        u64::from(geometry.first_data_block) + base + per_group * groups
    }

    /// The label and the like, for messages.
    pub fn super_block(&self) -> RawSuper {
        self.sb.super_field(|raw| *raw)
    }
}
