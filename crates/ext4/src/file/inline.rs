//! Regular files whose content lies in the inode: read and written there, in the transaction of
//! the inode, past the page cache. A file gets its content there with its first write, where that
//! fits, and leaves for a block when it grows beyond the room; it never comes back.
//!
//! The way out is one transaction: the content goes to the page cache as a delayed block, and the
//! handle that gives that block its place takes the content out of the inode.

use std::sync::Arc;

use base::Errno;
use rt::Cx;

use crate::attr::inline;
use crate::inode::{Inode, Inodes};
use crate::trans::ext4_jbd2::Handle;

impl Inodes {
    /// See [`vfs::iomap::IomapFile::read_inline`].
    pub(crate) fn read_inline(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>, Errno> {
        let Some(size) = inode.inline_size(cx) else { return Ok(None) };
        if offset >= size {
            return Ok(Some(0));
        }
        let content = inline::read(self, cx, inode)?;
        let count = (size - offset).min(buf.len() as u64) as usize;
        let found = content.get(offset as usize..).unwrap_or_default();
        let known = found.len().min(count);
        buf[..known].copy_from_slice(&found[..known]);
        buf[known..count].fill(0);
        Ok(Some(count))
    }

    /// See [`vfs::iomap::IomapFile::write_inline`].
    pub(crate) fn write_inline(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
    ) -> Result<bool, Errno> {
        let end = offset.saturating_add(data.len() as u64);
        let change = |content: &mut Vec<u8>| {
            let (offset, end) = (offset as usize, end as usize);
            content.resize(content.len().max(end), 0);
            content[offset..end].copy_from_slice(data);
        };
        self.change_inline(cx, inode, end, &change)
    }

    /// See [`vfs::iomap::IomapFile::resize_inline`].
    pub(crate) fn resize_inline(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        size: u64,
    ) -> Result<bool, Errno> {
        if inode.inline_size(cx).is_none() {
            // A hole does not lie in the inode.
            inode.with(cx, |core| core.may_inline &= size == 0);
            return Ok(false);
        }
        self.change_inline(cx, inode, size, &|content| content.resize(size as usize, 0))
    }

    /// Changes content in the inode, or moves it out where `end` bytes do not fit there.
    fn change_inline(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        end: u64,
        change: &dyn Fn(&mut Vec<u8>),
    ) -> Result<bool, Errno> {
        let size = inode.inline_size(cx);
        let may_begin = inode.with(cx, |core| core.may_inline && core.size == 0);
        let most = u64::from(self.sb.geometry.inode_size);
        let fits = end.max(size.unwrap_or(0)) <= most;
        if !fits || size.is_none() && !may_begin {
            return self.leave_inline(cx, inode).map(|()| false);
        }
        let mut content = match size {
            Some(_) => inline::read(self, cx, inode)?,
            None => Vec::new(),
        };
        content.resize(size.unwrap_or(0) as usize, 0);
        change(&mut content);
        let mut handle = self.sb.journal_start(cx, inline::CREDITS)?;
        let written = self.write_content(cx, &mut handle, inode, &content);
        handle.stop(cx)?;
        match written? {
            true => Ok(true),
            false => self.leave_inline(cx, inode).map(|()| false),
        }
    }

    /// Puts a file's new content into the inode, with its size and times.
    fn write_content(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Arc<Inode>,
        content: &[u8],
    ) -> Result<bool, Errno> {
        if !inline::write(self, cx, handle, inode, content)? {
            return Ok(false);
        }
        let (now, size, tid) = (self.sb.now(cx), content.len() as u64, handle.tid());
        inode.with(cx, |core| {
            core.may_inline = false;
            (core.size, core.values.size) = (size, size);
            (core.mtime, core.ctime) = (now, now);
            core.datasync_tid = tid;
        });
        if let Some(mapping) = inode.mapping_if_any() {
            mapping.set_size(size);
        }
        self.mark_dirty(cx, handle, inode)?;
        Ok(true)
    }

    /// See [`vfs::iomap::IomapFile::leave_inline`].
    pub(crate) fn leave_inline(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        inode.with(cx, |core| core.may_inline = false);
        let Some(size) = inode.inline_size(cx) else { return Ok(()) };
        if size == 0 {
            let mut handle = self.sb.journal_start(cx, inline::CREDITS)?;
            let removed = inline::remove(self, cx, &mut handle, inode);
            self.mark_dirty(cx, &mut handle, inode)?;
            handle.stop(cx)?;
            return removed;
        }
        let mut content = inline::read(self, cx, inode)?;
        content.truncate(size as usize);
        let mapping = inode.mapping().clone();
        mapping.write(cx, 0, &content)?;
        let flushed = mapping.start_flush(cx);
        match inode.inline_size(cx) {
            None => Ok(()),
            // What had no place was dropped, and the content is where it was.
            Some(_) => flushed.and(Err(Errno::EIO)),
        }
    }

    /// As part of the handle that gives a block to content that lay in the inode: takes it out of
    /// the inode. Returns what was there; `None` where it lay in blocks already.
    pub(crate) fn take_inline(
        &self,
        cx: &mut Cx,
        handle: &mut Handle,
        inode: &Inode,
    ) -> Result<Option<Vec<u8>>, Errno> {
        if inode.inline_size(cx).is_none() {
            return Ok(None);
        }
        let content = inline::read(self, cx, inode)?;
        handle.mark_ineligible();
        inline::remove(self, cx, handle, inode)?;
        Ok(Some(content))
    }
}

impl Inode {
    /// The size of content that lies in the inode; `None` where it lies in blocks.
    pub(crate) fn inline_size(&self, cx: &Cx) -> Option<u64> {
        self.with(cx, |core| core.is_inline().then_some(core.size))
    }
}
