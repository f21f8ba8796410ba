//! The log against its judges: what we write is read by xfs_logprint and replayed by the kernel.

use std::sync::Arc;

use crate::log_common::{Volume, copy, logprint, mkfs, real, repair, scratch};
use base::Sector;
use testkit::judge;
use xfs::buf::{BufMap, BufOps, INODE_CLUSTER};
use xfs::format::Kind;
use xfs::log::inode_item::{InodeFields, InodeItem, InodePlace};
use xfs::log::{Log, LogOptions};
use xfs::trans::{LogReservation, Trans};

static AGI: BufOps = BufOps { name: "AGI", kinds: &[Kind::Agi], check: None, unmapped: false };

/// The root inode's item and image.
fn root(cx: &mut rt::Cx, volume: &Volume, log: &Arc<Log>) -> (Arc<InodeItem>, Vec<u8>) {
    let geometry = &volume.geometry;
    let (block, offset) = geometry.ino_place(geometry.root_ino);
    let sectors = geometry.block_sectors() as u32;
    let len = geometry.chunks.cluster_blocks * sectors;
    let cluster = BufMap { daddr: geometry.ag_sector(block), len };
    let buf = log.bufs().read(cx, &[cluster], &INODE_CLUSTER).expect("the cluster");
    let size = geometry.inode_size as usize;
    let image = buf.with_range(offset, size, |bytes| bytes.to_vec());
    let place = InodePlace { ino: geometry.root_ino.0, cluster, offset: offset as u32 };
    (InodeItem::new(place), image)
}

/// Changes the root inode's mode and the AGI of the second group, one transaction.
fn change(cx: &mut rt::Cx, log: &Arc<Log>, item: &Arc<InodeItem>, image: &mut [u8], n: u64) -> u64 {
    let mut trans = Trans::alloc(cx, log, LogReservation::new(4096)).expect("space");
    let sector = 25600 * 8 + 2;
    let map = BufMap { daddr: Sector(sector), len: 1 };
    let agi = trans.read_buf(cx, &[map], &AGI).expect("the AGI");
    agi.with_mut(|bytes| bytes[36..40].copy_from_slice(&(n as u32).to_be_bytes()));
    trans.log_buf(&agi, 36, 39);
    image[104..112].copy_from_slice(&n.to_be_bytes());
    trans.log_inode(item, image, InodeFields::CORE | InodeFields::DATA);
    trans.commit(cx).expect("committed")
}

/// A log of ours, dirty: xfs_logprint reads it, the kernel replays it, xfs_repair is content, and
/// our own replay gives the same bytes as the kernel's.
#[test]
fn the_kernel_replays_our_log() {
    let dir = scratch();
    let image = mkfs(dir.path(), "a.img", 400 << 20, &[]);
    real(|cx| {
        let volume = Volume::open(cx, &image);
        let log = volume.mount(cx, LogOptions::default());
        let (item, mut root) = root(cx, &volume, &log);
        for n in 0..10 {
            let seq = change(cx, &log, &item, &mut root, 128 + n);
            if n % 3 == 0 {
                log.force_seq(cx, seq).expect("forced");
            }
        }
        log.force(cx).expect("forced");
        log.abandon(cx);
    });
    let text = logprint(&image, &["-t", "-b", "-i"]);
    assert!(text.contains("<DIRTY>"), "{text}");
    let text = logprint(&image, &["-c"]);
    assert!(text.contains("flags: COMMIT"), "{text}");
    let ours = dir.path().join("ours.img");
    copy(&image, &ours);
    drop(judge::LoopMount::new(&image, "xfs", "rw").expect("the kernel mounts"));
    repair(&image).expect("clean after the kernel's replay");
    real(|cx| {
        let volume = Volume::open(cx, &ours);
        let recovered = volume.recover(cx).expect("recovered");
        assert!(!recovered.clean);
        // Both items moved up with each checkpoint, so only the last two are needed.
        assert_eq!((recovered.transactions, recovered.skipped), (2, 0));
        let log = volume.mount(cx, LogOptions::default());
        log.unmount(cx).expect("unmounted");
    });
    repair(&ours).expect("clean after our replay");
    let root_of = |path| judge::run_ok("xfs_db", &[&"-r", &"-c", &"inode 128", &"-c", &"p", &path]);
    let without_lsn = |text: String| -> String {
        let keep = |line: &&str| !line.contains("lsn") && !line.contains("crc");
        text.lines().filter(keep).collect::<Vec<_>>().join("\n")
    };
    let (theirs, ours) = (root_of(&image), root_of(&ours));
    assert!(theirs.contains("(correct)") && ours.contains("(correct)"));
    assert!(ours.contains("v3.change_count = 137"), "{ours}");
    assert_eq!(without_lsn(theirs), without_lsn(ours));
}

/// Where nothing lies: in the third group of a file system of 400 MiB, behind its headers.
const NOWHERE: u64 = 2 * 25600 * 8 + 40960;

