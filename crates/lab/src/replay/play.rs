//! The replay itself: a world with the machine, its queue, and a task for each process.

use std::sync::Arc;

use base::{Nanos, Page, Sector};
use block::{Bio, EndIo, Op, Queue, Segment, Segments};
use device::MemoryDevice;
use model::Profile;

use rt::{Completion, Cx, SpinLock, World};
use serde::Serialize;
use workload::Histogram;

use super::{Io, Trace};

/// When the next operation of a process begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// At the time of the trace, whatever is still on its way: an overload shows as a backlog.
    #[default]
    Open,
    /// When the one before is done.
    Closed,
    /// When the one before is done, and the process has thought as long as in the trace: from that
    /// completion to this request, where it came after it; otherwise at once.
    Think,
}

/// What is replayed on.
pub struct Setup<'a> {
    /// The machine.
    pub profile: &'a Profile,
    /// The elevator.
    pub elevator: &'a str,
    /// The pace.
    pub pace: Pace,
    /// Times of the trace are multiplied by this.
    pub scale: f64,
    /// The world's seed.
    pub seed: u64,
}

/// What one process saw.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Process {
    /// Its number in the trace.
    pub pid: u32,
    /// Its name, where the trace has it.
    pub name: String,
    /// Operations.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
    /// Operations that failed.
    pub failed: u64,
    /// From its first request to its last completion, seconds.
    pub seconds: f64,
    /// Latencies in ms: median, 95 %, 99 %, longest.
    pub latency_ms: [f64; 4],
    /// How long after its planned time an operation was submitted at most, ms; of an open replay.
    pub late_ms: f64,
}

/// What a replay gave.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The machine.
    pub machine: String,
    /// The elevator.
    pub elevator: String,
    /// The pace.
    pub pace: Pace,
    /// From the first request to the last completion, seconds.
    pub seconds: f64,
    /// Most operations on their way at once.
    pub in_flight: u64,
    /// Requests that reached the device.
    pub requests: u64,
    /// The processes, in the order of their first operation.
    pub processes: Vec<Process>,
    /// The hash over every event: equal replays have one.
    pub event_hash: String,
}

/// What completions add to.
#[derive(Default)]
struct Seen {
    histogram: Histogram,
    longest: Nanos,
    last: Nanos,
    failed: u64,
}

#[derive(Default)]
struct Flying {
    now: u64,
    most: u64,
}

struct Player {
    queue: Arc<Queue>,
    flying: Arc<SpinLock<Flying>>,
    page: Page,
    start: Nanos,
    pace: Pace,
    scale: f64,
}

/// Replays a trace. Equal arguments give equal outcomes.
///
/// # Errors
/// A machine that is too small, an elevator that does not exist.
pub fn play(trace: &Trace, setup: &Setup<'_>) -> Result<Outcome, String> {
    let mut world = World::new(setup.profile.world_config(setup.seed));
    let played = world.run("replay", |cx| run(cx, trace, setup))?;
    Ok(Outcome { event_hash: format!("{:016x}", world.hash()), ..played })
}

fn run(cx: &mut Cx, trace: &Trace, setup: &Setup<'_>) -> Result<Outcome, String> {
    let memory = Arc::new(MemoryDevice::new(trace.bytes().max(1 << 20)));
    let device = setup.profile.device(cx.runtime(), memory).map_err(|error| error.to_string())?;
    device.forget_content();
    let config = setup.profile.queue_config(setup.elevator);
    let queue = Queue::new(cx.runtime(), device, config).map_err(|error| error.to_string())?;
    setup.profile.tune(&queue, []).map_err(|error| error.to_string())?;
    let flying = Arc::new(SpinLock::named("replay", Flying::default()));
    let start = cx.now();
    let mut tasks = Vec::new();
    for pid in trace.processes() {
        let ios: Vec<Io> = trace.ios.iter().filter(|io| io.pid == pid).copied().collect();
        let player = Player {
            queue: queue.clone(),
            flying: flying.clone(),
            page: Page::zeroed(4096),
            start,
            pace: setup.pace,
            scale: setup.scale,
        };
        let name = trace.names.get(&pid).cloned().unwrap_or_default();
        let task = cx.spawn(&format!("{pid}"), move |cx| player.process(cx, &ios));
        tasks.push((pid, name, task));
    }
    let mut processes = Vec::new();
    for (pid, name, task) in tasks {
        processes.push(Process { pid, name, ..task.join(cx) });
    }
    let stats = queue.stats();
    let most = flying.lock_irq().most;
    Ok(Outcome {
        machine: setup.profile.name.clone(),
        elevator: setup.elevator.to_owned(),
        pace: setup.pace,
        seconds: (cx.now() - start).as_secs_f64(),
        in_flight: most,
        requests: stats.reads + stats.writes + stats.flushes,
        processes,
        event_hash: String::new(),
    })
}

