//! How many blocks an operation may dirty: the credits that its handle asks for.
//!
//! The numbers are upper bounds over all features. They matter only in that a handle may not dirty
//! more than it asked for; what it does not use goes back when it ends.

/// One inode: its block of the inode table.
pub(crate) const INODE: u32 = 1;
/// Taking or giving back blocks of one group: bitmap and descriptor.
pub(crate) const GROUP: u32 = 2;
/// The superblock.
pub(crate) const SUPER: u32 = 1;
/// Linking an inode into the orphan list and out of it: superblock or orphan block, and the
/// neighbour in the list.
pub(crate) const ORPHAN: u32 = 3;
/// Creating an inode: bitmap, descriptor, its block of the table, and the group's block bitmap
/// where that must be initialised.
pub(crate) const NEW_INODE: u32 = 4;
/// Mapping one run of new blocks in a tree of depth `depth`: a group for the data, and for every
/// level a new block, its group, and the block that was split.
pub(crate) const fn map(depth: u32) -> u32 {
    GROUP + INODE + SUPER + (depth + 2) * (GROUP + 2)
}
/// Appending one block to a directory.
pub(crate) const APPEND: u32 = map(2);
/// Blocks of a directory, or of journaled data, that are freed at once: each is revoked, and a
/// credit pays for a block full of revocations.
pub(crate) const REVOKES_MAX: u32 = 256;
/// Taking one extent out of a tree: it lies in five groups at most (1 KiB blocks), every level of
/// the tree may lose a block, blocks are revoked; and what the caller needs to restart: the inode
/// and the orphan list.
pub(crate) const REMOVE: u32 = 5 * GROUP + 5 * (GROUP + 2) + 4 + INODE + SUPER + ORPHAN;
/// Taking one of a small file's extents out of the inode: it lies in two groups at most.
pub(crate) const REMOVE_SMALL: u32 = 2 * GROUP + 1;
/// Removing the last name of an inode: orphan list, inode, bitmap.
pub(crate) const UNLINK: u32 = ORPHAN + INODE + NEW_INODE + REMOVE_SMALL;
/// Making an entry in a quota file: the header, the blocks of the tree, two data blocks, and up to
/// four new blocks of the file with their place.
pub(crate) const fn quota_entry(block_size: u32) -> u32 {
    let new = 4 * 1024 / block_size + 1;
    1 + 4 + 2 + new * (APPEND + INODE)
}
/// What a truncation asks for at first and again at every restart.
pub(crate) const TRUNCATE: u32 = 2 * REMOVE;
