//! Trees of small blocks, changed at random beside a `BTreeMap`, looked through after each round.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Rng, Sector};
use block::{Queue, QueueConfig};
use device::MemoryDevice;
use rt::{Cx, testing};

use super::key::{Order, of_block, record_order};
use super::{Frame, Record, Store, Tree};
use crate::buf::{BufCache, BufCacheConfig, BufMap};
use crate::error::{Result, XfsError};
use crate::format::record::{FreeExtent, RMAP_ATTR_FORK, RMAP_BMBT, Rmap};
use crate::format::{At, Expect, Kind, btree};
use crate::log::{Log, LogGeometry, LogHead, LogOptions};
use crate::trans::{LogReservation, Trans};

const BLOCK: usize = 512;
const UUID: [u8; 16] = [7; 16];

/// A tree on an empty device.
struct Lone {
    kind: Kind,
    root: (u64, u32),
    free: Vec<u64>,
    /// More blocks than these are refused.
    next: u64,
    end: u64,
    last: Option<Vec<u8>>,
    in_inode: Option<Vec<u8>>,
}

impl Store for Lone {
    fn kind(&self) -> Kind {
        self.kind
    }
    fn block_size(&self) -> usize {
        BLOCK
    }
    fn root(&self) -> (u64, u32) {
        self.root
    }
    fn set_root(&mut self, _: &mut Trans, block: u64, levels: u32) {
        self.root = (block, levels);
    }
    fn map(&self, block: u64) -> BufMap {
        BufMap { daddr: Sector(4096 + block), len: 1 }
    }
    fn expect(&self, block: u64) -> Expect {
        Expect { uuid: UUID, address: self.map(block).daddr, owner: Some(3), v4: false }
    }
    fn at(&self, block: u64) -> At {
        At::AgBlock(0, block as u32)
    }
    fn allocate(&mut self, _: &mut Cx, _: &mut Trans, _: u64) -> Result<u64> {
        if let Some(block) = self.free.pop() {
            return Ok(block);
        }
        if self.next == self.end {
            return Err(XfsError::NoSpace);
        }
        self.next += 1;
        Ok(self.next)
    }
    fn free(&mut self, _: &mut Cx, _: &mut Trans, block: u64) -> Result<()> {
        self.free.push(block);
        Ok(())
    }
    fn wants_last(&self) -> bool {
        true
    }
    fn last_changed(&mut self, _: &mut Trans, last: Option<&[u8]>) {
        self.last = last.map(<[u8]>::to_vec);
    }
    fn inode_root(&mut self) -> Option<&mut Vec<u8>> {
        self.in_inode.as_mut()
    }
}

fn log_on_memory(cx: &mut Cx) -> Arc<Log> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let queue = Queue::new(cx.runtime(), device, QueueConfig::default()).expect("a queue");
    let config = BufCacheConfig { uuid: UUID, v4: false, limit_bytes: 8 << 20 };
    let geometry = LogGeometry {
        start: Sector(0),
        blocks: 4096,
        stripe: 512,
        uuid: UUID,
        v4: false,
        newest: crate::format::log::Lsn::from_bits(0),
    };
    let start = crate::format::log::Lsn { cycle: 1, block: 0 };
    let head = LogHead { head: start, tail: start, previous: 0 };
    Log::start(cx, BufCache::new(queue, config), geometry, LogOptions::default(), head)
}

fn transaction(cx: &mut Cx, log: &Arc<Log>) -> Trans {
    Trans::alloc(cx, log, LogReservation::new(200 << 10)).expect("log space")
}

/// A tree whose root is an empty leaf, or an inode's fork above an empty leaf.
fn empty(cx: &mut Cx, trans: &mut Trans, kind: Kind) -> Lone {
    let in_inode = (kind == Kind::Bmap).then(|| vec![0; 4 + 16 * 3]);
    let mut lone =
        Lone { kind, root: (1, 1), free: vec![], next: 1, end: u64::MAX, last: None, in_inode };
    let buf = trans.get_buf(cx, &[lone.map(1)], super::key::ops(kind)).expect("a buffer");
    buf.zero();
    buf.with_mut(|data| btree::init(kind, data, 0, &lone.expect(1)));
    trans.log_buf(&buf, 0, BLOCK - 1);
    if let Some(root) = &mut lone.in_inode {
        btree::emit_root(root, 1, &[(0, 1)]);
        lone.root = (u64::MAX, 2);
    }
    lone
}

