//! Making, mounting and judging images.

use std::sync::Arc;

use base::Ino;
use block::{Device, Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::{Ext4, MkfsOptions, MountError, MountOptions};
use rt::Cx;
use testkit::judge;
use vfs::{FileSystem, FileType, NewNode};

/// UUID and hash seed of all images, so that every run does the same.
const UUID: &str = "6b1f4c2e-9d3a-4e57-8a10-5c7d2e9f0b34";

/// An image in memory.
#[derive(Clone)]
pub struct Image {
    pub device: Arc<MemoryDevice>,
}

impl Image {
    /// Made by mke2fs with these arguments (`-t ext4 -b 1024 ..`) and debugfs commands.
    pub fn tuned(args: &str, size_mib: u64, tune: &str) -> Image {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("image");
        let fixed = format!("-U {UUID} -E hash_seed={UUID} {args}");
        let args: Vec<&str> = fixed.split_whitespace().collect();
        judge::mke2fs(&path, size_mib << 20, &args);
        if !tune.is_empty() {
            judge::debugfs(&path, true, tune);
        }
        let bytes = std::fs::read(&path).expect("the image can be read");
        Image { device: Arc::new(MemoryDevice::from_image(&bytes)) }
    }

    /// Made by mke2fs with these arguments.
    pub fn new(args: &str, size_mib: u64) -> Image {
        Image::tuned(args, size_mib, "")
    }

    /// Made by our own mkfs.
    pub fn ours(cx: &mut Cx, kind: &str, block_size: u32, size_mib: u64) -> Image {
        let device = Arc::new(MemoryDevice::new(size_mib << 20));
        let queue = Queue::new(cx.runtime(), device.clone(), QueueConfig::default());
        let options = MkfsOptions {
            fstype: kind.parse().expect("a known type"),
            block_size: Some(block_size),
            ..MkfsOptions::default()
        };
        ext4::mkfs(cx, &queue.expect("a queue"), &options).expect("a file system");
        Image { device }
    }

    /// Mounts it.
    pub fn mount(&self, cx: &mut Cx) -> Arc<Ext4> {
        mount_device(cx, self.device.clone())
    }

    /// Asks e2fsck; the panic names the image that it keeps.
    pub fn check(&self) {
        judge::e2fsck_device(&self.device).unwrap_or_else(|message| panic!("{message}"));
    }

    /// The image as a file, for other judges.
    pub fn to_file(&self) -> tempfile::NamedTempFile {
        testkit::image::write_device(&self.device)
    }
}

/// Mounts what is on a device.
pub fn mount_device(cx: &mut Cx, device: Arc<dyn Device>) -> Arc<Ext4> {
    try_mount(cx, device).expect("the image mounts")
}

/// Mounts what is on a device, if it can be mounted.
pub fn try_mount(cx: &mut Cx, device: Arc<dyn Device>) -> Result<Arc<Ext4>, MountError> {
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default());
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    let options = MountOptions::default();
    Ext4::mount(cx, &queue.expect("a queue"), &pages, options)
}

/// Unmounts and asks e2fsck.
pub fn close(cx: &mut Cx, fs: Arc<Ext4>, image: &Image) {
    fs.unmount(cx).expect("the unmount succeeds");
    drop(fs);
    image.check();
}

/// Creates an empty regular file.
pub fn touch(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, name: &[u8]) -> Ino {
    let node = NewNode::new(FileType::Regular, 0o644);
    fs.create(cx, dir, name, &node).unwrap_or_else(|e| panic!("{}: {e}", lossy(name))).ino
}

/// Creates a directory.
pub fn mkdir(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, name: &[u8]) -> Ino {
    let node = NewNode::new(FileType::Directory, 0o755);
    fs.create(cx, dir, name, &node).unwrap_or_else(|e| panic!("{}: {e}", lossy(name))).ino
}

/// All names of a directory but `.` and `..`, in the order of the listing.
pub fn list(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    let mut all = Vec::new();
    fs.readdir(cx, dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            all.push((entry.name.to_vec(), entry.ino));
        }
        true
    })
    .expect("the directory can be listed");
    all
}

/// A name for messages.
pub fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The types and block sizes that most tests go through.
pub const SHAPES: [&str; 9] = [
    "-t ext2 -b 1024",
    "-t ext2 -b 4096 -O ^dir_index",
    "-t ext3 -b 1024",
    "-t ext3 -b 4096 -I 128",
    "-t ext4 -b 1024",
    "-t ext4 -b 2048 -O metadata_csum_seed",
    "-t ext4 -b 4096",
    "-t ext4 -b 1024 -O ^metadata_csum,^64bit,uninit_bg",
    "-t ext2 -b 1024 -O ^filetype",
];
