//! Full devices: what a write accepted finds its place, in every shape of the free space, and
//! wherever the power fails, what was synced is there and nothing is inconsistent.
//! `IOPATH_SEEDS=n` runs more.

mod world;

use std::sync::Arc;

use device::{MemoryDevice, RecordDevice};
use rt::{Cx, World, WorldConfig};
use testkit::crash::{self, CrashConfig};
use testkit::full::{self, History, Plan, Position};
use vfs::FileSystem;
use world::{Cell, checked, mount, repaired, seed_count, timed};

const CELLS: [Cell; 4] = [
    Cell(&[]),
    Cell(&[('b', "size=1024"), ('m', "rmapbt=1"), ('d', "agcount=3")]),
    Cell(&[('m', "reflink=0"), ('d', "agcount=3")]),
    Cell(&[('m', "rmapbt=1"), ('d', "agcount=2")]),
];

const PLAN: Plan = Plan {
    tasks: 5,
    steps: 90,
    files: 4,
    size_max: 600_000,
    left: Some(600),
    torn: false,
    align: 4096,
};

const SIZE: u64 = 64 << 20;

#[test]
fn what_was_synced_survives_power_cuts_on_a_full_device() {
    for seed in 0..seed_count(2) {
        let left = if seed % 3 == 2 { None } else { Some(300 + seed % 5 * 100) };
        let plan = Plan { left, torn: seed % 4 == 1, ..PLAN };
        survive(CELLS[(seed % 4) as usize], plan, seed);
    }
}

fn survive(cell: Cell, plan: Plan, seed: u64) {
    let what = format!("{cell:?} seed {seed}");
    let (base, log, history) = World::new(WorldConfig::exploring(seed)).run("full", |cx| {
        let memory = cell.fresh(cx, SIZE);
        let base = memory.fork();
        let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
        let (fs, _) = mount(cx, device.clone(), 2 << 20);
        let top = testkit::content::mkdir(cx, &*fs, fs.root(), "top");
        let shared: Arc<dyn FileSystem> = fs.clone();
        let recorded = device.clone();
        let position: Position = Arc::new(move || recorded.len());
        let history = full::run(cx, &shared, top, seed, plan, &position);
        fs.shutdown_hard();
        (base, device.log(), history)
    });
    let config = CrashConfig { random: 20, at_flushes_max: 25, ..CrashConfig::new(seed) };
    let report = crash::explore(&config, &base, &log, |image, case| {
        let verified = rt::testing::real(|cx| recovered(cx, &image, &history, case.cut.upto));
        if case.index % 25 == 0 {
            repaired(&image)?;
        }
        verified
    });
    let History { done, full, .. } = history;
    println!("{what}: {report:?}, {done} operations, {full} without space");
    assert!(plan.left.is_none() || full > 0, "{what}: the device was never full");
}

fn recovered(
    cx: &mut Cx,
    image: &Arc<MemoryDevice>,
    history: &History,
    upto: usize,
) -> Result<(), String> {
    let (fs, _) = mount(cx, image.clone(), 64 << 20);
    let verified = match fs.lookup(cx, fs.root(), b"top") {
        Ok(top) => full::verify(cx, &*fs, top.ino, history, upto),
        Err(_) => Ok(()),
    };
    fs.unmount(cx).expect("unmount after recovery");
    checked(cx, image).and(verified)
}

/// As long as nothing fails a sync never finds that there is no space, and an unmount ends.
#[test]
fn what_was_accepted_finds_its_place() {
    for seed in 0..seed_count(4) {
        let cell = CELLS[(seed % 4) as usize];
        let plan =
            Plan { steps: 250, left: Some(300 + seed % 7 * 150), torn: seed % 5 > 2, ..PLAN };
        let session = |cx: &mut Cx| {
            let memory = cell.fresh(cx, SIZE);
            let slow = timed(cx, &memory, seed);
            let (fs, _) = mount(cx, slow, 2 << 20);
            let shared: Arc<dyn FileSystem> = fs.clone();
            let position: Position = Arc::new(|| 0);
            let history = full::run(cx, &shared, fs.root(), seed, plan, &position);
            fs.unmount(cx).expect("unmount");
            (memory, history)
        };
        let (memory, history) = match seed % 4 {
            0 => rt::testing::real(session),
            _ => World::new(WorldConfig::exploring(seed)).run("full", session),
        };
        assert!(history.full > 0, "{cell:?} seed {seed}: the device was never full");
        rt::testing::real(|cx| checked(cx, &memory)).expect("our check finds nothing");
        repaired(&memory).expect("xfs_repair finds nothing");
    }
}
