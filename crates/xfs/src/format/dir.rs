//! Directory blocks that hold names: data blocks, and the one block of a small directory, which
//! holds its own hash index at its end.
//!
//! A name lies at a multiple of eight bytes; its offset in the directory, divided by eight, is its
//! address and its cookie. Source: "XFS Algorithms and Data Structures", chapter on directories.

use base::Ino;

use super::{
    At, Corrupt, CorruptKind, Geometry, Kind, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at,
};

mod emit;

pub use emit::{
    BestFree, best_free, fill_block, find_best_free, init_data, set_best_free, set_entry,
    set_unused,
};

/// Bytes of a data block's header.
pub const DATA_HEADER: usize = 64;
/// Bytes of the tail of a single-block directory: counts of entries and of stale ones.
pub const BLOCK_TAIL: usize = 8;
/// Bytes of an entry of a hash index.
pub const LEAF_ENTRY: usize = 8;
/// What an unused range begins with in place of an inode number.
pub const FREE_TAG: u16 = 0xffff;
/// Where data blocks begin in the directory's space, in bytes; leaves; free blocks.
pub const SPACES: [u64; 3] = [0, 1 << 35, 2 << 35];
/// Bytes of a name at the most.
pub const NAME_MAX: usize = 255;

/// The file types in directory entries, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum FileType {
    Unknown = 0,
    Regular = 1,
    Directory = 2,
    CharDevice = 3,
    BlockDevice = 4,
    Fifo = 5,
    Socket = 6,
    Symlink = 7,
    Whiteout = 8,
}

impl FileType {
    /// The type of this number.
    pub fn from_number(number: u8) -> Option<FileType> {
        use FileType::*;
        const ALL: [FileType; 9] =
            [Unknown, Regular, Directory, CharDevice, BlockDevice, Fifo, Socket, Symlink, Whiteout];
        ALL.get(usize::from(number)).copied()
    }

    /// The type of an inode with this mode.
    pub fn of_mode(mode: u16) -> FileType {
        match mode & 0xf000 {
            0x8000 => FileType::Regular,
            0x4000 => FileType::Directory,
            0x2000 => FileType::CharDevice,
            0x6000 => FileType::BlockDevice,
            0x1000 => FileType::Fifo,
            0xc000 => FileType::Socket,
            0xa000 => FileType::Symlink,
            _ => FileType::Unknown,
        }
    }
}

/// What a data block holds at one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// A name.
    Entry {
        /// Where it lies in the block, in bytes.
        offset: usize,
        /// The inode.
        ino: Ino,
        /// The name.
        name: &'a [u8],
        /// The inode's type; unknown without `ftype`.
        file_type: FileType,
    },
    /// Nothing.
    Unused {
        /// Where it lies in the block, in bytes.
        offset: usize,
        /// Bytes, a multiple of eight.
        len: usize,
    },
}

/// Bytes of the entry of a name of `len` bytes.
pub fn entry_size(len: usize, ftype: bool) -> usize {
    (8 + 1 + len + usize::from(ftype) + 2).next_multiple_of(8)
}

/// A data block, or the block of a single-block directory, whose self-description was verified.
#[derive(Clone, Copy)]
pub struct DataBlock<'a> {
    data: &'a [u8],
    /// Where the names end.
    end: usize,
    header: usize,
    ftype: bool,
}

impl<'a> DataBlock<'a> {
    /// The block in `data`, of either kind.
    ///
    /// # Errors
    /// [`CorruptKind::DirTail`] where the index of a single-block directory does not fit.
    pub fn new(kind: Kind, data: &'a [u8], ftype: bool, at: At) -> Result<Self, Corrupt> {
        let (mut end, header) = (data.len(), kind.header(data, DATA_HEADER));
        if kind == Kind::DirBlock {
            let (count, stale) = block_tail(data);
            let room = (data.len() - header - BLOCK_TAIL) / LEAF_ENTRY;
            if count as usize > room || stale > count {
                return Err(CorruptKind::DirTail { count, stale }.at(at));
            }
            end -= BLOCK_TAIL + LEAF_ENTRY * count as usize;
        }
        Ok(DataBlock { data, end, header, ftype })
    }

    /// Where the names begin in the block.
    pub fn start(&self) -> usize {
        self.header
    }

    /// Where the names end in the block.
    pub fn end(&self) -> usize {
        self.end
    }

