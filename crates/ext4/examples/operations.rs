//! Runs COUNT operations of one kind on an ext4 in memory, for counting instructions per
//! operation: `operations create|stat|unlink|append COUNT`.

use base::Ino;
use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::{Ext4, MkfsOptions, MountOptions};
use rt::{Cx, World, WorldConfig};
use std::sync::Arc;
use vfs::{FileSystem, FileType, NewNode};

/// Names that exist before `stat` and `unlink` begin; more than any count, so that the set-up costs
/// the same whatever the count is.
const NAMES: u64 = 10_000;

fn name(n: u64) -> String {
    format!("file-{n:08}")
}

fn mount(cx: &mut Cx) -> Arc<Ext4> {
    let device = Arc::new(MemoryDevice::new(1 << 30));
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("queue");
    ext4::mkfs(cx, &queue, &MkfsOptions::default()).expect("mkfs");
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    Ext4::mount(cx, &queue, &pages, MountOptions::default()).expect("mount")
}

fn create(cx: &mut Cx, fs: &Ext4, dir: Ino, count: u64) {
    let node = NewNode::new(FileType::Regular, 0o644);
    for n in 0..count {
        fs.create(cx, dir, name(n).as_bytes(), &node).expect("create");
    }
}

fn run(cx: &mut Cx, operation: &str, count: u64) {
    let fs = mount(cx);
    let root = fs.root();
    match operation {
        "create" => create(cx, &fs, root, count),
        "stat" => {
            create(cx, &fs, root, NAMES);
            for n in 0..count {
                fs.lookup(cx, root, name(n).as_bytes()).expect("lookup");
            }
        }
        "unlink" => {
            create(cx, &fs, root, NAMES);
            for n in 0..count {
                fs.unlink(cx, root, name(n).as_bytes()).expect("unlink");
            }
        }
        "append" => {
            create(cx, &fs, root, 1);
            let file = fs.lookup(cx, root, name(0).as_bytes()).expect("lookup").ino;
            for n in 0..count {
                fs.write(cx, file, n * 4096, &[7; 4096]).expect("write");
            }
        }
        other => panic!("unknown operation {other}: create, stat, unlink or append"),
    }
    // The process ends here: what is not written out is not part of the count.
    fs.shutdown_hard();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, operation, count] = &args[..] else {
        eprintln!("usage: operations create|stat|unlink|append COUNT");
        std::process::exit(2);
    };
    let count: u64 = count.parse().expect("COUNT is a number");
    assert!(count <= NAMES, "COUNT is at most {NAMES}");
    // In virtual time with one seed: no thread beside this one counts, and two runs whose counts
    // are subtracted differ in nothing else.
    let config = WorldConfig { seed: 1, cpus: 1, ..WorldConfig::default() };
    World::new(config).run("operations", |cx| run(cx, operation, count));
}
