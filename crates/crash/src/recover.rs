//! Recovering a medium with our own file systems, in a world of its own.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{Device, Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use ext4::Ext4;
use rt::Cx;
use vfs::FileSystem;
use xfs::Xfs;

use crate::log::{LogError, PIECE};
use crate::medium::Medium;

/// Memory for cached content of one mount; states are small and live briefly.
const CACHE: u64 = 16 << 20;
/// Findings of a check that are kept.
const FINDINGS: usize = 8;

impl From<LogError> for io::Error {
    fn from(error: LogError) -> io::Error {
        io::Error::other(error)
    }
}

/// A file system that can be recovered in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// ext2, ext3 or ext4.
    Ext4,
    /// XFS.
    Xfs,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    /// # Errors
    /// A sentence with those that are known.
    fn from_str(text: &str) -> Result<Kind, String> {
        match text {
            "ext2" | "ext3" | "ext4" => Ok(Kind::Ext4),
            "xfs" => Ok(Kind::Xfs),
            _ => Err(format!("{text}: not a file system that is recovered here; ext4 and xfs are")),
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
        let queue = queue(cx, device)?;
        match self {
            Kind::Ext4 => ext4::mkfs(cx, &queue, &Default::default())
                .map(drop)
                .map_err(|error| format!("mkfs of ext4: {error}")),
            Kind::Xfs => xfs::mkfs(cx, &queue, &Default::default())
                .map(drop)
                .map_err(|error| format!("mkfs of xfs: {error}")),
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
        let queue = queue(cx, device)?;
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(CACHE));
        match self {
            Kind::Ext4 => {
                let options =
                    ext4::MountOptions { buffer_limit_bytes: CACHE, ..Default::default() };
                let fs = Ext4::mount(cx, &queue, &pages, options);
                fs.map(|fs| fs as Arc<dyn FileSystem>).map_err(|error| error.to_string())
            }
            Kind::Xfs => {
                let options = xfs::MountOptions {
                    read_only: false,
                    buffer_limit_bytes: CACHE,
                    ..Default::default()
                };
                let fs = Xfs::mount(cx, &queue, &pages, options);
                fs.map(|fs| fs as Arc<dyn FileSystem>).map_err(|error| error.to_string())
            }
        }
    }

    /// Checks the file system on a device, whole. Parks.
    ///
    /// # Errors
    /// What the check found, or why it could not look.
    pub fn check(self, cx: &mut Cx, device: Arc<dyn Device>) -> Result<(), String> {
        let queue = queue(cx, device)?;
        let findings: Vec<String> = match self {
            Kind::Ext4 => {
                let report = ext4::check(cx, &queue, &Default::default());
                let report = report.map_err(|error| format!("check: {error}"))?;
                report.findings.iter().map(|finding| finding.to_string()).collect()
            }
            Kind::Xfs => {
                let report = xfs::check(cx, &queue, &Default::default());
                let report = report.map_err(|error| format!("check: {error}"))?;
                report.findings.iter().map(|finding| finding.to_string()).collect()
            }
        };
        match findings.is_empty() {
            true => Ok(()),
            false => Err(findings[..findings.len().min(FINDINGS)].join("; ")),
        }
    }

    /// Asks e2fsck or xfs_repair of the host about a medium, without changing it.
    ///
    /// # Errors
    /// What it says, or why it could not be asked.
    pub fn ask_outside(self, medium: &Medium) -> Result<(), String> {
        let host = |error: io::Error| format!("a copy of the state: {error}");
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("iopath-crash-{}-{number}.img", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::create_new(&path).map_err(host)?;
        let written = file.set_len(medium.info().bytes()).and_then(|()| {
            medium.each_block(|number, bytes| {
                let at = u64::from(number) * PIECE as u64;
                let len = medium.info().bytes().saturating_sub(at).min(bytes.len() as u64);
                file.write_all_at(&bytes[..len as usize], at)
            })
        });
        let (program, flag) = match self {
            Kind::Ext4 => ("e2fsck", "-fn"),
            Kind::Xfs => ("xfs_repair", "-n"),
        };
        let asked = written.and_then(|()| Command::new(program).arg(flag).arg(&path).output());
        let _a_copy_may_stay = std::fs::remove_file(&path);
        let output = asked.map_err(|error| format!("{program}: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let text = String::from_utf8_lossy(&output.stdout);
                let lines: Vec<&str> = text.lines().take(FINDINGS).collect();
                Err(format!("{program} {flag}: {}: {}", output.status, lines.join("; ")))
            }
        }
    }
}

/// Numbers the copies of one process.
static COPIES: AtomicU64 = AtomicU64::new(0);
