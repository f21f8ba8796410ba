//! Feature bits: their names, and what a mount may do if one is set.
//!
//! Source: kernel `Documentation/filesystems/ext4/super.rst`; the names are those that
//! `dumpe2fs` prints (1.47).

use std::fmt;

use vfs::feature::{self, Word};

pub use vfs::feature::Access;

/// The word of the superblock that holds a feature bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Set {
    /// `s_feature_compat`.
    Compat,
    /// `s_feature_incompat`.
    Incompat,
    /// `s_feature_ro_compat`.
    RoCompat,
}

/// One known feature bit; its name is that which `dumpe2fs` prints and `mke2fs -O` takes.
pub type Feature = feature::Feature<Set>;

/// A feature that keeps a file system from being read or written here. It is no corruption.
pub type Unsupported = feature::Unsupported<Set>;

impl Word for Set {
    const KNOWN: &'static [Feature] = KNOWN;

    fn letter(self) -> char {
        match self {
            Set::Compat => 'C',
            Set::Incompat => 'I',
            Set::RoCompat => 'R',
        }
    }

    fn unknown(self) -> Access {
        match self {
            Set::Incompat => Access::Refused,
            Set::Compat | Set::RoCompat => Access::ReadOnly,
        }
    }

    fn advice(self, bit: u32) -> &'static str {
        let shared = self == Set::RoCompat && 1 << bit == RoCompat::SHARED_BLOCKS.bits();
        if shared {
            ": `iopath tune -O ^shared_blocks` gives every file blocks of its own"
        } else {
            ""
        }
    }
}

bitflags::bitflags! {
    /// Compatible features: older code may write.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Compat: u32 {
        /// Inodes may carry the flag of AFS.
        const IMAGIC_INODES = 0x2;
        /// A journal exists.
        const HAS_JOURNAL = 0x4;
        /// Extended attributes in blocks.
        const EXT_ATTR = 0x8;
        /// Inode 7 reserves blocks after the descriptors, so that they can grow.
        const RESIZE_INODE = 0x10;
        /// Directories may be hash trees.
        const DIR_INDEX = 0x20;
        /// Two backup superblocks at most, in the groups that `s_backup_bgs` names.
        const SPARSE_SUPER2 = 0x200;
        /// The journal may hold fast commits.
        const FAST_COMMIT = 0x400;
        /// A file holds the orphans (`s_orphan_file_inum`).
        const ORPHAN_FILE = 0x1000;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// Incompatible features: code that does not know one must not even read.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Incompat: u32 {
        /// Directory entries carry a file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const RECOVER = 0x4;
        /// This device is an external journal.
        const JOURNAL_DEV = 0x8;
        /// Descriptor blocks lie in their meta groups.
        const META_BG = 0x10;
        /// Files may be mapped by extents.
        const EXTENTS = 0x40;
        /// Block numbers have 64 bits, descriptors `s_desc_size` bytes.
        const SIXTY_FOUR_BIT = 0x80;
        /// Multi-mount protection.
        const MMP = 0x100;
        /// Bitmaps and tables may lie in any group.
        const FLEX_BG = 0x200;
        /// Large attribute values live in inodes.
        const EA_INODE = 0x400;
        /// Entries of directories may have data behind their names (Lustre).
        const DIRDATA = 0x1000;
        /// `s_checksum_seed` seeds checksums in place of the UUID.
        const CSUM_SEED = 0x2000;
        /// Directories beyond 2 GiB, hash trees of three levels.
        const LARGEDIR = 0x4000;
        /// Small files live in their inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted inodes.
        const ENCRYPT = 0x10000;
        /// Directories that ignore case.
        const CASEFOLD = 0x20000;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// Read-only compatible features: code that does not know one may read only.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RoCompat: u32 {
        /// Backup superblocks in groups 0, 1 and powers of 3, 5 and 7 only.
        const SPARSE_SUPER = 0x1;
        /// Files beyond 2 GiB.
        const LARGE_FILE = 0x2;
        /// Block counts of inodes may have 48 bits and count file system blocks.
        const HUGE_FILE = 0x8;
        /// Group descriptors carry a CRC-16; groups may be uninitialised.
        const GDT_CSUM = 0x10;
        /// A directory may have more than 65,000 subdirectories.
        const DIR_NLINK = 0x20;
        /// Inodes reserve `s_min_extra_isize` bytes beyond the first 128.
        const EXTRA_ISIZE = 0x40;
        /// Quota files are part of the file system.
        const QUOTA = 0x100;
        /// The unit of allocation is a cluster of blocks.
        const BIGALLOC = 0x200;
        /// All metadata carry a CRC-32C.
        const METADATA_CSUM = 0x400;
        /// Never to be written.
        const READONLY = 0x1000;
        /// Project quota.
        const PROJECT = 0x2000;
        /// Files may have blocks in common.
        const SHARED_BLOCKS = 0x4000;
        /// Some inodes carry a Merkle tree.
        const VERITY = 0x8000;
        /// The orphan file may hold entries.
        const ORPHAN_PRESENT = 0x10000;
        const _ = !0;
    }
}

