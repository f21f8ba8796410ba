//! Creating and unlinking many names with each variant of buffer items, at several sizes of
//! directory blocks: the workload of the thread on buffer items, on this machine and in memory.
//!
//! `cargo bench -p iopath-xfs --bench create_unlink -- TASKS NAMES ROUNDS`: variants take turns,
//! the least time of the rounds counts. `--test` does everything once with few names.

use std::sync::Arc;

use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use rt::{Cx, Runtime};
use vfs::{FileSystem, FileType, NewNode};
use xfs::log::buf_item::walk::Variant;
use xfs::{MkfsOptions, MountOptions, Xfs};

/// Times of one run in nanoseconds, and what the log wrote.
#[derive(Clone, Copy)]
struct Taken {
    create: u64,
    unlink: u64,
    log_bytes: u64,
}

impl Taken {
    fn least(self, other: Taken) -> Taken {
        Taken {
            create: self.create.min(other.create),
            unlink: self.unlink.min(other.unlink),
            ..other
        }
    }
}

fn mounted(cx: &mut Cx, variant: Variant, dir_block: u32) -> Arc<Xfs> {
    let device = Arc::new(MemoryDevice::new(2 << 30));
    let config = QueueConfig::elevator("none");
    let queue = Queue::new(cx.runtime(), device, config).expect("a queue");
    let options = MkfsOptions {
        dir_block_size: Some(dir_block),
        log_size: Some(256 << 20),
        assume_zeroes: true,
        ..MkfsOptions::default()
    };
    xfs::mkfs(cx, &queue, &options).expect("mkfs");
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    let options = MountOptions { read_only: false, buf_item: variant, ..MountOptions::default() };
    Xfs::mount(cx, &queue, &pages, options).expect("a mount")
}

/// Every task makes `names` files in a directory of its own, then unlinks them.
fn run(cx: &mut Cx, variant: Variant, dir_block: u32, tasks: usize, names: usize) -> Taken {
    let fs = mounted(cx, variant, dir_block);
    let root = fs.root();
    let dirs: Vec<_> = (0..tasks)
        .map(|task| {
            let node = NewNode::new(FileType::Directory, 0o755);
            fs.create(cx, root, format!("dir{task}").as_bytes(), &node).expect("mkdir").ino
        })
        .collect();
    let each = |cx: &mut Cx, unlink: bool| {
        let start = cx.now();
        let running: Vec<_> = dirs
            .iter()
            .map(|&dir| {
                let fs = fs.clone();
                cx.spawn("worker", move |cx| {
                    for number in 0..names {
                        let name = format!("file-{number:08}");
                        if unlink {
                            fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
                        } else {
                            let node = NewNode::new(FileType::Regular, 0o644);
                            fs.create(cx, dir, name.as_bytes(), &node).expect("create");
                        }
                    }
                })
            })
            .collect();
        running.into_iter().for_each(|task| task.join(cx));
        fs.sync(cx).expect("sync");
        cx.now().since(start).0
    };
    let create = each(cx, false);
    let unlink = each(cx, true);
    let log_bytes = fs.queue().stats().write_bytes;
    fs.unmount(cx).expect("unmount");
    Taken { create, unlink, log_bytes }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let testing = args.iter().any(|arg| arg == "--test") || !args.iter().any(|a| a == "--bench");
    let (tasks, names, rounds) = match (&numbers[..], testing) {
        (&[tasks, names, rounds], _) => (tasks, names, rounds),
        (_, true) => (2, 200, 1),
        _ => (2, 50_000, 3),
    };
    Runtime::real(2).enter("bench", |cx| {
        println!("{tasks} tasks, {names} names each, the least of {rounds} rounds");
        println!(
            "{:>9} {:>11} {:>11} {:>11} {:>9}",
            "dir block", "variant", "creates/s", "unlinks/s", "MB written"
        );
        for dir_block in [4096, 16384, 65536] {
            let mut taken: [Option<Taken>; 3] = [None; 3];
            for _ in 0..rounds {
                for (slot, variant) in taken.iter_mut().zip(Variant::ALL) {
                    let now = run(cx, variant, dir_block, tasks, names);
                    *slot = Some(slot.map_or(now, |least| least.least(now)));
                }
            }
            for (taken, variant) in taken.iter().flatten().zip(Variant::ALL) {
                let rate = |nanos: u64| (tasks * names) as f64 * 1e9 / nanos.max(1) as f64;
                println!(
                    "{dir_block:>9} {:>11} {:>11.0} {:>11.0} {:>9}",
                    format!("{variant:?}"),
                    rate(taken.create),
                    rate(taken.unlink),
                    taken.log_bytes >> 20
                );
            }
        }
    });
}
