//! XFS that shrinks where its end is in use: content, inodes, directories, attributes and the log
//! move. `xfs_repair -n` of the host and the newest one and our check find nothing, the tree is the
//! same, also for the kernel; a cut leaves one of both sizes.

#[path = "xfs_shrink/section.rs"]
mod section;
mod support;
mod xfs_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use block::{DeviceInfo, Queue};
use cache::{PageCache, PageCacheConfig};
use device::{MemoryDevice, RecordDevice};
use repair::resize::ShrinkPlan;
use repair::undo::{Repaired, UndoFile};
use repair::volume::EditError;
use rt::{Cx, Meter};
use support::{cut_and_go_on, queue, write};
use testkit::content::{create, mkdir};
use testkit::{judge, manifest as tree, newest};
use vfs::quota::{Kind, Limits, Quota};
use vfs::{FallocMode, FileSystem, SetAttr};
use xfs::{MkfsOptions, MountOptions, QuotaMode, Xfs};
use xfs_support::{geometry, manifest, mount, populate};

const MIB: u64 = 1 << 20;
const DEVICE: u64 = 144 * MIB;

/// Six groups of 24 MiB, a log in the middle.
#[derive(Clone, Copy, Debug)]
struct Shape {
    block: u32,
    compat: &'static str,
    rmapbt: bool,
    metadir: bool,
}

/// One of its own for each image: the kernel mounts several at once.
fn uuid() -> [u8; 16] {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let mut uuid = [0x51; 16];
    uuid[15] = COUNT.fetch_add(1, Ordering::Relaxed);
    uuid
}

impl Shape {
    fn image(&self) -> Arc<MemoryDevice> {
        self.image_with(|cx, fs| {
            populate(cx, fs, self.block.into());
            more(cx, fs, self.compat != "4.19");
        })
    }

    fn image_with(&self, fill: impl FnOnce(&mut Cx, &Xfs)) -> Arc<MemoryDevice> {
        rt::testing::world(|cx| {
            let info = DeviceInfo { volatile_cache: true, ..DeviceInfo::plain(DEVICE / 512) };
            let device = Arc::new(MemoryDevice::with_info(info));
            let options = MkfsOptions {
                block_size: self.block,
                ag_count: Some(6),
                log_size: Some((16 << 20).max(1300 * u64::from(self.block))),
                rmapbt: self.rmapbt,
                metadir: self.metadir,
                uuid: Some(uuid()),
                ..MkfsOptions::compat(self.compat).expect("a known kernel")
            };
            let on = queue(cx, device.clone());
            xfs::mkfs(cx, &on, &options).unwrap_or_else(|e| panic!("mkfs of {self:?}: {e}"));
            let fs = mount(cx, device.clone()).expect("a fresh image is mounted");
            fill(cx, &fs);
            fs.unmount(cx).expect("unmount");
            device
        })
    }
}

/// Directories in every group with files and attributes, of which some went; shared blocks; blocks
/// that nobody wrote; names of one file in many directories.
fn more(cx: &mut Cx, fs: &Xfs, shared: bool) {
    let root = fs.root();
    let many = create(cx, fs, root, "many-names");
    for d in 0..12u64 {
        let dir = mkdir(cx, fs, root, &format!("fill{d}"));
        for n in 0..60u64 {
            let ino = create(cx, fs, dir, &format!("file-{n}"));
            write(cx, fs, ino, d * 100 + n, 0, 40_000 + 700 * n as usize);
            if n % 20 == 0 {
                let value = vec![b'v'; 50 + 60 * n as usize];
                fs.setxattr(cx, ino, b"user.some", &value, Default::default()).expect("setxattr");
            }
        }
        fs.link(cx, many, dir, format!("one-of-many-{d}").as_bytes()).expect("link");
        for n in (0..60).step_by(3) {
            fs.unlink(cx, dir, format!("file-{n}").as_bytes()).expect("unlink");
        }
        let empty = create(cx, fs, dir, "reserved");
        fs.fallocate(cx, empty, FallocMode::Allocate { keep_size: false }, 0, 1 << 18)
            .expect("fallocate");
        let from = create(cx, fs, dir, "shared-0");
        write(cx, fs, from, 7000 + d, 0, 1 << 18);
        for n in 1..4 {
            let to = create(cx, fs, dir, &format!("shared-{n}"));
            if shared {
                fs.clone_range(cx, (from, 0), (to, 0), 1 << 18).expect("clone");
                write(cx, fs, to, 7100 + d, n << 16, 1 << 14);
            }
        }
    }
}

