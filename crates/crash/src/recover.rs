//! Recovering a medium with our own file systems, in a world of its own.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base::Nanos;
use block::{Device, Queue, QueueConfig};
use cache::PageCacheConfig;
use ext4::Ext4;
use rt::Cx;
use vfs::FileSystem;
use xfs::Xfs;

use crate::foreign::Foreign;
use crate::log::LogError;
use crate::medium::Medium;

/// Memory for cached content of one mount; states are small and live briefly.
const CACHE: u64 = 16 << 20;
/// Findings of a check that are kept.
const FINDINGS: usize = 8;

/// A file system: ext4 and XFS are recovered in memory by our own code, the others by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// ext2, ext3 or ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Any other: the kernel's only.
    Foreign(Foreign),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Ext4 => f.write_str("ext4"),
            Kind::Xfs => f.write_str("xfs"),
            Kind::Foreign(foreign) => foreign.fmt(f),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    /// # Errors
    /// A sentence: it cannot be the name of a file system.
    fn from_str(text: &str) -> Result<Kind, String> {
        match text {
            "ext2" | "ext3" | "ext4" => Ok(Kind::Ext4),
            "xfs" => Ok(Kind::Xfs),
            _ => text.parse().map(Kind::Foreign),
        }
    }
}

/// How a file system is mounted: those of its kind hold.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// For ext2, ext3 and ext4; the size of its cache is ours.
    pub ext4: ext4::MountOptions,
    /// For XFS; likewise, and it is always writable.
    pub xfs: xfs::MountOptions,
}

impl MountOptions {
    /// The options with which ext4 promises less than its documents do:
    /// [`Header::mount_options`](crate::Header::mount_options).
    pub fn promising_less(&self) -> Vec<String> {
        let ext4 = &self.ext4;
        let less = [
            (!ext4.auto_da_alloc, "noauto_da_alloc"),
            (ext4.dioread_nolock.is_some(), "dioread_nolock"),
        ];
        less.iter().filter(|(given, _)| *given).map(|(_, word)| (*word).to_owned()).collect()
    }
}

/// As Linux mounts, on a slow disk: ext4 with `dioread_nolock`.
impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            ext4: ext4::MountOptions {
                dioread_nolock: Some(Nanos::from_secs(1)),
                ..Default::default()
            },
            xfs: xfs::MountOptions::default(),
        }
    }
}

/// How one of our file systems is made.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// ext2, ext3 or ext4.
    Ext4(ext4::MkfsOptions),
    /// XFS.
    Xfs(xfs::MkfsOptions),
}

impl Format {
    /// Makes a fresh file system on a device. Parks.
    ///
    /// # Errors
    /// Options that do not fit together; the device is too small or fails.
    pub fn make(&self, cx: &mut Cx, device: Arc<dyn Device>) -> Result<(), String> {
        let queue = queue(cx, device)?;
        match self {
            Format::Ext4(options) => ext4::mkfs(cx, &queue, options)
                .map(drop)
                .map_err(|error| format!("mkfs of ext4: {error}")),
            Format::Xfs(options) => xfs::mkfs(cx, &queue, options)
                .map(drop)
                .map_err(|error| format!("mkfs of xfs: {error}")),
        }
    }
}

fn queue(cx: &Cx, device: Arc<dyn Device>) -> Result<Arc<Queue>, String> {
    Queue::new(cx.runtime(), device, QueueConfig::default()).map_err(|error| error.to_string())
}

impl Kind {
    /// Makes a fresh file system on a device. Parks.
    ///
    /// # Errors
    /// The device is too small or fails.
    pub fn mkfs(self, cx: &mut Cx, device: Arc<dyn Device>) -> Result<(), String> {
        match self {
            Kind::Ext4 => Format::Ext4(Default::default()).make(cx, device),
            Kind::Xfs => Format::Xfs(Default::default()).make(cx, device),
            Kind::Foreign(_) => self.not_ours(),
        }
    }

    /// Mounts what is on a device, for reading and writing; replays its log. Parks.
    ///
    /// # Errors
    /// Why it cannot be mounted.
    pub fn mount(
        self,
        cx: &mut Cx,
        device: Arc<dyn Device>,
    ) -> Result<Arc<dyn FileSystem>, String> {
        self.mount_with(cx, device, &MountOptions::default())
    }

