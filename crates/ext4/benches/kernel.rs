//! Creates, stats and removes per second beside the kernel's loop mount of ext4. Run with
//! `cargo bench -p iopath-ext4 --bench kernel` as root; the ordinary tests run it with tiny sizes.

use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::{Ext4, MkfsOptions, MountOptions};
use std::sync::Arc;
use testkit::beside_kernel::{Side, compare};
use testkit::judge;

const SIZE: u64 = 2 << 30;

fn main() {
    compare(&Side {
        kind: "ext4",
        make: &|image| judge::mke2fs(image, SIZE, &["-t", "ext4", "-N", "400000"]),
        mount: &|cx| {
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
        },
    });
}
