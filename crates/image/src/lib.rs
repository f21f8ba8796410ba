//! Files inside disk images of ext2, ext3, ext4 and XFS, with the functions of `std::fs`.
//!
//! No root, no kernel mount, no FUSE: the file system runs in this process, on its real disk
//! format, through its journal.
//!
//! ```no_run
//! # fn main() -> Result<(), image::Error> {
//! let fs = image::Image::open("disk.img")?.fs()?;
//! let name = fs.read("/etc/hostname")?;
//! for entry in fs.read_dir("/etc")? {
//!     println!("{}", entry?.path().display());
//! }
//! # drop(name); Ok(()) }
//! ```
//!
//! [`Image::open`] opens an image file, a block device or a network block device for reading;
//! [`Image::options`] for writing too, or one partition of it; [`Image::create`] makes an image
//! with a new file system. [`Image::fs`] mounts it: [`Fs`] has the functions of `std::fs`, a
//! [`File`] reads, writes and seeks. [`Image::check`] is a read-only fsck, `Image::repair` repairs
//! what it finds.
//!
//! Everything is `Send` and `Sync`: any number of threads may use one [`Fs`]. A call blocks its
//! thread while it waits for the device; from async code call it in a thread for blocking work.
//! Calls have root's rights inside the image: permission bits do not refuse anything.
//!
//! Written data is durable after [`File::sync_all`], [`Fs::sync`] or [`Fs::unmount`]. If the
//! process crashes before, the next mount recovers the image from its journal. An image is locked
//! while it is open: a second process is refused.
//!
//! The layers below ([`vfs::FileSystem`], the caches, the devices) are crates of their own, which
//! also run in virtual time; this crate runs them in real time only.

//!
//! Features: `ext4` (ext2, ext3, ext4), `xfs`, `repair`, and `io-uring` for direct I/O on Linux;
//! all are on by default. On Windows and macOS image files are read and written by the standard
//! library; on Windows a name that is no UTF-8 shows the replacement character.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(not(any(feature = "ext4", feature = "xfs")))]
compile_error!("iopath-image needs a file system: the feature `ext4` or `xfs`");

mod bytes;
mod canonical;
mod dir;
mod error;
mod file;
pub mod format;
mod fs;
mod make;
mod metadata;
mod mounted;
mod open;
pub mod recognise;
#[cfg(feature = "repair")]
mod repair;
mod walk;

#[cfg(feature = "repair")]
pub use self::repair::{Mistake, Plan};
pub use base::Errno;
pub use block::Device;
pub use dir::{DirBuilder, DirEntry, ReadDir};
pub use error::{Error, Result};
pub use file::{File, OpenOptions};
pub use format::Format;
pub use fs::Space;
pub use make::Make;
pub use metadata::{FileType, Metadata};
pub use mounted::Fs;
pub use open::{Finding, Image, ImageOptions, Report};
pub use vfs::RenameFlags;
pub use walk::Walk;
