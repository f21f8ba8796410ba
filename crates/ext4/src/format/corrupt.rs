//! What can be wrong with a structure on the disk, one variant per check.

use base::Ino;

/// Where a structure lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// The superblock in this file system block (0 or 1 for the primary).
    Super(u64),
    /// The descriptor, or a bitmap, of this group.
    Group(u32),
    /// An inode.
    Inode(Ino),
    /// A block of this inode by its device block: extent block, directory block, attribute block.
    Block(Ino, u64),
    /// An attribute block whose owner does not matter, a block of the journal.
    Device(u64),
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::Super(block) => write!(f, "superblock in block {block}"),
            At::Group(group) => write!(f, "group {group}"),
            At::Inode(ino) => write!(f, "inode {ino}"),
            At::Block(ino, block) => write!(f, "inode {ino}, block {block}"),
            At::Device(block) => write!(f, "block {block}"),
        }
    }
}

/// A structure on the disk that fails a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{at}: {kind}")]
pub struct Corrupt {
    /// The check that failed, with its numbers.
    pub kind: CorruptKind,
    /// The structure.
    pub at: At,
}

/// The check that failed, with the numbers that failed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's message is its documentation")]
pub enum CorruptKind {
    // Superblock.
    #[error("magic number {found:#06x} is not 0xef53")]
    SuperMagic { found: u16 },
    #[error("superblock checksum {found:#010x} should be {expected:#010x}")]
    SuperChecksum { found: u32, expected: u32 },
    #[error("checksum type {found} is not 1 (crc32c)")]
    ChecksumType { found: u8 },
    #[error("revision {found} is not 0 or 1")]
    Revision { found: u32 },
    #[error("block size 1024 << {log} is not between 1024 and 65536")]
    BlockSize { log: u32 },
    #[error("cluster size 1024 << {log} does not fit block size {block_size}")]
    ClusterSize { log: u32, block_size: u32 },
    #[error("inode size {found} is not a power of two from 128 to the block size {block_size}")]
    InodeSize { found: u32, block_size: u32 },
    #[error("group descriptor size {found} is not a power of two from 32 to 1024")]
    DescSize { found: u32 },
    #[error("{found} blocks per group are not in 8..={limit} in eights")]
    BlocksPerGroup { found: u32, limit: u32 },
    #[error("{found} clusters per group do not agree with {blocks} blocks per group")]
    ClustersPerGroup { found: u32, blocks: u32 },
    #[error("{found} inodes per group are not in {per_block}..={limit} in eights")]
    InodesPerGroup { found: u32, per_block: u32, limit: u32 },
    #[error("first data block {found} should be {expected}")]
    FirstDataBlock { found: u32, expected: u32 },
    #[error("{blocks} blocks leave nothing after first data block {first}")]
    BlocksCount { blocks: u64, first: u32 },
    #[error("{blocks} blocks make more groups than 32-bit numbers hold")]
    GroupsCount { blocks: u64 },
    #[error("{found} inodes should be {groups} groups of {per_group}")]
    InodesCount { found: u32, groups: u32, per_group: u32 },
    #[error("first inode {found} is below 11 or beyond {inodes}")]
    FirstInode { found: u32, inodes: u32 },
    #[error("{reserved} reserved descriptor blocks exceed {limit}")]
    ReservedGdtBlocks { reserved: u32, limit: u32 },
    #[error("{blocks} free blocks of {total}")]
    FreeBlocks { blocks: u64, total: u64 },
    #[error("{found} reserved blocks of {total}")]
    ReservedBlocks { found: u64, total: u64 },
    #[error("{inodes} free inodes of {total}")]
    FreeInodes { inodes: u32, total: u32 },
    #[error("log of groups per flexible group {found} exceeds 31")]
    FlexSize { found: u8 },
    #[error("extra inode size {found} is larger than {limit} or no multiple of four")]
    WantExtraIsize { found: u32, limit: u32 },
    #[error("encoding of names {found} is not known: 1 is UTF-8 12.1")]
    Encoding { found: u16 },
    #[error("first meta group {found} is beyond {limit}")]
    FirstMetaBg { found: u32, limit: u64 },
    #[error("device of {device_blocks} blocks is smaller than the file system's {blocks}")]
    DeviceSize { blocks: u64, device_blocks: u64 },

    // Groups.
    #[error("descriptor checksum {found:#06x} should be {expected:#06x}")]
    GroupChecksum { found: u16, expected: u16 },
    #[error("block bitmap in block {block} is outside {first}..{end}")]
    BlockBitmapPlace { block: u64, first: u64, end: u64 },
    #[error("inode bitmap in block {block} is outside {first}..{end}")]
    InodeBitmapPlace { block: u64, first: u64, end: u64 },
    #[error("inode table in block {block} is outside {first}..{end}")]
    InodeTablePlace { block: u64, first: u64, end: u64 },
    #[error("{found} free blocks exceed the group's {limit}")]
    GroupFreeBlocks { found: u32, limit: u32 },
    #[error("{found} free inodes exceed the group's {limit}")]
    GroupFreeInodes { found: u32, limit: u32 },
    #[error("{found} unused inodes exceed the group's {limit}")]
    GroupUnusedInodes { found: u32, limit: u32 },
    #[error("{found} directories exceed the group's {limit} inodes")]
    GroupDirs { found: u32, limit: u32 },
    #[error("block bitmap checksum {found:#010x} should be {expected:#010x}")]
    BlockBitmapChecksum { found: u32, expected: u32 },
    #[error("inode bitmap checksum {found:#010x} should be {expected:#010x}")]
    InodeBitmapChecksum { found: u32, expected: u32 },

