//! Extended attributes: in inodes, in blocks, and values in inodes of their own.

use ext4::format::xattr::{self, CONTEXT_INDEX, CONTEXT_NAME, Xattr, XattrArea};

use super::Dump;
use crate::metadump::{DumpError, permute};

/// What is put in place of a value.
pub const FILL: u8 = b'x';
/// The prefixes of both ACLs, which checkers look into.
const ACLS: [u8; 2] = [2, 3];

impl Dump<'_> {
    /// The area of attributes in an inode. False if it cannot be parsed.
    pub fn inode_attributes(&self, area: &mut [u8]) -> bool {
        self.area(area, XattrArea::Inode) || self.out.keeps_names()
    }

    /// A block of attributes, passed on.
    pub fn attribute_block(&mut self, block: u64) -> Result<(), DumpError> {
        let mut data = self.view.read(block)?;
        let sums = self.g.checksums;
        let sound = xattr::verify_checksum(&sums, block, &data).is_ok();
        let old = data.clone();
        if self.area(&mut data, XattrArea::Block) {
            xattr::set_refcount(&mut data, xattr::refcount(&old));
            // What else the header says, the checksum included, stays.
            data[8..12].copy_from_slice(&old[8..12]);
            data[16..xattr::BLOCK_HEADER].copy_from_slice(&old[16..xattr::BLOCK_HEADER]);
            if sound && sums.metadata {
                xattr::set_checksum(&sums, block, &mut data);
            }
        } else if self.out.keeps_names() {
            data = old;
        } else {
            self.out.leave_out(format!("block {block} of attributes"));
            return Ok(());
        }
        self.put(block, &data)
    }

    fn area(&self, bytes: &mut [u8], place: XattrArea) -> bool {
        let Ok(entries) = xattr::entries(bytes, place, true) else { return false };
        let mut list: Vec<Xattr> = Vec::new();
        for entry in entries {
            let Ok(entry) = entry else { return false };
            let mut new = Xattr::of(&entry);
            self.attribute(&mut new);
            // Of short names two may become one.
            let taken = |list: &[Xattr], new: &Xattr| {
                list.iter().any(|old| old.name_index == new.name_index && old.name == new.name)
            };
            while taken(&list, &new) && !self.out.keeps_names() {
                let Some(last) = new.name.last_mut() else { return false };
                *last = if *last == b'z' { b'A' } else { *last + 1 };
            }
            list.push(new);
        }
        xattr::emit(bytes, place, &list)
    }

    fn attribute(&self, attr: &mut Xattr) {
        let context = attr.name_index == CONTEXT_INDEX && attr.name == CONTEXT_NAME;
        let known = attr.is_inline_data() || context || ACLS.contains(&attr.name_index);
        if self.out.keeps_names() || known {
            return;
        }
        permute::text(&self.out.options.key, b"attribute", &mut attr.name);
        attr.value.fill(FILL);
        if let Some(large) = &mut attr.large {
            let value = self.filled_hash(large.size as usize);
            large.hash = xattr::hash_large(&attr.name, value);
        }
    }

    /// The hash of a value of so many bytes in an inode, as the dump has it.
    pub fn filled_hash(&self, size: usize) -> u32 {
        xattr::value_hash(&self.g.checksums, &vec![FILL; size.min(xattr::VALUE_MAX as usize)])
    }
}
