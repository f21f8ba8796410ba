//! The tunables of `cfq`, in ticks of HZ where they are times.

use crate::elevator::TunableError;
use base::unit::SECTOR_SIZE;

/// A point or a span of time in ticks of HZ.
pub(super) type Ticks = i64;

/// A time that the user may set in milliseconds; else its default follows from HZ.
#[derive(Clone, Copy)]
struct Span {
    name: &'static str,
    /// The default in ticks is `hz * times / over`, rounded down as the kernel's integers do: at
    /// HZ=100 the 8 ms of `slice_idle` are 0 ticks.
    times: u32,
    over: u32,
    /// Smallest value that may be set, in ms.
    min: u32,
    set_ms: Option<u32>,
}

const fn span(name: &'static str, times: u32, over: u32, min: u32) -> Span {
    Span { name, times, over, min, set_ms: None }
}

const FIFO_EXPIRE_ASYNC: usize = 0;
const FIFO_EXPIRE_SYNC: usize = 1;
const SLICE_ASYNC: usize = 2;
const SLICE_SYNC: usize = 3;
const SLICE_IDLE: usize = 4;
const TARGET_LATENCY: usize = 5;
const GROUP_IDLE: usize = 6;

/// The values of HZ that kernels are built with.
const HZ: [u32; 3] = [100, 250, 1000];

/// Everything that can be set, by the kernel's names (Documentation/block/cfq-iosched.txt), and
/// four of our own: `hz`, which in a kernel is fixed when it is built, `yield`, `yield_across` and
/// `next_noidle`, which a kernel has or has not.
pub(super) struct Tunables {
    hz: u32,
    spans: [Span; 7],
    /// Requests of one queue that may be in flight while others wait; half of it is always given.
    pub quantum: u32,
    /// Largest step backwards that counts as close, in sectors.
    pub back_seek_max: u64,
    /// How many times longer a step backwards counts.
    pub back_seek_penalty: u32,
    /// Base of the number of requests of an asynchronous slice.
    pub slice_async_rq: u32,
    /// Shorter slices where many queues are busy, and a slow start for asynchronous requests.
    pub low_latency: bool,
    /// Yields are honoured.
    pub yields: bool,
    /// A queue whose next request says NOIDLE is not idled for: the rule of 2.6.37.
    pub next_noidle: bool,
    /// Queues that are not worth idling for stay in their group.
    pub group_isolation: bool,
    /// A yield lends a queue to a process of another group.
    pub yield_across: bool,
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables {
            hz: 1000,
            spans: [
                span("fifo_expire_async", 1, 4, 1),
                span("fifo_expire_sync", 1, 8, 1),
                span("slice_async", 1, 25, 1),
                span("slice_sync", 1, 10, 1),
                span("slice_idle", 1, 125, 0),
                span("target_latency", 3, 10, 1),
                // 8 ms in 2.6.36, the first that has it.
                span("group_idle", 0, 1, 0),
            ],
            quantum: 8,
            back_seek_max: 16 * 1024 * 1024 / SECTOR_SIZE,
            back_seek_penalty: 2,
            slice_async_rq: 2,
            low_latency: true,
            yields: true,
            next_noidle: false,
            group_isolation: false,
            yield_across: false,
        }
    }
}

impl Tunables {
    pub fn hz(&self) -> Ticks {
        self.hz as Ticks
    }

    fn ticks(&self, which: usize) -> Ticks {
        let span = &self.spans[which];
        match span.set_ms {
            Some(ms) => (ms as u64 * self.hz as u64).div_ceil(1000) as Ticks,
            None => (self.hz * span.times / span.over) as Ticks,
        }
    }

    pub fn fifo_expire(&self, sync: bool) -> Ticks {
        self.ticks(FIFO_EXPIRE_ASYNC + sync as usize)
    }

    /// The slice of level 4.
    pub fn slice(&self, sync: bool) -> Ticks {
        self.ticks(SLICE_ASYNC + sync as usize)
    }

    pub fn slice_idle(&self) -> Ticks {
        self.ticks(SLICE_IDLE)
    }

    pub fn group_idle(&self) -> Ticks {
        self.ticks(GROUP_IDLE)
    }

    pub fn target_latency(&self) -> Ticks {
        self.ticks(TARGET_LATENCY)
    }

    pub fn list(&self) -> Vec<(&'static str, String)> {
        let ms = |which: usize| {
            let ms = self.ticks(which) * 1000 / self.hz();
            (self.spans[which].name, ms.to_string())
        };
        vec![
            ("quantum", self.quantum.to_string()),
            ms(FIFO_EXPIRE_SYNC),
            ms(FIFO_EXPIRE_ASYNC),
            ("back_seek_max", (self.back_seek_max * SECTOR_SIZE / 1024).to_string()),
            ("back_seek_penalty", self.back_seek_penalty.to_string()),
            ms(SLICE_SYNC),
            ms(SLICE_ASYNC),
            ("slice_async_rq", self.slice_async_rq.to_string()),
            ms(SLICE_IDLE),
            ("low_latency", (self.low_latency as u8).to_string()),
            ms(TARGET_LATENCY),
            ("hz", self.hz.to_string()),
            ("yield", (self.yields as u8).to_string()),
            ("next_noidle", (self.next_noidle as u8).to_string()),
            ms(GROUP_IDLE),
            ("group_isolation", (self.group_isolation as u8).to_string()),
            ("yield_across", (self.yield_across as u8).to_string()),
        ]
    }

    /// False where there is no tunable of that name.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, TunableError> {
        let number = |min: u32, expected: &'static str| {
            let number = value.parse::<u32>().ok().filter(|&number| number >= min);
            let (name, value) = (name.to_owned(), value.to_owned());
            number.ok_or(TunableError::Value { name, value, expected })
        };
        let counted = || number(1, "a whole number from 1");
        let any = || number(0, "a whole number from 0");
        if let Some(span) = self.spans.iter_mut().find(|span| span.name == name) {
            let expected =
                if span.min == 0 { "milliseconds from 0" } else { "milliseconds from 1" };
            span.set_ms = Some(number(span.min, expected)?);
            return Ok(true);
        }
        match name {
            "quantum" => self.quantum = counted()?,
            "back_seek_max" => self.back_seek_max = any()? as u64 * 1024 / SECTOR_SIZE,
            "back_seek_penalty" => self.back_seek_penalty = counted()?,
            "slice_async_rq" => self.slice_async_rq = counted()?,
            "low_latency" => self.low_latency = any()? != 0,
            "yield" => self.yields = any()? != 0,
            "next_noidle" => self.next_noidle = any()? != 0,
            "group_isolation" => self.group_isolation = any()? != 0,
            "yield_across" => self.yield_across = any()? != 0,
            "hz" => {
                let hz = number(0, "100, 250 or 1000")?;
                if !HZ.contains(&hz) {
                    let (name, value) = (name.to_owned(), value.to_owned());
                    return Err(TunableError::Value { name, value, expected: "100, 250 or 1000" });
                }
                self.hz = hz;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
