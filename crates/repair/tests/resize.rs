//! Larger, smaller, and back: e2fsck finds nothing, the tree is the same, a cut leaves one of both.

#[path = "resize/guest.rs"]
mod guest;
#[path = "resize/online.rs"]
mod online;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{DeviceInfo, Queue};
use device::{MemoryDevice, RecordDevice};
use ext4::CheckOptions;
use ext4::format::Geometry;
use repair::resize::{self, ResizeOptions, ResizePlan, Size};
use repair::undo::{Repaired, UndoFile};
use repair::volume::{EditError, Effort};
use rt::Cx;
use support::{Kind, by_mke2fs, cut_and_go_on, manifest, queue, small_groups};
use testkit::judge;

const MIB: u64 = 1 << 20;

/// An image of mke2fs with one of everything, in small groups, on a device of 160 MiB.
fn image(fstype: &str, features: &str, more: &[&str]) -> Arc<MemoryDevice> {
    image_on(160 * MIB, fstype, features, more)
}

fn image_on(bytes: u64, fstype: &str, features: &str, more: &[&str]) -> Arc<MemoryDevice> {
    let file = by_mke2fs(16 * MIB, features, &[&small_groups(fstype)[..], more].concat());
    let info = DeviceInfo::plain(bytes / 512);
    let info = DeviceInfo { volatile_cache: true, physical_block: 512, ..info };
    let device = Arc::new(MemoryDevice::with_info(info));
    device.load(&testkit::image::read(file.path()));
    Kind::fill(&device, 1024);
    device
}

fn geometry(image: &[u8]) -> Geometry {
    Geometry::parse(&image[1024..2048], 0).expect("a sound superblock")
}

fn plan(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    size: Size,
    wide: Option<bool>,
) -> Result<ResizePlan, EditError> {
    let wanted = ResizeOptions { size, wide, device_bytes: None };
    resize::plan(cx, queue, &wanted, &Default::default())
}

/// Goal: a plan takes no more memory than is allowed, and says how far it is. Method: what it holds
/// is measured, and allowed or not; every group is counted.
#[test]
fn memory_is_bounded_and_progress_is_shown() {
    let device = image("ext4", "", &[]);
    let before = device.snapshot();
    rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        let wanted = ResizeOptions { size: Size::Least, wide: None, device_bytes: None };
        let last = Arc::new(AtomicU64::new(0));
        let to = last.clone();
        let meter = rt::Meter::new(move |step| to.store(step.done, Ordering::Relaxed));
        let effort = Effort { meter, memory: None };
        let plan = resize::plan(cx, &queue, &wanted, &effort).expect("a plan");
        assert_eq!(last.load(Ordering::Relaxed), 1000, "all groups were read");
        let changes = plan.layout.plan.changes.iter();
        let held: u64 = changes.map(|change| (change.old.len() + change.new.len()) as u64).sum();
        let of = |memory| Effort { memory: Some(memory), ..Effort::default() };
        resize::plan(cx, &queue, &wanted, &of(2 * held)).expect("it is enough");
        let little = resize::plan(cx, &queue, &wanted, &of(held / 4)).expect_err("too little");
        assert!(matches!(little, EditError::Memory(_)), "{little}");
    });
    assert!(device.snapshot() == before, "nothing is written");
}

/// Carries a plan out.
fn carry_out(cx: &mut Cx, queue: &Arc<Queue>, plan: &ResizePlan, undo: &std::path::Path) {
    plan.layout.prepare(cx, queue, &rt::Meter::default()).expect("prepare");
    plan.layout.judge(cx, queue, &Default::default()).expect("a sound result");
    let of = Repaired { target: b"disk.img", device_bytes: queue.info().bytes() };
    let mut undo = UndoFile::create(undo, [5; 16], &of, &plan.layout.plan).expect("an undo file");
    repair::apply(cx, queue, &mut undo).expect("apply");
}

/// Resizes an image, and lets e2fsck and a mount judge.
fn resized(device: &Arc<MemoryDevice>, what: &str, size: Size, wide: Option<bool>) -> ResizePlan {
    let before = manifest(device).expect("it is mounted");
    let dir = tempfile::tempdir().expect("a directory");
    let plan = rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        let plan = plan(cx, &queue, size, wide).unwrap_or_else(|e| panic!("{what}: {e}"));
        carry_out(cx, &queue, &plan, &dir.path().join("undo"));
        plan
    });
    let image = device.snapshot();
    let g = geometry(&image);
    assert_eq!((g.blocks_count, g.groups_count), (plan.after.blocks, plan.after.groups), "{what}");
    let end = (g.blocks_count * u64::from(g.block_size)) as usize;
    judge::e2fsck(testkit::image::write(&image[..end]).path())
        .unwrap_or_else(|text| panic!("{what}: {text}"));
    let after = manifest(device).expect("it is mounted");
    assert!(before == after, "{what}: another tree");
    plan
}

