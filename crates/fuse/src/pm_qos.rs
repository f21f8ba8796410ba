//! PM QoS: keeps the host's idle processors out of deep sleep while programs use the mount.
//!
//! A program that waits for an answer leaves its processor idle. A sleeping processor wakes late:
//! after microseconds on bare metal, after tens of them if a hypervisor has taken it away. Linux
//! has a PM QoS request for programs that cannot wait so long: as long as a program has the file
//! `cpu_dma_latency` open, processors sleep no deeper than the latency written to it allows.
//!
//! By default a mount holds the file only while many requests come, and only if that pays. The cost
//! of a wake-up is measured after the requests have stopped, so that the measurement delays none of
//! them. Until then holding is assumed to pay.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Nanos;
use rt::{Channel, Cx, WaitQueue};

use crate::options::PmQosUse;
use crate::outside::{Outside, QOS_FILE};

/// After so long without many requests the processors may sleep again.
const WINDOW: Nanos = Nanos::from_millis(100);
/// So many requests within one window are many.
const MANY: u64 = 32;
/// Holding the file pays if it makes a wake-up faster by this or more.
const GAIN_MIN: Nanos = Nanos::from_micros(15);
/// How long a measurement stays valid.
const MEASURED_FOR: Nanos = Nanos::from_secs(60);
/// If requests do not stop, the measurement is made among them after this time.
const UNMEASURED_MAX: Nanos = Nanos::from_secs(10);
/// How many wake-ups are measured with the file held, and as many without.
const WAKE_UPS: usize = 15;
/// How long a processor is left idle before it is woken.
const IDLE: Nanos = Nanos::from_micros(200);

/// What the rule needs of the machine.
pub(crate) trait Host {
    /// While a value of this type exists, no processor sleeps deeply.
    type Held;
    /// Holds the file. None if the host refuses, although it allowed it at first; then processors
    /// sleep, and requests are only slower.
    fn hold(&self) -> Option<Self::Held>;
    /// How much sooner a sleeping task runs on another processor while the file is held. None if it
    /// is interrupted, or if another program holds the file. May park.
    fn gain(&self, cx: &mut Cx, interrupted: &dyn Fn() -> bool) -> Option<Nanos>;
}

/// The PM QoS request of a mount, held while the mount is used.
pub(crate) struct PmQos {
    /// Whether to measure if holding pays.
    measures: bool,
    /// So many requests within one window are many.
    many: u64,
    requests: AtomicU64,
    /// At this number of requests the task wakes up.
    due: AtomicU64,
    ended: AtomicBool,
    task: WaitQueue,
}

impl PmQos {
    /// None if the file is not to be held: not wanted, of no use or not permitted.
    ///
    /// # Errors
    /// The option asks for it, and the file is missing or may not be opened.
    pub fn new(when: PmQosUse, host: &ThisHost) -> io::Result<Option<PmQos>> {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        match when {
            PmQosUse::Always => {
                let held = host.open();
                held.map_err(|error| io::Error::other(format!("awake: {QOS_FILE}: {error}")))?;
                Ok(Some(PmQos::with(false, 1)))
            }
            PmQosUse::Automatic if !alone && host.open().is_ok() => {
                Ok(Some(PmQos::with(true, MANY)))
            }
            PmQosUse::Automatic | PmQosUse::Never => Ok(None),
        }
    }

    fn with(measures: bool, many: u64) -> PmQos {
        PmQos {
            measures,
            many,
            requests: AtomicU64::new(0),
            due: AtomicU64::new(many),
            ended: AtomicBool::new(false),
            task: WaitQueue::named("fuse pm_qos"),
        }
    }

