//! Accidents as they happen: a disk that was overwritten from its start on, or by another mkfs; an
//! image that was cut short, or copied while it was written; bad sectors; half of a stripe.

mod support;
mod xfs_support;

use std::collections::BTreeSet;
use std::sync::Arc;

use base::range::RangeSet64;
use block::{Cause, Device, Op};
use device::{Fault, FaultDevice, MemoryDevice, Rule};
use repair::rescue::Rescued;
use repair::{Format, PlanOptions};
use support::*;
use testkit::manifest::Manifest;
use vfs::{FileSystem, Namespace};

/// Four groups of mke2fs, their tables all in the first.
const DISK: Kind =
    Kind { name: "mke2fs-1k", mke2fs: true, bytes: 32 << 20, block: 1024, ..KINDS[0] };

/// What a rescue finds: the tree, the sectors that it met and could not read, the bytes missing.
struct Seen {
    tree: Manifest,
    met: Vec<std::ops::Range<u64>>,
    missing: u64,
}

fn rescue(cx: &mut rt::Cx, device: Arc<dyn Device>, lost: &RangeSet64) -> Seen {
    let rescued = Rescued::new(cx, &device, lost, None).expect("a rescue");
    let plan = rescued.plan.as_ref().expect("a plan");
    assert!(plan.left.is_empty(), "the plan leaves {:?}", plan.left);
    let fs = mount(cx, rescued.device().clone()).expect("it is mounted");
    let tree = testkit::manifest::of_fs(cx, &*fs).expect("all of it is read");
    Seen { tree, met: rescued.met().iter().collect(), missing: rescued.missing }
}

/// The names whose content is not what it was, of those that were there.
fn changed(before: &Manifest, after: &Manifest) -> BTreeSet<String> {
    let other = before.iter().filter(|(path, entry)| {
        after.get(*path).is_none_or(|now| now.sha256 != entry.sha256 || now.kind != entry.kind)
    });
    other.map(|(path, _)| String::from_utf8_lossy(path).into_owned()).collect()
}

/// The names whose content has a place that `wanted` takes, by its sectors.
fn with_data(
    device: &Arc<MemoryDevice>,
    tree: &Manifest,
    wanted: impl Fn(std::ops::Range<u64>) -> bool,
) -> BTreeSet<String> {
    rt::testing::world(|cx| {
        let fs = mount(cx, Arc::new(device.fork())).expect("a sound image");
        let names = Namespace::new(fs.clone());
        let files = tree.iter().filter(|(_, entry)| entry.sha256.is_some());
        let hit = files.filter(|(path, _)| {
            let attr = names.lstat(cx, &[b"/", &path[..]].concat()).expect("the name");
            let map = fs.fiemap(cx, attr.ino, 0, i64::MAX as u64).expect("its map");
            let mut places =
                map.iter().filter_map(|part| Some((part.content()?.0, part.len / 512)));
            places.any(|(first, count)| wanted(first..first + count))
        });
        hit.map(|(path, _)| String::from_utf8_lossy(path).into_owned()).collect()
    })
}

/// The sector where the content of a file in the root directory begins.
fn data_of(device: &Arc<MemoryDevice>, name: &[u8]) -> u64 {
    rt::testing::world(|cx| {
        let fs = mount(cx, Arc::new(device.fork())).expect("a sound image");
        let found = fs.lookup(cx, fs.root(), name).expect("the name");
        let map = fs.fiemap(cx, found.ino, 0, i64::MAX as u64).expect("its map");
        map[0].content().expect("it is mapped").0
    })
}

/// The repair found no superblock where the descriptors behind the first one were gone with it.
#[test]
fn a_start_that_was_overwritten_comes_back_from_the_copies() {
    let base = DISK.image();
    let before = manifest(&base).expect("a sound image");
    let mut image = base.snapshot();
    // Superblock, descriptors, reserved descriptors; not the bitmaps and tables behind them.
    image[..200 << 10].fill(0x5a);
    let device = Arc::new(MemoryDevice::from_image(&image));
    let plan = plan(&device).expect("a plan");
    assert!(plan.left.is_empty(), "the plan leaves {:?}", plan.left);
    let dir = tempfile::tempdir().expect("a directory");
    let mut undo = apply(&(device.clone() as _), &plan, dir.path());
    let file = testkit::image::write_device(&device);
    testkit::judge::e2fsck(file.path()).expect("e2fsck finds nothing");
    assert_eq!(changed(&before, &manifest(&device).expect("a tree")), BTreeSet::new());
    rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        undo.undo(cx, &queue).expect("undo");
    });
    assert!(device.snapshot() == image, "undo gives another image");
}

