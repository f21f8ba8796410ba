//! Creates, stats and removes per second beside the kernel's loop mount of XFS. Run with
//! `cargo bench -p iopath-xfs --bench kernel` as root; the ordinary tests run it with tiny sizes.

use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use std::sync::Arc;
use testkit::beside_kernel::{Side, compare};
use testkit::judge;
use xfs::{MkfsOptions, MountOptions, Xfs};

const SIZE: u64 = 2 << 30;

fn main() {
    compare(&Side {
        kind: "xfs",
        make: &|image| {
            let file = std::fs::File::create(image).expect("the image can be created");
            file.set_len(SIZE).expect("the image takes its size");
            judge::run_ok("mkfs.xfs", &[&"-q", &image]);
        },
        mount: &|cx| {
            let device = Arc::new(MemoryDevice::new(SIZE));
            let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("queue");
            xfs::mkfs(cx, &queue, &MkfsOptions::default()).expect("mkfs");
            let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
            let options = MountOptions { read_only: false, ..MountOptions::default() };
            Xfs::mount(cx, &queue, &pages, options).expect("mount")
        },
    });
}
