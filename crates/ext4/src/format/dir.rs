//! A block of a directory: entries one behind the other, and a checksum tail.
//!
//! An entry is 8 bytes (inode number, entry length, name length, file type) and the name, filled up
//! to a multiple of four. The entry lengths cover the block without a gap: free space belongs to
//! the entry before it, and only the first entry of a block may be unused (inode 0), except where
//! other implementations left more. With `metadata_csum` the last 12 bytes look like an unused
//! entry of file type 0xde and hold the checksum.
//!
//! All functions here take a *checked* block ([`check`]); searches end, and stay inside, on any
//! other too. Offsets are bytes from the start of the block.
//!
//! Source: kernel `Documentation/filesystems/ext4/directory`.

use super::CorruptKind;
use super::checksum::{
    DIR_TAIL_FILE_TYPE as TAIL_TYPE, DIR_TAIL_SIZE as TAIL_LEN, InodeSeed, u32_at,
};
use super::hash::NameHash;

mod data;
mod hashed;
mod in_inode;
mod key;

pub use data::{Behind, behind, data_behind_dots, dots_with_data, sound_behind};
use hashed::HASHES_LEN;
pub use hashed::{Names, set_hash};
pub use in_inode::{
    Dots, INLINE_HEAD, INLINE_RUNS, empty_inline, grow_inline, init_from_inline, inline_parent,
    inline_range, inline_run, set_inline_parent,
};
pub use key::{Fold, Key};

/// Bytes before the name.
pub const HEADER_LEN: usize = 8;
/// The bytes that an entry with a name of `name_len` bytes needs: 12..=264, a multiple of four.
#[inline]
pub const fn entry_len(name_len: usize) -> usize {
    (HEADER_LEN + name_len + 3) & !3
}

/// The shortest encrypted name.
pub const ENCRYPTED_MIN: usize = 16;

/// What the blocks of a directory look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirLayout {
    /// Block size in bytes, 1024..=32768.
    pub block_size: u32,
    /// `metadata_csum`: blocks end with a tail, index nodes too.
    pub checksum: bool,
    /// `filetype`: entries have the type of their inode.
    pub filetype: bool,
    /// What the names are.
    pub names: Names,
}

impl DirLayout {
    /// Where the entries end: the block size without the tail.
    #[inline]
    pub fn end(&self) -> usize {
        self.block_size as usize - if self.checksum { TAIL_LEN } else { 0 }
    }

    /// The bytes that an entry with a name of `name_len` bytes needs: 12..=272.
    #[inline]
    pub fn entry_len(&self, name_len: usize) -> usize {
        let hashed = self.names == Names::Hashed && name_len >= ENCRYPTED_MIN;
        entry_len(name_len) + if hashed { HASHES_LEN } else { 0 }
    }

    /// The byte that an entry stores for this file type.
    #[inline]
    pub fn stored_type(&self, file_type: u8) -> u8 {
        if self.filetype { file_type } else { 0 }
    }
}

/// Bytes of the largest block.
const WHOLE_LEN: usize = 1 << 16;

/// The length of an entry as it is stored in `block`. Of a whole block of 64 KiB, which 16 bits do
/// not hold, 0xffff is stored, or 0.
#[inline(always)]
pub fn whole_len(stored: u16, block: &[u8]) -> usize {
    let whole = block.len() == WHOLE_LEN && (stored == 0 || stored == u16::MAX);
    if whole { WHOLE_LEN } else { stored.into() }
}

/// How the length of an entry is stored.
#[inline(always)]
pub(super) fn stored_len(len: usize) -> u16 {
    len.min(u16::MAX.into()) as u16
}

/// The 8 bytes before a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    ino: u32,
    /// As it is stored.
    rec_len: u16,
    name_len: u8,
    file_type: u8,
}

impl Header {
    #[inline(always)]
    fn read(block: &[u8], offset: usize) -> Option<Header> {
        let bytes = block.get(offset..offset + HEADER_LEN)?;
        let word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Some(Header {
            ino: word as u32,
            rec_len: (word >> 32) as u16,
            name_len: (word >> 48) as u8,
            file_type: (word >> 56) as u8,
        })
    }

