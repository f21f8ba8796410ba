//! Extended attributes: the area behind an inode's fields, and the attribute block.
//!
//! Both hold entries that grow upwards and values that grow downwards; four zero bytes end the
//! entries. Offsets of values count from the start of a block, but from the first entry in an
//! inode. An attribute block may belong to many inodes and counts them.
//!
//! With `ea_inode` a value may be the content of an inode of its own instead ([`LargeValue`]),
//! which many entries may name and which counts them: the inode's time of access holds the value's
//! hash, its version and its time of change the two halves of the count.
//!
//! Source: kernel `Documentation/filesystems/ext4/attributes` and `inodes`; the hashes checked
//! against `e2fsck` and what the kernel writes.

use base::crc::crc32c;

use super::{Checksums, CorruptKind};

/// First word of both areas.
pub const MAGIC: u32 = 0xea02_0000;
/// Bytes of a block's header.
pub const BLOCK_HEADER: usize = 32;
/// Bytes before the name of an entry.
const ENTRY_LEN: usize = 16;
/// The most inodes that may share a block.
pub const REFCOUNT_MAX: u32 = 1024;
/// Number of the prefix `system.` of the attribute that holds content of its inode.
pub const INLINE_INDEX: u8 = 7;
/// The name behind it.
pub const INLINE_NAME: &[u8] = b"data";
/// Bytes of a value at most, wherever it lies.
pub const VALUE_MAX: u32 = 65536;

/// Which of the two areas a slice is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrArea {
    /// The rest of an inode behind its extra fields, beginning with the magic number.
    Inode,
    /// A whole attribute block.
    Block,
}

impl XattrArea {
    /// Offset of the first entry.
    fn first(self) -> usize {
        match self {
            XattrArea::Inode => 4,
            XattrArea::Block => BLOCK_HEADER,
        }
    }

    /// The offset from which those of values count.
    fn base(self) -> usize {
        match self {
            XattrArea::Inode => 4,
            XattrArea::Block => 0,
        }
    }
}

/// Number of the prefix of the encryption context.
pub const CONTEXT_INDEX: u8 = 9;
/// The prefix of names that begin with `security.`.
pub const SECURITY_INDEX: u8 = 6;
/// Its name behind the prefix.
pub const CONTEXT_NAME: &[u8] = b"c";

/// An attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Where its entry begins.
    pub offset: u32,
    /// Number of the prefix: 1 `user.`, 2 and 3 the ACLs, 4 `trusted.`, 6 `security.`, 7 `system.`,
    /// 9 the encryption context
    pub name_index: u8,
    /// Name behind the prefix.
    pub name: &'a [u8],
    /// Value.
    pub value: &'a [u8],
    /// Hash of name and value; 0 where none was stored.
    pub hash: u32,
    /// Where the value is the content of an inode; `value` is empty then.
    pub large: Option<LargeValue>,
}

/// A value in an inode of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargeValue {
    /// The inode.
    pub ino: u32,
    /// Bytes, 1 to [`VALUE_MAX`].
    pub size: u32,
    /// Hash of the entry: of its name and of the value's hash ([`hash_large`]).
    pub hash: u32,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn half(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn set_word(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The attributes in an area. An area without magic number holds none in an inode, and is corrupt
/// in a block. Each entry is checked when the iterator comes to it. Values in inodes are allowed
/// with `large` (the feature `ea_inode`).
///
/// # Errors
/// `XattrMagic` for a block.
pub fn entries(bytes: &[u8], place: XattrArea, large: bool) -> Result<Entries<'_>, CorruptKind> {
    let found = bytes.get(..4).map_or(0, |_| word(bytes, 0));
    match (found == MAGIC, place) {
        (true, _) => Ok(Entries { bytes, place, large, at: place.first(), done: false }),
        (false, XattrArea::Inode) => Ok(Entries { bytes, place, large, at: 0, done: true }),
        (false, XattrArea::Block) => Err(CorruptKind::XattrMagic { found }),
    }
}

impl Entry<'_> {
    /// An end of the list with something in its other bytes.
    pub fn is_nameless(&self) -> bool {
        self.name.is_empty() && self.name_index == 0
    }
}

/// The iterator of [`entries`]: ends after the first error.
#[derive(Clone)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    place: XattrArea,
    large: bool,
    at: usize,
    done: bool,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, CorruptKind>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let result = self.parse();
        self.done = !matches!(result, Ok(Some(_)));
        result.transpose()
    }
}

