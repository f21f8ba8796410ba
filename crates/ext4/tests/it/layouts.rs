//! Places of superblocks and descriptors that few file systems have: written by us over all groups,
//! read and written by the kernel, and the reverse.

use std::sync::Arc;

use crate::support::*;
use rt::Cx;
use testkit::judge::{self, LoopMount};
use testkit::manifest;
use vfs::FileSystem;

/// With blocks of 1 KiB three groups of 16 (or two of 32) groups.
const BYTES: u64 = 300 << 20;
const CELLS: [Cell; 6] = [
    Cell::new("ext4", 1024).features("meta_bg,^resize_inode"),
    Cell::new("ext4", 1024).features("meta_bg,^resize_inode,^64bit,^flex_bg").mke2fs(),
    Cell::new("ext4", 1024).features("meta_bg,^resize_inode,^metadata_csum,uninit_bg"),
    Cell::new("ext4", 1024).features("sparse_super2"),
    Cell::new("ext4", 1024).features("sparse_super2,^sparse_super,^resize_inode").mke2fs(),
    Cell::new("ext4", 1024).features("stable_inodes"),
];

/// Directories, which are spread over the groups, with a file each.
fn fill(cx: &mut Cx, fs: &dyn FileSystem, prefix: &str) {
    for number in 0..60u64 {
        let dir = mkdir(cx, fs, fs.root(), &format!("{prefix}{number}"));
        let file = create(cx, fs, dir, "file");
        let mut bytes = vec![0; 2_000_000];
        pattern(number, 0, &mut bytes);
        assert_eq!(fs.write(cx, file, 0, &bytes).expect("room"), bytes.len());
    }
}

#[test]
fn all_groups_are_written_and_the_kernel_goes_on() {
    for cell in CELLS {
        let what = format!("{cell:?}");
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, BYTES);
            let (fs, _) = mount(cx, device.clone());
            fill(cx, &*fs, "ours");
            for number in 0..60u64 {
                let name = format!("ours{number}");
                if number % 3 == 0 {
                    let dir = fs.lookup(cx, fs.root(), name.as_bytes()).expect("there").ino;
                    fs.unlink(cx, dir, b"file").expect("removed");
                    fs.rmdir(cx, fs.root(), name.as_bytes()).expect("removed");
                }
            }
            let ours = manifest::of_fs(cx, &*fs).expect("our tree");
            let file = close(cx, &*fs, &device, &what);
            let theirs = judge::kernel_manifest(file.path(), "ext4");
            assert_eq!(manifest::diff(&ours, &theirs), "", "{what}: ours");
            let mounted = LoopMount::new(file.path(), "ext4", "rw").expect("the kernel mounts it");
            for number in 0..20 {
                let dir = mounted.path().join(format!("kernel{number}"));
                std::fs::create_dir(&dir).expect("a directory");
                std::fs::write(dir.join("file"), vec![number; 500_000]).expect("a file");
            }
            drop(mounted);
            let theirs = judge::kernel_manifest(file.path(), "ext4");
            let device = Arc::new(testkit::image::load(file.path()));
            checked(cx, &device, &format!("{what}: the kernel's"));
            let (fs, _) = mount(cx, device.clone());
            let read = manifest::of_fs(cx, &*fs).expect("the kernel's tree");
            assert_eq!(manifest::diff(&theirs, &read), "", "{what}: the kernel's");
            fs.unmount(cx).expect("unmount");
            judged(&device, &what);
        });
    }
}
