//! Damaged records of a log that was not unmounted.

use std::sync::Arc;

use device::MemoryDevice;
use repair::{Plan, PlanOptions};
use testkit::content::{create, mkdir};
use testkit::manifest::Manifest;
use vfs::FileSystem;
use xfs::log::recovery::FoundHead;

use crate::xfs_support::{self, geometry, log_head, manifest};
use crate::{apply, kind};

/// Files whose making the log alone knows.
const FILES: usize = 600;

/// An image whose log holds [`FILES`] new files in several records, and where they lie.
fn dirty(name: &str) -> (MemoryDevice, FoundHead, u64) {
    let device = Arc::new(kind(name).image().fork());
    let image = rt::testing::world(|cx| {
        let fs = xfs_support::mount(cx, device.clone()).expect("a sound image");
        let dir = mkdir(cx, &*fs, fs.root(), "new");
        for n in 0..FILES {
            create(cx, &*fs, dir, &format!("file{n}"));
        }
        fs.sync(cx).expect("sync");
        let image = device.snapshot();
        fs.unmount(cx).expect("unmount");
        image
    });
    read(&image)
}

/// The image, the end of its log, and where that lies.
fn read(image: &[u8]) -> (MemoryDevice, FoundHead, u64) {
    let g = geometry(image).expect("sound");
    let device = MemoryDevice::from_image(image);
    let found = log_head(&device);
    assert!(!found.clean && found.head.head.block > found.head.tail.block + 100, "{found:?}");
    assert_eq!(found.damaged, None);
    (device, found, g.sector(g.log_start).0)
}

/// The image with something else in a block of its log.
fn changed(device: &MemoryDevice, sector: u64, change: impl Fn(&mut [u8])) -> Arc<MemoryDevice> {
    let mut block = device.snapshot()[sector as usize * 512..][..512].to_vec();
    change(&mut block);
    let changed = Arc::new(device.fork());
    changed.write_at(sector * 512, &block);
    changed
}

/// Repairs it in one run; both judges find nothing, nor does a second repair.
#[track_caller]
fn repaired(device: &Arc<MemoryDevice>, zero_log: bool) -> (Plan, usize) {
    let plan = |zero_log| {
        rt::testing::world(|cx| {
            let queue = crate::support::queue(cx, device.clone());
            let options = PlanOptions { zero_log, ..PlanOptions::default() };
            repair::plan_with(cx, &queue, options, &mut |_| true).expect("a plan")
        })
    };
    let planned = plan(zero_log);
    assert_eq!(planned.left, [""; 0], "{:#?}", planned.findings);
    let dir = tempfile::tempdir().expect("a directory");
    apply(&(device.clone() as _), &planned, dir.path());
    let file = testkit::image::write_device(device);
    testkit::judge::xfs_repair(file.path()).expect("sound");
    assert!(plan(false).is_clean(), "a second repair finds nothing");
    (planned, files(&manifest(device).expect("mounted")))
}

fn files(tree: &Manifest) -> usize {
    tree.keys().filter(|path| path.starts_with(b"new/file")).count()
}

fn rules(plan: &Plan) -> Vec<&'static str> {
    plan.findings.iter().map(|found| found.rule).filter(|rule| rule.starts_with("log")).collect()
}

/// A wrong bit is put right by the record's checksum, wherever it lies, and nothing is lost.
#[test]
fn a_wrong_bit_in_the_log_costs_nothing() {
    for name in ["xfs-4k", "xfs-parent-1k"] {
        let (device, found, start) = dirty(name);
        let (tail, head) = (found.head.tail.block, found.head.head.block);
        let places = [(tail, 1), (tail, 5), (tail, 17), (tail, 500), (tail + 1, 0)];
        let more = [(tail + 40, 300), (head - 1, 3), ((head + tail) / 2, 77)];
        for (block, at) in places.into_iter().chain(more) {
            let image = changed(&device, start + u64::from(block), |bytes| bytes[at] ^= 0x10);
            let (plan, files) = repaired(&image, false);
            assert_eq!(files, FILES, "{name}, block {block}, byte {at}: {:#?}", plan.findings);
            assert!(plan.is_safe(), "{name}, block {block}, byte {at}: {:#?}", plan.findings);
        }
    }
}

