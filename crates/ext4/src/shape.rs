//! The superblock of a file system that gets another size.
//!
//! Source of the rules: resize2fs(8), and resize2fs 1.47 observed.

use zerocopy::IntoBytes;

use crate::format::features::{Compat, Incompat};
use crate::format::{Corrupt, Geometry, RawSuper};

/// Blocks that a last group must have beyond its own metadata to be made.
pub const LAST_GROUP_SPARE: u64 = 50;

/// Why there is no such size.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShapeError {
    /// `64bit` without extents.
    #[error("64bit needs the feature extent")]
    Extents,
    /// No room for metadata.
    #[error("{0} blocks are too few for a file system")]
    Small(u64),
    /// Their numbers have more than 32 bits.
    #[error("{0} blocks need the feature 64bit (iopath resize --64bit)")]
    Wide(u64),
    /// So have those of the inodes.
    #[error("{0} inodes are more than 32 bits count")]
    Inodes(u64),
    /// What follows is no geometry.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// Bytes of a descriptor with `64bit`.
const WIDE: u16 = 64;

/// The superblock and the geometry for so many blocks; counts of what is free are still 0.
///
/// # Errors
/// A size that cannot be.
pub fn of_size(
    old: &RawSuper,
    og: &Geometry,
    blocks: u64,
    wide: Option<bool>,
) -> Result<(RawSuper, Geometry), ShapeError> {
    let mut raw = *old;
    let mut features = raw.features();
    match wide {
        Some(true) if !features.incompat.contains(Incompat::SIXTY_FOUR_BIT) => {
            if !features.incompat.contains(Incompat::EXTENTS) {
                return Err(ShapeError::Extents);
            }
            features.incompat |= Incompat::SIXTY_FOUR_BIT;
            raw.s_desc_size.set(WIDE);
        }
        Some(false) => {
            features.incompat -= Incompat::SIXTY_FOUR_BIT;
            raw.s_desc_size.set(0);
        }
        _ => {}
    }
    raw.set_features(&features);
    raw.set_free_blocks(0);
    raw.s_free_inodes_count.set(0);
    largest(raw, old, og, blocks, true)
}

/// As [`of_size`], of one that is in use: free space is as it was, and no copy goes elsewhere.
///
/// # Errors
/// A size that cannot be.
pub fn larger(
    old: &RawSuper,
    og: &Geometry,
    blocks: u64,
) -> Result<(RawSuper, Geometry), ShapeError> {
    largest(*old, old, og, blocks, false)
}

/// The largest size up to so many blocks. With `moves` the last group's copies stay in the last
/// group.
fn largest(
    mut raw: RawSuper,
    old: &RawSuper,
    og: &Geometry,
    blocks: u64,
    moves: bool,
) -> Result<(RawSuper, Geometry), ShapeError> {
    let mut blocks = blocks - blocks % u64::from(og.cluster_ratio);
    loop {
        let g = fit(&mut raw, old, og, blocks, moves)?;
        let last = g.groups_count - 1;
        let rest = u64::from(g.blocks_in_group(last));
        let full = rest == u64::from(g.blocks_per_group);
        let needs = 2 + u64::from(g.itable_blocks) + u64::from(g.base_meta_blocks(last));
        if full || rest >= needs + LAST_GROUP_SPARE {
            return Ok((raw, g));
        }
        if last == 0 {
            return Err(ShapeError::Small(blocks));
        }
        blocks = g.group_first_block(last);
    }
}

/// Fills in what follows from the number of blocks.
fn fit(
    raw: &mut RawSuper,
    old: &RawSuper,
    og: &Geometry,
    blocks: u64,
    moves: bool,
) -> Result<Geometry, ShapeError> {
    let first = u64::from(og.first_data_block);
    let wide = raw.features().incompat.contains(Incompat::SIXTY_FOUR_BIT);
    if blocks <= first {
        return Err(ShapeError::Small(blocks));
    }
    if blocks > u64::from(u32::MAX) && !wide {
        return Err(ShapeError::Wide(blocks));
    }
    let groups = (blocks - first).div_ceil(og.blocks_per_group.into());
    let inodes = groups * u64::from(og.inodes_per_group);
    let Ok(inodes) = u32::try_from(inodes) else {
        return Err(ShapeError::Inodes(inodes));
    };
    let desc_size = if wide { u32::from(raw.s_desc_size.get()) } else { 32 };
    let descs = groups.div_ceil((og.block_size / desc_size).into());
    if raw.features().compat.contains(Compat::RESIZE_INODE) {
        let room = u64::from(og.reserved_gdt_blocks) + u64::from(og.desc_blocks);
        let reserve = room.saturating_sub(descs).min((og.block_size / 4).into());
        raw.s_reserved_gdt_blocks.set(reserve as u16);
    }
    raw.s_blocks_count_lo.set(blocks as u32);
    raw.s_blocks_count_hi.set((blocks >> 32) as u32);
    raw.s_inodes_count.set(inodes);
    let share = u128::from(old.reserved_blocks()) * u128::from(blocks);
    let reserved = (share / u128::from(og.blocks_count)) as u64;
    raw.s_r_blocks_count_lo.set(reserved as u32);
    raw.s_r_blocks_count_hi.set((reserved >> 32) as u32);
    if raw.features().incompat.contains(Incompat::META_BG) {
        let start = old.s_first_meta_bg.get().min(descs as u32);
        raw.s_first_meta_bg.set(start);
    }
    if moves && raw.features().compat.contains(Compat::SPARSE_SUPER2) {
        move_backups(raw, old, og, groups as u32);
    }
    raw.set_checksum();
    Ok(Geometry::parse(raw.as_bytes(), 0)?)
}

/// The groups with copies, with `sparse_super2`: the one that was the last stays the last.
fn move_backups(raw: &mut RawSuper, old: &RawSuper, og: &Geometry, groups: u32) {
    let last = og.groups_count - 1;
    for (word, before) in raw.s_backup_bgs.iter_mut().zip(old.s_backup_bgs) {
        let group = before.get();
        let moved = group != 0 && (group == last || group >= groups);
        word.set(if moved { groups - 1 } else { group });
    }
    if raw.s_backup_bgs[0] == raw.s_backup_bgs[1] {
        raw.s_backup_bgs[1].set(0);
    }
}
