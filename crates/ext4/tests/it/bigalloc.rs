//! Clusters (bigalloc) beside the kernel: the same calls on an image of ours and on one of its own
//! take the same blocks, at each step; each reads and writes what the other left.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use crate::support::*;
use base::{Ino, Rng};
use device::MemoryDevice;
use rt::Cx;
use testkit::judge::{self, LoopMount};
use testkit::manifest;
use vfs::{FallocMode, FileSystem, SetAttr, XattrFlags};

const BYTES: u64 = 48 << 20;
const CELLS: [Cell; 4] = [
    Cell::new("ext4", 1024).clusters(16),
    Cell::new("ext4", 4096).clusters(16),
    Cell::new("ext4", 1024).clusters(64).mke2fs(),
    Cell::new("ext4", 4096).clusters(2).mke2fs(),
];
/// Bytes that the files of a run may have.
const SIZE_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
enum Step {
    Write { at: u64, len: u64 },
    Punch { at: u64, len: u64 },
    Zero { at: u64, len: u64 },
    Allocate { at: u64, len: u64 },
    Truncate { size: u64 },
    Sync,
}

/// The next step of a file of `size` bytes; most begin and end at blocks. (Linux punches nothing
/// behind the end.)
fn step(rng: &mut Rng, block: u64, size: u64) -> Step {
    let unit = if rng.below(4) == 0 { 1 } else { block };
    let at = rng.below(SIZE_MAX / unit) * unit;
    let len = (1 + rng.below(40)) * block;
    match rng.below(10) {
        4 | 5 if at + len < size => Step::Punch { at, len },
        0..6 => Step::Write { at, len: if unit == 1 { 1 + rng.below(len) } else { len } },
        6 => Step::Zero { at, len },
        7 => Step::Allocate { at, len },
        8 => Step::Truncate { size: at },
        _ => Step::Sync,
    }
}

fn ours(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino, step: Step) {
    let mut fallocate = |mode, at, len| fs.fallocate(cx, ino, mode, at, len).expect("room");
    match step {
        Step::Write { at, len } => {
            let mut bytes = vec![0; len as usize];
            pattern(at, 0, &mut bytes);
            assert_eq!(fs.write(cx, ino, at, &bytes).expect("room"), bytes.len());
        }
        Step::Punch { at, len } => fallocate(FallocMode::PunchHole, at, len),
        Step::Zero { at, len } => fallocate(FallocMode::ZeroRange { keep_size: false }, at, len),
        Step::Allocate { at, len } => fallocate(FallocMode::Allocate { keep_size: true }, at, len),
        Step::Truncate { size } => {
            let attr = SetAttr { size: Some(size), ..SetAttr::default() };
            fs.setattr(cx, ino, &attr).expect("truncates");
        }
        Step::Sync => fs.fsync(cx, ino, false).expect("syncs"),
    }
}

fn theirs(file: &File, step: Step) {
    use rustix::fs::{FallocateFlags as F, fallocate};
    let keep = F::KEEP_SIZE;
    match step {
        Step::Write { at, len } => {
            let mut bytes = vec![0; len as usize];
            pattern(at, 0, &mut bytes);
            file.write_all_at(&bytes, at).expect("room");
        }
        Step::Punch { at, len } => fallocate(file, F::PUNCH_HOLE | keep, at, len).expect("room"),
        Step::Zero { at, len } => fallocate(file, F::ZERO_RANGE, at, len).expect("room"),
        Step::Allocate { at, len } => fallocate(file, keep, at, len).expect("room"),
        Step::Truncate { size } => file.set_len(size).expect("truncates"),
        Step::Sync => file.sync_all().expect("syncs"),
    }
}

/// The blocks that a file of `before` bytes has after `step`. (What lies behind the end stays where
/// the file grows.)
fn follow(mapped: &mut BTreeSet<u64>, step: Step, block: u64, before: u64) {
    match step {
        Step::Write { at, len } | Step::Zero { at, len } | Step::Allocate { at, len } => {
            mapped.extend(at / block..(at + len).div_ceil(block));
        }
        Step::Punch { at, len } => {
            let gone = at.div_ceil(block)..(at + len) / block;
            mapped.retain(|number| !gone.contains(number));
        }
        Step::Truncate { size } if size <= before => {
            mapped.retain(|&number| number < size.div_ceil(block));
        }
        Step::Truncate { .. } | Step::Sync => {}
    }
}

fn loaded(file: &tempfile::NamedTempFile) -> Arc<MemoryDevice> {
    Arc::new(testkit::image::load(file.path()))
}