/// Goal: what lies in the part that is there is read; what is behind it is zeros, and named.
#[test]
fn an_image_that_was_cut_short_is_read_as_far_as_it_goes() {
    let base = DISK.image();
    let before = manifest(&base).expect("a sound image");
    let mut image = base.snapshot();
    let cut = data_of(&base, b"large") as usize * 512 + (100 << 10);
    image.truncate(cut);
    let kept = image.clone();
    let device = Arc::new(MemoryDevice::from_image(&image));
    let refused = plan(&device).expect_err("a repair of it would lose what is behind");
    assert!(refused.to_string().contains("cut short"), "{refused}");
    let seen = rt::testing::world(|cx| rescue(cx, device.clone() as _, &RangeSet64::new()));
    assert_eq!(seen.missing, DISK.bytes - cut as u64);
    let names: BTreeSet<_> = before.keys().collect();
    assert!(names.is_subset(&seen.tree.keys().collect()), "a name is gone");
    let behind = with_data(&base, &before, |place| place.end * 512 > cut as u64);
    assert!(behind.contains("large") && behind.len() < before.len() / 2, "{}", behind.len());
    assert!(changed(&before, &seen.tree) == behind, "others changed than what lies behind");
    assert!(!seen.met.is_empty());
    assert!(seen.met.iter().all(|run| run.start >= cut as u64 / 512), "{:?}", seen.met);
    assert!(device.snapshot() == kept, "the image was changed");
}

/// Goal: two bad sectors cost the file in which they lie, and are named.
/// Method: reads there fail; then the same as a map of ddrescue says it, on a device that reads.
#[test]
fn bad_sectors_cost_what_lies_in_them() {
    let base = DISK.image();
    let before = manifest(&base).expect("a sound image");
    let data = data_of(&base, b"large");
    let bad = data + 6..data + 8;
    let (faulty, mapped) = rt::testing::world(|cx| {
        let faulty = FaultDevice::new(cx.runtime(), base.clone());
        faulty.add(Rule::on(Op::Read, bad.clone(), Fault::Fail(Cause::Io)));
        let faulty = rescue(cx, Arc::new(faulty), &RangeSet64::new());
        let mut lost = RangeSet64::new();
        lost.insert(bad.clone());
        (faulty, rescue(cx, base.clone(), &lost))
    });
    assert_eq!(faulty.met, vec![bad.clone()], "the places are named");
    assert_eq!(mapped.met, vec![bad], "the places are named");
    let changed_by_reads = changed(&before, &faulty.tree);
    let names = ["deep0/deep1/deep2/deep3/deep4/deep5/another-name", "large"];
    assert_eq!(changed_by_reads, names.map(String::from).into());
    assert_eq!(changed_by_reads, changed(&before, &mapped.tree));
}

/// Repairs an image, has e2fsck judge it and reads its tree; then it is undone byte for byte.
fn repaired(image: &[u8]) -> Manifest {
    let device = Arc::new(MemoryDevice::from_image(image));
    let plan = plan(&device).expect("a plan");
    assert!(plan.left.is_empty(), "the plan leaves {:?}", plan.left);
    let dir = tempfile::tempdir().expect("a directory");
    let mut undo = apply(&(device.clone() as _), &plan, dir.path());
    testkit::judge::e2fsck_device(&device).expect("e2fsck finds nothing");
    let tree = manifest(&device).expect("a tree");
    rt::testing::world(|cx| {
        let queue = queue(cx, device.clone());
        undo.undo(cx, &queue).expect("undo");
    });
    assert!(device.snapshot() == image, "undo gives another image");
    tree
}

/// The files of `before` whose content is in `after`, whatever their names.
fn contents_kept(before: &Manifest, after: &Manifest) -> (usize, usize) {
    let there: BTreeSet<_> = after.values().filter_map(|entry| entry.sha256.clone()).collect();
    let files =
        before.values().filter(|entry| entry.size > 0).filter_map(|entry| entry.sha256.clone());
    let files: Vec<_> = files.collect();
    (files.iter().filter(|sum| there.contains(*sum)).count(), files.len())
}

