//! Creates, stats and removes per second in one large directory, by one thread and by two: a file
//! system of ours in this process beside the kernel's loop mount of an image of the same shape,
//! both in memory, in turns. The bench `kernel` of each file system calls [`compare`].
//!
//! Ours is measured through paths, with the walk and the permissions that a system call does, and
//! below them, by inode numbers, as FUSE, NFS and mds-survey call it. Beside the clock on the wall
//! stands the processor time of the process in an operation: a busy machine changes it less. The
//! kernel's leaves out what its journal and its loop device do in threads of their own; ours has
//! everything.

#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]

use base::Ino;
use rt::{Cx, Runtime};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use vfs::{FileSystem, FileType, Namespace, NewNode, OpenFlags};

use crate::judge;

const PHASES: [&str; 3] = ["create", "stat", "remove"];
/// How often each name is looked at: a single pass is over too soon to be measured.
const PASSES: [u64; 3] = [1, 4, 1];
const SIDES: usize = 3;

/// The names of a thread.
type Names = Arc<Vec<String>>;

/// What a phase took, in nanoseconds of an operation.
#[derive(Clone, Copy)]
struct Took {
    wall: f64,
    cpu: f64,
}

fn old_name(n: u64) -> String {
    format!("old-{n:08}")
}

/// The names of each thread, below `dir`: made before, since making them takes as long as a stat.
fn new_names(dir: &str, count: u64) -> [Names; 2] {
    let name = |thread, n| format!("{dir}new-{thread}-{n:08}");
    [0, 1].map(|thread| Arc::new((0..count).map(|n| name(thread, n)).collect()))
}

fn cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// All phases, each done by all threads at once before the next begins.
fn phases(names: &[Names], mut run: impl FnMut(usize)) -> [Took; 3] {
    let files: u64 = names.iter().map(|names| names.len() as u64).sum();
    std::array::from_fn(|phase| {
        let (start, cpu) = (Instant::now(), cpu_nanos());
        (0..PASSES[phase]).for_each(|_| run(phase));
        let count = (files * PASSES[phase]) as f64;
        Took { wall: start.elapsed().as_nanos() as f64 / count, cpu: (cpu_nanos() - cpu) / count }
    })
}

/// The image that both sides work on.
pub struct Side<'a> {
    /// The kernel's name of the format.
    pub kind: &'a str,
    /// Makes the kernel's image at a path of an empty file.
    pub make: &'a dyn Fn(&Path),
    /// Makes and mounts ours, in memory.
    pub mount: &'a dyn Fn(&mut Cx) -> Arc<dyn FileSystem>,
}

/// The kernel's mount.
struct Kernel {
    names: [Names; 2],
    _mount: judge::LoopMount,
    _image: tempfile::NamedTempFile,
}

impl Kernel {
    fn new(side: &Side<'_>, names: u64, count: u64) -> Kernel {
        let shm = Path::new("/dev/shm");
        let place = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        let image = tempfile::NamedTempFile::new_in(place).expect("a file for the image");
        (side.make)(image.path());
        let mount =
            judge::LoopMount::new(image.path(), side.kind, "rw").expect("the kernel mounts");
        let dir = mount.path().join("dir");
        fs::create_dir(&dir).expect("mkdir");
        let dir = format!("{}/", dir.display());
        for n in 0..names {
            kernel_operation(0, &format!("{dir}{}", old_name(n)));
        }
        Kernel { names: new_names(&dir, count), _mount: mount, _image: image }
    }

    fn measure(&self, threads: usize) -> [Took; 3] {
        let names = &self.names[..threads];
        phases(names, |phase| {
            std::thread::scope(|scope| {
                for names in names {
                    scope.spawn(move || {
                        names.iter().for_each(|path| kernel_operation(phase, path));
                    });
                }
            });
        })
    }
}

fn kernel_operation(phase: usize, path: &str) {
    match phase {
        0 => {
            let mut options = fs::OpenOptions::new();
            options.write(true).create_new(true).open(path).expect("create");
        }
        1 => {
            fs::symlink_metadata(path).expect("stat");
        }
        _ => fs::remove_file(path).expect("remove"),
    }
}

/// Ours.
#[derive(Clone)]
struct Ours {
    fs: Arc<dyn FileSystem>,
    names: Namespace,
    dir: Ino,
}

