//! A format, as the tests that run on all of them see it: how its file systems are made, mounted
//! and judged, how a run on one is recorded, and what every power cut of it must leave.

use std::fmt::Debug;
use std::sync::Arc;

use block::Device;
use device::{MemoryDevice, RecordDevice, WriteLog};
use rt::{Cx, World, WorldConfig};
use vfs::FileSystem;

use crate::crash::{self, CrashConfig, CrashReport};
use crate::timed::timed;

/// Bytes of the page cache of a mount that looks at what a run left.
const CACHE: u64 = 64 << 20;

/// One sort of file system of a format.
pub trait Format: Copy + Debug + Send + Sync + 'static {
    /// A mounted one.
    type Fs: FileSystem + 'static;

    /// Makes one on a new device of `bytes` bytes with a volatile cache.
    fn fresh(&self, cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice>;

    /// Mounts it for writing, with a page cache of `cache` bytes.
    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Self::Fs>;

    /// Our check finds nothing.
    ///
    /// # Errors
    /// What it found.
    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String>;

    /// The outside checker finds nothing.
    ///
    /// # Errors
    /// What it found, and where the image is kept.
    fn judge(&self, device: &MemoryDevice) -> Result<(), String>;

    /// Whether a mount after a power cut waits for long, to hear whether somebody else has it: then
    /// it does in virtual time.
    fn waits(&self) -> bool {
        false
    }

    /// What went wrong inside of a mounted one.
    fn error(_fs: &Self::Fs) -> Option<String> {
        None
    }
}

/// Both checks find nothing.
///
/// # Panics
/// With `what` and what they found.
pub fn assert_sound<F: Format>(cell: F, device: &Arc<MemoryDevice>, what: &str) {
    let sound = rt::testing::real(|cx| cell.check(cx, device)).and_then(|()| cell.judge(device));
    sound.unwrap_or_else(|found| panic!("{what}: {found}"));
}

/// A run that stopped in its middle.
pub struct Recorded<F, T> {
    /// The sort of file system.
    pub cell: F,
    /// The seed of the run.
    pub seed: u64,
    /// The medium when recording began.
    pub base: MemoryDevice,
    /// What was written since.
    pub log: WriteLog,
    /// What the run left in memory.
    pub left: T,
}

/// A run to be recorded, in virtual time, on a device that the seed chooses.
#[derive(Clone, Copy, Debug)]
pub struct Recording<F> {
    /// The sort of file system.
    pub cell: F,
    /// The seed.
    pub seed: u64,
    /// Bytes of the device.
    pub bytes: u64,
    /// Bytes of the page cache.
    pub cache: u64,
}

impl<F: Format> Recording<F> {
    /// Runs `work` on a new file system and stops without an unmount.
    pub fn run<T>(
        self,
        work: impl FnOnce(&mut Cx, &Arc<F::Fs>, &Arc<RecordDevice>) -> T,
    ) -> Recorded<F, T> {
        self.record(None::<fn(&mut Cx, &Arc<F::Fs>)>, work)
    }

    /// As [`run`](Self::run), after `prepare` and an unmount, which are not recorded.
    pub fn run_after<T>(
        self,
        prepare: impl FnOnce(&mut Cx, &Arc<F::Fs>),
        work: impl FnOnce(&mut Cx, &Arc<F::Fs>, &Arc<RecordDevice>) -> T,
    ) -> Recorded<F, T> {
        self.record(Some(prepare), work)
    }

    fn record<T>(
        self,
        prepare: Option<impl FnOnce(&mut Cx, &Arc<F::Fs>)>,
        work: impl FnOnce(&mut Cx, &Arc<F::Fs>, &Arc<RecordDevice>) -> T,
    ) -> Recorded<F, T> {
        let Recording { cell, seed, bytes, cache } = self;
        World::new(WorldConfig::exploring(seed)).run("crash", |cx| {
            let memory = cell.fresh(cx, bytes);
            if let Some(prepare) = prepare {
                let fs = cell.mount(cx, memory.clone(), CACHE);
                prepare(cx, &fs);
                fs.unmount(cx).expect("unmount");
            }
            let base = memory.fork();
            let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
            let fs = cell.mount(cx, device.clone(), cache);
            let left = work(cx, &fs, &device);
            fs.shutdown_hard();
            Recorded { cell, seed, base, log: device.log(), left }
        })
    }
}

impl<F: Format, T> Recorded<F, T> {
    /// The cell and the seed, for messages.
    pub fn what(&self) -> String {
        format!("{:?} IOPATH_SEED={}", self.cell, self.seed)
    }

    /// Tries cuts. Each is recovered by a mount, looked at by `look`, which also gets the steps
    /// that were marked and the entries that came before the cut, and checked; of every `every`-th
    /// the outside checker is asked too.
    ///
    /// # Panics
    /// At the first cut that leaves something wrong.
    pub fn explore(
        &self,
        config: &CrashConfig,
        every: usize,
        mut look: impl FnMut(&mut Cx, &Arc<F::Fs>, &crash::Case) -> Result<(), String>,
    ) -> CrashReport {
        let report = crash::explore(config, &self.base, &self.log, |image, case| {
            recover(self.cell, &image, |cx, fs| look(cx, fs, case))?;
            if case.index % every == 0 { self.cell.judge(&image) } else { Ok(()) }
        });
        println!("{}: {report:?}", self.what());
        report
    }
}

/// Recovers a medium by a mount, looks at it, unmounts and checks it.
///
/// # Errors
/// What `look`, the unmount or our check says.
pub fn recover<F: Format>(
    cell: F,
    image: &Arc<MemoryDevice>,
    look: impl FnOnce(&mut Cx, &Arc<F::Fs>) -> Result<(), String>,
) -> Result<(), String> {
    let recover = |cx: &mut Cx| {
        let fs = cell.mount(cx, image.clone(), CACHE);
        let seen = look(cx, &fs);
        fs.unmount(cx).map_err(|errno| format!("unmount after recovery: {errno}"))?;
        cell.check(cx, image).and(seen)
    };
    if cell.waits() { rt::testing::world(recover) } else { rt::testing::real(recover) }
}