/// Goal: zeros over the start (superblock, descriptors, bitmaps, a part of the inode table) cost
/// nothing: the copies and the journal have what lay there.
#[test]
fn zeros_over_the_start_cost_no_file() {
    let base = DISK.image();
    let before = manifest(&base).expect("a sound image");
    let mut image = base.snapshot();
    image[..320 << 10].fill(0);
    let after = repaired(&image);
    let (kept, all) = contents_kept(&before, &after);
    assert_eq!(kept, all, "files");
}

/// Goal: bad sectors in metadata: the repair of such a disk is refused and changes nothing; a copy
/// with zeros in their place is repaired, and can be undone.
#[test]
fn a_copy_of_a_disk_with_bad_sectors_is_repaired_with_an_undo_file() {
    let base = DISK.image();
    let before = manifest(&base).expect("a sound image");
    let blocks = metadata(&base, 1024);
    let mut image = base.snapshot();
    let bad: Vec<u64> = blocks.iter().copied().filter(|block| *block > 300).step_by(9).collect();
    rt::testing::world(|cx| {
        let faulty = FaultDevice::new(cx.runtime(), base.clone());
        for block in &bad {
            faulty.add(Rule::on(Op::Read, block * 2..block * 2 + 2, Fault::Fail(Cause::Io)));
        }
        let queue = queue(cx, Arc::new(faulty));
        let refused = repair::plan(cx, &queue, &mut |_| true).expect_err("it cannot be read");
        assert!(refused.to_string().contains("sector"), "{refused}");
    });
    assert!(base.snapshot() == image, "the disk was changed");
    for block in &bad {
        image[*block as usize * 1024..][..1024].fill(0);
    }
    let after = repaired(&image);
    assert_eq!(changed(&before, &after), BTreeSet::new(), "{} blocks were lost", bad.len());
}

/// Goal: of an image whose first half was copied before its last changes, and whose second half
/// after them, the files that did not change are kept.
#[test]
fn an_image_that_was_copied_while_it_was_written_is_repaired() {
    let base = DISK.image();
    let before = manifest(&base).expect("a sound image");
    let old = base.snapshot();
    rt::testing::world(|cx| {
        let fs = mount(cx, base.clone()).expect("a sound image");
        for n in 0..200u64 {
            let ino = testkit::content::create(cx, &*fs, fs.root(), &format!("new-{n}"));
            write(cx, &*fs, ino, 7000 + n, 0, 6000);
        }
        for n in 0..40 {
            let name = format!("a-rather-long-name-{n:05}");
            let big = fs.lookup(cx, fs.root(), b"big").expect("the directory").ino;
            fs.unlink(cx, big, name.as_bytes()).expect("unlink");
        }
        fs.sync(cx).expect("sync");
        fs.unmount(cx).expect("unmount");
    });
    for half in [12 << 20, 20 << 20] {
        let mut image = base.snapshot();
        image[..half].copy_from_slice(&old[..half]);
        let (kept, all) = contents_kept(&before, &repaired(&image));
        assert_eq!(kept, all, "files, the first {half} bytes being older");
    }
}

/// Goal: with one of two members of a stripe missing, what lies on the other is read: no file that
/// is wholly there reads otherwise.
#[test]
fn half_of_a_stripe_is_read() {
    let base = DISK.image();
    let before = manifest(&base).expect("a sound image");
    let mut lost = RangeSet64::new();
    for chunk in (1..DISK.bytes / (64 << 10)).step_by(2) {
        lost.insert(chunk * 128..chunk * 128 + 128);
    }
    let seen = rt::testing::world(|cx| rescue(cx, base.clone(), &lost));
    let hit = with_data(&base, &before, |place| lost.intersects(place));
    let (mut right, mut wrong) = (0, 0);
    for (path, entry) in seen.tree.iter().filter(|(_, entry)| entry.size > 0) {
        let name = String::from_utf8_lossy(path).into_owned();
        let Some(was) = before.get(path).filter(|was| was.kind == entry.kind) else { continue };
        if hit.contains(&name) || was.size == 0 {
            continue;
        }
        if was.sha256 == entry.sha256 { right += 1 } else { wrong += 1 }
    }
    assert!(right > 30 && wrong == 0, "{right} as they were, {wrong} otherwise");
}

