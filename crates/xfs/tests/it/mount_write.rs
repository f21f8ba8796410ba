//! Mounts for writing: what changes goes through the log, survives, and the judges agree.

use crate::log_common::{mkfs, mount, real, repair, scratch};
use testkit::{judge, manifest};
use vfs::{FileSystem, SetAttr};

/// Goal: a changed inode is on the disk after an unmount, and in the log after an fsync. Method:
/// the root's mode is changed twice, before an fsync and a power cut and before an unmount; the
/// kernel and xfs_repair look.
#[test]
fn a_changed_inode_survives_a_power_cut_and_an_unmount() {
    let dir = scratch();
    let image = mkfs(dir.path(), "image", 320 << 20, &[]);
    for (mode, cut) in [(0o711, true), (0o750, false)] {
        real(|cx| {
            let fs = mount(cx, &image);
            let set = SetAttr { mode: Some(mode), uid: Some(7), ..SetAttr::default() };
            fs.setattr(cx, fs.root(), &set).expect("setattr");
            fs.fsync(cx, fs.root(), false).expect("fsync");
            match cut {
                true => fs.shutdown_hard(),
                false => fs.unmount(cx).expect("unmount"),
            }
        });
        if !cut {
            repair(&image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
        }
        let copy = dir.path().join("copy");
        crate::log_common::copy(&image, &copy);
        let kernel = judge::LoopMount::new(&copy, "xfs", "rw").expect("the kernel mounts");
        let tree = manifest::of_dir(&kernel.path()).expect("the kernel reads");
        let root = tree.values().next().expect("the root");
        assert_eq!((root.mode, root.uid), (u32::from(mode), 7));
    }
}
