//! Larger while it is mounted: e2fsck finds nothing, the tree is the same, a cut leaves one of both
//! sizes.

use std::sync::Arc;

use base::{Errno, Ino, Rng};
use device::{MemoryDevice, RecordDevice};
use ext4::Ext4;
use ext4::format::GroupDesc;
use rt::Cx;
use testkit::judge::{self, LoopMount};
use vfs::{FileSystem, FileType, NewNode};

use super::support::{manifest, mount};
use super::{MIB, geometry, image, image_on, state};

fn size(mib: u64, fs: &Ext4) -> u64 {
    mib * MIB / u64::from(fs.block_size())
}

fn file(cx: &mut Cx, fs: &Ext4, name: &str) -> Ino {
    let made = fs.create(cx, fs.root(), name.as_bytes(), &NewNode::new(FileType::Regular, 0o644));
    made.unwrap_or_else(|errno| panic!("{name}: {errno}")).ino
}

/// What another task does meanwhile: files and directories come and go.
fn busy(cx: &mut Cx, fs: &Ext4) {
    let dir = fs.create(cx, fs.root(), b"busy", &NewNode::new(FileType::Directory, 0o755));
    let dir = dir.expect("a directory").ino;
    for round in 0..40u32 {
        let name = format!("file {round}");
        let node = NewNode::new(FileType::Regular, 0o644);
        let ino = fs.create(cx, dir, name.as_bytes(), &node).expect("a file").ino;
        fs.write(cx, ino, 0, &vec![round as u8; 9000]).expect("it is written");
        if round % 3 == 0 {
            fs.fsync(cx, ino, false).expect("fsync");
        }
        if round % 4 == 3 {
            fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
        }
    }
    for round in (0..40).filter(|round| round % 4 != 3) {
        fs.unlink(cx, dir, format!("file {round}").as_bytes()).expect("unlink");
    }
    fs.rmdir(cx, fs.root(), b"busy").expect("rmdir");
}

/// Is the cluster of a block in use by the bitmap?
fn bitmap_of(image: &[u8], block: u64) -> bool {
    let g = geometry(image);
    let (group, at) = g.group_of_block(block).expect("inside");
    let (table, offset) = g.desc_place(group);
    let place = table.0 as usize * g.block_size as usize + offset;
    let desc = GroupDesc::read(&image[place..place + g.desc_size as usize]);
    let map = desc.block_bitmap as usize * g.block_size as usize;
    base::bitmap::test(&image[map..], (at / g.cluster_ratio) as usize)
}

fn judged(device: &Arc<MemoryDevice>, what: &str) -> u64 {
    let image = device.snapshot();
    let g = geometry(&image);
    let end = (g.blocks_count * u64::from(g.block_size)) as usize;
    judge::e2fsck(testkit::image::write(&image[..end]).path())
        .unwrap_or_else(|text| panic!("{what}: {text}"));
    g.blocks_count
}

