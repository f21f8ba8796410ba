//! What is tried on every format: many tasks in small places, full devices, one file under all
//! operations, power cuts.

use std::sync::Arc;

use base::Rng;
use block::Device;
use device::{Cut, MemoryDevice};
use rt::{Cx, SpinLock, World, WorldConfig};
use vfs::FileSystem;

use crate::campaign::Watchdog;
use crate::chaos::{self, Chaos};
use crate::content::mkdir;
use crate::crash::CrashConfig;
use crate::format::{Format, Recorded, Recording, assert_sound};
use crate::fsx;
use crate::fsx::in_process::run_in_process;
use crate::fsx::run::{Report, Trial};
use crate::fsx::space::Cost;
use crate::full::{self, Plan, Position};
use crate::model::Subject;
use crate::oracle::Oracle;
use crate::timed::timed;
use crate::unnamed;
use crate::workload::{self, Shared};

/// Seconds that a trial in real time may take.
const PATIENCE: u64 = 240;

/// Many tasks that do anything to the same names.
#[derive(Clone, Copy, Debug)]
pub struct Stress {
    /// Bytes of the device.
    pub bytes: u64,
    /// Bytes of the page cache.
    pub cache: u64,
    /// What the tasks do.
    pub plan: Chaos,
}

impl Stress {
    /// On threads of the host.
    ///
    /// # Panics
    /// Something is wrong afterwards.
    pub fn in_threads<F: Format>(self, cell: F, seed: u64) {
        let what = format!("threads: {cell:?}, {self:?}, seed {seed}");
        let _watchdog = Watchdog::new(what.clone(), PATIENCE);
        let device = rt::testing::real(|cx| {
            let device = cell.fresh(cx, self.bytes);
            let done = self.session(cx, cell, device.clone(), seed);
            println!("{what}: {done}");
            device
        });
        assert_readable(cell, &device, &what);
    }

    /// In an explored schedule, on a device that the seed chooses.
    ///
    /// # Panics
    /// Something is wrong afterwards.
    pub fn in_a_world<F: Format>(self, cell: F, seed: u64) {
        let what = format!("world: {cell:?}, {self:?}, seed {seed}");
        let _watchdog = Watchdog::new(what.clone(), PATIENCE);
        let device = World::new(WorldConfig::exploring(seed)).run("stress", |cx| {
            let device = cell.fresh(cx, self.bytes);
            let slow = timed(cx, &device, seed / 4);
            let done = self.session(cx, cell, slow, seed);
            println!("{what}: {done}");
            device
        });
        assert_readable(cell, &device, &what);
    }

    /// Mounts, lets the tasks run, and unmounts.
    fn session<F: Format>(
        self,
        cx: &mut Cx,
        cell: F,
        device: Arc<dyn Device>,
        seed: u64,
    ) -> String {
        let fs = cell.mount(cx, device, self.cache);
        let shared: Arc<dyn FileSystem> = fs.clone();
        let done = chaos::session(cx, &shared, seed, self.plan);
        assert_eq!(F::error(&fs), None);
        fs.unmount(cx).expect("unmount");
        done
    }
}

/// What the next mount finds: everything readable, nothing wrong.
///
/// # Panics
/// It does not.
pub fn assert_readable<F: Format>(cell: F, device: &Arc<MemoryDevice>, what: &str) {
    rt::testing::real(|cx| {
        let fs = cell.mount(cx, device.clone(), 64 << 20);
        chaos::verify(cx, &*fs);
        fs.unmount(cx).expect("unmount");
    });
    assert_sound(cell, device, what);
}

/// One file system for [`crate::model`], on a device in memory.
pub struct Modelled<F> {
    cell: F,
    device: Arc<MemoryDevice>,
    cache: u64,
    seed: u64,
}

impl<F: Format> Modelled<F> {
    /// On a device of `bytes` bytes; the seed chooses the size of the cache.
    pub fn new(cx: &mut Cx, bytes: u64, cell: F, seed: u64) -> Modelled<F> {
        let cache = *Rng::new(seed, 50).pick(&[2u64 << 20, 64 << 20]);
        Modelled { cell, device: cell.fresh(cx, bytes), cache, seed }
    }
}