    #[inline(always)]
    fn write(self, block: &mut [u8], offset: usize) {
        let word = u64::from(self.ino)
            | u64::from(self.rec_len) << 32
            | u64::from(self.name_len) << 48
            | u64::from(self.file_type) << 56;
        block[offset..offset + HEADER_LEN].copy_from_slice(&word.to_le_bytes());
    }

    /// Bytes that the entry itself, which lies at `at`, needs: none where it is unused.
    #[inline(always)]
    fn used(self, block: &[u8], at: usize, layout: DirLayout) -> usize {
        let name_len = usize::from(self.name_len);
        match layout.names {
            _ if self.ino == 0 => 0,
            Names::Data => entry_len(name_len + data::data_len(block, at, self)),
            _ => layout.entry_len(name_len),
        }
    }
}

/// An entry of a directory block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Where it begins.
    pub offset: u32,
    /// Bytes up to the next entry.
    pub rec_len: u32,
    /// Inode number; 0 for an unused entry.
    pub ino: u32,
    /// File type code 0..=7 (0: not recorded).
    pub file_type: u8,
    /// Name; meaningless where `ino` is 0.
    pub name: &'a [u8],
    /// The hashes behind it, in [`Names::Hashed`].
    pub hash: NameHash,
    /// The data behind it, in [`Names::Data`].
    pub behind: Behind<'a>,
}

/// Walks through the entries of a block, unused ones included. Ends early at a malformed one.
pub fn entries(block: &[u8], layout: DirLayout) -> Entries<'_> {
    let hashed = layout.names == Names::Hashed;
    let types = data::type_mask(layout.names);
    Entries { block: &block[..layout.end().min(block.len())], offset: 0, hashed, types }
}

/// The iterator of [`entries`].
pub struct Entries<'a> {
    block: &'a [u8],
    offset: usize,
    hashed: bool,
    /// The bits of the type that say the type.
    types: u8,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        let header = Header::read(self.block, self.offset)?;
        let start = self.offset + HEADER_LEN;
        let name = self.block.get(start..start + header.name_len as usize)?;
        let rec_len = whole_len(header.rec_len, self.block);
        if rec_len < HEADER_LEN {
            return None;
        }
        let entry = Entry {
            offset: self.offset as u32,
            rec_len: rec_len as u32,
            ino: header.ino,
            file_type: header.file_type & self.types,
            name,
            hash: self.hash(name.len()),
            behind: self.behind(header),
        };
        self.offset += rec_len;
        Some(entry)
    }
}

/// Checks every entry and the place of the tail (not the checksum: [`verify_checksum`]).
///
/// A crash cannot leave a malformed block, since blocks change in transactions; an image from
/// elsewhere can hold anything, and a wrong length would let a search leave the block or never end.
///
/// # Errors
/// The first entry that is wrong, `inodes` being the number of inodes of the file system.
pub fn check(block: &[u8], layout: DirLayout, inodes: u32) -> Result<(), CorruptKind> {
    if layout.checksum && !has_tail(block) {
        return Err(CorruptKind::DirTail);
    }
    let end = layout.end();
    let mut at = 0;
    while at < end {
        let offset = at as u32;
        let bad_len = |rec_len: u16| CorruptKind::DirRecLen { offset, rec_len: rec_len.into() };
        let header = Header::read(&block[..end], at).ok_or(bad_len(0))?;
        let rec_len = whole_len(header.rec_len, &block[..end]);
        if rec_len < entry_len(1) || !rec_len.is_multiple_of(4) || rec_len > end - at {
            return Err(bad_len(header.rec_len));
        }
        check_name(&block[..end], at, header, layout)?;
        if header.ino > inodes {
            return Err(CorruptKind::DirInode { offset, ino: header.ino, inodes });
        }
        at += rec_len;
    }
    Ok(())
}

