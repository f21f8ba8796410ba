//! Label, UUID, defaults and features of a sound ext2, ext3 or ext4: the plan of a change.
//!
//! As for a resize, [`plan`] only reads, [`LayoutPlan::prepare`] writes zeros into free blocks, the
//! check judges the result, and an undo file carries the rest.
//!
//! Source of the rules: tune2fs(8), and tune2fs 1.47 observed; kernel
//! `Documentation/filesystems/ext4/super.rst` for the numbers.

use std::sync::Arc;

use block::Queue;
use ext4::ExternalJournal;
use ext4::format::casefold::Encoding;
use ext4::format::features::{Compat, Incompat, RoCompat};
use ext4::format::{Geometry, RawSuper};
use ext4::mkfs::Span;
use rt::Cx;
use zerocopy::IntoBytes;

use crate::resize::place::Relayout;
use crate::resize::{LayoutPlan, ResizePlan};
use crate::volume::{EditError, Effort, Volume, refuse};

mod files;
mod journal;
mod sums;
mod types;
mod unshare;

/// Default mount options by their names in tune2fs(8): mask and bits.
const MOUNT_OPTIONS: [(&str, u32, u32); 12] = [
    ("debug", 0x1, 0x1),
    ("bsdgroups", 0x2, 0x2),
    ("user_xattr", 0x4, 0x4),
    ("acl", 0x8, 0x8),
    ("uid16", 0x10, 0x10),
    ("journal_data", 0x60, 0x20),
    ("journal_data_ordered", 0x60, 0x40),
    ("journal_data_writeback", 0x60, 0x60),
    ("nobarrier", 0x100, 0x100),
    ("block_validity", 0x200, 0x200),
    ("discard", 0x400, 0x400),
    ("nodelalloc", 0x800, 0x800),
];

/// Features that are a bit in the superblock and nothing else: may they be set, and cleared?
const PLAIN: [(&str, bool, bool); 14] = [
    ("dir_index", true, true),
    ("large_dir", true, false),
    ("ea_inode", true, false),
    ("encrypt", true, false),
    ("casefold", true, true),
    ("verity", true, false),
    ("extent", true, false),
    ("large_file", true, true),
    ("huge_file", true, true),
    ("dir_nlink", true, true),
    ("fast_commit", true, true),
    ("stable_inodes", true, false),
    ("read-only", true, true),
    ("sparse_super", false, false),
];

/// Features that need more than the bit: may they be set, and cleared?
const REWRITTEN: [(&str, bool, bool); 11] = [
    ("filetype", true, true),
    ("metadata_csum", true, true),
    ("uninit_bg", true, true),
    ("metadata_csum_seed", true, true),
    ("has_journal", true, true),
    ("shared_blocks", false, true),
    ("mmp", true, true),
    ("quota", true, true),
    ("project", true, true),
    ("orphan_file", true, true),
    ("resize_inode", false, true),
];

/// Words of `-Q` for users, groups and projects.
const QUOTA_WORDS: [[&str; 2]; 3] = [["usrquota", "usr"], ["grpquota", "grp"], ["prjquota", "prj"]];

/// What is done where errors are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum OnErrors {
    /// Go on.
    Continue = 1,
    /// Become read-only.
    RemountRo = 2,
    /// Stop the machine.
    Panic = 3,
}

/// How many blocks only root may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reserved {
    /// A share in percent, 0 to 50.
    Percent(f64),
    /// So many.
    Blocks(u64),
}

