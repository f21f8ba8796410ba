//! Draining barriers: what comes before completes, the barrier runs alone, then what came later.

use crate::common::{Disk, info};
use base::{Page, Sector};
use block::{Bio, BioFlags, Device, DeviceInfo, IoGroup, Plug, Queue, QueueConfig};
use rt::Cx;
use std::sync::Arc;

fn queue(cx: &Cx, disk: &Arc<Disk>, elevator: &str) -> Arc<Queue> {
    let device: Arc<dyn Device> = disk.clone();
    Queue::new(cx.runtime(), device, QueueConfig::elevator(elevator)).expect("a queue")
}

fn write(sector: u64, flags: BioFlags, group: &IoGroup) -> Bio {
    Bio::write(Sector(sector), [Page::from_slice(&[sector as u8; 512])], flags, group.end())
}

const NONE: BioFlags = BioFlags::empty();

/// Depth 2: two writes are in the device, three wait. The barrier lets none pass, and the elevator
/// gives the three out in the order of the sectors; what comes after it stays behind.
#[test]
fn a_barrier_waits_for_everything_and_holds_up_everything() {
    rt::testing::world(|cx| {
        for elevator in block::elevator::names() {
            let disk = Disk::held(info(2));
            let queue = queue(cx, &disk, elevator);
            let group = IoGroup::new();
            for sector in [100, 110, 150, 130, 140] {
                queue.submit(cx, write(sector, NONE, &group));
            }
            queue.submit(cx, write(8, BioFlags::BARRIER, &group));
            for sector in [200, 202] {
                queue.submit(cx, write(sector, NONE, &group));
            }
            let mut order = Vec::new();
            while disk.held_count() > 0 {
                order.push((disk.held_count(), disk.take_seen().join(" ")));
                disk.finish(0);
            }
            let flat =
                order.iter().map(|(held, seen)| format!("{held}: {seen}")).collect::<Vec<_>>();
            let expected = [
                "2: W100+1 W110+1",
                "2: W130+1",
                "2: W140+1",
                "2: W150+1",
                "1: ",
                "1: W8+1",
                "2: W200+1 W202+1",
                "1: ",
            ];
            assert_eq!(flat, expected, "{elevator}");
            group.wait(cx).expect("all written");
            assert_eq!(queue.stats().barriers, 1);
            queue.drain(cx);
        }
    });
}

/// Two barriers with a flush between them, on a device with a volatile cache: each step is alone.
#[test]
fn barriers_keep_their_order_among_each_other_and_to_flushes() {
    rt::testing::world(|cx| {
        let volatile = DeviceInfo { volatile_cache: true, ..info(8) }; // without FUA
        let disk = Disk::held(volatile);
        let queue = queue(cx, &disk, "deadline");
        let group = IoGroup::new();
        let through = BioFlags::BARRIER | BioFlags::PREFLUSH | BioFlags::FUA;
        queue.submit(cx, write(50, NONE, &group));
        queue.submit(cx, write(8, through, &group));
        queue.submit(cx, Bio::flush(group.end()));
        queue.submit(cx, write(60, NONE, &group));
        queue.submit(cx, write(9, BioFlags::BARRIER, &group));
        queue.submit(cx, write(70, NONE, &group));
        let mut order = Vec::new();
        while disk.held_count() > 0 {
            order.push(disk.take_seen().join(" "));
            disk.finish(0);
        }
        let steps = order.iter().filter(|step| !step.is_empty()).cloned().collect::<Vec<_>>();
        let expected = ["W50+1", "F", "W8+1", "F", "F W60+1", "W9+1", "W70+1"];
        assert_eq!(steps, expected);
        group.wait(cx).expect("all written");
    });
}

/// A barrier that fails goes on with the queue, and what a plug held when it came is before it.
#[test]
fn a_failed_barrier_ends_and_plugged_bios_come_first() {
    rt::testing::world(|cx| {
        let disk = Disk::held(info(8));
        let queue = queue(cx, &disk, "none");
        let (group, broken) = (IoGroup::new(), IoGroup::new());
        let mut plug = Plug::new();
        queue.submit_plugged(cx, &mut plug, write(20, NONE, &group));
        queue.submit_plugged(cx, &mut plug, write(8, BioFlags::BARRIER, &broken));
        queue.submit_plugged(cx, &mut plug, write(30, NONE, &group));
        plug.finish(cx);
        assert_eq!(disk.take_seen(), ["W20+1"]);
        disk.finish(0);
        assert_eq!(disk.take_seen(), ["W8+1"]);
        disk.fail(0, 8, 1);
        assert_eq!(disk.take_seen(), ["W30+1"]);
        disk.finish_all();
        group.wait(cx).expect("the others are written");
        assert!(broken.wait(cx).is_err());
        queue.drain(cx);
    });
}

/// A device that completes inside of `submit`, and a random mix of tasks: everything ends once.
#[test]
fn barriers_of_many_tasks_all_end() {
    rt::testing::explore(20, |cx| {
        let disk = Disk::inline(info(4));
        let queue = queue(cx, &disk, "deadline");
        let tasks = [0u64, 1, 2].map(|task| {
            let queue = queue.clone();
            cx.spawn("writer", move |cx| {
                for round in 0..30 {
                    let flags = if cx.random() % 3 == 0 { BioFlags::BARRIER } else { NONE };
                    let page = Page::from_slice(&[round as u8; 512]);
                    queue.write(cx, Sector(task * 100 + round), page, flags).expect("written");
                }
            })
        });
        tasks.into_iter().for_each(|task| task.join(cx));
        queue.drain(cx);
        assert_eq!(queue.stats().writes, 90);
    });
}