/// A block with another content is no torn write: it is named, what lies before it is replayed,
/// and with `zero_log` also what lies behind it.
#[test]
fn a_damaged_record_is_named_and_gone_around_when_asked() {
    let (device, found, start) = dirty("xfs-4k");
    let (tail, head) = (found.head.tail.block, found.head.head.block);
    let mut behind = [0; 2];
    for block in [tail, tail + 1, (head + tail) / 2, head - 1] {
        let sector = start + u64::from(block);
        let image = changed(&device, sector, |bytes| {
            (0..).zip(bytes).for_each(|(at, byte): (usize, _)| *byte = (at * 37 + 11) as u8);
        });
        let other = Arc::new(image.fork());
        let (plan, before) = repaired(&image, false);
        assert!(rules(&plan).contains(&"log-record") && !plan.is_safe(), "{:#?}", plan.findings);
        let lost = plan.findings.iter().find(|found| found.rule == "log-record").expect("named");
        assert!(lost.loss.is_some() && lost.action.contains("--zero-log"), "{lost:#?}");
        let (plan, all) = repaired(&other, true);
        assert!(!plan.is_safe() && all >= before, "block {block}: {all} and {before} files");
        behind = [behind[0] + before, behind[1] + all];
    }
    assert!(behind[1] > behind[0], "{behind:?}");
}

/// A block of a log that was never full is zeroed: it was taken for one that was never written, and
/// all that lay behind it was given up without a word. What lies behind it was written later.
#[test]
fn a_zeroed_block_is_told_from_one_that_was_never_written() {
    let device = Arc::new(kind("xfs-4k").image().fork());
    let image = rt::testing::world(|cx| {
        let fs = xfs_support::mount(cx, device.clone()).expect("a sound image");
        let dir = mkdir(cx, &*fs, fs.root(), "new");
        for n in 0..FILES {
            let ino = create(cx, &*fs, dir, &format!("file{n}"));
            if n % 25 == 0 {
                fs.fsync(cx, ino, false).expect("fsync");
            }
        }
        fs.sync(cx).expect("sync");
        let image = device.snapshot();
        fs.unmount(cx).expect("unmount");
        image
    });
    let (device, found, start) = read(&image);
    let (tail, head) = (found.head.tail.block, found.head.head.block);
    let (mut named, mut more) = (Vec::new(), 0);
    for block in (tail..head).step_by(((head - tail) / 12) as usize) {
        let image = changed(&device, start + u64::from(block), |bytes| bytes.fill(0));
        let other = Arc::new(image.fork());
        let (plan, before) = repaired(&image, false);
        let is_named = rules(&plan).contains(&"log-record");
        assert_eq!(is_named, !plan.is_safe(), "block {block}: {:#?}", plan.findings);
        named.push(is_named);
        let (_, all) = repaired(&other, true);
        assert!(all >= before, "block {block}: {all} and {before} files");
        more += all - before;
    }
    assert!(more > FILES, "{more}");
    // What may have been on its way with the last records is torn.
    let last = named.iter().rposition(|&named| named).expect("one is named");
    assert!(last >= 5 && named[..=last].iter().all(|&named| named), "{named:?}");
}

/// A block of the cycle before is a torn write: it ends the log, as it does for a mount.
#[test]
fn a_torn_record_ends_the_log() {
    let (device, found, start) = dirty("xfs-4k");
    let sector = start + u64::from(found.head.head.block - 1);
    let image = changed(&device, sector, |bytes| bytes.fill(0));
    let before = files(&manifest(&image).expect("mounted"));
    let (plan, after) = repaired(&image, false);
    assert!(plan.is_safe() && !rules(&plan).contains(&"log-record"), "{:#?}", plan.findings);
    assert_eq!(before, after);
}

/// An image with a clean log that holds the making of files before and after an unmount, and its
/// superblock says so.
fn clean() -> (Arc<MemoryDevice>, FoundHead, u64) {
    let device = kind("xfs-4k").image();
    rt::testing::world(|cx| {
        for round in 0..2 {
            let fs = xfs_support::mount(cx, device.clone()).expect("a sound image");
            let dir = mkdir(cx, &*fs, fs.root(), &format!("dir{round}"));
            for n in 0..FILES / 2 {
                create(cx, &*fs, dir, &format!("file{n}"));
            }
            fs.unmount(cx).expect("unmount");
        }
    });
    let g = geometry(&device.snapshot()).expect("sound");
    let found = log_head(&device);
    assert!(found.clean && found.head.head.block > 500, "{found:?}");
    (device, found, g.sector(g.log_start).0)
}

