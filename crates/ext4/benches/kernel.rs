//! Creates, stats and removes per second in one directory of 100,000 names, by one thread and by
//! two: ours in this process beside the kernel's loop mount of an image of the same shape, both in
//! memory, in turns. Run with `cargo bench -p iopath-ext4 --bench kernel` as root; the ordinary
//! tests run it with tiny sizes.

#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

use base::Ino;
use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::{Ext4, MkfsOptions, MountOptions};
use rt::{Cx, Runtime};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use testkit::judge;
use vfs::{FileSystem, FileType, NewNode};

const PHASES: [&str; 3] = ["create", "stat", "remove"];
const SIZE: u64 = 2 << 30;

/// Operations per second by phase.
type Rates = [f64; 3];

fn old_name(n: u64) -> String {
    format!("old-{n:08}")
}

fn new_name(thread: u64, n: u64) -> String {
    format!("new-{thread}-{n:08}")
}

/// Seconds of all phases, each done by all threads at once before the next begins.
fn phases(mut run: impl FnMut(usize)) -> [f64; 3] {
    std::array::from_fn(|phase| {
        let start = Instant::now();
        run(phase);
        start.elapsed().as_secs_f64()
    })
}

/// The kernel's mount.
struct Kernel {
    dir: PathBuf,
    _mount: judge::LoopMount,
    _image: tempfile::NamedTempFile,
}

impl Kernel {
    fn new(names: u64) -> Kernel {
        let shm = Path::new("/dev/shm");
        let place = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        let image = tempfile::NamedTempFile::new_in(place).expect("a file for the image");
        judge::mke2fs(image.path(), SIZE, &["-t", "ext4", "-N", "400000"]);
        let mount = judge::LoopMount::new(image.path(), "ext4", "rw").expect("the kernel mounts");
        let dir = mount.path().join("dir");
        fs::create_dir(&dir).expect("mkdir");
        for n in 0..names {
            kernel_operation(&dir, 0, &old_name(n));
        }
        Kernel { dir, _mount: mount, _image: image }
    }

    fn rates(&self, threads: u64, count: u64) -> Rates {
        phases(|phase| {
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    scope.spawn(move || {
                        for n in 0..count {
                            kernel_operation(&self.dir, phase, &new_name(thread, n));
                        }
                    });
                }
            });
        })
        .map(|seconds| (threads * count) as f64 / seconds)
    }
}

fn kernel_operation(dir: &Path, phase: usize, name: &str) {
    let path = dir.join(name);
    match phase {
        0 => {
            OpenOptions::new().write(true).create_new(true).open(path).expect("create");
        }
        1 => {
            fs::symlink_metadata(path).expect("stat");
        }
        _ => fs::remove_file(path).expect("remove"),
    }
}

/// Ours.
struct Ours {
    fs: Arc<Ext4>,
    dir: Ino,
}

impl Ours {
    fn new(cx: &mut Cx, names: u64) -> Ours {
        let device = Arc::new(MemoryDevice::new(SIZE));
        let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("queue");
        let options = MkfsOptions { inodes_count: Some(400_000), ..MkfsOptions::default() };
        ext4::mkfs(cx, &queue, &options).expect("mkfs");
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
        let fs = Ext4::mount(cx, &queue, &pages, MountOptions::default()).expect("mount");
        let node = NewNode::new(FileType::Directory, 0o755);
        let dir = fs.create(cx, fs.root(), b"dir", &node).expect("mkdir").ino;
        for n in 0..names {
            our_operation(cx, &fs, dir, 0, &old_name(n));
        }
        Ours { fs, dir }
    }

    fn rates(&self, cx: &mut Cx, threads: u64, count: u64) -> Rates {
        phases(|phase| {
            let tasks: Vec<_> = (0..threads)
                .map(|thread| {
                    let (fs, dir) = (self.fs.clone(), self.dir);
                    cx.spawn("bench", move |cx| {
                        for n in 0..count {
                            our_operation(cx, &fs, dir, phase, &new_name(thread, n));
                        }
                    })
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join(cx));
        })
        .map(|seconds| (threads * count) as f64 / seconds)
    }
}

fn our_operation(cx: &mut Cx, fs: &Ext4, dir: Ino, phase: usize, name: &str) {
    let name = name.as_bytes();
    match phase {
        0 => {
            fs.create(cx, dir, name, &NewNode::new(FileType::Regular, 0o644)).expect("create");
        }
        1 => {
            fs.lookup(cx, dir, name).expect("stat");
        }
        _ => fs.unlink(cx, dir, name).expect("remove"),
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // `cargo test` runs benches without `--bench`: then the sizes are tiny.
    let full = std::env::args().any(|arg| arg == "--bench");
    let (names, count, rounds) = if full { (100_000, 50_000, 5) } else { (200, 50, 1) };
    let kernel = Kernel::new(names);
    println!("| {names} names, {rounds} rounds | threads | kernel/s | ours/s | ratio | |");
    println!("|---|---|---|---|---|---|");
    Runtime::real(2).enter("bench", |cx| {
        let ours = Ours::new(cx, names);
        for threads in [1, 2] {
            let mut all: [[Vec<f64>; 2]; 3] = Default::default();
            for _ in 0..rounds {
                let round = [kernel.rates(threads, count), ours.rates(cx, threads, count)];
                for (phase, sides) in all.iter_mut().enumerate() {
                    sides.iter_mut().zip(&round).for_each(|(side, rates)| side.push(rates[phase]));
                }
            }
            for (phase, [theirs, ours]) in PHASES.iter().zip(&mut all) {
                let (theirs, ours) = (median(theirs), median(ours));
                let ratio = ours / theirs;
                println!(
                    "| {phase} | {threads} | {theirs:.0} | {ours:.0} | {ratio:.2} | measured |"
                );
            }
        }
        ours.fs.shutdown_hard();
    });
}
