//! What the tests of iopath share.
//!
//! - [`memfs`]: a small file system in memory, obviously right, that others are compared with;
//! - [`conformance`]: what POSIX and Linux ask of every operation, `errno` by `errno`;
//! - [`model`]: random operations applied to a file system and to [`memfs`], compared step by step;
//! - [`crash`]: the write log of a device cut at every flush and in between;
//! - [`workload`]: tasks that create, append, rename and sync, while an [`oracle`] notes what each
//!   sync promised; [`chaos`]: tasks that do anything to the same names;
//! - [`judge`]: the outside opinions: e2fsck, the kernel's own mount;
//! - [`newest`]: xfsprogs and e2fsprogs of Debian's newest suite, in a folder of their own;
//! - [`full`]: tasks on full devices; [`fsx`]: one file under all operations on content, on full
//!   devices and others, in process and through a mount;
//! - [`ganesha`]: a running server of NFS that is not ours;
//! - [`guest`]: a kernel that has what that of this machine lacks;
//! - [`image`]: images between files and memory;
//! - [`kept`]: tables that are kept as text beside a test;
//! - [`unnamed`]: files that are made without names, for tests of power cuts;
//! - [`twin`]: one file as bytes, beside a file system's;
//! - [`below`]: a directory as if it were the root;
//! - [`beside_kernel`]: rates of names in one large directory, ours and the kernel's;
//! - [`paths`]: names one after another, for profiles;
//! - [`mod@format`]: a format as the tests of all formats see it;
//! - [`trials`]: what is tried on each format;
//! - [`packed`]: images that are kept compressed;
//! - [`timed`]: devices in memory behind the times of a modelled one;
//! - [`steps`]: what a meter has reported;
//! - [`walks`]: paths by kept walks and by walks anew;
//! - [`read_many`]: many small files read at once;
//! - [`manifest`]: one line per name, for comparing trees.
//!
//! Nothing here is linked into the command. Every failure prints its seed.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod below;
pub mod beside_kernel;
pub mod campaign;
pub mod chaos;
pub mod conformance;
pub mod content;
pub mod crash;
pub mod format;
pub mod fsx;
pub mod full;
pub mod ganesha;
pub mod guest;
pub mod image;
pub mod judge;
pub mod kept;
pub mod lvm;
pub mod manifest;
pub mod memfs;
pub mod mixed;
pub mod model;
pub mod newest;
pub mod oracle;
pub mod packed;
pub mod paths;
pub mod read_many;
pub mod steps;
pub mod timed;
pub mod trials;
pub mod twin;
pub mod unnamed;
pub mod walks;
pub mod workload;
