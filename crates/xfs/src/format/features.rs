//! Feature bits: their names, and what a mount may do if one is set.
//!
//! Source: "XFS Algorithms and Data Structures"; names are those of `mkfs.xfs` and `xfs_info`, for
//! newer bits the kernel's.

use crate::format::hash::Case;
use vfs::feature::{self, Word};

use super::RawSuper;

pub use vfs::feature::Access;

/// The word of the superblock that holds a feature bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Set {
    /// `sb_versionnum`, above its four low bits.
    Version,
    /// `sb_features2`.
    Features2,
    /// `sb_features_compat`.
    Compat,
    /// `sb_features_ro_compat`.
    RoCompat,
    /// `sb_features_incompat`.
    Incompat,
    /// `sb_features_log_incompat`: what an unclean log may hold.
    LogIncompat,
    /// No bit: a field of the superblock shows it.
    Field,
}

/// One known feature bit.
pub type Feature = feature::Feature<Set>;

/// A feature that keeps a file system from being read or written here. It is no corruption.
pub type Unsupported = feature::Unsupported<Set>;

/// An unknown compatible bit allows everything, an unknown read-only or log bit reading, any other
/// unknown bit nothing: that is what the words mean.
impl Word for Set {
    const KNOWN: &'static [Feature] = KNOWN;

    fn letter(self) -> char {
        match self {
            Set::Version => 'V',
            Set::Features2 => 'F',
            Set::Compat => 'C',
            Set::RoCompat => 'R',
            Set::Incompat => 'I',
            Set::LogIncompat | Set::Field => 'L',
        }
    }

    fn unknown(self) -> Access {
        match self {
            Set::Compat => Access::ReadWrite,
            Set::RoCompat | Set::LogIncompat => Access::ReadOnly,
            _ => Access::Refused,
        }
    }
}

bitflags::bitflags! {
    /// `sb_versionnum` above the version number.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Version: u16 {
        /// Attributes exist.
        const ATTR = 0x10;
        /// Link counts have 32 bits.
        const NLINK = 0x20;
        /// Quota was used.
        const QUOTA = 0x40;
        /// Inode chunks are aligned.
        const ALIGN = 0x80;
        /// Data are aligned to a stripe.
        const DALIGN = 0x100;
        /// Shared read-only mounts.
        const SHARED = 0x200;
        /// Log records of version 2.
        const LOGV2 = 0x400;
        /// Sectors above 512 bytes.
        const SECTOR = 0x800;
        /// Extents may be unwritten.
        const EXTFLG = 0x1000;
        /// Directories of version 2.
        const DIRV2 = 0x2000;
        /// Names are compared without regard to case.
        const BORG = 0x4000;
        /// `sb_features2` counts.
        const MOREBITS = 0x8000;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `sb_features2`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Features2: u32 {
        /// Counters of the superblock are summed at mount.
        const LAZYSBCOUNT = 0x2;
        /// The attribute fork has a variable place.
        const ATTR2 = 0x8;
        /// Parent pointers of version 4.
        const PARENT = 0x10;
        /// Project numbers have 32 bits.
        const PROJID32 = 0x80;
        /// Metadata carry checksums.
        const CRC = 0x100;
        /// File types in directories of version 4.
        const FTYPE = 0x200;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// Features that older code may read but not write.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RoCompat: u32 {
        /// A btree of the inode chunks with free inodes.
        const FINOBT = 1;
        /// A btree of the owners of all blocks.
        const RMAPBT = 2;
        /// Blocks may be shared; a btree counts references.
        const REFLINK = 4;
        /// The AGI counts the blocks of the inode btrees.
        const INOBTCOUNT = 8;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// Features that code must know even to read.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Incompat: u32 {
        /// Directory entries carry a file type.
        const FTYPE = 1;
        /// Inode chunks may have holes.
        const SPINODES = 2;
        /// Metadata carry `sb_meta_uuid`, not `sb_uuid`.
        const META_UUID = 4;
        /// Times are 64-bit counts of nanoseconds.
        const BIGTIME = 8;
        /// `xfs_repair` must run first.
        const NEEDSREPAIR = 16;
        /// Extent counts have 64 and 32 bits.
        const NREXT64 = 32;
        /// The log may hold exchanges of file ranges.
        const EXCHRANGE = 64;
        /// Directory parent pointers.
        const PARENT = 128;
        /// Metadata inodes live in a directory tree.
        const METADIR = 256;
        /// Zoned devices.
        const ZONED = 512;
        /// Gaps between zones.
        const ZONE_GAPS = 1024;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// What an unclean log may hold.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct LogIncompat: u32 {
        /// Intents of ordinary attributes. A clean unmount clears the bit.
        const XATTRS = 1;
        const _ = !0;
    }
}