    /// As [`mount`](Kind::mount), with options.
    ///
    /// # Errors
    /// Why it cannot be mounted.
    pub fn mount_with(
        self,
        cx: &mut Cx,
        device: Arc<dyn Device>,
        options: &MountOptions,
    ) -> Result<Arc<dyn FileSystem>, String> {
        let queue = queue(cx, device)?;
        let cache = PageCacheConfig::with_limit(CACHE);
        match self {
            Kind::Ext4 => {
                let options =
                    ext4::MountOptions { buffer_limit_bytes: CACHE, ..options.ext4.clone() };
                let fs = Ext4::mount_alone(cx, &queue, cache, options);
                fs.map(|fs| fs as Arc<dyn FileSystem>).map_err(|error| error.to_string())
            }
            Kind::Xfs => {
                let options = xfs::MountOptions {
                    read_only: false,
                    buffer_limit_bytes: CACHE,
                    ..options.xfs.clone()
                };
                let fs = Xfs::mount_alone(cx, &queue, cache, options);
                fs.map(|fs| fs as Arc<dyn FileSystem>).map_err(|error| error.to_string())
            }
            Kind::Foreign(_) => self.not_ours(),
        }
    }

    /// Checks the file system on a device, whole. `faulty`: its disk has failed, so that it may say
    /// of itself that there were errors. Parks.
    ///
    /// # Errors
    /// What the check found, or why it could not look.
    pub fn check(self, cx: &mut Cx, device: Arc<dyn Device>, faulty: bool) -> Result<(), String> {
        let queue = queue(cx, device)?;
        let findings: Vec<String> = match self {
            Kind::Ext4 => {
                let report = ext4::check(cx, &queue, &Default::default());
                let report = report.map_err(|error| format!("check: {error}"))?;
                let found = report.findings.iter();
                found
                    .filter(|found| !(faulty && found.rule == ext4::Rule::SuperErrorState))
                    .map(ToString::to_string)
                    .collect()
            }
            Kind::Xfs => {
                let report = xfs::check(cx, &queue, &Default::default());
                let report = report.map_err(|error| format!("check: {error}"))?;
                report.findings.iter().map(|finding| finding.to_string()).collect()
            }
            Kind::Foreign(_) => return self.not_ours(),
        };
        match findings.is_empty() {
            true => Ok(()),
            false => Err(findings[..findings.len().min(FINDINGS)].join("; ")),
        }
    }

    /// What a medium says that it holds.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn of(medium: &Medium) -> Result<Option<Kind>, LogError> {
        // Where each says what it is: the kinds' documents have the places.
        let ours: [(u64, &[u8], Kind); 2] =
            [(0, b"XFSB", Kind::Xfs), (1024 + 0x38, &[0x53, 0xef], Kind::Ext4)];
        let others = Foreign::signs().map(|(at, sign, it)| (at, sign, Kind::Foreign(it)));
        for (at, sign, kind) in ours.into_iter().chain(others) {
            let end = at + sign.len() as u64;
            if end <= medium.info().bytes() && medium.bytes(at, sign.len())? == sign {
                return Ok(Some(kind));
            }
        }
        Ok(None)
    }

    /// Our code recovers it.
    pub fn is_ours(self) -> bool {
        matches!(self, Kind::Ext4 | Kind::Xfs)
    }

    /// The program that checks it and changes nothing, with its flags.
    pub fn checker(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Kind::Ext4 => Some(("e2fsck", &["-fn"])),
            Kind::Xfs => Some(("xfs_repair", &["-n"])),
            Kind::Foreign(foreign) => foreign.checker(),
        }
    }

    /// The smallest usual size of a disk with it.
    pub fn usual_bytes(self) -> u64 {
        match self {
            Kind::Ext4 => 64 << 20,
            Kind::Xfs => 320 << 20,
            Kind::Foreign(foreign) => foreign.usual_bytes(),
        }
    }

    fn not_ours<T>(self) -> Result<T, String> {
        Err(format!("{self} is recovered by the kernel only (--recover kernel)"))
    }
}
