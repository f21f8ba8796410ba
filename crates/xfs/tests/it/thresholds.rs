//! Sizes at which something new begins, each before a clean unmount: the second chunk of inodes, a
//! second group, directories of very many names, a file system without space, many tasks.

use std::sync::Arc;

use crate::world::{Cell, checked, file, mkdir, mount, repaired};
use base::{Errno, Ino};
use device::MemoryDevice;
use rt::Cx;
use testkit::judge;
use vfs::{FileSystem, FileType, NewNode};
use xfs::Xfs;

fn count(cx: &mut Cx, fs: &Xfs, dir: Ino) -> usize {
    let mut names = 0;
    fs.readdir(cx, dir, 0, &mut |_| {
        names += 1;
        true
    })
    .expect("the directory can be listed");
    names - 2
}

/// Names in the directory as the kernel lists it; it looks at each of them.
fn counted_by_the_kernel(device: &MemoryDevice) -> usize {
    let image = testkit::image::write_device(device);
    let mount = judge::LoopMount::new(image.path(), "xfs", "ro").expect("a mount");
    let listed = std::fs::read_dir(mount.path().join("dir")).expect("the kernel lists");
    let found = listed.map(|entry| entry.and_then(|entry| entry.metadata()));
    found.filter(|found| found.as_ref().expect("the kernel finds it").is_file()).count()
}

/// Makes `files` files in one directory, remounts, and finds them all.
fn many_files(cell: Cell, bytes: u64, files: usize) {
    rt::testing::world(|cx| {
        let device = cell.fresh(cx, bytes);
        let (fs, _) = mount(cx, device.clone(), 64 << 20);
        let dir = mkdir(cx, &fs, fs.root(), "dir");
        let inos: Vec<Ino> = (0..files).map(|n| file(cx, &fs, dir, &format!("file-{n}"))).collect();
        fs.unmount(cx).expect("unmount");
        checked(cx, &device).expect("our check");
        repaired(&device).expect("xfs_repair");
        assert_eq!(counted_by_the_kernel(&device), files);
        let (fs, _) = mount(cx, device.clone(), 64 << 20);
        let dir = fs.lookup(cx, fs.root(), b"dir").expect("lookup").ino;
        assert_eq!(count(cx, &fs, dir), files);
        for (n, ino) in inos.iter().enumerate().step_by(files / 50 + 1) {
            let found = fs.lookup(cx, dir, format!("file-{n}").as_bytes()).expect("lookup");
            assert_eq!((found.ino, found.size), (*ino, 0));
        }
        fs.unmount(cx).expect("unmount");
    });
}

#[test]
fn the_second_chunk_of_inodes() {
    for files in [60, 61, 200] {
        many_files(Cell(&[]), 96 << 20, files);
        many_files(Cell(&[('b', "size=1024"), ('m', "finobt=0,inobtcount=0")]), 96 << 20, files);
    }
}

#[test]
fn a_hundred_thousand_names() {
    many_files(Cell(&[]), 512 << 20, 100_000);
}

/// Goal: inodes and directories spread over the groups, and a group that is full gives way to the
/// next. Method: more files than one small group can hold, below directories in all groups.
#[test]
fn the_second_group() {
    rt::testing::world(|cx| {
        let cell = Cell(&[('d', "agcount=4"), ('i', "maxpct=100")]);
        let device = cell.fresh(cx, 96 << 20);
        let (fs, _) = mount(cx, device.clone(), 64 << 20);
        let mut groups = std::collections::BTreeSet::new();
        for n in 0..8 {
            let dir = mkdir(cx, &fs, fs.root(), &format!("dir-{n}"));
            groups.insert(fs.geometry().ino_split(dir).ag);
        }
        assert_eq!(groups.len(), 4, "directories go to all groups");
        let dir = fs.lookup(cx, fs.root(), b"dir-1").expect("lookup").ino;
        let mut groups = std::collections::BTreeSet::new();
        for n in 0..50_000 {
            let ino = file(cx, &fs, dir, &format!("file-{n}"));
            groups.insert(fs.geometry().ino_split(ino).ag);
        }
        assert!(groups.len() > 1, "one group has no space for all inodes");
        fs.unmount(cx).expect("unmount");
        checked(cx, &device).expect("our check");
        repaired(&device).expect("xfs_repair");
    });
}

