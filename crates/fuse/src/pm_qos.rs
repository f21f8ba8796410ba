//! Keeps the host's idle processors awake while programs use the mount.
//!
//! A program that waits for an answer leaves its processor idle. One that has gone to sleep wakes
//! late: after microseconds on bare metal, after tens of them where a hypervisor takes it away. The
//! kernel's interface for programs that cannot wait so long is a file: as long as somebody has it
//! open, processors sleep no deeper than the time written to it allows.
//!
//! By itself a mount holds it only while many requests come, and only where that pays: what a
//! wake-up costs is measured when they have stopped, so that nothing competes with the first of
//! them, and until then it is taken to pay.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Nanos;
use rt::{Channel, Cx, WaitQueue};

use crate::options::Awake;

/// The file; see the kernel's Documentation/power/pm_qos_interface.rst.
const FILE: &str = "/dev/cpu_dma_latency";
/// So long without enough requests, and the processors may sleep again.
const WINDOW: Nanos = Nanos::from_millis(100);
/// Requests of one window that are many.
const MANY: u64 = 32;
/// A wake-up without the file held is dearer by this at least where holding it pays.
const GAIN_MIN: Nanos = Nanos::from_micros(15);
/// What was measured holds so long.
const MEASURED_FOR: Nanos = Nanos::from_secs(60);
/// Where requests do not stop, it is measured among them after this.
const UNMEASURED_MAX: Nanos = Nanos::from_secs(10);
/// Wake-ups that are measured, with the file held and without each.
const WAKE_UPS: usize = 15;
/// How long a processor is left idle before it is woken.
const IDLE: Nanos = Nanos::from_micros(200);

/// The machine, as the rule sees it.
pub(crate) trait Host {
    /// As long as this lives no processor sleeps.
    type Held;
    /// Refused after it was allowed: none. Then processors sleep, and all is only slower.
    fn hold(&self) -> Option<Self::Held>;
    /// How much sooner a sleeping task runs on another processor while the file is held; none
    /// where it is interrupted, or others hold the file. May park.
    fn gain(&self, cx: &mut Cx, interrupted: &dyn Fn() -> bool) -> Option<Nanos>;
}

/// Watches how a mount is used.
pub(crate) struct Keeper {
    /// Whether to measure first.
    measures: bool,
    /// Requests of one window that are many.
    many: u64,
    requests: AtomicU64,
    /// At this number of requests the task looks.
    due: AtomicU64,
    ended: AtomicBool,
    task: WaitQueue,
}

impl Keeper {
    /// None where processors are not kept awake: not wanted, of no use or not for us.
    ///
    /// # Errors
    /// It was asked for, and the host has no such file, or not for us.
    pub fn new(how: Awake) -> io::Result<Option<Keeper>> {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        match how {
            Awake::Always => {
                open().map_err(|error| io::Error::other(format!("awake: {FILE}: {error}")))?;
                Ok(Some(Keeper::with(false, 1)))
            }
            Awake::Automatic if !alone && open().is_ok() => Ok(Some(Keeper::with(true, MANY))),
            Awake::Automatic | Awake::Never => Ok(None),
        }
    }

    fn with(measures: bool, many: u64) -> Keeper {
        Keeper {
            measures,
            many,
            requests: AtomicU64::new(0),
            due: AtomicU64::new(many),
            ended: AtomicBool::new(false),
            task: WaitQueue::named("fuse awake"),
        }
    }

