//! Quota and the kernel: a log with records of quota that the kernel wrote is recovered, and every
//! account is what the kernel's own report said (see `tests/quota/README.md`).

use std::path::Path;

use crate::support::*;
use vfs::FileSystem;
use vfs::quota::{Kind, Quota};
use xfs::{CheckOptions, MountOptions, Xfs};

/// Id, KiB and inodes.
type Line = (u32, u64, u64);

/// What the kernel reported, without the block that was only reserved.
const USERS: [Line; 7] = [
    (0, 4, 4),
    (1000, 40, 10),
    (1001, 36, 10),
    (1002, 40, 10),
    (1003, 40, 10),
    (1004, 40, 10),
    (3000, 192, 1),
];
const GROUPS: [Line; 4] = [(0, 72, 22), (1, 60, 15), (2, 68, 17), (3001, 192, 1)];
const PROJECTS: [Line; 2] = [(0, 388, 54), (42, 4, 1)];

#[test]
fn a_kernels_log_with_records_of_quota_is_recovered() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("image");
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/quota/kernel-log.img.zst");
    testkit::packed::unpack(&packed, &image);
    let device = load(&image);
    let left = in_world(move |cx| {
        let reading = try_mount(cx, device.clone()).expect("the image mounts");
        assert_eq!(lines(cx, &reading, Kind::User), USERS);
        reading.unmount(cx).expect("unmount");
        let queue = queue(cx, device.clone());
        let pages = cache::PageCache::new(cx.runtime(), cache::PageCacheConfig::default());
        let options = MountOptions { read_only: false, ..MountOptions::default() };
        let fs = Xfs::mount(cx, &queue, &pages, options).expect("the image mounts for writing");
        assert_eq!(fs.kinds(), Kind::ALL);
        assert_eq!(lines(cx, &fs, Kind::User), USERS);
        assert_eq!(lines(cx, &fs, Kind::Group), GROUPS);
        assert_eq!(lines(cx, &fs, Kind::Project), PROJECTS);
        let users = fs.report(cx, Kind::User).expect("a report");
        let limited = users.iter().find(|account| account.id == 1001).expect("user 1001").entry;
        assert_eq!((limited.block_hard, limited.inode_soft), (2048, 5));
        assert!(limited.inode_time > 0, "more than the soft limit");
        fs.unmount(cx).expect("unmount");
        let report = xfs::check(cx, &queue, &CheckOptions::default()).expect("the device works");
        assert_eq!(report.findings, []);
        device
    });
    let left = testkit::image::write_device(&left);
    xfs_repair(left.path()).unwrap_or_else(|text| panic!("{text}"));
}

fn lines(cx: &mut rt::Cx, fs: &Xfs, kind: Kind) -> Vec<Line> {
    let report = fs.report(cx, kind).expect("a report");
    let line = |account: vfs::quota::Account| {
        (account.id, account.entry.space / 1024, account.entry.inodes)
    };
    report.into_iter().map(line).collect()
}
