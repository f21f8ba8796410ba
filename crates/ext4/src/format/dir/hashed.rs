//! Hashes that stand beside names.

use super::{ENCRYPTED_MIN, Entries, Header, entry_len, u32_at};
use crate::format::InodeFlags;
use crate::format::hash::NameHash;

/// Bytes of the hashes behind a name, in [`Names::Hashed`].
pub(super) const HASHES_LEN: usize = 8;

/// What the names of a directory are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// Themselves.
    Plain,
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

impl Names {
    /// What they are in a directory with these flags.
    pub fn of(flags: InodeFlags) -> Names {
        match flags {
            _ if !flags.contains(InodeFlags::ENCRYPT) => Names::Plain,
            _ if flags.contains(InodeFlags::CASEFOLD) => Names::Hashed,
            _ => Names::Encrypted,
        }
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
