//! A large directory that is built in memory, name by name, as mkfs.xfs builds one: what unused
//! bytes hold is the same, too.
//!
//! Source: images of mkfs.xfs 7.2.

use base::Ino;

use super::Name;
use super::data::{Frame, Ranges};
use super::leaf::leaf_insert;
use super::{entries, free};
use crate::dir::space_start;
use crate::format::da::{self, Child, NODE_HEADER, Siblings};
use crate::format::dir::{
    BestFree, DATA_HEADER, DataBlock, LEAF_ENTRY, LeafEntry, Leaves, best_free, entry_size,
    set_best_free, set_unused,
};
use crate::format::dir_index::{LEAF_HEADER, emit_free, emit_leaf, free_max};
use crate::format::{At, Geometry, Kind, put_u16, put_u32, u16_at};

/// The blocks of a directory that has data blocks and one leaf, or a tree of leaves below one node.
pub(crate) struct FreshDir {
    geometry: Geometry,
    at: At,
    data: Vec<Vec<u8>>,
    /// The leaf; or the node, and the leaves.
    index: Vec<Vec<u8>>,
    /// Rooms of data blocks, where there is a tree.
    free: Option<Vec<u8>>,
}

/// Takes space for the directory block that begins at this block of the fork; false if there is
/// none.
pub(crate) type Grow<'g> = &'g mut dyn FnMut(u64) -> bool;

fn leaf_count(leaf: &[u8]) -> usize {
    usize::from(u16_at(leaf, 56))
}

fn entries_of(leaf: &[u8]) -> Leaves<'_> {
    Leaves::new(&leaf[LEAF_HEADER..][..LEAF_ENTRY * leaf_count(leaf)])
}

impl FreshDir {
    /// Goes on from a directory of one block, which becomes a data block. None without space.
    pub fn from_block(
        geometry: &Geometry,
        ino: Ino,
        mut block: Vec<u8>,
        grow: Grow<'_>,
    ) -> Option<FreshDir> {
        let (at, ftype) = (At::Inode(ino), geometry.features.ftype());
        let view = DataBlock::new(Kind::DirBlock, &block, ftype, at).expect("a valid block");
        let (end, live) = (view.end(), entries::live(view.index()));
        if !grow(space_start(geometry, 1)) {
            return None;
        }
        let frame = Frame { kind: Kind::DirData, ftype, at };
        let len = block.len() - end;
        put_u32(&mut block, 0, Kind::DirData.magic());
        frame.give(&mut block, end, len, &mut Ranges::new()).expect("a valid block");
        let mut leaf = vec![0; block.len()];
        emit_leaf(&mut leaf, &live, Some(&[best_free(&block)[0].len]));
        let (data, index) = (vec![block], vec![leaf]);
        Some(FreshDir { geometry: geometry.clone(), at, data, index, free: None })
    }

    fn block_bytes(&self) -> usize {
        self.geometry.dir_block_size as usize
    }

    fn leaf_max(&self) -> usize {
        (self.block_bytes() - LEAF_HEADER) / LEAF_ENTRY
    }

    fn offset(&self, space: usize, number: usize) -> u64 {
        space_start(&self.geometry, space) + (number as u64) * u64::from(self.geometry.dir_blocks())
    }

    /// The blocks with their kinds and places in the fork; self-descriptions are left out.
    pub fn all_blocks(&self) -> Vec<(u64, Kind, &[u8])> {
        let data = self.data.iter().enumerate();
        let mut list: Vec<_> =
            data.map(|(number, data)| (self.offset(0, number), Kind::DirData, &data[..])).collect();
        for (number, data) in self.index.iter().enumerate() {
            let kind = match (number, self.index.len(), &self.free) {
                (0, 1, None) => Kind::DirLeaf1,
                (0, 2.., _) => Kind::DaNode,
                _ => Kind::DirLeafN,
            };
            list.push((self.offset(1, number), kind, data));
        }
        if let Some(free) = &self.free {
            list.push((free::place(&self.geometry, 0), Kind::DirFree, free));
        }
        list
    }

