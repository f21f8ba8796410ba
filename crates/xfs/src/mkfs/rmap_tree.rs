//! The reverse map of a group that mkfs fills: a tree that grows as mkfs.xfs lets it grow.
//!
//! Blocks keep the bytes of records that were moved to others, as its do: images are compared byte
//! by byte.
//!
//! Source: images of mkfs.xfs 7.2.

use std::collections::{BTreeMap, VecDeque};

use crate::btree::key::{of_block, order, record_order};
use crate::btree::node::Layout;
use crate::format::record::Rmap;
use crate::format::{AgBlock, Geometry, Kind, NULL32, btree, u16_at, u32_at, verifier};

/// Blocks of the free list that a tree may take, the first one next.
pub(super) type FreeList = VecDeque<u32>;

/// Where a block has its level.
const LEVEL: usize = 4;

/// The tree, by the numbers of its blocks in the group.
pub(super) struct RmapTree {
    geometry: Geometry,
    ag: u32,
    root: u32,
    /// Levels with the root's.
    pub levels: u32,
    blocks: BTreeMap<u32, Vec<u8>>,
    /// The node above each block but the root.
    parents: BTreeMap<u32, u32>,
    /// Blocks that have changed since the keys above them were made.
    changed: Vec<u32>,
}

/// A place in a block.
#[derive(Clone, Copy)]
struct Place {
    block: u32,
    index: usize,
}

fn record_bytes(record: Rmap) -> [u8; 24] {
    let mut data = [0; 24];
    record.write(&mut data);
    data
}

impl RmapTree {
    /// A tree of one block, its records in order.
    pub fn with_records(geometry: &Geometry, place: AgBlock, records: &[Rmap]) -> RmapTree {
        let root = place.block;
        let mut tree = RmapTree {
            geometry: geometry.clone(),
            ag: place.ag,
            root,
            levels: 1,
            blocks: BTreeMap::new(),
            parents: BTreeMap::new(),
            changed: Vec::new(),
        };
        tree.make_block(root, 0);
        let layout = tree.layout(0);
        let data = tree.blocks.get_mut(&root).expect("just made");
        for (index, &record) in records.iter().enumerate() {
            layout.insert(data, index, &record_bytes(record), 0);
        }
        tree
    }

    pub fn top_block(&self) -> u32 {
        self.root
    }