fn plan(cx: &mut Cx, queue: &Arc<Queue>, bytes: u64) -> Result<ShrinkPlan, EditError> {
    repair::plan_shrink(cx, queue, None, bytes, &Meter::default())
}

/// Carries a plan out.
fn carry_out(cx: &mut Cx, queue: &Arc<Queue>, plan: &ShrinkPlan, undo: &std::path::Path) {
    plan.layout.prepare(cx, queue, &Meter::default()).expect("prepare");
    let of = Repaired { target: b"disk.img", device_bytes: queue.info().bytes() };
    let mut undo = UndoFile::create(undo, [5; 16], &of, &plan.layout.plan).expect("an undo file");
    repair::apply(cx, queue, &mut undo).expect("apply");
}

/// Shrinks an image to so many MiB, and lets everybody judge.
fn shrunk(device: &Arc<MemoryDevice>, what: &str, mib: u64) -> ShrinkPlan {
    shrunk_by(device, what, |cx, queue| plan(cx, queue, mib * MIB))
}

/// Carries out a plan, and lets everybody judge.
fn shrunk_by(
    device: &Arc<MemoryDevice>,
    what: &str,
    plan: impl FnOnce(&mut Cx, &Arc<Queue>) -> Result<ShrinkPlan, EditError>,
) -> ShrinkPlan {
    let before = manifest(device).expect("it is mounted");
    let dir = tempfile::tempdir().expect("a directory");
    let plan = rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        let plan = plan(cx, &queue).unwrap_or_else(|e| panic!("{what}: {e}"));
        carry_out(cx, &queue, &plan, &dir.path().join("undo"));
        plan
    });
    let g = geometry(&device.snapshot()).expect("a superblock");
    assert_eq!((g.blocks_count(), g.ag_count()), plan.after, "{what}");
    let end = (g.blocks_count() * u64::from(g.block_size)) as usize;
    let file = testkit::image::write(&device.snapshot()[..end]);
    judge::xfs_repair(file.path()).unwrap_or_else(|text| panic!("{what}: {text}"));
    let after = manifest(device).expect("it is mounted");
    assert_eq!(tree::diff(&before, &after), "", "{what}");
    let mut kernel = judge::kernel_manifest(file.path(), "xfs");
    kernel.values_mut().for_each(|entry| entry.xattrs.retain(|name, _| !is_trusted(name)));
    let mut ours = after;
    ours.values_mut().for_each(|entry| entry.xattrs.retain(|name, _| !is_trusted(name)));
    assert_eq!(tree::diff(&ours, &kernel), "", "{what}: through the kernel");
    plan
}

/// ACLs in their form on disk, and what mkfs leaves in the root.
fn is_trusted(name: &str) -> bool {
    name.starts_with("trusted.") || name.starts_with("747275737465642e")
}

