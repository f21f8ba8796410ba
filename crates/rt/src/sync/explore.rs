//! The real-time primitives under explored thread schedules.
//!
//! ```text
//! RUSTFLAGS="--cfg iopath_shuttle" \
//!     cargo test -p iopath-rt --lib explore --target-dir target/shuttle
//! ```
//! (at the root of the workspace)
//!
//! Each test runs thousands of random schedules (`IOPATH_SCHEDULES`), and as many with few
//! preemptions at chosen places (PCT); every atomic operation is a place to switch. The explorer
//! itself finds deadlocks, and with them lost wakes.

use crate::*;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

fn explore(body: impl Fn(&mut Cx) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let run = move || Runtime::real_seeded(2, 1).enter("main", |cx| body(cx));
    let count = std::env::var("IOPATH_SCHEDULES").ok().and_then(|n| n.parse().ok());
    let count = count.unwrap_or(3000);
    shuttle::check_random(run.clone(), count);
    shuttle::check_pct(run, count, 3);
}

/// Runs `count` tasks and waits for them all.
fn together(cx: &mut Cx, count: usize, f: impl Fn(usize, &mut Cx) + Send + Sync + 'static) {
    let f = Arc::new(f);
    let spawn = |i| {
        let f = f.clone();
        cx.spawn("task", move |cx| f(i, cx))
    };
    let tasks: Vec<_> = (0..count).map(spawn).collect();
    tasks.into_iter().for_each(|t| t.join(cx));
}

#[test]
fn a_spin_lock_excludes() {
    explore(|cx| {
        let sum = Arc::new(SpinLock::new(0));
        let sum2 = sum.clone();
        together(cx, 3, move |_, cx| {
            *sum2.lock(cx) += 1;
            if let Some(mut sum) = sum2.try_lock() {
                *sum += 0;
            }
        });
        assert_eq!(*sum.lock(cx), 3);
    });
}

#[test]
fn a_wake_is_never_lost() {
    explore(|cx| {
        let ready = Arc::new(AtomicBool::new(false));
        let (waker, ready2) = (cx.waker(), ready.clone());
        let task = cx.spawn("waker", move |_| {
            ready2.store(true, Ordering::SeqCst);
            waker.wake();
            waker.wake();
        });
        while !ready.load(Ordering::SeqCst) {
            cx.park("ready", 0);
        }
        task.join(cx);
    });
}

