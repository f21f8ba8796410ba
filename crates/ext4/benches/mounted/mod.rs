//! The ext4 that names beside the kernel are measured on, and profiled.

use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::{Ext4, MkfsOptions, MountOptions};
use rt::Cx;
use std::sync::Arc;

/// Bytes of the image.
pub const SIZE: u64 = 2 << 30;

/// A fresh one in memory, mounted.
pub fn mounted(cx: &mut Cx) -> Arc<Ext4> {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("queue");
    let options = MkfsOptions { inodes_count: Some(400_000), ..MkfsOptions::default() };
    ext4::mkfs(cx, &queue, &options).expect("mkfs");
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    // The kernel keeps as many inodes and names as memory allows.
    let options = MountOptions {
        inode_cache: 1 << 18,
        name_cache: 1 << 18,
        buffer_limit_bytes: 1 << 30,
        ..MountOptions::default()
    };
    Ext4::mount(cx, &queue, &pages, options).expect("mount")
}
