//! Requests about the content of files.

use base::{Errno, Ino};
use block::HostRange;
use fuser::INodeNo;
use rt::{Cred, Cx};
use vfs::{FallocMode, FileSystem, SeekWhence, SetAttr};

use super::Adapter;
use super::requests::Answered;
use crate::abi::*;
use crate::wire::{Answer, Request};

const O_DIRECT: u32 = 0o40000;
/// What direct I/O is aligned to.
const DIRECT_ALIGN: u64 = 512;
/// The kernel's pages.
const PAGE: u64 = 4096;

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Requests of so many bytes and more are the kernel's readahead and write-back of its own cache.
const PAST_MIN: usize = 64 << 10;

/// Bytes copied through memory at once, and at most by one request.
const COPY_AT_ONCE: usize = 1 << 20;
const COPY_MAX: u64 = 64 << 20;

/// Whether a request goes past the cache.
///
/// # Errors
/// `EINVAL` it wants to and is not aligned.
fn is_direct(flags: u32, offset: u64, len: usize) -> Result<bool, Errno> {
    if flags & O_DIRECT == 0 {
        return Ok(false);
    }
    match (offset | len as u64).is_multiple_of(DIRECT_ALIGN) {
        true => Ok(true),
        false => Err(Errno::EINVAL),
    }
}

impl Adapter {
    /// READ, WRITE, FSYNC, FSYNCDIR, FALLOCATE, COPY_FILE_RANGE.
    pub(crate) fn content(
        &self,
        cx: &mut Cx,
        node: INodeNo,
        req: &Request,
        out: &mut Answer,
    ) -> Answered {
        let written = match req.header.opcode {
            op::READ => return self.read_file(cx, node, req, out),
            op::WRITE => self.write_and_record_error(cx, node, req)?,
            op::COPY_FILE_RANGE => self.growing(cx, |cx| self.copy(cx, node, req))?,
            op::FALLOCATE => {
                let (arg, _) = req.take::<FallocateIn>()?;
                return self.growing(cx, |cx| self.allocate(cx, node, &arg));
            }
            // A directory's names are its data.
            op::FSYNCDIR => return self.fs.fsync(cx, self.ino(node), false),
            _ => {
                let (arg, _) = req.take::<FsyncIn>()?;
                let content_only = arg.fsync_flags & FSYNC_DATASYNC != 0;
                return self.fs.fsync(cx, self.ino(node), content_only);
            }
        };
        out.push(WriteOut { size: written as u32, padding: 0 });
        Ok(())
    }

