//! The rules of `cfq`, one test each: queues, slices, idling, limits.

use crate::common::script::{Case, disk, play_on};

fn check(timed: bool, cases: &[Case]) {
    crate::common::script::check("cfq", timed, cases);
}

/// Asynchronous writes of `a` and `b` go out of one queue, the synchronous one of `c` has its own.
#[test]
fn synchronous_queues_belong_to_processes_and_asynchronous_ones_are_shared() {
    check(false, &[(&[], 32, "aW0+8 bW100+8 cS200+8 . . .", "[0 a0 b100 ]0<c [c c200 ~c")]);
}

/// The disk takes 50 ms for the first request; the slice of 20 ms lasts from then on.
#[test]
fn a_slice_begins_with_its_first_completion() {
    check(
        true,
        &[(
            &[("slice_sync", "20")],
            32,
            "aR0+8 bR30000+8 50 . | 7 aR8+8 . 7 aR16+8 . 7 aR24+8",
            "[a a0 ~a@50 | +a@57 a8 ~a +a@64 a16 ~a +a@71 ]a [b b30000",
        )],
    );
}

/// The idle class has one request in flight and gives the disk up after each.
#[test]
fn real_time_goes_before_best_effort_and_idle_last() {
    check(
        true,
        &[(
            &[],
            32,
            "aR0+8 b=idle bR10000+8 bR10008+8 c=rt/4 cR20000+8 dR30000+8 | . 9 . 9 . 9 . 9 . \
          9 .",
            "[a a0 ]a<c [c c20000 | ~c@9 -c@17 [d d30000 ~d@18 -d@26 [b b10000 ]b@27 [b \
          b10008 ]b@36",
        )],
    );
}

/// 8 ms are 7.1 where a tick is nearly over; at HZ=250 two ticks, at HZ=100 none at all.
#[test]
fn the_idle_timer_fires_at_a_tick() {
    check(
        true,
        &[
            (&[], 32, "0.9 aS0+8 . 20", "[a@0.9 a0 ~a -a@8"),
            (&[("hz", "250")], 32, "3 aS0+8 . 20", "[a@3 a0 ~a -a@8"),
            (&[("hz", "100")], 32, "3 aS0+8 . 20", "[a@3 a0"),
            (&[("slice_idle", "0")], 32, "3 aS0+8 . 20", "[a@3 a0"),
        ],
    );
}

/// From the third sample on. `b` works beside it on another queue without idling.
#[test]
fn a_process_that_thinks_longer_than_slice_idle_is_not_idled_for() {
    check(
        true,
        &[
            (
                &[],
                32,
                "aR0+8 . 7 aR8+8 . 7 aR16+8 . 7 aR24+8 . 7 aR32+8 bR30000+8n . 9 .",
                "[a a0 ~a +a@7 a8 ~a +a@14 a16 ~a +a@21 a24 ~a +a@28 a32 ~a -a@36 [b b30000 ~b@37",
            ),
            (
                &[],
                32,
                "aR0+8 . 12 aR8+8 . 12 aR16+8 . 12 aR24+8n . 12 aR32+8n bR30000+8 . 9 .",
                "[a a0 ~a -a@8 [a@12 a8 ~a -a@20 [a@24 a16 ~a -a@32 [a@36 a24 ~a -a@44 [a@48 a32 \
          ]a [b b30000 ~b@57",
            ),
        ],
    );
}