/// Grows over the borders of groups and descriptor blocks, shrinks to the least, and grows again.
fn there_and_back(sets: &[(&'static str, &str, &[&str])]) {
    for (fstype, features, more) in sets {
        let name = format!("{fstype} {features} {more:?}");
        let device = image(fstype, features, more);
        let mut moved = (0, 0);
        for size in [Size::Bytes(40 * MIB), Size::Least, Size::Bytes(150 * MIB), Size::Least] {
            let done = resized(&device, &format!("{name}: {size:?}"), size, None);
            moved.0 += done.blocks_moved;
            moved.1 += done.inodes_moved;
        }
        println!("{name}: {} blocks and {} inodes moved", moved.0, moved.1);
    }
}

/// Goal: every form of group and map survives. Method: images in groups of 1 MiB, so that the
/// descriptors need ten blocks after growth, without and with a reserve for them.
#[test]
fn plain_images_grow_and_shrink() {
    there_and_back(&[("ext4", "", &[]), ("ext2", "", &[]), ("ext3", "^resize_inode", &[])]);
}

/// As above: features that change where things lie.
#[test]
fn layouts_grow_and_shrink() {
    there_and_back(&[
        ("ext4", "meta_bg,^resize_inode", &[]),
        ("ext4", "sparse_super2,^resize_inode", &[]),
        ("ext4", "^flex_bg,^metadata_csum,uninit_bg", &[]),
    ]);
}

/// As above: features that keep numbers of inodes or of blocks in other places.
#[test]
fn references_are_renumbered() {
    there_and_back(&[
        ("ext4", "orphan_file,metadata_csum_seed,quota,project", &[]),
        ("ext4", "inline_data,ea_inode,mmp", &[]),
    ]);
}

/// Goal: indexed directories that Linux made, whose roots end as the leaves that they were, get
/// their new numbers and sums. Method: the kernel makes directories of some blocks each behind
/// files that go again; the least size.
#[test]
fn directories_that_the_kernel_indexed_are_renumbered() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    judge::mke2fs(file.path(), 24 * MIB, &support::small_groups("ext4"));
    let kernel = judge::LoopMount::new(file.path(), "ext4", "").expect("the kernel mounts it");
    let fill = kernel.path().join("fill");
    std::fs::create_dir(&fill).expect("a directory");
    for n in 0..600 {
        std::fs::write(fill.join(n.to_string()), []).expect("a file");
    }
    for dir in 0..12 {
        let dir = kernel.path().join(format!("directory {dir}"));
        std::fs::create_dir(&dir).expect("a directory");
        for n in 0..40 {
            std::fs::write(dir.join(format!("a file with a long name, {n}")), []).expect("a file");
        }
    }
    std::fs::remove_dir_all(&fill).expect("it goes");
    drop(kernel);
    let device = Arc::new(MemoryDevice::new(24 * MIB));
    device.load(&testkit::image::read(file.path()));
    let done = resized(&device, "the kernel's directories", Size::Least, None);
    assert!(done.inodes_moved > 50, "{:?} to {:?}", done.before, done.after);
}

/// Goal: clusters move as a whole. Method: as above, in one size of groups that bigalloc takes.
#[test]
fn clusters_move_as_a_whole() {
    there_and_back(&[("ext4", "bigalloc,^resize_inode", &["-C", "4096"])]);
}

/// Goal: 64bit on and off again, where the table has no room. Method: without a reserve.
#[test]
fn descriptors_become_wide_and_narrow() {
    let device = image("ext4", "^64bit,^resize_inode", &[]);
    let wide = resized(&device, "wide", Size::Keep, Some(true));
    assert_eq!((wide.before.desc_size, wide.after.desc_size), (32, 64));
    let narrow = resized(&device, "narrow", Size::Keep, Some(false));
    assert_eq!((narrow.before.desc_size, narrow.after.desc_size), (64, 32));
}

/// Goal: what cannot be is refused by name, and nothing is written. Method: a size behind the
/// device, one that is too small, numbers that must stay, a journal that must be replayed.
#[test]
fn what_cannot_be_is_refused() {
    let device = image_on(64 * MIB, "ext4", "stable_inodes", &[]);
    let before = device.snapshot();
    let refused = |size: Size| {
        rt::testing::world(|cx| {
            let queue = queue(cx, device.clone());
            plan(cx, &queue, size, None).expect_err("refused").to_string()
        })
    };
    assert!(refused(Size::Bytes(1 << 40)).contains("the device has 65536 blocks"));
    assert!(refused(Size::Bytes(1 << 10)).contains("too few"));
    let small = refused(Size::Bytes(4 * MIB));
    assert!(small.contains("stable_inodes forbids") || small.contains("no place"), "{small}");
    assert!(device.snapshot() == before, "nothing is written");
    let mut raw = before[1024..2048].to_vec();
    raw[0x60] |= 4;
    let sum = ext4::format::checksum::super_block(&raw).to_le_bytes();
    raw[1020..].copy_from_slice(&sum);
    device.write_at(1024, &raw);
    assert!(refused(Size::Bytes(40 * MIB)).contains("replayed first"));
}

/// What the check finds, and the size.
fn state(image: &[u8]) -> (usize, u64) {
    let device = Arc::new(MemoryDevice::from_image(image));
    let findings = rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        let report = ext4::check(cx, &queue, &CheckOptions::default()).expect("check");
        report.findings.len()
    });
    (findings, geometry(image).blocks_count)
}

/// Goal: a resize that is cut at any write, with any loss of what no flush has made durable, leaves
/// the old size, or is finished and can be undone. Method: record the writes of a shrink that moves
/// blocks and inodes, cut at some of them and at random losses.
#[test]
fn a_resize_that_is_cut_is_finished_or_undone() {
    let device = image_on(16 * MIB, "ext4", "^resize_inode", &[]);
    let first = device.snapshot();
    let old = geometry(&first).blocks_count;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("undo");
    let record = Arc::new(RecordDevice::new(device.clone()));
    let done = rt::testing::world(|cx| {
        let queue = queue(cx, record.clone());
        let plan = plan(cx, &queue, Size::Least, None).expect("a plan");
        carry_out(cx, &queue, &plan, &path);
        plan
    });
    assert!(done.blocks_moved > 100 && !done.is_done());
    let log = record.take_log();
    let last = device.snapshot();
    let images = [&first[..], &last[..]];
    cut_and_go_on(&log, images, &path, |image, cut| {
        assert_eq!(state(image), (0, old), "{cut:?}");
    });
}
