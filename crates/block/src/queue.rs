//! The queue of a device: where bios become requests, wait, merge, and go to the device.
//!
//! One spin lock guards the state; it is never held while the device, the end of a bio or a waiter
//! is called. A device may complete a request before `submit` returns. The request's *tag* then
//! says that its submitter is still on the way, and the completion leaves the next dispatch to the
//! submitter's loop, so that nothing recurses however long the queue is, and two tasks can be
//! inside the device at once.

mod barrier;
mod complete;
mod dispatch;
mod flush;
pub(crate) mod plug;
mod state;
mod submit_all;
mod tracing;
mod wait;

pub use wait::IoGroup;

use crate::control::{CONTROLLERS, controlled};
use crate::elevator::{self, Elevator, TunableError};
use crate::request::{Limits, Request};
use crate::share::GroupShare;
use crate::split::{is_too_large, split};
use crate::trace::{TraceEvent, TraceKind};
use crate::{
    Bio, BioFlags, BioResult, Cause, Device, DeviceError, DeviceInfo, HostRange, Op, QueueStats,
};
use base::unit::SECTOR_SIZE;
use base::{Nanos, Page};
use rt::{Cgroup, Charge, Cx, OnIocExit, Runtime, SpinGuard, SpinLock, WaitQueue};
pub(crate) use state::Flight;
use state::State;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// What a queue is made with.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// Name of the elevator.
    pub elevator: String,
    /// The controller in front of it, where there is one: one of [`CONTROLLERS`].
    pub controller: Option<String>,
    /// Most requests that exist at once, waiting or in the device, each for synchronous and for
    /// asynchronous ones; a task that needs one more waits. At least 1.
    pub nr_requests: u32,
    /// Largest request in bytes, where it is to be less than what the device takes.
    pub max_bytes: Option<u32>,
    /// Bios may join requests.
    pub merge: bool,
    /// Trace events that the ring keeps; 0 keeps none.
    pub trace_events: usize,
    /// What writes that somebody waits for carry.
    pub sync_writes: SyncWrites,
}

/// Flags of the writes that a file system or a journal waits for: see
/// [`Queue::sync_write_flags`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SyncWrites {
    /// They carry [`BioFlags::NOIDLE`], as WRITE_SYNC of Linux 2.6.30 to 2.6.37 did.
    pub noidle: bool,
}

impl Default for QueueConfig {
    /// Elevator `none`, 128 requests, the device's sizes, merging, no trace, no NOIDLE.
    fn default() -> Self {
        QueueConfig {
            elevator: "none".to_owned(),
            controller: None,
            nr_requests: 128,
            max_bytes: None,
            merge: true,
            trace_events: 0,
            sync_writes: SyncWrites::default(),
        }
    }
}

impl QueueConfig {
    /// The defaults with another elevator.
    pub fn elevator(name: &str) -> QueueConfig {
        QueueConfig { elevator: name.to_owned(), ..QueueConfig::default() }
    }
}

/// A queue cannot be made like this.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueueError {
    /// There is no such elevator.
    #[error("there is no elevator `{0}`; there are: {1}")]
    Elevator(String, String),
    /// There is no such controller.
    #[error("there is no controller `{0}`; there are: {1}")]
    Controller(String, String),
    /// The device describes itself in a way that cannot be.
    #[error("{device}: {what}")]
    Device {
        /// Name of the device.
        device: String,
        /// What is wrong.
        what: &'static str,
    },
}

/// The queue in front of one device.
pub struct Queue {
    runtime: Runtime,
    device: Arc<dyn Device>,
    info: DeviceInfo,
    /// Sectors of the device: those of `info` and more, if it has become longer.
    sectors: AtomicU64,
    limits: Limits,
    /// Events are wanted, by the ring or by the world's hash.
    tracing: bool,
    /// The ring keeps events: the names of tasks are wanted too.
    recording: bool,
    /// Name of the next request in traces.
    ids: AtomicU64,
    /// What writes that somebody waits for carry.
    sync_writes: SyncWrites,
    /// Name of the controller.
    controller: Option<String>,
    /// `nomerges` is off; copied out of the state for plugs.
    merging: AtomicBool,
    /// Guards everything below the device; no other lock is taken under it.
    state: SpinLock<State>,
    /// Tasks that wait for a free request: asynchronous, synchronous.
    throttle: [WaitQueue; 2],
    /// Ends of bios that are being called.
    ending: AtomicU32,
    /// Tasks that wait until nothing is left.
    idle: WaitQueue,
}

