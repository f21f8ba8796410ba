//! The built command writes XFS: images of our own mkfs, changed by every command, judged by
//! xfs_repair and by the kernel's mount. Needs root and xfsprogs.

mod command;

use std::os::unix::fs::symlink;

use command::{iopath, ok};
use testkit::judge::{self, LoopMount};
use testkit::manifest;

#[track_caller]
fn fails(args: &[&str]) -> String {
    let output = iopath(args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && !error.contains("panicked"), "{args:?}: {error}");
    error
}

/// Goal: each command changes an XFS image as it changes ext4, and leaves it clean. Method: a tree
/// goes in, every command changes something, the judges look; the tree comes out again.
#[test]
fn every_command_writes_xfs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let text = |name: &str| dir.path().join(name).display().to_string();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("sub/deep")).expect("directories");
    for n in 0..300 {
        std::fs::write(tree.join(format!("sub/file-{n}")), vec![n as u8; n * 40]).expect("a file");
    }
    symlink("sub/file-1", tree.join("link")).expect("a link");
    let image = text("disk.img");
    ok(&["mkfs", "-t", "xfs", "--size", "320M", "-n", "size=16k", "-m", "rmapbt=1", &image]);
    let at = |path: &str| format!("{image}:{path}");
    ok(&["cp", "-a", &text("tree"), &at("/tree")]);
    ok(&["mkdir", &at("/new")]);
    ok(&["mv", &at("/tree/sub/file-299"), &at("/new/moved")]);
    ok(&["ln", &at("/new/moved"), &at("/new/hard")]);
    ok(&["ln", "-s", "moved", &at("/new/soft")]);
    ok(&["rm", &at("/tree/sub/file-298")]);
    ok(&["rm", "-r", &at("/tree/sub/deep")]);
    ok(&["chmod", "600", &at("/new/moved")]);
    ok(&["touch", &at("/new/touched")]);
    ok(&["truncate", "--size", "100", &at("/new/moved")]);
    ok(&["-o", "logbsize=256k,wsync", "mkdir", &at("/new/synchronous")]);
    let error = fails(&["-o", "data=journal", "mkdir", &at("/refused")]);
    assert!(error.contains("is for ext2, ext3 and ext4"), "{error}");
    let error = fails(&["-o", "logbsize=48k", "mkdir", &at("/refused")]);
    assert!(error.contains("logbsize is 32k"), "{error}");
    ok(&["check", &image]);
    judge::xfs_repair(dir.path().join("disk.img").as_path()).expect("xfs_repair");
    ok(&["cp", "-a", &at("/"), &text("out")]);
    let ours = manifest::of_dir(&dir.path().join("out")).expect("what came out");
    let kernel = LoopMount::new(&dir.path().join("disk.img"), "xfs", "ro,nouuid").expect("a mount");
    let theirs = manifest::of_dir(&kernel.path()).expect("the kernel reads");
    let diff = manifest::diff(&ours, &theirs);
    assert!(diff.is_empty(), "{diff}");
    assert_eq!(theirs[&b"new/moved"[..]].size, 100);
}
