//! Small files that are written out together: one transaction gives places to several of them.

use std::ops::Range;
use std::sync::Arc;

use crate::world::{Cell, checked, file, mkdir, mount, repaired, seed_count};
use base::Ino;
use device::{MemoryDevice, RecordDevice};
use rt::{Cx, World, WorldConfig};
use testkit::crash::{self, CrashConfig};
use vfs::FileSystem;
use xfs::Xfs;

const BLOCK: usize = 4096;

/// The content of file `n`: 0 to 19 blocks, the last one not whole, no byte of it zero.
fn content(n: usize) -> Vec<u8> {
    let len = (n % 20 * BLOCK).saturating_sub(n % 7);
    (0..len).map(|at| (1 + (n + at / 512) % 251) as u8).collect()
}

fn write_files(cx: &mut Cx, fs: &Xfs, dir: Ino, numbers: Range<usize>) {
    for n in numbers {
        let ino = file(cx, fs, dir, &format!("f{n}"));
        let data = content(n);
        assert_eq!(fs.write(cx, ino, 0, &data), Ok(data.len()));
    }
}

/// A file holds its own content as far as it goes: all of it where `whole`.
fn verify(cx: &mut Cx, fs: &Xfs, count: usize, whole: bool) -> Result<(), String> {
    let Ok(dir) = fs.lookup(cx, fs.root(), b"dir") else {
        return if whole { Err("no directory".into()) } else { Ok(()) };
    };
    for n in 0..count {
        let expected = content(n);
        let found = match fs.lookup(cx, dir.ino, format!("f{n}").as_bytes()) {
            Ok(attr) => attr,
            Err(_) if !whole => continue,
            Err(errno) => return Err(format!("f{n}: {errno}")),
        };
        let mut data = vec![0; found.size as usize];
        fs.read(cx, found.ino, 0, &mut data).map_err(|errno| format!("f{n}: {errno}"))?;
        let same = data == expected || !whole && expected.starts_with(&data);
        if !same {
            let at = data.iter().zip(&expected).position(|(a, b)| a != b);
            return Err(format!("f{n}: {} of {} bytes, {at:?}", data.len(), expected.len()));
        }
    }
    Ok(())
}

/// Goal: a sync of new small files asks for less than half of the buffers that it asks for where
/// each is placed alone (with a reverse map), what it promised survives a power cut, and all blocks
/// are accounted for.
#[test]
fn small_files_are_placed_together() {
    const COUNT: usize = 400;
    let mut asked = Vec::new();
    for cell in [Cell(&[]), Cell(&[('m', "rmapbt=1")]), Cell(&[('b', "size=1024")])] {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, 256 << 20);
            let (fs, _) = mount(cx, device.clone(), 64 << 20);
            let dir = mkdir(cx, &fs, fs.root(), "dir");
            write_files(cx, &fs, dir, 0..COUNT);
            let before = fs.buf_stats();
            fs.sync(cx).expect("sync");
            let after = fs.buf_stats();
            let left = fs.statfs(cx).expect("statfs").blocks_free;
            asked.push(after.hits + after.created - before.hits - before.created);
            let cut = Arc::new(device.fork());
            fs.unmount(cx).expect("unmount");
            for image in [device, cut] {
                let (fs, _) = mount(cx, image.clone(), 64 << 20);
                assert_eq!(fs.statfs(cx).expect("statfs").blocks_free, left, "promises ended");
                verify(cx, &fs, COUNT, true).expect("the content");
                fs.unmount(cx).expect("unmount");
                checked(cx, &image).expect("our check");
                repaired(&image).expect("xfs_repair");
            }
        });
    }
    println!("buffers asked for by a sync of {COUNT} files: {asked:?}");
    assert!(2 * asked[0] < asked[1], "{asked:?}");
}

/// Goal: wherever the power goes in a sync of small files that take the places of removed ones, no
/// file shows bytes that are not its own.
#[test]
fn a_cut_in_the_sync_shows_nothing_stale() {
    const COUNT: usize = 120;
    for seed in 0..seed_count(2) {
        let (base, log) = World::new(WorldConfig::exploring(seed)).run("crash", |cx| {
            let memory = Cell(&[]).fresh(cx, 48 << 20);
            let base: MemoryDevice = memory.fork();
            let device = Arc::new(RecordDevice::new(memory));
            let (fs, _) = mount(cx, device.clone(), 32 << 20);
            // What lies on the device before is nobody's content.
            let old = file(cx, &fs, fs.root(), "old");
            let junk = vec![0xff; 1 << 20];
            for n in 0..24 {
                fs.write(cx, old, n << 20, &junk).expect("write");
            }
            fs.sync(cx).expect("sync");
            fs.unlink(cx, fs.root(), b"old").expect("unlink");
            fs.sync(cx).expect("sync");
            let dir = mkdir(cx, &fs, fs.root(), "dir");
            write_files(cx, &fs, dir, 0..COUNT / 2);
            fs.sync(cx).expect("sync");
            write_files(cx, &fs, dir, COUNT / 2..COUNT);
            fs.sync(cx).expect("sync");
            fs.shutdown_hard();
            (base, device.log())
        });
        let config = CrashConfig { random: 30, at_flushes_max: 60, ..CrashConfig::new(seed) };
        let report = crash::explore(&config, &base, &log, |image, case| {
            rt::testing::real(|cx| {
                let (fs, _) = mount(cx, image.clone(), 64 << 20);
                verify(cx, &fs, COUNT, false)?;
                fs.unmount(cx).map_err(|errno| format!("unmount after recovery: {errno}"))?;
                checked(cx, &image)
            })?;
            if case.index % 25 == 0 { repaired(&image) } else { Ok(()) }
        });
        println!("seed {seed}: {report:?}");
        assert!(report.lossy > 5, "no cut lost a write");
    }
}