/// Goal: a full file system answers `ENOSPC`, stays in order, and takes files again when others
/// went. Method: files are made until there is no space, half of them go, and so on; the kernel
/// finds what is left at last, without space again.
#[test]
fn a_full_file_system_says_so_and_goes_on() {
    rt::testing::world(|cx| {
        // The kernel wants a larger log for these features.
        let cell =
            Cell(&[('d', "agcount=2"), ('i', "maxpct=0"), ('m', "rmapbt=1"), ('l', "size=16m")]);
        let device = cell.fresh(cx, 42 << 20);
        let (fs, _) = mount(cx, device.clone(), 64 << 20);
        let dir = mkdir(cx, &fs, fs.root(), "dir");
        let mut names = Vec::new();
        for round in 0..3 {
            let node = NewNode::new(FileType::Regular, 0o600);
            let full = loop {
                let name = format!("{round}-{}-{}", names.len(), "z".repeat(100));
                match fs.create(cx, dir, name.as_bytes(), &node) {
                    Ok(_) => names.push(name),
                    Err(errno) => break errno,
                }
            };
            assert_eq!((full, fs.error()), (Errno::ENOSPC, None), "round {round}");
            assert!(names.len() > 5_000, "only {} files fit", names.len());
            let kept = if round < 2 { names.len() / 2 } else { names.len() };
            for name in names.split_off(kept) {
                fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
            }
            fs.sync(cx).expect("sync");
        }
        fs.unmount(cx).expect("unmount");
        checked(cx, &device).expect("our check");
        repaired(&device).expect("xfs_repair");
        assert_eq!(counted_by_the_kernel(&device), names.len());
    });
}

/// Goal: tasks that change the same and other directories at once, on threads, leave a file system
/// in order. Method: each makes, moves and removes names in its own directory and in a shared one.
#[test]
fn many_threads_change_names_at_once() {
    rt::testing::real(|cx| {
        let device = Cell(&[('n', "size=16384")]).fresh(cx, 192 << 20);
        let (fs, _) = mount(cx, device.clone(), 64 << 20);
        let shared = mkdir(cx, &fs, fs.root(), "shared");
        let tasks: Vec<_> = (0..6u64)
            .map(|task| {
                let fs: Arc<Xfs> = fs.clone();
                cx.spawn(&format!("task{task}"), move |cx| one_of_many(cx, &fs, shared, task))
            })
            .collect();
        let left: usize = tasks.into_iter().map(|task| task.join(cx)).sum();
        assert_eq!(count(cx, &fs, shared), left);
        assert_eq!(fs.error(), None);
        fs.unmount(cx).expect("unmount");
        checked(cx, &device).expect("our check");
        repaired(&device).expect("xfs_repair");
    });
}

/// Answers how many names it left in the shared directory.
fn one_of_many(cx: &mut Cx, fs: &Xfs, shared: Ino, task: u64) -> usize {
    let own = mkdir(cx, fs, fs.root(), &format!("own-{task}"));
    let flags = vfs::RenameFlags::empty();
    let mut left = 0;
    for n in 0..600 {
        let name = format!("{task}-{n}");
        file(cx, fs, own, &name);
        fs.rename(cx, own, name.as_bytes(), shared, name.as_bytes(), flags).expect("rename");
        left += 1;
        if n % 3 == 0 {
            let other = format!("{task}-{}", n / 3);
            if fs.unlink(cx, shared, other.as_bytes()).is_ok() {
                left -= 1;
            }
        }
        if n % 50 == 0 {
            let moved = mkdir(cx, fs, own, "moved");
            fs.rename(cx, own, b"moved", shared, b"moved", flags).ok();
            fs.rmdir(cx, shared, b"moved").ok();
            fs.rmdir(cx, own, b"moved").ok();
            let _ = moved;
            fs.sync(cx).expect("sync");
        }
    }
    left
}
