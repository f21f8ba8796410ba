//! Images inside containers, as devices: qcow2, VMDK, VHD, VHDX, VDI, Android sparse images and
//! seekable zstd.
//!
//! Below is a [`Source`]: bytes that do not change, from a file of the host, any device, or the
//! network. [`recognise`] says which [`Format`] they have, [`open`] reads the tables and answers an
//! [`Image`], and an [`ImageDevice`] makes a [`block::Device`] of it. A qcow2 image is written in
//! place, where [`open_to_change`] opens it on a [`Target`]. Other files that an
//! image names (its backing, its data) are opened by [`Files`], which says no to names outside of
//! the folders that it was given.
//!
//! ```no_run
//! use std::{path::Path, sync::Arc};
//! let path = Path::new("disk.qcow2");
//! let source = Arc::new(container::FileSource::open(path)?);
//! let files = container::HostFiles::beside(path);
//! let image = container::open(source, &container::How::default(), &files)?;
//! let device = container::ImageDevice::new(image, "disk.qcow2");
//! # Ok::<(), container::Error>(())
//! ```
//!
//! [`write`](mod@write) makes containers of raw disks.
//!
//! Every number of a header is checked before it is used; memory is bounded whatever it says: by
//! [`TABLES_MAX`] for tables that are kept, and a few MiB of caches for each file of a chain. VHD
//! and VHDX are parsed by the crates `rust-img-vhd` and `rust-img-vhdx`, behind a door that catches
//! a panic; the others here.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod android;
mod bytes;
mod chain;
mod device;
mod error;
mod files;
mod foreign;
mod image;
mod kind;
mod lru;
mod open;
mod packed;
mod qcow2;
mod recognise;
mod seekable;
mod source;
mod target;
mod vdi;
mod vmdk;
pub mod volume;
pub mod write;

pub use crate::device::ImageDevice;
pub use chain::TABLES_MAX;
pub use error::Error;
pub use files::{Files, HostFiles, NoFiles};
pub use image::{Fact, Image};
pub use kind::Format;
pub use open::{How, open, open_to_change};
pub use recognise::recognise;
pub use source::{DeviceSource, FileSource, Source};
pub use target::{FileTarget, Target};
