//! Elevators: which waiting request goes to the device next.
//!
//! An elevator is a plain state machine in event context: it sees requests and times, never waits,
//! never sees a file system. The queue owns the requests ([`Requests`]) and finds merges; the
//! elevator keeps [`RequestId`]s in whatever order it likes. `docs/add-an-elevator.md` shows how to
//! add one.

mod bfq;
mod cfq;
mod deadline;
mod hardware;
mod kyber;
mod none;
mod note;
mod order;
mod relay;

pub use bfq::Bfq;
pub use cfq::Cfq;
pub use deadline::Deadline;
pub use kyber::Kyber;
pub use none::NoneElevator;
pub use note::{ElevatorNote, NoteKind};
pub use relay::Relay;

use crate::request::{Request, RequestId, Requests};
use crate::share::GroupShare;
use crate::{Bio, BioFlags, DeviceInfo};
use base::{Nanos, Sector};
use rt::{Cgroup, IoPriority, Registry};

/// What an elevator may look at while it chooses.
pub struct Dispatch<'a> {
    /// The queue's clock.
    pub now: Nanos,
    /// Requests that the device has at the moment.
    pub in_flight: u32,
    /// Everything must go out: choose something, whatever the policy says.
    pub force: bool,
    /// The waiting requests.
    pub requests: &'a Requests,
}

/// Who wants to join a waiting request.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// The flags of the bio, or of the first one of a request.
    pub flags: BioFlags,
    /// The I/O context.
    pub ioc: u64,
    /// The I/O priority.
    pub ioprio: IoPriority,
}

impl Newcomer {
    pub(crate) fn of(bio: &Bio) -> Newcomer {
        Newcomer { flags: bio.flags, ioc: bio.ioc, ioprio: bio.ioprio.unwrap_or_default() }
    }

    pub(crate) fn of_request(request: &Request) -> Newcomer {
        Newcomer { flags: request.flags, ioc: request.ioc, ioprio: request.ioprio }
    }
}

/// A tunable could not be set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TunableError {
    /// The elevator has no tunable of this name.
    #[error("{elevator} has no tunable `{name}`; it has: {known}")]
    Unknown {
        /// Name of the elevator, or `queue`.
        elevator: &'static str,
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The value cannot be used.
    #[error("`{value}` is no value for {name} ({expected})")]
    Value {
        /// Name of the tunable.
        name: String,
        /// The value that was given.
        value: String,
        /// What would be accepted.
        expected: &'static str,
    },
}

/// The order of requests. All functions run with the queue's spin lock held, so none may wait, take
/// a lock or call the queue.
pub trait Elevator: Send {
    /// Its name, as in `/sys/block/*/queue/scheduler`.
    fn name(&self) -> &'static str;

    /// The device that it works for; called once, before everything else.
    fn attach(&mut self, _info: &DeviceInfo) {}

    /// May `new`, a neighbour, join `request`? The queue has checked operation and limits.
    fn allow_merge(&self, _id: RequestId, _request: &Request, _new: &Newcomer) -> bool {
        true
    }

    /// May bios join at the front of a request?
    fn front_merges(&self) -> bool {
        true
    }

    /// Most asynchronous requests that may exist at once, of the `nr_requests` that the queue
    /// allows; from 1 to that number.
    fn async_requests(&self, nr_requests: u32) -> u32 {
        nr_requests
    }

    /// Of the allocated requests that wait, those that a controller holds back: asynchronous,
    /// synchronous. They do not count against `nr_requests`.
    fn held(&self) -> [u32; 2] {
        [0; 2]
    }

    /// A new request waits.
    fn insert(&mut self, id: RequestId, request: &Request, now: Nanos);

    /// A neighbour joined `request`, which began at `old_start` before.
    fn merged(&mut self, _id: RequestId, _request: &Request, _old_start: Sector) {}

