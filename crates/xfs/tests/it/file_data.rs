//! The content of files: written, cut, punched and allocated in any order, on images of mkfs.xfs;
//! xfs_repair and the kernel have the last word.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::log_common::{Volume, mkfs, real, repair, scratch};
use base::{Errno, Ino, Rng};
use cache::{PageCache, PageCacheConfig};
use rt::Cx;
use testkit::judge;
use testkit::twin::Twin;
use vfs::{FallocMode, FileSystem, SetAttr};
use xfs::{MountOptions, Xfs};

/// An image of mkfs.xfs with some empty files, made by the kernel.
fn image(dir: &Path, args: &[&str], files: usize) -> PathBuf {
    let image = mkfs(dir, "image", 320 << 20, args);
    let mount = judge::LoopMount::new(&image, "xfs", "rw").expect("mounted");
    for number in 0..files {
        std::fs::File::create(mount.path().join(format!("f{number}"))).expect("created");
    }
    drop(mount);
    image
}

fn mount(cx: &mut Cx, image: &Path, cache: u64) -> Arc<Xfs> {
    let volume = Volume::open(cx, image);
    let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(cache));
    let options = MountOptions { read_only: false, ..MountOptions::default() };
    Xfs::mount(cx, &volume.queue, &pages, options).expect("the image mounts")
}

fn file(cx: &mut Cx, fs: &Xfs, number: usize) -> Ino {
    fs.lookup(cx, fs.root(), format!("f{number}").as_bytes()).expect("lookup").ino
}

