//! Accidents as they happen: a disk that was overwritten from its start on, an image that was cut
//! short, a disk with bad sectors.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use base::range::RangeSet64;
use block::{Cause, Device, Op};
use device::{Fault, FaultDevice, MemoryDevice, Rule};
use repair::rescue::Rescued;
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
    let rescued = Rescued::new(cx, &device, lost).expect("a rescue");
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
