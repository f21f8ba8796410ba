//! Many small files read at once: the same bytes as one by one, with few requests.

use crate::support::*;
use base::{Errno, Ino, Rng};
use block::{Cause, Op};
use device::{Fault, FaultDevice, MemoryDevice, Rule};
use jbd2::JournalMode;
use rt::{World, WorldConfig};
use std::sync::Arc;
use testkit::read_many::{alone, files, neighbours, requests_for, together};
use vfs::FileSystem;

/// Goal: reading together gives what reading alone gives, in every format and mode. Method: random
/// files, first dirty, then on the device only, then some of them changed again.
#[test]
fn files_read_together_are_those_read_alone() {
    let beds = [
        ("ext4", 4096, JournalMode::Ordered),
        ("ext4", 1024, JournalMode::Ordered),
        ("ext4", 4096, JournalMode::Data),
        ("ext3", 1024, JournalMode::Data),
        ("ext2", 2048, JournalMode::Ordered),
    ];
    for (seed, (kind, block, mode)) in beds.into_iter().enumerate() {
        rt::testing::world(|cx| {
            let device = fresh(cx, 48 << 20, kind, block);
            let mut rng = Rng::new(seed as u64, 12);
            let fs = mount_as(cx, device.clone(), 8 << 20, mode);
            let files = files(cx, &*fs, &mut rng);
            let dirty = together(cx, &*fs, &files);
            assert_eq!(dirty, alone(cx, &*fs, &files), "{kind}/{block} {mode:?}: dirty");
            fs.unmount(cx).expect("unmount");
            let fs = mount_as(cx, device, 8 << 20, mode);
            assert_eq!(together(cx, &*fs, &files), dirty, "{kind}/{block} {mode:?}: on the device");
            for at in [3, 17, 40] {
                fs.write(cx, files[at], 50, b"newer").expect("write");
            }
            let mixed = together(cx, &*fs, &files);
            assert_ne!(mixed, dirty);
            assert_eq!(mixed, alone(cx, &*fs, &files), "{kind}/{block} {mode:?}: some dirty");
            fs.unmount(cx).expect("unmount");
        });
    }
}

/// Goal: while others write, truncate and remove the files, readers of many at once see only what
/// was there. Method: each file is one byte repeated, in whole rewrites of one length.
#[test]
fn reading_together_beside_writers_is_consistent() {
    for seed in seeds(4) {
        World::new(WorldConfig::exploring(seed)).run("read many", |cx| {
            let device = fresh(cx, 32 << 20, "ext4", 4096);
            let fs = mount_as(cx, timed(cx, &device, seed), 8 << 20, JournalMode::Ordered);
            let files: Vec<Ino> =
                (0..12).map(|n| create(cx, &*fs, fs.root(), &format!("f{n}"))).collect();
            let writer = cx.spawn("writer", {
                let (fs, files) = (fs.clone(), files.clone());
                move |cx| {
                    let mut rng = Rng::new(seed, 3);
                    for step in 1..200u32 {
                        let file = files[rng.below(12) as usize];
                        match rng.below(4) {
                            0 => fs.fsync(cx, file, false).expect("fsync"),
                            1 => {
                                let set = vfs::SetAttr { size: Some(0), ..Default::default() };
                                fs.setattr(cx, file, &set).map(drop).expect("truncate");
                            }
                            _ => drop(fs.write(cx, file, 0, &[step as u8 | 1; 9000])),
                        }
                        cx.yield_now();
                    }
                }
            });
            for _ in 0..100 {
                for (n, read) in together(cx, &*fs, &files).into_iter().enumerate() {
                    let bytes = read.expect("read");
                    assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]), "file {n} is mixed");
                    assert!(bytes.first().is_none_or(|&byte| byte != 0), "file {n} has zeros");
                }
                cx.yield_now();
            }
            writer.join(cx);
            fs.unmount(cx).expect("unmount");
            e2fsck(&device, "after reading together");
        });
    }
}

/// Goal: files that lie side by side cost few requests. Method: 200 files of 4 KiB, counted.
#[test]
fn neighbours_cost_few_requests() {
    rt::testing::world(|cx| {
        let device = fresh(cx, 32 << 20, "ext4", 4096);
        let (fs, _) = mount(cx, device.clone());
        let files = neighbours(cx, &*fs);
        fs.unmount(cx).expect("unmount");
        let (fs, queue) = mount(cx, device);
        let requests = requests_for(cx, &*fs, &queue, &files);
        assert!(requests <= 8, "{requests} requests for 200 neighbours");
        fs.unmount(cx).expect("unmount");
    });
}

/// Goal: a bad sector fails the file that it belongs to, not its neighbours.
#[test]
fn a_bad_sector_fails_one_file() {
    rt::testing::world(|cx| {
        let memory: Arc<MemoryDevice> = fresh(cx, 32 << 20, "ext4", 4096);
        let (fs, _) = mount(cx, memory.clone());
        let files: Vec<Ino> = (0..20)
            .map(|n| {
                let file = create(cx, &*fs, fs.root(), &format!("f{n}"));
                fs.write(cx, file, 0, &[7; 4096]).expect("write");
                file
            })
            .collect();
        fs.sync(cx).expect("sync");
        let bad = fs.fiemap(cx, files[9], 0, 4096).expect("fiemap")[0].physical() / 512;
        fs.unmount(cx).expect("unmount");
        let faulty = Arc::new(FaultDevice::new(cx.runtime(), memory));
        faulty.add(Rule::on(Op::Read, bad + 2..bad + 3, Fault::Fail(Cause::Io)));
        let fs = mount_as(cx, faulty, 8 << 20, JournalMode::Ordered);
        for (n, bytes) in together(cx, &*fs, &files).into_iter().enumerate() {
            match n {
                9 => assert_eq!(bytes, Err(Errno::EIO)),
                _ => assert_eq!(bytes, Ok(vec![7; (1 + n * 1700).min(4096)])),
            }
        }
        fs.unmount(cx).expect("unmount");
    });
}
