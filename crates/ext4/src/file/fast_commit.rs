//! Builds the records of what the running transaction has changed.
//!
//! Records come in this order: the inodes that are new, the blocks of files, names in the order in
//! which they changed, and the inodes again, for a name's record counts links.

use std::collections::BTreeMap;
use std::ops::Range;

use base::Errno;
use jbd2::{FastChanges, FastCommitWriter, Tid};
use rt::Cx;
use zerocopy::IntoBytes;

use crate::bmap::map::State;
use crate::format::extent::{Extent, LEN_MAX, UNWRITTEN_LEN_MAX};
use crate::format::fast_commit::{
    TAG_ADD_RANGE, TAG_CREATE, TAG_DEL_RANGE, TAG_INODE, TAG_LINK, TAG_UNLINK,
};
use crate::format::inode::BASE_SIZE;
use crate::inode::fast_commit::FastTracker;
use crate::inode::{Inode, Inodes};

/// Blocks of one record of a hole.
const HOLE_MAX: u32 = 0x7fff_ffff;

/// Notes the changes of a mount.
pub(crate) struct Reporter<'a> {
    pub fs: &'a Inodes,
    pub tracker: &'a FastTracker,
}

impl FastChanges for Reporter<'_> {
    fn collect(&self, cx: &mut Cx, tid: Tid, out: &mut FastCommitWriter) -> Result<bool, Errno> {
        let mut changed = self.tracker.take_changed(cx, tid);
        changed.drop_nameless(cx);
        let mut raw = BTreeMap::new();
        for (&ino, file) in &changed.files {
            // What such an inode holds is not in its fields alone.
            if file.inode.inline_size(cx).is_some() {
                return Ok(false);
            }
            raw.insert(ino, self.raw_fields(cx, &file.inode)?);
        }
        let inode = |out: &mut FastCommitWriter, ino: u32, raw: &[u8]| {
            out.push(TAG_INODE, &[&ino.to_le_bytes(), raw]);
        };
        for ino in &changed.created {
            inode(out, *ino, &raw[ino]);
        }
        for (&ino, file) in &changed.files {
            for range in file.blocks.iter() {
                let new = changed.created.contains(&ino);
                self.push_ranges(cx, &file.inode, range, new, out)?;
            }
        }
        let mut unnamed = changed.created.clone();
        for name in &changed.names {
            let tag = match name.removed {
                true => TAG_UNLINK,
                false if unnamed.remove(&name.ino) => TAG_CREATE,
                false => TAG_LINK,
            };
            let (parent, ino) = (name.parent.to_le_bytes(), name.ino.to_le_bytes());
            out.push(tag, &[&parent, &ino, &name.name]);
        }
        for (ino, raw) in &raw {
            inode(out, *ino, raw);
        }
        Ok(unnamed.is_empty())
    }
}

impl Reporter<'_> {
    /// The fields of an inode as they are in its table; attributes behind them are not reported.
    fn raw_fields(&self, cx: &mut Cx, inode: &Inode) -> Result<Vec<u8>, Errno> {
        let (buffer, offset) = self.fs.inode_slot(cx, inode.ino)?;
        let size = self.fs.sb.geometry.inode_size as usize;
        Ok(buffer.with(|data| {
            let slot = &data[offset..offset + size];
            let extra = slot.get(BASE_SIZE..BASE_SIZE + 2);
            let extra = extra.map_or(0, |at| usize::from(u16::from_le_bytes([at[0], at[1]])));
            slot[..(BASE_SIZE + extra).min(size)].to_vec()
        }))
    }

    /// What lies in `blocks` now; a new file has no holes that need a record.
    fn push_ranges(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        blocks: Range<u32>,
        new: bool,
        out: &mut FastCommitWriter,
    ) -> Result<(), Errno> {
        let ino = (inode.ino.0 as u32).to_le_bytes();
        let mut at = blocks.start;
        while at < blocks.end {
            let found = self.fs.bmap(inode).map_lookup(cx, at, blocks.end - at)?;
            let unwritten = found.state == State::Unwritten;
            let most = match found.state {
                State::Hole => HOLE_MAX,
                State::Unwritten => UNWRITTEN_LEN_MAX,
                State::Written => LEN_MAX,
            };
            let len = found.len.min(most);
            if found.state != State::Hole {
                let extent = Extent { block: at, len, start: found.pblk, unwritten };
                out.push(TAG_ADD_RANGE, &[&ino, extent.raw().as_bytes()]);
            } else if !new {
                out.push(TAG_DEL_RANGE, &[&ino, &at.to_le_bytes(), &len.to_le_bytes()]);
            }
            at += len;
        }
        Ok(())
    }
}
