//! The rules, by name.

use crate::format::CorruptKind;

vfs::check_rules! {
    /// Magic, version, checksum, sizes and counts of the superblock fit together.
    Super = "superblock",
    /// The copies of the superblock describe the same file system.
    SuperBackup = "superblock-backup",
    /// The superblock's counters are the sums over all groups.
    SuperCount = "superblock-count",
    /// Every feature is one that this check understands.
    Feature = "feature",
    /// It was unmounted before the check, or the log can be recovered.
    LogDirty = "log-dirty",
    /// The log had to be recovered, in memory; the next mount does it on the disk.
    LogReplayed = "log-replayed",
    /// The first block of the log follows on its last one.
    LogStart = "log-start",
    /// Recovery does not end before a record that was written and is damaged.
    LogRecord = "log-record",
    /// Metadata was written behind records that the log has come to.
    LogBehind = "log-behind",
    /// Every block of metadata has its checksum.
    Checksum = "checksum",
    /// Every block of metadata says its kind, place, owner and file system.
    Identity = "identity",
    /// Numbers in a group's headers fit the group.
    GroupHeader = "group-header",
    /// Counters of a group are what its btrees hold.
    GroupCount = "group-count",
    /// The free list holds blocks of its group, once each.
    FreeList = "free-list",
    /// Levels, counts, pointers and neighbours of btree blocks.
    BtreeBlock = "btree-block",
    /// Records and keys are in order, and keys are those of their children.
    BtreeOrder = "btree-order",
    /// Free extents have room between them and lie in the group.
    FreeExtent = "free-extent",
    /// The tree by size holds what the tree by block holds.
    FreeBySize = "free-by-size",
    /// No block is free and in use.
    FreeInUse = "free-in-use",
    /// No block is neither free nor in use.
    LostBlocks = "lost-blocks",
    /// Only data that may be shared has two owners.
    DoubleUse = "double-use",
    /// Counts, holes and masks of inode chunks agree.
    InodeChunk = "inode-chunk",
    /// The free inode btree holds the chunks with free inodes.
    FreeInodeBtree = "free-inode-btree",
    /// Reverse mappings are those of the owners.
    ReverseMapping = "reverse-mapping",
    /// Reference counts are those of the owners.
    ReferenceCount = "reference-count",
    /// An inode in use has a sound core.
    Inode = "inode",
    /// What the btree calls free is free in the inode, and the other way.
    InodeUse = "inode-use",
    /// Extents of a fork are in order, in the file system, and as many as the inode says.
    InodeExtents = "inode-extents",
    /// The inode's count of blocks is right.
    InodeBlocks = "inode-blocks",
    /// Targets of symbolic links can be read.
    Symlink = "symlink",
    /// Names and unused ranges fill a directory block.
    DirectoryBlock = "directory-block",
    /// Names are possible, once each, and point at inodes in use of their type.
    DirectoryEntry = "directory-entry",
    /// `.` and `..` point where they must.
    DirectoryDots = "directory-dots",
    /// The index holds exactly the names.
    DirectoryIndex = "directory-index",
    /// The room of data blocks is what their headers and the free blocks say.
    DirectoryFree = "directory-free",
    /// Attributes are well-formed, have the hash of their name, and values that can be read.
    Attribute = "attribute",
    /// A parent pointer has a name that can be one, and a value of its length beside it.
    ParentForm = "parent-form",
    /// Every name of an inode has a parent pointer.
    ParentMissing = "parent-missing",
    /// Every parent pointer has its name.
    ParentDangling = "parent-dangling",
    /// Every parent pointer has the generation of its directory.
    ParentGeneration = "parent-generation",
    /// Inodes of the file system itself, and no others, are below the metadata directory.
    MetadataDirectory = "metadata-directory",
    /// The link count is the number of names.
    LinkCount = "link-count",
    /// Every inode in use has a name or is on an unlinked list.
    Unconnected = "unconnected",
    /// Quota inodes hold the records of their kind.
    QuotaFile = "quota-file",
    /// Records of quota say what the inodes have.
    QuotaUsage = "quota-usage",
    /// The realtime bitmap has a bit for every extent, set where no file has it.
    RealtimeBitmap = "realtime-bitmap",
    /// The realtime summary counts the runs of free extents of the bitmap.
    RealtimeSummary = "realtime-summary",
    /// Unlinked lists hold inodes without names, once each, in their buckets.
    UnlinkedList = "unlinked-list",
}