    // Inodes.
    #[error("inode number is outside 1..={inodes}")]
    InodeNumber { inodes: u32 },
    #[error("inode checksum {found:#010x} should be {expected:#010x}")]
    InodeChecksum { found: u32, expected: u32 },
    #[error("extra inode size {found} is larger than {limit} or no multiple of four")]
    ExtraIsize { found: u16, limit: u16 },
    #[error("mode {mode:#o} has no known file type")]
    InodeMode { mode: u16 },
    #[error("size {size} exceeds the largest file of {limit}")]
    InodeSizeLimit { size: u64, limit: u64 },
    #[error("directory size {size} is zero or no multiple of the block size {block_size}")]
    DirectorySize { size: u64, block_size: u32 },
    #[error("symbolic link of {size} bytes does not fit {limit}")]
    SymlinkSize { size: u64, limit: u64 },
    #[error("content of {size} bytes lies in the inode, which has {has} for it")]
    InlineSize { size: u64, has: u64 },
    #[error("content cannot lie in the inode: flags {flags:#x}")]
    InlineFlags { flags: u32 },
    #[error("attribute block {block} is outside {first}..{end}")]
    AttributeBlock { block: u64, first: u64, end: u64 },
    #[error("block {block} (logical {logical}) is outside {first}..{end}")]
    MappedBlock { logical: u64, block: u64, first: u64, end: u64 },

    // Extents.
    #[error("extent header magic {found:#06x} is not 0xf30a")]
    ExtentMagic { found: u16 },
    #[error("extent depth {found} should be {expected}")]
    ExtentDepth { found: u16, expected: u16 },
    #[error("extent depth {found} exceeds 5")]
    ExtentTooDeep { found: u16 },
    #[error("room for {found} extents should be 1..={limit}")]
    ExtentMax { found: u16, limit: u16 },
    #[error("{entries} extents exceed the room for {max}")]
    ExtentEntries { entries: u16, max: u16 },
    #[error("index node without entries")]
    ExtentEmptyIndex,
    #[error("extent block checksum {found:#010x} should be {expected:#010x}")]
    ExtentChecksum { found: u32, expected: u32 },
    #[error("extent {index} has no blocks")]
    ExtentLength { index: u16 },
    #[error("extent {index} at {block} overlaps the one before it, which ends at {end}")]
    ExtentOrder { index: u16, block: u64, end: u64 },
    #[error("extent {index} at {block} reaches past the last logical block")]
    ExtentOverflow { index: u16, block: u32 },
    #[error("extent {index} maps blocks {start}+{len} outside {first}..{end}")]
    ExtentPlace { index: u16, start: u64, len: u32, first: u64, end: u64 },
    #[error("extent {index}: block {block} of the file cannot be {start} with clusters of {ratio}")]
    ExtentCluster { index: u16, block: u32, start: u64, ratio: u32 },
    #[error("a file without extents on a file system with clusters")]
    ClustersNeedExtents,
    #[error("extent node starts at {found}, its parent says {expected}")]
    ExtentParent { found: u32, expected: u32 },

    // Directories.
    #[error("entry at {offset}: length {rec_len} is too short, not in fours, or leaves the block")]
    DirRecLen { offset: u32, rec_len: u32 },
    #[error("entry at {offset}: name of {name_len} bytes does not fit length {rec_len}")]
    DirNameLen { offset: u32, name_len: u32, rec_len: u32 },
    #[error("entry at {offset}: empty name")]
    DirEmptyName { offset: u32 },
    #[error("entry at {offset}: name holds a slash or a zero byte")]
    DirNameByte { offset: u32 },
    #[error("entry at {offset}: {name_len} bytes are too short for an encrypted name")]
    DirNameEncrypted { offset: u32, name_len: u8 },
    #[error("entry at {offset}: an encrypted name that is none, decrypted")]
    DirNamePlain { offset: u32 },
    #[error("entry at {offset}: inode {ino} is beyond {inodes}")]
    DirInode { offset: u32, ino: u32, inodes: u32 },
    #[error("entry at {offset}: file type {file_type} is not known")]
    DirFileType { offset: u32, file_type: u8 },
    #[error("a name points at inode {ino}, which is not in use")]
    DirUnusedInode { ino: u32 },
    #[error("the directory is above itself: inode {ino} was met twice on the way up")]
    DirCircle { ino: u32 },
    #[error("the second entry is not \"..\"")]
    DirNoParent,
    #[error("directory block has no checksum tail")]
    DirTail,
    #[error("directory block checksum {found:#010x} should be {expected:#010x}")]
    DirChecksum { found: u32, expected: u32 },
    #[error("directory has a hole at block {logical}")]
    DirHole { logical: u64 },

