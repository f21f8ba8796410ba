//! A machine out of a device: probes measure it, a model is fitted to what they found, and what
//! the model predicts of a mix that it was not fitted to is measured too.
//!
//! - `calibrate/probe.rs`: closed loops of reads and writes whose places follow from the probe
//!   alone, so that the device and a model do exactly the same;
//! - `calibrate/plan.rs`: which probes, and the mix that is held out;
//! - `calibrate/kind.rs`: the numbers of each kind of device, and a profile of them;
//! - `calibrate/fit.rs`: the numbers for which the model's probes come closest to the device's.
//!
//! Each number comes with how far it may be off before the fit is a percent worse; one that no
//! probe depends on says so. What a read of memory costs the host is taken off. How late the host
//! wakes its tasks is measured too: where that is more than a fiftieth of a latency, only the
//! shortest ones of its probe count, which a busy host does not delay.

mod fit;
mod kind;
mod plan;
mod probe;

pub use fit::{Fit, Number, Probed};
pub use kind::Kind;
pub use probe::{Pattern, Probe, Sample};

use std::sync::Arc;

use base::Nanos;
use block::{Device, DeviceInfo, Queue, QueueConfig};
use device::MemoryDevice;
use rt::Cx;
use serde::Serialize;

/// How a device is calibrated.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Also with writes, which destroys what is there.
    pub write: bool,
    /// Longest time of a probe on the device's clock.
    pub limit: Nanos,
    /// Only this kind of model; the best one where none is named.
    pub kind: Option<Kind>,
    /// The host wakes its tasks at least so late, whatever is measured.
    pub late: Nanos,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// Bytes of the device.
    pub bytes: u64,
    /// What a read of memory takes here, which was taken off, in us.
    pub overhead_us: f64,
    /// How late the host wakes its tasks, in us: the ninth tenth.
    pub late_us: f64,
    /// The kinds of models that were tried, the best first, with the error of each: root mean
    /// square over the probes, in percent.
    pub ladder: Vec<Rung>,
    /// The best one.
    pub fit: Fit,
    /// The mix that it was not fitted to.
    pub held_out: HeldOut,
    /// The machine as a profile.
    #[serde(skip)]
    pub profile: String,
}

/// A kind of model and its error.
#[derive(Clone, Debug, Serialize)]
pub struct Rung {
    /// The kind.
    pub kind: Kind,
    /// Root mean square over the probes, in percent.
    pub error_percent: f64,
}

/// Measured and predicted figures of the mix.
#[derive(Clone, Debug, Serialize)]
pub struct HeldOut {
    /// The mix as a job of fio.
    pub job: String,
    /// Name and unit, measured, predicted.
    pub figures: Vec<Figure>,
}

/// A figure of the mix.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name, with the unit.
    pub name: &'static str,
    /// What the device did.
    pub measured: f64,
    /// What the model does.
    pub predicted: f64,
}

impl Figure {
    /// The prediction's error, in percent.
    pub fn error_percent(&self) -> f64 {
        (self.predicted / self.measured - 1.0) * 100.0
    }
}