impl Queue {
    /// A queue for `device` on the clock of `runtime`.
    ///
    /// # Errors
    /// Where there is no such elevator, or the device's description makes no sense.
    pub fn new(
        runtime: &Runtime,
        device: Arc<dyn Device>,
        config: QueueConfig,
    ) -> Result<Arc<Queue>, QueueError> {
        let elevator = make_elevator(&config.elevator, config.controller.as_deref())?;
        let info = device.info().clone();
        check_info(&info).map_err(|what| QueueError::Device { device: device.name(), what })?;
        let max_bytes = config.max_bytes.unwrap_or(info.max_bytes).min(info.max_bytes);
        let max_bytes = (max_bytes - max_bytes % info.logical_block).max(info.logical_block);
        let limits = Limits { bytes: max_bytes as u64, segments: info.max_segments as u32 };
        let tracing = runtime.is_virtual() || config.trace_events > 0;
        let mut state = State::new(elevator, &config, info.depth);
        state.elevator.attach(&info);
        let queue = Arc::new(Queue {
            runtime: runtime.clone(),
            device,
            state: SpinLock::named("block queue", state),
            sectors: AtomicU64::new(info.sectors),
            info,
            limits,
            tracing,
            recording: config.trace_events > 0,
            ids: AtomicU64::new(0),
            sync_writes: config.sync_writes,
            controller: config.controller,
            merging: AtomicBool::new(config.merge),
            throttle: [(); 2].map(|()| WaitQueue::named("block: free requests")),
            ending: AtomicU32::new(0),
            idle: WaitQueue::named("block: drain"),
        });
        let hook = Arc::downgrade(&queue);
        runtime.on_ioc_exit(hook);
        Ok(queue)
    }

    /// What the device was when the queue was made.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Bytes that requests may reach.
    pub fn bytes(&self) -> u64 {
        self.sectors.load(Ordering::Relaxed) * SECTOR_SIZE
    }

    /// Lengthens the device to `wanted` bytes if it can, and reaches to its end. Its bytes.
    pub fn grow(&self, wanted: u64) -> u64 {
        let now = self.device.lengthen(wanted).unwrap_or(0);
        self.sectors.fetch_max(now - now % self.info.block_sectors(), Ordering::Relaxed);
        self.bytes()
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Where the host keeps bytes of the device ([`Device::host_range`]). None where they must come
    /// through the queue: outside of the device, or while requests are traced.
    pub fn host_range(&self, offset: u64, len: u64) -> Option<HostRange<'_>> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.bytes());
        if self.tracing || !inside { None } else { self.device.host_range(offset, len) }
    }

    /// The clock and event source.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Flags of a write that somebody waits for: write-back under fsync, the journal. Direct I/O
    /// does not use them, since its task sends more as soon as it can.
    pub fn sync_write_flags(&self) -> BioFlags {
        let noidle = if self.sync_writes.noidle { BioFlags::NOIDLE } else { BioFlags::empty() };
        BioFlags::SYNC | noidle
    }

    /// Submits a bio: it ends exactly once, maybe before this returns, also where it was refused
    /// (out of range, unaligned, read-only, unknown operation). Cuts a bio larger than the limits.
    ///
    /// Blocking: may park while `nr_requests` requests exist.
    pub fn submit(self: &Arc<Self>, cx: &mut Cx, mut bio: Bio) {
        self.own(cx, &mut bio);
        if let Some(bio) = self.admit(bio) {
            charge_submit(cx, &bio);
            cx.settle();
            self.submit_admitted(cx, bio);
        }
    }

