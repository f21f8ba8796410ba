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
//! The features choose: formats (`ext4`, `xfs`), faces (`fuse`, `nfs`, `network`), `io-uring`, and
//! what measures and repairs (`model`, `workload`, `lab`, `crash`, `repair`). All are on by
//! default, with the `command`, which needs them all but `network`. A reader of ext4 takes
//! `default-features = false, features = ["ext4"]`.
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
#[cfg(feature = "crash")]
pub use crash;
pub use device;
#[cfg(feature = "ext4")]
pub use ext4;
#[cfg(feature = "fuse")]
pub use fuse;
#[cfg(any(feature = "ext4", feature = "xfs"))]
pub use image::{self, recognise};
#[cfg(feature = "ext4")]
pub use jbd2;
#[cfg(feature = "lab")]
pub use lab;
#[cfg(feature = "model")]
pub use model;
#[cfg(feature = "nfs")]
pub use nfs;
#[cfg(feature = "repair")]
pub use repair;
pub use rt;
pub use vfs;
pub use vfs::walk;
#[cfg(feature = "workload")]
pub use workload;
#[cfg(feature = "xfs")]
pub use xfs;

#[cfg(all(feature = "command", feature = "network"))]
mod ahead;
#[cfg(feature = "command")]
pub mod app;
#[cfg(feature = "command")]
pub mod bench;
#[cfg(feature = "command")]
pub mod build;
#[cfg(feature = "command")]
pub mod cli;
#[cfg(feature = "command")]
pub mod cmd;
#[cfg(feature = "command")]
pub mod confine;
#[cfg(feature = "command")]
pub mod copy;
#[cfg(feature = "command")]
mod demo;
#[cfg(feature = "command")]
pub mod disk;
#[cfg(feature = "command")]
pub mod glob;
#[cfg(feature = "command")]
mod inside;
#[cfg(feature = "command")]
mod interrupt;
#[cfg(feature = "command")]
mod journal_arg;
#[cfg(feature = "command")]
pub mod keys;
#[cfg(feature = "command")]
mod log;
#[cfg(feature = "command")]
mod losses;
#[cfg(feature = "command")]
pub mod metrics;
#[cfg(feature = "command")]
pub mod mount_arg;
#[cfg(feature = "command")]
mod mount_helper;
#[cfg(feature = "command")]
mod nfs_target;
#[cfg(feature = "command")]
mod notify;
#[cfg(feature = "command")]
pub mod out;
#[cfg(all(feature = "command", feature = "network"))]
mod overlay;
#[cfg(feature = "command")]
pub mod owner;
#[cfg(feature = "command")]
mod passphrase;
#[cfg(feature = "command")]
pub mod places;
#[cfg(feature = "command")]
pub mod remains;
#[cfg(feature = "command")]
pub mod rescue;
#[cfg(feature = "command")]
pub mod scan;
#[cfg(feature = "command")]
pub mod session;
#[cfg(feature = "command")]
pub mod sim;
#[cfg(feature = "command")]
pub mod storage;
#[cfg(feature = "command")]
pub mod target;
#[cfg(feature = "command")]
pub mod text;
#[cfg(feature = "command")]
pub mod trees;
#[cfg(feature = "command")]
mod volumes;
#[cfg(feature = "command")]
mod watch;

#[cfg(feature = "command")]
mod xfs_target;
