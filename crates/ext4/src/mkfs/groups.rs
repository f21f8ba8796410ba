//! Counting groups, inodes per group and the descriptors in reserve.

use super::{MkfsError, MkfsOptions};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::{Features, RawSuper, U32};
use crate::shape::LAST_GROUP_SPARE;

/// Blocks (clusters) of a group at most.
const GROUP_MAX: u64 = (1 << 16) - 8;
/// Fewest blocks of a group.
const GROUP_MIN: u32 = 256;

/// Clusters of a group at most: the counts of descriptors have 16 bits in their first half.
pub fn clusters_per_group(block_size: u32) -> u64 {
    (u64::from(block_size) * 8).min(GROUP_MAX)
}

/// What the options say of groups.
pub struct Wanted {
    /// Blocks of a group.
    per_group: u64,
    /// Blocks to which the descriptors can grow.
    resize_limit: Option<u64>,
    /// Blocks of a group, as mke2fs takes them for that limit: it forgets the clusters.
    resize_per_group: u64,
    /// Copies of the superblock with `sparse_super2`.
    backups: u8,
}

impl Wanted {
    /// Of the options.
    ///
    /// # Errors
    /// Groups that no bitmap describes, too many copies.
    pub fn asked_for(
        options: &MkfsOptions,
        block_size: u32,
        ratio: u32,
    ) -> Result<Wanted, MkfsError> {
        let limit = clusters_per_group(block_size);
        let clusters = match options.blocks_per_group {
            None => limit,
            Some(found) => {
                let fits =
                    found.is_multiple_of(8) && (GROUP_MIN.into()..=limit).contains(&found.into());
                if !fits {
                    return Err(MkfsError::GroupSize { found, limit });
                }
                found.into()
            }
        };
        if options.backup_supers > 2 {
            return Err(MkfsError::BackupSupers(options.backup_supers));
        }
        Ok(Wanted {
            per_group: clusters * u64::from(ratio),
            resize_limit: options.resize_limit.map(|limit| limit.blocks(block_size)),
            resize_per_group: clusters,
            backups: options.backup_supers,
        })
    }

    /// Descriptor blocks kept in reserve, so that the file system can grow.
    ///
    /// # Errors
    /// It is to grow to less than it has.
    fn reserved_descs(
        &self,
        blocks: u64,
        first: u64,
        per_group: u64,
        per_desc_block: u64,
    ) -> Result<u64, MkfsError> {
        let desc_blocks = (blocks - first).div_ceil(per_group).div_ceil(per_desc_block);
        let more = |most: u64, per_group: u64| {
            let groups = (most - first).div_ceil(per_group);
            groups.div_ceil(per_desc_block).saturating_sub(desc_blocks)
        };
        let usual = || more(usual_limit(blocks), per_group);
        match self.resize_limit {
            None => Ok(usual()),
            Some(limit) if limit <= blocks => Err(MkfsError::ResizeLimit { limit, blocks }),
            Some(limit) => Ok(match more(limit, self.resize_per_group) {
                // It can grow as far without any.
                0 => usual(),
                some => some,
            }),
        }
    }
}