impl<F: Format> Subject for Modelled<F> {
    fn mount(&mut self, cx: &mut Cx) -> Arc<dyn FileSystem> {
        let device = timed(cx, &self.device, self.seed / 12);
        self.cell.mount(cx, device, self.cache)
    }

    fn inspect(&mut self, cx: &mut Cx) -> Result<(), String> {
        let sound = self.cell.check(cx, &self.device).and_then(|()| self.cell.judge(&self.device));
        let Modelled { cell, cache, seed, .. } = self;
        sound.map_err(|found| format!("{cell:?}, cache {cache}, seed {seed}: {found}"))
    }
}

/// Goal: after every cut of the write log recovery gives a consistent file system with what was
/// synced, where the device is full and where it is not. Method: tasks that write past the cache
/// and through it into space ahead of the end, punch, truncate and sync.
///
/// # Panics
/// It does not, or the device was never full.
pub fn full_device_survives<F: Format>(run: Recording<F>, plan: Plan, config: &CrashConfig) {
    let _watchdog = Watchdog::new(format!("{run:?}"), PATIENCE);
    let recorded = run.run(|cx, fs, device| {
        let top = mkdir(cx, &**fs, fs.root(), "top");
        let shared: Arc<dyn FileSystem> = fs.clone();
        let recorded = device.clone();
        let position: Position = Arc::new(move || recorded.len());
        full::run(cx, &shared, top, run.seed, plan, &position)
    });
    let history = &recorded.left;
    recorded.explore(config, 25, |cx, fs, case| match fs.lookup(cx, fs.root(), b"top") {
        Ok(top) => full::verify(cx, &**fs, top.ino, history, case.cut.upto),
        Err(_) => Ok(()),
    });
    let what = recorded.what();
    println!("{what}: {} operations, {} without space", history.done, history.full);
    assert!(plan.left.is_none() || history.full > 0, "{what}: the device was never full");
}

