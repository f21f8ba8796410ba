//! Which features a new file system has, and the fields that follow from them.

use super::options::Creator;
use super::{FsType, MkfsError, MkfsOptions};
use crate::format::features::{Access, Compat, Incompat, RoCompat, Set};
use crate::format::super_block::FLAG_SIGNED_HASH;
use crate::format::{Features, RawSuper};

/// Groups per flexible group, as a power of two.
const LOG_FLEX: u8 = 4;
/// `s_flags`: may be mounted by experimental code.
const FLAG_TEST_FS: u32 = 4;

/// The features asked for, checked and completed.
pub fn choose_features(options: &MkfsOptions) -> Result<Features, MkfsError> {
    let mut features = options.fstype.default_features();
    let external = options.external_journal.is_some();
    features
        .compat
        .set(Compat::HAS_JOURNAL, features.compat.contains(Compat::HAS_JOURNAL) || external);
    let newest = options.newest_features && options.fstype == FsType::Ext4;
    if newest {
        features.edit("metadata_csum_seed,orphan_file")?;
    }
    features.edit(&options.features)?;
    if newest && !features.compat.contains(Compat::HAS_JOURNAL) {
        features.compat -= Compat::ORPHAN_FILE;
    }
    if newest && !features.metadata_csum() {
        features.incompat -= Incompat::CSUM_SEED;
    }
    features.incompat.set(
        Incompat::CASEFOLD,
        features.incompat.contains(Incompat::CASEFOLD) || options.encoding.is_some(),
    );
    features.ro_compat.set(
        RoCompat::PROJECT,
        features.ro_compat.contains(RoCompat::PROJECT) || options.quota_kinds.is_some_and(|k| k[2]),
    );
    if options.creator == Creator::Hurd {
        // They use fields of inodes and of entries that the Hurd uses otherwise.
        features.incompat -= Incompat::FILETYPE | Incompat::CSUM_SEED;
        features.ro_compat -= RoCompat::HUGE_FILE | RoCompat::METADATA_CSUM;
    }
    if options.revision_0 {
        return Ok(Features::default());
    }
    refuse_conflicts(&mut features, options)?;
    Ok(features)
}

/// Whether they go together.
fn refuse_conflicts(features: &mut Features, options: &MkfsOptions) -> Result<(), MkfsError> {
    let external = options.external_journal.is_some();
    let (access, reasons) = features.access();
    if access != Access::ReadWrite {
        return Err(MkfsError::Feature(reasons[0].name.clone()));
    }
    if features.incompat.contains(Incompat::DIRDATA) {
        return Err(MkfsError::Feature("dirdata".to_string()));
    }
    let has = |set: Set, bit: u32| features.bits().any(|found| found == (set, bit));
    if has(Set::Incompat, 2) {
        return Err(MkfsError::Feature("needs_recovery".to_string()));
    }
    if has(Set::RoCompat, 16) {
        return Err(MkfsError::Feature("orphan_present".to_string()));
    }
    if features.metadata_csum() {
        features.ro_compat -= RoCompat::GDT_CSUM;
    }
    if features.incompat.contains(Incompat::CSUM_SEED) && !features.metadata_csum() {
        return Err(MkfsError::FeatureConflict("metadata_csum_seed needs metadata_csum"));
    }
    let journal = features.compat.contains(Compat::HAS_JOURNAL);
    if external && !journal {
        return Err(MkfsError::FeatureConflict("an external journal needs has_journal"));
    }
    if external && options.journal_size.is_some() {
        return Err(MkfsError::FeatureConflict("an external journal has the size of its device"));
    }
    if features.compat.contains(Compat::ORPHAN_FILE) && !journal {
        return Err(MkfsError::FeatureConflict("orphan_file needs has_journal"));
    }
    if features.ro_compat.contains(RoCompat::PROJECT) && options.inode_size == Some(128) {
        return Err(MkfsError::FeatureConflict("project needs inodes of 256 bytes"));
    }
    if features.incompat.contains(Incompat::INLINE_DATA) && options.inode_size == Some(128) {
        return Err(MkfsError::FeatureConflict("inline_data needs inodes of 256 bytes"));
    }
    let resize = features.compat.contains(Compat::RESIZE_INODE);
    if resize && features.incompat.contains(Incompat::META_BG) {
        return Err(MkfsError::FeatureConflict("meta_bg needs ^resize_inode"));
    }
    if resize && !features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
        return Err(MkfsError::FeatureConflict("resize_inode needs sparse_super"));
    }
    let flex = features.incompat.contains(Incompat::FLEX_BG);
    if flex && options.fstype == FsType::Ext2 && features.ro_compat.is_empty() {
        return Err(MkfsError::FeatureConflict("flex_bg needs a feature of revision 1"));
    }
    if features.ro_compat.contains(RoCompat::BIGALLOC)
        && !features.incompat.contains(Incompat::EXTENTS)
    {
        return Err(MkfsError::FeatureConflict("bigalloc needs extent"));
    }
    Ok(())
}

/// Fields that follow from features.
///
/// # Errors
/// What the options say of a feature that is not there, or is out of range.
pub fn fill_features(
    raw: &mut RawSuper,
    features: &Features,
    options: &MkfsOptions,
) -> Result<(), MkfsError> {
    raw.s_def_hash_version = 1;
    let test = if options.test_fs { FLAG_TEST_FS } else { 0 };
    raw.s_flags.set(FLAG_SIGNED_HASH | test);
    // mke2fs leaves the size of descriptors behind when it takes the features away.
    let left = options.revision_0 && options.fstype == FsType::Ext4;
    if features.incompat.contains(Incompat::SIXTY_FOUR_BIT) || left {
        raw.s_desc_size.set(64);
    }
    if features.incompat.contains(Incompat::ENCRYPT) {
        // AES-256-XTS and AES-256-CTS, which nobody asks for.
        raw.s_encrypt_algos = [1, 4, 0, 0];
    }
    let flex = features.incompat.contains(Incompat::FLEX_BG);
    match options.groups_per_flex {
        Some(groups) if !groups.is_power_of_two() => return Err(MkfsError::FlexSize(groups)),
        Some(_) if !flex => {
            return Err(MkfsError::FeatureConflict("groups of groups need flex_bg"));
        }
        Some(groups) => raw.s_log_groups_per_flex = groups.trailing_zeros() as u8,
        None if flex => raw.s_log_groups_per_flex = LOG_FLEX,
        None => {}
    }
    if features.metadata_csum() {
        raw.s_checksum_type = 1;
    }
    if features.incompat.contains(Incompat::CSUM_SEED) {
        raw.s_checksum_seed.set(crate::format::checksum::uuid_seed(&raw.s_uuid));
    }
    Ok(())
}