/// Looks at every block: fill, order, keys, neighbours. Returns the records.
fn look(cx: &mut Cx, trans: &mut Trans, store: &mut Lone) -> Vec<Record> {
    let mut tree = Tree::new(store);
    let root = tree.root(cx, trans).expect("the root");
    let mut levels: Vec<Vec<Frame>> = vec![vec![root.clone()]];
    for level in (0..root.level).rev() {
        let mut row = Vec::new();
        for parent in levels.last().expect("a row").clone() {
            for index in 0..tree.len(&parent) {
                let frame = Frame { index, ..parent.clone() };
                let child = tree.child(cx, trans, &frame).expect("a child");
                assert_eq!(child.level, level);
                let keys =
                    tree.with(&child, |layout, data| of_block(tree_kind(layout), layout, data));
                let known = tree.with(&frame, |layout, data| layout.entry(data, index).to_vec());
                let skip = tree.len(&child) == 0;
                assert!(skip || known == keys[..known.len()], "keys of block {}", child.block);
                row.push(child);
            }
        }
        levels.push(row);
    }
    let mut records = Vec::new();
    for row in levels {
        for (number, frame) in row.iter().enumerate() {
            let (len, min) = tree.with(frame, |layout, data| (layout.len(data), layout.min()));
            let alone = row.len() == 1;
            assert!(alone || len >= min, "level {}: {len} entries, {min} at least", frame.level);
            if frame.buf.is_some() {
                let before = number.checked_sub(1).map(|left| row[left].block);
                let behind = row.get(number + 1).map(|right| right.block);
                assert_eq!(tree.siblings(frame), (before, behind));
            }
            for index in (0..len).filter(|_| frame.level == 0) {
                let cursor =
                    super::Cursor { path: smallvec::smallvec![Frame { index, ..frame.clone() }] };
                records.push(tree.record(&cursor));
            }
        }
    }
    records
}

fn tree_kind(layout: &super::node::Layout) -> Kind {
    layout.shape.kind
}

/// A record of a kind, from a small world so that they meet.
fn draw(kind: Kind, rng: &mut Rng) -> Record {
    let mut record = [0; 24];
    let start = rng.below(9000) as u32;
    match kind {
        Kind::Rmap => {
            let flags = [0, RMAP_ATTR_FORK, RMAP_BMBT][rng.below(3) as usize];
            let (owner, offset) = (rng.below(5), rng.below(3) | flags);
            Rmap { start, len: 1 + rng.below(50) as u32, owner, offset }.write(&mut record);
        }
        Kind::Bmap => {
            let start_block = base::FsBlock(u64::from(start));
            let offset = rng.below(9000);
            let extent =
                crate::format::Extent { offset, start: start_block, count: 1, unwritten: false };
            extent.write(&mut record);
        }
        _ => FreeExtent { start, len: 1 + rng.below(9) as u32 }.write(&mut record),
    }
    record
}

