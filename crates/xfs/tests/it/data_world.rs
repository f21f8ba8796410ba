//! The content of files in virtual time: conformance, many tasks at once, exact costs, faults, and
//! space taken ahead.

use std::sync::Arc;

use crate::world::{Cell, checked, mount, repaired, seeds, timed};
use base::{Errno, Rng};
use rt::{Cx, World, WorldConfig};
use testkit::content::{create, is_cut_on_its_way, is_no_hole_on_its_way, pattern};
use testkit::twin::Twin;
use vfs::{FallocMode, FileSystem};

const CELLS: &[Cell] = &[
    Cell(&[]),
    Cell(&[('b', "size=1024"), ('m', "rmapbt=1")]),
    Cell(&[('b', "size=2048"), ('m', "reflink=0")]),
];

fn world<T>(seed: u64, body: impl FnOnce(&mut Cx) -> T) -> T {
    World::new(WorldConfig::exploring(seed)).run("test", body)
}

/// Goal: many tasks write, cut, punch, sync and remove at once, with a cache smaller than what they
/// hold; every byte is right. Method: tasks with files of their own beside byte vectors.
#[test]
fn many_tasks_agree_with_bytes() {
    for seed in seeds(6) {
        let cell = CELLS[seed as usize % 3];
        world(seed, |cx| {
            println!("seed {seed}: {cell:?}");
            let memory = cell.fresh(cx, 96 << 20);
            let (fs, _) = mount(cx, timed(cx, &memory, seed), 2 << 20);
            let tasks: Vec<_> = (0..5)
                .map(|task| {
                    let fs = fs.clone();
                    cx.spawn("worker", move |cx| work(cx, &*fs, seed, task))
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join(cx));
            fs.unmount(cx).expect("unmount");
            checked(cx, &memory).expect("in order");
            repaired(&memory).expect("in order");
        });
    }
}

fn work(cx: &mut Cx, fs: &dyn FileSystem, seed: u64, task: u64) {
    let mut rng = Rng::new(seed, 100 + task);
    let mut twins: Vec<(String, Twin)> = Vec::new();
    for step in 0..60 {
        match rng.below(6) {
            0 | 1 if twins.len() < 4 => {
                let name = format!("t{task}-{step}");
                let twin = Twin { ino: create(cx, fs, fs.root(), &name), bytes: Vec::new() };
                twins.push((name, twin));
            }
            2 if !twins.is_empty() => {
                let (name, twin) = twins.swap_remove(rng.below(twins.len() as u64) as usize);
                twin.check(cx, fs, "the life of a file");
                fs.unlink(cx, fs.root(), name.as_bytes()).expect("unlink");
            }
            _ if !twins.is_empty() => {
                let index = rng.below(twins.len() as u64) as usize;
                twins[index].1.step(cx, fs, &mut rng);
            }
            _ => fs.sync(cx).expect("sync"),
        }
    }
    twins.iter().for_each(|(_, twin)| twin.check(cx, fs, "all"));
}

/// An append of 8 MiB writes its data once, and little else; a second fsync costs nothing; a write
/// over old blocks costs its data and one flush.
#[test]
fn an_append_writes_its_data_once() {
    rt::testing::world(|cx| {
        let device = CELLS[0].fresh(cx, 256 << 20);
        let (fs, queue) = mount(cx, device.clone(), 64 << 20);
        let file = create(cx, &*fs, fs.root(), "log");
        fs.sync(cx).expect("sync");
        let before = queue.stats();
        let size = 8u64 << 20;
        let mut data = vec![0; 64 << 10];
        for offset in (0..size).step_by(data.len()) {
            pattern(1, offset, &mut data);
            assert_eq!(fs.write(cx, file, offset, &data), Ok(data.len()));
        }
        fs.fsync(cx, file, false).expect("fsync");
        let after = queue.stats();
        let written = after.write_bytes - before.write_bytes;
        assert!(written >= size, "{written} bytes for {size}");
        assert!(written <= size + (16 << 10), "{written} bytes written for an append of {size}");
        let flushes = after.flushes + after.fua - before.flushes - before.fua;
        assert!(flushes <= 2, "{flushes} flushes of one fsync");
        fs.fsync(cx, file, false).expect("fsync");
        let again = queue.stats();
        assert_eq!(again.write_bytes, after.write_bytes, "bytes of an idle fsync");
        assert_eq!(again.flushes, after.flushes, "flushes of an idle fsync");
        assert_eq!(fs.write(cx, file, 4096, &data[..4096]), Ok(4096));
        fs.fsync(cx, file, true).expect("fdatasync");
        let over = queue.stats();
        assert_eq!(over.write_bytes - again.write_bytes, 4096, "bytes of an overwrite");
        assert_eq!(over.flushes - again.flushes, 1, "flushes of an overwrite");
        fs.unmount(cx).expect("unmount");
        repaired(&device).expect("in order");
    });
}

/// Content on its way to the device is data to who seeks, and can be cut away, however far it has
/// come.
#[test]
fn what_is_on_its_way_to_the_device_is_there() {
    for cell in CELLS {
        rt::testing::world(|cx| {
            let memory = cell.fresh(cx, 96 << 20);
            let (fs, _) = mount(cx, timed(cx, &memory, 2), 8 << 20);
            is_no_hole_on_its_way(cx, &fs);
            is_cut_on_its_way(cx, &fs, true);
            fs.unmount(cx).expect("unmount");
            repaired(&memory).expect("in order");
        });
    }
}

/// What nobody syncs is on the device by itself: a name after the interval of the log, data when
/// it has been dirty for so long and its end of write has waited as long; then nothing is written
/// any more.
#[test]
fn what_nobody_syncs_is_written_by_itself() {
    rt::testing::world(|cx| {
        let device = CELLS[0].fresh(cx, 96 << 20);
        let (fs, queue) = mount(cx, device.clone(), 8 << 20);
        let seconds = |n| base::Nanos::from_secs(n);
        cx.sleep(seconds(100));
        let mut data = vec![0; 100_000];
        pattern(1, 0, &mut data);
        let file = create(cx, &*fs, fs.root(), "file");
        assert_eq!(fs.write(cx, file, 0, &data), Ok(data.len()));
        let found = |cx: &mut Cx| {
            let (fs, _) = mount(cx, Arc::new(device.fork()), 8 << 20);
            let mut bytes = vec![0; data.len()];
            let found = fs.lookup(cx, fs.root(), b"file").map(|node| node.ino);
            let read = found.map(|ino| fs.read(cx, ino, 0, &mut bytes).expect("read"));
            fs.unmount(cx).expect("unmount");
            read.map(|length| bytes[..length].to_vec())
        };
        assert_eq!(found(cx), Err(Errno::ENOENT), "nothing is written at once");
        cx.sleep(seconds(31));
        assert!(found(cx).is_ok(), "the name after the interval");
        cx.sleep(seconds(70));
        assert_eq!(found(cx).as_ref(), Ok(&data), "the data after two");
        let before = queue.stats();
        cx.sleep(seconds(200));
        assert_eq!(queue.stats().write_bytes, before.write_bytes, "bytes of an idle mount");
        fs.unmount(cx).expect("unmount");
        repaired(&device).expect("in order");
    });
}

/// Goal: files that grow side by side, synced at each step, stay in few pieces, and what they took
/// ahead is given back when they are closed. Method: four open files take turns.
#[test]
fn blocks_taken_ahead_keep_files_together_and_are_given_back() {
    rt::testing::world(|cx| {
        let device = CELLS[0].fresh(cx, 256 << 20);
        let (fs, _) = mount(cx, device.clone(), 64 << 20);
        let files: Vec<_> =
            (0..4).map(|n| create(cx, &*fs, fs.root(), &format!("grows{n}"))).collect();
        files.iter().for_each(|&ino| fs.open(cx, ino).expect("open"));
        for step in 0..200u64 {
            for &ino in &files {
                assert_eq!(fs.write(cx, ino, step * 16384, &[7; 16384]), Ok(16384));
                fs.fsync(cx, ino, true).expect("fsync");
            }
        }
        let pieces = |cx: &mut Cx, ino| fs.fiemap(cx, ino, 0, u64::MAX).expect("fiemap");
        let mut ahead = 0;
        for &ino in &files {
            let extents = pieces(cx, ino);
            let written = extents.iter().filter(|e| e.content().is_some()).count();
            assert!(written <= 16, "{written} pieces: {extents:?}");
            ahead += extents.iter().filter(|e| e.offset >= 200 * 16384).count();
        }
        assert!(ahead > 0, "nothing was taken ahead");
        files.iter().for_each(|&ino| fs.release(cx, ino).expect("release"));
        for &ino in &files {
            let end = pieces(cx, ino).last().map(|extent| extent.offset + extent.len);
            assert_eq!(end, Some(200 * 16384), "blocks behind the end of a closed file");
        }
        fs.unmount(cx).expect("unmount");
        repaired(&device).expect("in order");
    });
}

/// Goal: direct and buffered reads and writes of one file agree, whoever comes first. Method:
/// random ranges both ways beside a byte vector, with truncations and holes between.
#[test]
fn direct_and_buffered_io_agree() {
    for (seed, cell) in CELLS.iter().enumerate() {
        rt::testing::world(|cx| {
            let memory = cell.fresh(cx, 96 << 20);
            let (fs, _) = mount(cx, memory.clone(), 8 << 20);
            let ino = create(cx, &*fs, fs.root(), "both");
            let mut twin = Twin { ino, bytes: Vec::new() };
            let mut rng = Rng::new(seed as u64, 9);
            for step in 0..250 {
                let (off, len) = (rng.below(600) * 512, (1 + rng.below(80)) * 512);
                let mut data = vec![0; len as usize];
                rng.fill(&mut data);
                match rng.below(8) {
                    0..=2 => {
                        assert_eq!(fs.write_direct(cx, ino, off, &data), Ok(data.len()));
                        let end = (off + len) as usize;
                        twin.bytes.resize(twin.bytes.len().max(end), 0);
                        twin.bytes[off as usize..end].copy_from_slice(&data);
                    }
                    3..=4 => {
                        let got = fs.read_direct(cx, ino, off, &mut data).expect("reads");
                        let want = twin.bytes.get(off as usize..).unwrap_or(&[]);
                        let want = &want[..want.len().min(data.len())];
                        assert!(&data[..got] == want, "step {step}: {off}+{len}");
                    }
                    _ => drop(twin.step(cx, &*fs, &mut rng)),
                }
            }
            assert_eq!(fs.write_direct(cx, ino, 100, &[0; 512]), Err(Errno::EINVAL));
            twin.check(cx, &*fs, "all");
            fs.unmount(cx).expect("unmount");
            checked(cx, &memory).expect("in order");
            repaired(&memory).expect("in order");
        });
    }
}

/// A size reaches the disk although the pages at its end were punched before they were written: a
/// model run lost the last two blocks of a file at an unmount that way.
#[test]
fn a_hole_punched_at_the_end_keeps_the_size() {
    rt::testing::world(|cx| {
        let device = CELLS[0].fresh(cx, 96 << 20);
        let (fs, _) = mount(cx, device.clone(), 8 << 20);
        let ino = create(cx, &*fs, fs.root(), "file");
        assert_eq!(fs.write(cx, ino, 0, &[5; 16384]), Ok(16384));
        fs.fallocate(cx, ino, FallocMode::PunchHole, 8192, 60_000).expect("punch");
        fs.unmount(cx).expect("unmount");
        let (fs, _) = mount(cx, device.clone(), 8 << 20);
        let mut bytes = vec![0; 16384];
        assert_eq!(fs.read(cx, ino, 0, &mut bytes), Ok(16384));
        assert!(bytes[..8192].iter().all(|&byte| byte == 5));
        assert!(bytes[8192..].iter().all(|&byte| byte == 0));
        fs.unmount(cx).expect("unmount");
    });
}
