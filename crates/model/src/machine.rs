//! A model: a state machine of commands and events, and the device around it.
//!
//! A [`Machine`] knows commands and times, no data. [`ModelDevice`] holds the data, the requests
//! that are on their way, and one timer of the runtime for the machine's next event; when the
//! machine says that a command is done, the request is carried out in memory and completed.

use crate::ModelStats;
use crate::fold::Fold;
use base::{Nanos, Sector};
use block::{BioFlags, Device, DeviceInfo, DeviceIo, Op, Segment};
use device::{Cut, Event, MemoryDevice, WriteLog};
use rt::{Runtime, SpinLock, TimerId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// A command as a machine sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// Its name while it is in the machine.
    pub tag: u32,
    /// What to do.
    pub op: Op,
    /// First sector of 512 bytes.
    pub sector: Sector,
    /// Number of sectors; 0 for a flush.
    pub count: u64,
    /// A write that must be durable when it completes.
    pub fua: bool,
}

impl Command {
    pub fn end(&self) -> u64 {
        self.sector.0 + self.count
    }

    pub fn bytes(&self) -> u64 {
        self.count * 512
    }
}

/// A device as a state machine in event context.
pub(crate) trait Machine: Send {
    /// Takes a command; `segments` are the pieces of memory that it moves.
    fn submit(&mut self, now: Nanos, command: Command, segments: &[Segment]);

    /// When something happens next by itself.
    fn next(&mut self) -> Option<Nanos>;

    /// Lets everything happen that is due at `now`, and names the commands that are done by then,
    /// in the order of completion.
    fn advance(&mut self, now: Nanos, done: &mut Vec<u32>);

    /// The counters.
    fn stats(&self, now: Nanos) -> ModelStats;

    /// Which of the writes that [`Machine::advance`] named a power cut now would lose: their places
    /// among those, from 1, in any order.
    fn losable(&self) -> Vec<u64>;
}

/// The events of one machine, by time and then by order of arrival.
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Reverse<(Nanos, u64, E)>>,
    sequence: u64,
}

impl<E: Ord> Agenda<E> {
    pub fn new() -> Agenda<E> {
        Agenda { heap: BinaryHeap::new(), sequence: 0 }
    }

    pub fn at(&mut self, when: Nanos, event: E) {
        self.sequence += 1;
        self.heap.push(Reverse((when, self.sequence, event)));
    }

    pub fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((when, _, _))| *when)
    }

    /// The next event that is due at `now`, with its own time.
    pub fn pop(&mut self, now: Nanos) -> Option<(Nanos, E)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((when, _, event))| (when, event))
    }
}

struct State {
    machine: Box<dyn Machine>,
    /// Requests in the machine, by tag.
    ios: Vec<Option<DeviceIo>>,
    free: Vec<u32>,
    /// The runtime's timer for the machine's next event.
    armed: Option<(Nanos, TimerId)>,
    done: Vec<u32>,
    fold: Fold,
    segments: u64,
    /// Writes without [`BioFlags::META`] leave nothing behind.
    forgets: bool,
}

struct Inner {
    runtime: Runtime,
    name: String,
    info: DeviceInfo,
    memory: Arc<MemoryDevice>,
    state: SpinLock<State>,
}

/// A modelled device: the content in memory, the times from a machine.
pub struct ModelDevice(Arc<Inner>);

impl ModelDevice {
    pub(crate) fn new(
        runtime: &Runtime,
        name: String,
        info: DeviceInfo,
        memory: Arc<MemoryDevice>,
        machine: Box<dyn Machine>,
    ) -> ModelDevice {
        let state = State {
            machine,
            ios: Vec::new(),
            free: Vec::new(),
            armed: None,
            done: Vec::new(),
            fold: Fold::default(),
            segments: 0,
            forgets: false,
        };
        let state = SpinLock::named("model", state);
        ModelDevice(Arc::new(Inner { runtime: runtime.clone(), name, info, memory, state }))
    }

    /// The content of the medium and of all caches together.
    pub fn memory(&self) -> &Arc<MemoryDevice> {
        &self.0.memory
    }

    /// The counters of the model up to now.
    pub fn stats(&self) -> ModelStats {
        let state = self.0.state.lock_irq();
        ModelStats { segments: state.segments, ..state.machine.stats(self.0.runtime.now()) }
    }

    /// From now on the content of writes that do not carry [`BioFlags::META`] is forgotten when
    /// they are done: for runs that write more than memory holds and read nothing of it.
    pub fn forget_content(&self) {
        self.0.state.lock_irq().forgets = true;
    }

