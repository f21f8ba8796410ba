//! The families of file systems, and the functions by which the library and the `iopath` command
//! mount and check either of them on an open device.

use std::sync::Arc;

use block::{DeviceError, Queue};
use cache::PageCacheConfig;
#[cfg(feature = "ext4")]
use ext4::Ext4;
use rt::Cx;
use vfs::check::Summary;
#[cfg(feature = "xfs")]
use xfs::Xfs;

use crate::recognise::Content;

/// The family of a file system that this build has (the features `ext4` and `xfs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// ext2, ext3 or ext4.
    #[cfg(feature = "ext4")]
    Ext,
    /// XFS.
    #[cfg(feature = "xfs")]
    Xfs,
}

impl Format {
    /// What a new image gets unless asked otherwise: ext4 where this build has it.
    #[cfg(feature = "ext4")]
    pub const DEFAULT: Format = Format::Ext;
    /// What a new image gets unless asked otherwise.
    #[cfg(not(feature = "ext4"))]
    pub const DEFAULT: Format = Format::Xfs;

    /// Its name: `ext` or `xfs`.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "ext4")]
            Format::Ext => "ext",
            #[cfg(feature = "xfs")]
            Format::Xfs => "xfs",
        }
    }

    /// The family of what is on a device.
    ///
    /// # Errors
    /// What is there instead, in words that follow the device's name.
    pub fn of(content: Content) -> Result<Format, String> {
        Err(match content {
            #[cfg(feature = "ext4")]
            Content::Ext(_) => return Ok(Format::Ext),
            #[cfg(not(feature = "ext4"))]
            Content::Ext(name) => format!("holds {name}; this build has no feature `ext4`"),
            #[cfg(feature = "xfs")]
            Content::Xfs => return Ok(Format::Xfs),
            #[cfg(not(feature = "xfs"))]
            Content::Xfs => "holds XFS; this build has no feature `xfs`".into(),
            Content::Other(name, hint) => format!("holds {name}; {hint}"),
            Content::Partitioned(table) => {
                format!("holds a {table} partition table; name a partition")
            }
            Content::Blank => "is blank at its start".into(),
            Content::Unknown => "neither ext2, ext3, ext4 nor XFS".into(),
        })
    }

    /// Checks a file system without changing it; with `replay` as its journal would leave it. At
    /// most `findings_max` findings are listed. May park.
    ///
    /// # Errors
    /// The device failed.
    pub fn check(
        self,
        cx: &mut Cx,
        queue: &Arc<Queue>,
        replay: bool,
        findings_max: usize,
    ) -> Result<Summary, DeviceError> {
        match self {
            #[cfg(feature = "ext4")]
            Format::Ext => {
                let options =
                    ext4::CheckOptions { replay, findings_max, ..ext4::CheckOptions::default() };
                ext4::check(cx, queue, &options).map(Summary::from)
            }
            #[cfg(feature = "xfs")]
            Format::Xfs => {
                let options =
                    xfs::CheckOptions { recover: replay, findings_max, ..Default::default() };
                xfs::check(cx, queue, &options).map(Summary::from)
            }
        }
    }
}

/// What a mount may do and take, whatever its format.
#[derive(Clone, Copy, Debug)]
pub struct Mounting {
    /// It changes the device.
    pub write: bool,
    /// Bytes of memory for content and metadata, half for each; at least 1 MiB is granted.
    pub cache_size: u64,
    /// Inodes in memory, where that is not what fits the cache: one for 16 KiB of it.
    pub inode_cache: Option<usize>,
    /// The device answers late: content is read ahead in windows of several MiB, each before the
    /// one before it has come.
    pub is_far: bool,
}

/// Most bytes that are read ahead of a reader of a far device. The windows of a reader who asks for
/// 256 KiB at once, as copies do, begin at 1 MiB.
const FAR_WINDOW: u32 = 32 << 20;

impl Mounting {
    /// Bytes for content, and as many for metadata.
    fn half(&self) -> u64 {
        self.cache_size.max(1 << 20) / 2
    }

    fn pages(&self) -> PageCacheConfig {
        let config = PageCacheConfig::with_limit(self.half());
        match self.is_far {
            false => config,
            true => {
                PageCacheConfig { readahead_bytes: FAR_WINDOW, readahead_early: true, ..config }
            }
        }
    }

    /// Inodes take some hundred bytes each, and those of dirty files more.
    fn inodes(&self) -> usize {
        let fitting = (self.cache_size >> 14).clamp(1024, 65536) as usize;
        self.inode_cache.unwrap_or(fitting)
    }

    /// Mounts ext2, ext3 or ext4, with further `options`. May park.
    ///
    /// # Errors
    /// What keeps it from being mounted, by name.
    #[cfg(feature = "ext4")]
    pub fn ext(
        &self,
        cx: &mut Cx,
        queue: &Arc<Queue>,
        mut options: ext4::MountOptions,
    ) -> Result<Arc<Ext4>, ext4::MountError> {
        options.read_only = !self.write;
        options.buffer_limit_bytes = self.half();
        options.inode_cache = self.inodes();
        Ext4::mount_alone(cx, queue, self.pages(), options)
    }

    /// Mounts XFS, with further `options`. May park.
    ///
    /// # Errors
    /// What keeps it from being mounted, by name.
    #[cfg(feature = "xfs")]
    pub fn xfs(
        &self,
        cx: &mut Cx,
        queue: &Arc<Queue>,
        mut options: xfs::MountOptions,
    ) -> Result<Arc<Xfs>, xfs::MountError> {
        options.read_only = !self.write;
        options.buffer_limit_bytes = self.half();
        options.inode_cache = self.inodes();
        // An inode that waits in the log takes some five times the bytes of its record.
        options.dirty_max = (self.half() / 16).max(1 << 20);
        Xfs::mount_alone(cx, queue, self.pages(), options)
    }
}
