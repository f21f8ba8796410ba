//! Many tasks on one mount: OS threads in real time, and explored schedules in virtual time, with
//! caches, journals and devices that are too small. Afterwards our check and e2fsck find nothing.

use crate::support::chaos::Chaos;
use crate::support::*;
use rt::{World, WorldConfig};
use testkit::trials::Stress;
use vfs::FileSystem;

const CELLS: [Cell; 7] = [
    Cell::new("ext4", 4096).journal(1024),
    Cell::new("ext4", 1024).journal(1024),
    Cell::new("ext3", 1024).journal(1024),
    Cell::new("ext4", 2048).features("^has_journal"),
    Cell::new("ext2", 1024),
    Cell::new("ext4", 1024).features("^metadata_csum,uninit_bg").journal(1024),
    Cell::new("ext4", 1024).features("inline_data,quota").journal(1024),
];

fn cell(seed: u64) -> Cell {
    CELLS[(seed % CELLS.len() as u64) as usize]
}

#[test]
fn eight_threads_leave_a_sound_file_system() {
    let plan = Chaos { tasks: 8, steps: 1500, size_max: 400_000, small: false, faults: false };
    for seed in seeds(7) {
        let cache = if seed % 2 == 0 { 2 << 20 } else { 64 << 20 };
        Stress { bytes: 256 << 20, cache, plan }.in_threads(cell(seed), seed);
    }
}

#[test]
fn threads_on_a_full_device_leave_it_empty() {
    let plan = Chaos { tasks: 8, steps: 600, size_max: 2 << 20, small: true, faults: false };
    for seed in seeds(7) {
        Stress { bytes: 16 << 20, cache: 2 << 20, plan }.in_threads(cell(seed), seed);
    }
}

#[test]
fn explored_schedules_leave_a_sound_file_system() {
    let plan = Chaos { tasks: 8, steps: 150, size_max: 200_000, small: false, faults: false };
    for seed in seeds(30) {
        Stress { bytes: 64 << 20, cache: 2 << 20, plan }.in_a_world(cell(seed), seed);
    }
}

#[test]
fn explored_schedules_on_a_full_device_leave_it_empty() {
    let plan = Chaos { tasks: 6, steps: 200, size_max: 2 << 20, small: true, faults: false };
    for seed in seeds(24) {
        Stress { bytes: 12 << 20, cache: 2 << 20, plan }.in_a_world(cell(seed), seed);
    }
}

/// Content on its way to the device is data to who seeks, and can be cut away, however far it has
/// come.
#[test]
fn what_is_on_its_way_to_the_device_is_there() {
    for cell in &CELLS[..4] {
        rt::testing::world(|cx| {
            let memory = cell.fresh(cx, 64 << 20);
            let (fs, _) = mount(cx, timed(cx, &memory, 2));
            testkit::content::is_no_hole_on_its_way(cx, &fs);
            testkit::content::is_cut_on_its_way(cx, &fs, cell.kind == "ext4");
            fs.unmount(cx).expect("unmount");
            e2fsck(&memory, cell.kind);
        });
    }
}

/// Goal: what several tasks append is all there.
#[test]
fn appenders_do_not_write_over_each_other() {
    for seed in seeds(4) {
        World::new(WorldConfig::exploring(seed)).run("append", |cx| {
            let device = crate::support::fresh(cx, 32 << 20, "ext4", 4096);
            let (fs, _) = mount(cx, device);
            testkit::content::appended_at_once(cx, &fs, 40, 1000);
            fs.unmount(cx).expect("unmount");
        });
    }
}
