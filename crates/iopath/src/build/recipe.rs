//! Which file system is made, with which options: for `mkfs`, with content or without.

use std::sync::Arc;

use anyhow::{Context, Result};
use base::Timespec;
use block::Queue;
use image::format::Mounting;
use rt::Cx;
use sha2::{Digest, Sha256};
use vfs::FileSystem;
use xfs::mount::options::BesideDevice;

use crate::mount_arg::{MountArg, apply_ext, apply_xfs};

/// Sixteenths of a build's memory that are for cached content and metadata. The rest is for what
/// is counted nowhere: the inodes of new files, log items and requests under way. On XFS that was
/// measured to be 0.43 bytes for each byte of the caches.
const CACHE_SHARE: u64 = 11;

/// The generation of the first inodes with `DETERMINISTIC_SEED`, as mkfs.xfs 7.2 was seen to write
/// it: "SEED".
const SEED: u32 = u32::from_be_bytes(*b"SEED");

/// What is made.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The format with its options.
    pub kind: Kind,
    /// Options that it is mounted with while it is filled.
    pub mount: Vec<MountArg>,
    /// The device of an external log (XFS).
    pub log: Option<BesideDevice>,
    /// The device of a realtime section (XFS).
    pub realtime: Option<BesideDevice>,
}

/// Formats with their options.
#[derive(Clone, Debug)]
pub enum Kind {
    /// ext2, ext3, ext4.
    Ext(ext4::MkfsOptions),
    /// XFS.
    Xfs(xfs::MkfsOptions),
}

/// What was made.
#[derive(Clone, Debug)]
pub enum Report {
    /// ext2, ext3, ext4.
    Ext(ext4::MkfsReport),
    /// XFS.
    Xfs(Box<xfs::MkfsReport>),
}

impl Report {
    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        match self {
            Report::Ext(report) => report.block_size,
            Report::Xfs(report) => report.geometry.block_size,
        }
    }
}

/// What an empty file system of some size has.
#[derive(Clone, Copy, Debug)]
pub struct Empty {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Those that are free.
    pub free: u64,
    /// Inodes; none where their number has no limit of its own.
    pub inodes: Option<u64>,
}

impl Recipe {
    /// The same with a UUID, and all other random numbers from it.
    pub fn with_uuid(mut self, uuid: [u8; 16]) -> Recipe {
        let digest = Sha256::digest([b"iopath hash seed", &uuid[..]].concat());
        match &mut self.kind {
            Kind::Ext(options) => {
                options.uuid = Some(uuid);
                let seed = digest[..16].try_into().expect("sixteen of 32 bytes");
                options.hash_seed.get_or_insert(seed);
            }
            Kind::Xfs(options) => options.uuid = Some(uuid),
        }
        self
    }

    /// The same at a time that was named. All random numbers follow from the UUID, where that is
    /// known; the first inodes of XFS have the generation that mkfs.xfs gives them when its random
    /// numbers are to be the same each time.
    pub fn pinned(mut self, now: Timespec) -> Recipe {
        match &mut self.kind {
            Kind::Ext(options) => options.now = Some(now),
            Kind::Xfs(options) => (options.now, options.generation) = (Some(now), Some(SEED)),
        }
        match self.uuid() {
            Some(uuid) => self.with_uuid(uuid),
            None => self,
        }
    }

    /// The UUID, where one is asked for.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        match &self.kind {
            Kind::Ext(options) => options.uuid,
            Kind::Xfs(options) => options.uuid,
        }
    }

    /// Makes it. May park.
    ///
    /// # Errors
    /// Impossible options, or a device that failed.
    pub fn make(&self, cx: &mut Cx, queue: &Arc<Queue>) -> Result<Report> {
        Ok(match &self.kind {
            Kind::Ext(options) => Report::Ext(ext4::mkfs(cx, queue, options)?),
            Kind::Xfs(options) => {
                let devices = xfs::mkfs::Devices {
                    log: self.log.as_ref().map(|device| &device.0),
                    realtime: self.realtime.as_ref().map(|device| &device.0),
                };
                Report::Xfs(Box::new(xfs::mkfs::mkfs_beside(cx, queue, &devices, options)?))
            }
        })
    }

    /// Mounts what was made, for writing, in `limit` bytes of memory and 64 MiB more. May park.
    ///
    /// # Errors
    /// The options do not fit, or the device failed.
    pub fn mount(
        &self,
        cx: &mut Cx,
        queue: &Arc<Queue>,
        limit: u64,
    ) -> Result<Arc<dyn FileSystem>> {
        let cache_size = limit / 16 * CACHE_SHARE;
        let how = Mounting { write: true, cache_size, inode_cache: None, is_far: false };
        let args = self.mount.iter().copied();
        Ok(match &self.kind {
            Kind::Ext(_) => {
                // What is being built is thrown away where it is not finished.
                let mut options =
                    ext4::MountOptions { without_journal: true, ..ext4::MountOptions::default() };
                apply_ext(args, &mut options)?;
                how.ext(cx, queue, options)?
            }
            Kind::Xfs(_) => {
                let (log, realtime) = (self.log.clone(), self.realtime.clone());
                let mut options =
                    xfs::MountOptions { log, realtime, ..xfs::MountOptions::default() };
                apply_xfs(args, &mut options)?;
                how.xfs(cx, queue, options)?
            }
        })
    }

    /// What it would have on a device of so many bytes; none if that is too small for it.
    ///
    /// # Errors
    /// Impossible options.
    pub fn empty(&self, device_bytes: u64) -> Result<Option<Empty>> {
        let (now, uuid) = (Timespec::from_secs(0), [0; 16]);
        match &self.kind {
            Kind::Ext(options) => {
                use ext4::MkfsError::{JournalSize, TooManyInodes, TooSmall};
                // An image file: nothing asks for larger blocks.
                let (sector, hash_seed) = (base::unit::SECTOR_SIZE as u32, uuid);
                let around =
                    ext4::mkfs::Surroundings { device_bytes, sector, now, uuid, hash_seed };
                let plan = match ext4::mkfs::plan(options, &around) {
                    Err(TooSmall { .. } | TooManyInodes { .. } | JournalSize { .. }) => {
                        return Ok(None);
                    }
                    plan => plan?,
                };
                let at = plan.head.get(1024..).and_then(ext4::format::RawSuper::view);
                let report = plan.report;
                Ok(Some(Empty {
                    block_size: report.block_size,
                    blocks: report.blocks_count,
                    free: at.context("a superblock was made")?.free_blocks(),
                    inodes: Some(report.inodes_count.into()),
                }))
            }
            Kind::Xfs(options) => {
                use xfs::mkfs::MkfsError::{Groups, LogSize, TooSmall};
                let generation = 0;
                let around = xfs::mkfs::Surroundings { device_bytes, now, uuid, generation };
                let plan = match xfs::mkfs::plan(options, &around) {
                    Err(TooSmall { .. } | LogSize { .. } | Groups { .. }) => return Ok(None),
                    plan => plan?,
                };
                let at = xfs::format::RawSuper::view(&plan.head);
                let geometry = &plan.report.geometry;
                Ok(Some(Empty {
                    block_size: geometry.block_size,
                    blocks: geometry.blocks_count(),
                    free: at.context("a superblock was made")?.sb_fdblocks.get(),
                    inodes: None,
                }))
            }
        }
    }

    /// The device reads as zeros.
    pub fn on_zeros(&mut self, zeros: bool) {
        match &mut self.kind {
            Kind::Ext(options) => options.assume_zeroes = zeros,
            Kind::Xfs(options) => options.assume_zeroes = zeros,
        }
    }
}