    /// Blocks of the tree.
    pub fn tree_len(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Numbers of its blocks.
    pub fn block_numbers(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.blocks.keys().copied()
    }

    /// Writes a block as it will lie on the disk.
    pub fn write_block(&self, block: u32, data: &mut [u8]) {
        data.copy_from_slice(self.data(block));
        verifier::update_lsn_crc(Kind::Rmap, data, 0);
    }

    fn layout(&self, level: u32) -> Layout {
        let shape = btree::Shape::of(Kind::Rmap);
        Layout::block(shape, self.geometry.block_size as usize, level as u16)
    }

    fn make_block(&mut self, block: u32, level: u32) {
        let mut data = vec![0; self.geometry.block_size as usize];
        let expect = self.geometry.expect_ag(AgBlock { ag: self.ag, block });
        btree::init(Kind::Rmap, &mut data, level as u16, &expect);
        self.blocks.insert(block, data);
    }

    fn data(&self, block: u32) -> &Vec<u8> {
        &self.blocks[&block]
    }

    /// A block whose records change, or a node's entries.
    fn data_mut(&mut self, block: u32) -> &mut Vec<u8> {
        if self.changed.last() != Some(&block) {
            self.changed.push(block);
        }
        self.blocks.get_mut(&block).expect("a block of the tree")
    }

    fn siblings(&self, block: u32) -> [Option<u32>; 2] {
        [8, 12].map(|at| Some(u32_at(self.data(block), at)).filter(|&block| block != NULL32))
    }

    fn set_siblings(&mut self, block: u32, [left, right]: [Option<u32>; 2]) {
        let [left, right] = [left, right].map(|block| block.map(u64::from));
        btree::set_siblings(Kind::Rmap, self.data_mut(block), left, right);
    }

    /// The way to where a record belongs, the leaf first: how many entries of the leaf are not
    /// above it, and which child is taken above.
    fn descend(&self, record: &Rmap) -> Vec<Place> {
        let wanted = record_order(Kind::Rmap, &record_bytes(*record));
        let mut path = Vec::new();
        let mut block = self.root;
        for level in (0..self.levels).rev() {
            let (layout, data) = (self.layout(level), self.data(block));
            let before = |entry: &[u8]| order(Kind::Rmap, level as u16, entry) <= wanted;
            let count = layout.partition(data, before);
            let index = if level == 0 { count } else { count.saturating_sub(1) };
            path.insert(0, Place { block, index });
            if level > 0 {
                block = layout.pointer(data, index) as u32;
            }
        }
        path
    }

    /// Notes which node is above the blocks that an entry of it leads to, for all of its entries.
    fn adopt(&mut self, node: u32, level: u32) {
        if level == 0 {
            return;
        }
        let (layout, data) = (self.layout(level), &self.blocks[&node]);
        for index in 0..layout.len(data) {
            self.parents.insert(layout.pointer(data, index) as u32, node);
        }
    }

    /// Brings the keys of all nodes above blocks that have changed in line with them.
    fn refresh(&mut self) {
        for mut block in std::mem::take(&mut self.changed) {
            let mut level = u32::from(u16_at(self.data(block), LEVEL));
            while let Some(&above) = self.parents.get(&block) {
                let (layout, below) = (self.layout(level + 1), self.layout(level));
                let keys = of_block(Kind::Rmap, &below, self.data(block));
                let data = self.blocks.get_mut(&above).expect("a block of the tree");
                let mut places = 0..layout.len(data);
                let index = places.find(|&index| layout.pointer(data, index) as u32 == block);
                layout.replace(data, index.expect("a child of the node"), &keys);
                (block, level) = (above, level + 1);
            }
        }
    }

    /// Notes an owner of blocks; neighbours of one owner that continue each other are one record.
    pub fn note_owner(&mut self, new: Rmap, list: &mut FreeList) {
        let (layout, path) = (self.layout(0), self.descend(&new));
        let Place { block, index } = path[0];
        let at = |index: usize| {
            let data = self.data(block);
            (index < layout.len(data)).then(|| Rmap::read(layout.entry(data, index)))
        };
        let left = index.checked_sub(1).and_then(at).filter(|left| left.is_continued_by(&new));
        let right = at(index).filter(|right| new.is_continued_by(right));
        match (left, right) {
            (Some(left), right) => {
                let len = left.len + new.len + right.map_or(0, |right| right.len);
                let data = self.data_mut(block);
                if right.is_some() {
                    layout.remove(data, index, 1);
                }
                layout.replace(data, index - 1, &record_bytes(Rmap { len, ..left }));
            }
            (None, Some(right)) => {
                let record = Rmap { len: new.len + right.len, ..new };
                layout.replace(self.data_mut(block), index, &record_bytes(record));
            }
            (None, None) => self.insert_entry(&path, 0, &record_bytes(new), 0, list),
        }
        self.refresh();
    }

    /// Puts an entry into the block of a way at `level`.
    fn insert_entry(
        &mut self,
        path: &[Place],
        level: usize,
        entry: &[u8],
        child: u32,
        list: &mut FreeList,
    ) {
        let layout = self.layout(level as u32);
        let Place { block, index } = path[level];
        let (place, split) = match layout.len(self.data(block)) < layout.max {
            true => (path[level], None),
            false => self.spare_place(block, index, level as u32, list),
        };
        layout.insert(self.data_mut(place.block), place.index, entry, u64::from(child));
        self.adopt(place.block, level as u32);
        let Some(right) = split else { return };
        if path.len() > level + 1 {
            let mut above = path.to_vec();
            above[level + 1].index += 1;
            let keys = of_block(Kind::Rmap, &layout, self.data(right));
            self.refresh();
            self.insert_entry(&above, level + 1, &keys, right, list);
            return;
        }
        let root = list.pop_front().expect("the free list is long enough");
        self.make_block(root, self.levels);
        let above = self.layout(self.levels);
        for (index, child) in [block, right].into_iter().enumerate() {
            let keys = of_block(Kind::Rmap, &layout, self.data(child));
            above.insert(self.data_mut(root), index, &keys, u64::from(child));
        }
        self.adopt(root, self.levels);
        (self.root, self.levels) = (root, self.levels + 1);
    }

    /// Makes room in a full block: gives a record to the neighbour on the right, or on the left,
    /// or half of them to a new block on the right, which is returned. An entry that would itself
    /// be the one to move stays. Returns where the new entry belongs then.
    fn spare_place(
        &mut self,
        block: u32,
        index: usize,
        level: u32,
        list: &mut FreeList,
    ) -> (Place, Option<u32>) {
        let layout = self.layout(level);
        let max = layout.max;
        let [left, right] = self.siblings(block);
        let has_room = |tree: &RmapTree, block: &u32| layout.len(tree.data(*block)) < max;
        if let Some(right) = right.filter(|right| index + 1 < max && has_room(self, right)) {
            let moved = layout.take(self.data(block), max - 1, max);
            layout.put(self.data_mut(right), 0, &moved);
            self.adopt(right, level);
            layout.remove(self.data_mut(block), max - 1, 1);
            return (Place { block, index }, None);
        }
        if let Some(left) = left.filter(|left| index > 0 && has_room(self, left)) {
            let moved = layout.take(self.data(block), 0, 1);
            let end = layout.len(self.data(left));
            layout.put(self.data_mut(left), end, &moved);
            self.adopt(left, level);
            layout.remove(self.data_mut(block), 0, 1);
            return (Place { block, index: index - 1 }, None);
        }
        let new = list.pop_front().expect("the free list is long enough");
        self.make_block(new, level);
        let odd = max % 2 == 1 && index <= max / 2;
        let kept = max - max / 2 - usize::from(odd);
        let moved = layout.take(self.data(block), kept, max);
        layout.put(self.data_mut(new), 0, &moved);
        self.adopt(new, level);
        layout.remove(self.data_mut(block), kept, max - kept);
        self.set_siblings(new, [Some(block), right]);
        self.set_siblings(block, [left, Some(new)]);
        if let Some(right) = right {
            let beyond = self.siblings(right)[1];
            self.set_siblings(right, [Some(new), beyond]);
        }
        let place = match index > kept {
            true => Place { block: new, index: index - kept },
            false => Place { block, index },
        };
        (place, Some(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::At;
    use crate::mkfs::{MkfsOptions, Surroundings, plan};

    impl RmapTree {
        /// The records below a block; the keys of nodes must say what they are.
        fn records(&self, block: u32, level: u32) -> Vec<Rmap> {
            let (layout, data) = (self.layout(level), self.data(block));
            let entries = 0..layout.len(data);
            if level == 0 {
                return entries.map(|index| Rmap::read(layout.entry(data, index))).collect();
            }
            let below = self.layout(level - 1);
            let child = |index| {
                let child = layout.pointer(data, index) as u32;
                let keys = of_block(Kind::Rmap, &below, self.data(child));
                assert_eq!(layout.entry(data, index), &keys[..], "{block}, {index}");
                self.records(child, level - 1)
            };
            entries.flat_map(child).collect()
        }
    }

    #[test]
    fn keys_say_what_lies_below_them() {
        let options = MkfsOptions { block_size: 1024, ..MkfsOptions::default() };
        let (device_bytes, uuid, generation) = (1 << 30, [1; 16], 1);
        let around =
            Surroundings { device_bytes, now: base::Timespec::default(), uuid, generation };
        let head = plan(&options, &around).expect("possible").head;
        let geometry = Geometry::parse(&head, At::Super(0)).expect("a superblock");
        let mut tree = RmapTree::with_records(&geometry, AgBlock { ag: 0, block: 7 }, &[]);
        let mut list: FreeList = (100..4000).collect();
        let mut rng = base::Rng::new(1, 0);
        let mut starts: Vec<u32> = (0..20_000).map(|number| 10_000 + number * 3).collect();
        rng.shuffle(&mut starts);
        for (number, &start) in starts.iter().enumerate() {
            let record = Rmap { start, len: 1, owner: u64::from(start) + 1000, offset: 0 };
            tree.note_owner(record, &mut list);
            if number % 1000 == 999 {
                assert_eq!(tree.records(tree.root, tree.levels - 1).len(), number + 1);
            }
        }
        assert!(tree.levels > 2);
    }
}
