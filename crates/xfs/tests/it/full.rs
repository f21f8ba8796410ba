//! Full devices: what a write accepted finds its place, in every shape of the free space, and
//! wherever the power fails, what was synced is there and nothing is inconsistent.
//! `IOPATH_SEEDS=n` runs more.

use crate::world::{Cell, Recording, seed_count};
use testkit::crash::CrashConfig;
use testkit::full::Plan;
use testkit::trials;

const CELLS: [Cell; 4] = [
    Cell(&[]),
    Cell(&[('b', "size=1024"), ('m', "rmapbt=1"), ('d', "agcount=3")]),
    Cell(&[('m', "reflink=0"), ('d', "agcount=3")]),
    Cell(&[('m', "rmapbt=1"), ('d', "agcount=2")]),
];

const PLAN: Plan = Plan {
    tasks: 5,
    steps: 90,
    files: 4,
    size_max: 600_000,
    left: Some(600),
    torn: false,
    align: 4096,
};

const SIZE: u64 = 64 << 20;

#[test]
fn what_was_synced_survives_power_cuts_on_a_full_device() {
    for seed in 0..seed_count(2) {
        let left = if seed % 3 == 2 { None } else { Some(300 + seed % 5 * 100) };
        let cell = CELLS[(seed % 4) as usize];
        let run = Recording { cell, seed, bytes: SIZE, cache: 2 << 20 };
        let config = CrashConfig { random: 20, at_flushes_max: 25, ..CrashConfig::new(seed) };
        trials::full_device_survives(run, Plan { left, torn: seed % 4 == 1, ..PLAN }, &config);
    }
}

#[test]
fn what_was_accepted_finds_its_place() {
    for seed in 0..seed_count(4) {
        let plan =
            Plan { steps: 250, left: Some(300 + seed % 7 * 150), torn: seed % 5 > 2, ..PLAN };
        trials::accepted_finds_its_place(CELLS[(seed % 4) as usize], SIZE, plan, seed);
    }
}
