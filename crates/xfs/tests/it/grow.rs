//! Larger while it is mounted: what is there stays, what comes is used at once, our check and
//! `xfs_repair -n` of the host and of the newest xfsprogs find nothing, the kernel mounts it; a
//! power cut at any write leaves the old size or the new one.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Errno, Rng};
use cache::PageCacheConfig;
use device::{Cut, MemoryDevice, RecordDevice};
use rt::Cx;
use testkit::format::{Format, Recorded, Recording, recover};
use testkit::newest;
use vfs::{FileSystem, StatFs};
use xfs::format::ag::RawAgf;
use xfs::format::{AgHeader, Geometry};
use xfs::mount::options::BesideDevice;
use xfs::resize::{look, resize, resize_beside};
use xfs::{MountOptions, QuotaMode, Xfs};

use crate::resize::{kernel_blocks, sound, verify_files, write_files};
use crate::support;
use crate::world::{self, Cell, repaired, seed_count};

pub const DEVICE: u64 = 112 << 20;
const KIB: u64 = 1 << 10;

/// Groups of 20 MiB at first, the third of them short.
const BARE: Cell =
    Cell(&[('m', "finobt=0,inobtcount=0,reflink=0,rmapbt=0"), ('d', "size=56m,agsize=20m")]);
pub const SMALL: Cell =
    Cell(&[('b', "size=1024"), ('m', "rmapbt=1"), ('n', "parent=1"), ('d', "size=56m,agsize=20m")]);
pub const NEWEST: Cell = Cell(&[
    ('i', "exchange=1"),
    ('m', "rmapbt=1,metadir=1"),
    ('n', "parent=1"),
    ('d', "size=56m,agsize=20m"),
]);

pub fn blocks(fs: &Xfs, kib: u64) -> u64 {
    kib * KIB / u64::from(fs.geometry().block_size)
}

fn size(fs: &Xfs) -> (u64, u32) {
    (
        fs.geometry().blocks_count() * u64::from(fs.geometry().block_size) / KIB,
        fs.geometry().ag_count(),
    )
}

/// What another task does meanwhile: files and directories come and go.
fn busy(cx: &mut Cx, fs: &Xfs, name: &str) {
    let root = fs.root();
    let dir = world::mkdir(cx, fs, root, name);
    for round in 0..60u32 {
        let name = format!("file {round}");
        let parent =
            if round % 5 == 0 { world::mkdir(cx, fs, dir, &format!("d{round}")) } else { dir };
        let ino = world::file(cx, fs, parent, &name);
        fs.write(cx, ino, 0, &vec![round as u8; 9000]).expect("it is written");
        if round % 3 == 0 {
            fs.fsync(cx, ino, false).expect("fsync");
        }
        if round % 4 == 3 && parent == dir {
            fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
        }
    }
}

/// Free blocks of each group, as its header says.
fn free_blocks(device: &MemoryDevice, geometry: &Geometry) -> Vec<u32> {
    let free = |ag| {
        let mut sector = vec![0; geometry.sector_size as usize];
        device.read_at(geometry.header_sector(ag, AgHeader::Agf).0 * 512, &mut sector);
        RawAgf::parse(&sector, ag, geometry).expect("a header").agf_freeblks.get()
    };
    (0..geometry.ag_count()).map(free).collect()
}

