//! Scripts for an elevator: processes `a` to `z`, one disk, virtual time; words in, decisions out.
//!
//! Words: `aR8+8` process `a` reads 8 sectors at 8; `bW0+8` an asynchronous write; `bS0+8` a
//! synchronous write; after the numbers `n` for NOIDLE, `m` for META; `12` waits 12 ms, `0.5` half
//! a millisecond; `.` completes the oldest request in the disk, if any, `*` all of them until none
//! comes any more; `|` divides the answer as it divides the script; `a=rt/0` sets the priority of
//! `a`; `a>b` `a` yields to `b`; `a@2` puts `a` into control group 2; `a!` ends `a`.
//!
//! Decisions: `a8` a request of `a` at 8 goes to the disk; `[a` the queue of `a` gets the device,
//! `]a` it gives it up (`]a<b` taken by `b`); `~a` the disk is kept idle for `a`, `+a` until the
//! request came, `-a` in vain, `xa` until something else happened; `a>b` a lease, `a>|` its end,
//! `a>?` refused; `{a<b}` a request of `b` in the queue of `a`; `a&b` `a` will be merged into `b`,
//! `a/b` split. Shared asynchronous queues are `0`. With times, each decision has `@ms` where time
//! has passed.

use crate::common::{Disk, Ends};
use base::{Nanos, Page, Sector};
use block::elevator::NoteKind;
use block::{Bio, BioFlags, DeviceInfo, Op, Queue, QueueConfig, TraceEvent, TraceKind};
use rt::{Cgroup, Cx, IoPriority, World, WorldConfig};
use std::collections::BTreeMap;
use std::sync::Arc;

pub struct Script<'a> {
    cx: &'a mut Cx,
    pub queue: Arc<Queue>,
    pub disk: Arc<Disk>,
    ends: Ends,
    priorities: BTreeMap<u64, IoPriority>,
    groups: BTreeMap<u64, Cgroup>,
    timed: bool,
}

/// A rotational disk of 32 MiB with room for `depth` requests.
pub fn disk(depth: u32) -> DeviceInfo {
    DeviceInfo { depth, rotational: true, ..DeviceInfo::plain(65_536) }
}

/// Plays `words` and gives the decisions, with times where `timed`.
pub fn play_on(
    elevator: &str,
    info: DeviceInfo,
    tunables: &[(&str, &str)],
    words: &str,
    timed: bool,
) -> String {
    World::new(WorldConfig::default()).run("script", |cx| {
        let disk = Disk::held(info);
        let config = QueueConfig { trace_events: 4096, ..QueueConfig::elevator(elevator) };
        let queue = Queue::new(cx.runtime(), disk.clone(), config).expect("a queue");
        for (name, value) in tunables {
            queue.set_tunable(name, value).expect(name);
        }
        let ends = Ends::default();
        let (priorities, groups) = (BTreeMap::new(), BTreeMap::new());
        let mut script = Script { cx, queue, disk, ends, priorities, groups, timed };
        let said: Vec<String> = words.split('|').map(|part| script.say(part)).collect();
        said.join(" | ")
    })
}

fn ioc(name: char) -> u64 {
    1000 + name as u64
}

fn name(ioc: u64) -> char {
    ioc.checked_sub(1000).and_then(|n| char::from_u32(n as u32)).unwrap_or('0')
}

