//! The numbers for which a model's probes come closest to the device's.
//!
//! A pattern search in the logarithms of the numbers: each is moved up and down by a step, what
//! makes the error smaller stays, and the step is halved where nothing does. The error is the root
//! mean square of the logarithms of the model's latencies over the device's: of the middle half of
//! them, and of the shortest, which show the seek of what turns. Where a host is late, only the
//! shortest count.

use std::sync::Arc;

use base::Nanos;
use block::DeviceInfo;
use device::MemoryDevice;
use model::Profile;
use rt::{World, WorldConfig};
use serde::Serialize;

use super::kind::{Kind, Param, Unit};
use super::plan;
use super::probe::{self, Probe, Sample};

/// A probe with what it found.
#[derive(Clone, Debug, Serialize)]
pub struct Probed {
    /// The probe, with the number of its requests.
    pub probe: Probe,
    /// What it found on the device.
    pub sample: Sample,
    /// How much of the weight the middle half of the latencies has; none where the host is late by
    /// more than a fiftieth of them.
    pub middle: f64,
}

impl Probed {
    /// What was found, on a host that wakes its tasks so late.
    pub fn new(probe: Probe, sample: Sample, late: Nanos) -> Probed {
        let part = late.0 as f64 / (sample.low_ns() / 50.0).max(1.0);
        Probed { probe, sample, middle: 1.0 / (1.0 + part * part) }
    }

    /// The latency that stands for it, in ns.
    pub fn typical_ns(&self) -> f64 {
        self.of(&self.sample)
    }

    /// The same of another sample.
    fn of(&self, sample: &Sample) -> f64 {
        if self.middle >= 0.5 { sample.middle_ns() } else { sample.low_ns() }
    }

    /// Bytes a second.
    pub fn bytes_per_second(&self) -> f64 {
        self.sample.rate() * self.probe.size as f64
    }
}

/// A model, fitted.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// Its kind.
    pub kind: Kind,
    /// Its numbers.
    pub numbers: Vec<Number>,
    /// Root mean square over the probes, in percent.
    pub error_percent: f64,
    /// Each probe: its name, middle latency in us measured and of the model.
    pub probes: Vec<Residual>,
    #[serde(skip)]
    values: Vec<f64>,
    #[serde(skip)]
    params: Vec<Param>,
}

/// A number of a fitted model.
#[derive(Clone, Debug, Serialize)]
pub struct Number {
    /// Its key in the profile.
    pub key: &'static str,
    /// Its value, with the unit.
    pub value: String,
    /// In the unit of the profile's key: us, MB/s, MiB or a count.
    pub plain: f64,
    /// So many percent may it be off before the error is a percent larger; none where no probe
    /// depends on it.
    pub within_percent: Option<f64>,
}

/// What a probe found, and what the model does.
#[derive(Clone, Debug, Serialize)]
pub struct Residual {
    /// The probe.
    pub name: String,
    /// Of the device, in us.
    pub measured_us: f64,
    /// Of the model, in us.
    pub fitted_us: f64,
}

/// Largest and smallest step of the search, in logarithms.
const STEPS: [f64; 2] = [0.5, 0.004];
/// Models that are tried at the most, for each number.
const TRIES: usize = 100;
/// An error that is small enough.
const GOOD: f64 = 0.002;
/// A change of a number by so much shows what depends on it.
const NUDGE: f64 = 0.05;

/// Fits a model of that kind.
///
/// # Errors
/// A request of the model fails.
pub fn fit(kind: Kind, info: &DeviceInfo, probed: &[Probed]) -> Result<Fit, String> {
    let params = kind.params(probed);
    let mut search = Search { kind, info, probed, params, tries: 0 };
    let mut best: Option<(f64, Vec<f64>)> = None;
    for start in search.starts() {
        search.tries = 0;
        let found = search.descend(start)?;
        if best.as_ref().is_none_or(|best| found.0 < best.0) {
            best = Some(found);
        }
    }
    let (error, values) = best.ok_or("a search has a start")?;
    search.finish(error, values)
}

struct Search<'a> {
    kind: Kind,
    info: &'a DeviceInfo,
    probed: &'a [Probed],
    params: Vec<Param>,
    tries: usize,
}

