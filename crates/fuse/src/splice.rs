//! Answers whose content the kernel moves straight from the image: by references to the pages of
//! the image's file through a pipe, so that it is copied once, into the pages of the reader's file,
//! and never into memory of ours.

use std::io::{self, PipeReader, PipeWriter, Write};

use block::HostRange;
use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl, splice};
use zerocopy::IntoBytes;

use crate::abi::OutHeader;
use crate::wire::Device;

/// What a pipe takes in one of its places at most.
const PAGE: u64 = 4096;
/// Bytes of a pipe: what everybody may have. Not quite so many fit, as headers and cut pages take
/// places too.
const PIPE_BYTES: i32 = 1 << 20;
/// The largest read that is sure to fit where it lies in few pieces, in bytes.
pub(crate) const MAX_READ: u32 = 1 << 19;

/// One task's way for such answers.
#[derive(Default)]
pub(crate) struct Straight {
    /// Empty between answers.
    pipe: Option<Pipe>,
}

struct Pipe {
    out: PipeReader,
    into: PipeWriter,
    places: u64,
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (out, into) = io::pipe()?;
        let set = fcntl(&into, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        // Where the user has too many pipes, this one takes less.
        let bytes = set.or_else(|_| fcntl(&into, FcntlArg::F_GETPIPE_SZ))?;
        Ok(Pipe { out, into, places: bytes as u64 / PAGE })
    }

    /// Puts an answer in and hands it over.
    fn send(&mut self, device: &Device, unique: u64, ranges: &[HostRange<'_>]) -> io::Result<()> {
        let len: u64 = ranges.iter().map(|range| range.len).sum();
        let whole = size_of::<OutHeader>() + len as usize;
        let header = OutHeader { len: whole as u32, error: 0, unique };
        self.into.write_all(header.as_bytes())?;
        for range in ranges {
            let (mut at, end) = (range.offset as i64, (range.offset + range.len) as i64);
            while at < end {
                // It moves `at`.
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

impl Straight {
    /// Answers a request with the bytes of `ranges`. False where that cannot be: then it waits for
    /// its answer yet.
    pub fn answer(&mut self, device: &Device, unique: u64, ranges: &[HostRange<'_>]) -> bool {
        let Some(mut pipe) = self.pipe.take().or_else(|| Pipe::new().ok()) else { return false };
        // A range may begin and end within a page of its file; the header takes a place too.
        let places: u64 = ranges.iter().map(|range| range.len / PAGE + 2).sum();
        if places >= pipe.places {
            self.pipe = Some(pipe);
            return false;
        }
        // With what is left in it a pipe is of no use.
        let sent = pipe.send(device, unique, ranges).is_ok();
        self.pipe = sent.then_some(pipe);
        sent
    }
}
