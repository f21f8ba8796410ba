//! File systems with a metadata directory, as mkfs.xfs 7.2 makes them for quota: written, counted,
//! cut off. Our check and the newest `xfs_repair -n` find nothing after each.

use std::sync::Arc;

use crate::world::{checked, loaded, mount_read_only, mount_with, seed_count};
use base::{Errno, Ino};
use block::Device;
use device::MemoryDevice;
use rt::{Cred, Cx};
use testkit::crash::CrashConfig;
use testkit::format::{Format, Recording};
use testkit::{newest, trials};
use vfs::quota::{Kind, Limits, Quota};
use vfs::{FileSystem, FileType, NewNode};
use xfs::{MountOptions, QuotaMode, Xfs};

/// Options of mkfs.xfs 7.2.
#[derive(Clone, Copy, Debug)]
pub struct Made(pub &'static str);

/// Quota of all kinds; the kernel makes the directory and its files at the first mount, and so do
/// we.
pub const ALL: Made = Made("-m uquota,gquota,pquota");
/// Small blocks; the metadata directory's inodes have no parent pointers.
pub const SMALL: Made = Made("-m metadir=1,uquota -n parent=0 -b size=1024");

impl Format for Made {
    type Fs = Xfs;

    fn fresh(&self, _cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        let image = tempfile::NamedTempFile::new().expect("a file");
        crate::support::newest_mkfs_xfs(image.path(), bytes, &format!("-l size=12m {}", self.0));
        let image = testkit::image::read(image.path());
        loaded(&image)
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Xfs> {
        mount_with(cx, device, cache, MountOptions::default()).0
    }

    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
        checked(cx, device)
    }

    fn judge(&self, device: &MemoryDevice) -> Result<(), String> {
        newest::xfs_repair(testkit::image::write_device(device).path())
    }

    fn error(fs: &Xfs) -> Option<String> {
        fs.error()
    }
}

pub fn sound(made: Made, cx: &mut Cx, device: &Arc<MemoryDevice>, what: &str) {
    made.check(cx, device).unwrap_or_else(|found| panic!("{made:?}, {what}: {found}"));
    made.judge(device).unwrap_or_else(|found| panic!("{made:?}, {what}: {found}"));
}

fn space(cx: &mut Cx, fs: &Xfs, kind: Kind, id: u32) -> Option<(u64, u64)> {
    let report = fs.report(cx, kind).expect("a report");
    let found = report.into_iter().find(|account| account.id == id)?;
    Some((found.entry.space, found.entry.inodes))
}

fn owned(cx: &mut Cx, fs: &Xfs, dir: Ino, name: &str, uid: u32) -> Ino {
    let node = NewNode { uid, gid: uid + 1000, ..NewNode::new(FileType::Regular, 0o644) };
    fs.create(cx, dir, name.as_bytes(), &node).expect("create").ino
}

/// Goal: the first mount makes the quota files in the metadata directory and counts; later mounts
/// without options go on; limits hold; what is there before is counted, but the inodes of the
/// directory. Method: accounts beside what files have, over remounts, both judges after each.
#[test]
fn quota_files_are_made_in_the_metadata_directory() {
    for made in [ALL, SMALL] {
        crate::support::in_world(move |cx| {
            let device = made.fresh(cx, 64 << 20);
            sound(made, cx, &device, "fresh");
            let quota = QuotaMode::Off;
            let options = MountOptions { quota, ..MountOptions::default() };
            let fs = mount_with(cx, device.clone(), 8 << 20, options).0;
            let before = owned(cx, &fs, fs.root(), "before", 70);
            fs.write(cx, before, 0, &[1; 5000]).expect("write");
            fs.unmount(cx).expect("unmount");
            sound(made, cx, &device, "without quota");
            let quota = QuotaMode::Count([Some(true), None, None]);
            let options = MountOptions { quota, ..MountOptions::default() };
            let fs = mount_with(cx, device.clone(), 8 << 20, options).0;
            // The root, and what is there.
            assert_eq!(space(cx, &fs, Kind::User, 0), Some((0, 1)));
            let block = u64::from(fs.statfs(cx).expect("statfs").block_size);
            let round = |bytes: u64| bytes.next_multiple_of(block);
            assert_eq!(space(cx, &fs, Kind::User, 70), Some((round(5000), 1)));
            for id in 0..100 {
                owned(cx, &fs, fs.root(), &format!("of user {id}"), 1000 + id);
            }
            let mine = owned(cx, &fs, fs.root(), "mine", 1000);
            let limits = Limits { block_hard: 64, ..Limits::default() };
            fs.set_limits(cx, Kind::User, 1000, &limits).expect("limits");
            let before = cx.set_cred(Cred { uid: 1000, gid: 2000, ..Cred::default() });
            assert_eq!(fs.write(cx, mine, 0, &[2; 80 << 10]), Ok(64 << 10));
            assert_eq!(fs.write(cx, mine, 64 << 10, &[2; 100]), Err(Errno::EDQUOT));
            cx.set_cred(before);
            fs.unmount(cx).expect("unmount");
            sound(made, cx, &device, "counted");
            let fs = made.mount(cx, device.clone(), 8 << 20);
            assert_eq!(fs.kinds(), [Kind::User]);
            fs.write(cx, mine, 0, &[3; 10_000]).expect("write");
            fs.sync(cx).expect("sync");
            assert_eq!(space(cx, &fs, Kind::User, 1000), Some((64 << 10, 2)));
            fs.unmount(cx).expect("unmount");
            sound(made, cx, &device, "remounted");
            let fs = mount_read_only(cx, device.clone());
            assert_eq!(space(cx, &fs, Kind::User, 1000), Some((64 << 10, 2)));
            // No number leads to an inode of the file system itself.
            let root = fs.root().0;
            assert_eq!(fs.getattr(cx, Ino(root + 1)).map(|attr| attr.ino), Err(Errno::ESTALE));
        });
    }
}

/// Goal: accounts and files agree after power cuts. Method: anything that a mount can do, cut with
/// unflushed writes lost, recovered and checked.
#[test]
fn what_fsync_promised_is_kept() {
    for seed in 0..seed_count(1) {
        let run = Recording { cell: ALL, seed, bytes: 64 << 20, cache: 4 << 20 };
        let config = CrashConfig { random: 10, at_flushes_max: 20, ..CrashConfig::new(seed) };
        trials::anything_goes(run, 60, &config);
    }
}
