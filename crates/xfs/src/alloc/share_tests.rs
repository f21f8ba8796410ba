//! Extents shared, dropped and put into CoW forks at random beside arrays of blocks; the trees must
//! say the same after each round, and nothing is left at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{FsBlock, Ino, Rng};
use rt::Cx;

use super::tests::records;
use super::{AllocRequest, Space};
use crate::bmap::Which;
use crate::format::extent::Extent;
use crate::format::log_item::RmapOp;
use crate::format::record::{Refcount, Rmap, owner};
use crate::format::{AgBlock, FsExtent, Kind, Owner, Section};
use crate::log::LogOptions;
use crate::log_common::{Volume, mkfs, real, repair, scratch};
use crate::trans::{LogReservation, Trans};

const FILES: u64 = 6;
const BLOCKS: u64 = 1500;

struct Model {
    space: Arc<Space>,
    /// For each file, where each of its blocks lies.
    files: Vec<Vec<Option<u64>>>,
    cow: BTreeMap<u64, u32>,
    rng: Rng,
}

fn ino(file: usize) -> Ino {
    Ino(7_000_000 + file as u64)
}

/// The runs of `from..to` of a file, each one extent.
fn runs(file: &[Option<u64>], from: u64, to: u64) -> Vec<Extent> {
    let mut list: Vec<Extent> = Vec::new();
    for offset in from..to {
        let Some(block) = file[offset as usize] else { continue };
        match list.last_mut() {
            Some(last) if last.end() == offset && last.start.0 + u64::from(last.count) == block => {
                last.count += 1;
            }
            _ => list.push(Extent { offset, start: FsBlock(block), count: 1, unwritten: false }),
        }
    }
    list
}

impl Model {
    fn transaction(&self, cx: &mut Cx) -> Trans {
        let reservation = LogReservation::new(150 << 10).times(4);
        Trans::alloc(cx, &self.space.log, reservation).expect("log space")
    }

    fn allocate(&mut self, cx: &mut Cx, trans: &mut Trans, most: u32) -> FsExtent {
        let goal = AgBlock { ag: 0, block: 1 + self.rng.below(20_000) as u32 };
        let want = AllocRequest {
            goal,
            min_len: 1,
            max_len: most,
            align: 1,
            this_group: false,
            owner: None,
            metadata: false,
        };
        self.space.reserve(u64::from(most)).expect("room");
        let found = self.space.allocate(cx, trans, &want).expect("room");
        self.space.give_back(u64::from(most - found.len));
        FsExtent { start: self.space.geometry.join(found.start), len: found.len }
    }

    fn drop_range(&mut self, trans: &mut Trans, file: usize, from: u64, to: u64) {
        for extent in runs(&self.files[file], from, to) {
            self.space.defer_drop(trans, Section::Data, ino(file), Which::Data, &extent, true);
        }
        self.files[file][from as usize..to as usize].fill(None);
    }

    fn share_range(&mut self, trans: &mut Trans, files: (usize, usize), from: u64, to: u64) {
        let (source, file) = files;
        for extent in runs(&self.files[source], from, to) {
            self.space.defer_share(trans, Section::Data, ino(file), &extent);
        }
        let range = from as usize..to as usize;
        let blocks = self.files[source][range.clone()].to_vec();
        self.files[file][range].copy_from_slice(&blocks);
    }

    fn allocate_range(&mut self, cx: &mut Cx, trans: &mut Trans, file: usize, from: u64, to: u64) {
        let new = self.allocate(cx, trans, (to - from) as u32);
        let owner = Owner::fork(ino(file).0, false, from, false);
        self.space.defer_rmap(trans, Section::Data, RmapOp::MapShared, owner, new);
        for index in 0..u64::from(new.len) {
            self.files[file][(from + index) as usize] = Some(new.start.0 + index);
        }
    }

    /// One change in one transaction, a range of one file.
    fn change(&mut self, cx: &mut Cx, growing: bool) {
        let file = self.rng.below(FILES) as usize;
        let from = self.rng.below(BLOCKS);
        // Now and then long enough for more records than one step takes.
        let most = if self.rng.chance(0.1) { 300 } else { 12 };
        let to = (from + 1 + self.rng.below(most)).min(BLOCKS);
        let mut trans = self.transaction(cx);
        match self.rng.below(10) {
            0..=1 if growing => {
                self.drop_range(&mut trans, file, from, to);
                self.allocate_range(cx, &mut trans, file, from, to);
            }
            2..=7 if growing => {
                let other = self.rng.below(FILES) as usize;
                if other != file {
                    self.drop_range(&mut trans, file, from, to);
                    self.share_range(&mut trans, (other, file), from, to);
                }
            }
            8 if growing => {
                let new = self.allocate(cx, &mut trans, 1 + (to % 7) as u32);
                self.space.defer_alloc_cow(&mut trans, Section::Data, new);
                self.cow.insert(new.start.0, new.len);
            }
            _ => {
                if let Some((start, len)) = self.cow.pop_first() {
                    let cow = FsExtent { start: FsBlock(start), len };
                    self.space.defer_cancel_cow(&mut trans, Section::Data, cow);
                }
                let to = if growing { to } else { (from + 40).min(BLOCKS) };
                self.drop_range(&mut trans, file, from, to);
            }
        }
        trans.commit(cx).expect("a commit");
    }

