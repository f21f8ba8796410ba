//! Blocks of the inode tables that lie in the place of another: the checksum of each inode says
//! whose it is.

use std::collections::{BTreeMap, BTreeSet};

use block::DeviceError;
use ext4::Rule;

use crate::ext::Fs;

/// Checksums that are tried, at most, to find where blocks belong.
const TRIES: u64 = 1 << 24;

/// A block of the inode tables, by the number of its first inode.
type First = u32;

impl Fs<'_> {
    /// Puts blocks of the inode tables back where their inodes belong. What a copy lay over is
    /// emptied: no inode gets the content of another.
    ///
    /// # Errors
    /// The device's.
    pub fn strayed_tables(&mut self) -> Result<(), DeviceError> {
        if !self.g.checksums.metadata {
            return Ok(());
        }
        let mut suspects = BTreeSet::new();
        for (&ino, rules) in &self.suspects.inodes {
            if rules.contains(&Rule::InodeChecksum) {
                suspects.extend(self.first_beside(ino));
            }
        }
        let mut strays = BTreeMap::new();
        for &first in &suspects {
            let content = self.view.read(self.block_of(first))?;
            if self.slots_fit(first, &content, |fits| !fits) {
                strays.insert(first, content);
            }
        }
        let tables = self.g.inodes_count / self.g.inodes_per_block;
        if strays.len() as u64 * u64::from(tables) > TRIES {
            return Ok(());
        }
        let homes: Vec<(First, First)> = strays
            .iter()
            .filter_map(|(&here, content)| Some((here, self.home_of_slots(content)?)))
            .collect();
        let mut filled = BTreeSet::new();
        for &(here, home) in &homes {
            let there = self.view.read(self.block_of(home))?;
            let gone = strays.contains_key(&home) || there.iter().all(|&byte| byte == 0);
            let detail = format!("the inodes of {}", Self::at(here));
            let act = "put them back into their place";
            if gone && self.safe(Rule::InodeChecksum, Self::at(home), detail, act) {
                self.view.write(self.block_of(home), &strays[&here]);
                filled.insert(home);
            }
        }
        for (here, home) in homes {
            let detail =
                format!("the inodes of {} lie over it and those behind it", Self::at(home));
            let (act, loss) = ("empty the block", "the inodes that were there");
            if !filled.contains(&here)
                && self.lossy(Rule::InodeChecksum, Self::at(here), detail, act, loss)
            {
                let empty = vec![0; self.g.block_size as usize];
                self.view.write(self.block_of(here), &empty);
            }
        }
        Ok(())
    }

    /// Whether a slot has the checksum of another inode, a copy of which lies over it: it is
    /// cleared then.
    ///
    /// # Errors
    /// The device's.
    pub fn lies_below_another(&mut self, ino: u32, slot: &[u8]) -> Result<bool, DeviceError> {
        let Some(other) = self.other_in_slot(ino, slot) else { return Ok(false) };
        let detail = format!("a copy of inode {other} lies over it");
        let (act, loss) = ("clear it", "the inode and its content");
        if self.lossy(Rule::InodeChecksum, Self::at(ino), detail, act, loss) {
            self.clear_slot(ino)?;
        }
        Ok(true)
    }

    /// The inode whose checksum a slot has in the place of `ino`.
    fn other_in_slot(&mut self, ino: u32, slot: &[u8]) -> Option<u32> {
        let tables = u64::from(self.g.inodes_count / self.g.inodes_per_block);
        let first = self.first_beside(ino)?;
        if !self.g.checksums.metadata || self.tries + tables > TRIES {
            return None;
        }
        self.tries += tables;
        let mut others = self.firsts().map(|other| other + (ino - first));
        others.find(|&other| other != ino && self.slot_trusted(other, slot))
    }

    /// The first inodes of all blocks of the tables.
    fn firsts(&self) -> impl Iterator<Item = First> + use<> {
        let (groups, all) = (self.g.groups_count, self.g.inodes_per_group);
        let per_block = self.g.inodes_per_block as usize;
        (0..groups).flat_map(move |group| {
            (0..all).step_by(per_block).map(move |index| group * all + index + 1)
        })
    }

    fn block_of(&self, first: First) -> u64 {
        self.slot_place(first) / u64::from(self.g.block_size)
    }

    /// The first inode in the block of this one.
    fn first_beside(&self, ino: u32) -> Option<First> {
        let index = ino.checked_sub(1).filter(|_| ino <= self.g.inodes_count)?;
        let index = index % self.g.inodes_per_group;
        Some(ino - index % self.g.inodes_per_block)
    }

    /// Where all inodes of a block have the right checksums.
    fn home_of_slots(&self, content: &[u8]) -> Option<First> {
        self.firsts().find(|&first| self.slots_fit(first, content, |fits| fits))
    }

    /// Is it so of all slots that hold something, and is there one?
    fn slots_fit(&self, first: First, content: &[u8], so: impl Fn(bool) -> bool) -> bool {
        let size = self.g.inode_size as usize;
        let per_block = self.g.inodes_per_block as usize;
        let mut slots = (first..)
            .zip(content.chunks_exact(size).take(per_block))
            .filter(|(_, slot)| slot.iter().any(|&byte| byte != 0))
            .peekable();
        slots.peek().is_some() && slots.all(|(ino, slot)| so(self.slot_trusted(ino, slot)))
    }
}
