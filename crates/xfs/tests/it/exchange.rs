//! Ranges of two files that change places: the bytes, the owners' accounts, sharing, and power
//! cuts, which leave an exchange done or not begun. Our check, the newest `xfs_repair -n` and the
//! kernel's mount look at the images.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::metadir::{self, Made};
use crate::realtime::{self as section, DATA, fill, read_all};
use crate::world::{Recording, file, mount_with, seed_count};
use base::{Errno, Ino};
use device::{MemoryDevice, RecordDevice};
use rt::{Cx, JoinHandle};
use testkit::crash::{self, CrashConfig};
use testkit::format::{Format, recover};
use testkit::judge;
use vfs::quota::{Kind, Limits, Quota};
use vfs::{FallocMode, FilePlace, FileSystem, SetAttr};
use xfs::{MountOptions, QuotaMode, Xfs};

const DEFAULT: Made = Made("");
const SMALL: Made = Made("-b size=1024");
/// No reverse maps, no sharing.
const PLAIN: Made = Made("-m rmapbt=0,reflink=0");

fn at(ino: Ino, offset: u64) -> FilePlace {
    FilePlace { ino, offset }
}

fn swap(cx: &mut Cx, fs: &Xfs, one: FilePlace, two: FilePlace, len: Option<u64>) {
    let done = fs.exchange_range(cx, [one, two], len);
    done.unwrap_or_else(|errno| panic!("{one:?} {two:?} {len:?}: {errno} {:?}", fs.error()));
}

/// Two files whose blocks lie in turns, each an extent, with holes and blocks nobody wrote.
fn fragmented(cx: &mut Cx, fs: &Xfs, pieces: u64) -> [(Ino, Vec<u8>); 2] {
    let root = fs.root();
    let block = u64::from(fs.statfs(cx).expect("statfs").block_size);
    let [a, b] = ["a", "b"].map(|name| file(cx, fs, root, name));
    let all = || FallocMode::Allocate { keep_size: false };
    for piece in 0..pieces {
        fs.fallocate(cx, a, all(), piece * block, block).expect("fallocate");
        fs.fallocate(cx, b, all(), piece * block, block).expect("fallocate");
    }
    let mut contents = [fill(1, (pieces * block) as usize), fill(2, (pieces * block) as usize)];
    for (side, ino) in [a, b].into_iter().enumerate() {
        for piece in 0..pieces {
            let bytes = &mut contents[side][(piece * block) as usize..][..block as usize];
            match (piece + side as u64 * 2) % 7 {
                // Nobody writes it.
                0 => bytes.fill(0),
                1 if piece > 2 => {
                    bytes.fill(0);
                    fs.fallocate(cx, ino, FallocMode::PunchHole, piece * block, block)
                        .expect("punch");
                }
                _ => drop(fs.write(cx, ino, piece * block, bytes).expect("write")),
            }
        }
    }
    let [one, two] = contents;
    [(a, one), (b, two)]
}

