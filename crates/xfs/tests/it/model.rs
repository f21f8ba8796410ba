//! Random operations from one and from many tasks, beside the reference file system, with remounts,
//! in virtual time: the harness of ext4's test of this name, on XFS. More seeds with
//! `IOPATH_SEEDS=n`. After every unmount `xfs_repair -n` and our check judge the image.

use crate::world::{Cell, checked, mount, repaired, seed_count};
use rt::Cx;
use testkit::memfs::Limits;
use testkit::model::{Config, check_seeds};
use testkit::trials::Modelled;
use vfs::FileSystem;

const CELLS: &[Cell] = &[
    Cell(&[]),
    Cell(&[('n', "parent=1"), ('i', "exchange=1,nrext64=1"), ('m', "rmapbt=1")]),
    Cell(&[('b', "size=1024"), ('n', "parent=1")]),
    Cell(&[('b', "size=1024")]),
    Cell(&[('n', "size=65536")]),
    Cell(&[('m', "rmapbt=1")]),
    Cell(&[('b', "size=2048"), ('i', "size=1024"), ('m', "rmapbt=1")]),
    Cell(&[('m', "reflink=0"), ('n', "size=16384")]),
    Cell(&[('n', "version=ci,parent=1"), ('i', "exchange=1,nrext64=1"), ('m', "rmapbt=1")]),
];

/// The seed chooses the cell and the size of the cache.
fn subject(cx: &mut Cx, seed: u64) -> Modelled<Cell> {
    Modelled::new(cx, 96 << 20, cell_of(seed), seed)
}

/// Attributes up to blocks of their own in every second run; files share blocks.
fn config(seed: u64, config: Config) -> Config {
    let block_size = match cell_of(seed).0 {
        [('b', size), ..] => size.trim_start_matches("size=").parse().expect("bytes"),
        _ => 4096,
    };
    let limits = Limits {
        size_max: i64::MAX as u64,
        links_max: 0x7fff_ffff,
        target_max: 1023,
        block_size,
        ..Limits::default()
    };
    let xattr_max = if seed.is_multiple_of(2) { 300 } else { 9000 };
    Config { limits, xattr_max, clones: true, ..config }
}

fn cell_of(seed: u64) -> Cell {
    CELLS[(seed % CELLS.len() as u64) as usize]
}

#[test]
fn one_task_agrees_with_the_reference() {
    check_seeds(0, seed_count(18), |seed| config(seed, Config::new(seed)), subject);
}

#[test]
fn many_tasks_agree_with_the_reference() {
    check_seeds(1000, seed_count(12), |seed| config(seed, Config::many(seed)), subject);
}

/// Goal: every operation answers as POSIX and Linux ask. Method: the suite that ext4 and the
/// reference run.
#[test]
fn every_operation_answers_as_it_should() {
    // Of bytes that differ in case alone one is a name there.
    let tells_case = |cell: &&Cell| !cell.0.iter().any(|edit| edit.1.contains("version=ci"));
    for cell in CELLS.iter().filter(tells_case) {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, 96 << 20);
            let (fs, _) = mount(cx, device.clone(), 64 << 20);
            testkit::conformance::run_all(cx, &*fs);
            fs.unmount(cx).expect("unmount");
            checked(cx, &device).expect("sound");
            repaired(&device).expect("sound");
        });
    }
}
