//! Runs COUNT operations of one kind on an XFS in memory, for counting instructions per operation:
//! `xfs_operations create|create-parents|unlink COUNT`; `create-parents` with a pointer from each
//! file to its directory. The same for ext4 is `operations` of its crate.

use std::sync::Arc;

use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::{Cx, World, WorldConfig};
use vfs::{FileSystem, FileType, NewNode};
use xfs::{MkfsOptions, MountOptions, Xfs};

/// Names that exist before `unlink` begins; more than any count, so that the set-up costs the same
/// whatever the count is.
const NAMES: u64 = 10_000;

fn name(n: u64) -> String {
    format!("file-{n:08}")
}

fn mount(cx: &mut Cx, parent: bool) -> Arc<Xfs> {
    let device = Arc::new(MemoryDevice::new(1 << 30));
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("queue");
    let options = MkfsOptions { assume_zeroes: true, parent, ..MkfsOptions::default() };
    xfs::mkfs(cx, &queue, &options).expect("mkfs");
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    let options = MountOptions { read_only: false, ..MountOptions::default() };
    Xfs::mount(cx, &queue, &pages, options).expect("mount")
}

fn create(cx: &mut Cx, fs: &Xfs, count: u64) {
    let node = NewNode::new(FileType::Regular, 0o644);
    for n in 0..count {
        fs.create(cx, fs.root(), name(n).as_bytes(), &node).expect("create");
    }
}

fn run(cx: &mut Cx, operation: &str, count: u64) {
    let fs = mount(cx, operation == "create-parents");
    match operation {
        "create" | "create-parents" => create(cx, &fs, count),
        "unlink" => {
            create(cx, &fs, NAMES);
            for n in 0..count {
                fs.unlink(cx, fs.root(), name(n).as_bytes()).expect("unlink");
            }
        }
        other => panic!("unknown operation {other}: create, create-parents or unlink"),
    }
    // The process ends here: what is not written out is not part of the count.
    fs.shutdown_hard();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, operation, count] = &args[..] else {
        eprintln!("usage: xfs_operations create|create-parents|unlink COUNT");
        std::process::exit(2);
    };
    let count: u64 = count.parse().expect("COUNT is a number");
    assert!(count <= NAMES, "COUNT is at most {NAMES}");
    // In virtual time with one seed: no thread beside this one counts, and two runs whose counts
    // are subtracted differ in nothing else.
    let config = WorldConfig { seed: 1, cpus: 1, ..WorldConfig::default() };
    World::new(config).run("operations", |cx| run(cx, operation, count));
}
