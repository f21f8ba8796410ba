//! One simple modelled device: latency, bandwidth, seeks, a volatile write cache.
//!
//! The finish of a request is computed when it comes, from the requests before it: the medium
//! serves first come, first served on one or more channels; a write that the cache has room for is
//! done when it has been transferred, and the medium writes it later; a flush waits for that. The
//! request is carried out in memory at its finish, by an event of the runtime, in virtual time or
//! (with less precision) in real time.
//!
//! Not modelled: rotation, zones, reordering inside the device, read-ahead, the competition between
//! reads and the cache's write-out beyond this: reads go first, and each delays the write-out by
//! its own service time.

use crate::MemoryDevice;
use base::{Nanos, Sector};
use block::{BioFlags, Device, DeviceInfo, DeviceIo, Op};
use rt::{Runtime, SpinLock};
use std::collections::VecDeque;
use std::sync::Arc;

/// The volatile write cache of a modelled device.
#[derive(Clone, Debug, PartialEq)]
pub struct SimCache {
    /// Bytes that may wait for the medium.
    pub bytes: u64,
    /// Time of a write into the cache, beside its transfer.
    pub latency: Nanos,
    /// Transfer into the cache, bytes per second.
    pub bandwidth: u64,
}

/// The parameters of a modelled device.
#[derive(Clone, Debug, PartialEq)]
pub struct SimParams {
    /// Time of every command on the medium, beside seek and transfer.
    pub latency: Nanos,
    /// Transfer from the medium, bytes per second, per channel; above 0.
    pub read_bandwidth: u64,
    /// Transfer to the medium, bytes per second, per channel; above 0.
    pub write_bandwidth: u64,
    /// Seek to the next place that is not where the last command ended.
    pub seek_min: Nanos,
    /// Seek across the whole device; between, the time grows with the root of the distance.
    pub seek_max: Nanos,
    /// Commands that the device takes at once.
    pub depth: u32,
    /// Commands that the medium serves at once; at least 1.
    pub channels: u32,
    /// The volatile write cache, if there is one.
    pub cache: Option<SimCache>,
    /// Time of a flush, after everything has been written.
    pub flush_latency: Nanos,
    /// FUA is understood.
    pub fua: bool,
}

impl SimParams {
    /// A hard disk: 8 ms for an average seek with half a turn, 150 MB/s, 32 MiB of cache. Round
    /// numbers of the kind, not of a product.
    pub fn disk() -> SimParams {
        SimParams {
            latency: Nanos::from_micros(4200),
            read_bandwidth: 150_000_000,
            write_bandwidth: 150_000_000,
            seek_min: Nanos::from_micros(500),
            seek_max: Nanos::from_millis(9),
            depth: 32,
            channels: 1,
            cache: Some(SimCache {
                bytes: 32 << 20,
                latency: Nanos::from_micros(100),
                bandwidth: 300_000_000,
            }),
            flush_latency: Nanos::from_micros(200),
            fua: false,
        }
    }

    /// A flash device without power-loss protection: 80 us reads, 8 channels, 64 MiB of cache.
    /// Round numbers of the kind, not of a product.
    pub fn flash() -> SimParams {
        SimParams {
            latency: Nanos::from_micros(80),
            read_bandwidth: 400_000_000,
            write_bandwidth: 150_000_000,
            seek_min: Nanos::ZERO,
            seek_max: Nanos::ZERO,
            depth: 128,
            channels: 8,
            cache: Some(SimCache {
                bytes: 64 << 20,
                latency: Nanos::from_micros(15),
                bandwidth: 2_000_000_000,
            }),
            flush_latency: Nanos::from_micros(400),
            fua: true,
        }
    }
}

/// Where the model stands.
struct State {
    /// When each channel is free, and behind which sector it stands.
    channels: Vec<(Nanos, Sector)>,
    /// Writes in the cache: when each will have been written out, without `delay`; its bytes.
    dirty: VecDeque<(Nanos, u64)>,
    dirty_bytes: u64,
    /// How much reads have held the write-out up since the beginning.
    delay: Nanos,
    /// When the last of `dirty` will have been written out (without `delay`), and where that ends.
    clean_at: Nanos,
    clean_end: Sector,
    /// When the transfer into the cache is free.
    transfer_free: Nanos,
}

impl State {
    /// When the cache has room for `bytes` more; takes out what has been written by then.
    fn room_for(&mut self, bytes: u64, cache: &SimCache, now: Nanos) -> Nanos {
        let mut when = now;
        while let Some(&(clean, size)) = self.dirty.front() {
            let clean = clean + self.delay;
            if clean > now && self.dirty_bytes + bytes <= cache.bytes {
                break;
            }
            when = when.max(clean);
            self.dirty.pop_front();
            self.dirty_bytes -= size;
        }
        when
    }
}

