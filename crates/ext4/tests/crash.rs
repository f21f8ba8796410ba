//! Power cuts: tasks create, append, rename, truncate, remove and fsync at once; the device's write
//! log is cut at every flush and in between, with random subsets of the unflushed writes lost and
//! sectors torn. Every image is recovered by us and must hold what had been promised, contents
//! included; our own check finds nothing; on a sample e2fsck and the kernel agree. A few seeds
//! here, many with `IOPATH_SEEDS=n`.

mod support;

use base::Rng;
use device::{Cut, Event, MemoryDevice, RecordDevice, WriteLog};
use rt::{SpinLock, World, WorldConfig};
use std::sync::Arc;
use support::chaos::{self, Chaos};
use support::oracle::Oracle;
use support::workload::{self, Shared};
use support::*;
use testkit::judge;
use vfs::FileSystem;

/// Cuts between flushes that are drawn per seed, besides the two at every flush.
const RANDOM_CUTS: usize = 40;

/// A random cut. The superblock lies in two sectors with one checksum; where it is torn between
/// them, a mount joins the halves with the help of the backup in group 1. An image of one group
/// (blocks of more than 1 KiB, here) has none: there it counts as written whole.
fn random_cut(log: &WriteLog, rng: &mut Rng, block: u32) -> Cut {
    let mut cut = log.random_cut(rng);
    if block == 1024 {
        return cut;
    }
    for (index, there) in &mut cut.torn {
        if let Event::Write { sector, .. } = &log.entries[*index].event
            && let Some(first) = 2u64.checked_sub(sector.0).map(|at| at as usize)
            && first + 1 < there.len()
        {
            there[first + 1] = there[first];
        }
    }
    cut
}

/// One recorded run.
struct Run {
    seed: u64,
    kind: &'static str,
    block: u32,
    base: MemoryDevice,
    log: WriteLog,
    oracle: Oracle,
}

/// Runs the workload in virtual time and stops in the middle, without an unmount.
fn record(seed: u64, kind: &'static str, block: u32, steps: u64) -> Run {
    let mut world = World::new(WorldConfig::exploring(seed));
    world.run("crash", |cx| {
        // A small journal, so that it wraps and fills.
        let memory = Cell::new(kind, block).journal(1024).fresh(cx, 40 << 20);
        let base = memory.fork();
        let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
        let (fs, _) = mount(cx, device.clone());
        let log = device.clone();
        let shared = Arc::new(Shared {
            fs: fs.clone(),
            oracle: SpinLock::new(Oracle::default()),
            position: Box::new(move || log.len()),
        });
        workload::run(cx, &shared, seed, 4, steps);
        fs.shutdown_hard();
        let oracle = std::mem::take(&mut *shared.oracle.lock(cx));
        Run { seed, kind, block, base, log: device.log(), oracle }
    })
}

impl Run {
    /// Recovers the image of one cut and compares it with the promises.
    fn verify(&self, cut: &Cut, sample: bool) {
        let image = Arc::new(self.log.device_after(&self.base, cut));
        let what = format!("seed {} {} {cut:?}", self.seed, self.kind);
        let dirty = sample.then(|| image.snapshot());
        rt::testing::real(|cx| {
            let (fs, _) = mount(cx, image.clone());
            let held = self.oracle.verify(cx, &*fs, cut.upto);
            held.unwrap_or_else(|message| panic!("{what}: {message}"));
            fs.unmount(cx).expect("unmount after recovery");
            checked(cx, &image, &what);
        });
        if let Some(dirty) = dirty {
            self.verify_by_the_kernel(&dirty, cut, &what);
            e2fsck(&image, &format!("{what}: after our recovery"));
            let file = judge::write_sparse(&dirty);
            judge::run("e2fsck", &[&"-E", &"journal_only", &"-fy", &file.path()]);
            judge::e2fsck(file.path()).unwrap_or_else(|m| panic!("{what}: e2fsck's replay: {m}"));
        }
    }

    /// The kernel replays the journal, and what it leaves holds the promises too.
    fn verify_by_the_kernel(&self, dirty: &[u8], cut: &Cut, what: &str) {
        let file = judge::write_sparse(dirty);
        drop(judge::LoopMount::new(file.path(), self.kind, "rw").expect("the kernel mounts it"));
        judge::e2fsck(file.path()).unwrap_or_else(|m| panic!("{what}: the kernel's replay: {m}"));
        let bytes = std::fs::read(file.path()).expect("the image is readable");
        rt::testing::real(|cx| {
            let (fs, _) = mount(cx, Arc::new(MemoryDevice::from_image(&bytes)));
            let held = self.oracle.verify(cx, &*fs, cut.upto);
            held.unwrap_or_else(|message| panic!("{what}: the kernel's replay: {message}"));
            fs.unmount(cx).expect("unmount");
        });
    }

    /// The power fails again while we recover from the first cut.
    fn verify_twice(&self, cut: &Cut, rng: &mut Rng) {
        let base = self.log.device_after(&self.base, cut);
        let device = Arc::new(RecordDevice::new(Arc::new(base.fork())));
        rt::testing::real(|cx| {
            let (fs, _) = mount(cx, device.clone());
            fs.shutdown_hard();
        });
        let log = device.log();
        let second = random_cut(&log, rng, self.block);
        let image = Arc::new(log.device_after(&base, &second));
        let what = format!("seed {} {} {cut:?} then {second:?}", self.seed, self.kind);
        rt::testing::real(|cx| {
            let (fs, _) = mount(cx, image.clone());
            let held = self.oracle.verify(cx, &*fs, cut.upto);
            held.unwrap_or_else(|message| panic!("{what}: {message}"));
            fs.unmount(cx).expect("unmount after recovery");
        });
    }
}

