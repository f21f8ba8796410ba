//! Power cuts while users, groups and projects are counted: after each cut and the recovery the
//! accounts say what the inodes have, which our check and xfs_repair compare. A few seeds here,
//! many with `IOPATH_SEEDS=n`.

use std::sync::Arc;

use crate::world::{Cell, Recording, mount_with, repaired, seed_count};
use base::{Errno, Ino, Rng};
use block::Device;
use device::MemoryDevice;
use rt::Cx;
use testkit::crash::{self, CrashConfig};
use testkit::format::{Format, Recorded, recover};
use testkit::trials;
use vfs::quota::{Kind, Limits, Project, Quota};
use vfs::{FallocMode, FileSystem, FileType, NewNode, RenameFlags, SetAttr, XattrFlags};
use xfs::{MountOptions, QuotaMode, Xfs};

/// A file system that counts everything from the beginning.
#[derive(Clone, Copy, Debug)]
struct Counting(Cell);

impl Format for Counting {
    type Fs = Xfs;

    fn fresh(&self, cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        let device = self.0.fresh(cx, bytes);
        let quota = QuotaMode::Count([Some(true); 3]);
        let options = MountOptions { quota, ..MountOptions::default() };
        let (fs, _) = mount_with(cx, device.clone(), 2 << 20, options);
        fs.unmount(cx).expect("unmount");
        device
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Xfs> {
        let fs = self.0.mount(cx, device, cache);
        assert_eq!(fs.kinds(), Kind::ALL);
        fs
    }

    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
        self.0.check(cx, device)
    }

    fn judge(&self, device: &MemoryDevice) -> Result<(), String> {
        self.0.judge(device)
    }

    fn error(fs: &Xfs) -> Option<String> {
        fs.error()
    }
}

const DEFAULT: Counting = Counting(Cell(&[]));
const SMALL_BLOCKS: Counting =
    Counting(Cell(&[('b', "size=1024"), ('m', "rmapbt=1"), ('d', "agcount=3")]));
const PARENTS: Counting = Counting(Cell(&[('n', "parent=1"), ('m', "rmapbt=1")]));

/// Files of several owners.
struct Work {
    rng: Rng,
    files: Vec<(Vec<u8>, Ino)>,
    next: u32,
    refused: u32,
}

/// A limit may refuse what is asked for, and nothing else may.
fn allowed<T>(done: Result<T, Errno>, what: &str, refused: &mut u32) -> Option<T> {
    match done {
        Ok(value) => Some(value),
        Err(Errno::EDQUOT | Errno::ENOSPC | Errno::EXDEV) => {
            *refused += 1;
            None
        }
        Err(errno) => panic!("{what}: {errno}"),
    }
}

impl Work {
    fn id(&mut self) -> u32 {
        [0, 1, 2, 31, 70_000][self.rng.below(5) as usize]
    }

    fn step(&mut self, cx: &mut Cx, fs: &Xfs) {
        let root = fs.root();
        if self.files.len() < 6 || self.rng.below(5) == 0 {
            self.next += 1;
            let kinds = [FileType::Regular, FileType::Regular, FileType::Symlink];
            let kind = kinds[self.rng.below(3) as usize];
            let target: &[u8] = &[b't'; 900];
            let target = (kind == FileType::Symlink).then_some(target);
            let (uid, gid) = (self.id(), self.id());
            let node = NewNode { uid, gid, target, ..NewNode::new(kind, 0o640) };
            let name = format!("file {}", self.next).into_bytes();
            let made = fs.create(cx, root, &name, &node);
            if let Some(attr) = allowed(made, "create", &mut self.refused) {
                self.files.push((name, attr.ino));
            }
            return;
        }
        let at = self.rng.below(self.files.len() as u64) as usize;
        let (name, ino) = self.files[at].clone();
        let regular = fs.getattr(cx, ino).expect("stat").kind == FileType::Regular;
        let offset = self.rng.below(60) * 1000;
        let refused = &mut 0;
        match self.rng.below(8) {
            0 | 1 if regular => {
                let data = vec![7; 1 + self.rng.below(30_000) as usize];
                allowed(fs.write(cx, ino, offset, &data), "write", refused);
            }
            2 => {
                let set = SetAttr { uid: Some(self.id()), ..SetAttr::default() };
                let set = SetAttr { gid: Some(self.id()), ..set };
                allowed(fs.setattr(cx, ino, &set), "chown", refused);
            }
            3 if regular => {
                let set = SetAttr { size: Some(offset / 2), ..SetAttr::default() };
                allowed(fs.setattr(cx, ino, &set), "truncate", refused);
            }
            4 if regular => {
                let value = vec![1; self.rng.below(2000) as usize];
                let set = fs.setxattr(cx, ino, b"user.value", &value, XattrFlags::empty());
                allowed(set, "setxattr", refused);
            }
            5 if regular => {
                let mode = FallocMode::Allocate { keep_size: true };
                allowed(fs.fallocate(cx, ino, mode, offset, 20_000), "fallocate", refused);
            }
            6 => {
                let project = Project { id: self.id(), inherit: false };
                allowed(fs.set_project(cx, ino, project), "project", refused);
            }
            _ => {
                if self.rng.below(2) == 0 {
                    let to = &self.files[0].0.clone();
                    let moved = fs.rename(cx, root, &name, root, to, RenameFlags::empty());
                    allowed(moved, "rename", refused);
                    if at != 0 {
                        self.files[0].1 = ino;
                    }
                } else {
                    fs.unlink(cx, root, &name).expect("unlink");
                }
                if at != 0 || fs.lookup(cx, root, &name).is_err() {
                    self.files.remove(at);
                }
            }
        }
        self.refused += *refused;
    }
}

