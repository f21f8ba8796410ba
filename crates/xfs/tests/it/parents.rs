//! Parent pointers: each name of an inode has one, whatever happens to names. Our check, the newest
//! xfs_repair and the kernel agree, on images of the newest mkfs.xfs that we have changed.

use std::path::{Path, PathBuf};

use crate::log_common::{mount, real, repair, scratch};
use base::{Ino, Rng};
use rt::Cx;
use testkit::{judge, manifest, newest};
use vfs::{FileSystem, FileType, NewNode, RenameFlags};
use xfs::{CheckOptions, Xfs};

/// Makes an image as the newest mkfs.xfs does by default, and with more words.
fn image(dir: &Path, words: &[&str]) -> PathBuf {
    let image = dir.join("image");
    newest::mkfs_xfs(&image, 320 << 20, words);
    image
}

/// Our check and xfs_repair find nothing, and the kernel reads what we do.
fn judged(image: &Path) {
    repair(image).unwrap_or_else(|text| panic!("{text}"));
    let ours = real(|cx| {
        let queue = crate::log_common::Volume::open_to_read(cx, image).queue;
        let report = xfs::check(cx, &queue, &CheckOptions::default()).expect("the device works");
        let findings: String = report.findings.iter().map(|f| format!("{f}\n")).collect();
        assert!(findings.is_empty(), "{findings}");
        drop(queue);
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

fn make(cx: &mut Cx, fs: &Xfs, dir: Ino, name: &[u8], node: &NewNode<'_>) -> Ino {
    let made = fs.create(cx, dir, name, node);
    made.unwrap_or_else(|errno| panic!("create: {errno} {:?}", fs.error())).ino
}

fn file(cx: &mut Cx, fs: &Xfs, dir: Ino, name: &[u8]) -> Ino {
    make(cx, fs, dir, name, &NewNode::new(FileType::Regular, 0o640))
}

fn folder(cx: &mut Cx, fs: &Xfs, dir: Ino, name: &[u8]) -> Ino {
    make(cx, fs, dir, name, &NewNode::new(FileType::Directory, 0o755))
}

/// Nodes of all kinds, moved in all ways. `mark` tells the names of one round from another's.
fn every_operation(cx: &mut Cx, fs: &Xfs, mark: &str, long: usize) {
    let root = fs.root();
    let name = |text: &str| format!("{mark}{text}{}", "n".repeat(long)).into_bytes();
    let (a, b) = (folder(cx, fs, root, &name("a")), folder(cx, fs, root, &name("b")));
    let device = NewNode { rdev: vfs::makedev(8, 17), ..NewNode::new(FileType::CharDevice, 0o600) };
    let target = vec![b'x'; 250];
    let nodes = [
        NewNode::new(FileType::Regular, 0o644),
        device,
        NewNode::new(FileType::Fifo, 0o600),
        NewNode::symlink(b"short"),
        NewNode::symlink(&target[..190]),
        NewNode::symlink(&target),
        NewNode::new(FileType::Directory, 0o700),
    ];
    let none = RenameFlags::empty();
    for (index, node) in nodes.iter().enumerate() {
        let (one, two) = (name(&format!("{index}-one")), name(&format!("{index}-two")));
        let made = make(cx, fs, a, &one, node);
        if node.kind != FileType::Directory {
            fs.link(cx, made, b, &one).expect("link, of the same name");
            fs.link(cx, made, a, &two).expect("link");
            fs.unlink(cx, a, &one).expect("unlink");
        } else {
            fs.rename(cx, a, &one, a, &two, none).expect("rename in a directory");
        }
        let other = make(cx, fs, b, &two, node);
        fs.rename(cx, a, &two, b, &two, RenameFlags::EXCHANGE).expect("exchange");
        make(cx, fs, a, &name(&format!("{index}-three")), node);
        fs.rename(cx, b, &two, a, &name(&format!("{index}-three")), none).expect("replace");
        let whiteout = RenameFlags::WHITEOUT;
        let covered = name(&format!("{index}-covered"));
        fs.rename(cx, a, &two, b, &covered, whiteout).expect("whiteout");
        if node.kind == FileType::Regular {
            let unnamed = fs.create_unnamed(cx, a, node, &[]).expect("a file without a name").ino;
            fs.link(cx, unnamed, b, &name("named")).expect("its first name");
            fs.release(cx, unnamed).expect("release");
            fs.open(cx, other).expect("open");
            fs.unlink(cx, b, &covered).expect("the last name of an open file");
            fs.release(cx, other).expect("release");
        }
    }
    let gone = folder(cx, fs, a, &name("gone"));
    file(cx, fs, gone, &name("inside"));
    fs.unlink(cx, gone, &name("inside")).expect("unlink");
    fs.rmdir(cx, a, &name("gone")).expect("rmdir");
}

/// Goal: every operation on names keeps the pointers. Method: all of them, with short names and
/// with the longest, in inodes of several sizes, judged.
#[test]
fn every_operation_on_names_keeps_their_pointers() {
    let words: [&[&str]; 3] = [&[], &["-i", "size=1024", "-n", "size=8k"], &["-b", "size=1024"]];
    for words in words {
        let dir = scratch();
        let image = image(dir.path(), words);
        real(|cx| {
            let fs = mount(cx, &image);
            every_operation(cx, &fs, "s", 0);
            every_operation(cx, &fs, "m", 120);
            every_operation(cx, &fs, "l", 239);
            fs.unmount(cx).expect("unmount");
        });
        judged(&image);
    }
}

/// Links of one inode, up and down.
fn links(cx: &mut Cx, fs: &Xfs, count: usize, down: bool) {
    let root = fs.root();
    let mut rng = Rng::new(3, 3);
    let mut names: Vec<_> = (0..count)
        .map(|index| format!("{index}{}", "l".repeat(index * 7 % 230)).into_bytes())
        .collect();
    if down {
        rng.shuffle(&mut names);
        let dirs = [b"x", b"y"].map(|name| fs.lookup(cx, root, name).expect("lookup").ino);
        for name in &names {
            for dir in dirs {
                fs.unlink(cx, dir, name).expect("unlink");
            }
        }
        return;
    }
    let dirs = [folder(cx, fs, root, b"x"), folder(cx, fs, root, b"y")];
    let target = file(cx, fs, root, b"target");
    fs.setxattr(cx, target, b"user.large", &[7; 3000], vfs::XattrFlags::empty()).expect("set");
    for name in &names {
        for dir in dirs {
            fs.link(cx, target, dir, name)
                .unwrap_or_else(|errno| panic!("link: {errno} {:?}", fs.error()));
        }
    }
}

/// Goal: many names of one inode, each of them in two directories, make a tree of pointers and
/// take it down again.
#[test]
fn pointers_fill_trees_and_leave_them() {
    for words in [&[][..], &["-b", "size=1024"]] {
        let dir = scratch();
        let image = image(dir.path(), words);
        real(|cx| {
            let fs = mount(cx, &image);
            links(cx, &fs, 900, false);
            fs.unmount(cx).expect("unmount");
        });
        judged(&image);
        real(|cx| {
            let fs = mount(cx, &image);
            links(cx, &fs, 900, true);
            fs.unmount(cx).expect("unmount");
        });
        judged(&image);
    }
}
