//! File data, allocation, truncation and mounting, on images of mke2fs, judged by e2fsck.

mod bed;

use base::{Errno, Rng, Timespec};
use bed::{Bed, FORMATS, real, world};
use cache::PageCacheConfig;
use testkit::twin::Twin;
use vfs::{FallocMode, FileSystem, FileType, NewNode, SetAttr};

/// Every answer of every operation is the right one, on every format.
#[test]
fn the_conformance_suite_passes_on_every_format() {
    for (name, args) in FORMATS {
        println!("{name}");
        let bed = Bed::new(64 << 20, args);
        world(1, |cx| {
            let fs = bed.mount(cx);
            testkit::conformance::run_all(cx, &*fs);
            fs.unmount(cx).expect("unmount");
        });
        bed.judge();
    }
}

/// Goal: a mount that does nothing leaves a clean file system.
#[test]
fn an_idle_mount_leaves_a_clean_image() {
    for (name, args) in FORMATS {
        println!("{name}");
        let bed = Bed::new(16 << 20, args);
        world(1, |cx| bed.mount(cx).unmount(cx).expect("unmount"));
        bed.judge();
        real(|cx| bed.mount(cx).unmount(cx).expect("unmount"));
        bed.judge();
    }
}

/// Goal: data survive a remount. Method: files of many sizes, read back twice.
#[test]
fn what_was_written_is_read_after_a_remount() {
    for (name, args) in FORMATS {
        println!("{name}");
        let bed = Bed::new(64 << 20, args);
        let sizes = [0usize, 1, 1000, 4096, 5000, 70_000, 1 << 20, 5_000_001];
        let content = |size: usize| -> Vec<u8> {
            (0..size).map(|at| (at / 7 + at / 4096 + size) as u8).collect()
        };
        world(2, |cx| {
            let fs = bed.mount(cx);
            for size in sizes {
                let file = create(cx, &*fs, format!("file{size}").as_bytes());
                assert_eq!(fs.write(cx, file, 0, &content(size)), Ok(size));
            }
            fs.sync(cx).expect("sync");
            fs.unmount(cx).expect("unmount");
        });
        bed.judge();
        world(3, |cx| {
            let fs = bed.mount(cx);
            for size in sizes {
                let name = format!("file{size}");
                let attr = fs.lookup(cx, fs.root(), name.as_bytes()).expect("lookup");
                assert_eq!(attr.size, size as u64);
                let mut buf = vec![0; size + 10];
                assert_eq!(fs.read(cx, attr.ino, 0, &mut buf), Ok(size));
                assert!(buf[..size] == content(size), "{name}");
                fs.unlink(cx, fs.root(), name.as_bytes()).expect("unlink");
            }
            fs.unmount(cx).expect("unmount");
        });
        bed.judge();
    }
}

fn create(cx: &mut rt::Cx, fs: &dyn FileSystem, name: &[u8]) -> base::Ino {
    let node = NewNode::new(FileType::Regular, 0o644);
    fs.create(cx, fs.root(), name, &node).expect("create").ino
}

/// Goal: a full disk answers `ENOSPC`, loses nothing that was accepted, and is writable again after
/// a removal.
#[test]
fn a_full_disk_says_so_and_recovers() {
    for (name, args) in FORMATS {
        println!("{name}");
        let bed = Bed::new(8 << 20, args);
        world(4, |cx| {
            let fs = bed.mount(cx);
            let mut files = Vec::new();
            'fill: for number in 0.. {
                let name = format!("f{number}");
                let node = NewNode::new(FileType::Regular, 0o644);
                let Ok(attr) = fs.create(cx, fs.root(), name.as_bytes(), &node) else { break };
                files.push(name);
                for at in 0..16u64 {
                    match fs.write(cx, attr.ino, at * 10_000, &[number as u8; 10_000]) {
                        Ok(10_000) => {}
                        Ok(short) => assert!(short < 10_000),
                        Err(errno) => {
                            assert_eq!(errno, Errno::ENOSPC);
                            break 'fill;
                        }
                    }
                }
            }
            fs.sync(cx).expect("what was accepted has room");
            let free = fs.statfs(cx).expect("statfs").blocks_free;
            for name in &files {
                fs.unlink(cx, fs.root(), name.as_bytes()).expect("unlink");
            }
            assert!(fs.statfs(cx).expect("statfs").blocks_free > free);
            let ino = create(cx, &*fs, b"again");
            assert_eq!(fs.write(cx, ino, 0, &[7; 1 << 20]), Ok(1 << 20));
            fs.fsync(cx, ino, false).expect("fsync");
            fs.unmount(cx).expect("unmount");
        });
        bed.judge();
    }
}

