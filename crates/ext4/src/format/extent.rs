//! Extents: header, leaf and index entries, and the checks of a whole node.
//!
//! Source: kernel `Documentation/filesystems/ext4/ifork.rst`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{InodeSeed, stored_extent_block};
use super::{At, Corrupt, CorruptKind, Geometry, U16, U32, assert_layout};

/// `eh_magic`.
pub const MAGIC: u16 = 0xf30a;
/// Bytes of the header and of each entry.
pub const ENTRY_SIZE: usize = 12;
/// Entries that fit into the inode.
pub const ROOT_MAX: u16 = 4;
/// The deepest tree: four-block nodes of 1 KiB blocks reach all logical blocks in five levels.
pub const DEPTH_MAX: u16 = 5;
/// The longest written extent, in blocks.
pub const LEN_MAX: u32 = 32768;
/// The longest unwritten extent, in blocks.
pub const UNWRITTEN_LEN_MAX: u32 = 32767;

/// The header of a node as it lies on the disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawExtentHeader {
    pub eh_magic: U16,
    pub eh_entries: U16,
    pub eh_max: U16,
    pub eh_depth: U16,
    pub eh_generation: U32,
}

assert_layout!(RawExtentHeader, ENTRY_SIZE, eh_entries @ 2, eh_max @ 4, eh_depth @ 6);

/// A leaf entry as it lies on the disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawExtent {
    pub ee_block: U32,
    pub ee_len: U16,
    pub ee_start_hi: U16,
    pub ee_start_lo: U32,
}

assert_layout!(RawExtent, ENTRY_SIZE, ee_len @ 4, ee_start_hi @ 6, ee_start_lo @ 8);

/// An index entry as it lies on the disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawExtentIdx {
    pub ei_block: U32,
    pub ei_leaf_lo: U32,
    pub ei_leaf_hi: U16,
    pub ei_unused: U16,
}

assert_layout!(RawExtentIdx, ENTRY_SIZE, ei_leaf_lo @ 4, ei_leaf_hi @ 8);

/// A run of a file's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First logical block.
    pub block: u32,
    /// Number of blocks, 1..=32768, of an unwritten extent at most 32767.
    pub len: u32,
    /// First device block, below 2^48.
    pub start: u64,
    /// Allocated, but reads as zeroes.
    pub unwritten: bool,
}

/// A run of a file's blocks, however the file maps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRun {
    /// First logical block.
    pub logical: u64,
    /// First device block.
    pub start: u64,
    /// Blocks.
    pub len: u64,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

impl FileRun {
    /// Adds it behind all others, as a part of the last one where it continues that.
    pub fn join(self, runs: &mut Vec<FileRun>) {
        match runs.last_mut() {
            Some(last)
                if last.logical + last.len == self.logical
                    && last.start + last.len == self.start
                    && last.unwritten == self.unwritten =>
            {
                last.len += self.len;
            }
            _ => runs.push(self),
        }
    }
}

impl Extent {
    /// The logical block behind the last one.
    pub fn end(&self) -> u64 {
        u64::from(self.block) + u64::from(self.len)
    }

    /// The values of a raw entry; a length of zero is possible.
    pub fn read(raw: &RawExtent) -> Extent {
        let len = u32::from(raw.ee_len.get());
        let unwritten = len > LEN_MAX;
        Extent {
            block: raw.ee_block.get(),
            len: if unwritten { len - LEN_MAX } else { len },
            start: u64::from(raw.ee_start_lo.get()) | u64::from(raw.ee_start_hi.get()) << 32,
            unwritten,
        }
    }

    /// The raw entry of this extent.
    pub fn raw(&self) -> RawExtent {
        RawExtent {
            ee_block: U32::new(self.block),
            ee_len: U16::new((self.len + if self.unwritten { LEN_MAX } else { 0 }) as u16),
            ee_start_hi: U16::new((self.start >> 32) as u16),
            ee_start_lo: U32::new(self.start as u32),
        }
    }
}