impl<'a> Entries<'a> {
    fn parse(&mut self) -> Result<Option<Entry<'a>>, CorruptKind> {
        let (bytes, at) = (self.bytes, self.at);
        let offset = at as u32;
        let outside = CorruptKind::XattrEntry { offset };
        if word(bytes.get(at..at + 4).ok_or(outside)?, 0) == 0 {
            return Ok(None);
        }
        let raw = bytes.get(at..at + ENTRY_LEN).ok_or(outside)?;
        let name = bytes.get(at + ENTRY_LEN..at + ENTRY_LEN + raw[0] as usize).ok_or(outside)?;
        self.at = at + entry_len(name.len());
        let (inode, hash) = (word(raw, 4), word(raw, 12));
        if inode != 0 && !self.large {
            return Err(CorruptKind::XattrInodeValue { offset, inode });
        }
        let (value_offset, size) = (half(raw, 2), word(raw, 8) as usize);
        let start = value_offset + self.place.base();
        let bad_value = CorruptKind::XattrValue {
            offset,
            value_offset: value_offset as u32,
            size: size as u32,
        };
        if inode != 0 {
            if size == 0 || size > VALUE_MAX as usize {
                return Err(bad_value);
            }
            let large = Some(LargeValue { ino: inode, size: size as u32, hash });
            return Ok(Some(Entry { offset, name_index: raw[1], name, value: &[], hash, large }));
        }
        let value = match size {
            0 => &[],
            // A value that begins before the end of the entries would be overwritten by them.
            _ if start < self.at + 4 => return Err(bad_value),
            _ => start.checked_add(size).and_then(|end| bytes.get(start..end)).ok_or(bad_value)?,
        };
        Ok(Some(Entry { offset, name_index: raw[1], name, value, hash, large: None }))
    }
}

/// Checks an area: every entry, and the hashes that are stored, but for those of values in inodes.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(bytes: &[u8], place: XattrArea, large: bool) -> Result<(), CorruptKind> {
    if place == XattrArea::Block && word(bytes, 0) == MAGIC {
        let (references, blocks) = (word(bytes, 4), word(bytes, 8));
        if blocks != 1 || references == 0 || references > REFCOUNT_MAX {
            return Err(CorruptKind::XattrHeader { found: blocks, references });
        }
    }
    for entry in entries(bytes, place, large)? {
        let entry = entry?;
        if place == XattrArea::Block && entry.is_nameless() {
            return Err(CorruptKind::XattrEntry { offset: entry.offset });
        }
        if entry.large.is_some() {
            continue;
        }
        let expected = hash_entry(entry.name, entry.value);
        // Older kernels hashed names as signed characters.
        let signed = hash_words(hash_name_signed(entry.name), entry.value);
        if entry.hash != 0 && entry.hash != expected && entry.hash != signed {
            let (offset, found) = (entry.offset, entry.hash);
            return Err(CorruptKind::XattrHash { offset, found, expected });
        }
    }
    Ok(())
}

/// Bytes of an entry without its value: a multiple of four.
pub const fn entry_len(name_len: usize) -> usize {
    (ENTRY_LEN + name_len + 3) & !3
}

/// Bytes that a value takes.
pub const fn value_len(size: usize) -> usize {
    (size + 3) & !3
}

/// An attribute in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Xattr {
    /// Number of the prefix.
    pub name_index: u8,
    /// Name behind the prefix.
    pub name: Vec<u8>,
    /// Value; empty where it is in an inode.
    pub value: Vec<u8>,
    /// The value in an inode.
    pub large: Option<LargeValue>,
}

impl Xattr {
    /// An entry on its own.
    pub fn of(entry: &Entry) -> Xattr {
        Xattr {
            name_index: entry.name_index,
            name: entry.name.to_vec(),
            value: entry.value.to_vec(),
            large: entry.large,
        }
    }

    /// Whether its value is content of the inode ([`INLINE_NAME`]).
    pub fn is_inline_data(&self) -> bool {
        self.name_index == INLINE_INDEX && self.name == INLINE_NAME
    }
}

/// Where the bytes of content behind the first 60 lie in the area of an inode ([`INLINE_NAME`]);
/// empty where there is no such attribute.
///
/// # Errors
/// An entry that is wrong.
pub fn inline_value(bytes: &[u8]) -> Result<std::ops::Range<usize>, CorruptKind> {
    for entry in entries(bytes, XattrArea::Inode, true)? {
        let entry = entry?;
        if Xattr::of(&entry).is_inline_data() && !entry.value.is_empty() {
            let start = half(bytes, entry.offset as usize + 2) + XattrArea::Inode.base();
            return Ok(start..start + entry.value.len());
        }
    }
    Ok(0..0)
}

