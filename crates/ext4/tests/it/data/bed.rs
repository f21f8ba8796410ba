//! A test bed: an image made by mke2fs on a memory device, mounted, and judged by e2fsck.

use std::sync::Arc;

use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::{Ext4, MountOptions};
use rt::{Cx, Runtime, World, WorldConfig};
use testkit::judge;

/// A device with a file system on it.
pub struct Bed {
    pub device: Arc<MemoryDevice>,
    pub cache: PageCacheConfig,
    pub options: MountOptions,
}

impl Bed {
    /// An image of `size` bytes made by `mke2fs args`.
    pub fn new(size: u64, args: &[&str]) -> Bed {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        judge::mke2fs(file.path(), size, args);
        Bed::on(testkit::image::load(file.path()))
    }

    /// On what a device holds.
    pub fn on(device: MemoryDevice) -> Bed {
        Bed {
            device: Arc::new(device),
            cache: PageCacheConfig::with_limit(64 << 20),
            options: MountOptions::default(),
        }
    }

    /// Mounts the device as it is now.
    pub fn mount(&self, cx: &mut Cx) -> Arc<Ext4> {
        self.try_mount(cx).expect("the image can be mounted")
    }

    pub fn try_mount(&self, cx: &mut Cx) -> Result<Arc<Ext4>, ext4::MountError> {
        let runtime = cx.runtime().clone();
        let queue = Queue::new(&runtime, self.device.clone(), QueueConfig::elevator("none"));
        let queue = queue.expect("the elevator exists");
        let pages = PageCache::new(&runtime, self.cache.clone());
        Ext4::mount(cx, &queue, &pages, self.options.clone())
    }

    /// Has e2fsck look at the device.
    pub fn judge(&self) {
        if let Err(report) = judge::e2fsck_device(&self.device) {
            let keep = std::env::temp_dir().join("iopath-failed.img");
            let _ = std::fs::write(&keep, self.device.snapshot());
            panic!("e2fsck is not content (image kept as {}):\n{report}", keep.display());
        }
    }
}

/// Runs `test` in virtual time.
pub fn world<T>(seed: u64, test: impl FnOnce(&mut Cx) -> T) -> T {
    World::new(WorldConfig { seed, ..WorldConfig::default() }).run("test", test)
}

/// Runs `test` in real time.
pub fn real<T>(test: impl FnOnce(&mut Cx) -> T) -> T {
    Runtime::real(2).enter("test", test)
}

/// The formats that tests go over: a name and mke2fs's arguments.
pub const FORMATS: &[(&str, &[&str])] = &[
    ("ext4", &["-t", "ext4"]),
    ("ext4 of 1 KiB blocks", &["-t", "ext4", "-b", "1024"]),
    ("ext4 with orphan file", &["-t", "ext4", "-O", "orphan_file"]),
    ("ext4 without journal", &["-t", "ext4", "-O", "^has_journal"]),
    ("ext4 without checksums", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"]),
    ("ext3", &["-t", "ext3"]),
    ("ext3 of 1 KiB blocks", &["-t", "ext3", "-b", "1024"]),
    ("ext2", &["-t", "ext2"]),
    ("ext2 of 128-byte inodes", &["-t", "ext2", "-b", "2048", "-I", "128"]),
];
