//! The device of an external journal: a superblock and an empty log.
//!
//! Source: images of mke2fs, observed.

use jbd2::format::Superblock;
use zerocopy::IntoBytes;

use super::shape::{self, Room};
use super::{MkfsError, MkfsOptions, MkfsReport, Plan, Surroundings, groups};
use crate::format::features::{Incompat, RoCompat};
use crate::format::super_block::SUPER_OFFSET;
use crate::format::{Features, RawSuper};
use crate::journal_device::JournalDevice;

/// The fewest blocks of a journal.
const BLOCKS_MIN: u64 = 1024;

/// Whether the options name the feature `journal_dev`.
///
/// # Errors
/// A feature that is not known.
pub fn is_wanted(options: &MkfsOptions) -> Result<bool, MkfsError> {
    let mut features = Features::default();
    features.edit(&options.features)?;
    Ok(features.incompat.contains(Incompat::JOURNAL_DEV))
}

/// The features: those of the type are a file system's.
fn choose_features(options: &MkfsOptions) -> Result<Features, MkfsError> {
    let mut features = Features::default();
    features.edit(&options.features)?;
    let mut rest = features;
    rest.incompat -= Incompat::JOURNAL_DEV;
    rest.ro_compat -= RoCompat::METADATA_CSUM;
    if rest.bits().next().is_some() {
        return Err(MkfsError::FeatureConflict("journal_dev goes with metadata_csum alone"));
    }
    if options.external_journal.is_some() || options.journal_size.is_some() {
        return Err(MkfsError::FeatureConflict(
            "journal_dev makes a journal that fills its device",
        ));
    }
    Ok(features)
}

/// Decides everything.
///
/// # Errors
/// Options that make no journal; too few blocks, or too many for 32 bits.
pub fn plan_device(options: &MkfsOptions, around: &Surroundings) -> Result<Plan, MkfsError> {
    let features = choose_features(options)?;
    let Room { block_size, blocks, .. } = Room::of(options, around)?;
    let limit = u32::MAX.into();
    if !(BLOCKS_MIN..=limit).contains(&blocks) {
        return Err(MkfsError::JournalSize { blocks, limit });
    }
    let mut raw = RawSuper::zeroed();
    shape::fill_constant(&mut raw, options, around)?;
    shape::fill_sizes(&mut raw, block_size, 1, shape::choose_inode_size(options, block_size)?);
    raw.set_features(&features);
    raw.s_blocks_count_lo.set(blocks as u32);
    let per_group = groups::clusters_per_group(block_size) as u32;
    raw.s_blocks_per_group.set(per_group);
    raw.s_clusters_per_group.set(per_group);
    raw.s_def_hash_version = 1;
    raw.s_checksum_type = u8::from(features.metadata_csum());
    raw.set_checksum();

    let size = u64::from(block_size);
    let mut head = vec![0; (2 * SUPER_OFFSET).max(size) as usize];
    head[SUPER_OFFSET as usize..][..1024].copy_from_slice(raw.as_bytes());
    let place = JournalDevice::log_block(block_size);
    let mut log = Superblock::new(block_size, blocks as u32, raw.s_uuid);
    log.first = place as u32 + 1;
    log.users.clear();
    let mut bytes = vec![0; block_size as usize];
    log.emit(&mut bytes);
    let report = MkfsReport {
        block_size,
        blocks_count: blocks,
        inodes_count: 0,
        groups_count: 0,
        journal_blocks: blocks as u32,
        backups: Vec::new(),
        uuid: raw.s_uuid,
        features,
    };
    let zeroes = vec![(0, blocks * size)];
    Ok(Plan { zeroes, writes: vec![(place * size, bytes)], head, super_only: false, report })
}