/// Operations of several owners, one of whom has little.
fn record(cell: Counting, seed: u64) -> Recorded<Counting, u32> {
    Recording { cell, seed, bytes: 96 << 20, cache: 2 << 20 }.run(|cx, fs, _| {
        let limits = Limits { block_hard: 60, inode_hard: 6, ..Limits::default() };
        fs.set_limits(cx, Kind::User, 31, &limits).expect("limits");
        fs.set_limits(cx, Kind::Group, 2, &limits).expect("limits");
        let rng = Rng::new(seed, 3);
        let mut work = Work { rng, files: Vec::new(), next: 0, refused: 0 };
        for step in 1..=300 {
            work.step(cx, fs);
            match step % 40 {
                0 => fs.sync(cx).expect("sync"),
                17 => fs.fsync(cx, fs.root(), false).expect("fsync"),
                _ => {}
            }
        }
        work.refused
    })
}

fn campaign(cell: Counting, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let run = record(cell, seed);
        assert!(run.left > 0, "no limit refused anything");
        let config = CrashConfig { random: 40, at_flushes_max: 40, ..CrashConfig::new(seed) };
        let report = crash::explore(&config, &run.base, &run.log, |image, case| {
            recover(cell, &image, |cx, fs| {
                let report = fs.report(cx, Kind::User).map_err(|errno| errno.to_string())?;
                let of_31 = report.iter().find(|account| account.id == 31);
                let limits = of_31.map(|account| account.entry.inode_hard);
                if limits.is_some_and(|hard| hard != 6 && hard != 0) {
                    return Err(format!("limits of user 31: {limits:?}"));
                }
                Ok(())
            })?;
            if case.index % 20 == 0 {
                repaired(&image)?;
            }
            Ok(())
        });
        println!("{cell:?} seed {seed}: {report:?}, {} refused", run.left);
        assert!(report.lossy > 5, "no cut lost a write");
    }
}

#[test]
fn accounts_follow_inodes_over_power_cuts() {
    campaign(DEFAULT, 0..seed_count(2));
    campaign(SMALL_BLOCKS, 0..seed_count(1));
    campaign(PARENTS, 0..seed_count(1));
}

#[test]
fn any_operations_are_recovered_with_their_accounts() {
    for seed in 0..seed_count(1) {
        for cell in [DEFAULT, SMALL_BLOCKS] {
            let run = Recording { cell, seed, bytes: 48 << 20, cache: 2 << 20 };
            let config = CrashConfig { random: 25, at_flushes_max: 60, ..CrashConfig::new(seed) };
            trials::anything_goes(run, 80, &config);
        }
    }
}

#[test]
fn accounts_of_unnamed_files_end_with_them() {
    for seed in 0..seed_count(1) {
        let run = Recording { cell: PARENTS, seed, bytes: 160 << 20, cache: 2 << 20 };
        let config = CrashConfig { random: 30, at_flushes_max: 30, ..CrashConfig::new(seed) };
        trials::unnamed_files(run, &config);
    }
}

#[test]
fn counting_that_is_cut_is_begun_again() {
    // Goal: a mount that counts for the first time is cut anywhere; the next one has all accounts.
    rt::testing::world(|cx| {
        let device = Cell(&[]).fresh(cx, 96 << 20);
        let (fs, _) = crate::world::mount(cx, device.clone(), 2 << 20);
        for index in 0..200u32 {
            let node = NewNode { uid: index % 7 * 40, ..NewNode::new(FileType::Regular, 0o600) };
            let name = format!("f{index}");
            fs.create(cx, fs.root(), name.as_bytes(), &node).expect("create");
        }
        fs.unmount(cx).expect("unmount");
        let base = device.fork();
        let recorder = Arc::new(device::RecordDevice::new(device.clone()));
        let quota = QuotaMode::Count([Some(true), None, Some(true)]);
        let options = MountOptions { quota, ..MountOptions::default() };
        let (fs, _) = mount_with(cx, recorder.clone(), 2 << 20, options.clone());
        fs.unmount(cx).expect("unmount");
        let config = CrashConfig { random: 60, at_flushes_max: 40, ..CrashConfig::new(5) };
        let report = crash::explore(&config, &base, &recorder.log(), |image, case| {
            let again = image.fork();
            recover(Cell(&[]), &image, |_, _| Ok(()))?;
            let options = options.clone();
            let again = Arc::new(again);
            rt::World::new(rt::WorldConfig::default()).run("again", |cx| {
                let (fs, _) = mount_with(cx, again.clone(), 2 << 20, options);
                let report = fs.report(cx, Kind::User).map_err(|errno| errno.to_string())?;
                fs.unmount(cx).map_err(|errno| errno.to_string())?;
                match report.iter().find(|account| account.id == 240) {
                    Some(account) if account.entry.inodes == 28 => {
                        crate::world::checked(cx, &again)
                    }
                    other => Err(format!("user 240: {other:?}")),
                }
            })?;
            if case.index % 20 == 0 { repaired(&again) } else { Ok(()) }
        });
        println!("{report:?}");
    });
}