    /// Which completed writes a power cut at this moment would lose: their places among all writes
    /// (and discards) in the order in which they completed, from 1. Empty for a device whose cache
    /// is not volatile. A [`device::RecordDevice`] right in front of the model has its entries in
    /// that order.
    pub fn losable(&self) -> Vec<u64> {
        let mut numbers = self.0.state.lock_irq().machine.losable();
        numbers.sort_unstable();
        numbers
    }

    /// A power cut at this moment, for the log of a [`device::RecordDevice`] that stands right in
    /// front of this device since it was made: exactly what the cache holds is lost.
    pub fn power_cut(&self, log: &WriteLog) -> Cut {
        let changes = |event: &Event| matches!(event, Event::Write { .. } | Event::Zero { .. });
        let writes = log.entries.iter().enumerate().filter(|(_, entry)| changes(&entry.event));
        let index: Vec<usize> = writes.map(|(index, _)| index).collect();
        let lost = self.losable();
        let drop = lost.iter().filter_map(|&number| index.get(number as usize - 1).copied());
        Cut { drop: drop.collect(), ..Cut::clean(log.entries.len()) }
    }
}

impl Inner {
    /// Sees to it that the runtime calls at the machine's next event.
    fn arm(self: &Arc<Self>, state: &mut State) {
        let Some(next) = state.machine.next() else { return };
        if let Some((when, timer)) = state.armed {
            if when <= next {
                return;
            }
            self.runtime.cancel(timer);
        }
        let inner = self.clone();
        let timer = self.runtime.at(next, Box::new(move |now| inner.fire(now)));
        state.armed = Some((next, timer));
    }

    fn fire(self: &Arc<Self>, now: Nanos) {
        let mut ended = smallvec::SmallVec::<[DeviceIo; 8]>::new();
        let forgets = {
            let state = &mut *self.state.lock_irq();
            state.armed = None;
            state.machine.advance(now, &mut state.done);
            for tag in state.done.drain(..) {
                let io = state.ios[tag as usize].take();
                let mut io = io.expect("a machine ends a command once");
                state.fold.fold(io.op, &mut io.segs);
                ended.push(io);
                state.free.push(tag);
            }
            self.arm(state);
            state.forgets
        };
        for io in ended {
            match forgets && io.op == Op::Write && !io.flags.contains(BioFlags::META) {
                true => io.succeed(),
                false => self.memory.submit(io),
            }
        }
    }
}

impl Device for ModelDevice {
    fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    fn submit(&self, io: DeviceIo) {
        let now = self.0.runtime.now();
        let state = &mut *self.0.state.lock_irq();
        let tag = state.free.pop().unwrap_or_else(|| {
            state.ios.push(None);
            state.ios.len() as u32 - 1
        });
        let fua = io.flags.contains(BioFlags::FUA);
        let (op, sector, count) = (io.op, io.sector, io.count);
        let command = Command { tag, op, sector, count, fua };
        state.segments += io.segs.len() as u64;
        state.machine.submit(now, command, &io.segs);
        state.ios[tag as usize] = Some(io);
        self.0.arm(state);
    }

    fn name(&self) -> String {
        format!("{} of {} bytes", self.0.name, self.0.info.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Profile, names};
    use base::Rng;

    /// Goal: a model is cheap enough to be forgotten. Method: a crowd of commands through the state
    /// machine of each profile, nothing else; for `perf stat`, so that nothing here looks at a
    /// clock.
    #[test]
    #[ignore = "for counting instructions: MODEL=disk-7200 perf stat -e instructions .."]
    fn two_hundred_thousand_commands() {
        let only = std::env::var("MODEL").unwrap_or_default();
        for name in names().filter(|name| only.is_empty() || *name == only) {
            let profile = Profile::load(name).unwrap();
            let sectors = (16u64 << 30) / 512;
            let mut machine = profile.device.machine(sectors).unwrap();
            let (mut rng, mut done, mut now) = (Rng::new(1, 0), Vec::new(), Nanos::ZERO);
            let mut command = |tag: u32, count: u64| {
                let op = if rng.below(2) == 0 { Op::Read } else { Op::Write };
                let place =
                    if count.is_multiple_of(2) { count * 8 } else { rng.below(sectors / 8) * 8 };
                Command { tag, op, sector: Sector(place % sectors), count: 8, fua: false }
            };
            (0..8).for_each(|tag| machine.submit(now, command(tag, tag as u64), &[]));
            let mut count = 8;
            while count < 200_000 {
                now = machine.next().expect("eight commands are on their way");
                machine.advance(now, &mut done);
                for tag in done.drain(..) {
                    machine.submit(now, command(tag, count), &[]);
                    count += 1;
                }
            }
        }
    }
}
