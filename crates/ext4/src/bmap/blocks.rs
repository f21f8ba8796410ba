//! Allocates blocks for an inode, within its quota and reservation.

use std::ops::Range;

use base::Errno;
use rt::Cx;

#[cfg(doc)]
use crate::alloc::BlockAllocator;
use crate::alloc::mballoc::{Prealloc, Purpose, Request};
use crate::bmap::Bmap;
use crate::trans::ext4_jbd2::Handle;

impl Bmap<'_> {
    /// Takes blocks for `inode` and marks them in use: first block and count of clusters, which is
    /// between 1 and `want`. The caller holds the inode's map lock and puts them into its tree.
    ///
    /// # Errors
    /// `ENOSPC` (see [`Inodes::should_retry_alloc`]), `EIO`, `EUCLEAN`.
    pub(crate) fn new_blocks(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        prealloc: Option<&mut Prealloc>,
        request: Request,
    ) -> Result<(u64, u32), Errno> {
        let mut request = request;
        let held = self.hold_space(cx, &mut request)?;
        request.goal = self.goal_or_near(cx, request.goal);
        // What has no place in the file (attributes) does not come out of its window.
        let window = (prealloc.is_some() && self.uses_window(cx)).then_some(&self.inode.window);
        let mut unused = Prealloc::default();
        let prealloc = prealloc.unwrap_or(&mut unused);
        let claimed = self.fs.alloc.claim_for(cx, self.inode.ino, prealloc, window, request);
        // What was claimed is not at hand any more: the reservation of it ends. What a delayed
        // request did not get stays reserved. (Of clusters it ends when blocks in them are placed.)
        let kept = match (&claimed, request.purpose) {
            (_, Purpose::Delayed) if self.fs.sb.geometry.has_clusters() => 0,
            (Ok((_, len)), Purpose::Delayed) => u64::from(*len),
            _ => held,
        };
        self.fs.alloc.end_reservation(kept);
        let (start, len) = claimed?;
        let run = self.fs.alloc.run_at(start, len).expect("a claimed block is valid");
        if let Err(errno) = self.fs.alloc.use_blocks(cx, handle, run) {
            self.fs.alloc.make_available(run);
            return Err(errno);
        }
        Ok((start, len))
    }

    /// Reserves for a request without a reservation what it is about to claim, which may make it
    /// shorter; how much.
    fn hold_space(self, cx: &mut Cx, request: &mut Request) -> Result<u64, Errno> {
        if matches!(request.purpose, Purpose::Delayed | Purpose::Claimed) {
            return Ok(0);
        }
        if request.purpose == Purpose::Node && self.inode.take_reserved_node(cx) {
            return Ok(1);
        }
        // Nodes of a file's tree are never refused: its data were let in before.
        if request.purpose != Purpose::Node || !self.inode.is_regular(cx) {
            request.want = self.inode.reserve_quota(cx, &self.fs.sb, request.want, 1)?;
        }
        let special = self.inode.ino.0 < u64::from(self.fs.sb.geometry.first_ino);
        let kept = match request.purpose {
            _ if special => 0,
            Purpose::Node if self.inode.is_regular(cx) => 0,
            _ => self.fs.alloc.kept_blocks(cx),
        };
        loop {
            let most =
                (self.fs.alloc.unreserved_blocks() - kept).clamp(0, i64::from(request.want)) as u32;
            if most > 0 && self.fs.alloc.try_reserve(u64::from(most), kept) {
                request.want = most;
                return Ok(u64::from(most));
            }
            if most == 0 {
                break;
            }
        }
        Err(Errno::ENOSPC)
    }

    /// `goal`, or where that is 0 the first block of the inode's neighbourhood.
    pub(crate) fn goal_or_near(self, cx: &Cx, goal: u64) -> u64 {
        match goal {
            0 => self.fs.alloc.inode_goal(self.inode.ino, self.inode.is_regular(cx)),
            goal => goal,
        }
    }

    /// Whether the data and the tables of a file come out of windows.
    pub(crate) fn uses_window(self, cx: &Cx) -> bool {
        let options = &self.fs.sb.options;
        let on = options.reservation.unwrap_or(!options.direct.boundary.is_modern());
        on && self.inode.is_regular(cx) && !self.inode.has_extents(cx)
    }

    /// Frees blocks of an inode's content: those of a directory, of a long symbolic link, or of a
    /// file whose data is journaled must not be brought back by the journal.
    ///
    /// # Errors
    /// As [`BlockAllocator::free_blocks`].
    pub(crate) fn free_content(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        start: u64,
        len: u32,
    ) -> Result<(), Errno> {
        self.forget_content(cx, handle, start..start + u64::from(len))?;
        self.fs.alloc.free_blocks(cx, handle, start, len)
    }

    /// Has the journal forget blocks of an inode's content, where it logs them.
    pub(crate) fn forget_content(
        self,
        cx: &mut Cx,
        handle: &mut Handle,
        blocks: Range<u64>,
    ) -> Result<(), Errno> {
        if self.inode.logs_content(cx, &self.fs.sb) {
            for block in blocks {
                handle.forget_block(cx, block)?;
            }
        }
        Ok(())
    }
}
