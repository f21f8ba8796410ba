//! One name after another by its path and by its inode, in a directory of many: for profiles. The
//! example `paths` of each file system calls [`run`].

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use base::Ino;
use rt::{Cx, Runtime};
use std::sync::Arc;
use std::time::Instant;
use vfs::{FileSystem, FileType, Namespace, NewNode, OpenFlags};

#[inline(never)]
fn make(cx: &mut Cx, names: &Namespace, _: Ino, path: &[u8]) {
    let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::WRITE;
    let file = names.open(cx, path, flags, 0o644).expect("create");
    file.close(cx).expect("close");
}

fn look(cx: &mut Cx, names: &Namespace, _: Ino, path: &[u8]) {
    names.lstat(cx, path).expect("stat");
}

fn look_by_inode(cx: &mut Cx, names: &Namespace, dir: Ino, path: &[u8]) {
    names.fs().lookup(cx, dir, &path["/dir/".len()..]).expect("stat");
}

#[inline(never)]
fn remove(cx: &mut Cx, names: &Namespace, _: Ino, path: &[u8]) {
    names.unlink(cx, path).expect("remove");
}

type Operation = fn(&mut Cx, &Namespace, Ino, &[u8]);

/// Creates, looks at and removes names of a fresh mount. The program's arguments: names of a task
/// (50,000), passes of looks (4), tasks (1), names that are there before (0). Prints what an
/// operation took.
///
/// # Panics
/// If an operation fails.
pub fn run(mount: impl FnOnce(&mut Cx) -> Arc<dyn FileSystem>) {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| {
        args.get(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (count, passes, tasks) = (number(1, 50_000), number(2, 4), number(3, 1));
    let before = number(4, 0);
    Runtime::real_seeded(2, 1).enter("paths", |cx| {
        let fs = mount(cx);
        let names = Namespace::new(fs.clone());
        let dir = names.mkdir(cx, b"/dir", 0o755).expect("mkdir").ino;
        let node = NewNode::new(FileType::Regular, 0o644);
        for n in 0..before {
            let name = format!("old-{n:08}");
            fs.create(cx, dir, name.as_bytes(), &node).expect("create");
        }
        let phases: [(_, _, Operation); 4] = [
            ("create", 1, make),
            ("stat", passes, look),
            ("inode", passes, look_by_inode),
            ("remove", 1, remove),
        ];
        for (what, passes, work) in phases {
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
            println!("{what}: {} ns an operation of a task", nanos / (count * passes.max(1)));
        }
        fs.shutdown_hard();
    });
}
