//! fallocate: space before it is needed, holes, and zeroed ranges.

use std::ops::Range;

use base::Errno;
use rt::Cx;

use crate::bmap::map::{Create, State};
use crate::inode::{Inode, Inodes};

impl Inodes {
    /// Gives unwritten blocks to the first hole of `blocks`. Returns the block to go on with.
    pub(crate) fn preallocate_step(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        blocks: Range<u32>,
    ) -> Result<u32, Errno> {
        let at = blocks.start;
        let mapped = self.bmap(inode).map_lookup(cx, at, blocks.end - at)?;
        if mapped.state != State::Hole {
            return Ok(at + mapped.len);
        }
        // What is free is asked for once for each run: blocks reserved for others stay theirs.
        // (Of a cluster that is there already nothing needs to be free.)
        let free = match self.sb.geometry.has_clusters() {
            true => u64::MAX,
            false => self.alloc.unreserved_blocks().max(0) as u64,
        };
        let len = u64::from(mapped.len).min(free).min(32767) as u32;
        if len == 0 {
            return Err(Errno::ENOSPC);
        }
        self.commit_unmapped(cx, inode)?;
        let need = self.bmap(inode).map_credits(cx);
        let mut handle = self.sb.journal_start_tracked(cx, need)?;
        let created = self.bmap(inode).map_create(cx, &mut handle, at, len, Create::unwritten());
        self.mark_dirty(cx, &mut handle, inode)?;
        handle.stop(cx)?;
        created.map(|(mapped, _)| at + mapped.len)
    }

    /// Content and inode changed now: writes the inode.
    pub(crate) fn touch(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        let now = self.sb.now(cx);
        inode.with(cx, |core| {
            // Pages that would have carried the size to the disk may be gone.
            core.values.size = core.size;
            core.mtime = now;
            core.ctime = now;
        });
        self.write_inode(cx, inode)
    }
}