/// Grows an image of 16 MiB by a block, within its last group, over a few groups, and over blocks
/// of descriptors, while a task works; what is new is used at once.
fn in_use(sets: &[(&'static str, &str, &[&str])]) {
    for (fstype, features, more) in sets {
        let what = format!("{fstype} {features} {more:?}");
        let device = image(fstype, features, more);
        let before = manifest(&device).expect("it is mounted");
        rt::testing::world(|cx| {
            let fs = mount(cx, device.clone()).expect("it is mounted");
            let first = fs.geometry().blocks_count;
            assert_eq!(fs.grow(cx, first), Ok(()), "{what}: as it is");
            assert_eq!(fs.grow(cx, first - 1), Err(Errno::EINVAL), "{what}: smaller");
            assert_eq!(fs.grow(cx, size(170, &fs)), Err(Errno::ENOSPC), "{what}: no device");
            let free = fs.statfs(cx).expect("sizes").blocks_free;
            for blocks in [first + 300, size(18, &fs), size(45, &fs), size(150, &fs)] {
                let other = fs.clone();
                let task = cx.spawn("busy", move |cx| busy(cx, &other));
                fs.grow(cx, blocks).unwrap_or_else(|e| panic!("{what}: {blocks}: {e}"));
                task.join(cx);
                assert!(fs.geometry().blocks_count + 1100 > blocks, "{what}: {blocks}");
            }
            let more = fs.statfs(cx).expect("sizes");
            assert!(more.blocks_free > free + size(100, &fs), "{what}: {more:?}");
            // It does not fit into the old size.
            let large = file(cx, &fs, "more than there was");
            for at in 0..60 {
                fs.write(cx, large, at * MIB, &vec![at as u8; MIB as usize]).expect("room");
            }
            for n in 0..3000 {
                file(cx, &fs, &format!("small {n}"));
            }
            fs.sync(cx).expect("sync");
            fs.unmount(cx).expect("unmount");
        });
        judged(&device, &what);
        if !features.contains("quota") {
            // Linux may be without quota.
            let file = testkit::image::write(&device.snapshot());
            let kernel = LoopMount::new(file.path(), fstype, "").expect("the kernel mounts it");
            let large = std::fs::read(kernel.path().join("more than there was")).expect("read");
            assert!(large.iter().enumerate().all(|(at, byte)| *byte == (at >> 20) as u8));
            std::fs::write(kernel.path().join("the kernel's"), &large).expect("room");
            drop(kernel);
            judge::e2fsck(file.path()).unwrap_or_else(|text| panic!("{what}: {text}"));
        }
        rt::testing::world(|cx| {
            let fs = mount(cx, device.clone()).expect("it is mounted");
            fs.unlink(cx, fs.root(), b"more than there was").expect("unlink");
            for n in 0..3000 {
                fs.unlink(cx, fs.root(), format!("small {n}").as_bytes()).expect("unlink");
            }
            fs.unmount(cx).expect("unmount");
        });
        judged(&device, &what);
        let mut after = manifest(&device).expect("it is mounted");
        let mut before = before;
        for tree in [&mut after, &mut before] {
            // The directory that was written to.
            tree.retain(|path, _| path.len() > 1);
        }
        let other = testkit::manifest::diff(&before, &after);
        assert!(other.is_empty(), "{what}: another tree: {other}");
    }
}

/// Goal: with a reserve of descriptors, without one, and with the descriptors in the groups, with
/// checksums of each kind and none. Method: groups of 1 MiB; the table needs five more blocks.
#[test]
fn plain_images_grow_in_use() {
    in_use(&[
        ("ext4", "", &[]),
        ("ext2", "", &[]),
        ("ext3", "^resize_inode", &[]),
        ("ext4", "meta_bg,^resize_inode", &[]),
        ("ext4", "^flex_bg,^metadata_csum,uninit_bg", &[]),
    ]);
}

/// As above: features that keep things in other places.
#[test]
fn other_layouts_grow_in_use() {
    in_use(&[
        ("ext4", "^64bit,^has_journal", &[]),
        ("ext4", "sparse_super2,^resize_inode", &[]),
        ("ext4", "orphan_file,metadata_csum_seed,quota,project,fast_commit", &[]),
        ("ext4", "bigalloc,^resize_inode", &["-C", "4096"]),
    ]);
}

/// Goal: an end inside of a cluster, which nobody got so far, is one to grow from: the cluster is
/// used. Method: two blocks less in the superblock, as e2fsck accepts it; all of the new size is
/// filled. (Linux itself damages such an image.)
#[test]
fn an_end_inside_of_a_cluster_grows() {
    for (short, steps, features) in [(2, 1, "bigalloc,^resize_inode"), (1, 0, "bigalloc")] {
        let first = image("ext4", features, &["-C", "4096"]).snapshot();
        let blocks = geometry(&first).blocks_count;
        let made = testkit::image::write(&first);
        let request = format!("ssv blocks_count {}", blocks - short);
        judge::run_ok("debugfs", &[&"-w", &"-R", &request, &made.path()]);
        let said = judge::run("e2fsck", &[&"-fy", &made.path()]);
        assert!(said.status.code().is_some_and(|code| code <= 1), "{said:?}");
        let device = Arc::new(MemoryDevice::from_image(&testkit::image::read(made.path())));
        assert_eq!(judged(&device, "before"), blocks - short);
        let before = manifest(&device).expect("it is mounted");
        rt::testing::world(|cx| {
            let fs = mount(cx, device.clone()).expect("it is mounted");
            assert_eq!(fs.grow(cx, blocks - 1), Ok(()), "no whole cluster more");
            assert_eq!(fs.geometry().blocks_count, blocks - short);
            // The cluster alone, and with more at once.
            for more in [blocks, size(18, &fs)].into_iter().skip(1 - steps) {
                fs.grow(cx, more).expect("it grows");
                assert_eq!(fs.geometry().blocks_count, more);
            }
            let large = file(cx, &fs, "all of it");
            let (mut at, mut step) = (0, MIB);
            while step >= 4096 {
                match fs.write(cx, large, at, &vec![7; step as usize]) {
                    Ok(_) => at += step,
                    Err(_) => step /= 2,
                }
            }
            fs.sync(cx).expect("sync");
            fs.unmount(cx).expect("unmount");
        });
        judged(&device, features);
        let bitmap = bitmap_of(&device.snapshot(), blocks - 1);
        assert!(bitmap, "{features}: the cluster at the old end is used");
        let mut after = manifest(&device).expect("it is mounted");
        let mut before = before;
        for tree in [&mut after, &mut before] {
            tree.retain(|path, _| path.len() > 1 && path != b"all of it");
        }
        assert_eq!(testkit::manifest::diff(&before, &after), "");
    }
}

/// Goal: where the reserve of descriptors is used up, the rest lies in the groups. Method: a
/// reserve of two more blocks.
#[test]
fn a_reserve_that_is_used_up_is_followed_by_groups() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let groups = ["-t", "ext4", "-b", "1024", "-g", "1024", "-E", "resize=49152"];
    judge::mke2fs(file.path(), 16 * MIB, &groups);
    let reserve = geometry(&testkit::image::read(file.path())).reserved_gdt_blocks;
    assert_eq!(reserve, 2);
    let device = Arc::new(MemoryDevice::new(160 * MIB));
    device.load(&testkit::image::read(file.path()));
    rt::testing::world(|cx| {
        let fs = mount(cx, device.clone()).expect("it is mounted");
        fs.grow(cx, size(150, &fs)).expect("it grows");
        fs.unmount(cx).expect("unmount");
    });
    judged(&device, "meta_bg");
    let g = geometry(&device.snapshot());
    assert_eq!((g.features.to_string().contains("meta_bg"), g.blocks_count), (true, 150 << 10));
    assert!(!g.features.to_string().contains("resize_inode"));
}

/// Goal: a growth that is cut at any write, with any loss of what no flush has made durable, leaves
/// the old size or the new one. Method: record the writes, cut at each and at random losses; our
/// recovery and that of e2fsck.
#[test]
fn a_growth_that_is_cut_leaves_one_of_both_sizes() {
    for features in ["", "^resize_inode", "meta_bg,^resize_inode"] {
        let device = image_on(48 * MIB, "ext4", features, &[]);
        let first = device.snapshot();
        let old = geometry(&first).blocks_count;
        let record = Arc::new(RecordDevice::new(device.clone()));
        rt::testing::world(|cx| {
            let fs = mount(cx, record.clone()).expect("it is mounted");
            let ino = file(cx, &fs, "before");
            fs.write(cx, ino, 0, &[5; 30_000]).expect("write");
            fs.grow(cx, size(40, &fs)).expect("it grows");
            fs.unmount(cx).expect("unmount");
        });
        let log = record.take_log();
        let new = geometry(&device.snapshot()).blocks_count;
        let count = log.entries.len();
        let mut rng = Rng::new(9, 79);
        let losses = (0..16).map(|_| log.random_cut(&mut rng)).collect::<Vec<_>>();
        let (mut seen, mut torn) = ([0; 2], 0);
        for cut in (0..=count).map(device::Cut::clean).chain(losses) {
            let what = format!("{features}: {cut:?}");
            let ours = Arc::new(MemoryDevice::from_image(&log.image_after(&first, &cut)));
            let theirs = testkit::image::write(&ours.snapshot());
            rt::testing::world(|cx| {
                let fs = mount(cx, ours.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
                fs.unmount(cx).expect("unmount");
            });
            let (findings, blocks) = state(&ours.snapshot());
            assert!(findings == 0 && [old, new].contains(&blocks), "{what}: {blocks}");
            judged(&ours, &what);
            seen[usize::from(blocks == new)] += 1;
            let said = judge::run("e2fsck", &[&"-fy", &theirs.path()]);
            if String::from_utf8_lossy(&said.stdout).contains("Superblock invalid") {
                // Torn at the mount; e2fsck knows no copy in a group so small.
                torn += 1;
                continue;
            }
            assert!(said.status.code().is_some_and(|code| code <= 1), "{what}: {said:?}");
            let recovered = testkit::image::read(theirs.path());
            assert_eq!(geometry(&recovered).blocks_count, blocks, "{what}: e2fsck");
        }
        assert!(seen[0] > 10 && seen[1] > 3 && torn < 10, "{features}: {seen:?} {torn}");
    }
}