/// More than four jumps of over 800 sectors among 32; jumps of 800 do not count, and a deep queue
/// may seek.
#[test]
fn a_queue_that_seeks_is_not_idled_for() {
    check(
        false,
        &[
            (
                &[],
                32,
                "aR0+8n . aR809+8n . aR1618+8n . aR2427+8n . aR3236+8n . aR4045+8n . aR7000+8n \
          bR60000+8 . 1",
                "[a a0 ~a +a a809 ~a +a a1618 ~a +a a2427 ~a +a a3236 ~a +a a4045 ~a +a a7000 ]a \
          [b b60000",
            ),
            (
                &[],
                32,
                "aR0+8n . aR808+8n . aR1616+8n . aR2424+8n . aR3232+8n . aR4040+8n . aR7000+8n \
          bR60000+8 . 1",
                "[a a0 ~a +a a808 ~a +a a1616 ~a +a a2424 ~a +a a3232 ~a +a a4040 ~a +a a7000 ~a",
            ),
            (
                &[],
                1,
                "aR0+8n aR2000+8n aR4000+8n aR6000+8n * aR8000+8n . aR10000+8n . aR12000+8n . \
          aR14000+8n . aR16000+8n bR60000+8 . 1",
                "[a a0 a2000 a4000 a6000 ~a +a a8000 ~a +a a10000 ~a +a a12000 ~a +a a14000 ~a +a \
          a16000 ]a [b b60000",
            ),
        ],
    );
}

/// `a` seeks. What it reads with NOIDLE is not waited for while `b` is busy; without NOIDLE it is.
#[test]
fn the_tree_without_idling_idles_at_its_end_unless_all_said_noidle() {
    check(
        false,
        &[
            (
                &[],
                32,
                "aR0+8n . aR2000+8n . aR4000+8n . aR6000+8n . aR8000+8n . aR10000+8n . 9 \
          aR20000+8n bR60000+8 . 1",
                "[a a0 ~a +a a2000 ~a +a a4000 ~a +a a6000 ~a +a a8000 ~a +a a10000 ~a -a [a \
          a20000 ]a [b b60000",
            ),
            (
                &[],
                32,
                "aR0+8n . aR2000+8n . aR4000+8n . aR6000+8n . aR8000+8n . aR10000+8n . 9 \
          aR20000+8 bR60000+8 . 1",
                "[a a0 ~a +a a2000 ~a +a a4000 ~a +a a6000 ~a +a a8000 ~a +a a10000 ~a -a [a \
          a20000 ~a",
            ),
        ],
    );
}

/// It is the only busy one: nobody loses by the wait.
#[test]
fn a_lone_queue_is_idled_for_even_with_noidle() {
    check(true, &[(&[], 32, "aS0+8n . 9", "[a a0 ~a -a@8")]);
}

/// Four until the first completion, then quantum; no limit for the only synchronous queue.
#[test]
fn a_queue_has_four_requests_in_flight_beside_others_then_eight() {
    check(
        false,
        &[
            (
                &[],
                32,
                "aR0+8 bR30000+8 aR10+8 aR20+8 aR30+8 aR40+8 aR50+8 aR60+8 aR70+8 aR80+8 aR90+8 | \
          . | .",
                "[a a0 a10 a20 a30 | a40 a50 a60 a70 a80 | a90",
            ),
            (
                &[("quantum", "4")],
                32,
                "aR0+8 bR30000+8 aR10+8 aR20+8 aR30+8 aR40+8 aR50+8 | . | .",
                "[a a0 a10 | a20 a30 a40 | a50",
            ),
            (
                &[],
                32,
                "aR0+8 bW30000+8 aR10+8 aR20+8 aR30+8 aR40+8 aR50+8",
                "[a a0 a10 a20 a30 a40 a50",
            ),
        ],
    );
}

/// The asynchronous queue has the disk, and holds back until the read is done.
#[test]
fn asynchronous_requests_wait_for_synchronous_ones_in_flight() {
    check(false, &[(&[("slice_idle", "0")], 32, "aR0+8 bW10000+8 | .", "[a a0 ]a [0 | b10000")]);
}

/// `a` has the disk at once, and its request goes when both writes are done.
#[test]
fn asynchronous_requests_drain_before_a_queue_that_idles() {
    check(
        false,
        &[(&[], 32, "bW10000+8 bW20000+8 aR0+8 | . | .", "[0 b10000 b20000 ]0<a [a |  | a0")],
    );
}

