//! Random extents taken from images of mkfs.xfs and given back; xfs_repair has the last word.

use std::collections::BTreeMap;
use std::path::Path;

use base::Rng;
use rt::Cx;

use super::{AllocRequest, Space};
use crate::btree::{Store, Tree};
use crate::error::XfsError;
use crate::format::record::{FreeExtent, Rmap};
use crate::format::{AgBlock, AgExtent, Kind, Owner};
use crate::log::LogOptions;
use crate::log_common::{Volume, mkfs, real, repair, scratch};
use crate::trans::{LogReservation, Trans};

fn transaction(cx: &mut Cx, space: &Space) -> Trans {
    Trans::alloc(cx, &space.log, LogReservation::new(150 << 10)).expect("log space")
}

/// Neighbours often have one owner, so that records are joined and cut.
fn owner_of(block: u32) -> Owner {
    Owner::fork(7_000_000 + u64::from(block / 64 % 3), false, u64::from(block), false)
}

/// All records of a tree.
pub(super) fn records(
    cx: &mut Cx,
    trans: &mut Trans,
    space: &Space,
    ag: u32,
    kind: Kind,
) -> Vec<[u8; 24]> {
    let agf = space.lock(cx, trans, ag).expect("the AGF");
    match kind {
        Kind::Refcount => all_of(cx, trans, &mut space.refcounts(&agf)),
        _ => all_of(cx, trans, &mut super::store::AgfTree { space, agf: &agf, kind }),
    }
}

fn all_of<S: Store>(cx: &mut Cx, trans: &mut Trans, store: &mut S) -> Vec<[u8; 24]> {
    let mut tree = Tree::new(store);
    let mut all = Vec::new();
    let mut cursor = tree.find_ge(cx, trans, [0; 3]).expect("a look");
    while let Some(at) = &mut cursor {
        all.push(tree.record(at));
        if !tree.next(cx, trans, at).expect("a step") {
            break;
        }
    }
    all
}