/// Grows and works, then fills everything. What it says of itself at the end, and its files.
fn grown_in_use(
    cx: &mut Cx,
    cell: Cell,
    quota: QuotaMode,
    device: &Arc<MemoryDevice>,
) -> (StatFs, u64) {
    let options = MountOptions { quota, ..MountOptions::default() };
    let fs = world::mount_with(cx, device.clone(), 8 << 20, options).0;
    assert_eq!(size(&fs), (56 << 10, 3), "{cell:?}");
    write_files(cx, &fs, 0..50).expect("files");
    let now = fs.geometry().blocks_count();
    assert_eq!(fs.grow(cx, now), Ok(()), "{cell:?}: as it is");
    assert_eq!(fs.grow(cx, now - 1), Err(Errno::EINVAL), "{cell:?}: smaller");
    assert_eq!(fs.grow(cx, blocks(&fs, 113 << 10)), Err(Errno::ENOSPC), "{cell:?}: no device");
    let small = 63 * u64::from(fs.geometry().block_size) / KIB;
    for (kib, expected) in [
        (58 << 10, (58 << 10, 3)),
        ((60 << 10) + small, (60 << 10, 3)),
        (65 << 10, (65 << 10, 4)),
        (107 << 10, (107 << 10, 6)),
        (112 << 10, (112 << 10, 6)),
    ] {
        let before = fs.statfs(cx).expect("statfs");
        let (was, _) = size(&fs);
        let tasks = ["one", "two"].map(|name| {
            let (fs, name) = (fs.clone(), format!("{name} {kib}"));
            cx.spawn("busy", move |cx| busy(cx, &fs, &name))
        });
        fs.grow(cx, blocks(&fs, kib)).unwrap_or_else(|e| panic!("{cell:?}: {kib}: {e}"));
        assert_eq!(size(&fs), expected, "{cell:?}");
        let after = fs.statfs(cx).expect("statfs");
        let more = blocks(&fs, expected.0 - was);
        assert_eq!(after.blocks - before.blocks, more, "{cell:?}");
        tasks.into_iter().for_each(|task| task.join(cx));
    }
    let mut last = 50;
    while write_files(cx, &fs, last..last + 20).is_ok() {
        last += 20;
    }
    let after = fs.statfs(cx).expect("statfs");
    fs.unmount(cx).unwrap_or_else(|e| panic!("{cell:?}: {e} {:?}", fs.error()));
    (after, last)
}

/// Goal: growth within the last group, up to its end, over new groups and to the end of the device,
/// while two tasks work; all space is used afterwards, in every group. Less, more than the device
/// has, and a mount that only reads are refused.
#[test]
fn a_mounted_file_system_grows_while_it_is_used() {
    let counted = QuotaMode::Count([Some(true); 3]);
    for (cell, quota) in
        [(BARE, QuotaMode::AsBefore), (SMALL, counted), (NEWEST, QuotaMode::AsBefore)]
    {
        let device = rt::testing::real(|cx| cell.fresh(cx, DEVICE));
        let (after, last) = rt::testing::world(|cx| grown_in_use(cx, cell, quota, &device));
        rt::testing::real(|cx| {
            sound(cx, &device, &format!("{cell:?}"));
            assert_eq!(kernel_blocks(&device.fork()), after.blocks, "{cell:?}");
            let fs = cell.mount(cx, device.clone(), 8 << 20);
            assert_eq!(size(&fs), (112 << 10, 6));
            verify_files(cx, &fs, 0..last).expect("files");
            let all = fs.geometry();
            for (ag, free) in free_blocks(&device, all).into_iter().enumerate() {
                assert!(free < all.ag_blocks / 10, "{cell:?}: group {ag} has {free} free blocks");
            }
            fs.unmount(cx).expect("unmount");
            let fs = world::mount_read_only(cx, device.clone());
            assert_eq!(fs.grow(cx, blocks(&fs, 112 << 10)), Err(Errno::EROFS));
        });
    }
}

/// A file system that the newest mkfs.xfs makes, with a device beside it, and two sizes in MiB.
struct Layout {
    words: &'static str,
    /// What xfs_repair calls the other device.
    flag: Option<&'static str>,
    from: u64,
    to: u64,
}

/// Blocks of 64 KiB, a section for realtime files with groups and btrees, an external log.
const LAYOUTS: [Layout; 3] = [
    Layout {
        words: "-b size=65536 -l size=72m -d size=200m,agsize=100m",
        flag: None,
        from: 200,
        to: 470,
    },
    Layout {
        words: "-m metadir=1 -l size=12m -d size=56m,agsize=20m -r rgsize=8m,rtdev=",
        flag: Some("-r"),
        from: 56,
        to: 107,
    },
    Layout {
        words: "-d size=56m,agsize=20m -l size=12m,logdev=",
        flag: Some("-l"),
        from: 56,
        to: 107,
    },
];

