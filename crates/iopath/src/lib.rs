//! The Linux storage I/O path in user space: the facade of the library, and the command.
//!
//! [`image`] has files inside images, with the functions of `std::fs`. The layers below are
//! re-exported under their names, so that one dependency brings them all:
//!
//! ```
//! use iopath::rt::Runtime;
//!
//! let task = Runtime::real(1).enter("hello", |cx| cx.task());
//! ```
//!
//! The modules below are the command: [`cli`] knows the commands, [`cmd`] has one file for each,
//! [`target`] reads `disk.img@2:/path`, [`session`] opens and mounts what that names, [`copy`]
//! moves trees between hosts, images and archives. One circle stays: [`cli`] names the options of
//! each command, and the command `man` prints [`cli`].
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use base;
pub use block;
pub use cache;
pub use crash;
pub use device;
pub use ext4;
pub use fuse;
pub use image;
pub use image::recognise;
pub use jbd2;
pub use lab;
pub use rt;
pub use vfs;
pub use vfs::walk;
pub use workload;

#[cfg(feature = "network")]
mod ahead;
pub mod app;
pub mod bench;
pub mod build;
pub mod cli;
pub mod cmd;
pub mod confine;
pub mod copy;
mod demo;
pub mod disk;
pub mod glob;
mod inside;
mod interrupt;
mod journal_arg;
pub mod keys;
mod losses;
pub mod metrics;
pub mod mount_arg;
mod mount_helper;
mod nfs_target;
mod notify;
pub mod out;
#[cfg(feature = "network")]
mod overlay;
pub mod owner;
pub mod places;
pub mod remains;
pub mod rescue;
pub mod scan;
pub mod session;
pub mod sim;
pub mod storage;
pub mod target;
pub mod text;
pub mod trees;
mod volumes;

mod xfs_target;