/// Goal: groups with files, inodes and the log go, and the tail of the last one. Method: images of
/// several features, shrunk in steps; written to afterwards.
fn in_steps(shapes: &[Shape]) {
    for shape in shapes {
        let device = shape.image();
        let mut moved = (0, 0);
        for mib in [133, 120, 101, 90] {
            let what = format!("{shape:?} to {mib} MiB");
            let plan = shrunk(&device, &what, mib);
            moved.0 += plan.blocks_moved;
            moved.1 += plan.inodes_moved;
        }
        println!("{shape:?}: {} blocks and {} inodes moved", moved.0, moved.1);
        assert!(moved.0 > 1000 && moved.1 > 100, "{shape:?}: {moved:?}");
        rt::testing::world(|cx| {
            let fs = mount(cx, device.clone()).expect("mount");
            let dir = mkdir(cx, &*fs, fs.root(), "afterwards");
            for n in 0..100 {
                let ino = create(cx, &*fs, dir, &format!("new-{n}"));
                write(cx, &*fs, ino, n, 0, 20_000);
            }
            fs.unmount(cx).expect("unmount");
        });
        let g = geometry(&device.snapshot()).expect("a superblock");
        let end = (g.blocks_count() * u64::from(g.block_size)) as usize;
        let file = testkit::image::write(&device.snapshot()[..end]);
        judge::xfs_repair(file.path()).unwrap_or_else(|text| panic!("{shape:?}: {text}"));
    }
}

#[test]
fn what_lies_behind_the_end_moves() {
    in_steps(&[
        Shape { block: 4096, compat: "6.1", rmapbt: false, metadir: false },
        Shape { block: 1024, compat: "6.12", rmapbt: true, metadir: false },
        Shape { block: 4096, compat: "4.19", rmapbt: false, metadir: false },
    ]);
}

#[test]
fn parent_pointers_follow() {
    in_steps(&[
        Shape { block: 4096, compat: "7.2", rmapbt: true, metadir: false },
        Shape { block: 8192, compat: "7.2", rmapbt: true, metadir: false },
    ]);
}

/// Goal: the same with the largest blocks, one of which holds one or two chunks of inodes. Method:
/// made by the newest mkfs.xfs; groups of 100 MiB.
#[test]
fn blocks_of_32_and_64_kib_move() {
    // The log of the second one finds no place in two groups.
    for (block, least) in [(32768u32, 200), (65536, 280)] {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let size = format!("size={block}");
        let words = ["-b", &size, "-d", "agcount=4", "-l", "size=72m"];
        newest::mkfs_xfs(file.path(), 400 * MIB, &words);
        let device = Arc::new(MemoryDevice::new(400 * MIB));
        device.load(&testkit::image::read(file.path()));
        rt::testing::world(|cx| {
            let fs = mount(cx, device.clone()).expect("a fresh image is mounted");
            populate(cx, &fs, block.into());
            more(cx, &fs, true);
            fs.unmount(cx).expect("unmount");
        });
        let mut moved = (0, 0);
        for mib in [330, 300, least] {
            let plan = shrunk(&device, &format!("blocks of {block} to {mib} MiB"), mib);
            moved.0 += plan.blocks_moved;
            moved.1 += plan.inodes_moved;
        }
        assert!(moved.0 > 100 && moved.1 > 100, "{block}: {moved:?}");
    }
}

/// Goal: accounts and limits of quota stay, also where the quota files' blocks move. Method: users
/// with files behind the new end; the next mount counts, and the check compares.
#[test]
fn quota_follows() {
    quota_of(Shape { block: 4096, compat: "6.12", rmapbt: true, metadir: false });
}

/// Goal: the same where quota files lie in the metadata directory.
#[test]
fn quota_in_the_metadata_directory_follows() {
    quota_of(Shape { block: 4096, compat: "7.2", rmapbt: true, metadir: true });
}

/// Files at the most that fill the front.
const FILLERS: usize = 8000;

/// Leaves no room for new files in the four groups that stay.
fn fill_front(cx: &mut Cx, fs: &Xfs) {
    const GROUP: u64 = 24 * MIB;
    let large = create(cx, fs, fs.root(), "filler-0");
    let allocate = FallocMode::Allocate { keep_size: false };
    for step in [MIB, 4096] {
        let mut at = fs.getattr(cx, large).expect("there").size;
        let inside = |cx: &mut Cx| {
            let map = fs.fiemap(cx, large, 0, u64::MAX).expect("a map");
            map.iter().all(|part| part.physical() < 4 * GROUP)
        };
        while inside(cx) {
            fs.fallocate(cx, large, allocate, at, step).expect("room");
            at += step;
        }
        let set = SetAttr { size: Some(at - step), ..SetAttr::default() };
        fs.setattr(cx, large, &set).expect("shorter");
    }
    let mut made = (1..FILLERS).map(|n| create(cx, fs, fs.root(), &format!("filler-{n}")));
    assert!(made.any(|ino| fs.geometry().ino_split(ino).ag >= 4), "the front is full");
}

