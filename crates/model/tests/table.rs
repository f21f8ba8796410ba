//! The figures of every profile as one table, so that a change of a model is a diff of numbers.

mod common;

use base::{Nanos, Rng};
use block::Op;
use common::*;
use model::{Profile, names};
use rt::Cx;
use std::fmt::Write as _;

/// Bytes of the device on which everything is measured.
const SIZE: u64 = 16 << 30;
const RANDOM: u64 = 4096;
const SEQUENTIAL: u64 = 128 << 10;

/// A device of `name`, with the costs of its processors.
fn on<T>(name: &str, f: impl FnOnce(&mut Cx, &Bench) -> T) -> T {
    with_profile(&Profile::load(name).unwrap(), SIZE, f)
}

/// Commands per second of 4 KiB at random places; every `reads`th of ten is a read.
fn random(name: &str, depth: usize, reads: u64) -> f64 {
    on(name, |cx, bench| {
        let (mut rng, count) = (Rng::new(9, 0), 400 * (1 + depth.min(8)));
        let span = keep_busy(cx, &bench.queue, depth, count, |_| {
            let op = if rng.below(10) < reads { Op::Read } else { Op::Write };
            (op, place(&mut rng, RANDOM, SIZE), RANDOM)
        });
        count as f64 / span.as_secs_f64()
    })
}

/// Megabytes per second of 128 KiB in sequence.
fn sequential(name: &str, depth: usize, op: Op) -> f64 {
    on(name, |cx, bench| {
        let count = 3000;
        let span =
            keep_busy(cx, &bench.queue, depth, count, |i| (op, i as u64 * SEQUENTIAL, SEQUENTIAL));
        (count as u64 * SEQUENTIAL) as f64 / span.as_secs_f64() / 1e6
    })
}

/// Milliseconds of a flush behind one write of 4 KiB, mean of many at random places.
fn flush(name: &str) -> f64 {
    on(name, |cx, bench| {
        let (mut rng, mut sum) = (Rng::new(9, 0), Nanos::ZERO);
        for _ in 0..100 {
            one(cx, &bench.queue, Op::Write, place(&mut rng, RANDOM, SIZE), RANDOM);
            let before = cx.now();
            bench.queue.flush(cx).unwrap();
            sum += cx.now().since(before);
        }
        sum.0 as f64 / 100e6
    })
}

fn rate(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

/// Goal: no model changes its figures unnoticed. Method: the table in `tests/table.txt`; a
/// deliberate change is taken over with `IOPATH_BLESS=1`.
#[test]
fn the_figures_of_every_profile() {
    let mut table = String::from(
        "# 4 KiB at random: commands/s at depth 1, 8, 32; 128 KiB in sequence: MB/s at depth 1,\n\
         # 8; a flush behind one 4 KiB write: ms; mixed: 70 % reads of 4 KiB at depth 8.\n\
         # 16 GiB, with the costs of the processors.\n",
    );
    let head = ["", "read 1", "read 8", "read 32", "write 1", "write 8", "write 32"];
    let tail = ["seq read 1", "seq read 8", "seq write 1", "seq write 8", "flush ms", "mixed 8"];
    let mut rows = vec![head.iter().chain(&tail).map(|s| s.to_string()).collect::<Vec<_>>()];
    for name in names() {
        let mut row = vec![name.to_owned()];
        let random_rows =
            [10, 0].into_iter().flat_map(|reads| [(1, reads), (8, reads), (32, reads)]);
        row.extend(random_rows.map(|(depth, reads)| rate(random(name, depth, reads))));
        let in_sequence = [(1, Op::Read), (8, Op::Read), (1, Op::Write), (8, Op::Write)];
        row.extend(in_sequence.map(|(depth, op)| rate(sequential(name, depth, op))));
        row.push(format!("{:.3}", flush(name)));
        row.push(rate(random(name, 8, 7)));
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        writeln!(table, "{}", cells.collect::<Vec<_>>().join("  ").trim_end()).unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/table.txt");
    if std::env::var_os("IOPATH_BLESS").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let wanted = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(table, wanted, "\nthe figures changed; IOPATH_BLESS=1 takes these over:\n{table}");
}

/// Goal: a run is a function of its seed. Method: mixed work with an elevator of every profile,
/// twice.
#[test]
fn runs_repeat_to_the_event() {
    for name in names() {
        let run = || {
            let profile = Profile::load(name).unwrap();
            let mut world = rt::World::new(profile.world_config(3));
            let memory = std::sync::Arc::new(device::MemoryDevice::new(SIZE));
            let device = profile.device(&world.runtime(), memory).unwrap();
            let config = profile.queue_config("deadline");
            let queue = block::Queue::new(&world.runtime(), device.clone(), config).unwrap();
            let mut rng = Rng::new(3, 0);
            world.run("test", |cx| {
                keep_busy(cx, &queue, 6, 500, |_| {
                    let op = if rng.chance(0.5) { Op::Read } else { Op::Write };
                    (op, place(&mut rng, 4096, SIZE), 4096 * (1 + rng.below(8)))
                })
            });
            (world.hash(), world.now(), device.stats())
        };
        assert_eq!(run(), run(), "{name}");
    }
}