#[test]
fn a_mutex_excludes_and_is_handed_on() {
    explore(|cx| {
        let state = Arc::new((Mutex::new(0), AtomicU64::new(0)));
        let state2 = state.clone();
        together(cx, 3, move |_, cx| {
            for _ in 0..2 {
                let mut sum = state2.0.lock(cx);
                assert_eq!(state2.1.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                *sum += 1;
                state2.1.fetch_sub(1, Ordering::SeqCst);
            }
            drop(state2.0.try_lock());
        });
        assert_eq!(*state.0.lock(cx), 6);
        assert!(!state.0.is_locked());
    });
}

#[test]
fn a_rwlock_keeps_readers_and_writers_apart() {
    explore(|cx| {
        // Low half: readers inside. High half: writers inside.
        let state = Arc::new((RwLock::new(0), AtomicU64::new(0)));
        let state2 = state.clone();
        const WRITER: u64 = 1 << 32;
        together(cx, 4, move |i, cx| {
            if i < 2 {
                let mut sum = state2.0.write(cx);
                assert_eq!(state2.1.fetch_add(WRITER, Ordering::SeqCst), 0, "a writer is alone");
                *sum += 1;
                if i == 0 {
                    state2.1.fetch_add(1u64.wrapping_sub(WRITER), Ordering::SeqCst);
                    let sum = sum.downgrade();
                    state2.1.fetch_sub(1, Ordering::SeqCst);
                    drop(sum);
                } else {
                    state2.1.fetch_sub(WRITER, Ordering::SeqCst);
                }
            } else {
                for _ in 0..2 {
                    let sum = state2.0.read(cx);
                    assert!(state2.1.fetch_add(1, Ordering::SeqCst) < WRITER, "with a writer");
                    state2.1.fetch_sub(1, Ordering::SeqCst);
                    drop(sum);
                }
            }
        });
        assert_eq!(*state.0.read(cx), 2);
        assert!(!state.0.is_locked());
    });
}

#[test]
fn a_writer_goes_when_the_holder_has_done_its_work() {
    explore(|cx| {
        // Who has the lock does what the others have asked for.
        let state = Arc::new((RwLock::new(0), SpinLock::new(Vec::<Arc<AtomicBool>>::new())));
        let state2 = state.clone();
        together(cx, 3, move |_, cx| {
            let done = Arc::new(AtomicBool::new(false));
            state2.1.lock(cx).push(done.clone());
            let (lock, asked) = (&state2.0, &state2.1);
            if let Some(mut sum) = lock.write_unless(cx, || done.load(Ordering::SeqCst)) {
                for other in std::mem::take(&mut *asked.lock(cx)) {
                    *sum += 1;
                    other.store(true, Ordering::SeqCst);
                }
            }
            assert!(done.load(Ordering::SeqCst));
        });
        assert_eq!(*state.0.read(cx), 3);
        assert!(!state.0.is_locked());
    });
}

#[test]
fn a_wait_queue_wakes_one_for_one() {
    explore(|cx| {
        let state = Arc::new((WaitQueue::new(), AtomicU64::new(0)));
        let state2 = state.clone();
        together(cx, 5, move |i, cx| {
            if i < 2 {
                state2.1.fetch_add(1, Ordering::SeqCst);
                state2.0.wake_one();
            } else if i == 2 {
                // One token of two comes at once with a wake of all.
                state2.1.fetch_add(1, Ordering::SeqCst);
                state2.0.wake_all();
            }
            if i >= 2 {
                state2.0.wait_until(cx, "a token", || {
                    let take = |n: u64| n.checked_sub(1);
                    state2.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
                });
            }
        });
        assert_eq!(state.1.load(Ordering::SeqCst), 0);
        assert!(!state.0.has_waiters());
    });
}

#[test]
fn a_completion_delivers_once() {
    explore(|cx| {
        let done = Arc::new(Completion::new());
        let done2 = done.clone();
        let task = cx.spawn("completer", move |_| done2.complete(5));
        assert_eq!(done.wait(cx), 5);
        assert!(done.is_done());
        task.join(cx);
    });
}

#[test]
fn a_semaphore_counts() {
    explore(|cx| {
        let state = Arc::new((Semaphore::new(2), AtomicU64::new(0)));
        let state2 = state.clone();
        together(cx, 4, move |i, cx| {
            let count = if i == 0 { 2 } else { 1 };
            state2.0.acquire_many(cx, count);
            assert!(state2.1.fetch_add(count, Ordering::SeqCst) + count <= 2);
            state2.1.fetch_sub(count, Ordering::SeqCst);
            state2.0.release(count);
        });
        assert_eq!(state.0.available(), 2);
    });
}

#[test]
fn a_channel_delivers_everything_and_ends() {
    explore(|cx| {
        let channel = Arc::new(Channel::new(1));
        let got = Arc::new(SpinLock::new(Vec::new()));
        let (theirs, got2, left) = (channel.clone(), got.clone(), AtomicU64::new(2));
        together(cx, 4, move |i, cx| {
            if i < 2 {
                for n in 0..2 {
                    theirs.send(cx, i * 10 + n).expect("open until both have sent");
                }
                if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    theirs.close();
                }
            } else {
                while let Some(n) = theirs.recv(cx) {
                    got2.lock(cx).push(n);
                }
            }
        });
        let mut got = got.lock(cx).clone();
        got.sort();
        assert_eq!(got, [0, 1, 10, 11]);
        assert_eq!(channel.try_recv(), Err(TryRecvError::Closed));
    });
}