impl Layout {
    /// The device of the data, as long as the larger size, and the other one.
    fn made(&self) -> [Arc<MemoryDevice>; 2] {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let beside = tempfile::NamedTempFile::new().expect("a file");
        let bytes = if self.flag == Some("-l") { 12 << 20 } else { 32 << 20 };
        beside.as_file().set_len(bytes).expect("it takes its size");
        let path = self.flag.map_or(String::new(), |_| beside.path().display().to_string());
        let words = format!("{}{path}", self.words);
        support::newest_mkfs_xfs(file.path(), self.from << 20, &words);
        [(file.path(), self.to << 20), (beside.path(), bytes)].map(|(path, size)| {
            let mut image = testkit::image::read(path);
            image.resize(size as usize, 0);
            world::loaded(&image)
        })
    }

    fn mount(&self, cx: &mut Cx, devices: &[Arc<MemoryDevice>; 2]) -> Arc<Xfs> {
        let [queue, other] = devices.each_ref().map(|device| world::queue(cx, device.clone()));
        let mut options = MountOptions { read_only: false, ..MountOptions::default() };
        match self.flag {
            Some("-r") => options.realtime = Some(BesideDevice(other)),
            Some(_) => options.log = Some(BesideDevice(other)),
            None => {}
        }
        let fs = Xfs::mount_alone(cx, &queue, PageCacheConfig::with_limit(16 << 20), options);
        fs.unwrap_or_else(|error| panic!("{}: {error}", self.words))
    }

    /// The newest `xfs_repair -n` finds nothing.
    fn judge(&self, devices: &[Arc<MemoryDevice>; 2]) {
        let [data, beside] = devices.each_ref().map(|it| testkit::image::write_device(it));
        let (data, beside) = (data.path(), beside.path());
        let said = match &self.flag {
            Some(flag) => newest::run("xfs_repair", &[&"-nP", flag, &beside, &data]),
            None => newest::run("xfs_repair", &[&"-nP", &data]),
        };
        assert!(said.status.success(), "{}: {}", self.words, support::text(&said));
    }
}

/// Goal: the data part grows, the other device stays as it is. Method: grown beside a task.
#[test]
fn other_layouts_grow_in_use() {
    for layout in LAYOUTS {
        let (devices, words) = (layout.made(), layout.words);
        rt::testing::world(|cx| {
            let fs = layout.mount(cx, &devices);
            let other = fs.clone();
            let task = cx.spawn("busy", move |cx| busy(cx, &other, "busy"));
            fs.grow(cx, blocks(&fs, layout.to << 10)).unwrap_or_else(|e| panic!("{words}: {e}"));
            task.join(cx);
            assert_eq!(size(&fs).0, layout.to << 10, "{words}");
            busy(cx, &fs, "afterwards");
            fs.unmount(cx).unwrap_or_else(|e| panic!("{words}: {e} {:?}", fs.error()));
        });
        layout.judge(&devices);
    }
}

/// Goal: the same while nobody has them mounted, and back again while the end is free.
#[test]
fn other_layouts_change_their_size() {
    for layout in LAYOUTS {
        let (devices, words) = (layout.made(), layout.words);
        rt::testing::real(|cx| {
            let fs = layout.mount(cx, &devices);
            busy(cx, &fs, "before");
            fs.unmount(cx).unwrap_or_else(|e| panic!("{words}: {e} {:?}", fs.error()));
        });
        for mib in [layout.to, layout.from] {
            let report = rt::testing::real(|cx| {
                let [data, log] = devices.each_ref().map(|it| world::queue(cx, it.clone()));
                let log = (layout.flag == Some("-l")).then_some(BesideDevice(log));
                let bytes = mib << 20;
                let looked = look(cx, &data, bytes).expect("a look");
                let done = resize_beside(cx, &data, log, Some(bytes));
                let done = done.unwrap_or_else(|error| panic!("{words}: {mib} MiB: {error}"));
                assert_eq!(done, looked, "{words}");
                done
            });
            let block = u64::from(report.block_size);
            assert_eq!(report.after.0 * block, mib << 20, "{words}: {report:?}");
            layout.judge(&devices);
        }
        let data = rt::testing::real(|cx| {
            let data = world::queue(cx, devices[0].clone());
            resize(cx, &data, Some(layout.to << 20)).map_err(|error| error.to_string())
        });
        match layout.flag {
            Some("-l") => assert!(data.expect_err("no log").contains("log"), "{words}"),
            _ => assert!(data.is_ok(), "{words}: {data:?}"),
        }
    }
}