    /// What lies at `offset`, and where the next item begins.
    ///
    /// # Errors
    /// The first check of the item that fails.
    pub fn item(&self, offset: usize, at: At) -> Result<(Item<'a>, usize), Corrupt> {
        let (place, data) = (offset as u32, self.data);
        if offset + 8 > self.end || !offset.is_multiple_of(8) || offset < self.header {
            return Err(CorruptKind::DirEntryPlace { offset: place }.at(at));
        }
        if u16_at(data, offset) == FREE_TAG {
            let len = usize::from(u16_at(data, offset + 2));
            let next = offset + len;
            if len < 8 || !len.is_multiple_of(8) || next > self.end {
                return Err(CorruptKind::DirUnused { offset: place, len: len as u32 }.at(at));
            }
            let tag = u16_at(data, next - 2);
            if usize::from(tag) != offset {
                return Err(CorruptKind::DirTag { offset: place, found: tag }.at(at));
            }
            return Ok((Item::Unused { offset, len }, next));
        }
        let len = usize::from(*data.get(offset + 8).unwrap_or(&0));
        let next = offset + entry_size(len, self.ftype);
        if len == 0 || next > self.end {
            return Err(CorruptKind::DirNameLen { offset: place, len: len as u32 }.at(at));
        }
        let tag = u16_at(data, next - 2);
        if usize::from(tag) != offset {
            return Err(CorruptKind::DirTag { offset: place, found: tag }.at(at));
        }
        let name = &data[offset + 9..][..len];
        let number = if self.ftype { data[offset + 9 + len] } else { 0 };
        let file_type = FileType::from_number(number)
            .ok_or_else(|| CorruptKind::DirFileType { offset: place, number }.at(at))?;
        Ok((Item::Entry { offset, ino: Ino(u64_at(data, offset)), name, file_type }, next))
    }

    /// Everything in the block from `offset` on, until the end or the first damage.
    pub fn items(
        &self,
        offset: usize,
        at: At,
    ) -> impl Iterator<Item = Result<Item<'a>, Corrupt>> + use<'a> {
        let (block, mut next) = (*self, Some(offset));
        std::iter::from_fn(move || {
            let offset = next.filter(|&offset| offset < block.end)?;
            match block.item(offset, at) {
                Ok((item, after)) => {
                    next = Some(after);
                    Some(Ok(item))
                }
                Err(corrupt) => {
                    next = None;
                    Some(Err(corrupt))
                }
            }
        })
    }

    /// The hash index of a single-block directory.
    pub fn index(&self) -> Leaves<'a> {
        Leaves(&self.data[self.end..self.data.len() - BLOCK_TAIL])
    }
}

/// Checks that a name has no slash and no zero byte, is not empty, and that the inode can exist.
///
/// # Errors
/// [`CorruptKind::DirNameByte`], [`CorruptKind::DirInode`].
pub fn check_entry(
    name: &[u8],
    ino: Ino,
    offset: usize,
    geometry: &Geometry,
    at: At,
) -> Result<(), Corrupt> {
    let offset = offset as u32;
    if name.is_empty() || name.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Err(CorruptKind::DirNameByte { offset }.at(at));
    }
    if !geometry.ino_valid(ino) {
        return Err(CorruptKind::DirInode { offset, ino: ino.0 }.at(at));
    }
    Ok(())
}

/// Counts of a single-block directory's index: entries, and stale ones among them.
pub fn block_tail(data: &[u8]) -> (u32, u32) {
    let at = data.len() - BLOCK_TAIL;
    (u32_at(data, at), u32_at(data, at + 4))
}

/// Stores the counts of a single-block directory's index.
pub fn set_block_tail(data: &mut [u8], count: u32, stale: u32) {
    let at = data.len() - BLOCK_TAIL;
    put_u32(data, at, count);
    put_u32(data, at + 4, stale);
}

/// One entry of a hash index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LeafEntry {
    /// Hash of the name.
    pub hash: u32,
    /// Offset of the name in the directory divided by eight; 0 for a stale entry.
    pub address: u32,
}

impl LeafEntry {
    /// Writes it as entry `index` of an array of entries.
    #[inline]
    pub fn write(&self, array: &mut [u8], index: usize) {
        put_u32(array, index * LEAF_ENTRY, self.hash);
        put_u32(array, index * LEAF_ENTRY + 4, self.address);
    }
}

/// A hash index: entries sorted by hash.
#[derive(Clone, Copy)]
pub struct Leaves<'a>(&'a [u8]);

impl<'a> Leaves<'a> {
    /// The index in these bytes, a multiple of eight of them.
    pub fn new(data: &'a [u8]) -> Leaves<'a> {
        Leaves(data)
    }

    /// Number of entries, stale ones included.
    pub fn len(&self) -> usize {
        self.0.len() / LEAF_ENTRY
    }

    /// True if there is no entry at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entry `index`.
    pub fn get(&self, index: usize) -> LeafEntry {
        let at = index * LEAF_ENTRY;
        LeafEntry { hash: u32_at(self.0, at), address: u32_at(self.0, at + 4) }
    }

    /// All entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = LeafEntry> + use<'a> {
        let leaves = *self;
        (0..leaves.len()).map(move |index| leaves.get(index))
    }

    /// The first entry whose hash is not below `hash`.
    pub fn lower_bound(&self, hash: u32) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.get(middle).hash < hash { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Checks that hashes do not fall and that as many entries are stale as `stale` says.
    ///
    /// # Errors
    /// [`CorruptKind::HashOrder`], [`CorruptKind::DirStale`].
    pub fn check(&self, stale: u32, at: At) -> Result<(), Corrupt> {
        let (mut before, mut found) = (0, 0);
        for (index, LeafEntry { hash, address }) in self.iter().enumerate() {
            if hash < before {
                return Err(CorruptKind::HashOrder { index: index as u32, hash, before }.at(at));
            }
            before = hash;
            found += u32::from(address == 0);
        }
        if found != stale {
            return Err(CorruptKind::DirStale { found, expected: stale }.at(at));
        }
        Ok(())
    }
}