fn campaign(kind: &'static str, block: u32, seeds: std::ops::Range<u64>, steps: u64) {
    for seed in seeds {
        let run = record(seed, kind, block, steps);
        assert!(run.oracle.promises() > 20, "the workload promises something");
        let mut rng = Rng::new(seed, 70);
        let mut cuts = run.log.cuts_at_flushes();
        cuts.extend((0..RANDOM_CUTS).map(|_| random_cut(&run.log, &mut rng, block)));
        for (n, cut) in cuts.iter().enumerate() {
            run.verify(cut, n % 25 == 0);
            if n % 10 == 0 {
                run.verify_twice(cut, &mut rng);
            }
        }
        println!(
            "{kind}/{block} seed {seed}: {} cuts, {} promises",
            cuts.len(),
            run.oracle.promises()
        );
    }
}

#[test]
fn ext4_keeps_what_fsync_promised() {
    campaign("ext4", 4096, seeds(4), 120);
}

#[test]
fn ext4_with_small_blocks_keeps_what_fsync_promised() {
    campaign("ext4", 1024, seeds(3), 120);
}

#[test]
fn ext3_keeps_what_fsync_promised() {
    campaign("ext3", 1024, seeds(3), 100);
}

/// Goal: whatever was going on, every cut is recovered to a file system in order, and no file shows
/// bytes that are not its own. Method: tasks do anything to the same names, synced now and then.
fn anything_goes(cell: Cell, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (base, log) = World::new(WorldConfig::exploring(seed)).run("crash", |cx| {
            let memory = cell.fresh(cx, 24 << 20);
            let base = memory.fork();
            let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
            let (fs, _) = mount_cached(cx, device.clone(), 2 << 20);
            let top = mkdir(cx, &*fs, fs.root(), "top");
            let shared: Arc<dyn FileSystem> = fs.clone();
            let plan =
                Chaos { tasks: 6, steps: 100, size_max: 200_000, small: true, faults: false };
            chaos::run(cx, &shared, top, seed, plan);
            fs.shutdown_hard();
            (base, device.log())
        });
        let mut rng = Rng::new(seed, 71);
        let mut cuts = log.cuts_at_flushes();
        cuts.extend((0..RANDOM_CUTS).map(|_| random_cut(&log, &mut rng, cell.block)));
        for (n, cut) in cuts.iter().enumerate() {
            let image = Arc::new(log.device_after(&base, cut));
            let what = format!("{cell:?} IOPATH_SEED={seed} {cut:?}");
            let sound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                rt::testing::real(|cx| {
                    let (fs, _) = mount(cx, image.clone());
                    chaos::verify(cx, &*fs);
                    fs.unmount(cx).expect("unmount after recovery");
                    checked(cx, &image, &what);
                });
                if n % 25 == 0 {
                    e2fsck(&image, &what);
                }
            }));
            assert!(sound.is_ok(), "{what}");
        }
        println!("{cell:?} seed {seed}: {} cuts", cuts.len());
    }
}

#[test]
fn any_operations_are_recovered() {
    anything_goes(Cell::new("ext4", 4096).journal(1024), seeds(3));
    anything_goes(Cell::new("ext4", 1024).journal(1024), seeds(3));
    anything_goes(Cell::new("ext3", 1024).journal(1024), seeds(3));
    let old = Cell::new("ext4", 1024).features("^metadata_csum,uninit_bg,^orphan_file");
    anything_goes(old.journal(1024), seeds(2));
}

/// Goal: a superblock that a power cut tore between its two sectors is joined, whenever it was
/// written, and the disk is mended. Method: every write of it in a recorded run is torn both ways.
#[test]
fn a_torn_superblock_is_joined() {
    let run = record(3, "ext4", 1024, 60);
    let mut torn = 0;
    for (index, entry) in run.log.entries.iter().enumerate() {
        let Event::Write { sector, .. } = &entry.event else { continue };
        let Some(first) = 2u64.checked_sub(sector.0).map(|at| at as usize) else { continue };
        let sectors = entry.sectors() as usize;
        if first + 1 >= sectors || !run.log.unflushed(index + 1).contains(&index) {
            continue;
        }
        for half in [first, first + 1] {
            let mut there = vec![true; sectors];
            there[half] = false;
            // No sample for the kernel: it refuses such an image.
            run.verify(&Cut { torn: vec![(index, there)], ..Cut::clean(index + 1) }, false);
            torn += 1;
        }
    }
    assert!(torn >= 2, "no write of the superblock was at stake");
}

/// The oracle itself can fail: a promise that nobody kept is found.
#[test]
fn a_broken_promise_is_noticed() {
    let mut run = record(1, "ext4", 4096, 40);
    run.oracle.begin(1 << 60, Some("/d0/never-made"), 10);
    let state = run.oracle.state(1 << 60);
    run.oracle.promise(1 << 60, state, 0, false);
    let cut = Cut::clean(run.log.entries.len());
    let image = Arc::new(run.log.device_after(&run.base, &cut));
    let message = rt::testing::real(|cx| {
        let (fs, _) = mount(cx, image);
        run.oracle.verify(cx, &*fs, cut.upto).expect_err("the promise was broken")
    });
    assert!(message.contains("is lost"), "{message}");
}
