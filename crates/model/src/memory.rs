//! Memory behind a bus: a latency, and one bus that everything shares.

use crate::ModelStats;
use crate::machine::{Agenda, Command, Machine};
use crate::quantity::Rate;
use base::Nanos;
use block::{Op, Segment};

/// The parameters of a memory disk.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryParams {
    /// Time of a read, beside its transfer.
    pub read_latency: Nanos,
    /// Time of a write, beside its transfer.
    pub write_latency: Nanos,
    /// The bus, which moves one command after another.
    pub rate: Rate,
}

impl Default for MemoryParams {
    /// No latency, 10 GB/s.
    fn default() -> Self {
        let rate = Rate(10_000_000_000);
        MemoryParams { read_latency: Nanos::ZERO, write_latency: Nanos::ZERO, rate }
    }
}

pub(crate) struct Memory {
    params: MemoryParams,
    agenda: Agenda<u32>,
    free: Nanos,
    stats: ModelStats,
}

impl Memory {
    pub fn new(params: MemoryParams) -> Memory {
        let stats = ModelStats::default();
        Memory { params, agenda: Agenda::new(), free: Nanos::ZERO, stats }
    }
}

impl Machine for Memory {
    fn submit(&mut self, now: Nanos, command: Command, _segments: &[Segment]) {
        self.stats.commands += 1;
        let latency = match command.op {
            Op::Read => self.params.read_latency,
            _ => self.params.write_latency,
        };
        let bytes = if command.op.has_data() { command.bytes() } else { 0 };
        let transfer = self.params.rate.time(bytes);
        self.free = self.free.max(now) + transfer;
        self.stats.media_busy += transfer;
        self.agenda.at(self.free + latency, command.tag);
    }

    fn next(&mut self) -> Option<Nanos> {
        self.agenda.next()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<u32>) {
        while let Some((_, tag)) = self.agenda.pop(now) {
            done.push(tag);
        }
    }

    fn stats(&self, _now: Nanos) -> ModelStats {
        self.stats.clone()
    }

    fn losable(&self) -> Vec<u64> {
        Vec::new() // A write is there when it completes, as far as this device has a memory at all.
    }
}