/// What is wanted; None and empty leave it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TuneOptions {
    /// At most 16 bytes.
    pub label: Option<Vec<u8>>,
    /// The UUID.
    pub uuid: Option<[u8; 16]>,
    /// Blocks for root.
    pub reserved: Option<Reserved>,
    /// User and group that may use them as well.
    pub reserved_owner: [Option<u16>; 2],
    /// On errors.
    pub errors: Option<OnErrors>,
    /// Mounts between checks; below 1 for no limit.
    pub max_mounts: Option<i16>,
    /// Mounts since the last check.
    pub mounts: Option<u16>,
    /// Seconds between checks; 0 for no limit.
    pub interval: Option<u32>,
    /// Names of default mount options; `^name` clears.
    pub mount_options: Vec<String>,
    /// Mount options as a text, at most 63 bytes.
    pub mount_text: Option<String>,
    /// Bytes of an inode: more than before.
    pub inode_size: Option<u32>,
    /// Names of features; `^name` clears.
    pub features: Vec<String>,
    /// Words of `-Q`: `usrquota`, `grpquota`, `prjquota`; `^` clears. `^quota` overrules them.
    pub quota: Vec<String>,
    /// Another size of the orphan file, or that of a new one.
    pub orphan_file_size: Option<Span>,
    /// Blocks of a new journal; None for those that mke2fs chooses.
    pub journal_bytes: Option<u64>,
    /// The device of a new journal, into which the caller enters the file system afterwards:
    /// [`JournalDevice::enter`](ext4::JournalDevice::enter).
    pub external_journal: Option<ExternalJournal>,
    /// The caller has the device of the external journal, and enters another UUID there afterwards:
    /// [`JournalDevice::replace_user`](ext4::JournalDevice::replace_user).
    pub journal_follows: bool,
}

/// Plans a change. Reads only; parks.
///
/// # Errors
/// [`EditError`]: the file system stays as it is.
pub fn plan(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    options: &TuneOptions,
    effort: &Effort,
) -> Result<LayoutPlan, EditError> {
    let volume = Volume::open(cx, queue, effort)?;
    let mut raw = volume.raw;
    fields(&mut raw, options)?;
    features(&mut raw, &volume.g, options)?;
    let (old, new) = (volume.g.features, raw.features());
    if let Some(uuid) = options.uuid {
        change_uuid(&mut raw, &volume.g, uuid, options.journal_follows)?;
    }
    seed(&mut raw, &volume.g);
    if let Some(bytes) = options.inode_size {
        inode_size(&mut raw, &volume.g, bytes)?;
    }
    raw.set_checksum();
    let g = Geometry::parse(raw.as_bytes(), 0)?;
    let values = old.incompat.contains(Incompat::EA_INODE);
    if values && g.checksums.seed != volume.g.checksums.seed {
        return refuse(
            "with ea_inode the seed of checksums stays, for values are found by it: another UUID \
             needs metadata_csum_seed (-O metadata_csum_seed first)",
        );
    }
    let resum = g.checksums != volume.g.checksums || old.group_csum() != new.group_csum();
    let mut layout = Relayout::new(volume, raw, g);
    if options.inode_size.is_some() {
        layout.place()?;
        layout.walk()?;
    }
    if (old.compat - new.compat).contains(Compat::RESIZE_INODE) {
        layout.drop_reserve()?;
    }
    let journal = |features: &ext4::format::Features| features.compat.contains(Compat::HAS_JOURNAL);
    match (journal(&old), journal(&new)) {
        (true, false) => layout.drop_journal()?,
        (false, true) => match options.external_journal {
            Some(journal) => layout.name_journal(&journal)?,
            None => layout.make_journal(options.journal_bytes)?,
        },
        _ => {}
    }
    if (old.ro_compat - new.ro_compat).contains(RoCompat::SHARED_BLOCKS) {
        layout.unshare()?;
    }
    if resum {
        layout.resum()?;
    }
    layout.directories(resum || options.inode_size.is_some())?;
    if let Some(uuid) = options.uuid {
        layout.journal_uuid(uuid)?;
    }
    let kinds = quota_kinds(&layout.v.g, &new, options)?;
    layout.own_files(kinds, options.orphan_file_size)?;
    layout.mmp_block()?;
    layout.finish()?;
    ResizePlan::of(layout).map(|plan| plan.layout)
}

