//! Direct writes to regular files: where new blocks come from, and how they join the file. The
//! driver is [`vfs::iomap::write_direct`].
//!
//! ```text
//! overwrite      the device, and nothing else; many at once
//! hole, growth   blocks claimed in memory -> the device -> handles put them into the file
//! unwritten      the device -> a handle makes them written
//! data=journal   the page cache, written out at once
//! ```
//!
//! Nothing that the disk holds knows of a claimed block, so a cut before the third step leaves the
//! file as it was, and a cut within it leaves it with a part of what was written: never what was on
//! the disk before, never a size without data. Blocks are claimed ([`claims`]) as the mount's rule
//! for boundaries has it: those of Linux's ext3, table by table, or ours.

mod claims;

use std::ops::Range;

use base::Errno;
use cache::{Iomap, IomapIter};
use rt::{Charge, Cx};

use crate::alloc::mballoc::Purpose;
use crate::bmap::map::{Create, Mapped, State};
use crate::inode::{Inode, Inodes};
use claims::Claims;

impl Inodes {
    /// Blocks for a direct write to the start of a hole; none if the page cache has to do it.
    pub(crate) fn claim(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        iter: &mut IomapIter<'_>,
        hole: &Mapped,
        want: u32,
    ) -> Result<Iomap, Errno> {
        let size = inode.mapping().size().div_ceil(u64::from(self.sb.geometry.block_size));
        if self.sb.geometry.has_clusters() {
            // The page cache knows which cluster is there already.
            return Ok(Mapped { len: hole.len.min(want), ..*hole }.iomap(&self.sb.geometry));
        }
        if !self.sb.options.direct_holes && u64::from(hole.lblk) < size {
            // All of the rest, as Linux falls back.
            let count = u64::from(want).min(size - u64::from(hole.lblk));
            return Ok(Mapped { len: count as u32, ..*hole }.iomap(&self.sb.geometry));
        }
        cx.charge_for(Charge::AllocateRun, 1);
        match self.claim_hole(cx, inode, iter.private(), hole, want) {
            // They hold nothing yet.
            Ok(mapped) => Ok(Mapped { state: State::Unwritten, ..mapped }.iomap(&self.sb.geometry)),
            // The page cache knows how to wait for space; little by little it fills the disk.
            Err(Errno::ENOSPC) => {
                Ok(Mapped { len: hole.len.min(16), ..*hole }.iomap(&self.sb.geometry))
            }
            Err(errno) => Err(errno),
        }
    }

    /// The content is there: makes what it lies in part of the file, and lets the file grow.
    /// See [`cache::IomapOps::end`].
    pub(crate) fn end_direct_write(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        iter: &mut IomapIter<'_>,
        range: Range<u64>,
        complete: bool,
    ) -> (u64, Result<(), Errno>) {
        let (claims, unwritten): (Claims, bool) = (iter.take_private(), iter.given);
        let (offset, mut end) = (range.start, range.end);
        let bits = self.sb.geometry.block_bits;
        // Of a block that is new only the whole counts, unless the call ends in it.
        if !complete && (unwritten || claims.covers((end >> bits) as u32)) {
            end = (end >> bits << bits).max(offset);
        }
        let (reached, result) = if offset < end && (unwritten || !claims.is_empty()) {
            self.direct_written(cx, inode, claims, offset, end)
        } else {
            self.drop_claims(cx, inode, claims);
            (end, Ok(()))
        };
        let mapping = inode.mapping();
        if reached > offset && reached > mapping.size() {
            mapping.set_size(reached);
            inode.with(cx, |core| {
                core.size = reached;
                core.values.size = core.values.size.max(reached);
            });
        }
        (reached, result)
    }

    /// Makes the blocks of `offset..end`, which have their content, part of the file, in the order
    /// of the file: puts claims in, makes written what is unwritten. The size on the disk follows
    /// in the same handles, so wherever it has to end, nothing behind that is the file's. Answers
    /// the byte where it ended.
    fn direct_written(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        mut claims: Claims,
        offset: u64,
        end: u64,
    ) -> (u64, Result<(), Errno>) {
        let bits = self.sb.geometry.block_bits;
        let (mut at, to) = ((offset >> bits) as u32, end.div_ceil(1 << bits) as u32);
        let (mut retries, mut result) = (0, Ok(()));
        while at < to {
            match self.direct_written_step(cx, inode, &mut claims, at..to, end) {
                Ok(next) => at = next,
                Err(Errno::ENOSPC) if self.should_retry_alloc(cx, &mut retries) => {}
                Err(errno) => {
                    result = Err(errno);
                    break;
                }
            }
        }
        self.drop_claims(cx, inode, claims);
        ((u64::from(at) << bits).clamp(offset, end), result)
    }

    /// One run of [`Inodes::direct_written`], in one handle: the block to go on with.
    fn direct_written_step(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        claims: &mut Claims,
        blocks: Range<u32>,
        size: u64,
    ) -> Result<u32, Errno> {
        let mapped = self.bmap(inode).map_lookup(cx, blocks.start, blocks.end - blocks.start)?;
        match mapped.state {
            State::Written => Ok(mapped.lblk + mapped.len),
            State::Hole => self.use_claim(cx, inode, claims, blocks, size),
            State::Unwritten => {
                let need = self.bmap(inode).map_credits(cx);
                let mut handle = self.sb.journal_start_tracked(cx, need)?;
                let create = Create::written(Purpose::Data, size);
                let made =
                    self.bmap(inode).map_create(cx, &mut handle, mapped.lblk, mapped.len, create);
                self.mark_dirty(cx, &mut handle, inode)?;
                handle.stop(cx)?;
                made.map(|(made, _)| made.lblk + made.len)
            }
        }
    }
}