/// Goal: parts and whole files change places, within one file too, whatever they are made of; sizes
/// follow where the ends move; reads before and after a remount agree. Method: bytes in memory
/// beside the files.
#[test]
fn ranges_change_places() {
    for made in [DEFAULT, SMALL, PLAIN] {
        crate::support::in_world(move |cx| {
            let device = made.fresh(cx, 96 << 20);
            let fs = made.mount(cx, device.clone(), 8 << 20);
            let block = u64::from(fs.statfs(cx).expect("statfs").block_size);
            let [(a, mut one), (b, mut two)] = fragmented(cx, &fs, 700);
            let same = |cx: &mut Cx, fs: &Xfs, one: &[u8], two: &[u8], what: &str| {
                assert!(read_all(cx, fs, a, 4 << 20) == one, "{made:?}: a, {what}");
                assert!(read_all(cx, fs, b, 4 << 20) == two, "{made:?}: b, {what}");
            };
            same(cx, &fs, &one, &two, "made");
            // Dirty pages in both.
            fs.write(cx, a, 5 * block, &fill(3, 3000)).expect("write");
            one[5 * block as usize..][..3000].copy_from_slice(&fill(3, 3000));
            swap(cx, &fs, at(a, 3 * block), at(b, 100 * block), Some(400 * block));
            let bytes = block as usize;
            one[3 * bytes..403 * bytes].swap_with_slice(&mut two[100 * bytes..500 * bytes]);
            same(cx, &fs, &one, &two, "a part");
            swap(cx, &fs, at(a, 10 * block), at(a, 600 * block), Some(90 * block));
            let (front, back) = one.split_at_mut(600 * bytes);
            front[10 * bytes..100 * bytes].swap_with_slice(&mut back[..90 * bytes]);
            same(cx, &fs, &one, &two, "within a file");
            let short = SetAttr { size: Some(50 * block + 100), ..SetAttr::default() };
            fs.setattr(cx, b, &short).expect("truncate");
            two.truncate(50 * bytes + 100);
            swap(cx, &fs, at(a, 20 * block), at(b, 20 * block), None);
            let (tail, other) = (one.split_off(20 * bytes), two.split_off(20 * bytes));
            one.extend(other);
            two.extend(tail);
            same(cx, &fs, &one, &two, "to the ends");
            swap(cx, &fs, at(b, 0), at(a, 0), None);
            std::mem::swap(&mut one, &mut two);
            same(cx, &fs, &one, &two, "all");
            fs.write(cx, a, one.len() as u64, b"more").expect("write");
            one.extend(b"more");
            fs.unmount(cx).expect("unmount");
            metadir::sound(made, cx, &device, "exchanged");
            let fs = made.mount(cx, device.clone(), 8 << 20);
            same(cx, &fs, &one, &two, "mounted again");
            fs.unlink(cx, fs.root(), b"a").expect("unlink");
            fs.unlink(cx, fs.root(), b"b").expect("unlink");
            fs.unmount(cx).expect("unmount");
            metadir::sound(made, cx, &device, "removed");
        });
    }
}

/// Goal: what cannot be exchanged is refused, and nothing changes.
#[test]
fn an_exchange_that_does_not_fit_is_refused() {
    crate::support::in_world(|cx| {
        let device = DEFAULT.fresh(cx, 96 << 20);
        let fs = DEFAULT.mount(cx, device.clone(), 8 << 20);
        let root = fs.root();
        let [a, b] = ["a", "b"].map(|name| file(cx, &fs, root, name));
        fs.write(cx, a, 0, &[1; 10_000]).expect("write");
        fs.write(cx, b, 0, &[2; 20_000]).expect("write");
        let dir = crate::world::mkdir(cx, &fs, root, "dir");
        for (one, two, len, errno) in [
            (at(a, 100), at(b, 0), Some(4096), Errno::EINVAL),
            (at(a, 0), at(b, 4096), Some(100), Errno::EINVAL),
            (at(a, 8192), at(b, 0), Some(4096), Errno::EINVAL),
            (at(a, 0), at(b, 0), Some(10_000), Errno::EINVAL),
            (at(a, 0), at(a, 4096), Some(8192), Errno::EINVAL),
            (at(a, 0), at(a, 4096), None, Errno::EINVAL),
            (at(a, 12_288), at(b, 12_288), None, Errno::EINVAL),
            (at(a, 4096), at(b, 0), None, Errno::EINVAL),
            (at(a, 0), at(dir, 0), None, Errno::EISDIR),
        ] {
            let done = fs.exchange_range(cx, [one, two], len);
            assert_eq!(done, Err(errno), "{one:?} {two:?} {len:?}");
        }
        assert!(read_all(cx, &fs, a, 1 << 20) == [1; 10_000]);
        assert!(read_all(cx, &fs, b, 1 << 20) == [2; 20_000]);
        // The rest of both, which is no whole block; nothing at all.
        swap(cx, &fs, at(a, 8192), at(b, 8192), None);
        swap(cx, &fs, at(a, 0), at(b, 0), Some(0));
        assert_eq!(fs.getattr(cx, a).expect("stat").size, 20_000);
        assert_eq!(fs.getattr(cx, b).expect("stat").size, 10_000);
        let rest = SetAttr { size: Some(4096 + 3616), ..SetAttr::default() };
        fs.setattr(cx, b, &rest).expect("truncate");
        swap(cx, &fs, at(a, 4 * 4096), at(b, 4096), Some(3616));
        fs.unmount(cx).expect("unmount");
        metadir::sound(DEFAULT, cx, &device, "refused");
        let old = Made("-i exchange=0 -n parent=0 -b size=1024");
        let device = old.fresh(cx, 96 << 20);
        let fs = old.mount(cx, device, 8 << 20);
        let [a, b] = ["a", "b"].map(|name| file(cx, &fs, fs.root(), name));
        assert_eq!(fs.exchange_range(cx, [at(a, 0), at(b, 0)], None), Err(Errno::EOPNOTSUPP));
        fs.unmount(cx).expect("unmount");
    });
}

