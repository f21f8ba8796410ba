//! Hashes that stand beside names.

use super::{DirLayout, ENCRYPTED_MIN, Entries, Entry, Header, entry_len, u32_at};
use crate::format::features::Incompat;
use crate::format::hash::{HashVersion, NameHash, hash_name};
use crate::format::{Geometry, InodeFlags, casefold};

/// Bytes of the hashes behind a name, in [`Names::Hashed`].
pub(super) const HASHES_LEN: usize = 8;

/// What the names of a directory are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// Themselves.
    Plain,
    /// Themselves, with data behind some: the upper bits of the type say which (`dirdata`).
    Data,
    /// Encrypted: they have at least 16 bytes, of any value.
    Encrypted,
    /// Encrypted, and their case is ignored: the hashes of the folded name, which do not follow
    /// from the encrypted one, stand behind each, at a multiple of four; `.` and `..` have none.
    Hashed,
}

/// The hashes behind the name of the entry at `offset`; those of a short name are zero.
#[cold]
fn stored_hash(block: &[u8], offset: usize, name_len: usize) -> NameHash {
    let at = offset + entry_len(name_len);
    match block.get(at..at + HASHES_LEN) {
        Some(bytes) if name_len >= ENCRYPTED_MIN => {
            NameHash { major: u32_at(bytes, 0), minor: u32_at(bytes, 4) }
        }
        _ => NameHash::default(),
    }
}

/// Puts hashes behind the name of the entry at `offset`, which has room for them.
#[cold]
pub fn set_hash(block: &mut [u8], offset: u32, hash: NameHash) {
    let header = Header::read(block, offset as usize).expect("offset is an entry");
    let at = offset as usize + entry_len(header.name_len as usize);
    block[at..at + 4].copy_from_slice(&hash.major.to_le_bytes());
    block[at + 4..at + HASHES_LEN].copy_from_slice(&hash.minor.to_le_bytes());
}

impl Geometry {
    /// How blocks of directories look, where names are no others than their files'.
    #[inline]
    pub fn dir_layout(&self) -> DirLayout {
        DirLayout {
            block_size: self.block_size,
            checksum: self.checksums.metadata,
            filetype: self.features.incompat.contains(Incompat::FILETYPE),
            names: self.names_of(Names::Plain),
        }
    }

    /// These, with data behind them where the file system has such.
    #[inline]
    pub fn names_of(&self, names: Names) -> Names {
        if self.dirdata() && names == Names::Plain { Names::Data } else { names }
    }

    /// Does a directory with these flags ignore case?
    #[inline]
    pub fn ignores_case(&self, flags: InodeFlags) -> bool {
        self.encoding.is_some() && flags.contains(InodeFlags::CASEFOLD)
    }

    /// What the names of a directory with these flags are.
    #[inline]
    pub fn dir_names(&self, flags: InodeFlags) -> Names {
        self.names_of(Names::of(flags.contains(InodeFlags::ENCRYPT), self.ignores_case(flags)))
    }
}

impl Names {
    /// Are they encrypted?
    #[inline]
    pub fn is_encrypted(self) -> bool {
        matches!(self, Names::Encrypted | Names::Hashed)
    }

    /// What they are in a directory that is encrypted, or ignores case, or both.
    #[inline]
    pub fn of(encrypted: bool, ignores_case: bool) -> Names {
        match (encrypted, ignores_case) {
            (false, _) => Names::Plain,
            (true, false) => Names::Encrypted,
            (true, true) => Names::Hashed,
        }
    }
}

impl Entry<'_> {
    /// The hash by which a tree finds it. `version`: how the tree hashes names, `None` where the
    /// hashes stand beside them; `seed`: the superblock's.
    pub fn tree_hash(
        &self,
        version: Option<HashVersion>,
        seed: &[u32; 4],
        ignores_case: bool,
    ) -> NameHash {
        let Some(version) = version else { return self.hash };
        let folded = if ignores_case { casefold::fold(self.name) } else { None };
        hash_name(version, seed, folded.as_deref().unwrap_or(self.name))
    }
}

impl Entries<'_> {
    /// The hashes beside the name of the entry at hand.
    #[inline(always)]
    pub(super) fn hash(&self, name_len: usize) -> NameHash {
        match self.hashed {
            false => NameHash::default(),
            true => stored_hash(self.block, self.offset, name_len),
        }
    }
}