/// Calibrates a device in the clock of `cx`; `say` hears what is being done. Parks.
///
/// # Errors
/// The device is too small, or a request fails.
pub fn calibrate(
    cx: &mut Cx,
    device: Arc<dyn Device>,
    setup: &Setup,
    say: &mut dyn FnMut(String),
) -> Result<Calibration, String> {
    let info = device.info().clone();
    if info.bytes() < plan::LEAST {
        let (bytes, least) = (info.bytes(), plan::LEAST >> 20);
        return Err(format!("{bytes} bytes are too few to calibrate: give {least} MiB or more"));
    }
    if setup.write && info.read_only {
        return Err("the device takes no writes: calibrate it without --write".to_owned());
    }
    let overhead = overhead(cx)?;
    let late = lateness(cx).max(setup.late);
    let queue = queue(cx, device)?;
    let probes = plan::probes(&info, setup.write);
    let mix = plan::mix(setup.write);
    let all = probes.len() + 1;
    let mut probed = Vec::new();
    for (number, probe) in probes.into_iter().chain([mix]).enumerate() {
        say(format!("probe {} of {all}: {}", number + 1, probe.name));
        let sample = probe::run(cx, &queue, &probe, Some(setup.limit))?;
        let sample = sample.less(overhead);
        probed.push(Probed::new(Probe { count: sample.count, ..probe }, sample, late));
        cx.sleep(plan::PAUSE);
    }
    let mix = probed.pop().ok_or("the plan has a mix")?;
    let kinds = setup.kind.map_or_else(|| Kind::plausible(&probed), |kind| vec![kind]);
    let mut fits = Vec::new();
    for kind in kinds {
        say(format!("fitting a model of the kind {}", kind.word()));
        fits.push(fit::fit(kind, &info, &probed)?);
    }
    fits.sort_by(|a, b| a.error_percent.total_cmp(&b.error_percent));
    let rung = |fit: &Fit| Rung { kind: fit.kind, error_percent: fit.error_percent };
    let ladder = fits.iter().map(rung).collect();
    let best = fits.into_iter().next().ok_or("no kind of model was tried")?;
    let predicted = best.predict(&info, &probed, &mix.probe)?;
    let held_out =
        HeldOut { job: plan::job(setup.write), figures: figures(&mix.sample, &predicted) };
    let profile = best.profile(&info);
    let overhead_us = overhead.0 as f64 / 1e3;
    let (bytes, late_us) = (info.bytes(), late.0 as f64 / 1e3);
    Ok(Calibration { bytes, overhead_us, late_us, ladder, fit: best, held_out, profile })
}

fn figures(measured: &Sample, predicted: &Sample) -> Vec<Figure> {
    let figure = |name, of: fn(&Sample) -> f64| Figure {
        name,
        measured: of(measured),
        predicted: of(predicted),
    };
    vec![
        figure("operations/s", Sample::rate),
        figure("mean us", |sample| sample.middle_ns() / 1e3),
        figure("p50 us", |sample| sample.quantile_ns(0.5) / 1e3),
        figure("p90 us", |sample| sample.quantile_ns(0.9) / 1e3),
        figure("p99 us", |sample| sample.quantile_ns(0.99) / 1e3),
    ]
}

/// A queue that sends each request as it is.
fn queue(cx: &Cx, device: Arc<dyn Device>) -> Result<Arc<Queue>, String> {
    let config = QueueConfig { merge: false, nr_requests: 1024, ..QueueConfig::default() };
    Queue::new(cx.runtime(), device, config).map_err(|error| error.to_string())
}

/// How late a task is woken, of nine in ten; nothing in virtual time.
fn lateness(cx: &mut Cx) -> Nanos {
    const SLEEP: Nanos = Nanos::from_millis(1);
    let mut late: Vec<Nanos> = Vec::new();
    for _ in 0..if cx.runtime().is_virtual() { 0 } else { 50 } {
        let start = cx.now();
        cx.sleep(SLEEP);
        late.push(Nanos(cx.now().since(start).0.saturating_sub(SLEEP.0)));
    }
    late.sort_unstable();
    late.get(late.len() * 9 / 10).copied().unwrap_or(Nanos::ZERO)
}

/// What a read of memory takes on this host; nothing in virtual time.
fn overhead(cx: &mut Cx) -> Result<Nanos, String> {
    if cx.runtime().is_virtual() {
        return Ok(Nanos::ZERO);
    }
    let info = DeviceInfo::plain(plan::LEAST / 512);
    let queue = queue(cx, Arc::new(MemoryDevice::with_info(info)))?;
    let sample = probe::run(cx, &queue, &plan::plain_read(), None)?;
    Ok(Nanos(sample.low_ns() as u64))
}
