//! Blocks of the btrees: six kinds in each allocation group (short form, 32-bit pointers); the
//! block maps of files and two kinds in each group of the realtime section (long form, 64-bit
//! pointers).
//!
//! A leaf holds records, a node the lowest key and a pointer for each child, keys first, pointers
//! from a fixed place on. The reverse mapping tree's ranges may overlap, so its nodes hold the
//! highest key of each child as well. Source: "XFS Algorithms and Data Structures".

use std::collections::BTreeMap;

use super::{
    At, Corrupt, CorruptKind, Expect, Kind, NULL32, NULL64, put_u16, put_u32, put_u64, u16_at,
    u32_at, u64_at, verifier,
};

/// Bytes of the header of short-form blocks.
pub const SHORT_HEADER: usize = 56;
/// Bytes of the header of long-form blocks.
pub const LONG_HEADER: usize = 72;
/// Bytes of the header of a root in its inode.
pub const ROOT_HEADER: usize = 4;

/// What the blocks of one kind of tree look like. Sizes are bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The kind of block.
    pub kind: Kind,
    /// Header: 56 or 72, in version 4 16 or 24.
    pub header: usize,
    /// Record of a leaf.
    pub record: usize,
    /// Key of a node; the reverse mapping tree has two per child.
    pub key: usize,
    /// Keys per child: 1, or 2 where ranges overlap.
    pub keys: usize,
    /// Pointer: 4 or 8.
    pub pointer: usize,
}

impl Shape {
    /// The shape of a kind of btree.
    ///
    /// # Panics
    /// If the kind is no btree.
    pub const fn of(kind: Kind) -> Shape {
        let (record, key, keys) = match kind {
            Kind::FreeByBlock | Kind::FreeBySize => (8, 8, 1),
            Kind::Inobt | Kind::Finobt => (16, 4, 1),
            Kind::Rmap | Kind::RealtimeRmap => (24, 20, 2),
            Kind::Refcount | Kind::RealtimeRefcount => (12, 4, 1),
            Kind::Bmap => (16, 8, 1),
            _ => panic!("not a btree"),
        };
        let long = matches!(kind, Kind::Bmap | Kind::RealtimeRmap | Kind::RealtimeRefcount);
        let (header, pointer) = if long { (LONG_HEADER, 8) } else { (SHORT_HEADER, 4) };
        Shape { kind, header, record, key, keys, pointer }
    }

    /// Room for records (level 0) or children (above) in a block of `block_size` bytes.
    pub const fn max(&self, block_size: usize, level: u16) -> usize {
        let room = block_size - self.header;
        if level == 0 { room / self.record } else { room / self.child() }
    }

    /// The fewest records or children of a block that is not the root.
    pub const fn min(&self, block_size: usize, level: u16) -> usize {
        self.max(block_size, level) / 2
    }

    /// Bytes of a child's keys and pointer.
    pub const fn child(&self) -> usize {
        self.key * self.keys + self.pointer
    }

    /// Where record `index` of a leaf lies.
    pub const fn record_at(&self, index: usize) -> usize {
        self.header + index * self.record
    }

    /// Where the keys of child `index` lie, the lowest one first.
    pub const fn key_at(&self, index: usize) -> usize {
        self.header + index * self.key * self.keys
    }

    /// Where the pointer of child `index` lies.
    pub const fn pointer_at(&self, block_size: usize, index: usize) -> usize {
        let max = self.max(block_size, 1);
        self.header + max * self.key * self.keys + index * self.pointer
    }

    /// Room for records (level 0) or children (above) in a root of `fork` bytes in an inode. Of
    /// reference counts the format leaves room for two keys per child, and uses one.
    pub const fn root_max(&self, fork: usize, level: u16) -> usize {
        let room = fork.saturating_sub(ROOT_HEADER);
        match (level, self.kind) {
            (0, _) => room / self.record,
            (_, Kind::RealtimeRefcount) => room / (2 * self.key + self.pointer),
            _ => room / self.child(),
        }
    }

    /// Whether blocks point with 64 bits.
    pub const fn is_long(&self) -> bool {
        self.pointer == 8
    }
}

/// A valid btree block.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    /// What it looks like.
    pub shape: Shape,
    /// Distance from the leaves.
    pub level: u16,
    count: u16,
    data: &'a [u8],
}

