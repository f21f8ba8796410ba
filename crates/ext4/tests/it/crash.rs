//! Power cuts: tasks create, append, rename, truncate, remove and fsync at once; the device's write
//! log is cut at every flush and in between, with random subsets of the unflushed writes lost and
//! sectors torn. Every image is recovered by us and must hold what had been promised, contents
//! included; our own check finds nothing; on a sample e2fsck and the kernel agree. A few seeds
//! here, many with `IOPATH_SEEDS=n`.

use crate::support::campaign::{self, Plan};
use crate::support::*;
use device::{Cut, Event, RecordDevice};
use jbd2::JournalMode;
use rt::{World, WorldConfig};
use std::sync::Arc;
use testkit::crash::{self, CrashConfig};
use testkit::trials;
use vfs::FileSystem;

/// Cuts between flushes that are drawn per seed, besides the two at every flush.
const RANDOM_CUTS: usize = 40;

/// A small journal, so that it wraps and fills.
fn plan(kind: &'static str, block: u32, steps: u64) -> Plan {
    let cell = Cell::new(kind, block).journal(1024);
    Plan { cell, mode: JournalMode::Ordered, steps, random: RANDOM_CUTS }
}

#[test]
fn ext4_keeps_what_fsync_promised() {
    campaign::run(plan("ext4", 4096, 120), seeds(4));
}

#[test]
fn ext4_with_small_blocks_keeps_what_fsync_promised() {
    campaign::run(plan("ext4", 1024, 120), seeds(3));
}

#[test]
fn ext3_keeps_what_fsync_promised() {
    campaign::run(plan("ext3", 1024, 100), seeds(3));
}

fn anything_goes(cell: Cell, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let run = Recording { cell, seed, bytes: 24 << 20, cache: 2 << 20 };
        trials::anything_goes(run, 100, &campaign::config(seed, RANDOM_CUTS));
    }
}

#[test]
fn any_operations_are_recovered() {
    anything_goes(Cell::new("ext4", 4096).journal(1024), seeds(3));
    anything_goes(Cell::new("ext4", 1024).journal(1024), seeds(3));
    anything_goes(Cell::new("ext3", 1024).journal(1024), seeds(3));
    let old = Cell::new("ext4", 1024).features("^metadata_csum,uninit_bg,^orphan_file");
    anything_goes(old.journal(1024), seeds(2));
}

#[test]
fn content_in_inodes_is_recovered() {
    let cell = Cell::new("ext4", 1024).features("inline_data").journal(1024);
    anything_goes(cell, seeds(3));
    let plan = plan("ext4", 4096, 100);
    campaign::run(Plan { cell: plan.cell.features("inline_data"), ..plan }, seeds(2));
}

#[test]
fn large_blocks_are_recovered() {
    anything_goes(Cell::new("ext4", 8192).journal(1024), seeds(1));
}

#[test]
fn directories_that_ignore_case_are_recovered() {
    let cell = Cell::new("ext4", 1024).features("casefold,inline_data");
    anything_goes(cell.journal(1024), seeds(1));
}

#[test]
fn clusters_are_recovered() {
    anything_goes(Cell::new("ext4", 1024).clusters(8).journal(1024), seeds(1));
    let plan = plan("ext4", 4096, 80);
    campaign::run(Plan { cell: plan.cell.clusters(16), ..plan }, seeds(1));
}

/// Goal: a superblock that a power cut tore between its two sectors is joined, whenever it was
/// written, and the disk is mended: with the backup of a second group, and from the log where there
/// is but one group. Method: every write of it in a recorded run, mount and unmount included, is
/// torn both ways.
#[test]
fn a_torn_superblock_is_joined() {
    for block in [1024, 4096] {
        let run = campaign::record(3, plan("ext4", block, 60));
        assert!(tear_supers(&run) >= 2, "blocks of {block}: no superblock was at stake");
    }
}

/// Tears each unflushed write of the superblock; answers how many there were.
fn tear_supers(run: &campaign::Run) -> usize {
    let mut torn = 0;
    for (index, entry) in run.recorded.log.entries.iter().enumerate() {
        let Event::Write { sector, .. } = &entry.event else { continue };
        let Some(first) = 2u64.checked_sub(sector.0).map(|at| at as usize) else { continue };
        let sectors = entry.sectors() as usize;
        // A write that was in flight at the cut may be torn, too: also one with FUA.
        if first + 1 >= sectors {
            continue;
        }
        for half in [first, first + 1] {
            let mut there = vec![true; sectors];
            there[half] = false;
            let cut = Cut {
                early: vec![index],
                torn: vec![(index, there)],
                ..Cut::clean(entry.came.max(index))
            };
            let image = Arc::new(run.recorded.log.device_after(&run.recorded.base, &cut));
            let verified = run.verify(&image, &cut, "torn");
            verified.unwrap_or_else(|message| panic!("{cut:?}: {message}"));
            torn += 1;
        }
    }
    torn
}

/// Goal: a mount and an unmount in which nothing happens may be cut anywhere, the superblock torn,
/// on a file system without a backup of it. Method: all cuts of one such run, and tears of each
/// write of the superblock.
#[test]
fn mounting_and_unmounting_may_be_cut() {
    for seed in seeds(6) {
        let cell = [Cell::new("ext4", 4096), Cell::new("ext4", 2048)][seed as usize % 2];
        let (base, log) = World::new(WorldConfig::exploring(seed)).run("mount", |cx| {
            let memory = cell.fresh(cx, 12 << 20);
            let base = memory.fork();
            let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
            for round in 0..3 {
                let (fs, _) = mount(cx, device.clone());
                if round == 1 {
                    create(cx, &*fs, fs.root(), "file");
                }
                fs.unmount(cx).expect("unmount");
            }
            (base, device.log())
        });
        let config = campaign::config(seed, 300);
        crash::explore(&config, &base, &log, |image, _| {
            rt::testing::real(|cx| {
                let (fs, _) = mount(cx, image.clone());
                fs.unmount(cx).expect("unmount after recovery");
                checked(cx, &image, "after a cut");
            });
            Ok(())
        });
    }
}

#[test]
fn unnamed_files_are_freed_and_named_ones_are_kept() {
    let old = Cell::new("ext4", 1024).features("^metadata_csum,uninit_bg,^orphan_file");
    for (cell, seed) in [Cell::new("ext4", 4096), old, Cell::new("ext3", 1024)].into_iter().zip(0..)
    {
        for seed in (seed..seed_count(1) * 3).step_by(3) {
            let cell = cell.journal(1024);
            let run = Recording { cell, seed, bytes: 24 << 20, cache: 2 << 20 };
            let config = CrashConfig { random: 30, at_flushes_max: 40, ..CrashConfig::new(seed) };
            trials::unnamed_files(run, &config);
        }
    }
}

/// The oracle itself can fail: a promise that nobody kept is found.
#[test]
fn a_broken_promise_is_noticed() {
    let mut run = campaign::record(1, plan("ext4", 4096, 40));
    run.recorded.left.begin(1 << 60, Some("/d0/never-made"), 10);
    let state = run.recorded.left.state(1 << 60);
    run.recorded.left.promise(1 << 60, state, 0, false);
    let cut = Cut::clean(run.recorded.log.entries.len());
    let image = Arc::new(run.recorded.log.device_after(&run.recorded.base, &cut));
    let message = run.verify(&image, &cut, "broken").expect_err("the promise was broken");
    assert!(message.contains("is lost"), "{message}");
}
