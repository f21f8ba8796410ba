//! ext2, ext3 and ext4 on their real disk formats.
//!
//! - [`format`] holds the structures as they lie on the disk; every other module uses it.
//! - `trans` makes changes atomic: handles of the journal, and how many blocks each may change.
//! - `sb` is the superblock of a mount with its device, journal and first error.
//! - `alloc` manages free blocks, `ialloc` inodes and orphans, `bmap` the blocks of a file (extents
//!   and indirect blocks), `quota` what everybody may have.
//! - `inode` is an inode in memory; `dir`, `attr` and `file` are what it holds.
//! - [`mount`] puts all of them together: [`Ext4::mount`], then [`vfs::FileSystem`]. Its module
//!   `super_` states the lock order.
//! - [`check`](mod@check) finds what is wrong with a file system, without changing it.
//! - [`mkfs`](mod@mkfs) makes one with the decisions of `mke2fs`.
//!
//! The folders have the names of those of the `xfs` crate. The parts of a mounted file system are
//! methods of [`Ext4`], which has one field for each of them: so they know the mount, and it knows
//! them.
//!
//! Compared with Linux, not supported and refused by name: bigalloc, inline data, encryption,
//! case-insensitive directories, multi-mount protection; and online resizing.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod format;
pub mod mkfs;
pub mod mount;
pub mod quota;

mod alloc;
mod attr;
mod bmap;
mod dir;
mod file;
mod ialloc;
mod inode;
mod sb;
mod trans;

pub use check::{CheckOptions, CheckReport, Finding, Rule, check};
pub use mkfs::{FsType, MkfsError, MkfsOptions, MkfsReport, mkfs};
pub use mount::MountError;
pub use mount::super_::Ext4;
pub use sb::bh_lru::{BhLru, transaction_blocks};
pub use sb::options::MountOptions;