    /// Bytes of all data blocks.
    pub fn data_bytes(&self) -> u64 {
        (self.data.len() * self.block_bytes()) as u64
    }

    /// Adds a name. None without space, or if the tree would need a level more.
    pub fn name_file(&mut self, name: Name<'_>, grow: Grow<'_>) -> Option<()> {
        let size = entry_size(name.name.len(), self.geometry.features.ftype());
        let room = self.data.iter().position(|data| usize::from(best_free(data)[0].len) >= size);
        let bests = self.data.len() + usize::from(room.is_none());
        let leaf_end =
            |count: usize| LEAF_HEADER + LEAF_ENTRY * (count + 1) + 4 + size_of::<u16>() * bests;
        if self.free.is_none() && leaf_end(leaf_count(&self.index[0])) > self.block_bytes() {
            self.grow_tree(grow)?;
        }
        let address = self.put_name_in(name, room, grow)?;
        let entry = LeafEntry { hash: self.geometry.features.case().hash(name.name), address };
        let bests: Vec<u16> = self.data.iter().map(|data| best_free(data)[0].len).collect();
        match &mut self.free {
            None => {
                let leaf = &mut self.index[0];
                leaf_insert(leaf, entry, 0);
                let end = leaf.len();
                put_u32(leaf, end - 4, bests.len() as u32);
                for (index, &best) in bests.iter().rev().enumerate() {
                    put_u16(leaf, end - 6 - 2 * index, best);
                }
                Some(())
            }
            Some(free) => {
                if bests.len() > free_max(free.len()) {
                    return None;
                }
                emit_free(free, 0, &bests);
                self.insert_hash(entry, grow)
            }
        }
    }

    /// The leaf becomes the only one of a tree.
    fn grow_tree(&mut self, grow: Grow<'_>) -> Option<()> {
        grow(self.offset(2, 0)).then_some(())?;
        self.free = Some(vec![0; self.block_bytes()]);
        Some(())
    }

    /// Puts a name into data block `room`, or a new one: its address.
    fn put_name_in(&mut self, name: Name<'_>, room: Option<usize>, grow: Grow<'_>) -> Option<u32> {
        let (size, ftype) = (self.block_bytes(), self.geometry.features.ftype());
        let number = room.unwrap_or(self.data.len());
        if room.is_none() {
            grow(self.offset(0, number)).then_some(())?;
            let mut data = vec![0; size];
            let len = size - DATA_HEADER;
            set_unused(&mut data, DATA_HEADER, len);
            let all = BestFree { offset: DATA_HEADER as u16, len: len as u16 };
            set_best_free(&mut data, &[all, BestFree::default(), BestFree::default()]);
            self.data.push(data);
        }
        let frame = Frame { kind: Kind::DirData, ftype, at: self.at };
        let data = &mut self.data[number];
        let place = usize::from(best_free(data)[0].offset);
        // Bytes between the name and the tag stay as they are.
        let used = 9 + name.name.len() + usize::from(ftype);
        let gap = place + used..place + entry_size(name.name.len(), ftype) - 2;
        let kept = data[gap.clone()].to_vec();
        frame.put(data, place, name, &mut Ranges::new()).expect("a block with room");
        data[gap].copy_from_slice(&kept);
        Some(((number * size + place) >> 3) as u32)
    }

