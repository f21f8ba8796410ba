//! Images that the kernel filled are read as the kernel reads them, over the features, block sizes
//! and forms of the format.

use crate::support::*;
use base::{Errno, Ino};
use rt::Cx;
use testkit::manifest;
use vfs::{DirEntry, FileSystem, FileType};

/// Lets the kernel fill an image made with `args` and compares its tree with ours.
fn compare(args: &str, block: u64, long_names: usize, extents: u64) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("image");
    mkfs_xfs(&image, 320, args);
    let mount = kernel(&image);
    fill::fill(&mount.path(), fill::Scale { long_names, extents, block });
    if !args.contains("reflink=0") {
        fill::share(&mount.path());
    }
    drop(mount);
    let expected = kernel_tree(&image);
    let device = load(&image);
    let ours = in_world(move |cx| {
        let fs = try_mount(cx, device).expect("the image mounts");
        let ours = manifest::of_fs(cx, &*fs);
        names_are_found(cx, &*fs, fs.root());
        assert_eq!(fs.error(), None);
        fs.unmount(cx).expect("unmount");
        ours.expect("the tree can be read")
    });
    let diff = manifest::diff(&ours, &expected);
    assert!(diff.is_empty(), "{args}\n{diff}");
    assert!(expected.len() > 3000, "the tree has {} names", expected.len());
}

/// Looks up every name of every directory, some that are missing, and lists each directory a
/// second time in small pieces.
fn names_are_found(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino) {
    let mut all = Vec::new();
    let mut keep = |entry: DirEntry| {
        all.push((entry.name.to_vec(), entry.ino, entry.kind));
        true
    };
    fs.readdir(cx, dir, 0, &mut keep).expect("the directory can be listed");
    let (mut pieces, mut position) = (Vec::new(), 0);
    loop {
        let (before, from, mut left) = (pieces.len(), position, 7);
        let mut keep = |entry: DirEntry| {
            if left == 0 {
                return false;
            }
            left -= 1;
            position = entry.cookie;
            pieces.push((entry.name.to_vec(), entry.ino, entry.kind));
            true
        };
        fs.readdir(cx, dir, from, &mut keep).expect("the directory can be listed");
        if pieces.len() == before {
            break;
        }
    }
    assert!(pieces == all, "directory {dir}: listed in pieces it is different");
    for (name, ino, kind) in &all {
        let found = fs.lookup(cx, dir, name).expect("a listed name is found");
        assert_eq!((found.ino, Some(found.kind)), (*ino, *kind), "{}", name.escape_ascii());
        let missing = [name.as_slice(), b"?"].concat();
        let answer = fs.lookup(cx, dir, &missing[missing.len().saturating_sub(255)..]);
        assert_eq!(answer.map(|attr| attr.ino), Err(Errno::ENOENT));
    }
    for (name, ino, kind) in all {
        if kind == Some(FileType::Directory) && name != b"." && name != b".." {
            names_are_found(cx, fs, ino);
        }
    }
}

#[test]
fn blocks_of_4k_with_the_defaults() {
    compare("-d agcount=4", 4096, 33_000, 6000);
}

#[test]
fn blocks_of_1k_with_all_btrees() {
    compare("-b size=1024 -m rmapbt=1", 1024, 4000, 3000);
}

#[test]
fn blocks_of_1k_with_directory_blocks_of_4k() {
    compare(
        "-b size=1024 -m finobt=0,inobtcount=0,reflink=0,bigtime=0 -i nrext64=1",
        1024,
        9000,
        9000,
    );
}

#[test]
fn blocks_of_2k_with_inodes_of_1k() {
    compare("-b size=2048 -i size=1024,sparse=0,nrext64=1 -n size=8192", 2048, 6000, 3000);
}

#[test]
fn directory_blocks_of_64k() {
    compare("-n size=65536 -m bigtime=0 -i size=512,nrext64=0", 4096, 20_000, 2000);
}

#[test]
fn directory_blocks_of_16k_and_all_btrees() {
    compare("-n size=16384 -m rmapbt=1,reflink=1 -i nrext64=1 -d agcount=9", 4096, 9000, 2000);
}
