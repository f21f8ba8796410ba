//! Metadata speed in the library: creates, stats after a remount and unlinks in one directory in
//! real time, and what the same creates cost in virtual time with a thousand tasks. Run with
//! `cargo bench -p iopath-ext4 --bench meta`; the ordinary tests run it with tiny sizes.

#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

use base::Ino;
use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::{Ext4, MkfsOptions, MountOptions};
use rt::{Cx, Runtime, World, WorldConfig};
use std::sync::Arc;
use std::time::Instant;
use vfs::{FileSystem, FileType, NewNode};

fn queue(cx: &Cx, device: Arc<MemoryDevice>) -> Arc<Queue> {
    Queue::new(cx.runtime(), device, QueueConfig::default()).expect("queue")
}

fn fresh(cx: &mut Cx) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(4 << 30));
    let queue = queue(cx, device.clone());
    ext4::mkfs(cx, &queue, &MkfsOptions::default()).expect("mkfs");
    device
}

fn mount(cx: &mut Cx, device: &Arc<MemoryDevice>) -> Arc<Ext4> {
    let queue = queue(cx, device.clone());
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    Ext4::mount(cx, &queue, &pages, MountOptions::default()).expect("mount")
}

fn make(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, kind: FileType, name: &str) -> Ino {
    fs.create(cx, dir, name.as_bytes(), &NewNode::new(kind, 0o755)).expect("create").ino
}

/// CPU seconds that this process has used: what a busy machine does not add to.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs `count` operations and prints the rate by the clock, and by the CPU time.
fn rate(what: &str, count: u64, mut operation: impl FnMut(u64)) {
    let (start, cpu) = (Instant::now(), cpu_seconds());
    (0..count).for_each(&mut operation);
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let count_f = count as f64;
    println!(
        "| {what} | {count} | {:.0}/s, {:.0} in a CPU second | measured |",
        count_f / seconds,
        count_f / cpu
    );
}

fn one_directory(count: u64) {
    Runtime::real(1).enter("bench", |cx| {
        let device = fresh(cx);
        let fs = mount(cx, &device);
        let dir = make(cx, &*fs, fs.root(), FileType::Directory, "dir");
        rate("create, one directory, 1 thread", count, |n| {
            make(cx, &*fs, dir, FileType::Regular, &format!("file-{n:08}"));
        });
        fs.unmount(cx).expect("unmount");
        let fs = mount(cx, &device);
        let dir = fs.lookup(cx, fs.root(), b"dir").expect("lookup").ino;
        rate("stat after remount", count, |n| {
            fs.lookup(cx, dir, format!("file-{n:08}").as_bytes()).expect("lookup");
        });
        rate("unlink", count, |n| {
            fs.unlink(cx, dir, format!("file-{n:08}").as_bytes()).expect("unlink");
        });
        fs.unmount(cx).expect("unmount");
    });
}

fn hundred_directories(cx: &mut Cx, fs: &dyn FileSystem) -> Arc<[Ino]> {
    let root = fs.root();
    (0..100).map(|n| make(cx, fs, root, FileType::Directory, &format!("d{n}"))).collect()
}

/// `tasks` tasks make `each` files in 100 directories of an own file system.
fn creates_by_tasks(cx: &mut Cx, tasks: u64, each: u64) {
    let device = fresh(cx);
    let fs = mount(cx, &device);
    let dirs = hundred_directories(cx, &*fs);
    let handles: Vec<_> = (0..tasks)
        .map(|task| {
            let (fs, dirs) = (fs.clone(), dirs.clone());
            cx.spawn("creator", move |cx| {
                let dir = dirs[(task % 100) as usize];
                for n in 0..each {
                    make(cx, &*fs, dir, FileType::Regular, &format!("file-{task}-{n}"));
                    cx.yield_now();
                }
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join(cx));
    fs.shutdown_hard();
}

/// The same creates in the same order by one task.
fn creates_by_one(cx: &mut Cx, tasks: u64, each: u64) {
    let device = fresh(cx);
    let fs = mount(cx, &device);
    let dirs = hundred_directories(cx, &*fs);
    for n in 0..each {
        for task in 0..tasks {
            let dir = dirs[(task % 100) as usize];
            make(cx, &*fs, dir, FileType::Regular, &format!("file-{task}-{n}"));
        }
    }
    fs.shutdown_hard();
}

fn two_clocks(tasks: u64, each: u64) {
    let start = cpu_seconds();
    Runtime::real(1).enter("bench", |cx| creates_by_one(cx, tasks, each));
    let real = cpu_seconds() - start;
    let start = cpu_seconds();
    let mut world = World::new(WorldConfig::default());
    world.run("bench", |cx| creates_by_tasks(cx, tasks, each));
    drop(world);
    let virt = cpu_seconds() - start;
    let count = tasks * each;
    println!(
        "| creates by {tasks} tasks in virtual time | {count} | {:.0} in a CPU second: {:.2} times \
         the CPU time of one real thread ({:.0}) | measured |",
        count as f64 / virt,
        virt / real,
        count as f64 / real
    );
}

fn main() {
    // `cargo test` runs benches without `--bench`: then the sizes are tiny.
    let full = std::env::args().any(|arg| arg == "--bench");
    let (names, tasks, each) = if full { (100_000, 1000, 100) } else { (500, 20, 5) };
    println!("| work | count | rate | |\n|---|---|---|---|");
    one_directory(names);
    two_clocks(tasks, each);
}
