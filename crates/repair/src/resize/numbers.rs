//! Inodes that get another number, because their group goes.

use std::collections::BTreeMap;

use base::bitmap;
use ext4::format::GroupFlags;
use ext4::format::features::{Feature, find};

use super::place::Relayout;
use crate::volume::{EditError, refuse};

/// Old and new numbers, and the inode bitmaps that change.
#[derive(Default)]
pub struct Numbers {
    numbers: BTreeMap<u32, u32>,
    maps: BTreeMap<u32, Vec<u8>>,
}

impl Numbers {
    /// The number that an inode will have.
    pub fn of(&self, ino: u32) -> u32 {
        self.numbers.get(&ino).copied().unwrap_or(ino)
    }

    /// How many get another one.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// True where none does.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The new bitmap of a group whose bitmap changes.
    pub fn map(&self, group: u32) -> Option<&Vec<u8>> {
        self.maps.get(&group)
    }
}

impl Relayout<'_> {
    /// Gives the inodes of the groups that go numbers in those that stay.
    ///
    /// # Errors
    /// Too few are free; the numbers are not to change.
    pub fn numbers(&mut self) -> Result<(), EditError> {
        let mut next = self.g.first_ino - 1;
        for group in self.kept()..self.v.g.groups_count {
            for ino in self.v.inodes_of(group)? {
                if self.has_stable_inodes() {
                    return refuse(format!(
                        "inode {ino} would get another number, which stable_inodes forbids"
                    ));
                }
                next = self.free_number(next)?;
                self.numbers.numbers.insert(ino, next + 1);
            }
        }
        Ok(())
    }

    /// Takes the first free number for a new inode.
    ///
    /// # Errors
    /// None is free.
    pub fn new_number(&mut self) -> Result<u32, EditError> {
        Ok(self.free_number(self.g.first_ino - 1)? + 1)
    }

    /// Gives back the number of an inode that is no directory.
    ///
    /// # Errors
    /// A damaged bitmap.
    pub fn free_number_of(&mut self, ino: u32) -> Result<(), EditError> {
        let per = self.g.inodes_per_group;
        let (group, bit) = ((ino - 1) / per, (ino - 1) % per);
        bitmap::clear(self.load_numbers(group)?, bit as usize);
        self.descs[group as usize].free_inodes += 1;
        Ok(())
    }

    /// The new inode bitmap of a group.
    fn load_numbers(&mut self, group: u32) -> Result<&mut Vec<u8>, EditError> {
        if !self.numbers.maps.contains_key(&group) {
            let map = self.v.inode_bitmap(group)?;
            self.numbers.maps.insert(group, map);
        }
        Ok(self.numbers.maps.get_mut(&group).expect("just read"))
    }

    fn has_stable_inodes(&self) -> bool {
        let Some(&Feature { set, bit, .. }) = find("stable_inodes") else { return false };
        self.g.features.bits().any(|found| found == (set, bit))
    }

    /// Takes the first free number from index `from` on (that of inode 1 is 0); answers its index.
    fn free_number(&mut self, from: u32) -> Result<u32, EditError> {
        let per = self.g.inodes_per_group;
        let mut index = from;
        while index < self.g.inodes_count {
            let (group, bit) = (index / per, index % per);
            let map = self.load_numbers(group)?;
            let Some(free) = bitmap::find_next_zero(map, bit as usize, per as usize) else {
                index = (group + 1) * per;
                continue;
            };
            bitmap::set(map, free);
            self.count_number(group, free as u32)?;
            return Ok(group * per + free as u32);
        }
        let text = "the groups that stay have too few free inodes";
        Err(EditError::NoRoom(text.into()))
    }

    /// The descriptor of a group with one more inode in use; the slots before it are emptied.
    fn count_number(&mut self, group: u32, index: u32) -> Result<(), EditError> {
        let per = self.g.inodes_per_group;
        let lazy = self.g.features.group_csum();
        let desc = &mut self.descs[group as usize];
        desc.free_inodes = desc.free_inodes.saturating_sub(1);
        if !lazy {
            return Ok(());
        }
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            desc.flags -= GroupFlags::INODE_UNINIT;
            desc.itable_unused = per;
        }
        let unused = per - desc.itable_unused;
        if index < unused {
            return Ok(());
        }
        desc.itable_unused = per - 1 - index;
        let empty = vec![0; self.g.inode_size as usize];
        for slot in unused..=index {
            self.put_slot(group * per + slot + 1, &empty)?;
        }
        Ok(())
    }
}
