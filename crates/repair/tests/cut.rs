//! Power cuts at every write of a repair: it is finished, or undone, whatever was lost.

mod support;
mod xfs_support;

use base::Rng;
use block::{Device, DeviceInfo};
use device::{MemoryDevice, RecordDevice};
use repair::undo::{Repaired, State, UndoFile};
use std::path::Path;
use std::sync::Arc;
use support::*;
use testkit::campaign::seeds;
use xfs_support as on_xfs;

/// Opens a copy of an undo file, as it was before the first write.
fn reopen(prepared: &Path) -> UndoFile {
    let copy = prepared.with_extension("copy");
    std::fs::copy(prepared, &copy).expect("copy");
    UndoFile::open(&copy).expect("a sound undo file")
}

/// A device with a volatile cache, so that flushes reach the record.
fn volatile(image: &[u8]) -> Arc<MemoryDevice> {
    let info = DeviceInfo::plain(image.len() as u64 / 512);
    let info = DeviceInfo { volatile_cache: true, physical_block: 512, ..info };
    let device = MemoryDevice::with_info(info);
    let full = |(_, chunk): &(usize, &[u8])| chunk.iter().any(|&byte| byte != 0);
    for (index, chunk) in image.chunks(4096).enumerate().filter(full) {
        device.write_at(index as u64 * 4096, chunk);
    }
    Arc::new(device)
}

/// What a cut image is after the next repair, and after an undo.
fn after(image: &[u8], prepared: &Path) -> [Vec<u8>; 2] {
    [true, false].map(|finish| {
        let device = volatile(image);
        let mut undo = reopen(prepared);
        rt::testing::world(|cx| {
            let queue = queue(cx, device.clone());
            if !finish {
                undo.undo(cx, &queue).expect("undo");
                assert_eq!(undo.state(), State::Undone);
            } else if undo.is_begun(cx, &queue).expect("compare") {
                repair::apply(cx, &queue, &mut undo).expect("finish");
                assert_eq!(undo.state(), State::Applied);
            }
        });
        device.snapshot()
    })
}

/// Repairs a damaged image, cut at each write and at random losses; answers the number of cuts.
fn cut_everywhere(name: &str, image: &[u8], rng: &mut Rng) -> u32 {
    let dir = tempfile::tempdir().expect("a directory");
    let prepared = dir.path().join("undo");
    let device = volatile(image);
    let Ok(plan) = plan(&device) else { return 0 };
    if plan.changes.is_empty() || !plan.left.is_empty() {
        return 0;
    }
    let of = Repaired { target: b"disk.img", device_bytes: image.len() as u64 };
    let made = UndoFile::create(&prepared, [5; 16], &of, &plan);
    drop(made.expect("undo file"));
    let record = Arc::new(RecordDevice::new(device.clone()));
    rt::testing::world(|cx| {
        let queue = queue(cx, record.clone());
        repair::apply(cx, &queue, &mut reopen(&prepared)).expect("apply");
    });
    let log = record.take_log();
    let last = device.snapshot();
    // Of large images the first and the last writes all, of the others some.
    let count = log.entries.len();
    let step = if image.len() > 32 << 20 { (count / 12).max(1) } else { 1 };
    let wanted = |n: &usize| *n < 3 || n + 3 > count || n.is_multiple_of(step);
    let whole = (0..=count).filter(wanted).map(device::Cut::clean);
    let losses = (0..6).map(|_| log.random_cut(rng)).collect::<Vec<_>>();
    let mut cuts = 0;
    for cut in whole.chain(losses) {
        let state = log.image_after(image, &cut);
        let [finished, undone] = after(&state, &prepared);
        let done = if state == image { image } else { &last };
        assert!(finished == *done, "{name}, {cut:?}: not finished");
        assert!(undone == image, "{name}, {cut:?}: not undone");
        cuts += 1;
    }
    cuts
}

/// Goal: a repair that is cut at any write, with any loss of what no flush has made durable, is
/// finished by the next one to the same image, and can be undone. Method: record the writes of
/// repairs of damaged images, cut at each of them, and at random losses.
#[test]
fn a_repair_that_is_cut_is_finished_or_undone() {
    cut_kinds(&[KINDS[0], KINDS[2], KINDS[3]], 3);
}