fn check_name(
    block: &[u8],
    at: usize,
    header: Header,
    layout: DirLayout,
) -> Result<(), CorruptKind> {
    let offset = at as u32;
    let (name_len, rec_len) = (header.name_len as usize, whole_len(header.rec_len, block));
    let need = if header.ino == 0 { entry_len(name_len) } else { layout.entry_len(name_len) };
    if need > rec_len {
        return Err(CorruptKind::DirNameLen {
            offset,
            name_len: name_len as u32,
            rec_len: rec_len as u32,
        });
    }
    if header.ino == 0 {
        return Ok(());
    }
    if name_len == 0 {
        return Err(CorruptKind::DirEmptyName { offset });
    }
    let name = &block[at + HEADER_LEN..at + HEADER_LEN + name_len];
    if layout.names.is_encrypted() && name != b"." && name != b".." {
        if name_len < ENCRYPTED_MIN {
            return Err(CorruptKind::DirNameEncrypted { offset, name_len: header.name_len });
        }
    // A slash would let a crafted image write outside the place where it is unpacked.
    } else if name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(CorruptKind::DirNameByte { offset });
    }
    if layout.names == Names::Data {
        data::check_data(block, at, header)?;
    }
    if header.file_type & data::type_mask(layout.names) > 7 {
        return Err(CorruptKind::DirFileType { offset, file_type: header.file_type });
    }
    Ok(())
}

/// A name that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundEntry {
    /// Its entry.
    pub offset: u32,
    /// The entry before it, or `offset` itself where it is the first.
    pub before: u32,
    /// Inode number, not 0.
    pub ino: u32,
    /// File type code.
    pub file_type: u8,
}

/// The result of [`scan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan {
    /// The name.
    pub found: Option<FoundEntry>,
    /// The first entry with room for `need` bytes behind it (or in it, where it is unused).
    pub room: Option<u32>,
}

/// Searches a block for a name, and on the way for room of `need` bytes.
pub fn scan(block: &[u8], layout: DirLayout, key: &Key, need: usize) -> Scan {
    if let Some(fold) = key.fold {
        let found = find_by(block, layout, |entry| fold.is_of(key, entry));
        return Scan { found, room: room(block, layout, need) };
    }
    if layout.names == Names::Data {
        return Scan { found: find(block, layout, key), room: room(block, layout, need) };
    }
    scan_inner::<true>(block, layout, key, need)
}

/// The first entry with room for `need` bytes behind it (or in it, where it is unused).
pub fn room(block: &[u8], layout: DirLayout, need: usize) -> Option<u32> {
    let used = |entry: &Entry| {
        let at = entry.offset as usize;
        Header::read(block, at).map_or(0, |header| header.used(block, at, layout))
    };
    let has_room = |entry: &Entry| entry.rec_len as usize >= used(entry) + need;
    entries(block, layout).find(has_room).map(|entry| entry.offset)
}

/// The first entry of a block that `is` says yes to.
pub fn find_by(block: &[u8], layout: DirLayout, is: impl Fn(&Entry) -> bool) -> Option<FoundEntry> {
    let mut before = 0;
    for entry in entries(block, layout) {
        let Entry { offset, ino, file_type, .. } = entry;
        if ino != 0 && is(&entry) {
            return Some(FoundEntry { offset, before, ino, file_type });
        }
        before = offset;
    }
    None
}

/// Searches a block for a name.
pub fn find(block: &[u8], layout: DirLayout, key: &Key) -> Option<FoundEntry> {
    match key.fold {
        Some(fold) => find_by(block, layout, |entry| fold.is_of(key, entry)),
        None if layout.names == Names::Data => {
            find_by(block, layout, |entry| entry.name == key.name())
        }
        None => scan_inner::<false>(block, layout, key, 0).found,
    }
}

/// The bytes at `at`. A place of 32 bits cannot overflow when the length is added: one comparison
/// checks the range.
#[inline(always)]
fn bytes_at<const N: usize>(block: &[u8], at: u32) -> Option<[u8; N]> {
    let at = at as usize;
    block.get(at..at + N)?.try_into().ok()
}

