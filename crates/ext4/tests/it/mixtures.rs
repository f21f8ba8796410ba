//! The suites with features beside each other, and with each alone: these file systems go through
//! the operations, the model, one file of random operations, tasks in explored schedules, power
//! cuts and damage. A seed for each of the mixtures; `IOPATH_SEEDS=35` comes to each feature alone
//! as well.
//!
//! What is encrypted is a directory below the root, which cannot be: there the suites work.

use std::sync::Arc;

use crate::casefold_encrypt::{policy, ring};
use crate::mutate;
use crate::support::campaign::{self, Plan};
use crate::support::chaos::Chaos;
use crate::support::*;
use block::Device;
use device::MemoryDevice;
use ext4::{Ext4, MountOptions};
use jbd2::JournalMode;
use rt::Cx;
use testkit::below::Below;
use testkit::fsx::space::Cost;
use testkit::memfs::Limits;
use testkit::model::{Config, check_seeds};
use testkit::trials::{self, Modelled, Stress};
use vfs::FileSystem;

/// With a journal of 1024 blocks, the least that there is.
const fn mixture(block: u32, features: &'static str) -> Cell {
    Cell::new("ext4", block).features(features).journal(1024)
}

/// So many of the cells are mixtures.
const MIXTURES: u64 = 16;

const CELLS: [Cell; 35] = [
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
    mixture(4096, "encrypt,casefold,stable_inodes,orphan_file"),
    mixture(1024, "encrypt,inline_data,bigalloc,quota").clustered(4),
    mixture(2048, "encrypt,fast_commit,mmp,ea_inode"),
    mixture(1024, "mmp,bigalloc,inline_data,casefold").clustered(8),
    // Each alone.
    mixture(1024, "inline_data"),
    mixture(4096, "bigalloc").clustered(4),
    mixture(1024, "bigalloc").clustered(2),
    mixture(2048, "casefold"),
    mixture(1024, "encrypt"),
    mixture(4096, "verity"),
    mixture(1024, "meta_bg,^resize_inode"),
    mixture(4096, "mmp"),
    mixture(1024, "^metadata_csum,uninit_bg"),
    mixture(1024, "large_dir"),
    mixture(4096, "quota"),
    mixture(1024, "quota,project"),
    mixture(2048, "stable_inodes"),
    mixture(1024, "ea_inode"),
    mixture(4096, "fast_commit"),
    mixture(1024, "orphan_file"),
    mixture(4096, "sparse_super2"),
    mixture(2048, "metadata_csum_seed"),
    mixture(16384, ""),
];

fn cell(seed: u64) -> Mixture {
    Mixture(CELLS[(seed % CELLS.len() as u64) as usize])
}

/// A cell of which an encrypted directory is all that is seen, where it has such.
#[derive(Clone, Copy, Debug)]
struct Mixture(Cell);

impl Mixture {
    fn is_encrypted(&self) -> bool {
        self.0.features.contains("encrypt")
    }
}

impl Format for Mixture {
    type Fs = Below<Ext4>;

    fn fresh(&self, cx: &mut Cx, bytes: u64) -> Arc<MemoryDevice> {
        let device = self.0.fresh(cx, bytes);
        if self.is_encrypted() {
            let fs = mount_with_key(cx, device.clone(), 64 << 20);
            let dir = mkdir(cx, &*fs, fs.root(), "below");
            fs.encrypt_directory(cx, dir, policy()).expect("it is empty");
            fs.unmount(cx).expect("unmount");
        }
        device
    }

