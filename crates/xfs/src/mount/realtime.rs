//! The realtime section of a mount: its device, and the files that hold its free space.

use std::sync::Arc;

use base::{FsBlock, Ino, Sector};
use block::Queue;
use rt::Cx;

use super::MountError;
use crate::alloc::Space;
use crate::alloc::realtime::{Realtime, RealtimeFiles};
use crate::alloc::realtime_trees::{GroupTrees, TreeInode};
use crate::bmap::{Which, runs};
use crate::buf::meta::Reader;
use crate::error::Result;
use crate::format::inode::ForkFormat;
use crate::format::super_block::section::{CRC, MAGIC, UUID};
use crate::format::{At, CorruptKind, Geometry, Kind, u32_at, verifier};
use crate::fs::options::{BesideDevice, MountOptions};
use crate::metadir::{self, RealtimeInos};
use crate::uncached::UncachedInode;

/// What errors call the first block of a section in groups.
const WHAT: &str = "realtime superblock";

/// The device of the realtime section, where the file system has one and the mount names it; that
/// of the data, `data`, where it lies there.
///
/// # Errors
/// The file system has no section; the device is too short.
pub(super) fn of_mount(
    geometry: &Geometry,
    data: &Arc<Queue>,
    options: &MountOptions,
) -> std::result::Result<Option<Arc<Queue>>, MountError> {
    let shape = geometry.realtime;
    let queue = match (shape.begins > 0, options.realtime.clone()) {
        (true, Some(_)) => {
            return Err(MountError::Mode("rtdev of a realtime section on the device of the data"));
        }
        (true, None) => data.clone(),
        (false, Some(BesideDevice(queue))) => queue,
        (false, None) => return Ok(None),
    };
    if shape.blocks == 0 {
        return Err(MountError::Mode("rtdev of a file system without a realtime section"));
    }
    let sectors = queue.info().sectors;
    let wanted = shape.begins.saturating_add(shape.blocks);
    let wanted = wanted.saturating_mul(geometry.block_sectors());
    if wanted > sectors {
        return Err(MountError::RealtimeSize { sectors, wanted });
    }
    Ok(Some(queue))
}

/// Checks that a device is that of the section: where that is in groups, its first block says so.
/// Zones have no such block.
/// May park.
///
/// # Errors
/// It is another one; it failed.
pub(super) fn check_device(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    geometry: &Geometry,
) -> std::result::Result<(), MountError> {
    if geometry.realtime.groups.is_none() || geometry.realtime.zoned {
        return Ok(());
    }
    let block = queue.read(cx, Sector(0), geometry.block_size as usize)?;
    let (crc, stored) = (verifier::checksum_at(&block, CRC), u32_at(&block, CRC).swap_bytes());
    let magic = u32_at(&block, 0);
    let kind = match () {
        () if magic != MAGIC => CorruptKind::Magic { what: WHAT, found: magic, expected: MAGIC },
        () if stored != crc => CorruptKind::Checksum { what: WHAT, found: stored, expected: crc },
        () if block[UUID..UUID + 16] != geometry.uuid => CorruptKind::Uuid { what: WHAT },
        () => return Ok(()),
    };
    Err(kind.at(At::Super(0)).into())
}

/// Opens the space of the realtime section, if there is one. May park.
///
/// # Errors
/// A file that is missing, too short or damaged; the device failed.
pub(super) fn open(cx: &mut Cx, space: &Space) -> Result<()> {
    let shape = space.geometry.realtime;
    if shape.blocks == 0 {
        return Ok(());
    }
    let reader = Reader { bufs: space.log.bufs().clone(), geometry: space.geometry.clone() };
    let blocks = shape.summary_blocks(space.geometry.block_size);
    let (mut groups, mut lock) = (Vec::new(), None);
    for RealtimeInos { files: inos, trees } in metadir::realtime_inos(cx, &reader)? {
        let inode = UncachedInode::read(cx, space, inos[0])?;
        let bitmap = file_blocks(cx, space, &inode, "bitmap", shape.bitmap_blocks)?;
        lock.get_or_insert(inode.item);
        let inode = UncachedInode::read(cx, space, inos[1])?;
        let summary = file_blocks(cx, space, &inode, "summary", blocks)?;
        let trees = GroupTrees::new(
            tree(cx, space, trees[0], Kind::RealtimeRmap)?,
            tree(cx, space, trees[1], Kind::RealtimeRefcount)?,
        );
        groups.push(RealtimeFiles { inos, bitmap, summary, trees });
    }
    if let Some(lock) = lock {
        space.set_realtime(Realtime::open(cx, space, groups, lock)?);
    }
    Ok(())
}

/// The inode that holds one of the btrees, where there is one.
fn tree(cx: &mut Cx, space: &Space, ino: Option<Ino>, kind: Kind) -> Result<Option<TreeInode>> {
    let Some(ino) = ino else { return Ok(None) };
    let inode = UncachedInode::read(cx, space, ino)?;
    if inode.core.format != ForkFormat::MetaBtree {
        let (number, mode) = (inode.core.format as u8, inode.core.mode);
        return Err(CorruptKind::ForkFormatOfMode { number, mode }.at(At::Inode(ino)).into());
    }
    TreeInode::new(kind, ino, inode.image, inode.item).map(Some)
}

/// The blocks of one of the files.
fn file_blocks(
    cx: &mut Cx,
    space: &Space,
    inode: &UncachedInode,
    what: &'static str,
    blocks: u32,
) -> Result<Vec<FsBlock>> {
    let fork = inode.whole_fork(cx, space, Which::Data)?;
    let wanted = u64::from(blocks) << space.geometry.block_bits;
    let list = runs(fork.extents.as_deref().unwrap_or_default(), 0..u64::from(blocks));
    match list.filter(|_| inode.core.size >= wanted) {
        Some(list) => Ok(list
            .iter()
            .flat_map(|&(start, count)| (0..u64::from(count)).map(move |at| start + at))
            .collect()),
        None => {
            let kind = CorruptKind::RealtimeFile { what, found: inode.core.size, wanted };
            Err(kind.at(At::Inode(Ino(inode.ino.0))).into())
        }
    }
}
