//! Group descriptors: as they are, from a copy of the table, or where mke2fs puts things.

use base::Ino;
use block::DeviceError;
use ext4::Rule;
use ext4::format::features::Incompat;
use ext4::format::group_desc::stored_checksum;
use ext4::format::super_block::ROOT_INO;
use ext4::format::{At, GroupDesc, GroupFlags, InodeValues};

use super::{Bits, Fs};
use crate::RepairError;

/// Inodes of a table that vote for its place.
const VOTERS: u32 = 32;
/// Zeroed inodes behind which they are looked for, at most.
const ZEROED_MAX: u32 = 4096;

/// Where the descriptor of a group may come from.
struct Candidate {
    desc: GroupDesc,
    /// The block it was read from; None for the usual places.
    copy: Option<u64>,
}

impl Fs<'_> {
    /// Reads all descriptors, and restores those that are wrong.
    ///
    /// # Errors
    /// The device's; a descriptor that nothing is known of.
    pub fn descriptors(&mut self) -> Result<(), RepairError> {
        self.fit_reserve()?;
        self.descs.clear();
        self.meta = Bits::new(self.g.blocks_count);
        self.meta.set_run(0..u64::from(self.g.first_data_block) + 1);
        for group in 0..self.g.groups_count {
            let len = u64::from(self.g.base_meta_blocks(group));
            let first = self.first_of(group).0;
            self.meta.set_run(first..first + len);
        }
        for group in 0..self.g.groups_count {
            let desc = self.descriptor(group)?;
            self.mark(&desc);
            self.descs.push(desc);
        }
        self.mark_mmp();
        self.whole_clusters();
        Ok(())
    }

    /// Room for more descriptors that reaches over what the first group has behind it is smaller.
    fn fit_reserve(&mut self) -> Result<(), DeviceError> {
        let g = &self.g;
        let size = u64::from(g.block_size);
        let (block, offset) = g.desc_place(0);
        let room = g.group_first_block(0) + 1 + u64::from(g.desc_blocks);
        let (reserved, len) = (u64::from(g.reserved_gdt_blocks), g.desc_size as usize);
        let bytes = self.view.read_bytes(block.0 * size + offset as u64, len)?;
        let Ok(desc) = GroupDesc::parse(&bytes, 0, &self.g) else { return Ok(()) };
        let least = desc.block_bitmap.min(desc.inode_bitmap).min(desc.inode_table);
        if least < room || room + reserved <= least {
            return Ok(());
        }
        if !self.g.features.group_csum() && self.table_votes(0, &desc)? == 0 {
            return Ok(());
        }
        let fits = least - room;
        let detail = format!("{reserved} blocks for more descriptors reach over block {least}");
        let act = format!("reserve {fits}");
        if self.safe(Rule::SuperGeometry, At::Super(0), detail, &act) {
            self.edit_super(|raw| raw.s_reserved_gdt_blocks.set(fits as u16))?;
            self.g.reserved_gdt_blocks = fits as u32;
        }
        Ok(())
    }

    /// A cluster with metadata holds nothing else.
    fn whole_clusters(&mut self) {
        let ratio = u64::from(self.g.cluster_ratio);
        if ratio == 1 {
            return;
        }
        for first in (0..self.g.blocks_count).step_by(ratio as usize) {
            if !self.meta.is_clear(first..first + ratio) {
                self.meta.set_run(first..first + ratio);
            }
        }
    }

    /// Bitmaps and table, as runs.
    fn places(&self, desc: &GroupDesc) -> [(u64, u64); 3] {
        let table = (desc.inode_table, u64::from(self.g.itable_blocks));
        [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), table]
    }

    fn mark(&mut self, desc: &GroupDesc) {
        for (start, len) in self.places(desc) {
            self.meta.set_run(start..start + len);
        }
    }

    /// Lie its places in the file system, apart from each other and from what is known so far?
    fn places_fit(&self, group: u32, desc: &GroupDesc) -> bool {
        let [(bitmap, _), (inodes, _), (table, len)] = self.places(desc);
        let apart = |block: u64| !(table..table + len).contains(&block);
        desc.check_places(group, &self.g).is_ok()
            && self.places(desc).iter().all(|&(start, len)| self.meta.is_clear(start..start + len))
            && bitmap != inodes
            && apart(bitmap)
            && apart(inodes)
    }

    fn descriptor(&mut self, group: u32) -> Result<GroupDesc, RepairError> {
        let size = u64::from(self.g.block_size);
        let (block, offset) = self.g.desc_place(group);
        let place = block.0 * size + offset as u64;
        let bytes = self.view.read_bytes(place, self.g.desc_size as usize)?;
        let mut own = GroupDesc::read(&bytes);
        let summed = !self.g.features.group_csum()
            || stored_checksum(&bytes) == self.g.checksums.group_desc(group, &bytes);
        let fits = self.places_fit(group, &own);
        if summed && fits && (self.g.checksums.metadata || self.copy_agrees(group, &own)?) {
            let counted = group == 0 || own.free_inodes < self.g.inodes_per_group;
            if own.flags.contains(GroupFlags::INODE_UNINIT) && counted {
                let detail = "says that no inode is in use, and counts others";
                let rule = Rule::GroupUnusedInodes;
                if self.safe(rule, At::Group(group), detail, "read its inodes") {
                    own.flags -= GroupFlags::INODE_UNINIT;
                    self.put_descriptor(group, &own)?;
                }
            }
            return Ok(own);
        }
        let at = At::Group(group);
        let Some(found) = self.best_place(group, fits.then_some(&own))? else {
            let text = format!("{at}: nothing shows where its bitmaps and its inode table lie");
            return Err(RepairError::Hopeless(text));
        };
        let same = found.desc.inode_table == own.inode_table
            && found.desc.block_bitmap == own.block_bitmap
            && found.desc.inode_bitmap == own.inode_bitmap;
        let rule = if summed { Rule::GroupPlace } else { Rule::GroupChecksum };
        let mut desc = found.desc;
        let action = match found.copy {
            _ if same => "keep its places, count the rest anew".to_string(),
            Some(block) => format!("take its places from the copy in block {block}"),
            None => "take the places where mke2fs puts its bitmaps and table".to_string(),
        };
        let detail = "its checksum or its places are wrong";
        if self.safe(rule, at, detail, &action) {
            // The flags and counts of a copy are as old as the copy.
            desc.flags = GroupFlags::INODE_ZEROED;
            desc.itable_unused = 0;
            desc.free_blocks = 0;
            desc.free_inodes = 0;
            desc.used_dirs = 0;
            self.stale.insert(group);
            self.put_descriptor(group, &desc)?;
        }
        Ok(desc)
    }

    /// Writes a descriptor.
    ///
    /// # Errors
    /// The device's.
    pub fn put_descriptor(&mut self, group: u32, desc: &GroupDesc) -> Result<(), DeviceError> {
        let (block, offset) = self.g.desc_place(group);
        let mut content = self.view.read(block.0)?;
        let bytes = &mut content[offset..offset + self.g.desc_size as usize];
        desc.emit(bytes, group, &self.g);
        self.view.write(block.0, &content);
        Ok(())
    }

    /// The descriptors of a group in the copies of the table, with their blocks.
    fn copies(&mut self, group: u32) -> Result<Vec<Candidate>, DeviceError> {
        let (primary, offset) = self.g.desc_place(group);
        let index = primary.0 - self.g.desc_place(0).0.0;
        let mut list = Vec::new();
        for holder in (1..self.g.groups_count).filter(|&group| self.g.has_super(group)).take(8) {
            let block = self.first_of(holder).0 + 1 + index;
            let content = self.view.read(block)?;
            let bytes = &content[offset..offset + self.g.desc_size as usize];
            let desc = GroupDesc::read(bytes);
            let summed = !self.g.features.group_csum()
                || stored_checksum(bytes) == self.g.checksums.group_desc(group, bytes);
            if summed && desc.check_places(group, &self.g).is_ok() {
                list.push(Candidate { desc, copy: Some(block) });
            }
        }
        Ok(list)
    }

    /// Without checksums: does a copy name the same places, or does the table look like one?
    fn copy_agrees(&mut self, group: u32, own: &GroupDesc) -> Result<bool, DeviceError> {
        let places = |desc: &GroupDesc| (desc.block_bitmap, desc.inode_bitmap, desc.inode_table);
        let copies = self.copies(group)?;
        let agree = copies.iter().any(|copy| places(&copy.desc) == places(own));
        Ok(agree
            || copies.is_empty()
                && self.usual(group).iter().any(|desc| places(desc) == places(own))
            || copies.is_empty() && self.table_votes(group, own)? > 0)
    }

    /// The best of its own places, those of the copies, and the usual ones.
    fn best_place(
        &mut self,
        group: u32,
        own: Option<&GroupDesc>,
    ) -> Result<Option<Candidate>, DeviceError> {
        let mut list = self.copies(group)?;
        // Inodes without checksums say less than the checksum of a copy.
        let summed = if self.g.features.group_csum() { list.len() } else { 0 };
        list.extend(own.map(|&desc| Candidate { desc, copy: None }));
        let witnessed = list.len();
        list.extend(self.usual(group).into_iter().map(|desc| Candidate { desc, copy: None }));
        let mut best: Option<(u32, Candidate)> = None;
        let flex = self.g.features.incompat.contains(Incompat::FLEX_BG);
        for (index, candidate) in list.into_iter().enumerate() {
            if !self.places_fit(group, &candidate.desc) {
                continue;
            }
            let votes = self.table_votes(group, &candidate.desc)?;
            let votes = if index < summed { votes + VOTERS } else { votes };
            // What is only usual needs a witness where groups lie together.
            let guess = index >= witnessed && flex && votes == 0;
            if !guess && best.as_ref().is_none_or(|(most, _)| votes > *most) {
                best = Some((votes, candidate));
            }
        }
        Ok(best.map(|(_, candidate)| candidate))
    }

    /// Where mke2fs puts bitmaps and tables: one behind the other, after the copies of superblock
    /// and descriptors; with `flex_bg` those of all groups of a flexible group together.
    fn usual(&self, group: u32) -> Vec<GroupDesc> {
        let flex = self.g.flex_size;
        let head = group / flex * flex;
        let first = self.first_of(head).0 + u64::from(self.g.base_meta_blocks(head));
        let index = u64::from(group - head);
        let table = index * u64::from(self.g.itable_blocks);
        // A file system of one flexible group leaves room for a whole one, or for its groups.
        let spaces = [flex, flex.min(self.g.groups_count - head)];
        let places = spaces.map(|space| GroupDesc {
            block_bitmap: first + index,
            inode_bitmap: first + u64::from(space) + index,
            inode_table: first + 2 * u64::from(space) + table,
            ..GroupDesc::default()
        });
        places.to_vec()
    }

    /// How many of the first inodes of a table look like inodes in use; of all, where the first
    /// ones were zeroed and checksums speak for the others.
    fn table_votes(&mut self, group: u32, desc: &GroupDesc) -> Result<u32, DeviceError> {
        let (mut votes, mut zeroed) = (0, 0);
        let size = self.g.inode_size as usize;
        for index in 0..self.g.inodes_per_group {
            let more = self.g.checksums.metadata && zeroed == index && votes == 0;
            if votes == VOTERS || index >= VOTERS && !more || index >= ZEROED_MAX {
                break;
            }
            let (block, offset) = self.g.inode_offset(index);
            let place = (desc.inode_table + block) * u64::from(self.g.block_size) + offset as u64;
            let slot = self.view.read_bytes(place, size)?;
            zeroed += u32::from(slot.iter().all(|&byte| byte == 0));
            let ino = group * self.g.inodes_per_group + index + 1;
            let used = InodeValues::parse(&slot, Ino(ino.into()), &self.g)
                .is_ok_and(|values| values.links > 0 && values.kind().is_some());
            if ino == ROOT_INO && !used && zeroed < ino {
                return Ok(0);
            }
            votes += u32::from(used);
        }
        Ok(votes)
    }
}
