//! One name after another by its path, in a directory of many, in memory: `paths [COUNT [PASSES
//! [TASKS]]]`; for profiles.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

#[path = "../benches/mounted/mod.rs"]
mod mounted;

use base::Ino;
use mounted::mounted;
use rt::{Cx, Runtime};
use std::time::Instant;
use vfs::{FileSystem, Namespace, OpenFlags};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| {
        args.get(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (count, passes, tasks) = (number(1, 50_000), number(2, 4), number(3, 1));
    Runtime::real_seeded(2, 1).enter("paths", |cx| {
        let fs = mounted(cx);
        let names = Namespace::new(fs.clone());
        let dir = names.mkdir(cx, b"/dir", 0o755).expect("mkdir").ino;
        let make: fn(&mut Cx, &Namespace, Ino, &[u8]) = |cx, names, _, path| {
            let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::WRITE;
            let file = names.open(cx, path, flags, 0o644).expect("create");
            file.close(cx).expect("close");
        };
        let look: fn(&mut Cx, &Namespace, Ino, &[u8]) = |cx, names, _, path| {
            names.lstat(cx, path).expect("stat");
        };
        let by_inode: fn(&mut Cx, &Namespace, Ino, &[u8]) = |cx, names, dir, path| {
            names.fs().lookup(cx, dir, &path[5..]).expect("stat");
        };
        for (what, passes, work) in
            [("create", 1, make), ("stat", passes, look), ("inode", passes, by_inode)]
        {
            let handles: Vec<_> = (0..tasks)
                .map(|task| {
                    let names = names.clone();
                    cx.spawn("paths", move |cx| {
                        let paths: Vec<String> =
                            (0..count).map(|n| format!("/dir/new-{task}-{n:08}")).collect();
                        let start = Instant::now();
                        for _ in 0..passes {
                            paths.iter().for_each(|path| work(cx, &names, dir, path.as_bytes()));
                        }
                        start.elapsed()
                    })
                })
                .collect();
            let took: Vec<_> = handles.into_iter().map(|handle| handle.join(cx)).collect();
            let nanos = took.iter().map(|t| t.as_nanos() as u64).sum::<u64>() / tasks;
            println!("{what}: {} ns an operation of a task", nanos / (count * passes));
        }
        fs.shutdown_hard();
    });
}
