//! The inode tables: which inodes are in use, what is wrong with them, and their blocks.

use base::Ino;
use base::bitmap;
use block::DeviceError;
use ext4::Rule;
use ext4::format::checksum::{INODE_CHECKSUM_HI, INODE_CHECKSUM_LO, clear_inode, stored_inode};
use ext4::format::features::Compat;
use ext4::format::inode::BASE_SIZE;
use ext4::format::super_block::{BAD_BLOCKS_INO, JOURNAL_INO, QUOTA_INOS, RESIZE_INO, ROOT_INO};
use ext4::format::{FileKind, GroupFlags, InodeFlags, InodeValues};

use super::map::Map;
use super::{Bits, Fs};
use crate::restore;

mod sane;
mod strays;

/// What is wrong with an inode that the bitmap marks and that is not there.
pub const EMPTY_SLOT: &str = "its slot is empty";

/// What later passes need of an inode in use.
#[derive(Clone, Debug)]
pub struct Inode {
    /// What it is.
    pub kind: FileKind,
    /// Links that it claims.
    pub links: u16,
    /// Seeds its checksums.
    pub generation: u32,
    /// Its flags.
    pub flags: InodeFlags,
    /// Its blocks.
    pub map: Map,
    /// Its attribute block, 0 where there is none.
    pub acl: u64,
    /// Sectors that its large attributes add.
    pub extra_sectors: u64,
    /// How many of them there are.
    pub large_values: u32,
    /// Its checksum fits, or there is none to fit.
    pub trusted: bool,
    /// It needs no name.
    pub nameless: bool,
    /// It has no links: it stays only if something names it.
    pub weak: bool,
    /// Its map is written anew.
    pub rewrite: bool,
    /// Names that were found.
    pub names: u32,
    /// The number of its encryption policy; see [`ext4::Policies`].
    pub policy: u16,
}

impl Inode {
    /// Of these values, with its blocks.
    pub fn new(values: &InodeValues, kind: FileKind, map: Map) -> Inode {
        Inode {
            kind,
            links: values.links,
            generation: values.generation,
            flags: values.flags,
            map,
            acl: values.file_acl,
            extra_sectors: 0,
            large_values: 0,
            trusted: true,
            nameless: false,
            weak: false,
            rewrite: false,
            names: 0,
            policy: 0,
        }
    }
}

/// The checksum of a whole slot of more than 128 bytes, and what it stores.
fn slot_sum(g: &ext4::format::Geometry, ino: u32, slot: &[u8]) -> u32 {
    let mut copy = slot.to_vec();
    clear_inode(&mut copy, true);
    let seed = g.checksums.inode_seed(Ino(ino.into()), InodeValues::generation_of(slot));
    base::crc::crc32c(seed.0, &copy)
}

fn slot_stored(slot: &[u8]) -> u32 {
    let fields = [INODE_CHECKSUM_LO, INODE_CHECKSUM_HI];
    let [low, high] = fields.map(|at| u32::from(slot[at]) | u32::from(slot[at + 1]) << 8);
    low | high << 16
}