impl Search<'_> {
    /// Where to begin: arms of disks that exist, numbers of dies and spindles.
    fn starts(&self) -> Vec<Vec<f64>> {
        let start: Vec<f64> = self.params.iter().map(|param| param.start).collect();
        let (key, values): (&str, &[f64]) = match self.kind {
            Kind::Memory => return vec![start],
            // Its turn was measured: the search begins with slow and with quick arms.
            Kind::Disk => ("track_seek", &[400.0, 1200.0]),
            Kind::Flash => ("dies_per_channel", &[1.0, 4.0, 8.0]),
            Kind::Array => ("spindles", &[4.0, 12.0, 32.0]),
        };
        let place = self.params.iter().position(|param| param.key == key);
        let with = |&value: &f64| {
            let mut own = start.clone();
            if let Some(place) = place {
                own[place] = value;
            }
            own
        };
        values.iter().map(with).collect()
    }

    fn descend(&mut self, mut values: Vec<f64>) -> Result<(f64, Vec<f64>), String> {
        let mut error = self.error(&values)?;
        let [mut step, least] = STEPS;
        let most = TRIES * values.len();
        while step > least && error > GOOD && self.tries < most {
            let mut better = false;
            for place in 0..values.len() {
                for direction in [step, -step] {
                    let mut moved = false;
                    while let Some(new) = self.moved(&values, place, direction) {
                        let found = self.error(&new)?;
                        if found >= error || self.tries >= most {
                            break;
                        }
                        (error, values, moved) = (found, new, true);
                    }
                    better |= moved;
                    if moved {
                        break;
                    }
                }
            }
            if !better {
                step /= 2.0;
            }
        }
        Ok((error, values))
    }

    /// The numbers with one of them moved; none where it cannot.
    fn moved(&self, values: &[f64], place: usize, by: f64) -> Option<Vec<f64>> {
        let param = &self.params[place];
        let mut value = values[place] * by.exp();
        if param.unit == Unit::Count {
            let whole = values[place].round();
            value = match by > 0.0 {
                true => value.round().max(whole + 1.0),
                false => value.round().min(whole - 1.0),
            };
        }
        let [low, high] = param.range;
        (low..=high).contains(&value).then(|| {
            let mut new = values.to_vec();
            new[place] = value;
            new
        })
    }

    fn error(&mut self, values: &[f64]) -> Result<f64, String> {
        self.tries += 1;
        let Ok(samples) = self.samples(values) else { return Ok(f64::INFINITY) };
        Ok(root_mean_square(self.probed, &samples))
    }

    fn samples(&self, values: &[f64]) -> Result<Vec<Sample>, String> {
        let probes: Vec<&Probe> = self.probed.iter().map(|one| &one.probe).collect();
        play(&text(self.kind, self.info, &self.params, values, "being fitted"), self.info, &probes)
    }

    fn finish(mut self, error: f64, values: Vec<f64>) -> Result<Fit, String> {
        let samples = self.samples(&values)?;
        let residual = |(one, sample): (&Probed, &Sample)| Residual {
            name: one.probe.name.clone(),
            measured_us: one.typical_ns() / 1e3,
            fitted_us: one.of(sample) / 1e3,
        };
        let probes = self.probed.iter().zip(&samples).map(residual).collect();
        let mut numbers = Vec::new();
        for place in 0..values.len() {
            let param = &self.params[place];
            let (key, value, plain) = (param.key, param.shown(values[place]), values[place]);
            let within_percent = self.tolerance(&values, place, error)?;
            numbers.push(Number { key, value, plain, within_percent });
        }
        let (kind, params) = (self.kind, self.params);
        let error_percent = error * 100.0;
        Ok(Fit { kind, numbers, error_percent, probes, values, params })
    }

    /// How far a number may be off, in percent, before the error is a percent larger: the error's
    /// square grows with that of the change.
    fn tolerance(
        &mut self,
        values: &[f64],
        place: usize,
        error: f64,
    ) -> Result<Option<f64>, String> {
        let mut growth: f64 = 0.0;
        for by in [NUDGE, -NUDGE] {
            let Some(new) = self.moved(values, place, by) else { continue };
            let change = (new[place] / values[place]).ln();
            let found = self.error(&new)?;
            if found.is_finite() {
                growth = growth.max((found * found - error * error) / (change * change));
            }
        }
        let allowed = (error + 0.01).powi(2) - error * error;
        let within = (allowed / growth).sqrt() * 100.0;
        Ok((growth > 0.0 && within < 100.0).then_some(within))
    }
}

fn root_mean_square(probed: &[Probed], samples: &[Sample]) -> f64 {
    let off = |model: f64, device: f64| (model / device).ln().powi(2);
    let sums = probed.iter().zip(samples).map(|(one, sample)| {
        let middle = off(sample.middle_ns(), one.sample.middle_ns());
        let low = off(sample.low_ns(), one.sample.low_ns());
        // On a quiet host both alike.
        (low + one.middle * middle) / (1.0 + one.middle)
    });
    (sums.sum::<f64>() / probed.len().max(1) as f64).sqrt()
}

fn text(kind: Kind, info: &DeviceInfo, params: &[Param], values: &[f64], source: &str) -> String {
    let with = params.iter().zip(values);
    let all: Vec<_> =
        with.map(|(param, &value)| (param.clone(), value, source.to_owned())).collect();
    kind.profile(info, &all)
}

/// Runs probes one after another on a modelled machine.
fn play(profile: &str, info: &DeviceInfo, probes: &[&Probe]) -> Result<Vec<Sample>, String> {
    let profile = Profile::parse(profile, "the model").map_err(|error| error.to_string())?;
    World::new(WorldConfig::default()).run("calibrate", |cx| {
        let memory = Arc::new(MemoryDevice::with_info(info.clone()));
        let device = profile.device(cx.runtime(), memory).map_err(|error| error.to_string())?;
        device.forget_content();
        let queue = super::queue(cx, device)?;
        let mut samples = Vec::new();
        for probe in probes {
            samples.push(probe::run(cx, &queue, probe, None)?);
            cx.sleep(plan::PAUSE);
        }
        Ok(samples)
    })
}

impl Fit {
    /// What the model does with a probe behind those that it was fitted to.
    ///
    /// # Errors
    /// A request of the model fails.
    pub fn predict(
        &self,
        info: &DeviceInfo,
        probed: &[Probed],
        probe: &Probe,
    ) -> Result<Sample, String> {
        let before = probed.iter().map(|one| &one.probe);
        let all: Vec<&Probe> = before.chain([probe]).collect();
        let text = text(self.kind, info, &self.params, &self.values, "being fitted");
        let samples = play(&text, info, &all)?;
        samples.into_iter().last().ok_or_else(|| "a probe gives a sample".to_owned())
    }

    /// The machine as a profile; each number with how far it may be off.
    pub fn profile(&self, info: &DeviceInfo) -> String {
        let source = |number: &Number| match number.within_percent {
            Some(percent) => format!("calibrated, within {percent:.1} %"),
            None => "calibrated; no probe depends on it".to_owned(),
        };
        let each = self.params.iter().zip(&self.values).zip(&self.numbers);
        let all: Vec<_> =
            each.map(|((param, &value), number)| (param.clone(), value, source(number))).collect();
        self.kind.profile(info, &all)
    }
}
