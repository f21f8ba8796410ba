//! A device as a file system of one file, so that the kernel's loop device can use it.

use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Errno, Ino, Page, Sector};
use block::{BioFlags, Queue};
use rt::Cx;
use vfs::{
    Attr, DirEntry, FallocMode, FileSystem, FileType, Iomap, NewNode, RenameFlags, SeekWhence,
    SetAttr, StatFs, XattrFlags,
};

/// The name of the file.
pub const NAME: &[u8] = b"disk";
const ROOT: Ino = Ino(1);
const DISK: Ino = Ino(2);

/// A directory with one file, [`NAME`], that is a device. A write has been carried out when it
/// returns, and fsync flushes the device; nothing is cached. Writes are whole sectors.
pub struct DiskFile {
    queue: Arc<Queue>,
}

impl DiskFile {
    /// The device behind `queue` as a file.
    pub fn new(queue: Arc<Queue>) -> DiskFile {
        DiskFile { queue }
    }

    fn attr(&self, ino: Ino) -> Result<Attr, Errno> {
        let (kind, mode, size) = match ino {
            ROOT => (FileType::Directory, 0o755, 0),
            DISK => (FileType::Regular, 0o600, self.queue.info().bytes()),
            _ => return Err(Errno::ESTALE),
        };
        let time = base::Timespec::default();
        Ok(Attr {
            ino,
            kind,
            mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            blocks: size / SECTOR_SIZE,
            atime: time,
            mtime: time,
            ctime: time,
            btime: None,
            generation: 0,
            flags: 0,
            blksize: 4096,
        })
    }

    /// The part of `offset..offset + len` that is on the device.
    fn part(&self, ino: Ino, offset: u64, len: usize) -> Result<usize, Errno> {
        match ino {
            DISK => Ok((self.queue.info().bytes().saturating_sub(offset)).min(len as u64) as usize),
            _ => Err(Errno::EISDIR),
        }
    }
}

impl FileSystem for DiskFile {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, _cx: &mut Cx, _dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        match name {
            b"." | b".." => self.attr(ROOT),
            NAME => self.attr(DISK),
            _ => Err(Errno::ENOENT),
        }
    }

    fn getattr(&self, _cx: &mut Cx, ino: Ino) -> Result<Attr, Errno> {
        self.attr(ino)
    }

    /// Times are not kept; anything else stays as it is.
    fn setattr(&self, _cx: &mut Cx, ino: Ino, set: &SetAttr) -> Result<Attr, Errno> {
        match (set.size, set.mode, set.uid, set.gid) {
            (None, None, None, None) => self.attr(ino),
            _ => Err(Errno::EPERM),
        }
    }

    fn create(&self, _: &mut Cx, _: Ino, _: &[u8], _: &NewNode) -> Result<Attr, Errno> {
        Err(Errno::EPERM)
    }

    fn link(&self, _: &mut Cx, _: Ino, _: Ino, _: &[u8]) -> Result<Attr, Errno> {
        Err(Errno::EPERM)
    }

    fn unlink(&self, _: &mut Cx, _: Ino, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }

    fn rmdir(&self, _: &mut Cx, _: Ino, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }

    fn rename(
        &self,
        _: &mut Cx,
        _: Ino,
        _: &[u8],
        _: Ino,
        _: &[u8],
        _: RenameFlags,
    ) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }

    fn readlink(&self, _: &mut Cx, _: Ino) -> Result<Vec<u8>, Errno> {
        Err(Errno::EINVAL)
    }

    fn readdir(
        &self,
        _cx: &mut Cx,
        _dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), Errno> {
        let names: [(&[u8], Ino, FileType); 3] = [
            (b".", ROOT, FileType::Directory),
            (b"..", ROOT, FileType::Directory),
            (NAME, DISK, FileType::Regular),
        ];
        for (at, (name, ino, kind)) in (1..).zip(names) {
            if at > cookie && !emit(DirEntry { ino, kind: Some(kind), name, cookie: at }) {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, _: &mut Cx, _: Ino) -> Result<(), Errno> {
        Ok(())
    }

    fn release(&self, _: &mut Cx, _: Ino) -> Result<(), Errno> {
        Ok(())
    }

    fn read(&self, cx: &mut Cx, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let len = self.part(ino, offset, buf.len())?;
        if len == 0 {
            return Ok(0);
        }
        let first = offset / SECTOR_SIZE;
        let end = (offset + len as u64).div_ceil(SECTOR_SIZE);
        let bytes = ((end - first) * SECTOR_SIZE) as usize;
        let page = self.queue.read(cx, Sector(first), bytes).map_err(|error| error.to_errno())?;
        let skip = (offset - first * SECTOR_SIZE) as usize;
        buf[..len].copy_from_slice(&page[skip..skip + len]);
        Ok(len)
    }

    fn write(&self, cx: &mut Cx, ino: Ino, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let len = self.part(ino, offset, data.len())?;
        if len == 0 {
            return Err(Errno::ENOSPC);
        }
        if !offset.is_multiple_of(SECTOR_SIZE) || !(len as u64).is_multiple_of(SECTOR_SIZE) {
            return Err(Errno::EINVAL);
        }
        let page = Page::from_slice(&data[..len]);
        let sector = Sector(offset / SECTOR_SIZE);
        let written = self.queue.write(cx, sector, page, BioFlags::empty());
        written.map_err(|error| error.to_errno())?;
        Ok(len)
    }

    fn fsync(&self, cx: &mut Cx, _ino: Ino, _datasync: bool) -> Result<(), Errno> {
        self.sync(cx)
    }

    fn sync(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.queue.flush(cx).map_err(|error| error.to_errno())
    }

    fn fallocate(&self, _: &mut Cx, _: Ino, _: FallocMode, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn seek(&self, _: &mut Cx, ino: Ino, offset: u64, whence: SeekWhence) -> Result<u64, Errno> {
        let size = self.attr(ino)?.size;
        whence.find(offset, size, |_| Ok((true, size)))
    }

    fn fiemap(&self, _: &mut Cx, _: Ino, _: u64, _: u64) -> Result<Vec<Iomap>, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn getxattr(&self, _: &mut Cx, _: Ino, _: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::ENODATA)
    }

    fn setxattr(&self, _: &mut Cx, _: Ino, _: &[u8], _: &[u8], _: XattrFlags) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn listxattr(&self, _: &mut Cx, _: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(Vec::new())
    }

    fn removexattr(&self, _: &mut Cx, _: Ino, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::ENODATA)
    }

    fn statfs(&self, _: &mut Cx) -> Result<StatFs, Errno> {
        let blocks = self.queue.info().bytes() / 4096;
        Ok(StatFs { block_size: 4096, blocks, inodes: 2, name_max: 255, ..StatFs::default() })
    }

    fn unmount(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.sync(cx)
    }

    fn shutdown_hard(&self) {}
}
