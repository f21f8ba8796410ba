//! One file under random operations beside a neighbour that fills the device: every byte is
//! compared, every `ENOSPC` is judged. `IOPATH_FSX_OPS=n` makes more operations, `IOPATH_SEEDS=n`
//! runs more seeds.

mod world;

use std::sync::Arc;

use rt::{Cx, World, WorldConfig};
use testkit::fsx::in_process::run_in_process;
use testkit::fsx::run::Trial;
use testkit::fsx::space::Cost;
use testkit::fsx::{Plan, Sort};
use vfs::FileSystem;
use world::{Cell, Watchdog, checked, mount, repaired, seeds, timed};

const BYTES: u64 = 48 << 20;
/// The cells, with the bytes of their blocks.
const CELLS: [(Cell, u64); 3] = [
    (Cell(&[]), 4096),
    (Cell(&[('b', "size=1024"), ('m', "rmapbt=1")]), 1024),
    (Cell(&[('m', "reflink=0")]), 4096),
];

fn ops() -> Option<u64> {
    let wished = std::env::var("IOPATH_FSX_OPS").ok()?;
    Some(wished.parse().expect("a number of operations"))
}

fn exercise((cell, block): (Cell, u64), seed: u64) {
    let what = format!("{cell:?} IOPATH_SEED={seed}");
    let watched = ops().is_none().then(|| Watchdog::new(what.clone(), 240));
    let plan = Plan {
        ops: ops().unwrap_or(700),
        size_max: 1 << 20,
        len_max: 128 << 10,
        align: 512,
        block,
        without: Vec::new(),
    };
    World::new(WorldConfig::exploring(seed)).run("fsx", |cx| {
        let memory = cell.fresh(cx, BYTES);
        let device = timed(cx, &memory, seed);
        let (fs, _) = mount(cx, device.clone(), 2 << 20);
        let cost = Cost::xfs(block, BYTES / block, 4);
        let left = cost.kept + (5 << 19) / block;
        let trial = Trial { seed, plan, cost: Some(cost), fuse: false, progress: ops().is_some() };
        let mut remount = |cx: &mut Cx, fs: Arc<dyn FileSystem>| -> Arc<dyn FileSystem> {
            fs.unmount(cx).expect("unmount");
            mount(cx, device.clone(), 2 << 20).0
        };
        let (fs, report) = run_in_process(cx, fs, &trial, (Some(left), u64::MAX), &mut remount);
        if let Err(message) = &report {
            let kept = testkit::judge::write_sparse(&memory.snapshot()).keep();
            panic!("{what}: {message}the image is kept: {kept:?}");
        }
        fs.unmount(cx).expect("unmount");
        let report = report.expect("looked at above");
        println!("{what}: {report:?}");
        assert!(report.refused.values().sum::<u64>() > 0, "{what}: the device was never full");
        let shares = !report.left_out.contains(&Sort::Clone);
        assert_eq!(shares, !cell.0.contains(&('m', "reflink=0")), "{what}: {:?}", report.left_out);
        checked(cx, &memory).unwrap_or_else(|found| panic!("{what}: {found}"));
        repaired(&memory).unwrap_or_else(|found| panic!("{what}: {found}"));
    });
    drop(watched);
}

/// Goal: one file holds what it was given, whichever call brought it, on a device that is full part
/// of the time, and nothing is refused while there is room. Method: a seeded stream of operations
/// beside a neighbour, in explored schedules, against bytes and a bound of the space that each call
/// needs.
#[test]
fn a_file_holds_what_it_was_given() {
    for seed in seeds(3) {
        exercise(CELLS[seed as usize % CELLS.len()], seed);
    }
}