    /// Puts an entry into its leaf.
    fn insert_hash(&mut self, entry: LeafEntry, grow: Grow<'_>) -> Option<()> {
        let children = self.children();
        let found = children.iter().position(|child| child.hash >= entry.hash);
        let place = found.unwrap_or(children.len().saturating_sub(1));
        let mut number = match children.get(place) {
            Some(child) => self.number_of(child.block),
            None => 0,
        };
        let old = number;
        let split = match leaf_count(&self.index[number]) == self.leaf_max() {
            true => Some(self.split_index(number, entry.hash, grow)?),
            false => None,
        };
        if let Some((new, true)) = split {
            number = new;
        }
        leaf_insert(&mut self.index[number], entry, 0);
        match split {
            Some((new, _)) if children.is_empty() => self.raise_root(new, grow)?,
            Some((new, _)) => {
                let mut children = children;
                children[place].hash = self.last_hash(old);
                children.insert(place + 1, self.child(new));
                if children.len() > da::node_max(self.block_bytes()) {
                    return None;
                }
                da::emit_node(&mut self.index[0], 1, &children);
            }
            None if !children.is_empty() => {
                let mut children = children;
                children[place].hash = self.last_hash(number);
                da::emit_node(&mut self.index[0], 1, &children);
            }
            None => {}
        }
        Some(())
    }

    fn last_hash(&self, number: usize) -> u32 {
        let entries = entries_of(&self.index[number]);
        entries.get(entries.len() - 1).hash
    }

    fn child(&self, number: usize) -> Child {
        Child { hash: self.last_hash(number), block: self.offset(1, number) as u32 }
    }

    /// The number of the index block at a block of the fork.
    fn number_of(&self, block: u32) -> usize {
        let blocks = u64::from(block) - space_start(&self.geometry, 1);
        (blocks / u64::from(self.geometry.dir_blocks())) as usize
    }

    fn children(&self) -> Vec<Child> {
        if self.index.len() == 1 {
            return Vec::new();
        }
        let node = da::DaNode::parse_trusted(&self.index[0], self.at).expect("a valid node");
        (0..node.len()).map(|index| node.child(index)).collect()
    }

    /// Moves the upper half of a leaf to a new one: its number, and whether the hash goes there.
    fn split_index(&mut self, number: usize, hash: u32, grow: Grow<'_>) -> Option<(usize, bool)> {
        let new = self.index.len();
        grow(self.offset(1, new)).then_some(())?;
        let list: Vec<LeafEntry> = entries_of(&self.index[number]).iter().collect();
        let middle = list.len() / 2;
        let right = hash > list[middle].hash;
        let kept = middle;
        let mut leaf = vec![0; self.block_bytes()];
        emit_leaf(&mut leaf, &list[kept..], None);
        put_u16(&mut self.index[number], 56, kept as u16);
        let [old, own] = [number, new].map(|number| self.offset(1, number) as u32);
        let beyond = da::siblings(&self.index[number]);
        da::set_siblings(&mut leaf, Siblings { left: old, right: beyond.right });
        da::set_siblings(&mut self.index[number], Siblings { right: own, ..beyond });
        if beyond.right != 0 {
            let right = self.number_of(beyond.right);
            let siblings = Siblings { left: own, ..da::siblings(&self.index[right]) };
            da::set_siblings(&mut self.index[right], siblings);
        }
        self.index.push(leaf);
        Some((new, right))
    }

    /// The first leaf moves to a block of its own, and where it was comes the node above.
    fn raise_root(&mut self, right: usize, grow: Grow<'_>) -> Option<()> {
        let new = self.index.len();
        grow(self.offset(1, new)).then_some(())?;
        let size = self.block_bytes();
        let root = &mut self.index[0];
        let used = LEAF_HEADER + LEAF_ENTRY * leaf_count(root);
        let mut leaf = vec![0; size];
        leaf[..used].copy_from_slice(&root[..used]);
        root[..NODE_HEADER].fill(0);
        self.index.push(leaf);
        let siblings = Siblings { left: self.offset(1, new) as u32, right: 0 };
        da::set_siblings(&mut self.index[right], siblings);
        let children = [new, right].map(|number| self.child(number));
        da::emit_node(&mut self.index[0], 1, &children);
        Some(())
    }
}
