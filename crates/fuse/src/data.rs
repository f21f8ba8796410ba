//! Requests about the content of files.

use base::{Errno, Ino};
use fuser::{INodeNo, OpenFlags, ReplyData, Request, WriteFlags};
use rt::Cx;
use vfs::{FallocMode, FileSystem, SeekWhence, SetAttr};

use crate::adapter::Adapter;

const O_DIRECT: i32 = 0o40000;
/// What direct I/O is aligned to.
const DIRECT_ALIGN: u64 = 512;
/// The kernel's pages.
const PAGE: u64 = 4096;

const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 0x10;

const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Requests of so many bytes and more are the kernel's readahead and write-back of its own cache.
const PAST_MIN: usize = 64 << 10;

/// Bytes copied through memory at once, and at most by one request.
const COPY_AT_ONCE: usize = 1 << 20;
const COPY_MAX: u64 = 64 << 20;

/// Whether a request goes past the cache.
///
/// # Errors
/// `EINVAL` it wants to and is not aligned.
fn is_direct(flags: OpenFlags, offset: u64, len: usize) -> Result<bool, Errno> {
    if flags.0 & O_DIRECT == 0 {
        return Ok(false);
    }
    match (offset | len as u64).is_multiple_of(DIRECT_ALIGN) {
        true => Ok(true),
        false => Err(Errno::EINVAL),
    }
}

impl Adapter {
    pub(crate) fn read_file(
        &self,
        request: &Request,
        node: INodeNo,
        offset: u64,
        size: usize,
        flags: OpenFlags,
        reply: ReplyData,
    ) {
        self.with_buffer(size, |buffer| {
            let result = self.serve(request, |cx| {
                let past = is_direct(flags, offset, size)? || self.goes_past(offset, size);
                match past {
                    true => self.fs.read_direct(cx, self.ino(node), offset, buffer),
                    false => self.fs.read(cx, self.ino(node), offset, buffer),
                }
            });
            match result {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(error),
            }
        });
    }

    /// Whether a request goes past our cache: what the kernel reads ahead in large pieces it keeps,
    /// and asks for once; what it writes back in large pieces it has collected. A second copy here
    /// would only cost memory and time.
    fn goes_past(&self, offset: u64, size: usize) -> bool {
        !self.shared && size >= PAST_MIN && (offset | size as u64).is_multiple_of(PAGE)
    }

    pub(crate) fn write_file(
        &self,
        cx: &mut Cx,
        node: INodeNo,
        offset: u64,
        data: &[u8],
        what: WriteFlags,
        flags: OpenFlags,
    ) -> Result<usize, Errno> {
        let ino = self.ino(node);
        if what.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            let old = self.fs.getattr(cx, ino)?.mode;
            let mode = vfs::permission::without_set_id(old);
            if mode != old {
                self.fs.setattr(cx, ino, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
            }
        }
        // The kernel's own write-back has flags of some opener, and whole pages.
        if what.contains(WriteFlags::FUSE_WRITE_CACHE) {
            return self.write_back(cx, ino, offset, data).map(|()| data.len());
        }
        match is_direct(flags, offset, data.len())? {
            true => self.fs.write_direct(cx, ino, offset, data),
            false => self.fs.write(cx, ino, offset, data),
        }
    }

    /// Takes what the kernel writes back. It does not look at how much was taken: all, or an error.
    fn write_back(&self, cx: &mut Cx, ino: Ino, offset: u64, data: &[u8]) -> Result<(), Errno> {
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

    pub(crate) fn allocate(
        &self,
        cx: &mut Cx,
        node: INodeNo,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        let keep_size = mode & KEEP_SIZE != 0;
        let mode = match mode & !KEEP_SIZE {
            0 => FallocMode::Allocate { keep_size },
            PUNCH_HOLE if keep_size => FallocMode::PunchHole,
            ZERO_RANGE => FallocMode::ZeroRange { keep_size },
            _ => return Err(Errno::EOPNOTSUPP),
        };
        self.fs.fallocate(cx, self.ino(node), mode, offset, len)
    }

    /// Copies inside of the file system; the kernel has written its pages before.
    pub(crate) fn copy(
        &self,
        cx: &mut Cx,
        (from, mut offset_in): (INodeNo, u64),
        (to, mut offset_out): (INodeNo, u64),
        len: u64,
    ) -> Result<usize, Errno> {
        let (from, to) = (self.ino(from), self.ino(to));
        let len = len.min(COPY_MAX) as usize;
        self.with_buffer(len.min(COPY_AT_ONCE), |buffer| {
            let mut done = 0;
            while done < len {
                let part = (len - done).min(buffer.len());
                let moved = self.fs.read(cx, from, offset_in, &mut buffer[..part]);
                let moved = moved.and_then(|count| match count {
                    0 => Ok(0),
                    _ => self.fs.write(cx, to, offset_out, &buffer[..count]),
                });
                match moved {
                    Ok(0) => break,
                    Ok(count) => {
                        done += count;
                        offset_in += count as u64;
                        offset_out += count as u64;
                    }
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(done)
        })
    }
}

/// Where data or a hole is next. May park.
pub(crate) fn seek(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    ino: Ino,
    offset: i64,
    whence: i32,
) -> Result<u64, Errno> {
    let whence = match whence {
        SEEK_DATA => SeekWhence::Data,
        SEEK_HOLE => SeekWhence::Hole,
        _ => return Err(Errno::EINVAL),
    };
    let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
    fs.seek(cx, ino, offset, whence)
}
