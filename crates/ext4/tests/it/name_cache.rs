//! Names in memory beside changes: whatever is looked up while names come, go, move and change
//! places, and while numbers of inodes are given out again, is the inode of that name.

use crate::support::*;
use base::{Errno, Ino, Rng};
use ext4::{Ext4, MountOptions};
use rt::{Cx, World, WorldConfig};
use std::sync::Arc;
use vfs::{FileSystem, FileType, NewNode, RenameFlags};

/// Names of each directory that all tasks change.
const NAMES: u64 = 10;

/// Everything that is ever called `n7` belongs to user 7.
fn name(user: u64) -> String {
    format!("n{user}")
}

fn node(user: u64) -> NewNode<'static> {
    NewNode { uid: user as u32, ..NewNode::new(FileType::Regular, 0o644) }
}

/// What may be answered where others change the same names.
fn allowed(result: Result<(), Errno>) {
    assert!(matches!(result, Ok(()) | Err(Errno::EEXIST | Errno::ENOENT)), "{result:?}");
}

fn change(cx: &mut Cx, fs: &Ext4, dirs: [Ino; 2], task: u64, steps: u64) {
    let mut rng = Rng::new(5, task);
    let own = format!("own of task {task}");
    for _ in 0..steps {
        let user = rng.below(NAMES);
        let name = name(user);
        let name = name.as_bytes();
        let from = rng.below(2) as usize;
        let (dir, other) = (dirs[from], dirs[1 - from]);
        match rng.below(5) {
            0 => allowed(fs.create(cx, dir, name, &node(user)).map(drop)),
            1 => allowed(fs.unlink(cx, dir, name)),
            2 => allowed(fs.rename(cx, dir, name, other, name, RenameFlags::empty())),
            3 => allowed(fs.rename(cx, dir, name, other, name, RenameFlags::EXCHANGE)),
            _ => {
                // What a task did itself it sees.
                let made =
                    fs.create(cx, dir, own.as_bytes(), &node(99)).expect("a name of its own");
                let found = fs.lookup(cx, dir, own.as_bytes()).expect("just made");
                assert_eq!(found.ino, made.ino);
                fs.unlink(cx, dir, own.as_bytes()).expect("just seen");
                let gone = fs.lookup(cx, dir, own.as_bytes());
                assert_eq!(gone.map(drop), Err(Errno::ENOENT));
            }
        }
    }
}

fn look(cx: &mut Cx, fs: &Ext4, dirs: [Ino; 2], task: u64, steps: u64) {
    let mut rng = Rng::new(6, task);
    for _ in 0..steps {
        let user = rng.below(NAMES);
        let dir = dirs[rng.below(2) as usize];
        match fs.lookup(cx, dir, name(user).as_bytes()) {
            Ok(attr) => assert_eq!(u64::from(attr.uid), user, "another's inode"),
            Err(errno) => assert_eq!(errno, Errno::ENOENT),
        }
    }
}

/// Tasks change and look; at last the names in memory are those of the directories.
fn session(cx: &mut Cx, name_cache: usize, steps: u64) {
    let device = fresh(cx, 16 << 20, "ext4", 1024);
    let options = MountOptions { name_cache, inode_cache: 64, ..MountOptions::default() };
    let (fs, _) = try_mount(cx, device.clone(), 4 << 20, options).expect("mount");
    let dirs = ["a", "b"].map(|name| mkdir(cx, &*fs, fs.root(), name));
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let fs: Arc<Ext4> = fs.clone();
            cx.spawn("task", move |cx| match task {
                0 | 1 => change(cx, &fs, dirs, task, steps),
                _ => look(cx, &fs, dirs, task, 2 * steps),
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join(cx));
    for dir in dirs {
        let mut listed = std::collections::BTreeMap::new();
        fs.readdir(cx, dir, 0, &mut |entry| {
            listed.insert(entry.name.to_vec(), entry.ino);
            true
        })
        .expect("readdir");
        for user in 0..NAMES {
            let name = name(user).into_bytes();
            let found = fs.lookup(cx, dir, &name).ok().map(|attr| attr.ino);
            assert_eq!(found, listed.get(&name).copied());
        }
    }
    assert_eq!(fs.name_cache_bytes() > 0, name_cache > 0);
    fs.unmount(cx).expect("unmount");
    checked(cx, &device, "after the tasks");
}

#[test]
fn threads_find_the_inodes_of_their_names() {
    let _watchdog = Watchdog::new("names, threads".into(), 240);
    for name_cache in [0, 1, 4096] {
        rt::testing::real(|cx| session(cx, name_cache, 1500));
    }
}

#[test]
fn explored_schedules_find_the_inodes_of_their_names() {
    for seed in seeds(12) {
        let _watchdog = Watchdog::new(format!("names, seed {seed}"), 240);
        let name_cache = if seed % 3 == 0 { 1 } else { 4096 };
        World::new(WorldConfig::exploring(seed)).run("names", |cx| session(cx, name_cache, 150));
    }
}
