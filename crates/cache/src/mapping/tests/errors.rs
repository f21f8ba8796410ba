//! Write errors are reported once to every opener; read errors to the reader.

use super::*;

/// Each opener's fsync reports a failed write exactly once; one who opens after it was reported
/// does not; one who opens before any report does.
#[test]
fn a_failed_write_is_reported_once_per_opener() {
    rt::testing::both(|cx| {
        let rig = Rig::new(cx, config(4096, 16 << 20), 4096, 2, 1 << 20);
        let file = rig.file(0, 0);
        let (mut one, mut two) = (file.error_mark(), file.error_mark());
        file.write(cx, 0, &[1; 4096]).expect("writes");
        rig.disk.lock_irq().failures = 1;
        assert_eq!(file.flush(cx, 0..u64::MAX), Err(Errno::EIO));
        let mut unseen = file.error_mark();
        assert_eq!(file.fsync(cx, &mut one), Err(Errno::EIO));
        let mut late = file.error_mark();
        assert_eq!(file.fsync(cx, &mut one), Ok(()));
        assert_eq!(file.fsync(cx, &mut two), Err(Errno::EIO));
        assert_eq!(file.fsync(cx, &mut two), Ok(()));
        assert_eq!(file.fsync(cx, &mut unseen), Err(Errno::EIO));
        assert_eq!(file.fsync(cx, &mut late), Ok(()));
        assert_eq!(rig.backing.sync(cx), Err(Errno::EIO), "and once by sync");
        assert_eq!(rig.backing.sync(cx), Ok(()));
        assert_eq!(rig.cache.stats().write_errors, 1);
        // The bytes are readable, clean, and written again where the owner asks for it.
        assert!(!file.is_dirty());
        file.redirty(cx, 0..4096).expect("marks");
        rig.seen();
        file.flush(cx, 0..u64::MAX).expect("flushes");
        assert_eq!((rig.seen().as_str(), rig.disk.lock_irq().bytes[0]), ("W0+4", 1));
        rig.finish(cx);
    });
}

/// Where the file system cannot allocate, data stays dirty, the error is latched, and a later
/// attempt succeeds.
#[test]
fn failed_allocation_keeps_the_data_dirty() {
    rt::testing::both(|cx| {
        let rig = Rig::new(cx, config(4096, 16 << 20), 4096, 1, 1 << 20);
        let file = rig.file(0, 0);
        let mut mark = file.error_mark();
        file.write(cx, 0, &[1; 4096]).expect("writes");
        *rig.fs.errno.lock_irq() = Some(Errno::ENOSPC);
        assert_eq!(file.fsync(cx, &mut mark), Err(Errno::ENOSPC));
        assert!(file.is_dirty());
        assert_eq!(file.write(cx, 8192, &[1]), Err(Errno::ENOSPC));
        assert_eq!(file.size(), 4096);
        *rig.fs.errno.lock_irq() = None;
        assert_eq!(file.fsync(cx, &mut mark), Ok(()));
        assert_eq!(rig.disk.lock_irq().bytes[0], 1);
        assert_eq!(rig.backing.sync(cx), Err(Errno::ENOSPC));
        rig.finish(cx);
    });
}

/// A failed read is reported to the reader, leaves no folio behind, and the next read succeeds.
/// What comes before the failure is delivered.
#[test]
fn failed_reads_are_told_and_tried_again() {
    rt::testing::both(|cx| {
        let rig = Rig::new(cx, config(4096, 16 << 20), 4096, 1, 1 << 20);
        let file = rig.file(0, 0);
        file.write(cx, 0, &[1; 16384]).expect("writes");
        file.invalidate(cx, 0..u64::MAX).expect("invalidates");
        assert_eq!(file.memory_bytes(), 0);
        let mut buf = [0; 8192];
        rig.disk.lock_irq().failures = 1;
        assert_eq!(file.read(cx, 0, &mut buf), Err(Errno::EIO));
        assert_eq!(file.memory_bytes(), 0);
        assert_eq!(file.read(cx, 0, &mut buf[..4096]), Ok(4096));
        file.discard(cx, 4096..8192);
        rig.disk.lock_irq().failures = 1;
        assert_eq!(file.read(cx, 0, &mut buf), Ok(4096));
        assert_eq!(file.read(cx, 0, &mut buf), Ok(8192));
        assert!(buf.iter().all(|&b| b == 1));
        // A block cannot be completed: the write-out fails, the data stays.
        file.invalidate(cx, 0..u64::MAX).expect("invalidates");
        file.write(cx, 100, &[2; 10]).expect("writes");
        rig.disk.lock_irq().failures = 1;
        assert_eq!(file.flush(cx, 0..u64::MAX), Err(Errno::EIO));
        assert!(file.is_dirty());
        assert_eq!(file.flush(cx, 0..u64::MAX), Ok(()));
        assert_eq!(rig.backing.sync(cx), Err(Errno::EIO));
        rig.finish(cx);
    });
}
