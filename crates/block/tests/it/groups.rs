//! Control groups: weights in `cfq` and `bfq`, and what the yield makes of them.

use crate::common::script::{disk, play_on};
use crate::common::streams::{Scene, Stream, weight};
use base::Nanos;
use block::{BioFlags, Op};

/// The first stream's part of all, in percent.
fn part(rates: &[u64]) -> u64 {
    rates[0] * 100 / rates.iter().sum::<u64>()
}

/// Goal: two groups of readers get the device in proportion to their weights, however many
/// processes each has. Method: a device of 2,000 requests a second, ten seconds.
#[test]
fn groups_share_by_weight_and_not_by_processes() {
    let readers = |groups: &[u32]| -> Vec<Stream> {
        groups.iter().map(|&group| Stream::reads(group)).collect()
    };
    for elevator in ["cfq", "bfq"] {
        let scene = |shares| Scene { shares, ..Scene::of(elevator) };
        let alone = scene(&[]).play(&readers(&[0, 0]), 10);
        assert!((48..=52).contains(&part(&alone)), "{elevator}: {alone:?}");
        let shares = [(1, weight(1000)), (2, weight(500))];
        let two = scene(&shares).play(&readers(&[1, 2]), 10);
        assert!((64..=69).contains(&part(&two)), "{elevator}, 2 to 1: {two:?}");
        let shares = [(1, weight(500)), (2, weight(500))];
        let many = scene(&shares).play(&readers(&[1, 2, 2, 2]), 10);
        assert!((47..=53).contains(&part(&many)), "{elevator}, one beside three: {many:?}");
    }
}

/// Goal: a group of one process whose requests depend on each other keeps its share though it is
/// never busy when its slice ends, since the device is kept for it beyond the slice. Method: a
/// thinking reader beside a reader of another group, equal weights.
#[test]
fn the_only_process_of_a_group_keeps_its_share() {
    let thinking = Stream { think: Nanos::from_micros(500), ..Stream::reads(1) };
    let rates = Scene::of("cfq").play(&[thinking, Stream::reads(2)], 10);
    // Half of the time, and half of that spent thinking: 500 of its own 1,000 a second.
    assert!((450..=550).contains(&rates[0]), "{rates:?}");
    assert!((900..=1_100).contains(&rates[1]), "{rates:?}");
}

/// Goal: synchronous writes with NOIDLE are in the root group, unless groups are isolated. Method:
/// a writer of a small group beside a reader of another one: out of the root group, which has the
/// weight 1000, it has more than its own weight gives.
#[test]
fn noidle_queues_are_in_the_root_group_without_isolation() {
    let flags = BioFlags::SYNC | BioFlags::NOIDLE;
    // It thinks longer than slice_idle, so that its queue is not worth idling for.
    let writer = |n| Stream { op: Op::Write, flags, depth: 8, from: Nanos(n), ..Stream::reads(1) };
    let seeking = [writer(0), writer(1_000), writer(2_000), Stream::reads(2)];
    let shares = [(1, weight(100)), (2, weight(1000))];
    let play = |isolation| {
        let tunables = [("group_isolation", isolation), ("next_noidle", "1")];
        let scene = Scene { tunables: &tunables, shares: &shares, ..Scene::of("cfq") };
        let rates = scene.play(&seeking, 10);
        rates[..3].iter().sum::<u64>() * 100 / rates.iter().sum::<u64>()
    };
    let (shared, isolated) = (play("0"), play("1"));
    assert!(shared > 30, "root's weight: {shared} %");
    assert!(isolated < 20, "its own weight: {isolated} %");
}

/// Goal: a queue is not lent to a process of another group, whose requests its group would pay for;
/// `yield_across` allows it. Method: the writer `a` in group 1, the journal `j` in the root group.
#[test]
fn a_yield_stays_inside_of_its_group() {
    let words = "a@1 jW60000+8n * | aS10000+8 . 1 a>j jS60010+8 |";
    let said = |tunables: &[(&str, &str)]| play_on("cfq", disk(32), tunables, words, false);
    assert_eq!(said(&[]), "[0 j60000 | ]0<a [a a10000 ~a a>? | ");
    let across = said(&[("yield_across", "1")]);
    assert_eq!(across, "[0 j60000 | ]0<a [a a10000 ~a a>j {a<j} +a j60010 | ");
    // Both in one group: as without groups.
    let words = "a@1 j@1 jW60000+8n * | aS10000+8 . 1 a>j jS60010+8 |";
    let said = play_on("cfq", disk(32), &[], words, false);
    assert!(said.contains("{a<j} +a j60010"), "{said}");
}
