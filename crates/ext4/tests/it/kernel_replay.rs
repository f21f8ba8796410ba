//! Either replays the other's journal: dirty images of the kernel by us, our dirty images by the
//! kernel and by e2fsck; the trees are equal afterwards.

use crate::support::recovered::*;
use crate::support::*;
use std::path::Path;
use testkit::judge::{self, LoopMount};
use vfs::FileSystem;

fn needs_recovery(image: &Path) -> bool {
    judge::run_ok("dumpe2fs", &[&"-h", &image]).contains("needs_recovery")
}

/// Makes an image with mke2fs, lets the kernel work on it, and copies it while it is mounted.
fn dirty_image_of_the_kernel(kind: &str, options: &[&str], script: &str) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    judge::mke2fs(file.path(), 64 << 20, &[&["-t", kind], options].concat());
    let mount = LoopMount::new(file.path(), kind, "rw,commit=300").expect("the kernel mounts it");
    shell(&mount.path(), script);
    shell(&mount.path(), "sync -f .");
    shell(&mount.path(), "mkdir late; for n in $(seq 50); do echo $n > late/$n; done; sync late/1");
    let image = testkit::image::read(file.path());
    drop(mount);
    image
}

const SCRIPT: &str = "\
    mkdir a a/b; for n in $(seq 700); do echo file $n > a/b/f$n; done; \
    dd if=/dev/urandom of=big bs=64k count=40 2>/dev/null; ln -s target link; ln big hard; \
    setfattr -n user.x -v value big; rm a/b/f1*; mv a/b/f2 moved; truncate -s 100000 big; sync; \
    rm -r a/b; for n in $(seq 300); do echo again $n > a/g$n; done";

#[test]
fn we_replay_the_journal_of_the_kernel() {
    for (kind, options) in [
        ("ext4", &[][..]),
        ("ext4", &["-b", "1024"]),
        ("ext4", &["-O", "^metadata_csum,^64bit"]),
        ("ext3", &[]),
    ] {
        let image = dirty_image_of_the_kernel(kind, options, SCRIPT);
        let file = testkit::image::write(&image);
        assert!(needs_recovery(file.path()), "{kind} {options:?}: the copy is dirty");
        let (ours, device) = recovered_by_us(&image);
        assert!(!ours.is_empty());
        let theirs = recovered_by_e2fsck(&image, kind);
        assert_equal(&ours, &theirs, &format!("{kind} {options:?}"));
        e2fsck(&device, &format!("{kind} {options:?} after our replay"));
    }
}

/// Linux makes the root of a tree out of the block that was linear, and leaves its tail there: we
/// took that root for a leaf and gave it a leaf's checksum.
#[test]
fn a_tree_that_the_kernel_made_grows() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    judge::mke2fs(file.path(), 64 << 20, &["-t", "ext4", "-b", "4096"]);
    let mount = LoopMount::new(file.path(), "ext4", "rw").expect("the kernel mounts it");
    shell(&mount.path(), "mkdir d; for n in $(seq 300); do : > d/name-of-the-kernel-$n; done");
    drop(mount);
    let device = std::sync::Arc::new(testkit::image::load(file.path()));
    rt::testing::world(|cx| {
        let (fs, _) = mount_cached(cx, device.clone(), 16 << 20);
        let dir = fs.lookup(cx, fs.root(), b"d").expect("lookup").ino;
        for n in 0..600 {
            create(cx, &*fs, dir, &format!("name-of-ours-{n}"));
        }
        fs.unmount(cx).expect("unmount");
    });
    e2fsck(&device, "a tree that grew");
}

#[test]
fn the_kernel_and_e2fsck_replay_our_journal() {
    for (kind, block) in [("ext4", 4096), ("ext4", 1024), ("ext3", 4096)] {
        let device = rt::testing::world(|cx| {
            let device = fresh(cx, 64 << 20, kind, block);
            let (fs, _) = mount(cx, device.clone());
            let dir = mkdir(cx, &*fs, fs.root(), "dir");
            for n in 0..900u64 {
                let file = create(cx, &*fs, dir, &format!("file{n}"));
                let mut data = vec![0; (n * 7 % 9000) as usize];
                pattern(n, 0, &mut data);
                fs.write(cx, file, 0, &data).expect("write");
                if n > 0 && n % 3 == 0 {
                    fs.unlink(cx, dir, format!("file{}", n / 3).as_bytes()).expect("unlink");
                }
                if n % 50 == 0 {
                    fs.fsync(cx, file, false).expect("fsync");
                }
            }
            fs.sync(cx).expect("sync");
            fs.shutdown_hard();
            device
        });
        let image = device.snapshot();
        assert!(needs_recovery(testkit::image::write(&image).path()), "the image is dirty");
        let what = format!("{kind} with blocks of {block}");
        let (ours, recovered) = recovered_by_us(&image);
        e2fsck(&recovered, &what);
        assert_equal(&ours, &recovered_by_e2fsck(&image, kind), &what);
        assert_equal(&ours, &recovered_by_kernel(&image, kind), &what);
    }
}