impl Script<'_> {
    pub fn say(&mut self, words: &str) -> String {
        for word in words.split_whitespace() {
            self.word(word);
        }
        let (events, lost) = self.queue.take_trace();
        assert_eq!(lost, 0, "the script fits the trace");
        let mut time = Nanos::ZERO;
        let mut said = Vec::new();
        for event in events {
            if let Some(mut text) = decision(&event) {
                if self.timed && event.time != time {
                    text += &format!("@{}", event.time.0 as f64 / 1e6);
                    time = event.time;
                }
                said.push(text);
            }
        }
        said.join(" ")
    }

    fn word(&mut self, word: &str) {
        if let Ok(ms) = word.parse::<f64>() {
            return self.cx.sleep(Nanos((ms * 1e6) as u64));
        }
        match word {
            "." if self.disk.held_count() == 0 => return,
            "." => return self.disk.finish(0),
            "*" => return self.disk.finish_all(),
            _ => {}
        }
        let mut letters = word.chars();
        let who = letters.next().expect("a word has letters");
        match letters.next().expect("a word has two letters") {
            '!' => self.queue.ioc_exit(ioc(who)),
            '>' => {
                let to = letters.next().expect("a yield names both");
                self.queue.yield_to(ioc(who), ioc(to));
            }
            '=' => {
                let priority = word[2..].parse().expect("a priority");
                self.priorities.insert(ioc(who), priority);
            }
            '@' => {
                let group = word[2..].parse().expect("a number of a group");
                self.groups.insert(ioc(who), Cgroup(group));
            }
            kind => self.io(ioc(who), kind, &word[2..]),
        }
    }

    fn io(&mut self, ioc: u64, kind: char, rest: &str) {
        let numbers = rest.trim_end_matches(['n', 'm']);
        let (sector, count) = numbers.split_once('+').expect("sector+count");
        let (sector, count): (u64, usize) = (sector.parse().unwrap(), count.parse().unwrap());
        let mut flags = BioFlags::empty();
        flags.set(BioFlags::SYNC, kind == 'S');
        flags.set(BioFlags::NOIDLE, rest.ends_with('n') || rest.ends_with("nm"));
        flags.set(BioFlags::META, rest.contains('m'));
        let op = if kind == 'R' { Op::Read } else { Op::Write };
        let segs = [block::Segment::whole(Page::zeroed(count * 512))].into_iter().collect();
        let mut bio = Bio::new(op, Sector(sector), segs, flags, self.ends.end(rest));
        bio.ioc = ioc;
        bio.ioprio = Some(self.priorities.get(&ioc).copied().unwrap_or_default());
        bio.cgroup = self.groups.get(&ioc).copied();
        self.queue.submit(self.cx, bio);
    }
}

fn decision(event: &TraceEvent) -> Option<String> {
    let own = name(event.ioc);
    if event.kind == TraceKind::Dispatched {
        return Some(format!("{own}{}", event.sector));
    }
    let note = event.elevator_note()?;
    let other = name(note.value);
    Some(match note.kind {
        NoteKind::SliceBegin => format!("[{own}"),
        NoteKind::SliceUsedUp | NoteKind::SliceGivenUp | NoteKind::SliceDrained => {
            format!("]{own}")
        }
        NoteKind::Preempted => format!("]{own}<{other}"),
        NoteKind::IdleArmed => format!("~{own}"),
        NoteKind::IdleSatisfied => format!("+{own}"),
        NoteKind::IdleFired => format!("-{own}"),
        NoteKind::IdleCancelled => format!("x{own}"),
        NoteKind::YieldBegin => format!("{own}>{other}"),
        NoteKind::YieldEnd => format!("{own}>|"),
        NoteKind::YieldRefused => format!("{own}>?"),
        NoteKind::YieldRequest => format!("{{{own}<{other}}}"),
        NoteKind::Merge => format!("{own}&{other}"),
        NoteKind::Split => format!("{own}/{other}"),
        NoteKind::Injected => format!("({own}^{other})"),
        NoteKind::WakerFound => format!("{own}={other}"),
        NoteKind::Expired => format!("late:{own}"),
    })
}

/// Tunables, depth of the disk, script, decisions.
#[allow(dead_code, reason = "not every test file has tables")]
pub type Case = (&'static [(&'static str, &'static str)], u32, &'static str, &'static str);

/// Plays each case on a disk and compares what the elevator said.
#[allow(dead_code, reason = "not every test file has tables")]
pub fn check(elevator: &str, timed: bool, cases: &[Case]) {
    for &(tunables, depth, words, expected) in cases {
        let said = play_on(elevator, disk(depth), tunables, words, timed);
        assert_eq!(said, expected, "{tunables:?} {words}");
    }
}
