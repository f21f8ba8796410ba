//! Extended attributes: in inodes, in blocks that inodes share, and values in inodes of their own.

use std::collections::BTreeMap;

use base::crc::crc32c;
use base::{FsBlock, Ino};
use block::DeviceError;

use super::Checker;
use super::mapping::FileBlocks;
use super::rule::Rule;
use crate::attr::acl;
use crate::attr::xattr::{ACL_ACCESS, ACL_DEFAULT, Totals};
use crate::format::extent::FileRun;
use crate::format::inode::BASE_SIZE;
use crate::format::xattr::{self, LargeValue, Xattr, XattrArea};
use crate::format::{At, CorruptKind, Geometry, InodeValues};

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
    /// What its values in inodes add to each inode that names it.
    totals: Totals,
}

impl XattrBlocks {
    /// The blocks that both have.
    pub fn shared_with(&self, other: &XattrBlocks) -> Vec<u64> {
        other.0.keys().filter(|block| self.0.contains_key(block)).copied().collect()
    }

    /// Takes over those of another share of the inodes.
    pub fn absorb(&mut self, other: XattrBlocks) {
        for (block, theirs) in other.0 {
            let found = theirs.found;
            self.0.entry(block).and_modify(|ours| ours.found += found).or_insert(theirs);
        }
    }
}

/// Values in inodes of their own, and the entries that name them.
#[derive(Default)]
pub struct LargeValues {
    inodes: BTreeMap<u32, ValueInode>,
    entries: Vec<ValueEntry>,
}

impl LargeValues {
    /// None so far.
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.entries.is_empty()
    }

    /// Takes over those of another share of the inodes.
    pub fn absorb(&mut self, other: LargeValues) {
        self.inodes.extend(other.inodes);
        self.entries.extend(other.entries);
    }
}

/// An inode that holds a value.
struct ValueInode {
    hash: u32,
    /// The inode that names it, where it has Lustre's older form and an entry says so.
    owner: u32,
    lustre: bool,
    size: u64,
    links: u16,
    /// Entries that it counts, and that were found.
    stored: u64,
    found: u64,
    /// Its blocks, where all are known and none is missing.
    runs: Option<Vec<FileRun>>,
}

/// An entry that names one.
struct ValueEntry {
    at: At,
    large: LargeValue,
    name: Vec<u8>,
}

/// What the attributes of an inode add to its count of blocks, and to its owners' inodes.
#[derive(Clone, Copy, Default)]
pub struct Attributes {
    /// Attribute blocks.
    pub blocks: u64,
    /// Values in inodes of their own.
    pub large: Totals,
}

impl Attributes {
    /// Units of 512 bytes.
    pub fn sectors(&self, g: &Geometry) -> u64 {
        self.blocks * g.cluster_sectors() + self.large.sectors
    }
}

/// The value of the attribute that holds content.
fn inline_value(area: &[u8]) -> Option<Vec<u8>> {
    let entries = xattr::entries(area, XattrArea::Inode, false).into_iter().flatten();
    let mut entries = entries.map_while(Result::ok);
    let content = entries.find(|entry| Xattr::of(entry).is_inline_data())?;
    Some(content.value.to_vec())
}

