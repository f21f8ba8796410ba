//! Extended attributes: what is sound is kept, and the blocks count who shares them.

use block::DeviceError;
use ext4::Rule;
use ext4::format::features::Incompat;
use ext4::format::inode::{BASE_SIZE, BLOCK_AREA};
use ext4::format::xattr::{self, Xattr, XattrArea};
use ext4::format::{InodeFlags, InodeValues};

use super::Fs;
use crate::restore;

/// The numbers of the prefixes of the two ACLs.
const ACLS: [u8; 2] = [2, 3];
/// The version of a stored ACL.
const ACL_VERSION: u32 = 1;

impl Fs<'_> {
    /// May a value be the content of an inode?
    pub fn large_values(&self) -> bool {
        self.g.features.incompat.contains(Incompat::EA_INODE)
    }

    /// The attribute blocks that are ones by their form: they belong to attributes, whatever file
    /// claims them as well.
    ///
    /// # Errors
    /// The device's.
    pub fn attribute_blocks(&mut self) -> Result<(), DeviceError> {
        let named = self.inodes.values().map(|inode| inode.acl).filter(|&block| block != 0);
        for block in named.collect::<std::collections::BTreeSet<u64>>() {
            let content = self.view.read(block)?;
            let (sums, large) = (self.g.checksums, self.large_values());
            let sound = |data: &[u8]| {
                let summed = !sums.metadata || xattr::verify_checksum(&sums, block, data).is_ok();
                summed && xattr::check(data, XattrArea::Block, large).is_ok()
            };
            let mut known = content[..4] == xattr::MAGIC.to_le_bytes();
            if !known && let Some((copy, _)) = self.old_copy(block, sound)? {
                let act = "take the journal's copy";
                let at = format!("block {block}");
                known = self.safe(Rule::XattrHeader, at, "it holds no attributes", act);
                if known {
                    self.view.write(block, &copy);
                }
            }
            if known {
                self.shared.insert(block, 0);
            }
        }
        Ok(())
    }

    /// Goes over the attributes of all inodes.
    ///
    /// # Errors
    /// The device's.
    pub fn attributes(&mut self) -> Result<(), DeviceError> {
        self.policies = Default::default();
        self.read_values()?;
        for ino in self.inodes.keys().copied().collect::<Vec<u32>>() {
            self.context = None;
            self.inside(ino)?;
            self.attribute_block(ino)?;
            self.encryption(ino);
        }
        let counted = std::mem::take(&mut self.shared);
        for (&block, &count) in &counted {
            let mut content = self.view.read(block)?;
            let stored = xattr::refcount(&content);
            let detail = format!("{stored} references, counted {count}");
            let act = "store the number that was counted";
            let at = format!("block {block}");
            if stored != count && self.safe(Rule::XattrReferences, at, detail, act) {
                xattr::set_refcount(&mut content, count);
                self.put_attributes(block, &mut content);
            }
        }
        self.shared = counted;
        self.shared.retain(|_, count| *count > 0);
        self.value_references()
    }

    /// Takes note of how an inode is encrypted. Without a context it is not: nothing could read it.
    fn encryption(&mut self, ino: u32) {
        let context = self.context.take();
        if !self.inodes[&ino].flags.contains(InodeFlags::ENCRYPT) {
            return;
        }
        let (policy, wrong) = self.policies.of(context.as_deref());
        self.inodes.get_mut(&ino).expect("it is there").policy = policy;
        let Some(detail) = wrong else { return };
        let act = "take it as not encrypted";
        let loss = "its content or its names, if they were encrypted: no key opens them";
        if self.lossy(Rule::EncryptionContext, Self::at(ino), detail, act, loss) {
            let inode = self.inodes.get_mut(&ino).expect("it is there");
            inode.flags -= InodeFlags::ENCRYPT;
            inode.policy = 0;
        }
    }

    /// The bytes of content in an inode.
    ///
    /// # Errors
    /// The device's.
    pub fn inline_bytes(&mut self, ino: u32) -> Result<Vec<u8>, DeviceError> {
        let slot = self.slot(ino)?;
        let values = InodeValues::read(&slot, &self.g);
        let mut bytes = values.block.to_vec();
        bytes.extend(inline_tail(&slot, values.extra_isize).unwrap_or_default());
        Ok(bytes)
    }

    /// Content leaves the inode, which is ready for a map then.
    ///
    /// # Errors
    /// The device's.
    pub fn outline(&mut self, ino: u32) -> Result<(), DeviceError> {
        let mut slot = self.slot(ino)?;
        let extra = usize::from(self.values(ino)?.extra_isize);
        if let Some(area) = slot.get_mut(BASE_SIZE + extra..) {
            let (mut list, _) = self.sound(area, XattrArea::Inode, false);
            list.retain(|xattr| !xattr.is_inline_data());
            xattr::emit(area, XattrArea::Inode, &list);
        }
        self.put_slot(ino, &slot)?;
        let extents = self.g.features.incompat.contains(Incompat::EXTENTS);
        let inode = self.inodes.get_mut(&ino).expect("it is there");
        inode.flags -= InodeFlags::INLINE_DATA;
        inode.flags.set(InodeFlags::EXTENTS, extents);
        let flags = inode.flags;
        self.edit(ino, |values| {
            values.flags = flags;
            values.block = [0; BLOCK_AREA];
        })
    }

    fn put_attributes(&mut self, block: u64, content: &mut [u8]) {
        if self.g.checksums.metadata {
            xattr::set_checksum(&self.g.checksums, block, content);
        }
        self.view.write(block, content);
    }

    /// Where attributes begin in an inode's slot.
    pub fn area_inside(&self, slot: &[u8]) -> Option<usize> {
        let extra = match slot.len() > BASE_SIZE {
            true => usize::from(InodeValues::read(slot, &self.g).extra_isize),
            false => 0,
        };
        let from = BASE_SIZE + extra;
        (extra > 0 && from + 8 <= slot.len()).then_some(from)
    }

    /// The area behind an inode's fields.
    fn inside(&mut self, ino: u32) -> Result<(), DeviceError> {
        let mut slot = self.slot(ino)?;
        let Some(from) = self.area_inside(&slot) else { return Ok(()) };
        let acl = self.suspect(ino, Rule::XattrAcl);
        let (mut list, sound) = self.sound(&slot[from..], XattrArea::Inode, acl);
        self.add_large(ino, &list);
        self.count_values(&list);
        self.find_context(&list);
        let inline = self.inodes[&ino].flags.contains(InodeFlags::INLINE_DATA);
        let bare = inline && !list.iter().any(Xattr::is_inline_data);
        if bare {
            let name = xattr::INLINE_NAME.to_vec();
            list.push(Xattr {
                name_index: xattr::INLINE_INDEX,
                name,
                value: Vec::new(),
                large: None,
            });
        }
        if sound && !bare {
            return Ok(());
        }
        let act = "keep the sound ones";
        let loss = "attributes of the inode, or their values";
        if self.lossy(Rule::XattrEntry, Self::at(ino), "damaged attributes in the inode", act, loss)
        {
            // Content goes before other attributes.
            while !xattr::emit(&mut slot[from..], XattrArea::Inode, &list) {
                let Some(other) = list.iter().rposition(|xattr| !xattr.is_inline_data()) else {
                    break;
                };
                list.remove(other);
            }
            self.put_slot(ino, &slot)?;
            self.edit(ino, |_| ())?;
        }
        Ok(())
    }

    /// Does the check complain of an inode by this rule?
    pub fn suspect(&self, ino: u32, rule: Rule) -> bool {
        self.suspects.inodes.get(&ino).is_some_and(|rules| rules.contains(&rule))
    }

    fn find_context(&mut self, list: &[Xattr]) {
        let is_one =
            |x: &&Xattr| x.name_index == xattr::CONTEXT_INDEX && x.name == xattr::CONTEXT_NAME;
        if let Some(found) = list.iter().find(is_one) {
            self.context = Some(found.value.clone());
        }
    }

    /// Sectors that values in inodes add to their owner's.
    fn add_large(&mut self, ino: u32, list: &[Xattr]) {
        let block = u64::from(self.g.block_size);
        let sizes = list.iter().filter_map(|xattr| xattr.large).map(|large| u64::from(large.size));
        let sectors: u64 = sizes.map(|size| size.div_ceil(block) * (block / 512)).sum();
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.extra_sectors += sectors;
            inode.large_values += list.iter().filter(|xattr| xattr.large.is_some()).count() as u32;
        }
    }

    /// The attributes of an area that are sound, and whether all of them are.
    fn sound(&self, area: &[u8], place: XattrArea, check_acls: bool) -> (Vec<Xattr>, bool) {
        let large = self.large_values();
        let mut sound = xattr::check(area, place, large).is_ok();
        let mut list = Vec::new();
        for entry in xattr::entries(area, place, large).into_iter().flatten() {
            let Ok(entry) = entry else { break };
            if entry.is_nameless() {
                continue;
            }
            let list_of_names = ACLS.contains(&entry.name_index);
            if check_acls && list_of_names && !(entry.name.is_empty() && is_acl(entry.value)) {
                sound = false;
                continue;
            }
            let mut xattr = Xattr::of(&entry);
            if let Some(large) = xattr.large {
                xattr.large = self.large_of(&xattr.name, large);
                sound &= xattr.large == Some(large);
                if xattr.large.is_none() {
                    continue;
                }
            }
            list.push(xattr);
        }
        (list, sound)
    }

    fn attribute_block(&mut self, ino: u32) -> Result<(), DeviceError> {
        let block = self.inodes[&ino].acl;
        if block == 0 {
            return Ok(());
        }
        let at = format!("inode {ino}, block {block}");
        let mut content = self.view.read(block)?;
        let sums = self.g.checksums;
        if sums.metadata && xattr::verify_checksum(&sums, block, &content).is_err() {
            let stored = |data: &[u8]| u32::from_le_bytes(data[16..20].try_into().expect("four"));
            let sum = |data: &[u8]| sums.xattr_block(block, data);
            let detail = "one byte does not fit its checksum";
            let act = "put that byte right by the checksum";
            if let Some(fixed) = restore::one_byte(&content, sum, stored)
                && self.safe(Rule::XattrChecksum, &at, detail, act)
            {
                self.view.write(block, &fixed);
                content = fixed;
            }
        }
        let shared = self.shared.contains_key(&block);
        let header = content[..4] == xattr::MAGIC.to_le_bytes();
        let first = self.cluster_of(block);
        if !header || !shared && self.used.get(block) {
            return self.forget_block(ino, &at);
        }
        let acl = self.suspect(ino, Rule::XattrAcl);
        let (list, sound) = self.sound(&content, XattrArea::Block, acl);
        let summed = !sums.metadata || xattr::verify_checksum(&sums, block, &content).is_ok();
        let known = *self.shared.entry(block).or_insert(0) > 0;
        self.used.set_run(first..first + u64::from(self.g.cluster_ratio));
        let wanted = (sound && summed) || known || {
            let act = "keep the sound ones";
            let loss = "attributes in the block, or their values";
            self.lossy(Rule::XattrEntry, &at, "damaged attributes in the block", act, loss)
        };
        let damaged = !sound || !summed;
        if damaged && !known && wanted {
            if list.is_empty() || !xattr::emit(&mut content, XattrArea::Block, &list) {
                return self.forget_block(ino, &at);
            }
            self.put_attributes(block, &mut content);
        }
        self.add_large(ino, &list);
        if !known {
            self.count_values(&list);
        }
        self.find_context(&list);
        *self.shared.get_mut(&block).expect("just made") += 1;
        Ok(())
    }

    fn forget_block(&mut self, ino: u32, at: &str) -> Result<(), DeviceError> {
        let act = "forget the block";
        let loss = "the attributes in it";
        if self.lossy(Rule::XattrHeader, at, "it holds no attributes", act, loss) {
            self.inodes.get_mut(&ino).expect("it is there").acl = 0;
            self.edit(ino, |values| values.file_acl = 0)?;
        }
        Ok(())
    }
}

