//! Mounting and unmounting.
//!
//! The order: superblock, features (refused by name before anything else is read), log (replayed
//! where the mount may write, else in memory), root directory.

use std::sync::Arc;

use base::{Errno, Nanos, Sector};
use block::{DeviceError, Queue};
use cache::PageCache;
use rt::Cx;
use vfs::direct::DirectOptions;

use crate::buf::{BufCache, BufCacheConfig};
use crate::buf_item::walk::Variant;
use crate::error::XfsError;
use crate::fault::Fault;
use crate::format::features::{Access, advice};
use crate::format::{At, Corrupt, CorruptKind, Features, Geometry, RawSuper, Unsupported};
use crate::log::{LogError, LogOptions};
use crate::meta::Reader;
use crate::super_::Counts;
use crate::{Xfs, replay};

/// Bytes that are read to find the superblock: the largest sector.
const SUPER_READ: usize = 32 << 10;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Write nothing at all.
    pub read_only: bool,
    /// On a read-only mount of a file system with a dirty log: read it as it lies on the disk,
    /// without what the log holds (the kernel's `norecovery`).
    pub no_replay: bool,
    /// Bytes of metadata kept in memory.
    pub buffer_limit_bytes: u64,
    /// Inodes kept in memory.
    pub inode_cache: usize,
    /// Names kept in memory, about; 0: none.
    pub name_cache: usize,
    /// Bytes of a log record, 32 to 256 KiB (`logbsize`).
    pub log_record_bytes: u32,
    /// How buffers become regions of the log.
    pub buf_item: Variant,
    /// Each change of names is durable when its call returns (`wsync`).
    pub wsync: bool,
    /// Leaves of directories get gaps for names to come (`dir_leaf=gaps`), else they are dense as
    /// Linux makes them.
    pub leaf_gaps: bool,
    /// Leaves of directories are checked whole before and after each change, as a debug kernel does
    /// (`debug_checks`).
    pub debug_checks: bool,
    /// Count and time what formatting buffers takes: [`Xfs::gauge`].
    pub gauge: bool,
    /// How direct I/O is done. There are no boundary marks: the rules differ in how they walk
    /// memory, and in when they send a bio.
    pub direct: DirectOptions,
    /// How long a change may wait in memory: then it is written into the log, and to its place
    /// (Linux: `fs.xfs.xfssyncd_centisecs`).
    pub write_out_interval: Nanos,
}

impl MountOptions {
    fn log_options(&self) -> LogOptions {
        LogOptions {
            variant: self.buf_item,
            record_bytes: self.log_record_bytes,
            interval: self.write_out_interval,
            background: true,
            debug_checks: self.debug_checks,
            gauge: self.gauge,
        }
    }
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: true,
            no_replay: false,
            buffer_limit_bytes: 256 << 20,
            inode_cache: 65536,
            name_cache: 65536,
            log_record_bytes: LogOptions::default().record_bytes,
            buf_item: Variant::default(),
            wsync: false,
            leaf_gaps: true,
            debug_checks: false,
            gauge: false,
            direct: DirectOptions::default(),
            write_out_interval: LogOptions::default().interval,
        }
    }
}

