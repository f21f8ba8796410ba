//! Power cuts at every interesting place of a write log.
//!
//! A run is recorded by a [`RecordDevice`](device::RecordDevice) in front of the device; the test
//! calls `mark(n)` whenever something was promised (an fsync returned). [`explore`] then makes the
//! medium as it could be after a cut: at each flush with everything and with nothing of what no
//! flush covers, and at random places with random subsets, torn sectors and writes in flight. Each
//! is given to `check`, together with the promises that had been made by then.
//!
//! ```text
//! let record = Arc::new(RecordDevice::new(memory.clone()));
//! ... mount on it, work, record.mark(1) after each fsync, keep what mark n means ...
//! crash::explore(&CrashConfig::new(seed), &base, &record.log(), |medium, case| {
//!     mount it (replays the journal), compare with what marks up to case.promised mean,
//!     unmount, e2fsck it
//! })
//! ```

use std::sync::Arc;

use base::Rng;
use device::{Cut, MemoryDevice, RecordDevice, WriteLog};

/// How much is explored.
#[derive(Clone, Debug)]
pub struct CrashConfig {
    /// Determines the random cuts.
    pub seed: u64,
    /// Cuts at random places with random losses.
    pub random: usize,
    /// Most of the cuts at flushes that are tried; above it every nth.
    pub at_flushes_max: usize,
    /// Keep the medium of a case that fails in a temporary file.
    pub keep: bool,
}

impl CrashConfig {
    /// All flushes up to 200, and 100 random cuts.
    pub fn new(seed: u64) -> CrashConfig {
        CrashConfig { seed, random: 100, at_flushes_max: 200, keep: true }
    }
}

/// One cut and what had been promised before it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Number of this case in the exploration, from 0.
    pub index: usize,
    /// The cut.
    pub cut: Cut,
    /// The marks reached, in order.
    pub promised: Vec<u64>,
}

/// What an exploration did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CrashReport {
    /// Cuts tried.
    pub cuts: usize,
    /// Those that lost or tore at least one write.
    pub lossy: usize,
    /// Those behind at least one promise.
    pub with_promises: usize,
}

/// Tries the cuts of a log on top of `base`, the medium when recording began. A case fails where
/// `check` answers an error or panics.
///
/// # Panics
/// At the first case that fails: with the seed, the cut (after losses that do not matter were taken
/// back) and the path of the medium's image.
pub fn explore(
    config: &CrashConfig,
    base: &MemoryDevice,
    log: &WriteLog,
    mut check: impl FnMut(Arc<MemoryDevice>, &Case) -> Result<(), String>,
) -> CrashReport {
    let mut report = CrashReport::default();
    let mut attempt = |case: &Case| {
        let medium = Arc::new(log.device_after(base, &case.cut));
        caught(|| check(medium, case))
    };
    for (index, cut) in cuts(config, log).into_iter().enumerate() {
        let case = Case { index, promised: log.marks(cut.upto), cut };
        report.cuts += 1;
        report.lossy += usize::from(!case.cut.drop.is_empty() || !case.cut.torn.is_empty());
        report.with_promises += usize::from(!case.promised.is_empty());
        if let Err(message) = attempt(&case) {
            let (case, message) = shrink(case, message, &mut attempt);
            let kept = match config.keep {
                true => keep(&log.device_after(base, &case.cut)),
                false => "nothing".to_string(),
            };
            panic!(
                "crash case {index} of seed {} failed: {message}\ncut: {:?}\npromised: {:?}\n\
                 log of {} entries; the medium after the cut is kept in {}",
                config.seed,
                case.cut,
                case.promised,
                log.entries.len(),
                kept
            );
        }
    }
    report
}

/// The answer of `check`, or the message of its panic.
fn caught(check: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    unwound.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(text.unwrap_or_else(|| "a panic".to_string()))
    })
}

/// The medium after a second cut, while `recover` works on `medium`, and that cut.
pub fn cut_again(
    medium: &MemoryDevice,
    rng: &mut Rng,
    recover: impl FnOnce(Arc<RecordDevice>),
) -> (Arc<MemoryDevice>, Cut) {
    let record = Arc::new(RecordDevice::new(Arc::new(medium.fork())));
    recover(record.clone());
    let log = record.log();
    let cut = log.random_cut(rng);
    (Arc::new(log.device_after(medium, &cut)), cut)
}

