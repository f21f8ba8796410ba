//! ext2, ext3 and ext4 on their real disk formats.
//!
//! - [`format`] holds the structures as they lie on the disk, and is shared by everybody here.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod format;
