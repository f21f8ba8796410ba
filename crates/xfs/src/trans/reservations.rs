//! The log space that each kind of transaction may need: bytes of regions with their operation
//! headers, computed from the geometry of the file system.
//!
//! A block that is changed counts whole, as a bitmap of 128-byte chunks may have every bit set.

use crate::format::attr_leaf::VALUE_MAX;
use crate::format::da::DEPTH_MAX;
use crate::format::{self, Geometry};
use crate::log::dquot_item;
use crate::trans::LogReservation;

/// Extents that one transaction gives back at the most, and runs that it marks as written.
pub(crate) const EXTENTS_AT_ONCE: usize = 4;

/// Blocks of the realtime bitmap that a run may reach over when it changes in one transaction.
pub(crate) const BITMAP_BLOCKS_AT_ONCE: u32 = 8;
/// Words of the realtime summary that change with one run: the runs before and behind it, and the
/// joined one.
const SUMMARY_WORDS: u32 = 3;

/// Bytes of a region's operation header and of a buffer item's header.
const ITEM: u32 = 12 + 12 + 64;
/// Levels that a tree of a group has at the most while the group is no larger than can be.
const LEVELS: u32 = 5;

/// A buffer of `bytes`.
fn buf(bytes: u32) -> u32 {
    // A bitmap with every second bit set gives a header per region.
    bytes + bytes / 256 * 12 + ITEM
}

/// A header of a group.
fn header(geometry: &Geometry) -> u32 {
    buf(geometry.sector_size)
}

/// An inode with both forks.
pub(crate) fn inode(geometry: &Geometry) -> u32 {
    geometry.inode_size + 128
}

/// Allocating or freeing `extents` extents of one group: its headers, both trees of free space
/// and the reverse map, each of which may be split or joined on the way down.
pub(crate) fn extents(geometry: &Geometry, extents: u32) -> u32 {
    let trees = if geometry.features.rmapbt() { 3 } else { 2 };
    let touched = trees * (LEVELS + extents);
    2 * header(geometry) + touched * buf(geometry.block_size)
}

/// Changing a fork's map in one place: the tree below the inode.
pub(crate) fn map(geometry: &Geometry) -> u32 {
    LEVELS * buf(geometry.block_size)
}

/// Adding a name to a directory, or taking one out: data block, index from root to leaf with a
/// split on each level, free block; and the space for new ones.
pub(crate) fn directory(geometry: &Geometry) -> u32 {
    let blocks = 3 + u32::from(DEPTH_MAX);
    blocks * buf(geometry.dir_block_size) + map(geometry) + extents(geometry, 4)
}

/// The tree of inodes and that of free inodes.
fn inode_trees(geometry: &Geometry) -> u32 {
    header(geometry) + 2 * LEVELS * buf(geometry.block_size)
}

/// Creating a name and its inode: a chunk of inodes first, in a transaction of its own.
pub(crate) fn create(geometry: &Geometry) -> LogReservation {
    let bytes = inode_trees(geometry) + 2 * inode(geometry) + directory(geometry);
    LogReservation::new(bytes).times(2)
}

/// Putting an inode onto the list of its group, or taking it out: the inodes before and behind it.
pub(crate) fn unlinked(geometry: &Geometry) -> u32 {
    header(geometry) + 2 * buf(512)
}

/// A further name for an inode, or the first: the inode leaves the list in its group.
pub(crate) fn link(geometry: &Geometry) -> LogReservation {
    let list = unlinked(geometry);
    LogReservation::new(directory(geometry) + 2 * inode(geometry) + list).times(2)
}

/// Taking a name away, perhaps the last one: the inode goes onto a list in its group, or is freed.
pub(crate) fn remove(geometry: &Geometry) -> LogReservation {
    let link = link(geometry);
    LogReservation { bytes: link.bytes + inode_trees(geometry), ..link }
}

/// Moving a name over another one, with a whiteout under the old one.
pub(crate) fn rename(geometry: &Geometry) -> LogReservation {
    let list = unlinked(geometry);
    let whiteout = inode_trees(geometry) + inode(geometry);
    LogReservation::new(2 * directory(geometry) + 5 * inode(geometry) + list + whiteout).times(2)
}

/// Changing an inode alone.
pub(crate) fn set_attr(geometry: &Geometry) -> LogReservation {
    LogReservation::new(inode(geometry))
}

/// Setting an attribute: a value in blocks of its own, the leaf and the nodes above it cut in two,
/// the maps of both forks.
pub(crate) fn set_xattr(geometry: &Geometry) -> LogReservation {
    let bytes = attribute(geometry, u64::from(VALUE_MAX));
    LogReservation::new(bytes + inode(geometry)).times(2)
}

