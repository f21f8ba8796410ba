//! ext2, ext3 and ext4 on their real disk formats.
//!
//! - [`format`] holds the structures as they lie on the disk, and is shared by everybody here.
//! - [`check`](mod@check) finds what is wrong with one, without changing it.
//! - [`mkfs`](mod@mkfs) makes a file system with the decisions of `mke2fs`.
//! - [`Ext4`] is a mounted file system: [`Ext4::mount`], then [`vfs::FileSystem`].
//!
//! Inside, from below: groups and bitmaps (`balloc`, `mballoc`, `ialloc`), inodes (`inode`), the
//! maps from file to device blocks (`map`, `extents`, `indirect`), file data (`file`, `truncate`,
//! `fallocate`, `seek`, `journal_data`), orphans, and the handles that make all of it atomic
//! (`ext4_jbd2`). The lock order is told in `super_`.
//!
//! Compared with Linux, not supported and refused by name: bigalloc, inline data, encryption,
//! case-insensitive directories, multi-mount protection; and online resizing.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod format;
pub mod mkfs;
pub mod mount_options;

mod acl;
mod balloc;
mod bh_lru;
mod credits;
mod delalloc;
mod dir;
mod direct;
mod ext4_jbd2;
mod extents;
mod fallocate;
mod file;
mod fs;
mod fsync;
mod htree;
mod ialloc;
mod indirect;
mod inode;
mod iomap;
mod journal_data;
mod map;
mod mballoc;
mod mount;
mod namei;
mod orphan;
pub mod quota;
mod read_super;
mod reservation;
#[cfg(debug_assertions)]
mod size_rule;
mod super_;
mod truncate;
mod write_super;
mod xattr;

pub use bh_lru::{BhLru, transaction_blocks};
pub use check::{CheckOptions, CheckReport, Finding, Rule, check};
pub use mkfs::{FsType, MkfsError, MkfsOptions, MkfsReport, mkfs};
pub use mount::{MountError, MountOptions};
pub use super_::Ext4;