impl Ours {
    fn new(cx: &mut Cx, side: &Side<'_>, names: u64) -> Ours {
        let fs = (side.mount)(cx);
        let node = NewNode::new(FileType::Directory, 0o755);
        let dir = fs.create(cx, fs.root(), b"dir", &node).expect("mkdir").ino;
        let ours = Ours { names: Namespace::new(fs.clone()), fs, dir };
        for n in 0..names {
            ours.by_inode(cx, 0, old_name(n).as_bytes());
        }
        ours
    }

    fn measure(
        &self,
        cx: &mut Cx,
        names: &[Names],
        operation: fn(&Ours, &mut Cx, usize, &[u8]),
    ) -> [Took; 3] {
        phases(names, |phase| {
            let tasks: Vec<_> = names
                .iter()
                .map(|names| {
                    let (ours, names) = (self.clone(), names.clone());
                    cx.spawn("bench", move |cx| {
                        let each = |name: &String| operation(&ours, cx, phase, name.as_bytes());
                        names.iter().for_each(each);
                    })
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join(cx));
        })
    }

    fn by_path(&self, cx: &mut Cx, phase: usize, path: &[u8]) {
        match phase {
            0 => {
                let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::WRITE;
                let file = self.names.open(cx, path, flags, 0o644).expect("create");
                file.close(cx).expect("close");
            }
            1 => {
                self.names.lstat(cx, path).expect("stat");
            }
            _ => self.names.unlink(cx, path).expect("remove"),
        }
    }

    fn by_inode(&self, cx: &mut Cx, phase: usize, name: &[u8]) {
        match phase {
            0 => {
                let node = NewNode::new(FileType::Regular, 0o644);
                self.fs.create(cx, self.dir, name, &node).expect("create");
            }
            1 => {
                self.fs.lookup(cx, self.dir, name).expect("stat");
            }
            _ => self.fs.unlink(cx, self.dir, name).expect("remove"),
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A phase with so many threads: rates of the kernel, ours by paths and by inodes; the medians of
/// the rounds.
fn row(phase: &str, threads: usize, sides: &[Vec<Took>; SIDES]) {
    let wall = sides.each_ref().map(|side| median(side.iter().map(|took| took.wall)));
    let cpu = sides.each_ref().map(|side| median(side.iter().map(|took| took.cpu)));
    let rate = wall.map(|nanos| 1e9 / nanos);
    println!(
        "| {phase} | {threads} | {:.0} | {:.0} | {:.2} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} |",
        rate[0],
        rate[1],
        rate[1] / rate[0],
        rate[2],
        rate[2] / rate[0],
        cpu[0] / 1e3,
        cpu[1] / 1e3,
        cpu[2] / 1e3,
    );
}

/// Prints a table of rates: a directory of 100,000 names, or of 200 unless the program was started
/// by `cargo bench` (`cargo test` runs benches as well). Needs root for the kernel's mount; with
/// `--ours` the kernel's side is left out.
///
/// # Panics
/// If an operation of either side fails.
pub fn compare(side: &Side<'_>) {
    let full = std::env::args().any(|arg| arg == "--bench");
    let (names, count, rounds) = if full { (100_000, 50_000, 5) } else { (200, 50, 1) };
    let ours_alone = std::env::args().any(|arg| arg == "--ours");
    let kernel = (!ours_alone).then(|| Kernel::new(side, names, count));
    let no_kernel = [Took { wall: f64::NAN, cpu: f64::NAN }; 3];
    let (paths, inodes) = (new_names("/dir/", count), new_names("", count));
    println!(
        "{}, {names} names before, {count} files of each thread, {rounds} rounds, measured:\n",
        side.kind
    );
    println!(
        "| | threads | kernel/s | paths/s | ratio | inodes/s | ratio | kernel, CPU us | paths | \
         inodes |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    Runtime::real(2).enter("bench", |cx| {
        let ours = Ours::new(cx, side, names);
        for threads in [1, 2] {
            let mut all: [[Vec<Took>; SIDES]; 3] = Default::default();
            for _ in 0..rounds {
                let round = [
                    kernel.as_ref().map_or(no_kernel, |kernel| kernel.measure(threads)),
                    ours.measure(cx, &paths[..threads], Ours::by_path),
                    ours.measure(cx, &inodes[..threads], Ours::by_inode),
                ];
                for (phase, sides) in all.iter_mut().enumerate() {
                    sides.iter_mut().zip(&round).for_each(|(side, took)| side.push(took[phase]));
                }
            }
            for (phase, sides) in PHASES.iter().zip(&all) {
                row(phase, threads, sides);
            }
        }
        ours.fs.shutdown_hard();
    });
}
