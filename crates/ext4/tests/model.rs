//! Random operations from one and from many tasks, beside the reference file system, with remounts,
//! in virtual time: a hundred seeds here, thousands with `IOPATH_SEEDS=n`. After every unmount
//! `e2fsck -fn` judges the image.

mod support;

use base::Rng;
use device::MemoryDevice;
use rt::Cx;
use std::sync::Arc;
use support::*;
use testkit::memfs::Limits;
use testkit::model::{Config, Subject, check_seeds};
use vfs::FileSystem;

/// One file system of the grid, on a device in memory.
struct OnExt4 {
    device: Arc<MemoryDevice>,
    cache: u64,
    seed: u64,
    what: String,
}

impl Subject for OnExt4 {
    fn mount(&mut self, cx: &mut Cx) -> Arc<dyn FileSystem> {
        let device = timed(cx, &self.device, self.seed / 12);
        mount_cached(cx, device, self.cache).0
    }

    fn inspect(&mut self, _cx: &mut Cx) -> Result<(), String> {
        testkit::judge::e2fsck_bytes(&self.device.snapshot())
            .map_err(|message| format!("{}: {message}", self.what))
    }
}

const CELLS: [Cell; 12] = [
    Cell::new("ext4", 4096),
    Cell::new("ext4", 1024),
    Cell::new("ext4", 2048).journal(1024),
    Cell::new("ext4", 1024).journal(1024),
    Cell::new("ext4", 4096).features("^has_journal"),
    Cell::new("ext4", 1024).mke2fs(),
    Cell::new("ext4", 4096).features("^metadata_csum,^64bit,^orphan_file").mke2fs(),
    Cell::new("ext3", 1024),
    Cell::new("ext3", 4096),
    Cell::new("ext3", 2048).mke2fs(),
    Cell::new("ext2", 1024),
    Cell::new("ext2", 4096),
];

fn cell(seed: u64) -> Cell {
    CELLS[(seed % CELLS.len() as u64) as usize]
}

/// The seed chooses the cell and the size of the cache.
fn subject(cx: &mut Cx, seed: u64) -> OnExt4 {
    let cell = cell(seed);
    let cache = *Rng::new(seed, 50).pick(&[2u64 << 20, 64 << 20]);
    let what = format!("{cell:?}, cache {cache}, seed {seed}");
    OnExt4 { device: cell.fresh(cx, 48 << 20), cache, seed, what }
}

/// What the format of this seed's cell allows.
fn limits(seed: u64) -> Limits {
    let cell = cell(seed);
    let block = u64::from(cell.block);
    let pointers = block / 4;
    let mapped = (12 + pointers + pointers.pow(2) + pointers.pow(3)) * block;
    // Without huge_file, i_blocks counts sectors in 32 bits, those of the map included.
    let tree = 1 + (1 + pointers) + (1 + pointers + pointers.pow(2));
    let counted = ((u64::from(u32::MAX) / (block / 512)) - tree) * block;
    let (size_max, links_max) = match cell.kind {
        "ext4" => (u64::from(u32::MAX) * block, 65_000),
        _ => (mapped.min(counted), 32_000),
    };
    Limits { size_max, links_max, target_max: cell.block as usize - 1 }
}

#[test]
fn one_task_agrees_with_the_reference() {
    check_seeds(0, seed_count(60), |s| Config { limits: limits(s), ..Config::new(s) }, subject);
}

#[test]
fn many_tasks_agree_with_the_reference() {
    check_seeds(1000, seed_count(40), |s| Config { limits: limits(s), ..Config::many(s) }, subject);
}