/// The trees of a group agree: both have the same extents, the counters are their sums, and what
/// is not free has an owner.
fn agree(cx: &mut Cx, space: &Space, ag: u32, allocated: &BTreeMap<(u32, u32), u32>) {
    let mut trans = transaction(cx, space);
    let by_block = records(cx, &mut trans, space, ag, Kind::FreeByBlock);
    let mut by_size = records(cx, &mut trans, space, ag, Kind::FreeBySize);
    let longest = by_size.last().map_or(0, |record| FreeExtent::read(record).len);
    by_size.sort();
    assert_eq!(by_block, by_size);
    let agf = space.lock(cx, &mut trans, ag).expect("the AGF");
    let free: Vec<FreeExtent> = by_block.iter().map(|record| FreeExtent::read(record)).collect();
    let sum: u32 = free.iter().map(|extent| extent.len).sum();
    assert_eq!(agf.with(|raw| (raw.agf_freeblks.get(), raw.agf_longest.get())), (sum, longest));
    for pair in free.windows(2) {
        assert!(pair[0].start + pair[0].len < pair[1].start, "{pair:?} touch");
    }
    let mut taken: Vec<(u32, u32)> = free.iter().map(|free| (free.start, free.len)).collect();
    let ours = allocated.range((ag, 0)..(ag + 1, 0)).map(|(&(_, block), &len)| (block, len));
    if space.geometry.features.rmapbt() {
        let owned = records(cx, &mut trans, space, ag, Kind::Rmap);
        taken.extend(owned.iter().map(|record| Rmap::read(record)).map(|r| (r.start, r.len)));
        taken.sort();
        let mut at = 0;
        for (start, len) in taken {
            assert_eq!(start, at, "group {ag}: blocks without owner, or with two");
            at = start + len;
        }
        assert_eq!(at, space.geometry.ag_length(ag));
    } else {
        taken.extend(ours);
        taken.sort();
        assert!(taken.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    }
    trans.cancel();
}

fn churn(image: &Path, seed: u64, wanted_levels: u32) {
    real(|cx| {
        let volume = Volume::open(cx, image);
        let log = volume.mount(cx, LogOptions::default());
        let geometry = std::sync::Arc::new(volume.geometry.clone());
        let space = Space::open(cx, geometry.clone(), log.clone()).expect("groups");
        let before = space.count_free(cx).expect("a count");
        let mut rng = Rng::new(seed, 0);
        let mut held: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let mut highest = 0;
        for round in 0..700 {
            let filling = round < 350;
            let mut trans = transaction(cx, &space);
            for _ in 0..3 {
                let ag = rng.below(u64::from(geometry.ag_count())) as u32;
                if rng.below(10) < if filling { 8 } else { 2 } {
                    take(cx, &space, &mut trans, &mut held, &mut rng, ag);
                } else {
                    let lowest = trans.highest_group().unwrap_or(0);
                    let from = (ag.max(lowest), rng.below(20_000) as u32);
                    let Some((&(ag, block), &len)) = held.range(from..).next() else { continue };
                    let extent = AgExtent { start: AgBlock { ag, block }, len };
                    let owner = owner_of(block);
                    space.free(cx, &mut trans, extent, Some(owner)).expect("freed");
                    held.remove(&(ag, block));
                }
            }
            trans.commit(cx).expect("a commit");
            if round % 50 == 0 {
                for ag in 0..geometry.ag_count() {
                    agree(cx, &space, ag, &held);
                }
            }
            highest = highest.max(levels(cx, &space));
        }
        assert!(highest >= wanted_levels, "trees of {highest} levels");
        for ((ag, block), len) in held {
            let mut trans = transaction(cx, &space);
            let owner = owner_of(block);
            let extent = AgExtent { start: AgBlock { ag, block }, len };
            space.free(cx, &mut trans, extent, Some(owner)).expect("freed");
            trans.commit(cx).expect("a commit");
        }
        assert_eq!(space.count_free(cx).expect("a count"), before);
        assert_eq!(space.log.stats().overruns, 0, "a transaction needed more log than reserved");
        log.unmount(cx).expect("an unmount");
    });
    repair(image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
}

fn levels(cx: &mut Cx, space: &Space) -> u32 {
    let mut trans = transaction(cx, space);
    let agf = space.lock(cx, &mut trans, 0).expect("the AGF");
    let levels = agf.with(|raw| raw.agf_bno_level.get().max(raw.agf_rmap_level.get()));
    trans.cancel();
    levels
}

fn take(
    cx: &mut Cx,
    space: &Space,
    trans: &mut Trans,
    held: &mut BTreeMap<(u32, u32), u32>,
    rng: &mut Rng,
    ag: u32,
) {
    let most = [1, 3, 17, 200][rng.below(4) as usize];
    let align = [1, 1, 1, 8][rng.below(4) as usize];
    let goal = AgBlock { ag, block: rng.below(20_000) as u32 };
    let want = AllocRequest {
        goal,
        min_len: 1,
        max_len: most,
        align,
        this_group: false,
        owner: None,
        metadata: false,
    };
    let found = space.reserve(u64::from(most)).and_then(|()| space.allocate(cx, trans, &want));
    let found = match found {
        Ok(found) => found,
        Err(XfsError::NoSpace) => return,
        Err(error) => panic!("{error}"),
    };
    space.give_back(u64::from(most - found.len));
    assert!(found.start.block % align == 0 && (1..=most).contains(&found.len));
    let AgBlock { ag, block } = found.start;
    let agf = space.lock(cx, trans, ag).expect("the AGF");
    space.map(cx, trans, &agf, owner_of(block).record(found)).expect("an owner");
    held.insert((ag, block), found.len);
}

/// Goal: free space, AGFL and reverse map stay right through fragmentation and back.
#[test]
fn extents_come_and_go_and_xfs_repair_agrees() {
    let dir = scratch();
    let sets: [(&str, u32, &[&str]); 3] = [
        ("rmap", 2, &["-b", "size=1024", "-d", "agcount=3", "-m", "rmapbt=1,reflink=1"]),
        ("plain", 2, &["-b", "size=1024", "-d", "agcount=2", "-m", "rmapbt=0,reflink=0"]),
        ("4k", 1, &["-d", "agcount=4", "-m", "rmapbt=1"]),
    ];
    for (seed, (name, levels, args)) in sets.into_iter().enumerate() {
        churn(&mkfs(dir.path(), name, 320 << 20, args), seed as u64, levels);
    }
}
