//! Files that share blocks, made by the kernel: its dirty logs replayed by us give what its own
//! replay gives, with reference counts, extents in a CoW fork, and open files without
//! names.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::log_common::replayed::{compare, settle, stop};
use crate::log_common::{copy, mkfs, scratch};
use testkit::judge::{self, LoopMount};

const SETS: [(&str, &[&str]); 3] = [
    ("rw", &["-m", "reflink=1,rmapbt=1"]),
    ("rw,logbsize=256k", &["-m", "reflink=1,rmapbt=0"]),
    ("rw", &["-b", "size=1024", "-m", "reflink=1,rmapbt=1"]),
];

fn image(dir: &Path, args: &[&str]) -> PathBuf {
    mkfs(dir, "shared.img", 320 << 20, args)
}

fn clone(from: &Path, to: &Path) {
    judge::run_ok("cp", &[&"--reflink=always", &from, &to]);
}

/// Files that share blocks whole or in part, some of them written over afterwards.
fn share(root: &Path, round: u8) {
    let dir = root.join(format!("round-{round}"));
    fs::create_dir(&dir).expect("a directory");
    let first = dir.join("first");
    let mut file = File::create(&first).expect("created");
    for piece in 0..60u8 {
        file.write_all(&vec![piece.wrapping_add(round); 12 << 10]).expect("written");
    }
    file.sync_all().expect("synced");
    for number in 0..12u64 {
        let copy = dir.join(format!("copy-{number}"));
        clone(&first, &copy);
        let file = OpenOptions::new().write(true).open(&copy).expect("opened");
        for piece in 0..number {
            file.write_all_at(&[round; 5000], piece * 40_000 + number * 512).expect("written");
        }
        match number % 4 {
            0 => file.sync_all().expect("synced"),
            1 => file.set_len(100_000 + number * 1000).expect("cut"),
            2 => fs::remove_file(&copy).expect("removed"),
            _ => {
                let args = format!("reflink {} 4096 {} 200000", first.display(), 300_000);
                judge::run_ok("xfs_io", &[&"-c", &args, &copy]);
            }
        }
    }
    if round > 0 {
        fs::remove_dir_all(root.join(format!("round-{}", round - 1))).expect("removed");
    }
}

/// The kernel stops itself after its log was forced, with writes under way.
#[test]
fn logs_of_files_that_share_blocks() {
    let dir = scratch();
    for (options, args) in SETS {
        let image = image(dir.path(), args);
        let mount = LoopMount::new(&image, "xfs", options).expect("mounted");
        share(&mount.path(), 0);
        share(&mount.path(), 1);
        settle(&mount);
        stop(mount);
        let replayed = compare(dir.path(), &image);
        assert!(replayed.transactions > 0 && replayed.items > 100, "{args:?}: {replayed:?}");
    }
}

/// The image is copied while the kernel works on, after an fsync. What it has allocated for copy on
/// write is freed.
#[test]
fn copies_of_a_mounted_image_with_staged_extents() {
    let dir = scratch();
    let (mut staged, mut unlinked) = (0, 0);
    for (options, args) in SETS {
        let image = image(dir.path(), args);
        let mount = LoopMount::new(&image, "xfs", options).expect("mounted");
        for round in 0..3 {
            share(&mount.path(), round);
            // Larger than what is written at once: the rest of the staged extent is left over.
            let path = mount.path().join(format!("round-{round}/first"));
            let other = path.with_extension("staged");
            clone(&path, &other);
            let mut open = File::create(path.with_extension("gone")).expect("created");
            open.write_all(&[round; 70_000]).expect("written");
            clone(&path.with_extension("gone"), &path.with_extension("kept"));
            let file = OpenOptions::new().write(true).open(&other).expect("opened");
            file.write_all_at(&[9; 4096], 64 << 10).expect("written");
            file.sync_all().expect("synced");
            let args = format!("reflink {} 0 131072 65536", path.display());
            judge::run_ok("xfs_io", &[&"-c", &args, &path.with_extension("gone")]);
            fs::remove_file(path.with_extension("gone")).expect("removed");
            settle(&mount);
            File::create(mount.path().join("last"))
                .and_then(|file| file.sync_all())
                .expect("synced");
            let dirty = dir.path().join("copy.img");
            copy(&image, &dirty);
            let replayed = compare(dir.path(), &dirty);
            staged += replayed.cow_blocks;
            unlinked += replayed.unlinked;
            drop(open);
        }
    }
    assert!(staged > 0 && unlinked > 0, "{staged} blocks staged, {unlinked} files without names");
}
