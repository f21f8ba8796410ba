//! Open files: flags and a position on top of an inode.

use std::sync::Arc;

use base::{Errno, Ino};
use bitflags::bitflags;
use block::Segment;
use rt::{Charge, Cx, Mutex};

use crate::attr::{Attr, FallocMode, FileType, SetAttr};
use crate::fs::FileSystem;
use crate::permission;

bitflags! {
    /// How a file is opened. The names are those of open(2) without `O_`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct OpenFlags: u32 {
        /// Reading is allowed.
        const READ = 1;
        /// Writing is allowed.
        const WRITE = 1 << 1;
        /// Create a regular file if the name does not exist.
        const CREATE = 1 << 2;
        /// With `CREATE`: fail with `EEXIST` if it does, and do not follow a final symlink.
        const EXCL = 1 << 3;
        /// Cut a regular file to length 0.
        const TRUNC = 1 << 4;
        /// Every write goes to the end of the file.
        const APPEND = 1 << 5;
        /// Past the page cache: offsets, lengths multiples of the logical block.
        const DIRECT = 1 << 6;
        /// Every write is durable when it returns, with all attributes.
        const SYNC = 1 << 7;
        /// Every write is durable when it returns, with what is needed to read it.
        const DSYNC = 1 << 8;
        /// Only a directory will do.
        const DIRECTORY = 1 << 9;
        /// A final symlink is `ELOOP`.
        const NOFOLLOW = 1 << 10;
    }
}

/// An open file. Closing it ([`File::close`]) is not left to `Drop`, because it may wait.
pub struct File {
    fs: Arc<dyn FileSystem>,
    ino: Ino,
    kind: FileType,
    flags: OpenFlags,
    /// Bytes from the start; held during a read or write that moves it, as the kernel does.
    position: Mutex<u64>,
}

impl File {
    /// Opens an inode whose access was checked already; its open count rises.
    ///
    /// # Errors
    /// Those of the file system's `open`.
    pub fn open(
        cx: &mut Cx,
        fs: &Arc<dyn FileSystem>,
        attr: &Attr,
        flags: OpenFlags,
    ) -> Result<File, Errno> {
        fs.open(cx, attr.ino)?;
        let position = Mutex::named("file position", 0);
        Ok(File { fs: fs.clone(), ino: attr.ino, kind: attr.kind, flags, position })
    }

