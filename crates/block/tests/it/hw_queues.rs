//! Hardware queues take turns: who fills one does not stand before those of the others.

use crate::common::streams::{Scene, Stream};

/// Goal: beside a process that keeps more in its queue than the device takes, a lone reader waits
/// for what is in the device only, where its processor has a hardware queue of its own; with one
/// queue it waits for all. Method: 96 requests under way of one, a device of depth 32 that takes
/// 0.5 ms for each, one after another: a cycle is 97 requests, or 33 and at most 2 of turns.
#[test]
fn a_queue_of_ones_own_has_its_turn() {
    let streams = [Stream { depth: 96, ..Stream::reads(0) }, Stream::reads(0)];
    for elevator in ["none", "kyber"] {
        let with = |queues| {
            let tunables = [("hw_queues", queues)];
            let scene = Scene { tunables: &tunables, rotational: false, ..Scene::of(elevator) };
            scene.play(&streams, 10)
        };
        let (one, two) = (with("1"), with("2"));
        assert!((20..=21).contains(&one[1]), "{elevator}: {one:?}");
        assert!((57..=61).contains(&two[1]), "{elevator}: {two:?}");
        assert!(two[0] + two[1] > 1_980, "{elevator}: the device is used: {two:?}");
    }
}
