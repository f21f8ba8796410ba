//! Power cuts while files are written: tasks create, append, rename, truncate, remove and sync at
//! once; the device's write log is cut at every flush and in between, with random subsets of the
//! unflushed writes lost and sectors torn. Every image is recovered by us and must hold what had
//! been promised, contents included; our own check finds nothing; on a sample xfs_repair and the
//! kernel's replay agree. A few seeds here, many with `IOPATH_SEEDS=n`.

mod world;

use std::sync::Arc;

use device::{Cut, MemoryDevice, RecordDevice, WriteLog};
use rt::{SpinLock, World, WorldConfig};
use testkit::chaos::{self, Chaos};
use testkit::crash::{self, CrashConfig};
use testkit::oracle::Oracle;
use testkit::workload::{self, Shared};
use testkit::{content, judge};
use vfs::FileSystem;
use world::{Cell, checked, mount, repaired, seed_count, timed};

const DEFAULT: Cell = Cell(&[]);
const SMALL_BLOCKS: Cell = Cell(&[('b', "size=1024"), ('m', "rmapbt=1"), ('d', "agcount=3")]);

fn config(seed: u64, random: usize) -> CrashConfig {
    CrashConfig { random, at_flushes_max: 60, ..CrashConfig::new(seed) }
}

/// One recorded run, and what it promised.
struct Run {
    cell: Cell,
    base: MemoryDevice,
    log: WriteLog,
    oracle: Oracle,
}

/// Runs the workload in virtual time and stops in the middle, without an unmount.
fn record(seed: u64, cell: Cell, steps: u64) -> Run {
    World::new(WorldConfig::exploring(seed)).run("crash", |cx| {
        let memory = cell.fresh(cx, 64 << 20);
        let base = memory.fork();
        let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
        let (fs, _) = mount(cx, device.clone(), 64 << 20);
        let log = device.clone();
        let shared = Arc::new(Shared {
            fs: fs.clone(),
            oracle: SpinLock::new(Oracle::default()),
            position: Box::new(move || log.len()),
        });
        workload::run(cx, &shared, seed, 4, steps);
        fs.shutdown_hard();
        let oracle = std::mem::take(&mut *shared.oracle.lock(cx));
        Run { cell, base, log: device.log(), oracle }
    })
}

impl Run {
    /// Recovers an image and compares it with the promises.
    fn verify(&self, image: &Arc<MemoryDevice>, cut: &Cut) -> Result<(), String> {
        rt::testing::real(|cx| {
            let (fs, _) = mount(cx, image.clone(), 64 << 20);
            self.oracle.verify(cx, &*fs, cut.upto)?;
            fs.unmount(cx).map_err(|errno| format!("unmount after recovery: {errno}"))?;
            checked(cx, image)
        })
    }

    /// The kernel replays the log, and what it leaves holds the promises too.
    fn verify_by_kernel(&self, dirty: &MemoryDevice, cut: &Cut) -> Result<(), String> {
        let file = judge::write_sparse(&dirty.snapshot());
        drop(judge::LoopMount::new(file.path(), "xfs", "rw,nouuid").expect("the kernel mounts it"));
        judge::xfs_repair(file.path()).map_err(|m| format!("the kernel's replay: {m}"))?;
        let bytes = std::fs::read(file.path()).expect("the image is readable");
        let image = Arc::new(MemoryDevice::from_image(&bytes));
        self.verify(&image, cut).map_err(|m| format!("the kernel's replay: {m}"))
    }
}

fn campaign(cell: Cell, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let run = record(seed, cell, 80);
        assert!(run.oracle.promises() > 10, "the workload promises something");
        let report = crash::explore(&config(seed, 25), &run.base, &run.log, |image, case| {
            let dirty = image.fork();
            run.verify(&image, &case.cut)?;
            if case.index % 25 == 0 {
                repaired(&image)?;
                run.verify_by_kernel(&dirty, &case.cut)?;
            }
            Ok(())
        });
        println!("{:?} seed {seed}: {report:?}, {} promises", run.cell, run.oracle.promises());
        assert!(report.lossy > 5, "no cut lost a write");
    }
}

#[test]
fn what_fsync_promised_is_kept() {
    campaign(DEFAULT, 0..seed_count(2));
}

#[test]
fn what_fsync_promised_is_kept_with_small_blocks() {
    campaign(SMALL_BLOCKS, 0..seed_count(2));
}

/// Goal: whatever was going on, every cut is recovered to a file system in order, and no file shows
/// bytes that are not its own. Method: tasks do anything to the same names, synced now and then,
/// with a small cache.
#[test]
fn any_operations_are_recovered() {
    for (cell, seeds) in [(DEFAULT, 2), (SMALL_BLOCKS, 2)] {
        for seed in 0..seed_count(seeds) {
            let (base, log) = World::new(WorldConfig::exploring(seed)).run("crash", |cx| {
                let memory = cell.fresh(cx, 48 << 20);
                let base = memory.fork();
                let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
                let (fs, _) = mount(cx, device.clone(), 2 << 20);
                let top = content::mkdir(cx, &*fs, fs.root(), "top");
                let shared: Arc<dyn FileSystem> = fs.clone();
                let plan =
                    Chaos { tasks: 6, steps: 80, size_max: 200_000, small: true, faults: false };
                chaos::run(cx, &shared, top, seed, plan);
                fs.shutdown_hard();
                (base, device.log())
            });
            let report = crash::explore(&config(seed, 25), &base, &log, |image, case| {
                rt::testing::real(|cx| {
                    let (fs, _) = mount(cx, image.clone(), 64 << 20);
                    chaos::verify(cx, &*fs);
                    fs.unmount(cx).map_err(|errno| format!("unmount after recovery: {errno}"))?;
                    checked(cx, &image)
                })?;
                if case.index % 25 == 0 { repaired(&image) } else { Ok(()) }
            });
            println!("{cell:?} seed {seed}: {report:?}");
        }
    }
}