    /// Counts a request that has come. Never waits.
    pub fn count_request(&self) {
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

    /// Holds the file while many requests come, until [`PmQos::end`]. May park.
    pub fn run(&self, cx: &mut Cx, host: &impl Host) {
        let mut measured = None;
        while self.wait_until_busy(cx) {
            let start = cx.now();
            let mut held = if pays(measured) { host.hold() } else { None };
            while self.is_still_busy(cx) {
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
    fn wait_until_busy(&self, cx: &mut Cx) -> bool {
        loop {
            let start = cx.now();
            let due = self.requests() + self.many;
            self.due.store(due, Ordering::SeqCst);
            let come = || self.has_ended() || self.requests() >= due;
            self.task.wait_until(cx, "requests", come);
            // If one request is many, it does not matter when it came.
            if self.has_ended() || self.many == 1 || cx.now().0 - start.0 <= WINDOW.0 {
                return !self.has_ended();
            }
        }
    }

    /// Whether many requests come in the next window. May park.
    fn is_still_busy(&self, cx: &mut Cx) -> bool {
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

/// Whether holding the file pays, by the last measurement: its result and its time.
fn pays(measured: Option<(Nanos, Nanos)>) -> bool {
    measured.is_none_or(|(gain, _)| gain >= GAIN_MIN)
}

/// The machine that this process runs on.
pub(crate) struct ThisHost(pub Arc<Outside>);

impl ThisHost {
    fn open(&self) -> io::Result<File> {
        let mut file = File::from(self.0.open_qos()?);
        // Microseconds.
        file.write_all(&0_i32.to_ne_bytes())?;
        Ok(file)
    }

    /// Whether any program holds the file at a latency of 0.
    fn is_held(&self) -> bool {
        let mut micros = [0; 4];
        let read = self.0.open_qos().and_then(|file| File::from(file).read_exact(&mut micros));
        read.is_ok() && i32::from_ne_bytes(micros) == 0
    }
}

impl Host for ThisHost {
    type Held = File;

    fn hold(&self) -> Option<File> {
        self.open().ok()
    }

    fn gain(&self, cx: &mut Cx, interrupted: &dyn Fn() -> bool) -> Option<Nanos> {
        if self.is_held() {
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

/// The median of the even delays (file not held) less that of the odd ones (file held).
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

    /// A host that logs when the file is held, and measures the gain that the test sets.
    #[derive(Clone)]
    struct LoggingHost {
        gain: Nanos,
        log: Arc<SpinLock<Vec<(u64, &'static str)>>>,
        rt: rt::Runtime,
    }

    struct LoggedHold(LoggingHost);

    impl LoggingHost {
        fn log(&self, what: &'static str) {
            self.log.lock_irq().push((self.rt.now().0 / 1_000_000, what));
        }
    }

    impl Drop for LoggedHold {
        fn drop(&mut self) {
            self.0.log("released");
        }
    }

    impl Host for LoggingHost {
        type Held = LoggedHold;

        fn hold(&self) -> Option<LoggedHold> {
            self.log("held");
            Some(LoggedHold(self.clone()))
        }

        fn gain(&self, cx: &mut Cx, interrupted: &dyn Fn() -> bool) -> Option<Nanos> {
            self.log("measured");
            cx.sleep(Nanos::from_millis(6));
            (!interrupted()).then_some(self.gain)
        }
    }

    /// A spell of use: milliseconds before it, requests, and microseconds between them.
    type Spell = (u64, u64, u64);

    fn log_of(how: (bool, u64), gain_us: u64, spells: &[Spell]) -> Vec<(u64, &'static str)> {
        let mut world = rt::World::new(rt::WorldConfig::exploring(1));
        world.run("mount", |cx| {
            let pm_qos = Arc::new(PmQos::with(how.0, how.1));
            let (gain, rt) = (Nanos::from_micros(gain_us), cx.runtime().clone());
            let host = LoggingHost { gain, rt, log: Arc::new(SpinLock::named("log", Vec::new())) };
            let task = cx.spawn("pm_qos", {
                let (pm_qos, host) = (pm_qos.clone(), host.clone());
                move |cx| pm_qos.run(cx, &host)
            });
            for (before, requests, apart) in spells {
                cx.sleep(Nanos::from_millis(*before));
                for _ in 0..*requests {
                    pm_qos.count_request();
                    cx.sleep(Nanos::from_micros(*apart));
                }
            }
            cx.sleep(Nanos::from_secs(1));
            pm_qos.end();
            task.join(cx);
            let log = host.log.lock_irq();
            log.clone()
        })
    }

    const AUTOMATIC: (bool, u64) = (true, MANY);
    const ALWAYS: (bool, u64) = (false, 1);

    /// Held from the 32nd quick request on, or from the 64th if the first ones were counted in an
    /// old window; released within two windows after the last; measured then, and held again if it
    /// pays.
    #[test]
    fn held_while_many_requests_come_if_it_pays() {
        let spells = [(0, 1000, 100), (900, 1000, 100)];
        let paid = log_of(AUTOMATIC, 40, &spells);
        let both = [(3, "held"), (203, "released"), (203, "measured"), (1006, "held")];
        assert_eq!(paid[..4], both, "{paid:?}");
        assert_eq!(paid.last().map(|last| last.1), Some("released"));
        let unpaid = log_of(AUTOMATIC, 14, &spells);
        assert_eq!(unpaid, [(3, "held"), (203, "released"), (203, "measured")]);
    }

    /// A few requests now and then hold nothing, however many they become.
    #[test]
    fn few_requests_hold_nothing() {
        assert_eq!(log_of(AUTOMATIC, 40, &[(0, 500, 10_000)]), []);
        assert_eq!(log_of(AUTOMATIC, 40, &[(0, 20, 10), (200, 20, 10), (200, 20, 10)]), []);
        let always = log_of(ALWAYS, 0, &[(1, 1, 10), (500, 1, 10)]);
        assert_eq!(always, [(1, "held"), (101, "released"), (501, "held"), (601, "released")]);
    }

    /// Among requests that do not stop, the measurement comes after ten seconds; it is valid for a
    /// minute. If many requests come during it, it is repeated another time.
    #[test]
    fn measured_again_when_it_is_old_or_was_interrupted() {
        let measured = |log: &[(u64, &str)]| -> Vec<u64> {
            log.iter().filter(|(_, what)| *what == "measured").map(|(at, _)| *at).collect()
        };
        let long = log_of(AUTOMATIC, 3, &[(0, 200_000, 100)]);
        assert_eq!(measured(&long).len(), 1, "{long:?}");
        assert!((10_003..10_110).contains(&measured(&long)[0]) && long.len() == 3, "{long:?}");
        let spells = [(0, 100, 100), (1000, 100, 100), (60_000, 100, 100)];
        assert_eq!(measured(&log_of(AUTOMATIC, 40, &spells)).len(), 2);
        let log = log_of(AUTOMATIC, 3, &[(0, 50, 10), (101, 100, 10), (500, 100, 10)]);
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