    fn read_file(&self, cx: &mut Cx, node: INodeNo, req: &Request, out: &mut Answer) -> Answered {
        let (arg, _) = req.take::<ReadIn>()?;
        let (ino, offset, size) = (self.ino(node), arg.offset, arg.size as usize);
        let past = is_direct(arg.flags, offset, size)? || self.goes_past(offset, size);
        if past && size >= PAST_MIN && out.can_splice() {
            let mut give = |ranges: &[HostRange<'_>]| out.splice(req.header.unique, ranges);
            if self.fs.read_at_host(cx, ino, offset, size as u64, &mut give)? {
                return Ok(());
            }
        }
        out.fill(size, |buffer| match past {
            true => self.fs.read_direct(cx, ino, offset, buffer),
            false => self.fs.read(cx, ino, offset, buffer),
        })
    }

    /// Whether a request goes past our cache: what the kernel reads ahead in large pieces it keeps,
    /// and asks for once; what it writes back in large pieces it has collected. A second copy here
    /// would only cost memory and time.
    fn goes_past(&self, offset: u64, size: usize) -> bool {
        !self.shared && size >= PAST_MIN && (offset | size as u64).is_multiple_of(PAGE)
    }

    /// Writes. If it is the kernel's write-back, an error is recorded for the next writer.
    fn write_and_record_error(
        &self,
        cx: &mut Cx,
        node: INodeNo,
        req: &Request,
    ) -> Result<usize, Errno> {
        let result = self.growing(cx, |cx| self.write_file(cx, node, req));
        let collected =
            || req.take::<WriteIn>().is_ok_and(|(a, _)| a.write_flags & WRITE_CACHE != 0);
        match result {
            Ok(count) => self.writeback_limits.account(cx, &*self.fs, count as u64),
            Err(errno) if collected() => {
                let free = self.fs.statfs(cx).map_or(0, |stat| stat.blocks_free);
                self.writeback_errors.record(node, errno, free);
                let bytes = req.take::<WriteIn>().map_or(0, |(arg, _)| u64::from(arg.size));
                self.fs.note_lost(self.ino(node), bytes, errno);
            }
            Err(_) => {}
        }
        result
    }

    fn write_file(&self, cx: &mut Cx, node: INodeNo, req: &Request) -> Result<usize, Errno> {
        let (arg, data) = req.take::<WriteIn>()?;
        let data = data.get(..arg.size as usize).ok_or(Errno::EIO)?;
        let (ino, offset) = (self.ino(node), arg.offset);
        // A server does it by itself, also for those who may not change the mode.
        if arg.write_flags & WRITE_KILL_SUIDGID != 0 && !self.shared {
            let old = self.fs.getattr(cx, ino)?.mode;
            let mode = vfs::permission::without_set_id(old);
            if mode != old {
                self.fs.setattr(cx, ino, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
            }
        }
        // The kernel's own write-back has flags of some opener, and whole pages.
        if arg.write_flags & WRITE_CACHE != 0 {
            return self.write_back(cx, ino, offset, data).map(|()| data.len());
        }
        match is_direct(arg.flags, offset, data.len())? {
            true => self.write_direct(cx, ino, offset, data),
            false => self.fs.write(cx, ino, offset, data),
        }
    }

    /// Writes past the cache. The kernel takes a short answer for `EIO`, inside of the file and
    /// behind its end: the error that ended the write is the answer. A file that was to grow the
    /// kernel then cuts back.
    fn write_direct(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let mut done = self.fs.write_direct(cx, ino, offset, data)?;
        while done < data.len() {
            let (at, rest) = (offset + done as u64, &data[done..]);
            let more = match self.fs.write_direct(cx, ino, at, rest) {
                Err(Errno::EINVAL) => self.fs.write(cx, ino, at, rest),
                more => more,
            };
            match more {
                Ok(count) if count > 0 => done += count,
                end => return Err(end.err().unwrap_or(Errno::EIO)),
            }
        }
        Ok(done)
    }

    /// Takes what the kernel writes back. It does not look at how much was taken: all, or an error.
    ///
    /// It comes as root's, whoever wrote it: the file's owner is held to his limits instead.
    fn write_back(&self, cx: &mut Cx, ino: Ino, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let owner = self.fs.getattr(cx, ino)?;
        cx.set_cred(Cred { umask: 0, ..Cred::user(owner.uid, owner.gid) });
        let mut done = 0;
        if self.goes_past(offset, data.len()) {
            match self.fs.write_direct(cx, ino, offset, data) {
                Ok(count) => done = count,
                // Not where the file system keeps content with metadata.
                Err(Errno::EINVAL | Errno::EOPNOTSUPP) => {}
                Err(error) => return Err(error),
            }
        }
        while done < data.len() {
            match self.fs.write(cx, ino, offset + done as u64, &data[done..])? {
                0 => return Err(Errno::EIO),
                count => done += count,
            }
        }
        Ok(())
    }

    fn allocate(&self, cx: &mut Cx, node: INodeNo, arg: &FallocateIn) -> Answered {
        let keep_size = arg.mode & KEEP_SIZE != 0;
        let mode = match arg.mode & !KEEP_SIZE {
            0 => FallocMode::Allocate { keep_size },
            PUNCH_HOLE if keep_size => FallocMode::PunchHole,
            ZERO_RANGE => FallocMode::ZeroRange { keep_size },
            _ => return Err(Errno::EOPNOTSUPP),
        };
        self.fs.fallocate(cx, self.ino(node), mode, arg.offset, arg.length)
    }

    /// Copies inside of the file system; the kernel has written its pages before.
    fn copy(&self, cx: &mut Cx, node: INodeNo, req: &Request) -> Result<usize, Errno> {
        let (arg, _) = req.take::<CopyFileRangeIn>()?;
        let (from, to) = (self.ino(node), self.ino(INodeNo(arg.nodeid_out)));
        let len = arg.len.min(COPY_MAX) as usize;
        let mut buffer = vec![0; len.min(COPY_AT_ONCE)];
        let mut done = 0;
        while done < len {
            let part = (len - done).min(buffer.len());
            let at = done as u64;
            let moved = self.fs.read(cx, from, arg.off_in + at, &mut buffer[..part]);
            let moved = moved.and_then(|count| match count {
                0 => Ok(0),
                _ => self.fs.write(cx, to, arg.off_out + at, &buffer[..count]),
            });
            match moved {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Where data or a hole is next. May park.
pub(crate) fn seek(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    ino: Ino,
    offset: i64,
    whence: u32,
) -> Result<u64, Errno> {
    let whence = match whence {
        SEEK_DATA => SeekWhence::Data,
        SEEK_HOLE => SeekWhence::Hole,
        _ => return Err(Errno::EINVAL),
    };
    let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
    fs.seek(cx, ino, offset, whence)
}
