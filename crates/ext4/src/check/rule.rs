//! The rules, by name.

use crate::format::CorruptKind;

/// How bad a violation is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The next mount puts it right by itself.
    Note,
    /// It must be repaired.
    Error,
}

vfs::check_rules! {
    /// The superblock begins with its magic number.
    SuperMagic = "super-magic",
    /// The superblock's checksum is right.
    SuperChecksum = "super-checksum",
    /// Sizes and counts of the superblock fit together.
    SuperGeometry = "super-geometry",
    /// The device has all blocks of the file system.
    SuperDeviceSize = "super-device-size",
    /// Every feature is one that this check understands.
    SuperFeature = "super-feature",
    /// Features that an inode needs are set: `ext_attr`, `large_file`.
    SuperFeatureMissing = "super-feature-missing",
    /// The reserve of descriptors is that of `resize_inode`, and not beside `meta_bg`.
    SuperReserve = "super-reserve",
    /// No error was recorded while the file system was mounted.
    SuperErrorState = "super-error-state",
    /// It was unmounted before the check.
    SuperNotClean = "super-not-clean",
    /// The copies of the superblock describe the same file system.
    SuperBackup = "super-backup",
    /// Fields of features that are not there are zero.
    SuperUnusedFields = "super-unused-fields",
    /// The sum of free blocks is right.
    SuperFreeBlocks = "super-free-blocks",
    /// The sum of free inodes is right.
    SuperFreeInodes = "super-free-inodes",
    /// Each group descriptor's checksum is right.
    GroupChecksum = "group-checksum",
    /// Bitmaps and inode tables lie in the file system.
    GroupPlace = "group-place",
    /// Counts of a descriptor do not exceed the group.
    GroupCounts = "group-counts",
    /// Fields that only descriptors with checksums have are zero without them.
    GroupUnusedFields = "group-unused-fields",
    /// Superblocks, descriptors, bitmaps and inode tables do not overlap.
    MetadataOverlap = "metadata-overlap",
    /// Each group's free blocks are right.
    GroupFreeBlocks = "group-free-blocks",
    /// Each group's free inodes are right.
    GroupFreeInodes = "group-free-inodes",
    /// Each group's number of directories is right.
    GroupDirectories = "group-directories",
    /// No inode in use lies among those that were never used.
    GroupUnusedInodes = "group-unused-inodes",
    /// Each block bitmap's checksum is right.
    BlockBitmapChecksum = "block-bitmap-checksum",
    /// Each inode bitmap's checksum is right.
    InodeBitmapChecksum = "inode-bitmap-checksum",
    /// Bits beyond the group are set in the block bitmap.
    BlockBitmapPadding = "block-bitmap-padding",
    /// Bits beyond the group are set in the inode bitmap.
    InodeBitmapPadding = "inode-bitmap-padding",
    /// A block in use is marked as used.
    BlockBitmapMissing = "block-bitmap-missing",
    /// A block that is marked as used is in use.
    BlockBitmapLeaked = "block-bitmap-leaked",
    /// An inode in use is marked as used.
    InodeBitmapMissing = "inode-bitmap-missing",
    /// An inode that is marked as used is in use.
    InodeBitmapLeaked = "inode-bitmap-leaked",
    /// No block belongs to two files.
    BlockClaimedTwice = "block-claimed-twice",
    /// No block of a file lies in metadata.
    BlockIsMetadata = "block-is-metadata",
    /// Each inode's checksum is right.
    InodeChecksum = "inode-checksum",
    /// The extra size fits into the inode.
    InodeExtraSize = "inode-extra-size",
    /// The mode says a file type.
    InodeMode = "inode-mode",
    /// A file with verity has a descriptor that fits it.
    Verity = "verity",
    /// Flags fit the file type and the features.
    InodeFlags = "inode-flags",
    /// The size fits the file type and the blocks.
    InodeSize = "inode-size",
    /// Content in an inode has its attribute, and its size.
    InodeInline = "inode-inline",
    /// The number of blocks is right.
    InodeBlocks = "inode-blocks",
    /// An inode in use has no time of deletion, a deleted one has.
    InodeDtime = "inode-dtime",
    /// A symbolic link has a target of its size.
    InodeSymlink = "inode-symlink",
    /// A device, fifo or socket maps no blocks.
    InodeSpecial = "inode-special",
    /// Fields that the features do not use are zero.
    InodeUnusedFields = "inode-unused-fields",
    /// The header of an extent node is right.
    ExtentHeader = "extent-header",
    /// The checksum of an extent block is right.
    ExtentChecksum = "extent-checksum",
    /// Extents are in order, have blocks and do not overlap.
    ExtentOrder = "extent-order",
    /// Extents and extent blocks lie in the file system.
    ExtentPlace = "extent-place",
    /// An extent node begins where its parent says.
    ExtentParent = "extent-parent",
    /// Block pointers lie in the file system.
    IndirectPlace = "indirect-place",
    /// A directory has no holes.
    DirHole = "dir-hole",
    /// Entries fill their block.
    DirEntryLength = "dir-entry-length",
    /// Names are not empty and hold neither slash nor zero.
    DirEntryName = "dir-entry-name",
    /// Entries name inodes that exist and may be named.
    DirEntryInode = "dir-entry-inode",
    /// Entries name inodes that are in use.
    DirEntryUnused = "dir-entry-unused",
    /// Entries have the type of their inode.
    DirEntryType = "dir-entry-type",
    /// Entries record the type of their inode where they can.
    DirEntryUntyped = "dir-entry-untyped",
    /// A directory begins with `.`, which names itself.
    DirDot = "dir-dot",
    /// The second entry is `..`, which names the parent.
    DirDotdot = "dir-dotdot",
    /// Directory blocks end with a checksum tail.
    DirTail = "dir-tail",
    /// The checksum of a directory block is right.
    DirChecksum = "dir-checksum",
    /// No name occurs twice in a directory, in whatever case where case is ignored.
    DirDuplicate = "dir-duplicate",
    /// Names that ignore case are UTF-8 where nothing else is taken.
    DirNameEncoding = "dir-name-encoding",
    /// The root of a hash tree is sound.
    HtreeRoot = "htree-root",
    /// The nodes of a hash tree are sound.
    HtreeNode = "htree-node",
    /// The checksum of a hash tree's root or node is right.
    HtreeChecksum = "htree-checksum",
    /// Hashes of a tree rise.
    HtreeOrder = "htree-order",
    /// A tree reaches every block of its directory once.
    HtreeBlocks = "htree-blocks",
    /// A name lies in the leaf of its hash.
    HtreeHash = "htree-hash",
    /// A directory has one parent.
    DirTwoParents = "dir-two-parents",
    /// Every directory is reached from the root.
    DirUnconnected = "dir-unconnected",
    /// Every inode in use has a name, or is an orphan.
    InodeUnconnected = "inode-unconnected",
    /// The number of links is that of the names.
    InodeLinks = "inode-links",
    /// The root directory exists.
    RootMissing = "root-missing",
    /// Attribute blocks lie in the file system.
    XattrPlace = "xattr-place",
    /// The header of an attribute block is right.
    XattrHeader = "xattr-header",
    /// The checksum of an attribute block is right.
    XattrChecksum = "xattr-checksum",
    /// Entries and values of attributes lie in their area.
    XattrEntry = "xattr-entry",
    /// The hash of an attribute is that of its name and value.
    XattrHash = "xattr-hash",
    /// A stored ACL has the form of one.
    XattrAcl = "xattr-acl",
    /// An encrypted inode has an encryption context, and the file system the feature.
    EncryptionContext = "encryption-context",
    /// What an encrypted directory names is encrypted by its policy.
    EncryptionPolicy = "encryption-policy",
    /// An attribute block counts the inodes that share it.
    XattrReferences = "xattr-references",
    /// An inode that an attribute names holds a value of that size and hash.
    XattrInode = "xattr-inode",
    /// An attribute's inode counts the entries that name it.
    XattrInodeReferences = "xattr-inode-references",
    /// The orphan list is a list of deleted or truncated inodes.
    OrphanList = "orphan-list",
    /// Nothing awaits its deletion.
    OrphanInodes = "orphan-inodes",
    /// Blocks of the orphan file end with their magic number.
    OrphanFileMagic = "orphan-file-magic",
    /// The checksums of the orphan file's blocks are right.
    OrphanFileChecksum = "orphan-file-checksum",
    /// `orphan_present` is set where the orphan file holds entries, and only there.
    OrphanPresentFlag = "orphan-present-flag",
    /// The resize inode names the reserved descriptor blocks.
    ResizeInode = "resize-inode",
    /// A quota file is a sound tree of entries.
    QuotaFile = "quota-file",
    /// The usage in a quota file is that of the inodes.
    QuotaUsage = "quota-usage",
    /// An inode that is kept for quota and that nothing names is empty.
    QuotaInode = "quota-inode",
    /// The block of multi-mount protection is sound.
    MmpBlock = "mmp-block",
    /// No other check is at work on it, or was stopped.
    MmpCheck = "mmp-check",
    /// The journal's inode is a sound file.
    JournalInode = "journal-inode",
    /// The journal's superblock is sound.
    JournalSuper = "journal-super",
    /// The journal is empty.
    JournalNeedsRecovery = "journal-needs-recovery",
    /// No error was recorded in the journal.
    JournalError = "journal-error",
}