    /// A request has come. Never waits.
    pub fn note(&self) {
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        if number == self.due.load(Ordering::SeqCst) {
            self.task.wake_one();
        }
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Keeps processors awake while many requests come, until [`Keeper::end`]. May park.
    pub fn keep(&self, cx: &mut Cx, host: &impl Host) {
        let mut measured = None;
        while self.many_come(cx) {
            let start = cx.now();
            let mut held = if pays(measured) { host.hold() } else { None };
            while self.more_come(cx) {
                let waited = cx.now().0 - start.0 >= UNMEASURED_MAX.0;
                if self.measures && measured.is_none() && waited {
                    drop(held.take());
                    measured = host.gain(cx, &|| self.has_ended()).map(|gain| (gain, cx.now()));
                    held = if pays(measured) { host.hold() } else { None };
                }
            }
            drop(held);
            let old = |(_, at): (_, Nanos)| cx.now().0 - at.0 >= MEASURED_FOR.0;
            if self.measures && measured.is_none_or(old) {
                let since = self.requests();
                let busy = || self.has_ended() || self.requests() - since >= self.many;
                measured = host.gain(cx, &busy).map(|gain| (gain, cx.now())).or(measured);
            }
        }
    }

    /// Waits until many requests have come within one window. False after the end. May park.
    fn many_come(&self, cx: &mut Cx) -> bool {
        loop {
            let start = cx.now();
            let due = self.requests() + self.many;
            self.due.store(due, Ordering::SeqCst);
            let come = || self.has_ended() || self.requests() >= due;
            self.task.wait_until(cx, "requests", come);
            // One is many at any time.
            if self.has_ended() || self.many == 1 || cx.now().0 - start.0 <= WINDOW.0 {
                return !self.has_ended();
            }
        }
    }

    /// Whether many requests come in the next window. May park.
    fn more_come(&self, cx: &mut Cx) -> bool {
        let before = self.requests();
        self.task.wait_until_timeout(cx, "quiet", WINDOW, || self.has_ended());
        !self.has_ended() && self.requests() - before >= self.many
    }

    /// The mount ends.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.task.wake_all();
    }
}

/// Whether holding the file pays, by what was measured last, and when.
fn pays(measured: Option<(Nanos, Nanos)>) -> bool {
    measured.is_none_or(|(gain, _)| gain >= GAIN_MIN)
}

fn open() -> io::Result<File> {
    let mut file = File::options().write(true).open(FILE)?;
    // Microseconds.
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}

/// Whether somebody holds the file.
fn is_held() -> bool {
    let mut micros = [0; 4];
    let read = File::open(FILE).and_then(|mut file| file.read_exact(&mut micros));
    read.is_ok() && i32::from_ne_bytes(micros) == 0
}

/// The machine at hand.
pub(crate) struct ThisHost;

impl Host for ThisHost {
    type Held = File;

    fn hold(&self) -> Option<File> {
        open().ok()
    }

    fn gain(&self, cx: &mut Cx, interrupted: &dyn Fn() -> bool) -> Option<Nanos> {
        if is_held() {
            return None;
        }
        let calls = Arc::new(Channel::named("fuse wake-ups", 1));
        let sleeper = cx.spawn("fuse-wake", {
            let calls = calls.clone();
            move |cx| {
                let mut delays = Vec::new();
                while let Some(called) = calls.recv(cx) {
                    delays.push(Nanos(cx.now().0.saturating_sub(called)));
                }
                delays
            }
        });
        for number in 0..2 * WAKE_UPS {
            let _held = if number % 2 == 1 { self.hold() } else { None };
            cx.sleep(IDLE);
            if interrupted() {
                break;
            }
            let _listens = calls.send(cx, cx.now().0);
        }
        calls.close();
        let delays = sleeper.join(cx);
        (delays.len() == 2 * WAKE_UPS).then(|| gain_of(&delays))
    }
}

/// By how much the median of the even ones, without the file, is above that of the odd ones.
fn gain_of(delays: &[Nanos]) -> Nanos {
    let median = |skip: usize| {
        let mut some: Vec<u64> = delays.iter().skip(skip).step_by(2).map(|d| d.0).collect();
        some.sort_unstable();
        some[some.len() / 2]
    };
    Nanos(median(0).saturating_sub(median(1)))
}

#[cfg(test)]
mod tests {
    use rt::SpinLock;

    use super::*;

    /// A host that tells when it is held, and measures what the test says.
    #[derive(Clone)]
    struct Told {
        gain: Nanos,
        log: Arc<SpinLock<Vec<(u64, &'static str)>>>,
        rt: rt::Runtime,
    }

    struct HeldHere(Told);

    impl Told {
        fn tell(&self, what: &'static str) {
            self.log.lock_irq().push((self.rt.now().0 / 1_000_000, what));
        }
    }

    impl Drop for HeldHere {
        fn drop(&mut self) {
            self.0.tell("let go");
        }
    }

    impl Host for Told {
        type Held = HeldHere;

        fn hold(&self) -> Option<HeldHere> {
            self.tell("held");
            Some(HeldHere(self.clone()))
        }

        fn gain(&self, cx: &mut Cx, interrupted: &dyn Fn() -> bool) -> Option<Nanos> {
            self.tell("measured");
            cx.sleep(Nanos::from_millis(6));
            (!interrupted()).then_some(self.gain)
        }
    }

