//! The hard disk, mechanism by mechanism.

mod common;

use base::{Nanos, Rng};
use block::{BioFlags, Op};
use common::*;
use model::{DeviceSpec, DiskParams, Profile};
use rt::Cx;

/// One turn of 7200 a minute, in us.
const TURN: f64 = 8333.333;
const GIB: u64 = 1 << 30;
/// Nearly all of the disk.
const WHOLE: u64 = 499_999_997_952;

/// The disk with changed parameters, on `size` bytes, with free processors.
fn changed<T>(
    name: &str,
    size: u64,
    change: impl FnOnce(&mut DiskParams),
    f: impl FnOnce(&mut Cx, &Bench) -> T,
) -> T {
    let mut profile = Profile::load(name).unwrap();
    profile.charges = Default::default();
    let DeviceSpec::Disk(params) = &mut profile.device else { panic!("a disk") };
    change(params);
    with_profile(&profile, size, f)
}

fn disk<T>(f: impl FnOnce(&mut Cx, &Bench) -> T) -> T {
    changed("disk-7200", 400 * GIB, |_| (), f)
}

fn cached<T>(f: impl FnOnce(&mut Cx, &Bench) -> T) -> T {
    changed("disk-7200-wc", 400 * GIB, |_| (), f)
}

/// Megabytes per second of `count` commands of 128 KiB in sequence from `offset`.
fn sequential(cx: &mut Cx, bench: &Bench, op: Op, offset: u64, count: u64, depth: usize) -> f64 {
    let size = 128 << 10;
    let span = keep_busy(cx, &bench.queue, depth, count as usize, |i| {
        (op, offset + i as u64 * size, size)
    });
    (count * size) as f64 / (span.0 as f64 / 1e3)
}

/// Goal: a write that comes just too late waits for a whole turn. Method: writes in sequence, one
/// at a time, without a write cache.
#[test]
fn a_missed_sector_costs_a_turn() {
    disk(|cx, bench| {
        one(cx, &bench.queue, Op::Write, 0, 4096);
        for index in 1..20 {
            let us = took(cx, |cx| one(cx, &bench.queue, Op::Write, index * 4096, 4096));
            // A turn from one start to the same place, and the 8 sectors between.
            assert!((us - TURN - 38.5).abs() < 1.0, "write {index} took {us} us");
        }
        // A gap that the disk turns over in the command's overhead: no turn is lost.
        one(cx, &bench.queue, Op::Write, 1 << 20, 4096);
        let us = took(cx, |cx| one(cx, &bench.queue, Op::Write, (1 << 20) + 40 * 4096, 4096));
        assert!(us < TURN / 2.0, "behind a gap {us} us");
    });
}

#[test]
fn a_random_read_takes_overhead_seek_and_half_a_turn() {
    changed(
        "disk-7200",
        WHOLE,
        |_| (),
        |cx, bench| {
            let mut rng = Rng::new(1, 0);
            let reads = 3000;
            let span = keep_busy(cx, &bench.queue, 1, reads, |_| {
                (Op::Read, place(&mut rng, 4096, WHOLE), 4096)
            });
            let ms = span.0 as f64 / reads as f64 / 1e6;
            let stated = 0.2 + 8.0 + 4.17;
            assert!((ms - stated).abs() < 0.5, "{ms} ms, the manual's numbers say {stated}");
            let stats = bench.device.stats();
            assert!(stats.seeks > 2900 && stats.read_hits < 5, "{stats:?}");
        },
    );
}

/// A bus that is slower than the medium bounds every read, whether it comes from the medium, from
/// what was read ahead, or from a segment: 2.5 GiB/s of 64 disks are never passed.
#[test]
fn a_slow_bus_bounds_reads() {
    let bus = 40 << 20;
    let slow = |params: &mut DiskParams| params.bus = model::Rate(bus);
    changed("disk-7200", 400 * GIB, slow, |cx, bench| {
        let most = bus as f64 / 1e6 * 1.0001;
        for depth in [1, 4, 32] {
            let rate = sequential(cx, bench, Op::Read, depth as u64 * GIB, 500, depth);
            assert!((0.7 * most..most).contains(&rate), "in sequence, {depth} deep: {rate} MB/s");
        }
        let (mut rng, size) = (Rng::new(2, 0), 1 << 20);
        for depth in [1, 16] {
            let span = keep_busy(cx, &bench.queue, depth, 100, |_| {
                (Op::Read, place(&mut rng, size, GIB), size)
            });
            let rate = (100 * size) as f64 / (span.0 as f64 / 1e3);
            assert!(rate < most, "all over, {depth} deep: {rate} MB/s");
        }
        let us = took(cx, |cx| one(cx, &bench.queue, Op::Read, 200 * GIB, 4 << 20));
        assert!(us > (4 << 20) as f64 / bus as f64 * 1e6, "one large read took {us} us");
    });
}

#[test]
fn outer_tracks_are_faster_than_inner_ones() {
    changed(
        "disk-7200",
        499 * 1_000_000_000,
        |_| (),
        |cx, bench| {
            let outer = sequential(cx, bench, Op::Read, 0, 500, 1);
            let inner = sequential(cx, bench, Op::Read, 498 * 1_000_000_000 / 4096 * 4096, 500, 1);
            assert!((95.0..107.0).contains(&outer), "outside {outer} MB/s");
            assert!((outer / inner - 142.0 / 75.0).abs() < 0.06, "{outer} and {inner} MB/s");
        },
    );
}

