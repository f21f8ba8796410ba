//! The same facts in real and in virtual time.

// Several OS threads are part of the facts.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use rt::testing::both;
use rt::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Goal: a mutex lets one task in at a time, whatever happens inside. Method: tasks add to a
/// counter with a wait between reading and writing it.
#[test]
fn a_mutex_excludes() {
    both(|cx| {
        let sum = Arc::new(Mutex::named("sum", 0u64));
        let tasks: Vec<_> = (0..4)
            .map(|i| {
                let sum = sum.clone();
                cx.spawn(&format!("adder {i}"), move |cx| {
                    for round in 0..100 {
                        let mut guard = sum.lock(cx);
                        let seen = *guard;
                        if round % 10 == 0 {
                            cx.yield_now();
                        }
                        *guard = seen + 1;
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|t| t.join(cx));
        assert_eq!(*sum.lock(cx), 400);
        assert!(!sum.is_locked());
    });
}

/// Goal: writers are alone, readers are not kept out by readers, and a downgraded writer shares.
#[test]
fn a_rwlock_shares_between_readers_only() {
    both(|cx| {
        let lock = Arc::new(RwLock::named("pair", (0u64, 0u64)));
        let tasks: Vec<_> = (0..6)
            .map(|i| {
                let lock = lock.clone();
                cx.spawn(&format!("task {i}"), move |cx| {
                    for _ in 0..50 {
                        if i < 2 {
                            let mut pair = lock.write(cx);
                            pair.0 += 1;
                            cx.yield_now();
                            pair.1 += 1;
                            let pair = pair.downgrade();
                            assert_eq!(pair.0, pair.1);
                        } else {
                            let pair = lock.read(cx);
                            cx.yield_now();
                            assert_eq!(pair.0, pair.1, "a reader saw half a change");
                        }
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|t| t.join(cx));
        let one = lock.read(cx);
        let other = lock.try_read().expect("readers share");
        assert_eq!((one.0, other.1), (100, 100));
        assert!(lock.try_write().is_none());
    });
}

/// Goal: readers that queued behind a writer get in together. Method: each stays inside until the
/// other is there too.
#[test]
fn queued_readers_get_in_together() {
    both(|cx| {
        let lock = Arc::new(RwLock::named("shared", ()));
        let inside = Arc::new((WaitQueue::new(), AtomicU64::new(0)));
        for downgrade in [false, true] {
            inside.1.store(0, Ordering::SeqCst);
            let writer = lock.write(cx);
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    let (lock, inside) = (lock.clone(), inside.clone());
                    cx.spawn("reader", move |cx| {
                        let _guard = lock.read(cx);
                        inside.1.fetch_add(1, Ordering::SeqCst);
                        inside.0.wake_all();
                        let all = || inside.1.load(Ordering::SeqCst) == 3;
                        inside.0.wait_until(cx, "the others", all);
                    })
                })
                .collect();
            cx.sleep(Nanos::from_millis(2));
            let shared = if downgrade { Some(writer.downgrade()) } else { drop_guard(writer) };
            readers.into_iter().for_each(|t| t.join(cx));
            drop(shared);
        }
    });
}

fn drop_guard<'a>(guard: WriteGuard<'_, ()>) -> Option<ReadGuard<'a, ()>> {
    drop(guard);
    None
}

/// Goal: no waiter starves behind a task that takes the lock again and again. Method: the greedy
/// task stops only once the other has had the lock.
#[test]
fn a_waiter_gets_the_lock_from_a_greedy_task() {
    both(|cx| {
        let lock = Arc::new(Mutex::named("wanted", ()));
        let had = Arc::new(AtomicBool::new(false));
        let (lock2, had2) = (lock.clone(), had.clone());
        let modest = cx.spawn("modest", move |cx| {
            let _guard = lock2.lock(cx);
            had2.store(true, Ordering::SeqCst);
        });
        while !had.load(Ordering::SeqCst) {
            let _guard = lock.lock(cx);
            cx.charge(Nanos(100));
        }
        modest.join(cx);
    });
}

/// Goal: neither a writer nor a reader starves behind tasks that hand a lock to one another without
/// ever sleeping. Method: the greedy ones stop only once every modest one has had its turns.
#[test]
fn waiters_get_their_turns_among_greedy_tasks() {
    const MODEST: u64 = 4;
    const TURNS: u64 = 3;
    both(|cx| {
        let lock = Arc::new(RwLock::named("wanted", 0u64));
        let left = Arc::new(AtomicU64::new(MODEST));
        let spawn = |i: u64| {
            let (lock, left) = (lock.clone(), left.clone());
            cx.spawn(&format!("task {i}"), move |cx| {
                for turn in 0.. {
                    if i >= MODEST && left.load(Ordering::SeqCst) == 0 {
                        break;
                    }
                    if i.is_multiple_of(2) {
                        *lock.write(cx) += 1;
                    } else {
                        let guard = lock.read(cx);
                        cx.charge(Nanos(100));
                        drop(guard);
                    }
                    cx.charge(Nanos(100));
                    if i < MODEST && turn + 1 == TURNS {
                        left.fetch_sub(1, Ordering::SeqCst);
                        break;
                    }
                }
            })
        };
        let tasks: Vec<_> = (0..MODEST + 4).map(spawn).collect();
        tasks.into_iter().for_each(|task| task.join(cx));
        assert!(*lock.read(cx) >= MODEST / 2 * TURNS);
        assert!(!lock.is_locked());
    });
}

/// Goal: work that waiters leave to the holder of a lock is done once, and everybody comes back.
/// Method: more tasks than processors ask, and do what was asked for while they have the lock.
#[test]
fn a_holder_does_the_work_of_those_who_wait() {
    both(|cx| {
        let state = Arc::new((RwLock::named("sum", 0u64), SpinLock::new(Vec::new())));
        let tasks: Vec<_> = (0..6)
            .map(|i| {
                let state = state.clone();
                cx.spawn(&format!("task {i}"), move |cx| {
                    for round in 0..200 {
                        let done = Arc::new(AtomicBool::new(false));
                        state.1.lock(cx).push(done.clone());
                        let finished = || done.load(Ordering::SeqCst);
                        let Some(mut sum) = state.0.write_unless(cx, finished) else { continue };
                        if round % 16 == 0 {
                            cx.yield_now();
                        }
                        let asked = std::mem::take(&mut *state.1.lock(cx));
                        for other in asked {
                            *sum += 1;
                            other.store(true, Ordering::SeqCst);
                        }
                        assert!(done.load(Ordering::SeqCst), "asked before the lock was had");
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join(cx));
        assert_eq!(*state.0.read(cx), 1200);
        assert!(!state.0.is_locked() && state.1.lock(cx).is_empty());
    });
}

/// Goal: a lock whose holder sleeps again and again is passed on to each of many tasks. Method:
/// more tasks than processors, each sleeps inside.
#[test]
fn a_holder_that_sleeps_does_not_keep_waiters_out() {
    both(|cx| {
        let lock = Arc::new(Mutex::named("slow", 0u64));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let lock = lock.clone();
                cx.spawn("sleeper", move |cx| {
                    for _ in 0..10 {
                        let mut sum = lock.lock(cx);
                        cx.park_timeout("nothing", 0, Nanos::from_micros(50));
                        *sum += 1;
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join(cx));
        assert_eq!(*lock.lock(cx), 80);
    });
}

/// Goal: a wake before the park is not lost, several wakes are one permit, and a park with a
/// timeout ends by itself.
#[test]
fn a_wake_before_the_park_is_kept_as_one_permit() {
    both(|cx| {
        cx.waker().wake();
        cx.waker().wake();
        cx.park("the permit", 0);
        let before = cx.now();
        cx.park_timeout("nobody", 1, Nanos::from_millis(2));
        assert!(cx.now().since(before) >= Nanos::from_millis(2), "a second permit was left");
        let waker = cx.waker();
        cx.runtime().at(cx.now() + Nanos::from_millis(1), Box::new(move |_| waker.wake()));
        cx.park("the timer", 2);
    });
}

/// Goal: a wait queue's waiters see the condition, one wake frees one, a timeout ends the wait.
#[test]
fn a_wait_queue_waits_for_its_condition() {
    both(|cx| {
        let state = Arc::new((WaitQueue::named("tokens"), AtomicU64::new(0)));
        let tasks: Vec<_> = (0..3)
            .map(|i| {
                let state = state.clone();
                cx.spawn(&format!("taker {i}"), move |cx| {
                    state.0.wait_until(cx, "a token", || {
                        let take = |n: u64| n.checked_sub(1);
                        state.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
                    })
                })
            })
            .collect();
        for _ in 0..3 {
            cx.sleep(Nanos::from_micros(200));
            state.1.fetch_add(1, Ordering::SeqCst);
            state.0.wake_one();
        }
        tasks.into_iter().for_each(|t| t.join(cx));
        let start = cx.now();
        assert!(!state.0.wait_until_timeout(cx, "nothing", Nanos::from_millis(1), || false));
        assert!(cx.now().since(start) >= Nanos::from_millis(1));
        assert!(!state.0.has_waiters());
    });
}

/// Goal: a completion delivers from event context, a semaphore counts and keeps the order, a
/// channel is bounded and ends when it is closed.
#[test]
fn completions_semaphores_and_channels_deliver() {
    both(|cx| {
        let done = Arc::new(Completion::new());
        let done2 = done.clone();
        let when = cx.now() + Nanos::from_micros(50);
        cx.runtime().at(when, Box::new(move |now| done2.complete(now)));
        assert!(done.wait(cx) >= when);

        let permits = Arc::new(Semaphore::new(2));
        let channel = Arc::new(Channel::named("numbers", 3));
        let producers: Vec<_> = (0..2)
            .map(|p| {
                let (channel, permits) = (channel.clone(), permits.clone());
                cx.spawn("producer", move |cx| {
                    permits.acquire(cx);
                    for i in 0..100u64 {
                        channel.send(cx, p * 1000 + i).expect("the channel is open");
                        assert!(channel.len() <= 3);
                    }
                    permits.release(1);
                })
            })
            .collect();
        let consumer = channel.clone();
        let consumer = cx.spawn("consumer", move |cx| {
            let mut got = Vec::new();
            while let Some(n) = consumer.recv(cx) {
                got.push(n);
            }
            got
        });
        producers.into_iter().for_each(|t| t.join(cx));
        channel.close();
        assert_eq!(channel.try_send(1), Err(TrySendError::Closed(1)));
        let got = consumer.join(cx);
        let of = |p: u64| got.iter().copied().filter(|n| n / 1000 == p).collect::<Vec<_>>();
        assert_eq!(of(0), (0..100).collect::<Vec<_>>(), "order within a producer");
        assert_eq!(of(1), (1000..1100).collect::<Vec<_>>());
        assert_eq!(permits.available(), 2);
        permits.acquire_many(cx, 2);
        assert!(!permits.try_acquire());
    });
}

/// Goal: a cancelled timer does not fire, one that is due fires once, in order of time.
#[test]
fn timers_fire_in_order_unless_cancelled() {
    both(|cx| {
        let fired = Arc::new(SpinLock::new(Vec::new()));
        let rt = cx.runtime().clone();
        let start = cx.now();
        let ids: Vec<_> = [3u64, 1, 2]
            .iter()
            .map(|&ms| {
                let fired = fired.clone();
                let f = move |_| fired.lock_irq().push(ms);
                rt.at(start + Nanos::from_millis(ms * 5), Box::new(f))
            })
            .collect();
        assert!(rt.cancel(ids[2]));
        assert!(!rt.cancel(ids[2]));
        cx.sleep(Nanos::from_millis(60));
        assert_eq!(*fired.lock(cx), [1, 3]);
        assert!(!rt.cancel(ids[0]));
    });
}

/// Goal: a task inherits credentials, has its own id, I/O context, processor and random stream.
#[test]
fn a_task_has_an_identity() {
    both(|cx| {
        let old = cx.set_cred(Cred::user(1000, 100));
        assert!(old.is_root());
        let parent = (cx.task(), cx.ioc(), cx.random());
        let child = cx.spawn("child", |cx| {
            assert_eq!((cx.cred().uid, cx.name()), (1000, "child"));
            assert!(cx.cpu() < cx.runtime().cpus());
            (cx.task(), cx.ioc(), cx.random())
        });
        let child_id = child.task();
        let child = child.join(cx);
        assert_eq!(child.0, child_id);
        assert!(child.0 != parent.0 && child.1 != parent.1 && child.2 != parent.2);
        assert!(cx.realtime().sec > 1_700_000_000);
    });
}

/// Goal: several OS threads may be tasks of one runtime at once.
#[test]
fn threads_enter_a_real_runtime_together() {
    let rt = Runtime::real(2);
    let sum = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| rt.enter("guest", |cx| (0..1000).for_each(|_| *sum.lock(cx) += 1)));
        }
    });
    assert_eq!(sum.into_inner(), 4000);
}

/// Goal: in real time a panic comes out of the join.
#[test]
fn a_panic_of_a_thread_comes_out_of_its_join() {
    testing::real(|cx| {
        let task = cx.spawn("doomed", |_| panic!("as intended"));
        let join = std::panic::AssertUnwindSafe(|| task.join(cx));
        let panic = std::panic::catch_unwind(join).expect_err("the panic is propagated");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"as intended"));
    });
}

/// Goal: those who keep state per I/O context hear of the end of each task's own context once, and
/// priorities are inherited. Method: three tasks, one of which works for another context.
#[test]
fn the_end_of_an_io_context_is_told_once() {
    struct Book(SpinLock<Vec<u64>>);
    impl OnIocExit for Book {
        fn ioc_exit(self: Arc<Self>, ioc: u64) {
            self.0.lock_irq().push(ioc);
        }
    }
    both(|cx| {
        let book = Arc::new(Book(SpinLock::new(Vec::new())));
        let hook = Arc::downgrade(&book);
        cx.runtime().on_ioc_exit(hook);
        cx.set_ioprio("be/2".parse().expect("a priority"));
        let tasks: Vec<_> = (0..3)
            .map(|i| {
                cx.spawn("task", move |cx| {
                    let (own, prio) = (cx.ioc(), cx.ioprio().to_string());
                    if i == 1 {
                        cx.set_ioc(own + 1000);
                    }
                    (own, prio)
                })
            })
            .collect();
        let mut own: Vec<u64> = Vec::new();
        for task in tasks {
            let (ioc, prio) = task.join(cx);
            assert_eq!(prio, "be/2");
            own.push(ioc);
        }
        let mut told = book.0.lock_irq().clone();
        told.sort();
        own.sort();
        assert_eq!(told, own);
    });
}