const fn row(set: Set, bit: u32, name: &'static str, access: Access) -> Feature {
    Feature { set, bit, name, access }
}

use Access::{ReadOnly, ReadWrite, Refused};
use Set::{Compat as C, Incompat as I, RoCompat as R};

/// Every feature bit that has a name.
///
/// Reading is safe where the feature changes only how blocks are allocated, counted or backed up;
/// it is refused where names, contents or attributes would come out wrong.
pub const KNOWN: &[Feature] = &[
    row(C, 0, "dir_prealloc", ReadWrite),
    row(C, 1, "imagic_inodes", ReadOnly),
    row(C, 2, "has_journal", ReadWrite),
    row(C, 3, "ext_attr", ReadWrite),
    row(C, 4, "resize_inode", ReadWrite),
    row(C, 5, "dir_index", ReadWrite),
    row(C, 6, "lazy_bg", ReadOnly),
    row(C, 8, "snapshot_bitmap", ReadOnly),
    row(C, 9, "sparse_super2", ReadWrite),
    row(C, 10, "fast_commit", ReadWrite),
    row(C, 11, "stable_inodes", ReadWrite),
    row(C, 12, "orphan_file", ReadWrite),
    row(I, 0, "compression", Refused),
    row(I, 1, "filetype", ReadWrite),
    row(I, 2, "needs_recovery", ReadWrite),
    row(I, 3, "journal_dev", Refused),
    row(I, 4, "meta_bg", ReadWrite),
    row(I, 6, "extent", ReadWrite),
    row(I, 7, "64bit", ReadWrite),
    row(I, 8, "mmp", ReadWrite),
    row(I, 9, "flex_bg", ReadWrite),
    row(I, 10, "ea_inode", ReadWrite),
    row(I, 12, "dirdata", ReadWrite),
    row(I, 13, "metadata_csum_seed", ReadWrite),
    row(I, 14, "large_dir", ReadWrite),
    row(I, 15, "inline_data", ReadWrite),
    row(I, 16, "encrypt", ReadWrite),
    row(I, 17, "casefold", ReadWrite),
    row(R, 0, "sparse_super", ReadWrite),
    row(R, 1, "large_file", ReadWrite),
    row(R, 3, "huge_file", ReadWrite),
    row(R, 4, "uninit_bg", ReadWrite),
    row(R, 5, "dir_nlink", ReadWrite),
    row(R, 6, "extra_isize", ReadWrite),
    row(R, 8, "quota", ReadWrite),
    row(R, 9, "bigalloc", ReadWrite),
    row(R, 10, "metadata_csum", ReadWrite),
    row(R, 11, "replica", ReadOnly),
    row(R, 12, "read-only", ReadOnly),
    row(R, 13, "project", ReadWrite),
    row(R, 14, "shared_blocks", ReadOnly),
    row(R, 15, "verity", ReadWrite),
    row(R, 16, "orphan_present", ReadWrite),
];

/// The three feature words of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// `s_feature_compat`.
    pub compat: Compat,
    /// `s_feature_incompat`.
    pub incompat: Incompat,
    /// `s_feature_ro_compat`.
    pub ro_compat: RoCompat,
}

impl Features {
    /// The feature words from their raw numbers.
    pub fn from_bits(compat: u32, incompat: u32, ro_compat: u32) -> Features {
        Features {
            compat: Compat::from_bits_retain(compat),
            incompat: Incompat::from_bits_retain(incompat),
            ro_compat: RoCompat::from_bits_retain(ro_compat),
        }
    }

    /// Every bit that is set, in the order of the words and of the bits.
    pub fn bits(&self) -> impl Iterator<Item = (Set, u32)> {
        feature::bits([
            (Set::Compat, self.compat.bits()),
            (Set::Incompat, self.incompat.bits()),
            (Set::RoCompat, self.ro_compat.bits()),
        ])
    }

