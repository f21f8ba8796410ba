//! Fast commits of inodes that hold their content: a record has such an inode whole, with its
//! attributes.

use std::sync::Arc;

use jbd2::Record;
use rt::Cx;

use super::{MountError, Replay, bad};
use crate::attr::inline;
use crate::format::dir::{empty_inline, inline_parent};
use crate::format::fast_commit::BadRecordKind;
use crate::format::inode::BASE_SIZE;
use crate::format::xattr::{self, XattrArea};
use crate::format::{FileKind, InodeFlags, InodeValues};
use crate::inode::Inode;

impl Replay<'_> {
    /// The content in a record's inode; `None` where it lies in blocks. A directory is empty: its
    /// names have records of their own.
    pub(super) fn inline_content(
        &self,
        record: &Record,
        ino: u32,
        raw: &[u8],
        values: &InodeValues,
    ) -> Result<Option<Vec<u8>>, MountError> {
        if !values.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(None);
        }
        let g = &*self.fs.sb.geometry;
        let allowed = g.inline_data() && values.may_be_inline();
        if allowed && values.kind() == Some(FileKind::Directory) {
            return Ok(Some(empty_inline(inline_parent(&values.block)).to_vec()));
        }
        let area = raw.get(BASE_SIZE + usize::from(values.extra_isize)..).unwrap_or_default();
        let entries = xattr::entries(area, XattrArea::Inode, g.large_values());
        let mut entries = entries.into_iter().flatten().map_while(Result::ok);
        let tail = entries.find(|entry| xattr::Xattr::of(entry).is_inline_data());
        let mut content = values.block.to_vec();
        content.extend(tail.map_or(&[][..], |entry| entry.value));
        match allowed && tail.is_some() && values.size <= content.len() as u64 {
            true => {
                content.truncate(values.size as usize);
                Ok(Some(content))
            }
            false => Err(bad(record, BadRecordKind::Content { ino, size: values.size })),
        }
    }

    /// Makes `content` that of an inode without blocks.
    pub(super) fn put_content(
        &mut self,
        cx: &mut Cx,
        record: &Record,
        inode: &Arc<Inode>,
        content: &[u8],
    ) -> Result<(), MountError> {
        let (fs, size) = (&self.fs.inodes, content.len() as u64);
        if !inline::write(fs, cx, &mut self.handle, inode, content)? {
            let ino = inode.ino.0 as u32;
            return Err(bad(record, BadRecordKind::Content { ino, size }));
        }
        inode.with(cx, |core| {
            (core.size, core.values.size) = (size, size);
            if core.kind() == Some(FileKind::Directory) {
                core.links = core.links.max(2);
            }
        });
        Ok(fs.mark_dirty(cx, &mut self.handle, inode)?)
    }

    /// The same for one that was there, unless it has blocks.
    pub(super) fn put_known_content(
        &mut self,
        cx: &mut Cx,
        record: &Record,
        inode: &Arc<Inode>,
        content: &[u8],
    ) -> Result<(), MountError> {
        let mapped = inode.has_extents(cx)
            && self.fs.inodes.bmap(inode).map_lookup(cx, 0, u32::MAX)?.len < u32::MAX;
        match mapped {
            true => Err(bad(record, BadRecordKind::NoExtents { ino: inode.ino.0 as u32 })),
            false => self.put_content(cx, record, inode, content),
        }
    }

    /// Where a record says that content which lies in the inode has left for blocks: takes it out.
    /// Records of their places follow.
    pub(super) fn leave_inode(
        &mut self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        flags: InodeFlags,
    ) -> Result<(), MountError> {
        let file = inode.kind(cx) == vfs::FileType::Regular;
        if file && inode.inline_size(cx).is_some() && flags.contains(InodeFlags::EXTENTS) {
            inline::remove(&self.fs.inodes, cx, &mut self.handle, inode)?;
            self.fs.inodes.mark_dirty(cx, &mut self.handle, inode)?;
        }
        Ok(())
    }
}