    /// The inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The flags given at open.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// The attributes now.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn attr(&self, cx: &mut Cx) -> Result<Attr, Errno> {
        cx.charge_for(Charge::Syscall, 1);
        self.fs.getattr(cx, self.ino)
    }

    /// Reads at the position and moves it.
    ///
    /// # Errors
    /// `EBADF` not open for reading; those of the file system's `read`.
    pub fn read(&self, cx: &mut Cx, buf: &mut [u8]) -> Result<usize, Errno> {
        let mut position = self.position.lock(cx);
        let count = self.read_at(cx, *position, buf)?;
        *position += count as u64;
        Ok(count)
    }

    /// Reads at byte `offset`; the position stays.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_at(&self, cx: &mut Cx, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        cx.charge_for(Charge::Syscall, 1);
        if !self.flags.contains(OpenFlags::READ) {
            return Err(Errno::EBADF);
        }
        if self.flags.contains(OpenFlags::DIRECT) {
            self.fs.read_direct(cx, self.ino, offset, buf)
        } else {
            self.fs.read(cx, self.ino, offset, buf)
        }
    }

    /// Writes at the position (with `APPEND` at the end of the file) and moves it behind.
    ///
    /// # Errors
    /// `EBADF` not open for writing; those of the file system's `write` and, with `SYNC` or
    /// `DSYNC`, of its `fsync`.
    pub fn write(&self, cx: &mut Cx, data: &[u8]) -> Result<usize, Errno> {
        let mut position = self.position.lock(cx);
        if self.flags.contains(OpenFlags::APPEND) && self.flags.contains(OpenFlags::WRITE) {
            cx.charge_for(Charge::Syscall, 1);
            self.drop_set_id(cx)?;
            let (start, count) = self.fs.append(cx, self.ino, data)?;
            *position = start + count as u64;
            self.sync_if_asked(cx)?;
            return Ok(count);
        }
        let count = self.write_at(cx, *position, data)?;
        *position += count as u64;
        Ok(count)
    }

    /// Writes at byte `offset`; the position stays. `APPEND` plays no part here.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_at(&self, cx: &mut Cx, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        cx.charge_for(Charge::Syscall, 1);
        if !self.flags.contains(OpenFlags::WRITE) {
            return Err(Errno::EBADF);
        }
        self.drop_set_id(cx)?;
        let count = if self.flags.contains(OpenFlags::DIRECT) {
            self.fs.write_direct(cx, self.ino, offset, data)?
        } else {
            self.fs.write(cx, self.ino, offset, data)?
        };
        self.sync_if_asked(cx)?;
        Ok(count)
    }

    /// Writes the bytes of `pages` at byte `offset`, past the page cache and without a copy; the
    /// position stays.
    ///
    /// # Errors
    /// `EINVAL` not open with `DIRECT`; as [`write_at`](Self::write_at).
    pub fn write_pages_at(
        &self,
        cx: &mut Cx,
        offset: u64,
        pages: &[Segment],
    ) -> Result<u64, Errno> {
        cx.charge_for(Charge::Syscall, 1);
        if !self.flags.contains(OpenFlags::WRITE) {
            return Err(Errno::EBADF);
        }
        if !self.flags.contains(OpenFlags::DIRECT) {
            return Err(Errno::EINVAL);
        }
        self.drop_set_id(cx)?;
        let count = self.fs.write_direct_pages(cx, self.ino, offset, pages)?;
        self.sync_if_asked(cx)?;
        Ok(count)
    }

    /// Moves the position to byte `offset` (which may lie beyond the end) and returns it.
    ///
    /// # Errors
    /// `EINVAL` above `i64::MAX`.
    pub fn seek(&self, cx: &mut Cx, offset: u64) -> Result<u64, Errno> {
        cx.charge_for(Charge::Syscall, 1);
        if offset > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        *self.position.lock(cx) = offset;
        Ok(offset)
    }

    /// Sets the size.
    ///
    /// # Errors
    /// `EINVAL` not open for writing or not a regular file; `EFBIG`.
    pub fn truncate(&self, cx: &mut Cx, size: u64) -> Result<(), Errno> {
        cx.charge_for(Charge::Syscall, 1);
        if !self.flags.contains(OpenFlags::WRITE) || self.kind != FileType::Regular {
            return Err(Errno::EINVAL);
        }
        self.drop_set_id(cx)?;
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr(cx, self.ino, &set).map(drop)
    }

    /// Allocates, punches or zeroes `offset..offset+len`, bytes.
    ///
    /// # Errors
    /// `EBADF` not open for writing; those of the file system's `fallocate`.
    pub fn fallocate(
        &self,
        cx: &mut Cx,
        mode: FallocMode,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        cx.charge_for(Charge::Syscall, 1);
        if !self.flags.contains(OpenFlags::WRITE) {
            return Err(Errno::EBADF);
        }
        self.fs.fallocate(cx, self.ino, mode, offset, len)
    }

    /// Makes content and attributes durable.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`: a write-back failed since the last call.
    pub fn fsync(&self, cx: &mut Cx) -> Result<(), Errno> {
        cx.charge_for(Charge::Syscall, 1);
        self.fs.fsync(cx, self.ino, false)
    }

    /// Makes content durable, and of the attributes what is needed to read it.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub fn fdatasync(&self, cx: &mut Cx) -> Result<(), Errno> {
        cx.charge_for(Charge::Syscall, 1);
        self.fs.fsync(cx, self.ino, true)
    }

    /// Closes the file. If its last name is gone, the inode is freed here.
    ///
    /// # Errors
    /// Those of freeing the inode.
    pub fn close(self, cx: &mut Cx) -> Result<(), Errno> {
        cx.charge_for(Charge::Syscall, 1);
        self.fs.release(cx, self.ino)
    }

    fn sync_if_asked(&self, cx: &mut Cx) -> Result<(), Errno> {
        if self.flags.contains(OpenFlags::SYNC) {
            self.fsync(cx)
        } else if self.flags.contains(OpenFlags::DSYNC) {
            self.fdatasync(cx)
        } else {
            Ok(())
        }
    }

    fn drop_set_id(&self, cx: &mut Cx) -> Result<(), Errno> {
        if cx.cred().uid == 0 || self.kind != FileType::Regular {
            return Ok(());
        }
        let mode = self.fs.getattr(cx, self.ino)?.mode;
        if permission::without_set_id(mode) != mode {
            let mode = Some(permission::without_set_id(mode));
            self.fs.setattr(cx, self.ino, &SetAttr { mode, ..SetAttr::default() })?;
        }
        Ok(())
    }
}
