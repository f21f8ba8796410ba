//! What a power cut takes: what the volatile cache holds, and nothing that a flush or FUA covered.

mod common;

use base::{Nanos, Page, Rng, Sector};
use block::{Bio, BioFlags, IoGroup, Queue};
use common::*;
use device::{MemoryDevice, RecordDevice};
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
    let all = log.image_after(&vec![0; SIZE as usize], &device::Cut::clean(log.entries.len()));
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
