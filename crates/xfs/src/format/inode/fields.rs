//! Fields of an inode in use that no content depends on, and that have one possible value: padding,
//! numbers that a flag makes count, flags of features that the file system does not have.
//!
//! Found by changing each field of an inode, its checksum put right, and asking `xfs_repair -n`.

use base::Ino;

use super::{Flags, Flags2, ForkFormat, RawInode};
use crate::format::{AgInode, Geometry, NULL32};

/// A field that should have another value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongField {
    /// The format's name of it.
    pub name: &'static str,
    /// What it is.
    pub found: u64,
    /// What it must be.
    pub wanted: u64,
}

impl std::fmt::Display for WrongField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is {:#x}, must be {:#x}", self.name, self.found, self.wanted)
    }
}

/// Nanoseconds end below this in narrow times.
const NANOS: u64 = 1_000_000_000;

/// The core of an inode in use as it must be, with the fields that are not; an inode of an older
/// version has none.
pub fn corrected(raw: &RawInode, ino: Ino, geometry: &Geometry) -> (RawInode, Vec<WrongField>) {
    let (mut core, mut wrong) = (*raw, Vec::new());
    if raw.di_version < 3 {
        return (core, wrong);
    }
    macro_rules! must_be {
        ($field:ident, $wanted:expr) => {
            let (found, wanted) = (core.$field, $wanted);
            if found.get() != wanted {
                let (found, wanted64) = (u64::from(found.get()), u64::from(wanted));
                wrong.push(WrongField { name: stringify!($field), found, wanted: wanted64 });
                core.$field.set(wanted);
            }
        };
    }
    let flags = Flags::from_bits_retain(raw.di_flags.get());
    let flags2 = flags2(Flags2::from_bits_retain(raw.di_flags2.get()), geometry);
    must_be!(di_flags2, flags2.bits());
    if !flags2.contains(Flags2::METADATA) {
        must_be!(di_onlink, 0);
    }
    match flags2.contains(Flags2::NREXT64) {
        true => {
            must_be!(di_anextents, 0);
        }
        false => {
            must_be!(di_big_nextents, 0);
        }
    }
    if !flags.intersects(Flags::EXTSIZE | Flags::EXTSZINHERIT) {
        must_be!(di_extsize, 0);
    }
    if !flags2.contains(Flags2::COWEXTSIZE) {
        must_be!(di_cowextsize, 0);
    }
    let AgInode { ag, .. } = geometry.ino_split(ino);
    let next = AgInode { ag, agino: raw.di_next_unlinked.get() };
    if raw.di_nlink.get() > 0 || !geometry.ino_valid(geometry.ino_join(next)) {
        must_be!(di_next_unlinked, NULL32);
    }
    if !flags2.contains(Flags2::BIGTIME) {
        must_be!(di_atime, narrow(raw.di_atime.get()));
        must_be!(di_mtime, narrow(raw.di_mtime.get()));
        must_be!(di_ctime, narrow(raw.di_ctime.get()));
        must_be!(di_crtime, narrow(raw.di_crtime.get()));
    }
    if raw.di_forkoff == 0 && raw.di_aformat != ForkFormat::Extents as u8 {
        let (found, wanted) = (raw.di_aformat.into(), ForkFormat::Extents as u64);
        wrong.push(WrongField { name: "di_aformat", found, wanted });
        core.di_aformat = ForkFormat::Extents as u8;
    }
    (core, wrong)
}

/// Those flags that the file system has.
fn flags2(flags: Flags2, geometry: &Geometry) -> Flags2 {
    let features = &geometry.features;
    let mut known = Flags2::DAX;
    known.set(Flags2::REFLINK | Flags2::COWEXTSIZE, features.reflink());
    known.set(Flags2::BIGTIME, features.bigtime());
    known.set(Flags2::NREXT64, features.nrext64());
    known.set(Flags2::METADATA, geometry.metadata_root.is_some());
    flags & known
}

/// A narrow time whose nanoseconds are less than a second.
fn narrow(bits: u64) -> u64 {
    if bits & u64::from(u32::MAX) < NANOS { bits } else { bits & !u64::from(u32::MAX) }
}