/// 2 x (base + base x levels below): 2 at level 7 with a base of 1, 16 at level 4 with 2.
#[test]
fn an_asynchronous_slice_ends_after_its_number_of_requests() {
    check(
        false,
        &[
            (
                &[("low_latency", "0"), ("slice_async_rq", "1"), ("slice_idle", "0")],
                1,
                "xR60000+8 a=be/7 aW0+8 aW10+8 aW20+8 aW30+8 cW30000+8 cW30010+8 *",
                "[x x60000 ]x [0 a0 ]0 a10 [0 a20 ]0 a30 [0 c30010 c30000",
            ),
            (
                &[("low_latency", "0"), ("slice_idle", "0")],
                1,
                "xR60000+8 aW0+8 aW10+8 aW20+8 aW30+8 aW40+8 aW50+8 aW60+8 aW70+8 aW80+8 aW90+8 \
          aW100+8 aW110+8 aW120+8 aW130+8 aW140+8 aW150+8 aW160+8 aW170+8 c=be/7 cW30000+8 \
          *",
                "[x x60000 ]x [0 a0 a10 a20 a30 a40 a50 a60 a70 a80 a90 a100 a110 a120 a130 a140 \
          ]0 a150 [0 a160 a170 ]0 [0 c30000",
            ),
        ],
    );
}

/// A read was late (over 125 ms): one at a time for 100 ms, then one more per 100 ms.
#[test]
fn asynchronous_depth_grows_with_the_time_since_a_late_synchronous_request() {
    check(
        false,
        &[(
            &[],
            32,
            "aR30000+8 200 . 10 | bW0+8 bW10+8 bW20+8 | . | . . 200 | bW100+8 bW110+8 bW120+8",
            "[a a30000 ~a -a | [0 b0 | b10 | b20 | ]0 [0 b100 b110",
        )],
    );
}

/// The waiting writes stand back.
#[test]
fn a_synchronous_request_preempts_asynchronous_ones() {
    check(
        false,
        &[(
            &[("slice_idle", "0")],
            1,
            "aW0+8 aW10+8 aW20+8 bR30000+8 *",
            "[0 a0 ]0<b [b b30000 ]b [0 a10 a20",
        )],
    );
}

/// The whole problem of the journal that writes asynchronously.
#[test]
fn an_asynchronous_request_never_preempts_an_idling_queue() {
    check(true, &[(&[], 32, "aS0+8 . 1 bW100+8 9 .", "[a a0 ~a -a@8 [0 b100")]);
}

/// The slice of 5 ms ended while `a` had nothing waiting: the new request takes the disk.
#[test]
fn an_expired_queue_is_preempted_by_anybody() {
    check(
        true,
        &[(
            &[("slice_sync", "5")],
            32,
            "aR0+8 . 4 aR8+8 4 bR30000+8 | .",
            "[a a0 ~a +a@4 a8 ]a<b@8 [b b30000 | ",
        )],
    );
}

/// Not one that has metadata waiting itself, and not by an asynchronous one.
#[test]
fn a_metadata_request_preempts_a_queue_without_any() {
    check(
        false,
        &[
            (&[], 1, "aR0+8 aR10+8 bR30000+8m *", "[a a0 ]a<b [b b30000 ~b"),
            (&[], 1, "aR0+8 aR10+8m bR30000+8m *", "[a a0 a10 ~a"),
            (&[], 1, "aR0+8 aR10+8 bW30000+8m *", "[a a0 a10 ~a"),
        ],
    );
}

/// Plays a process that keeps reading every 7 ms beside others, and gives the time in ms of the
/// last request of its first slice: the slice ends with the next one.
fn last_request_of_a(tunables: &[(&str, &str)], before: &str) -> f64 {
    let reads: Vec<String> = (1..27).map(|i| format!("7 aR{}+8 .", 8 * i)).collect();
    let said = play_on("cfq", disk(32), tunables, &format!("{before} . {}", reads.join(" ")), true);
    let slice = said.split("]a").next().expect("something was said");
    let last = slice.rsplit('@').next().and_then(|text| text.split(' ').next());
    last.expect("a time").parse().expect("a time")
}

