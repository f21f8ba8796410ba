//! Faults by rule: errors, lost, torn and misdirected writes, delays, power cuts.

use base::{Nanos, Rng, Sector};
use block::{Cause, Device, DeviceError, DeviceInfo, DeviceIo, Op};
use rt::{Runtime, SpinLock};
use std::ops::Range;
use std::sync::Arc;

/// What happens to a request that a rule meets.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The part of the request that lies in the rule's sectors fails; the rest is carried out.
    Fail(Cause),
    /// Only the first `n` sectors of a write are carried out, and it says that all were.
    Torn(u64),
    /// A write is not carried out, and says that it was.
    Lost,
    /// A write goes to another place, so many sectors up (or down), and says nothing.
    Misdirected(i64),
    /// One bit of the data that a read gives is wrong.
    BitFlip,
    /// The request reaches the device later.
    Delay(Nanos),
    /// The power goes before the request is carried out: it and everything after it fails.
    PowerCut,
}

/// Which requests meet a fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Only this operation; `None` is every one.
    pub op: Option<Op>,
    /// Only requests that touch these sectors (a flush touches all).
    pub sectors: Range<u64>,
    /// Only requests of so many sectors or more.
    pub at_least: u64,
    /// How many matching requests pass first.
    pub skip: u64,
    /// How many of the following are met.
    pub count: u64,
    /// Chance of each of those, 0 to 1, from the device's own random stream.
    pub chance: f64,
    /// What happens.
    pub fault: Fault,
}

impl Rule {
    /// Every request of every kind meets `fault`; narrow it down with the fields.
    pub fn always(fault: Fault) -> Rule {
        let (sectors, count) = (0..u64::MAX, u64::MAX);
        Rule { op: None, sectors, at_least: 0, skip: 0, count, chance: 1.0, fault }
    }

    /// The request of kind `op` after `skip` others of its kind meets `fault`, and no other.
    pub fn nth(op: Op, skip: u64, fault: Fault) -> Rule {
        Rule { op: Some(op), skip, count: 1, ..Rule::always(fault) }
    }

    /// Every request of kind `op` in `sectors` meets `fault`.
    pub fn on(op: Op, sectors: Range<u64>, fault: Fault) -> Rule {
        Rule { op: Some(op), sectors, ..Rule::always(fault) }
    }

    fn touches(&self, io: &DeviceIo) -> bool {
        let kind = self.op.is_none_or(|op| op == io.op) && io.count >= self.at_least;
        let place = io.op == Op::Flush
            || io.sector.0 < self.sectors.end && io.end_sector().0 > self.sectors.start;
        kind && place
    }
}

struct State {
    rules: Vec<Rule>,
    rng: Rng,
    power: bool,
    hits: u64,
}

/// Passes requests on to another device, except where a rule says otherwise.
pub struct FaultDevice {
    inner: Arc<dyn Device>,
    runtime: Runtime,
    state: SpinLock<State>,
}

impl FaultDevice {
    /// A device without rules. Random choices come from the runtime's seed.
    pub fn new(runtime: &Runtime, inner: Arc<dyn Device>) -> FaultDevice {
        let rng = Rng::new(runtime.seed(), u64::from_le_bytes(*b"faultdev"));
        let state = State { rules: Vec::new(), rng, power: true, hits: 0 };
        let state = SpinLock::named("fault device", state);
        FaultDevice { inner, runtime: runtime.clone(), state }
    }

    /// Adds a rule. The first one that meets a request decides.
    pub fn add(&self, rule: Rule) {
        self.state.lock_irq().rules.push(rule);
    }

    /// Takes all rules away.
    pub fn clear(&self) {
        self.state.lock_irq().rules.clear();
    }

    /// Brings the power back.
    pub fn restore_power(&self) {
        self.state.lock_irq().power = true;
    }

    /// Requests that met a rule so far.
    pub fn hits(&self) -> u64 {
        self.state.lock_irq().hits
    }

    /// The fault that `io` meets, with the rule's sectors; counts it down.
    fn fault_of(&self, io: &DeviceIo) -> Option<(Fault, Range<u64>)> {
        let State { rules, rng, power, hits } = &mut *self.state.lock_irq();
        if !*power {
            return Some((Fault::Fail(Cause::PowerLost), 0..u64::MAX));
        }
        for rule in rules.iter_mut().filter(|rule| rule.touches(io)) {
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if rule.count == 0 || (rule.chance < 1.0 && !rng.chance(rule.chance)) {
                continue;
            }
            rule.count -= 1;
            *hits += 1;
            if rule.fault == Fault::PowerCut {
                *power = false;
                return Some((Fault::Fail(Cause::PowerLost), 0..u64::MAX));
            }
            return Some((rule.fault.clone(), rule.sectors.clone()));
        }
        None
    }

    fn fail(&self, io: DeviceIo, cause: Cause, sectors: Range<u64>) {
        let bad = DeviceError {
            op: io.op,
            sector: Sector(sectors.start),
            count: sectors.end - sectors.start,
            cause,
        };
        let error = bad.within(io.sector, io.count).unwrap_or_else(|| io.error(cause));
        if io.op == Op::Flush || error.count == io.count {
            return io.complete(Err(error));
        }
        self.inner.submit(io.wrap(move |io, result| io.complete(result.and(Err(error)))));
    }

    /// Carries out the first `sectors` sectors only.
    fn tear(&self, io: DeviceIo, sectors: u64) {
        let mut part = io.wrap(|io, result| io.complete(result));
        let mut left = sectors.min(part.count);
        part.count = left;
        part.segs.retain(|seg| {
            let len = (left * 512).min(seg.len as u64);
            seg.len = len as u32;
            left -= len / 512;
            len > 0
        });
        self.inner.submit(part);
    }
}

impl Device for FaultDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, mut io: DeviceIo) {
        let Some((fault, sectors)) = self.fault_of(&io) else { return self.inner.submit(io) };
        let writes = io.op.is_write();
        match fault {
            Fault::Fail(cause) => self.fail(io, cause, sectors),
            Fault::Lost if writes => io.succeed(),
            Fault::Torn(0) if writes => io.succeed(),
            Fault::Torn(sectors) if writes => self.tear(io, sectors),
            Fault::Misdirected(by) if writes => {
                let most = self.info().sectors.saturating_sub(io.count);
                let place = Sector(io.sector.0.saturating_add_signed(by).min(most));
                let mut io = io.wrap(|io, result| io.complete(result));
                io.sector = place;
                self.inner.submit(io);
            }
            Fault::BitFlip if io.op == Op::Read => {
                let bit = self.state.lock_irq().rng.below(io.bytes().max(1) * 8);
                self.inner.submit(io.wrap(move |mut io, result| {
                    flip(&mut io, bit);
                    io.complete(result);
                }));
            }
            Fault::Delay(span) => {
                let inner = self.inner.clone();
                io.more = false;
                let when = self.runtime.now() + span;
                self.runtime.at(when, Box::new(move |_| inner.submit(io)));
            }
            _ => self.inner.submit(io),
        }
    }

    fn name(&self) -> String {
        format!("faults on {}", self.inner.name())
    }
}

fn flip(io: &mut DeviceIo, bit: u64) {
    let mut byte = (bit / 8) as usize;
    for seg in &mut io.segs {
        let len = seg.len as usize;
        if byte < len {
            seg.bytes_mut()[byte] ^= 1 << (bit % 8);
            return;
        }
        byte -= len;
    }
}