fn quota_of(shape: Shape) {
    let all = QuotaMode::Count([Some(true); 3]);
    let device = shape.image_with(|cx, fs| {
        populate(cx, fs, 4096);
        fill_front(cx, fs);
    });
    let accounts = |change: bool| {
        let (device, quota) = (device.clone(), all);
        rt::testing::world(|cx| {
            let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(32 << 20));
            let options = MountOptions { quota, read_only: false, ..MountOptions::default() };
            let on = queue(cx, device.clone());
            let fs = Xfs::mount(cx, &on, &pages, options).expect("mount");
            if change {
                for n in 0..FILLERS {
                    let _ = fs.unlink(cx, fs.root(), format!("filler-{n}").as_bytes());
                }
                more(cx, &fs, true);
                for (d, uid) in (0..12).zip((0u32..).step_by(5000)) {
                    let owner = SetAttr { uid: Some(uid), gid: Some(7), ..SetAttr::default() };
                    let path = format!("fill{d}");
                    let dir = fs.lookup(cx, fs.root(), path.as_bytes()).expect("there").ino;
                    for n in [1, 2, 4, 5] {
                        let name = format!("file-{n}");
                        let ino = fs.lookup(cx, dir, name.as_bytes()).expect("there").ino;
                        fs.setattr(cx, ino, &owner).expect("chown");
                    }
                    let limits = Limits { block_hard: 1 << 21, ..Limits::default() };
                    fs.set_limits(cx, Kind::User, uid, &limits).expect("limits");
                }
            }
            fs.sync(cx).expect("sync");
            // Maps and directories of root may take other blocks.
            let of = |cx: &mut Cx, kind| {
                let list = fs.report(cx, kind).expect("a report");
                list.into_iter()
                    .filter(|account| account.id > 0)
                    .map(|account| (account.id, account.entry))
                    .collect::<Vec<_>>()
            };
            let found = [Kind::User, Kind::Group].map(|kind| of(cx, kind));
            fs.unmount(cx).expect("unmount");
            let report = xfs::check(cx, &on, &Default::default()).expect("check");
            assert!(report.findings.is_empty(), "{:?}", report.findings);
            found
        })
    };
    let before = accounts(true);
    // The newest one knows the directory.
    let files = |device: &MemoryDevice| {
        let file = testkit::image::write(&device.snapshot());
        newest::run_ok("xfs_db", &[&"-r", &"-c", &"ls -m /quota", &file.path()])
    };
    let first = shape.metadir.then(|| files(&device));
    let plan = shrunk(&device, "with quota", 90);
    assert!(first.is_none_or(|first| first != files(&device)), "the quota files have moved");
    assert!(plan.inodes_moved > 100);
    let after = accounts(false);
    assert!(before[0].len() >= 11);
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

/// Goal: the log moves where it lies behind the new end.
#[test]
fn the_log_moves() {
    let shape = Shape { block: 4096, compat: "6.12", rmapbt: true, metadir: false };
    let device = shape.image_with(|cx, fs| populate(cx, fs, 4096));
    let plan = shrunk(&device, "with the log", 70);
    assert!(plan.blocks_moved > 4096, "{} blocks moved", plan.blocks_moved);
    let g = geometry(&device.snapshot()).expect("a superblock");
    assert!(g.split(g.log_start).ag < 3);
    shrunk(&device, "and again", 60);
}