/// One transaction: twelve buffers of 64 KiB, whole, filled with `count`.
fn change_much(cx: &mut rt::Cx, log: &Arc<Log>, count: u64) -> u64 {
    let mut trans = Trans::alloc(cx, log, LogReservation::new(12 * 66000)).expect("space");
    for index in 0..12 {
        let map = BufMap { daddr: Sector(NOWHERE + index * 128), len: 128 };
        let buf = trans.get_buf(cx, &[map], &xfs::buf::RAW).expect("a buffer");
        if count == 0 {
            buf.zero();
        }
        buf.with_mut(|bytes| {
            let words = bytes.chunks_exact_mut(8).enumerate();
            words.for_each(|(at, word)| {
                let value = count << 40 | index << 32 | at as u64;
                word.copy_from_slice(&value.to_be_bytes());
            });
        });
        trans.log_buf(&buf, 0, 65535);
    }
    trans.commit(cx).expect("committed")
}

/// Checkpoints over many records of every size, with and without a log stripe unit, round the end
/// of the log: the kernel's replay and ours give the same blocks.
#[test]
fn large_checkpoints_in_records_of_every_size() {
    let dir = scratch();
    let cases = [
        (32, "size=64m"),
        (64, "size=64m,su=32k"),
        (256, "size=64m"),
        (256, "size=64m,su=256k"),
        (32, "size=66m,su=96k"),
    ];
    for (kib, args) in cases {
        let image = mkfs(dir.path(), "a.img", 400 << 20, &["-l", args]);
        let head = real(|cx| {
            let volume = Volume::open(cx, &image);
            let options = LogOptions { record_bytes: kib << 10, ..LogOptions::default() };
            let log = volume.mount(cx, options);
            // 786,432 bytes a time: round the end of 64 MiB, and a record lies across it.
            for count in 0..88 {
                let seq = change_much(cx, &log, count);
                log.force_seq(cx, seq).expect("forced");
            }
            log.abandon(cx);
            assert_eq!(log.stats().overruns, 0);
            xfs::log::recovery::find(cx, &volume.queue, volume.log()).expect("a head").head.head
        });
        assert_eq!(head.cycle, 2, "{kib} KiB, {args}: the log did not wrap: {head}");
        logprint(&image, &["-d"]);
        let ours = dir.path().join("ours.img");
        copy(&image, &ours);
        drop(judge::LoopMount::new(&image, "xfs", "rw").expect("the kernel mounts"));
        repair(&image).expect("clean after the kernel's replay");
        real(|cx| {
            let volume = Volume::open(cx, &ours);
            let replayed = xfs::recover(cx, &volume.queue).expect("replayed");
            assert!(!replayed.was_clean);
            volume.queue.drain(cx);
        });
        repair(&ours).expect("clean after our replay");
        let area = |path| {
            let bytes = testkit::image::read(path);
            bytes[NOWHERE as usize * 512..][..12 * 65536].to_vec()
        };
        let (theirs, ours) = (area(&image), area(&ours));
        assert!(theirs == ours, "{kib} KiB, {args}: the kernel replayed something else");
        assert_eq!(ours[8..16], (87u64 << 40 | 1).to_be_bytes());
    }
}

/// A transaction whose record takes `blocks` blocks of the log.
fn fill(cx: &mut rt::Cx, log: &Arc<Log>, blocks: usize) {
    let mut trans = Trans::alloc(cx, log, LogReservation::new(blocks as u32 * 512)).expect("space");
    // A header, and what the operations of a checkpoint with one region take.
    trans.log_region(vec![0; (blocks - 1) * 512 - 200]);
    trans.commit(cx).expect("committed");
    log.force(cx).expect("forced");
}

/// Goal: a clean log is known as clean wherever its last record lies. Method: the log is filled so
/// that the header of the unmount record is the ring's last block and its body the first.
#[test]
fn a_last_record_round_the_corner_is_clean() {
    let dir = scratch();
    let image = mkfs(dir.path(), "corner.img", 400 << 20, &[]);
    real(|cx| {
        loop {
            let volume = Volume::open(cx, &image);
            let found = volume.recover(cx).expect("recovery");
            assert!(found.clean);
            let left = volume.log().blocks - found.head.head.block;
            let log = volume.mount(cx, LogOptions::default());
            // The unmount record takes two blocks.
            match left {
                1 => {}
                4..=59 => fill(cx, &log, left as usize - 3),
                _ => (0..left / 50).for_each(|_| fill(cx, &log, 40)),
            }
            log.unmount(cx).expect("an unmount");
            if left == 1 {
                assert_eq!(volume.recover(cx).expect("recovery").head.head.block, 1);
                break;
            }
        }
        let volume = Volume::open(cx, &image);
        let pages = cache::PageCache::new(cx.runtime(), cache::PageCacheConfig::default());
        let options = xfs::MountOptions::default();
        let fs = xfs::Xfs::mount(cx, &volume.queue, &pages, options).expect("a clean log mounts");
        vfs::FileSystem::unmount(&*fs, cx).expect("an unmount");
        let report = xfs::check(cx, &volume.queue, &xfs::check::CheckOptions::default());
        let report = report.expect("the device works");
        assert!(report.is_clean(), "{:?}", report.findings);
    });
    repair(&image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
}
