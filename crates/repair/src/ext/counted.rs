//! Light damage: where only counts, bitmaps and names of nothing are wrong, what one check has
//! counted is enough. No inode is read again, and memory is that of the check.

use std::collections::{BTreeMap, BTreeSet};

use base::{Ino, bitmap};
use block::DeviceError;
use ext4::format::{At, dir};
use ext4::{CheckReport, Counted, Rule};

use super::connect::LINK_MAX;
use super::dirs::{REWRITE, by_rule};
use super::inodes::EMPTY_SLOT;
use super::{FINDINGS_MAX, Fs};
use crate::RepairError;

/// The rules whose violation says nothing about the structures that the counts come from.
const COUNTED: &[Rule] = &[
    Rule::SuperErrorState,
    Rule::SuperNotClean,
    Rule::SuperFreeBlocks,
    Rule::SuperFreeInodes,
    Rule::GroupFreeBlocks,
    Rule::GroupFreeInodes,
    Rule::GroupDirectories,
    Rule::BlockBitmapChecksum,
    Rule::InodeBitmapChecksum,
    Rule::BlockBitmapPadding,
    Rule::InodeBitmapPadding,
    Rule::BlockBitmapMissing,
    Rule::BlockBitmapLeaked,
    Rule::InodeBitmapMissing,
    Rule::InodeBitmapLeaked,
    Rule::DirEntryUnused,
    Rule::InodeLinks,
];

/// Damage that the counts of a check are enough for.
pub struct Light {
    counted: Counted,
    /// Directories, and their blocks with names of inodes that are not in use.
    unused: BTreeMap<u32, BTreeSet<u64>>,
}

impl Light {
    /// None where a check found something else.
    pub fn of(report: &CheckReport, counted: Option<Counted>) -> Option<Light> {
        let counted = counted.filter(|_| report.more == 0)?;
        let mut unused: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for finding in &report.findings {
            match (finding.rule, finding.at) {
                (Rule::DirEntryUnused, At::Block(dir, block)) => {
                    unused.entry(dir.0 as u32).or_default().insert(block);
                }
                (Rule::DirEntryUnused, _) => return None,
                (rule, _) if COUNTED.contains(&rule) => {}
                _ => return None,
            }
        }
        Some(Light { counted, unused })
    }
}

impl Fs<'_> {
    /// Repairs light damage; false where the passes over all inodes are needed after all.
    ///
    /// # Errors
    /// The device's.
    pub fn take_counts(&mut self, light: Light) -> Result<bool, RepairError> {
        let Light { mut counted, unused } = light;
        if self.lost_slots(&counted, !unused.is_empty())? {
            return Ok(false);
        }
        let links = counted.wrong_links();
        let Some(links) = links.filter(|all| all.iter().all(|one| one.counted < LINK_MAX)) else {
            return Ok(false);
        };
        for (dir, blocks) in unused {
            if !self.drop_unused(dir, &blocks, &counted)? {
                return Ok(false);
            }
        }
        for wrong in links {
            let (ino, links) = (wrong.ino.0 as u32, wrong.counted as u16);
            if !self.count_links(ino, wrong.found, links) {
                return Ok(false);
            }
            self.edit(ino, |values| values.links = links)?;
            counted.set_links(wrong.ino, links);
        }
        self.counted = Some(counted);
        let done = self.totals();
        let counted = self.counted.take().expect("it was put there");
        done?;
        let (_, queue) = self.view.overlay()?;
        let report = counted.check_again(self.view.cx(), &queue, FINDINGS_MAX)?;
        Ok(report.findings.is_empty())
    }

    /// Restores inodes that the bitmaps mark and whose slots are empty, where the journal has them;
    /// true where there is one. Where names name inodes that are gone, a bitmap that was
    /// overwritten may have marked them.
    fn lost_slots(&mut self, counted: &Counted, names_lost: bool) -> Result<bool, DeviceError> {
        let mut restored = false;
        for group in 0..self.g.groups_count {
            let mut marked = self.inode_bitmap(group)?;
            if names_lost && !self.is_believed(group, &marked) {
                marked.fill(0xff);
            }
            for (index, _) in counted.inodes(group) {
                bitmap::clear(&mut marked, index as usize);
            }
            let (mut bit, end) = (0, self.g.inodes_per_group as usize);
            while let Some(index) = bitmap::find_next_set(&marked, bit, end) {
                bit = index + 1;
                let ino = group * self.g.inodes_per_group + index as u32 + 1;
                let reserved = ino < self.g.first_ino || self.is_system(ino);
                if !reserved && self.slot(ino)?.iter().all(|&byte| byte == 0) {
                    restored |= self.old_slot(ino, EMPTY_SLOT)?.is_some();
                }
            }
        }
        Ok(restored)
    }

    /// Removes the names of inodes that are not in use from blocks of a directory; false where one
    /// of them may be in use, or may stay.
    fn drop_unused(
        &mut self,
        dir: u32,
        blocks: &BTreeSet<u64>,
        counted: &Counted,
    ) -> Result<bool, DeviceError> {
        let values = self.values(dir)?;
        let layout = self.layout_of(values.flags);
        let inodes = 1..=self.g.inodes_count;
        let is_unused = |entry: &dir::Entry<'_>| {
            let known = inodes.contains(&entry.ino) && counted.has_names(Ino(entry.ino.into()));
            !known && entry.name != b"." && entry.name != b".."
        };
        let (mut problems, mut written) = (Vec::new(), Vec::new());
        for &block in blocks {
            let mut data = self.view.read(block)?;
            while let Some(found) = dir::find_by(&data, layout, is_unused) {
                let mut entries = dir::entries(&data, layout);
                let named = entries.find(|entry| entry.offset == found.offset);
                let name = String::from_utf8_lossy(named.map_or(&[][..], |entry| entry.name));
                let detail = format!("{name:?} names inode {}, which is not in use", found.ino);
                problems.push((Rule::DirEntryUnused, detail, Some(format!("the name {name:?}"))));
                if !inodes.contains(&found.ino) || self.may_exist(found.ino)? {
                    return Ok(false);
                }
                dir::remove(&mut data, layout, &found);
            }
            written.push((block, data));
        }
        for (rule, detail, loss) in by_rule(&problems) {
            let loss = loss.expect("a name is lost");
            if !self.lossy(rule, Self::at(dir), detail, REWRITE, loss) {
                return Ok(false);
            }
        }
        for (block, mut data) in written {
            if layout.checksum {
                dir::set_checksum(self.seed(dir, values.generation), &mut data);
            }
            self.view.write(block, &data);
            if dir::check(&data, layout, self.g.inodes_count).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
