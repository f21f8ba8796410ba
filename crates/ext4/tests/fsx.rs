//! One file under random operations beside a neighbour that fills the device: every byte is
//! compared, every `ENOSPC` is judged. `IOPATH_FSX_OPS=n` makes more operations, `IOPATH_SEEDS=n`
//! runs more seeds.

mod support;

use std::sync::Arc;

use rt::{World, WorldConfig};
use support::*;
use testkit::fsx::in_process::run_in_process;
use testkit::fsx::run::Trial;
use testkit::fsx::space::Cost;
use testkit::fsx::{Plan, Sort};
use vfs::FileSystem;

const BYTES: u64 = 16 << 20;
const CELLS: [Cell; 4] = [
    Cell::new("ext4", 4096).journal(1024),
    Cell::new("ext4", 1024).journal(1024),
    Cell::new("ext3", 1024).journal(1024),
    Cell::new("ext2", 4096),
];

fn ops() -> Option<u64> {
    let wished = std::env::var("IOPATH_FSX_OPS").ok()?;
    Some(wished.parse().expect("a number of operations"))
}

fn exercise(cell: Cell, seed: u64) {
    let what = format!("{cell:?} IOPATH_SEED={seed}");
    let watched = ops().is_none().then(|| Watchdog::new(what.clone(), 240));
    let block = u64::from(cell.block);
    let plan = Plan {
        ops: ops().unwrap_or(700),
        size_max: 1 << 20,
        len_max: 128 << 10,
        align: 512,
        block,
        without: Vec::new(),
    };
    let cost = Cost::ext4(block, BYTES / block, cell.kind != "ext4");
    let trial = Trial { seed, plan, cost: Some(cost), fuse: false, progress: ops().is_some() };
    let left = cost.kept + (5 << 19) / block;
    let memory = World::new(WorldConfig::exploring(seed)).run("fsx", |cx| {
        let memory = cell.fresh(cx, BYTES);
        let device = timed(cx, &memory, seed);
        let (fs, _) = mount_cached(cx, device.clone(), 2 << 20);
        let mut remount = |cx: &mut rt::Cx, fs: Arc<dyn FileSystem>| -> Arc<dyn FileSystem> {
            fs.unmount(cx).expect("unmount");
            mount_cached(cx, device.clone(), 2 << 20).0
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
        let ahead = [Sort::Zero, Sort::Allocate];
        let cannot = ahead.iter().any(|sort| report.left_out.contains(sort));
        assert_eq!(cannot, cell.kind != "ext4", "{what}: {:?}", report.left_out);
        memory
    });
    drop(watched);
    rt::testing::real(|cx| checked(cx, &memory, &what));
    e2fsck(&memory, &what);
}

/// Goal: one file holds what it was given, whichever call brought it, on a device that is full part
/// of the time, and nothing is refused while there is room. Method: a seeded stream of operations
/// beside a neighbour, in explored schedules, against bytes and a bound of the space that each call
/// needs.
#[test]
fn a_file_holds_what_it_was_given() {
    for seed in seeds(4) {
        exercise(CELLS[seed as usize % CELLS.len()], seed);
    }
}
