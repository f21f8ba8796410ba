//! The size of a file system that a tree fits into.
//!
//! What the tree takes is counted from above: directories as if their hashed blocks were little
//! more than half full, attributes without sharing, a block of extents for every file with many
//! stretches. What an empty file system of a size has is asked of mkfs itself, so that tables,
//! journal and reserved blocks need no estimate.

use anyhow::{Context, Result, bail};

use super::census::{Census, Names};
use super::recipe::{Empty, Kind, Recipe};

/// Sizes are multiples of this.
const STEP: u64 = 1 << 20;
/// The largest size that is tried.
const SIZE_MAX: u64 = 1 << 50;
/// Inodes that a new file system uses itself.
const OWN_INODES: u64 = 11;

/// The least size that holds a tree and leaves `free_percent` of its blocks free, and `more` bytes.
/// The number of inodes becomes what the tree needs, if the recipe names none.
///
/// # Errors
/// No size fits, or the options are impossible.
pub fn size(recipe: &mut Recipe, census: &Census, free_percent: f64, more: u64) -> Result<u64> {
    let share = free_percent / 100.0;
    let own_count = matches!(&recipe.kind, Kind::Ext(options) if options.inodes_count.is_none());
    if own_count && let Kind::Ext(options) = &mut recipe.kind {
        let inodes = (census.inodes + OWN_INODES) as f64 / (1.0 - share).max(0.05);
        options.inodes_count = Some((inodes as u64 + 16).try_into().context("too many inodes")?);
    }
    let fits = |bytes: u64| -> Result<bool> {
        let Some(empty) = recipe.empty(bytes)? else { return Ok(false) };
        let kept = kept_back(recipe, &empty) + more / u64::from(empty.block_size);
        let free = (empty.blocks as f64 * share) as u64;
        Ok(empty.free >= needed(recipe, census, &empty) + kept.max(free))
    };
    let least = census.sectors_bytes().next_multiple_of(STEP).max(STEP) / STEP;
    let (mut low, mut high) = (least.saturating_sub(1), least);
    while !fits(high * STEP)? {
        (low, high) = (high, high * 2);
        if high * STEP > SIZE_MAX {
            bail!("no size up to {} fits", crate::text::size(SIZE_MAX));
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match fits(middle * STEP)? {
            true => high = middle,
            false => low = middle,
        }
    }
    Ok(high * STEP)
}

/// Gives a file system of a fixed size as many inodes as a tree needs, if the recipe names none.
///
/// # Errors
/// The options are impossible.
pub fn inodes(recipe: &mut Recipe, census: &Census, bytes: u64) -> Result<()> {
    let needed = census.inodes + OWN_INODES + 5;
    let has = recipe.empty(bytes)?.and_then(|empty| empty.inodes);
    if let (Kind::Ext(options), Some(has)) = (&mut recipe.kind, has)
        && options.inodes_count.is_none()
        && has < needed
    {
        options.inodes_count = Some(needed.try_into().context("too many inodes")?);
    }
    Ok(())
}

/// Blocks that are kept back from those who write: ours and Linux's reserves.
fn kept_back(recipe: &Recipe, empty: &Empty) -> u64 {
    match &recipe.kind {
        Kind::Ext(_) => (empty.blocks / 50).min(4096) + 32,
        // The pool of reserved blocks, and what each group keeps for its btrees.
        Kind::Xfs(_) => (empty.blocks / 20).min(8192) + empty.blocks / 64 + 64,
    }
}

/// Blocks that the tree takes.
fn needed(recipe: &Recipe, census: &Census, empty: &Empty) -> u64 {
    let block = u64::from(empty.block_size);
    let data = census.blocks_of(empty.block_size);
    let is_xfs = matches!(recipe.kind, Kind::Xfs(_));
    let directories: u64 = census
        .directories
        .values()
        .map(|names| match is_xfs {
            true => xfs_directory(names, block),
            false => ext_directory(names, block),
        })
        .sum();
    // Attributes that do not lie in the inode.
    let inside = if is_xfs { 192 } else { 64 };
    let outside = census.attributes.iter().filter(|(size, _)| **size > inside);
    let attributes: u64 = outside.map(|(size, nodes)| nodes * size.div_ceil(block)).sum();
    // 12 bytes an extent, in nodes that are half full at worst; a group ends an extent.
    let extents = census.stretches + data / (8 * block);
    let nodes = extents.div_ceil(block / 32);
    let indirect = match &recipe.kind {
        Kind::Ext(options) if options.fstype != ext4::FsType::Ext4 => {
            data.div_ceil(block / 4) + 3 * census.inodes.min(data / 12)
        }
        _ => 0,
    };
    let inodes = match is_xfs {
        // Chunks of 64, of at most 512 bytes each where nobody says more.
        true => (census.inodes + 3).div_ceil(64) * (64 * 512_u64).div_ceil(block),
        false => 0,
    };
    data + directories + attributes + census.long_symlinks + nodes + indirect + inodes
}

/// Blocks of a directory of ext2, ext3 or ext4.
fn ext_directory(names: &Names, block: u64) -> u64 {
    let entries = names.count * 12 + names.bytes + 24;
    match entries <= block - 12 {
        true => 1,
        false => {
            let leaves = (entries * 5).div_ceil(3 * block) + 1;
            leaves + 1 + (leaves * 16) / block + 1
        }
    }
}

/// Blocks of a directory of XFS: data, hashes, free space.
fn xfs_directory(names: &Names, block: u64) -> u64 {
    let entries = names.count * 20 + names.bytes;
    match entries <= 160 {
        true => 0,
        false => {
            let data = (entries * 5).div_ceil(4 * block) + 1;
            let leaves = (names.count * 8 * 5).div_ceil(3 * block) + 1;
            data + leaves + 2 + leaves * 16 / block
        }
    }
}