    /// Checks a bio and brings it into the form that the queue works with; ends it with an error,
    /// or with success where nothing is left to do, and gives `None` then.
    pub(crate) fn admit(&self, mut bio: Bio) -> Option<Bio> {
        if bio.op == Op::Write && bio.sectors == 0 && bio.flags.contains(BioFlags::PREFLUSH) {
            bio.op = Op::Flush; // Linux writes a lone flush as an empty write.
        }
        if let Some(cause) = self.refusal(&bio) {
            let error = DeviceError { op: bio.op, sector: bio.sector, count: bio.sectors, cause };
            (bio.end)(BioResult { segs: bio.segs, result: Err(error) });
            return None;
        }
        if bio.op == Op::WriteZeroes && !self.info.write_zeroes {
            bio = self.write_of_zero_pages(bio);
        }
        if bio.op != Op::Write {
            bio.flags.remove(BioFlags::BARRIER);
        }
        let wants = (bio.op == Op::Flush) as u64
            + bio.flags.contains(BioFlags::PREFLUSH) as u64
            + bio.flags.contains(BioFlags::FUA) as u64;
        if wants > 0 && !self.info.volatile_cache {
            self.state.lock_irq().stats.flushes_dropped += wants;
            bio.flags.remove(BioFlags::PREFLUSH | BioFlags::FUA);
            if bio.op == Op::Flush {
                self.state.lock_irq().stats.bios += 1;
                (bio.end)(BioResult { segs: bio.segs, result: Ok(()) });
                return None;
            }
        }
        Some(bio)
    }

    fn refusal(&self, bio: &Bio) -> Option<Cause> {
        let info = &self.info;
        if bio.op == Op::Flush {
            return None;
        }
        if info.read_only && bio.op.is_write() {
            return Some(Cause::ReadOnly);
        }
        if bio.op == Op::Discard && !info.discard {
            return Some(Cause::Unsupported);
        }
        if bio
            .sector
            .0
            .checked_add(bio.sectors)
            .is_none_or(|end| end > self.sectors.load(Ordering::Relaxed))
        {
            return Some(Cause::OutOfRange);
        }
        let block = info.block_sectors();
        let aligned = bio.sectors > 0
            && (bio.sector.0 | bio.sectors).is_multiple_of(block)
            && bio.segs.iter().all(|seg| {
                seg.len > 0
                    && seg.len.is_multiple_of(info.logical_block)
                    && seg.offset as u64 + seg.len as u64 <= seg.page.len() as u64
            });
        let whole = !bio.op.has_data() || crate::bytes_of(&bio.segs) == bio.bytes();
        (!aligned || !whole).then_some(Cause::Unaligned)
    }

    /// Zeroes as ordinary data, for a device without the operation.
    fn write_of_zero_pages(&self, bio: Bio) -> Bio {
        let zero = Page::zeroed(64 << 10);
        let mut left = bio.bytes();
        let mut segs = crate::Segments::new();
        while left > 0 {
            let len = left.min(zero.len() as u64) as u32;
            segs.push(crate::Segment { page: zero.clone(), offset: 0, len });
            left -= len as u64;
        }
        let end = bio.end;
        let end = Box::new(move |done: BioResult| {
            end(BioResult { segs: crate::Segments::new(), result: done.result })
        });
        Bio { op: Op::Write, segs, end, ..bio }
    }

    pub(crate) fn split(&self, bio: Bio) -> Vec<Bio> {
        self.state.lock_irq().stats.splits += 1;
        let parts = split(bio, self.limits);
        self.trace_split(&parts);
        parts
    }

    pub(crate) fn is_too_large(&self, bio: &Bio) -> bool {
        is_too_large(bio, self.limits)
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.runtime.now()
    }

    /// One admitted bio within the limits; without a task that could wait, beyond `nr_requests`.
    fn submit_one(self: &Arc<Self>, cx: Option<&mut Cx>, bio: Bio) {
        let now = self.now();
        let mut state = self.state.lock_irq();
        state.stats.bios += 1;
        self.trace_bio(&mut state, TraceKind::Queued, now, &bio);
        if self.goes_past_elevator(&bio) {
            self.start_special(&mut state, bio, now);
            self.run(state, now);
            return;
        }
        let Some(bio) = self.merge(&mut state, bio) else {
            let released = state.take_released();
            drop(state);
            return self.wake(released);
        };
        let number = state.next_number();
        let request = Request::new(bio, now, number, self.next_id());
        let (state, now) = match cx {
            Some(cx) => self.allocate(cx, state, &request, now),
            None => {
                state.allocate_beyond(request.is_sync() as usize);
                (state, now)
            }
        };
        self.insert_and_run(state, request, now);
    }

