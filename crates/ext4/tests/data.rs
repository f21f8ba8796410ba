//! File data, allocation, truncation and mounting, on images of mke2fs, judged by e2fsck.

#[path = "data/bed.rs"]
mod bed;

use base::Errno;
use bed::{Bed, FORMATS, real, world};
use vfs::{FileSystem, FileType, NewNode};

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
