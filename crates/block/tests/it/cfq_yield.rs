//! Yielding in `cfq`, one test per rule and edge case. `j` is the journal task; its write at 60000
//! makes it known to the elevator.

use crate::common::script::{disk, play_on};

fn said(tunables: &[(&str, &str)], words: &str) -> String {
    play_on("cfq", disk(32), tunables, words, false)
}

/// Goal: the holder's synchronous requests go out in the waiter's queue, end its idling and keep
/// its slice, until the waiter's own next request. Without yields they wait for the end of the
/// idling.
#[test]
fn a_yield_lends_the_queue_until_the_next_request_of_the_waiter() {
    let words = "jW60000+8n * | aS10000+8 . 1 a>j jS60010+8 . jS60020+8 . | aS10008+8 . jS60030+8";
    assert_eq!(
        said(&[], words),
        "[0 j60000 | ]0<a [a a10000 ~a a>j {a<j} +a j60010 ~a {a<j} +a j60020 ~a | \
         a>| +a a10008 ~a"
    );
    assert_eq!(said(&[("yield", "0")], words), "[0 j60000 | ]0<a [a a10000 ~a | +a a10008 ~a");
}

#[test]
fn asynchronous_requests_of_the_holder_are_not_affected() {
    let words = "jW60000+8n * | aS10000+8 . 1 a>j jW60010+8 | jS60020+8 .";
    assert_eq!(said(&[], words), "[0 j60000 | ]0<a [a a10000 ~a a>j | {a<j} +a j60020 ~a");
}

/// Goal: lent requests count against the waiter's slice. Method: a slice of 20 ms, `b` waits.
#[test]
fn lent_requests_count_against_the_slice() {
    let words = "jW60000+8n * aS10000+8 . bS30000+8 a>j | \
                 7 jS60010+8 . 7 jS60018+8 . 7 jS60026+8 | . 9 .";
    assert_eq!(
        said(&[("slice_sync", "20")], words),
        "[0 j60000 ]0<a [a a10000 ~a a>j | {a<j} +a j60010 ~a {a<j} +a j60018 ~a {a<j} +a \
         ]a a>| [b b30000 | ~b -b [a j60026 ~a"
    );
}

#[test]
fn a_yield_while_the_waiters_queue_is_not_active_is_honoured_later() {
    let words = "jW60000+8n aS10000+8 * 30 bR30000+8 . 1 a>j jS60010+8 | . 10 .";
    assert_eq!(
        said(&[], words),
        "[0 j60000 ]0<a [a a10000 ~a -a [b b30000 ~b a>j {a<j} | -b [a j60010 ~a"
    );
}

#[test]
fn the_end_of_the_slice_ends_the_yield() {
    let words = "jW60000+8n * aS10000+8 . a>j 9 | jS60010+8";
    assert_eq!(said(&[], words), "[0 j60000 ]0<a [a a10000 ~a a>j -a a>| | [j j60010");
}

#[test]
fn preemption_does_not_end_the_yield() {
    let words = "jW60000+8n * 20 aS10000+8 . a>j 1 bR10020+8 . jS60010+8 . 9 .";
    assert_eq!(
        said(&[], words),
        "[0 j60000 ]0<a [a a10000 ~a a>j xa ]a<b [b b10020 ~b {a<j} -b [a j60010 ~a"
    );
}

/// Goal: with several waiters the one with the disk lends, else the first; a request stays in the
/// queue where it was issued, and the other waiter's slice begins whole.
#[test]
fn many_waiters_lend_in_turn_and_no_share_migrates() {
    let words = "jW60000+8n * 20 aS10000+8 . bS30000+8 | a>j b>j jS60010+8 . 9 jS60018+8 | . .";
    assert_eq!(
        said(&[], words),
        "[0 j60000 ]0<a [a a10000 ~a | a>j b>j {a<j} +a j60010 ~a -a a>| [b b30000 {b<j} j60018 \
         | ~b"
    );
    // Nobody is active: the first waiter lends, though the second one yielded again.
    let words = "jW60000+8n aS10000+8 * 9 bS30000+8 . 9 | a>j b>j a>j jS60010+8 | . ";
    assert_eq!(
        said(&[], words),
        "[0 j60000 ]0<a [a a10000 ~a -a [b b30000 ~b -b | a>j b>j {a<j} [a j60010 | ~a"
    );
}

