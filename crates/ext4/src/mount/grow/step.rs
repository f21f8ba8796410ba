//! How far one transaction grows a file system: its log, and the room for descriptors, are limits.

use zerocopy::IntoBytes;

use crate::format::features::{Compat, Incompat};
use crate::format::{Geometry, RawSuper};
use crate::shape::{self, ShapeError};

/// Blocks of the superblock, the resize inode, its map, the last group's bitmap and descriptor;
/// what giving back the map takes.
const FIXED: u64 = 8;

/// One step.
pub(super) struct Step {
    /// The superblock after it, as far as it is about sizes.
    pub raw: RawSuper,
    /// The geometry after it.
    pub g: Geometry,
    /// The reserve of descriptors is used up: the rest of the table lies in the new groups.
    pub converts: bool,
}

/// Blocks that a step from `old` to `new` changes in the log.
pub(super) fn credits(old: &Geometry, new: &Geometry) -> u64 {
    let copies = (1..old.groups_count).filter(|&group| old.has_super(group)).count() as u64;
    let tables = u64::from(new.desc_blocks - old.groups_count / old.descs_per_block);
    let reserve = match new.features.compat.contains(Compat::RESIZE_INODE) {
        true => u64::from(new.reserved_gdt_blocks),
        false => 0,
    };
    FIXED + copies + tables + reserve
}

/// The next step on the way to so many blocks, in at most so many credits. None at the end of it,
/// or where the rest is too short to be used.
pub(super) fn next_step(
    raw: &RawSuper,
    g: &Geometry,
    blocks: u64,
    credits_max: u32,
) -> Result<Option<Step>, ShapeError> {
    let (mut from, mut geometry, mut converts) = (*raw, g.clone(), false);
    let mut blocks = blocks;
    let wanted = shape::larger(&from, &geometry, blocks)?;
    if !g.features.incompat.contains(Incompat::META_BG) {
        let room = g.desc_blocks + g.reserved_gdt_blocks;
        if wanted.1.desc_blocks > room && g.reserved_gdt_blocks > 0 {
            blocks = end_of(g, room);
        } else if wanted.1.desc_blocks > room {
            converts = true;
            let mut features = from.features();
            features.incompat |= Incompat::META_BG;
            features.compat -= Compat::RESIZE_INODE;
            from.set_features(&features);
            from.s_first_meta_bg.set(g.desc_blocks);
            from.set_checksum();
            geometry = Geometry::parse(from.as_bytes(), 0)?;
        }
    }
    loop {
        let (raw, new) = shape::larger(&from, &geometry, blocks)?;
        if new.blocks_count <= g.blocks_count {
            return Ok(None);
        }
        let over = credits(g, &new).saturating_sub(credits_max.into());
        let first = g.groups_count / g.descs_per_block;
        let tables = u64::from(new.desc_blocks - first);
        if over == 0 || tables <= 1 {
            return Ok(Some(Step { raw, g: new, converts }));
        }
        blocks = end_of(g, first + tables.saturating_sub(over).max(1) as u32);
    }
}

/// The blocks that so many blocks of descriptors can describe.
fn end_of(g: &Geometry, tables: u32) -> u64 {
    let groups = u64::from(tables) * u64::from(g.descs_per_block);
    u64::from(g.first_data_block) + groups * u64::from(g.blocks_per_group)
}