/// The bytes of content behind the first ones, if an inode has the attribute that holds them.
pub fn inline_tail(slot: &[u8], extra_isize: u16) -> Option<Vec<u8>> {
    let area = slot.get(BASE_SIZE + usize::from(extra_isize)..).filter(|_| extra_isize != 0)?;
    let entries = xattr::entries(area, XattrArea::Inode, true).into_iter().flatten();
    let mut entries = entries.map_while(Result::ok);
    entries.find(|entry| Xattr::of(entry).is_inline_data()).map(|entry| entry.value.to_vec())
}

/// Has a value the form of a stored ACL: a version, then entries of four bytes, or of eight where
/// they name a user or a group?
fn is_acl(value: &[u8]) -> bool {
    let Some((version, mut rest)) = value.split_at_checked(4) else { return false };
    if version != ACL_VERSION.to_le_bytes() {
        return false;
    }
    let mut last = 0;
    while !rest.is_empty() {
        if rest.len() < 4 {
            return false;
        }
        let tag = u16::from_le_bytes([rest[0], rest[1]]);
        let len = match tag {
            0x02 | 0x08 => 8,
            0x01 | 0x04 | 0x10 | 0x20 => 4,
            _ => return false,
        };
        let perm = u16::from_le_bytes([rest[2], rest[3]]);
        if rest.len() < len || perm > 7 || tag < last {
            return false;
        }
        last = tag;
        rest = &rest[len..];
    }
    true
}
