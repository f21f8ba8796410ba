//! What a power cut takes: what the volatile cache holds, and nothing that a flush or FUA covered.

mod common;

use base::{Nanos, Page, Rng, Sector};
use block::{Bio, BioFlags, IoGroup, Queue, QueueConfig};
use common::*;
use device::{Cut, MemoryDevice, RecordDevice};
use model::Profile;
use rt::World;
use std::sync::Arc;

const SIZE: u64 = 1 << 20;

/// Writes, flushes and FUA writes at random on a recorded device of `name`; the power goes at a
/// random moment within `span`. Answers how many completed writes were lost.
fn cut(name: &str, span: Nanos, seed: u64) -> usize {
    let mut profile = Profile::load(name).unwrap();
    profile.charges = Default::default();
    let mut world = World::new(profile.world_config(seed));
    let memory = Arc::new(MemoryDevice::new(SIZE));
    let model = profile.device(&world.runtime(), memory).unwrap();
    let record = Arc::new(RecordDevice::new(model.clone()));
    let config = profile.queue_config("none");
    let queue = Queue::new(&world.runtime(), record.clone(), config).unwrap();
    let runtime = world.runtime();
    runtime.spawn("writer", move |cx| {
        let mut rng = Rng::new(seed, 1);
        for round in 0u64.. {
            let group = IoGroup::new();
            for index in 0..1 + rng.below(6) {
                let page = Page::from_slice(&[(round * 8 + index) as u8; 4096]);
                let flags = if rng.chance(0.1) { BioFlags::FUA } else { NONE };
                let at = Sector(place(&mut rng, 4096, SIZE) / 512);
                queue.submit(cx, Bio::write(at, [page], flags, group.end()));
            }
            if rng.chance(0.2) {
                queue.submit(cx, Bio::flush(group.end()));
            }
            group.wait(cx).unwrap();
        }
    });
    let end = Nanos(Rng::new(seed, 2).below(span.0));
    world.run_until(end);
    let log = record.log();
    let cut = model.power_cut(&log);
    // Panics where something is lost that was durable by the rules of the record.
    let image = log.image_after(&vec![0; SIZE as usize], &cut);
    let all = log.image_after(&vec![0; SIZE as usize], &Cut::clean(log.entries.len()));
    assert_eq!(model.memory().snapshot(), all, "the device shows what has completed");
    if cut.drop.is_empty() {
        assert_eq!(image, all);
    }
    cut.drop.len()
}

/// Goal: the model and the record agree about durability. Method: many cuts; the record refuses a
/// loss of what a flush or FUA covers.
#[test]
fn a_volatile_cache_loses_only_what_nothing_covered() {
    for (name, ms) in [("disk-7200-wc", 400), ("flash-nvme", 10)] {
        let span = Nanos::from_millis(ms);
        let lost: Vec<usize> = (0..60).map(|seed| cut(name, span, seed)).collect();
        assert!(lost.iter().filter(|&&count| count > 0).count() > 30, "{name}: {lost:?}");
    }
}

#[test]
fn without_a_volatile_cache_nothing_is_lost() {
    for (name, ms) in [("disk-7200", 400), ("array-2010", 20), ("ram", 1), ("flash-sata", 10)] {
        let span = Nanos::from_millis(ms);
        assert!((0..10).all(|seed| cut(name, span, seed) == 0), "{name}");
    }
}

/// Goal: a record in front of a model knows what was in flight. Method: writes without waiting, one
/// flush among them; every cut keeps what the flush covers.
#[test]
fn a_record_of_a_model_knows_what_overlaps() {
    rt::testing::world(|cx| {
        let memory = Arc::new(MemoryDevice::new(SIZE));
        let model = Profile::built_in("flash-nvme").device(cx.runtime(), memory).unwrap();
        let record = Arc::new(RecordDevice::new(model));
        let queue = Queue::new(cx.runtime(), record.clone(), QueueConfig::default()).unwrap();
        let page = |value: u8| Page::from_slice(&[value; 4096]);
        queue.write(cx, Sector(0), page(1), NONE).unwrap();
        let group = IoGroup::new();
        for index in 1..6 {
            let bio = Bio::write(Sector(index * 100), [page(2)], NONE, group.end());
            queue.submit(cx, bio);
        }
        queue.submit(cx, Bio::flush(group.end()));
        group.wait(cx).unwrap();
        let log = record.log();
        assert_eq!(log.entries.len(), 7);
        assert_eq!(log.unflushed(7).len(), 5, "they had not completed when the flush began");
        assert_eq!(log.in_flight(1).len(), 5, "all came before the next completed");
        let base = vec![0; SIZE as usize];
        for cut in log.cuts_at_flushes() {
            let image = log.image_after(&base, &cut);
            assert!(cut.upto == 0 || cut.drop.contains(&0) || image[0] == 1);
        }
        let lost = Cut { upto: 7, drop: log.unflushed(7), ..Cut::default() };
        assert_eq!(log.image_after(&base, &lost)[51200], 0);
    });
}
