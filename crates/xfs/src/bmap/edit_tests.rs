//! Maps changed at random beside an array of blocks, through both forms; xfs_repair sees to it that
//! no block is lost.

use std::sync::Arc;

use base::{FsBlock, Ino, Rng};
use rt::Cx;

use super::edit::MapEdit;
use super::{Extents, Fork, Which, lookup};
use crate::alloc::Space;
use crate::format::btree::{MapRoot, Node};
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::inode::ForkFormat;
use crate::format::{AgBlock, At, Kind};
use crate::log::LogOptions;
use crate::log_common::{Volume, mkfs, real, repair, scratch};
use crate::trans::{LogReservation, Trans};

const INO: Ino = Ino(131);
const FILE: u64 = 3000;

/// The extents as they are stored.
fn stored(cx: &mut Cx, trans: &mut Trans, space: &Space, fork: &Fork) -> Vec<Extent> {
    if fork.format == ForkFormat::Extents {
        let list = fork.bytes.chunks_exact(EXTENT_SIZE).take(fork.count as usize);
        return list.map(Extent::read).collect();
    }
    let root = MapRoot::parse(&fork.bytes, At::Inode(INO)).expect("a root");
    let mut row: Vec<u64> = (0..root.len()).map(|index| root.pointer(index)).collect();
    for level in (0..root.level).rev() {
        let mut next = Vec::new();
        for block in row {
            let map = space.block_map(space.split(FsBlock(block)));
            let ops = crate::btree::key::ops(Kind::Bmap);
            let buf = trans.read_buf(cx, &[map], ops).expect("a block");
            buf.with(|data| {
                let node = Node::parse_trusted(Kind::Bmap, data, Some(level), At::Inode(INO));
                let node = node.expect("a good block");
                if level == 0 {
                    let records = (0..node.len()).map(|index| Extent::read(node.record(index)));
                    next.extend(records.map(Ok));
                } else {
                    next.extend((0..node.len()).map(|index| Err(node.pointer(index))));
                }
            });
        }
        if level == 0 {
            return next.into_iter().map(|leaf| leaf.expect("a record")).collect();
        }
        row = next.into_iter().map(|node| node.expect_err("a pointer")).collect();
    }
    unreachable!("a tree has leaves")
}

/// For each block of the file: where it lies, and whether it was never written.
type Blocks = Vec<Option<(u64, bool)>>;

/// One random change of the map and of the array.
fn change(
    cx: &mut Cx,
    trans: &mut Trans,
    edit: &mut MapEdit<'_>,
    file: &mut Blocks,
    rng: &mut Rng,
    filling: bool,
) {
    let offset = rng.below(FILE);
    let count = (1 + rng.below(3)).min(FILE - offset);
    let range = offset as usize..(offset + count) as usize;
    match rng.below(10) {
        0..=6 if filling => {
            if file[range.clone()].iter().any(Option::is_some) {
                return;
            }
            // Blocks that are nobody's; every third run continues on the device.
            let start = FsBlock(5000 + 2 * offset + 100 * (offset % 3));
            let unwritten = rng.below(2) == 0;
            let extent = Extent { offset, start, count: count as u32, unwritten };
            edit.add(cx, trans, extent).expect("room");
            for (index, block) in file[range].iter_mut().enumerate() {
                *block = Some((start.0 + index as u64, unwritten));
            }
        }
        7..=8 => {
            let to = rng.below(2) == 0;
            edit.convert(cx, trans, offset..offset + count, to).expect("room");
            file[range].iter_mut().flatten().for_each(|block| block.1 = to);
        }
        _ => {
            let count = if filling { count } else { 30.min(FILE - offset) };
            let range = offset as usize..(offset + count) as usize;
            let gone = edit.remove(cx, trans, offset..offset + count).expect("room");
            let had = file[range.clone()].iter().flatten().count() as u32;
            assert_eq!(gone.iter().map(|extent| extent.count).sum::<u32>(), had);
            file[range].fill(None);
        }
    }
}

/// Goal: lists and btrees hold what the file has, from no extent to thousands and back. Method:
/// random runs are added, converted and taken out; the stored form is read after each transaction.
#[test]
fn maps_change_form_and_hold_what_the_file_has() {
    let dir = scratch();
    let image = mkfs(dir.path(), "map", 320 << 20, &["-b", "size=1024", "-m", "rmapbt=1"]);
    real(|cx| {
        let volume = Volume::open(cx, &image);
        let log = volume.mount(cx, LogOptions::default());
        let geometry = Arc::new(volume.geometry.clone());
        let space = Arc::new(Space::open(cx, geometry, log.clone()).expect("groups"));
        log.set_finisher(space.clone());
        let before = space.count_free(cx).expect("a count");
        let mut fork = Fork::new(ForkFormat::Extents, vec![0; 104], 0);
        fork.extents = Some(Extents::new());
        let mut file: Blocks = vec![None; FILE as usize];
        let (mut rng, mut blocks, mut forms) = (Rng::new(5, 5), 0, [0; 3]);
        for round in 0..900 {
            let reservation = LogReservation::new(150 << 10).times(2);
            let mut trans = Trans::alloc(cx, &log, reservation).expect("log space");
            for _ in 0..4 {
                let near = AgBlock { ag: 1, block: 0 };
                let which = Which::Data;
                let (space, fork, blocks) = (&*space, &mut fork, &mut blocks);
                let mut edit =
                    MapEdit { space, ino: INO, which, fork, blocks, near, content: None };
                change(cx, &mut trans, &mut edit, &mut file, &mut rng, round < 500);
            }
            let extents = fork.extents.clone().expect("extents");
            assert_eq!(stored(cx, &mut trans, &space, &fork), *extents);
            for (offset, block) in file.iter().enumerate() {
                let found = lookup(&extents, offset as u64..offset as u64 + 1);
                let found = found.start.map(|start| (start.0, found.unwritten));
                assert_eq!(found, *block, "block {offset}");
            }
            let form = match fork.format {
                ForkFormat::Extents => 0,
                _ => MapRoot::parse(&fork.bytes, At::Inode(INO)).expect("a root").level.min(2),
            };
            forms[form as usize] += 1;
            trans.commit(cx).expect("a commit");
        }
        assert!(forms.iter().all(|&count| count > 10), "{forms:?}: not every form was met");
        let mut trans = Trans::alloc(cx, &log, LogReservation::new(1 << 20)).expect("log space");
        let near = AgBlock { ag: 1, block: 0 };
        let (fork, blocks) = (&mut fork, &mut blocks);
        let which = Which::Data;
        let mut edit =
            MapEdit { space: &space, ino: INO, which, fork, blocks, near, content: None };
        edit.remove(cx, &mut trans, 0..FILE).expect("all gone");
        trans.commit(cx).expect("a commit");
        assert_eq!((fork.format, *blocks), (ForkFormat::Extents, 0));
        assert_eq!(space.count_free(cx).expect("a count"), before, "blocks were lost");
        log.unmount(cx).expect("an unmount");
    });
    repair(&image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
}
