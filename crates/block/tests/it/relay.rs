//! The rules of `relay`, one test each. `j` is the journal task.

use crate::common::script::{disk, play_on};
use block::elevator::by_name;

fn said(depth: u32, words: &str) -> String {
    play_on("relay", disk(depth), &[], words, false)
}

#[test]
fn requests_go_out_as_they_come_while_the_device_has_room() {
    assert_eq!(said(8, "aR0+8 bR30000+8 cS60000+8"), "a0 b30000 c60000");
}

#[test]
fn a_full_device_is_served_upwards_and_synchronous_requests_first() {
    let words = "xR20000+8 aW21000+8 bR10000+8 cR30000+8 dS25000+8 *";
    assert_eq!(said(1, words), "x20000 d25000 c30000 b10000 a21000");
}

/// `b` has waited for 25 ms, half of `max_wait`, when the disk comes back: it goes first.
#[test]
fn a_request_that_has_waited_goes_first() {
    let words = |wait: u32| format!("xR20000+8 bR10000+8 {wait} aR30000+8 *");
    assert_eq!(said(1, &words(25)), "x20000 b10000 a30000");
    assert_eq!(said(1, &words(24)), "x20000 a30000 b10000");
}

#[test]
fn what_somebody_waits_for_is_served_as_synchronous() {
    // The asynchronous write of `j` is an obstacle for nobody ..
    assert_eq!(said(1, "aS0+8 * xR1000+8 jW60000+8 bR50000+8 *"), "a0 x1000 b50000 j60000");
    // .. and, when `a` waits for it, goes in its turn.
    let words = "aS0+8 * a>j xR1000+8 jW60000+8 bR62000+8 *";
    assert_eq!(said(1, words), "a0 a>j x1000 j60000 b62000");
}

/// `a` of the real-time class waits for `b`, and `b` for `j`: `j` goes before everybody else.
#[test]
fn edges_are_followed_to_the_first_waiter() {
    let who = "a=rt/4 aS0+8 bS8+8 jS16+8 * b>j";
    let rest = "xR1000+8 cR2000+8 jW60000+8 *";
    assert_eq!(said(1, &format!("{who} {rest}")), "a0 b8 j16 b>j x1000 c2000 j60000");
    let chain = said(1, &format!("{who} a>b {rest}"));
    assert_eq!(chain, "a0 b8 j16 b>j a>b x1000 j60000 c2000");
}

#[test]
fn a_circle_of_waiters_does_no_harm() {
    let words = "aS0+8 bS8+8 * a>b b>a cR2000+8 bW60000+8 *";
    assert_eq!(said(1, words), "a0 b8 a>b b>a c2000 b>| b60000");
}

#[test]
fn the_next_request_of_the_waiter_ends_the_edge_and_so_does_either_exit() {
    assert_eq!(said(8, "aS0+8 * a>j aS8+8"), "a0 a>j a>| a8");
    assert_eq!(said(8, "aS0+8 * a>j a!"), "a0 a>j a>|");
    assert_eq!(said(8, "aS0+8 * a>j j!"), "a0 a>j a>|");
    assert_eq!(said(8, "aS0+8 * a>j a>k"), "a0 a>j a>| a>k");
}

#[test]
fn who_did_no_io_here_lends_nothing() {
    assert_eq!(said(8, "a>j"), "a>?");
    assert_eq!(said(8, "aS0+8 a>a"), "a0 a>?");
}

#[test]
fn tunables_are_told_and_checked() {
    let mut elevator = by_name("relay").expect("relay");
    let all: Vec<String> =
        elevator.tunables().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(all.join(" "), "max_wait=50 async_wait=500 async_passed=32 round=300 favour=32");
    let error = elevator.set_tunable("max_wait", "0").unwrap_err().to_string();
    assert_eq!(error, "`0` is no value for max_wait (a whole number from 1)");
    assert!(elevator.set_tunable("slice_idle", "8").is_err());
}