/// Goal: any mix of writing, truncating, punching, allocating and reading has the bytes that a
/// vector has. Method: random operations on two files at once, remounted every 40 operations, with
/// a small cache, on every format.
#[test]
fn random_file_operations_agree_with_bytes() {
    for (number, (name, args)) in FORMATS.iter().enumerate() {
        for seed in 0..2 {
            println!("{name}, seed {seed}");
            let mut bed = Bed::new(48 << 20, args);
            bed.cache = PageCacheConfig::with_limit(if seed % 2 == 0 { 2 << 20 } else { 64 << 20 });
            let mut rng = Rng::new(seed, number as u64);
            let mut contents = vec![Vec::new(); 2];
            for round in 0..4 {
                contents = world(seed, |cx| random_round(cx, &bed, &mut rng, contents, round));
                bed.judge();
            }
        }
    }
}

fn random_round(
    cx: &mut rt::Cx,
    bed: &Bed,
    rng: &mut Rng,
    contents: Vec<Vec<u8>>,
    round: usize,
) -> Vec<Vec<u8>> {
    let fs = bed.mount(cx);
    let mut twins = Vec::new();
    for (index, bytes) in contents.into_iter().enumerate() {
        let name = format!("twin{index}");
        let ino = match round {
            0 => create(cx, &*fs, name.as_bytes()),
            _ => fs.lookup(cx, fs.root(), name.as_bytes()).expect("lookup").ino,
        };
        let twin = Twin { ino, bytes };
        twin.check(cx, &*fs, "remount");
        twins.push(twin);
    }
    for _ in 0..40 {
        let index = rng.below(2) as usize;
        let what = twins[index].step(cx, &*fs, rng);
        if rng.chance(0.2) {
            twins[index].check(cx, &*fs, &what);
        }
    }
    for twin in &twins {
        twin.check(cx, &*fs, "the round");
    }
    fs.unmount(cx).expect("unmount");
    twins.into_iter().map(|twin| twin.bytes).collect()
}

/// Goal: extent trees of depth 2 and more stay right through conversion, punching and truncation.
/// Method: 6,000 unwritten blocks of 1 KiB, every other one written, then holes and cuts.
#[test]
fn deep_extent_trees_agree_with_bytes() {
    let bed = Bed::new(64 << 20, &["-t", "ext4", "-b", "1024"]);
    let blocks = 6000usize;
    let bytes = world(5, |cx| {
        let fs = bed.mount(cx);
        let mut twin = Twin { ino: create(cx, &*fs, b"deep"), bytes: Vec::new() };
        let mode = FallocMode::Allocate { keep_size: false };
        twin.fallocate(cx, &*fs, mode, 0, blocks * 1024);
        let mut order: Vec<usize> = (0..blocks).step_by(2).collect();
        let mut rng = Rng::new(5, 5);
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        for (count, block) in order.iter().enumerate() {
            twin.write(cx, &*fs, block * 1024, &[1 + (block % 250) as u8; 1024]);
            if count % 50 == 0 {
                fs.fsync(cx, twin.ino, true).expect("fsync");
            }
        }
        twin.check(cx, &*fs, "writing every other block");
        fs.unmount(cx).expect("unmount");
        twin.bytes
    });
    bed.judge();
    let image = testkit::image::write_device(&bed.device);
    let tree = testkit::judge::debugfs(image.path(), false, "ex /deep");
    assert!(tree.contains("/ 2 "), "the tree is not deep:\n{tree}");
    world(6, |cx| {
        let fs = bed.mount(cx);
        let ino = fs.lookup(cx, fs.root(), b"deep").expect("lookup").ino;
        let mut twin = Twin { ino, bytes };
        twin.check(cx, &*fs, "remount");
        let mut rng = Rng::new(6, 6);
        for _ in 0..300 {
            let off = rng.below(blocks as u64 * 1024) as usize;
            let len = 1 + rng.below(6000) as usize;
            twin.fallocate(cx, &*fs, FallocMode::PunchHole, off, len);
        }
        twin.check(cx, &*fs, "punching");
        for part in (0..20).rev() {
            let size = blocks * 1024 * part / 20 + 100 * part;
            let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
            fs.setattr(cx, ino, &set).expect("truncate");
            twin.bytes.truncate(size);
            twin.check(cx, &*fs, "a cut");
        }
        assert_eq!(fs.getattr(cx, ino).expect("getattr").blocks, 0);
        fs.unmount(cx).expect("unmount");
    });
    bed.judge();
}

