//! Dirty logs of the kernel: replayed by us, they give what the kernel's own replay gives.
//!
//! The kernel mounts an image, works in it, and is stopped in the middle (its own shutdown, or a
//! copy of the image while it is mounted). One copy is replayed by us, one by the kernel; then
//! xfs_repair must have nothing to say about either, and both must hold the same tree.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::log_common::replayed::{compare, settle, stop};
use crate::log_common::{Volume, copy, mkfs, real, scratch};
use testkit::judge::{self, LoopMount};

fn write(path: &Path, bytes: usize, byte: u8) -> File {
    let mut file = File::create(path).expect("created");
    file.write_all(&vec![byte; bytes]).expect("written");
    file
}

/// Names, sizes, links, attributes, holes: everything that is logged without an intent being open.
fn mixed(root: &Path, round: usize) {
    let dir = root.join(format!("dir-{round}"));
    fs::create_dir(&dir).expect("a directory");
    for index in 0..200 {
        let path = dir.join(format!("a-file-with-a-name-{index:05}"));
        let file = write(&path, index * 37, index as u8);
        match index % 10 {
            0 => file.sync_all().expect("synced"),
            1 => fs::remove_file(&path).expect("removed"),
            2 => fs::rename(&path, dir.join(format!("renamed-{index}"))).expect("renamed"),
            3 => fs::hard_link(&path, dir.join(format!("link-{index}"))).expect("linked"),
            4 => symlink("x".repeat(index), dir.join(format!("sym-{index}"))).expect("a symlink"),
            5 => file.set_len(1 << 20).expect("extended"),
            _ => {}
        }
    }
    for index in (0..200).step_by(7) {
        let path = dir.join(format!("a-file-with-a-name-{index:05}"));
        if path.exists() {
            let value = "v".repeat(20 + index * 8);
            judge::run_ok("setfattr", &[&"-n", &"user.test", &"-v", &value, &path]);
        }
    }
    if round > 0 {
        fs::remove_dir_all(root.join(format!("dir-{}", round - 1))).expect("removed");
    }
}

fn image(dir: &Path, args: &[&str]) -> PathBuf {
    mkfs(dir, "dirty.img", 320 << 20, args)
}

/// The kernel shuts itself down after its log was forced.
#[test]
fn a_log_that_was_forced_and_cut() {
    let dir = scratch();
    let cases = [
        (&["-n", "size=4096"][..], "rw"),
        (&["-n", "size=65536", "-m", "rmapbt=1"], "rw,logbsize=256k"),
        (&["-b", "size=1024"], "rw,logbsize=64k"),
        (&["-l", "su=128k"], "rw"),
    ];
    for (args, options) in cases {
        let image = image(dir.path(), args);
        let mount = LoopMount::new(&image, "xfs", options).expect("mounted");
        mixed(&mount.path(), 0);
        mixed(&mount.path(), 1);
        settle(&mount);
        stop(mount);
        let replayed = compare(dir.path(), &image);
        assert!(replayed.transactions > 0 && replayed.items > 100, "{args:?}: {replayed:?}");
    }
}

/// Goal: a log is replayed whatever the sectors of its file system are. Method: the kernel shuts
/// itself down on sectors of every size. The replay once read 512 bytes of the superblock, and took
/// one with longer sectors for cut off.
#[test]
fn a_log_on_sectors_of_every_size() {
    let dir = scratch();
    for sector in [1024, 2048, 4096] {
        let words = ["-s", &format!("size={sector}")];
        let image = mkfs(dir.path(), "dirty.img", 320 << 20, &words);
        let mount = LoopMount::new(&image, "xfs", "rw").expect("mounted");
        mixed(&mount.path(), 0);
        settle(&mount);
        stop(mount);
        let replayed = compare(dir.path(), &image);
        assert!(replayed.transactions > 0, "sectors {sector}: {replayed:?}");
    }
}