impl Rule {
    /// How bad a violation is.
    pub fn severity(self) -> Severity {
        match self {
            // The kernel brings the sums up to date at unmount, and counts them anew at mount.
            Rule::SuperFreeBlocks | Rule::SuperFreeInodes => Severity::Note,
            // Linux refuses to grow it, no more.
            Rule::SuperReserve => Severity::Note,
            // Nobody reads them while the first is there; e2image leaves them out.
            Rule::SuperBackup => Severity::Note,
            // Linux looks at the inode.
            Rule::DirEntryUntyped => Severity::Note,
            Rule::SuperNotClean | Rule::OrphanInodes | Rule::JournalNeedsRecovery => Severity::Note,
            _ => Severity::Error,
        }
    }

    /// The rule whose check failed in the format module.
    pub fn of(kind: &CorruptKind) -> Rule {
        use CorruptKind as K;
        match kind {
            K::SuperMagic { .. } => Rule::SuperMagic,
            K::SuperChecksum { .. } => Rule::SuperChecksum,
            K::DeviceSize { .. } => Rule::SuperDeviceSize,
            K::GroupChecksum { .. } => Rule::GroupChecksum,
            K::BlockBitmapPlace { .. } | K::InodeBitmapPlace { .. } | K::InodeTablePlace { .. } => {
                Rule::GroupPlace
            }
            K::GroupFreeBlocks { .. }
            | K::GroupFreeInodes { .. }
            | K::GroupUnusedInodes { .. }
            | K::GroupDirs { .. } => Rule::GroupCounts,
            K::BlockBitmapChecksum { .. } => Rule::BlockBitmapChecksum,
            K::InodeBitmapChecksum { .. } => Rule::InodeBitmapChecksum,
            K::InodeNumber { .. } => Rule::DirEntryInode,
            K::InodeChecksum { .. } => Rule::InodeChecksum,
            K::ExtraIsize { .. } => Rule::InodeExtraSize,
            K::InodeMode { .. } => Rule::InodeMode,
            K::InodeSizeLimit { .. } | K::DirectorySize { .. } => Rule::InodeSize,
            K::SymlinkSize { .. } => Rule::InodeSymlink,
            K::AttributeBlock { .. } => Rule::XattrPlace,
            K::MappedBlock { .. } => Rule::IndirectPlace,
            K::ExtentMagic { .. }
            | K::ExtentDepth { .. }
            | K::ExtentTooDeep { .. }
            | K::ExtentMax { .. }
            | K::ExtentEntries { .. }
            | K::ExtentEmptyIndex => Rule::ExtentHeader,
            K::ExtentChecksum { .. } => Rule::ExtentChecksum,
            K::ExtentLength { .. } | K::ExtentOrder { .. } | K::ExtentOverflow { .. } => {
                Rule::ExtentOrder
            }
            K::ExtentPlace { .. } => Rule::ExtentPlace,
            K::ExtentParent { .. } => Rule::ExtentParent,
            K::DirRecLen { .. } | K::DirNameLen { .. } => Rule::DirEntryLength,
            K::DirEmptyName { .. } | K::DirNameByte { .. } => Rule::DirEntryName,
            K::DirInode { .. } => Rule::DirEntryInode,
            K::DirFileType { .. } => Rule::DirEntryType,
            K::DirTail => Rule::DirTail,
            K::DirChecksum { .. } => Rule::DirChecksum,
            K::DirHole { .. } => Rule::DirHole,
            K::HtreeDots { .. }
            | K::HtreeReserved { .. }
            | K::HtreeHashVersion { .. }
            | K::HtreeInfoLength { .. }
            | K::HtreeFlags { .. }
            | K::HtreeLevels { .. } => Rule::HtreeRoot,
            K::HtreeLimit { .. } | K::HtreeCount { .. } | K::HtreeNode => Rule::HtreeNode,
            K::HtreeChecksum { .. } => Rule::HtreeChecksum,
            K::HtreeOrder { .. } => Rule::HtreeOrder,
            K::HtreeBlock { .. } => Rule::HtreeBlocks,
            K::XattrMagic { .. } | K::XattrHeader { .. } => Rule::XattrHeader,
            K::XattrChecksum { .. } => Rule::XattrChecksum,
            K::XattrEntry { .. } | K::XattrValue { .. } | K::XattrInodeValue { .. } => {
                Rule::XattrEntry
            }
            K::XattrOrder { .. } => Rule::XattrEntry,
            K::XattrHash { .. } => Rule::XattrHash,
            K::QuotaMagic { .. }
            | K::QuotaVersion { .. }
            | K::QuotaBlock { .. }
            | K::QuotaEntry { .. } => Rule::QuotaFile,
            K::OrphanMagic { .. } => Rule::OrphanFileMagic,
            K::OrphanChecksum { .. } => Rule::OrphanFileChecksum,
            kind => Rule::of_content(kind).unwrap_or(Rule::SuperGeometry),
        }
    }

    /// Of values and content in inodes, and of blocks that belong to nobody.
    fn of_content(kind: &CorruptKind) -> Option<Rule> {
        use CorruptKind as K;
        match kind {
            K::XattrInodeSize { .. }
            | K::XattrInodeHash { .. }
            | K::XattrInodeLustre { .. }
            | K::XattrInodeFlag { .. } => Some(Rule::XattrInode),
            K::DirNameEncrypted { .. } | K::DirNamePlain { .. } => Some(Rule::DirEntryName),
            K::XattrInodeReferences { .. } => Some(Rule::XattrInodeReferences),
            K::ExtentCluster { .. } | K::ClustersNeedExtents => Some(Rule::ExtentPlace),
            K::InlineSize { .. } => Some(Rule::InodeInline),
            K::InlineFlags { .. } => Some(Rule::InodeFlags),
            K::MmpPlace { .. } | K::MmpMagic { .. } | K::MmpChecksum { .. } => Some(Rule::MmpBlock),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_kebab_case() {
        for (index, rule) in Rule::ALL.iter().enumerate() {
            assert!(rule.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
            assert!(Rule::ALL[..index].iter().all(|other| other.name() != rule.name()));
        }
    }
}