fn judged(image: &Path) {
    repair(image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
}

const FORMATS: &[&[&str]] =
    &[&[], &["-b", "size=1024", "-m", "rmapbt=1"], &["-i", "size=1024", "-m", "reflink=0"]];

/// Goal: any mix of writing, truncating, punching, allocating and reading has the bytes that a
/// vector has. Method: random operations on two files at once, remounted every 40 operations, with
/// a small cache and a large one.
#[test]
fn random_file_operations_agree_with_bytes() {
    for (number, args) in FORMATS.iter().enumerate() {
        for seed in 0..2 {
            let dir = scratch();
            let image = image(dir.path(), args, 2);
            let mut rng = Rng::new(seed, number as u64);
            let mut contents = vec![Vec::new(); 2];
            let cache = if seed == 0 { 2 << 20 } else { 64 << 20 };
            for _ in 0..4 {
                contents = real(|cx| {
                    let fs = mount(cx, &image, cache);
                    random_round(cx, &fs, &mut rng, contents)
                });
                judged(&image);
            }
        }
    }
}

fn random_round(cx: &mut Cx, fs: &Xfs, rng: &mut Rng, contents: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut twins = Vec::new();
    for (index, bytes) in contents.into_iter().enumerate() {
        let twin = Twin { ino: file(cx, fs, index), bytes };
        twin.check(cx, fs, "remount");
        twins.push(twin);
    }
    for _ in 0..40 {
        let index = rng.below(2) as usize;
        let what = twins[index].step(cx, fs, rng);
        if rng.chance(0.2) {
            twins[index].check(cx, fs, &what);
        }
    }
    for twin in &twins {
        twin.check(cx, fs, "the round");
    }
    fs.unmount(cx).expect("unmount");
    twins.into_iter().map(|twin| twin.bytes).collect()
}

/// Goal: maps of thousands of extents stay right through marking, punching and cutting, as a list,
/// as a tree, and back. Method: 22,000 unwritten blocks of 1 KiB, every other one written in random
/// order, then holes and cuts down to nothing.
#[test]
fn maps_of_ten_thousand_extents_agree_with_bytes() {
    let dir = scratch();
    let image = image(dir.path(), &["-b", "size=1024", "-m", "rmapbt=1"], 1);
    let blocks = 22_000usize;
    let bytes = real(|cx| {
        let fs = mount(cx, &image, 64 << 20);
        let mut twin = Twin { ino: file(cx, &fs, 0), bytes: Vec::new() };
        twin.fallocate(cx, &*fs, FallocMode::Allocate { keep_size: false }, 0, blocks * 1024);
        let mut order: Vec<usize> = (0..blocks).step_by(2).collect();
        let mut rng = Rng::new(5, 5);
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        for (count, block) in order.iter().enumerate() {
            twin.write(cx, &*fs, block * 1024, &[1 + (block % 250) as u8; 1024]);
            if count % 500 == 0 {
                fs.fsync(cx, twin.ino, true).expect("fsync");
            }
        }
        twin.check(cx, &*fs, "writing every other block");
        fs.unmount(cx).expect("unmount");
        twin.bytes
    });
    judged(&image);
    let shown = judge::run_ok("xfs_db", &[&"-r", &"-c", &"path /f0", &"-c", &"print", &image]);
    let count = shown.lines().find_map(|line| line.strip_prefix("core.nextents = "));
    let count: u64 = count.expect("a count").parse().expect("a number");
    assert!(count > 10_000, "{count} extents");
    real(|cx| {
        let fs = mount(cx, &image, 64 << 20);
        let mut twin = Twin { ino: file(cx, &fs, 0), bytes };
        twin.check(cx, &*fs, "remount");
        let mut rng = Rng::new(6, 6);
        for _ in 0..300 {
            let off = rng.below(blocks as u64 * 1024) as usize;
            let len = 1 + rng.below(6000) as usize;
            twin.fallocate(cx, &*fs, FallocMode::PunchHole, off, len);
        }
        twin.check(cx, &*fs, "punching");
        for part in (0..12).rev() {
            let size = blocks * 1024 * part / 12 + 100 * part;
            let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
            fs.setattr(cx, twin.ino, &set).expect("truncate");
            twin.bytes.truncate(size);
            twin.check(cx, &*fs, "a cut");
        }
        assert_eq!(fs.getattr(cx, twin.ino).expect("getattr").blocks, 0);
        fs.unmount(cx).expect("unmount");
    });
    judged(&image);
}

/// Goal: a disk is full at its last block and not before, what was accepted is kept, and space that
/// is given back serves again. Method: a writer of large runs, then of single blocks, until nothing
/// fits; everything is read back by the kernel, and by us after a remount.
#[test]
fn a_full_disk_takes_every_block_and_keeps_what_it_took() {
    let dir = scratch();
    let image = image(dir.path(), &["-b", "size=1024"], 40);
    let mut files = Vec::new();
    real(|cx| {
        let fs = mount(cx, &image, 8 << 20);
        for number in 0..40 {
            let (ino, mut at) = (file(cx, &fs, number), 0u64);
            // Every second block, so that the free space ends up in crumbs.
            let (step, len) = if number < 4 { (1 << 21, 1 << 21) } else { (2048, 1024) };
            loop {
                let data = vec![number as u8 + 1; len];
                match fs.write(cx, ino, at, &data) {
                    Ok(count) if count == len => at += step,
                    Ok(_) | Err(Errno::ENOSPC) => break,
                    Err(errno) => panic!("{errno}"),
                }
                if number < 4 && at >= 60 << 20 || at >= 120 << 20 {
                    break;
                }
            }
            files.push(fs.getattr(cx, ino).expect("getattr").size);
        }
        fs.sync(cx).expect("what was accepted has room");
        let free = fs.statfs(cx).expect("statfs").blocks_free;
        assert!(free < 64, "{free} blocks are free on a full disk");
        fs.unmount(cx).expect("unmount");
    });
    judged(&image);
    // The last bytes of a file.
    let tail = |size: u64| (size - size.min(1 << 20), size.min(1 << 20) as usize);
    let check = |number: usize, from: u64, bytes: &[u8], who: &str| {
        let right = |(at, &byte): (u64, &u8)| {
            let hole = number >= 4 && at / 1024 % 2 == 1;
            byte == if hole { 0 } else { number as u8 + 1 }
        };
        assert!((from..).zip(bytes).all(right), "file {number} behind {from}, read by {who}");
    };
    let kernel = judge::LoopMount::new(&image, "xfs", "ro").expect("the kernel mounts");
    for (number, &size) in files.iter().enumerate() {
        let file = std::fs::File::open(kernel.path().join(format!("f{number}"))).expect("open");
        assert_eq!(file.metadata().expect("a file").len(), size);
        let (at, len) = tail(size);
        let mut buf = vec![0; len];
        file.read_exact_at(&mut buf, at).expect("the kernel reads");
        check(number, at, &buf, "the kernel");
    }
    drop(kernel);
    real(|cx| {
        let fs = mount(cx, &image, 8 << 20);
        for (number, &size) in files.iter().enumerate() {
            let ino = file(cx, &fs, number);
            assert_eq!(fs.getattr(cx, ino).expect("getattr").size, size);
            let (at, len) = tail(size);
            let mut buf = vec![0; len];
            assert_eq!(fs.read(cx, ino, at, &mut buf), Ok(len));
            check(number, at, &buf, "us");
        }
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        let ino = file(cx, &fs, 0);
        fs.setattr(cx, ino, &set).expect("truncate");
        assert_eq!(fs.write(cx, ino, 0, &vec![9; 8 << 20]), Ok(8 << 20));
        fs.fsync(cx, ino, false).expect("fsync");
        fs.unmount(cx).expect("unmount");
    });
    judged(&image);
}

/// Goal: what fsync promised is there after the power went, for us and for the kernel, and the file
/// is no longer than its content.
#[test]
fn synced_content_survives_a_power_cut_for_us_and_for_the_kernel() {
    for args in FORMATS {
        let dir = scratch();
        let image = image(dir.path(), args, 3);
        let bytes: Vec<u8> = (0..3_000_017u32).map(|at| (at / 100) as u8 | 1).collect();
        real(|cx| {
            let fs = mount(cx, &image, 1 << 20);
            let [one, two, three] = [0, 1, 2].map(|number| file(cx, &fs, number));
            for (at, chunk) in bytes.chunks(100_000).enumerate() {
                let at = at as u64 * 100_000;
                assert_eq!(fs.write(cx, one, at, chunk), Ok(chunk.len()));
                assert_eq!(fs.write(cx, two, at, chunk), Ok(chunk.len()));
            }
            fs.fallocate(cx, three, FallocMode::Allocate { keep_size: false }, 0, 1 << 20)
                .expect("fallocate");
            assert_eq!(fs.write(cx, three, 5000, &bytes[..10_000]), Ok(10_000));
            fs.fsync(cx, three, true).expect("fdatasync");
            fs.fsync(cx, one, false).expect("fsync");
            assert_eq!(fs.write(cx, one, 0, &[7; 4096]), Ok(4096));
            fs.fsync(cx, one, true).expect("fdatasync of an overwrite");
            fs.shutdown_hard();
        });
        // The mount is gone, but its pages are still somebody's: the image stays locked.
        let [copy, ours] = ["copy", "ours"].map(|name| dir.path().join(name));
        crate::log_common::copy(&image, &copy);
        crate::log_common::copy(&image, &ours);
        let mut wanted = bytes.clone();
        wanted[..4096].fill(7);
        let mut allocated = vec![0; 1 << 20];
        allocated[5000..15_000].copy_from_slice(&bytes[..10_000]);
        let right = |one: &[u8], two: &[u8], three: &[u8]| {
            let differs = |are: &[u8], should: &[u8]| {
                let at = are.iter().zip(should).position(|(a, b)| a != b);
                (are.len() != should.len() || at.is_some()).then_some((are.len(), at))
            };
            assert_eq!(differs(one, &wanted), None, "length, first byte of what was synced");
            assert_eq!(differs(three, &allocated), None, "length, first byte of what was synced");
            assert!(two.len() <= bytes.len(), "a size without content");
            let written = two.iter().zip(&bytes).all(|(a, b)| a == b || *a == 0);
            assert!(written, "old content of the disk");
        };
        let kernel = judge::LoopMount::new(&copy, "xfs", "rw").expect("mounted");
        let read = |name: &str| std::fs::read(kernel.path().join(name)).expect("read");
        right(&read("f0"), &read("f1"), &read("f2"));
        drop(kernel);
        judged(&copy);
        real(|cx| {
            let fs = mount(cx, &ours, 8 << 20);
            let read = [0, 1, 2].map(|number| {
                let ino = file(cx, &fs, number);
                let mut buf = vec![0; fs.getattr(cx, ino).expect("getattr").size as usize];
                assert_eq!(fs.read(cx, ino, 0, &mut buf), Ok(buf.len()));
                buf
            });
            right(&read[0], &read[1], &read[2]);
            fs.unmount(cx).expect("unmount");
        });
        judged(&ours);
    }
}

/// Goal: content that a crash in a truncation, or another implementation, left behind the end of a
/// file is never shown. Method: xfs_db makes a file of the kernel shorter than its blocks; it grows
/// over them in each way.
#[test]
fn what_lies_behind_the_end_is_never_shown() {
    let dir = scratch();
    let image = image(dir.path(), &[], 3);
    let mount_point = judge::LoopMount::new(&image, "xfs", "rw").expect("mounted");
    for number in 0..3 {
        let path = mount_point.path().join(format!("f{number}"));
        std::fs::write(path, vec![9; 200_000]).expect("written");
    }
    drop(mount_point);
    for number in 0..3 {
        let path = format!("path /f{number}");
        judge::run_ok("xfs_db", &[&"-x", &"-c", &path, &"-c", &"write -d core.size 100", &image]);
    }
    real(|cx| {
        let fs = mount(cx, &image, 8 << 20);
        let files = [0, 1, 2].map(|number| file(cx, &fs, number));
        let set = SetAttr { size: Some(160_000), ..SetAttr::default() };
        fs.setattr(cx, files[0], &set).expect("grows");
        assert_eq!(fs.write(cx, files[1], 151_000, &[1; 9000]), Ok(9000));
        assert_eq!(fs.write_direct(cx, files[2], 151_552, &[1; 8192]), Ok(8192));
        for ino in files {
            let mut bytes = vec![7; 151_000];
            assert_eq!(fs.read(cx, ino, 0, &mut bytes), Ok(151_000));
            assert!(bytes[..100].iter().all(|&byte| byte == 9));
            assert!(bytes[100..].iter().all(|&byte| byte == 0), "old content of {ino}");
        }
        fs.unmount(cx).expect("unmount");
    });
    judged(&image);
    let kernel = judge::LoopMount::new(&image, "xfs", "ro").expect("mounted");
    for number in 0..3 {
        let bytes = std::fs::read(kernel.path().join(format!("f{number}"))).expect("read");
        assert!(bytes[..100].iter().all(|&byte| byte == 9));
        assert!(bytes[100..151_000].iter().all(|&byte| byte == 0), "old content of file {number}");
    }
}