/// Fields of the superblock that stand alone.
fn fields(raw: &mut RawSuper, options: &TuneOptions) -> Result<(), EditError> {
    if let Some(label) = &options.label {
        if label.len() > raw.s_volume_name.len() {
            return refuse("a label has at most 16 bytes");
        }
        raw.s_volume_name.fill(0);
        raw.s_volume_name[..label.len()].copy_from_slice(label);
    }
    if let Some(reserved) = options.reserved {
        let all = raw.blocks_count();
        let blocks = match reserved {
            Reserved::Percent(share) if (0.0..=50.0).contains(&share) => {
                (share * all as f64 / 100.0) as u64
            }
            Reserved::Percent(share) => return refuse(format!("{share} % is not in 0..=50")),
            Reserved::Blocks(blocks) => blocks,
        };
        if blocks > all / 2 {
            return refuse(format!("{blocks} reserved blocks are more than half of {all}"));
        }
        raw.s_r_blocks_count_lo.set(blocks as u32);
        raw.s_r_blocks_count_hi.set((blocks >> 32) as u32);
    }
    let [user, group] = options.reserved_owner;
    raw.s_def_resuid.set(user.unwrap_or(raw.s_def_resuid.get()));
    raw.s_def_resgid.set(group.unwrap_or(raw.s_def_resgid.get()));
    if let Some(errors) = options.errors {
        raw.s_errors.set(errors as u16);
    }
    if let Some(mounts) = options.max_mounts {
        raw.s_max_mnt_count.set(if mounts == 0 { u16::MAX } else { mounts as u16 });
    }
    raw.s_mnt_count.set(options.mounts.unwrap_or(raw.s_mnt_count.get()));
    raw.s_checkinterval.set(options.interval.unwrap_or(raw.s_checkinterval.get()));
    for word in &options.mount_options {
        let (clear, name) = switch(word);
        let Some(&(_, mask, bits)) = MOUNT_OPTIONS.iter().find(|row| row.0 == name) else {
            let names: Vec<&str> = MOUNT_OPTIONS.iter().map(|row| row.0).collect();
            return refuse(format!(
                "no default mount option {name}; there are {}",
                names.join(", ")
            ));
        };
        let kept = raw.s_default_mount_opts.get() & !mask;
        raw.s_default_mount_opts.set(if clear { kept } else { kept | bits });
    }
    if let Some(text) = &options.mount_text {
        if text.len() >= raw.s_mount_opts.len() {
            return refuse("mount options as a text have at most 63 bytes");
        }
        raw.s_mount_opts.fill(0);
        raw.s_mount_opts[..text.len()].copy_from_slice(text.as_bytes());
    }
    Ok(())
}

/// A name that sets, or clears with `^`; `+` may stand before one that sets.
fn switch(word: &str) -> (bool, &str) {
    match word.strip_prefix('^') {
        Some(name) => (true, name),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    }
}

/// The bits of features, refused by name where a change of one needs what is not done here.
fn features(raw: &mut RawSuper, g: &Geometry, options: &TuneOptions) -> Result<(), EditError> {
    let mut features = g.features;
    for word in &options.features {
        let (clear, name) = switch(word);
        let Some(feature) = ext4::format::features::find(name) else {
            return refuse(format!("no feature is named {name}"));
        };
        let name = feature.name;
        let is_set = features.bits().any(|bit| bit == (feature.set, feature.bit));
        if is_set != clear {
            continue;
        }
        let row = PLAIN.iter().chain(&REWRITTEN).find(|row| row.0 == name);
        if !row.is_some_and(|row| if clear { row.2 } else { row.1 }) {
            let done = if clear { "cleared" } else { "set" };
            return refuse(format!("feature {name} cannot be {done} here; see docs/tune.md"));
        }
        features.set(feature, !clear);
        if name == "metadata_csum" {
            // The groups keep sums, of the other form.
            features.ro_compat.set(RoCompat::GDT_CSUM, clear);
        }
        // As tune2fs: projects are counted with quota alone.
        match (name, clear) {
            ("project", false) => features.ro_compat |= RoCompat::QUOTA,
            ("quota", true) => features.ro_compat -= RoCompat::PROJECT,
            ("project", true) if g.quota_inos[..2] == [0; 2] => {
                features.ro_compat -= RoCompat::QUOTA;
            }
            _ => {}
        }
    }
    if !options.quota.is_empty() {
        let [user, group, project] = quota_kinds(g, &features, options)?;
        features.ro_compat.set(RoCompat::QUOTA, user || group || project);
        features.ro_compat.set(RoCompat::PROJECT, project);
    }
    let projects = features.ro_compat.contains(RoCompat::PROJECT);
    if projects && g.inode_size < 256 {
        return refuse("project needs inodes of 256 bytes: these have 128");
    }
    if !features.compat.contains(Compat::RESIZE_INODE) {
        raw.s_reserved_gdt_blocks.set(0);
    }
    if features.metadata_csum() {
        // One form of checksums alone.
        features.ro_compat -= RoCompat::GDT_CSUM;
    }
    raw.s_checksum_type = u8::from(features.metadata_csum());
    if features.incompat.contains(Incompat::CSUM_SEED) && !features.metadata_csum() {
        return refuse("metadata_csum_seed needs metadata_csum: clear it first");
    }
    let journal = features.compat.contains(Compat::HAS_JOURNAL);
    if features.compat.intersects(Compat::FAST_COMMIT | Compat::ORPHAN_FILE) && !journal {
        return refuse("fast_commit and orphan_file need has_journal");
    }
    let had = g.features.compat.contains(Compat::HAS_JOURNAL);
    if (options.journal_bytes.is_some() || options.external_journal.is_some()) && had {
        return refuse("it has a journal: remove that first (-O ^has_journal)");
    }
    fields_of(raw, features.incompat - g.features.incompat);
    if (g.features.incompat - features.incompat).contains(Incompat::CASEFOLD) {
        raw.s_encoding.set(0);
        raw.s_encoding_flags.set(0);
    }
    raw.set_features(&features);
    features.unknown_pair().map_or(Ok(()), refuse)
}

