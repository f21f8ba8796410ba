//! XFS version 5 on its real disk format.
//!
//! - [`format`] holds the structures as they lie on the disk, and is shared by everybody here.
//! - [`buf`] keeps blocks of metadata in memory; [`buf_item`] knows what of them is dirty.
//! - [`trans`] changes buffers and inodes together; [`log`] makes that durable, and recovers it.
//! - [`check`](mod@check) finds what is wrong with one, without changing it.
//! - [`mkfs`](mod@mkfs) makes a file system with the decisions of `mkfs.xfs`.
//! - [`Xfs`] is a mounted file system: [`Xfs::mount`], then [`vfs::FileSystem`].
//!
//! Inside, from below: checked metadata (`meta`), the maps from fork to device blocks (`bmap`),
//! inodes (`inode`), directories (`dir`), attributes (`attr`), symbolic links (`symlink`), file
//! data (`file`). The lock order is told in `super_`.
//!
//! Compared with Linux, not supported and refused by name: version 4, realtime files, metadata
//! directories, zoned devices, case-insensitive names; read-only: quota, parent pointers, exchange
//! of file ranges, external logs.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod buf;
pub mod buf_item;
pub mod check;
pub mod error;
pub mod format;
pub mod inode_item;
pub mod log;
pub mod mkfs;
pub mod mount_options;
pub mod replay;
pub mod trans;

pub use error::{Result, XfsError};

#[cfg(test)]
extern crate self as xfs;
#[cfg(test)]
#[path = "../tests/log_common/mod.rs"]
mod log_common;

#[allow(dead_code, reason = "the write side of files builds on it")]
mod alloc;
mod attr;
mod bmap;
mod cow;
mod create;
mod da_btree;
mod delayed;
mod dir;
mod direct;
mod fallocate;
mod fault;
mod file;
mod file_io;
mod fs;
mod fsync;
#[allow(dead_code, reason = "the write side of files builds on it")]
mod ialloc;
mod inactive;
#[allow(dead_code, reason = "the write side of files builds on it")]
mod inode;
mod loose;
mod meta;
mod mount;
mod namei;
mod recover;
#[cfg(test)]
mod recover_tests;
mod reflink;
#[allow(dead_code, reason = "the write side of files builds on it")]
mod reservations;
mod seek;
mod set_attr;
mod small_files;
#[allow(dead_code, reason = "the write side of files builds on it")]
mod super_;
mod symlink;
#[allow(dead_code, reason = "the write side of files builds on it")]
mod tree;
mod truncate;
mod write;
mod writeback;
#[allow(dead_code, reason = "the write side of files builds on it")]
mod writer;

pub use check::{CheckOptions, CheckReport, Finding, Rule, check};
pub use mkfs::{MkfsError, MkfsOptions, MkfsReport, mkfs};
pub use mount::{MountError, MountOptions};
pub use super_::Xfs;
