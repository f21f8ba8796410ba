//! Mounting and unmounting.
//!
//! The order: superblock, features (refused by name before anything else is read), log (which must
//! be clean), root directory.

use std::sync::Arc;

use base::{Errno, Sector};
use block::{DeviceError, Queue};
use cache::{BufferCache, BufferConfig, PageCache};
use rt::Cx;

use crate::Xfs;
use crate::fault::Fault;
use crate::format::features::Access;
use crate::format::{At, Corrupt, CorruptKind, Features, Geometry, RawSuper, Unsupported};
use crate::log::recovery;
use crate::meta::Reader;
use crate::super_::Counts;

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
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: true,
            no_replay: false,
            buffer_limit_bytes: 256 << 20,
            inode_cache: 65536,
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
    #[error(transparent)]
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
    /// The log holds changes that are not on the disk yet.
    #[error("the log needs replay: the file system was not unmounted cleanly")]
    NeedsReplay,
    /// Something inside answered this.
    #[error("{0}")]
    Errno(Errno),
}

impl From<Fault> for MountError {
    fn from(fault: Fault) -> MountError {
        match fault {
            Fault::Corrupt(corrupt) => MountError::Corrupt(corrupt),
            Fault::Device(error) => MountError::Device(error),
            Fault::Unsupported(what) => MountError::Mode(what),
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
            MountError::NeedsReplay => Errno::EROFS,
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
    let config =
        BufferConfig { block_size: geometry.block_size, limit_bytes, ..BufferConfig::default() };
    Reader { buffers: BufferCache::new(queue.clone(), config), geometry: Arc::new(geometry) }
}

impl Xfs {
    /// Mounts the file system on the device behind `queue`. May wait for the device.
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
        check_features(&geometry, options.read_only)?;
        if !options.read_only {
            return Err(MountError::Mode("writing to XFS"));
        }
        let external = geometry.log_start.0 == 0;
        if !options.no_replay && !external && !recovery::is_clean(cx, queue, &geometry)? {
            return Err(MountError::NeedsReplay);
        }
        let backing = pages.backing(queue.clone(), geometry.block_size);
        let reader = reader(queue, geometry, options.buffer_limit_bytes);
        let fs = Xfs::assemble(queue.clone(), reader, backing, Counts::new(&raw), &options);
        let (ino, root) =
            (fs.geometry().root_ino, fs.reader.read_inode(cx, fs.geometry().root_ino));
        let (_, core) = root?;
        if core.file_type() != 0x4000 {
            return Err(CorruptKind::InodeMode { mode: core.mode }.at(At::Inode(ino)).into());
        }
        Ok(fs)
    }
}
