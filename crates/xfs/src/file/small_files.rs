//! Small files when everything is written out, several in one transaction, in the order of their
//! numbers: it takes an extent and cuts it up among new ones; and it marks what was written.
//!
//! A file alone pays for two trees of free space and a transaction; here several share both. What
//! each gets is unwritten, as ever, and its pages are sent off by write-back as those of a file
//! whose blocks were allocated before.

use std::sync::Arc;

use base::{FsBlock, Ino};
use rt::Cx;

use super::DataFile;
use crate::Xfs;
use crate::alloc::{AllocRequest, Space};
use crate::error::{Result, XfsError};
use crate::format::AgBlock;
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::inode::ForkFormat;
use crate::inode::Inode;
use crate::log::inode_item::InodeFields;
use crate::quota::QuotaHold;
use crate::trans::reservations::EXTENTS_AT_ONCE;
use crate::trans::{Trans, reservations};

/// Blocks of a small file at the most.
pub(crate) const SMALL: u64 = 16;
/// Files of one transaction.
pub(crate) const AT_ONCE: usize = 16;

/// Room in a fork for what becomes of one extent of which parts are marked.
const ROOM: usize = (2 * EXTENTS_AT_ONCE + 1) * EXTENT_SIZE;

/// A file and how many blocks it has reserved, from its first one on.
type Wanting<'a> = (&'a Arc<Inode>, u32);

/// Gives places to the small files that wait for some. What is not placed here is left to
/// write-back. May park.
pub(crate) fn place_small_files(fs: &Xfs, cx: &mut Cx) {
    let waiting = std::mem::take(&mut *fs.small.lock(cx));
    let Ok(writer) = fs.writer() else { return };
    let geometry = fs.geometry();
    // Each file's part of the reverse map would be a change of its own.
    if waiting.len() < 2 || geometry.features.rmapbt() || geometry.stripe.0 > 1 {
        return;
    }
    let group = |ino: Ino| geometry.ino_place(ino).0.ag;
    let inodes = waiting.into_iter().filter_map(|ino| fs.inodes.find(ino));
    let inodes: Vec<Arc<Inode>> = inodes.collect();
    for few in inodes.chunk_by(|a, b| group(a.ino) == group(b.ino)) {
        for few in few.chunks(AT_ONCE) {
            // What fails here fails again, or not, where somebody waits for the file.
            if place(fs, cx, &writer.space, few).is_err() {
                return;
            }
        }
    }
}

/// Marks what of a few files has reached the device as written, of those whose maps stay in
/// their inodes; the others, and what comes meanwhile, are left to the caller, who has taken
/// them from the list of those that wait. May park.
///
/// # Errors
/// `EIO` after a shutdown.
pub(crate) fn finish_small_files(
    fs: &Xfs,
    cx: &mut Cx,
    inodes: &[Arc<Inode>],
) -> std::result::Result<(), base::Errno> {
    let geometry = fs.geometry();
    if inodes.len() < 2 || geometry.features.rmapbt() {
        return Ok(());
    }
    fs.transact(cx, reservations::write_many(geometry, AT_ONCE as u32), |cx, trans| {
        trans.expect_inodes(inodes.len());
        inodes.iter().for_each(|inode| trans.join_inode(cx, &inode.item));
        for inode in inodes {
            if inode.has_small_map(cx) && DataFile::new(fs, inode).has_work(cx, true) {
                DataFile::new(fs, inode).finish_some(cx, trans, true)?;
            }
        }
        Ok(())
    })
}