/// Writes a medium to a file that stays; returns its path.
fn keep(medium: &MemoryDevice) -> String {
    let kept = crate::image::write_device(medium).keep();
    kept.map_or_else(|error| error.to_string(), |(_, path)| path.display().to_string())
}

/// The cuts to try, the systematic ones first.
fn cuts(config: &CrashConfig, log: &WriteLog) -> Vec<Cut> {
    let at_flushes = log.cuts_at_flushes();
    let step = at_flushes.len().div_ceil(config.at_flushes_max.max(1)).max(1);
    let mut cuts: Vec<Cut> = at_flushes.into_iter().step_by(step).collect();
    let mut rng = Rng::new(config.seed, 0x6375_7473);
    cuts.extend((0..config.random).map(|_| log.random_cut(&mut rng)));
    cuts
}

/// The mildest cut that still fails, and what it fails with.
fn shrink(
    case: Case,
    mut message: String,
    attempt: &mut impl FnMut(&Case) -> Result<(), String>,
) -> (Case, String) {
    let cut = case.cut.clone().shrink(|cut| {
        let milder = Case { cut: cut.clone(), ..case.clone() };
        attempt(&milder).map_err(|new| message = new).is_err()
    });
    (Case { cut, ..case }, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Page, Sector};
    use block::{BioFlags, Queue, QueueConfig};
    use rt::{World, WorldConfig};

    /// Writes sector pairs (data, then a commit record in the next sector), with or without a flush
    /// between them; a promise after each.
    fn record(flush_between: bool) -> (MemoryDevice, WriteLog) {
        let base = MemoryDevice::new(1 << 20);
        let record = Arc::new(RecordDevice::new(Arc::new(base.fork())));
        let mut world = World::new(WorldConfig::default());
        let (runtime, device) = (world.runtime(), record.clone());
        world.run("writer", move |cx| {
            let queue = Queue::new(&runtime, device.clone(), QueueConfig::default()).unwrap();
            for round in 1..=8u64 {
                let page = Page::from_slice(&[round as u8; 512]);
                queue.write(cx, Sector(round * 16), page.clone(), BioFlags::empty()).unwrap();
                if flush_between {
                    queue.flush(cx).unwrap();
                }
                queue.write(cx, Sector(round * 16 + 8), page, BioFlags::empty()).unwrap();
                queue.flush(cx).unwrap();
                device.mark(round);
            }
        });
        (base, record.log())
    }

    /// A commit record stands for its data; what was promised is committed.
    fn check(medium: Arc<MemoryDevice>, case: &Case) -> Result<(), String> {
        for round in 1..=8u64 {
            let (mut data, mut commit) = ([0; 512], [0; 512]);
            medium.read_at(round * 16 * 512, &mut data);
            medium.read_at((round * 16 + 8) * 512, &mut commit);
            let committed = commit == [round as u8; 512];
            if committed && data != commit {
                return Err(format!("round {round} is committed without its data"));
            }
            if case.promised.contains(&round) && !committed {
                return Err(format!("round {round} was promised and is not there"));
            }
        }
        Ok(())
    }

    #[test]
    fn a_protocol_with_flushes_survives() {
        let (base, log) = record(true);
        let config = CrashConfig::new(1);
        let report = explore(&config, &base, &log, check);
        assert!(report.cuts > 100 && report.lossy > 10 && report.with_promises > 50);
    }

    /// A panic in the check is a failure like an error, and is shrunk like one.
    #[test]
    #[should_panic(expected = "crash case 0 of seed 7 failed: it broke")]
    fn a_panic_of_the_check_is_reported_with_its_case() {
        let (base, log) = record(true);
        let config = CrashConfig { keep: false, ..CrashConfig::new(7) };
        explore(&config, &base, &log, |_, _| panic!("it broke"));
    }

    #[test]
    #[should_panic(expected = "is committed without its data")]
    fn a_missing_flush_is_found() {
        let (base, log) = record(false);
        let config = CrashConfig { keep: false, ..CrashConfig::new(1) };
        explore(&config, &base, &log, check);
    }
}
