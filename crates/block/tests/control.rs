//! The controllers: what each lets through, on a device of 2,000 requests a second.

#[path = "common/streams.rs"]
mod streams;

use base::Nanos;
use block::control::GroupShare;
use block::{BioFlags, Op};
use streams::{Scene, Stream, weight};

fn scene<'a>(controller: &'a str, shares: &'a [(u32, GroupShare)]) -> Scene<'a> {
    Scene { controller: Some(controller), shares, rotational: false, ..Scene::of("none") }
}

fn max(text: &str) -> GroupShare {
    GroupShare { max: text.parse().expect(text), ..GroupShare::default() }
}

/// Goal: a group gets what its limit says, by requests and by bytes, in each direction; the other
/// group and the root group have the rest.
#[test]
fn io_max_holds_each_direction_to_its_rate() {
    let writes = Stream { op: Op::Write, flags: BioFlags::SYNC, ..Stream::reads(1) };
    let streams = [Stream::reads(1), writes, Stream::reads(2), Stream::reads(0)];
    // 409,600 bytes a second are 100 requests of 4 KiB.
    let shares = [(1, max("riops=200 wbps=409600"))];
    let rates = scene("io.max", &shares).play(&streams, 10);
    assert!((200..=203).contains(&rates[0]), "{rates:?}");
    assert!((100..=102).contains(&rates[1]), "{rates:?}");
    assert!(rates[2] + rates[3] > 1_650, "{rates:?}");
    let both = [(1, max("rbps=409600 riops=1000"))];
    let rates = scene("io.max", &both).play(&[Stream::reads(1)], 10);
    assert!((100..=102).contains(&rates[0]), "the smaller of two limits: {rates:?}");
}

/// Goal: a request that is larger than a tenth of a second's allowance is sent, and paid for.
#[test]
fn io_max_sends_a_request_larger_than_its_slice() {
    let shares = [(1, max("rbps=8192"))];
    let rates = scene("io.max", &shares).play(&[Stream::reads(1)], 20);
    assert_eq!(rates, [2], "4 KiB each half a second");
}

/// Goal: a group with a target makes a group without one give up its depth, and nothing is held
/// back while the target is kept. Method: a lone reader beside one of depth 32; each of its
/// requests waits for those before it in the device.
#[test]
fn io_latency_takes_depth_from_groups_without_a_target() {
    let streams = [Stream::reads(1), Stream { depth: 32, ..Stream::reads(2) }];
    let target = |micros| {
        let latency = Some(Nanos::from_micros(micros));
        [(1, GroupShare { latency, ..GroupShare::default() })]
    };
    let loose = scene("io.latency", &target(100_000)).play(&streams, 10);
    assert!(loose[0] < 120, "each waits for 32 others: {loose:?}");
    let tight = scene("io.latency", &target(1_500)).play(&streams, 10);
    // One to nine others, and again: what it gets back at once is more than what keeps the target.
    assert!(tight[0] > 3 * loose[0], "{tight:?} after {loose:?}");
    assert!(tight[1] > 1_000, "what is left goes to the other: {tight:?}");
}

/// Goal: two groups that want all get the device by their weights, and one that wants little leaves
/// the rest to the other (donation). Method: a model whose requests cost what the device takes.
#[test]
fn io_cost_shares_by_weight_and_what_is_not_wanted_goes_to_others() {
    let rates = [("rbps", "8192000"), ("rseqiops", "2000"), ("rrandiops", "2000")];
    // Without a percentile vrate would rise until nobody waits.
    let model = [rates[0], rates[1], rates[2], ("rpct", "95"), ("rlat", "6000")];
    let shares = [(1, weight(300)), (2, weight(100))];
    let deep = |group| Stream { depth: 16, ..Stream::reads(group) };
    let scene = Scene { tunables: &model, ..scene("io.cost", &shares) };
    let rates = scene.play(&[deep(1), deep(2)], 20);
    let part = rates[0] * 100 / (rates[0] + rates[1]);
    assert!((70..=80).contains(&part), "3 to 1: {rates:?}");
    assert!(rates[0] + rates[1] > 1_700, "the device is used: {rates:?}");
    let lazy = Stream { think: Nanos::from_millis(50), ..Stream::reads(1) };
    let rates = scene.play(&[lazy, deep(2)], 20);
    assert!(rates[1] > 1_200, "by weights it had 500: {rates:?}");
}

#[test]
fn a_controller_has_a_name_and_its_tunables() {
    use rt::{World, WorldConfig};
    World::new(WorldConfig::default()).run("names", |cx| {
        let device = std::sync::Arc::new(streams::nothing());
        let config = |controller: &str| block::QueueConfig {
            controller: Some(controller.to_owned()),
            ..block::QueueConfig::elevator("mq-deadline")
        };
        let unknown = block::Queue::new(cx.runtime(), device.clone(), config("io.min"));
        let error = unknown.err().expect("there is none of that name").to_string();
        assert_eq!(
            error,
            "there is no controller `io.min`; there are: io.max, io.latency, io.cost"
        );
        let queue = block::Queue::new(cx.runtime(), device, config("io.cost")).unwrap();
        queue.set_tunable("rlat", "5000").unwrap();
        queue.set_tunable("fifo_batch", "8").unwrap();
        assert!(queue.set_tunable("rlat", "-1").is_err() && queue.set_tunable("x", "1").is_err());
        queue.set_elevator("none").unwrap();
        let names: Vec<_> = queue.tunables().into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"controller") && names.contains(&"rlat"), "{names:?}");
    });
}
