//! What the fast paths of buffers and handles cost, in nanoseconds per call.
//!
//! `cargo bench -p iopath-jbd2`; with `--test` (as `cargo test` runs it) everything is done a few
//! times only, to see that it works.

use std::hint::black_box;
use std::sync::Arc;

use block::{Queue, QueueConfig};
use cache::{BufferCache, BufferConfig, BufferRef};
use device::MemoryDevice;
use jbd2::{Checksums, Journal, JournalArea, JournalOptions};
use rt::{Cx, Runtime};

fn measure(cx: &mut Cx, name: &str, rounds: u64, mut f: impl FnMut(&mut Cx, u64)) {
    for n in 0..rounds / 10 {
        f(cx, n);
    }
    let start = cx.now();
    for n in 0..rounds {
        f(cx, n);
    }
    let ns = cx.now().since(start).0 as f64 / rounds as f64;
    println!("{name:44} {ns:9.1} ns");
}

fn buffers(cx: &mut Cx, cache: &BufferCache, rounds: u64) {
    for block in 0..1000 {
        cache.read(cx, block).expect("a block");
    }
    measure(cx, "get, first of the LRU", rounds, |cx, _| {
        black_box(cache.get(cx, 5));
    });
    measure(cx, "get, eight blocks in turn", rounds, |cx, n| {
        black_box(cache.get(cx, n % 8));
    });
    measure(cx, "get, sixteen blocks in turn", rounds, |cx, n| {
        black_box(cache.get(cx, n % 16));
    });
    measure(cx, "get, LRU missed, index found", rounds, |cx, n| {
        black_box(cache.get(cx, n * 7 % 1000));
    });
    let buffer = cache.get(cx, 5);
    measure(cx, "with", rounds, |_, n| {
        black_box(buffer.with(|bytes| bytes[n as usize % 4096]));
    });
    measure(cx, "with_mut", rounds, |_, n| buffer.with_mut(|bytes| bytes[n as usize % 4096] = 1));
}

fn handles(cx: &mut Cx, cache: &BufferCache, journal: &Journal, rounds: u64) {
    measure(cx, "start + stop", rounds, |cx, _| {
        journal.start(cx, 8).expect("a handle").stop(cx).expect("stopped");
    });
    let buffer = cache.read(cx, 5).expect("a block");
    let mut handle = journal.start(cx, 8).expect("a handle");
    measure(cx, "write access, in the transaction already", rounds, |cx, _| {
        handle.write_access(cx, black_box(&buffer)).expect("access");
    });
    measure(cx, "dirty, dirty already", rounds, |cx, _| {
        handle.dirty(cx, black_box(&buffer)).expect("dirty");
    });
    handle.stop(cx).expect("stopped");
    let buffers: Vec<BufferRef> =
        (0..200).map(|block| cache.read(cx, block).expect("a block")).collect();
    measure(cx, "200 buffers: access, change, dirty, commit", rounds / 20_000 + 1, |cx, n| {
        let mut handle = journal.start(cx, 200).expect("a handle");
        for buffer in &buffers {
            handle.write_access(cx, buffer).expect("access");
            buffer.with_mut(|bytes| bytes[0] = n as u8);
            handle.dirty(cx, buffer).expect("dirty");
        }
        handle.set_sync();
        handle.stop(cx).expect("stopped");
    });
    measure(cx, "one buffer: access, change, dirty, commit", rounds / 1000 + 1, |cx, n| {
        let mut handle = journal.start(cx, 1).expect("a handle");
        handle.write_access(cx, &buffers[0]).expect("access");
        buffers[0].with_mut(|bytes| bytes[0] = n as u8);
        handle.dirty(cx, &buffers[0]).expect("dirty");
        handle.set_sync();
        handle.stop(cx).expect("stopped");
    });
}

fn main() {
    let quick = !std::env::args().any(|arg| arg == "--bench");
    let rounds = if quick { 1000 } else { 5_000_000 };
    Runtime::real(2).enter("bench", |cx| {
        let device = MemoryDevice::new(256 << 20);
        let queue = Queue::new(cx.runtime(), Arc::new(device), QueueConfig::default());
        let cache = BufferCache::new(queue.expect("a queue"), BufferConfig::default());
        let mut sb = jbd2::format::Superblock::new(4096, 8192, [7; 16]);
        sb.version = 2;
        let mut page = base::Page::zeroed(4096);
        sb.emit(page.make_mut());
        let sector = base::Sector(10_000 * 8);
        cache.queue().write(cx, sector, page, block::BioFlags::empty()).expect("written");
        let area = JournalArea::internal([(10_000, 8192)]);
        if std::env::var("ONLY").is_err() {
            buffers(cx, &cache, rounds);
        }
        let options = JournalOptions { checksums: Some(Checksums::V3), ..Default::default() };
        let opened = Journal::open(cx, cache.clone(), area, options);
        let (journal, _) = opened.expect("a journal");
        handles(cx, &cache, &journal, rounds);
        journal.shutdown(cx).expect("shut down");
    });
}