fn round(
    cx: &mut Cx,
    log: &Arc<Log>,
    store: &mut Lone,
    known: &mut BTreeMap<Order, Record>,
    rng: &mut Rng,
    grow: u64,
) {
    let kind = store.kind;
    let mut trans = transaction(cx, log);
    for _ in 0..12 {
        let record = draw(kind, rng);
        let order = record_order(kind, &record);
        let mut tree = Tree::new(store);
        let found = tree.find(cx, &mut trans, order).expect("a lookup");
        assert_eq!(found.is_some(), known.contains_key(&order));
        let below = known.range(..=order).next_back();
        let le = tree.find_le(cx, &mut trans, order).expect("a lookup");
        assert_eq!(le.map(|at| tree.record(&at)), below.map(|(_, record)| *record));
        let above = known.range(order..).next();
        let ge = tree.find_ge(cx, &mut trans, order).expect("a lookup");
        assert_eq!(ge.clone().map(|at| tree.record(&at)), above.map(|(_, record)| *record));
        match found {
            None if rng.below(100) < grow => {
                tree.insert(cx, &mut trans, &record).expect("room");
                known.insert(order, record);
            }
            Some(cursor) if rng.below(2) == 0 => {
                tree.update(&mut trans, &cursor, &record);
                known.insert(order, record);
            }
            _ => {
                let Some(cursor) = ge.or(tree.find_le(cx, &mut trans, order).expect("a lookup"))
                else {
                    continue;
                };
                let gone = record_order(kind, &tree.record(&cursor));
                tree.delete(cx, &mut trans, cursor).expect("a record");
                known.remove(&gone);
            }
        }
    }
    let records = look(cx, &mut trans, store);
    assert_eq!(records, known.values().copied().collect::<Vec<_>>());
    if kind == Kind::FreeBySize {
        let last = known.values().next_back();
        let reported = store.last.as_ref().map(|last| &last[..8]);
        assert_eq!(reported, last.map(|record| &record[..8]), "the last record");
    }
    trans.commit(cx).expect("a commit");
}

/// Goal: trees of every kind stay whole while they grow to three levels and fall back to one.
/// Method: random changes beside a map, all blocks looked at after each transaction.
#[test]
fn trees_stay_whole_up_and_down() {
    let kinds = [Kind::FreeByBlock, Kind::FreeBySize, Kind::Rmap, Kind::Bmap];
    for (seed, kind) in kinds.into_iter().enumerate() {
        testing::world(|cx| {
            let log = log_on_memory(cx);
            let mut rng = Rng::new(seed as u64, 1);
            let mut trans = transaction(cx, &log);
            let mut store = empty(cx, &mut trans, kind);
            trans.commit(cx).expect("a commit");
            let mut known = BTreeMap::new();
            let mut highest = 0;
            let many = if kind == Kind::Rmap { 1 } else { 3 };
            for (rounds, grow) in [(100 * many, 97), (40, 50), (400, 5), (60, 95), (200, 0)] {
                for _ in 0..rounds {
                    round(cx, &log, &mut store, &mut known, &mut rng, grow);
                    highest = highest.max(store.root.1);
                }
            }
            assert!(highest >= 3, "{kind:?} reached {highest} levels only");
            assert!(known.len() < 30, "{} records left", known.len());
            let lowest = if kind == Kind::Bmap { 2 } else { 1 };
            assert_eq!(store.root.1, lowest, "{kind:?} did not fall back");
            let used = store.next - store.free.len() as u64;
            assert_eq!(used, 1, "blocks in use");
            log.unmount(cx).expect("an unmount");
        });
    }
}

/// Goal: an insertion without space leaves a tree that is whole. Method: blocks run out at every
/// possible number.
#[test]
fn a_tree_without_space_stays_whole() {
    for end in 1..40 {
        testing::world(|cx| {
            let log = log_on_memory(cx);
            let mut rng = Rng::new(end, 2);
            let mut trans = transaction(cx, &log);
            let mut store = empty(cx, &mut trans, Kind::Rmap);
            store.end = end;
            let mut known = BTreeMap::new();
            loop {
                let record = draw(Kind::Rmap, &mut rng);
                let order = record_order(Kind::Rmap, &record);
                if known.contains_key(&order) {
                    continue;
                }
                match Tree::new(&mut store).insert(cx, &mut trans, &record) {
                    Ok(()) => known.insert(order, record),
                    Err(XfsError::NoSpace) => break,
                    Err(error) => panic!("{error}"),
                };
                trans.commit(cx).expect("a commit");
                trans = transaction(cx, &log);
            }
            let records = look(cx, &mut trans, &mut store);
            assert_eq!(records, known.values().copied().collect::<Vec<_>>());
            trans.commit(cx).expect("a commit");
            log.abandon(cx);
        });
    }
}