/// Goal: after every fsync of a sequence of writes, holes and preallocation within and over
/// clusters a file has the clusters that its blocks lie in and no others, as the kernel's has; when
/// it is gone both have the same free space; all judges take the image. Method: random steps on one
/// file of each; the trees may differ by a node or two. Thousands with `IOPATH_SEEDS=n`.
#[test]
fn a_file_takes_the_blocks_that_the_kernel_takes() {
    for seed in seeds(2) {
        let cell = CELLS[seed as usize % CELLS.len()];
        let what = format!("{cell:?}, seed {seed}");
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, BYTES);
            let image = testkit::image::write_device(&device);
            let mounted = LoopMount::new(image.path(), "ext4", "rw").expect("the kernel mounts it");
            let path = mounted.path().join("file");
            let open = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
            let file = open.expect("a file");
            let (fs, _) = mount(cx, device.clone());
            let ino = create(cx, &*fs, fs.root(), "file");
            let mut rng = Rng::new(seed, 11);
            let (block, mut mapped, mut taken) = (u64::from(cell.block), BTreeSet::new(), vec![]);
            for _ in 0..60 {
                let size = file.metadata().expect("there").size();
                let next = step(&mut rng, block, size);
                taken.push(next);
                ours(cx, &*fs, ino, next);
                theirs(&file, next);
                follow(&mut mapped, next, block, size);
                if matches!(next, Step::Sync) {
                    let ratio = u64::from(cell.clusters);
                    let clusters: BTreeSet<u64> = mapped.iter().map(|at| at / ratio).collect();
                    let sectors = ratio * block / 512;
                    let own = fs.getattr(cx, ino).expect("there");
                    let kernel = file.metadata().expect("there");
                    assert_eq!(own.size, kernel.size(), "{what}: {taken:?}");
                    for blocks in [own.blocks, kernel.blocks()] {
                        let found = blocks / sectors;
                        let nodes = found.checked_sub(clusters.len() as u64);
                        let fits = nodes.is_some_and(|nodes| nodes <= 4096 / block);
                        assert!(fits, "{what}: {found}, not {}: {taken:?}", clusters.len());
                    }
                }
            }
            fs.sync(cx).expect("syncs");
            file.sync_all().expect("syncs");
            drop(file);
            let list = manifest::of_fs(cx, &*fs).expect("our tree");
            let written = close(cx, &*fs, &device, &what);
            let read = judge::kernel_manifest(written.path(), "ext4");
            assert_eq!(manifest::diff(&list, &read), "", "{what}: the kernel reads ours");
            drop(mounted);
            judge::e2fsck(image.path()).expect("the kernel's is sound");
            checked(cx, &loaded(&image), &format!("{what}: the kernel's"));
            same_space_without_it(cx, &device, &image, &what);
        });
    }
}

/// Each removes the file, on its own image: what is free then is the same.
fn same_space_without_it(
    cx: &mut Cx,
    device: &Arc<MemoryDevice>,
    image: &tempfile::NamedTempFile,
    what: &str,
) {
    let mounted = LoopMount::new(image.path(), "ext4", "rw").expect("the kernel mounts it");
    std::fs::remove_file(mounted.path().join("file")).expect("removed");
    File::open(mounted.path()).and_then(|dir| dir.sync_all()).expect("syncs");
    let (fs, _) = mount(cx, device.clone());
    fs.unlink(cx, fs.root(), b"file").expect("removed");
    fs.sync(cx).expect("syncs");
    let kernel = rustix::fs::statvfs(mounted.path()).expect("statvfs");
    let own = fs.statfs(cx).expect("statfs");
    assert_eq!((own.blocks, own.blocks_free), (kernel.f_blocks, kernel.f_bfree), "{what}");
    fs.unmount(cx).expect("unmount");
}

/// Goal: names, attributes, trees of extents with nodes, directories of several blocks, and files
/// that each left go on with the other. Method: ours, the kernel on it, ours again.
#[test]
fn each_goes_on_where_the_other_stopped() {
    for &cell in &CELLS[2..] {
        let what = format!("{cell:?}");
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, BYTES);
            let (fs, _) = mount(cx, device.clone());
            fill(cx, &*fs, cell.block.into());
            let list = manifest::of_fs(cx, &*fs).expect("our tree");
            let image = close(cx, &*fs, &device, &what);
            let read = judge::kernel_manifest(image.path(), "ext4");
            assert_eq!(manifest::diff(&list, &read), "", "{what}: ours");
            let mounted = LoopMount::new(image.path(), "ext4", "rw").expect("the kernel mounts it");
            let dir = mounted.path().join("d");
            for number in (0..200).step_by(3) {
                std::fs::remove_file(dir.join(format!("f{number}"))).expect("removed");
                std::fs::write(dir.join(format!("k{number}")), vec![7; 9_000]).expect("written");
            }
            let torn = File::options().write(true).open(dir.join("torn")).expect("there");
            for at in 0..40u64 {
                torn.write_all_at(b"kernel", (at * 7 + 3) * u64::from(cell.block)).expect("room");
            }
            drop(torn);
            drop(mounted);
            let read = judge::kernel_manifest(image.path(), "ext4");
            let device = loaded(&image);
            checked(cx, &device, &format!("{what}: the kernel's"));
            let (fs, _) = mount(cx, device.clone());
            let own = manifest::of_fs(cx, &*fs).expect("the kernel's tree");
            assert_eq!(manifest::diff(&read, &own), "", "{what}: the kernel's");
            let dir = fs.lookup(cx, fs.root(), b"d").expect("there").ino;
            fs.unlink(cx, dir, b"torn").expect("removed");
            fs.unmount(cx).expect("unmount");
            judged(&device, &format!("{what}: the end"));
        });
    }
}

/// A directory of several blocks, attributes in blocks, and a file torn into an extent tree.
fn fill(cx: &mut Cx, fs: &dyn FileSystem, block: u64) {
    let dir = mkdir(cx, fs, fs.root(), "d");
    for number in 0..200u64 {
        let file = create(cx, fs, dir, &format!("f{number}"));
        let bytes = vec![number as u8; (number * 61) as usize];
        assert_eq!(fs.write(cx, file, 0, &bytes).expect("room"), bytes.len());
        if number % 20 == 0 {
            let value = vec![number as u8; 700];
            fs.setxattr(cx, file, b"user.large", &value, XattrFlags::default()).expect("set");
        }
    }
    let torn = create(cx, fs, dir, "torn");
    for at in 0..300u64 {
        assert_eq!(fs.write(cx, torn, at * 2 * block, b"ours").expect("room"), 4);
    }
    fs.fsync(cx, torn, false).expect("syncs");
    for at in (0..300u64).step_by(5) {
        let punch = FallocMode::PunchHole;
        fs.fallocate(cx, torn, punch, at * 2 * block, block).expect("room");
    }
}