/// The same with features that not every image has: with `IOPATH_SEEDS` all kinds, else changes
/// that wait in fast commits.
#[test]
fn a_repair_with_other_features_that_is_cut_is_finished_or_undone() {
    let all = std::env::var("IOPATH_SEEDS").is_ok();
    let wanted = |kind: &&Kind| all || kind.name == "fast-commit-1k";
    let kinds: Vec<Kind> = FEATURES.iter().filter(wanted).copied().collect();
    cut_kinds(&kinds, 1);
}

fn cut_kinds(kinds: &[Kind], few: u64) {
    let mut cuts = 0;
    for kind in kinds {
        let base = kind.image();
        let blocks = metadata(&base, kind.block.into());
        for seed in seeds(few) {
            let mut rng = Rng::new(seed, 78);
            let mut image = base.snapshot();
            damage(&mut image, &blocks, kind.block.into(), &mut rng);
            let name = format!("{} seed {seed}", kind.name);
            let count = cut_everywhere(&name, &image, &mut rng);
            println!("{name}: {count} cuts");
            cuts += count;
        }
    }
    assert!(cuts > 0);
}

/// The same for XFS.
#[test]
fn a_repair_of_xfs_that_is_cut_is_finished_or_undone() {
    let mut cuts = 0;
    for kind in [&on_xfs::KINDS[0], &on_xfs::KINDS[6]] {
        let base = kind.image();
        let blocks = on_xfs::metadata(&base);
        let g = on_xfs::geometry(&base.snapshot()).expect("a sound image");
        for seed in seeds(2) {
            let mut rng = Rng::new(seed, 78);
            let mut image = base.snapshot();
            on_xfs::damage(&mut image, &blocks, &g, &mut rng);
            cuts += cut_everywhere(&format!("{} seed {seed}", kind.name), &image, &mut rng);
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > 0);
}

/// Goal: undo is refused where the image has changed since, and a damaged undo file is named.
#[test]
fn undo_is_refused_where_it_would_harm() {
    let kind = &KINDS[0];
    let base = kind.image();
    let mut image = base.snapshot();
    // The magic number of the superblock.
    image[1080] ^= 1;
    let device = Arc::new(MemoryDevice::from_image(&image));
    let plan = plan(&device).expect("a plan");
    let dir = tempfile::tempdir().expect("a directory");
    let mut undo = apply(&(device.clone() as _), &plan, dir.path());
    device.write_at(1024 + 48, &[9]);
    let text = rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        undo.undo(cx, &queue).expect_err("changed since").to_string()
    });
    assert_eq!(text, "the image has changed since: the sector at byte 1024 is another one");
    let path = dir.path().join("undo");
    let mut bytes = std::fs::read(&path).expect("read");
    *bytes.last_mut().expect("not empty") ^= 1;
    std::fs::write(&path, bytes).expect("write");
    let error = UndoFile::open(&path).err().expect("damaged").to_string();
    assert_eq!(error, "no sound undo file: its records do not fit their digest");
}

/// Goal: who writes a repair, or takes it back, reports how far he has come.
#[test]
fn writing_is_reported() {
    let mut image = KINDS[0].image().snapshot();
    image[1080] ^= 1;
    let device = Arc::new(MemoryDevice::from_image(&image));
    let plan = plan(&device).expect("a plan");
    let dir = tempfile::tempdir().expect("a directory");
    let of = Repaired { target: b"disk.img", device_bytes: device.info().bytes() };
    let path = dir.path().join("undo");
    let mut undo = UndoFile::create(&path, [3; 16], &of, &plan).expect("undo file");
    for what in ["writing", "writing what was there"] {
        let (meter, steps) = testkit::steps::recorded();
        undo.set_meter(meter);
        rt::testing::world(|cx| {
            let queue = queue(cx, device.clone());
            match what {
                "writing" => repair::apply(cx, &queue, &mut undo).expect("apply"),
                _ => undo.undo(cx, &queue).expect("undo"),
            }
        });
        steps.assert_whole(&[what]);
    }
    assert!(device.snapshot() == image, "as it was");
}