/// A modelled device on pages in memory.
pub struct SimDevice {
    runtime: Runtime,
    params: SimParams,
    info: DeviceInfo,
    memory: Arc<MemoryDevice>,
    state: SpinLock<State>,
}

impl SimDevice {
    /// A device with the size and content of `memory`, on the clock of `runtime`.
    ///
    /// # Panics
    /// Where a bandwidth, the depth or the number of channels is zero.
    pub fn new(runtime: &Runtime, params: SimParams, memory: Arc<MemoryDevice>) -> SimDevice {
        let rates = [params.read_bandwidth, params.write_bandwidth];
        let cache_rate = params.cache.as_ref().map_or(1, |cache| cache.bandwidth);
        let counts = [params.depth as u64, params.channels as u64, cache_rate];
        assert!(rates.iter().chain(&counts).all(|&n| n > 0), "a zero in {params:?}");
        let info = DeviceInfo {
            volatile_cache: params.cache.is_some(),
            fua: params.fua,
            depth: params.depth,
            rotational: params.seek_max > Nanos::ZERO,
            ..memory.info().clone()
        };
        let state = State {
            channels: vec![(Nanos::ZERO, Sector(0)); params.channels as usize],
            dirty: VecDeque::new(),
            dirty_bytes: 0,
            delay: Nanos::ZERO,
            clean_at: Nanos::ZERO,
            clean_end: Sector(0),
            transfer_free: Nanos::ZERO,
        };
        let state = SpinLock::named("modelled device", state);
        SimDevice { runtime: runtime.clone(), params, info, memory, state }
    }

    /// The pages below: the content of the medium and the cache together.
    pub fn memory(&self) -> &Arc<MemoryDevice> {
        &self.memory
    }

    fn seek(&self, from: Sector, to: Sector) -> Nanos {
        if from == to {
            return Nanos::ZERO;
        }
        let distance = from.0.abs_diff(to.0) as f64 / self.info.sectors.max(1) as f64;
        let span = self.params.seek_max.0.saturating_sub(self.params.seek_min.0) as f64;
        self.params.seek_min + Nanos((span * distance.sqrt()) as u64)
    }

    fn service(&self, from: Sector, io: &DeviceIo) -> Nanos {
        let rate = match io.op {
            Op::Read => self.params.read_bandwidth,
            _ => self.params.write_bandwidth,
        };
        let bytes = if io.op.has_data() { io.bytes() } else { 0 };
        self.params.latency + self.seek(from, io.sector) + transfer(bytes, rate)
    }

    /// When `io`, which comes now, is done.
    fn finish_time(&self, io: &DeviceIo, now: Nanos) -> Nanos {
        let mut state = self.state.lock_irq();
        if io.op == Op::Flush {
            return (state.clean_at + state.delay).max(now) + self.params.flush_latency;
        }
        let durable = io.flags.contains(BioFlags::FUA);
        match &self.params.cache {
            Some(cache) if io.op == Op::Write && !durable => {
                let free = state.transfer_free.max(now).max(state.room_for(io.bytes(), cache, now));
                let done = free + cache.latency + transfer(io.bytes(), cache.bandwidth);
                state.transfer_free = done;
                let begin = state.clean_at.max(Nanos(done.0.saturating_sub(state.delay.0)));
                state.clean_at = begin + self.service(state.clean_end, io);
                state.clean_end = io.end_sector();
                let entry = (state.clean_at, io.bytes());
                state.dirty.push_back(entry);
                state.dirty_bytes += io.bytes();
                done
            }
            _ => {
                let free = state.channels.iter().enumerate().min_by_key(|(_, channel)| channel.0);
                let index = free.expect("at least one channel").0;
                let (free, head) = state.channels[index];
                let service = self.service(head, io);
                let done = free.max(now) + service;
                state.channels[index] = (done, io.end_sector());
                if state.clean_at + state.delay > now {
                    state.delay += service;
                }
                done
            }
        }
    }
}

/// Time to move `bytes` at `rate` bytes per second.
fn transfer(bytes: u64, rate: u64) -> Nanos {
    Nanos((bytes as u128 * 1_000_000_000 / rate as u128) as u64)
}

impl Device for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, mut io: DeviceIo) {
        let when = self.finish_time(&io, self.runtime.now());
        let memory = self.memory.clone();
        self.runtime.at(
            when,
            Box::new(move |_| match memory.apply(&mut io) {
                Ok(()) => io.succeed(),
                Err(cause) => io.fail(cause),
            }),
        );
    }

    fn name(&self) -> String {
        format!("model of {} bytes", self.info.bytes())
    }
}