/// Goal: shared blocks stay shared in the other file, and each owner pays for what the file has
/// then, within the limits. Method: clones, an exchange, writes to all; accounts of both owners.
#[test]
fn shared_blocks_and_accounts_follow() {
    crate::support::in_world(|cx| {
        let device = DEFAULT.fresh(cx, 96 << 20);
        let quota = QuotaMode::Count([Some(true); 3]);
        let options = MountOptions { quota, ..MountOptions::default() };
        let fs = mount_with(cx, device.clone(), 8 << 20, options).0;
        let root = fs.root();
        let [a, b, c] = ["a", "b", "c"].map(|name| file(cx, &fs, root, name));
        fs.write(cx, a, 0, &fill(1, 40 * 4096)).expect("write");
        fs.clone_range(cx, (a, 0), (c, 0), 0).expect("clone");
        fs.write(cx, b, 0, &fill(2, 10 * 4096)).expect("write");
        let give = |uid| SetAttr { uid: Some(uid), ..SetAttr::default() };
        fs.setattr(cx, a, &give(7)).expect("chown");
        fs.setattr(cx, b, &give(8)).expect("chown");
        let limits = Limits { block_hard: 100, ..Limits::default() };
        fs.set_limits(cx, Kind::User, 8, &limits).expect("limits");
        let refused = fs.exchange_range(cx, [at(a, 0), at(b, 0)], None);
        assert_eq!(refused, Err(Errno::EDQUOT));
        fs.set_limits(cx, Kind::User, 8, &Limits::default()).expect("limits");
        swap(cx, &fs, at(a, 0), at(b, 0), None);
        let space = |cx: &mut Cx, id| {
            let list = fs.report(cx, Kind::User).expect("a report");
            list.into_iter().find(|account| account.id == id).expect("its account").entry.space
        };
        assert_eq!([space(cx, 7), space(cx, 8)], [10 * 4096, 40 * 4096]);
        fs.write(cx, b, 4096, &[9; 5000]).expect("write");
        fs.write(cx, a, 4096, &[8; 5000]).expect("write");
        assert!(read_all(cx, &fs, c, 1 << 20) == fill(1, 40 * 4096));
        let mut expected = fill(1, 40 * 4096);
        expected[4096..9096].fill(9);
        assert!(read_all(cx, &fs, b, 1 << 20) == expected);
        fs.unmount(cx).expect("unmount");
        metadir::sound(DEFAULT, cx, &device, "shared");
    });
}

