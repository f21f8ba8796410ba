//! The XFS that names beside the kernel are measured on, and profiled.

use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::Cx;
use std::sync::Arc;
use xfs::{MkfsOptions, MountOptions, Xfs};

/// Bytes of the image.
pub const SIZE: u64 = 2 << 30;

/// A fresh one in memory, mounted.
pub fn mounted(cx: &mut Cx) -> Arc<Xfs> {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("queue");
    xfs::mkfs(cx, &queue, &MkfsOptions::default()).expect("mkfs");
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    // The kernel keeps as many inodes and names as memory allows.
    let options = MountOptions {
        read_only: false,
        inode_cache: 1 << 18,
        name_cache: 1 << 18,
        buffer_limit_bytes: 1 << 30,
        ..MountOptions::default()
    };
    Xfs::mount(cx, &queue, &pages, options).expect("mount")
}
