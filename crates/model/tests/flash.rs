//! The flash device: dies at once, the buffer, programs, flushes; and the stripe.

mod common;

use base::{Nanos, Rng};
use block::{BioFlags, Op};
use common::*;
use model::{DeviceSpec, FlashParams, Profile};
use rt::Cx;

fn changed<T>(
    name: &str,
    change: impl FnOnce(&mut FlashParams),
    f: impl FnOnce(&mut Cx, &Bench) -> T,
) -> T {
    let mut profile = Profile::load(name).unwrap();
    profile.charges = Default::default();
    let DeviceSpec::Flash(params) = &mut profile.device else { panic!("a flash device") };
    change(params);
    with_profile(&profile, 8 << 30, f)
}

fn reads(cx: &mut Cx, bench: &Bench, depth: usize, at: impl Fn(u64) -> u64) -> f64 {
    let count = 4000;
    let span = keep_busy(cx, &bench.queue, depth, count, |i| (Op::Read, at(i as u64), 4096));
    count as f64 / span.as_secs_f64()
}

#[test]
fn dies_work_at_once_and_one_die_in_turn() {
    changed(
        "flash-nvme",
        |_| (),
        |cx, bench| {
            let page = 32 << 10;
            let single = reads(cx, bench, 1, |i| i * page);
            let spread = reads(cx, bench, 16, |i| i * page);
            // Every 32nd page lies on the same die.
            let same = reads(cx, bench, 16, |i| i * 32 * page);
            assert!(spread > single * 12.0, "{single} and {spread} reads/s");
            assert!(same < single * 1.3, "{single} and {same} reads/s");
        },
    );
}

#[test]
fn a_write_ends_in_the_buffer_and_a_full_buffer_at_the_programs() {
    changed(
        "flash-nvme",
        |_| (),
        |cx, bench| {
            let first = took(cx, |cx| one(cx, &bench.queue, Op::Write, 0, 4096));
            assert!(first < 20.0, "{first} us");
            let size = 128 << 10;
            let span = keep_busy(cx, &bench.queue, 8, 4000, |i| (Op::Write, i as u64 * size, size));
            let rate = 4000.0 * size as f64 / span.0 as f64 * 1e3;
            assert!((2300.0..2700.0).contains(&rate), "published 2500: {rate} MB/s");
            assert!(bench.device.stats().write_stalls > 1000);
        },
    );
}

#[test]
fn a_read_waits_for_the_program_on_its_die() {
    let slow = |writes: bool| {
        changed(
            "flash-sata",
            |params| params.program = Nanos::from_millis(5),
            |cx, bench| {
                if writes {
                    let all: Vec<_> = (0..64).map(|i| (Op::Write, i << 14, 1 << 14)).collect();
                    batch(cx, &bench.queue, &all);
                }
                took(cx, |cx| one(cx, &bench.queue, Op::Read, 1 << 30, 4096))
            },
        )
    };
    let (idle, busy) = (slow(false), slow(true));
    assert!(idle < 150.0 && busy > 2000.0, "{idle} and {busy} us");
}

#[test]
fn an_erase_comes_after_every_block() {
    let time = |erase| {
        changed(
            "flash-sata",
            |params| {
                (params.block_pages, params.erase) = (4, Nanos::from_millis(erase));
            },
            |cx, bench| {
                let size = 512 << 10;
                let next = |i| (Op::Write, i as u64 * size, size);
                keep_busy(cx, &bench.queue, 4, 400, next).as_secs_f64()
            },
        )
    };
    let (without, with) = (time(0), time(6));
    assert!(
        (with / without - 2.0).abs() < 0.15,
        "6 ms for four programs of 1.5: {without}, {with}"
    );
}