    /// The request `gone` no longer exists: its bios joined `into`. `absorbed` is what `gone` was.
    fn absorbed(&mut self, gone: RequestId, absorbed: &Request, into: RequestId);

    /// The next request for the device, or `None` where there is none or the device should wait
    /// (see [`Elevator::next_timer`]). What is returned is out of the elevator's hands.
    fn dispatch(&mut self, view: &Dispatch<'_>) -> Option<RequestId>;

    /// A request that this elevator gave out is done.
    fn completed(&mut self, _request: &Request, _now: Nanos) {}

    /// When [`Elevator::timer`] wants to be called, if at all. Asked after each dispatch that
    /// gave nothing and after each completion.
    fn next_timer(&self) -> Option<Nanos> {
        None
    }

    /// The time of [`Elevator::next_timer`] has come; a dispatch follows.
    fn timer(&mut self, _now: Nanos) {}

    /// The I/O context `from` waits for the work of `to`.
    fn yield_to(&mut self, _from: u64, _to: u64, _now: Nanos) {}

    /// The I/O context will not be used again. A dispatch follows.
    fn ioc_exit(&mut self, _ioc: u64, _now: Nanos) {}

    /// What a control group is given from now on; of it, an elevator looks at the weight. Those
    /// that know no groups have nothing to do.
    fn set_group(&mut self, _cgroup: Cgroup, _share: &GroupShare) {}

    /// Moves what it has to say about its decisions since the last call to the end of `out`, oldest
    /// first. Called after each of the functions above.
    fn take_notes(&mut self, _out: &mut Vec<ElevatorNote>) {}

    /// Names and values of the tunables, by the kernel's names, in the kernel's units.
    fn tunables(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// Where there is no such tunable, or the value is none for it.
    fn set_tunable(&mut self, name: &str, _value: &str) -> Result<(), TunableError> {
        Err(unknown_tunable(self, name))
    }
}

/// The error for a name that `elevator` does not have.
pub fn unknown_tunable<E: Elevator + ?Sized>(elevator: &E, name: &str) -> TunableError {
    let names: Vec<&str> = elevator.tunables().iter().map(|&(name, _)| name).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    TunableError::Unknown { elevator: elevator.name(), name: name.to_owned(), known }
}

/// How to make an elevator of a name.
pub type Maker = fn() -> Box<dyn Elevator>;

/// Every elevator: one line each.
const ELEVATORS: &[(&str, Maker)] = &[
    ("none", || Box::new(NoneElevator::default())),
    ("deadline", || Box::new(Deadline::default())),
    ("mq-deadline", || Box::new(Deadline::today())),
    ("cfq", || Box::new(Cfq::default())),
    ("bfq", || Box::new(Bfq::default())),
    ("kyber", || Box::new(Kyber::default())),
    ("relay", || Box::new(Relay::default())),
];

/// Those that a program has added.
static ADDED: Registry<Maker> = Registry::new();

/// Adds an elevator to those that queues, experiments and commands find by name, for as long as the
/// program runs.
///
/// # Errors
/// The name is taken, or is none.
pub fn register(name: &'static str, make: Maker) -> Result<(), String> {
    ADDED.add(built_in(), name, make)
}

fn built_in() -> impl Iterator<Item = &'static str> {
    ELEVATORS.iter().map(|&(name, _)| name)
}

/// Names of all elevators, those that were added last.
pub fn names() -> impl Iterator<Item = &'static str> {
    built_in().chain(ADDED.names())
}

/// A new elevator of that name with default tunables, or `None` where there is no such elevator.
/// `noop` is understood as yesterday's name of `none`.
pub fn by_name(name: &str) -> Option<Box<dyn Elevator>> {
    let name = if name == "noop" { "none" } else { name };
    let built_in = ELEVATORS.iter().find(|&&(known, _)| known == name);
    built_in.map(|(_, make)| *make).or_else(|| ADDED.get(name)).map(|make| make())
}