/// The loop of all searches. It is most of what a search costs, so it takes each header apart only
/// as far as the question asks: one load, a comparison of the length, one of the last four bytes.
#[inline(always)]
fn scan_inner<const ROOM: bool>(block: &[u8], layout: DirLayout, key: &Key, need: usize) -> Scan {
    let block = &block[..layout.end().min(block.len())];
    let name_len = key.name.len();
    // A used entry needs at least 12 bytes itself: shorter ones have no room.
    let short = if ROOM { need + entry_len(1) } else { usize::MAX };
    let (mut at, mut before, mut room) = (0, 0, None);
    while let Some(bytes) = bytes_at(block, at) {
        let word = u64::from_le_bytes(bytes);
        let (ino, high) = (word as u32, (word >> 32) as u32);
        let rec_len = high as u16 as usize;
        let this_len = (high >> 16) as u8 as usize;
        if this_len == name_len && key.matches(block, at) && ino != 0 {
            let file_type = (high >> 24) as u8;
            return Scan { found: Some(FoundEntry { offset: at, before, ino, file_type }), room };
        }
        // One comparison for both ends: a length below that of a header wraps around.
        if rec_len.wrapping_sub(HEADER_LEN) >= short - HEADER_LEN || ROOM && ino == 0 {
            if rec_len < HEADER_LEN {
                if ROOM && room.is_none() {
                    room = whole_room(block, layout, at, need);
                }
                break;
            }
            let used = if ino == 0 { 0 } else { entry_len(this_len) };
            if room.is_none() && rec_len >= used + need {
                room = Some(at);
            }
        }
        before = at;
        at += rec_len as u32;
    }
    Scan { found: None, room }
}

/// The room of an entry that is a whole block of 64 KiB, with 0 as its length.
#[cold]
fn whole_room(block: &[u8], layout: DirLayout, at: u32, need: usize) -> Option<u32> {
    let header = Header::read(block, at as usize)?;
    let len = whole_len(header.rec_len, block);
    (len == WHOLE_LEN && header.used(block, at as usize, layout) + need <= len).then_some(at)
}

/// Puts an entry where [`scan`] found room for it, and answers its offset. Its hashes, where it has
/// some, are left to [`set_hash`].
///
/// # Panics
/// If there is no room at that offset: the scan was of another block.
pub fn insert(
    block: &mut [u8],
    layout: DirLayout,
    room: u32,
    ino: u32,
    file_type: u8,
    name: &[u8],
) -> u32 {
    let at = room as usize;
    let holder = Header::read(block, at).expect("room is an entry");
    let used = holder.used(block, at, layout);
    let free = whole_len(holder.rec_len, block).checked_sub(used).expect("lengths were checked");
    assert!(free >= layout.entry_len(name.len()), "the entry fits where the scan found room");
    if used > 0 {
        Header { rec_len: used as u16, ..holder }.write(block, at);
    }
    put(block, layout, at + used, free, ino, file_type, name);
    room + used as u32
}

fn put(
    block: &mut [u8],
    layout: DirLayout,
    at: usize,
    rec_len: usize,
    ino: u32,
    file_type: u8,
    name: &[u8],
) {
    let header = Header {
        ino,
        rec_len: stored_len(rec_len),
        name_len: name.len() as u8,
        file_type: layout.stored_type(file_type),
    };
    header.write(block, at);
    let start = at + HEADER_LEN;
    block[start..start + name.len()].copy_from_slice(name);
    block[start + name.len()..at + layout.entry_len(name.len())].fill(0);
}

/// Removes the entry at `found`: its space goes to the entry before it, or it becomes unused.
pub fn remove(block: &mut [u8], layout: DirLayout, found: &FoundEntry) {
    let at = found.offset as usize;
    let header = Header::read(block, at).expect("found is an entry");
    let end = (at + header.used(block, at, layout)).min(block.len());
    if found.before == found.offset {
        let unused = Header { ino: 0, rec_len: header.rec_len, name_len: 0, file_type: 0 };
        block[at..end].fill(0);
        unused.write(block, at);
        return;
    }
    let before = Header::read(block, found.before as usize).expect("the entry before is an entry");
    let rec_len = whole_len(before.rec_len, block) + whole_len(header.rec_len, block);
    Header { rec_len: stored_len(rec_len), ..before }.write(block, found.before as usize);
    block[at..end].fill(0);
}