/// Counts groups, inodes per group and reserved descriptor blocks, until all of it fits; a last
/// group that is too short for its metadata is left away. Returns the blocks that remain, and None
/// where not even the first group fits.
pub fn count_groups(
    raw: &mut RawSuper,
    mut blocks: u64,
    inodes: u32,
    wanted: &Wanted,
) -> Option<Result<u64, MkfsError>> {
    let block_size = 1024u32 << raw.s_log_block_size.get();
    let first = u64::from(raw.s_first_data_block.get());
    let mut features = raw.features();
    let desc_size = if features.incompat.contains(Incompat::SIXTY_FOUR_BIT) { 64 } else { 32 };
    let ratio = 1u64 << (raw.s_log_cluster_size.get() - raw.s_log_block_size.get());
    let mut per_group = wanted.per_group;
    let per_block = u64::from(block_size / u32::from(raw.s_inode_size.get()));
    let per_desc_block = u64::from(block_size / desc_size);
    loop {
        let groups = (blocks - first).div_ceil(per_group);
        let desc_blocks = groups.div_ceil(per_desc_block);
        let share = u64::from(inodes).div_ceil(groups);
        if share > u64::from(block_size) * 8 {
            // One bitmap does not hold them: smaller groups.
            per_group -= 8;
            if per_group < 256 || ratio > 1 {
                return Some(Err(MkfsError::TooManyInodes { inodes: inodes.into(), blocks }));
            }
            continue;
        }
        let inodes_per_group = inodes_per_group(share, per_block as u32, groups);
        let table = inodes_per_group.div_ceil(per_block);
        let resizes = features.compat.contains(Compat::RESIZE_INODE);
        let reserve = match wanted.reserved_descs(blocks, first, per_group, per_desc_block) {
            Ok(reserve) if resizes => reserve.min(u64::from(block_size / 4)),
            Err(error) if resizes => return Some(Err(error)),
            _ => 0,
        };
        let meta_bg = features.incompat.contains(Incompat::META_BG);
        if !meta_bg && desc_blocks + reserve > per_group / 4 * 3 {
            // The descriptors would fill most of the groups with copies.
            features.compat -= Compat::RESIZE_INODE;
            features.incompat |= Incompat::META_BG;
            raw.set_features(&features);
            continue;
        }
        let bookkeeping = 2 + table;
        let copies = 1 + if meta_bg { 1 } else { desc_blocks + reserve };
        let last = groups - 1;
        raw.s_backup_bgs = backup_groups(&features, groups, wanted.backups);
        let backup = features.compat.contains(Compat::SPARSE_SUPER2)
            || has_backup(last, features.ro_compat.contains(RoCompat::SPARSE_SUPER));
        let overhead = bookkeeping + if backup { copies } else { 0 };
        if bookkeeping + copies > per_group {
            return Some(Err(MkfsError::TooManyInodes { inodes: inodes.into(), blocks }));
        }
        let rest = (blocks - first) % per_group;
        if groups == 1 && rest != 0 && rest < overhead {
            return None;
        }
        if groups > 1 && rest != 0 && rest < overhead + LAST_GROUP_SPARE {
            blocks -= rest;
            continue;
        }
        raw.set_blocks_count(blocks);
        raw.s_blocks_per_group.set(per_group as u32);
        raw.s_clusters_per_group.set((per_group / ratio) as u32);
        raw.s_inodes_per_group.set(inodes_per_group as u32);
        raw.s_inodes_count.set((inodes_per_group * groups) as u32);
        raw.s_reserved_gdt_blocks.set(reserve as u16);
        return Some(Ok(blocks));
    }
}

/// The groups with a copy of the superblock, with `sparse_super2`: the second one and the last.
fn backup_groups(features: &Features, groups: u64, backups: u8) -> [U32; 2] {
    let wanted = features.compat.contains(Compat::SPARSE_SUPER2);
    let group = |from: u64, group: u64| if wanted && groups > from { group as u32 } else { 0 };
    let list = match backups {
        0 => [0; 2],
        1 => [0, group(1, 1)],
        _ => [group(2, 1), group(1, groups - 1)],
    };
    list.map(U32::new)
}

/// Whether group `group` holds a copy of the superblock.
fn has_backup(group: u64, sparse: bool) -> bool {
    let power = |base: u64| {
        let mut number = group;
        while number > 1 && number.is_multiple_of(base) {
            number /= base;
        }
        number == 1
    };
    group <= 1 || !sparse || power(3) || power(5) || power(7)
}

/// How far mke2fs lets a file system grow by itself: to 1,024 times its size, at most 2^32 blocks.
fn usual_limit(blocks: u64) -> u64 {
    let limit = u64::from(u32::MAX);
    if blocks < limit / 1024 { blocks * 1024 } else { limit }
}

/// Inodes of each group: whole table blocks, and no more than a bitmap and a count hold.
fn inodes_per_group(share: u64, per_block: u32, groups: u64) -> u64 {
    let per_block = u64::from(per_block);
    let mut inodes = (share.div_ceil(per_block) * per_block).max(8) & !7;
    if groups == 1 {
        // The reserved inodes and /lost+found must fit.
        inodes = inodes.max(16);
    }
    inodes = inodes.min(((1 << 16) - per_block) & !7);
    while inodes * groups > u64::from(u32::MAX) {
        inodes -= 8;
    }
    inodes
}
