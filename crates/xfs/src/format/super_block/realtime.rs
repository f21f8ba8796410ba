//! The realtime section: a second device, or a part of the first, for the content of files that ask
//! for it. Its space is given out in extents of a fixed length; one bitmap says which are free.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on realtime devices.

use std::ops::Range;

use base::FsBlock;

use super::RawSuper;
use super::geometry::ensure;
use crate::format::features::Incompat;
use crate::format::{At, Corrupt, CorruptKind, Features};

/// The numbers of a realtime section.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RealtimeShape {
    /// Blocks.
    pub blocks: u64,
    /// Blocks of an extent, the unit in which they are given to files: 1 to 1 GiB.
    pub extent_blocks: u32,
    /// Whole extents; blocks behind the last one are not used.
    pub extents: u64,
    /// Blocks of the bitmap of free extents.
    pub bitmap_blocks: u32,
    /// How it is divided, where it is.
    pub groups: Option<RealtimeGroups>,
    /// Its groups are zones: what no reverse map knows is free, and nothing else says so.
    pub zoned: bool,
    /// The block of the data device where it begins; 0 where it has a device of its own.
    pub begins: u64,
}

/// The groups of a realtime section, each with a bitmap of its own. A block number has its group in
/// the high bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RealtimeGroups {
    /// Number of groups.
    pub count: u32,
    /// Extents of each but the last, which may be shorter.
    pub extents: u32,
    /// Bits of a block's number within its group.
    pub block_bits: u8,
}

impl RealtimeGroups {
    /// Reads them from the superblock, and checks them.
    ///
    /// # Errors
    /// [`CorruptKind::Realtime`].
    pub(super) fn parse(
        raw: &RawSuper,
        shape: &RealtimeShape,
        at: At,
    ) -> Result<RealtimeGroups, Corrupt> {
        let (count, extents) = (raw.sb_rgcount.get(), raw.sb_rgextents.get());
        let block_bits = raw.sb_rgblklog;
        let unit = u64::from(shape.extent_blocks);
        let group = u64::from(extents).checked_mul(unit);
        let all = u64::from(count) * u64::from(extents);
        let fits = unit > 0
            && count > 0
            && group.is_some_and(|blocks| block_bits < 52 && blocks <= 1 << block_bits)
            && shape.extents <= all
            && shape.extents > all - u64::from(extents)
            && shape.extents == shape.blocks / unit
            && u64::from(count) << block_bits < 1 << 52
            && (shape.begins == 0 || shape.zoned && shape.begins >= raw.sb_dblocks.get());
        let RealtimeShape { blocks, extents: total, extent_blocks, .. } = *shape;
        let kind = CorruptKind::Realtime { blocks, extents: total, extent_blocks };
        ensure(fits, kind, at)?;
        Ok(RealtimeGroups { count, extents, block_bits })
    }
}

impl RealtimeShape {
    pub(super) fn new(raw: &RawSuper) -> RealtimeShape {
        let zoned = Features::new(raw).incompat.contains(Incompat::ZONED);
        let metadir = Features::new(raw).incompat.contains(Incompat::METADIR);
        RealtimeShape {
            zoned,
            begins: if metadir { raw.sb_rtstart.get() } else { 0 },
            blocks: raw.sb_rblocks.get(),
            extent_blocks: raw.sb_rextsize.get(),
            extents: raw.sb_rextents.get(),
            bitmap_blocks: raw.sb_rbmblocks.get(),
            groups: None,
        }
    }

    /// Number of groups: one where it is not divided.
    pub fn group_count(&self) -> u32 {
        self.groups.map_or(1, |groups| groups.count)
    }

    /// Extents of each group but the last, which may be shorter.
    pub fn group_extents(&self) -> u64 {
        self.groups.map_or(self.extents, |groups| u64::from(groups.extents))
    }

    /// The extents of a group, counted from the start of the section.
    pub fn extents_of(&self, group: u32) -> Range<u64> {
        let start = u64::from(group) * self.group_extents();
        start..(start + self.group_extents()).min(self.extents)
    }

    /// Extents at the start that hold the section's superblock.
    pub fn super_extents(&self) -> u64 {
        u64::from(self.groups.is_some() && !self.zoned)
    }

    /// The first block of an extent, counted from the start of the section.
    pub fn block_of(&self, extent: u64) -> FsBlock {
        let unit = u64::from(self.extent_blocks);
        match self.groups {
            None => FsBlock(extent * unit),
            Some(groups) => {
                let (group, inside) =
                    (extent / u64::from(groups.extents), extent % u64::from(groups.extents));
                FsBlock((group << groups.block_bits) | (inside * unit))
            }
        }
    }

    /// The extent that holds a block.
    pub fn extent_of(&self, block: FsBlock) -> u64 {
        self.linear(block) / u64::from(self.extent_blocks.max(1))
    }

    /// Rows of the summary: one for each power of two that an extent of free ones may be long.
    pub fn levels(&self) -> u32 {
        self.group_extents().checked_ilog2().map_or(0, |log| log + 1)
    }

    /// How the blocks of bitmap and summary hold their words, in blocks of so many bytes.
    pub fn words(&self, block_size: u32) -> RealtimeWords {
        RealtimeWords { grouped: self.groups.is_some(), block_size }
    }

