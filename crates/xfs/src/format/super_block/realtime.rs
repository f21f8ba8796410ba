//! The realtime section: a second device, or a part of the first, for the content of files that ask
//! for it. Its space is given out in extents of a fixed length; one bitmap says which are free.
//!
//! Source: "XFS Algorithms and Data Structures", chapter on realtime devices.

use base::FsBlock;

use super::RawSuper;
use super::geometry::ensure;
use crate::format::features::Incompat;
use crate::format::{At, Corrupt, CorruptKind, Features, u32_at, u64_at};

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

/// Where the numbers of the groups lie in the superblock.
const GROUP_COUNT: usize = 272;
const GROUP_EXTENTS: usize = 276;
const GROUP_BLOCK_BITS: usize = 280;
/// Where the section begins on the data device: 0 where it has its own.
const SECTION_START: usize = 288;

impl RealtimeGroups {
    /// Reads them from the superblock's sector, and checks them.
    ///
    /// # Errors
    /// [`CorruptKind::Realtime`].
    pub(super) fn parse(
        sector: &[u8],
        shape: &RealtimeShape,
        at: At,
    ) -> Result<RealtimeGroups, Corrupt> {
        let (count, extents) = (u32_at(sector, GROUP_COUNT), u32_at(sector, GROUP_EXTENTS));
        let block_bits = sector[GROUP_BLOCK_BITS];
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
            && u64_at(sector, SECTION_START) == 0;
        let RealtimeShape { blocks, extents: total, extent_blocks, .. } = *shape;
        let kind = CorruptKind::Realtime { blocks, extents: total, extent_blocks };
        ensure(fits, kind, at)?;
        Ok(RealtimeGroups { count, extents, block_bits })
    }
}

impl RealtimeShape {
    pub(super) fn new(raw: &RawSuper) -> RealtimeShape {
        RealtimeShape {
            blocks: raw.sb_rblocks.get(),
            extent_blocks: raw.sb_rextsize.get(),
            extents: raw.sb_rextents.get(),
            bitmap_blocks: raw.sb_rbmblocks.get(),
            groups: None,
        }
    }

    /// Rows of the summary: one for each power of two that an extent of free ones may be long.
    pub fn levels(&self) -> u32 {
        self.extents.checked_ilog2().map_or(0, |log| log + 1)
    }

    /// Blocks of the summary, in file system blocks of so many bytes.
    pub fn summary_blocks(&self, block_size: u32) -> u32 {
        let words = u64::from(self.levels()) * u64::from(self.bitmap_blocks);
        (words * 4).div_ceil(u64::from(block_size)) as u32
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

    /// The block's number counted from the start of the section, without gaps.
    pub fn linear(&self, block: FsBlock) -> u64 {
        let Some(groups) = self.groups else { return block.0 };
        let (group, inside) = groups.split(block);
        group * u64::from(groups.extents) * u64::from(self.extent_blocks) + inside
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