/// Goal: all levels of indirect blocks, to the triple one, are built, read, cut and freed.
#[test]
fn indirect_trees_of_three_levels_agree() {
    for args in [&["-t", "ext2", "-b", "1024"], &["-t", "ext3", "-b", "1024"]] {
        let bed = Bed::new(32 << 20, args);
        let offsets: Vec<u64> =
            [0u64, 11, 12, 267, 268, 523, 524, 65803, 65804, 65805, 66060, 131340, 200_000]
                .map(|block| block * 1024 + 77)
                .to_vec();
        world(7, |cx| {
            let fs = bed.mount(cx);
            let ino = create(cx, &*fs, b"sparse");
            for &off in &offsets {
                let text = off.to_string();
                assert_eq!(fs.write(cx, ino, off, text.as_bytes()), Ok(text.len()));
            }
            fs.unmount(cx).expect("unmount");
        });
        bed.judge();
        world(8, |cx| {
            let fs = bed.mount(cx);
            let free = fs.statfs(cx).expect("statfs").blocks_free;
            let ino = fs.lookup(cx, fs.root(), b"sparse").expect("lookup").ino;
            for (index, &off) in offsets.iter().enumerate().rev() {
                let text = off.to_string();
                let mut buf = vec![0; text.len()];
                assert_eq!(fs.read(cx, ino, off, &mut buf), Ok(text.len()));
                assert_eq!(buf, text.as_bytes());
                if index % 2 == 0 {
                    let set = SetAttr { size: Some(off), ..SetAttr::default() };
                    fs.setattr(cx, ino, &set).expect("truncate");
                } else {
                    fs.fallocate(cx, ino, FallocMode::PunchHole, off, 2000).expect("punch");
                }
            }
            fs.unlink(cx, fs.root(), b"sparse").expect("unlink");
            assert!(fs.statfs(cx).expect("statfs").blocks_free > free + 10);
            fs.unmount(cx).expect("unmount");
        });
        bed.judge();
    }
}

