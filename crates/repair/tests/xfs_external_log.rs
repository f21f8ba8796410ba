//! XFS with a log on a device of its own: repaired where that log is empty.

mod support;
mod xfs_support;

use std::sync::Arc;

use base::Rng;
use device::{MemoryDevice, RecordDevice};
use repair::{Plan, PlanOptions, RepairError};
use rt::Cx;
use support::{apply, cut_and_go_on, queue, write};
use testkit::campaign::seeds;
use testkit::content::{create, mkdir};
use vfs::FileSystem;
use xfs::format::Kind as Block;
use xfs::format::log::Lsn;
use xfs::mkfs::{Devices, mkfs_beside};
use xfs::mount::options::BesideDevice;
use xfs::{MkfsOptions, MountOptions, Xfs};
use xfs_support::{damage, geometry, metadata, pieces, populate, written_behind};

const BLOCK: u32 = 4096;
const LOG: u64 = 12 << 20;

fn mount(cx: &mut Cx, data: &Arc<MemoryDevice>, log: &Arc<MemoryDevice>) -> Arc<Xfs> {
    let [data, log] = [data, log].map(|device| queue(cx, device.clone()));
    let pages = cache::PageCache::new(cx.runtime(), cache::PageCacheConfig::with_limit(32 << 20));
    let log = Some(BesideDevice(log));
    let options = MountOptions { read_only: false, log, ..MountOptions::default() };
    Xfs::mount(cx, &data, &pages, options).expect("it is mounted")
}

/// An image with one of everything, and its log.
fn image() -> [Arc<MemoryDevice>; 2] {
    rt::testing::world(|cx| {
        let devices = [64 << 20, LOG].map(|bytes| Arc::new(MemoryDevice::new(bytes)));
        let options = MkfsOptions {
            block_size: BLOCK,
            ag_count: Some(3),
            log_size: Some(LOG),
            rmapbt: true,
            ..MkfsOptions::compat("6.12").expect("a known kernel")
        };
        let [data, log] = devices.clone().map(|device| queue(cx, device));
        let beside = Devices { log: Some(&log), ..Devices::default() };
        mkfs_beside(cx, &data, &beside, &options).expect("mkfs");
        let fs = mount(cx, &devices[0], &devices[1]);
        populate(cx, &fs, BLOCK.into());
        fs.unmount(cx).expect("unmount");
        devices
    })
}

fn plan(data: &Arc<MemoryDevice>, log: Option<&Arc<MemoryDevice>>) -> Result<Plan, RepairError> {
    rt::testing::world(|cx| {
        let data = queue(cx, data.clone());
        let log = log.map(|log| BesideDevice(queue(cx, log.clone())));
        let options = PlanOptions { log, ..PlanOptions::default() };
        repair::plan_with(cx, &data, options, &mut |_| true)
    })
}

/// What the newest xfs_repair says of both devices.
fn judged(data: &MemoryDevice, log: &MemoryDevice) -> Result<(), String> {
    let files = [data, log].map(testkit::image::write_device);
    let args: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"-n", &"-l", &files[1].path(), &files[0].path()];
    let output = testkit::newest::run("xfs_repair", &args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(text) }
}

/// Damaged images are clean after one repair, a second one finds nothing, and their log is as it
/// was.
#[test]
fn damaged_images_are_repaired_beside_their_log() {
    let [base, log] = image();
    judged(&base, &log).expect("a sound image");
    let blocks = metadata(&base);
    let mut repaired = 0;
    for seed in seeds(24) {
        let mut image = base.snapshot();
        let g = geometry(&image).expect("a sound image");
        let what = damage(&mut image, &blocks, &g, &mut Rng::new(seed, 77));
        let device = Arc::new(MemoryDevice::from_image(&image));
        let planned = plan(&device, Some(&log)).unwrap_or_else(|e| panic!("{seed}: {what}: {e}"));
        assert_eq!(planned.left, [""; 0], "{seed}: {what}");
        repaired += u32::from(!planned.is_clean());
        let dir = tempfile::tempdir().expect("a directory");
        let before = log.snapshot();
        apply(&(device.clone() as _), &planned, dir.path());
        judged(&device, &log).unwrap_or_else(|text| panic!("{seed}: {what}: {text}"));
        assert!(plan(&device, Some(&log)).expect("a plan").is_clean(), "{seed}: {what}");
        assert_eq!(log.snapshot(), before, "{seed}: {what}");
    }
    assert!(repaired > 10, "{repaired}");
}

