//! Metadata that was written behind records that the log has not come to.

use std::sync::Arc;

use device::MemoryDevice;
use testkit::content::{create, mkdir};
use vfs::{FileSystem, SetAttr};
use xfs::format::log::Lsn;
use xfs::format::{Kind as Block, verifier};

use crate::xfs_support::{self, geometry, log_head, manifest, pieces, written_behind};
use crate::{kind, repaired};

/// Where the log of an image ends.
fn log_end(device: &MemoryDevice) -> Lsn {
    log_head(device).head.head
}

fn judged_sound(device: &Arc<MemoryDevice>) -> Result<(), String> {
    let file = testkit::image::write_device(device);
    testkit::judge::xfs_repair(file.path())
}

/// Each kind of metadata, behind the last record, behind one that is to come, and behind one that
/// never comes: judged as xfs_repair does, which leaves out inodes, and put right without a loss.
#[test]
fn metadata_ahead_of_the_log_is_put_right() {
    for name in ["xfs-rmap-1k", "xfs-parent-4k"] {
        let base = kind(name).image();
        let g = geometry(&base.snapshot()).expect("sound");
        let (before, end) = (manifest(&base).expect("sound"), log_end(&base));
        let all = pieces(&base, &g);
        assert!(all.len() >= 16, "{name}: {:?}", all.keys());
        for (number, places) in all {
            let kind = Block::ALL[usize::from(number)];
            // The last piece, so that not always the first group is meant.
            let one = &places[places.len() - 1..];
            let exempt = matches!(kind, Block::Super | Block::AttrRemote);
            let last = Lsn { block: end.block - 1, ..end };
            let far = Lsn { cycle: 1 << 30, block: 7 };
            for lsn in [last, end, Lsn { cycle: end.cycle + 3, block: 5 }, far] {
                let image = written_behind(&base, kind, one, lsn);
                let (ahead, what) = (lsn >= end && !exempt, format!("{name}, {kind:?}, {lsn}"));
                let judged = judged_sound(&image).is_err();
                assert_eq!(judged, ahead && kind != Block::Inode, "{what}");
                if !ahead {
                    assert!(crate::plan(&image).expect("a plan").is_clean(), "{what}");
                    continue;
                }
                let plan = repaired(&image);
                let rules: Vec<_> = plan.findings.iter().map(|found| found.rule).collect();
                assert_eq!(rules, ["log-behind"], "{what}: {:#?}", plan.findings);
                assert!(plan.is_safe() && plan.changes.len() <= 2, "{what}");
                assert_eq!(manifest(&image).as_ref(), Some(&before), "{what}");
                assert_eq!(log_end(&image), end, "{what}");
            }
        }
    }
}

/// Where much is ahead, the log is what is wrong: it goes on behind all of it.
#[test]
fn a_log_behind_all_metadata_is_made_empty() {
    let base = kind("xfs-rmap-1k").image();
    let g = geometry(&base.snapshot()).expect("sound");
    let before = manifest(&base).expect("sound");
    let mut image = base.clone();
    let all = pieces(&base, &g).into_iter();
    for (number, places) in all.filter(|&(number, _)| number != Block::Super as u8) {
        let kind = Block::ALL[usize::from(number)];
        let lsn = Lsn { cycle: 300 + u32::from(number), block: 5 };
        image = written_behind(&image, kind, &places, lsn);
    }
    // One of them is out of all order, which does not move the log there.
    let (at, len) = pieces(&base, &g)[&(Block::Agi as u8)][1];
    image = written_behind(&image, Block::Agi, &[(at, len)], Lsn { cycle: u32::MAX, block: 0 });
    assert!(judged_sound(&image).is_err());
    let plan = repaired(&image);
    let rules: Vec<_> = plan.findings.iter().map(|found| found.rule).collect();
    assert_eq!(rules, ["log-behind"; 2], "{:#?}", plan.findings);
    assert!(plan.is_safe(), "{:#?}", plan.findings);
    let end = log_end(&image);
    assert!((300..400).contains(&end.cycle), "{end}");
    assert_eq!(manifest(&image).as_ref(), Some(&before));
    let file = testkit::image::write_device(&image);
    assert_eq!(testkit::judge::kernel_manifest(file.path(), "xfs").len(), before.len());
}

