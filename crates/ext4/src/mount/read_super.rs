//! Reading the superblock, also one that a power cut tore in two.
//!
//! It is 1024 bytes, two sectors, and is written in place. Its checksum lies in the
//! second one, so that a cut between them leaves an old half beside a new one and a checksum that
//! fits neither. Both halves are sound: what a mount changes there are counts, which are taken from
//! the group descriptors anyway, times, and the flag that asks for recovery. Two witnesses can
//! prove that this is what happened:
//!
//! - The backup in group 1, where there is one and its checksum is right. Everything that gives the
//!   file system its shape must agree with it; then the halves are joined, and recovery is asked
//!   for whatever the flag says.
//! - The log. It is found with the joined halves, by way of the checksums of the journal's inode,
//!   its superblock and its commits. Where it has the superblock, with a right checksum and the
//!   same shape, its copy is what recovery would put there; it is taken. (Our mounts log the
//!   superblock where there is no backup: see `sb::write`. Linux writes it past the log when it
//!   mounts and unmounts.)
//!
//! Whatever neither proves stays refused.

use base::Sector;
use block::Queue;
use cache::{PageCache, PageCacheConfig};
use rt::Cx;
use std::sync::Arc;
use zerocopy::IntoBytes;

use crate::Ext4;
use crate::format::features::{Access, Compat, Incompat, RoCompat};
use crate::format::super_block::{SUPER_OFFSET, SUPER_SIZE};
use crate::format::{At, Corrupt, CorruptKind, Geometry, RawSuper, checksum};
use crate::journal_device::JournalDevice;
use crate::mount::{MountError, Mounting};
use crate::sb::options::MountOptions;

/// Reads the superblock from the device; `journal` is that of an external journal.
pub(crate) fn read_super(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    journal: Option<&JournalDevice>,
) -> Result<(RawSuper, Geometry), MountError> {
    let len = 2048.max(queue.info().logical_block as usize);
    let page = queue.read(cx, Sector(0), len)?;
    let bytes = &page[SUPER_OFFSET as usize..SUPER_OFFSET as usize + SUPER_SIZE];
    join_super(cx, bytes, queue, journal)
}

impl Ext4 {
    /// Mounts the file system on the device behind `queue`. May park.
    ///
    /// # Errors
    /// Why not: nothing was written then, except that a journal may have been replayed.
    pub fn mount(
        cx: &mut Cx,
        queue: &Arc<Queue>,
        pages: &Arc<PageCache>,
        options: MountOptions,
    ) -> Result<Arc<Ext4>, MountError> {
        let (raw, geometry) = read_super(cx, queue, options.journal.as_ref())?;
        if geometry.block_size > pages.config().folio_size {
            return Err(MountError::Mode("a block that is larger than the page cache's folios"));
        }
        Ext4::mount_read(cx, queue, pages, options, raw, geometry)
    }

    /// As [`Ext4::mount`], with a page cache of its own, whose folios hold a block.
    ///
    /// # Errors
    /// As [`Ext4::mount`].
    pub fn mount_alone(
        cx: &mut Cx,
        queue: &Arc<Queue>,
        cache: PageCacheConfig,
        options: MountOptions,
    ) -> Result<Arc<Ext4>, MountError> {
        let (raw, geometry) = read_super(cx, queue, options.journal.as_ref())?;
        let folio_size = PageCacheConfig::folio_size_for(geometry.block_size);
        let pages = PageCache::new(cx.runtime(), PageCacheConfig { folio_size, ..cache });
        Ext4::mount_read(cx, queue, &pages, options, raw, geometry)
    }
}

/// A page cache of `limit` bytes for looking at a file system of this shape.
pub(super) fn pages_for(cx: &Cx, geometry: &Geometry, limit: u64) -> Arc<PageCache> {
    let folio_size = PageCacheConfig::folio_size_for(geometry.block_size);
    let config = PageCacheConfig { folio_size, ..PageCacheConfig::with_limit(limit) };
    PageCache::new(cx.runtime(), config)
}

/// The superblock in `bytes`, whose halves may come from two writes.
pub(crate) fn join_super(
    cx: &mut Cx,
    bytes: &[u8],
    queue: &Arc<Queue>,
    journal: Option<&JournalDevice>,
) -> Result<(RawSuper, Geometry), MountError> {
    match parse_super(bytes, queue) {
        Err(MountError::Corrupt(corrupt))
            if matches!(corrupt.kind, CorruptKind::SuperChecksum { .. }) =>
        {
            let mut joined = restore(cx, queue, bytes)?;
            if joined.is_none() {
                joined = restore_from_log(cx, queue, bytes, journal)?;
            }
            match joined {
                Some(joined) => parse_super(&joined, queue),
                None => Err(corrupt.into()),
            }
        }
        parsed => parsed,
    }
}

/// The superblock in `bytes`, and what follows from it.
fn parse_super(bytes: &[u8], queue: &Queue) -> Result<(RawSuper, Geometry), MountError> {
    let raw = RawSuper::read(bytes).expect("the slice has the size");
    let geometry = Geometry::parse(bytes, 0).map_err(|corrupt| explain(&raw, corrupt))?;
    let device_blocks = queue.bytes() / u64::from(geometry.block_size);
    if geometry.blocks_count > device_blocks {
        let kind = CorruptKind::DeviceSize { blocks: geometry.blocks_count, device_blocks };
        return Err(kind.at(At::Super(0)).into());
    }
    Ok((raw, geometry))
}

/// Whether the features allow the mount.
pub(crate) fn check_features(geometry: &Geometry, read_only: bool) -> Result<(), MountError> {
    check_pair(geometry)?;
    let (access, reasons) = geometry.features.access();
    let wanted = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    match reasons.into_iter().next() {
        Some(reason) if access < wanted => Err(reason.into()),
        _ if geometry.hurd && !read_only => Err(MountError::Hurd),
        _ => Ok(()),
    }
}

