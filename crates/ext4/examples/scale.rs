//! A directory of very many names, built, walked and emptied on an image file, with the memory that
//! the process took: `scale IMAGE NAMES [TASKS [DIRECTORIES]]`. The image is made anew, sparse.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use base::Ino;
use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::OpenOptions;
use ext4::{Ext4, MkfsOptions, MountOptions};
use rt::{Cx, Runtime};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use vfs::{FileSystem, FileType, NewNode};

fn name(task: u64, n: u64) -> String {
    format!("file.mdtest.{task}.{n}")
}

/// `VmHWM` of this process in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn timed<T>(what: &str, count: u64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    let rate = count as f64 / seconds;
    println!(
        "| {what} | {count} | {seconds:.1} s, {rate:.0}/s | peak {} MiB | measured |",
        peak_mib()
    );
    result
}

/// All tasks work on their directories at once.
fn by_tasks(
    cx: &mut Cx,
    fs: &Arc<Ext4>,
    dirs: &[Ino],
    tasks: u64,
    each: u64,
    work: fn(&mut Cx, &Ext4, Ino, &str),
) {
    let handles: Vec<_> = (0..tasks)
        .map(|task| {
            let (fs, dir) = (fs.clone(), dirs[task as usize % dirs.len()]);
            cx.spawn("scale", move |cx| {
                (0..each).for_each(|n| work(cx, &fs, dir, &name(task, n)));
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join(cx));
}

fn run(cx: &mut Cx, image: &Path, names: u64, tasks: u64, directories: u64) {
    let bytes = (names * 768 + (1 << 30)).next_multiple_of(1 << 20);
    let file = std::fs::File::create(image).expect("the image");
    file.set_len(bytes).expect("a sparse image");
    drop(file);
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let device = device::open(image, options).expect("the image opens");
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("queue");
    let options = MkfsOptions {
        inodes_count: Some((names + 10_000) as u32),
        features: "large_dir".into(),
        assume_zeroes: true,
        ..MkfsOptions::default()
    };
    ext4::mkfs(cx, &queue, &options).expect("mkfs");
    let mount = |cx: &mut Cx| {
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(64 << 20));
        Ext4::mount(cx, &queue, &pages, MountOptions::default()).expect("mount")
    };
    let fs = mount(cx);
    let root = fs.root();
    let node = NewNode::new(FileType::Directory, 0o755);
    let dirs: Vec<Ino> = (0..directories)
        .map(|n| fs.create(cx, root, format!("d{n}").as_bytes(), &node).expect("mkdir").ino)
        .collect();
    let each = names / tasks;
    timed("create", each * tasks, || {
        by_tasks(cx, &fs, &dirs, tasks, each, |cx, fs, dir, name| {
            let node = NewNode::new(FileType::Regular, 0o644);
            fs.create(cx, dir, name.as_bytes(), &node).expect("create");
        });
        fs.unmount(cx).expect("unmount");
    });
    println!("buffers made, dropped, read: {:?}", short(&fs));
    drop(fs);
    let fs = mount(cx);
    timed("walk", each * tasks, || {
        let mut seen = 0;
        for &dir in &dirs {
            fs.readdir(cx, dir, 0, &mut |_| {
                seen += 1;
                true
            })
            .expect("readdir");
        }
        assert_eq!(seen, each * tasks + 2 * directories);
    });
    timed("stat", each * tasks, || {
        by_tasks(cx, &fs, &dirs, tasks, each, |cx, fs, dir, name| {
            fs.lookup(cx, dir, name.as_bytes()).expect("stat");
        });
    });
    timed("remove", each * tasks, || {
        by_tasks(cx, &fs, &dirs, tasks, each, |cx, fs, dir, name| {
            fs.unlink(cx, dir, name.as_bytes()).expect("remove");
        });
        for n in 0..directories {
            fs.rmdir(cx, root, format!("d{n}").as_bytes()).expect("rmdir");
        }
        fs.unmount(cx).expect("unmount");
    });
    println!("buffers made, dropped, read: {:?}", short(&fs));
}

fn short(fs: &Ext4) -> (u64, u64, u64) {
    let stats = fs.buffers().stats();
    (stats.created, stats.reclaimed, stats.device_reads)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        args.get(index).map_or(default, |text| text.parse().expect("a number"))
    };
    let Some(image) = args.first().filter(|_| args.len() >= 2) else {
        eprintln!("usage: scale IMAGE NAMES [TASKS [DIRECTORIES]]");
        std::process::exit(2);
    };
    let (names, tasks, directories) = (number(1, 0), number(2, 1).max(1), number(3, 1).max(1));
    Runtime::real(2).enter("scale", |cx| run(cx, Path::new(image), names, tasks, directories));
}
