//! The modelled device keeps its times, and the fault device its rules.

use base::{Nanos, Page, Sector};
use block::{Bio, BioFlags, Cause, Device, IoGroup, Op, Queue, QueueConfig, Segment};
use device::{
    Cut, Fault, FaultDevice, MemoryDevice, RecordDevice, Rule, SimCache, SimDevice, SimParams,
};
use rt::{Cx, World, WorldConfig};
use std::sync::Arc;

const SIZE: u64 = 64 << 20;
const NONE: BioFlags = BioFlags::empty();

fn world<T>(f: impl FnOnce(&mut Cx) -> T) -> T {
    World::new(WorldConfig::default()).run("test", f)
}

fn page(value: u8) -> Page {
    Page::from_slice(&[value; 4096])
}

/// 1 ms a command, 4.096 MB/s, 2 to 10 ms a seek, no cache.
fn plain() -> SimParams {
    SimParams {
        latency: Nanos::from_millis(1),
        read_bandwidth: 4_096_000,
        write_bandwidth: 4_096_000,
        seek_min: Nanos::from_millis(2),
        seek_max: Nanos::from_millis(10),
        depth: 8,
        channels: 1,
        cache: None,
        flush_latency: Nanos::from_millis(3),
        fua: false,
    }
}

fn queue(cx: &Cx, params: SimParams) -> Arc<Queue> {
    let device = SimDevice::new(cx.runtime(), params, Arc::new(MemoryDevice::new(SIZE)));
    Queue::new(cx.runtime(), Arc::new(device), QueueConfig::default()).unwrap()
}

/// Virtual milliseconds that `f` takes.
fn took(cx: &mut Cx, f: impl FnOnce(&mut Cx)) -> f64 {
    let before = cx.now();
    f(cx);
    cx.now().since(before).0 as f64 / 1e6
}

#[test]
fn a_request_takes_latency_seek_and_transfer() {
    world(|cx| {
        let queue = queue(cx, plain());
        let last = Sector(SIZE / 512 - 8);
        let read = |cx: &mut Cx, at| took(cx, |cx| drop(queue.read(cx, at, 4096).unwrap()));
        assert_eq!(read(cx, Sector(0)), 2.0, "in place: 1 ms and 4 KiB at 4.096 MB/s");
        assert_eq!(read(cx, Sector(8)), 2.0, "next in order");
        let across = read(cx, last);
        assert!((11.99..=12.0).contains(&across), "across the device: {across}");
        let quarter = read(cx, Sector(SIZE / 512 / 4 * 3));
        assert!((2.0 + 2.0 + 3.99..2.0 + 2.0 + 4.01).contains(&quarter), "root of 1/4: {quarter}");
    });
}

#[test]
fn channels_serve_at_once_and_one_serves_in_turn() {
    for (channels, expected) in [(1, 16.0), (4, 4.0), (8, 2.0)] {
        world(|cx| {
            let seek = Nanos::ZERO;
            let params = SimParams { channels, seek_min: seek, seek_max: seek, ..plain() };
            let queue = queue(cx, params);
            let time = took(cx, |cx| {
                let group = IoGroup::new();
                for index in 0..8 {
                    queue.submit(cx, Bio::read(Sector(index * 100), [page(0)], group.end()));
                }
                group.wait(cx).unwrap();
            });
            assert_eq!(time, expected, "{channels} channels");
        });
    }
}

/// Goal: the cache takes writes at its own speed until it is full; a flush waits for the medium.
#[test]
fn the_cache_hides_the_medium_until_it_is_full_or_flushed() {
    world(|cx| {
        let (latency, bandwidth) = (Nanos::from_micros(100), 4_096_000_000);
        let cache = Some(SimCache { bytes: 16 << 10, latency, bandwidth });
        let queue = queue(cx, SimParams { cache, ..plain() });
        let write = |cx: &mut Cx, at: u64| {
            took(cx, |cx| queue.write(cx, Sector(at * 8), page(1), NONE).unwrap())
        };
        let fast: Vec<f64> = (0..4).map(|at| write(cx, at)).collect();
        assert_eq!(fast, [0.101; 4], "four fit");
        let full = write(cx, 4);
        assert!(full > 1.0, "the fifth waits for room: {full}");
        let flush = took(cx, |cx| queue.flush(cx).unwrap());
        assert_eq!(flush, 10.899, "4 commands of 2 ms, since 0.101 ms, and 3 ms");
        let flush = took(cx, |cx| queue.flush(cx).unwrap());
        assert_eq!(flush, 3.0, "nothing left to write");
    });
}

#[test]
fn the_model_works_in_real_time_too() {
    rt::testing::real(|cx| {
        let queue = queue(cx, SimParams::flash());
        queue.write(cx, Sector(8), page(3), BioFlags::FUA).unwrap();
        assert_eq!(queue.read(cx, Sector(8), 4096).unwrap()[0], 3);
        queue.flush(cx).unwrap();
        assert!(queue.stats().read_latency.min() >= Nanos::from_micros(80));
    });
}