fn check_pair(geometry: &Geometry) -> Result<(), MountError> {
    geometry.features.unknown_pair().map_or(Ok(()), |pair| Err(MountError::Mode(pair)))
}

/// What looks damaged may be the work of a feature that forbids reading, such as a journal
/// device's.
fn explain(raw: &RawSuper, corrupt: Corrupt) -> MountError {
    let explained =
        matches!(corrupt.kind, CorruptKind::SuperMagic { .. } | CorruptKind::SuperChecksum { .. });
    match raw.features().access() {
        (Access::Refused, mut reasons) if !explained && !reasons.is_empty() => {
            reasons.swap_remove(0).into()
        }
        _ => corrupt.into(),
    }
}

/// What no mount changes: the shape and the identity of the file system.
fn shape(raw: &RawSuper) -> impl PartialEq + use<> {
    let features = raw.features();
    (
        [
            raw.s_inodes_count,
            raw.s_blocks_count_lo,
            raw.s_blocks_count_hi,
            raw.s_first_data_block,
            raw.s_log_block_size,
            raw.s_log_cluster_size,
            raw.s_blocks_per_group,
            raw.s_inodes_per_group,
            raw.s_rev_level,
            raw.s_first_ino,
            raw.s_journal_inum,
            raw.s_first_meta_bg,
            raw.s_checksum_seed,
            raw.s_orphan_file_inum,
        ]
        .map(|word| word.get()),
        [raw.s_magic, raw.s_inode_size, raw.s_desc_size, raw.s_reserved_gdt_blocks]
            .map(|half| half.get()),
        [raw.s_log_groups_per_flex, raw.s_checksum_type],
        raw.s_uuid,
        raw.s_hash_seed.map(|word| word.get()),
        features.incompat.difference(Incompat::RECOVER).bits(),
        features.ro_compat.difference(RoCompat::ORPHAN_PRESENT | RoCompat::LARGE_FILE).bits(),
    )
}

/// The torn halves as one superblock with its checksum, which asks for recovery where there is a
/// journal. `None` without checksums: then nothing shows a tear.
fn join(bytes: &[u8]) -> Option<RawSuper> {
    let mut raw = RawSuper::read(bytes)?;
    let features = raw.features();
    if !features.ro_compat.contains(RoCompat::METADATA_CSUM) || raw.s_log_block_size.get() > 2 {
        return None;
    }
    if features.compat.contains(Compat::HAS_JOURNAL) {
        raw.s_feature_incompat.set((features.incompat | Incompat::RECOVER).bits());
    }
    raw.set_checksum();
    Some(raw)
}

/// The superblock joined from its torn halves in `bytes`, with its checksum; `None` where it is
/// damaged in another way, or where there is no backup to compare it with. May wait for the device;
/// writes nothing.
///
/// # Errors
/// The device cannot be read.
fn restore(cx: &mut Cx, queue: &Arc<Queue>, bytes: &[u8]) -> Result<Option<Vec<u8>>, MountError> {
    let Some(raw) = join(bytes) else { return Ok(None) };
    if raw.features().compat.contains(Compat::SPARSE_SUPER2) {
        return Ok(None);
    }
    let block_size = 1024u64 << raw.s_log_block_size.get();
    let block = u64::from(raw.s_first_data_block.get()) + u64::from(raw.s_blocks_per_group.get());
    if (block + 1) * block_size > queue.bytes() {
        return Ok(None);
    }
    let len = SUPER_SIZE.max(queue.info().logical_block as usize);
    let page = queue.read(cx, Sector::from_bytes(block * block_size), len)?;
    let Some(backup) = RawSuper::read(&page) else { return Ok(None) };
    let sound = checksum::super_block(&page[..SUPER_SIZE]) == backup.s_checksum.get();
    let proven = sound && shape(&backup) == shape(&raw);
    Ok(proven.then(|| raw.as_bytes().to_vec()))
}

/// The superblock as the log has it, where that proves that a write of it was torn; else `None`.
/// May wait for the device; writes nothing.
///
/// # Errors
/// The device cannot be read.
fn restore_from_log(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    bytes: &[u8],
    journal: Option<&JournalDevice>,
) -> Result<Option<Vec<u8>>, MountError> {
    let Some(joined) = join(bytes) else { return Ok(None) };
    let Ok((raw, geometry)) = parse_super(joined.as_bytes(), queue) else { return Ok(None) };
    if !geometry.reaches_log(journal) || check_features(&geometry, true).is_err() {
        return Ok(None);
    }
    let journal = journal.filter(|_| geometry.external_journal()).cloned();
    let options = MountOptions { read_only: true, journal, ..MountOptions::default() };
    let pages = pages_for(cx, &geometry, 1 << 20);
    let look = Mounting::new(queue, &pages, &geometry, options);
    let mut logged = match look.replayed_super(cx, &raw, geometry) {
        Ok(Some(logged)) => logged,
        Err(MountError::Device(error)) => return Err(error.into()),
        // The joined halves lead nowhere: the damage is another one.
        Ok(None) | Err(_) => return Ok(None),
    };
    let Some(copy) = RawSuper::view_mut(&mut logged) else { return Ok(None) };
    let sound = checksum::super_block(copy.as_bytes()) == copy.s_checksum.get();
    if !sound || shape(copy) != shape(&raw) {
        return Ok(None);
    }
    copy.s_feature_incompat.set((copy.features().incompat | Incompat::RECOVER).bits());
    copy.set_checksum();
    Ok(Some(logged))
}