/// A value of so many bytes, without the inode.
pub(crate) fn attribute(geometry: &Geometry, value: u64) -> u32 {
    let size = geometry.block_size;
    let value = format::remote::blocks(value, size as usize) as u32;
    let tree = 2 * (u32::from(DEPTH_MAX) + 2);
    (value + tree) * buf(size) + 2 * map(geometry) + extents(geometry, 6)
}

/// An intent that recovery found: nothing takes more than an attribute, with a value that may have
/// blocks of its own.
pub(crate) fn recovered(geometry: &Geometry, values: bool) -> u32 {
    let value = if values { u64::from(VALUE_MAX) } else { 0 };
    attribute(geometry, value)
        + section_trees(geometry, 16)
        + inode(geometry)
        + dquot_item::LOG_BYTES
}

/// A block of quota records, and its place in the map of the quota inode.
pub(crate) fn quota_block(geometry: &Geometry) -> LogReservation {
    write(geometry).with(buf(geometry.block_size))
}

/// So many records of quota.
pub(crate) fn dquots(count: u32) -> LogReservation {
    LogReservation::new(count * dquot_item::LOG_BYTES)
}

/// Another size of the file system: the superblock, the length of one group and its free space.
pub(crate) fn resize(geometry: &Geometry) -> LogReservation {
    LogReservation::new(3 * header(geometry) + extents(geometry, 2))
}

/// The counters of the superblock.
pub(crate) fn superblock(geometry: &Geometry) -> LogReservation {
    LogReservation::new(header(geometry))
}

/// Blocks for the content of a file, and one for its map.
pub(crate) fn write(geometry: &Geometry) -> LogReservation {
    LogReservation::new(inode(geometry) + map(geometry) + extents(geometry, 2)).times(2)
}

/// One extent for the content of several new files whose maps stay in their inodes.
pub(crate) fn write_many(geometry: &Geometry, files: u32) -> LogReservation {
    LogReservation::new(files * inode(geometry) + extents(geometry, 2)).times(2)
}

/// Putting an extent of another file, or of the CoW fork, in the place of a few others.
pub(crate) fn remap(geometry: &Geometry) -> LogReservation {
    let changed = 2 * EXTENTS_AT_ONCE as u32;
    let map = 2 * map(geometry) + changed * buf(geometry.block_size);
    let trees = section_trees(geometry, 2 * changed);
    LogReservation::new(inode(geometry) + map + trees + extents(geometry, 2 * changed)).times(4)
}

/// Exchanging a run of blocks between two files, each of which may cut an extent in two.
pub(crate) fn exchange(geometry: &Geometry) -> LogReservation {
    let remap = remap(geometry);
    LogReservation { bytes: 2 * remap.bytes, ..remap }
}

/// Changing one of the realtime section's btrees in so many places, where there are any: the tree
/// from its root, the blocks that it takes and gives back, its inode.
fn section_trees(geometry: &Geometry, changes: u32) -> u32 {
    match geometry.section_trees() {
        true => map(geometry) + changes * buf(geometry.block_size) + inode(geometry),
        false => 0,
    }
}

/// Marking a few runs of blocks as written: each may lie in another block of the map, and the
/// reverse map changes in as many places.
pub(crate) fn convert(geometry: &Geometry) -> LogReservation {
    let runs = 2 * EXTENTS_AT_ONCE as u32;
    let map = map(geometry) + runs * buf(geometry.block_size);
    let trees = section_trees(geometry, 2 * runs);
    LogReservation::new(inode(geometry) + map + trees + extents(geometry, runs)).times(2)
}

/// Giving extents of the realtime section to a file, or taking them: bitmap, summary, the counter,
/// and a few extents in the file's map.
pub(crate) fn realtime(geometry: &Geometry) -> LogReservation {
    let runs = EXTENTS_AT_ONCE as u32;
    let files = BITMAP_BLOCKS_AT_ONCE + runs * (1 + SUMMARY_WORDS);
    let map = map(geometry) + 2 * runs * buf(geometry.block_size);
    let trees = section_trees(geometry, 4 * runs);
    let grown = if trees > 0 { 4 * runs } else { 2 };
    let bytes = inode(geometry) + map + trees + extents(geometry, grown) + header(geometry);
    LogReservation::new(bytes + files * buf(geometry.block_size)).times(2)
}

/// Taking a few extents out of a file, and freeing them with blocks of its map.
pub(crate) fn unmap(geometry: &Geometry) -> LogReservation {
    let freed = 2 * EXTENTS_AT_ONCE as u32;
    LogReservation::new(inode(geometry) + map(geometry) + extents(geometry, freed)).times(2)
}
