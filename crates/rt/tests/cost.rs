//! What switches, spawns and locks cost on this machine. Prints; asserts no time.
//!
//! `cargo test --release -p iopath-rt --test cost -- --nocapture`

// The machine's clock is what is asked here.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use rt::*;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

fn per(what: &str, count: u64, f: impl FnOnce()) {
    let start = Instant::now();
    f();
    println!("{what:<44} {:>8.1} ns", start.elapsed().as_nanos() as f64 / count as f64);
}

/// Loops are short in debug builds: there they only keep the code from rotting.
fn scaled(count: u64) -> u64 {
    if cfg!(debug_assertions) { count / 100 } else { count }
}

fn uncontended(cx: &mut Cx, clock: &str) {
    let n = scaled(10_000_000);
    let mutex = Mutex::named("cost", 0u64);
    per(&format!("{clock}: uncontended mutex"), n, || (0..n).for_each(|_| *mutex.lock(cx) += 1));
    let rw = RwLock::named("cost", 0u64);
    per(&format!("{clock}: uncontended read lock"), n, || {
        (0..n).for_each(|_| drop(black_box(rw.read(cx))))
    });
    let spin = SpinLock::named("cost", 0u64);
    per(&format!("{clock}: uncontended spin lock"), n, || (0..n).for_each(|_| *spin.lock(cx) += 1));
    per(&format!("{clock}: now"), n, || {
        (0..n).for_each(|_| {
            black_box(cx.now());
        })
    });
    per(&format!("{clock}: realtime"), n, || {
        (0..n).for_each(|_| {
            black_box(cx.realtime());
        })
    });
    let queue = WaitQueue::new();
    per(&format!("{clock}: wake without waiters"), n, || (0..n).for_each(|_| queue.wake_one()));
}

#[test]
fn cost_of_uncontended_operations() {
    testing::real(|cx| uncontended(cx, "real"));
    testing::world(|cx| uncontended(cx, "virtual"));
}

#[test]
fn cost_of_virtual_tasks() {
    let n = scaled(2_000_000);
    for order in [Order::Fifo, Order::Seeded] {
        let mut world = World::new(WorldConfig { order, ..WorldConfig::default() });
        world.run("main", |cx| {
            let other = cx.spawn("other", move |cx| (0..n / 2).for_each(|_| cx.yield_now()));
            per(&format!("virtual: yield, 2 tasks, {order:?}"), n, || {
                (0..n / 2).for_each(|_| cx.yield_now());
                other.join(cx);
            });
        });
    }
    testing::world(|cx| {
        let pair = Arc::new((WaitQueue::new(), WaitQueue::new(), SpinLock::new(0u64)));
        let theirs = pair.clone();
        let other = cx.spawn("other", move |cx| {
            for turn in 0..n / 2 {
                theirs.1.wait_until(cx, "pong", || *theirs.2.lock_irq() == 2 * turn + 1);
                *theirs.2.lock(cx) += 1;
                theirs.0.wake_one();
            }
        });
        per("virtual: ping-pong over wait queues, a switch", n, || {
            for turn in 0..n / 2 {
                *pair.2.lock(cx) += 1;
                pair.1.wake_one();
                pair.0.wait_until(cx, "ping", || *pair.2.lock_irq() == 2 * turn + 2);
            }
            other.join(cx);
        });
    });
    testing::world(|cx| per("virtual: sleep", n, || (0..n).for_each(|_| cx.sleep(Nanos(10)))));
    testing::world(|cx| per("virtual: charge", n, || (0..n).for_each(|_| cx.charge(Nanos(10)))));
    testing::world(|cx| {
        per("virtual: spawn and join", n, || {
            (0..n).for_each(|_| cx.spawn("child", |_| ()).join(cx))
        })
    });
    let mut world = World::new(WorldConfig::default());
    let n = scaled(1_000_000);
    world.run("main", |cx| {
        per("virtual: 10,000 tasks sleeping in turn, a switch", n, || {
            let nap = move |cx: &mut Cx| (0..n / 10_000).for_each(|i| cx.sleep(Nanos(i * 7 + 1)));
            let tasks: Vec<_> = (0..10_000).map(|_| cx.spawn("napper", nap)).collect();
            tasks.into_iter().for_each(|t| t.join(cx));
        });
    });
    println!("{:?}", world.stats());
}

#[test]
fn cost_of_real_tasks() {
    testing::real(|cx| {
        let n = scaled(20_000);
        per("real: spawn and join", n, || (0..n).for_each(|_| cx.spawn("child", |_| ()).join(cx)));
        let lock = Arc::new(Mutex::named("contended", 0u64));
        let n = scaled(2_000_000);
        per("real: mutex contended by 4 threads", n, || {
            let add = |cx: &Cx| {
                let lock = lock.clone();
                cx.spawn("adder", move |cx| (0..n / 4).for_each(|_| *lock.lock(cx) += 1))
            };
            let tasks: Vec<_> = (0..4).map(|_| add(cx)).collect();
            tasks.into_iter().for_each(|t| t.join(cx));
        });
    });
}