/// Bytes of content that fit into `room` bytes of an inode beside `others`, a multiple of four;
/// `None` where not even the entry does.
pub fn inline_room(others: &[Xattr], room: usize) -> Option<usize> {
    let taken = space(others, XattrArea::Inode) + entry_len(INLINE_NAME.len());
    Some(room.checked_sub(taken)? & !3)
}

/// Bytes that these attributes take in an area with that header, the closing zeros included.
pub fn space(list: &[Xattr], place: XattrArea) -> usize {
    let each = |x: &Xattr| entry_len(x.name.len()) + value_len(x.value.len());
    place.first() + 4 + list.iter().map(each).sum::<usize>()
}

/// Writes attributes into an area, whose old content vanishes; a block gets a header with one
/// reference, and its entries in the order that the format wants there. An inode without attributes
/// gets no magic number. Answers false, with nothing changed, if they do not fit.
pub fn emit(bytes: &mut [u8], place: XattrArea, list: &[Xattr]) -> bool {
    if list.is_empty() && place == XattrArea::Inode {
        bytes.fill(0);
        return true;
    }
    if space(list, place) > bytes.len() {
        return false;
    }
    let mut order: Vec<&Xattr> = list.iter().collect();
    if place == XattrArea::Block {
        order.sort_by(|a, b| {
            let key = |x: &Xattr| (x.name_index, x.name.len());
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
    }
    bytes.fill(0);
    set_word(bytes, 0, MAGIC);
    let (mut at, mut end) = (place.first(), bytes.len());
    let mut block_hash = 0u32;
    for xattr in order {
        end -= value_len(xattr.value.len());
        bytes[end..end + xattr.value.len()].copy_from_slice(&xattr.value);
        // Content changes often, and its entry has no hash.
        let own = || match xattr.is_inline_data() {
            true => 0,
            false => hash_entry(&xattr.name, &xattr.value),
        };
        let hash = xattr.large.map_or_else(own, |large| large.hash);
        block_hash = block_hash.rotate_left(16) ^ hash;
        emit_entry(&mut bytes[at..], place, xattr, end, hash);
        at += entry_len(xattr.name.len());
    }
    if place == XattrArea::Block {
        set_word(bytes, 4, 1);
        set_word(bytes, 8, 1);
        set_word(bytes, 12, block_hash);
    }
    true
}

fn emit_entry(raw: &mut [u8], place: XattrArea, xattr: &Xattr, value_at: usize, hash: u32) {
    let value_offset = if xattr.value.is_empty() { 0 } else { value_at - place.base() };
    raw[0] = xattr.name.len() as u8;
    raw[1] = xattr.name_index;
    raw[2..4].copy_from_slice(&(value_offset as u16).to_le_bytes());
    let in_area = xattr.value.len() as u32;
    set_word(raw, 4, xattr.large.map_or(0, |large| large.ino));
    set_word(raw, 8, xattr.large.map_or(in_area, |large| large.size));
    set_word(raw, 12, hash);
    raw[ENTRY_LEN..ENTRY_LEN + xattr.name.len()].copy_from_slice(&xattr.name);
}

/// The hash of a value in an inode, as the inode stores it.
pub fn value_hash(sums: &Checksums, value: &[u8]) -> u32 {
    crc32c(sums.seed, value)
}

/// The hash of an entry whose value lies in an inode that stores `value_hash`.
pub fn hash_large(name: &[u8], value_hash: u32) -> u32 {
    hash_entry(name, &value_hash.to_le_bytes())
}

/// As [`hash_large`] by older kernels, which took names as signed characters.
pub fn hash_large_signed(name: &[u8], value_hash: u32) -> u32 {
    hash_words(hash_name_signed(name), &value_hash.to_le_bytes())
}

fn hash_entry(name: &[u8], value: &[u8]) -> u32 {
    let hash = name.iter().fold(0u32, |hash, &b| hash.rotate_left(5) ^ u32::from(b));
    hash_words(hash, value)
}

fn hash_name_signed(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |hash, &b| hash.rotate_left(5) ^ b as i8 as u32)
}

/// Continues the hash of a name over the words of its value.
fn hash_words(hash: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(hash, |hash, chunk| {
        let mut bytes = [0; 4];
        bytes[..chunk.len()].copy_from_slice(chunk);
        hash.rotate_left(16) ^ u32::from_le_bytes(bytes)
    })
}

/// How many inodes own a block.
pub fn refcount(block: &[u8]) -> u32 {
    word(block, 4)
}

/// Changes how many inodes own a block.
pub fn set_refcount(block: &mut [u8], count: u32) {
    set_word(block, 4, count);
}

/// The hash over all attributes of a block: blocks of equal content have equal hashes.
pub fn block_hash(block: &[u8]) -> u32 {
    word(block, 12)
}

/// Do two blocks hold the same attributes (whatever their references)?
pub fn same_content(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && word(a, 12) == word(b, 12) && a[BLOCK_HEADER..] == b[BLOCK_HEADER..]
}

/// Compares the checksum of device block `block`. Only with `metadata_csum`.
///
/// # Errors
/// `XattrChecksum`.
pub fn verify_checksum(sums: &Checksums, block: u64, bytes: &[u8]) -> Result<(), CorruptKind> {
    let (found, expected) = (word(bytes, 16), sums.xattr_block(block, bytes));
    if found == expected { Ok(()) } else { Err(CorruptKind::XattrChecksum { found, expected }) }
}

/// Sets the checksum of device block `block`.
pub fn set_checksum(sums: &Checksums, block: u64, bytes: &mut [u8]) {
    let sum = sums.xattr_block(block, bytes);
    set_word(bytes, 16, sum);
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::*;

    fn xattr(name_index: u8, name: &[u8], value: &[u8]) -> Xattr {
        Xattr { name_index, name: name.to_vec(), value: value.to_vec(), large: None }
    }

    fn read(bytes: &[u8], place: XattrArea) -> Vec<Xattr> {
        check(bytes, place, true).expect("well formed");
        let all = entries(bytes, place, true).expect("magic");
        all.map(|e| Xattr::of(&e.expect("well formed"))).collect()
    }

    #[test]
    fn attributes_come_back_as_they_were_written() {
        let mut rng = Rng::new(4, 4);
        for round in 0..400 {
            let place = if round % 2 == 0 { XattrArea::Inode } else { XattrArea::Block };
            let mut bytes = vec![0; if place == XattrArea::Inode { 96 } else { 1024 }];
            let mut list = Vec::new();
            for n in 0..rng.below(9) {
                let mut value = vec![0; rng.below(60) as usize];
                rng.fill(&mut value);
                let mut new = xattr(1 + rng.below(7) as u8, format!("name{n}").as_bytes(), &value);
                if rng.chance(0.3) {
                    let size = 1 + rng.below(u64::from(VALUE_MAX)) as u32;
                    let hash = hash_large(&new.name, rng.next_u32());
                    new.value.clear();
                    new.large = Some(LargeValue { ino: 12 + n as u32, size, hash });
                }
                list.push(new);
            }
            let fits = space(&list, place) <= bytes.len() || list.is_empty();
            assert_eq!(emit(&mut bytes, place, &list), fits);
            if fits && !(list.is_empty() && place == XattrArea::Block) {
                let mut seen = read(&bytes, place);
                seen.sort_by(|a, b| a.name.cmp(&b.name));
                assert_eq!(seen, list);
            }
        }
    }

    #[test]
    fn every_malformed_area_has_its_error() {
        use CorruptKind::*;
        let mut good = vec![0; 1024];
        assert!(emit(&mut good, XattrArea::Block, &[xattr(1, b"abc", b"value")]));
        let damaged = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            check(&bytes, XattrArea::Block, false).expect_err("a damaged block")
        };
        assert_eq!(damaged(0, 1), XattrMagic { found: MAGIC + 1 });
        assert_eq!(damaged(4, 0), XattrHeader { found: 1, references: 0 });
        assert_eq!(damaged(8, 2), XattrHeader { found: 2, references: 1 });
        assert!(matches!(damaged(35, 9), XattrValue { .. }));
        assert!(matches!(damaged(41, 40), XattrValue { .. }));
        assert_eq!(damaged(36, 7), XattrInodeValue { offset: 32, inode: 7 });
        assert!(matches!(damaged(48, b'x'), XattrHash { .. }));
        // Entries that run into the end.
        let mut bytes = vec![1; 64];
        set_word(&mut bytes, 0, MAGIC);
        assert!(check(&bytes, XattrArea::Inode, true).is_err());
    }

    #[test]
    fn noise_never_panics() {
        let mut rng = Rng::new(5, 5);
        for _ in 0..5000 {
            let mut bytes = vec![0; 96];
            rng.fill(&mut bytes);
            set_word(&mut bytes, 0, MAGIC);
            let _ = check(&bytes, XattrArea::Inode, true);
        }
    }
}
