//! Errors of the medium below a mounted file system: whoever is concerned is told, once; data that
//! cannot be written costs no more than itself; a journal that cannot be written ends all changes,
//! and the next mount continues from what had been committed.

use crate::support::*;
use base::{Errno, Ino};
use block::{Cause, Op};
use device::{Fault, FaultDevice, MemoryDevice, Rule};
use ext4::Ext4;
use rt::Cx;
use std::ops::Range;
use std::sync::Arc;
use testkit::judge;
use vfs::{FileSystem, SetAttr};

/// A file system behind a device that fails on demand.
struct Bed {
    memory: Arc<MemoryDevice>,
    faults: Arc<FaultDevice>,
}

impl Bed {
    fn new(cx: &mut Cx, kind: &'static str, block: u32) -> Bed {
        let memory = fresh(cx, 32 << 20, kind, block);
        let faults = Arc::new(FaultDevice::new(cx.runtime(), memory.clone()));
        Bed { memory, faults }
    }

    fn mount(&self, cx: &mut Cx) -> Arc<Ext4> {
        mount(cx, self.faults.clone()).0
    }

    fn fail(&self, op: Op, sectors: Range<u64>) {
        self.faults.add(Rule::on(op, sectors, Fault::Fail(Cause::Io)));
    }

    /// Sectors of the log, without the journal's superblock.
    fn log_sectors(&self, block: u32) -> Vec<Range<u64>> {
        let file = testkit::image::write_device(&self.memory);
        let text = judge::debugfs(file.path(), false, "blocks <8>\n");
        let per_block = u64::from(block / 512);
        let blocks = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        blocks.skip(1).map(|block| block * per_block..(block + 1) * per_block).collect()
    }
}

fn write_new(cx: &mut Cx, fs: &Ext4, name: &str, id: u64, len: usize) -> Ino {
    let ino = create(cx, fs, fs.root(), name);
    let mut data = vec![0; len];
    pattern(id, 0, &mut data);
    assert_eq!(fs.write(cx, ino, 0, &data), Ok(len));
    ino
}

fn check_content(cx: &mut Cx, fs: &Ext4, name: &str, id: u64, len: usize) {
    let ino = fs.lookup(cx, fs.root(), name.as_bytes()).expect("lookup").ino;
    let (mut bytes, mut expected) = (vec![0; len + 1], vec![0; len]);
    pattern(id, 0, &mut expected);
    assert_eq!(fs.read(cx, ino, 0, &mut bytes), Ok(len), "{name}");
    assert!(bytes[..len] == expected[..], "{name}");
}

fn place(cx: &mut Cx, fs: &Ext4, ino: Ino) -> Range<u64> {
    let extent = fs.fiemap(cx, ino, 0, 1).expect("fiemap").remove(0);
    extent.physical() / 512..(extent.physical() + extent.len) / 512
}