    // Hash trees.
    #[error("hash tree root: entry {entry} is not as it must be")]
    HtreeDots { entry: u8 },
    #[error("hash tree root: reserved word {found:#x} is not zero")]
    HtreeReserved { found: u32 },
    #[error("hash tree root: hash version {found} is not known")]
    HtreeHashVersion { found: u8 },
    #[error("hash tree root: information length {found} is not 8")]
    HtreeInfoLength { found: u8 },
    #[error("hash tree root: flags {found:#x} are not known")]
    HtreeFlags { found: u8 },
    #[error("hash tree: {found} indirect levels exceed {limit}")]
    HtreeLevels { found: u8, limit: u8 },
    #[error("hash tree node: limit {found} should be {expected}")]
    HtreeLimit { found: u16, expected: u16 },
    #[error("hash tree node: count {found} is not in 1..={limit}")]
    HtreeCount { found: u16, limit: u16 },
    #[error("hash tree node: no fake entry over the whole block")]
    HtreeNode,
    #[error("hash tree node checksum {found:#010x} should be {expected:#010x}")]
    HtreeChecksum { found: u32, expected: u32 },
    #[error("hash tree node: entry {index} has hash {hash:#010x} below {before:#010x}")]
    HtreeOrder { index: u16, hash: u32, before: u32 },
    #[error("hash tree node: entry {index} points at block {block} of {blocks}")]
    HtreeBlock { index: u16, block: u32, blocks: u64 },

    // Attributes.
    #[error("attribute magic {found:#010x} is not 0xea020000")]
    XattrMagic { found: u32 },
    #[error("attribute block: {found} blocks, reference count {references}")]
    XattrHeader { found: u32, references: u32 },
    #[error("attribute block checksum {found:#010x} should be {expected:#010x}")]
    XattrChecksum { found: u32, expected: u32 },
    #[error("attribute entry at {offset} leaves its area")]
    XattrEntry { offset: u32 },
    #[error("attribute value at {value_offset}+{size} of entry {offset} leaves its area")]
    XattrValue { offset: u32, value_offset: u32, size: u32 },
    #[error("attribute entry at {offset}: the value lives in inode {inode}")]
    XattrInodeValue { offset: u32, inode: u32 },
    #[error("attribute entry at {offset}: hash {found:#010x} should be {expected:#010x}")]
    XattrHash { offset: u32, found: u32, expected: u32 },
    #[error("attribute value in inode {inode}: size {found} should be {expected}")]
    XattrInodeSize { inode: u32, found: u64, expected: u32 },
    #[error("attribute value in inode {inode}: hash {found:#010x} should be {expected:#010x}")]
    XattrInodeHash { inode: u32, found: u32, expected: u32 },
    #[error(
        "attribute value in inode {inode}: Lustre's older form of ea_inode (no hash, the owner \
         {owner} in the time of change) is not supported"
    )]
    XattrInodeLustre { inode: u32, owner: u32 },
    #[error("inode {inode} is named by an attribute, but holds no attribute's value")]
    XattrInodeFlag { inode: u32 },
    #[error("attribute value: it counts {count} references")]
    XattrInodeReferences { count: u64 },
    #[error("attribute entry at {offset} is not in order")]
    XattrOrder { offset: u32 },

    // Quota files.
    #[error("quota file magic {found:#010x} should be {expected:#010x}")]
    QuotaMagic { found: u32, expected: u32 },
    #[error("quota file version {found} is not 1")]
    QuotaVersion { found: u32 },
    #[error("quota file: block {block} is named twice or outside 2..{blocks}")]
    QuotaBlock { block: u32, blocks: u32 },
    #[error("quota file: block {block} has no entry of id {id}, or no room for one")]
    QuotaEntry { id: u32, block: u32 },

    // Multi-mount protection.
    #[error("multi-mount protection: block {block} is not in {first}..{end}")]
    MmpPlace { block: u64, first: u64, end: u64 },
    #[error("multi-mount protection: magic {found:#010x} is not 0x004d4d50")]
    MmpMagic { found: u32 },
    #[error("multi-mount protection: checksum {found:#010x} should be {expected:#010x}")]
    MmpChecksum { found: u32, expected: u32 },

    // Orphan file.
    #[error("orphan file block magic {found:#010x} is not 0x0b10ca04")]
    OrphanMagic { found: u32 },
    #[error("orphan file block checksum {found:#010x} should be {expected:#010x}")]
    OrphanChecksum { found: u32, expected: u32 },
}

impl CorruptKind {
    /// This failure in that structure.
    pub fn at(self, at: At) -> Corrupt {
        Corrupt { kind: self, at }
    }
}