/// The file system grew, and new groups are in use; the superblock on the disk is the old one.
#[test]
fn a_log_of_a_growth() {
    let dir = scratch();
    for (args, size) in [("rmapbt=1,reflink=1", 310), ("rmapbt=0,reflink=0", 900)] {
        let words = ["-m", args, "-d", "size=300m,agcount=4"];
        let image = mkfs(dir.path(), "dirty.img", size << 20, &words);
        let mount = LoopMount::new(&image, "xfs", "rw").expect("mounted");
        mixed(&mount.path(), 0);
        judge::run_ok("xfs_growfs", &[&"-d", &mount.path()]);
        mixed(&mount.path(), 1);
        for index in 0..40 {
            let dir = mount.path().join(format!("new-{index}"));
            fs::create_dir(&dir).expect("a directory");
            write(&dir.join("file"), 30_000, index).sync_all().expect("synced");
        }
        settle(&mount);
        stop(mount);
        let superblock = real(|cx| Volume::open(cx, &image).geometry);
        assert_eq!(superblock.ag_count(), 4, "{args}: the log alone says so");
        let replayed = compare(dir.path(), &image);
        assert!(replayed.transactions > 0, "{args}: {replayed:?}");
        let grown = real(|cx| Volume::open(cx, &image).geometry);
        assert_eq!(grown.blocks_count(), size << 8, "{args}");
    }
}

/// The image is copied while the kernel works on, after an fsync: a cut in the middle of things.
#[test]
fn a_copy_of_a_mounted_image() {
    let dir = scratch();
    let image = image(dir.path(), &["-m", "rmapbt=1,reflink=1"]);
    let mount = LoopMount::new(&image, "xfs", "rw").expect("mounted");
    for round in 0..4 {
        mixed(&mount.path(), round);
        settle(&mount);
        write(&mount.path().join("last"), 5000, 7).sync_all().expect("synced");
        let dirty = dir.path().join("copy.img");
        copy(&image, &dirty);
        compare(dir.path(), &dirty);
    }
}

/// So much is written that the log goes round several times.
#[test]
fn a_log_that_has_wrapped() {
    let dir = scratch();
    let image = image(dir.path(), &["--unsupported", "-l", "size=10m"]);
    let mount = LoopMount::new(&image, "xfs", "rw").expect("mounted");
    let mut cycles = 0;
    for round in 0..60 {
        mixed(&mount.path(), round);
        judge::run_ok("sync", &[&"-f", &mount.path()]);
        if round % 15 == 14 {
            settle(&mount);
            write(&mount.path().join("last"), 5000, 7).sync_all().expect("synced");
            let dirty = dir.path().join("copy.img");
            copy(&image, &dirty);
            cycles = real(|cx| {
                let volume = Volume::open(cx, &dirty);
                let found = xfs::log::recovery::find(cx, &volume.queue, volume.log());
                found.expect("a head").head.head.cycle
            });
            compare(dir.path(), &dirty);
        }
    }
    assert!(cycles > 1, "the log did not wrap: cycle {cycles}");
}

/// Files that are open and have no name when the log is cut are freed, whatever their forms.
#[test]
fn unlinked_open_files_are_freed() {
    let dir = scratch();
    for args in
        [&["-m", "rmapbt=1"][..], &["-b", "size=1024", "-n", "size=4096"], &["-m", "reflink=0"]]
    {
        let image = image(dir.path(), args);
        let mount = LoopMount::new(&image, "xfs", "rw").expect("mounted");
        mixed(&mount.path(), 0);
        let mut open = Vec::new();
        for index in 0..150 {
            let path = mount.path().join(format!("gone-{index}"));
            let mut file = write(&path, index * 300, 1);
            if index % 50 == 0 {
                // So many extents that the map becomes a btree.
                for hole in 0..400 {
                    use std::os::unix::fs::FileExt;
                    file.write_all_at(&[1; 4096], hole * 12288).expect("written");
                }
            }
            if index % 3 == 0 {
                let value = "v".repeat(2500);
                judge::run_ok("setfattr", &[&"-n", &"user.test", &"-v", &value, &path]);
            }
            file.flush().expect("flushed");
            judge::run_ok("xfs_io", &[&"-c", &"fsync", &path]);
            fs::remove_file(&path).expect("removed");
            open.push(file);
        }
        write(&mount.path().join("last"), 5000, 7).sync_all().expect("synced");
        let dirty = dir.path().join("copy.img");
        copy(&image, &dirty);
        drop(open);
        drop(mount);
        let replayed = compare(dir.path(), &dirty);
        assert_eq!(replayed.unlinked, 150, "{args:?}: {replayed:?}");
    }
}
