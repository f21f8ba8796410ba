//! Exact costs as regression tests: flushes per operation, which are the same on every machine.

use crate::world::{Cell, checked, file, mkdir, mount, repaired};
use vfs::FileSystem;

/// Between syncs a create costs no flush, and 500 creates with one sync at most two.
#[test]
fn five_hundred_creates_and_a_sync_cost_two_flushes() {
    rt::testing::world(|cx| {
        let device = Cell(&[]).fresh(cx, 256 << 20);
        let (fs, queue) = mount(cx, device.clone(), 64 << 20);
        fs.sync(cx).expect("sync");
        let before = queue.stats();
        for n in 0..500 {
            file(cx, &fs, fs.root(), &format!("file{n:03}"));
        }
        let created = queue.stats();
        assert_eq!(created.flushes - before.flushes, 0, "flushes of 500 creates");
        assert_eq!(created.fua - before.fua, 0, "forced writes of 500 creates");
        fs.sync(cx).expect("sync");
        let synced = queue.stats();
        let flushes = synced.flushes + synced.fua - before.flushes - before.fua;
        assert!(flushes <= 2, "500 creates and one sync cost {flushes} flushes");
        let idle = queue.stats();
        fs.sync(cx).expect("sync");
        fs.fsync(cx, fs.root(), false).expect("fsync");
        let after = queue.stats();
        assert_eq!(idle.write_bytes, after.write_bytes, "bytes of an idle sync");
        fs.unmount(cx).expect("unmount");
        checked(cx, &device).expect("our check");
        repaired(&device).expect("xfs_repair");
    });
}

/// What the table of `docs/bh-lru.md` says: a create and a removal in a large directory ask the
/// index for few buffers, since a transaction holds those that it has, and a directory and a group
/// remember their last ones; nothing is kept for each CPU beside.
#[test]
fn a_create_asks_for_a_handful_of_buffers() {
    const OPERATIONS: u64 = 400;
    for (cell, names) in [(Cell(&[]), 100), (Cell(&[]), 6000), (Cell(&[('n', "size=64k")]), 6000)] {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, 256 << 20);
            let (fs, _) = mount(cx, device, 64 << 20);
            let dir = mkdir(cx, &fs, fs.root(), "dir");
            for n in 0..names {
                file(cx, &fs, dir, &format!("some name of usual length {n}"));
            }
            let name = |n| format!("another name of usual length {n}");
            let before = fs.buf_stats();
            for n in 0..OPERATIONS {
                file(cx, &fs, dir, &name(n));
            }
            let made = fs.buf_stats();
            for n in 0..OPERATIONS {
                fs.unlink(cx, dir, name(n).as_bytes()).expect("unlink");
            }
            let gone = fs.buf_stats();
            let each = |from: xfs::buf::BufStats, to: xfs::buf::BufStats| {
                (to.hits + to.created - from.hits - from.created) as f64 / OPERATIONS as f64
            };
            let (create, remove) = (each(before, made), each(made, gone));
            println!(
                "{cell:?}, {names} names: {create:.1} buffers a create, {remove:.1} a removal"
            );
            // New clusters of inodes at least; mostly the buffers of the operation before.
            assert!(create > 0.0 && create < 2.0, "{create}");
            assert!(remove > 0.0 && remove < 2.0, "{remove}");
            fs.unmount(cx).expect("unmount");
        });
    }
}
