//! File systems that become larger and smaller: content stays, `xfs_repair -n` of the host and the
//! newest one and our check find nothing, the kernel mounts them; a power cut at any write leaves
//! the old size or the new one.

use std::sync::Arc;

use crate::world::{Cell, checked, repaired, seed_count};
use base::Errno;
use device::{MemoryDevice, RecordDevice};
use rt::Cx;
use testkit::crash::{self, CrashConfig};
use testkit::format::{Format, recover};
use testkit::judge;
use vfs::{FileSystem, FileType, NewNode};
use xfs::Xfs;
use xfs::format::RawSuper;
use xfs::format::features::Incompat;
use xfs::resize::{ResizeError, ResizeReport, resize};
use xfs::tune::{TuneOptions, tune};

const DEVICE: u64 = 112 << 20;
/// The file system at first: three groups of 16 MiB and a shorter one.
const PLAIN: Cell = Cell(&[('d', "size=60m,agcount=3")]);
const MAPPED: Cell = Cell(&[('b', "size=1024"), ('m', "rmapbt=1"), ('d', "size=60m,agcount=3")]);
const NEWEST: Cell = Cell(&[('m', "rmapbt=1"), ('n', "parent=1"), ('d', "size=60m,agcount=3")]);

fn to(cx: &mut Cx, device: &Arc<MemoryDevice>, mib: u64) -> Result<ResizeReport, ResizeError> {
    let queue = crate::world::queue(cx, device.clone());
    resize(cx, &queue, Some(mib << 20))
}

fn content(index: u64) -> Vec<u8> {
    let mut rng = base::Rng::new(index, 9);
    (0..60_000 + index * 31).map(|_| rng.below(256) as u8).collect()
}

pub fn write_files(cx: &mut Cx, fs: &Xfs, range: std::ops::Range<u64>) -> Result<(), Errno> {
    for index in range {
        let node = NewNode::new(FileType::Regular, 0o640);
        let ino = fs.create(cx, fs.root(), format!("f{index}").as_bytes(), &node)?.ino;
        fs.write(cx, ino, 0, &content(index))?;
    }
    fs.sync(cx)
}

pub fn verify_files(cx: &mut Cx, fs: &Xfs, range: std::ops::Range<u64>) -> Result<(), String> {
    for index in range {
        let name = format!("f{index}");
        let attr = fs.lookup(cx, fs.root(), name.as_bytes()).map_err(|e| format!("{name}: {e}"))?;
        let mut bytes = vec![0; attr.size as usize];
        fs.read(cx, attr.ino, 0, &mut bytes).map_err(|e| format!("{name}: {e}"))?;
        if bytes != content(index) {
            return Err(format!("{name} has other content"));
        }
    }
    Ok(())
}

pub fn sound(cx: &mut Cx, device: &Arc<MemoryDevice>, what: &str) {
    checked(cx, device).unwrap_or_else(|found| panic!("{what}: {found}"));
    repaired(device).unwrap_or_else(|found| panic!("{what}: {found}"));
}

/// Blocks of the file system as the kernel counts them.
pub fn kernel_blocks(device: &MemoryDevice) -> u64 {
    let file = testkit::image::write_device(device);
    let mount = judge::LoopMount::new(file.path(), "xfs", "rw").expect("the kernel mounts");
    let path = mount.path();
    let out = judge::run_ok("stat", &[&"-f", &"-c", &"%b", &path]);
    out.trim().parse().expect("a number")
}