    /// A spell of use: milliseconds before it, requests, and microseconds between them.
    type Spell = (u64, u64, u64);

    fn told(how: (bool, u64), gain_us: u64, spells: &[Spell]) -> Vec<(u64, &'static str)> {
        let mut world = rt::World::new(rt::WorldConfig::exploring(1));
        world.run("mount", |cx| {
            let keeper = Arc::new(Keeper::with(how.0, how.1));
            let (gain, rt) = (Nanos::from_micros(gain_us), cx.runtime().clone());
            let host = Told { gain, rt, log: Arc::new(SpinLock::named("log", Vec::new())) };
            let task = cx.spawn("awake", {
                let (keeper, host) = (keeper.clone(), host.clone());
                move |cx| keeper.keep(cx, &host)
            });
            for (before, requests, apart) in spells {
                cx.sleep(Nanos::from_millis(*before));
                for _ in 0..*requests {
                    keeper.note();
                    cx.sleep(Nanos::from_micros(*apart));
                }
            }
            cx.sleep(Nanos::from_secs(1));
            keeper.end();
            task.join(cx);
            let log = host.log.lock_irq();
            log.clone()
        })
    }

    const AUTOMATIC: (bool, u64) = (true, MANY);
    const ALWAYS: (bool, u64) = (false, 1);

    /// Held from the 32nd quick request on, or the 64th where the count of the first was old; let
    /// go within two windows after the last; measured then, and
    /// held again where it pays.
    #[test]
    fn held_while_many_requests_come_where_it_pays() {
        let spells = [(0, 1000, 100), (900, 1000, 100)];
        let paid = told(AUTOMATIC, 40, &spells);
        let both = [(3, "held"), (203, "let go"), (203, "measured"), (1006, "held")];
        assert_eq!(paid[..4], both, "{paid:?}");
        assert_eq!(paid.last().map(|last| last.1), Some("let go"));
        let unpaid = told(AUTOMATIC, 14, &spells);
        assert_eq!(unpaid, [(3, "held"), (203, "let go"), (203, "measured")]);
    }

    /// A few requests now and then hold nothing, however many they become.
    #[test]
    fn few_requests_hold_nothing() {
        assert_eq!(told(AUTOMATIC, 40, &[(0, 500, 10_000)]), []);
        assert_eq!(told(AUTOMATIC, 40, &[(0, 20, 10), (200, 20, 10), (200, 20, 10)]), []);
        let always = told(ALWAYS, 0, &[(1, 1, 10), (500, 1, 10)]);
        assert_eq!(always, [(1, "held"), (101, "let go"), (501, "held"), (601, "let go")]);
    }

    /// Among requests that do not stop it is measured after ten seconds; what was measured counts
    /// for a minute. Where many come meanwhile it is measured another time.
    #[test]
    fn measured_again_when_it_is_old_or_was_interrupted() {
        let measured = |log: &[(u64, &str)]| -> Vec<u64> {
            log.iter().filter(|(_, what)| *what == "measured").map(|(at, _)| *at).collect()
        };
        let long = told(AUTOMATIC, 3, &[(0, 200_000, 100)]);
        assert_eq!(measured(&long).len(), 1, "{long:?}");
        assert!((10_003..10_110).contains(&measured(&long)[0]) && long.len() == 3, "{long:?}");
        let spells = [(0, 100, 100), (1000, 100, 100), (60_000, 100, 100)];
        assert_eq!(measured(&told(AUTOMATIC, 40, &spells)).len(), 2);
        let log = told(AUTOMATIC, 3, &[(0, 50, 10), (101, 100, 10), (500, 100, 10)]);
        assert_eq!(measured(&log).len(), 2, "{log:?}");
        assert_eq!(log.iter().filter(|(_, what)| *what == "held").count(), 2, "{log:?}");
    }

    /// The median of each kind counts: one late wake-up decides nothing.
    #[test]
    fn medians_are_compared() {
        let mut delays: Vec<Nanos> = (0..30).map(|n| Nanos([40, 4][n % 2] * 1000)).collect();
        assert_eq!(gain_of(&delays), Nanos::from_micros(36));
        (delays[1], delays[3]) = (Nanos::from_millis(9), Nanos::from_millis(3));
        assert_eq!(gain_of(&delays), Nanos::from_micros(36));
        delays.iter_mut().for_each(|delay| *delay = Nanos(5000));
        assert_eq!(gain_of(&delays), Nanos::ZERO);
    }
}
