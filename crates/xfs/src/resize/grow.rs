//! Growth, of a file system that is mounted as of one that is not.
//!
//! 1. The headers of new groups are written behind the old end, and flushed.
//! 2. One transaction lengthens the last group and changes the superblock. What it adds to the last
//!    group is there for others as soon as they get the group's headers.
//! 3. When the log has it durably the new groups are there for others, too: nothing in the log
//!    depends on a group that the log does not know of.
//! 4. The copies of the superblock follow.
//!
//! A power cut before the transaction is in the log leaves the old size, one after it the new one.

use std::sync::Arc;

use base::Page;
use block::{BioFlags, Queue};
use rt::Cx;

use super::{ResizeError, Shapes, commit_size, shape};
use crate::alloc::{Agf, all_free};
use crate::error::{Result, XfsError};
use crate::format::{AgHeader, Geometry};
use crate::fs::WriteSide;
use crate::ialloc;
use crate::mkfs::group_headers;
use crate::mount::copies::{seal, write_copies};
use crate::trans::{Trans, reservations};

/// Makes a file system that is open for writing as large as `bytes`, in whole blocks. The caller
/// sees to it that nobody else does so, and that the device has them. May park.
///
/// # Errors
/// A size that cannot be, before anything was changed; the device failed.
pub(crate) fn grow_open(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    writer: &WriteSide,
    bytes: u64,
) -> Result<(), ResizeError> {
    let old = Geometry::clone(&writer.space.geometry);
    let raw = crate::sb::read(cx, &writer.space)?;
    let (new, raw) = shape(&raw, &old, bytes)?;
    if new.blocks_count() <= old.blocks_count() {
        return Ok(());
    }
    grow(cx, queue, writer, &Shapes { old, new, raw })
}

/// From one shape to a larger one. May park.
///
/// # Errors
/// A header that fails a check; the device failed.
pub(super) fn grow(
    cx: &mut Cx,
    queue: &Arc<Queue>,
    writer: &WriteSide,
    shapes: &Shapes,
) -> Result<(), ResizeError> {
    let Shapes { old, new, raw } = shapes;
    let free = write_new_groups(cx, queue, shapes)?;
    log_size(cx, writer, shapes)?;
    if new.ag_count() > old.ag_count() {
        writer.inodes.expect_groups(new.ag_count() - old.ag_count());
        writer.space.publish_groups(cx, new, free)?;
    }
    // While the log says so: recovery writes those that a power cut leaves as they were.
    write_copies(cx, queue, new, raw)?;
    Ok(queue.flush(cx)?)
}

/// Headers and empty trees of groups that come, with their copy of the superblock. Their free
/// blocks.
fn write_new_groups(cx: &mut Cx, queue: &Arc<Queue>, shapes: &Shapes) -> Result<u64, ResizeError> {
    let Shapes { old, new, raw } = shapes;
    let (size, mut free) = (new.sector_size as usize, 0);
    for ag in old.ag_count()..new.ag_count() {
        let mut bytes = group_headers(raw, new, ag);
        seal(&mut bytes[..size], &raw.without_quota());
        let agf = &bytes[AgHeader::Agf as usize * size..][..size];
        free += u64::from(all_free(agf, ag, new).map_err(XfsError::from)?);
        let place = new.header_sector(ag, AgHeader::Super);
        queue.write(cx, place, Page::from_slice(&bytes), BioFlags::META)?;
    }
    queue.flush(cx)?;
    Ok(free)
}

/// The transaction; it is durable afterwards.
fn log_size(cx: &mut Cx, writer: &WriteSide, shapes: &Shapes) -> Result<()> {
    let Shapes { old, new, .. } = shapes;
    let WriteSide { log, space, inodes, .. } = writer;
    let last = old.ag_count() - 1;
    let (before, after) = (old.ag_length(last), new.ag_length(last));
    let mut trans = Trans::alloc(cx, log, reservations::resize(new))?;
    if before != after {
        // Both headers, before the geometry says something else of them.
        inodes.lock(cx, &mut trans, last)?;
        let _: Agf = space.lock(cx, &mut trans, last)?;
        let end = u64::from(last) * u64::from(new.ag_blocks) + u64::from(after);
        space.geometry.set_blocks_count(end);
        ialloc::log_length(cx, &mut trans, space, last)?;
        space.set_length(cx, &mut trans, last, before)?;
    }
    commit_size(cx, trans, writer, new)
}
