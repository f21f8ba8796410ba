//! What only a world does: exact time, one order for one seed, reports, and being dropped.

// Worlds on several threads are part of the facts.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use rt::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn config(seed: u64, order: Order) -> WorldConfig {
    WorldConfig { seed, order, ..WorldConfig::default() }
}

/// Some tasks that contend for everything; answers the order in which they were served.
fn busy(cx: &mut Cx) -> Vec<u64> {
    let log = Arc::new(Mutex::named("log", Vec::new()));
    let permits = Arc::new(Semaphore::new(3));
    let tasks: Vec<_> = (0..20u64)
        .map(|i| {
            let (log, permits) = (log.clone(), permits.clone());
            cx.spawn(&format!("busy {i}"), move |cx| {
                for _ in 0..5 {
                    permits.acquire(cx);
                    let span = cx.random() % 1000;
                    cx.sleep(Nanos(span));
                    cx.charge(Nanos(50));
                    log.lock(cx).push(i);
                    permits.release(1);
                    cx.yield_now();
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|t| t.join(cx));
    Arc::into_inner(log).expect("all tasks have ended").into_inner()
}

/// Goal: one seed is one run, another seed is another order. Method: hash and log of a busy world.
#[test]
fn the_seed_decides_everything() {
    let run = |config: WorldConfig| {
        let mut world = World::new(config);
        let log = world.run("main", busy);
        (world.hash(), log, world.now())
    };
    for order in [Order::Fifo, Order::Seeded] {
        assert_eq!(run(config(7, order)), run(config(7, order)));
        let (a, b) = (run(config(7, order)), run(config(8, order)));
        assert!(a.0 != b.0 && a.1 != b.1);
    }
    assert_ne!(run(config(7, Order::Fifo)).0, run(config(7, Order::Seeded)).0);
    let exploring = WorldConfig::exploring;
    assert_eq!(run(exploring(3)), run(exploring(3)));
}

/// Goal: seeds reach every order of tasks that could run at once.
#[test]
fn every_order_is_reached_by_some_seed() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let mut world = World::new(config(seed, Order::Seeded));
        orders.insert(world.run("main", |cx| {
            let log = Arc::new(SpinLock::new(Vec::new()));
            let task = |i| {
                let log = log.clone();
                cx.spawn("one", move |_| log.lock_irq().push(i))
            };
            let tasks: Vec<_> = (0..4).map(task).collect();
            tasks.into_iter().for_each(|t| t.join(cx));
            log.lock(cx).clone()
        }));
    }
    assert_eq!(orders.len(), 24);
}

/// Goal: a race between two locked sections is found by exploration though no wait lies between.
#[test]
fn exploration_switches_at_locks() {
    let lost = |seed| {
        World::new(WorldConfig::exploring(seed)).run("main", |cx| {
            let sum = Arc::new(Mutex::new(0));
            let add = |cx: &Cx, sum: Arc<Mutex<i32>>| {
                cx.spawn("adder", move |cx| {
                    let seen = *sum.lock(cx);
                    *sum.lock(cx) = seen + 1;
                })
            };
            let tasks = [add(cx, sum.clone()), add(cx, sum.clone())];
            tasks.into_iter().for_each(|t| t.join(cx));
            *sum.lock(cx) == 1
        })
    };
    let hits = (0..100).filter(|&seed| lost(seed)).count();
    assert!((1..100).contains(&hits), "{hits} of 100 seeds lose an update");
}

/// Goal: notes are part of the hash.
#[test]
fn notes_change_the_hash() {
    let hash = |value| {
        let mut world = World::new(WorldConfig::default());
        world.run("main", |cx| cx.runtime().note(1, value));
        world.hash()
    };
    assert_eq!(hash(5), hash(5));
    assert_ne!(hash(5), hash(6));
}

/// Goal: time is exact and free. Method: a year of sleeps; charges on a few processors.
#[test]
fn time_is_exact() {
    let mut world = World::new(WorldConfig { cpus: 2, ..WorldConfig::default() });
    world.run("main", |cx| {
        let day = Nanos::from_secs(86_400);
        (0..365).for_each(|_| cx.sleep(day));
        assert_eq!(cx.now(), Nanos(365 * day.0));
        assert_eq!(cx.realtime().sec, 1_767_225_600 + 365 * 86_400);
    });
    let start = world.now();
    world.run("main", |cx| {
        let work = |cx: &mut Cx| cx.charge(Nanos(100));
        let tasks: Vec<_> = (0..5).map(|_| cx.spawn("worker", work)).collect();
        tasks.into_iter().for_each(|t| t.join(cx));
    });
    assert_eq!(world.now().since(start), Nanos(300), "5 times 100 ns on 2 processors");
}

/// Goal: ten thousand tasks in one world, all alive at once, and forty thousand without running out
/// of mappings; finished stacks are used again.
#[test]
fn many_tasks_live_in_one_world() {
    for (count, rounds) in [(10_000, 3), (40_000, 1)] {
        let mut world = World::new(WorldConfig::default());
        world.run("main", |cx| {
            for _ in 0..rounds {
                let gate = Arc::new((WaitQueue::named("gate"), AtomicUsize::new(0)));
                let tasks: Vec<_> = (0..count)
                    .map(|_| {
                        let gate = gate.clone();
                        cx.spawn("crowd", move |cx| {
                            gate.1.fetch_add(1, Ordering::Relaxed);
                            gate.0.wake_one();
                            cx.sleep(Nanos::from_secs(1));
                        })
                    })
                    .collect();
                gate.0.wait_until(cx, "all", || gate.1.load(Ordering::Relaxed) == count);
                tasks.into_iter().for_each(|t| t.join(cx));
            }
        });
        let stats = world.stats();
        assert_eq!((stats.tasks, stats.tasks_max), (count as u64 * rounds + 1, count + 1));
        assert!(stats.stack_high_water < stats.stack_size / 2, "{stats:?}");
        assert_eq!((world.now(), world.unfinished()), (Nanos::from_secs(rounds), 0));
    }
}

/// Goal: the high-water mark follows the deepest stack.
#[test]
fn the_deepest_stack_is_recorded() {
    #[inline(never)]
    fn deep(levels: usize) -> u64 {
        let frame = std::hint::black_box([levels as u8; 1024]);
        if levels == 0 { frame[0] as u64 } else { deep(levels - 1) + frame[7] as u64 }
    }
    let used = |levels| {
        let mut world = World::new(WorldConfig::default());
        world.run("main", |_| deep(levels));
        world.stats().stack_high_water
    };
    let (shallow, deep) = (used(1), used(64));
    assert!(shallow < 32 << 10 && deep > 64 << 10, "{shallow} and {deep} bytes");
}

/// Goal: a deadlock ends with who waits for what. Method: two locks in two orders.
#[test]
fn a_deadlock_is_reported_with_its_cycle() {
    let mut world = World::new(config(42, Order::Fifo));
    let run = catch_unwind(AssertUnwindSafe(|| {
        world.run("main", |cx| {
            let locks = Arc::new((Mutex::named("left", ()), Mutex::named("right", ())));
            let locks2 = locks.clone();
            let other = cx.spawn("crosser", move |cx| {
                let _right = locks2.1.lock(cx);
                cx.sleep(Nanos(10));
                let _left = locks2.0.lock(cx);
            });
            cx.spawn("bystander", |cx| cx.park("godot", 77));
            let _left = locks.0.lock(cx);
            cx.sleep(Nanos(10));
            let _right = locks.1.lock(cx);
            other.join(cx);
        })
    }));
    let panic = run.expect_err("a deadlock panics");
    let text = panic.downcast_ref::<String>().expect("with a report");
    assert_eq!(world.report(), Some(text.as_str()));
    for part in [
        "task 1 `main` waits for lock `right`, held by task 2 `crosser`, for 0 ns",
        "task 2 `crosser` waits for lock `left`, held by task 1 `main`",
        "task 3 `bystander` waits for godot (77), for 10 ns",
        "cycle: task 1 `main` -> task 2 `crosser` -> task 1 `main`",
        "seed 42, virtual time 10 ns",
        "replay: IOPATH_SEED=42 cargo test -p iopath-rt -- a_deadlock_is_reported_with_its_cycle",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert!(catch_unwind(AssertUnwindSafe(|| world.run("again", |_| ()))).is_err());
}

/// Goal: a panic anywhere stops the world, comes out of `run`, and is reported with seed, time,
/// task, events and how to replay.
#[test]
fn a_panic_stops_the_world_and_is_reported() {
    for in_event in [false, true] {
        let mut world = World::new(config(9, Order::Fifo));
        let run = catch_unwind(AssertUnwindSafe(|| {
            world.run("main", |cx| {
                cx.runtime().note(0xabc, 5);
                if in_event {
                    cx.runtime().at(Nanos(70), Box::new(|_| panic!("as intended")));
                } else {
                    cx.spawn("doomed", |cx| {
                        cx.sleep(Nanos(70));
                        panic!("as intended");
                    });
                }
                cx.sleep(Nanos(1000));
            })
        }));
        let panic = run.expect_err("the panic comes out");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"as intended"));
        let text = world.report().expect("a report");
        let who = if in_event { "an event panicked" } else { "a task panicked: task 2 `doomed`" };
        let parts =
            ["seed 9, virtual time 70 ns", "note    0xabc = 5", "replay: IOPATH_SEED=9 ", who];
        for part in parts {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Goal: a world dropped in the middle frees what its tasks, timers and unborn tasks own.
#[test]
fn a_dropped_world_frees_what_its_tasks_own() {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = || Counted(drops.clone());
    let mut world = World::new(WorldConfig::default());
    let lock = Arc::new(Mutex::named("kept", ()));
    world.run("main", |cx| {
        for i in 0..100 {
            let (owned, lock) = (counted(), lock.clone());
            cx.spawn("sleeper", move |cx| {
                let _on_the_stack = owned;
                let _guard = (i % 2 == 0).then(|| lock.lock(cx));
                cx.park("for ever", i);
            });
        }
        let owned = counted();
        cx.runtime().at(Nanos::from_secs(9), Box::new(move |_| drop(owned)));
        cx.sleep(Nanos(5));
        let owned = counted();
        cx.spawn("unborn", move |_| drop(owned));
    });
    assert_eq!((drops.load(Ordering::SeqCst), world.unfinished()), (0, 101));
    let rt = world.runtime();
    drop(world);
    assert_eq!(drops.load(Ordering::SeqCst), 102);
    assert_eq!(Arc::strong_count(&lock), 1);
    // What comes after the end of the world is harmless.
    let late = counted();
    rt.at(Nanos(1), Box::new(move |_| drop(late)));
    rt.spawn("late", |_| ());
    assert_eq!(drops.load(Ordering::SeqCst), 103);
}

/// Goal: a destructor that waits while the world is dropped does not crash or hang; its task leaks.
#[test]
fn a_destructor_that_waits_leaks_its_task() {
    struct Waits<'a>(&'a mut Cx);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            self.0.sleep(Nanos(1));
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let drops2 = drops.clone();
    // On a thread of its own, which ends as one that is still panicking.
    let thread = std::thread::spawn(move || {
        let mut world = World::new(WorldConfig::default());
        let owned = Counted(drops2);
        world.run("main", |cx| {
            cx.spawn("stubborn", move |cx| {
                let _owned = owned;
                let _waits = Waits(cx);
                _waits.0.park("for ever", 0);
            });
            cx.yield_now();
        });
        drop(world);
    });
    thread.join().expect("dropping the world does not panic");
    assert_eq!(drops.load(Ordering::SeqCst), 0);
}

/// Goal: tasks go on from one `run` to the next, `run_until` stops the clock where asked, and
/// `run_idle` goes to the end.
#[test]
fn a_world_runs_in_pieces() {
    let mut world = World::new(WorldConfig::default());
    let ticks = Arc::new(AtomicUsize::new(0));
    let ticks2 = ticks.clone();
    world.run("main", |cx| {
        cx.spawn("ticker", move |cx| {
            for _ in 0..10 {
                cx.sleep(Nanos(100));
                ticks2.fetch_add(1, Ordering::SeqCst);
            }
        });
    });
    world.run_until(Nanos(350));
    assert_eq!((ticks.load(Ordering::SeqCst), world.now()), (3, Nanos(350)));
    world.run("more", |cx| cx.sleep(Nanos(100)));
    assert_eq!(ticks.load(Ordering::SeqCst), 4);
    world.run_idle();
    assert_eq!((ticks.load(Ordering::SeqCst), world.now()), (10, Nanos(1000)));
}

/// Goal: worlds nest, and several live at once on one thread and on several.
#[test]
fn worlds_are_independent() {
    let inner = |seed| World::new(config(seed, Order::Seeded)).run("inner", busy);
    let nested = World::new(WorldConfig { stack_size: 1 << 20, ..WorldConfig::default() }).run(
        "outer",
        |cx| {
            cx.sleep(Nanos(5));
            let log = inner(1);
            cx.sleep(Nanos(5));
            log
        },
    );
    let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(move || inner(1))).collect();
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), nested);
    }
}

