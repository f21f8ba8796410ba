//! The rules of `bfq`, one test each.

use crate::common::mix::{Mix, run};
use crate::common::script::{disk, play_on};
use block::elevator::{NoteKind, by_name};

fn said(depth: u32, tunables: &[(&str, &str)], words: &str) -> String {
    play_on("bfq", disk(depth), tunables, words, false)
}

/// Requests of 32 sectors with gaps between them, so that none merge.
fn backlog(who: char, count: u64) -> String {
    let base = (who as u64 - 'a' as u64) * 8000;
    let words: Vec<String> = (0..count).map(|i| format!("{who}R{}+32", base + 40 * i)).collect();
    words.join(" ")
}

/// Goal: backlogged queues get sectors in proportion to their weights, whatever came first. Method:
/// budgets of 64 sectors; the shares in the first requests.
#[test]
fn queues_are_served_in_proportion_to_their_weight() {
    let shares = |a: &str, b: &str, first: usize| {
        let words = format!("xR60000+8 a={a} b={b} {} {} *", backlog('b', 60), backlog('a', 60));
        let said = said(1, &[("slice_idle", "0"), ("max_budget", "64")], &words);
        let served = said.split(' ').filter(|word| !word.starts_with(['[', ']', 'x']));
        served.take(first).filter(|word| word.starts_with('a')).count()
    };
    assert!((19..=21).contains(&shares("be/4", "be/4", 40)), "equal");
    assert!((25..=28).contains(&shares("be/0", "be/4", 40)), "80 to 40");
    assert!((36..=44).contains(&shares("be/0", "be/7", 45)), "80 to 10");
    assert_eq!(shares("be/7", "idle", 40), 40, "the idle class has what is left");
    assert_eq!(shares("be/0", "rt/7", 40), 0, "real time goes first");
}

#[test]
fn a_queue_is_served_until_its_budget_is_exhausted() {
    let words = format!("xR60000+8 {} {} *", backlog('a', 4), backlog('b', 4));
    let said = said(1, &[("slice_idle", "0"), ("max_budget", "96")], &words);
    assert!(said.starts_with("[x x60000 ]x [a a0 a40 ]a [b"), "{said}");
}

#[test]
fn the_disk_is_kept_for_a_sequential_reader_that_goes_on_soon() {
    let words = "aR0+8 bR30000+8 . 3 aR8+8";
    assert_eq!(said(1, &[], words), "[a a0 ~a +a a8");
    assert_eq!(said(1, &[("slice_idle", "0")], words), "[a a0 ]a [b b30000");
    assert_eq!(said(1, &[], "aR0+8 . 9 bR30000+8"), "[a a0 ~a -a ]a [b b30000");
}

/// Four requests, each 12 ms after the end of the last one.
#[test]
fn a_process_that_thinks_longer_than_slice_idle_is_not_idled_for() {
    let words = "aR0+8 . 16 aR8+8 . 16 aR16+8 . 16 aR24+8 . 16 aR32+8 . 16 aR40+8 . 16 \
                 aR48+8 . 16 aR56+8 . 16 aR64+8 bR30000+8 .";
    let said = said(1, &[], words);
    assert!(said.ends_with("[a a64 ]a [b b30000"), "{said}");
}

/// Goal: a request of another queue goes out during the idling once it is known how long a request
/// takes without that, and not again after it did harm.
#[test]
fn injection_grows_while_it_does_no_harm_and_shrinks_when_it_does() {
    let quick = "aR0+8 5 . 1 aR8+8 5 . 1 bR30000+8 | aR16+8 5 . . 1 bR31000+8 |";
    assert_eq!(said(8, &[], quick), "[a a0 ~a +a a8 ~a (a^b) b30000 | +a a16 ~a (a^b) b31000 | ");
    // With b's request beside it, a's took 20 ms instead of 5: no more of that.
    let slow = "aR0+8 5 . 1 aR8+8 5 . 1 bR30000+8 | aR16+8 20 . . 1 bR31000+8 |";
    assert_eq!(said(8, &[], slow), "[a a0 ~a +a a8 ~a (a^b) b30000 | +a a16 ~a | ");
}

/// Goal: the journal task wakes the writer after each commit: that is noticed after three times,
/// and the journal's synchronous requests go out while the device is kept for the writer. Method: a
/// writer and its journal, with a journal that writes synchronously.
#[test]
fn a_waker_is_found_after_three_times_and_its_requests_are_injected() {
    let alone = Mix { readers: 0, yields: false, seconds: 2, ..Mix::patched("bfq") };
    let outcome = run(&alone);
    let found = outcome.notes.iter().position(|note| note.kind == NoteKind::WakerFound);
    let found = found.expect("a waker is found");
    let before = &outcome.notes[..found];
    let idled = before.iter().filter(|note| note.kind == NoteKind::IdleFired).count();
    assert!(idled <= 8, "{idled} idles in vain before");
    let after = outcome.notes[found..].iter().filter(|note| note.kind == NoteKind::IdleFired);
    assert!(after.count() <= 4, "and hardly any afterwards");
    assert!(outcome.files_per_s() > 500.0, "{}", outcome.files_per_s());
}

#[test]
fn the_end_of_a_process_ends_the_idling_for_it() {
    assert_eq!(said(1, &[], "aR0+8 . 1 bR30000+8 a!"), "[a a0 ~a xa ]a [b b30000");
}

#[test]
fn tunables_have_the_names_and_defaults_of_the_kernel() {
    let mut elevator = by_name("bfq").expect("bfq");
    let all: Vec<String> =
        elevator.tunables().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        all.join(" "),
        "slice_idle=8 slice_idle_us=8000 timeout_sync=125 fifo_expire_sync=125 \
         fifo_expire_async=250 back_seek_max=16384 back_seek_penalty=2 max_budget=0 \
         strict_guarantees=0 low_latency=0"
    );
    let error = elevator.set_tunable("low_latency", "1").unwrap_err().to_string();
    assert_eq!(error, "`1` is no value for low_latency (0: nothing is raised here)");
    elevator.set_tunable("slice_idle_us", "500").expect("half a millisecond");
}
