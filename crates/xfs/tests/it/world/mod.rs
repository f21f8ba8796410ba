//! File systems in memory, made, mounted for writing and judged, for tests in virtual time.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

use std::collections::BTreeSet;
use std::sync::Arc;

use base::Ino;
use block::{Device, DeviceInfo, Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::Cx;
pub use testkit::campaign::{Watchdog, seed_count, seeds};
use testkit::format::Format;
pub use testkit::format::Recording;
use testkit::judge;
pub use testkit::timed::timed;
use vfs::{FileSystem, FileType, NewNode};
use xfs::{CheckOptions, MkfsOptions, MountOptions, Xfs};

/// A disk of zeros, with a cache that forgets.
fn disk(bytes: u64) -> MemoryDevice {
    let info =
        DeviceInfo { volatile_cache: true, physical_block: 512, ..DeviceInfo::plain(bytes / 512) };
    MemoryDevice::with_info(info)
}

/// Such a disk with the content of an image.
pub fn loaded(image: &[u8]) -> Arc<MemoryDevice> {
    let disk = disk(image.len() as u64);
    disk.load(image);
    Arc::new(disk)
}

/// A cell of the grid: the options of mkfs, as `edit` takes them.
#[derive(Clone, Copy, Debug)]
pub struct Cell(pub &'static [(char, &'static str)]);

impl Cell {
    /// Makes the file system on a new device of `bytes` bytes.
    pub fn fresh(&self, cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        let device = Arc::new(disk(bytes));
        // The smallest log, so that it wraps and fills.
        let mut options = MkfsOptions {
            uuid: Some([7; 16]),
            assume_zeroes: true,
            log_size: Some(10 << 20),
            ..MkfsOptions::default()
        };
        for (section, text) in self.0 {
            options.edit(*section, text).expect("options of mkfs");
        }
        let queue = queue(cx, device.clone());
        xfs::mkfs(cx, &queue, &options).unwrap_or_else(|error| panic!("mkfs of {self:?}: {error}"));
        device
    }
}

impl Format for Cell {
    type Fs = Xfs;

    fn fresh(&self, cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        Cell::fresh(self, cx, bytes)
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Xfs> {
        mount(cx, device, cache).0
    }

    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
        checked(cx, device)
    }

    fn judge(&self, device: &MemoryDevice) -> Result<(), String> {
        repaired(device)
    }

    fn error(fs: &Xfs) -> Option<String> {
        fs.error()
    }
}

/// A queue over `device`.
pub fn queue(cx: &Cx, device: Arc<dyn Device>) -> Arc<Queue> {
    let config = QueueConfig { trace_events: 4096, ..QueueConfig::default() };
    Queue::new(cx.runtime(), device, config).expect("the device takes a queue")
}

/// Mounts for writing, with a page cache of `cache` bytes.
pub fn mount(cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> (Arc<Xfs>, Arc<Queue>) {
    mount_with(cx, device, cache, MountOptions::default())
}

/// Mounts for reading only.
pub fn mount_read_only(cx: &mut Cx, device: Arc<dyn Device>) -> Arc<Xfs> {
    let queue = queue(cx, device);
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(8 << 20));
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    Xfs::mount(cx, &queue, &pages, options).unwrap_or_else(|error| panic!("mount: {error}"))
}

/// As [`mount`], with options.
pub fn mount_with(
    cx: &mut Cx,
    device: Arc<dyn Device>,
    cache: u64,
    options: MountOptions,
) -> (Arc<Xfs>, Arc<Queue>) {
    let queue = queue(cx, device);
    let options = MountOptions { read_only: false, ..options };
    let fs = Xfs::mount_alone(cx, &queue, PageCacheConfig::with_limit(cache), options);
    (fs.unwrap_or_else(|error| panic!("mount: {error}")), queue)
}

/// xfs_repair finds nothing.
///
/// # Errors
/// What it says, and where the image is kept.
pub fn repaired(device: &MemoryDevice) -> Result<(), String> {
    let file = testkit::image::write_device(device);
    judge::xfs_repair(file.path()).map_err(|message| {
        let kept = file.keep().map(|(_, path)| path.display().to_string());
        format!("{message}\nthe image is kept in {}", kept.unwrap_or_else(|e| e.to_string()))
    })
}

/// Our check finds nothing.
///
/// # Errors
/// What it says.
pub fn checked(cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
    let queue = queue(cx, device.clone());
    let report = xfs::check(cx, &queue, &CheckOptions::default()).map_err(|e| e.to_string())?;
    match &report.findings[..] {
        [] => Ok(()),
        findings => Err(findings.iter().map(|finding| format!("{finding}\n")).collect()),
    }
}

pub fn file(cx: &mut Cx, fs: &Xfs, dir: Ino, name: &str) -> Ino {
    let made = fs.create(cx, dir, name.as_bytes(), &NewNode::new(FileType::Regular, 0o640));
    made.unwrap_or_else(|errno| panic!("create {name}: {errno} {:?}", fs.error())).ino
}

pub fn mkdir(cx: &mut Cx, fs: &Xfs, dir: Ino, name: &str) -> Ino {
    let made = fs.create(cx, dir, name.as_bytes(), &NewNode::new(FileType::Directory, 0o755));
    made.unwrap_or_else(|errno| panic!("mkdir {name}: {errno} {:?}", fs.error())).ino
}

/// The paths of all names.
pub type Tree = BTreeSet<String>;

/// All names of a file system.
pub fn tree(cx: &mut Cx, fs: &Xfs) -> Tree {
    let mut found = Tree::new();
    let mut folders = vec![(String::new(), fs.root())];
    while let Some((path, dir)) = folders.pop() {
        let mut names = Vec::new();
        fs.readdir(cx, dir, 0, &mut |entry| {
            names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
            true
        })
        .expect("the directory can be listed");
        for (name, ino) in names.into_iter().filter(|(name, _)| name != "." && name != "..") {
            let child = format!("{path}/{name}");
            if fs.getattr(cx, ino).expect("getattr").is_dir() {
                folders.push((child.clone(), ino));
            }
            found.insert(child);
        }
    }
    found
}
