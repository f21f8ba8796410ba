//! Reservation windows on ext3: files that grow side by side stay together, windows go when nobody
//! needs them, and no space is lost to them.

use std::sync::Arc;

use crate::support::*;
use base::{Errno, Ino};
use ext4::{Ext4, MountOptions};
use rt::{Cx, World, WorldConfig};
use vfs::direct::{Boundary, DirectOptions};
use vfs::{FileSystem, SetAttr};

const BLOCK: u64 = 4096;

fn mount_reserving(cx: &mut Cx, device: Arc<dyn block::Device>, on: bool) -> Arc<Ext4> {
    let options = MountOptions {
        direct: DirectOptions { boundary: Boundary::EveryPiece, page_size: 4096 },
        reservation: Some(on),
        ..MountOptions::default()
    };
    try_mount(cx, device, 8 << 20, options).expect("mount").0
}

/// Puts a block behind the file's last one.
fn append(cx: &mut Cx, fs: &Ext4, file: Ino) {
    let end = fs.getattr(cx, file).expect("attributes").size;
    assert_eq!(fs.write_direct(cx, file, end, &[7; BLOCK as usize]), Ok(BLOCK as usize));
}

/// The first block of a file's last one, on the device.
fn last_block(cx: &mut Cx, fs: &Ext4, file: Ino) -> u64 {
    let map = fs.fiemap(cx, file, 0, u64::MAX / 2).expect("fiemap");
    map.last().map(|run| (run.physical() + run.len) / BLOCK - 1).expect("the file has blocks")
}

/// The lengths of the runs in which a file lies; the table in front of block 12 belongs to its run.
fn runs(cx: &mut Cx, fs: &Ext4, file: Ino) -> Vec<u64> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for extent in fs.fiemap(cx, file, 0, u64::MAX / 2).expect("fiemap") {
        let (at, len) = (extent.physical() / BLOCK, extent.len / BLOCK);
        let table = u64::from(extent.offset / BLOCK == 12);
        match runs.last_mut() {
            Some((end, total)) if (*end..=*end + table).contains(&at) => {
                *total += len + at - *end;
                *end = at + len;
            }
            _ => runs.push((at + len, len)),
        }
    }
    runs.into_iter().map(|run| run.1).collect()
}

/// Goal: two files that grow side by side, a block at a time, lie in runs of 8 blocks, then 16, 32
/// and so on; without windows each block lies beside one of the other file. Method: appends in turn
/// on an empty ext3; what fiemap tells; e2fsck.
#[test]
fn two_writers_get_runs_of_blocks() {
    for on in [true, false] {
        rt::testing::world(|cx| {
            let device = fresh(cx, 64 << 20, "ext3", BLOCK as u32);
            let fs = mount_reserving(cx, device.clone(), on);
            let files = ["one", "two"].map(|name| create(cx, &*fs, fs.root(), name));
            for file in files {
                fs.open(cx, file).expect("open");
            }
            for _ in 0..500 {
                files.iter().for_each(|&file| append(cx, &fs, file));
            }
            let found = files.map(|file| runs(cx, &fs, file));
            if on {
                // 500 blocks and the table.
                assert_eq!(found[0], [8, 16, 32, 64, 128, 253], "the first");
                assert_eq!(found[1], found[0], "the second");
            } else {
                assert!(found.iter().all(|runs| runs.len() > 400), "{found:?}");
            }
            fs.unmount(cx).expect("unmount");
            e2fsck(&device, if on { "reservation" } else { "noreservation" });
        });
    }
}

/// Goal: a window is given up by the last close, by a truncation, and with the file. Method: a file
/// with nine blocks holds the fifteen behind them; another file's first block lies behind those;
/// once the first has let go, a third file's lies right behind what the first one has.
#[test]
fn windows_go_with_close_truncate_and_unlink() {
    for end in ["close", "truncate", "unlink"] {
        rt::testing::world(|cx| {
            let device = fresh(cx, 64 << 20, "ext3", BLOCK as u32);
            let fs = mount_reserving(cx, device.clone(), true);
            let root = fs.root();
            let [first, second, third] =
                ["first", "second", "third"].map(|name| create(cx, &*fs, root, name));
            for file in [first, first, second, third] {
                fs.open(cx, file).expect("open");
            }
            (0..9).for_each(|_| append(cx, &fs, first));
            let held = last_block(cx, &fs, first);
            append(cx, &fs, second);
            assert_eq!(last_block(cx, &fs, second), held + 16, "{end}: behind the window");
            fs.release(cx, first).expect("close");
            append(cx, &fs, first);
            assert_eq!(last_block(cx, &fs, first), held + 1, "{end}: not with the first close");
            let next = match end {
                "close" => {
                    fs.release(cx, first).expect("close");
                    held + 2
                }
                "truncate" => {
                    let size = SetAttr { size: Some(2 * BLOCK), ..SetAttr::default() };
                    fs.setattr(cx, first, &size).expect("truncate");
                    fs.sync(cx).expect("sync");
                    held - 6
                }
                _ => {
                    fs.release(cx, first).expect("close");
                    fs.unlink(cx, root, b"first").expect("unlink");
                    fs.sync(cx).expect("sync");
                    held - 8
                }
            };
            append(cx, &fs, third);
            assert_eq!(last_block(cx, &fs, third), next, "{end}");
            fs.unmount(cx).expect("unmount");
            e2fsck(&device, end);
        });
    }
}

