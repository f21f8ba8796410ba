//! `iopath mount` judged by real programs, by the kernel's own mount of the same format, and by
//! e2fsck and xfs_repair after a clean end and after kill -9. Needs root, FUSE and the tools that
//! `cargo xtask judges` installs.

#![allow(clippy::disallowed_methods, reason = "the host's own programs are tested, in real time")]

mod awake;
mod basics;
mod beside;
mod campaign;
mod faults;
mod fsx;
mod grow;
mod hints;
mod host;
mod kill;
mod limits;
mod many;
mod mapped;
mod nfs;
mod partitions;
mod posix;
mod programs;
mod reads;
mod rings;
mod sectors;
mod stress;
mod user;
mod watch;
