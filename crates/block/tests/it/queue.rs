//! The queue as a whole: throttling, no recursion, integrity under any order, determinism.

use crate::common::{Disk, Ends, bio, info, queue, queue_with, submit};
use base::{Nanos, Page, Rng, Sector};
use block::{
    Bio, BioFlags, Device, DeviceInfo, DeviceIo, IoGroup, Op, Plug, Queue, QueueConfig, Segment,
};
use proptest::prelude::*;
use rt::{Runtime, SpinLock, World, WorldConfig};
use std::sync::Arc;

/// Waits until so many waits for a request have begun.
fn throttled(cx: &mut rt::Cx, queue: &Queue, count: u64) {
    while queue.stats().throttled < count {
        cx.sleep(Nanos::from_millis(1));
    }
}

/// Goal: the task that needs one request more than there are waits for one, and merges need none.
#[test]
fn a_task_waits_for_a_free_request() {
    rt::testing::both(|cx| {
        let disk = Disk::held(info(2));
        let queue = queue_with(cx, &disk, QueueConfig { nr_requests: 4, ..Default::default() });
        let ends = Ends::default();
        submit(cx, &queue, &ends, "W0+1 W10+1 W20+1 W30+1");
        submit(cx, &queue, &ends, "W31+1");
        let (theirs, other) = (queue.clone(), ends.clone());
        let writer = cx.spawn("writer", move |cx| submit(cx, &theirs, &other, "W40+1 W50+1"));
        throttled(cx, &queue, 1);
        assert!(!writer.is_finished());
        // Reads are synchronous, which is another class.
        submit(cx, &queue, &ends, "R60+1");
        disk.finish(0);
        throttled(cx, &queue, 2);
        assert!(!writer.is_finished());
        disk.finish(0);
        writer.join(cx);
        disk.finish_all();
        assert_eq!(ends.take().len(), 8);
        queue.drain(cx);
        assert_eq!(queue.stats().in_flight_max, 2);
    });
}

#[test]
fn a_plug_larger_than_the_queue_gets_through() {
    rt::testing::both(|cx| {
        let disk = Disk::inline(info(1));
        let queue = queue_with(cx, &disk, QueueConfig { nr_requests: 2, ..Default::default() });
        let group = IoGroup::new();
        let mut plug = Plug::new();
        for index in 0..100 {
            let word = format!("W{}+1", index * 2);
            queue.submit_plugged(cx, &mut plug, bio(&word, group.end()));
        }
        plug.finish(cx);
        group.wait(cx).unwrap();
        assert_eq!(queue.stats().writes, 100);
    });
}

/// Goal: requests that complete inside the device's submit need no stack. Method: a hundred
/// thousand of them wait for one that is held back, then all go in one call.
#[test]
fn a_long_queue_that_completes_inline_does_not_recurse() {
    struct Gate(Arc<Disk>, SpinLock<Option<DeviceIo>>);
    impl Device for Gate {
        fn info(&self) -> &DeviceInfo {
            self.0.info()
        }
        fn submit(&self, io: DeviceIo) {
            if io.op == Op::Read { *self.1.lock_irq() = Some(io) } else { self.0.submit(io) }
        }
        fn name(&self) -> String {
            "gate".to_owned()
        }
    }
    Runtime::real(1).enter("test", |cx| {
        let gate = Arc::new(Gate(Disk::inline(info(1)), SpinLock::new(None)));
        let config = QueueConfig { nr_requests: 200_000, merge: false, ..Default::default() };
        let queue = Queue::new(cx.runtime(), gate.clone(), config).unwrap();
        let group = IoGroup::new();
        queue.submit(cx, bio("R0+1", group.end()));
        for index in 0..100_000u64 {
            queue.submit(cx, bio(&format!("W{}+1", index % 2000), group.end()));
        }
        assert_eq!(queue.stats().queued, 100_000);
        let io = gate.1.lock_irq().take().expect("the read is held");
        io.succeed();
        group.wait(cx).unwrap();
    });
}

#[test]
fn a_device_that_forgets_a_request_fails_it() {
    Runtime::real(1).enter("test", |cx| {
        struct Careless(DeviceInfo);
        impl Device for Careless {
            fn info(&self) -> &DeviceInfo {
                &self.0
            }
            fn submit(&self, io: DeviceIo) {
                drop(io);
            }
            fn name(&self) -> String {
                "careless".to_owned()
            }
        }
        let queue = Queue::new(cx.runtime(), Arc::new(Careless(info(1))), Default::default());
        let error = queue.unwrap().read(cx, Sector(0), 512).unwrap_err();
        assert_eq!(error.to_string(), "read of 1 sectors at sector 0: the device never answered");
    });
}

