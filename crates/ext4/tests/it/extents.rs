//! Extents against a map of blocks: whatever is written, preallocated, punched and cut off, the
//! tree says of every block what a plain map says of it, and e2fsck finds it sound.

use crate::support::*;
use base::{Errno, Ino, Rng};
use ext4::Ext4;
use rt::Cx;
use std::collections::BTreeMap;
use vfs::{FallocMode, FileSystem, SetAttr};

const BLOCK: u64 = 1024;
/// Blocks of the file that are played with: enough for a tree of depth 2 where they alternate.
const BLOCKS: u64 = 8192;

/// Of every block that there is whether it is written; what is missing is a hole.
type Model = BTreeMap<u64, bool>;

/// The same, as the file system tells it.
fn of_file(cx: &mut Cx, fs: &Ext4, file: Ino) -> Model {
    let mut found = Model::new();
    let mut end = 0;
    for extent in fs.fiemap(cx, file, 0, u64::MAX / 2).expect("fiemap") {
        assert!(extent.offset >= end, "extents do not overlap: {extent:?} behind {end}");
        end = extent.offset + extent.len;
        for block in extent.offset / BLOCK..end / BLOCK {
            found.insert(block, extent.content().is_some());
        }
    }
    found
}

fn step(cx: &mut Cx, fs: &Ext4, file: Ino, rng: &mut Rng, model: &mut Model, size: &mut u64) {
    let from = rng.below(BLOCKS);
    let len = if rng.chance(0.8) { 1 + rng.below(3) } else { 1 + rng.below(400) };
    let to = (from + len).min(BLOCKS);
    let (offset, bytes) = (from * BLOCK, (to - from) * BLOCK);
    match rng.below(10) {
        0..=3 => {
            let data = vec![7; bytes as usize];
            assert_eq!(fs.write(cx, file, offset, &data), Ok(data.len()));
            model.extend((from..to).map(|block| (block, true)));
            *size = (*size).max(to * BLOCK);
        }
        4 | 5 => {
            let mode = FallocMode::Allocate { keep_size: true };
            fs.fallocate(cx, file, mode, offset, bytes).expect("fallocate");
            (from..to).for_each(|block| {
                model.entry(block).or_insert(false);
            });
        }
        6..=8 => {
            fs.fallocate(cx, file, FallocMode::PunchHole, offset, bytes).expect("punch");
            model.retain(|block, _| !(from..to).contains(block));
        }
        _ if rng.chance(0.1) => {
            let set = SetAttr { size: Some(offset), ..SetAttr::default() };
            fs.setattr(cx, file, &set).expect("truncate");
            model.retain(|&block, _| block < from);
            *size = offset;
        }
        _ => fs.fsync(cx, file, false).expect("fsync"),
    }
}

/// Goal: the tree and the map agree after any operations. Method: random ones on a file whose every
/// second block is there, so that the tree is deep and extents are split and joined; compared after
/// each stretch, and after a remount.
#[test]
fn extents_are_what_a_map_of_blocks_says() {
    for seed in seeds(6) {
        rt::testing::world(|cx| {
            let device = fresh(cx, 48 << 20, "ext4", BLOCK as u32);
            let (fs, _) = mount(cx, device.clone());
            let file = create(cx, &*fs, fs.root(), "file");
            let (mut rng, mut model, mut size) = (Rng::new(seed, 77), Model::new(), 0);
            for block in (0..BLOCKS / 2).map(|n| 2 * n) {
                assert_eq!(fs.write(cx, file, block * BLOCK, &[7; BLOCK as usize]), Ok(1024));
                model.insert(block, true);
                size = (block + 1) * BLOCK;
            }
            for round in 0..12 {
                (0..60).for_each(|_| step(cx, &fs, file, &mut rng, &mut model, &mut size));
                fs.fsync(cx, file, false).expect("fsync");
                assert_eq!(fs.getattr(cx, file).map(|attr| attr.size), Ok(size));
                let found = of_file(cx, &fs, file);
                let wrong = (0..BLOCKS).find(|block| found.get(block) != model.get(block));
                assert_eq!(wrong, None, "seed {seed}, round {round}: this block differs");
                assert_eq!(found.len(), model.len(), "seed {seed}: blocks beyond the file");
            }
            fs.unmount(cx).expect("unmount");
            e2fsck(&device, &format!("seed {seed}"));
            checked(cx, &device, &format!("seed {seed}"));
            let (fs, _) = mount(cx, device);
            assert!(of_file(cx, &fs, file) == model, "seed {seed}: after a remount");
            let behind = fs.seek(cx, file, size, vfs::SeekWhence::Data);
            assert_eq!(behind, Err(Errno::ENXIO));
            fs.unmount(cx).expect("unmount");
        });
    }
}
