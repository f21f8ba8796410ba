//! Listing a directory, with positions that survive changes.
//!
//! Where the file system indexes directories, names are listed in the order of their hashes, and
//! the position of a name is its hash: wherever splits move it, a listing that goes on behind a
//! position meets every remaining name once. Only in a linear directory of several blocks (whose
//! entries never move) the position is an offset.

use base::crc::crc32c;
use base::{Errno, Ino};
use fscrypt::nokey::NameHashes;
use rt::Cx;
use vfs::DirEntry;

use super::htree::Version;
use super::{Dir, Role, file_type};
use crate::format::dir::{self, Entry};
use crate::format::hash::NameHash;
use crate::format::{At, CorruptKind};

/// Positions behind `.` and `..`; those of all other names are larger.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// What is added to a hash to make it a position.
const FIRST: u64 = 3;
/// The lower bits of a position number the names with one hash in the order of their bytes: two
/// names of a directory with the same 55 bits above them are as good as never met.
const RANK_MASK: u64 = 0xff;

/// A name with its place in the order of the listing.
struct Listed<'a> {
    position: u64,
    hash: NameHash,
    entry: Entry<'a>,
}

impl Dir<'_> {
    /// Lists the names behind `cookie` until `emit` returns false.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub(crate) fn list(
        &self,
        cx: &mut Cx,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), Errno> {
        if self.indexed || (self.blocks == 1 && self.fs.has_dir_index()) {
            if !self.list_dots(cx, cookie, emit)? {
                return Ok(());
            }
            let start = cookie.max(DOT_DOT);
            return if self.indexed {
                self.list_tree(cx, start, emit)
            } else {
                let version = self.default_version();
                self.list_leaves(cx, &[0], 2, version, start, emit).map(|_| ())
            };
        }
        if self.inline {
            return self.list_inline(cx, cookie, emit);
        }
        self.list_linear(cx, cookie, emit)
    }

    /// Lists entries in the inode, at the positions that they will have in a block.
    fn list_inline(
        &self,
        cx: &mut Cx,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), Errno> {
        let entries = self.inline_entries(cx)?;
        if self.fs.has_dir_index() {
            if self.list_dots(cx, cookie, emit)? {
                let version = self.default_version();
                let used = entries.used().map(|(_, it)| it);
                self.list_sorted(cx, used, version, cookie, emit)?;
            }
            return Ok(());
        }
        let (dot, first) = (dir::entry_len(1) as u64, (2 * dir::entry_len(1)) as u64);
        let kind = Some(vfs::FileType::Directory);
        for (ino, name, cookie_of) in [
            (self.inode.ino, b".".as_slice(), 1),
            (Ino(entries.parent().into()), b"..".as_slice(), dot + 1),
        ] {
            if cookie_of > cookie && !emit(DirEntry { ino, kind, name, cookie: cookie_of }) {
                return Ok(());
            }
        }
        for (distance, entry) in entries.used() {
            let position = first + distance + 1;
            if position > cookie && !self.emit(cx, &entry, entry.hash, position, emit)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Emits `.` and `..`; false where the listing ends.
    fn list_dots(
        &self,
        cx: &mut Cx,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<bool, Errno> {
        let kind = Some(vfs::FileType::Directory);
        if cookie < DOT && !emit(DirEntry { ino: self.inode.ino, kind, name: b".", cookie: DOT }) {
            return Ok(false);
        }
        if cookie >= DOT_DOT {
            return Ok(true);
        }
        let ino = self.parent(cx)?;
        Ok(emit(DirEntry { ino, kind, name: b"..", cookie: DOT_DOT }))
    }

    /// Lists a tree: leaf after leaf, each with its continuations.
    fn list_tree(
        &self,
        cx: &mut Cx,
        start: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), Errno> {
        let major = (start.saturating_sub(FIRST) >> 32 << 1) as u32;
        let (mut path, _) = self.probe(cx, |_| major)?;
        loop {
            let mut leaves = vec![path.leaf];
            let mut more = self.next_leaf(cx, &mut path, None)?;
            while more.is_some_and(|hash| hash & 1 == 1) {
                leaves.push(path.leaf);
                more = self.next_leaf(cx, &mut path, None)?;
            }
            let go_on = self.list_leaves(cx, &leaves, 0, path.version, start, emit)?;
            if !go_on || more.is_none() {
                return Ok(());
            }
        }
    }

    /// Lists the names behind `start` in a few leaves together, in order. False: `emit` has enough.
    fn list_leaves(
        &self,
        cx: &mut Cx,
        leaves: &[u32],
        skip: usize,
        version: Version,
        start: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<bool, Errno> {
        let mut pages = Vec::with_capacity(leaves.len());
        for &lblk in leaves {
            pages.push(self.block(cx, lblk, Role::Leaf)?.page());
        }
        let leaf = |page| dir::entries(page, self.layout).skip(skip).filter(|e| e.ino != 0);
        self.list_sorted(cx, pages.iter().flat_map(|page| leaf(page)), version, start, emit)
    }

    /// Lists those of `entries` behind `start`, in the order of their hashes. False: `emit` has
    /// enough.
    fn list_sorted<'e>(
        &self,
        cx: &Cx,
        entries: impl Iterator<Item = Entry<'e>>,
        version: Version,
        start: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<bool, Errno> {
        let mut list = Vec::new();
        for entry in entries {
            let hash = self.hash_of(version, &entry);
            let position = position(hash, entry.name);
            if position | RANK_MASK > start {
                list.push(Listed { position, hash, entry });
            }
        }
        rank(&mut list);
        for Listed { position, hash, entry } in list {
            if position > start && !self.emit(cx, &entry, hash, position, emit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Shows an entry by its name, decrypted where it is encrypted; false: `emit` has enough.
    fn emit(
        &self,
        cx: &Cx,
        entry: &Entry,
        hash: NameHash,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<bool, Errno> {
        let (ino, kind) = (Ino(entry.ino.into()), file_type(entry.file_type));
        let Some(crypt) = self.inode.crypt().filter(|_| entry.name != b"." && entry.name != b"..")
        else {
            return Ok(emit(DirEntry { ino, kind, name: entry.name, cookie }));
        };
        let name = crypt
            .shown_name(entry.name, NameHashes { major: hash.major, minor: hash.minor })
            .map_err(|_| {
                let kind = CorruptKind::DirNamePlain { offset: entry.offset };
                self.fs.sb.corrupt(cx, &kind.at(At::Inode(self.inode.ino)))
            })?;
        Ok(emit(DirEntry { ino, kind, name: &name, cookie }))
    }

    /// Lists a linear directory in the order of its blocks.
    fn list_linear(
        &self,
        cx: &mut Cx,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), Errno> {
        let bits = self.fs.sb.geometry.block_bits;
        for lblk in (cookie >> bits).min(u64::from(u32::MAX)) as u32..self.blocks {
            let page = self.any_block(cx, lblk)?.page();
            for entry in dir::entries(&page, self.layout).filter(|entry| entry.ino != 0) {
                // One more than the offset, so that no position is 0.
                let position = (u64::from(lblk) << bits) + u64::from(entry.offset) + 1;
                if position > cookie && !self.emit(cx, &entry, entry.hash, position, emit)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// The position of a name, the number among its equals left open. The legacy hash has no minor
/// part: a checksum takes its place.
fn position(hash: NameHash, name: &[u8]) -> u64 {
    let minor = if hash.minor == 0 { crc32c(!0, name) } else { hash.minor };
    ((u64::from(hash.major >> 1) << 32 | u64::from(minor)) & !RANK_MASK) + FIRST
}

/// Puts names in order and numbers those of equal positions.
fn rank(list: &mut [Listed]) {
    list.sort_unstable_by(|a, b| {
        a.position.cmp(&b.position).then_with(|| a.entry.name.cmp(b.entry.name))
    });
    let (mut before, mut rank) = (0, 0);
    for listed in list {
        rank = if listed.position == before { (rank + 1).min(RANK_MASK - FIRST) } else { 0 };
        before = listed.position;
        listed.position += rank;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_hash_have_positions_of_their_own() {
        let entry = |name| Entry {
            offset: 0,
            rec_len: 12,
            ino: 1,
            file_type: 1,
            name,
            hash: NameHash::default(),
            behind: Default::default(),
        };
        let names: [&[u8]; 3] = [b"c", b"a", b"b"];
        let hash = NameHash { major: 8, minor: 0x1234 };
        let at = position(hash, b"");
        let mut list: Vec<Listed> =
            names.iter().map(|name| Listed { position: at, hash, entry: entry(name) }).collect();
        rank(&mut list);
        let ranked: Vec<_> = list.iter().map(|l| (l.position - at, l.entry.name)).collect();
        assert_eq!(ranked, [(0, b"a".as_slice()), (1, b"b"), (2, b"c")]);
        assert_eq!(at, (4u64 << 32 | 0x1200) + FIRST);
    }
}
