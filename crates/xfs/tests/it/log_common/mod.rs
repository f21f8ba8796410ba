//! Images of mkfs.xfs, the log's parts put together, and the outside judges.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part")]

pub mod cut;
pub mod replayed;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{Device, Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::{Engine, OpenOptions};
use rt::{Cx, Runtime};
use testkit::judge;
pub use testkit::judge::xfs_repair as repair;
use xfs::buf::{BufCache, BufCacheConfig};
use xfs::format::{At, Geometry};
use xfs::log::recovery::{Recovered, RecoveryContext, recover};
use xfs::log::{Log, LogGeometry, LogOptions};
use xfs::{MountOptions, Xfs};

/// A directory in memory that vanishes at the end.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    dir.expect("a temporary directory")
}

/// Makes an image with `mkfs.xfs`.
pub fn mkfs(dir: &Path, name: &str, size: u64, args: &[&str]) -> PathBuf {
    let path = dir.join(name);
    let file = std::fs::File::create(&path).expect("the image can be created");
    file.set_len(size).expect("the image takes its size");
    let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"-q", &"-f"];
    all.extend(args.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
    all.push(&path);
    judge::run_ok("mkfs.xfs", &all);
    path
}

/// A copy that keeps the holes.
pub fn copy(from: &Path, to: &Path) {
    judge::run_ok("cp", &[&"--sparse=always", &from, &to]);
}

/// What `xfs_logprint` says; it must not complain.
pub fn logprint(image: &Path, args: &[&str]) -> String {
    let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = Vec::new();
    all.extend(args.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
    all.push(&image);
    let output = judge::run("xfs_logprint", &all);
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "xfs_logprint {args:?}: {}\n{text}", output.status);
    for complaint in ["ERROR", "BAD", "unknown", "Unknown", "illegal", "corrupt", "Left over"] {
        assert!(!text.contains(complaint), "xfs_logprint {args:?} says {complaint}:\n{text}");
    }
    text
}

/// A device, its superblock, and what follows from it.
pub struct Volume {
    pub queue: Arc<Queue>,
    pub geometry: Geometry,
}

impl Volume {
    pub fn open(cx: &mut Cx, image: &Path) -> Volume {
        let options = OpenOptions { write: true, direct: false, engine: Engine::Psync };
        Volume::on(cx, device::open(image, options).expect("the image opens"))
    }

    /// A device without a file system of its own.
    pub fn queue_of(cx: &mut Cx, image: &Path) -> Arc<Queue> {
        let options = OpenOptions { write: true, direct: false, engine: Engine::Psync };
        let device = device::open(image, options).expect("the image opens");
        Queue::new(cx.runtime(), device, QueueConfig::elevator("none")).expect("queue")
    }

    /// Without the right to write.
    pub fn open_to_read(cx: &mut Cx, image: &Path) -> Volume {
        let options = OpenOptions { write: false, direct: false, engine: Engine::Psync };
        Volume::on(cx, device::open(image, options).expect("the image opens"))
    }

    pub fn on(cx: &mut Cx, device: Arc<dyn Device>) -> Volume {
        let queue = Queue::new(cx.runtime(), device, QueueConfig::elevator("none")).expect("queue");
        // As long as a sector can be.
        let start = queue.read(cx, base::Sector(0), 32 << 10).expect("the superblock");
        let geometry = Geometry::parse(&start, At::Super(0)).expect("a superblock");
        Volume { queue, geometry }
    }

    pub fn log(&self) -> LogGeometry {
        LogGeometry::of(&self.geometry)
    }

    pub fn context(&self) -> RecoveryContext {
        RecoveryContext::of(&self.geometry)
    }

    pub fn recover(&self, cx: &mut Cx) -> xfs::Result<Recovered> {
        recover(cx, &self.queue, self.log(), &self.context())
    }

    pub fn bufs(&self) -> Arc<BufCache> {
        let config = BufCacheConfig::of(&self.geometry, 64 << 20);
        BufCache::new(self.queue.clone(), config)
    }

    /// Recovers and starts the log.
    pub fn mount(&self, cx: &mut Cx, options: LogOptions) -> Arc<Log> {
        let recovered = self.recover(cx).expect("recovery");
        assert!(recovered.unfinished.is_empty());
        Log::start(cx, self.bufs(), self.log(), options, recovered.head)
    }
}

/// Mounts an image file for writing, with everything behind the options.
pub fn mount_with(cx: &mut Cx, image: &Path, options: MountOptions) -> Arc<Xfs> {
    let volume = Volume::open(cx, image);
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    Xfs::mount(cx, &volume.queue, &pages, options).expect("the image mounts")
}

/// Mounts an image file for writing.
pub fn mount(cx: &mut Cx, image: &Path) -> Arc<Xfs> {
    mount_with(cx, image, MountOptions { read_only: false, ..MountOptions::default() })
}

/// Runs a test's body in real time.
pub fn real<T>(body: impl FnOnce(&mut Cx) -> T) -> T {
    Runtime::real_seeded(2, 1).enter("test", body)
}
