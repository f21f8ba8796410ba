//! What can be wrong with a structure on the disk, one variant per check.

use base::Ino;

use super::log::Lsn;

/// Where a structure lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum At {
    /// The superblock of this allocation group.
    Super(u32),
    /// The AGF of this group.
    Agf(u32),
    /// The AGFL of this group.
    Agfl(u32),
    /// The AGI of this group.
    Agi(u32),
    /// A block of this group.
    AgBlock(u32, u32),
    /// A block of the device, in sectors of 512 bytes.
    Block(u64),
    /// An inode.
    Inode(Ino),
    /// A block of an inode's fork: inode, block in the fork.
    InodeBlock(Ino, u64),
    /// A block of the log, in units of 512 bytes.
    Log(u32),
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::Super(ag) => write!(f, "superblock of group {ag}"),
            At::Agf(ag) => write!(f, "AGF of group {ag}"),
            At::Agfl(ag) => write!(f, "AGFL of group {ag}"),
            At::Agi(ag) => write!(f, "AGI of group {ag}"),
            At::AgBlock(ag, block) => write!(f, "group {ag}, block {block}"),
            At::Block(sector) => write!(f, "sector {sector}"),
            At::Inode(ino) => write!(f, "inode {ino}"),
            At::InodeBlock(ino, block) => write!(f, "inode {ino}, block {block} of the fork"),
            At::Log(block) => write!(f, "block {block} of the log"),
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
    // Self-description.
    #[error("{what} of {bytes} bytes is too short")]
    Short { what: &'static str, bytes: usize },
    #[error("{what}: magic number {found:#x} is not {expected:#x}")]
    Magic { what: &'static str, found: u32, expected: u32 },
    #[error("{what}: checksum {found:#010x} should be {expected:#010x}")]
    Checksum { what: &'static str, found: u32, expected: u32 },
    #[error("{what}: UUID is not the file system's")]
    Uuid { what: &'static str },
    #[error("{what}: says it lies in sector {found}, not {expected}")]
    Address { what: &'static str, found: u64, expected: u64 },
    #[error("{what}: belongs to {found}, not {expected}")]
    Owner { what: &'static str, found: u64, expected: u64 },
    #[error("was written behind record {lsn} of the log, which ends at {end}; iopath repair helps")]
    Ahead { lsn: Lsn, end: Lsn },

    #[error("{what} of {expected} bytes: a buffer of {found} bytes is in use at the same place")]
    Overlap { what: &'static str, found: u64, expected: u64 },

    #[error("the counts of the inode chunk at {start} are wrong")]
    InodeCounts { start: u32 },
    #[error("is to be freed and is free already")]
    InodeFreedTwice,
    #[error("is to be put into a list of unlinked inodes and is in one already")]
    UnlinkedTwice,
    #[error("is to leave a list of unlinked inodes and is in none")]
    NotUnlinked,
    #[error("slot {slot} of the AGFL holds block {block}, which cannot be")]
    FreeListBlock { slot: u32, block: u32 },
    #[error("{count} blocks at {block} are to be used and are not free")]
    NotFree { block: u32, count: u32 },
    #[error("{count} blocks at {block} are to be freed and some are free already")]
    FreedTwice { block: u32, count: u32 },
    #[error("{tree}: {what}")]
    TreeMismatch { tree: &'static str, what: &'static str },

    // Superblock.
    #[error("version {0} is not known")]
    Version(u16),
    #[error("mkfs has not finished")]
    InProgress,
    #[error("sector size {0} is not a power of two from 512 to the block size")]
    SectorSize(u32),
    #[error("block size {found} (log {bits}) is not a power of two from 512 to 65536")]
    BlockSize { found: u32, bits: u8 },
    #[error("inode size {found} is not a power of two from 512 to 2048 within {block_size}")]
    InodeSize { found: u32, block_size: u32 },
    #[error("{0} inodes per block do not agree with the sizes")]
    InodesPerBlock(u32),
    #[error("directory blocks of {block_size} << {log} bytes exceed 65536")]
    DirBlockSize { log: u8, block_size: u32 },
    #[error("{found} blocks per group (log {bits}) are below 64, above 1 TiB, or not that log")]
    AgBlocks { found: u32, bits: u8 },
    #[error("{groups} groups of {ag_blocks} blocks do not make {blocks} blocks")]
    AgCount { groups: u32, ag_blocks: u32, blocks: u64 },
    #[error("last group of {0} blocks does not hold its headers")]
    LastAg(u64),
    #[error("log of {blocks} blocks at {start} is too small, too large or leaves its group")]
    LogPlace { start: u64, blocks: u32 },
    #[error(
        "a realtime section of {blocks} blocks in {extents} extents of {extent_blocks} blocks each"
    )]
    Realtime { blocks: u64, extents: u64, extent_blocks: u32 },
    #[error("realtime extents {start} to {end} are {found} in the bitmap")]
    RealtimeBits { start: u64, end: u64, found: &'static str },
    #[error("the realtime summary counts no free extents like the {len} from {start} on")]
    RealtimeSummary { start: u64, len: u64 },
    #[error("{found} bytes of {what} of the realtime section, {wanted} are needed")]
    RealtimeFile { what: &'static str, found: u64, wanted: u64 },
    #[error("log stripe unit {0} is not a multiple of the sector up to 256 KiB")]
    LogStripe(u32),
    #[error("root inode {0} cannot exist")]
    RootInode(u64),
    #[error("device of {sectors} sectors is smaller than the file system's {wanted}")]
    DeviceSize { sectors: u64, wanted: u64 },

    // Groups.
    #[error("version {0} is not 1")]
    AgVersion(u32),
    #[error("says it is of group {found}, not {expected}")]
    AgNumber { found: u32, expected: u32 },
    #[error("length of {found} blocks should be {expected}")]
    AgLength { found: u32, expected: u32 },
    #[error("{what}: root in block {block} with {levels} levels")]
    BtreeRoot { what: &'static str, block: u32, levels: u32 },
    #[error("{found} free blocks exceed {limit}")]
    FreeBlocks { found: u32, limit: u32 },
    #[error("longest free extent of {found} exceeds {free} free blocks")]
    LongestFree { found: u32, free: u32 },
    #[error("free list {first}..={last} of {count} blocks does not fit {size} slots")]
    FreeList { first: u32, last: u32, count: u32, size: u32 },
    #[error("{free} free inodes of {count}")]
    AgInodes { count: u32, free: u32 },
    #[error("unlinked list {bucket} begins with inode {agino}")]
    UnlinkedBucket { bucket: u32, agino: u32 },
    #[error("inode {agino} is on an unlinked list a second time")]
    UnlinkedLoop { agino: u32 },

    // Btrees.
    #[error("{what}: level {found} should be {expected}")]
    BtreeLevel { what: &'static str, found: u16, expected: u16 },
    #[error("{what}: {found} entries are not in 1..={limit}")]
    BtreeCount { what: &'static str, found: u16, limit: u16 },
    #[error("block map root of level {0}")]
    BtreeRootLevel(u16),
    #[error("{what}: entry {index} points at block {block}, outside the file system")]
    BtreePointer { what: &'static str, index: u32, block: u64 },
    #[error("{what}: entry {index} is not behind the one before")]
    BtreeOrder { what: &'static str, index: u32 },
    #[error("{what}: more blocks than the file system has")]
    BtreeLoop { what: &'static str },
    #[error("free extent {start}+{len} leaves the group")]
    FreeExtent { start: u32, len: u32 },
    #[error("inode chunk at {start}: holes {holes:#x}, {count} inodes, {free_count} free")]
    InodeChunk { start: u32, holes: u16, count: u8, free_count: u8 },

    // Extents.
    #[error("extent at file block {offset} has no blocks")]
    ExtentEmpty { offset: u64 },
    #[error("extent at file block {offset} maps {start}+{count} outside the file system")]
    ExtentPlace { offset: u64, start: u64, count: u32 },
    #[error("extent at file block {offset} of {count} blocks reaches past the last file block")]
    ExtentOffset { offset: u64, count: u32 },
    #[error("extent at file block {offset} overlaps the one before, which ends at {end}")]
    ExtentOrder { offset: u64, end: u64 },
    #[error("the neighbours of block {block} in the {what} are not those that it names")]
    BtreeSibling { what: &'static str, block: u64 },
    #[error("{what}: key {key} should be {child}, the first file block of its child")]
    MapKey { what: &'static str, key: u64, child: u64 },
    #[error("{found} extents should be {expected}")]
    ExtentCount { found: u64, expected: u64 },

    // Inodes.
    #[error("inode {0} cannot exist")]
    InodeNumber(u64),
    #[error("inode is not in use")]
    InodeFree,
    #[error("version {0} is not one of this file system's inodes")]
    InodeVersion(u8),
    #[error("mode {mode:#o} has no known file type")]
    InodeMode { mode: u16 },
    #[error("mode {mode:#o} is not what the metadata directory holds here, or its flag is missing")]
    MetadataInode { mode: u16 },
    #[error("the metadata directory names no {what} of group {group} of the realtime section")]
    RealtimeName { group: u32, what: &'static str },
    #[error("fork format {number} is not known")]
    ForkFormat { number: u8 },
    #[error("data fork format {number} does not go with mode {mode:#o}")]
    ForkFormatOfMode { number: u8, mode: u16 },
    #[error("fork offset {found} leaves no room for a fork")]
    ForkOffset { found: u8 },
    #[error("size {size} exceeds the largest file")]
    InodeBytes { size: u64 },
    #[error("{size} bytes do not fit the fork's {room}")]
    LocalSize { size: u64, room: u64 },
    #[error("{fork} fork of format {number}: {count} extents, room for {inline}")]
    ForkExtents { fork: &'static str, number: u8, count: u64, inline: u64 },
    #[error("{found} blocks are more than there are, or fewer than extents")]
    InodeBlocks { found: u64 },
    #[error("symbolic link of {size} bytes")]
    SymlinkSize { size: u64 },

    // Directories and hash trees.
    #[error("directory of {size} bytes, which is no multiple of its blocks, or too large")]
    DirSize { size: u64 },
    #[error("small directory of {size} bytes uses {used}")]
    ShortformSize { size: usize, used: usize },
    #[error("no entry can begin at {offset}")]
    DirEntryPlace { offset: u32 },
    #[error("unused range at {offset} of {len} bytes")]
    DirUnused { offset: u32, len: u32 },
    #[error("item at {offset} ends with tag {found}")]
    DirTag { offset: u32, found: u16 },
    #[error("entry at {offset}: name of {len} bytes is empty or leaves the block")]
    DirNameLen { offset: u32, len: u32 },
    #[error("entry at {offset}: name is empty or holds a slash or a zero byte")]
    DirNameByte { offset: u32 },
    #[error("entry at {offset}: file type {number} is not known")]
    DirFileType { offset: u32, number: u8 },
    #[error("entry at {offset}: inode {ino} cannot exist")]
    DirInode { offset: u32, ino: u64 },
    #[error("a name points at inode {ino}, which is not in use")]
    DirUnusedInode { ino: u64 },
    #[error("index of {count} entries, {stale} stale, does not fit")]
    DirTail { count: u32, stale: u32 },
    #[error("leaf of {count} entries, {stale} stale, does not fit {limit}")]
    DirLeafCount { count: u16, stale: u16, limit: u16 },
    #[error("{found} stale entries should be {expected}")]
    DirStale { found: u32, expected: u32 },
    #[error("index entry with hash {hash:#010x} points at {address:#x}, where no name lies")]
    DirAddress { hash: u32, address: u32 },
    #[error("room of {found} data blocks does not fit the leaf")]
    DirBests { found: u32 },
    #[error("free block from data block {first}: {valid} data blocks, {used} in use")]
    DirFree { first: u32, valid: u32, used: u32 },
    #[error("directory has a hole at its block {block}")]
    DirHole { block: u64 },
    #[error("the directory is above itself: inode {ino} was met twice on the way up")]
    DirCircle { ino: u64 },
    #[error("hash tree: level {found} is not as its parent says, or above 5")]
    DaLevel { found: u16 },
    #[error("hash tree: {found} entries are not in 1..={limit}")]
    DaCount { found: u16, limit: u16 },
    #[error("hash tree: magic number {found:#x} is neither a node's nor a leaf's")]
    DaMagic { found: u16 },
    #[error("hash tree: block {block} was met twice")]
    DaLoop { block: u32 },
    #[error("entry {index} has hash {hash:#010x}, below {before:#010x}")]
    HashOrder { index: u32, hash: u32, before: u32 },

    // Attributes and remote blocks.
    #[error("attributes of {found} bytes do not fit {room}")]
    AttrSize { found: usize, room: usize },
    #[error("attribute entry at {offset} leaves its area")]
    AttrEntry { offset: u32 },
    #[error("{found} attributes exceed {limit}")]
    AttrCount { found: u16, limit: u16 },
    #[error("{size} free bytes at {base} of a leaf of attributes")]
    AttrFree { base: u16, size: u16 },
    #[error("attribute fork has a hole at block {block}")]
    AttrHole { block: u64 },
    #[error("a name of {name} bytes with a value of {value} bytes is no parent pointer")]
    ParentPointer { name: usize, value: usize },
    #[error("generation {found:#x} of the inode is not {expected:#x}, as the log says")]
    InodeGeneration { found: u32, expected: u32 },
    #[error("piece begins at byte {found}, not {expected}")]
    RemoteOffset { found: u64, expected: u64 },
    #[error("piece of {found} bytes is longer than its block or than the whole")]
    RemoteBytes { found: u64 },

    // Quota.
    #[error("quota record of id {found}, type {d_type:#x}, where that of id {expected} should be")]
    QuotaRecord { found: u32, d_type: u8, expected: u32 },

    // Log.
    #[error("log record version {0} is not 1 or 2")]
    LogVersion(u32),
    #[error("log record of {len} bytes, buffer of {size}")]
    LogLength { len: u32, size: u32 },
    #[error("log record says it is {found:#x}, not in block {expected}")]
    LogPlaceOfRecord { found: u64, expected: u64 },
}

impl CorruptKind {
    /// This failure in that structure.
    pub fn at(self, at: At) -> Corrupt {
        Corrupt { kind: self, at }
    }
}
