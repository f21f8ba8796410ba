//! One name after another by its path, in a directory of many, in memory: `paths create|stat COUNT
//! [PASSES [TASKS]]`; for profiles.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use block::{Queue, QueueConfig};
use cache::{PageCache, PageCacheConfig};
use device::MemoryDevice;
use ext4::{Ext4, MkfsOptions, MountOptions};
use rt::{Cx, Runtime};
use std::sync::Arc;
use std::time::Instant;
use vfs::{FileSystem, Namespace, OpenFlags};

fn mount(cx: &mut Cx) -> Arc<Ext4> {
    let device = Arc::new(MemoryDevice::new(2 << 30));
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("queue");
    let options = MkfsOptions { inodes_count: Some(400_000), ..MkfsOptions::default() };
    ext4::mkfs(cx, &queue, &options).expect("mkfs");
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::default());
    let options = MountOptions {
        inode_cache: 1 << 18,
        name_cache: 1 << 18,
        buffer_limit_bytes: 1 << 30,
        ..MountOptions::default()
    };
    Ext4::mount(cx, &queue, &pages, options).expect("mount")
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| {
        args.get(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (count, passes, tasks) = (number(2, 50_000), number(3, 4), number(4, 1));
    Runtime::real_seeded(2, 1).enter("paths", |cx| {
        let fs = mount(cx);
        let names = Namespace::new(fs.clone());
        names.mkdir(cx, b"/dir", 0o755).expect("mkdir");
        let make: fn(&mut Cx, &Namespace, &[u8]) = |cx, names, path| {
            let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::WRITE;
            let file = names.open(cx, path, flags, 0o644).expect("create");
            file.close(cx).expect("close");
        };
        let look: fn(&mut Cx, &Namespace, &[u8]) = |cx, names, path| {
            names.lstat(cx, path).expect("stat");
        };
        let by_inode: fn(&mut Cx, &Namespace, &[u8]) = |cx, names, path| {
            names.fs().lookup(cx, base::Ino(12), &path[5..]).expect("stat");
        };
        for (what, passes, work) in
            [("create", 1, make), ("stat", passes, look), ("inode", passes, by_inode)]
        {
            let start = Instant::now();
            let handles: Vec<_> = (0..tasks)
                .map(|task| {
                    let names = names.clone();
                    cx.spawn("paths", move |cx| {
                        let paths: Vec<String> =
                            (0..count).map(|n| format!("/dir/new-{task}-{n:08}")).collect();
                        let start = Instant::now();
                        for _ in 0..passes {
                            paths.iter().for_each(|path| work(cx, &names, path.as_bytes()));
                        }
                        start.elapsed()
                    })
                })
                .collect();
            let took: Vec<_> = handles.into_iter().map(|handle| handle.join(cx)).collect();
            let nanos = took.iter().map(|t| t.as_nanos() as u64).sum::<u64>() / tasks;
            println!("{what}: {} ns an operation of a task", nanos / (count * passes));
            let _ = start;
        }
        fs.shutdown_hard();
    });
}