/// Goal: after mkfs of XFS over a full ext4 the files below come back: a rescue that is told to
/// leave out the new superblock reads them.
#[test]
fn a_file_system_below_another_one_is_read() {
    let base = Kind { bytes: 64 << 20, ..DISK }.image();
    let before = manifest(&base).expect("a sound image");
    let seen = rt::testing::world(|cx| {
        let queue = queue(cx, base.clone());
        let options = xfs::MkfsOptions {
            ag_count: Some(3),
            log_size: Some(16 << 20),
            ..xfs::MkfsOptions::compat("6.12").expect("a known kernel")
        };
        xfs::mkfs(cx, &queue, &options).expect("mkfs of XFS");
        let mut lost = RangeSet64::new();
        lost.insert(0..1);
        rescue(cx, base.clone(), &lost)
    });
    let (kept, all) = contents_kept(&before, &seen.tree);
    assert_eq!(kept, all, "files of ext4 below XFS");
}

/// Contents of files, wherever they are.
fn contents(tree: &Manifest) -> Vec<String> {
    let full = tree.values().filter(|entry| entry.size > 0);
    let mut all: Vec<String> = full.filter_map(|entry| entry.sha256.clone()).collect();
    all.sort();
    all.dedup();
    all
}

/// How many of some contents a tree has.
fn count_of(of: &[String], tree: &Manifest) -> usize {
    let found = contents(tree);
    of.iter().filter(|sum| found.binary_search(sum).is_ok()).count()
}

/// Goal: an XFS whose first inodes are gone, by zeros or by mkfs of ext4, comes back with what is
/// elsewhere: at least what xfs_repair saves, and that finds nothing wrong.
#[test]
fn an_xfs_without_its_root_is_saved() {
    let base = xfs_support::KINDS[1].image();
    let before = contents(&xfs_support::manifest(&base).expect("a sound image"));
    let zeroed = Arc::new(base.fork());
    zeroed.write_at(0, &vec![0; 1 << 20]);
    let over = Arc::new(base.fork());
    rt::testing::world(|cx| {
        let queue = queue(cx, over.clone());
        let options = ext4::MkfsOptions { block_size: Some(4096), ..ext4::MkfsOptions::default() };
        ext4::mkfs(cx, &queue, &options).expect("mkfs of ext4");
    });
    for (what, device) in [("zeroed", zeroed), ("mkfs", over)] {
        // xfs_repair takes no ext4 for XFS: it looks for the copies without that.
        let file = testkit::image::write_device(&device);
        testkit::newest::run("xfs_repair", &[&"-L", &file.path()]);
        let theirs = Arc::new(testkit::image::load(file.path()));
        let theirs = xfs_support::manifest(&theirs).map_or(0, |tree| count_of(&before, &tree));
        let planned = rt::testing::world(|cx| {
            let queue = queue(cx, device.clone());
            let options = PlanOptions { format: Some(Format::Xfs), ..PlanOptions::default() };
            repair::plan_with(cx, &queue, options, &mut |_| true).expect("a plan")
        });
        assert_eq!(planned.left, [""; 0], "{what}");
        let dir = tempfile::tempdir().expect("a directory");
        apply(&(device.clone() as _), &planned, dir.path());
        let file = testkit::image::write_device(&device);
        testkit::judge::xfs_repair(file.path()).unwrap_or_else(|text| panic!("{what}: {text}"));
        let ours = count_of(&before, &xfs_support::manifest(&device).expect("it is mounted"));
        println!("{what}: {ours} of {}, xfs_repair {theirs}", before.len());
        assert!(ours >= theirs && ours > 0, "{what}: {ours}, xfs_repair {theirs}");
    }
}