/// Makes the entry at `offset` point at another inode.
pub fn set_target(block: &mut [u8], layout: DirLayout, offset: u32, ino: u32, file_type: u8) {
    let at = offset as usize;
    let header = Header::read(block, at).expect("offset is an entry");
    if layout.names == Names::Data {
        // They are of the inode that it led to.
        let start = at + HEADER_LEN + usize::from(header.name_len);
        let end = start + data::data_len(block, at, header);
        block[start..end].fill(0);
    }
    Header { ino, file_type: layout.stored_type(file_type), ..header }.write(block, at);
}

/// Writes an empty block: one unused entry, and the tail (without its checksum).
pub fn init_empty(block: &mut [u8], layout: DirLayout) {
    block.fill(0);
    let rec_len = stored_len(layout.end());
    Header { ino: 0, rec_len, name_len: 0, file_type: 0 }.write(block, 0);
    init_tail(block, layout);
}

/// Writes the first block of a new directory: `.` and `..`, and the tail (without its checksum).
pub fn init_dots(block: &mut [u8], layout: DirLayout, ino: u32, parent: u32, directory_type: u8) {
    block.fill(0);
    let dot = entry_len(1);
    put(block, layout, 0, dot, ino, directory_type, b".");
    put(block, layout, dot, layout.end() - dot, parent, directory_type, b"..");
    init_tail(block, layout);
}

/// Writes entries one behind the other into an empty block; the last one gets the rest of the
/// space.
///
/// # Panics
/// If they do not fit.
pub fn pack<'a>(block: &mut [u8], layout: DirLayout, list: impl Iterator<Item = Entry<'a>>) {
    init_empty(block, layout);
    let end = layout.end();
    let (mut at, mut last) = (0, None);
    for entry in list {
        let len = entry.need(layout);
        assert!(at + len <= end, "the packed entries fit into one block");
        put(block, layout, at, len, entry.ino, entry.file_type, entry.name);
        if layout.names == Names::Data {
            entry.behind.set_behind(block, at as u32);
        }
        if layout.names == Names::Hashed {
            set_hash(block, at as u32, entry.hash);
        }
        last = Some(at);
        at += len;
    }
    if let Some(last) = last {
        let header = Header::read(block, last).expect("just written");
        Header { rec_len: stored_len(end - last), ..header }.write(block, last);
    }
}

fn init_tail(block: &mut [u8], layout: DirLayout) {
    if layout.checksum {
        let at = layout.end();
        block[at..].fill(0);
        Header { ino: 0, rec_len: TAIL_LEN as u16, name_len: 0, file_type: TAIL_TYPE }
            .write(block, at);
    }
}

/// Does the block end with a checksum tail?
pub fn has_tail(block: &[u8]) -> bool {
    block.len() > TAIL_LEN
        && Header::read(block, block.len() - TAIL_LEN)
            == Some(Header { ino: 0, rec_len: TAIL_LEN as u16, name_len: 0, file_type: TAIL_TYPE })
}

/// Compares the checksum in the tail. Only for layouts with checksums.
///
/// # Errors
/// `DirTail`, `DirChecksum`.
pub fn verify_checksum(seed: InodeSeed, block: &[u8]) -> Result<(), CorruptKind> {
    if !has_tail(block) {
        return Err(CorruptKind::DirTail);
    }
    let found = u32_at(block, block.len() - 4);
    match seed.dir_block(block) {
        expected if expected == found => Ok(()),
        expected => Err(CorruptKind::DirChecksum { found, expected }),
    }
}

/// Sets the checksum in the tail; a block without a tail stays as it is.
pub fn set_checksum(seed: InodeSeed, block: &mut [u8]) {
    if has_tail(block) {
        seed.set_dir_block(block);
    }
}

#[cfg(test)]
#[path = "dir_tests.rs"]
mod tests;
