//! fallocate: space before it is needed, holes, and zeroed ranges.

use std::sync::Arc;

use base::Errno;
use rt::Cx;
use vfs::{FallocMode, FileType};

use crate::Ext4;
use crate::inode::Inode;
use crate::map::{Create, State};

impl Ext4 {
    /// Allocates, punches or zeroes `offset..offset + len`.
    ///
    /// # Errors
    /// Those of [`vfs::FileSystem::fallocate`]. `EOPNOTSUPP` for space ahead in a file with
    /// indirect blocks, which have no unwritten state.
    pub(crate) fn fallocate_file(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        mode: FallocMode,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        match inode.kind(cx) {
            FileType::Regular => {}
            FileType::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::ENODEV),
        }
        self.check_writable()?;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let limit = inode.with(cx, |core| core.growth_limit(&self.geometry));
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        // Behind the largest file there is nothing to punch, but no room to allocate.
        if mode == FallocMode::PunchHole && offset >= limit {
            return Ok(());
        }
        let end = if mode == FallocMode::PunchHole { end.min(limit) } else { end };
        if mode == FallocMode::PunchHole && offset >= end {
            return Ok(());
        }
        if end > limit {
            return Err(Errno::EFBIG);
        }
        let guard = inode.rwsem.write(cx);
        if inode.with(cx, |core| core.dead) {
            return Err(Errno::ESTALE);
        }
        let result = match mode {
            FallocMode::PunchHole => self.punch_hole(cx, inode, offset, end),
            FallocMode::Allocate { keep_size } => {
                self.preallocate(cx, inode, offset, end, keep_size)
            }
            FallocMode::ZeroRange { keep_size } if inode.has_extents(cx) => self
                .punch_hole(cx, inode, offset, end)
                .and_then(|()| self.preallocate(cx, inode, offset, end, keep_size)),
            FallocMode::ZeroRange { .. } => Err(Errno::EOPNOTSUPP),
        };
        drop(guard);
        result
    }

    fn punch_hole(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
    ) -> Result<(), Errno> {
        let bits = self.geometry.block_bits;
        let mapping = inode.mapping().clone();
        let writeback = inode.writeback.lock(cx);
        let (from, to) = (self.blocks_of(offset), (end >> bits).min(u64::from(u32::MAX)) as u32);
        let mut result = mapping.punch(cx, offset..end);
        if from < to && result.is_ok() {
            self.drop_promises(cx, inode, from, to);
            result = self.punch_blocks(cx, inode, from, to);
            mapping.discard(cx, u64::from(from) << bits..u64::from(to) << bits);
        }
        drop(writeback);
        result?;
        self.touch(cx, inode)
    }

    fn preallocate(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
        keep_size: bool,
    ) -> Result<(), Errno> {
        if !inode.has_extents(cx) {
            return Err(Errno::EOPNOTSUPP);
        }
        let bits = self.geometry.block_bits;
        let mapping = inode.mapping().clone();
        // Afterwards no promise of space lies in the range.
        mapping.flush(cx, offset..end)?;
        let (mut at, to) = ((offset >> bits) as u32, self.blocks_of(end));
        let mut retries = 0;
        while at < to {
            let writeback = inode.writeback.lock(cx);
            let step = self.preallocate_step(cx, inode, at, to);
            drop(writeback);
            match step {
                Ok(next) => at = next,
                Err(Errno::ENOSPC) if self.should_retry_alloc(cx, &mut retries) => {}
                Err(errno) => return Err(errno),
            }
        }
        if !keep_size && end > mapping.size() {
            self.set_size(cx, inode, end)?;
        }
        self.touch(cx, inode)
    }

    /// Gives unwritten blocks to the first hole at or behind `at`: the block to go on with.
    pub(crate) fn preallocate_step(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        at: u32,
        to: u32,
    ) -> Result<u32, Errno> {
        let mapped = self.map_lookup(cx, inode, at, to - at)?;
        if mapped.state != State::Hole {
            return Ok(at + mapped.len);
        }
        // What is free is asked for once for each run: blocks promised to others stay theirs.
        let free = self.unpromised_blocks().max(0) as u64;
        let len = u64::from(mapped.len).min(free).min(32767) as u32;
        if len == 0 {
            return Err(Errno::ENOSPC);
        }
        let need = self.map_credits(cx, inode);
        let mut handle = self.journal_start(cx, need)?;
        let created = self.map_create(cx, &mut handle, inode, at, len, Create::unwritten());
        self.mark_inode_dirty(cx, &mut handle, inode)?;
        handle.stop(cx)?;
        created.map(|(mapped, _)| at + mapped.len)
    }

    /// Content and inode changed now: writes the inode.
    pub(crate) fn touch(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        let now = self.now(cx);
        inode.with(cx, |core| {
            // Pages that would have carried the size to the disk may be gone.
            core.values.size = core.size;
            core.mtime = now;
            core.ctime = now;
        });
        self.write_inode(cx, inode)
    }
}