#[test]
fn a_waiter_waits_for_one_holder_at_a_time() {
    let words = "jW60000+8n kW50000+8n * aS10000+8 . | a>j a>k jS60010+8 | kS50008+8";
    let expected = "[0 j60000 k50000 ]0<a [a a10000 ~a | a>j a>| a>k | {a<k} +a k50008";
    assert_eq!(said(&[], words), expected);
}

#[test]
fn the_exit_of_the_holder_ends_the_yield() {
    let words = "jW60000+8n * aS10000+8 . a>j j! | aS10008+8 .";
    assert_eq!(said(&[], words), "[0 j60000 ]0<a [a a10000 ~a a>j a>| | +a a10008 ~a");
}

#[test]
fn the_exit_of_the_waiter_ends_the_yield() {
    let words = "jW60000+8n * aS10000+8 . a>j a! | jS60010+8";
    assert_eq!(said(&[], words), "[0 j60000 ]0<a [a a10000 ~a a>j a>| xa ]a | [j j60010");
}

/// The exit of the active waiter leaves its lent requests in its queue until they are served.
#[test]
fn lent_requests_survive_the_exit_of_the_waiter() {
    let words = "jW60000+8n aS10000+8 * 9 bS30000+8 . | a>j jS60010+8 a! | . 9 .";
    assert_eq!(
        said(&[], words),
        "[0 j60000 ]0<a [a a10000 ~a -a [b b30000 ~b | a>j {a<j} a>| | -b [a j60010"
    );
}

#[test]
fn a_waiter_in_the_idle_class_does_not_lend() {
    let words = "jW60000+8n * a=idle aS10000+8 . a>j jS60010+8";
    assert_eq!(said(&[], words), "[0 j60000 ]0 [a a10000 ]a a>? [j j60010");
}

#[test]
fn a_waiter_of_a_less_urgent_class_than_the_holder_does_not_lend() {
    let words = "j=rt/4 jW60000+8n * aS10000+8 . a>j jS60010+8";
    assert_eq!(said(&[], words), "[0 j60000 ]0 [a a10000 ~a a>? xa ]a<j [j j60010");
}

/// A journal on another device is unknown here, and so is a waiter without I/O on this one.
#[test]
fn who_did_no_io_on_this_device_neither_lends_nor_borrows() {
    let words = "aS10000+8 . a>j jS60010+8 | . c>a | a>a";
    assert_eq!(said(&[], words), "[a a10000 ~a a>? | c>? | a>?");
}

/// Goal: a merge of the waiter's queue is followed: it lends the shared queue afterwards.
#[test]
fn a_merge_of_the_waiters_queue_moves_the_yield() {
    let words = "jW60000+8n * aR0+8 bR100+8 . | a>j jS60000+8 . | aR8+8 . a>j | jS60008+8 .";
    assert_eq!(
        said(&[], words),
        "[0 j60000 ]0<a [a a0 a&b ]a [b b100 | a>j {a<j} ~b | a>| +b a8 ~b a>j | {b<j} +b j60008 \
         ]b [a j60000"
    );
}

/// Goal: after a split the waiter lends its own new queue, not the shared one.
#[test]
fn a_split_of_the_waiters_queue_moves_the_yield() {
    let apart: Vec<String> =
        (1..5).map(|i| format!("aR{}+8 . bR{}+8 .", 5000 * i, 40000 + 3000 * i)).collect();
    let words = format!(
        "jW60000+8n * aR0+8 bR100+8 . . {} 9 | aR50008+8 . | a>j jS60010+8 .",
        apart.join(" ")
    );
    let said = said(&[], &words);
    let last = said.split(" | ").skip(1).collect::<Vec<_>>().join(" | ");
    assert_eq!(last, "b/a [a a50008 ~a | a>j {a<j} +a j60010 ~a");
}
