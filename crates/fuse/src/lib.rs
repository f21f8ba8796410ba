//! FUSE: mounts a file system of iopath on a directory of the host.
//!
//! ```text
//!   programs
//!      |  system calls
//!   kernel: dentries, attributes, page cache, permission checks
//!      |  /dev/fuse: the first exchange by the crate `fuser`, all others by us
//!   Workers: the threads that serve; Adapter: what a request means
//!      |  inode numbers
//!   trait vfs::FileSystem: ext4, xfs, ..
//! ```
//!
//! A typical sequence: open and mount the image, then
//!
//! ```text
//! let signals = Signals::block();                      // before any other thread exists
//! let mount = Mount::new(cx, fs.clone(), dir, &options)?;
//! let end = mount.run(cx, Some(signals.into()))?;      // until umount or a signal
//! fs.unmount(cx)?;                                     // everything is on the image
//! ```
//!
//! # We are the only writer
//!
//! Nobody else changes what lies below a mounted image (the device is locked), so the kernel may
//! keep names (also those that do not exist), attributes, directory listings and pages for as long
//! as it likes, and collect writes (writeback cache). When fsync returns, the
//! data is on the image: fsync writes the kernel's pages to us and then ours to the image.
//!
//! # Inodes without names
//!
//! We answer that `open` is not needed, so the kernel sends neither OPEN nor RELEASE. It holds a
//! reference for every answer that names an inode, and gives the references back with FORGET. An
//! inode whose last name goes is *pinned* (opened in the file system) until then: files that are
//! open while unlinked, working directories that were removed and the like live on.
//!
//! # Not done, compared with the kernel's own mount
//!
//! `docs/mount.md` has the list: no `atime` from reading, `sync(2)` is not handed down by the
//! kernel (fsync is), a full disk is reported late (`writeback_errors`,
//! `writeback_limits`).
#![deny(unsafe_code)]
#![deny(missing_docs)]

mod abi;
mod adapter;
mod ask;
mod convert;
mod event;
mod forget;
mod grow;
mod handshake;
mod keeper;
mod keeping;
mod kernel;
mod lead;
mod listing;
mod mounting;
mod nodes;
mod open_file;
mod options;
mod outside;
mod pages;
mod pm_qos;
mod ring;
mod rings;
mod seek;
mod session;
mod signals;
mod stop;
mod wire;
mod workers;
mod writeback_errors;
mod writeback_limits;

pub use grow::grow;
pub use keeper::Keeper;
pub use keeping::serve as keep;
pub use kernel::mounts;
pub use mounting::{abort, unmount, unmount_below};
pub use nix::sys::signal::Signal;
pub use options::{Access, Options, OptionsError, PmQosUse};
pub use session::{End, Mount, MountError};
pub use signals::Signals;
pub use stop::Stop;
