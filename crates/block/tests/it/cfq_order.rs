//! The rules of `cfq`, one test each: preemption, cooperation, order.

use crate::common::script::Case;

fn check(timed: bool, cases: &[Case]) {
    crate::common::script::check("cfq", timed, cases);
}

/// Not even with metadata.
#[test]
fn real_time_preempts_best_effort_and_never_the_other_way_round() {
    check(
        false,
        &[
            (&[], 1, "aR0+8 aR10+8 b=rt/7 bR30000+8 *", "[a a0 ]a<b [b b30000 ~b"),
            (&[], 1, "a=rt/7 aR0+8 aR10+8 b=be/0 bR30000+8m *", "[a a0 a10 ~a"),
        ],
    );
}

/// It waits for the end of the idling; and makes way in the middle of its work.
#[test]
fn the_idle_class_never_preempts_and_is_always_preempted() {
    check(
        true,
        &[
            (&[], 32, "aR0+8 . b=idle bR100+8 9", "[a a0 ~a -a@8 [b b100"),
            (&[], 1, "a=idle aR0+8 aR10+8 bR30000+8 *", "[a a0 ]a<b [b b30000 ~b"),
        ],
    );
}

/// Within 8192 sectors of where the disk stands, and no farther.
#[test]
fn a_close_request_preempts_while_the_disk_idles() {
    check(
        true,
        &[
            (&[], 32, "aR0+8 . 1 bR8200+8", "[a a0 ~a xa@1 ]a<b [b b8200"),
            (&[], 32, "aR0+8 . 1 bR8201+8 9", "[a a0 ~a -a@8 [b b8201"),
        ],
    );
}

/// Both seek; `a` is idled for only as the end of the tree.
#[test]
fn two_queues_without_idling_take_the_disk_from_each_other() {
    check(
        false,
        &[(
            &[],
            32,
            "aR0+8 . bR30000+8 . aR2000+8 . bR32000+8 . aR4000+8 . bR34000+8 . aR6000+8 . \
          bR36000+8 . aR8000+8 . bR38000+8 . aR10000+8 . bR40000+8 . aR12000+8 . bR42000+8 \
          . 9 aR20000+8 . 1 bR50000+8 .",
            "[a a0 ~a +a a2000 ~a +a a4000 ~a +a a6000 ~a +a a8000 ~a +a a10000 ]a [b b30000 \
          b32000 b34000 b36000 b38000 b40000 b42000 b50000",
        )],
    );
}

/// With its next request `a` comes into the queue of `b`.
#[test]
fn close_cooperators_share_a_queue() {
    check(
        false,
        &[(
            &[],
            32,
            "aR0+8 bR100+8 . | aR8+8 . bR108+8 . aR16+8 .",
            "[a a0 a&b ]a [b b100 | a8 b108 a16",
        )],
    );
}

/// `a` and `b` have moved apart: at the end of the slice the queue is marked, then `a` gets its
/// own.
#[test]
fn a_shared_queue_that_seeks_is_split() {
    check(
        false,
        &[(
            &[],
            32,
            "aR0+8 bR100+8 . . aR5000+8 . bR43000+8 . aR10000+8 . bR46000+8 . aR15000+8 . \
          bR49000+8 . aR20000+8 . bR52000+8 . 9 | aR50008+8 . bR60008+8 .",
            "[a a0 a&b ]a [b b100 ~b +b a5000 ~b +b b43000 ~b +b a10000 ~b +b b46000 ~b +b \
          a15000 ~b +b b49000 ~b +b a20000 ~b +b b52000 ~b -b | b/a [a a50008 ~a",
        )],
    );
}

/// `b` is close, but of level 5.
#[test]
fn queues_of_other_classes_or_levels_do_not_cooperate() {
    check(false, &[(&[], 32, "aR0+8 b=be/5 bR100+8 . 9", "[a a0 ~a -a [b b100")]);
}

/// 125 ms for synchronous ones; 100 ms have not been enough.
#[test]
fn the_oldest_request_goes_first_in_a_slice_when_it_has_expired() {
    check(
        false,
        &[
            (
                &[],
                1,
                "aR0+8 bR30000+8 bR25000+8 bR20000+8 130 . 9 | .",
                "[a a0 ~a -a [b b30000 | b25000",
            ),
            (
                &[],
                1,
                "aR0+8 bR30000+8 bR25000+8 bR20000+8 100 . 9 | .",
                "[a a0 ~a -a [b b20000 | b25000",
            ),
        ],
    );
}

/// 990 lies 18 behind and counts 36: nearer than 1100, farther than 1020.
#[test]
fn requests_behind_the_disk_count_double() {
    check(
        false,
        &[
            (
                &[],
                1,
                "aR1000+8 aR900+8 aR1300+8 aR1100+8 aR990+8 *",
                "[a a1000 a990 a1100 a1300 a900 ~a",
            ),
            (
                &[],
                1,
                "aR1000+8 aR900+8 aR1300+8 aR1020+8 aR990+8 *",
                "[a a1000 a1020 a990 a900 a1300 ~a",
            ),
            (
                &[("back_seek_max", "1")],
                1,
                "aR1000+8 aR900+8 aR1300+8 aR1100+8 aR990+8 *",
                "[a a1000 a1100 a1300 a900 a990 ~a",
            ),
            (
                &[("back_seek_penalty", "20")],
                1,
                "aR1000+8 aR900+8 aR1300+8 aR1100+8 aR990+8 *",
                "[a a1000 a1100 a1300 a990 a900 ~a",
            ),
        ],
    );
}

/// `a` of level 7 came first; its slice is 140 ms shorter than the best one, so its turn is 140 ms
/// later.
#[test]
fn less_urgent_levels_come_later_in_their_tree() {
    check(
        false,
        &[
            (
                &[("slice_idle", "0")],
                1,
                "xR60000+8 a=be/7 aR10000+8 b=be/0 bR30000+8 *",
                "[x x60000 ]x [b b30000 ]b [a a10000",
            ),
            (
                &[("slice_idle", "0")],
                1,
                "xR60000+8 a=be/7 aR10000+8 141 b=be/0 bR30000+8 *",
                "[x x60000 ]x [a a10000 ]a [b b30000",
            ),
        ],
    );
}

/// Both where it runs already and where it would begin.
#[test]
fn the_end_of_a_process_ends_the_idling_for_it() {
    check(
        true,
        &[
            (&[], 32, "aR0+8 . 1 bR30000+8 | a!", "[a a0 ~a | xa@1 ]a [b b30000"),
            (&[], 32, "aR0+8 1 a! . bR30000+8", "[a a0 ]a@1 [b b30000"),
        ],
    );
}