/// Goal: equal ranges come to share their blocks, with no change that anybody sees but free space;
/// others stay. Method: free blocks and times before and after; then a write to one of both.
#[test]
fn equal_ranges_are_shared() {
    crate::support::in_world(|cx| {
        let device = DEFAULT.fresh(cx, 96 << 20);
        let fs = DEFAULT.mount(cx, device.clone(), 8 << 20);
        let [a, b] = ["a", "b"].map(|name| file(cx, &fs, fs.root(), name));
        let bytes = fill(1, 300 * 4096 + 100);
        for ino in [a, b] {
            fs.write(cx, ino, 0, &bytes).expect("write");
        }
        fs.write(cx, b, 50 * 4096, b"another").expect("write");
        fs.sync(cx).expect("sync");
        cx.sleep(base::Nanos::from_secs(5));
        let times = |cx: &mut Cx| {
            [a, b].map(|ino| fs.getattr(cx, ino).map(|attr| (attr.mtime, attr.ctime)))
        };
        let free = |cx: &mut Cx| fs.statfs(cx).expect("statfs").blocks_free;
        let (before, there) = (times(cx), free(cx));
        let all = bytes.len() as u64;
        assert_eq!(fs.dedupe_range(cx, at(a, 0), at(b, 0), all), Ok(false));
        assert_eq!(fs.dedupe_range(cx, at(a, 0), at(b, 0), 51 * 4096), Ok(false));
        assert_eq!(free(cx), there);
        assert_eq!(fs.dedupe_range(cx, at(a, 0), at(b, 0), 50 * 4096), Ok(true));
        assert_eq!(free(cx), there + 50);
        let rest = all - 51 * 4096;
        assert_eq!(fs.dedupe_range(cx, at(a, 51 * 4096), at(b, 51 * 4096), rest), Ok(true));
        assert!(free(cx) >= there + 299, "{} {}", free(cx), there);
        assert_eq!(times(cx), before);
        let refused = [
            (at(a, 100), at(b, 0), 4096),
            (at(a, 0), at(b, 4096), all),
            (at(a, 0), at(a, 0), 4096),
        ];
        for (one, two, len) in refused {
            assert_eq!(fs.dedupe_range(cx, one, two, len), Err(Errno::EINVAL), "{one:?} {len}");
        }
        fs.write(cx, a, 0, &[9; 5000]).expect("write");
        let mut expected = bytes;
        expected[50 * 4096..][..7].copy_from_slice(b"another");
        assert!(read_all(cx, &fs, b, 4 << 20) == expected);
        fs.unmount(cx).expect("unmount");
        metadir::sound(DEFAULT, cx, &device, "shared");
    });
}

/// Goal: files of a realtime section, in whole extents of it. Method: as above, with groups.
#[test]
fn files_of_a_section_change_places() {
    for cell in [section::SHARED, section::MAPPED] {
        crate::support::in_world(move |cx| {
            let device = cell.fresh(cx, DATA + (24 << 20));
            let fs = cell.mount(cx, device.clone(), 8 << 20);
            let unit = match cell.trees.starts_with("reflink=1") {
                true => 4096,
                false => 28 << 10,
            };
            let [a, b] = ["a", "b"].map(|name| file(cx, &fs, fs.root(), name));
            let (mut one, mut two) = (fill(1, 60 * unit), fill(2, 60 * unit));
            for piece in 0..60 {
                let place = (piece * unit) as u64;
                fs.write(cx, a, place, &one[piece * unit..][..unit]).expect("write");
                fs.write(cx, b, place, &two[piece * unit..][..unit]).expect("write");
            }
            let unit_bytes = unit as u64;
            swap(cx, &fs, at(a, 0), at(b, 10 * unit_bytes), Some(40 * unit_bytes));
            one[..40 * unit].swap_with_slice(&mut two[10 * unit..50 * unit]);
            if unit > 4096 {
                let parts = fs.exchange_range(cx, [at(a, 4096), at(b, 4096)], Some(4096));
                assert_eq!(parts, Err(Errno::EINVAL));
            }
            assert!(read_all(cx, &fs, a, 4 << 20) == one && read_all(cx, &fs, b, 4 << 20) == two);
            fs.unmount(cx).expect("unmount");
            section::sound(cell, cx, &device, "exchanged");
        });
    }
}

/// Both files as a kernel that recovers the log sees them.
fn kernel(dirty: &MemoryDevice) -> Result<[Vec<u8>; 2], String> {
    let image = testkit::image::write_device(dirty);
    let mount = judge::LoopMount::new(image.path(), "xfs", "rw")?;
    let read = |name| std::fs::read(mount.path().join(name)).map_err(|error| error.to_string());
    Ok([read("a")?, read("b")?])
}

/// A task that writes the log to the device again and again, so that chains do not stay in memory.
fn forcing(cx: &mut Cx, fs: &Arc<Xfs>, over: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (fs, over) = (fs.clone(), over.clone());
    cx.spawn("forcing", move |cx| {
        let ino = file(cx, &fs, fs.root(), "forced");
        for turn in 0u64.. {
            let set = SetAttr { mode: Some((turn % 512) as u16), ..SetAttr::default() };
            fs.setattr(cx, ino, &set).expect("chmod");
            fs.fsync(cx, ino, false).expect("fsync");
            if over.load(Ordering::Relaxed) {
                break;
            }
        }
    })
}