    /// Blocks of the summary of a group, in file system blocks of so many bytes.
    pub fn summary_blocks(&self, block_size: u32) -> u32 {
        let words = u64::from(self.levels()) * u64::from(self.bitmap_blocks);
        words.div_ceil(self.words(block_size).per_block()) as u32
    }

    /// Whether so many blocks from `start` on lie in whole extents of the section, and in one
    /// group.
    pub fn holds(&self, start: FsBlock, count: u64) -> bool {
        let unit = u64::from(self.extent_blocks);
        let (first, length) = match self.groups {
            None => (start.0, self.extents * unit),
            Some(groups) => {
                let (group, block) = groups.split(start);
                let before = group.saturating_mul(u64::from(groups.extents));
                let here = self.extents.saturating_sub(before).min(u64::from(groups.extents));
                (block, here * unit)
            }
        };
        first.checked_add(count).is_some_and(|end| end <= length)
    }

    /// The group of a block, and the block's number in it.
    pub fn place_of(&self, block: FsBlock) -> (u32, u32) {
        let (group, inside) = self.groups.map_or((0, block.0), |groups| groups.split(block));
        (group as u32, inside as u32)
    }

    /// The block with this number in a group.
    pub fn block_at(&self, group: u32, block: u32) -> FsBlock {
        let bits = self.groups.map_or(0, |groups| groups.block_bits);
        FsBlock((u64::from(group) << bits) | u64::from(block))
    }

    /// The block's number counted from the start of the section, without gaps.
    pub fn linear(&self, block: FsBlock) -> u64 {
        let Some(groups) = self.groups else { return block.0 };
        let (group, inside) = groups.split(block);
        group * u64::from(groups.extents) * u64::from(self.extent_blocks) + inside
    }
}

/// How the blocks of bitmap and summary hold their words of 32 bits. Without groups a block has
/// nothing else, and its words are in the order of the host, which is taken to be a small-endian
/// one; with groups it describes itself in a header, and its words are big-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RealtimeWords {
    grouped: bool,
    block_size: u32,
}

impl RealtimeWords {
    /// Those of a section in groups.
    pub fn grouped(block_size: u32) -> RealtimeWords {
        RealtimeWords { grouped: true, block_size }
    }

    /// Bytes of the header.
    const HEADER: usize = 48;

    /// Bytes before the first word.
    fn header(self) -> usize {
        if self.grouped { RealtimeWords::HEADER } else { 0 }
    }

    /// Words of a block.
    pub fn per_block(self) -> u64 {
        (self.block_size as usize - self.header()) as u64 / 4
    }

    /// Bits of a block.
    pub fn bits(self) -> u64 {
        self.per_block() * 32
    }

    /// The bytes of some words of a block.
    pub fn place(self, words: Range<usize>) -> Range<usize> {
        self.header() + words.start * 4..self.header() + words.end * 4
    }

    /// A word of a block.
    pub fn get(self, block: &[u8], word: usize) -> u32 {
        let bytes = block[self.place(word..word + 1)].try_into().expect("a word");
        if self.grouped { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// Sets a word in its bytes.
    pub fn set(self, bytes: &mut [u8], value: u32) {
        let value = if self.grouped { value.to_be_bytes() } else { value.to_le_bytes() };
        bytes.copy_from_slice(&value);
    }

    /// Brings words into the order in which bit n is in byte n / 8, or back.
    pub fn turn(self, words: &mut [u8]) {
        if self.grouped {
            words.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        }
    }

    /// The words of a block, in the order in which bit n is in byte n / 8.
    pub fn bits_of(self, block: &[u8]) -> Vec<u8> {
        let mut words = block[self.place(0..self.per_block() as usize)].to_vec();
        self.turn(&mut words);
        words
    }
}

impl RealtimeGroups {
    /// Group, and block in it.
    fn split(&self, block: FsBlock) -> (u64, u64) {
        (block.0 >> self.block_bits, block.0 & ((1 << self.block_bits) - 1))
    }
}

/// The largest extent of a realtime section, in bytes.
const REALTIME_EXTENT_MAX: u64 = 1 << 30;

/// Checks the numbers of a realtime section.
///
/// # Errors
/// [`CorruptKind::Realtime`].
pub(super) fn check_realtime(raw: &RawSuper, at: At) -> Result<(), Corrupt> {
    let shape = RealtimeShape::new(raw);
    // Sections in groups have numbers of another kind, and their feature is refused.
    let metadir = Features::new(raw).incompat.contains(Incompat::METADIR);
    if shape.blocks == 0 || metadir {
        return Ok(());
    }
    let (block, unit) = (u64::from(raw.sb_blocksize.get()), u64::from(shape.extent_blocks));
    let fits = unit > 0
        && unit * block <= REALTIME_EXTENT_MAX
        && shape.blocks >> 52 == 0
        && shape.extents > 0
        && shape.extents == shape.blocks / unit
        && u64::from(shape.bitmap_blocks) == shape.extents.div_ceil(8 * block)
        && u32::from(raw.sb_rextslog) + 1 == shape.levels();
    let RealtimeShape { blocks, extents, extent_blocks, .. } = shape;
    ensure(fits, CorruptKind::Realtime { blocks, extents, extent_blocks }, at)
}