/// Why a file system cannot be mounted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MountError {
    /// A structure is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// A feature forbids it.
    #[error("{0}{advice}", advice = advice(.0))]
    Unsupported(#[from] Unsupported),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A way to mount that is not implemented.
    #[error("{0} is not supported")]
    Mode(&'static str),
    /// A block size that this implementation cannot mount.
    #[error("blocks of {0} bytes are not supported: 1024, 2048 and 4096 are")]
    BlockSize(u32),
    /// The log is wrong, or holds what cannot be replayed here.
    #[error(transparent)]
    Log(Arc<LogError>),
    /// Something inside answered this.
    #[error("{0}")]
    Errno(Errno),
}

impl From<XfsError> for MountError {
    fn from(error: XfsError) -> MountError {
        match error {
            XfsError::Device(error) => MountError::Device(error),
            XfsError::Corrupt(corrupt) => MountError::Corrupt(corrupt),
            XfsError::Log(error) => MountError::Log(Arc::new(error)),
            XfsError::Unsupported(feature) => MountError::Unsupported(feature),
            other => MountError::Errno(other.to_errno()),
        }
    }
}

impl From<Fault> for MountError {
    fn from(fault: Fault) -> MountError {
        match fault {
            Fault::Corrupt(corrupt) => MountError::Corrupt(corrupt),
            Fault::Device(error) => MountError::Device(error),
            Fault::Unsupported(what) => MountError::Mode(what),
            Fault::Answer(errno) => MountError::Errno(errno),
        }
    }
}

impl MountError {
    /// The errno that mount(2) would answer.
    pub fn to_errno(&self) -> Errno {
        match self {
            MountError::Corrupt(corrupt) => match corrupt.kind {
                CorruptKind::Magic { .. } => Errno::EINVAL,
                _ => Errno::EFSCORRUPTED,
            },
            MountError::Unsupported(_) | MountError::BlockSize(_) | MountError::Mode(_) => {
                Errno::EINVAL
            }
            MountError::Log(error) => error.to_errno(),
            MountError::Device(error) => error.to_errno(),
            MountError::Errno(errno) => *errno,
        }
    }
}

/// Reads the superblock: its bytes and what follows from them. May wait for the device.
///
/// # Errors
/// A check of the superblock; the device is shorter than the file system; it failed.
pub(crate) fn read_super(
    cx: &mut Cx,
    queue: &Arc<Queue>,
) -> Result<(RawSuper, Geometry), MountError> {
    let bytes = SUPER_READ.min(queue.info().bytes() as usize);
    let page = queue.read(cx, Sector(0), bytes)?;
    let raw = RawSuper::view(&page);
    let geometry = Geometry::parse(&page, At::Super(0)).map_err(|corrupt| explain(raw, corrupt))?;
    let wanted = geometry.blocks_count.saturating_mul(geometry.block_sectors());
    let sectors = queue.info().sectors;
    if wanted > sectors {
        return Err(CorruptKind::DeviceSize { sectors, wanted }.at(At::Super(0)).into());
    }
    Ok((*raw.expect("parsed"), geometry))
}

/// What looks damaged may be the work of a feature that forbids reading.
fn explain(raw: Option<&RawSuper>, corrupt: Corrupt) -> MountError {
    let told = matches!(
        corrupt.kind,
        CorruptKind::Magic { .. } | CorruptKind::Checksum { .. } | CorruptKind::Version(_)
    );
    match raw.filter(|_| !told).map(|raw| Features::new(raw).access()) {
        Some((Access::Refused, mut reasons)) => reasons.swap_remove(0).into(),
        _ => corrupt.into(),
    }
}

/// Whether the features allow the mount.
pub(crate) fn check_features(geometry: &Geometry, read_only: bool) -> Result<(), MountError> {
    let (access, reasons) = geometry.features.access();
    let wanted = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    match reasons.into_iter().next() {
        Some(reason) if access < wanted => Err(reason.into()),
        _ if !matches!(geometry.block_size, 1024 | 2048 | 4096) => {
            Err(MountError::BlockSize(geometry.block_size))
        }
        _ => Ok(()),
    }
}

/// The buffers for a file system of this shape.
pub(crate) fn reader(queue: &Arc<Queue>, geometry: Geometry, limit_bytes: u64) -> Reader {
    let config = BufCacheConfig { uuid: geometry.meta_uuid, limit_bytes };
    Reader { bufs: BufCache::new(queue.clone(), config), geometry: Arc::new(geometry) }
}

impl Xfs {
    /// Mounts the file system on the device behind `queue`. A mount that only reads replays a dirty
    /// log into memory. May wait for the device.
    ///
    /// # Errors
    /// What keeps it from being mounted, by name.
    pub fn mount(
        cx: &mut Cx,
        queue: &Arc<Queue>,
        pages: &Arc<PageCache>,
        options: MountOptions,
    ) -> Result<Arc<Xfs>, MountError> {
        let (mut raw, mut geometry) = read_super(cx, queue)?;
        check_features(&geometry, options.read_only)?;
        let (mut queue, mut replayed) = (queue.clone(), None);
        if options.read_only
            && !options.no_replay
            && let Some((over, done)) = replay::in_memory(cx, &queue, &geometry)?
        {
            (queue, replayed) = (over, Some(done));
            (raw, geometry) = read_super(cx, &queue)?;
        }
        let reader = reader(&queue, geometry, options.buffer_limit_bytes);
        let geometry = &reader.geometry;
        let mut write = None;
        if !options.read_only {
            if queue.info().read_only {
                return Err(MountError::Errno(Errno::EROFS));
            }
            let (bufs, log_options) = (reader.bufs.clone(), options.log_options());
            let (writer, done) = replay::open(cx, bufs, geometry.clone(), log_options)?;
            (write, replayed) = (Some(writer), Some(done));
        }
        let root = geometry.root_ino;
        let found = reader.read_inode(cx, root).map_err(MountError::from).and_then(|(_, core)| {
            let kind = CorruptKind::InodeMode { mode: core.mode };
            let is_directory = core.file_type() == 0x4000;
            if is_directory { Ok(()) } else { Err(kind.at(At::Inode(root)).into()) }
        });
        if let Err(error) = found {
            if let Some(writer) = write {
                writer.abandon(cx);
            }
            return Err(error);
        }
        let backing = pages.backing(queue.clone(), geometry.block_size);
        let parts = (write, replayed, Counts::new(&raw));
        Ok(Xfs::assemble(queue, reader, backing, parts, &options))
    }

    /// Writes everything out and leaves the file system clean. May park.
    ///
    /// # Errors
    /// What could not be written; the log has it, or has not, after that.
    pub(crate) fn unmount_clean(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.check_alive()?;
        let mut result = Ok(());
        if let Some(writer) = &self.write {
            let content = self.close_content(cx);
            // Whoever still has a file open that lost its names loses it now.
            for inode in self.inodes.all() {
                inode.with(cx, |state| state.opens = 0);
                result = result.and(self.inactivate_if_unused(cx, &inode));
            }
            let ended = writer.finish(cx).map_err(|error| self.fail(error));
            result = content.and(result).and(ended);
        }
        self.stop();
        self.names.clear();
        self.inodes.clear();
        result
    }
}
