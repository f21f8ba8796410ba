//! Flushes: which steps a durable write takes on which device.

use crate::common::{Disk, Ends, info, queue, submit};
use block::{DeviceInfo, Queue};
use rt::{Cx, Runtime};
use std::sync::Arc;

fn disk(volatile_cache: bool, fua: bool) -> Arc<Disk> {
    Disk::held(DeviceInfo { volatile_cache, fua, ..info(8) })
}

fn with<T>(f: impl FnOnce(&mut Cx) -> T) -> T {
    Runtime::real(1).enter("test", f)
}

/// Lets the oldest request go again and again; gives what the device saw, a group for each time.
fn steps(queue: &Arc<Queue>, disk: &Disk, ends: &Ends, cx: &mut Cx, words: &str) -> String {
    submit(cx, queue, ends, words);
    let mut groups = vec![disk.take_seen().join(",")];
    while disk.held_count() > 0 {
        disk.finish(0);
        groups.push(disk.take_seen().join(","));
    }
    groups.pop();
    groups.join(" ")
}

/// Goal: the steps of one durable bio. Method: a table over devices; commas join what the device
/// has at once, blanks separate what waits for the completion before.
#[test]
fn a_durable_write_takes_the_steps_that_its_device_needs() {
    let (none, cache, fua) = ((false, false), (true, false), (true, true));
    let table = [
        (none, "W0+1", "W0+1", 0),
        (none, "W0+1F!", "W0+1", 2),
        (none, "F", "", 1),
        (cache, "F", "F", 0),
        (cache, "W0+1", "W0+1", 0),
        (cache, "W0+1F", "F W0+1", 0),
        (cache, "W0+1!", "W0+1 F", 0),
        (cache, "W0+1F!", "F W0+1 F", 0),
        (fua, "W0+1!", "W0+1!", 0),
        (fua, "W0+1F!", "F W0+1!", 0),
        (fua, "W0+1F", "F W0+1", 0),
    ];
    for ((volatile_cache, has_fua), word, expected, dropped) in table {
        with(|cx| {
            let disk = disk(volatile_cache, has_fua);
            let queue = queue(cx, &disk, "none");
            let ends = Ends::default();
            let seen = steps(&queue, &disk, &ends, cx, word);
            assert_eq!(seen, expected, "{word} with cache {volatile_cache}, FUA {has_fua}");
            assert_eq!(ends.take(), [format!("{word} ok")]);
            let stats = queue.stats();
            assert_eq!(stats.flushes_dropped, dropped, "{word}");
            assert_eq!(stats.flushes, expected.matches('F').count() as u64, "{word}");
            assert_eq!(stats.fua, expected.matches('!').count() as u64, "{word}");
            cx.runtime();
            queue.drain(cx);
        });
    }
}

/// Goal: a flush may be shared only by those who came before it began.
#[test]
fn those_who_come_while_a_flush_runs_share_the_next_one() {
    with(|cx| {
        let disk = disk(true, true);
        let queue = queue(cx, &disk, "none");
        let ends = Ends::default();
        submit(cx, &queue, &ends, "F");
        submit(cx, &queue, &ends, "F W0+1F! W8+1F");
        assert_eq!(disk.take_seen(), ["F"]);
        disk.finish(0);
        assert_eq!((ends.take().join(" "), disk.take_seen()), ("F ok".into(), vec!["F".into()]));
        disk.finish(0);
        assert_eq!(ends.take(), ["F ok"]);
        assert_eq!(disk.take_seen(), ["W0+1!", "W8+1"]);
        disk.finish_all();
        assert_eq!(ends.take(), ["W0+1F! ok", "W8+1F ok"]);
        let stats = queue.stats();
        assert_eq!((stats.flushes, stats.flushes_shared), (2, 2));
    });
}

#[test]
fn a_failed_flush_keeps_the_data_from_the_device() {
    with(|cx| {
        let disk = disk(true, false);
        let queue = queue(cx, &disk, "none");
        let ends = Ends::default();
        submit(cx, &queue, &ends, "W4+1F!");
        disk.fail(0, 0, 0);
        assert_eq!(ends.take(), ["W4+1F! failed 4+1"]);
        submit(cx, &queue, &ends, "W4+1!");
        disk.finish(0);
        disk.fail(0, 0, 0);
        assert_eq!(ends.take(), ["W4+1! failed 4+1"], "data written, not durable");
        submit(cx, &queue, &ends, "W4+2F!");
        disk.finish(0);
        disk.fail(0, 5, 1);
        assert_eq!(ends.take(), ["W4+2F! failed 5+1"], "no flush follows failed data");
        assert_eq!(disk.held_count(), 0);
        queue.drain(cx);
    });
}

/// Goal: flushes and the data between them do not wait behind other requests in the elevator.
#[test]
fn a_flush_sequence_passes_the_elevator() {
    with(|cx| {
        let disk = Disk::held(DeviceInfo { volatile_cache: true, ..info(1) });
        let queue = queue(cx, &disk, "deadline");
        let ends = Ends::default();
        submit(cx, &queue, &ends, "R0+1 R10+1 R20+1 W50+1F! R30+1");
        disk.finish_all();
        assert_eq!(disk.take_seen().join(" "), "R0+1 F W50+1 F R10+1 R20+1 R30+1");
    });
}
