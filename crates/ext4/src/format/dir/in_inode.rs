//! Directories whose entries lie in their inode.

use super::{DirLayout, Header, Names, entries, entry_len, init_dots, u32_at};

/// The runs of entries of a directory whose entries lie in its inode.
pub const INLINE_RUNS: usize = 2;
/// Bytes of such a directory before its second run: the number of the directory above, and the
/// first run.
pub const INLINE_HEAD: usize = crate::format::inode::BLOCK_AREA;
/// Where the first run begins.
const INLINE_FIRST: usize = 4;

/// Where run `index` lies in a directory of `len` bytes, at least [`INLINE_HEAD`].
pub fn inline_range(index: usize, len: usize) -> std::ops::Range<usize> {
    if index == 0 { INLINE_FIRST..INLINE_HEAD } else { INLINE_HEAD..len }
}

/// Run `index` of a directory in its inode, for the functions that take a block.
pub fn inline_run(bytes: &[u8], index: usize, filetype: bool) -> (&[u8], DirLayout) {
    let run = &bytes[inline_range(index, bytes.len())];
    let names = Names::Plain;
    (run, DirLayout { block_size: run.len() as u32, checksum: false, filetype, names })
}

/// The directory above one in its inode.
pub fn inline_parent(bytes: &[u8]) -> u32 {
    u32_at(bytes, 0)
}

/// Changes the directory above.
pub fn set_inline_parent(bytes: &mut [u8], parent: u32) {
    bytes[..INLINE_FIRST].copy_from_slice(&parent.to_le_bytes());
}

/// The bytes of an empty directory in its inode.
pub fn empty_inline(parent: u32) -> [u8; INLINE_HEAD] {
    let mut bytes = [0; INLINE_HEAD];
    set_inline_parent(&mut bytes, parent);
    let rec_len = (INLINE_HEAD - INLINE_FIRST) as u16;
    Header { ino: 0, rec_len, name_len: 0, file_type: 0 }.write(&mut bytes, INLINE_FIRST);
    bytes
}

/// Makes the second run as long as an inode with room for `capacity` bytes allows, if it is
/// shorter: what is new belongs to its last entry.
pub fn grow_inline(bytes: &mut Vec<u8>, capacity: usize, filetype: bool) {
    let old = bytes.len();
    if capacity < old + entry_len(1) {
        return;
    }
    let (run, layout) = inline_run(bytes, 1, filetype);
    let last = entries(run, layout).last().map(|entry| entry.offset as usize);
    bytes.resize(capacity, 0);
    let at = INLINE_HEAD + last.unwrap_or(0);
    let header = last.and_then(|_| Header::read(bytes, at));
    let unused = Header { ino: 0, rec_len: 0, name_len: 0, file_type: 0 };
    Header { rec_len: (capacity - at) as u16, ..header.unwrap_or(unused) }.write(bytes, at);
}

/// What `.` and `..` of a directory lead to.
#[derive(Clone, Copy, Debug)]
pub struct Dots {
    /// The directory.
    pub ino: u32,
    /// The one above.
    pub parent: u32,
    /// The type of directories.
    pub dir_type: u8,
}

/// Writes the first block of a directory whose entries lay in its inode: behind the dots they keep
/// their distances.
pub fn init_from_inline(block: &mut [u8], layout: DirLayout, dots: Dots, bytes: &[u8]) {
    let Dots { ino, parent, dir_type } = dots;
    init_dots(block, layout, ino, parent, dir_type);
    let (dot, dot_dot) = (entry_len(1), entry_len(2));
    let header = Header::read(block, dot).expect("just written");
    Header { rec_len: dot_dot as u16, ..header }.write(block, dot);
    let first = dot + dot_dot;
    let moved = &bytes[INLINE_FIRST..];
    block[first..first + moved.len()].copy_from_slice(moved);
    let end = first + moved.len();
    let last = entries(&block[..end], layout).last().expect("the dots are there").offset as usize;
    let header = Header::read(block, last).expect("an entry");
    Header { rec_len: (layout.end() - last) as u16, ..header }.write(block, last);
}
