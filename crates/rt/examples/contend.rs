//! Tasks that fight for one lock, in real time: `contend [TASKS] [HELD_NS] [BETWEEN_NS] [MS]`.
//! Prints how often the lock was taken in a second, the processor time of one turn, and how evenly
//! the turns were dealt out.

#![allow(clippy::disallowed_methods, reason = "measures real time")]

use rt::{Mutex, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Works for about so long without giving up the processor.
fn work(nanos: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_nanos(nanos) {
        std::hint::spin_loop();
    }
}

fn processor_time() -> Duration {
    // SAFETY: `time` is a valid place for one timespec.
    let time = unsafe {
        let mut time = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let mut next = |default: u64| numbers.next().unwrap_or(default);
    let (tasks, held, between, ms) = (next(2), next(1500), next(1000), next(500));
    Runtime::real(2).enter("contend", |cx| {
        let lock = Arc::new(Mutex::named("contended", ()));
        let stop = Arc::new(AtomicBool::new(false));
        let (start, before) = (Instant::now(), processor_time());
        let handles: Vec<_> = (0..tasks)
            .map(|_| {
                let (lock, stop) = (lock.clone(), stop.clone());
                cx.spawn("fighter", move |cx| {
                    let mut turns = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        let guard = lock.lock(cx);
                        work(held);
                        drop(guard);
                        turns += 1;
                        work(between);
                    }
                    turns
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(ms));
        stop.store(true, Ordering::Relaxed);
        let turns: Vec<u64> = handles.into_iter().map(|handle| handle.join(cx)).collect();
        let (took, used) = (start.elapsed(), processor_time() - before);
        let sum: u64 = turns.iter().sum();
        println!(
            "{tasks} tasks: {:.0} turns/s, {} ns of processor a turn, least {} most {}",
            sum as f64 / took.as_secs_f64(),
            used.as_nanos() as u64 / sum.max(1),
            turns.iter().min().unwrap_or(&0),
            turns.iter().max().unwrap_or(&0),
        );
    });
}