impl Checker<'_> {
    /// Checks the attributes behind an inode's extra fields.
    pub fn inode_xattrs(&mut self, ino: u32, slot: &[u8], extra_isize: u16) -> Totals {
        let area = &slot[BASE_SIZE + usize::from(extra_isize)..];
        if extra_isize == 0 || area.len() < 8 {
            return Totals::default();
        }
        let at = At::Inode(Ino(ino.into()));
        self.inline_value = inline_value(area);
        match xattr::check(area, XattrArea::Inode, self.g.large_values()) {
            Ok(()) => self.entries(area, XattrArea::Inode, at),
            Err(kind) => {
                self.findings.corrupt(&kind.at(at));
                Totals::default()
            }
        }
    }

    /// Looks into the ACLs of an area whose entries are sound, and takes note of the values that
    /// lie in inodes.
    fn entries(&mut self, area: &[u8], place: XattrArea, at: At) -> Totals {
        let mut totals = Totals::default();
        let entries = xattr::entries(area, place, self.g.large_values());
        for entry in entries.into_iter().flatten().flatten() {
            if let Some(large) = entry.large {
                totals = totals.plus(&self.g, large);
                self.values.entries.push(ValueEntry { at, large, name: entry.name.to_vec() });
                continue;
            }
            if entry.name_index == xattr::CONTEXT_INDEX && entry.name == xattr::CONTEXT_NAME {
                self.context = Some(entry.value.to_vec());
            }
            let list = matches!(entry.name_index, ACL_ACCESS | ACL_DEFAULT);
            if list && (!entry.name.is_empty() || acl::to_wire(entry.value).is_err()) {
                let (len, offset) = (entry.value.len(), entry.offset);
                let detail = format!("{len} bytes of the entry at {offset} are no ACL");
                self.findings.add(Rule::XattrAcl, at, detail);
            }
        }
        totals
    }

    /// Checks the attribute block of an inode and counts the reference.
    ///
    /// # Errors
    /// The device's.
    pub fn xattr_block(
        &mut self,
        ino: u32,
        values: &InodeValues,
    ) -> Result<Attributes, DeviceError> {
        let block = values.file_acl;
        let own = |large| Attributes { blocks: 1, large };
        if block == 0 {
            return Ok(Attributes::default());
        }
        if !self.in_range(FsBlock(block), 1) {
            let (first, end) = (u64::from(self.g.first_data_block) + 1, self.g.blocks_count);
            let kind = CorruptKind::AttributeBlock { block, first, end };
            self.findings.corrupt(&kind.at(At::Inode(Ino(ino.into()))));
            self.blocks_unknown = true;
            return Ok(own(Totals::default()));
        }
        if let Some(shared) = self.xattrs.0.get_mut(&block) {
            shared.found += 1;
            return Ok(own(shared.totals));
        }
        let mut shared = Shared { stored: None, found: 1, ino, totals: Totals::default() };
        self.note(ino, "a block of attributes", block);
        if self.claim(ino, block, 1) {
            let page = self.io.read(block, 1)?;
            (shared.stored, shared.totals) = self.check_block(ino, block, &page);
        }
        let totals = shared.totals;
        self.xattrs.0.insert(block, shared);
        Ok(own(totals))
    }

    fn check_block(&mut self, ino: u32, block: u64, data: &[u8]) -> (Option<u32>, Totals) {
        let at = At::Block(Ino(ino.into()), block);
        if self.g.checksums.metadata
            && let Err(kind) = xattr::verify_checksum(&self.g.checksums, block, data)
        {
            self.findings.corrupt(&kind.at(at));
        }
        match xattr::check(data, XattrArea::Block, self.g.large_values()) {
            Ok(()) => {
                let totals = self.entries(data, XattrArea::Block, at);
                (Some(xattr::refcount(data)), totals)
            }
            Err(kind) => {
                self.findings.corrupt(&kind.at(at));
                let header = matches!(
                    kind,
                    CorruptKind::XattrMagic { .. } | CorruptKind::XattrHeader { .. }
                );
                ((!header).then(|| xattr::refcount(data)), Totals::default())
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

    /// Takes note of an inode that holds a value.
    pub fn keep_value(&mut self, ino: u32, values: &InodeValues, mapped: &FileBlocks) {
        let blocks: u64 = mapped.runs.iter().map(|run| run.len).sum();
        let needed = values.size.div_ceil(u64::from(self.g.block_size));
        let whole = mapped.complete && blocks == mapped.end && blocks == needed;
        let inode = ValueInode {
            hash: values.atime.sec as u32,
            owner: values.mtime.sec as u32,
            lustre: false,
            size: values.size,
            links: values.links,
            stored: values.references(),
            found: 0,
            runs: whole.then(|| mapped.runs.clone()),
        };
        self.values.inodes.insert(ino, inode);
    }

    /// After all inodes: every entry names a value of its size and hash, every value is what its
    /// hash says, and counts the entries that name it.
    ///
    /// # Errors
    /// The device's.
    pub fn large_values(&mut self) -> Result<(), DeviceError> {
        let LargeValues { mut inodes, entries } = std::mem::take(&mut self.values);
        for ValueEntry { at, large, name } in entries {
            let Some(inode) = inodes.get_mut(&large.ino) else {
                self.findings.corrupt(&CorruptKind::XattrInodeFlag { inode: large.ino }.at(at));
                continue;
            };
            inode.found += 1;
            let (size, hash) = (inode.size, inode.hash);
            if size != u64::from(large.size) {
                let (found, expected) = (size, large.size);
                let kind = CorruptKind::XattrInodeSize { inode: large.ino, found, expected };
                self.findings.corrupt(&kind.at(at));
            }
            let expected = xattr::hash_large(&name, hash);
            let (At::Inode(owner) | At::Block(owner, _)) = at else { continue };
            if large.hash != expected && u64::from(inode.owner) == owner.0 {
                inode.lustre = true;
                let kind = CorruptKind::XattrInodeLustre { inode: large.ino, owner: inode.owner };
                self.findings.corrupt(&kind.at(at));
                continue;
            }
            if large.hash != expected && large.hash != xattr::hash_large_signed(&name, hash) {
                let kind =
                    CorruptKind::XattrInodeHash { inode: large.ino, found: large.hash, expected };
                self.findings.corrupt(&kind.at(at));
            }
        }
        for (ino, inode) in inodes {
            let at = At::Inode(Ino(ino.into()));
            let orphan = self.orphans.contains(&ino);
            if inode.lustre {
                continue;
            }
            if inode.links > 1 {
                let detail = format!("{} links of the value of an attribute", inode.links);
                self.findings.add(Rule::XattrInodeReferences, at, detail);
            }
            if inode.stored != inode.found || inode.found == 0 && !orphan {
                let detail = format!("{} references, counted {}", inode.stored, inode.found);
                self.findings.add(Rule::XattrInodeReferences, at, detail);
            }
            if orphan {
                continue;
            }
            let found = match &inode.runs {
                Some(runs) if inode.size <= u64::from(xattr::VALUE_MAX) => {
                    self.content_hash(runs, inode.size)?
                }
                _ => {
                    let detail = format!("its blocks do not hold {} bytes", inode.size);
                    self.findings.add(Rule::XattrInode, at, detail);
                    continue;
                }
            };
            if found != inode.hash {
                let (expected, found) = (found, inode.hash);
                let kind = CorruptKind::XattrInodeHash { inode: ino, found, expected };
                self.findings.corrupt(&kind.at(at));
            }
        }
        Ok(())
    }

    fn content_hash(&mut self, runs: &[FileRun], size: u64) -> Result<u32, DeviceError> {
        let mut hash = self.g.checksums.seed;
        let mut left = size as usize;
        for block in runs.iter().flat_map(|run| run.start..run.start + run.len) {
            let page = self.io.read(block, 1)?;
            let part = left.min(page.len());
            hash = crc32c(hash, &page[..part]);
            left -= part;
        }
        Ok(hash)
    }
}
