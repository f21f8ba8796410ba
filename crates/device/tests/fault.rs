//! The fault device keeps its rules.

use base::{Nanos, Page, Sector};
use block::{BioFlags, Cause, Device, Op, Queue, QueueConfig, Segment};
use device::{Fault, FaultDevice, MemoryDevice, Rule};
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