impl<'a> Node<'a> {
    /// The block of `data`, all of whose self-description, level and count are checked. Where
    /// `level` is None any level will do.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(
        kind: Kind,
        data: &'a [u8],
        level: Option<u16>,
        expect: &Expect,
        at: At,
    ) -> Result<Node<'a>, Corrupt> {
        verifier::verify(kind, data, expect, at)?;
        Node::parse_trusted(kind, data, level, at)
    }

    /// The block of `data`, whose self-description was checked when it was read.
    ///
    /// # Errors
    /// [`CorruptKind::BtreeLevel`], [`CorruptKind::BtreeCount`].
    pub fn parse_trusted(
        kind: Kind,
        data: &'a [u8],
        level: Option<u16>,
        at: At,
    ) -> Result<Node<'a>, Corrupt> {
        let shape = Shape { header: kind.header(data, Shape::of(kind).header), ..Shape::of(kind) };
        let (found, count) = (u16_at(data, 4), u16_at(data, 6));
        let what = kind.name();
        if let Some(expected) = level
            && found != expected
        {
            return Err(CorruptKind::BtreeLevel { what, found, expected }.at(at));
        }
        let limit = shape.max(data.len(), found) as u16;
        if count > limit || (count == 0 && found > 0) {
            return Err(CorruptKind::BtreeCount { what, found: count, limit }.at(at));
        }
        Ok(Node { shape, level: found, count, data })
    }

    /// Number of records or children.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// True for a leaf without records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Record `index` of a leaf.
    pub fn record(&self, index: usize) -> &'a [u8] {
        assert!(index < self.len() && self.level == 0, "record {index} of {}", self.count);
        &self.data[self.shape.record_at(index)..][..self.shape.record]
    }

    /// The lowest key of child `index`.
    pub fn key(&self, index: usize) -> &'a [u8] {
        assert!(index < self.len() && self.level > 0, "key {index} of {}", self.count);
        &self.data[self.shape.key_at(index)..][..self.shape.key]
    }

    /// The highest key of child `index`, where ranges overlap.
    pub fn high_key(&self, index: usize) -> Option<&'a [u8]> {
        assert!(index < self.len() && self.level > 0, "key {index} of {}", self.count);
        let at = self.shape.key_at(index) + self.shape.key;
        (self.shape.keys == 2).then(|| &self.data[at..][..self.shape.key])
    }

    /// The pointer of child `index`: a block of the group, or of the file system.
    pub fn pointer(&self, index: usize) -> u64 {
        assert!(index < self.len() && self.level > 0, "pointer {index} of {}", self.count);
        let at = self.shape.pointer_at(self.data.len(), index);
        if self.shape.is_long() { u64_at(self.data, at) } else { u64::from(u32_at(self.data, at)) }
    }

    /// The blocks on its left and right at the same level.
    pub fn siblings(&self) -> (Option<u64>, Option<u64>) {
        if self.shape.is_long() {
            let some = |at| Some(u64_at(self.data, at)).filter(|&block| block != NULL64);
            return (some(8), some(16));
        }
        let some = |at| Some(u32_at(self.data, at)).filter(|&block| block != NULL32);
        (some(8).map(u64::from), some(12).map(u64::from))
    }
}

/// Compares what blocks of a tree say of their siblings, while they are met from left to right.
#[derive(Default)]
pub struct Neighbours {
    /// The last block of each level, and what it says of the next.
    last: BTreeMap<u16, (u64, Option<u64>)>,
}

impl Neighbours {
    /// Takes the next block of its level: what is wrong with its neighbour on the left, in words.
    pub fn next(&mut self, block: u64, node: &Node<'_>) -> Option<String> {
        let (left, right) = node.siblings();
        let before = self.last.insert(node.level, (block, right));
        let expected = before.map(|(block, _)| block);
        let agrees = before.is_none_or(|(_, right)| right == Some(block));
        let wrong = left != expected || !agrees;
        wrong.then(|| format!("left neighbour {left:?} should be {expected:?}"))
    }

    /// A last block of its level that says that another one follows.
    pub fn dangling(&self) -> Option<u64> {
        self.last.values().find_map(|&(block, right)| right.map(|_| block))
    }
}

/// Writes the header of a block without records or siblings; the checksum is left to
/// `update_lsn_crc`.
pub fn init(kind: Kind, data: &mut [u8], level: u16, expect: &Expect) {
    data[..Shape::of(kind).header].fill(0);
    verifier::stamp(kind, data, expect);
    put_u16(data, 4, level);
    set_siblings(kind, data, None, None);
}

/// Stores the number of records or children.
pub fn set_len(data: &mut [u8], count: usize) {
    put_u16(data, 6, count as u16);
}

/// Stores the blocks on the left and on the right.
pub fn set_siblings(kind: Kind, data: &mut [u8], left: Option<u64>, right: Option<u64>) {
    if Shape::of(kind).is_long() {
        put_u64(data, 8, left.unwrap_or(NULL64));
        put_u64(data, 16, right.unwrap_or(NULL64));
    } else {
        put_u32(data, 8, left.map_or(NULL32, |block| block as u32));
        put_u32(data, 12, right.map_or(NULL32, |block| block as u32));
    }
}

/// Stores the pointer of child `index`.
pub fn set_pointer(kind: Kind, data: &mut [u8], index: usize, block: u64) {
    let shape = Shape::of(kind);
    let at = shape.pointer_at(data.len(), index);
    if shape.is_long() { put_u64(data, at, block) } else { put_u32(data, at, block as u32) }
}

/// The root of a file's block map, as it lies in the inode: level, count, keys, pointers.
#[derive(Clone, Copy)]
pub struct MapRoot<'a> {
    /// Distance from the leaves, at least 1.
    pub level: u16,
    count: u16,
    data: &'a [u8],
}