/// A superblock that was written behind a record that never comes keeps the log from being read.
#[test]
fn a_superblock_far_ahead_of_the_log_is_put_right() {
    let base = kind("xfs-4k").image();
    let before = manifest(&base).expect("sound");
    for cycle in [1 << 30, u32::MAX] {
        let lsn = Lsn { cycle, block: 9 };
        let image = written_behind(&base, Block::Super, &[(0, 512)], lsn);
        assert_eq!(manifest(&image), None, "it is not mounted");
        let plan = repaired(&image);
        assert!(plan.is_safe(), "{:#?}", plan.findings);
        assert_eq!(manifest(&image).as_ref(), Some(&before));
    }
}

/// A mount does not read what is ahead of the log, as Linux does not: recovery would leave its next
/// changes out.
#[test]
fn a_mount_refuses_metadata_ahead_of_the_log() {
    let (base, dir) = kind("xfs-4k").image_with(|cx, fs| {
        let dir = mkdir(cx, fs, fs.root(), "more");
        for n in 0..40 {
            create(cx, fs, dir, &format!("a longer name of file {n}"));
        }
        dir
    });
    let g = geometry(&base.snapshot()).expect("sound");
    let blocks = &pieces(&base, &g)[&(Block::DirBlock as u8)];
    let lsn = Lsn { cycle: 9, block: 9 };
    let image = written_behind(&base, Block::DirBlock, blocks, lsn);
    let found = rt::testing::world(|cx| {
        let fs = xfs_support::mount(cx, image.clone()).expect("mounted");
        fs.lookup(cx, dir, b"a longer name of file 7").map(|_| ())
    });
    assert_eq!(found, Err(base::Errno::EUCLEAN));
    let file = testkit::image::write_device(&image);
    let kernel = testkit::judge::LoopMount::new(file.path(), "xfs", "").expect("mounted");
    let error = std::fs::read_dir(kernel.path().join("more"))
        .and_then(|mut dir| dir.next().expect("there are names").map(|_| ()));
    let error = error.expect_err("refused");
    assert_eq!(base::Errno::from_io(&error), base::Errno::EUCLEAN);
}

/// An inode that is ahead of the log, which xfs_repair takes for sound, loses what a mount changes
/// in it when the power is cut. After the repair it does not.
#[test]
fn an_inode_ahead_of_the_log_keeps_its_changes_after_a_repair() {
    let (base, ino) = kind("xfs-4k").image_with(|cx, fs| create(cx, fs, fs.root(), "file"));
    let lsn = Lsn { cycle: 9, block: 9 };
    let image = Arc::new(base.fork());
    crate::change_slot(&image, ino, |slot| {
        verifier::update_lsn_crc(Block::Inode, slot, lsn.bits());
    });
    judged_sound(&image).expect("sound for xfs_repair");
    let mode_after_a_cut = |image: &Arc<MemoryDevice>| {
        let cut = rt::testing::world(|cx| {
            let fs = xfs_support::mount(cx, image.clone()).expect("mounted");
            let change = SetAttr { mode: Some(0o4711), ..SetAttr::default() };
            fs.setattr(cx, ino, &change).expect("a mode");
            fs.fsync(cx, ino, false).expect("fsync");
            image.snapshot()
        });
        let cut = Arc::new(MemoryDevice::from_image(&cut));
        rt::testing::world(|cx| {
            let fs = xfs_support::mount(cx, cut).expect("recovered");
            fs.getattr(cx, ino).expect("the inode").mode & 0o7777
        })
    };
    assert_ne!(mode_after_a_cut(&Arc::new(image.fork())), 0o4711);
    repaired(&image);
    assert_eq!(mode_after_a_cut(&image), 0o4711);
}

/// The log is zeroed, with the superblock or without it: judged as xfs_repair does, and made empty
/// behind all metadata. It was called clean, and the kernel refused every directory.
#[test]
fn a_zeroed_log_is_made_empty() {
    for (name, superblock) in [("xfs-4k", true), ("xfs-4k", false), ("xfs-parent-1k", false)] {
        let base = kind(name).image();
        let before = manifest(&base).expect("sound");
        let g = geometry(&base.snapshot()).expect("sound");
        let image = Arc::new(base.fork());
        let log = vec![0; (g.log_blocks * g.block_size) as usize];
        image.write_at(g.sector(g.log_start).bytes(), &log);
        if !superblock {
            image.write_at(0, &[0; 512]);
        }
        assert!(judged_sound(&image).is_err(), "{name}");
        let plan = repaired(&image);
        assert!(plan.findings.iter().any(|found| found.rule == "log-start"), "{name}");
        assert_eq!(manifest(&image).as_ref(), Some(&before), "{name}");
        if name == "xfs-4k" {
            let file = testkit::image::write_device(&image);
            let kernel = testkit::judge::kernel_manifest(file.path(), "xfs");
            assert_eq!(kernel.len(), before.len());
        }
    }
}
