//! Named costs: free where the table is empty, exact where it is not, and never lost or doubled.

use rt::{Charge, Charges, Completion, Cx, Mutex, Nanos, World, WorldConfig};
use std::sync::Arc;

fn world(charges: Charges, cpus: usize) -> World {
    World::new(WorldConfig { charges, cpus, ..WorldConfig::default() })
}

fn costs(list: &[(Charge, u64)]) -> Charges {
    list.iter().fold(Charges::default(), |all, &(charge, ns)| all.with(charge, Nanos(ns)))
}

/// Several tasks that wait for each other in every way, with charges everywhere.
fn busy(cx: &mut Cx) -> u64 {
    let sum = Arc::new(Mutex::new(0u64));
    let tasks: Vec<_> = (0..5)
        .map(|index| {
            let sum = sum.clone();
            cx.spawn("worker", move |cx| {
                for round in 0..50 {
                    cx.charge_for(Charge::Syscall, 1 + index);
                    let mut sum = sum.lock(cx);
                    cx.charge_bytes(Charge::CopyPage, 6000);
                    if round % 7 == 0 {
                        cx.sleep(Nanos(1000));
                    }
                    *sum += 1;
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join(cx));
    *sum.lock(cx)
}

/// Goal: worlds without costs are what they were. Method: the same tasks with and without calls
/// to charge have one event hash.
#[test]
fn without_costs_nothing_happens() {
    let run = |charging: bool| {
        let mut world = world(Charges::default(), 2);
        world.run("main", |cx| {
            for _ in 0..100 {
                if charging {
                    cx.charge_for(Charge::Create, 1000);
                }
                cx.sleep(Nanos(10));
            }
        });
        (world.hash(), world.now(), world.stats().events)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn costs_add_up_exactly_in_the_task_s_own_clock_and_in_the_world_s() {
    let table = costs(&[(Charge::Syscall, 130), (Charge::CopyPage, 800)]);
    let mut world = world(table, 1);
    world.run("main", |cx| {
        for index in 1..=1000u64 {
            cx.charge_for(Charge::Syscall, 1);
            assert_eq!(cx.now(), Nanos(130 * index), "what is owed counts as passed");
        }
        cx.charge_bytes(Charge::CopyPage, 2048);
        assert_eq!(cx.now(), Nanos(130_000 + 400));
    });
    assert_eq!(world.now(), Nanos(130_400), "the end of a task pays what is owed");
}

#[test]
fn one_processor_serves_one_task_at_a_time() {
    for (cpus, expected) in [(1, 40_000), (2, 20_000), (4, 10_000)] {
        let mut world = world(costs(&[(Charge::Create, 10_000)]), cpus);
        world.run("main", |cx| {
            let tasks: Vec<_> =
                (0..4).map(|_| cx.spawn("t", |cx| cx.charge_for(Charge::Create, 1))).collect();
            tasks.into_iter().for_each(|task| task.join(cx));
        });
        assert_eq!(world.now(), Nanos(expected), "{cpus} processors");
    }
}

#[test]
fn a_wait_costs_a_switch_and_a_look_does_not() {
    let mut world = world(costs(&[(Charge::ContextSwitch, 3000)]), 2);
    world.run("main", |cx| {
        let done = Arc::new(Completion::new());
        let theirs = done.clone();
        cx.spawn("other", move |cx| {
            cx.sleep(Nanos(1_000));
            theirs.complete(());
        });
        done.wait(cx);
        // The sleeper was switched to (3 us, paid at its end), then the waiter.
        assert_eq!(cx.now(), Nanos(1_000 + 3_000));
        let there = Completion::new();
        there.complete(());
        there.wait(cx);
        assert_eq!(cx.now(), Nanos(4_000), "nobody waited");
    });
}

/// Goal: costs lose no wake and keep runs repeatable. Method: many seeds that switch at locks; all
/// tasks end, twice with one hash.
#[test]
fn every_schedule_ends_and_repeats() {
    let table =
        costs(&[(Charge::Syscall, 900), (Charge::CopyPage, 1700), (Charge::ContextSwitch, 2500)]);
    for seed in 0..50 {
        let run = || {
            let config = WorldConfig { charges: table.clone(), ..WorldConfig::exploring(seed) };
            let mut world = World::new(config);
            assert_eq!(world.run("main", busy), 250);
            (world.hash(), world.now())
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}
