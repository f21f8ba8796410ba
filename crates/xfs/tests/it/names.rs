//! Names in directories of every form, up and down: our check, xfs_repair and the kernel agree.

use std::collections::BTreeMap;
use std::path::Path;

use crate::log_common::{mkfs, mount, real, repair, scratch};
use base::{Ino, Rng};
use rt::Cx;
use testkit::{judge, manifest};
use vfs::{FileSystem, FileType, NewNode, RenameFlags};
use xfs::Xfs;

/// xfs_repair finds nothing, and the kernel reads what we do.
fn judged(image: &Path) {
    repair(image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
    let ours = real(|cx| {
        let fs = mount(cx, image);
        let tree = manifest::of_fs(cx, &*fs).expect("the tree can be read");
        fs.unmount(cx).expect("unmount");
        tree
    });
    let kernel = judge::LoopMount::new(image, "xfs", "rw").expect("the kernel mounts");
    let theirs = manifest::of_dir(&kernel.path()).expect("the kernel reads");
    drop(kernel);
    let diff = manifest::diff(&ours, &theirs);
    assert!(diff.is_empty(), "{diff}");
}

fn file(cx: &mut Cx, fs: &Xfs, dir: Ino, name: &str) -> Ino {
    let made = fs.create(cx, dir, name.as_bytes(), &NewNode::new(FileType::Regular, 0o640));
    made.unwrap_or_else(|errno| panic!("create {name}: {errno} {:?}", fs.error())).ino
}

fn names(cx: &mut Cx, fs: &Xfs, dir: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut keep = |entry: vfs::DirEntry| {
        names.push(entry.name.to_vec());
        true
    };
    fs.readdir(cx, dir, 0, &mut keep).expect("the directory can be listed");
    names.retain(|name| name != b"." && name != b"..");
    names.sort();
    names
}

/// Goal: one name of each kind. Method: nodes of all kinds in a small directory, a link, a rename,
/// removals, an open file without a name.
#[test]
fn a_small_directory_has_nodes_of_all_kinds() {
    let dir = scratch();
    let image = mkfs(dir.path(), "image", 320 << 20, &[]);
    real(|cx| {
        let fs = mount(cx, &image);
        let root = fs.root();
        let a = file(cx, &fs, root, "a");
        fs.fsync(cx, a, false).expect("fsync");
        let sub = fs.create(cx, root, b"sub", &NewNode::new(FileType::Directory, 0o755));
        let sub = sub.expect("mkdir").ino;
        let device =
            NewNode { rdev: vfs::makedev(8, 17), ..NewNode::new(FileType::BlockDevice, 0o600) };
        fs.create(cx, sub, b"device", &device).expect("mknod");
        fs.create(cx, sub, b"fifo", &NewNode::new(FileType::Fifo, 0o600)).expect("mkfifo");
        fs.create(cx, sub, b"short", &NewNode::symlink(b"../a")).expect("symlink");
        let long = [b'x'; 1000];
        fs.create(cx, sub, b"long", &NewNode::symlink(&long)).expect("symlink");
        assert_eq!(fs.create(cx, sub, b"gone", &NewNode::symlink(&long)).map(drop), Ok(()));
        fs.unlink(cx, sub, b"gone").expect("unlink");
        fs.link(cx, a, sub, b"b").expect("link");
        fs.rename(cx, sub, b"b", root, b"c", RenameFlags::empty()).expect("rename");
        let inner = fs.create(cx, sub, b"inner", &NewNode::new(FileType::Directory, 0o755));
        let inner = inner.expect("mkdir").ino;
        fs.rename(cx, sub, b"inner", root, b"outer", RenameFlags::empty()).expect("rename");
        assert_eq!(fs.lookup(cx, inner, b"..").expect("lookup").ino, root);
        assert_eq!(fs.getattr(cx, root).expect("getattr").nlink, 4);
        fs.rmdir(cx, root, b"outer").expect("rmdir");
        let gone = file(cx, &fs, root, "gone");
        fs.open(cx, gone).expect("open");
        fs.unlink(cx, root, b"gone").expect("unlink");
        assert_eq!(fs.getattr(cx, gone).expect("still there").nlink, 0);
        fs.release(cx, gone).expect("release");
        assert_eq!(fs.getattr(cx, gone).map(drop), Err(base::Errno::ESTALE));
        fs.sync(cx).expect("sync");
        fs.unmount(cx).expect("unmount");
    });
    judged(&image);
}

/// Fills a directory and empties it again in another order, with judges at both ends.
fn up_and_down(args: &[&str], count: usize, long: usize) {
    let dir = scratch();
    let image = mkfs(dir.path(), "image", 1 << 30, args);
    let mut rng = Rng::new(7, 7);
    let pad = "n".repeat(long);
    let mut all: Vec<String> = (0..count).map(|number| format!("{number}-{pad}")).collect();
    real(|cx| {
        let fs = mount(cx, &image);
        let sub = fs.create(cx, fs.root(), b"sub", &NewNode::new(FileType::Directory, 0o755));
        let sub = sub.expect("mkdir").ino;
        let target = file(cx, &fs, fs.root(), "target");
        for (index, name) in all.iter().enumerate() {
            // Most are links, so that the directory is what is measured.
            match index % 16 {
                0 => drop(file(cx, &fs, sub, name)),
                _ => drop(
                    fs.link(cx, target, sub, name.as_bytes())
                        .unwrap_or_else(|errno| panic!("link {index}: {errno} {:?}", fs.error())),
                ),
            }
        }
        let mut expected: Vec<_> = all.iter().map(|name| name.as_bytes().to_vec()).collect();
        expected.sort();
        assert!(names(cx, &fs, sub) == expected, "the names differ");
        fs.unmount(cx).expect("unmount");
    });
    judged(&image);
    real(|cx| {
        let fs = mount(cx, &image);
        let sub = fs.lookup(cx, fs.root(), b"sub").expect("lookup").ino;
        for index in (1..all.len()).rev() {
            all.swap(index, rng.below(index as u64 + 1) as usize);
        }
        let half = all.split_off(all.len() / 2);
        for name in &half {
            fs.unlink(cx, sub, name.as_bytes())
                .unwrap_or_else(|errno| panic!("unlink {name}: {errno} {:?}", fs.error()));
        }
        fs.unmount(cx).expect("unmount");
    });
    judged(&image);
    real(|cx| {
        let fs = mount(cx, &image);
        let sub = fs.lookup(cx, fs.root(), b"sub").expect("lookup").ino;
        for name in &all {
            fs.unlink(cx, sub, name.as_bytes())
                .unwrap_or_else(|errno| panic!("unlink {name}: {errno} {:?}", fs.error()));
        }
        let attr = fs.getattr(cx, sub).expect("getattr");
        assert_eq!((attr.size, attr.blocks), (6, 0), "it is small again");
        assert_eq!(fs.error(), None);
        fs.rmdir(cx, fs.root(), b"sub").expect("rmdir");
        fs.unmount(cx).expect("unmount");
    });
    judged(&image);
}

#[test]
fn directories_of_4_kib_blocks_go_through_all_forms() {
    up_and_down(&[], 6000, 40);
}

#[test]
fn directories_of_64_kib_blocks_go_through_all_forms() {
    up_and_down(&["-n", "size=65536"], 12000, 60);
}

/// Directory blocks in pieces of 1 KiB, among a reverse map.
#[test]
fn directories_in_blocks_of_1_kib_go_through_all_forms() {
    up_and_down(&["-b", "size=1024", "-n", "size=4096", "-m", "rmapbt=1"], 5000, 60);
}

/// Goal: a directory that changes at random is what a map is. Method: names of random lengths come,
/// go, and move, near the borders of the forms; the map is compared after each round.
#[test]
fn random_changes_leave_what_a_map_has() {
    let dir = scratch();
    let image = mkfs(dir.path(), "image", 320 << 20, &["-n", "size=8192"]);
    real(|cx| {
        let fs = mount(cx, &image);
        let root = fs.root();
        let mut rng = Rng::new(3, 3);
        let mut model: BTreeMap<Vec<u8>, Ino> = BTreeMap::new();
        for round in 0..60u64 {
            let wanted = [3, 12, 90, 400, 1200, 30][(round % 6) as usize];
            for _ in 0..200 {
                let grow = model.len() < wanted;
                let some = rng.below(model.len().max(1) as u64) as usize;
                let known = model.keys().nth(some).cloned();
                match (rng.below(4), known) {
                    (0, Some(old)) => {
                        let new = format!("moved-{}", rng.below(5000)).into_bytes();
                        fs.rename(cx, root, &old, root, &new, RenameFlags::empty())
                            .expect("rename");
                        let ino = model.remove(&old).expect("known");
                        model.insert(new, ino);
                    }
                    (_, Some(old)) if !grow => {
                        fs.unlink(cx, root, &old).expect("unlink");
                        model.remove(&old);
                    }
                    _ => {
                        let len = 1 + rng.below(60) as usize;
                        let name = format!("{:x}{}", rng.below(1 << 40), "y".repeat(len));
                        let ino = file(cx, &fs, root, &name);
                        model.insert(name.into_bytes(), ino);
                    }
                }
            }
            let expected: Vec<_> = model.keys().cloned().collect();
            assert_eq!(names(cx, &fs, root), expected, "round {round}");
            for (name, ino) in &model {
                assert_eq!(fs.lookup(cx, root, name).expect("lookup").ino, *ino);
            }
        }
        fs.unmount(cx).expect("unmount");
    });
    judged(&image);
}
