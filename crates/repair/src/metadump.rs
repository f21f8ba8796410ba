//! The metadata of a file system alone, for a bug report: names obscured, file content left out.
//!
//! [`dump`] visits every block of metadata, replaces what is private in it, and passes it to a
//! [`Sink`] with its place. Checksums are set where they were right before, so that damage stays
//! damage and what is sound stays sound for every checker. A block that cannot be parsed cannot be
//! obscured: it is left out, and named ([`Report::left_out`]).
//!
//! What becomes of names:
//!
//! - XFS directories and attributes: a keyed permutation of all names of one length and one hash.
//!   The index stays as it is, and parent pointers still name their entries. Names of up to four
//!   bytes are their hash, and stay; of names of five to eight bytes some bits do.
//! - ext4 directories: new names of the same length, drawn until their hash fits the leaf of the
//!   hash tree. Names for whose length there are too few stay, and are counted.
//! - `.`, `..`, `lost+found`, the names of XFS's metadata directories, and ACLs stay.
//!
//! A dirty log holds older copies of all of that. It is replayed in memory first, and the dump has
//! an empty one; if names are kept, the log is copied as it is.
//!
//! Memory: for XFS one inode's block map, and 24 bytes for each chunk of inodes in a group; for
//! ext4 the new names of 16,384 leaves of one directory.

use std::io;
use std::sync::Arc;

use ::xfs::mount::options::BesideDevice;
use block::{DeviceError, Queue};
use rt::Cx;

mod ext;
mod permute;
pub mod stream;
mod xfs;

/// The devices of a file system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// That of the data: mostly the only one.
    Data,
    /// That of an external log.
    Log,
    /// That of a realtime section.
    Realtime,
}

/// Where a dump goes.
pub trait Sink {
    /// Takes bytes of metadata and their place on a device. The first ones are those of the
    /// superblock for XFS; otherwise the order means nothing, and a later piece replaces an earlier
    /// one. Offset and length are multiples of 512. May block.
    ///
    /// # Errors
    /// The host's.
    fn put(&mut self, part: Part, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

/// What a dump holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DumpOptions {
    /// Names, attributes and targets of symbolic links as they are, and the log.
    pub keep_names: bool,
    /// What names are obscured with: equal keys make equal names.
    pub key: [u8; 16],
}

/// Devices beside that of the data, which are in the dump.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// That of an external log of XFS.
    pub log: Option<BesideDevice>,
    /// That of a realtime section: its superblock.
    pub realtime: Option<BesideDevice>,
}

/// What was dumped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Inodes in use.
    pub inodes: u64,
    /// Bytes that the sink got.
    pub bytes: u64,
    /// Bytes of the file system: the size of an image with the dump.
    pub size: u64,
    /// The log holds changes that are not on the disk yet.
    pub dirty_log: bool,
    /// Names that had to stay.
    pub names_kept: u64,
    /// What could not be parsed, and is not in the dump.
    pub left_out: Vec<String>,
}

/// Why there is no dump, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The dump could not be written.
    #[error(transparent)]
    Sink(#[from] io::Error),
    /// It cannot be done for this file system.
    #[error("{0}")]
    Refused(String),
}

/// Dumps the metadata of the ext2, ext3, ext4 or XFS behind `queue`. Reads only; parks on reads.
///
/// # Errors
/// See [`DumpError`]. What the sink got until then is no whole dump.
pub fn dump(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    devices: &Devices,
    options: &DumpOptions,
    sink: &mut dyn Sink,
) -> Result<Report, DumpError> {
    match crate::xfs::is_here(cx, queue)? {
        true => xfs::dump(cx, queue, devices, options, sink),
        false => ext::dump(cx, queue, options, sink),
    }
}

/// The sink, and what it got.
struct Out<'a> {
    sink: &'a mut dyn Sink,
    options: DumpOptions,
    report: Report,
}

impl<'a> Out<'a> {
    fn new(sink: &'a mut dyn Sink, options: &DumpOptions, size: u64) -> Out<'a> {
        Out { sink, options: *options, report: Report { size, ..Report::default() } }
    }

    /// Passes bytes of the data device on.
    fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.put_on(Part::Data, offset, bytes)
    }

    /// Passes bytes on.
    fn put_on(&mut self, part: Part, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.report.bytes += bytes.len() as u64;
        self.sink.put(part, offset, bytes)
    }

    /// Notes what is not in the dump.
    fn leave_out(&mut self, at: impl ToString) {
        self.report.left_out.push(at.to_string());
    }

    fn keeps_names(&self) -> bool {
        self.options.keep_names
    }
}