#[test]
fn a_shifted_request_fails_in_the_numbers_of_its_issuer() {
    let seen = Arc::new(SpinLock::new(None));
    let theirs = seen.clone();
    let segs = [Segment::whole(Page::zeroed(1024))].into_iter().collect();
    let mut io = DeviceIo::new(Op::Read, Sector(5), segs, BioFlags::empty(), move |_, result| {
        *theirs.lock_irq() = Some(result);
    });
    io.shift(100);
    assert_eq!(io.sector, Sector(105));
    let error = io.error(block::Cause::Io);
    io.complete(Err(error));
    let error = seen.lock_irq().take().unwrap().unwrap_err();
    assert_eq!((error.sector, error.count), (Sector(5), 2));
}

#[derive(Clone, Debug)]
enum Step {
    Write { slot: u64, len: u64, flags: u16, plugged: bool },
    Read { slot: u64, len: u64 },
    Unplug,
    Finish { which: usize },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..120, 1u64..9, any::<u16>(), any::<bool>())
            .prop_map(|(slot, len, flags, plugged)| Step::Write { slot, len, flags, plugged }),
        3 => (0u64..120, 1u64..9).prop_map(|(slot, len)| Step::Read { slot, len }),
        1 => Just(Step::Unplug),
        4 => any::<usize>().prop_map(|which| Step::Finish { which }),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Goal: however bios merge, split, wait and complete, bytes end where they belong. Method:
    /// random bios, none of which overlaps one in flight, on a disk that completes in random order,
    /// beside a byte array; both elevators, small limits.
    #[test]
    fn bytes_end_where_they_belong(
        steps in prop::collection::vec(step(), 1..150),
        deadline in any::<bool>(),
        fua in any::<bool>(),
        depth in 1u32..4,
        max_sectors in 1u32..12,
        max_segments in 1u16..5,
    ) {
        let limits = DeviceInfo { max_bytes: max_sectors * 512, max_segments, ..info(depth) };
        let disk = Disk::held(DeviceInfo { volatile_cache: true, fua, ..limits });
        World::new(WorldConfig::default()).run("test", |cx| {
            let queue = queue(cx, &disk, if deadline { "deadline" } else { "none" });
            Script::new(disk.clone(), queue).play(cx, &steps);
        });
    }
}

/// The state of one random run.
struct Script {
    disk: Arc<Disk>,
    queue: Arc<Queue>,
    model: Vec<u8>,
    /// Sectors that a bio in flight touches.
    busy: Arc<SpinLock<Vec<bool>>>,
    ended: Arc<SpinLock<u32>>,
    submitted: u32,
    version: u8,
}

impl Script {
    fn new(disk: Arc<Disk>, queue: Arc<Queue>) -> Script {
        let model = disk.content();
        let busy = Arc::new(SpinLock::new(vec![false; 2048]));
        Script { disk, queue, model, busy, ended: Default::default(), submitted: 0, version: 0 }
    }

    /// Marks a range as in flight; false where it overlaps something that is.
    fn claim(&mut self, slot: u64, len: u64) -> bool {
        let mut busy = self.busy.lock_irq();
        let range = slot as usize..(slot + len) as usize;
        if busy[range.clone()].iter().any(|&busy| busy) {
            return false;
        }
        busy[range].fill(true);
        self.submitted += 1;
        true
    }

    /// The end of a bio on a claimed range; a read must find `expected`.
    fn end(&self, slot: u64, len: u64, expected: Option<Vec<u8>>) -> block::EndIo {
        let (busy, ended) = (self.busy.clone(), self.ended.clone());
        Box::new(move |done| {
            done.result.expect("the disk fails nothing");
            if let Some(expected) = expected {
                let bytes: Vec<u8> =
                    done.segs.iter().flat_map(|seg| seg.bytes().to_vec()).collect();
                assert!(bytes == expected, "read of {len} at {slot}");
            }
            busy.lock_irq()[slot as usize..(slot + len) as usize].fill(false);
            *ended.lock_irq() += 1;
        })
    }

