//! Answers whose content the kernel moves by splice(2): references to the page cache of the image's
//! file go through a pipe to `/dev/fuse`. So the content is copied once, into the pages of the
//! reader's file, and never into memory of ours.

use std::io::{self, PipeReader, PipeWriter, Write};

use block::HostRange;
use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl, splice};
use zerocopy::IntoBytes;

use super::Device;
use crate::abi::OutHeader;

/// Bytes that one slot of a pipe holds at most.
const PAGE: u64 = 4096;
/// Size of a pipe in bytes, which every user may have. A little less fits: the header and each part
/// of a page take a slot too.
const PIPE_BYTES: i32 = 1 << 20;
/// The largest read that surely fits if it lies in few pieces on the image, in bytes.
pub(crate) const MAX_READ: u32 = 1 << 19;

/// Answers of one task by splice(2), through a pipe of its own.
#[derive(Default)]
pub(crate) struct Splicer {
    /// Empty between answers; made for the first one.
    pipe: Option<Pipe>,
}

struct Pipe {
    out: PipeReader,
    into: PipeWriter,
    slots: u64,
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (out, into) = io::pipe()?;
        let set = fcntl(&into, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        // If the user has too many pipes, this one is smaller.
        let bytes = set.or_else(|_| fcntl(&into, FcntlArg::F_GETPIPE_SZ))?;
        Ok(Pipe { out, into, slots: bytes as u64 / PAGE })
    }

    /// Puts an answer into the pipe and sends it to the device.
    fn send(&mut self, device: &Device, unique: u64, ranges: &[HostRange<'_>]) -> io::Result<()> {
        let len: u64 = ranges.iter().map(|range| range.len).sum();
        let whole = size_of::<OutHeader>() + len as usize;
        let header = OutHeader { len: whole as u32, error: 0, unique };
        self.into.write_all(header.as_bytes())?;
        for range in ranges {
            let (mut at, end) = (range.offset as i64, (range.offset + range.len) as i64);
            while at < end {
                // splice(2) advances `at`.
                let left = (end - at) as usize;
                let flags = SpliceFFlags::SPLICE_F_NONBLOCK;
                if splice(range.file, Some(&mut at), &self.into, None, left, flags)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        match splice(&self.out, None, device, None, whole, SpliceFFlags::empty())? {
            moved if moved == whole => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

impl Splicer {
    /// Answers a request with the bytes of `ranges`. False if that is not possible; then the
    /// request still has no answer.
    pub fn answer(&mut self, device: &Device, unique: u64, ranges: &[HostRange<'_>]) -> bool {
        let Some(mut pipe) = self.pipe.take().or_else(|| Pipe::new().ok()) else { return false };
        // A range may begin and end within a page of its file; the header takes a slot too.
        let slots: u64 = ranges.iter().map(|range| range.len / PAGE + 2).sum();
        if slots >= pipe.slots {
            self.pipe = Some(pipe);
            return false;
        }
        // After a failure the pipe may have content left, and is closed.
        let sent = pipe.send(device, unique, ranges).is_ok();
        self.pipe = sent.then_some(pipe);
        sent
    }
}
