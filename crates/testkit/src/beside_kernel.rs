//! Creates, stats and removes per second in one large directory, by one thread and by two: a file
//! system of ours in this process beside the kernel's loop mount of an image of the same shape,
//! both in memory, in turns. The bench `kernel` of each file system calls [`compare`].

#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

use base::Ino;
use rt::{Cx, Runtime};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use vfs::{FileSystem, FileType, NewNode};

use crate::judge;

const PHASES: [&str; 3] = ["create", "stat", "remove"];

/// Operations per second by phase.
type Rates = [f64; 3];

/// The image that both sides work on.
pub struct Side<'a> {
    /// The kernel's name of the format.
    pub kind: &'a str,
    /// Makes the kernel's image at a path of an empty file.
    pub make: &'a dyn Fn(&Path),
    /// Makes and mounts ours, in memory.
    pub mount: &'a dyn Fn(&mut Cx) -> Arc<dyn FileSystem>,
}

/// Prints a table of rates: a directory of 100,000 names, or of 200 unless the program was started
/// by `cargo bench` (`cargo test` runs benches as well). Needs root for the kernel's mount.
///
/// # Panics
/// If an operation of either side fails.
pub fn compare(side: &Side<'_>) {
    let full = std::env::args().any(|arg| arg == "--bench");
    let (names, count, rounds) = if full { (100_000, 50_000, 5) } else { (200, 50, 1) };
    let kernel = Kernel::new(side, names);
    println!(
        "| {}, {names} names, {rounds} rounds | threads | kernel/s | ours/s | ratio | |",
        side.kind
    );
    println!("|---|---|---|---|---|---|");
    Runtime::real(2).enter("bench", |cx| {
        let ours = Ours::new(cx, side, names);
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
    fn new(side: &Side<'_>, names: u64) -> Kernel {
        let shm = Path::new("/dev/shm");
        let place = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        let image = tempfile::NamedTempFile::new_in(place).expect("a file for the image");
        (side.make)(image.path());
        let mount =
            judge::LoopMount::new(image.path(), side.kind, "rw").expect("the kernel mounts");
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
    fs: Arc<dyn FileSystem>,
    dir: Ino,
}

impl Ours {
    fn new(cx: &mut Cx, side: &Side<'_>, names: u64) -> Ours {
        let fs = (side.mount)(cx);
        let node = NewNode::new(FileType::Directory, 0o755);
        let dir = fs.create(cx, fs.root(), b"dir", &node).expect("mkdir").ino;
        for n in 0..names {
            our_operation(cx, &*fs, dir, 0, &old_name(n));
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
                            our_operation(cx, &*fs, dir, phase, &new_name(thread, n));
                        }
                    })
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join(cx));
        })
        .map(|seconds| (threads * count) as f64 / seconds)
    }
}

fn our_operation(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, phase: usize, name: &str) {
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
