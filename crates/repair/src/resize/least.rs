//! The smallest size.

use std::sync::Arc;

use block::Queue;
use ext4::format::features::Compat;
use ext4::shape::LAST_GROUP_SPARE;
use rt::Cx;

use super::{ResizeOptions, ResizePlan, plan_blocks};
use crate::volume::{EditError, Effort, Volume};

/// How often a larger size is tried where one is too small: maps may grow, tables need their blocks
/// in one piece.
const TRIES: u32 = 24;

/// Plans the smallest size. Reads only; parks.
///
/// # Errors
/// As [`super::plan`].
pub fn plan(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    options: &ResizeOptions,
    effort: &Effort,
) -> Result<ResizePlan, EditError> {
    let mut spare = 0;
    let mut tried = 0;
    loop {
        let volume = Volume::open(cx, queue, effort)?;
        let all = volume.g.blocks_count;
        let wanted = blocks(&volume, spare)?.min(all);
        match plan_blocks(volume, wanted, options.wide) {
            Err(EditError::NoRoom(_)) if tried < TRIES && wanted < all => {
                tried += 1;
                spare = (spare * 2).max(wanted / 256).max(8);
            }
            planned => return planned,
        }
    }
}

/// The fewest blocks that hold what is there and `spare` blocks more, by counting.
///
/// # Errors
/// None fit.
pub fn blocks(volume: &Volume<'_>, spare: u64) -> Result<u64, EditError> {
    let g = &volume.g;
    let ratio = u64::from(g.cluster_ratio);
    let fixed: u64 = (0..g.groups_count).map(|group| u64::from(g.base_meta_blocks(group))).sum();
    let each = u64::from(g.itable_blocks) + 2;
    let metadata = fixed + u64::from(g.groups_count) * each;
    let used = g.blocks_count - volume.raw.free_blocks();
    let files = used.saturating_sub(metadata) + spare;
    let inodes = u64::from(g.inodes_count - volume.raw.s_free_inodes_count.get());
    let first = u64::from(g.first_data_block);
    let mut room = 0;
    for group in 0..g.groups_count {
        let base = fixed_in(volume, group);
        let has = u64::from(g.blocks_per_group) - base - each;
        let enough = inodes <= u64::from(group + 1) * u64::from(g.inodes_per_group);
        if room + has >= files && enough {
            // Of the last group only what is needed, but no less than it may have.
            let part = (files.saturating_sub(room)).max(LAST_GROUP_SPARE) + base + each;
            let blocks = first + u64::from(group) * u64::from(g.blocks_per_group) + part;
            return Ok(blocks.next_multiple_of(ratio).min(g.blocks_count));
        }
        room += has;
    }
    Ok(g.blocks_count)
}

/// Superblock and descriptors of a group if the file system were smaller: no more than now.
fn fixed_in(volume: &Volume<'_>, group: u32) -> u64 {
    let g = &volume.g;
    if g.features.compat.contains(Compat::SPARSE_SUPER2) {
        // The last one has a copy, whichever that will be.
        return u64::from(g.base_meta_blocks(0));
    }
    g.base_meta_blocks(group).into()
}
