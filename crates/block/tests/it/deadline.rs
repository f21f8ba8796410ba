//! The exact order in which `deadline` gives requests out.

use crate::common::{Disk, Ends, info, queue, submit};
use base::Nanos;
use rt::{World, WorldConfig};

/// Lets `words` come while the device is busy with `R2000+1`, waits `wait_ms` of virtual time
/// before each word that is a number instead, and gives the order of dispatch.
fn order(tunables: &[(&str, &str)], words: &str) -> String {
    World::new(WorldConfig::default()).run("test", |cx| {
        let disk = Disk::held(info(1));
        let queue = queue(cx, &disk, "deadline");
        for (name, value) in tunables {
            queue.set_tunable(name, value).expect(name);
        }
        let ends = Ends::default();
        submit(cx, &queue, &ends, "R2000+1");
        disk.take_seen();
        for word in words.split_whitespace() {
            match word.parse() {
                Ok(millis) => cx.sleep(Nanos::from_millis(millis)),
                Err(_) => submit(cx, &queue, &ends, word),
            }
        }
        disk.finish_all();
        let seen = disk.take_seen();
        seen.iter().map(|text| text.trim_end_matches("+1")).collect::<Vec<_>>().join(" ")
    })
}

/// Goal: order within one direction. The first request of a batch after a change is the oldest.
#[test]
fn a_direction_is_served_in_sector_order() {
    let table = [
        (
            "the oldest first, then upwards, then from the bottom",
            &[][..],
            "W5+1 W9+1 W1+1 W7+1",
            "W5 W7 W9 W1",
        ),
        ("reads alike", &[], "R5+1 R9+1 R1+1 R7+1", "R5 R7 R9 R1"),
        ("equal sectors in the order of arrival", &[], "W3+2 W3+1 W1+1", "W3+2 W3 W1"),
        (
            "a batch of two does not leave the order",
            &[("fifo_batch", "2")],
            "W5+1 W9+1 W1+1 W7+1",
            "W5 W7 W9 W1",
        ),
    ];
    for (what, tunables, words, expected) in table {
        assert_eq!(order(tunables, words), expected, "{what}");
    }
}

/// Goal: reads go first, and writes are passed over at most `writes_starved` times.
#[test]
fn writes_are_passed_over_a_bounded_number_of_times() {
    let words = "W0+1 W2+1 W4+1 R10+1 R12+1 R14+1 R16+1 R18+1 R20+1 R22+1";
    let table = [
        (&[("fifo_batch", "1")][..], "R10 R12 W0 R14 R16 W2 R18 R20 W4 R22"),
        (&[("fifo_batch", "1"), ("writes_starved", "1")], "R10 W0 R12 W2 R14 W4 R16 R18 R20 R22"),
        (&[("fifo_batch", "1"), ("writes_starved", "0")], "W0 W2 W4 R10 R12 R14 R16 R18 R20 R22"),
        (&[("fifo_batch", "2")], "R10 R12 R14 R16 W0 W2 R18 R20 R22 W4"),
        (&[("fifo_batch", "3"), ("writes_starved", "1")], "R10 R12 R14 W0 W2 W4 R16 R18 R20 R22"),
        (&[], "R10 R12 R14 R16 R18 R20 R22 W0 W2 W4"),
    ];
    for (tunables, expected) in table {
        assert_eq!(order(tunables, words), expected, "{tunables:?}");
    }
}

/// Goal: what has expired is served when the batch is over, wherever it lies.
#[test]
fn an_expired_request_ends_the_sector_order() {
    let batch = [("fifo_batch", "2")];
    // R9 is the oldest and starts; the batch is R9, and the order ends; R1 is then the oldest.
    assert_eq!(order(&batch, "R9+1 R1+1 R3+1 R5+1 R7+1"), "R9 R1 R3 R5 R7");
    // R1 came 600 ms before the rest of its direction: it has expired when the first batch ends.
    assert_eq!(order(&batch, "R5+1 R1+1 600 R7+1 R9+1 R11+1"), "R5 R7 R1 R9 R11");
    assert_eq!(order(&batch, "R5+1 R1+1 400 R7+1 R9+1 R11+1"), "R5 R7 R9 R11 R1");
    let short = [("fifo_batch", "2"), ("read_expire", "300")];
    assert_eq!(order(&short, "R5+1 R1+1 400 R7+1 R9+1 R11+1"), "R5 R7 R1 R9 R11");
    let writes = [("fifo_batch", "1")];
    assert_eq!(order(&writes, "W5+1 W1+1 4900 W7+1 W9+1"), "W5 W7 W9 W1");
    assert_eq!(order(&writes, "W5+1 W1+1 5000 W7+1 W9+1"), "W5 W1 W7 W9");
}

/// Goal: a request that absorbs an older one inherits its expiry.
#[test]
fn a_merge_keeps_the_earlier_expiry() {
    // W20 absorbs nothing; R2 (old) is absorbed by R1 (young) when R1 grows up to it: R1+2 is old.
    let seen = order(&[("fifo_batch", "1")], "R2+1 600 R8+1 R0+1 R1+1");
    assert_eq!(seen, "R0+3 R8");
    let seen = order(&[("fifo_batch", "1")], "R8+1 600 R2+1 R0+1 R1+1");
    assert_eq!(seen, "R8 R0+3");
}