fn ms(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}

impl Player {
    fn scaled(&self, time: Nanos) -> Nanos {
        Nanos((time.0 as f64 * self.scale) as u64)
    }

    /// One process from its first operation to its last completion.
    fn process(&self, cx: &mut Cx, ios: &[Io]) -> Process {
        let seen = Arc::new(SpinLock::named("replayed", Seen::default()));
        let (mut late, mut bytes) = (Nanos::ZERO, 0);
        let begin = self.start + self.scaled(ios.first().map_or(Nanos::ZERO, |io| io.at));
        let mut open: Vec<Arc<Completion<()>>> = Vec::new();
        let mut before: Option<&Io> = None;
        for io in ios {
            let planned = match (self.pace, before) {
                (Pace::Open, _) | (_, None) => self.start + self.scaled(io.at),
                (Pace::Think, Some(last)) => {
                    let thought = last.done.filter(|done| *done <= io.at).map(|done| io.at - done);
                    cx.now() + self.scaled(thought.unwrap_or(Nanos::ZERO))
                }
                (Pace::Closed, Some(_)) => cx.now(),
            };
            if planned > cx.now() {
                let wait = planned - cx.now();
                cx.sleep(wait);
            }
            late = late.max(cx.now() - planned.min(cx.now()));
            bytes += io.count * 512;
            let done = self.submit(cx, io, &seen);
            match self.pace {
                Pace::Open => open.push(done),
                _ => done.wait(cx),
            }
            before = Some(io);
        }
        open.iter().for_each(|done| done.wait(cx));
        let seen = seen.lock_irq();
        let at = |percent| seen.histogram.percentile(percent) as f64 / 1e6;
        Process {
            ios: ios.len() as u64,
            bytes,
            failed: seen.failed,
            seconds: (seen.last - begin.min(seen.last)).as_secs_f64(),
            latency_ms: [at(50.0), at(95.0), at(99.0), ms(seen.longest)],
            late_ms: if self.pace == Pace::Open { ms(late) } else { 0.0 },
            ..Process::default()
        }
    }

    fn submit(&self, cx: &mut Cx, io: &Io, seen: &Arc<SpinLock<Seen>>) -> Arc<Completion<()>> {
        let done = Arc::new(Completion::named("replayed operation"));
        let submitted = cx.now();
        {
            let mut flying = self.flying.lock_irq();
            flying.now += 1;
            flying.most = flying.most.max(flying.now);
        }
        let (runtime, seen) = (cx.runtime().clone(), seen.clone());
        let (flying, signal) = (self.flying.clone(), done.clone());
        let end: EndIo = Box::new(move |result| {
            let now = runtime.now();
            {
                let mut seen = seen.lock_irq();
                seen.histogram.add((now - submitted).0);
                seen.longest = seen.longest.max(now - submitted);
                seen.last = now;
                seen.failed += u64::from(result.result.is_err());
            }
            flying.lock_irq().now -= 1;
            signal.complete(());
        });
        let bio = match io.op {
            Op::Read | Op::Write => {
                Bio::new(io.op, Sector(io.sector), self.segments(io.count), io.flags, end)
            }
            Op::Flush => Bio::flush(end),
            other => Bio::ranged(other, Sector(io.sector), io.count, end),
        };
        self.queue.submit(cx, bio);
        done
    }

    fn segments(&self, count: u64) -> Segments {
        let bytes = count * 512;
        let piece = |at: u64| Segment {
            page: self.page.clone(),
            offset: 0,
            len: (bytes - at).min(4096) as u32,
        };
        (0..bytes).step_by(4096).map(piece).collect()
    }
}