/// Goal: a file system takes the space that its device has, and gives it back while nothing is
/// there. Method: the last group becomes longer, two groups come, all space is used; shrinking is
/// refused with the group that has blocks, then possible.
#[test]
fn file_systems_grow_and_shrink() {
    for (cell, newest) in [(PLAIN, false), (MAPPED, false), (NEWEST, true)] {
        rt::testing::real(|cx| {
            let device = cell.fresh(cx, DEVICE);
            let fs = cell.mount(cx, device.clone(), 8 << 20);
            write_files(cx, &fs, 0..100).expect("files");
            let before = fs.statfs(cx).expect("statfs");
            fs.unmount(cx).expect("unmount");
            let report = to(cx, &device, 107).expect("grown");
            assert_eq!((report.before.1, report.after.1), (3, 6), "{cell:?}: {report:?}");
            sound(cx, &device, &format!("{cell:?} grown"));
            let fs = cell.mount(cx, device.clone(), 8 << 20);
            let after = fs.statfs(cx).expect("statfs");
            let block = u64::from(after.block_size);
            let more = (after.blocks_free - before.blocks_free) * block;
            assert!((46 << 20..=47 << 20).contains(&more), "{cell:?}: {more} bytes more");
            if !newest {
                assert_eq!(kernel_blocks(&device.fork()), after.blocks, "{cell:?}");
            }
            let mut last = 100;
            while write_files(cx, &fs, last..last + 20).is_ok() {
                last += 20;
            }
            assert!(last >= 1200, "{cell:?}: {last} files");
            fs.unmount(cx).expect("unmount");
            let refused = to(cx, &device, 60).expect_err("in use");
            assert!(matches!(refused, ResizeError::InUse { group: 3..=5 }), "{refused}");
            let fs = cell.mount(cx, device.clone(), 8 << 20);
            verify_files(cx, &fs, 0..last).expect("files");
            for index in 100..last + 20 {
                let _ = fs.unlink(cx, fs.root(), format!("f{index}").as_bytes());
            }
            fs.unmount(cx).expect("unmount");
            // Chunks of inodes may stay; where they do the group is named.
            match to(cx, &device, 60) {
                Ok(report) => assert_eq!(report.after.1, 3, "{report:?}"),
                Err(error) => assert!(matches!(error, ResizeError::InUse { .. }), "{error}"),
            }
            sound(cx, &device, &format!("{cell:?} shrunk"));
            let fs = cell.mount(cx, device.clone(), 8 << 20);
            verify_files(cx, &fs, 0..100).expect("files");
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: with accounts of quota the copies of the superblock name no inodes of quota, as
/// xfs_repair wants it. Method: larger and smaller, and another label.
#[test]
fn copies_do_not_name_quota_files() {
    rt::testing::real(|cx| {
        let device = MAPPED.fresh(cx, DEVICE);
        let quota = xfs::QuotaMode::Count([Some(true); 3]);
        let options = xfs::MountOptions { quota, ..xfs::MountOptions::default() };
        let (fs, _) = crate::world::mount_with(cx, device.clone(), 8 << 20, options);
        write_files(cx, &fs, 0..10).expect("files");
        fs.unmount(cx).expect("unmount");
        for mib in [107, 58] {
            to(cx, &device, mib).unwrap_or_else(|error| panic!("{mib}: {error}"));
            sound(cx, &device, &format!("{mib} MiB"));
        }
        let label = TuneOptions { label: Some(b"counted".to_vec()), ..TuneOptions::default() };
        let queue = crate::world::queue(cx, device.clone());
        tune(cx, &queue, &label).expect("a label");
        sound(cx, &device, "with a label");
    });
}

/// Goal: `inobtcount` is turned on with the right numbers, which stay right. Method: trees of two
/// levels; power cuts at every flush and random ones; files made afterwards.
#[test]
fn blocks_of_inode_trees_are_counted_from_now_on() {
    let cell = Cell(&[('b', "size=1024"), ('m', "inobtcount=0"), ('d', "size=60m,agcount=3")]);
    let wanted = TuneOptions { features: vec!["inobtcount".into()], ..TuneOptions::default() };
    let (base, log, device) = rt::testing::real(|cx| {
        let device = cell.fresh(cx, DEVICE);
        let fs = cell.mount(cx, device.clone(), 8 << 20);
        write_files(cx, &fs, 0..10).expect("files");
        for n in 0..9000 {
            let node = NewNode::new(FileType::Regular, 0o640);
            fs.create(cx, fs.root(), format!("small{n}").as_bytes(), &node).expect("a file");
        }
        fs.unmount(cx).expect("unmount");
        let base = device.fork();
        let record = Arc::new(RecordDevice::new(device.clone()));
        tune(cx, &crate::world::queue(cx, record.clone()), &wanted).expect("tuned");
        (base, record.log(), device)
    });
    let mut seen = std::collections::BTreeSet::new();
    crash::explore(
        &CrashConfig { random: 20, ..CrashConfig::new(4) },
        &base,
        &log,
        |image, case| {
            recover(cell, &image, |cx, fs| {
                seen.insert(fs.geometry().features.inobtcount());
                verify_files(cx, fs, 0..10)
            })?;
            if case.index % 10 == 0 { repaired(&image) } else { Ok(()) }
        },
    );
    assert_eq!(seen.len(), 2, "before and after were met");
    rt::testing::real(|cx| {
        sound(cx, &device, "counted");
        kernel_blocks(&device.fork());
        let fs = cell.mount(cx, device.clone(), 8 << 20);
        for n in 9000..12_000 {
            let node = NewNode::new(FileType::Regular, 0o640);
            fs.create(cx, fs.root(), format!("small{n}").as_bytes(), &node).expect("a file");
        }
        fs.unmount(cx).expect("unmount");
        sound(cx, &device, "counted on");
        let bare = Cell(&[('m', "finobt=0,inobtcount=0"), ('d', "size=60m,agcount=3")]);
        let device = bare.fresh(cx, DEVICE);
        let queue = crate::world::queue(cx, device);
        let error = tune(cx, &queue, &wanted).expect_err("refused").to_string();
        assert!(error.contains("needs finobt"), "{error}");
    });
}

/// Goal: the free end goes, whole groups with it, and comes back.
#[test]
fn an_empty_end_goes_and_comes_back() {
    for cell in [PLAIN, MAPPED] {
        rt::testing::real(|cx| {
            let device = cell.fresh(cx, DEVICE);
            let fs = cell.mount(cx, device.clone(), 8 << 20);
            write_files(cx, &fs, 0..20).expect("files");
            fs.unmount(cx).expect("unmount");
            for (mib, groups) in [(100, 5), (58, 3), (41, 3), (112, 6), (60, 3)] {
                let report = to(cx, &device, mib).unwrap_or_else(|error| panic!("{mib}: {error}"));
                assert_eq!(report.after.1, groups, "{cell:?}, {mib} MiB");
                sound(cx, &device, &format!("{cell:?} of {mib} MiB"));
            }
            let error = to(cx, &device, 113).expect_err("larger than the device");
            assert!(matches!(error, ResizeError::Device { .. }), "{error}");
            let fs = cell.mount(cx, device.clone(), 8 << 20);
            verify_files(cx, &fs, 0..20).expect("files");
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: the old size or the new one, and everything in it. Method: cuts at every flush and random
/// ones between, with unflushed writes lost, of growing and of shrinking.
#[test]
fn a_cut_leaves_one_of_both_sizes() {
    for (cell, seed) in [(PLAIN, 1), (MAPPED, 2)] {
        for (from, mib) in [(60, 107), (107, 58)] {
            let (base, log) = rt::testing::real(|cx| {
                let device = cell.fresh(cx, DEVICE);
                if from != 60 {
                    to(cx, &device, from).expect("grown");
                }
                let fs = cell.mount(cx, device.clone(), 8 << 20);
                write_files(cx, &fs, 0..10).expect("files");
                fs.unmount(cx).expect("unmount");
                let base = device.fork();
                let record = Arc::new(RecordDevice::new(device.clone()));
                let queue = crate::world::queue(cx, record.clone());
                resize(cx, &queue, Some(mib << 20)).expect("resized");
                (base, record.log())
            });
            let mut seen = std::collections::BTreeSet::new();
            let random = 30 * seed_count(1) as usize;
            let config = CrashConfig { random, ..CrashConfig::new(seed) };
            let report = crash::explore(&config, &base, &log, |image, case| {
                recover(cell, &image, |cx, fs| {
                    seen.insert(fs.geometry().ag_count());
                    verify_files(cx, fs, 0..10)
                })?;
                if case.index % 10 == 0 { repaired(&image) } else { Ok(()) }
            });
            assert_eq!(seen.len(), 2, "{cell:?}: both sizes: {seen:?}, {report:?}");
        }
    }
}

/// Label and UUID of a device's superblock.
fn names(device: &MemoryDevice) -> (Vec<u8>, [u8; 16]) {
    let mut start = vec![0; 512];
    device.read_at(0, &mut start);
    let raw = RawSuper::view(&start).expect("a superblock");
    (raw.label().to_vec(), raw.sb_uuid)
}

/// Goal: label, UUID and features change, nothing else; a cut anywhere leaves a file system that
/// mounts, with the old UUID or the new one. Method: cuts at every flush and random ones; the
/// kernel mounts what came out.
#[test]
fn label_uuid_and_features_change() {
    let options = TuneOptions {
        label: Some(b"archive".to_vec()),
        uuid: Some([9; 16]),
        features: vec!["exchange".to_string()],
    };
    let wanted = options.clone();
    let (base, log, device) = rt::testing::real(move |cx| {
        let device = PLAIN.fresh(cx, DEVICE);
        let fs = PLAIN.mount(cx, device.clone(), 8 << 20);
        write_files(cx, &fs, 0..10).expect("files");
        fs.unmount(cx).expect("unmount");
        let base = device.fork();
        let record = Arc::new(RecordDevice::new(device.clone()));
        let queue = crate::world::queue(cx, record.clone());
        tune(cx, &queue, &wanted).expect("tuned");
        (base, record.log(), device)
    });
    assert_eq!(names(&device), (b"archive".to_vec(), [9; 16]));
    let mut seen = std::collections::BTreeSet::new();
    let config = CrashConfig { random: 30, ..CrashConfig::new(3) };
    crash::explore(&config, &base, &log, |image, case| {
        seen.insert(names(&image).1);
        recover(PLAIN, &image, |cx, fs| verify_files(cx, fs, 0..10))?;
        if case.index % 10 == 0 { repaired(&image) } else { Ok(()) }
    });
    assert_eq!(seen, [[7; 16], [9; 16]].into(), "both UUIDs were met");
    rt::testing::real(move |cx| {
        sound(cx, &device, "tuned");
        kernel_blocks(&device.fork());
        let fs = PLAIN.mount(cx, device.clone(), 8 << 20);
        assert!(fs.geometry().features.incompat.contains(Incompat::EXCHRANGE));
        write_files(cx, &fs, 10..20).expect("more files");
        fs.unmount(cx).expect("unmount");
        sound(cx, &device, "written afterwards");
        let queue = crate::world::queue(cx, device.clone());
        let back = TuneOptions { uuid: Some([7; 16]), ..TuneOptions::default() };
        tune(cx, &queue, &back).expect("the old UUID");
        sound(cx, &device, "with its old UUID");
        for (options, text) in [
            (TuneOptions { label: Some(vec![b'x'; 13]), ..TuneOptions::default() }, "13"),
            (TuneOptions { features: vec!["parent".into()], ..TuneOptions::default() }, "parent"),
            // The smallest log.
            (TuneOptions { features: vec!["nrext64".into()], ..TuneOptions::default() }, "64 MiB"),
        ] {
            let error = tune(cx, &queue, &options).expect_err("refused");
            assert!(error.to_string().contains(text), "{error}");
        }
    });
}

/// Goal: what xfs_admin does not add is not added. Method: both are asked for exchange ranges
/// without shared blocks.
#[test]
fn exchange_needs_reflink() {
    let cell = Cell(&[('m', "reflink=0")]);
    let device = rt::testing::real(|cx| {
        let device = cell.fresh(cx, DEVICE);
        let queue = crate::world::queue(cx, device.clone());
        let options = TuneOptions { features: vec!["exchange".into()], ..Default::default() };
        let error = tune(cx, &queue, &options).expect_err("refused");
        assert!(error.to_string().contains("exchange needs reflink"), "{error}");
        device
    });
    let image = testkit::image::write_device(&device);
    let said = testkit::newest::run("xfs_repair", &[&"-c", &"exchange=1", &image.path()]);
    let said = crate::support::text(&said);
    assert!(said.contains("cannot be added without reflink"), "{said}");
}