/// Goal: a failed write of file data is told to one fsync, and nothing else suffers.
#[test]
fn a_failed_data_write_is_told_once_and_the_rest_goes_on() {
    for kind in ["ext4", "ext2"] {
        rt::testing::world(|cx| {
            let bed = Bed::new(cx, kind, 4096);
            let fs = bed.mount(cx);
            let file = write_new(cx, &fs, "file", 1, 50_000);
            fs.fsync(cx, file, false).expect("fsync");
            let sectors = place(cx, &fs, file);
            bed.fail(Op::Write, sectors);
            let mut data = vec![0; 50_000];
            pattern(2, 0, &mut data);
            assert_eq!(fs.write(cx, file, 0, &data), Ok(50_000));
            assert_eq!(fs.fsync(cx, file, false), Err(Errno::EIO), "{kind}: told");
            assert_eq!(fs.fsync(cx, file, false), Ok(()), "{kind}: once");
            assert_eq!(fs.error(), None, "{kind}: the mount goes on");
            let other = write_new(cx, &fs, "other", 3, 80_000);
            fs.fsync(cx, other, false).expect("other files are fine");
            bed.faults.clear();
            assert_eq!(fs.write(cx, file, 0, &data), Ok(50_000));
            fs.fsync(cx, file, false).expect("the second attempt succeeds");
            assert_eq!(fs.sync(cx), Err(Errno::EIO), "{kind}: sync listens for itself, once");
            fs.unmount(cx).expect("unmount");
            e2fsck(&bed.memory, kind);
            let fs = bed.mount(cx);
            check_content(cx, &fs, "file", 2, 50_000);
            check_content(cx, &fs, "other", 3, 80_000);
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: data that nobody fsyncs and that fails is told by sync, and leaves the metadata in order.
#[test]
fn a_failed_write_back_is_told_by_sync() {
    rt::testing::world(|cx| {
        let bed = Bed::new(cx, "ext4", 4096);
        let fs = bed.mount(cx);
        let file = write_new(cx, &fs, "file", 1, 50_000);
        fs.fsync(cx, file, false).expect("fsync");
        let sectors = place(cx, &fs, file);
        bed.fail(Op::Write, sectors);
        assert_eq!(fs.write(cx, file, 0, &[7; 4096]), Ok(4096));
        assert_eq!(fs.sync(cx), Err(Errno::EIO));
        bed.faults.clear();
        assert_eq!(fs.sync(cx), Ok(()));
        fs.unmount(cx).expect("unmount");
        checked(cx, &bed.memory, "after a failed write-back");
        e2fsck(&bed.memory, "after a failed write-back");
    });
}

/// Goal: where the log cannot be written, all changes end with `EROFS` and reads go on; the reason
/// is recorded; the next mount has everything that was committed before, and says that a check is
/// due.
#[test]
fn a_failed_log_write_makes_the_mount_read_only() {
    for (kind, block) in [("ext4", 4096), ("ext3", 1024)] {
        rt::testing::world(|cx| {
            let what = format!("{kind}/{block}");
            let bed = Bed::new(cx, kind, block);
            let log = bed.log_sectors(block);
            assert!(log.len() > 500, "{what}: a journal");
            let fs = bed.mount(cx);
            let kept = write_new(cx, &fs, "kept", 1, 30_000);
            fs.fsync(cx, kept, false).expect("fsync");
            log.iter().for_each(|sectors| bed.fail(Op::Write, sectors.clone()));
            let lost = write_new(cx, &fs, "lost", 2, 30_000);
            fs.fsync(cx, lost, false).expect_err("the commit fails");
            let aborted = fs.journal().expect("a journal").aborted();
            assert_eq!(aborted, Some(Errno::EIO), "{what}");
            let root = fs.root();
            let node = vfs::NewNode::new(vfs::FileType::Regular, 0o644);
            assert_eq!(fs.create(cx, root, b"new", &node).err(), Some(Errno::EROFS), "{what}");
            assert_eq!(fs.unlink(cx, root, b"kept"), Err(Errno::EROFS), "{what}");
            assert_eq!(fs.write(cx, kept, 0, b"x"), Err(Errno::EROFS), "{what}");
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            assert_eq!(fs.setattr(cx, kept, &set).err(), Some(Errno::EROFS), "{what}");
            let error = fs.error().expect("the latch says why");
            assert!(error.contains("journal"), "{what}: {error}");
            check_content(cx, &fs, "kept", 1, 30_000);
            fs.unmount(cx).expect_err("the unmount tells that something is missing");
            bed.faults.clear();
            recovered(cx, &bed, &what);
        });
    }
}

/// What the mount after a failed journal finds.
fn recovered(cx: &mut Cx, bed: &Bed, what: &str) {
    let image = testkit::image::write_device(&bed.memory);
    let head = judge::run_ok("dumpe2fs", &[&"-h", &image.path()]);
    assert!(head.contains("needs_recovery") && head.contains("with errors"), "{what}: {head}");
    let fs = bed.mount(cx);
    assert_eq!(fs.journal().expect("a journal").recorded_errno(), Some(Errno::EIO), "{what}");
    assert!(fs.recovery().is_some(), "{what}: the log was replayed");
    check_content(cx, &fs, "kept", 1, 30_000);
    assert_eq!(fs.lookup(cx, fs.root(), b"lost").err(), Some(Errno::ENOENT), "{what}");
    let again = write_new(cx, &fs, "again", 3, 10_000);
    fs.fsync(cx, again, false).expect("it can be written again");
    fs.unmount(cx).expect("unmount");
    let queue = queue(cx, bed.memory.clone());
    let report = ext4::check(cx, &queue, &Default::default()).expect("check runs");
    let rules: Vec<_> = report.findings.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, [ext4::Rule::SuperErrorState], "{what}");
    let image = testkit::image::write_device(&bed.memory);
    let head = judge::run_ok("dumpe2fs", &[&"-h", &image.path()]);
    assert!(head.contains("clean with errors"), "{what}: a full check is due: {head}");
    judge::e2fsck(image.path()).unwrap_or_else(|message| panic!("{what}: {message}"));
    let fs = bed.mount(cx);
    assert_eq!(fs.journal().expect("a journal").recorded_errno(), None, "{what}");
    fs.unmount(cx).expect("unmount");
}

/// Goal: a read error reaches who reads and nobody else; for metadata the mount names the block.
#[test]
fn a_read_error_is_eio_for_who_reads() {
    rt::testing::world(|cx| {
        let bed = Bed::new(cx, "ext4", 4096);
        let fs = bed.mount(cx);
        let file = write_new(cx, &fs, "file", 1, 50_000);
        write_new(cx, &fs, "other", 2, 50_000);
        let dir = mkdir(cx, &*fs, fs.root(), "dir");
        create(cx, &*fs, dir, "below");
        fs.sync(cx).expect("sync");
        let (sectors, below) = (place(cx, &fs, file), place(cx, &fs, dir));
        fs.unmount(cx).expect("unmount");
        let fs = bed.mount(cx);
        bed.fail(Op::Read, sectors);
        bed.fail(Op::Read, below.clone());
        let mut bytes = vec![0; 50_000];
        assert_eq!(fs.read(cx, file, 0, &mut bytes), Err(Errno::EIO));
        assert_eq!(fs.read_direct(cx, file, 0, &mut bytes[..4096]), Err(Errno::EIO));
        check_content(cx, &fs, "other", 2, 50_000);
        assert_eq!(fs.read_error(), None, "file data is not metadata");
        assert_eq!(fs.lookup(cx, dir, b"below").err(), Some(Errno::EIO));
        let named = fs.read_error().expect("the block is named");
        assert!(named.starts_with(&format!("block {}:", below.start / 8)), "{named}");
        assert_eq!(fs.error(), None, "writing goes on");
        let more = write_new(cx, &fs, "more", 3, 10_000);
        fs.fsync(cx, more, false).expect("fsync");
        bed.faults.clear();
        check_content(cx, &fs, "file", 1, 50_000);
        fs.lookup(cx, dir, b"below").expect("the medium reads again");
        fs.unmount(cx).expect("unmount");
        e2fsck(&bed.memory, "after read errors");
    });
}

/// Goal: no error anywhere breaks what was promised. Method: at every nth write a medium that fails
/// from then on; the mount is given up; the next one, on a good medium, holds every file whose
/// fsync succeeded.
#[test]
fn a_medium_that_dies_at_any_write_keeps_what_was_promised() {
    for n in 0..30 {
        rt::testing::world(|cx| {
            let bed = Bed::new(cx, "ext4", 4096);
            let fs = bed.mount(cx);
            let rule = Rule::always(Fault::Fail(Cause::Io));
            bed.faults.add(Rule { op: Some(Op::Write), skip: n * 3, ..rule });
            let mut promised = Vec::new();
            for id in 0..30u64 {
                let name = format!("file{id}");
                let node = vfs::NewNode::new(vfs::FileType::Regular, 0o644);
                let Ok(attr) = fs.create(cx, fs.root(), name.as_bytes(), &node) else { continue };
                let mut data = vec![0; 9000];
                pattern(id, 0, &mut data);
                let written = fs.write(cx, attr.ino, 0, &data);
                if written == Ok(9000) && fs.fsync(cx, attr.ino, false).is_ok() {
                    promised.push((name, id));
                }
            }
            assert!(bed.faults.hits() > 0 && promised.len() < 30, "the medium fails");
            fs.unmount(cx).expect_err("not everything was written");
            bed.faults.clear();
            let fs = bed.mount(cx);
            for (name, id) in &promised {
                check_content(cx, &fs, name, *id, 9000);
            }
            fs.unmount(cx).expect("unmount");
            checked(cx, &bed.memory, &format!("medium dead after {} writes", n * 3));
            e2fsck(&bed.memory, &format!("medium dead after {} writes", n * 3));
        });
    }
}