    /// What a mount may do, and the features that forbid more, most severe first.
    ///
    /// An unknown compatible or read-only compatible bit allows reading, an unknown incompatible
    /// one nothing: that is what the three words mean.
    pub fn access(&self) -> (Access, Vec<Unsupported>) {
        feature::access(self.bits())
    }

    /// Sets the features of a `mke2fs -O` string: names between commas or spaces; `^name` clears
    /// one, `none` clears all.
    ///
    /// # Errors
    /// The name that is not known.
    pub fn edit(&mut self, options: &str) -> Result<(), UnknownFeature> {
        for word in options.split([',', ' ']).filter(|word| !word.is_empty()) {
            if word == "none" {
                *self = Features::default();
                continue;
            }
            let (clear, name) = match word.strip_prefix('^') {
                Some(name) => (true, name),
                None => (false, word),
            };
            let feature = find(name).ok_or_else(|| UnknownFeature { name: name.to_string() })?;
            self.set(feature, !clear);
        }
        Ok(())
    }

    /// Sets one feature, or clears it.
    pub fn set(&mut self, feature: &Feature, on: bool) {
        let mask = 1u32 << feature.bit;
        match feature.set {
            Set::Compat => self.compat.set(Compat::from_bits_retain(mask), on),
            Set::Incompat => self.incompat.set(Incompat::from_bits_retain(mask), on),
            Set::RoCompat => self.ro_compat.set(RoCompat::from_bits_retain(mask), on),
        }
    }

    /// Features that are known alone and not together: where data lie beside such names nobody
    /// says.
    pub fn unknown_pair(&self) -> Option<&'static str> {
        let others = Incompat::ENCRYPT | Incompat::CASEFOLD | Incompat::INLINE_DATA;
        let both = self.incompat.contains(Incompat::DIRDATA) && self.incompat.intersects(others);
        both.then_some("dirdata beside encrypt, casefold or inline_data")
    }

    /// Whether metadata carry CRC-32C checksums.
    pub fn metadata_csum(&self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// Whether group descriptors carry a checksum of either form, so that groups may be
    /// uninitialised.
    pub fn group_csum(&self) -> bool {
        self.ro_compat.intersects(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM)
    }
}

/// Prints the names as `dumpe2fs` does: `has_journal ext_attr …`, `(none)` where there are none.
impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&feature::names(self.bits()))
    }
}

/// A feature name that nobody knows.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown feature {name}")]
pub struct UnknownFeature {
    /// The name as it was given.
    pub name: String,
}

/// The feature of this name; `extents`, `gdt_csum`, `huge_dir` and the like are known as well.
pub fn find(name: &str) -> Option<&'static Feature> {
    let name = match name {
        "extents" => "extent",
        "gdt_csum" | "uninit_groups" => "uninit_bg",
        "resize_inodes" => "resize_inode",
        "largedir" => "large_dir",
        other => other,
    };
    KNOWN.iter().find(|feature| feature.name == name)
}

/// The bit's name as `dumpe2fs` prints it.
pub fn name(set: Set, bit: u32) -> String {
    feature::name(set, bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_severe_reason_decides_and_comes_first() {
        let mut features = Features::default();
        features.edit("has_journal,extent,64bit,metadata_csum").expect("known");
        assert_eq!(features.access(), (Access::ReadWrite, vec![]));
        features.edit("shared_blocks,compression").expect("known");
        let (access, reasons) = features.access();
        assert_eq!(access, Access::Refused);
        assert_eq!(reasons[0].name, "compression");
        assert_eq!(reasons[1].name, "shared_blocks");
        features.edit("^compression").expect("known");
        assert_eq!(features.access().0, Access::ReadOnly);
    }

    #[test]
    fn unknown_bits_mean_what_their_word_says() {
        let (access, reasons) = Features::from_bits(0, 1 << 21, 0).access();
        assert_eq!((access, reasons[0].name.as_str()), (Access::Refused, "FEATURE_I21"));
        assert_eq!(Features::from_bits(1 << 20, 0, 0).access().0, Access::ReadOnly);
        assert_eq!(Features::from_bits(0, 0, 1 << 20).access().0, Access::ReadOnly);
        assert!(Features::default().edit("has_jurnal").is_err());
    }

    #[test]
    fn names_are_unique() {
        for (index, feature) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..index].iter().all(|other| other.name != feature.name));
            assert_eq!(find(feature.name), Some(feature));
        }
    }
}