/// Goal: as long as nothing fails a sync never finds that there is no space, and an unmount ends.
/// Method: the same tasks, unmounted in the end, by threads and in explored schedules; every byte
/// is compared.
///
/// # Panics
/// It does, or the device was never full.
pub fn accepted_finds_its_place<F: Format>(cell: F, bytes: u64, plan: Plan, seed: u64) {
    let what = format!("{cell:?} IOPATH_SEED={seed}");
    let _watchdog = Watchdog::new(what.clone(), PATIENCE);
    let session = |cx: &mut Cx| {
        let memory = cell.fresh(cx, bytes);
        let slow = timed(cx, &memory, seed);
        let fs = cell.mount(cx, slow, 2 << 20);
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
    assert!(history.full > 0, "{what}: the device was never full");
    assert_sound(cell, &memory, &what);
}

/// Operations of one file that `IOPATH_FSX_OPS` asks for.
fn wished_ops() -> Option<u64> {
    let wished = std::env::var("IOPATH_FSX_OPS").ok()?;
    Some(wished.parse().expect("a number of operations"))
}

/// Goal: one file holds what it was given, whichever call brought it, on a device that is full part
/// of the time, and nothing is refused while there is room. Method: a seeded stream of operations
/// beside a neighbour, in explored schedules, against bytes and a bound of the space that each call
/// needs; `IOPATH_FSX_OPS=n` makes more operations.
///
/// # Panics
/// A byte is wrong, something was refused that had space, or nothing ever was.
pub fn one_file<F: Format>(cell: F, bytes: u64, cost: Cost, seed: u64) -> Report {
    let ops = wished_ops();
    let what = format!("{cell:?} IOPATH_SEED={seed}");
    let watched = ops.is_none().then(|| Watchdog::new(what.clone(), PATIENCE));
    let left = cost.kept + (5 << 19) / cost.block;
    let plan = fsx::Plan {
        ops: ops.unwrap_or(700),
        size_max: 1 << 20,
        len_max: 128 << 10,
        align: 512,
        block: cost.block,
        without: Vec::new(),
    };
    let trial = Trial { seed, plan, cost: Some(cost), fuse: false, progress: ops.is_some() };
    let (memory, report) = World::new(WorldConfig::exploring(seed)).run("fsx", |cx| {
        let memory = cell.fresh(cx, bytes);
        let device = timed(cx, &memory, seed);
        let fs: Arc<dyn FileSystem> = cell.mount(cx, device.clone(), 2 << 20);
        let mut remount = |cx: &mut Cx, fs: Arc<dyn FileSystem>| -> Arc<dyn FileSystem> {
            fs.unmount(cx).expect("unmount");
            cell.mount(cx, device.clone(), 2 << 20)
        };
        let (fs, report) = run_in_process(cx, fs, &trial, (Some(left), u64::MAX), &mut remount);
        let report = report.unwrap_or_else(|message| {
            let kept = crate::image::write_device(&memory).keep();
            panic!("{what}: {message}the image is kept: {kept:?}");
        });
        fs.unmount(cx).expect("unmount");
        (memory, report)
    });
    println!("{what}: {report:?}");
    assert!(report.refused.values().sum::<u64>() > 0, "{what}: the device was never full");
    drop(watched);
    assert_sound(cell, &memory, &what);
    report
}

/// Tasks that create, append, rename, truncate, remove and sync, with what each sync promised.
pub fn promises<F: Format>(run: Recording<F>, steps: u64) -> Recorded<F, Oracle> {
    run.run(|cx, fs, device| {
        let log = device.clone();
        let shared = Arc::new(Shared {
            fs: fs.clone(),
            oracle: SpinLock::new(Oracle::default()),
            position: Box::new(move || log.len()),
        });
        workload::run(cx, &shared, run.seed, 4, steps);
        std::mem::take(&mut *shared.oracle.lock(cx))
    })
}

/// Goal: whatever was going on, every cut is recovered to a file system in order, and no file shows
/// bytes that are not its own. Method: tasks do anything to the same names, synced now and then,
/// with a small cache.
///
/// # Panics
/// At the first cut that leaves something wrong.
pub fn anything_goes<F: Format>(run: Recording<F>, steps: u64, config: &CrashConfig) {
    let plan = Chaos { tasks: 6, steps, size_max: 200_000, small: true, faults: false };
    let recorded = run.run(|cx, fs, _| {
        let top = mkdir(cx, &**fs, fs.root(), "top");
        let shared: Arc<dyn FileSystem> = fs.clone();
        chaos::run(cx, &shared, top, run.seed, plan);
    });
    recorded.explore(config, 25, |cx, fs, _| {
        chaos::verify(cx, &**fs);
        Ok(())
    });
}

/// Goal: files made without names are gone after a cut, unless they got one; those that were synced
/// with it are there, whole. Method: all cuts of a run that makes, names, syncs, closes and removes
/// them.
///
/// # Panics
/// At the first cut that leaves something wrong.
pub fn unnamed_files<F: Format>(run: Recording<F>, config: &CrashConfig) {
    let prepare = |cx: &mut Cx, fs: &Arc<F::Fs>| {
        mkdir(cx, &**fs, fs.root(), "top");
    };
    let recorded = run.run_after(prepare, |cx, fs, device| {
        let top = fs.lookup(cx, fs.root(), b"top").expect("top").ino;
        unnamed::run(cx, &**fs, top, (run.seed, 150), |step| device.mark(step))
    });
    let history = &recorded.left;
    let verify = |cx: &mut Cx, fs: &Arc<F::Fs>, promised: u64| {
        let top = fs.lookup(cx, fs.root(), b"top").expect("top").ino;
        unnamed::verify(cx, &**fs, top, history, promised)
    };
    let report = recorded.explore(config, 25, |cx, fs, case| {
        verify(cx, fs, case.promised.last().map_or(0, |&step| step))
    });
    assert!(report.with_promises > 0, "{report:?}");
    // What was promised in the end is not there in the beginning.
    let image = Arc::new(recorded.log.device_after(&recorded.base, &Cut::clean(0)));
    let last = history.names.len() as u64 - 1;
    rt::testing::real(|cx| {
        let fs = recorded.cell.mount(cx, image, 2 << 20);
        verify(cx, &fs, last).expect_err("all names are missing");
        fs.shutdown_hard();
    });
}