#[test]
fn reading_on_meets_what_was_read_ahead() {
    disk(|cx, bench| {
        one(cx, &bench.queue, Op::Read, 0, 4096);
        cx.sleep(Nanos::from_millis(20));
        let hit = took(cx, |cx| one(cx, &bench.queue, Op::Read, 4096, 4096));
        assert!((213.0..215.0).contains(&hit), "overhead and bus alone: {hit} us");
        // Another track between: the segment is still there.
        one(cx, &bench.queue, Op::Read, GIB, 4096);
        let back = took(cx, |cx| one(cx, &bench.queue, Op::Read, 64 << 10, 4096));
        assert!((213.0..215.0).contains(&back), "from the segment: {back} us");
        assert_eq!(bench.device.stats().read_hits, 2);
    });
}

/// Goal: the disk finds a better order than the one in which commands came. Method: random reads,
/// 32 at once, against one at a time.
#[test]
fn many_commands_at_once_are_served_in_a_better_order() {
    let rate = |depth| {
        disk(|cx, bench| {
            let mut rng = Rng::new(1, 0);
            let span = keep_busy(cx, &bench.queue, depth, 2000, |_| {
                (Op::Read, place(&mut rng, 4096, 400 * GIB), 4096)
            });
            2000.0 / span.as_secs_f64()
        })
    };
    let (one, four, all) = (rate(1), rate(4), rate(32));
    assert!(four > one * 1.25, "{one} and {four} reads/s");
    assert!(all > one * 2.2 && all < one * 4.0, "{one} and {all} reads/s");
}

#[test]
fn nobody_waits_longer_than_the_age_limit_by_much() {
    disk(|cx, bench| {
        // A crowd in the outer zone keeps the arm there; one read wants the far end.
        let queue = bench.queue.clone();
        let crowd = cx.spawn("crowd", move |cx| {
            let mut rng = Rng::new(4, 0);
            keep_busy(cx, &queue, 24, 3000, |_| (Op::Read, place(&mut rng, 4096, GIB), 4096));
        });
        cx.sleep(Nanos::from_millis(50));
        let us = took(cx, |cx| one(cx, &bench.queue, Op::Read, 399 * GIB, 4096));
        assert!(us > 500_000.0, "it is the worst choice each time: {us} us");
        assert!(us < 1_100_000.0, "1 s and what is in service: {us} us");
        crowd.join(cx);
    });
}

#[test]
fn a_sequential_write_streams_where_the_disk_sees_the_next_command() {
    disk(|cx, bench| {
        let one = sequential(cx, bench, Op::Write, 0, 100, 1);
        let two = sequential(cx, bench, Op::Write, GIB, 1000, 2);
        assert!(one < 16.0, "a turn for each: {one} MB/s");
        assert!(two > 95.0, "the next one waits already: {two} MB/s");
    });
}

#[test]
fn the_write_cache_takes_writes_until_it_is_full() {
    cached(|cx, bench| {
        let first = took(cx, |cx| one(cx, &bench.queue, Op::Write, 0, 4096));
        assert!((213.0..215.0).contains(&first), "overhead and bus: {first} us");
        // Full: what comes in waits for what goes out.
        let rate = sequential(cx, bench, Op::Write, GIB, 2000, 4);
        assert!((90.0..107.0).contains(&rate), "the medium's rate: {rate} MB/s");
        assert!(bench.device.stats().write_stalls > 500);
        let mut rng = Rng::new(2, 0);
        let next = |_| (Op::Write, place(&mut rng, 4096, 400 * GIB), 4096);
        let span = keep_busy(cx, &bench.queue, 1, 6000, next);
        let rate = 6000.0 / span.as_secs_f64();
        assert!((100.0..1500.0).contains(&rate), "{rate} random writes/s");
    });
}

#[test]
fn a_flush_waits_for_the_medium_and_an_empty_one_does_not() {
    cached(|cx, bench| {
        let mut rng = Rng::new(2, 0);
        for _ in 0..50 {
            one(cx, &bench.queue, Op::Write, place(&mut rng, 4096, 400 * GIB), 4096);
        }
        let held = bench.device.losable().len();
        assert!(held > 40, "{held} of 50 wait in the cache");
        let us = took(cx, |cx| bench.queue.flush(cx).unwrap());
        assert!(us > 2000.0 * held as f64, "{us} us for {held} places");
        assert!(bench.device.losable().is_empty());
        let us = took(cx, |cx| bench.queue.flush(cx).unwrap());
        assert!(us < 250.0, "{us} us for nothing");
    });
}

#[test]
fn fua_goes_to_the_medium() {
    cached(|cx, bench| {
        one(cx, &bench.queue, Op::Write, 0, 4096);
        let page = base::Page::zeroed(4096);
        let us = took(cx, |cx| {
            bench.queue.write(cx, base::Sector(0), page, BioFlags::FUA).unwrap();
        });
        assert!(us > 500.0, "{us} us");
        assert!(bench.device.losable().is_empty(), "it replaced what was in the cache");
    });
}

/// Goal: the write-out leaves the medium to the readers. Method: a cache with work in it, a reader
/// with short pauses, then a rest.
#[test]
fn write_out_waits_for_idle_time() {
    cached(|cx, bench| {
        let mut rng = Rng::new(2, 0);
        let mut place = || place(&mut rng, 4096, 400 * GIB);
        one(cx, &bench.queue, Op::Read, place(), 4096);
        for _ in 0..50 {
            one(cx, &bench.queue, Op::Write, place(), 4096);
        }
        let held = bench.device.losable().len();
        for _ in 0..50 {
            one(cx, &bench.queue, Op::Read, place(), 4096);
            cx.sleep(Nanos::from_millis(5));
        }
        assert_eq!(bench.device.losable().len(), held, "no write-out beside the reader");
        cx.sleep(Nanos::from_secs(2));
        assert!(bench.device.losable().is_empty(), "all of it in the pause");
    });
}
