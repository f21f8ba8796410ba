//! Exact costs as regression tests: flushes per operation, which are the same on every machine.

mod world;

use vfs::FileSystem;
use world::{Cell, checked, file, mount, repaired};

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
