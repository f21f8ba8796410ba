//! Power cuts: a recorded run of the workload, and what every cut of it must leave.

use base::Rng;
use device::{Cut, MemoryDevice, RecordDevice, WriteLog};
use ext4::format::checksum;
use ext4::format::features::RoCompat;
use ext4::format::{RawSuper, super_block};
use jbd2::JournalMode;
use rt::{SpinLock, World, WorldConfig};
use std::sync::Arc;
use testkit::crash::{self, CrashConfig, CrashReport};
use testkit::judge;
use vfs::FileSystem;

use super::oracle::Oracle;
use super::workload::{self, Shared};
use super::{Cell, checked, e2fsck, mount_as, timed};

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

/// One recorded run.
pub struct Run {
    pub seed: u64,
    pub plan: Plan,
    pub base: MemoryDevice,
    pub log: WriteLog,
    pub oracle: Oracle,
}

/// What is explored of a log: all its flushes, and `random` cuts.
pub fn config(seed: u64, random: usize) -> CrashConfig {
    CrashConfig { random, at_flushes_max: usize::MAX, ..CrashConfig::new(seed) }
}

/// Runs the workload in virtual time and stops in the middle, without an unmount.
pub fn record(seed: u64, plan: Plan) -> Run {
    let mut world = World::new(WorldConfig::exploring(seed));
    world.run("crash", |cx| {
        let memory = plan.cell.fresh(cx, 40 << 20);
        let base = memory.fork();
        let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
        let fs = mount_as(cx, device.clone(), 64 << 20, plan.mode);
        let log = device.clone();
        let shared = Arc::new(Shared {
            fs: fs.clone(),
            oracle: SpinLock::new(Oracle::default()),
            position: Box::new(move || log.len()),
        });
        workload::run(cx, &shared, seed, 4, plan.steps);
        fs.shutdown_hard();
        let oracle = std::mem::take(&mut *shared.oracle.lock(cx));
        Run { seed, plan, base, log: device.log(), oracle }
    })
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
        let mut rng = Rng::new(self.seed, 70);
        let config = config(self.seed, self.plan.random);
        crash::explore(&config, &self.base, &self.log, |image, case| {
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
        rt::testing::real(|cx| {
            let fs = mount_as(cx, image.clone(), 64 << 20, self.plan.mode);
            self.oracle.verify(cx, &*fs, cut.upto)?;
            fs.unmount(cx).map_err(|errno| format!("unmount after recovery: {errno}"))?;
            checked(cx, image, what);
            Ok(())
        })
    }

    /// The kernel replays the journal, and what it leaves holds the promises too; e2fsck replays
    /// it, and has nothing to say.
    fn verify_by_others(&self, dirty: &MemoryDevice, cut: &Cut, what: &str) -> Result<(), String> {
        let dirty = dirty.snapshot();
        // Not every kernel is built with the format of quota files.
        if !self.plan.cell.features.contains("quota") {
            let file = judge::write_sparse(&dirty);
            let kind = self.plan.cell.kind;
            drop(judge::LoopMount::new(file.path(), kind, "rw").expect("the kernel mounts it"));
            judge::e2fsck(file.path()).map_err(|m| format!("the kernel's replay: {m}"))?;
            let bytes = std::fs::read(file.path()).expect("the image is readable");
            let image = Arc::new(MemoryDevice::from_image(&bytes));
            self.verify(&image, cut, &format!("{what}: the kernel's replay"))?;
        }
        let file = judge::write_sparse(&dirty);
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
        assert!(run.oracle.promises() > 10, "the workload promises something");
        let report = run.explore();
        let (cell, promises) = (plan.cell, run.oracle.promises());
        println!("{cell:?} {:?} seed {seed}: {report:?}, {promises} promises", plan.mode);
    }
}