    /// The trees of each group against the arrays; returns the levels of the highest one.
    fn agree(&self, cx: &mut Cx) -> u32 {
        let geometry = &self.space.geometry;
        let mut highest = 0;
        for ag in 0..geometry.ag_count() {
            let mut refs: BTreeMap<u32, u32> = BTreeMap::new();
            for block in self.files.iter().flatten().flatten() {
                let place = geometry.split(FsBlock(*block));
                *refs.entry(place.block).or_default() += u32::from(place.ag == ag);
            }
            let mut wanted = Vec::new();
            for (start, refs) in refs.into_iter().filter(|&(_, refs)| refs > 1) {
                Refcount { start, cow: false, len: 1, refs }.append_to(&mut wanted);
            }
            for (&start, &len) in &self.cow {
                let place = geometry.split(FsBlock(start));
                if place.ag == ag {
                    Refcount { start: place.block, cow: true, len, refs: 1 }.append_to(&mut wanted);
                }
            }
            let mut trans = self.transaction(cx);
            let found = records(cx, &mut trans, &self.space, ag, Kind::Refcount);
            let found: Vec<_> = found.iter().map(|record| Refcount::read(record)).collect();
            assert_eq!(found, wanted, "group {ag}");
            let agf = self.space.lock(cx, &mut trans, ag).expect("the AGF");
            highest = highest.max(agf.with(|raw| raw.agf_refcount_level.get()));
            if geometry.features.rmapbt() {
                let found = records(cx, &mut trans, &self.space, ag, Kind::Rmap);
                let found = found.iter().map(|record| Rmap::read(record));
                let mut found: Vec<_> = found.filter(|r| r.owner >= 7_000_000).collect();
                found.retain(|r| owner::is_inode(r.owner) || r.owner == owner::COW);
                let blocks: u32 = found.iter().map(|record| record.len).sum();
                let mapped = self.files.iter().flatten().flatten();
                let mapped = mapped.filter(|block| geometry.split(FsBlock(**block)).ag == ag);
                let cow = self.cow.iter().filter(|row| geometry.split(FsBlock(*row.0)).ag == ag);
                let all = mapped.count() as u32 + cow.map(|row| row.1).sum::<u32>();
                assert_eq!(blocks, all, "reverse map of group {ag}");
            }
            trans.cancel();
        }
        highest
    }
}

/// Runs `body` on the groups of a new file system; what it leaves is dropped, and judged.
fn judged(rmapbt: &str, seed: u64, body: impl FnOnce(&mut Cx, &mut Model)) {
    let dir = scratch();
    let args = ["-b", "size=1024", "-d", "agcount=2", "-m", "reflink=1", "-m", rmapbt];
    let image = mkfs(dir.path(), "share", 320 << 20, &args);
    real(|cx| {
        let volume = Volume::open(cx, &image);
        let log = volume.mount(cx, LogOptions::default());
        let geometry = Arc::new(volume.geometry.clone());
        let space = Arc::new(Space::open(cx, geometry, log.clone()).expect("groups"));
        log.set_finisher(space.clone());
        let before = (space.count_free(cx).expect("a count"), space.available());
        let files = vec![vec![None; BLOCKS as usize]; FILES as usize];
        let rng = Rng::new(seed, 0);
        let mut model = Model { space: space.clone(), files, cow: BTreeMap::new(), rng };
        body(cx, &mut model);
        for file in 0..FILES as usize {
            for from in (0..BLOCKS).step_by(20) {
                let mut trans = model.transaction(cx);
                model.drop_range(&mut trans, file, from, (from + 20).min(BLOCKS));
                trans.commit(cx).expect("a commit");
            }
        }
        // What was not given back is found in the tree, as after a crash.
        let cow: u64 = model.cow.values().map(|&count| u64::from(count)).sum();
        assert_eq!(space.recover_cow(cx).expect("freed"), cow);
        model.cow.clear();
        model.agree(cx);
        assert_eq!((space.count_free(cx).expect("a count"), space.available()), before);
        assert_eq!(log.stats().overruns, 0, "a transaction needed more log than reserved");
        log.clear_finisher();
        log.unmount(cx).expect("an unmount");
    });
    repair(&image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
}

fn churn(rmapbt: &str, seed: u64) {
    judged(rmapbt, seed, |cx, model| {
        let mut highest = 0;
        for round in 0..2400 {
            model.change(cx, round < 2000);
            if round % 100 == 0 {
                highest = highest.max(model.agree(cx));
            }
        }
        assert!(highest >= 2, "a tree of {highest} levels");
    });
}

#[test]
fn shared_and_staged_extents_come_and_go_with_a_reverse_map() {
    churn("rmapbt=1", 3);
}

#[test]
fn shared_and_staged_extents_come_and_go_without_a_reverse_map() {
    churn("rmapbt=0", 4);
}

/// One block each of two references and of three in turn, eight of them, and one of four behind:
/// one reference more for the eight makes the last like its neighbour, which one step of a
/// transaction no longer looks at.
#[test]
fn a_long_change_is_joined_with_what_lies_behind_it() {
    judged("rmapbt=1", 5, |cx, model| {
        let mut trans = model.transaction(cx);
        model.allocate_range(cx, &mut trans, 0, 0, 9);
        trans.commit(cx).expect("a commit");
        let odd = (1..9).step_by(2).map(|block| (2, block, block + 1));
        let shares = [(1, 0, 9), (2, 8, 9), (3, 8, 9)].into_iter().chain(odd).chain([(4, 0, 8)]);
        for (file, from, to) in shares {
            let mut trans = model.transaction(cx);
            model.share_range(&mut trans, (0, file), from, to);
            trans.commit(cx).expect("a commit");
            model.agree(cx);
        }
        assert_eq!(runs(&model.files[0], 0, 9).len(), 1, "the blocks lie together");
    });
}
