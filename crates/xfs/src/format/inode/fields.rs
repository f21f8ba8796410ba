//! Fields of an inode in use that no content depends on, and that have one possible value: padding,
//! numbers that a flag makes count, flags of features that the file system does not have.
//!
//! Found by changing each field of an inode, its checksum put right, and asking `xfs_repair -n`.

use base::Ino;

use super::{Flags, Flags2, ForkFormat, MetadataType, RawInode};
use crate::format::extent::COUNT_MAX;
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
    let (mut flags, mut flags2) = (flags(raw, ino, geometry), flags2(raw, geometry));
    let metadata = flags2.contains(Flags2::METADATA);
    let kind = raw.di_mode.get() & TYPE;
    let of_metadata = Flags::of_metadata(kind == DIRECTORY);
    // The flag alone may be a user's.
    if metadata && (raw.di_mode.get() == kind || flags.contains(of_metadata)) {
        flags |= of_metadata;
        flags2.remove(Flags2::DAX);
        must_be!(di_mode, kind);
        must_be!(di_uid, 0);
        must_be!(di_gid, 0);
        if kind == DIRECTORY {
            must_be!(di_onlink, MetadataType::Directory as u16);
        }
    }
    if !matches!(kind, DIRECTORY | REGULAR | SYMLINK) {
        must_be!(di_size, 0);
    }
    must_be!(di_flags, flags.bits());
    must_be!(di_flags2, flags2.bits());
    if !metadata {
        must_be!(di_onlink, 0);
    }
    if flags2.contains(Flags2::NREXT64) {
        must_be!(di_anextents, 0);
    } else {
        must_be!(di_big_nextents, 0);
    }
    if !flags.intersects(Flags::EXTSIZE | Flags::EXTSZINHERIT) {
        must_be!(di_extsize, 0);
    }
    // A zone's reverse map counts the blocks in use there.
    let counts = metadata && geometry.realtime.zoned;
    if !flags2.contains(Flags2::COWEXTSIZE) && !counts {
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
    attribute_fork(&mut core, kind, &mut wrong);
    (core, wrong)
}

/// Where the attributes begin, and in which form.
fn attribute_fork(core: &mut RawInode, kind: u16, wrong: &mut Vec<WrongField>) {
    // Beside the number of a device, which special files have, they begin at once.
    let number = !matches!(kind, DIRECTORY | REGULAR | SYMLINK);
    if number && core.di_forkoff > 1 {
        wrong.push(WrongField { name: "di_forkoff", found: core.di_forkoff.into(), wanted: 1 });
        core.di_forkoff = 1;
    }
    if core.di_forkoff == 0 && core.di_aformat != ForkFormat::Extents as u8 {
        let (found, wanted) = (core.di_aformat.into(), ForkFormat::Extents as u64);
        wrong.push(WrongField { name: "di_aformat", found, wanted });
        core.di_aformat = ForkFormat::Extents as u8;
    }
}

/// Type bits of a mode.
const TYPE: u16 = 0xf000;
const DIRECTORY: u16 = 0x4000;
const REGULAR: u16 = 0x8000;
const SYMLINK: u16 = 0xa000;

/// Flags of directories only.
const OF_DIRECTORIES: Flags =
    Flags::RTINHERIT.union(Flags::PROJINHERIT).union(Flags::NOSYMLINKS).union(Flags::EXTSZINHERIT);
/// Flags of regular files only.
const OF_FILES: Flags = Flags::REALTIME.union(Flags::EXTSIZE);
/// Every flag.
const KNOWN: Flags = Flags::from_bits_retain(0x7fff);

/// Whether a hint of so many blocks may be, of a file in the realtime section or in the groups.
pub(crate) fn may_be_hint(blocks: u32, realtime: bool, geometry: &Geometry) -> bool {
    let most = if realtime { u32::MAX } else { geometry.ag_blocks / 2 };
    blocks > 0 && u64::from(blocks) <= COUNT_MAX && blocks <= most
}

/// Those flags that an inode of its type may have.
fn flags(raw: &RawInode, ino: Ino, geometry: &Geometry) -> Flags {
    let mut flags = Flags::from_bits_retain(raw.di_flags.get()) & KNOWN;
    let section = geometry.realtime.blocks > 0;
    match raw.di_mode.get() & TYPE {
        DIRECTORY => flags.remove(OF_FILES),
        REGULAR => flags.remove(OF_DIRECTORIES),
        _ => flags.remove(OF_FILES | OF_DIRECTORIES),
    }
    if !section {
        flags.remove(Flags::REALTIME);
    }
    // In the metadata directory the bitmaps of groups are not known by their numbers.
    let bitmap = match geometry.metadata_root {
        None => ino == geometry.realtime_inos[0],
        Some(_) => section,
    };
    if !bitmap {
        flags.remove(Flags::NEWRTBM);
    }
    let realtime = section && flags.intersects(Flags::REALTIME | Flags::RTINHERIT);
    if !may_be_hint(raw.di_extsize.get(), realtime, geometry) {
        flags.remove(Flags::EXTSIZE | Flags::EXTSZINHERIT);
    }
    flags
}

/// Those flags that the file system has, and an inode of its type may have.
fn flags2(raw: &RawInode, geometry: &Geometry) -> Flags2 {
    let features = &geometry.features;
    let flags = Flags2::from_bits_retain(raw.di_flags2.get());
    let kind = raw.di_mode.get() & TYPE;
    let (file, either) = (kind == REGULAR, matches!(kind, REGULAR | DIRECTORY));
    let hint = raw.di_cowextsize.get();
    let realtime = raw.di_flags.get() & (Flags::REALTIME | Flags::RTINHERIT).bits() != 0;
    let hinted = may_be_hint(hint, realtime && geometry.realtime.blocks > 0, geometry);
    let mut known = Flags2::empty();
    known.set(Flags2::DAX, either);
    known.set(Flags2::REFLINK, features.reflink() && file);
    known.set(Flags2::COWEXTSIZE, features.reflink() && either && hinted);
    known.set(Flags2::BIGTIME, features.bigtime());
    known.set(Flags2::NREXT64, features.nrext64());
    known.set(Flags2::METADATA, geometry.metadata_root.is_some());
    flags & known
}

/// A narrow time whose nanoseconds are less than a second.
fn narrow(bits: u64) -> u64 {
    if bits & u64::from(u32::MAX) < NANOS { bits } else { bits & !u64::from(u32::MAX) }
}
