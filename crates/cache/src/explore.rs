//! Buffers under explored thread schedules: an LRU's weak references beside the clock that drops
//! buffers, invalidation, and changes.
//!
//! ```text
//! RUSTFLAGS="--cfg iopath_shuttle" \
//!     cargo test -p iopath-cache --lib explore --target-dir target/shuttle
//! ```
//! (at the root of the workspace)
//!
//! The locks are the real ones of `rt`; every operation of theirs on an atomic, and every flag of a
//! buffer, is a place to switch.

use std::sync::Arc;

use block::{Queue, QueueConfig};
use device::MemoryDevice;
use rt::{Cx, Runtime};

use crate::{BufferCache, BufferConfig, LruKind};

fn explore(lru: LruKind, body: impl Fn(&mut Cx, Arc<BufferCache>) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let run = move || {
        let body = body.clone();
        Runtime::real_seeded(2, 1).enter("main", move |cx| {
            let device = Arc::new(MemoryDevice::new(64 * 4096));
            let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("a queue");
            let config = BufferConfig { lru, ..BufferConfig::default() };
            body(cx, BufferCache::new(queue, config));
        });
    };
    let count = std::env::var("IOPATH_SCHEDULES").ok().and_then(|n| n.parse().ok());
    let count = count.unwrap_or(2000);
    shuttle::check_random(run.clone(), count);
    shuttle::check_pct(run, count, 3);
}

/// Adds one to the first byte of a block.
fn count_up(cx: &Cx, cache: &BufferCache, block: u64) {
    let buffer = cache.get(cx, block);
    buffer.with_mut(|bytes| bytes[0] += 1);
    buffer.set_uptodate();
    buffer.mark_dirty();
}

fn all_kinds(body: fn(&mut Cx, Arc<BufferCache>)) {
    for lru in [LruKind::Sets(1), LruKind::Array(8)] {
        explore(lru, body);
    }
}

#[test]
fn no_change_is_lost_to_the_clock() {
    // Goal: two tasks find a clean block through their LRUs and change it, while a third drops what
    // is clean and unused: all changes are in the buffer that the index has at last.
    all_kinds(|cx, cache| {
        // Found before, so that the LRUs name it.
        drop(cache.get(cx, 5));
        let spawn = |number: usize| {
            let cache = cache.clone();
            cx.spawn("task", move |cx| match number {
                2 => cache.drop_clean_unpinned(),
                _ => count_up(cx, &cache, 5),
            })
        };
        let tasks: Vec<_> = (0..3).map(spawn).collect();
        tasks.into_iter().for_each(|task| task.join(cx));
        assert_eq!(cache.get(cx, 5).with(|bytes| bytes[0]), 2);
    });
}

#[test]
fn what_was_forgotten_is_not_found_again() {
    // Goal: a task forgets a block while another looks it up; whoever looks afterwards finds the
    // new buffer, the same for everybody.
    all_kinds(|cx, cache| {
        let old = cache.get(cx, 9);
        let (theirs, other) = (cache.clone(), cache.clone());
        let forgetter = cx.spawn("forget", move |_| drop(theirs.forget_one(9)));
        let reader = cx.spawn("find", move |cx| drop(other.get(cx, 9)));
        forgetter.join(cx);
        reader.join(cx);
        let new = cache.get(cx, 9);
        assert!(old.forgotten() && !Arc::ptr_eq(&old, &new));
        assert!(Arc::ptr_eq(&new, &cache.get(cx, 9)));
    });
}