#[test]
fn a_flush_programs_what_is_left_and_waits() {
    changed(
        "flash-nvme",
        |_| (),
        |cx, bench| {
            one(cx, &bench.queue, Op::Write, 0, 4096);
            assert_eq!(bench.device.losable(), [1]);
            let us = took(cx, |cx| bench.queue.flush(cx).unwrap());
            assert!((460.0..520.0).contains(&us), "a program and the overhead: {us} us");
            assert!(bench.device.losable().is_empty());
            let us = took(cx, |cx| bench.queue.flush(cx).unwrap());
            assert!((100.0..110.0).contains(&us), "nothing left: {us} us");
            let page = base::Page::zeroed(4096);
            let us = took(cx, |cx| {
                bench.queue.write(cx, base::Sector(8), page, BioFlags::FUA).unwrap();
            });
            assert!(us > 360.0 && bench.device.losable().is_empty(), "{us} us through the buffer");
        },
    );
}

#[test]
fn a_buffer_of_two_pages_stalls_and_never_sticks() {
    changed(
        "flash-nvme",
        |params| params.buffer = 64 << 10,
        |cx, bench| {
            let mut rng = Rng::new(1, 0);
            let next = |i: usize| (Op::Write, (i as u64) << 20, 4096 * (1 + rng.below(16)));
            keep_busy(cx, &bench.queue, 16, 2000, next);
            assert!(bench.device.stats().write_stalls > 500);
        },
    );
}

/// Goal: the stripe cuts at chunks, and a piece of memory across the end of a chunk into two
/// commands of their own. Method: count the members' commands.
#[test]
fn a_stripe_cuts_at_chunks_and_through_pieces_of_memory() {
    let commands = |offset: u64, bytes: u64| {
        with("stripe-64fc", |cx, bench| {
            one(cx, &bench.queue, Op::Write, offset, bytes);
            bench.device.stats().member_commands
        })
    };
    let chunk = 128 << 10;
    assert_eq!(commands(0, chunk), 1);
    assert_eq!(commands(0, 3 * chunk), 3);
    assert_eq!(commands(4096, chunk), 2, "the end of a chunk between two pieces");
    // Shifted by half a piece: at the end of each chunk the pieces before, two halves, and so on.
    assert_eq!(commands(2048, chunk), 3);
    assert_eq!(commands(2048, 2 * chunk), 6);
}

/// Goal: pages of 16 KiB whose data is shifted by a block of 4 KiB, as behind an indirect block,
/// cost three commands at each chunk: the pages before its end, 12 KiB, 4 KiB. Method: one bio of
/// 512 KiB.
#[test]
fn large_pages_that_are_shifted_against_the_chunks_are_cut_three_times_at_each() {
    let commands = |offset: u64| {
        with("stripe-64fc", |cx, bench| {
            let group = block::IoGroup::new();
            let pages = (0..32).map(|_| base::Page::zeroed(16 << 10));
            let bio = block::Bio::write(base::Sector(offset / 512), pages, NONE, group.end());
            bench.queue.submit(cx, bio);
            group.wait(cx).unwrap();
            bench.device.stats().member_commands
        })
    };
    assert_eq!(commands(0), 4, "128 KiB each");
    assert_eq!(commands(4096), 12, "112, 12 | 4, 112, 12 | 4, 112, 12 | 4, 112, 12 | 4 KiB");
    assert_eq!(commands(16 << 10), 5, "whole pages again");
}

#[test]
fn the_stripe_streams_at_the_rate_of_its_loops() {
    with("stripe-64fc", |cx, bench| {
        let size = 512 << 10;
        let span = keep_busy(cx, &bench.queue, 256, 2000, |i| (Op::Write, i as u64 * size, size));
        let rate = 2000.0 * size as f64 / span.as_secs_f64() / (1u64 << 30) as f64;
        assert!((2.2..2.6).contains(&rate), "2.5 GiB/s: {rate}");
        let stats = bench.device.stats();
        assert_eq!(stats.commands, 2000);
        assert!(stats.member_commands <= 8000, "neighbours join: {}", stats.member_commands);
    });
}