const fn row(set: Set, bit: u32, name: &'static str, access: Access) -> Feature {
    Feature { set, bit, name, access }
}

use Access::{ReadOnly, ReadWrite, Refused};
use Set::{Features2 as F2, Incompat as I, LogIncompat as L, RoCompat as R, Version as V};

/// Every feature that has a name.
///
/// Reading is safe where the feature changes only how blocks are allocated, counted or logged; it
/// is refused where names, contents or attributes would come out wrong.
pub const KNOWN: &[Feature] = &[
    row(V, 4, "attr", ReadWrite),
    row(V, 5, "nlink", ReadWrite),
    row(V, 6, "quota", ReadWrite),
    row(V, 7, "align", ReadWrite),
    row(V, 8, "dalign", ReadWrite),
    row(V, 9, "shared", Refused),
    row(V, 10, "logv2", ReadWrite),
    row(V, 11, "sector", ReadWrite),
    row(V, 12, "extflg", ReadWrite),
    row(V, 13, "dirv2", ReadWrite),
    row(V, 14, "ci", ReadWrite),
    row(V, 15, "morebits", ReadWrite),
    row(F2, 1, "lazy-count", ReadWrite),
    row(F2, 3, "attr2", ReadWrite),
    row(F2, 4, "parent-v4", Refused),
    row(F2, 7, "projid32bit", ReadWrite),
    row(F2, 8, "crc", ReadWrite),
    row(F2, 9, "ftype-v4", ReadWrite),
    row(R, 0, "finobt", ReadWrite),
    row(R, 1, "rmapbt", ReadWrite),
    row(R, 2, "reflink", ReadWrite),
    row(R, 3, "inobtcount", ReadWrite),
    row(I, 0, "ftype", ReadWrite),
    row(I, 1, "sparse", ReadWrite),
    row(I, 2, "metauuid", ReadWrite),
    row(I, 3, "bigtime", ReadWrite),
    row(I, 4, "needsrepair", Refused),
    row(I, 5, "nrext64", ReadWrite),
    row(I, 6, "exchange", ReadWrite),
    row(I, 7, "parent", ReadWrite),
    row(I, 8, "metadir", ReadWrite),
    row(I, 9, "zoned", ReadOnly),
    row(I, 10, "zone-gaps", ReadOnly),
    row(L, 0, "log-xattrs", ReadWrite),
    row(Set::Field, 0, "v4", ReadOnly),
    row(Set::Field, 1, "realtime", ReadOnly),
    row(Set::Field, 2, "external-log", ReadOnly),
    row(Set::Field, 3, "dirv1", Refused),
    row(Set::Field, 4, "before-v4", Refused),
];

/// The bit of a realtime section.
const REALTIME: (Set, u32) = (Set::Field, 1);

/// The bit of an external log.
const EXTERNAL_LOG: (Set, u32) = (Set::Field, 2);

/// Devices that somebody has beside that of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Beside {
    /// That of the realtime section, or what does without it.
    pub realtime: bool,
    /// That of an external log.
    pub log: bool,
}

/// The feature words of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// The version number: 4 or 5.
    pub number: u16,
    /// `sb_versionnum` above the number.
    pub version: Version,
    /// `sb_features2`.
    pub features2: Features2,
    /// `sb_features_compat`: no bit is known.
    pub compat: u32,
    /// `sb_features_ro_compat`.
    pub ro_compat: RoCompat,
    /// `sb_features_incompat`.
    pub incompat: Incompat,
    /// `sb_features_log_incompat`.
    pub log_incompat: LogIncompat,
    /// A realtime section exists.
    pub realtime: bool,
    /// The log lies on another device.
    pub external_log: bool,
}

impl Features {
    /// The features of a superblock.
    pub fn new(raw: &RawSuper) -> Features {
        let version = raw.sb_versionnum.get();
        let number = version & 0xf;
        let word = |bits: u32| if number == 5 { bits } else { 0 };
        Features {
            number,
            version: Version::from_bits_retain(version & !0xf),
            features2: Features2::from_bits_retain(raw.sb_features2.get()),
            compat: word(raw.sb_features_compat.get()),
            ro_compat: RoCompat::from_bits_retain(word(raw.sb_features_ro_compat.get())),
            incompat: Incompat::from_bits_retain(word(raw.sb_features_incompat.get())),
            log_incompat: LogIncompat::from_bits_retain(word(raw.sb_features_log_incompat.get())),
            realtime: raw.sb_rblocks.get() != 0,
            external_log: raw.sb_logstart.get() == 0,
        }
    }

