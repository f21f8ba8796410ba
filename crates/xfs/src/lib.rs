//! XFS on its real disk format: version 5, and version 4 for reading.
//!
//! - [`format`] holds the structures as they lie on the disk; every other module uses it.
//! - [`buf`] keeps blocks of metadata in memory.
//! - [`log`] makes changes durable and recovers them; its items (`buf_item`, `inode_item`) know
//!   what of a buffer or an inode is dirty. [`trans`] changes buffers and inodes together.
//! - `btree` is shared by the trees of a group and by the maps of files; `da_btree` by directories
//!   and attributes.
//! - `alloc` manages free space, `ialloc` inodes, `bmap` the blocks of a fork; `sb` changes the
//!   superblock, `uncached` an inode that nobody has mounted.
//! - `metadir` is the tree of directories that names inodes of the file system itself; `quota`
//!   counts what owners have, and holds them to their limits.
//! - `fs` is a mounted file system: what all operations share, and how a transaction is run. It
//!   states the lock order. `inode` is an inode in memory.
//! - `file` is the data of an inode, `dir` the entries of one, `symlink` its target, `attr` its
//!   attributes.
//! - `inactive` frees inodes without names; `namei` is the operations on names, `set_attr` that on
//!   an inode's values.
//! - [`mount`] mounts, recovers and unmounts ([`Xfs::mount`]), and is the face to everybody else
//!   ([`vfs::FileSystem`]).
//! - [`check`](mod@check) finds what is wrong with a file system, without changing it.
//! - [`resize`](mod@resize) makes one larger or smaller, [`tune`](mod@tune) changes its label,
//!   UUID and features.
//! - [`mkfs`](mod@mkfs) makes one with the decisions of `mkfs.xfs`.
//!
//! Each module uses only those above it in this list, but for two circles, whose things know each
//! other in Linux, too: an inode knows its mount (`fs`), and the mount keeps the inodes; a
//! transaction goes to the log, and the log carries out what recovered intents ask for in
//! transactions. Within a folder, a module and its parts use each other.
//!
//! Compared with Linux, not supported and refused by name: zoned devices;
//! read-only: version 4, realtime groups with btrees of their own.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod buf;
pub mod check;
pub mod error;
pub mod format;
pub mod log;
pub mod mkfs;
pub mod mount;
pub mod resize;
pub mod trans;
pub mod tune;

pub use error::{Result, XfsError};

#[cfg(test)]
extern crate self as xfs;
#[cfg(test)]
#[path = "../tests/it/log_common/mod.rs"]
mod log_common;

mod alloc;
mod attr;
mod bmap;
mod btree;
mod da_btree;
mod dir;
mod file;
mod fs;
mod ialloc;
mod inactive;
mod inode;
mod metadir;
mod namei;
mod quota;
mod sb;
mod set_attr;
mod symlink;
mod uncached;

pub use check::{CheckOptions, CheckReport, Count, Counter, Finding, Rule};
pub use check::{check, check_beside, check_counting, check_counts, holders};
pub use fs::Xfs;
pub use fs::options::MountOptions;
pub use log::recovery::RecoveryReport;
pub use mkfs::{MkfsError, MkfsOptions, MkfsReport, mkfs};
pub use mount::MountError;
pub use mount::recovery::{recover, recover_beside};
pub use quota::QuotaMode;
