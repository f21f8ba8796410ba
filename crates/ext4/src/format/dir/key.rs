//! Names to look for.

use super::{HEADER_LEN, bytes_at};

/// A name to look for, prepared so that one comparison of four bytes rejects nearly all others.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub(super) name: &'a [u8],
    /// The last four bytes of header and name together, as a little-endian word: names made by
    /// programs tend to differ at their end.
    suffix: u32,
    /// Which bytes of `suffix` belong to the name (shorter names leave the lower ones out).
    mask: u32,
    /// Its folded form: then names of the same folded form are the same.
    pub(super) folded: Option<&'a [u8]>,
}

impl<'a> Key<'a> {
    /// Prepares a name of 1..=255 bytes. Another length never matches.
    pub fn new(name: &'a [u8]) -> Key<'a> {
        let last = &name[name.len().saturating_sub(4)..];
        let mut bytes = [0; 4];
        bytes[4 - last.len()..].copy_from_slice(last);
        let mask = if last.is_empty() { 0 } else { u32::MAX << (8 * (4 - last.len())) };
        Key { name, suffix: u32::from_le_bytes(bytes), mask, folded: None }
    }

    /// Prepares a name of a directory that ignores case: `folded` is its folded form, `None` where
    /// it has none or names are compared by their bytes.
    pub fn folded(name: &'a [u8], folded: Option<&'a [u8]>) -> Key<'a> {
        Key { folded, ..Key::new(name) }
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
