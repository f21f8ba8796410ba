//! The three ways of data beside the journal: what `data=ordered`, `data=writeback` and
//! `data=journal` do, power cuts with file data in the log, and logs with file data exchanged with
//! the kernel and e2fsck.

use crate::support::campaign::{self, Plan};
use crate::support::chaos::{self, Chaos};
use crate::support::*;
use base::{Ino, Nanos, Rng};
use block::Device;
use device::{MemoryDevice, RecordDevice};
use ext4::{Ext4, MountOptions};
use jbd2::JournalMode;
use rt::{Cx, World, WorldConfig};
use std::sync::Arc;
use testkit::judge::{self, LoopMount};
use testkit::manifest::{self, Manifest};
use vfs::{FallocMode, FileSystem, SetAttr};

fn options(data_mode: JournalMode) -> MountOptions {
    MountOptions { data_mode, ..MountOptions::default() }
}

fn mount_as(cx: &mut Cx, device: Arc<dyn Device>, mode: JournalMode) -> Arc<Ext4> {
    crate::support::mount_as(cx, device, 64 << 20, mode)
}

fn write_pattern(cx: &mut Cx, fs: &Ext4, ino: Ino, id: u64, offset: u64, len: usize) {
    let mut data = vec![0; len];
    pattern(id, offset, &mut data);
    assert_eq!(fs.write(cx, ino, offset, &data), Ok(len));
}

fn has_pattern(cx: &mut Cx, fs: &Ext4, ino: Ino, id: u64, len: usize) -> bool {
    let (mut data, mut expected) = (vec![0; len + 1], vec![0; len]);
    pattern(id, 0, &mut expected);
    fs.read(cx, ino, 0, &mut data) == Ok(len) && data[..len] == expected[..]
}

