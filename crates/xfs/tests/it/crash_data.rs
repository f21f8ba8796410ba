//! Power cuts while files are written: tasks create, append, rename, truncate, remove and sync at
//! once; the device's write log is cut at every flush and in between, with random subsets of the
//! unflushed writes lost and sectors torn. Every image is recovered by us and must hold what had
//! been promised, contents included; our own check finds nothing; on a sample xfs_repair and the
//! kernel's replay agree. A few seeds here, many with `IOPATH_SEEDS=n`.

use std::sync::Arc;

use crate::world::{Cell, Recording, repaired, seed_count};
use device::{Cut, MemoryDevice};
use testkit::crash::{self, CrashConfig};
use testkit::format::{Recorded, recover};
use testkit::oracle::Oracle;
use testkit::{judge, trials};

const DEFAULT: Cell = Cell(&[]);
const SMALL_BLOCKS: Cell = Cell(&[('b', "size=1024"), ('m', "rmapbt=1"), ('d', "agcount=3")]);

fn config(seed: u64, random: usize) -> CrashConfig {
    CrashConfig { random, at_flushes_max: 60, ..CrashConfig::new(seed) }
}

/// One recorded run, and what it promised.
struct Run(Recorded<Cell, Oracle>);

impl Run {
    /// Recovers an image and compares it with the promises.
    fn verify(&self, image: &Arc<MemoryDevice>, cut: &Cut) -> Result<(), String> {
        recover(self.0.cell, image, |cx, fs| self.0.left.verify(cx, &**fs, cut.upto))
    }

    /// The kernel replays the log, and what it leaves holds the promises too.
    fn verify_by_kernel(&self, dirty: &MemoryDevice, cut: &Cut) -> Result<(), String> {
        let file = testkit::image::write_device(dirty);
        drop(judge::LoopMount::new(file.path(), "xfs", "rw").expect("the kernel mounts it"));
        judge::xfs_repair(file.path()).map_err(|m| format!("the kernel's replay: {m}"))?;
        let image = Arc::new(testkit::image::load(file.path()));
        self.verify(&image, cut).map_err(|m| format!("the kernel's replay: {m}"))
    }
}

fn campaign(cell: Cell, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let run = Recording { cell, seed, bytes: 64 << 20, cache: 64 << 20 };
        let run = Run(trials::promises(run, 80));
        let promises = run.0.left.promises();
        assert!(promises > 10, "the workload promises something");
        let report = crash::explore(&config(seed, 25), &run.0.base, &run.0.log, |image, case| {
            let dirty = image.fork();
            run.verify(&image, &case.cut)?;
            if case.index % 25 == 0 {
                repaired(&image)?;
                run.verify_by_kernel(&dirty, &case.cut)?;
            }
            Ok(())
        });
        println!("{cell:?} seed {seed}: {report:?}, {promises} promises");
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

#[test]
fn any_operations_are_recovered() {
    for (cell, seeds) in [(DEFAULT, 2), (SMALL_BLOCKS, 2)] {
        for seed in 0..seed_count(seeds) {
            let run = Recording { cell, seed, bytes: 48 << 20, cache: 2 << 20 };
            trials::anything_goes(run, 80, &config(seed, 25));
        }
    }
}
