//! Names to look for.

use fscrypt::FileKey;

use super::{Behind, DirLayout, Entry, HEADER_LEN, bytes_at};
use crate::format::casefold;
use crate::format::hash::NameHash;

/// How a name is looked for where its case is ignored.
#[derive(Clone, Debug)]
pub struct Fold<'a> {
    /// Its folded form: names with the same one are the same. `None` where it has none, and is
    /// itself.
    pub folded: Option<Vec<u8>>,
    /// In an encrypted directory: the hashes behind the name, and the key by which names are
    /// compared.
    pub secret: Option<(NameHash, &'a FileKey)>,
}

impl Fold<'_> {
    /// Is it the name of this entry?
    #[cold]
    pub(super) fn is_of(&self, key: &Key, entry: &Entry) -> bool {
        let Some(folded) = &self.folded else { return entry.name == key.name };
        match self.secret {
            None => casefold::folds_to(entry.name, folded),
            Some((hash, secret)) => {
                let plain = || secret.decrypt_name(entry.name).ok();
                hash == entry.hash && plain().is_some_and(|it| casefold::folds_to(&it, folded))
            }
        }
    }
}

/// A name to look for, prepared so that one comparison of four bytes rejects nearly all others.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub(super) name: &'a [u8],
    /// The last four bytes of header and name together, as a little-endian word: names made by
    /// programs tend to differ at their end.
    suffix: u32,
    /// Which bytes of `suffix` belong to the name (shorter names leave the lower ones out).
    mask: u32,
    /// Names are not compared by their bytes.
    pub(super) fold: Option<&'a Fold<'a>>,
    /// What lies behind it, where it is added.
    behind: &'a Behind<'a>,
}

impl<'a> Key<'a> {
    /// Prepares a name of 1..=255 bytes. Another length never matches.
    pub fn new(name: &'a [u8]) -> Key<'a> {
        let last = &name[name.len().saturating_sub(4)..];
        let mut bytes = [0; 4];
        bytes[4 - last.len()..].copy_from_slice(last);
        let mask = if last.is_empty() { 0 } else { u32::MAX << (8 * (4 - last.len())) };
        Key { name, suffix: u32::from_le_bytes(bytes), mask, fold: None, behind: &Behind::NONE }
    }

    /// Prepares a name, as the disk has it, of a directory that ignores case; `None`: of another.
    pub fn folded(name: &'a [u8], fold: Option<&'a Fold<'a>>) -> Key<'a> {
        Key { fold, ..Key::new(name) }
    }

    /// With this behind it, where it is added.
    pub fn with_behind(self, behind: &'a Behind<'a>) -> Key<'a> {
        Key { behind, ..self }
    }

    /// What lies behind it, where it is added.
    #[inline]
    pub fn behind(&self) -> &'a Behind<'a> {
        self.behind
    }

    /// The bytes that an entry of it needs.
    #[inline]
    pub fn need(&self, layout: DirLayout) -> usize {
        layout.need(self.name.len(), *self.behind)
    }

    /// How it is compared, where its case is ignored.
    pub fn fold(&self) -> Option<&'a Fold<'a>> {
        self.fold
    }

    /// The name.
    pub fn name(&self) -> &'a [u8] {
        self.name
    }

    /// Is this the name of the entry at `at`, whose name is as long?
    #[inline(always)]
    pub(super) fn matches(&self, block: &[u8], at: u32) -> bool {
        let Some(tail) = bytes_at(block, at + self.name.len() as u32 + (HEADER_LEN - 4) as u32)
        else {
            return false;
        };
        u32::from_le_bytes(tail) & self.mask == self.suffix && self.same_name(block, at)
    }

    #[inline(never)]
    fn same_name(&self, block: &[u8], at: u32) -> bool {
        let start = at as usize + HEADER_LEN;
        block.get(start..start + self.name.len()) == Some(self.name)
    }
}
