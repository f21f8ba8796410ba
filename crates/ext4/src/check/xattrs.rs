//! Extended attributes: in inodes, and in blocks that inodes share.

use std::collections::BTreeMap;

use base::{FsBlock, Ino};
use block::DeviceError;

use super::Checker;
use super::rule::Rule;
use crate::acl;
use crate::format::inode::BASE_SIZE;
use crate::format::xattr::{self, Place};
use crate::format::{At, CorruptKind, InodeValues};
use crate::xattr::{ACL_ACCESS, ACL_DEFAULT};

/// The attribute blocks seen so far.
#[derive(Default)]
pub struct XattrBlocks(BTreeMap<u64, Shared>);

/// One attribute block.
struct Shared {
    /// References that its header counts; None where the header is broken.
    stored: Option<u32>,
    /// Inodes that name it.
    found: u32,
    /// The first of them.
    ino: u32,
}

impl Checker<'_> {
    /// Checks the attributes behind an inode's extra fields.
    pub fn inode_xattrs(&mut self, ino: u32, slot: &[u8], extra_isize: u16) {
        let area = &slot[BASE_SIZE + usize::from(extra_isize)..];
        if extra_isize == 0 || area.len() < 8 {
            return;
        }
        let at = At::Inode(Ino(ino.into()));
        match xattr::check(area, Place::Inode) {
            Ok(()) => self.acls(area, Place::Inode, at),
            Err(kind) => self.findings.corrupt(&kind.at(at)),
        }
    }

    /// Looks into the ACLs of an area whose entries are sound.
    fn acls(&mut self, area: &[u8], place: Place, at: At) {
        for entry in xattr::entries(area, place).into_iter().flatten().flatten() {
            let list = matches!(entry.name_index, ACL_ACCESS | ACL_DEFAULT);
            if list && (!entry.name.is_empty() || acl::to_wire(entry.value).is_err()) {
                let (len, offset) = (entry.value.len(), entry.offset);
                let detail = format!("{len} bytes of the entry at {offset} are no ACL");
                self.findings.add(Rule::XattrAcl, at, detail);
            }
        }
    }

    /// Checks the attribute block of an inode and counts the reference. Answers how many blocks it
    /// is: 0 or 1.
    ///
    /// # Errors
    /// The device's.
    pub fn xattr_block(&mut self, ino: u32, values: &InodeValues) -> Result<u64, DeviceError> {
        let block = values.file_acl;
        if block == 0 {
            return Ok(0);
        }
        if !self.in_range(FsBlock(block), 1) {
            let (first, end) = (u64::from(self.g.first_data_block) + 1, self.g.blocks_count);
            let kind = CorruptKind::AttributeBlock { block, first, end };
            self.findings.corrupt(&kind.at(At::Inode(Ino(ino.into()))));
            self.blocks_unknown = true;
            return Ok(1);
        }
        if let Some(shared) = self.xattrs.0.get_mut(&block) {
            shared.found += 1;
            return Ok(1);
        }
        let mut shared = Shared { stored: None, found: 1, ino };
        if self.claim(ino, block, 1) {
            let page = self.io.read(block, 1)?;
            shared.stored = self.check_block(ino, block, &page);
        }
        self.xattrs.0.insert(block, shared);
        Ok(1)
    }

    fn check_block(&mut self, ino: u32, block: u64, data: &[u8]) -> Option<u32> {
        let at = At::Block(Ino(ino.into()), block);
        if self.g.checksums.metadata
            && let Err(kind) = xattr::verify_checksum(&self.g.checksums, block, data)
        {
            self.findings.corrupt(&kind.at(at));
        }
        match xattr::check(data, Place::Block) {
            Ok(()) => {
                self.acls(data, Place::Block, at);
                Some(xattr::refcount(data))
            }
            Err(kind) => {
                self.findings.corrupt(&kind.at(at));
                let header = matches!(
                    kind,
                    CorruptKind::XattrMagic { .. } | CorruptKind::XattrHeader { .. }
                );
                (!header).then(|| xattr::refcount(data))
            }
        }
    }

    /// Compares the references that blocks count with those that were found.
    pub fn xattr_references(&mut self) {
        for (&block, shared) in &self.xattrs.0 {
            if let Some(stored) = shared.stored.filter(|&stored| stored != shared.found) {
                let at = At::Block(Ino(shared.ino.into()), block);
                let detail = format!("{stored} references, counted {}", shared.found);
                self.findings.add(Rule::XattrReferences, at, detail);
            }
        }
    }
}
