//! The interface of file systems, and the code above every one of them.
//!
//! ```text
//!   command, FUSE, NFS server, workloads
//!        |  paths, credentials                      |  inode numbers
//!   Namespace (permission, inheritance) -- File     |
//!        |  path walk                               |
//!        +------------- trait FileSystem -----------+
//!                            |
//!                     ext4, xfs, nfs, memfs
//! ```
//!
//! A file system implements [`FileSystem`]: operations on inode numbers, as FUSE and NFS need them.
//! It does exactly what it is asked and checks no permission. [`Namespace`] is the system-call
//! layer: it resolves paths ([`path`]), checks the credentials of the task ([`permission`]), lets a
//! new file inherit group and ACL from its directory, and clears set-id bits. [`File`] is an open
//! file with flags and a position.
//!
//! A typical sequence:
//!
//! ```text
//! let ns = Namespace::new(fs);
//! let file = ns.open(cx, b"/etc/motd", OpenFlags::WRITE | OpenFlags::CREATE, 0o644)?;
//! file.write(cx, b"hello\n")?;
//! file.fsync(cx)?;
//! file.close(cx)?;
//! ```
//!
//! File systems that keep data in the `cache` crate's folios use [`direct`] for `O_DIRECT`, and
//! [`gather`] to read many small files with few requests; those on disks name their
//! features by [`feature`].
//!
//! Not modelled compared with Linux: mounts below mounts, `chroot`, user namespaces, leases,
//! `flock` and POSIX locks, `atime` updates by reading (the callers of this crate decide that).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod acl;
mod attr;
pub mod check;
mod create;
pub mod direct;
pub mod feature;
mod file;
mod forward;
mod fs;
pub mod gather;
mod inode_cache;
pub mod iomap;
mod name_cache;
mod namespace;
pub mod path;
mod path_cache;
pub mod permission;
pub mod quota;
pub mod rename;
pub mod walk;

pub use cache::{Iomap, IomapKind, IomapOps, Lost};

pub use attr::{
    Attr, DirEntry, FallocMode, FileType, NewNode, RenameFlags, SeekWhence, SetAttr, StatFs,
    XattrFlags, major, makedev, minor,
};
pub use create::{create_in, create_unnamed_in};
pub use file::{File, OpenFlags};
pub use fs::{
    ExtentHints, FilePlace, FileRead, FileSystem, NAME_MAX, PATH_MAX, ParentName, XATTR_NAME_MAX,
    XATTR_SIZE_MAX, check_name,
};
pub use inode_cache::{CachedInode, InodeCache};
pub use name_cache::{NAME_CACHED_MAX, NameCache};
pub use namespace::Namespace;