    /// Takes one of `nr_requests` for `request`, waiting for it where all are taken.
    fn allocate<'a>(
        &'a self,
        cx: &mut Cx,
        mut state: SpinGuard<'a, State>,
        request: &Request,
        now: Nanos,
    ) -> (SpinGuard<'a, State>, Nanos) {
        let class = request.is_sync() as usize;
        if state.try_allocate(class) {
            return (state, now);
        }
        state.stats.throttled += 1;
        self.trace_request(&mut state, TraceKind::Sleeping, now, request);
        drop(state);
        self.throttle[class].wait_until(cx, "block: a free request (nr_requests)", || {
            self.state.lock_irq().try_allocate(class)
        });
        (self.state.lock_irq(), self.now())
    }

    /// Gives an allocated request to the elevator and sends what can be sent.
    fn insert_and_run(
        self: &Arc<Self>,
        mut state: SpinGuard<'_, State>,
        mut request: Box<Request>,
        now: Nanos,
    ) {
        request.allocated = true;
        self.trace_request(&mut state, TraceKind::Get, now, &request);
        self.insert(&mut state, request, now);
        self.run(state, now);
    }

    pub(crate) fn insert(&self, state: &mut State, request: Box<Request>, now: Nanos) {
        // A request that goes on to the device at once needs no place in the index of merges.
        let alone = !state.has_waiting() && !state.barrier.holds() && state.has_tag();
        self.insert_traced(state, request, now, !alone);
    }

    fn insert_traced(&self, state: &mut State, request: Box<Request>, now: Nanos, indexed: bool) {
        self.trace_request(state, TraceKind::Inserted, now, &request);
        state.insert(request, now, indexed);
        self.trace_notes(state, now);
    }

    /// Submits a batch that a plug has collected.
    pub(crate) fn unplug(self: &Arc<Self>, mut cx: Option<&mut Cx>, batch: plug::Batch) {
        if let Some(cx) = cx.as_deref_mut() {
            cx.settle();
        }
        let mut now = self.now();
        let mut state = self.state.lock_irq();
        state.stats.bios += batch.bios;
        state.stats.merges_back += batch.merges_back;
        state.stats.merges_front += batch.merges_front;
        self.trace_unplug(&mut state, now, &batch.requests);
        for request in batch.requests {
            let joined = state.join(request, self.limits);
            self.trace_absorbed(&mut state, now);
            let Some(mut request) = joined else { continue };
            request.number = state.next_number();
            if let Some(cx) = cx.as_deref_mut() {
                let class = request.is_sync() as usize;
                if !state.try_allocate(class) {
                    // What is collected so far must be on its way before this task waits.
                    self.run(state, now);
                    (state, now) = self.allocate(cx, self.state.lock_irq(), &request, now);
                }
            } else {
                state.allocate_beyond(request.is_sync() as usize);
            }
            request.allocated = true;
            self.insert_traced(&mut state, request, now, true);
        }
        self.run(state, now);
    }

    /// Tries to let `bio` join a waiting request; gives it back where none takes it.
    fn merge(&self, state: &mut State, bio: Bio) -> Option<Bio> {
        if state.requests.is_empty() || !state.merging {
            return Some(bio);
        }
        let event = self.event_of_bio(&bio);
        match state.merge(bio, self.limits) {
            Ok((kind, request)) => {
                self.push_event(state, TraceEvent { kind, request, ..event });
                self.trace_absorbed(state, event.time);
                None
            }
            Err(bio) => Some(bio),
        }
    }

    /// Whether bios may join requests. A change meanwhile does no harm.
    pub(crate) fn merges(&self) -> bool {
        self.merging.load(Ordering::Relaxed)
    }

    pub(crate) fn submit_admitted(self: &Arc<Self>, cx: &mut Cx, bio: Bio) {
        if is_too_large(&bio, self.limits) {
            for part in self.split(bio) {
                self.submit_one(Some(&mut *cx), part);
            }
        } else {
            self.submit_one(Some(cx), bio);
        }
    }

    /// Submits a bio, which has an owner, where nobody can wait.
    pub(crate) fn submit_in_event(self: &Arc<Self>, bio: Bio) {
        match self.admit(bio) {
            Some(bio) if self.is_too_large(&bio) => {
                self.split(bio).into_iter().for_each(|part| self.submit_one(None, part));
            }
            Some(bio) => self.submit_one(None, bio),
            None => {}
        }
    }

    /// The counters as they are now.
    pub fn stats(&self) -> QueueStats {
        let state = self.state.lock_irq();
        let before = state.direct.len() + state.barrier.waiting();
        let queued = (state.requests.len() + before) as u32;
        QueueStats { queued, in_flight: state.in_flight, ..state.stats.clone() }
    }

    /// Name of the elevator.
    pub fn elevator(&self) -> &'static str {
        self.state.lock_irq().elevator.name()
    }

    /// Changes the elevator behind the controller; what waits moves over in the order of arrival.
    ///
    /// # Errors
    /// Where there is no such elevator.
    pub fn set_elevator(self: &Arc<Self>, name: &str) -> Result<(), QueueError> {
        let mut elevator = make_elevator(name, self.controller.as_deref())?;
        elevator.attach(&self.info);
        let now = self.now();
        let mut state = self.state.lock_irq();
        state.replace_elevator(elevator, now);
        self.run(state, now);
        Ok(())
    }

    /// Names and values of the queue's and the elevator's tunables.
    pub fn tunables(&self) -> Vec<(&'static str, String)> {
        let state = self.state.lock_irq();
        let mut all = vec![
            ("nr_requests", state.nr_requests.to_string()),
            ("nomerges", (!state.merging as u8 * 2).to_string()),
        ];
        all.extend(state.elevator.tunables());
        all
    }

    /// Sets a tunable of the queue (`nr_requests`, `nomerges`) or of its elevator.
    ///
    /// # Errors
    /// Where there is no such tunable, or the value is none for it.
    pub fn set_tunable(self: &Arc<Self>, name: &str, value: &str) -> Result<(), TunableError> {
        let now = self.now();
        let mut state = self.state.lock_irq();
        if !state.set_tunable(name, value)? {
            state.elevator.set_tunable(name, value)?;
        }
        self.merging.store(state.merging, Ordering::Relaxed);
        self.run(state, now);
        self.throttle.iter().for_each(WaitQueue::wake_all);
        Ok(())
    }

    /// What a control group is given of this device from now on.
    pub fn set_group(self: &Arc<Self>, cgroup: Cgroup, share: &GroupShare) {
        let now = self.now();
        let mut state = self.state.lock_irq();
        state.set_group(cgroup, share);
        self.run(state, now);
    }

    /// Reports to the elevator that the I/O context `from` waits for the work of `to`.
    pub fn yield_to(self: &Arc<Self>, from: u64, to: u64) {
        let now = self.now();
        let mut state = self.state.lock_irq();
        state.elevator.yield_to(from, to, now);
        self.trace_notes(&mut state, now);
        self.run(state, now);
    }

    /// Reports to the elevator that an I/O context will not be used again. The runtime does that
    /// for every task that ends.
    pub fn ioc_exit(self: &Arc<Self>, ioc: u64) {
        let now = self.now();
        let mut state = self.state.lock_irq();
        state.elevator.ioc_exit(ioc, now);
        self.trace_notes(&mut state, now);
        self.run(state, now);
    }
}