#[test]
fn tunables_have_the_names_and_defaults_of_the_kernel() {
    World::new(WorldConfig::default()).run("test", |cx| {
        let queue = queue(cx, &Disk::held(info(1)), "mq-deadline");
        let text: Vec<String> =
            queue.tunables().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            text.join(" "),
            "nr_requests=128 nomerges=0 read_expire=500 write_expire=5000 fifo_batch=16 \
             writes_starved=2 front_merges=1 prio_aging_expire=10000 async_depth=0"
        );
        let error = queue.set_tunable("slice_idle", "8").unwrap_err().to_string();
        assert!(
            error.contains("deadline has no tunable `slice_idle`; it has: read_expire"),
            "{error}"
        );
        let error = queue.set_tunable("fifo_batch", "many").unwrap_err().to_string();
        assert_eq!(error, "`many` is no value for fifo_batch (a whole number from 0)");
        assert!(
            queue
                .set_elevator("anticipatory")
                .unwrap_err()
                .to_string()
                .ends_with("there are: none, deadline, mq-deadline, cfq, bfq, kyber, relay")
        );
    });
}

#[test]
fn the_elevator_can_be_changed_while_requests_wait() {
    World::new(WorldConfig::default()).run("test", |cx| {
        let disk = Disk::held(info(1));
        let queue = queue(cx, &disk, "none");
        let ends = Ends::default();
        submit(cx, &queue, &ends, "R100+1 W9+1 W1+1 W5+1");
        queue.set_elevator("deadline").unwrap();
        submit(cx, &queue, &ends, "W6+1");
        disk.finish_all();
        assert_eq!(disk.take_seen().join(" "), "R100+1 W9+1 W1+1 W5+2");
        assert_eq!((ends.take().len(), queue.elevator()), (5, "deadline"));
    });
}

/// What `words` of `script.rs` become on a disk that takes one request at a time.
fn said(tunables: &[(&str, &str)], words: &str) -> String {
    crate::common::script::play_on(
        "mq-deadline",
        crate::common::script::disk(1),
        tunables,
        words,
        false,
    )
}

/// Goal: classes go in their order, whatever direction and age. The direction of the last request
/// goes on in the next class, as in Linux 6.18.
#[test]
fn a_more_urgent_class_goes_first() {
    let words = "xR0+1 b=idle bR10+1 aW20+1 c=rt/7 cW30+1 cW40+1 d=rt/0 dR50+1 aR60+1 *";
    assert_eq!(said(&[], words), "x0 d50 c30 c40 a20 a60 b10");
    let then = crate::common::script::play_on(
        "deadline",
        crate::common::script::disk(1),
        &[],
        words,
        false,
    );
    assert_eq!(then, "x0 d50 c30 c40 a60 a20 b10");
}

/// Goal: a class that has waited for `prio_aging_expire` is served once per aged request, and no
/// request of it starves behind a stream of a more urgent class.
#[test]
fn a_less_urgent_class_goes_first_when_it_has_aged() {
    let stream = |wait: &str| {
        let words: Vec<String> = (0..6).map(|i| format!("{wait} aR{}+1 .", 100 + 10 * i)).collect();
        format!("xR0+1 aR90+1 b=idle bR10+1 bR20+1 {} *", words.join(" "))
    };
    let young = said(&[], &stream("1000"));
    assert_eq!(young, "x0 a90 a100 a110 a120 a130 a140 a150 b10 b20");
    let aged = said(&[], &stream("3000"));
    assert_eq!(aged, "x0 a90 a100 a110 b10 b20 a120 a130 a140 a150");
    let short = said(&[("prio_aging_expire", "2000")], &stream("1000"));
    assert_eq!(short, "x0 a90 b10 b20 a100 a110 a120 a130 a140 a150");
}

#[test]
fn neighbours_of_different_classes_do_not_merge() {
    let words = "xR0+1 aR10+1 b=rt/0 bR11+1 c=be/7 cR12+1 aR13+1 *";
    assert_eq!(said(&[], words), "x0 b11 a10 c12");
}

/// Goal: asynchronous requests get at most `async_depth` of `nr_requests`, so that synchronous ones
/// find room. Method: how many of 32 writes get in while the disk holds the first one.
#[test]
fn asynchronous_requests_are_limited() {
    let got_in = |async_depth: &str| {
        World::new(WorldConfig::default()).run("test", |cx| {
            let disk = Disk::held(info(1));
            let queue = queue(cx, &disk, "deadline");
            queue.set_tunable("nr_requests", "8").expect("nr_requests");
            queue.set_tunable("async_depth", async_depth).expect("async_depth");
            let (ends, theirs) = (Ends::default(), queue.clone());
            let writer = cx.spawn("writer", move |cx| {
                (0..32).for_each(|i| submit(cx, &theirs, &ends, &format!("W{}+1", 2 * i)));
            });
            cx.sleep(Nanos::from_millis(1));
            let stats = queue.stats();
            let count = stats.queued + stats.in_flight;
            while !writer.is_finished() || disk.held_count() > 0 {
                disk.finish_all();
                cx.sleep(Nanos::from_millis(1));
            }
            count
        })
    };
    assert_eq!([got_in("0"), got_in("2"), got_in("8"), got_in("99")], [6, 2, 8, 8]);
}