fn place(
    fs: &Xfs,
    cx: &mut Cx,
    space: &Space,
    inodes: &[Arc<Inode>],
) -> std::result::Result<(), base::Errno> {
    let locked = inodes.iter().filter_map(|inode| Some((inode, inode.writeback.try_lock()?)));
    let locked: Vec<_> = locked.collect();
    if locked.len() < 2 {
        return Ok(());
    }
    let mut ended = Vec::new();
    let reservation = reservations::write_many(fs.geometry(), AT_ONCE as u32);
    fs.transact(cx, reservation, |cx, trans| {
        trans.expect_inodes(locked.len());
        locked.iter().for_each(|(inode, _)| trans.join_inode(cx, &inode.item));
        let wanting = locked.iter().filter_map(|(inode, _)| Some((*inode, inode.wants(cx)?)));
        let wanting: Vec<Wanting<'_>> = wanting.collect();
        if wanting.len() > 1 {
            place_all(cx, trans, space, &wanting, 0, &mut ended)?;
        }
        Ok(())
    })
}

impl Inode {
    /// True if its blocks lie in one run, and marking parts of it as written makes no block for
    /// the map. The caller holds it for a transaction.
    fn has_small_map(&self, cx: &mut Cx) -> bool {
        let usable = self.with(cx, |state| !state.freed)
            && !self.is_reflink(cx)
            && self.cow_fork.lock(cx).is_empty();
        let data = &self.forks.read(cx).data;
        let one = data.extents.as_ref().is_some_and(|extents| extents.len() == 1);
        usable && one && data.format == ForkFormat::Extents && data.room() >= ROOM
    }

    /// How many blocks a new small file has reserved, in one run from its first block on; none
    /// where it is another kind of file. The caller holds it for a transaction.
    fn wants(&self, cx: &mut Cx) -> Option<u32> {
        let usable = self.with(cx, |state| !state.freed) && !self.is_reflink(cx);
        let fresh = {
            let data = &self.forks.read(cx).data;
            let room = data.room() >= EXTENT_SIZE;
            data.format == ForkFormat::Extents && data.count == 0 && data.extents.is_some() && room
        };
        let io = self.io.lock(cx);
        let mut runs = io.delayed.iter();
        let run = runs.next().filter(|run| run.start == 0 && run.end <= SMALL)?;
        (usable && fresh && runs.next().is_none()).then_some(run.end as u32)
    }
}

/// Gives each of `files` its blocks in one extent, of which those before them have `before`.
/// Returns where it begins; none if no extent is long enough. The forks are locked in the order
/// of the files, all of them before the buffers of the group. `ended` is to be dropped after the
/// commit.
fn place_all(
    cx: &mut Cx,
    trans: &mut Trans,
    space: &Space,
    files: &[Wanting<'_>],
    before: u32,
    ended: &mut Vec<QuotaHold>,
) -> Result<Option<FsBlock>> {
    let Some(((inode, count), behind)) = files.split_first() else {
        return Ok(None);
    };
    let start = inode.edit_blocks(cx, space, |cx, file| {
        let near = AgBlock { block: 0, ..file.edit.near };
        let start = match behind {
            [] => take(cx, trans, space, near, before + *count)?,
            _ => place_all(cx, trans, space, behind, before + *count, ended)?,
        };
        let Some(start) = start else { return Ok(None) };
        let own = FsBlock(start.0 + u64::from(before));
        let extent = Extent { offset: 0, start: own, count: *count, unwritten: true };
        file.edit.add(cx, trans, extent)?;
        *file.edit.blocks += u64::from(*count);
        ended.push(inode.end_delalloc(cx, space, file.edit.fork, 0..u64::from(*count)).quota);
        Ok(Some(start))
    })?;
    if start.is_some() {
        inode.log(cx, trans, &space.geometry, InodeFields::CORE | InodeFields::DATA);
    }
    Ok(start)
}

/// Takes an extent of exactly so many blocks from the group of `goal`.
fn take(
    cx: &mut Cx,
    trans: &mut Trans,
    space: &Space,
    goal: AgBlock,
    blocks: u32,
) -> Result<Option<FsBlock>> {
    let want = AllocRequest {
        goal,
        min_len: blocks,
        max_len: blocks,
        align: 1,
        this_group: true,
        owner: None,
        metadata: false,
    };
    match space.allocate(cx, trans, &want) {
        Ok(found) => Ok(Some(space.geometry.join(found.start))),
        Err(XfsError::NoSpace) => Ok(None),
        Err(error) => Err(error),
    }
}