/// Goal: a file far larger than the cache, and one whose removal needs many transactions of a small
/// journal, also while it is open.
#[test]
fn large_files_pass_through_small_caches_and_journals() {
    let small: &[&[&str]] = &[
        &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "orphan_file"],
    ];
    for args in small {
        let mut bed = Bed::new(80 << 20, args);
        bed.cache = PageCacheConfig::with_limit(1 << 20);
        world(9, |cx| {
            let fs = bed.mount(cx);
            let free = fs.statfs(cx).expect("statfs").blocks_free;
            let ino = create(cx, &*fs, b"large");
            let other = create(cx, &*fs, b"other");
            for part in 0..50u64 {
                let data = vec![part as u8 + 1; 1 << 20];
                assert_eq!(fs.write(cx, ino, part << 20, &data), Ok(1 << 20));
                // Something between, so that the extents do not all join.
                assert_eq!(fs.write(cx, other, part << 10, &[9; 1024]), Ok(1024));
                fs.fsync(cx, other, true).expect("fsync");
            }
            fs.open(cx, ino).expect("open");
            let mut buf = vec![0; 1 << 20];
            for part in 0..50u64 {
                assert_eq!(fs.read(cx, ino, part << 20, &mut buf), Ok(1 << 20));
                assert!(buf.iter().all(|&byte| byte == part as u8 + 1));
            }
            fs.unlink(cx, fs.root(), b"large").expect("unlink");
            assert_eq!(fs.read(cx, ino, 0, &mut buf[..10]), Ok(10));
            fs.release(cx, ino).expect("release");
            fs.unlink(cx, fs.root(), b"other").expect("unlink");
            assert_eq!(fs.getattr(cx, ino), Err(Errno::ESTALE));
            fs.sync(cx).expect("sync");
            assert!(fs.statfs(cx).expect("statfs").blocks_free >= free);
            fs.unmount(cx).expect("unmount");
        });
        bed.judge();
    }
}

/// Goal: many real threads write, sync, read and remove at once on one mount, with a small cache
/// and journal; nothing hangs, all data are right, e2fsck is content.
#[test]
fn many_threads_work_on_one_mount() {
    for args in
        [&["-t", "ext4", "-b", "1024", "-J", "size=1"] as &[&str], &["-t", "ext3"], &["-t", "ext2"]]
    {
        let mut bed = Bed::new(64 << 20, args);
        bed.cache = PageCacheConfig::with_limit(2 << 20);
        real(|cx| {
            let fs = bed.mount(cx);
            let tasks: Vec<_> = (0..6u64)
                .map(|task| {
                    let fs = fs.clone();
                    cx.spawn("worker", move |cx| work(cx, &*fs, task))
                })
                .collect();
            for task in tasks {
                task.join(cx);
            }
            fs.unmount(cx).expect("unmount");
        });
        bed.judge();
    }
}