/// The log itself is not written: what is ahead of it is put right piece by piece.
#[test]
fn metadata_ahead_of_an_external_log_is_put_right() {
    let [base, log] = image();
    let g = geometry(&base.snapshot()).expect("sound");
    let (mut device, mut count) = (base.clone(), 0);
    let all = pieces(&base, &g).into_iter();
    for (number, places) in all.filter(|&(number, _)| number > Block::Super as u8) {
        let lsn = Lsn { cycle: 40, block: number.into() };
        device = written_behind(&device, Block::ALL[usize::from(number)], &places, lsn);
        count += places.len();
    }
    assert!(count > 100 && judged(&device, &log).is_err(), "{count}");
    let planned = plan(&device, Some(&log)).expect("a plan");
    assert_eq!(planned.left, [""; 0], "{:#?}", planned.findings);
    let dir = tempfile::tempdir().expect("a directory");
    let before = log.snapshot();
    apply(&(device.clone() as _), &planned, dir.path());
    judged(&device, &log).expect("sound");
    assert!(plan(&device, Some(&log)).expect("a plan").is_clean());
    assert_eq!(log.snapshot(), before);
}

/// Without the log's device, or where it holds changes, there is no plan.
#[test]
fn an_external_log_must_be_there_and_empty() {
    let [data, log] = image();
    let refused = plan(&data, None).expect_err("the log may hold anything");
    assert!(refused.to_string().contains("-o logdev=DEVICE"), "{refused}");
    rt::testing::world(|cx| {
        let fs = mount(cx, &data, &log);
        let root = fs.root();
        let made = testkit::content::create(cx, &*fs, root, "new");
        fs.fsync(cx, made, false).expect("fsync");
        let (data, log) = (data.fork(), log.fork());
        let refused = plan(&Arc::new(data), Some(&Arc::new(log))).expect_err("it is not empty");
        assert!(refused.to_string().contains("replay it first"), "{refused}");
        fs.unmount(cx).expect("unmount");
    });
}

/// Goal: what lies behind the new end moves, and the log stays as it is. Method: our mount and the
/// newest xfs_repair beside it; without the log it is refused; a cut is finished or undone.
#[test]
fn it_shrinks_beside_its_log() {
    let [data, log] = image();
    rt::testing::world(|cx| {
        let fs = mount(cx, &data, &log);
        for d in 0..6 {
            let dir = mkdir(cx, &*fs, fs.root(), &format!("more{d}"));
            for n in 0..10 {
                let ino = create(cx, &*fs, dir, &format!("file-{n}"));
                write(cx, &*fs, ino, d * 10 + n, 0, 150_000);
            }
        }
        fs.unmount(cx).expect("unmount");
    });
    let tree = |data: &Arc<MemoryDevice>| {
        rt::testing::world(|cx| {
            let fs = mount(cx, data, &log);
            let tree = testkit::manifest::of_fs(cx, &*fs).expect("it is read");
            fs.unmount(cx).expect("unmount");
            tree
        })
    };
    let before = tree(&data);
    let kept = log.snapshot();
    let (dir, first) = (tempfile::tempdir().expect("a directory"), data.snapshot());
    let record = Arc::new(RecordDevice::new(data.clone()));
    let plan = rt::testing::world(|cx| {
        let on = queue(cx, record.clone());
        let beside = BesideDevice(queue(cx, log.clone()));
        let meter = rt::Meter::default();
        let refused = repair::plan_shrink(cx, &on, None, 30 << 20, &meter).map(drop);
        assert!(refused.expect_err("no log").to_string().contains("log"));
        let plan = repair::plan_shrink(cx, &on, Some(&beside), 30 << 20, &meter);
        let plan = plan.expect("a plan");
        plan.layout.prepare(cx, &on, &meter).expect("prepared");
        plan
    });
    apply(&(record.clone() as _), &plan.layout.plan, dir.path());
    assert!(plan.blocks_moved > 0 && plan.inodes_moved > 0, "{plan:?}");
    assert!(log.snapshot() == kept, "the log is as it was");
    let end = plan.after.0 as usize * BLOCK as usize;
    judged(&loaded(&data.snapshot()[..end]), &log).unwrap_or_else(|text| panic!("{text}"));
    let last = data.snapshot();
    let images = [&first[..], &last[..]];
    let kinds = cut_and_go_on(&record.take_log(), images, &dir.path().join("undo"), |old, cut| {
        judged(&loaded(old), &log).unwrap_or_else(|text| panic!("{cut:?}: {text}"));
        let g = geometry(old).expect("a superblock");
        assert_eq!(g.blocks_count(), plan.before.0, "{cut:?}");
    });
    assert!(kinds.iter().all(|&count| count > 0), "{kinds:?}");
    assert_eq!(testkit::manifest::diff(&before, &tree(&data)), "");
}

fn loaded(bytes: &[u8]) -> MemoryDevice {
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, bytes);
    device
}
