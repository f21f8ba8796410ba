//! Power cuts: a recorded run of the workload, and what every cut of it must leave.

use base::Rng;
use device::{Cut, MemoryDevice};
use ext4::format::checksum;
use ext4::format::features::RoCompat;
use ext4::format::{RawSuper, super_block};
use jbd2::JournalMode;
use std::sync::Arc;
use testkit::crash::{self, CrashConfig, CrashReport};
use testkit::format::{Recorded, Recording, recover};
use testkit::{judge, trials};
use vfs::FileSystem;

use super::oracle::Oracle;
use super::{Cell, InMode, e2fsck, mount_as};

/// How a file system is made and mounted for a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub cell: Cell,
    pub mode: JournalMode,
    /// Steps of each of the four tasks.
    pub steps: u64,
    /// Cuts between flushes that are drawn, besides the two at every flush.
    pub random: usize,
}

/// One recorded run, and what it promised.
pub struct Run {
    pub plan: Plan,
    pub recorded: Recorded<InMode, Oracle>,
}

/// What is explored of a log: all its flushes, and `random` cuts.
pub fn config(seed: u64, random: usize) -> CrashConfig {
    CrashConfig { random, at_flushes_max: usize::MAX, ..CrashConfig::new(seed) }
}

/// Runs the workload in virtual time and stops in the middle, without an unmount.
pub fn record(seed: u64, plan: Plan) -> Run {
    let cell = InMode(plan.cell, plan.mode);
    let run = Recording { cell, seed, bytes: 40 << 20, cache: 64 << 20 };
    Run { plan, recorded: trials::promises(run, plan.steps) }
}

/// Whether the superblock is one that the kernel takes: no cut went between its two sectors.
fn super_is_whole(image: &MemoryDevice) -> bool {
    let mut bytes = [0; super_block::SUPER_SIZE];
    image.read_at(super_block::SUPER_OFFSET, &mut bytes);
    let raw = RawSuper::read(&bytes).expect("it has the size");
    let summed = raw.features().ro_compat.contains(RoCompat::METADATA_CSUM);
    !summed || checksum::super_block(&bytes) == raw.s_checksum.get()
}

impl Run {
    /// Tries every cut.
    pub fn explore(&self) -> CrashReport {
        let Recorded { seed, base, log, .. } = &self.recorded;
        let mut rng = Rng::new(*seed, 70);
        crash::explore(&config(*seed, self.plan.random), base, log, |image, case| {
            let what = format!("{:?} {:?}", self.plan.cell, self.plan.mode);
            let dirty = image.fork();
            self.verify(&image, &case.cut, &what)?;
            if case.index % 25 == 0 {
                e2fsck(&image, &format!("{what}: after our recovery"));
                if super_is_whole(&dirty) {
                    self.verify_by_others(&dirty, &case.cut, &what)?;
                }
            }
            if case.index % 10 == 0 {
                self.verify_twice(&dirty, &case.cut, &mut rng)?;
            }
            Ok(())
        })
    }

    /// Recovers an image and compares it with the promises.
    pub fn verify(&self, image: &Arc<MemoryDevice>, cut: &Cut, what: &str) -> Result<(), String> {
        let Recorded { cell, left: oracle, .. } = &self.recorded;
        let verified = recover(*cell, image, |cx, fs| oracle.verify(cx, &**fs, cut.upto));
        verified.map_err(|message| format!("{what}: {message}"))
    }

    /// The kernel replays the journal, and what it leaves holds the promises too; e2fsck replays
    /// it, and has nothing to say.
    fn verify_by_others(&self, dirty: &MemoryDevice, cut: &Cut, what: &str) -> Result<(), String> {
        // Not every kernel is built with the format of quota files.
        if !self.plan.cell.features.contains("quota") {
            let file = testkit::image::write_device(dirty);
            let kind = self.plan.cell.kind;
            drop(judge::LoopMount::new(file.path(), kind, "rw").expect("the kernel mounts it"));
            judge::e2fsck(file.path()).map_err(|m| format!("the kernel's replay: {m}"))?;
            let image = Arc::new(testkit::image::load(file.path()));
            self.verify(&image, cut, &format!("{what}: the kernel's replay"))?;
        }
        let file = testkit::image::write_device(dirty);
        judge::run("e2fsck", &[&"-E", &"journal_only", &"-fy", &file.path()]);
        judge::e2fsck(file.path()).map_err(|m| format!("e2fsck's replay: {m}"))
    }

    /// The power fails again while we recover from the first cut.
    fn verify_twice(&self, dirty: &MemoryDevice, cut: &Cut, rng: &mut Rng) -> Result<(), String> {
        let (image, second) = crash::cut_again(dirty, rng, |device| {
            rt::testing::real(|cx| {
                mount_as(cx, device, 64 << 20, self.plan.mode).shutdown_hard();
            });
        });
        let verified = self.verify(&image, cut, "cut again");
        verified.map_err(|message| format!("{message}, then {second:?} of the recovery"))
    }
}

/// Records and explores a run for each seed.
pub fn run(plan: Plan, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let run = record(seed, plan);
        let promises = run.recorded.left.promises();
        assert!(promises > 10, "the workload promises something");
        let (report, cell) = (run.explore(), plan.cell);
        println!("{cell:?} {:?} seed {seed}: {report:?}, {promises} promises", plan.mode);
    }
}