    /// Every bit that is set, in the order of the words and of the bits.
    pub fn bits(&self) -> impl Iterator<Item = (Set, u32)> {
        let fields = u32::from(self.number != 5)
            | u32::from(self.realtime) << 1
            | u32::from(self.external_log) << 2
            | u32::from(!self.version.contains(Version::DIRV2)) << 3
            | u32::from(self.number < 4) << 4;
        feature::bits([
            (Set::Version, u32::from(self.version.bits())),
            (Set::Features2, self.features2.bits()),
            (Set::Compat, self.compat),
            (Set::RoCompat, self.ro_compat.bits()),
            (Set::Incompat, self.incompat.bits()),
            (Set::LogIncompat, self.log_incompat.bits()),
            (Set::Field, fields),
        ])
    }

    /// What a mount may do, and the features that forbid more, most severe first.
    pub fn access(&self) -> (Access, Vec<Unsupported>) {
        feature::access(self.bits())
    }

    /// As [`Features::access`], for who has these devices.
    pub fn access_beside(&self, beside: Beside) -> (Access, Vec<Unsupported>) {
        let allowed = |bit| {
            let held = (beside.realtime && bit == REALTIME) || (beside.log && bit == EXTERNAL_LOG);
            held && self.number == 5
        };
        feature::access(self.bits().filter(|&bit| !allowed(bit)))
    }

    /// Whether the free inode btree exists.
    pub fn finobt(&self) -> bool {
        self.ro_compat.contains(RoCompat::FINOBT)
    }

    /// Whether the reverse mapping btree exists.
    pub fn rmapbt(&self) -> bool {
        self.ro_compat.contains(RoCompat::RMAPBT)
    }

    /// Whether the reference count btree exists.
    pub fn reflink(&self) -> bool {
        self.ro_compat.contains(RoCompat::REFLINK)
    }

    /// Whether the log may hold exchanges of file ranges.
    pub fn exchange(&self) -> bool {
        self.incompat.contains(Incompat::EXCHRANGE)
    }

    /// Whether the AGI counts the blocks of the inode btrees.
    pub fn inobtcount(&self) -> bool {
        self.ro_compat.contains(RoCompat::INOBTCOUNT)
    }

    /// Whether inode chunks may have holes.
    pub fn sparse(&self) -> bool {
        self.incompat.contains(Incompat::SPINODES)
    }

    /// Whether new inodes get wide times.
    pub fn bigtime(&self) -> bool {
        self.incompat.contains(Incompat::BIGTIME)
    }

    /// Whether new inodes get wide extent counts.
    pub fn nrext64(&self) -> bool {
        self.incompat.contains(Incompat::NREXT64)
    }

    /// Whether every name has a pointer back to its directory.
    pub fn parent(&self) -> bool {
        self.incompat.contains(Incompat::PARENT)
    }

    /// How names in directories are compared.
    pub fn case(&self) -> Case {
        if self.version.contains(Version::BORG) { Case::Ignored } else { Case::Matters }
    }

    /// Whether directory entries carry a file type.
    pub fn ftype(&self) -> bool {
        let v4 = self.number < 5 && self.features2.contains(Features2::FTYPE);
        v4 || self.incompat.contains(Incompat::FTYPE)
    }
}

/// Prints the names in the order of the words, `(none)` where there are none.
impl std::fmt::Display for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&feature::names(self.bits()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn five() -> Features {
        Features { number: 5, version: Version::DIRV2, ..Features::default() }
    }

    #[test]
    fn the_most_severe_reason_decides_and_comes_first() {
        assert_eq!(five().access(), (Access::ReadWrite, vec![]));
        let incompat = Incompat::NEEDSREPAIR | Incompat::ZONED | Incompat::METADIR;
        let log_incompat = LogIncompat::from_bits_retain(4);
        let (access, reasons) = Features { incompat, log_incompat, ..five() }.access();
        assert_eq!(access, Access::Refused);
        assert_eq!(reasons[0].name, "needsrepair");
        assert_eq!(reasons[1].name, "zoned");
        assert_eq!(reasons[2].name, "FEATURE_L2");
        assert_eq!(Features { realtime: true, ..five() }.access().0, Access::ReadOnly);
        assert_eq!(Features { number: 4, ..five() }.access().1[0].name, "v4");
    }

    #[test]
    fn unknown_bits_mean_what_their_word_says() {
        let incompat = Incompat::from_bits_retain(1 << 21);
        let (access, reasons) = Features { incompat, ..five() }.access();
        assert_eq!((access, reasons[0].name.as_str()), (Access::Refused, "FEATURE_I21"));
        let ro_compat = RoCompat::from_bits_retain(1 << 20);
        assert_eq!(Features { ro_compat, ..five() }.access().0, Access::ReadOnly);
        assert_eq!(Features { compat: 1 << 20, ..five() }.access().0, Access::ReadWrite);
    }

    #[test]
    fn names_are_unique() {
        for (index, feature) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..index].iter().all(|other| other.name != feature.name));
        }
    }
}
