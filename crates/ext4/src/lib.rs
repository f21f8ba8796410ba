//! ext2, ext3 and ext4 on their real disk formats.
//!
//! - [`format`] holds the structures as they lie on the disk; every other module uses it.
//! - [`shape`] is the superblock of another size.
//! - `trans` makes changes atomic: handles of the journal, and how many blocks each may change.
//! - `sb` is the superblock of a mount with its device, its journal and its first error.
//! - `alloc` manages free blocks, `ialloc` free inodes, `dquot` what everybody may have of both.
//! - `inode` is the inodes in memory, with their slots on the disk, the orphans, and what is
//!   reserved for delayed data; `mbcache` knows which attribute blocks they may share.
//! - `crypto` is what is encrypted of an inode, and with which key; `verity` its Merkle tree.
//! - `bmap` maps the blocks of a file (extents and indirect blocks), `file` is its data, `attr` its
//!   attributes; `evict` ends an inode.
//! - [`quota`] is the files with everybody's accounts.
//! - `ext4` is the mount, which has one field for each of them, and states the lock order.
//! - `dir` is the operations on names; [`mount`] mounts and unmounts ([`Ext4::mount`]) and is the
//!   face to everybody else ([`vfs::FileSystem`]).
//! - [`check`](mod@check) finds what is wrong with a file system, without changing it.
//! - [`mkfs`](mod@mkfs) makes one with the decisions of `mke2fs`.
//!
//! The folders have the names of those of the `xfs` crate, and each uses only those above it in
//! this list. One circle is the format's: the value of an attribute may be an inode of its own,
//! which ends as every inode does, so `attr` and `evict` know each other.
//!
//! Compared with Linux, not supported and refused by name: encrypted directories that ignore case.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod format;
pub mod mkfs;
pub mod mount;
pub mod quota;
pub mod shape;

mod alloc;
mod attr;
mod bmap;
mod crypto;
mod dir;
mod dquot;
mod evict;
mod ext4;
mod file;
mod ialloc;
mod inode;
mod journal_device;
mod mbcache;
mod sb;
mod trans;
mod verity;

pub use check::{CheckOptions, CheckReport, Counted, Finding, Policies, Rule, WrongLinks};
pub use check::{check, check_counting, holders, memory};
pub use ext4::Ext4;
pub use journal_device::{JournalDevice, JournalDeviceError, JournalFacts};
pub use mkfs::{ExternalJournal, FsType, MkfsError, MkfsOptions, MkfsReport, mkfs};
pub use mount::{HURD, MountError, replay_fast_commits};
pub use sb::bh_lru::{BhLru, transaction_blocks};
pub use sb::legacy::LegacyLookups;
pub use sb::mmp::Busy;
pub use sb::options::{MountOptions, QuotaName};