/// A pointer to a node one level below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentIdx {
    /// First logical block of the subtree.
    pub block: u32,
    /// Device block of the node, below 2^48.
    pub leaf: u64,
}

impl ExtentIdx {
    /// The values of a raw entry.
    pub fn read(raw: &RawExtentIdx) -> ExtentIdx {
        ExtentIdx {
            block: raw.ei_block.get(),
            leaf: u64::from(raw.ei_leaf_lo.get()) | u64::from(raw.ei_leaf_hi.get()) << 32,
        }
    }

    /// The raw entry of this pointer.
    pub fn raw(&self) -> RawExtentIdx {
        RawExtentIdx {
            ei_block: U32::new(self.block),
            ei_leaf_lo: U32::new(self.leaf as u32),
            ei_leaf_hi: U16::new((self.leaf >> 32) as u16),
            ei_unused: U16::new(0),
        }
    }
}

/// How many entries a block of this size holds: what is left beside header and checksum tail.
pub fn block_max(block_size: u32) -> u16 {
    ((block_size as usize - ENTRY_SIZE) / ENTRY_SIZE) as u16
}

/// A node whose header was checked: the root in an inode or a whole block.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    data: &'a [u8],
    entries: u16,
    max: u16,
    depth: u16,
}

impl<'a> Node<'a> {
    /// Checks the header at the start of `data` (60 bytes of an inode, or a block). `depth` is what
    /// the parent's level makes it; None for the root.
    ///
    /// # Errors
    /// Magic, depth, room, count, in this order.
    pub fn parse(data: &'a [u8], depth: Option<u16>, at: At) -> Result<Node<'a>, Corrupt> {
        let (header, _) = RawExtentHeader::ref_from_prefix(data).expect("60 bytes or a block");
        let found = header.eh_magic.get();
        if found != MAGIC {
            return Err(CorruptKind::ExtentMagic { found }.at(at));
        }
        let found = header.eh_depth.get();
        if let Some(expected) = depth.filter(|&expected| expected != found) {
            return Err(CorruptKind::ExtentDepth { found, expected }.at(at));
        }
        if found > DEPTH_MAX {
            return Err(CorruptKind::ExtentTooDeep { found }.at(at));
        }
        let (max, entries) = (header.eh_max.get(), header.eh_entries.get());
        let limit = ((data.len() - ENTRY_SIZE) / ENTRY_SIZE) as u16;
        if max == 0 || max > limit {
            return Err(CorruptKind::ExtentMax { found: max, limit }.at(at));
        }
        if entries > max {
            return Err(CorruptKind::ExtentEntries { entries, max }.at(at));
        }
        if entries == 0 && found > 0 {
            return Err(CorruptKind::ExtentEmptyIndex.at(at));
        }
        Ok(Node { data, entries, max, depth: found })
    }

    /// Checks a block's header, its checksum with `metadata_csum`, and all its entries.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse_block(
        data: &'a [u8],
        depth: u16,
        seed: InodeSeed,
        geometry: &Geometry,
        at: At,
    ) -> Result<Node<'a>, Corrupt> {
        let node = Node::parse(data, Some(depth), at)?;
        if geometry.checksums.metadata {
            let found = stored_extent_block(data).unwrap_or(0);
            let expected = seed.extent_block(data).unwrap_or(!found);
            if found != expected {
                return Err(CorruptKind::ExtentChecksum { found, expected }.at(at));
            }
        }
        node.check_entries(geometry, at)?;
        Ok(node)
    }

    /// Levels below this node; 0 for a leaf.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        usize::from(self.entries)
    }

    /// True where a leaf has no entry (a file without blocks).
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Room for entries.
    pub fn max(&self) -> usize {
        usize::from(self.max)
    }

    fn entry(&self, index: usize) -> &'a [u8] {
        assert!(index < self.len(), "entry {index} of {}", self.entries);
        &self.data[ENTRY_SIZE * (index + 1)..][..ENTRY_SIZE]
    }

    /// The leaf entry with this index, below `len()`.
    pub fn extent(&self, index: usize) -> Extent {
        Extent::read(RawExtent::ref_from_bytes(self.entry(index)).expect("12 bytes"))
    }

    /// The index entry with this index, below `len()`.
    pub fn index(&self, index: usize) -> ExtentIdx {
        ExtentIdx::read(RawExtentIdx::ref_from_bytes(self.entry(index)).expect("12 bytes"))
    }

    /// The first logical block of entry `index`, of either kind.
    pub fn key(&self, index: usize) -> u32 {
        super::checksum::u32_at(self.entry(index), 0)
    }

    /// The leaf entries in order.
    pub fn extents(&self) -> impl DoubleEndedIterator<Item = Extent> + ExactSizeIterator {
        let node = *self;
        (0..self.len()).map(move |index| node.extent(index))
    }

    /// The index entries in order.
    pub fn indexes(&self) -> impl DoubleEndedIterator<Item = ExtentIdx> + ExactSizeIterator {
        let node = *self;
        (0..self.len()).map(move |index| node.index(index))
    }

    /// The last entry whose first block is not behind `block`. None where all are behind it.
    pub fn find(&self, block: u32) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.key(middle) <= block { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }

    /// Checks that entries have blocks, are in order, do not overlap and point into the file
    /// system.
    ///
    /// # Errors
    /// The first check that fails, with the entry's index.
    pub fn check_entries(&self, geometry: &Geometry, at: At) -> Result<(), Corrupt> {
        let (first, last) = (u64::from(geometry.first_data_block) + 1, geometry.blocks_count);
        let mut end = 0u64;
        for index in 0..self.len() {
            let (block, start, len) = if self.depth == 0 {
                let extent = self.extent(index);
                (extent.block, extent.start, extent.len)
            } else {
                let pointer = self.index(index);
                (pointer.block, pointer.leaf, 1)
            };
            let number = index as u16;
            if len == 0 {
                return Err(CorruptKind::ExtentLength { index: number }.at(at));
            }
            if u64::from(block) < end {
                let block = u64::from(block);
                return Err(CorruptKind::ExtentOrder { index: number, block, end }.at(at));
            }
            end = u64::from(block) + u64::from(len);
            if self.depth == 0 && end > u64::from(u32::MAX) {
                return Err(CorruptKind::ExtentOverflow { index: number, block }.at(at));
            }
            if !geometry.data_blocks_valid(start, u64::from(len)) {
                let kind = CorruptKind::ExtentPlace { index: number, start, len, first, end: last };
                return Err(kind.at(at));
            }
            let ratio = geometry.cluster_ratio;
            if self.depth == 0 && u64::from(block % ratio) != start % u64::from(ratio) {
                return Err(
                    CorruptKind::ExtentCluster { index: number, block, start, ratio }.at(at)
                );
            }
        }
        Ok(())
    }
}

/// Writes the header of a node without entries.
pub fn init_node(data: &mut [u8], max: u16, depth: u16) {
    set_header(data, 0, max, depth);
    data[8..12].fill(0);
}

/// Writes the counts of a node's header; the generation keeps what it holds.
pub fn set_header(data: &mut [u8], entries: u16, max: u16, depth: u16) {
    let (header, _) = RawExtentHeader::mut_from_prefix(data).expect("60 bytes or a block");
    header.eh_magic.set(MAGIC);
    header.eh_entries.set(entries);
    header.eh_max.set(max);
    header.eh_depth.set(depth);
}

/// Writes leaf entry `index`.
pub fn set_extent(data: &mut [u8], index: usize, extent: &Extent) {
    data[ENTRY_SIZE * (index + 1)..][..ENTRY_SIZE].copy_from_slice(extent.raw().as_bytes());
}

/// Writes index entry `index`.
pub fn set_index(data: &mut [u8], index: usize, pointer: &ExtentIdx) {
    data[ENTRY_SIZE * (index + 1)..][..ENTRY_SIZE].copy_from_slice(pointer.raw().as_bytes());
}
