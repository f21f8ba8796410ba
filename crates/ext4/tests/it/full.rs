//! Full devices: what a write accepted finds its place, at every time and in every shape of the
//! free space; what nobody can place is told; and wherever the power fails, what was synced is
//! there and nothing is inconsistent. `IOPATH_SEEDS=n` runs more.

use crate::support::*;
use jbd2::JournalMode;
use testkit::crash::CrashConfig;
use testkit::full::Plan;
use testkit::trials;
use vfs::{FallocMode, FileSystem};

const CELLS: [Cell; 8] = [
    Cell::new("ext4", 4096).journal(1024),
    Cell::new("ext4", 1024).journal(1024),
    Cell::new("ext3", 1024).journal(1024),
    Cell::new("ext4", 1024).features("^metadata_csum,uninit_bg,quota").journal(1024),
    Cell::new("ext4", 2048).features("^has_journal"),
    Cell::new("ext2", 1024),
    Cell::new("ext4", 1024).features("inline_data").journal(1024),
    Cell::new("ext4", 1024).clusters(4).journal(1024),
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

/// Cells with a journal: only they promise anything for a cut.
fn journaled(seed: u64) -> Cell {
    CELLS[(seed % 4) as usize]
}

#[test]
fn what_was_synced_survives_power_cuts_on_a_full_device() {
    for seed in seeds(8) {
        let left = if seed % 3 == 2 { None } else { Some(300 + seed % 5 * 100) };
        let run = Recording { cell: journaled(seed), seed, bytes: 12 << 20, cache: 2 << 20 };
        let config = CrashConfig { random: 40, at_flushes_max: 120, ..CrashConfig::new(seed) };
        trials::full_device_survives(run, Plan { left, torn: seed % 4 == 1, ..PLAN }, &config);
    }
}

#[test]
fn what_was_accepted_finds_its_place() {
    for seed in seeds(12) {
        let plan =
            Plan { steps: 250, left: Some(300 + seed % 7 * 150), torn: seed % 5 > 2, ..PLAN };
        trials::accepted_finds_its_place(CELLS[(seed % 8) as usize], 14 << 20, plan, seed);
    }
}

/// Goal: what a direct write makes written is covered by the size on the disk in the same
/// transaction, also where pages before it or behind it have no place yet. Method: direct writes
/// into preallocated space behind the size on the disk, a commit for another file's sake, a cut.
#[test]
fn written_blocks_and_the_size_are_committed_together() {
    for (cell, mode) in [
        (CELLS[0], JournalMode::Ordered),
        (CELLS[1], JournalMode::Ordered),
        (CELLS[1], JournalMode::Writeback),
        (CELLS[1], JournalMode::Data),
    ] {
        rt::testing::world(|cx| {
            let memory = cell.fresh(cx, 24 << 20);
            let fs = mount_as(cx, memory.clone(), 64 << 20, mode);
            let files: Vec<_> =
                (0..3).map(|n| create(cx, &*fs, fs.root(), &format!("f{n}"))).collect();
            for &file in &files {
                let ahead = FallocMode::Allocate { keep_size: true };
                fs.fallocate(cx, file, ahead, 0, 1 << 20).expect("space ahead");
            }
            // Behind the size, with nothing before it; in front of pages that wait; behind such.
            let content = vec![7; 64 << 10];
            fs.write_direct(cx, files[0], 512 << 10, &content).expect("a direct write");
            fs.write(cx, files[1], 700_000, &content).expect("a write");
            fs.write_direct(cx, files[1], 128 << 10, &content).expect("a direct write");
            fs.write(cx, files[2], 5_000, &content).expect("a write");
            fs.write_direct(cx, files[2], 256 << 10, &content).expect("a direct write");
            let other = create(cx, &*fs, fs.root(), "other");
            fs.fsync(cx, other, false).expect("a commit");
            fs.shutdown_hard();
            let what = format!("{cell:?} {mode:?}");
            let (fs, _) = mount(cx, memory.clone());
            for (file, offset) in files.into_iter().zip([512 << 10, 128 << 10, 256 << 10]) {
                let mut found = vec![0; content.len()];
                assert_eq!(fs.read(cx, file, offset, &mut found), Ok(content.len()), "{what}");
                assert!(found == content, "{what}: {file} has other bytes");
            }
            fs.unmount(cx).expect("unmount");
            checked(cx, &memory, &what);
            e2fsck(&memory, &what);
        });
    }
}

/// Goal: a new empty file is there after fdatasync and a power cut, its name with it.
#[test]
fn a_new_empty_file_survives_fdatasync() {
    for cell in &CELLS[..4] {
        rt::testing::world(|cx| {
            let memory = cell.fresh(cx, 24 << 20);
            let (fs, _) = mount(cx, memory.clone());
            let file = create(cx, &*fs, fs.root(), "empty");
            fs.fsync(cx, file, true).expect("fdatasync");
            fs.shutdown_hard();
            let (fs, _) = mount(cx, memory.clone());
            assert!(fs.lookup(cx, fs.root(), b"empty").is_ok(), "{cell:?}");
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: the nodes that placing takes are promised also where other calls change the map between
/// the write and its place: fill the root, or free a table. Method: such calls, with the assertion
/// of debug builds.
#[test]
fn other_changes_of_the_map_do_not_break_the_promise() {
    for cell in [CELLS[0], CELLS[1], CELLS[2]] {
        rt::testing::world(|cx| {
            let memory = cell.fresh(cx, 16 << 20);
            let (fs, _) = mount(cx, memory.clone());
            let file = create(cx, &*fs, fs.root(), "file");
            let _ = fs.fallocate(cx, file, FallocMode::Allocate { keep_size: false }, 0, 64 << 10);
            fs.write(cx, file, 16 << 10, &[1; 4096]).expect("a write");
            for n in 1..4u64 {
                fs.write_direct(cx, file, n << 18, &[2; 4096]).expect("a direct write");
            }
            let ahead = FallocMode::Allocate { keep_size: true };
            for n in 1..4u64 {
                let _ = fs.fallocate(cx, file, ahead, n << 22, 64 << 10);
            }
            fs.write(cx, file, 2 << 20, &[3; 4096]).expect("a write");
            fs.write(cx, file, 3 << 20, &[3; 4096]).expect("a write");
            fs.fallocate(cx, file, FallocMode::PunchHole, 1 << 18, 3 << 18).expect("a punch");
            fs.fsync(cx, file, false).expect("fsync");
            fs.unmount(cx).expect("unmount");
            e2fsck(&memory, &format!("{cell:?}"));
        });
    }
}

/// Goal: space that was preallocated can be written however full the device is, also where that
/// takes nodes of the tree. Method: every other block of it, on a device without a free block that
/// a write may have.
#[test]
fn preallocated_space_can_be_written_on_a_full_device() {
    for cell in [CELLS[0], CELLS[1]] {
        rt::testing::world(|cx| {
            let memory = cell.fresh(cx, 16 << 20);
            let (fs, _) = mount(cx, memory.clone());
            let file = create(cx, &*fs, fs.root(), "file");
            let ahead = FallocMode::Allocate { keep_size: true };
            fs.fallocate(cx, file, ahead, 0, 1 << 20).expect("space ahead");
            let filler = create(cx, &*fs, fs.root(), "filler");
            let mut end = 0;
            while let Ok(count) = fs.write(cx, filler, end, &[1; 4096]) {
                end += count as u64;
            }
            fs.fsync(cx, filler, false).expect("what was accepted has its place");
            for n in (0..1 << 20).step_by(8192) {
                assert_eq!(fs.write(cx, file, n, &[2; 4096]), Ok(4096), "{cell:?} at {n}");
            }
            fs.fsync(cx, file, false).expect("what was accepted has its place");
            fs.unmount(cx).expect("unmount");
            e2fsck(&memory, &format!("{cell:?}"));
        });
    }
}
