//! Blocks of the inode tables, and inodes, that lie in the place of another: the checksum of each
//! inode says whose it is.

use std::collections::{BTreeMap, BTreeSet};

use base::crc::crc32c_word;
use base::unit::SECTOR_SIZE;
use base::{Ino, bitmap};
use block::DeviceError;
use ext4::Rule;
use ext4::format::InodeValues;
use ext4::format::inode::BASE_SIZE;

use super::{slot_stored, slot_sum};
use crate::ext::Fs;

/// Checksums that are tried, at most, to find where blocks belong.
const TRIES: u64 = 1 << 24;
/// Bytes of the generation, which is summed after an inode's number.
const GENERATION: usize = 4;

/// A block of the inode tables, by the number of its first inode.
type First = u32;

/// The inode of another place.
struct Stray {
    /// Whose it is.
    home: u32,
    /// Byte of the file system where it lies.
    place: u64,
    /// The inodes over whose slots it lies, the first and the last.
    over: [u32; 2],
    slot: Vec<u8>,
}

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
        let mut strays = BTreeMap::new();
        for first in self.suspect_blocks() {
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

    /// Puts inodes that lie in the place of others, as where sectors were swapped or a table was
    /// moved, back where they belong, and notes what they lie over. The number of an inode is under
    /// its checksum, and is what makes the checksum right: it is computed, not looked for.
    ///
    /// # Errors
    /// The device's.
    pub fn strayed_slots(&mut self) -> Result<(), DeviceError> {
        self.overlain.clear();
        if !self.g.checksums.metadata || self.g.inode_size as usize <= BASE_SIZE {
            return Ok(());
        }
        let mut strays = Vec::new();
        for first in self.suspect_blocks() {
            self.strays_in(first, &mut strays)?;
        }
        strays.sort_by_key(|stray| (stray.home, stray.place));
        let mut homes: BTreeSet<u32> = BTreeSet::new();
        let mut moved: Vec<Vec<&Stray>> = Vec::new();
        for stray in &strays {
            let Some(missed) = self.is_missed(stray)? else { continue };
            self.overlain.extend(stray.over.map(|here| (here, stray.home)));
            if !missed || !homes.insert(stray.home) {
                continue;
            }
            let size = u64::from(self.g.inode_size);
            let goes_on =
                |last: &Stray| last.home + 1 == stray.home && last.place + size == stray.place;
            match moved.last_mut().filter(|run| run.last().is_some_and(|last| goes_on(last))) {
                Some(run) => run.push(stray),
                None => moved.push(vec![stray]),
            }
        }
        for run in moved {
            let (first, last) = (run[0], run[run.len() - 1]);
            let detail = match run.len() {
                1 => format!("it lies at byte {}", first.place),
                _ => format!("it and those up to {} lie from byte {} on", last.home, first.place),
            };
            let act = "put them back into their place";
            if self.safe(Rule::InodeChecksum, Self::at(first.home), detail, act) {
                for stray in run {
                    self.put_slot(stray.home, &stray.slot)?;
                }
            }
        }
        Ok(())
    }

    /// Blocks of the tables in which the check met an inode whose checksum does not fit.
    fn suspect_blocks(&self) -> BTreeSet<First> {
        let wrong =
            self.suspects.inodes.iter().filter(|(_, rules)| rules.contains(&Rule::InodeChecksum));
        wrong.filter_map(|(&ino, _)| self.first_beside(ino)).collect()
    }

    /// The inodes of others in a block of the tables, at each sector or slot. One that is larger
    /// than a sector may go on in the next block.
    fn strays_in(&mut self, first: First, strays: &mut Vec<Stray>) -> Result<(), DeviceError> {
        let (start, size) = (self.slot_place(first), self.g.inode_size as usize);
        let bytes = self.g.block_size as usize;
        let more = if size > SECTOR_SIZE as usize { size } else { 0 };
        let end = self.view.blocks() * self.g.block_size as u64;
        let len = (bytes + more).min((end - start) as usize);
        let content = self.view.read_bytes(start, len)?;
        for at in (0..bytes).step_by(size.min(SECTOR_SIZE as usize)) {
            let Some(slot) = content.get(at..at + size) else { break };
            let here = first + (at / size) as u32;
            if at % size == 0 && self.slot_trusted(here, slot) {
                continue;
            }
            let home = self.home_of(here, slot);
            let place = start + at as u64;
            if let Some(home) = home.filter(|&home| self.slot_place(home) != place) {
                let last = first + (at + size - 1) as u32 / size as u32;
                strays.push(Stray { home, place, over: [here, last], slot: slot.to_vec() });
            }
        }
        Ok(())
    }

    /// The number that makes the checksum of a slot right, where it is one of an inode; `near` is
    /// any other one.
    fn home_of(&self, near: u32, slot: &[u8]) -> Option<u32> {
        let extra = u16::from_le_bytes([slot[BASE_SIZE], slot[BASE_SIZE + 1]]);
        if extra < 4 {
            return None;
        }
        let gap = slot_sum(&self.g, near, slot) ^ slot_stored(slot);
        let home = near ^ crc32c_word(gap, GENERATION + slot.len());
        let known = (1..=self.g.inodes_count).contains(&home);
        let of_it = || InodeValues::parse(slot, Ino(home.into()), &self.g);
        (known && of_it().is_ok_and(|values| values.kind().is_some())).then_some(home)
    }

    /// Whether the place of a stray lacks it; None where nothing there says that it is one: a sum
    /// may fit by chance.
    fn is_missed(&mut self, stray: &Stray) -> Result<Option<bool>, DeviceError> {
        let home = stray.home;
        let there = self.slot(home)?;
        let empty = there.iter().all(|&byte| byte == 0);
        if !empty && self.slot_trusted(home, &there) {
            let same =
                InodeValues::generation_of(&there) == InodeValues::generation_of(&stray.slot);
            return Ok(same.then_some(false));
        }
        let group = (home - 1) / self.g.inodes_per_group;
        let index = ((home - 1) % self.g.inodes_per_group) as usize;
        let map = self.inode_bitmap(group)?;
        let wanted = self.suspects.inodes.contains_key(&home)
            || bitmap::test(&map, index)
            || !self.is_believed(group, &map);
        Ok(wanted.then_some(true))
    }

    /// Whether the inode of another lies over a slot: it is cleared then.
    ///
    /// # Errors
    /// The device's.
    pub fn lies_below_another(&mut self, ino: u32) -> Result<bool, DeviceError> {
        let Some(&other) = self.overlain.get(&ino) else { return Ok(false) };
        let detail = format!("a copy of inode {other} lies over it");
        let (act, loss) = ("clear it", "the inode and its content");
        if self.lossy(Rule::InodeChecksum, Self::at(ino), detail, act, loss) {
            self.clear_slot(ino)?;
        }
        Ok(true)
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