/// Goal: the same where the log goes to blocks that hold what a removed file has left: it was
/// judged where it will be before it was copied there, so that nothing could shrink.
#[test]
fn the_log_moves_over_old_content() {
    let shape = Shape { block: 4096, compat: "6.12", rmapbt: true, metadir: false };
    let device = shape.image_with(|cx, fs| {
        populate(cx, fs, 4096);
        let ino = create(cx, fs, fs.root(), "removed");
        for at in 0..80 {
            write(cx, fs, ino, at, at * MIB, MIB as usize);
        }
        fs.sync(cx).expect("sync");
        fs.unlink(cx, fs.root(), b"removed").expect("unlink");
    });
    let plan = shrunk(&device, "over old content", 70);
    assert!(plan.blocks_moved > 4096, "{} blocks moved", plan.blocks_moved);
}

/// Goal: the smallest size is one that holds everything, and the next smaller ones do not.
#[test]
fn the_smallest_size_is_found() {
    for rmapbt in [true, false] {
        let device = Shape { block: 4096, compat: "6.12", rmapbt, metadir: false }.image();
        let mut least = 0;
        let plan = shrunk_by(&device, "to the least", |cx, queue| {
            let (bytes, found) = repair::plan_least_shrink(cx, queue, None, &Meter::default())?;
            least = bytes;
            Ok(found.expect("it can be smaller"))
        });
        assert_eq!(least, plan.after.0 * 4096);
        assert!(least < 90 * MIB, "rmapbt {rmapbt}: {least} bytes");
        rt::testing::world(|cx| {
            let queue = queue(cx, device.clone());
            for less in 1..4 {
                let bytes = least - less * (DEVICE / 256);
                let error = self::plan(cx, &queue, bytes).expect_err("too small");
                assert!(matches!(error, EditError::NoRoom(_)), "rmapbt {rmapbt}: {error}");
            }
        });
        println!("rmapbt {rmapbt}: {least} bytes");
    }
}

/// Goal: what cannot be is refused by name, and nothing is written.
#[test]
fn what_cannot_be_is_refused() {
    let shape = Shape { block: 4096, compat: "6.12", rmapbt: true, metadir: false };
    let device = shape.image();
    let before = device.snapshot();
    let refused = |mib: u64| {
        rt::testing::world(|cx| {
            let queue = queue(cx, device.clone());
            plan(cx, &queue, mib * MIB).expect_err("refused").to_string()
        })
    };
    assert!(refused(144).contains("not smaller"));
    assert!(refused(20).contains("free blocks in one piece"));
    let full = refused(52);
    assert!(full.contains("not enough free blocks") || full.contains("no room"), "{full}");
    assert!(device.snapshot() == before, "nothing is written");
}

/// The size, and what the check finds.
fn state(image: &[u8]) -> (usize, u64) {
    let device = Arc::new(MemoryDevice::from_image(image));
    let findings = rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        xfs::check(cx, &queue, &Default::default()).expect("check").findings.len()
    });
    (findings, geometry(image).expect("a superblock").blocks_count())
}

/// Goal: a cut at any write, with any loss of what no flush has made durable, leaves the old size,
/// or one that is finished and can be undone.
#[test]
fn a_cut_is_finished_or_undone() {
    let device = Shape { block: 4096, compat: "7.2", rmapbt: true, metadir: false }.image();
    let first = device.snapshot();
    let old = geometry(&first).expect("a superblock").blocks_count();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("undo");
    let record = Arc::new(RecordDevice::new(device.clone()));
    rt::testing::world(|cx| {
        let queue = queue(cx, record.clone());
        let plan = plan(cx, &queue, 80 * MIB).expect("a plan");
        assert!(plan.blocks_moved > 100 && plan.inodes_moved > 100);
        carry_out(cx, &queue, &plan, &path);
    });
    let log = record.take_log();
    let last = device.snapshot();
    let images = [&first[..], &last[..]];
    let kinds = cut_and_go_on(&log, images, &path, |image, cut| {
        assert_eq!(state(image), (0, old), "{cut:?}");
    });
    assert!(kinds.iter().all(|&count| count > 0), "both sides of the first write: {kinds:?}");
}
