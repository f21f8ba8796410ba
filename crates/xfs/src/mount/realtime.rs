//! The realtime section of a mount: its device, and the files that hold its free space.

use std::sync::Arc;

use base::{FsBlock, Ino};
use block::Queue;
use rt::Cx;

use super::MountError;
use crate::alloc::Space;
use crate::alloc::realtime::{Realtime, RealtimeFiles};
use crate::bmap::{Which, runs};
use crate::error::Result;
use crate::format::dquot::QuotaFlags;
use crate::format::{At, CorruptKind, Geometry, RawSuper};
use crate::fs::options::{BesideDevice, MountOptions};
use crate::quota::QuotaMode;
use crate::uncached::UncachedInode;

/// The device of the realtime section, where the file system has one and the mount names it.
///
/// # Errors
/// A mount for writing names none; it is too short; what cannot be written beside it.
pub(super) fn of_mount(
    geometry: &Geometry,
    raw: &RawSuper,
    options: &MountOptions,
) -> std::result::Result<Option<Arc<Queue>>, MountError> {
    let wanted = geometry.realtime.blocks;
    let Some(BesideDevice(queue)) = options.realtime.clone() else { return Ok(None) };
    if wanted == 0 {
        return Err(MountError::Mode("rtdev of a file system without a realtime section"));
    }
    let sectors = queue.info().sectors;
    let wanted = wanted.saturating_mul(geometry.block_sectors());
    if wanted > sectors {
        return Err(MountError::RealtimeSize { sectors, wanted });
    }
    let counts = match options.quota {
        QuotaMode::Off => false,
        QuotaMode::Count(_) => true,
        QuotaMode::AsBefore => !QuotaFlags::of(raw).is_empty(),
    };
    if counts && !options.read_only {
        return Err(MountError::Mode("quota beside a realtime section"));
    }
    Ok(Some(queue))
}

/// Opens the space of the realtime section, if there is one. May park.
///
/// # Errors
/// A file that is too short or damaged; the device failed.
pub(super) fn open(cx: &mut Cx, space: &Space) -> Result<()> {
    let shape = space.geometry.realtime;
    if shape.blocks == 0 {
        return Ok(());
    }
    let [bitmap, summary] = space.geometry.realtime_inos;
    let blocks = shape.summary_blocks(space.geometry.block_size);
    let bitmap_inode = UncachedInode::read(cx, space, bitmap)?;
    let lock = bitmap_inode.item.clone();
    let bitmap = file_blocks(cx, space, &bitmap_inode, "bitmap", shape.bitmap_blocks)?;
    let summary_inode = UncachedInode::read(cx, space, summary)?;
    let summary = file_blocks(cx, space, &summary_inode, "summary", blocks)?;
    let files = RealtimeFiles { bitmap, summary, lock };
    space.set_realtime(Realtime::open(cx, space, files)?);
    Ok(())
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
