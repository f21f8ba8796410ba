//! Virtual time is a pure function of its seed: the same seed twice gives the same event hash, and
//! another seed another one, over the whole file system with many tasks.

use crate::support::chaos::{self, Chaos};
use crate::support::oracle::Oracle;
use crate::support::workload::{self, Shared};
use crate::support::*;
use rt::{SpinLock, World, WorldConfig};
use std::sync::Arc;
use vfs::FileSystem;

/// The hash of all events of a run, and of the bytes that it leaves.
fn run(seed: u64, cell: Cell) -> (u64, u64) {
    let mut world = World::new(WorldConfig::exploring(seed));
    let image = world.run("determinism", |cx| {
        let device = cell.fresh(cx, 40 << 20);
        let (fs, _) = mount_cached(cx, device.clone(), 2 << 20);
        let top = mkdir(cx, &*fs, fs.root(), "top");
        let shared = Arc::new(Shared {
            fs: fs.clone(),
            oracle: SpinLock::new(Oracle::default()),
            position: Box::new(|| 0),
        });
        workload::run(cx, &shared, seed, 4, 60);
        let plan = Chaos { tasks: 4, steps: 100, size_max: 200_000, small: true, faults: false };
        let shared: Arc<dyn FileSystem> = fs.clone();
        chaos::run(cx, &shared, top, seed, plan);
        fs.unmount(cx).expect("unmount");
        device.snapshot()
    });
    (world.hash(), base::crc::crc32c(!0, &image).into())
}

#[test]
fn the_seed_determines_every_event_and_every_byte() {
    for cell in [Cell::new("ext4", 4096).journal(1024), Cell::new("ext3", 1024).journal(1024)] {
        let mut hashes = Vec::new();
        for seed in seeds(3) {
            let (first, second) = (run(seed, cell), run(seed, cell));
            assert_eq!(first, second, "{cell:?}: two runs of seed {seed} differ");
            assert!(!hashes.contains(&first.0), "{cell:?}: seed {seed} repeats an earlier one");
            hashes.push(first.0);
        }
    }
}