/// Level 0 gets 180 ms, level 4 100 ms, level 7 40 ms; requests come at multiples of 7 ms.
#[test]
fn a_slice_lasts_100_ms_and_a_fifth_more_or_less_per_level() {
    let table = [(0, 175.0), (1, 154.0), (3, 119.0), (4, 98.0), (5, 77.0), (7, 35.0)];
    for (level, expected) in table {
        let before = format!("a=be/{level} aR0+8 bR30000+8");
        let off = [("low_latency", "0")];
        assert_eq!(last_request_of_a(&off, &before), expected, "level {level}");
    }
}

/// Six busy queues would take 600 ms for a round of full slices; 300 ms are the target.
#[test]
fn slices_shrink_when_many_queues_are_busy() {
    let six = "aR0+8 bR10000+8 cR20000+8 dR30000+8 eR40000+8 fR50000+8";
    let three = "aR0+8 bR10000+8 cR20000+8";
    assert_eq!(last_request_of_a(&[("low_latency", "0")], six), 98.0);
    assert_eq!(last_request_of_a(&[], six), 56.0, "5 on average: 60 ms");
    assert_eq!(last_request_of_a(&[("target_latency", "600")], six), 98.0);
    assert_eq!(last_request_of_a(&[], three), 98.0, "300 ms are not more than the target");
}

#[test]
fn tunables_have_the_names_units_and_defaults_of_the_kernel() {
    let elevator = block::elevator::by_name("cfq").expect("cfq");
    let list = |elevator: &dyn block::elevator::Elevator| {
        let all = elevator.tunables().into_iter();
        all.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        list(&*elevator),
        "quantum=8 fifo_expire_sync=125 fifo_expire_async=250 back_seek_max=16384 \
         back_seek_penalty=2 slice_sync=100 slice_async=40 slice_async_rq=2 slice_idle=8 \
         low_latency=1 target_latency=300 hz=1000 yield=1 next_noidle=0 \
         group_idle=0 group_isolation=0 yield_across=0"
    );
    let mut elevator = elevator;
    elevator.set_tunable("hz", "100").expect("a value of HZ");
    assert!(list(&*elevator).contains("slice_idle=0 "), "HZ/125 is no tick at HZ=100");
    elevator.set_tunable("slice_idle", "8").expect("a time");
    assert!(list(&*elevator).contains("slice_idle=10 "), "one tick");
    let refused = [
        ("slice_idle", "-1", "`-1` is no value for slice_idle (milliseconds from 0)"),
        ("slice_sync", "0", "`0` is no value for slice_sync (milliseconds from 1)"),
        ("quantum", "0", "`0` is no value for quantum (a whole number from 1)"),
        ("hz", "300", "`300` is no value for hz (100, 250 or 1000)"),
    ];
    for (name, value, text) in refused {
        assert_eq!(elevator.set_tunable(name, value).unwrap_err().to_string(), text);
    }
    let error = elevator.set_tunable("front_merges", "1").unwrap_err().to_string();
    assert!(error.starts_with("cfq has no tunable `front_merges`; it has: quantum,"), "{error}");
}

/// By the rule of 2.6.37 the queue of a synchronous writer that says NOIDLE is not idled for, as
/// soon as another one has something to do; without the rule it is.
#[test]
fn a_queue_whose_next_request_says_noidle_loses_its_idling() {
    let words = "aS0+8n . aS8+8n bS20000+8n . . .";
    for (rule, said) in [("0", "[a a0 ~a +a a8 ~a"), ("1", "[a a0 ~a +a a8 ]a [b b20000 ~b")] {
        assert_eq!(play_on("cfq", disk(32), &[("next_noidle", rule)], words, true), said);
    }
}
