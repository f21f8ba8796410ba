//! Closed loops of requests whose places and sizes follow from the probe and their number alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Nanos, Page, Rng, Sector};
use block::{BioFlags, DeviceInfo, Queue};
use rt::{Cx, JoinHandle};
use serde::Serialize;

/// Where the requests lie.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub enum Pattern {
    /// Anywhere.
    Random,
    /// One behind the other.
    Sequential,
    /// Each other request lies some so many bytes behind the one before; only those count.
    Jump(u64),
    /// Each lies so many bytes before the one before it: what turns is asked for what has just
    /// gone by.
    Backward(u64),
    /// Of several sizes, a half of them in sequence.
    Mix,
}

/// A closed loop.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// What it asks, in words.
    pub name: String,
    /// Where its requests lie.
    pub pattern: Pattern,
    /// How many of a hundred are writes.
    pub writes: u64,
    /// Bytes of a request.
    pub size: u64,
    /// Requests under way at once.
    pub depth: u64,
    /// Requests in all.
    pub count: u64,
    /// What makes writes durable.
    pub durable: Durable,
    /// Only the second half counts: what was there before has filled what can be filled.
    pub tail: bool,
}

/// What makes writes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Durable {
    /// Nothing.
    No,
    /// A flush after each; its time alone counts.
    Flush,
    /// FUA.
    Fua,
}

/// One request of a probe.
struct Step {
    sector: Sector,
    bytes: u64,
    write: bool,
    counts: bool,
}

impl Probe {
    /// The request of a number.
    fn step(&self, number: u64, info: &DeviceInfo) -> Step {
        let device = info.bytes();
        // Of equal name equal places, whatever stands before it in the plan.
        let name = self
            .name
            .bytes()
            .fold(7, |seed: u64, byte| seed.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
        let mut rng = Rng::new(name, number);
        let write = rng.below(100) < self.writes;
        let unit = self.size.max(4096);
        let any = |rng: &mut Rng, bytes: u64| rng.below((device - bytes) / unit) * unit;
        let begin = Rng::new(name, u64::MAX).below(device / unit / 2) * unit;
        let in_sequence = |place: u64| begin + place % (device - begin - self.size) / unit * unit;
        let (place, bytes, counts) = match self.pattern {
            Pattern::Random => (any(&mut rng, self.size), self.size, true),
            Pattern::Sequential => (in_sequence(number * self.size), self.size, true),
            Pattern::Jump(far) => {
                let mut pair = Rng::new(name, number / 2 + (1 << 40));
                // Not always equally far: where it turns to would always be the same.
                let most = (far / 4).min(1 << 20).max(unit);
                let far = far + pair.below(most / unit) * unit;
                let base = any(&mut pair, far + self.size);
                let counts = number % 2 == 1;
                (if counts { base + far } else { base }, self.size, counts)
            }
            Pattern::Backward(step) => {
                let high = device / 2 / unit * unit + begin;
                (high - number * step % (device / 2 / unit * unit), self.size, true)
            }
            Pattern::Mix => {
                let bytes = self.size * [1, 1, 1, 4, 16][rng.below(5) as usize];
                match number % 2 {
                    0 => (in_sequence(number / 2 * self.size), self.size, true),
                    _ => (any(&mut rng, bytes), bytes, true),
                }
            }
        };
        let counts = counts && (!self.tail || number >= self.count / 2);
        Step { sector: Sector::from_bytes(place), bytes, write, counts }
    }
}

/// What a probe found.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Requests that were made.
    pub count: u64,
    /// From the first to the last.
    pub seconds: f64,
    /// Latencies of those that count, in ns, sorted.
    #[serde(skip)]
    pub latencies: Vec<u64>,
}

impl Sample {
    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.seconds.max(1e-9)
    }

    /// The mean of the middle half of the latencies, in ns.
    pub fn middle_ns(&self) -> f64 {
        let quarter = self.latencies.len() / 4;
        let middle = &self.latencies[quarter..self.latencies.len() - quarter];
        middle.iter().sum::<u64>() as f64 / middle.len().max(1) as f64
    }

    /// The mean of the latencies between the twentieth and the eighth of them that are shortest, in
    /// ns: what a busy host delays is not among them.
    pub fn low_ns(&self) -> f64 {
        let all = self.latencies.len();
        let low = &self.latencies[all / 20..(all / 8).max(all / 20 + 1).min(all)];
        low.iter().sum::<u64>() as f64 / low.len().max(1) as f64
    }

    /// A quantile of the latencies, in ns.
    pub fn quantile_ns(&self, q: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let place = (last as f64 * q).round() as usize;
        self.latencies.get(place).copied().unwrap_or(0) as f64
    }

    /// Without what the host adds to each request.
    pub fn less(mut self, overhead: Nanos) -> Sample {
        self.latencies.iter_mut().for_each(|ns| *ns = ns.saturating_sub(overhead.0).max(1));
        self
    }
}

/// Fewest requests of a probe, however long they take.
const LEAST: u64 = 24;

/// Runs a probe to its end, or until `limit` has passed. Parks.
///
/// # Errors
/// The first that a request meets.
pub fn run(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    probe: &Probe,
    limit: Option<Nanos>,
) -> Result<Sample, String> {
    let start = cx.now();
    let next = Arc::new(AtomicU64::new(0));
    let task = |cx: &Cx| -> JoinHandle<Result<Vec<u64>, String>> {
        let (queue, probe, next) = (queue.clone(), probe.clone(), next.clone());
        cx.spawn("probe", move |cx| {
            let mut latencies = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let late = limit.is_some_and(|limit| cx.now().since(start) >= limit);
                if number >= probe.count || late && number >= LEAST.max(probe.depth) {
                    return Ok(latencies);
                }
                let step = probe.step(number, queue.info());
                let took = make(cx, &queue, &probe, &step)?;
                if step.counts {
                    latencies.push(took);
                }
            }
        })
    };
    let tasks: Vec<_> = (0..probe.depth).map(|_| task(cx)).collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.join(cx).map_err(|error| format!("{}: {error}", probe.name))?);
    }
    let seconds = cx.now().since(start).as_secs_f64();
    latencies.sort_unstable();
    let count = (next.load(Ordering::Relaxed) - probe.depth).min(probe.count);
    Ok(Sample { count, seconds, latencies })
}

/// Makes one request and answers how long it took, in ns.
fn make(cx: &mut Cx, queue: &Arc<Queue>, probe: &Probe, step: &Step) -> Result<u64, String> {
    let mut start = cx.now();
    let done = if step.write {
        let page = Page::zeroed(step.bytes as usize);
        let fua = if probe.durable == Durable::Fua { BioFlags::FUA } else { BioFlags::empty() };
        let mut done = queue.write(cx, step.sector, page, fua);
        if probe.durable == Durable::Flush && done.is_ok() {
            start = cx.now();
            done = queue.flush(cx);
        }
        done
    } else {
        queue.read(cx, step.sector, step.bytes as usize).map(drop)
    };
    done.map_err(|error| error.to_string())?;
    Ok(cx.now().since(start).0.max(1))
}