impl OnIocExit for Queue {
    fn ioc_exit(self: Arc<Self>, ioc: u64) {
        Queue::ioc_exit(&self, ioc);
    }
}

/// What the processor costs to send a bio down.
pub(crate) fn charge_submit(cx: &mut Cx, bio: &Bio) {
    cx.charge_for(Charge::BioSubmit, 1);
    cx.charge_for(Charge::BioSegment, bio.segs.len() as u64);
}

fn make_elevator(name: &str, controller: Option<&str>) -> Result<Box<dyn Elevator>, QueueError> {
    controlled(name, controller).ok_or_else(|| match controller {
        Some(controller) if !CONTROLLERS.contains(&controller) => {
            QueueError::Controller(controller.to_owned(), CONTROLLERS.join(", "))
        }
        _ => {
            let known: Vec<&str> = elevator::names().collect();
            QueueError::Elevator(name.to_owned(), known.join(", "))
        }
    })
}

fn check_info(info: &DeviceInfo) -> Result<(), &'static str> {
    let block = info.logical_block;
    let checks = [
        (block.is_power_of_two() && (512..=65536).contains(&block), "logical block size"),
        (info.max_bytes >= block, "largest request below the logical block"),
        (info.max_segments > 0, "no segment in a request"),
        (info.depth > 0, "depth 0"),
        (info.sectors.is_multiple_of(block as u64 / SECTOR_SIZE), "size is not whole blocks"),
        (info.sectors <= u64::MAX / SECTOR_SIZE, "size beyond 2^64 bytes"),
    ];
    match checks.iter().find(|(holds, _)| !holds) {
        Some(&(_, what)) => Err(what),
        None => Ok(()),
    }
}