/// A block of a clean log is zeroed. Stale records before it were replayed over newer metadata, or
/// nothing was found, while Linux refuses the mount: the superblock knows that the log goes on.
#[test]
fn a_hole_in_a_clean_log_replays_nothing() {
    let (device, found, start) = clean();
    let before = manifest(&device).expect("sound");
    let head = found.head.head.block;
    for block in [2, 3, 7, head / 4, head / 3, head / 2, head * 2 / 3, head - 20, head - 5] {
        let image = changed(&device, start + u64::from(block), |bytes| bytes.fill(0));
        assert_eq!(manifest(&image).as_ref(), Some(&before), "mounted, block {block}");
        let (plan, _) = repaired(&image, false);
        assert!(plan.is_safe(), "block {block}: {:#?}", plan.findings);
        assert_eq!(manifest(&image).as_ref(), Some(&before), "block {block}");
    }
}

/// Every wrong bit of an unmount record is put right.
#[test]
fn a_wrong_bit_at_the_end_of_a_clean_log_is_put_right() {
    let (device, found, start) = clean();
    let before = manifest(&device).expect("sound");
    for (block, at) in [(0, 100), (0, 20), (1, 9), (1, 0)] {
        let block = start + u64::from(found.head.previous + block);
        let image = changed(&device, block, |bytes| bytes[at] ^= 4);
        let (plan, _) = repaired(&image, false);
        assert!(plan.is_safe(), "{block}, byte {at}: {:#?}", plan.findings);
        assert_eq!(manifest(&image).as_ref(), Some(&before), "{block}, byte {at}");
    }
}

/// The first block of a log that was not unmounted is damaged: it is replayed, and emptied.
#[test]
fn a_log_is_replayed_without_its_first_block() {
    let (device, _, start) = dirty("xfs-4k");
    let image = changed(&device, start, |bytes| bytes.fill(0x5a));
    let (plan, files) = repaired(&image, false);
    assert!(rules(&plan).contains(&"log-start"), "{:#?}", plan.findings);
    assert_eq!(files, FILES);
}

/// A log that xfs_repair has emptied has zeros behind its end: nothing is damaged.
#[test]
fn a_log_that_was_emptied_is_sound() {
    let (device, ..) = dirty("xfs-4k");
    let file = testkit::image::write_device(&device);
    let args: [&dyn AsRef<std::ffi::OsStr>; 2] = [&"-L", &file.path()];
    assert!(testkit::judge::run("xfs_repair", &args).status.success());
    let device = Arc::new(testkit::image::load(file.path()));
    let plan = crate::plan(&device).expect("a plan");
    assert!(plan.is_clean(), "{:#?}", plan.findings);
}

/// A mount of a log that xfs_repair has emptied writes older cycles over the zeros ahead of it:
/// a sector of a record that a power cut has kept back is a torn one, and the record is none.
#[test]
fn a_torn_record_behind_an_emptied_log_is_no_damage() {
    let (device, ..) = dirty("xfs-4k");
    let file = testkit::image::write_device(&device);
    let args: [&dyn AsRef<std::ffi::OsStr>; 2] = [&"-L", &file.path()];
    assert!(testkit::judge::run("xfs_repair", &args).status.success());
    let device = Arc::new(testkit::image::load(file.path()));
    let [before, after] = rt::testing::world(|cx| {
        let fs = xfs_support::mount(cx, device.clone()).expect("a sound image");
        let before = device.snapshot();
        let dir = mkdir(cx, &*fs, fs.root(), "more");
        for n in 0..FILES {
            create(cx, &*fs, dir, &format!("file{n}"));
        }
        fs.sync(cx).expect("sync");
        let after = device.snapshot();
        fs.unmount(cx).expect("unmount");
        [before, after]
    });
    let g = geometry(&after).expect("sound");
    let start = g.sector(g.log_start).0;
    let whole = log_head(&MemoryDevice::from_image(&after)).head;
    assert!(whole.head.block > whole.tail.block + 100 && whole.head.cycle > 1, "{whole:?}");
    for block in (whole.tail.block..whole.head.block).step_by(7) {
        let image = MemoryDevice::from_image(&after);
        let at = (start + u64::from(block)) * 512;
        image.write_at(at, &before[at as usize..][..512]);
        let found = log_head(&image);
        assert_eq!((found.damaged, found.hole), (None, None), "block {block}");
        assert!(found.head.head.block <= block, "block {block}: {found:?}");
    }
}