/// Fields that belong to features which were added.
fn fields_of(raw: &mut RawSuper, added: Incompat) {
    if added.contains(Incompat::ENCRYPT) {
        raw.s_encrypt_algos = [1, 4, 0, 0];
    }
    if added.contains(Incompat::CASEFOLD) {
        raw.s_encoding.set(Encoding::UTF8_12_1);
        raw.s_encoding_flags.set(0);
    }
}

/// Which of users, groups and projects have a quota file afterwards.
fn quota_kinds(
    g: &Geometry,
    new: &ext4::format::Features,
    options: &TuneOptions,
) -> Result<[bool; 3], EditError> {
    let quota = new.ro_compat.contains(RoCompat::QUOTA);
    let projects = quota && new.ro_compat.contains(RoCompat::PROJECT);
    let [mut user, mut group, _] = g.quota_inos.map(|ino| ino != 0 && quota);
    let named = options.features.iter().any(|word| switch(word) == (false, "quota"));
    if quota && named && !g.features.ro_compat.contains(RoCompat::QUOTA) {
        (user, group) = (true, true);
    }
    let mut kinds = [user, group, projects];
    let none = options.features.iter().any(|word| switch(word) == (true, "quota"));
    for word in &options.quota {
        let (clear, name) = switch(word);
        let Some(kind) = QUOTA_WORDS.iter().position(|words| words.contains(&name)) else {
            return refuse(format!("{name} is not usrquota, grpquota or prjquota"));
        };
        kinds[kind] = !clear && !none;
    }
    Ok(kinds)
}

/// Another UUID.
fn change_uuid(
    raw: &mut RawSuper,
    g: &Geometry,
    uuid: [u8; 16],
    journal_follows: bool,
) -> Result<(), EditError> {
    let stable = ext4::format::features::find("stable_inodes").map(|row| (row.set, row.bit));
    if g.features.bits().any(|bit| Some(bit) == stable) {
        return refuse("stable_inodes forbids another UUID");
    }
    if g.external_journal() && !journal_follows {
        return refuse("its journal lies on another device, whose list of users holds the UUID");
    }
    raw.s_uuid = uuid;
    Ok(())
}

/// Longer inodes, and nothing else that writes them.
fn inode_size(raw: &mut RawSuper, g: &Geometry, bytes: u32) -> Result<(), EditError> {
    if !bytes.is_power_of_two() || bytes <= g.inode_size || bytes > g.block_size {
        return refuse(format!(
            "inodes of {bytes} bytes: it has such of {}, and only larger powers of two up to a \
             block of {} are possible",
            g.inode_size, g.block_size
        ));
    }
    if raw.features() != g.features || raw.s_uuid != g.uuid {
        return refuse("larger inodes, and features or another UUID: change one after the other");
    }
    raw.s_inode_size.set(bytes as u16);
    Ok(())
}

/// The seed of checksums, where it is stored: that of before, or of the UUID of before.
fn seed(raw: &mut RawSuper, g: &Geometry) {
    let stored = g.features.incompat.contains(Incompat::CSUM_SEED);
    match (stored, raw.features().incompat.contains(Incompat::CSUM_SEED)) {
        (false, true) => raw.s_checksum_seed.set(ext4::format::checksum::uuid_seed(&g.uuid)),
        (true, false) => raw.s_checksum_seed.set(0),
        _ => {}
    }
}