/// Goal: a `Cx` that was swapped out of its task is refused, not followed to a stack that is gone.
#[test]
fn a_cx_is_used_in_its_own_task_only() {
    let mut outer = World::new(WorldConfig { stack_size: 1 << 20, ..WorldConfig::default() });
    let run = catch_unwind(AssertUnwindSafe(|| {
        outer.run("outer", |cx| {
            World::new(WorldConfig::default()).run("inner", |other| std::mem::swap(cx, other));
            cx.yield_now();
        })
    }));
    let panic = run.expect_err("the wrong Cx is refused");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"a Cx was used outside its own task"));
}

/// Goal: a stack overflow hits the guard page instead of the stack below. Method: this test runs
/// itself in a child process, which recurses without end and must abort at the guard.
#[test]
fn a_stack_overflow_hits_the_guard() {
    use std::os::unix::process::ExitStatusExt;
    #[inline(never)]
    #[allow(unconditional_recursion)]
    fn deep(level: u64) -> u64 {
        let frame = std::hint::black_box([level; 64]);
        deep(level + 1) + frame[7]
    }
    const CHILD: &str = "IOPATH_OVERFLOW_CHILD";
    if std::env::var_os(CHILD).is_some() {
        testing::world(|cx| {
            // The task below has its stack right beside this one.
            cx.spawn("neighbour", |cx| cx.park("for ever", 0));
            cx.yield_now();
            deep(0);
        });
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().expect("we are a program"));
    child.args(["--exact", "a_stack_overflow_hits_the_guard"]).env(CHILD, "1");
    let output = child.output().expect("the child runs");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
}
