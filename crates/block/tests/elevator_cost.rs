//! What an elevator costs per request. No test asserts a time of the clock; this prints them:
//! `cargo test --release -p iopath-block --test elevator_cost -- --nocapture`.

// A cost is measured with the machine's clock.
#![allow(clippy::disallowed_methods)]

use base::{Page, Rng, Sector};
use block::{Bio, Device, DeviceInfo, DeviceIo, Op, Queue, QueueConfig, Segment, elevator};
use rt::{Runtime, SpinLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Holds what comes, moves no data.
struct Holder {
    info: DeviceInfo,
    held: SpinLock<Vec<DeviceIo>>,
}

impl Device for Holder {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        self.held.lock_irq().push(io);
    }

    fn name(&self) -> String {
        "holder".to_owned()
    }
}

/// Rounds of 64 bios of four contexts, one in four a write, through a device of depth 8.
fn requests(elevator: &str, rounds: u64) -> (u64, u64) {
    let runtime = Runtime::real_seeded(1, 1);
    runtime.enter("cost", |cx| {
        let info = DeviceInfo { depth: 8, rotational: true, ..DeviceInfo::plain(1 << 24) };
        let device = Arc::new(Holder { info, held: SpinLock::new(Vec::new()) });
        let queue = Queue::new(cx.runtime(), device.clone(), QueueConfig::elevator(elevator));
        let queue = queue.expect("a queue");
        if elevator != "none" {
            // An idle device would wait for a clock that nobody moves here.
            let _ = queue.set_tunable("slice_idle", "0");
        }
        let ended = Arc::new(AtomicU64::new(0));
        let mut rng = Rng::new(7, 0);
        let page = Page::zeroed(4096);
        let start = Instant::now();
        for _ in 0..rounds {
            for _ in 0..64 {
                let draw = rng.next_u64();
                let op = if draw & 3 == 0 { Op::Write } else { Op::Read };
                let segs = [Segment::whole(page.clone())].into_iter().collect();
                let ended = ended.clone();
                let end = Box::new(move |_| {
                    ended.fetch_add(1, Ordering::Relaxed);
                });
                let sector = Sector((draw >> 8) % (1 << 20) * 8);
                let mut bio = Bio::new(op, sector, segs, block::BioFlags::empty(), end);
                bio.ioc = 100 + (draw >> 4 & 3);
                queue.submit(cx, bio);
            }
            loop {
                let Some(io) = device.held.lock_irq().pop() else { break };
                io.succeed();
            }
        }
        (ended.load(Ordering::Relaxed), start.elapsed().as_nanos() as u64)
    })
}

#[test]
fn what_a_request_costs() {
    let rounds = if cfg!(debug_assertions) { 50 } else { 5000 };
    for name in elevator::names() {
        let (count, ns) = requests(name, rounds);
        assert_eq!(count, rounds * 64, "{name}: everything completes");
        println!("{name:10} {:6.0} ns per request", ns as f64 / count as f64);
    }
}
