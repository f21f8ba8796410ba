//! Mounting and unmounting.
//!
//! The order: superblock, features (refused by name before anything else is read), log (recovery
//! where the mount may write, else in memory), root directory.

pub(crate) mod copies;
mod fs;
mod geometry;
mod quota;
mod realtime;
pub mod recovery;

pub use crate::fs::options;

use std::sync::Arc;

use base::{Errno, Page, Sector};
use block::{DeviceError, Queue};
use cache::{PageCache, PageCacheConfig};
use rt::Cx;

use crate::buf::meta::Reader;
use crate::buf::{BufCache, BufCacheConfig};
use crate::error::{Fault, XfsError};
use crate::format::features::{Access, Beside};
use crate::format::inode::Flags;
use crate::format::{At, Corrupt, CorruptKind, Features, Geometry, RawSuper, Unsupported};
use crate::fs::options::MountOptions;
use crate::fs::{Counts, MountParts, QuotaSuper, RealtimeSection};
use crate::inactive::inactivate_if_unused;
use crate::log::LogError;
use crate::{Xfs, file};

/// Bytes that are read to find the superblock: the largest sector.
const SUPER_READ: usize = 32 << 10;

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
    /// The device of the realtime section is shorter than the section.
    #[error("the realtime device has {sectors} sectors of 512 bytes, the section {wanted}")]
    RealtimeSize {
        /// Sectors of the device.
        sectors: u64,
        /// Sectors of the section.
        wanted: u64,
    },
    /// The device of the log is shorter than the log.
    #[error("the log's device has {sectors} sectors of 512 bytes, the log {wanted}")]
    LogDevice {
        /// Sectors of the device.
        sectors: u64,
        /// Sectors of the log.
        wanted: u64,
    },
    /// A way to mount that is not implemented.
    #[error("{0} is not supported")]
    Mode(&'static str),
    /// A block size that this implementation cannot mount.
    #[error("blocks of {0} bytes are not supported: 1 to 64 KiB are")]
    BlockSize(u32),
    /// The log is wrong, or holds what cannot be recovered here.
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
            MountError::Unsupported(_)
            | MountError::BlockSize(_)
            | MountError::Mode(_)
            | MountError::LogDevice { .. }
            | MountError::RealtimeSize { .. } => Errno::EINVAL,
            MountError::Log(error) => error.to_errno(),
            MountError::Device(error) => error.to_errno(),
            MountError::Errno(errno) => *errno,
        }
    }
}

/// Reads as much as a superblock's sector can be long: its length is known from its content only.
/// May wait for the device.
///
/// # Errors
/// The device failed.
pub(crate) fn super_bytes(cx: &mut Cx, queue: &Arc<Queue>) -> Result<Page, DeviceError> {
    queue.read(cx, Sector(0), SUPER_READ.min(queue.info().bytes() as usize))
}

/// Reads the superblock: its bytes and what follows from them. May wait for the device.
///
/// # Errors
/// A check of the superblock; the device is shorter than the file system; it failed.
pub(crate) fn read_super(
    cx: &mut Cx,
    queue: &Arc<Queue>,
) -> Result<(RawSuper, Geometry), MountError> {
    let page = super_bytes(cx, queue)?;
    let raw = RawSuper::view(&page);
    let geometry = Geometry::parse(&page, At::Super(0)).map_err(|corrupt| explain(raw, corrupt))?;
    let wanted = geometry.blocks_count().saturating_mul(geometry.block_sectors());
    let sectors = queue.info().sectors;
    if wanted > sectors {
        return Err(CorruptKind::DeviceSize { sectors, wanted }.at(At::Super(0)).into());
    }
    Ok((*raw.expect("parsed"), geometry))
}

/// What looks damaged may be the work of a feature that forbids reading.
fn explain(raw: Option<&RawSuper>, corrupt: Corrupt) -> MountError {
    let explained = matches!(
        corrupt.kind,
        CorruptKind::Magic { .. } | CorruptKind::Checksum { .. } | CorruptKind::Version(_)
    );
    match raw.filter(|_| !explained).map(|raw| Features::new(raw).access()) {
        Some((Access::Refused, mut reasons)) => reasons.swap_remove(0).into(),
        _ => corrupt.into(),
    }
}

/// Whether the features allow the mount.
pub(crate) fn check_features(
    geometry: &Geometry,
    read_only: bool,
    beside: Beside,
) -> Result<(), MountError> {
    let (access, reasons) = geometry.features.access_beside(beside);
    let wanted = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    match reasons.into_iter().next() {
        Some(reason) if access < wanted => Err(reason.into()),
        _ if !takes_blocks(geometry) => Err(MountError::BlockSize(geometry.block_size)),
        _ => Ok(()),
    }
}

/// Whether blocks have a size that this implementation takes.
pub(crate) fn takes_blocks(geometry: &Geometry) -> bool {
    (1024..=65536).contains(&geometry.block_size)
}

/// The buffers for a file system of this shape.
pub(crate) fn reader(queue: &Arc<Queue>, geometry: Geometry, limit_bytes: u64) -> Reader {
    let config = BufCacheConfig::of(&geometry, limit_bytes);
    Reader { bufs: BufCache::new(queue.clone(), config), geometry: Arc::new(geometry) }
}

