//! Taking extents out of the tree and giving their blocks back.

use std::ops::Range;

use base::Errno;
use rt::Cx;

use super::insert::cut;
use super::{Path, remove_raw};
use crate::bmap::Bmap;
use crate::format::extent::{self, Extent};
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

/// How far a removal has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Removed {
    /// Nothing of the range is mapped any more.
    All,
    /// The handle has too few credits left: mark the inode dirty, restart, go on.
    Restart,
}

impl Bmap<'_> {
    /// Unmaps `blocks` and frees what they have, from the end to the start, as far as the handle's
    /// credits go. Needs the map lock for writing. The inode must be marked dirty afterwards
    /// (the credit for that is kept).
    ///
    /// # Errors
    /// `ENOSPC` where a cut out of the middle of an extent needs a new node, `EIO`, `EUCLEAN`.
    pub(crate) fn extent_remove(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        blocks: Range<u32>,
    ) -> Result<Removed, Errno> {
        let Range { start: from, end: mut to } = blocks;
        while from < to {
            let path = self.find_path(cx, to - 1)?;
            let at = path.leaf().at;
            let Some(old) = at.and_then(|at| self.leaf_extent(cx, &path, at)) else {
                // The leaf begins behind `to`: go on before the key that led to it.
                match self.key_of_way(cx, &path) {
                    Some(key) if key > from && key < to => {
                        to = key;
                        continue;
                    }
                    _ => return Ok(Removed::All),
                }
            };
            if old.end() <= u64::from(from) {
                return Ok(Removed::All);
            }
            // A hole at the end of the range may be large.
            let end = u64::from(to).min(old.end()) as u32;
            if !handle.ensure(cx, credits::REMOVE)? {
                return Ok(Removed::Restart);
            }
            let mut start = from.max(old.block);
            if self.inode.logs_content(cx, &self.fs.sb) {
                start = start.max(end.saturating_sub(credits::REVOKES_MAX));
            }
            self.remove_part(cx, handle, path, &old, start, end)?;
            to = start;
        }
        Ok(Removed::All)
    }

    /// The lowest key on the way that is not the first of its node.
    fn key_of_way(self, cx: &Cx, path: &Path) -> Option<u32> {
        let level = path.0[..path.depth()].iter().rev().find(|level| level.at > Some(0))?;
        let at = level.at?;
        Some(self.with_node(cx, level.buffer.as_ref(), |data| super::key(data, at)))
    }

    /// Takes `start..end`, a part of the extent `old` at the end of `path`, out of the tree.
    fn remove_part(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        path: Path,
        old: &Extent,
        start: u32,
        end: u32,
    ) -> Result<(), Errno> {
        let at = path.leaf().at.expect("the extent was found there");
        let buffer = path.leaf().buffer.as_ref();
        let gone_start = old.start + u64::from(start - old.block);
        let gone = gone_start..gone_start + u64::from(end - start);
        let freed = match self.fs.sb.geometry.has_clusters() {
            true => self.emptied_clusters(cx, handle, old, start..end)?,
            false => gone.clone(),
        };
        let keeps_head = start > old.block;
        let keeps_tail = u64::from(end) < old.end();
        match (keeps_head, keeps_tail) {
            (true, true) => {
                let path = self.make_room(cx, handle, start, 1)?;
                let at = path.leaf().at.expect("the extent is still there");
                let (head, _) = cut(old, start);
                let (_, tail) = cut(old, end);
                self.change_node(cx, handle, path.leaf().buffer.as_ref(), |data| {
                    extent::set_extent(data, at, &head);
                })?;
                self.insert_at(cx, handle, &path, &tail)?;
            }
            (true, false) => {
                let (head, _) = cut(old, start);
                self.change_node(cx, handle, buffer, |data| {
                    extent::set_extent(data, at, &head);
                })?;
            }
            (false, true) => {
                let (_, tail) = cut(old, end);
                self.change_node(cx, handle, buffer, |data| {
                    extent::set_extent(data, at, &tail);
                })?;
                if at == 0 {
                    self.fix_keys(cx, handle, &path, path.depth(), tail.block)?;
                }
            }
            (false, false) => self.remove_entry(cx, handle, &path)?,
        }
        let count = (freed.end - freed.start) as u32;
        let sectors = u64::from(count) * u64::from(self.fs.sb.geometry.block_size / 512);
        self.inode.with(cx, |core| core.values.blocks = core.blocks.saturating_sub(sectors));
        self.forget_content(cx, handle, gone)?;
        self.fs.alloc.free_blocks(cx, handle, freed.start, count)
    }

    /// Takes the leaf's entry out; nodes that become empty go, up to the root.
    fn remove_entry(self, cx: &mut Cx, handle: &mut Handle, path: &Path) -> Result<(), Errno> {
        for (depth, level) in path.0.iter().enumerate().rev() {
            let at = level.at.expect("the way goes through this entry");
            if level.entries > 1 || depth == 0 {
                let first = self.change_node(cx, handle, level.buffer.as_ref(), |data| {
                    remove_raw(data, at);
                    (super::entry_count(data) > 0).then(|| super::key(data, 0))
                })?;
                match first {
                    Some(first) if at == 0 => {
                        self.fix_keys(cx, handle, path, depth, first)?;
                    }
                    Some(_) => {}
                    // The root is empty: an empty leaf.
                    None => self.inode.with(cx, |core| {
                        extent::set_header(&mut core.values.block, 0, extent::ROOT_MAX, 0);
                    }),
                }
                return Ok(());
            }
            let block = level.buffer.as_ref().expect("only the root has no block").block();
            self.free_node(cx, handle, block)?;
        }
        Ok(())
    }

    fn free_node(self, cx: &mut Cx, handle: &mut Handle, block: u64) -> Result<(), Errno> {
        handle.forget_block(cx, block)?;
        let sectors = self.fs.sb.geometry.cluster_sectors();
        self.inode.with(cx, |core| core.values.blocks = core.blocks.saturating_sub(sectors));
        self.fs.alloc.free_blocks(cx, handle, block, 1)
    }
}
