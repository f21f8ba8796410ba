//! What only some file systems have: a label of the root, broken blocks, protection against two
//! mounts, superblocks over an older file system.

use super::{Builder, journal};
use crate::format::inode::BASE_SIZE;
use crate::format::super_block::{STATE_CLEAN, STATE_ERROR};
use crate::format::xattr::{self, XattrArea};
use crate::format::{GroupFlags, InodeValues, mmp};
use crate::mkfs::MkfsError;

/// The inode of broken blocks.
const BAD_INO: u32 = 1;
/// Seconds between updates of multi-mount protection, at most.
const MMP_INTERVAL_MAX: u16 = 300;

impl Builder<'_> {
    /// The label of the root directory: the area of its inode, or else a block of its own.
    pub(super) fn root_selinux(
        &mut self,
        root: &mut InodeValues,
    ) -> Result<Option<Vec<u8>>, MkfsError> {
        let Some(label) = self.options.root_selinux.as_deref().filter(|label| !label.is_empty())
        else {
            return Ok(None);
        };
        let list = [xattr::Xattr {
            name_index: xattr::SECURITY_INDEX,
            name: b"selinux".to_vec(),
            value: label.as_bytes().to_vec(),
            large: None,
        }];
        let inside = BASE_SIZE + usize::from(root.extra_isize);
        let mut area = vec![0; self.g.inode_size as usize - inside];
        if xattr::emit(&mut area, XattrArea::Inode, &list) {
            // mke2fs leaves the hash out here.
            area[16..20].fill(0);
            return Ok(Some(area));
        }
        let mut content = vec![0; self.g.block_size as usize];
        if !xattr::emit(&mut content, XattrArea::Block, &list) {
            return Err(MkfsError::RootSelinux(label.len()));
        }
        let block = self.placed.take_run(0, 1).ok_or_else(|| self.full())?;
        // Nor is there a hash of all entries.
        content[12..16].fill(0);
        if self.g.checksums.metadata {
            xattr::set_checksum(&self.g.checksums, block, &mut content);
        }
        self.blocks.insert(block, content);
        root.file_acl = block;
        root.blocks += u64::from(self.g.block_size / 512 * self.g.cluster_ratio);
        // The area inside is begun all the same.
        Ok((!area.is_empty()).then(|| {
            area[..4].copy_from_slice(&xattr::MAGIC.to_le_bytes());
            area
        }))
    }

    /// Inode 1: a file of the broken blocks, mapped without extents.
    pub(super) fn bad_blocks(&mut self, list: &[u64]) -> Result<(), MkfsError> {
        let full = self.full();
        let mut mapped = journal::map_these(self.g, &mut self.placed, list).ok_or(full)?;
        // Those that map do not count here.
        mapped.blocks -= mapped.nodes.len() as u64;
        let now = self.now;
        let mut bad = InodeValues { atime: now, ctime: now, mtime: now, ..InodeValues::default() };
        bad.size = list.len() as u64 * u64::from(self.g.block_size);
        self.attach(BAD_INO, &mut bad, mapped);
        self.put_inode(BAD_INO, &bad);
        Ok(())
    }

    /// Superblocks and descriptors alone: what they count is for e2fsck, and nothing is claimed to
    /// be clean.
    pub(super) fn super_only(&mut self) {
        let g = self.g;
        let free = self.placed.count(g, self.options.release);
        self.raw.set_free_blocks(free);
        self.raw.s_free_inodes_count.set(g.inodes_count);
        self.raw.s_state.set(STATE_CLEAN | STATE_ERROR);
        for desc in &mut self.placed.descs {
            desc.free_inodes = g.inodes_per_group;
            desc.flags -= GroupFlags::INODE_ZEROED;
            if g.features.group_csum() {
                desc.flags |= GroupFlags::INODE_UNINIT;
            }
        }
        self.descriptors();
    }

    /// The block of multi-mount protection: nobody writes.
    pub(super) fn mmp_block(&mut self) -> Result<(), MkfsError> {
        let block = self.placed.take_run(0, 1).ok_or_else(|| self.full())?;
        self.raw.s_mmp_block.set(block);
        let interval = match self.options.mmp_interval {
            0 => mmp::CHECK_INTERVAL_MIN,
            interval if interval > MMP_INTERVAL_MAX => {
                return Err(MkfsError::MmpInterval(interval));
            }
            interval => interval,
        };
        self.raw.s_mmp_interval.set(interval);
        let unused = mmp::Mmp {
            sequence: mmp::CLEAN,
            time: self.now.sec as u64,
            node: String::new(),
            device: String::new(),
            check_interval: interval.max(mmp::CHECK_INTERVAL_MIN),
        };
        let seed = self.g.checksums.metadata.then_some(self.g.checksums.seed);
        unused.emit(self.block(block), seed);
        Ok(())
    }
}