/// Goal: a cut at each write of a growth, and losses of what no flush has made durable, leave the
/// old size or the new one, and later ones what was written into the new groups: recovery finds
/// the new size in the log only. Method: files before and after, a task that works meanwhile, no
/// unmount; each state is recovered by a mount and checked; of some xfs_repair is asked, and the
/// kernel recovers a copy.
#[test]
fn a_growth_that_is_cut_leaves_one_of_both_sizes() {
    let cells = [BARE, SMALL, NEWEST];
    for (seed, cell) in (1..).zip(cells.into_iter().cycle()).take(3 * seed_count(1) as usize) {
        let recorded = Recording { cell, seed, bytes: DEVICE, cache: 8 << 20 }.run(record);
        let sizes = every_cut(cell, &recorded, seed);
        println!("{cell:?}: {sizes:?}");
        assert!(sizes.values().all(|&count| count > 5), "{cell:?}: {sizes:?}");
        assert_eq!(sizes.len(), 2, "{cell:?}: {sizes:?}");
    }
}

/// The old size and the new one.
type Sizes = BTreeMap<(u64, u32), usize>;

fn record(cx: &mut Cx, fs: &Arc<Xfs>, device: &Arc<RecordDevice>) {
    write_files(cx, fs, 0..10).expect("files");
    device.mark(1);
    let other = fs.clone();
    let task = cx.spawn("busy", move |cx| busy(cx, &other, "busy"));
    fs.grow(cx, blocks(fs, 107 << 10)).expect("it grows");
    device.mark(2);
    // Directories go to all groups, and their files with them.
    let root = fs.root();
    for index in 0..12 {
        let dir = world::mkdir(cx, fs, root, &format!("dir{index}"));
        for name in ["x", "y", "z"] {
            let ino = world::file(cx, fs, dir, name);
            fs.write(cx, ino, 0, &[index as u8; 20_000]).expect("it is written");
        }
    }
    task.join(cx);
    fs.sync(cx).expect("sync");
    device.mark(3);
}

fn every_cut(cell: Cell, recorded: &Recorded<Cell, ()>, seed: u64) -> Sizes {
    let log = &recorded.log;
    let behind = |mark: u64| (0..).find(|&upto| log.marks(upto).contains(&mark));
    let (start, end) = (behind(1).expect("marked"), behind(2).expect("marked"));
    let mut rng = Rng::new(seed, 21);
    let lossy = (0..40).map(|index| match index % 2 {
        0 => log.random_cut(&mut rng),
        _ => log.random_losses(start + rng.below((end - start) as u64) as usize, &mut rng),
    });
    let clean = (start..=end).chain((end..=log.entries.len()).step_by(7)).map(Cut::clean);
    let mut sizes = Sizes::new();
    for (index, cut) in clean.chain(lossy.collect::<Vec<_>>()).enumerate() {
        let what = format!("{} {cut:?}", recorded.what());
        let promised = log.marks(cut.upto);
        let image = Arc::new(log.device_after(&recorded.base, &cut));
        let theirs = (index % 8 == 0).then(|| image.fork());
        let mut found = (0, 0);
        let seen = recover(cell, &image, |cx, fs| {
            found = size(fs);
            let files = if promised.contains(&1) { verify_files(cx, fs, 0..10) } else { Ok(()) };
            let dirs = world::tree(cx, fs).iter().filter(|path| path.ends_with("/z")).count();
            match promised.contains(&3) && dirs != 12 {
                true => Err(format!("{dirs} of 12 files in directories")),
                false => files,
            }
        });
        seen.unwrap_or_else(|found| panic!("{what}: {found}"));
        assert!(!promised.contains(&2) || found.0 == 107 << 10, "{what}: {found:?}");
        *sizes.entry(found).or_default() += 1;
        if let Some(theirs) = theirs {
            repaired(&image).unwrap_or_else(|found| panic!("{what}: {found}"));
            assert_eq!(kernel_blocks(&theirs), kernel_blocks(&image), "{what}");
        }
    }
    sizes
}