/// Room for children in a root of `fork` bytes.
pub fn root_max(fork: usize) -> usize {
    fork.saturating_sub(ROOT_HEADER) / 16
}

impl<'a> MapRoot<'a> {
    /// The root in the fork `data`.
    ///
    /// # Errors
    /// [`CorruptKind::BtreeRootLevel`], [`CorruptKind::BtreeCount`].
    pub fn parse(data: &'a [u8], at: At) -> Result<MapRoot<'a>, Corrupt> {
        let what = "block map root";
        if data.len() < ROOT_HEADER + 16 {
            return Err(CorruptKind::Short { what, bytes: data.len() }.at(at));
        }
        let (level, count) = (u16_at(data, 0), u16_at(data, 2));
        if level == 0 || u32::from(level) > super::ag::LEVELS_MAX {
            return Err(CorruptKind::BtreeRootLevel(level).at(at));
        }
        let limit = root_max(data.len()) as u16;
        if count == 0 || count > limit {
            return Err(CorruptKind::BtreeCount { what, found: count, limit }.at(at));
        }
        Ok(MapRoot { level, count, data })
    }

    /// Number of children, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a root is never empty")]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// The first file block of child `index`.
    pub fn key(&self, index: usize) -> u64 {
        assert!(index < self.len(), "key {index} of {}", self.count);
        u64_at(self.data, ROOT_HEADER + 8 * index)
    }

    /// The block of child `index`.
    pub fn pointer(&self, index: usize) -> u64 {
        assert!(index < self.len(), "pointer {index} of {}", self.count);
        u64_at(self.data, ROOT_HEADER + 8 * root_max(self.data.len()) + 8 * index)
    }
}

/// Writes a root with these children into the fork `data`.
///
/// # Panics
/// If they do not fit.
pub fn emit_root(data: &mut [u8], level: u16, children: &[(u64, u64)]) {
    let max = root_max(data.len());
    assert!(children.len() <= max, "{} children in a root for {max}", children.len());
    put_u16(data, 0, level);
    put_u16(data, 2, children.len() as u16);
    for (index, &(key, pointer)) in children.iter().enumerate() {
        put_u64(data, ROOT_HEADER + 8 * index, key);
        put_u64(data, ROOT_HEADER + 8 * max + 8 * index, pointer);
    }
}

#[cfg(test)]
mod tests {
    use base::Sector;

    use super::*;

    #[test]
    fn blocks_hold_as_many_records_as_the_document_says() {
        assert_eq!(Shape::of(Kind::FreeByBlock).max(4096, 0), 505);
        assert_eq!(Shape::of(Kind::FreeByBlock).max(4096, 1), 336);
        assert_eq!(Shape::of(Kind::Inobt).max(4096, 0), 252);
        assert_eq!(Shape::of(Kind::Inobt).max(4096, 1), 505);
        assert_eq!(Shape::of(Kind::Rmap).max(4096, 0), 168);
        assert_eq!(Shape::of(Kind::Rmap).max(4096, 1), 91);
        assert_eq!(Shape::of(Kind::Refcount).max(4096, 0), 336);
        assert_eq!(Shape::of(Kind::Bmap).max(4096, 0), 251);
        assert_eq!(Shape::of(Kind::Bmap).max(1024, 1), 59);
        assert_eq!(root_max(336), 20);
        let [rmap, refcount] = [Kind::RealtimeRmap, Kind::RealtimeRefcount].map(Shape::of);
        assert_eq!((rmap.max(4096, 0), rmap.root_max(192, 0), rmap.root_max(192, 1)), (167, 7, 3));
        assert_eq!((refcount.max(4096, 0), refcount.root_max(192, 0)), (335, 15));
        assert_eq!(refcount.root_max(192, 1), 11);
    }

    #[test]
    fn a_block_and_a_root_come_back() {
        let expect = Expect { uuid: [1; 16], address: Sector(8), owner: Some(9), v4: false };
        for kind in [Kind::Rmap, Kind::Bmap, Kind::Inobt] {
            let mut data = vec![0xff; 1024];
            init(kind, &mut data, 1, &expect);
            set_len(&mut data, 2);
            set_pointer(kind, &mut data, 0, 77);
            set_pointer(kind, &mut data, 1, 78);
            set_siblings(kind, &mut data, Some(5), None);
            verifier::update_lsn_crc(kind, &mut data, 1);
            let node = Node::parse(kind, &data, Some(1), &expect, At::Block(8)).expect("valid");
            assert_eq!((node.len(), node.pointer(1)), (2, 78));
            assert_eq!(node.siblings(), (Some(5), None));
            assert!(Node::parse(kind, &data, Some(0), &expect, At::Block(8)).is_err());
        }
        let mut fork = vec![0; 336];
        emit_root(&mut fork, 2, &[(0, 10), (500, 11)]);
        let root = MapRoot::parse(&fork, At::Block(0)).expect("valid");
        assert_eq!((root.level, root.len(), root.key(1), root.pointer(1)), (2, 2, 500, 11));
    }
}