/// Goal: a record in front of a model knows what was in flight. Method: writes without waiting, one
/// flush among them; every cut keeps what the flush covers.
#[test]
fn a_record_of_a_model_knows_what_overlaps() {
    world(|cx| {
        let memory = Arc::new(MemoryDevice::new(SIZE));
        let params = SimParams { channels: 4, cache: SimParams::disk().cache, ..plain() };
        let model = Arc::new(SimDevice::new(cx.runtime(), params, memory));
        let record = Arc::new(RecordDevice::new(model));
        let queue = Queue::new(cx.runtime(), record.clone(), QueueConfig::default()).unwrap();
        queue.write(cx, Sector(0), page(1), NONE).unwrap();
        let group = IoGroup::new();
        for index in 1..6 {
            let bio = Bio::write(Sector(index * 100), [page(2)], NONE, group.end());
            queue.submit(cx, bio);
        }
        queue.submit(cx, Bio::flush(group.end()));
        group.wait(cx).unwrap();
        let log = record.log();
        assert_eq!(log.entries.len(), 7);
        assert_eq!(log.unflushed(7).len(), 5, "they had not completed when the flush began");
        assert!(log.in_flight(1).len() == 5, "all came before the next completed");
        let base = vec![0; SIZE as usize];
        for cut in log.cuts_at_flushes() {
            let image = log.image_after(&base, &cut);
            assert!(cut.upto == 0 || cut.drop.contains(&0) || image[0] == 1);
        }
        let lost = Cut { upto: 7, drop: log.unflushed(7), ..Cut::default() };
        assert_eq!(log.image_after(&base, &lost)[51200], 0);
    });
}

fn faulty(cx: &Cx) -> (Arc<FaultDevice>, Arc<MemoryDevice>, Arc<Queue>) {
    let memory = Arc::new(MemoryDevice::new(SIZE));
    let faults = Arc::new(FaultDevice::new(cx.runtime(), memory.clone()));
    let queue = Queue::new(cx.runtime(), faults.clone(), QueueConfig::default()).unwrap();
    (faults, memory, queue)
}

fn byte(memory: &MemoryDevice, sector: u64) -> u8 {
    let mut bytes = [0; 512];
    memory.read_at(sector * 512, &mut bytes);
    bytes[0]
}

#[test]
fn errors_come_where_and_when_the_rule_says() {
    world(|cx| {
        let (faults, memory, queue) = faulty(cx);
        faults.add(Rule::on(Op::Read, 12..14, Fault::Fail(Cause::Io)));
        faults.add(Rule::nth(Op::Write, 1, Fault::Fail(Cause::NoSpace)));
        queue.write(cx, Sector(8), page(1), NONE).unwrap();
        let error = queue.write(cx, Sector(8), page(2), NONE).unwrap_err();
        assert_eq!((error.cause, error.count, byte(&memory, 8)), (Cause::NoSpace, 8, 1));
        queue.write(cx, Sector(8), page(3), NONE).unwrap();
        let error = queue.read(cx, Sector(8), 4096).unwrap_err();
        assert_eq!((error.sector, error.count), (Sector(12), 2));
        assert_eq!(queue.read(cx, Sector(8), 2048).unwrap()[0], 3);
        assert_eq!(faults.hits(), 2);
    });
}

#[test]
fn writes_are_lost_torn_and_misdirected_in_silence() {
    world(|cx| {
        let (faults, memory, queue) = faulty(cx);
        let mut write = |fault, sector| {
            faults.clear();
            faults.add(Rule::always(fault));
            queue.write(cx, Sector(sector), page(7), NONE).unwrap();
        };
        write(Fault::Lost, 0);
        write(Fault::Torn(3), 8);
        write(Fault::Misdirected(16), 16);
        write(Fault::Delay(Nanos::from_secs(5)), 100);
        let content: Vec<u8> = [0, 8, 10, 11, 16, 32, 39, 100].map(|at| byte(&memory, at)).into();
        assert_eq!(content, [0, 7, 7, 0, 0, 7, 7, 7]);
        assert_eq!(cx.now(), Nanos::from_secs(5));
        faults.clear();
        faults.add(Rule::nth(Op::Read, 0, Fault::BitFlip));
        let ones = |page: Page| page.iter().map(|byte| byte.count_ones()).sum::<u32>();
        assert_eq!(ones(queue.read(cx, Sector(200), 4096).unwrap()), 1);
        assert_eq!(ones(queue.read(cx, Sector(200), 4096).unwrap()), 0, "the medium is whole");
    });
}

#[test]
fn after_a_power_cut_nothing_works_until_it_is_back() {
    world(|cx| {
        let (faults, memory, queue) = faulty(cx);
        faults.add(Rule::nth(Op::Write, 2, Fault::PowerCut));
        let result: Vec<bool> = (0..5)
            .map(|at| queue.write(cx, Sector(at * 8), page(at as u8 + 1), NONE).is_ok())
            .collect();
        assert_eq!(result, [true, true, false, false, false]);
        let segs = [Segment::whole(page(0))].into_iter().collect();
        let error = queue.execute(cx, Op::Read, Sector(0), segs, NONE).result.unwrap_err();
        assert_eq!(error.cause, Cause::PowerLost);
        assert_eq!([0, 8, 16].map(|at| byte(&memory, at)), [1, 2, 0]);
        faults.restore_power();
        assert_eq!(queue.read(cx, Sector(8), 4096).unwrap()[0], 2);
        assert!(faults.name().starts_with("faults on memory"));
    });
}
