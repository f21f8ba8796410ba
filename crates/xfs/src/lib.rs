//! XFS on its real disk format: version 5, and version 4 for reading.
//!
//! - [`format`] holds the structures as they lie on the disk; every other module uses it.
//! - [`buf`] keeps blocks of metadata in memory.
//! - [`log`] makes changes durable and recovers them; its items (`buf_item`, `inode_item`) know
//!   what of a buffer or an inode is dirty. [`trans`] changes buffers and inodes together.
//! - `btree` is shared by the trees of a group and by the maps of files; `da_btree` by directories
//!   and attributes.
//! - `alloc` manages free space, `ialloc` inodes, `bmap` the blocks of a fork.
//! - `quota` counts what owners have, and holds them to their limits.
//! - `inode` is an inode in memory; `dir`, `attr` and `file` are what it holds.
//! - [`mount`] puts all of them together: [`Xfs::mount`], then [`vfs::FileSystem`]. Its module
//!   `super_` states the lock order.
//! - [`check`](mod@check) finds what is wrong with a file system, without changing it.
//! - [`mkfs`](mod@mkfs) makes one with the decisions of `mkfs.xfs`.
//!
//! Mostly a module uses those above it in this list. Two circles of files stay, because the things
//! know each other in Linux, too: an inode knows its mount, and the mount keeps the inodes; a
//! transaction goes to the log, and the log carries out what recovered intents ask for in
//! transactions. Within a folder, a module and its parts use each other.
//!
//! Compared with Linux, not supported and refused by name: realtime files, metadata directories,
//! zoned devices, case-insensitive names; read-only: version 4, external logs.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod buf;
pub mod check;
pub mod error;
pub mod format;
pub mod log;
pub mod mkfs;
pub mod mount;
pub mod trans;

pub use error::{Result, XfsError};

#[cfg(test)]
extern crate self as xfs;
#[cfg(test)]
#[path = "../tests/log_common/mod.rs"]
mod log_common;

mod alloc;
mod attr;
mod bmap;
mod btree;
mod da_btree;
mod dir;
mod file;
mod ialloc;
mod inode;
mod quota;

pub use check::{CheckOptions, CheckReport, Finding, Rule, check, holders};
pub use mkfs::{MkfsError, MkfsOptions, MkfsReport, mkfs};
pub use mount::MountError;
pub use mount::options::{MountOptions, QuotaMode};
pub use mount::recovery::recover;
pub use mount::recovery::report::RecoveryReport;
pub use mount::super_::Xfs;
