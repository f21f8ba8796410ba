//! Exact costs as regression tests: flushes, writes and bytes per operation, which are the same on
//! every machine. Peers pay several flushes per operation; here a create pays none.

use crate::support::*;
use rt::Cx;
use vfs::FileSystem;

fn world(body: impl FnOnce(&mut Cx)) {
    rt::testing::world(body);
}

/// Between syncs a create costs no flush, and 500 creates with one sync at most two.
#[test]
fn five_hundred_creates_and_a_sync_cost_two_flushes() {
    world(|cx| {
        let device = fresh(cx, 256 << 20, "ext4", 4096);
        let (fs, queue) = mount(cx, device.clone());
        fs.sync(cx).expect("sync");
        let before = queue.stats();
        for n in 0..500 {
            create(cx, &*fs, fs.root(), &format!("file{n:03}"));
        }
        let created = queue.stats();
        assert_eq!(created.flushes - before.flushes, 0, "flushes of 500 creates");
        fs.sync(cx).expect("sync");
        let synced = queue.stats();
        let flushes = synced.flushes + synced.fua - before.flushes - before.fua;
        assert!(flushes <= 2, "500 creates and one sync cost {flushes} flushes");
        fs.unmount(cx).expect("unmount");
        e2fsck(&device, "500 creates");
    });
}

/// An append of 8 MiB writes its data once, and little else.
#[test]
fn an_append_writes_its_data_once() {
    world(|cx| {
        let device = fresh(cx, 256 << 20, "ext4", 4096);
        let (fs, queue) = mount(cx, device.clone());
        let file = create(cx, &*fs, fs.root(), "log");
        fs.sync(cx).expect("sync");
        let before = queue.stats();
        let size = 8u64 << 20;
        let mut data = vec![0; 64 << 10];
        for offset in (0..size).step_by(data.len()) {
            pattern(1, offset, &mut data);
            assert_eq!(fs.write(cx, file, offset, &data), Ok(data.len()));
        }
        fs.fsync(cx, file, false).expect("fsync");
        let after = queue.stats();
        let written = after.write_bytes - before.write_bytes;
        // One commit: descriptor, a handful of metadata blocks, commit block.
        assert!(written >= size, "{written} bytes for {size}");
        assert!(written <= size + (64 << 10), "{written} bytes written for an append of {size}");
        fs.unmount(cx).expect("unmount");
        e2fsck(&device, "append");
    });
}

/// A 128 KiB append goes to the device as one request.
#[test]
fn an_append_of_128_kib_is_one_bio() {
    world(|cx| {
        let device = fresh(cx, 256 << 20, "ext4", 4096);
        let (fs, queue) = mount(cx, device.clone());
        let file = create(cx, &*fs, fs.root(), "log");
        fs.sync(cx).expect("sync");
        let mut data = vec![0; 128 << 10];
        pattern(1, 0, &mut data);
        fs.write(cx, file, 0, &data).expect("write");
        queue.take_trace();
        fs.fsync(cx, file, true).expect("fdatasync");
        let (events, _) = queue.take_trace();
        let issued: Vec<u64> = events
            .iter()
            .filter(|event| event.kind == block::TraceKind::Dispatched && event.count >= 64)
            .map(|event| event.count * 512)
            .collect();
        assert_eq!(issued, [128 << 10], "requests of the data");
        fs.unmount(cx).expect("unmount");
    });
}

/// A second fsync with nothing new costs nothing at all.
#[test]
fn an_fsync_of_a_clean_file_writes_nothing() {
    world(|cx| {
        let device = fresh(cx, 64 << 20, "ext4", 4096);
        let (fs, queue) = mount(cx, device);
        let file = create(cx, &*fs, fs.root(), "file");
        fs.write(cx, file, 0, b"content").expect("write");
        fs.fsync(cx, file, false).expect("fsync");
        let before = queue.stats();
        fs.fsync(cx, file, false).expect("fsync");
        let after = queue.stats();
        assert_eq!(after.write_bytes, before.write_bytes, "bytes of an idle fsync");
        fs.unmount(cx).expect("unmount");
    });
}