/// The flags of the root directory, and what is known of quota.
fn look_around(
    cx: &mut Cx,
    reader: &Reader,
    raw: &RawSuper,
) -> Result<(Flags, QuotaSuper), MountError> {
    let root = reader.geometry.root_ino;
    let (_, core) = reader.read_inode(cx, root)?;
    if core.file_type() != 0x4000 {
        return Err(CorruptKind::InodeMode { mode: core.mode }.at(At::Inode(root)).into());
    }
    Ok((core.flags, QuotaSuper::new(cx, reader, raw)?))
}

impl Xfs {
    /// Mounts the file system on the device behind `queue`. A mount that only reads recovers a
    /// dirty log into memory. May wait for the device.
    ///
    /// # Errors
    /// What keeps it from being mounted, by name.
    pub fn mount(
        cx: &mut Cx,
        queue: &Arc<Queue>,
        pages: &Arc<PageCache>,
        options: MountOptions,
    ) -> Result<Arc<Xfs>, MountError> {
        let (raw, geometry) = read_super(cx, queue)?;
        if geometry.block_size > pages.config().folio_size {
            return Err(MountError::Mode("a block that is larger than the page cache's folios"));
        }
        Xfs::mount_read(cx, queue, pages, options, raw, geometry)
    }

    /// As [`Xfs::mount`], with a page cache of its own, whose folios hold a block.
    ///
    /// # Errors
    /// As [`Xfs::mount`].
    pub fn mount_alone(
        cx: &mut Cx,
        queue: &Arc<Queue>,
        cache: PageCacheConfig,
        options: MountOptions,
    ) -> Result<Arc<Xfs>, MountError> {
        let (raw, geometry) = read_super(cx, queue)?;
        let folio_size = PageCacheConfig::folio_size_for(geometry.block_size);
        let pages = PageCache::new(cx.runtime(), PageCacheConfig { folio_size, ..cache });
        Xfs::mount_read(cx, queue, &pages, options, raw, geometry)
    }

    /// The rest of a mount, whose superblock was read.
    fn mount_read(
        cx: &mut Cx,
        queue: &Arc<Queue>,
        pages: &Arc<PageCache>,
        options: MountOptions,
        mut raw: RawSuper,
        mut geometry: Geometry,
    ) -> Result<Arc<Xfs>, MountError> {
        let beside = Beside { realtime: options.realtime.is_some(), log: options.log.is_some() };
        check_features(&geometry, options.read_only, beside)?;
        recovery::check_log_device(&geometry, options.log.as_ref())?;
        let realtime = realtime::of_mount(&geometry, queue, &options)?;
        if let Some(device) = &realtime {
            realtime::check_device(cx, device, &geometry)?;
        }
        let (mut queue, mut recovery) = (queue.clone(), None);
        if options.read_only
            && !options.no_recovery
            && let Some((over, done)) =
                recovery::recover_in_memory(cx, &queue, &geometry, options.log.as_ref())?
        {
            (queue, recovery) = (over, Some(done));
            (raw, geometry) = read_super(cx, &queue)?;
        }
        let mut reader = reader(&queue, geometry, options.buffer_limit_bytes);
        let mut write = None;
        if !options.read_only {
            if queue.info().read_only {
                return Err(MountError::Errno(Errno::EROFS));
            }
            let (bufs, log_options) = (reader.bufs.clone(), options.log_options());
            let (writer, done) =
                recovery::open(cx, bufs, reader.geometry, log_options, Some(&options.quota))?;
            reader.geometry = writer.space.geometry.clone();
            if let Some(queue) = &realtime {
                writer.log.set_content_device(queue.clone());
            }
            (write, recovery) = (Some(writer), Some(done));
        }
        let geometry = reader.geometry.clone();
        let (root_flags, quota_super) = match look_around(cx, &reader, &raw) {
            Ok(found) => found,
            Err(error) => {
                if let Some(writer) = write {
                    writer.abandon(cx);
                }
                return Err(error);
            }
        };
        let backing = pages.backing(queue.clone(), geometry.block_size);
        let realtime = realtime.map(|queue| RealtimeSection {
            backing: pages.backing(queue, geometry.block_size),
            by_default: root_flags.contains(Flags::RTINHERIT),
        });
        let counts = Counts::new(&raw);
        let parts = MountParts { write, recovery, counts, quota_super, realtime };
        Ok(Xfs::assemble(queue, reader, backing, parts, &options))
    }

    /// Writes everything out and leaves the file system clean. May park.
    ///
    /// # Errors
    /// What could not be written; the log has it, or has not, after that.
    pub(crate) fn unmount_clean(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.check_alive()?;
        let _alone = self.growing.lock(cx);
        let mut result = Ok(());
        if let Some(writer) = &self.write {
            let content = file::close_content(self, cx);
            // Whoever still has a file open that lost its names loses it now.
            for inode in self.inodes.all() {
                inode.with(cx, |state| state.opens = 0);
                result = result.and(inactivate_if_unused(self, cx, &inode));
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
