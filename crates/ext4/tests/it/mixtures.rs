//! The suites with features beside each other: each of these file systems goes through the model,
//! one file of random operations, tasks in explored schedules, and power cuts. A seed for each,
//! more with `IOPATH_SEEDS=n`.
//!
//! Encryption is not among them: a root is never encrypted, and the suites work in the root. See
//! `encrypt`, `casefold_encrypt` and `guest`. Nor is multi-mount protection: after a power cut a
//! mount waits for seconds of real time.

use crate::mutate;
use crate::support::campaign::{self, Plan};
use crate::support::chaos::Chaos;
use crate::support::*;
use jbd2::JournalMode;
use testkit::fsx::space::Cost;
use testkit::memfs::Limits;
use testkit::model::{Config, check_seeds};
use testkit::trials::{self, Modelled, Stress};

/// With a journal of 1024 blocks, the least that there is.
const fn mixture(block: u32, features: &'static str) -> Cell {
    Cell::new("ext4", block).features(features).journal(1024)
}

const CELLS: [Cell; 12] = [
    mixture(1024, "bigalloc,inline_data,casefold").clustered(16),
    mixture(65536, "fast_commit"),
    mixture(4096, "fast_commit,inline_data,casefold"),
    mixture(1024, "quota,project,ea_inode,inline_data"),
    mixture(1024, "meta_bg,^resize_inode,fast_commit,orphan_file"),
    mixture(2048, "bigalloc,quota,ea_inode,orphan_file").clustered(4),
    mixture(1024, "casefold,^metadata_csum,^64bit,inline_data"),
    mixture(8192, "bigalloc,inline_data,project,quota").clustered(2),
    mixture(4096, "large_dir,ea_inode,casefold,verity,stable_inodes"),
    mixture(32768, "casefold,orphan_file,fast_commit"),
    mixture(1024, "sparse_super2,metadata_csum_seed,inline_data,ea_inode"),
    mixture(4096, "quota,fast_commit,casefold"),
];

fn cell(seed: u64) -> Cell {
    CELLS[(seed % CELLS.len() as u64) as usize]
}

/// Room for a cell: its journal takes at most a quarter.
fn room(cell: Cell, bytes: u64) -> u64 {
    bytes.max(4 * cell.journal)
}

fn config(seed: u64) -> Config {
    let cell = cell(seed);
    let (block_size, target_max) = (cell.block.into(), cell.block.min(4096) as usize - 1);
    let size_max = u64::from(u32::MAX) * block_size;
    let config = if seed.is_multiple_of(2) { Config::new(seed) } else { Config::many(seed) };
    let limits = Limits { size_max, target_max, block_size, ..Limits::default() };
    Config { limits, ..config }
}

#[test]
fn mixtures_agree_with_the_reference() {
    let subject = |cx: &mut rt::Cx, seed| {
        let cell = cell(seed);
        Modelled::new(cx, room(cell, 48 << 20), InMode(cell, JournalMode::Ordered), seed)
    };
    check_seeds(0, seed_count(12), config, subject);
}

#[test]
fn a_file_on_mixtures_holds_what_it_was_given() {
    for seed in seeds(12) {
        let (cell, bytes) = (cell(seed), room(cell(seed), 16 << 20));
        let cost = Cost::ext4(cell.block.into(), bytes / u64::from(cell.block), false);
        trials::one_file(cell, bytes, cost.clusters(cell.clusters.max(1).into()), seed);
    }
}

#[test]
fn tasks_on_mixtures_leave_them_sound() {
    let plan = Chaos { tasks: 8, steps: 150, size_max: 200_000, small: false, faults: false };
    for seed in seeds(12) {
        let bytes = room(cell(seed), 64 << 20);
        Stress { bytes, cache: 2 << 20, plan }.in_a_world(cell(seed), seed);
    }
}

#[test]
fn mixtures_are_recovered() {
    for seed in seeds(12) {
        let cell = cell(seed);
        let run = Recording { cell, seed, bytes: room(cell, 24 << 20), cache: 2 << 20 };
        trials::anything_goes(run, 60, &campaign::config(seed, 8));
    }
}

/// Every other one is left in the middle of its work.
#[test]
fn mutated_mixtures_never_break_us() {
    for (index, cell) in (0u64..).zip(CELLS) {
        mutate::campaign_on(cell, room(cell, 24 << 20), !index.is_multiple_of(2), seeds(8));
    }
}

/// The kernel takes part: those that it mounts.
#[test]
fn mixtures_keep_what_fsync_promised() {
    let cells = CELLS.into_iter().filter(|cell| !cell.features.contains("casefold"));
    for (cell, seed) in cells.filter(|cell| cell.block <= 4096).zip(seeds(12)) {
        let plan = Plan { cell, mode: JournalMode::Ordered, steps: 60, random: 8 };
        campaign::run(plan, seed..seed + 1);
    }
}