/// Goal: below a new XFS the ext4 is repaired by a copy of its superblock, as with `e2fsck -b`.
#[test]
fn an_ext4_below_an_xfs_is_repaired_by_a_copy() {
    let base = Kind { bytes: 64 << 20, ..DISK }.image();
    let before = manifest(&base).expect("a sound image");
    let g = ext4::format::Geometry::parse(&base.snapshot()[1024..2048], 0).expect("sound");
    rt::testing::world(|cx| {
        let queue = queue(cx, base.clone());
        let options = xfs::MkfsOptions {
            ag_count: Some(3),
            log_size: Some(16 << 20),
            ..xfs::MkfsOptions::compat("6.12").expect("a known kernel")
        };
        xfs::mkfs(cx, &queue, &options).expect("mkfs of XFS");
    });
    let plan = |place: u64| {
        rt::testing::world(|cx| {
            let queue = queue(cx, base.clone());
            let format = Some(Format::Ext { superblock: Some(place) });
            let options = PlanOptions { format, ..PlanOptions::default() };
            repair::plan_with(cx, &queue, options, &mut |_| true)
        })
    };
    let refused = plan(4096).expect_err("there is none");
    assert!(refused.to_string().contains("byte 4096"), "{refused}");
    let planned = plan(g.group_first_block(1) * u64::from(g.block_size)).expect("a plan");
    assert_eq!(planned.left, [""; 0]);
    let dir = tempfile::tempdir().expect("a directory");
    apply(&(base.clone() as _), &planned, dir.path());
    let file = testkit::image::write_device(&base);
    testkit::judge::e2fsck(file.path()).expect("sound");
    let (kept, all) = contents_kept(&before, &manifest(&base).expect("it is mounted"));
    assert_eq!(kept, all, "files of ext4 below XFS");
    assert!(crate::plan(&base).expect("a plan").is_clean(), "nothing of the XFS is left");
    // Where somebody else repaired it, the superblock of the XFS may still be there.
    let device = Arc::new(base.fork());
    device.write_at(0, b"XFSB");
    let planned = crate::plan(&device).expect("a plan");
    let [found] = &planned.findings[..] else { panic!("{:#?}", planned.findings) };
    assert_eq!((found.detail.as_str(), found.safe), ("hold the superblock of an XFS", false));
    assert_eq!(planned.left, [""; 0]);
}

/// Goal: where the first superblock is gone, only copies that differ are asked about; one whose
/// answer was no is offered again.
#[test]
fn copies_of_the_superblock_that_agree_are_left_alone() {
    let device = Kind { bytes: 64 << 20, ..DISK }.image();
    let g = ext4::format::Geometry::parse(&device.snapshot()[1024..2048], 0).expect("sound");
    let place = |group: u32| g.group_first_block(group) * u64::from(g.block_size);
    assert!(g.has_super(1) && g.has_super(3) && g.groups_count > 3, "{g:?}");
    device.write_at(1024, &[0; 1024]);
    device.write_at(place(3), &[0; 1024]);
    let of_copies = |wanted: bool| {
        let mut asked = Vec::new();
        let planned = plan_with(&device, &mut |finding| {
            let is_one = finding.rule == "super-backup";
            asked.extend(is_one.then(|| (finding.at.clone(), finding.detail.clone())));
            wanted || !is_one
        });
        let planned = planned.expect("a plan");
        let dir = tempfile::tempdir().expect("a directory");
        apply(&(device.clone() as _), &planned, dir.path());
        asked
    };
    let block = g.group_first_block(3);
    let wanted = [(format!("superblock in block {block}"), "zeros".to_string())];
    assert_eq!(of_copies(false), wanted);
    assert_eq!(of_copies(true), wanted);
    assert!(crate::plan(&device).expect("a plan").is_clean());
    assert_ne!(device.snapshot()[place(3) as usize..][..1024], [0; 1024]);
}

/// Goal: with `meta_bg` a copy of the superblock has no table of descriptors behind it: what lies
/// there stays when the copy is written anew.
#[test]
fn what_lies_behind_a_copy_of_the_superblock_stays() {
    for kind in KINDS.iter().filter(|kind| ["meta-bg-1k", "ext4-1k"].contains(&kind.name)) {
        let device = kind.image();
        let before = device.snapshot();
        let g = ext4::format::Geometry::parse(&before[1024..2048], 0).expect("sound");
        let size = g.block_size as usize;
        let copies: Vec<u64> = (1..g.groups_count)
            .filter(|&group| g.has_super(group))
            .map(|group| g.group_first_block(group))
            .collect();
        for &block in &copies {
            device.write_at(block * size as u64 + 266, &[0x77]);
        }
        let planned = crate::plan(&device).expect("a plan");
        assert_eq!(planned.findings.len(), copies.len(), "{:#?}", planned.findings);
        let dir = tempfile::tempdir().expect("a directory");
        apply(&(device.clone() as _), &planned, dir.path());
        let after = device.snapshot();
        let blocks = before.chunks(size).zip(after.chunks(size)).zip(0..);
        for (_, block) in blocks.filter(|((before, after), _)| before != after) {
            let table = if kind.name == "meta-bg-1k" { 0 } else { u64::from(g.desc_blocks) };
            let of_copy = copies.iter().any(|&copy| (copy..=copy + table).contains(&block));
            assert!(block == 1 || of_copy, "{}: block {block}", kind.name);
        }
        let file = testkit::image::write_device(&device);
        testkit::judge::e2fsck(file.path()).expect("sound");
    }
}