/// Goal: the modes differ in what they send where. Method: one write and one fsync in each; what
/// the journal logged, and what it had to wait for.
#[test]
fn each_mode_sends_data_its_own_way() {
    for (mode, logged, waited) in [
        (JournalMode::Ordered, false, true),
        (JournalMode::Writeback, false, false),
        (JournalMode::Data, true, false),
    ] {
        rt::testing::world(|cx| {
            let device = fresh(cx, 64 << 20, "ext4", 4096);
            let fs = mount_as(cx, device.clone(), mode);
            let file = create(cx, &*fs, fs.root(), "file");
            let before = fs.journal().expect("a journal").stats();
            write_pattern(cx, &fs, file, 1, 0, 1 << 20);
            fs.fsync(cx, file, false).expect("fsync");
            let after = fs.journal().expect("a journal").stats();
            assert_eq!(after.blocks - before.blocks >= 256, logged, "{mode:?}: {after:?}");
            assert_eq!(after.ordered > before.ordered, waited, "{mode:?}: {after:?}");
            fs.unmount(cx).expect("unmount");
            checked(cx, &device, &format!("{mode:?}"));
            e2fsck(&device, &format!("{mode:?}"));
            let fs = mount_as(cx, device, mode);
            assert!(has_pattern(cx, &fs, file, 1, 1 << 20));
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: data=journal without a journal is refused before anything is written.
#[test]
fn data_cannot_go_through_a_journal_that_is_not_there() {
    rt::testing::world(|cx| {
        let memory = fresh(cx, 16 << 20, "ext2", 1024);
        let device = Arc::new(RecordDevice::new(memory));
        let refused = try_mount(cx, device.clone(), 1 << 20, options(JournalMode::Data));
        let message = refused.map(drop).expect_err("refused").to_string();
        assert!(message.contains("data=journal"), "{message}");
        assert!(device.is_empty(), "nothing was written");
    });
}

/// Goal: what is only in the log is read from there. Method: a page cache much smaller than the
/// files, so that folios are reclaimed before the checkpoint; random writes, reads, truncates and
/// punches against byte arrays, then a remount.
#[test]
fn reads_find_the_newest_content_wherever_it_is() {
    for (seed, (kind, block)) in [("ext4", 4096), ("ext4", 1024), ("ext3", 1024)].iter().enumerate()
    {
        rt::testing::world(|cx| {
            let device = fresh(cx, 96 << 20, kind, *block);
            let options = MountOptions {
                commit_interval: Nanos::from_secs(3600),
                ..options(JournalMode::Data)
            };
            let (fs, _) = try_mount(cx, device.clone(), 1 << 20, options.clone()).expect("mount");
            let mut rng = Rng::new(seed as u64, 1);
            let mut models: Vec<(Ino, Vec<u8>)> = (0..4)
                .map(|n| (create(cx, &*fs, fs.root(), &format!("f{n}")), Vec::new()))
                .collect();
            for step in 0..400 {
                let which = rng.below(4) as usize;
                let (ino, model) = &mut models[which];
                change(cx, &fs, &mut rng, *ino, model, step);
            }
            for (ino, model) in &models {
                compare(cx, &fs, *ino, model, 0, model.len());
            }
            fs.unmount(cx).expect("unmount");
            e2fsck(&device, kind);
            let (fs, _) = try_mount(cx, device.clone(), 1 << 20, options).expect("mount again");
            for (ino, model) in &models {
                compare(cx, &fs, *ino, model, 0, model.len());
            }
            fs.unmount(cx).expect("unmount");
        });
    }
}

fn change(cx: &mut Cx, fs: &Ext4, rng: &mut Rng, ino: Ino, model: &mut Vec<u8>, step: u32) {
    let offset = rng.below(1 << 20) as usize;
    let len = 1 + rng.below(100_000) as usize;
    match rng.below(10) {
        0..=4 => {
            let data = vec![step as u8 | 1; len];
            assert_eq!(fs.write(cx, ino, offset as u64, &data), Ok(len));
            model.resize(model.len().max(offset + len), 0);
            model[offset..offset + len].copy_from_slice(&data);
        }
        5..=6 => compare(cx, fs, ino, model, offset, len),
        7 => fs.fsync(cx, ino, rng.chance(0.5)).expect("fsync"),
        8 => {
            let set = SetAttr { size: Some(offset as u64), ..SetAttr::default() };
            fs.setattr(cx, ino, &set).expect("truncate");
            model.resize(offset, 0);
        }
        _ => {
            fs.fallocate(cx, ino, FallocMode::PunchHole, offset as u64, len as u64).expect("punch");
            let end = (offset + len).min(model.len());
            if offset < end {
                model[offset..end].fill(0);
            }
        }
    }
}

fn compare(cx: &mut Cx, fs: &Ext4, ino: Ino, model: &[u8], offset: usize, len: usize) {
    let expected = &model[offset.min(model.len())..(offset + len).min(model.len())];
    let mut bytes = vec![0; len];
    assert_eq!(fs.read(cx, ino, offset as u64, &mut bytes), Ok(expected.len()));
    let wrong = bytes.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "inode {ino}: a byte behind {offset} is wrong");
}

/// Goal: a block that held journaled data and was freed is not brought back over the data of the
/// file that has it next. Method: only one file has the flag of `chattr +j`; its blocks are in the
/// log when it is removed and an ordinary file takes them; then the power goes.
#[test]
fn freed_data_blocks_are_revoked() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    judge::mke2fs(file.path(), 16 << 20, &["-t", "ext4"]);
    let script = "write /dev/null flagged\nset_inode_field flagged flags 0x84000\n";
    judge::debugfs(file.path(), true, script);
    let device = Arc::new(testkit::image::load(file.path()));
    rt::testing::world(|cx| {
        let fs = mount_as(cx, device.clone(), JournalMode::Ordered);
        let flagged = fs.lookup(cx, fs.root(), b"flagged").expect("lookup").ino;
        let before = fs.journal().expect("a journal").stats().blocks;
        write_pattern(cx, &fs, flagged, 1, 0, 1 << 20);
        fs.fsync(cx, flagged, false).expect("fsync");
        assert!(fs.journal().expect("a journal").stats().blocks - before >= 256);
        let place = fs.fiemap(cx, flagged, 0, 1 << 20).expect("fiemap");
        fs.unlink(cx, fs.root(), b"flagged").expect("unlink");
        fs.sync(cx).expect("sync");
        // The disk is filled, so that the blocks are used again for certain.
        let free = fs.statfs(cx).expect("statfs");
        let free = free.blocks_free * u64::from(free.block_size);
        let plain = create(cx, &*fs, fs.root(), "plain");
        write_pattern(cx, &fs, plain, 2, 0, free as usize - (1 << 20));
        fs.fsync(cx, plain, false).expect("fsync");
        let taken = fs.fiemap(cx, plain, 0, free).expect("fiemap");
        assert!(taken.iter().any(|b| {
            place
                .iter()
                .any(|a| a.physical() < b.physical() + b.len && b.physical() < a.physical() + a.len)
        }));
        fs.shutdown_hard();
        let fs = mount_as(cx, device.clone(), JournalMode::Ordered);
        assert!(has_pattern(cx, &fs, plain, 2, free as usize - (1 << 20)));
        fs.unmount(cx).expect("unmount");
        e2fsck(&device, "after the replay");
    });
}

/// Goal: with data=journal a power cut loses nothing that an fsync promised. Method: the campaign
/// of power cuts, in this mode.
#[test]
fn promises_hold_with_data_in_the_journal() {
    for seed in seeds(3) {
        let (kind, block) = [("ext4", 4096), ("ext4", 1024), ("ext3", 1024)][seed as usize % 3];
        let cell = Cell::new(kind, block).journal(2048);
        let plan = Plan { cell, mode: JournalMode::Data, steps: 60, random: 20 };
        campaign::run(plan, seed..seed + 1);
    }
}

/// Goal: many tasks at once on journaled data leave a sound file system and every file's own bytes.
/// Method: tasks do anything to the same names, with a journal that fills and a cache much smaller
/// than the data; then everything is read, checked, and read again after a remount.
#[test]
fn tasks_at_once_on_journaled_data() {
    for seed in seeds(4) {
        let (kind, block) = [("ext4", 4096), ("ext4", 1024), ("ext3", 1024)][seed as usize % 3];
        let what = format!("seed {seed} {kind}/{block}");
        World::new(WorldConfig::exploring(seed)).run("chaos", |cx| {
            let device = Cell::new(kind, block).journal(1024).fresh(cx, 64 << 20);
            let options = options(JournalMode::Data);
            let (fs, _) = try_mount(cx, device.clone(), 1 << 20, options.clone()).expect("mount");
            let shared: Arc<dyn FileSystem> = fs.clone();
            let top = mkdir(cx, &*fs, fs.root(), "top");
            let chaos =
                Chaos { tasks: 6, steps: 150, size_max: 400_000, small: false, faults: false };
            chaos::run(cx, &shared, top, seed, chaos);
            chaos::verify(cx, &*fs);
            fs.unmount(cx).unwrap_or_else(|errno| panic!("{what}: unmount: {errno}"));
            checked(cx, &device, &what);
            e2fsck(&device, &what);
            let (fs, _) = try_mount(cx, device, 1 << 20, options).expect("mount again");
            chaos::verify(cx, &*fs);
            fs.unmount(cx).expect("unmount");
        });
    }
}

fn assert_equal(ours: &Manifest, theirs: &Manifest, what: &str) {
    let difference = manifest::diff(ours, theirs);
    assert!(difference.is_empty(), "{what}: ours left, theirs right:\n{difference}");
}

fn recovered_by_kernel(image: &[u8], kind: &str) -> Manifest {
    let file = testkit::image::write(image);
    drop(LoopMount::new(file.path(), kind, "rw").expect("the kernel mounts it"));
    judge::e2fsck(file.path()).expect("the image is clean after the kernel");
    judge::kernel_manifest(file.path(), kind)
}

fn recovered_by_us(image: &[u8], read_only: bool) -> (Manifest, Arc<MemoryDevice>) {
    let device = Arc::new(MemoryDevice::from_image(image));
    let manifest = rt::testing::real(|cx| {
        let options = MountOptions { read_only, ..options(JournalMode::Data) };
        let (fs, _) = try_mount(cx, device.clone(), 64 << 20, options).expect("mount");
        let manifest = manifest::of_fs(cx, &*fs).expect("the tree is readable");
        fs.unmount(cx).expect("unmount");
        manifest
    });
    (manifest, device)
}

/// Goal: the kernel and e2fsck replay a log of ours that is full of file data; some of it looks
/// like the journal's own blocks.
#[test]
fn the_kernel_replays_our_journaled_data() {
    for (kind, block) in [("ext4", 4096), ("ext3", 1024)] {
        let device = rt::testing::world(|cx| {
            let device = fresh(cx, 64 << 20, kind, block);
            let fs = mount_as(cx, device.clone(), JournalMode::Data);
            for n in 0..60u64 {
                let file = create(cx, &*fs, fs.root(), &format!("f{n}"));
                write_pattern(cx, &fs, file, n, 0, 1 + (n * 1777 % 40_000) as usize);
                // The magic number of the journal, at the start of a block.
                fs.write(cx, file, 0, &[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1]).expect("write");
                if n % 7 == 3 {
                    fs.unlink(cx, fs.root(), format!("f{}", n - 2).as_bytes()).expect("unlink");
                }
                if n % 10 == 0 {
                    fs.fsync(cx, file, false).expect("fsync");
                }
            }
            fs.sync(cx).expect("sync");
            fs.shutdown_hard();
            device
        });
        let image = device.snapshot();
        let (ours, recovered) = recovered_by_us(&image, false);
        e2fsck(&recovered, kind);
        assert!(ours.len() > 50, "the files are there");
        assert_equal(&recovered_by_us(&image, true).0, &ours, "a read-only mount of a dirty image");
        assert_equal(&ours, &recovered_by_kernel(&image, kind), kind);
        let file = testkit::image::write(&image);
        judge::run("e2fsck", &[&"-E", &"journal_only", &"-fy", &file.path()]);
        assert_equal(&ours, &judge::kernel_manifest(file.path(), kind), "e2fsck's replay");
    }
}

/// Goal: we read a dirty image of a kernel that journals data, with and without writing. Method:
/// the file behind a loop mount is copied after a sync, while the data is in the log only.
#[test]
fn we_replay_the_kernels_journaled_data() {
    for (kind, args) in [("ext4", &[][..]), ("ext4", &["-b", "1024"]), ("ext3", &[])] {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        judge::mke2fs(file.path(), 64 << 20, &[&["-t", kind], args].concat());
        let image = {
            let options = "rw,data=journal,commit=300";
            let mount = LoopMount::new(file.path(), kind, options).expect("the kernel mounts it");
            for n in 0..50u64 {
                let mut data = vec![0; (n * 997 % 30_000) as usize];
                pattern(n, 0, &mut data);
                data.iter_mut().take(4).zip([0xc0, 0x3b, 0x39, 0x98]).for_each(|(a, b)| *a = b);
                std::fs::write(mount.path().join(format!("f{n}")), data).expect("write");
            }
            judge::run_ok("sync", &[&"-f", &mount.path()]);
            for n in 0..10 {
                std::fs::remove_file(mount.path().join(format!("f{n}"))).expect("remove");
                std::fs::write(mount.path().join(format!("g{n}")), vec![n; 9000]).expect("write");
            }
            judge::run_ok("sync", &[&"-f", &mount.path()]);
            testkit::image::read(file.path())
        };
        let what = format!("{kind} {args:?}");
        let (ours, device) = recovered_by_us(&image, false);
        e2fsck(&device, &what);
        assert_equal(&ours, &recovered_by_kernel(&image, kind), &what);
        let (unwritten, untouched) = recovered_by_us(&image, true);
        assert_equal(&unwritten, &ours, &format!("{what}, read-only"));
        assert!(untouched.snapshot() == image, "a read-only mount writes nothing");
    }
}
