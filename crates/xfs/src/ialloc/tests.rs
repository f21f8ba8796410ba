//! Inodes taken from images of mkfs.xfs and given back; xfs_repair has the last word.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use base::{Ino, Rng};
use rt::Cx;

use super::{FreedInode, Inodes};
use crate::alloc::Space;
use crate::btree::Tree;
use crate::format::ag::UNLINKED_BUCKETS;
use crate::format::record::InodeChunk;
use crate::format::{AgInode, Kind, NULL32};
use crate::log::LogOptions;
use crate::log_common::{Volume, mkfs, real, repair, scratch};
use crate::trans::{LogReservation, Trans};

fn transaction(cx: &mut Cx, inodes: &Inodes) -> Trans {
    let reservation = LogReservation::new(150 << 10).times(2);
    Trans::alloc(cx, &inodes.space.log, reservation).expect("log space")
}

/// The chunks of a group in one of its trees.
pub(super) fn chunks(cx: &mut Cx, inodes: &Inodes, ag: u32, kind: Kind) -> Vec<InodeChunk> {
    let mut trans = transaction(cx, inodes);
    let agi = inodes.lock(cx, &mut trans, ag).expect("the AGI");
    let mut store = inodes.tree(&agi, kind);
    let mut tree = Tree::new(&mut store);
    let mut all = Vec::new();
    let mut cursor = tree.find_ge(cx, &mut trans, [0; 3]).expect("a look");
    let sparse = inodes.space.geometry.features.sparse();
    while let Some(at) = &mut cursor {
        all.push(InodeChunk::read(&tree.record(at), sparse));
        if !tree.next(cx, &mut trans, at).expect("a step") {
            break;
        }
    }
    trans.cancel();
    all
}

/// Both trees and the counters say what is in use.
fn agree(cx: &mut Cx, inodes: &Inodes, used: &BTreeSet<u64>, fixed: usize) {
    let geometry = inodes.space.geometry.clone();
    let (mut found, mut counts) = (0, [0, 0]);
    for ag in 0..geometry.ag_count() {
        let all = chunks(cx, inodes, ag, Kind::Inobt);
        for chunk in &all {
            assert!(chunk.consistent(), "{chunk:?}");
            counts[0] += u64::from(chunk.count);
            counts[1] += u64::from(chunk.free_count);
            for bit in (0..64).filter(|bit| chunk.used() & 1 << bit != 0) {
                let ino = geometry.ino_join(AgInode { ag, agino: chunk.start + bit });
                found += usize::from(used.contains(&ino.0));
            }
        }
        if geometry.features.finobt() {
            let some: Vec<InodeChunk> = all.into_iter().filter(|c| c.free_count > 0).collect();
            assert_eq!(chunks(cx, inodes, ag, Kind::Finobt), some);
        }
    }
    assert_eq!(found, used.len());
    assert_eq!(counts, inodes.counts());
    assert_eq!(counts, inodes.count_all(cx).expect("a count"));
    assert_eq!(counts[0] - counts[1], (used.len() + fixed) as u64);
}

fn churn(image: &Path, seed: u64, many: usize) {
    real(|cx| {
        let volume = Volume::open(cx, image);
        let log = volume.mount(cx, LogOptions::default());
        let geometry = Arc::new(volume.geometry.clone());
        let space = Arc::new(Space::open(cx, geometry.clone(), log.clone()).expect("groups"));
        log.set_finisher(space.clone());
        let before = space.count_free(cx).expect("a count");
        let inodes = Inodes::open(cx, space.clone()).expect("inodes");
        let fixed = { inodes.counts()[0] - inodes.counts()[1] } as usize;
        let mut rng = Rng::new(seed, 0);
        let mut used = BTreeSet::new();
        for number in 0..many {
            let mut trans = transaction(cx, &inodes);
            let parent = used.last().map_or(geometry.root_ino, |&ino| Ino(ino));
            let directory = number % 50 == 0;
            let ino = inodes.allocate(cx, &mut trans, parent, directory).expect("an inode");
            assert!(used.insert(ino.0), "{ino} twice");
            trans.commit(cx).expect("a commit");
        }
        agree(cx, &inodes, &used, fixed);
        // In random order every inode leaves through a list of unlinked ones, or at once.
        let mut order: Vec<u64> = used.iter().copied().collect();
        for index in (1..order.len()).rev() {
            order.swap(index, rng.below(index as u64 + 1) as usize);
        }
        for pair in order.chunks(40) {
            let mut listed = Vec::new();
            let mut trans = transaction(cx, &inodes);
            for &ino in pair {
                let at_once =
                    ino % 3 == 0 && inodes.free_in_place(cx, &mut trans, Ino(ino)).expect("a look");
                if at_once {
                    used.remove(&ino);
                    continue;
                }
                inodes.add_unlinked(cx, &mut trans, Ino(ino)).expect("a list");
                listed.push(ino);
            }
            trans.commit(cx).expect("a commit");
            assert!(listed.len() < pair.len() || pair.len() < 40, "none freed at once");
            for &ino in listed.iter().rev() {
                let mut trans = transaction(cx, &inodes);
                inodes.remove_unlinked(cx, &mut trans, Ino(ino)).expect("out of the list");
                let freed = inodes.free(cx, &mut trans, Ino(ino)).expect("freed");
                trans.commit(cx).expect("a commit");
                used.remove(&ino);
                if let FreedInode::Chunk(first) = freed {
                    assert!(!used.range(first.0..first.0 + 64).any(|_| true));
                }
            }
        }
        agree(cx, &inodes, &used, fixed);
        lists_are_empty(cx, &inodes);
        assert_eq!(space.count_free(cx).expect("a count"), before, "blocks were lost");
        assert_eq!(log.stats().overruns, 0, "a transaction needed more log than reserved");
        log.unmount(cx).expect("an unmount");
    });
    repair(image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
}

fn lists_are_empty(cx: &mut Cx, inodes: &Inodes) {
    let mut trans = transaction(cx, inodes);
    for ag in 0..inodes.space.geometry.ag_count() {
        let agi = inodes.lock(cx, &mut trans, ag).expect("the AGI");
        for bucket in 0..UNLINKED_BUCKETS {
            assert_eq!(agi.with(|raw| raw.agi_unlinked[bucket].get()), NULL32);
        }
    }
    trans.cancel();
}

/// Goal: chunks, both trees, counters and unlinked lists stay right while inodes come and go.
#[test]
fn inodes_come_and_go_and_xfs_repair_agrees() {
    let dir = scratch();
    let sets: [(&str, usize, &[&str]); 4] = [
        ("1k", 9000, &["-b", "size=1024", "-d", "agcount=2", "-m", "rmapbt=1"]),
        ("4k", 3000, &["-d", "agcount=4"]),
        ("old", 2000, &["-d", "agcount=2", "-m", "finobt=0,reflink=0", "-i", "sparse=0"]),
        ("large", 1000, &["-d", "agcount=2", "-i", "size=1024", "-m", "inobtcount=0"]),
    ];
    for (seed, (name, many, args)) in sets.into_iter().enumerate() {
        churn(&mkfs(dir.path(), name, 320 << 20, args), seed as u64, many);
    }
}
