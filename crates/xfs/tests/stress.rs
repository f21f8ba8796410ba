//! Many tasks on one mount: OS threads in real time, and explored schedules in virtual time, with
//! caches, logs and devices that are too small. Afterwards our check and xfs_repair find nothing.

mod world;

use std::sync::Arc;

use block::Device;
use device::MemoryDevice;
use rt::{Cx, World, WorldConfig};
use testkit::chaos::{self, Chaos};
use vfs::FileSystem;
use world::{Cell, Watchdog, checked, mount, repaired, seeds, timed};

const CELLS: [Cell; 4] = [
    Cell(&[]),
    Cell(&[('b', "size=1024"), ('m', "rmapbt=1"), ('d', "agcount=3")]),
    Cell(&[('i', "size=1024"), ('n', "size=16384")]),
    Cell(&[('m', "reflink=0"), ('i', "sparse=0")]),
];

fn cell(seed: u64) -> Cell {
    CELLS[(seed % CELLS.len() as u64) as usize]
}

/// Mounts, lets the tasks run, and unmounts.
fn session(cx: &mut Cx, device: Arc<dyn Device>, seed: u64, cache: u64, plan: Chaos) -> String {
    let (fs, _) = mount(cx, device, cache);
    let shared: Arc<dyn FileSystem> = fs.clone();
    let done = chaos::session(cx, &shared, seed, plan);
    assert_eq!(fs.error(), None);
    fs.unmount(cx).expect("unmount");
    done
}

/// What the next mount finds: everything readable, nothing wrong.
fn judge(device: &Arc<MemoryDevice>, what: &str) {
    rt::testing::real(|cx| {
        let (fs, _) = mount(cx, device.clone(), 64 << 20);
        chaos::verify(cx, &*fs);
        fs.unmount(cx).expect("unmount");
        checked(cx, device).unwrap_or_else(|message| panic!("{what}: {message}"));
    });
    repaired(device).unwrap_or_else(|message| panic!("{what}: {message}"));
}

fn in_threads(bytes: u64, cache: u64, plan: Chaos, seed: u64) {
    let cell = cell(seed);
    let what = format!("threads: {cell:?}, {bytes} bytes, cache {cache}, seed {seed}");
    let _watchdog = Watchdog::new(what.clone(), 240);
    let device = rt::testing::real(|cx| {
        let device = cell.fresh(cx, bytes);
        let done = session(cx, device.clone(), seed, cache, plan);
        println!("{what}: {done}");
        device
    });
    judge(&device, &what);
}

fn in_a_world(bytes: u64, plan: Chaos, seed: u64) {
    let cell = cell(seed);
    let what = format!("world: {cell:?}, {bytes} bytes, seed {seed}");
    let _watchdog = Watchdog::new(what.clone(), 240);
    let device = World::new(WorldConfig::exploring(seed)).run("stress", |cx| {
        let device = cell.fresh(cx, bytes);
        let slow = timed(cx, &device, seed / 4);
        let done = session(cx, slow, seed, 2 << 20, plan);
        println!("{what}: {done}");
        device
    });
    judge(&device, &what);
}

#[test]
fn eight_threads_leave_a_sound_file_system() {
    let plan = Chaos { tasks: 8, steps: 1500, size_max: 400_000, small: false, faults: false };
    for seed in seeds(4) {
        let cache = if seed % 2 == 0 { 2 << 20 } else { 64 << 20 };
        in_threads(256 << 20, cache, plan, seed);
    }
}

#[test]
fn threads_on_a_full_device_leave_it_empty() {
    let plan = Chaos { tasks: 8, steps: 600, size_max: 2 << 20, small: true, faults: false };
    for seed in seeds(4) {
        in_threads(60 << 20, 2 << 20, plan, seed);
    }
}

#[test]
fn explored_schedules_leave_a_sound_file_system() {
    let plan = Chaos { tasks: 8, steps: 150, size_max: 200_000, small: false, faults: false };
    for seed in seeds(12) {
        in_a_world(64 << 20, plan, seed);
    }
}

#[test]
fn explored_schedules_on_a_full_device_leave_it_empty() {
    let plan = Chaos { tasks: 6, steps: 200, size_max: 2 << 20, small: true, faults: false };
    for seed in seeds(12) {
        in_a_world(56 << 20, plan, seed);
    }
}
