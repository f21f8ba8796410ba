//! What the tests of the models share: a world with one modelled device, and ways to time it.
#![allow(dead_code, reason = "each test file uses a part")]

use base::{Nanos, Page, Rng, Sector};
use block::{Bio, BioFlags, IoGroup, Op, Queue, Segment};
use device::MemoryDevice;
use model::{ModelDevice, Profile};
use rt::{Cx, World};
use std::sync::Arc;

/// No flags.
pub const NONE: BioFlags = BioFlags::empty();

/// A device of a profile, with a queue without an elevator.
pub struct Bench {
    pub device: Arc<ModelDevice>,
    pub queue: Arc<Queue>,
}

/// Runs `f` with the device of `profile` on `size` bytes.
pub fn with_profile<T>(profile: &Profile, size: u64, f: impl FnOnce(&mut Cx, &Bench) -> T) -> T {
    let mut world = World::new(profile.world_config(1));
    let memory = Arc::new(MemoryDevice::new(size));
    let device = profile.device(&world.runtime(), memory).unwrap();
    let queue = Queue::new(&world.runtime(), device.clone(), profile.queue_config("none")).unwrap();
    let bench = Bench { device, queue };
    world.run("test", |cx| f(cx, &bench))
}

/// Runs `f` with the device of a built-in profile whose processor costs nothing, on 1 GiB.
pub fn with<T>(name: &str, f: impl FnOnce(&mut Cx, &Bench) -> T) -> T {
    let mut profile = Profile::load(name).unwrap();
    profile.charges = Default::default();
    with_profile(&profile, 1 << 30, f)
}

/// Virtual microseconds that `f` takes.
pub fn took(cx: &mut Cx, f: impl FnOnce(&mut Cx)) -> f64 {
    let before = cx.now();
    f(cx);
    cx.now().since(before).0 as f64 / 1e3
}

/// `bytes` bytes of zeros in pages of 4 KiB.
pub fn pages(bytes: u64) -> impl Iterator<Item = Page> {
    let page = Page::zeroed(4096);
    (0..bytes / 4096).map(move |_| page.clone())
}

/// A bio of zeros that ends in `group`.
pub fn bio(op: Op, offset: u64, bytes: u64, flags: BioFlags, group: &IoGroup) -> Bio {
    let segs = pages(bytes).map(Segment::whole).collect();
    Bio::new(op, Sector(offset / 512), segs, flags, group.end())
}

/// Submits all of `list` (operation, byte offset, bytes) at once and waits for all.
pub fn batch(cx: &mut Cx, queue: &Arc<Queue>, list: &[(Op, u64, u64)]) {
    let group = IoGroup::new();
    for &(op, offset, bytes) in list {
        queue.submit(cx, bio(op, offset, bytes, NONE, &group));
    }
    group.wait(cx).unwrap();
}

/// One command, waited for.
pub fn one(cx: &mut Cx, queue: &Arc<Queue>, op: Op, offset: u64, bytes: u64) {
    batch(cx, queue, &[(op, offset, bytes)]);
}

/// Keeps `depth` commands in the device, `count` in all, at what `next` says; answers the time.
pub fn keep_busy(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    depth: usize,
    count: usize,
    mut next: impl FnMut(usize) -> (Op, u64, u64),
) -> Nanos {
    let begin = cx.now();
    let mut list: Vec<_> = (0..count).map(&mut next).collect();
    list.reverse();
    let list = Arc::new(rt::Mutex::new(list));
    let tasks: Vec<_> = (0..depth)
        .map(|_| {
            let (list, queue) = (list.clone(), queue.clone());
            cx.spawn("issuer", move |cx| {
                loop {
                    let Some((op, offset, bytes)) = list.lock(cx).pop() else { return };
                    one(cx, &queue, op, offset, bytes);
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join(cx));
    cx.now().since(begin)
}

/// A place for `bytes` bytes, aligned to them, below `limit`.
pub fn place(rng: &mut Rng, bytes: u64, limit: u64) -> u64 {
    rng.below(limit / bytes) * bytes
}