    fn play(&mut self, cx: &mut rt::Cx, steps: &[Step]) {
        let mut plug = Plug::new();
        for step in steps {
            match *step {
                Step::Write { slot, len, flags, plugged } if self.claim(slot, len) => {
                    self.version = self.version.wrapping_add(1);
                    let bytes: Vec<u8> =
                        (0..len * 512).map(|at| self.version ^ (at / 512) as u8).collect();
                    self.model[slot as usize * 512..][..bytes.len()].copy_from_slice(&bytes);
                    let flags = if flags % 5 == 0 {
                        BioFlags::from_bits_truncate(flags)
                    } else {
                        BioFlags::empty()
                    };
                    // Half of the bios come in pieces of a sector, some as one page.
                    let chunk = if slot % 2 == 0 { 512 } else { bytes.len() };
                    let pages = bytes.chunks(chunk).map(Page::from_slice);
                    let bio = Bio::write(Sector(slot), pages, flags, self.end(slot, len, None));
                    match plugged {
                        true => self.queue.submit_plugged(cx, &mut plug, bio),
                        false => self.queue.submit(cx, bio),
                    }
                }
                Step::Read { slot, len } if self.claim(slot, len) => {
                    let expected = self.model[slot as usize * 512..][..len as usize * 512].to_vec();
                    let pages = (0..len).map(|_| Page::zeroed(512));
                    let end = self.end(slot, len, Some(expected));
                    self.queue.submit(cx, Bio::read(Sector(slot), pages, end));
                }
                Step::Unplug => plug.flush(cx),
                Step::Finish { which } => {
                    let held = self.disk.held_count();
                    if held > 0 {
                        self.disk.finish(which % held);
                    }
                }
                Step::Flush => {
                    self.submitted += 1;
                    let end = self.end(0, 0, None);
                    self.queue.submit(cx, Bio::flush(end));
                }
                _ => {}
            }
        }
        plug.finish(cx);
        self.disk.finish_all();
        self.queue.drain(cx);
        assert_eq!(*self.ended.lock_irq(), self.submitted, "every bio ends once");
        assert!(self.disk.content() == self.model);
    }
}

/// A disk that takes a seeded random time for each request, in virtual time.
struct Slow(Arc<Disk>, Runtime, SpinLock<Rng>);

impl Device for Slow {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }
    fn submit(&self, io: DeviceIo) {
        let disk = self.0.clone();
        let delay = Nanos::from_micros(self.2.lock_irq().range(50..5000));
        self.1.at(self.1.now() + delay, Box::new(move |_| disk.submit(io)));
    }
    fn name(&self) -> String {
        "slow".to_owned()
    }
}

/// One run of many tasks on a slow disk: the world's hash and the trace as text.
fn run(seed: u64, elevator: &str) -> (u64, String) {
    let mut world =
        World::new(WorldConfig { seed, order: rt::Order::Seeded, ..Default::default() });
    let text = world.run("main", |cx| {
        let rng = SpinLock::new(Rng::new(seed, 99));
        let disk = Disk::inline(DeviceInfo { volatile_cache: true, ..info(4) });
        let slow = Slow(disk, cx.runtime().clone(), rng);
        let mut config = QueueConfig { nr_requests: 8, trace_events: 10_000, ..Default::default() };
        config.elevator = elevator.to_owned();
        let queue = Queue::new(cx.runtime(), Arc::new(slow), config).unwrap();
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                let queue = queue.clone();
                cx.spawn("task", move |cx| {
                    for _ in 0..30 {
                        let sector = Sector(cx.random() % 2000);
                        match cx.random() % 8 {
                            0 => queue.flush(cx).unwrap(),
                            1..4 => queue.read(cx, sector, 1024).map(drop).unwrap(),
                            _ => {
                                let page = Page::zeroed(512);
                                queue.write(cx, sector, page, BioFlags::FUA).unwrap();
                            }
                        }
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join(cx));
        let events = queue.take_trace().0;
        events.iter().map(|event| format!("{event}\n")).collect::<String>()
    });
    (world.hash(), text)
}

#[test]
fn one_seed_gives_one_run() {
    for elevator in ["none", "deadline"] {
        let (hash, text) = run(1, elevator);
        assert_eq!(run(1, elevator), (hash, text.clone()));
        assert_ne!(run(2, elevator).0, hash);
        assert!(text.lines().count() > 500, "{text}");
    }
}

/// Goal: many threads in one queue lose nothing. Method: readers and writers on disjoint areas of a
/// device that completes inline, with less depth and fewer requests than tasks, in real time.
#[test]
fn many_tasks_share_a_narrow_queue() {
    rt::testing::real(|cx| {
        let disk = Disk::inline(DeviceInfo { volatile_cache: true, ..info(2) });
        let config = QueueConfig { nr_requests: 2, ..QueueConfig::elevator("deadline") };
        let queue = queue_with(cx, &disk, config);
        let tasks: Vec<_> = (0..8u64)
            .map(|task| {
                let queue = queue.clone();
                cx.spawn("task", move |cx| {
                    for round in 0..300u64 {
                        let sector = Sector(task * 256 + round % 200);
                        let page = Page::from_slice(&[(task * 31 + round) as u8; 512]);
                        let flags = if round % 16 == 0 { BioFlags::FUA } else { BioFlags::empty() };
                        queue.write(cx, sector, page.clone(), flags).unwrap();
                        assert!(queue.read(cx, sector, 512).unwrap()[..] == page[..]);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join(cx));
        queue.drain(cx);
        let stats = queue.stats();
        assert_eq!((stats.reads, stats.writes, stats.errors), (2400, 2400, 0));
        assert!(stats.in_flight_max <= 2);
    });
}