impl Rule {
    /// The rule that a failed check of the format breaks.
    pub(super) fn of(kind: &CorruptKind) -> Rule {
        use CorruptKind as K;
        match kind {
            K::Checksum { .. } => Rule::Checksum,
            K::Short { .. }
            | K::Magic { .. }
            | K::Uuid { .. }
            | K::Address { .. }
            | K::Owner { .. } => Rule::Identity,
            K::Ahead { .. } => Rule::LogBehind,
            K::Version(_)
            | K::InProgress
            | K::SectorSize(_)
            | K::BlockSize { .. }
            | K::InodeSize { .. }
            | K::InodesPerBlock(_)
            | K::DirBlockSize { .. }
            | K::AgBlocks { .. }
            | K::AgCount { .. }
            | K::LastAg(_)
            | K::LogPlace { .. }
            | K::Realtime { .. }
            | K::LogStripe(_)
            | K::RootInode(_)
            | K::DeviceSize { .. } => Rule::Super,
            K::AgVersion(_)
            | K::AgNumber { .. }
            | K::AgLength { .. }
            | K::BtreeRoot { .. }
            | K::FreeBlocks { .. }
            | K::LongestFree { .. }
            | K::AgInodes { .. } => Rule::GroupHeader,
            K::FreeList { .. } => Rule::FreeList,
            K::UnlinkedBucket { .. } | K::UnlinkedLoop { .. } => Rule::UnlinkedList,
            K::BtreeLevel { .. }
            | K::BtreeCount { .. }
            | K::BtreeRootLevel(_)
            | K::BtreePointer { .. }
            | K::BtreeLoop { .. } => Rule::BtreeBlock,
            K::BtreeOrder { .. } | K::MapKey { .. } | K::BtreeSibling { .. } => Rule::BtreeOrder,
            K::FreeExtent { .. } => Rule::FreeExtent,
            K::InodeChunk { .. } => Rule::InodeChunk,
            K::ExtentEmpty { .. }
            | K::ExtentPlace { .. }
            | K::ExtentOffset { .. }
            | K::ExtentOrder { .. }
            | K::ExtentCount { .. } => Rule::InodeExtents,
            K::SymlinkSize { .. } => Rule::Symlink,
            K::InodeBlocks { .. } => Rule::InodeBlocks,
            K::RealtimeBits { .. } | K::RealtimeFile { .. } => Rule::RealtimeBitmap,
            K::RealtimeSummary { .. } => Rule::RealtimeSummary,
            _ => Rule::of_names(kind),
        }
    }

    /// The same for inodes, directories and attributes.
    fn of_names(kind: &CorruptKind) -> Rule {
        use CorruptKind as K;
        match kind {
            K::DirEntryPlace { .. }
            | K::DirSize { .. }
            | K::ShortformSize { .. }
            | K::DirUnused { .. }
            | K::DirTag { .. }
            | K::DirTail { .. }
            | K::DirHole { .. } => Rule::DirectoryBlock,
            K::DirNameLen { .. }
            | K::DirNameByte { .. }
            | K::DirFileType { .. }
            | K::DirInode { .. }
            | K::DirUnusedInode { .. }
            | K::DirCircle { .. } => Rule::DirectoryEntry,
            K::DirLeafCount { .. }
            | K::DirStale { .. }
            | K::DirAddress { .. }
            | K::DaLevel { .. }
            | K::DaCount { .. }
            | K::DaMagic { .. }
            | K::DaLoop { .. }
            | K::HashOrder { .. } => Rule::DirectoryIndex,
            K::DirBests { .. } | K::DirFree { .. } => Rule::DirectoryFree,
            K::AttrSize { .. }
            | K::AttrEntry { .. }
            | K::AttrCount { .. }
            | K::AttrFree { .. }
            | K::AttrHole { .. }
            | K::RemoteOffset { .. }
            | K::RemoteBytes { .. } => Rule::Attribute,
            K::ParentPointer { .. } => Rule::ParentForm,
            K::QuotaRecord { .. } => Rule::QuotaFile,
            K::MetadataInode { .. } | K::RealtimeName { .. } => Rule::MetadataDirectory,
            K::InodeFree | K::InodeGeneration { .. } => Rule::InodeUse,
            _ => Rule::Inode,
        }
    }
}
