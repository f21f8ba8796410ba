//! Free blocks and inodes, for what a repair has to put somewhere.

use base::bitmap;
use block::DeviceError;
use ext4::format::GroupFlags;

use super::Fs;

impl Fs<'_> {
    /// Takes a free block, near `goal` if there is one: at first one that no bitmap marks, so that
    /// what may be somebody's lost data stays. With clusters it is the first block of a free one,
    /// which is taken as a whole. None where the file system is full.
    ///
    /// # Errors
    /// The device's.
    pub fn take_block(&mut self, goal: u64) -> Result<Option<u64>, DeviceError> {
        let groups = self.g.groups_count;
        let first = self.g.group_of_block(goal).map_or(0, |(group, _)| group);
        for polite in [true, false] {
            for step in 0..groups {
                let group = ((u64::from(first) + u64::from(step)) % u64::from(groups)) as u32;
                if let Some(block) = self.free_in_group(group, polite)? {
                    self.used.set_run(block..block + u64::from(self.g.cluster_ratio));
                    return Ok(Some(block));
                }
            }
        }
        Ok(None)
    }

    fn free_in_group(&mut self, group: u32, polite: bool) -> Result<Option<u64>, DeviceError> {
        let desc = self.descs[group as usize];
        let start = self.g.group_first_block(group);
        let count = self.g.clusters_in_group(group) as usize;
        let uninit = desc.flags.contains(GroupFlags::BLOCK_UNINIT) && self.g.features.group_csum();
        let map = match polite && !uninit {
            true => self.view.read(desc.block_bitmap)?,
            false => vec![0; self.g.block_size as usize],
        };
        let mut bit = 0;
        while let Some(free) = bitmap::find_next_zero(&map, bit, count) {
            let block = start + ((free as u64) << self.g.cluster_bits());
            if !self.used.get(block) && !self.meta.get(block) {
                return Ok(Some(block));
            }
            bit = free + 1;
        }
        Ok(None)
    }

    /// Takes an inode number that nothing uses. None where there is none.
    ///
    /// # Errors
    /// The device's.
    pub fn take_ino(&mut self) -> Result<Option<u32>, DeviceError> {
        for ino in self.g.first_ino..=self.g.inodes_count {
            if self.inodes.contains_key(&ino) || self.is_system(ino) {
                continue;
            }
            let (group, _) = self.g.inode_group(base::Ino(ino.into())).expect("in range");
            let slot = self.slot(ino)?;
            if slot.iter().all(|&byte| byte == 0) || self.deleted(&slot) {
                self.whole.insert(group);
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    fn deleted(&self, slot: &[u8]) -> bool {
        let values = ext4::format::InodeValues::read(slot, &self.g);
        values.links == 0 && (values.dtime != 0 || values.mode == 0)
    }
}
