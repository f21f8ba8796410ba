//! What a request costs, and how long it may take: `io.cost.model` and `io.cost.qos`.
//!
//! The coefficients that Linux has built in for disks, SATA flash and fast flash. A page of 4 KiB
//! costs a second over the pages a second of a stream; the base is what a lone request of a page
//! costs beyond that.

use crate::elevator::TunableError;
use crate::{DeviceInfo, Request};
use base::{Nanos, Sector};

/// A jump of more sectors is random: 16 MiB.
const RANDOM: u64 = 32_768;
const SECOND: f64 = 1e9;
const PAGE: f64 = 4096.0;

/// Bytes a second of a stream, requests a second of a page in sequence and at random: reads,
/// writes; and the latency in ns that a period follows from.
type Coefficients = ([[f64; 3]; 2], u64);

const DISK: Coefficients = ([[174e6, 41_708.0, 370.0], [178e6, 42_705.0, 378.0]], 250_000_000);
const SATA: Coefficients = ([[489e6, 8_932.0, 8_518.0], [428e6, 28_755.0, 21_940.0]], 25_000_000);
const FAST: Coefficients =
    ([[3.1e9, 724_816.0, 778_122.0], [1.74e9, 425_702.0, 443_193.0]], 5_000_000);
/// A device of more commands at once is fast flash.
const FAST_DEPTH: u32 = 32;

pub(super) struct Model {
    rates: [[f64; 3]; 2],
    /// Latency by direction.
    target: [Nanos; 2],
    /// Percent of the requests that should keep it; 0 looks at none.
    percent: [f64; 2],
}

impl Default for Model {
    fn default() -> Model {
        Model::from(DISK)
    }
}

impl From<Coefficients> for Model {
    fn from((rates, target): Coefficients) -> Model {
        Model { rates, target: [Nanos(target); 2], percent: [0.0; 2] }
    }
}

const NAMES: [[&str; 3]; 2] =
    [["rbps", "rseqiops", "rrandiops"], ["wbps", "wseqiops", "wrandiops"]];

impl Model {
    /// The one for a device's class.
    pub fn of(info: &DeviceInfo) -> Model {
        Model::from(match (info.rotational, info.depth > FAST_DEPTH) {
            (true, _) => DISK,
            (false, false) => SATA,
            (false, true) => FAST,
        })
    }

    /// Device time of a request in ns, of a group that last ended at `cursor`.
    pub fn cost(&self, request: &Request, cursor: Option<Sector>) -> f64 {
        let [bps, seq, random] = self.rates[request.op.is_write() as usize];
        let page = SECOND * PAGE / bps;
        let far = cursor.is_none_or(|at| at.0.abs_diff(request.sector.0) > RANDOM);
        let base = (SECOND / if far { random } else { seq } - page).max(0.0);
        let pages = (request.bytes() as f64 / PAGE).max(1.0);
        base + pages * page
    }

    /// The length of a period.
    pub fn period(&self) -> Nanos {
        let target = self.target[0].max(self.target[1]);
        let times = if self.percent.iter().any(|&one| one > 0.0 && one < 90.0) { 10 } else { 2 };
        Nanos((target.0 * times).clamp(1_000_000, 1_000_000_000))
    }

    pub fn is_late(&self, way: usize, took: Nanos) -> bool {
        took > self.target[way]
    }

    /// Too many of a period's requests took too long.
    pub fn misses(&self, way: usize, [all, late]: [u64; 2]) -> bool {
        self.percent[way] > 0.0
            && all > 0
            && late as f64 * 100.0 > all as f64 * (100.0 - self.percent[way])
    }

    pub fn tunables(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        for (names, rates) in NAMES.iter().zip(&self.rates) {
            all.extend(names.iter().zip(rates).map(|(name, rate)| (*name, rate.to_string())));
        }
        for (way, [lat, percent]) in [["rlat", "rpct"], ["wlat", "wpct"]].into_iter().enumerate() {
            all.push((lat, (self.target[way].0 / 1000).to_string()));
            all.push((percent, self.percent[way].to_string()));
        }
        all
    }

    /// Sets a coefficient, a latency in us or a percentile; false where the name is none of them.
    pub fn set_tunable(&mut self, name: &str, value: &str) -> Result<bool, TunableError> {
        let number = |most: f64, expected: &'static str| {
            let number = value.parse::<f64>().ok().filter(|&n| n > 0.0 && n <= most);
            let (name, value) = (name.to_owned(), value.to_owned());
            number.ok_or(TunableError::Value { name, value, expected })
        };
        for (way, names) in NAMES.iter().enumerate() {
            if let Some(which) = names.iter().position(|known| *known == name) {
                self.rates[way][which] = number(1e15, "a number above 0, a second")?;
                return Ok(true);
            }
        }
        let way = name.starts_with('w') as usize;
        match name {
            "rlat" | "wlat" => {
                self.target[way] = Nanos((number(1e9, "microseconds above 0")? * 1e3) as u64);
            }
            "rpct" | "wpct" => self.percent[way] = number(100.0, "percent up to 100")?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}