impl Fs<'_> {
    /// Forgets what the last round knew.
    pub fn start_inodes(&mut self) {
        self.inodes.clear();
        self.shared.clear();
        self.rebuilt.clear();
        self.used = Bits::new(self.g.blocks_count);
        self.twice = Bits::new(self.g.blocks_count);
    }

    /// Is this one of the file system's own files?
    pub fn is_system(&self, ino: u32) -> bool {
        let [user, group, project] = self.g.quota_inos;
        let known = [self.g.journal_ino, self.g.orphan_file_ino, user, group, project];
        ino != 0 && known.contains(&ino) || ino < self.g.first_ino && ino != ROOT_INO
    }

    /// Goes over all inode tables.
    ///
    /// # Errors
    /// The device's.
    pub fn scan_inodes(&mut self) -> Result<(), DeviceError> {
        let size = self.g.inode_size as usize;
        self.view.meter.begin("reading inodes", self.g.groups_count.into());
        for group in 0..self.g.groups_count {
            self.view.meter.add(1);
            let count = self.inodes_to_read(group)?;
            let table = self.descs[group as usize].inode_table;
            let map = self.inode_bitmap(group)?;
            let believed = self.is_believed(group, &map);
            let per_block = self.g.inodes_per_block;
            for index in 0..count.div_ceil(per_block) {
                let content = self.view.read(table + u64::from(index))?;
                for (number, slot) in
                    content.chunks_exact(size).take(per_block as usize).enumerate()
                {
                    let index = index * per_block + number as u32;
                    let ino = group * self.g.inodes_per_group + index + 1;
                    if index >= self.g.inodes_per_group {
                        break;
                    }
                    let marked = bitmap::test(&map, index as usize);
                    let empty = slot.iter().all(|&byte| byte == 0);
                    let maybe = empty && (marked || !believed);
                    let slot = match maybe && !self.is_system(ino) {
                        true => self.old_slot(ino, EMPTY_SLOT)?,
                        false => Some(slot.to_vec()).filter(|_| !empty),
                    };
                    if let Some(slot) = slot {
                        self.scan_slot(ino, slot, marked)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The inode bitmap as it lies on the disk.
    ///
    /// # Errors
    /// The device's.
    pub fn inode_bitmap(&mut self, group: u32) -> Result<Vec<u8>, DeviceError> {
        let desc = self.descs[group as usize];
        if self.g.features.group_csum() && desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(vec![0; self.g.block_size as usize]);
        }
        self.view.read(desc.inode_bitmap)
    }

    /// Does an inode bitmap say which inodes are in use? Not where it was overwritten: its checksum
    /// does not fit, or bits behind the last inode are clear.
    pub fn is_believed(&self, group: u32, map: &[u8]) -> bool {
        let desc = self.descs[group as usize];
        if self.g.features.group_csum() && desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return true;
        }
        let behind = self.g.inodes_per_group as usize;
        let padded = bitmap::find_next_zero(map, behind, map.len() * 8).is_none();
        padded && desc.check_inode_bitmap(map, group, &self.g).is_ok()
    }

    /// How many inodes of a group may be in use.
    fn inodes_to_read(&mut self, group: u32) -> Result<u32, DeviceError> {
        let (desc, all) = (self.descs[group as usize], self.g.inodes_per_group);
        let known = self.stale.contains(&group) || self.whole.contains(&group);
        if known || !self.g.features.group_csum() || desc.itable_unused > all {
            return Ok(all);
        }
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(0);
        }
        let count = all - desc.itable_unused;
        let map = self.view.read(desc.inode_bitmap)?;
        let sound = desc.check_inode_bitmap(&map, group, &self.g).is_ok();
        let last = (count..all).rev().find(|&bit| bitmap::test(&map, bit as usize));
        Ok(last.filter(|_| sound).map_or(count, |bit| bit + 1))
    }

    /// A slot that is not empty.
    fn scan_slot(&mut self, ino: u32, mut slot: Vec<u8>, marked: bool) -> Result<(), DeviceError> {
        let system = self.is_system(ino);
        let mut values = InodeValues::read(&slot, &self.g);
        let trusted = self.slot_trusted(ino, &slot);
        if !trusted && let Some(fixed) = self.restored_slot(ino, &slot) {
            let detail = "one byte does not fit its checksum";
            let act = "put that byte right by the checksum";
            if self.safe(Rule::InodeChecksum, Self::at(ino), detail, act) {
                self.put_slot(ino, &fixed)?;
                slot = fixed;
                values = InodeValues::read(&slot, &self.g);
            }
        }
        let mut trusted = self.slot_trusted(ino, &slot);
        if !trusted
            && marked
            && !system
            && let Some(old) = self.old_slot(ino, "its checksum does not fit")?
        {
            (slot, trusted) = (old, true);
            values = InodeValues::read(&slot, &self.g);
        }
        if !trusted && !system && self.lies_below_another(ino)? {
            return Ok(());
        }
        let unused = QUOTA_INOS.contains(&ino) && !self.g.quota_inos.contains(&ino)
            || ino == JOURNAL_INO && self.g.journal_ino != ino;
        if !values.may_be_of(ino, &self.g) || unused && values.links > 0 {
            return self.misplaced(ino);
        }
        let reserve = self.g.features.compat.contains(Compat::RESIZE_INODE);
        if ino == RESIZE_INO && !reserve && values.links > 0 {
            let detail = "in use without the feature resize_inode";
            if self.safe(Rule::SuperReserve, Self::at(ino), detail, "empty the slot") {
                return self.clear_slot(ino);
            }
        }
        if ino == RESIZE_INO || system && values.links == 0 {
            if !trusted {
                self.reserved_sum(ino)?;
            }
            return self.reserved_slot(ino, &values);
        }
        if values.links == 0 && !trusted && !self.held.contains(&ino) {
            let detail = "not in use, and its checksum does not fit";
            if self.safe(Rule::InodeChecksum, Self::at(ino), detail, "empty the slot") {
                self.clear_slot(ino)?;
            }
            return Ok(());
        }
        if values.links == 0 {
            return self.without_links(ino, &values, trusted && marked);
        }
        let Some((values, map)) = self.sane_inode(ino, &slot, values, trusted)? else {
            return Ok(());
        };
        let kind = values.kind().expect("made sane");
        let mut inode = Inode::new(&values, kind, map);
        inode.trusted = trusted;
        let holds_value = values.flags.contains(InodeFlags::EA_INODE);
        inode.nameless = system || holds_value && self.large_values();
        self.take_map(ino, &mut inode)?;
        self.inodes.insert(ino, inode);
        Ok(())
    }

    /// The slot of an inode that the bitmap marks, or may have marked, from the journal's newest
    /// copy of its block; it is restored.
    ///
    /// # Errors
    /// The device's.
    pub fn old_slot(&mut self, ino: u32, why: &str) -> Result<Option<Vec<u8>>, DeviceError> {
        let (place, size) = (self.slot_place(ino), u64::from(self.g.block_size));
        let at = (place % size) as usize;
        let range = at..at + self.g.inode_size as usize;
        let g = self.g.clone();
        let sound = |data: &[u8]| {
            InodeValues::parse(&data[range.clone()], Ino(ino.into()), &g).is_ok_and(|values| {
                values.links > 0 && values.dtime == 0 && values.kind().is_some()
            })
        };
        let Some((copy, sequence)) = self.old_copy(place / size, sound)? else { return Ok(None) };
        let act = format!("restore it as transaction {sequence} of the journal has it");
        let loss = "changes that did not go through the journal";
        if !self.lossy(Rule::InodeBitmapLeaked, Self::at(ino), why, &act, loss) {
            return Ok(None);
        }
        let slot = copy[range.clone()].to_vec();
        self.put_slot(ino, &slot)?;
        Ok(Some(slot))
    }

    /// Whether the checksum of a slot is right, or there is none.
    pub fn slot_trusted(&self, ino: u32, slot: &[u8]) -> bool {
        let seed = self.seed(ino, InodeValues::generation_of(slot));
        !self.g.checksums.metadata || stored_inode(slot) == seed.inode(slot)
    }

    fn restored_slot(&self, ino: u32, slot: &[u8]) -> Option<Vec<u8>> {
        if slot.len() <= BASE_SIZE {
            return None;
        }
        let fixed = restore::one_byte(slot, |slot| slot_sum(&self.g, ino, slot), slot_stored)?;
        self.slot_trusted(ino, &fixed).then_some(fixed)
    }

    /// A reserved inode that cannot hold what it holds.
    fn misplaced(&mut self, ino: u32) -> Result<(), DeviceError> {
        let (detail, act) = ("reserved, and its fields make no sense", "empty the slot");
        let loss = match ino {
            BAD_BLOCKS_INO => "the list of bad blocks",
            _ => "whatever it was",
        };
        if self.lossy(Rule::InodeMode, Self::at(ino), detail, act, loss) {
            self.clear_slot(ino)?;
        }
        Ok(())
    }

    /// Says what is wrong with a map, and marks it to be written anew.
    fn take_map(&mut self, ino: u32, inode: &mut Inode) -> Result<(), DeviceError> {
        for (block, content) in std::mem::take(&mut inode.map.restored) {
            let at = format!("inode {ino}, block {block}");
            let detail = "it does not fit its checksum";
            let act = "put one byte right by the checksum, or take the journal's copy";
            if self.safe(Rule::ExtentChecksum, at, detail, act) {
                self.view.write(block, &content);
            }
        }
        if inode.map.damage.is_empty() {
            return Ok(());
        }
        let detail = inode.map.damage.join("; ");
        let extents = inode.flags.contains(InodeFlags::EXTENTS);
        let rule = if extents { Rule::ExtentHeader } else { Rule::IndirectPlace };
        let loss = match inode.map.lost {
            0 => "parts of the file, if the damage hides any".to_string(),
            lost => format!("{lost} blocks of the file or more"),
        };
        let act = "keep the blocks that can be followed, write their map anew";
        inode.rewrite = self.lossy(rule, Self::at(ino), detail, act, loss);
        Ok(())
    }

    /// A reserved inode without links whose checksum does not fit. Nothing in it is used, but for
    /// the list of bad blocks; the file system's own files are looked at elsewhere.
    fn reserved_sum(&mut self, ino: u32) -> Result<(), DeviceError> {
        let [user, group, project] = self.g.quota_inos;
        let reserve = self.g.features.compat.contains(Compat::RESIZE_INODE);
        let resize = if reserve { RESIZE_INO } else { 0 };
        let files = [self.g.journal_ino, self.g.orphan_file_ino, user, group, project, resize];
        let (rule, at) = (Rule::InodeChecksum, Self::at(ino));
        let detail = "reserved, and its checksum does not fit";
        if files.contains(&ino) {
            return Ok(());
        }
        if ino == BAD_BLOCKS_INO {
            if self.safe(rule, at, detail, "set the checksum") {
                self.edit(ino, |_| {})?;
            }
        } else if self.safe(rule, at, detail, "empty the slot") {
            self.clear_slot(ino)?;
        }
        Ok(())
    }

    /// A reserved inode without links, or the one that reserves descriptors.
    fn reserved_slot(&mut self, ino: u32, values: &InodeValues) -> Result<(), DeviceError> {
        let mut inode = Inode::new(values, FileKind::Regular, Map::default());
        inode.nameless = true;
        if ino == BAD_BLOCKS_INO && values.block.iter().any(|&byte| byte != 0) {
            inode.map = self.map(ino, values)?;
            self.take_map(ino, &mut inode)?;
        } else if ino == RESIZE_INO {
            inode.map.nodes = self.resize_blocks(values)?;
        } else {
            return Ok(());
        }
        self.inodes.insert(ino, inode);
        Ok(())
    }

    /// An inode without links is deleted, or was never used, or a name still holds it.
    fn without_links(
        &mut self,
        ino: u32,
        values: &InodeValues,
        witnessed: bool,
    ) -> Result<(), DeviceError> {
        let (Some(kind), 0) = (values.kind(), values.dtime) else {
            if values.mode != 0 && values.dtime == 0 {
                self.bury(ino, "a mode without links or time of deletion")?;
            } else if values.names_orphan(&self.g) {
                self.bury(ino, "its time of deletion is a number on no list of orphans")?;
            }
            return Ok(());
        };
        if !witnessed && !self.held.contains(&ino) {
            return self.bury(ino, "no links and no time of deletion");
        }
        let map = match kind {
            FileKind::Regular | FileKind::Directory => self.map(ino, values)?,
            FileKind::Symlink if !values.is_fast_symlink() => self.map(ino, values)?,
            _ => Map::default(),
        };
        let mut inode = Inode::new(values, kind, map);
        inode.weak = true;
        self.take_map(ino, &mut inode)?;
        self.inodes.insert(ino, inode);
        Ok(())
    }

    /// Gives an inode without links its time of deletion.
    ///
    /// # Errors
    /// The device's.
    pub fn bury(&mut self, ino: u32, why: &str) -> Result<(), DeviceError> {
        let now = self.view.now();
        if self.safe(Rule::InodeDtime, Self::at(ino), why, "set the time of deletion") {
            self.edit(ino, |values| {
                values.dtime = now;
                values.links = 0;
            })?;
        }
        Ok(())
    }

    /// Empties a slot: nothing of the inode can be kept.
    ///
    /// # Errors
    /// The device's.
    pub fn clear_slot(&mut self, ino: u32) -> Result<(), DeviceError> {
        self.inodes.remove(&ino);
        let slot = vec![0; self.g.inode_size as usize];
        self.put_slot(ino, &slot)
    }
}