    fn mount(&self, cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Below<Ext4>> {
        let fs = mount_with_key(cx, device, cache);
        let mut root = fs.root();
        if self.is_encrypted() {
            root = fs.lookup(cx, root, b"below").expect("the directory").ino;
        }
        Arc::new(Below::new(fs, root))
    }

    fn check(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Result<(), String> {
        self.0.check(cx, device)
    }

    fn judge(&self, device: &MemoryDevice) -> Result<(), String> {
        self.0.judge(device)
    }

    fn waits(&self) -> bool {
        self.0.features.contains("mmp")
    }
}

fn mount_with_key(cx: &mut Cx, device: Arc<dyn Device>, cache: u64) -> Arc<Ext4> {
    let options = MountOptions { keys: ring(), ..MountOptions::default() };
    try_mount(cx, device, cache, options).expect("mount").0
}

/// Room for a cell: its journal takes at most a quarter.
fn room(cell: Mixture, bytes: u64) -> u64 {
    bytes.max(4 * cell.0.journal)
}

fn config(seed: u64) -> Config {
    let cell = cell(seed);
    let (block_size, block) = (cell.0.block.into(), cell.0.block.min(4096) as usize);
    // The target of a link that is encrypted has its length before it.
    let target_max = block - if cell.is_encrypted() { 3 } else { 1 };
    let size_max = u64::from(u32::MAX) * block_size;
    let config = if seed.is_multiple_of(2) { Config::new(seed) } else { Config::many(seed) };
    let limits = Limits { size_max, target_max, block_size, ..Limits::default() };
    Config { limits, ..config }
}

/// Goal: every operation answers as POSIX and Linux ask.
#[test]
fn every_operation_on_mixtures_answers_as_it_should() {
    for cell in seeds(MIXTURES).map(cell) {
        println!("{cell:?}");
        let device = rt::testing::world(|cx| {
            let device = cell.fresh(cx, room(cell, 96 << 20));
            let fs = cell.mount(cx, device.clone(), 64 << 20);
            testkit::conformance::run_all(cx, &*fs);
            fs.unmount(cx).expect("unmount");
            checked(cx, &device, "after the operations");
            device
        });
        judged(&device, "after the operations");
    }
}

#[test]
fn mixtures_agree_with_the_reference() {
    let subject =
        |cx: &mut Cx, seed| Modelled::new(cx, room(cell(seed), 48 << 20), cell(seed), seed);
    check_seeds(0, seed_count(MIXTURES), config, subject);
}

#[test]
fn a_file_on_mixtures_holds_what_it_was_given() {
    for seed in seeds(MIXTURES) {
        let (cell, bytes) = (cell(seed), room(cell(seed), 16 << 20));
        let Cell { block, clusters, .. } = cell.0;
        let cost = Cost::ext4(block.into(), bytes / u64::from(block), false);
        trials::one_file(cell, bytes, cost.clusters(clusters.max(1).into()), seed);
    }
}

#[test]
fn tasks_on_mixtures_leave_them_sound() {
    let plan = Chaos { tasks: 8, steps: 150, size_max: 200_000, small: false, faults: false };
    for seed in seeds(MIXTURES) {
        let bytes = room(cell(seed), 64 << 20);
        Stress { bytes, cache: 2 << 20, plan }.in_a_world(cell(seed), seed);
    }
}

#[test]
fn mixtures_are_recovered() {
    for seed in seeds(MIXTURES) {
        let cell = cell(seed);
        let run = Recording { cell, seed, bytes: room(cell, 24 << 20), cache: 2 << 20 };
        trials::anything_goes(run, 60, &campaign::config(seed, 8));
    }
}

/// Every other one is left in the middle of its work.
#[test]
fn mutated_mixtures_never_break_us() {
    for index in 0..seed_count(MIXTURES).min(CELLS.len() as u64) {
        let (cell, dirty) = (cell(index), !index.is_multiple_of(2));
        let plan = mutate::Plan { block: cell.0.block, bytes: room(cell, 24 << 20), dirty };
        mutate::campaign_on(cell, plan, seeds(8));
    }
}

/// The kernel takes part: those that it mounts, without keys and without waiting for others.
#[test]
fn mixtures_keep_what_fsync_promised() {
    let theirs = |cell: &Cell| {
        cell.block <= 4096
            && !["casefold", "encrypt", "mmp"].iter().any(|f| cell.features.contains(f))
    };
    let cells = CELLS.into_iter().filter(theirs);
    for (cell, seed) in cells.zip(seeds(4)) {
        let plan = Plan { cell, mode: JournalMode::Ordered, steps: 60, random: 8 };
        campaign::run(plan, seed..seed + 1);
    }
}
