//! The array: what a write costs, what a stream gets, and how the two compete.

mod common;

use base::Rng;
use block::Op;
use common::*;

const CHUNK: u64 = 128 << 10;

/// Goal: a sequential reader with one window of 128 KiB outstanding gets the published rate.
#[test]
fn a_sequential_reader_gets_the_published_rate() {
    with("array-2010", |cx, bench| {
        let us = took(cx, |cx| {
            (0..1000).for_each(|i| one(cx, &bench.queue, Op::Read, i * CHUNK, CHUNK));
        });
        let rate = 1000.0 * CHUNK as f64 / us;
        assert!((149.0..153.0).contains(&rate), "{rate} MB/s");
        let stats = bench.device.stats();
        assert!(stats.prefetch_hits > 990 && stats.read_misses < 5, "{stats:?}");
    });
}

#[test]
fn writes_are_parallel_and_end_in_the_cache() {
    with("array-2010", |cx, bench| {
        let single = took(cx, |cx| one(cx, &bench.queue, Op::Write, 0, 4096));
        let many: Vec<_> = (1..9).map(|i| (Op::Write, i << 20, 4096)).collect();
        let eight = took(cx, |cx| batch(cx, &bench.queue, &many));
        assert!(eight < single * 1.5, "one {single} us, eight {eight} us");
        assert!(bench.device.losable().is_empty(), "the cache outlives a power cut");
        cx.sleep(base::Nanos::from_secs(1));
        let stats = bench.device.stats();
        assert_eq!((stats.dirty_bytes, stats.destaged_bytes), (0, 9 * 4096));
    });
}

#[test]
fn a_read_in_service_delays_a_write() {
    with("array-2010", |cx, bench| {
        let alone = took(cx, |cx| one(cx, &bench.queue, Op::Write, 0, 4096));
        let queue = bench.queue.clone();
        let reader = cx.spawn("reader", move |cx| one(cx, &queue, Op::Read, 512 << 20, 4096));
        cx.sleep(base::Nanos::from_micros(10));
        let beside = took(cx, |cx| one(cx, &bench.queue, Op::Write, 1 << 20, 4096));
        reader.join(cx);
        assert!((beside - alone - 110.0).abs() < 0.01, "{alone} and {beside} us");
    });
}

/// Goal: write-out takes its time from the reader, and no more than half.
#[test]
fn write_out_and_reading_ahead_share_the_back_end() {
    with("array-2010", |cx, bench| {
        // More than the reader's time will suffice for.
        let writes: Vec<_> =
            (0..2000).map(|i| (Op::Write, (512 << 20) + i * CHUNK, CHUNK)).collect();
        batch(cx, &bench.queue, &writes);
        let us = took(cx, |cx| {
            (0..500).for_each(|i| one(cx, &bench.queue, Op::Read, i * CHUNK, CHUNK));
        });
        assert!(bench.device.stats().dirty_bytes > 0, "the write-out lasts longer");
        let rate = 500.0 * CHUNK as f64 / us;
        assert!((72.0..79.0).contains(&rate), "{rate} MB/s: half of 151.4");
    });
}

#[test]
fn a_full_cache_takes_writes_at_the_back_end_s_rate() {
    let mut profile = model::Profile::load("array-2010").unwrap();
    let model::DeviceSpec::Array(params) = &mut profile.device else { panic!("an array") };
    params.write_cache = 4 << 20;
    with_profile(&profile, 1 << 30, |cx, bench| {
        let span = keep_busy(cx, &bench.queue, 4, 1000, |i| (Op::Write, i as u64 * CHUNK, CHUNK));
        let rate = (1000 * CHUNK) as f64 / span.0 as f64 * 1e3;
        assert!(
            (90.0..98.0).contains(&rate),
            "{rate} MB/s: destage_rate, and the cache's own share"
        );
        assert!(bench.device.stats().write_stalls > 900);
    });
}

#[test]
fn what_is_overwritten_in_the_cache_is_written_out_once() {
    with("array-2010", |cx, bench| {
        let same: Vec<_> = (0..64).map(|_| (Op::Write, 0, 4096)).collect();
        batch(cx, &bench.queue, &same);
        cx.sleep(base::Nanos::from_secs(1));
        let stats = bench.device.stats();
        assert!(stats.destaged_bytes < 64 * 4096 / 2, "{stats:?}");
    });
}

#[test]
fn what_waits_in_the_write_cache_is_read_from_there() {
    with("array-2010", |cx, bench| {
        // The second waits behind the first, which takes 1.4 ms to write out.
        batch(cx, &bench.queue, &[(Op::Write, 0, CHUNK), (Op::Write, 1 << 20, 4096)]);
        let us = took(cx, |cx| one(cx, &bench.queue, Op::Read, 1 << 20, 4096));
        assert!((110.0..111.0).contains(&us), "latency of a hit and the port: {us} us");
        assert_eq!(bench.device.stats().read_hits, 1);
    });
}

#[test]
fn random_reads_use_all_spindles() {
    with("array-2010", |cx, bench| {
        let mut rng = Rng::new(3, 0);
        let next = |_| (Op::Read, place(&mut rng, 4096, 1 << 30), 4096);
        let one = keep_busy(cx, &bench.queue, 1, 200, next).0 as f64 / 200e6;
        let next = |_| (Op::Read, place(&mut rng, 4096, 1 << 30), 4096);
        let many = keep_busy(cx, &bench.queue, 32, 2000, next).0 as f64 / 2000e6;
        assert!((6.0..6.5).contains(&one), "{one} ms");
        assert!((0.4..0.55).contains(&many), "{many} ms: a 14th, and the transfer");
    });
}
