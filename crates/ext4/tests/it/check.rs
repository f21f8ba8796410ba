//! Our own check: sound images have no findings, one defect has one finding, e2fsck agrees.

use crate::common::image::Image;
use crate::common::{Scratch, assert_clean, debugfs};
use testkit::judge::LoopMount;

/// Makes an image with mke2fs and lets the kernel fill it.
fn populated(scratch: &Scratch, args: &[&str], size: &str) -> Image {
    let path = scratch.mke2fs("populated", args, size);
    let mount = LoopMount::new(&path, "ext4", "rw").expect("the kernel mounts it");
    crate::common::populate(&mount.path());
    drop(mount);
    // The kernel leaves indexed directories; e2fsck agrees with what it left.
    assert_clean(&path, "the kernel's work");
    Image::open(&path)
}

/// Goal: what mke2fs, debugfs, the kernel and our mkfs make has no findings.
#[test]
fn sound_images_have_no_findings() {
    let scratch = Scratch::new();
    let variants: &[(&[&str], &str)] = &[
        (&["-t", "ext2"], "8M"),
        (&["-t", "ext2", "-b", "4096", "-r", "0"], "8M"),
        (&["-t", "ext3"], "64M"),
        (&["-t", "ext3", "-O", "uninit_bg", "-b", "2048"], "64M"),
        (&["-t", "ext4"], "64M"),
        (&["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"], "64M"),
        (&["-t", "ext4", "-O", "^metadata_csum,uninit_bg", "-b", "1024"], "64M"),
        (&["-t", "ext4", "-O", "^64bit", "-b", "4096"], "256M"),
        (&["-t", "ext4", "-O", "^flex_bg,^resize_inode", "-I", "128"], "64M"),
        (&["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024"], "64M"),
        (&["-t", "ext4", "-O", "sparse_super2"], "64M"),
        (&["-t", "ext4", "-J", "size=64"], "600M"),
    ];
    for (args, size) in variants {
        let path = scratch.mke2fs("image", args, size);
        let report = Image::open(&path).check();
        assert_eq!(report.findings, [], "{args:?} {size}");
        if !args.contains(&"-r") {
            debugfs(&path, "mkdir dir\nsymlink fast short\nmknod null c 1 3\n");
            assert_eq!(Image::open(&path).check().findings, [], "{args:?} {size} with files");
        }
    }
}

/// Goal: images that the kernel has filled have no findings.
#[test]
fn images_of_the_kernel_have_no_findings() {
    let scratch = Scratch::new();
    let variants: &[&[&str]] = &[
        &["-t", "ext2"],
        &["-t", "ext3", "-b", "4096"],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file", "-b", "4096"],
        &["-t", "ext4", "-O", "^metadata_csum,uninit_bg", "-b", "2048"],
        &["-t", "ext4", "-I", "128"],
    ];
    for args in variants {
        let image = populated(&scratch, args, "64M");
        let report = image.check();
        assert_eq!(report.findings, [], "{args:?}");
        assert!(report.inodes_used > 3000 && report.directories >= 6, "{report:?}");
    }
}
