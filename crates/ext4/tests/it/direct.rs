//! Direct I/O: which requests are refused, and that it agrees with buffered I/O byte for byte, in
//! every mode of the journal.

use crate::support::*;
use base::{Errno, Ino, Rng};
use cache::{PageCache, PageCacheConfig};
use device::RecordDevice;
use ext4::{Ext4, MountOptions};
use jbd2::JournalMode;
use rt::{Cx, World, WorldConfig};
use std::sync::Arc;
use testkit::crash;
use vfs::{FallocMode, FileSystem, SetAttr};

/// The formats and modes of the tests.
const BEDS: &[(&str, u32, JournalMode)] = &[
    ("ext4", 4096, JournalMode::Ordered),
    ("ext4", 1024, JournalMode::Ordered),
    ("ext4", 4096, JournalMode::Writeback),
    ("ext4", 4096, JournalMode::Data),
    ("ext3", 1024, JournalMode::Data),
    ("ext2", 1024, JournalMode::Ordered),
];

/// Goal: offset and length must be multiples of the device's logical block, in every mode alike;
/// directories are refused as always.
#[test]
fn unaligned_requests_are_refused() {
    for &(kind, block, mode) in BEDS {
        rt::testing::world(|cx| {
            let device = fresh(cx, 16 << 20, kind, block);
            let fs = mount_as(cx, device, 8 << 20, mode);
            let file = create(cx, &*fs, fs.root(), "file");
            assert_eq!(fs.write_direct(cx, file, 100, &[1; 512]), Err(Errno::EINVAL));
            assert_eq!(fs.write_direct(cx, file, 512, &[1; 511]), Err(Errno::EINVAL));
            assert_eq!(fs.getattr(cx, file).expect("attributes").size, 0, "nothing was written");
            assert_eq!(fs.write_direct(cx, file, 512, &[1; 1024]), Ok(1024));
            assert_eq!(fs.read_direct(cx, file, 1, &mut [0; 512]), Err(Errno::EINVAL));
            assert_eq!(fs.read_direct(cx, file, 0, &mut [0; 100]), Err(Errno::EINVAL));
            let mut bytes = [9; 4096];
            assert_eq!(fs.read_direct(cx, file, 0, &mut bytes), Ok(1536));
            assert!(bytes[..512].iter().all(|&byte| byte == 0), "the hole reads as zeros");
            assert!(bytes[512..1536].iter().all(|&byte| byte == 1));
            assert_eq!(fs.read_direct(cx, file, 1 << 20, &mut bytes), Ok(0), "behind the end");
            let root = fs.root();
            assert_eq!(fs.read_direct(cx, root, 0, &mut bytes), Err(Errno::EISDIR));
            assert_eq!(fs.write_direct(cx, root, 0, &bytes), Err(Errno::EISDIR));
            let huge = u64::MAX / 512 * 512 - 4096;
            assert_eq!(fs.write_direct(cx, file, huge, &bytes), Err(Errno::EFBIG));
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: whoever reads sees what was written last, whichever way. Method: random direct and
/// buffered reads and writes, truncates, preallocation and holes against a byte array; a remount;
/// e2fsck.
#[test]
fn direct_and_buffered_agree() {
    for (seed, &(kind, block, mode)) in BEDS.iter().enumerate() {
        rt::testing::world(|cx| {
            let device = fresh(cx, 48 << 20, kind, block);
            let fs = mount_as(cx, device.clone(), 8 << 20, mode);
            let file = create(cx, &*fs, fs.root(), "file");
            let (mut rng, mut model) = (Rng::new(seed as u64, 5), Vec::new());
            for step in 0..500 {
                change(cx, &fs, file, &mut rng, &mut model, step);
            }
            fs.fsync(cx, file, false).expect("fsync");
            fs.unmount(cx).expect("unmount");
            e2fsck(&device, &format!("{kind} {block} {mode:?}"));
            let fs = mount_as(cx, device, 8 << 20, mode);
            let mut bytes = vec![0; model.len().next_multiple_of(512)];
            assert_eq!(fs.read_direct(cx, file, 0, &mut bytes), Ok(model.len()));
            assert!(bytes[..model.len()] == model[..], "{kind} {block} {mode:?}: after a remount");
            fs.unmount(cx).expect("unmount");
        });
    }
}

fn change(cx: &mut Cx, fs: &Ext4, file: Ino, rng: &mut Rng, model: &mut Vec<u8>, step: u32) {
    let direct = rng.chance(0.5);
    let (mut offset, mut len) = (rng.below(600_000) as usize, 1 + rng.below(60_000) as usize);
    if direct {
        (offset, len) = (offset / 512 * 512, len.next_multiple_of(512));
    }
    let at = offset as u64;
    match rng.below(10) {
        0..=3 => {
            let data = vec![step as u8 | 1; len];
            let written = match direct {
                true => fs.write_direct(cx, file, at, &data),
                false => fs.write(cx, file, at, &data),
            };
            assert_eq!(written, Ok(len));
            model.resize(model.len().max(offset + len), 0);
            model[offset..offset + len].copy_from_slice(&data);
        }
        4..=7 => {
            let mut bytes = vec![0; len];
            let read = match direct {
                true => fs.read_direct(cx, file, at, &mut bytes),
                false => fs.read(cx, file, at, &mut bytes),
            };
            let end = (offset + len).min(model.len());
            let expected = &model[offset.min(end)..end];
            assert_eq!(read, Ok(expected.len()), "step {step}");
            assert!(bytes[..expected.len()] == *expected, "step {step}: direct {direct} at {at}");
        }
        8 => {
            let set = SetAttr { size: Some(at), ..SetAttr::default() };
            fs.setattr(cx, file, &set).expect("truncate");
            model.resize(offset, 0);
        }
        _ => {
            let punch = rng.chance(0.5);
            let mode = match punch {
                true => FallocMode::PunchHole,
                false => FallocMode::Allocate { keep_size: true },
            };
            match fs.fallocate(cx, file, mode, at, len as u64) {
                Ok(()) if punch && offset < model.len() => {
                    let end = (offset + len).min(model.len());
                    model[offset..end].fill(0);
                }
                Ok(()) | Err(Errno::EOPNOTSUPP) => {}
                Err(errno) => panic!("step {step}: {errno}"),
            }
        }
    }
}

/// Goal: a direct write to blocks that exist reaches the device before it returns, past the cache,
/// and readers beside it see old or new content, never anything else. Method: tasks at once.
#[test]
fn tasks_at_once_see_old_or_new_content() {
    for seed in seeds(4) {
        let config = rt::WorldConfig::exploring(seed);
        rt::World::new(config).run("direct", |cx| {
            let device = fresh(cx, 16 << 20, "ext4", 4096);
            let fs = mount_as(cx, device.clone(), 8 << 20, JournalMode::Ordered);
            let file = create(cx, &*fs, fs.root(), "file");
            assert_eq!(fs.write_direct(cx, file, 0, &[1; 65536]), Ok(65536));
            let tasks: Vec<_> = (0..4u64)
                .map(|number| {
                    let fs = fs.clone();
                    cx.spawn(&format!("task{number}"), move |cx| {
                        let mut rng = Rng::new(seed, number);
                        for round in 0..20u8 {
                            let at = rng.below(16) * 4096;
                            let mut bytes = vec![round | 1; 4096];
                            let done = match (number, rng.chance(0.5)) {
                                (0 | 1, true) => fs.write_direct(cx, file, at, &bytes),
                                (0 | 1, false) => fs.write(cx, file, at, &bytes),
                                (_, true) => fs.read_direct(cx, file, at, &mut bytes),
                                (_, false) => fs.read(cx, file, at, &mut bytes),
                            };
                            assert_eq!(done, Ok(4096));
                            assert!(bytes.iter().all(|&byte| byte == bytes[0] && byte != 0));
                        }
                    })
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join(cx));
            fs.unmount(cx).expect("unmount");
            checked(cx, &device, "direct");
            e2fsck(&device, "direct");
        });
    }
}

/// Goal: a direct write into a hole, or into unwritten blocks, inside the file goes past the page
/// cache, and each block is written once. Method: the counters of the cache and of the queue; then
/// a remount, and e2fsck.
#[test]
fn holes_are_filled_past_the_cache() {
    for (block, allocated) in [(4096, false), (1024, false), (4096, true)] {
        rt::testing::world(|cx| {
            let device = fresh(cx, 32 << 20, "ext4", block);
            let queue = queue(cx, device.clone());
            let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(8 << 20));
            let fs = Ext4::mount(cx, &queue, &pages, MountOptions::default()).expect("mount");
            let file = create(cx, &*fs, fs.root(), "file");
            let set = SetAttr { size: Some(1 << 20), ..SetAttr::default() };
            fs.setattr(cx, file, &set).expect("truncate");
            if allocated {
                let mode = FallocMode::Allocate { keep_size: true };
                fs.fallocate(cx, file, mode, 0, 1 << 20).expect("fallocate");
            }
            fs.sync(cx).expect("sync");
            let (cached, sent) = (pages.stats(), queue.stats());
            let data = vec![7; 256 << 10];
            assert_eq!(fs.write_direct(cx, file, 64 << 10, &data), Ok(data.len()));
            let (cached, sent) = (
                pages.stats().write_bytes - cached.write_bytes,
                queue.stats().write_bytes - sent.write_bytes,
            );
            assert_eq!((cached, sent), (0, 256 << 10), "blocks of {block}, {allocated}");
            fs.fsync(cx, file, true).expect("fdatasync");
            fs.shutdown_hard();
            let (fs, _) = mount(cx, device.clone());
            let mut bytes = vec![1; 1 << 20];
            assert_eq!(fs.read(cx, file, 0, &mut bytes), Ok(1 << 20));
            let inside = 64 << 10..320 << 10;
            assert!(
                bytes
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| *byte == 7 * u8::from(inside.contains(&at)))
            );
            fs.unmount(cx).expect("unmount");
            e2fsck(&device, "holes filled");
        });
    }
}

/// Goal: a power cut while a hole is filled leaves old zeros or new bytes, never what the blocks
/// held before. Method: the free space is full of another pattern; all cuts of a run.
#[test]
fn filling_a_hole_may_be_cut_anywhere() {
    for seed in seeds(3) {
        let (base, log, file) = World::new(WorldConfig::exploring(seed)).run("cut", |cx| {
            let memory = fresh(cx, 16 << 20, "ext4", 4096);
            let (fs, _) = mount(cx, memory.clone());
            let old = create(cx, &*fs, fs.root(), "old");
            fs.write(cx, old, 0, &vec![0xee; 8 << 20]).expect("write");
            let file = create(cx, &*fs, fs.root(), "file");
            let set = SetAttr { size: Some(1 << 20), ..SetAttr::default() };
            fs.setattr(cx, file, &set).expect("truncate");
            fs.sync(cx).expect("sync");
            fs.unlink(cx, fs.root(), b"old").expect("unlink");
            fs.unmount(cx).expect("unmount");
            let base = memory.fork();
            let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
            let (fs, _) = mount(cx, device.clone());
            let mut rng = Rng::new(seed, 8);
            for _ in 0..40 {
                let at = rng.below(250) * 4096;
                let data = vec![7; 4096 * (1 + rng.below(6) as usize)];
                fs.write_direct(cx, file, at, &data).expect("write");
                if rng.chance(0.2) {
                    fs.fsync(cx, file, rng.chance(0.5)).expect("fsync");
                }
            }
            fs.shutdown_hard();
            (base, device.log(), file)
        });
        crash::explore(&campaign::config(seed, 60), &base, &log, |image, _| {
            rt::testing::real(|cx| {
                let (fs, _) = mount(cx, image.clone());
                let mut bytes = vec![0; 2 << 20];
                let len = fs.read(cx, file, 0, &mut bytes).expect("read");
                fs.unmount(cx).expect("unmount");
                checked(cx, &image, "after a cut");
                match bytes[..len].iter().position(|byte| ![0, 7].contains(byte)) {
                    Some(at) => Err(format!("byte {at} is {:#x}", bytes[at])),
                    None => Ok(()),
                }
            })
        });
    }
}