/// Exchanges of several sorts, while another task forces the log; what both files were after each.
fn exchanges(cx: &mut Cx, fs: &Arc<Xfs>, device: &Arc<RecordDevice>) -> Vec<[Vec<u8>; 2]> {
    let block = u64::from(fs.statfs(cx).expect("statfs").block_size);
    let [a, b] =
        ["a", "b"].map(|name| fs.lookup(cx, fs.root(), name.as_bytes()).expect("lookup").ino);
    let mut states = Vec::new();
    let mut state = |cx: &mut Cx| {
        states.push([a, b].map(|ino| read_all(cx, fs, ino, 4 << 20)));
    };
    state(cx);
    let over = Arc::new(AtomicBool::new(false));
    let task = forcing(cx, fs, &over);
    for step in 1..=4 {
        match step {
            1 => swap(cx, fs, at(a, 0), at(b, 0), None),
            2 => swap(cx, fs, at(a, 7 * block), at(b, 0), Some(60 * block)),
            3 => swap(cx, fs, at(b, 0), at(b, 250 * block), Some(250 * block)),
            _ => swap(cx, fs, at(a, 50 * block), at(b, 50 * block), None),
        }
        state(cx);
        if step % 2 == 0 {
            fs.sync(cx).expect("sync");
            device.mark(step);
        }
    }
    over.store(true, Ordering::Relaxed);
    task.join(cx);
    states
}

/// Goal: a cut anywhere in a chain of hundreds of steps leaves an exchange done or not begun, and
/// nothing that a sync promised is undone. Method: what a recovery by us shows is one of the states
/// that there were; of every sixth cut, and of some within a chain, the
/// kernel's recovery shows the same.
#[test]
fn an_exchange_may_be_cut_anywhere() {
    let (mut halfway, mut of_kernel) = (0, 0);
    for (made, seed) in [DEFAULT, SMALL].into_iter().zip(0..) {
        for seed in (seed..seed_count(1) * 2).step_by(2) {
            let run = Recording { cell: made, seed, bytes: 96 << 20, cache: 2 << 20 };
            let run = run.run_after(
                |cx, fs| {
                    let [_, (b, _)] = fragmented(cx, fs, 500);
                    // Sizes change places, too.
                    let short = SetAttr { size: Some(300_100), ..SetAttr::default() };
                    fs.setattr(cx, b, &short).expect("truncate");
                },
                exchanges,
            );
            let config = CrashConfig { random: 24, at_flushes_max: 24, ..CrashConfig::new(seed) };
            let report = crash::explore(&config, &run.base, &run.log, |image, case| {
                let promised = case.promised.last().map_or(0, |&mark| mark as usize);
                let (dirty, mut found) = (image.fork(), [Vec::new(), Vec::new()]);
                let mut intents = 0;
                recover(made, &image, |cx, fs| {
                    intents = fs.recovery().map_or(0, |report| report.intents);
                    found = ["a", "b"].map(|name| {
                        let ino = fs.lookup(cx, fs.root(), name.as_bytes()).expect("lookup").ino;
                        read_all(cx, fs, ino, 4 << 20)
                    });
                    Ok(())
                })?;
                if !run.left[promised..].contains(&found) {
                    return Err("the files are in none of the states".to_owned());
                }
                halfway += usize::from(intents > 0);
                if case.index % 6 == 0 || intents > 0 && of_kernel < 12 {
                    of_kernel += usize::from(intents > 0);
                    made.judge(&image)?;
                    if kernel(&dirty)? != found {
                        return Err("the kernel recovers other files".to_owned());
                    }
                }
                Ok(())
            });
            println!("{made:?} seed {seed}: {report:?}");
        }
    }
    println!("{halfway} cuts within a chain, {of_kernel} of them by the kernel, too");
    assert!(halfway >= 12 && of_kernel >= 12, "{halfway} cuts within a chain, {of_kernel}");
}