fn work(cx: &mut rt::Cx, fs: &dyn FileSystem, task: u64) {
    let mut rng = Rng::new(task, 99);
    let mut twins: Vec<(String, Twin)> = Vec::new();
    for step in 0..150 {
        match rng.below(6) {
            0 | 1 if twins.len() < 6 => {
                let name = format!("t{task}-{step}");
                let twin = Twin { ino: create(cx, fs, name.as_bytes()), bytes: Vec::new() };
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
    for (_, twin) in &twins {
        twin.check(cx, fs, "all");
    }
}

/// Goal: a mount that stops without unmounting leaves a file system that a read-only mount shows as
/// recovered without writing, and that a writable one recovers.
#[test]
fn a_dirty_image_is_read_without_a_write_and_then_recovered() {
    for args in [
        &["-t", "ext4"] as &[&str],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4", "-O", "orphan_file"],
    ] {
        let mut bed = Bed::new(32 << 20, args);
        let data: Vec<u8> = (0..100_000u32).map(|at| (at / 100) as u8).collect();
        world(11, |cx| {
            let fs = bed.mount(cx);
            let ino = create(cx, &*fs, b"kept");
            assert_eq!(fs.write(cx, ino, 0, &data), Ok(data.len()));
            let gone = create(cx, &*fs, b"gone");
            assert_eq!(fs.write(cx, gone, 0, &data), Ok(data.len()));
            fs.open(cx, gone).expect("open");
            fs.unlink(cx, fs.root(), b"gone").expect("unlink");
            fs.fsync(cx, ino, false).expect("fsync");
            fs.shutdown_hard();
            assert_eq!(fs.getattr(cx, ino), Err(Errno::EIO));
        });
        let before = bed.device.snapshot();
        for read_only in [true, false] {
            bed.options.read_only = read_only;
            world(12, |cx| {
                let fs = bed.mount(cx);
                let attr = fs.lookup(cx, fs.root(), b"kept").expect("lookup");
                let mut buf = vec![0; data.len()];
                assert_eq!(fs.read(cx, attr.ino, 0, &mut buf), Ok(data.len()));
                assert!(buf == data);
                assert_eq!(fs.lookup(cx, fs.root(), b"gone"), Err(Errno::ENOENT));
                fs.unmount(cx).expect("unmount");
            });
            assert_eq!(bed.device.snapshot() == before, read_only);
        }
        bed.judge();
    }
}

/// Goal: sizes beyond 2 GiB (and the feature that announces them) and times beyond 2038 survive.
#[test]
fn sizes_and_times_beyond_32_bits_survive() {
    let formats: &[&[&str]] = &[
        &["-t", "ext4", "-O", "^large_file"],
        &["-t", "ext2", "-O", "^large_file"],
        &["-t", "ext3", "-b", "1024"],
    ];
    for args in formats {
        let bed = Bed::new(16 << 20, args);
        let offset = (5u64 << 30) + 123;
        let late = Timespec { sec: 7_000_000_000, nsec: 123_456_789 };
        world(13, |cx| {
            let fs = bed.mount(cx);
            let ino = create(cx, &*fs, b"far");
            assert_eq!(fs.write(cx, ino, offset, b"end"), Ok(3));
            fs.fsync(cx, ino, false).expect("fsync");
            let set = SetAttr { mtime: Some(late), ..SetAttr::default() };
            let attr = fs.setattr(cx, ino, &set).expect("setattr");
            assert!(attr.mtime == late || bed_is_narrow(&fs));
            fs.unmount(cx).expect("unmount");
        });
        bed.judge();
        world(14, |cx| {
            let fs = bed.mount(cx);
            let attr = fs.lookup(cx, fs.root(), b"far").expect("lookup");
            assert_eq!(attr.size, offset + 3);
            assert!(attr.mtime == late || bed_is_narrow(&fs));
            let mut buf = [1; 8];
            assert_eq!(fs.read(cx, attr.ino, offset - 5, &mut buf), Ok(8));
            assert_eq!(&buf, b"\0\0\0\0\0end");
            fs.unmount(cx).expect("unmount");
        });
        bed.judge();
    }
}

fn bed_is_narrow(fs: &ext4::Ext4) -> bool {
    fs.geometry().inode_size == 128
}

/// Goal: files that are written one behind the other lie one behind the other, so that their bios
/// merge; and a file that grows by small synced appends beside another stays in few pieces.
#[test]
fn allocation_keeps_neighbours_together() {
    let bed = Bed::new(64 << 20, &["-t", "ext4"]);
    world(15, |cx| {
        let fs = bed.mount(cx);
        let mut inos = Vec::new();
        for number in 0..200 {
            let ino = create(cx, &*fs, format!("small{number}").as_bytes());
            assert_eq!(fs.write(cx, ino, 0, &[1; 4096]), Ok(4096));
            inos.push(ino);
        }
        fs.sync(cx).expect("sync");
        let places: Vec<u64> = inos
            .iter()
            .map(|&ino| fs.fiemap(cx, ino, 0, 4096).expect("fiemap")[0].physical())
            .collect();
        let follows = places.windows(2).filter(|two| two[0] + 4096 == two[1]).count();
        assert!(follows >= 195, "only {follows} of 199 files lie behind the one before");
        let two = [create(cx, &*fs, b"one"), create(cx, &*fs, b"two")];
        for step in 0..300u64 {
            for ino in two {
                assert_eq!(fs.write(cx, ino, step * 8192, &[2; 8192]), Ok(8192));
                fs.fsync(cx, ino, true).expect("fsync");
            }
        }
        for ino in two {
            let extents = fs.fiemap(cx, ino, 0, u64::MAX).expect("fiemap");
            assert!(extents.len() <= 40, "{} pieces", extents.len());
        }
        fs.unmount(cx).expect("unmount");
    });
    bed.judge();
}
