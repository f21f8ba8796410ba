//! Many tasks on one mount: OS threads in real time, and explored schedules in virtual time, with
//! caches, logs and devices that are too small. Afterwards our check and xfs_repair find nothing.

use std::sync::Arc;

use crate::world::{Cell, mount, seeds, timed};
use base::Errno;
use rt::{Cx, World, WorldConfig};
use testkit::chaos::Chaos;
use testkit::trials::{Stress, assert_readable};
use vfs::{FileSystem, FileType, NewNode, RenameFlags};
use xfs::Xfs;

const CELLS: [Cell; 6] = [
    Cell(&[]),
    Cell(&[('b', "size=1024"), ('m', "rmapbt=1"), ('d', "agcount=3")]),
    Cell(&[('i', "size=1024"), ('n', "size=16384")]),
    Cell(&[('m', "reflink=0"), ('i', "sparse=0")]),
    Cell(&[('n', "version=ci")]),
    Cell(&[('n', "parent=1"), ('i', "exchange=1,nrext64=1"), ('m', "rmapbt=1")]),
];

fn cell(seed: u64) -> Cell {
    CELLS[(seed % CELLS.len() as u64) as usize]
}

#[test]
fn eight_threads_leave_a_sound_file_system() {
    let plan = Chaos { tasks: 8, steps: 1500, size_max: 400_000, small: false, faults: false };
    for seed in seeds(4) {
        let cache = if seed % 2 == 0 { 2 << 20 } else { 64 << 20 };
        Stress { bytes: 256 << 20, cache, plan }.in_threads(cell(seed), seed);
    }
}

#[test]
fn threads_on_a_full_device_leave_it_empty() {
    let plan = Chaos { tasks: 8, steps: 600, size_max: 2 << 20, small: true, faults: false };
    for seed in seeds(4) {
        Stress { bytes: 60 << 20, cache: 2 << 20, plan }.in_threads(cell(seed), seed);
    }
}

#[test]
fn explored_schedules_leave_a_sound_file_system() {
    let plan = Chaos { tasks: 8, steps: 150, size_max: 200_000, small: false, faults: false };
    for seed in seeds(12) {
        Stress { bytes: 64 << 20, cache: 2 << 20, plan }.in_a_world(cell(seed), seed);
    }
}

#[test]
fn explored_schedules_on_a_full_device_leave_it_empty() {
    let plan = Chaos { tasks: 6, steps: 200, size_max: 2 << 20, small: true, faults: false };
    for seed in seeds(12) {
        Stress { bytes: 56 << 20, cache: 2 << 20, plan }.in_a_world(cell(seed), seed);
    }
}

/// Every task makes the names `0..SHARED` in an order of its own, and some that are its own: that
/// many times a name was made that only one of them can make.
fn make_names(cx: &mut Cx, fs: &Arc<Xfs>, tasks: u64) -> usize {
    const SHARED: u64 = 700;
    let dir = fs.create(cx, fs.root(), b"dir", &NewNode::new(FileType::Directory, 0o755));
    let dir = dir.expect("mkdir").ino;
    let spawn = |task: u64| {
        let fs = fs.clone();
        move |cx: &mut Cx| {
            let node = NewNode::new(FileType::Regular, 0o600).owner(task as u32, 7);
            let mut made = 0;
            for step in 0..SHARED {
                let shared = format!("shared by all {}", step * (2 * task + 1) % SHARED);
                match fs.create(cx, dir, shared.as_bytes(), &node) {
                    Ok(attr) => {
                        assert_eq!((attr.uid, attr.gid, attr.mode), (task as u32, 7, 0o600));
                        made += 1;
                    }
                    Err(errno) => assert_eq!(errno, Errno::EEXIST),
                }
                if step % 5 == 0 {
                    let own = format!("of {task} alone {step}");
                    let ino = fs.create(cx, dir, own.as_bytes(), &node).expect("create").ino;
                    assert_eq!(fs.lookup(cx, dir, own.as_bytes()).expect("lookup").ino, ino);
                }
            }
            made
        }
    };
    let tasks: Vec<_> = (0..tasks).map(|task| cx.spawn("maker", spawn(task))).collect();
    let made: usize = tasks.into_iter().map(|task| task.join(cx)).sum();
    assert_eq!(made as u64, SHARED, "each name once");
    let long = vec![b'n'; 256];
    let errno = fs.create(cx, dir, &long, &NewNode::new(FileType::Regular, 0o600));
    assert_eq!(errno.expect_err("too long"), Errno::ENAMETOOLONG);
    fs.rename(cx, fs.root(), b"dir", fs.root(), b"moved", RenameFlags::empty()).expect("rename");
    assert_eq!(fs.error(), None);
    made
}

/// Goal: tasks that create in one directory, of which one makes the files of the others, make each
/// name once, with the owner that asked for it. Method: the same names by all of them, from an
/// empty directory to a tree; on threads, and in explored schedules over a slow device.
#[test]
fn tasks_that_create_in_one_directory_make_each_name_once() {
    let real = rt::testing::real(|cx| {
        let device = Cell(&[]).fresh(cx, 64 << 20);
        let (fs, _) = mount(cx, device.clone(), 64 << 20);
        make_names(cx, &fs, 6);
        fs.unmount(cx).expect("unmount");
        device
    });
    assert_readable(Cell(&[]), &real, "threads");
    for seed in seeds(4) {
        let run = || {
            let mut world = World::new(WorldConfig::exploring(seed));
            let device = world.run("names", |cx| {
                let device = cell(seed).fresh(cx, 64 << 20);
                let (fs, _) = mount(cx, timed(cx, &device, seed), 2 << 20);
                make_names(cx, &fs, 4);
                fs.unmount(cx).expect("unmount");
                device
            });
            (device, world.hash())
        };
        let (device, hash) = run();
        assert_readable(cell(seed), &device, &format!("world, seed {seed}"));
        assert_eq!(hash, run().1, "seed {seed}: the same events");
    }
}