/// Goal: windows lose no space: a full disk holds as many bytes with them as without, whatever is
/// still reserved; what is freed is had again. Method: twelve open files grow by a page in turn,
/// each until it is refused, directly and through the page cache; twice, with every other file
/// deleted between; e2fsck.
#[test]
fn a_full_disk_holds_as_much() {
    let full = |on: bool, direct: bool| {
        rt::testing::world(move |cx| {
            let device = fresh(cx, 12 << 20, "ext3", 1024);
            let fs = mount_reserving(cx, device.clone(), on);
            let mut totals = Vec::new();
            for round in 0..2 {
                let files: Vec<Ino> = (0..12)
                    .map(|file| create(cx, &*fs, fs.root(), &format!("{round}.{file}")))
                    .collect();
                for &file in &files {
                    fs.open(cx, file).expect("open");
                }
                totals.push(fill(cx, &fs, &files, direct));
                for (index, file) in files.iter().enumerate() {
                    fs.release(cx, *file).expect("close");
                    if index % 2 == 0 {
                        let name = format!("{round}.{index}");
                        fs.unlink(cx, fs.root(), name.as_bytes()).expect("unlink");
                    }
                }
                fs.sync(cx).expect("sync");
            }
            let free = fs.statfs(cx).expect("statfs").blocks_free;
            fs.unmount(cx).expect("unmount");
            e2fsck(&device, &format!("reservation {on}, direct {direct}"));
            (totals, free)
        })
    };
    for direct in [true, false] {
        let (with, without) = (full(true, direct), full(false, direct));
        assert!(with.0[0] > 7 << 20, "{with:?}: the disk was filled");
        assert_eq!(with, without, "direct {direct}");
    }
}

/// Appends to each in turn until nobody gets any more: how many bytes there are.
fn fill(cx: &mut Cx, fs: &Ext4, files: &[Ino], direct: bool) -> u64 {
    let mut growing = files.to_vec();
    let data = [7; BLOCK as usize];
    while !growing.is_empty() {
        growing.retain(|&file| {
            let end = fs.getattr(cx, file).expect("attributes").size;
            let written = match direct {
                true => fs.write_direct(cx, file, end, &data),
                false => fs.write(cx, file, end, &data),
            };
            match written {
                Ok(count) => count == data.len(),
                Err(errno) => {
                    assert_eq!(errno, Errno::ENOSPC);
                    false
                }
            }
        });
    }
    fs.sync(cx).expect("sync");
    files.iter().map(|&file| fs.getattr(cx, file).expect("attributes").size).sum()
}

/// Goal: windows of many tasks never give one block to two files, and space that a task frees under
/// the others' feet is used again. Method: six tasks append to, truncate, close and delete files of
/// their own in explored schedules, directly and through the page cache, on a disk that is often
/// full; each file's bytes are its task's; e2fsck and our own check.
#[test]
fn tasks_share_a_small_disk() {
    for seed in seeds(6) {
        World::new(WorldConfig::exploring(seed)).run("tasks", |cx| {
            let device = fresh(cx, 8 << 20, "ext3", 1024);
            let fs = mount_reserving(cx, device.clone(), true);
            let tasks: Vec<_> = (0..6u8)
                .map(|task| {
                    let fs = fs.clone();
                    cx.spawn(&format!("task {task}"), move |cx| churn(cx, &fs, task, seed))
                })
                .collect();
            for task in tasks {
                task.join(cx);
            }
            fs.unmount(cx).expect("unmount");
            e2fsck(&device, &format!("seed {seed}"));
            checked(cx, &device, &format!("seed {seed}"));
        });
    }
}

fn churn(cx: &mut Cx, fs: &Ext4, task: u8, seed: u64) {
    let mut rng = base::Rng::new(seed, u64::from(task));
    for round in 0..6 {
        let name = format!("{task}.{round}");
        let file = create(cx, fs, fs.root(), &name);
        fs.open(cx, file).expect("open");
        let mut size = 0;
        for _ in 0..12 {
            let data = vec![task + 1; 1024 * (1 + rng.below(40) as usize)];
            let written = match rng.chance(0.6) {
                true => fs.write_direct(cx, file, size, &data),
                false => fs.write(cx, file, size, &data),
            };
            match written {
                Ok(count) => size += count as u64,
                Err(errno) => assert_eq!(errno, Errno::ENOSPC),
            }
            if rng.chance(0.1) {
                size = size / 2048 * 1024;
                let cut = SetAttr { size: Some(size), ..SetAttr::default() };
                fs.setattr(cx, file, &cut).expect("truncate");
            }
        }
        let mut bytes = vec![0; size as usize];
        assert_eq!(fs.read(cx, file, 0, &mut bytes), Ok(bytes.len()));
        assert!(bytes.iter().all(|&byte| byte == task + 1), "seed {seed}: task {task}'s own");
        fs.release(cx, file).expect("close");
        if rng.chance(0.7) {
            fs.unlink(cx, fs.root(), name.as_bytes()).expect("unlink");
        }
    }
}
