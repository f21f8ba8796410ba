//! Requests from the kernel's device, and answers to it.

mod splice;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use base::{Errno, Nanos};
use block::HostRange;
use nix::errno::Errno as HostErrno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rt::Cx;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(crate) use self::splice::{MAX_READ, Splicer};
use crate::abi::{InHeader, OutHeader};

/// Looks in vain after which looking for a request is given up, until requests come quickly again.
const VAIN_MAX: u32 = 8;

/// The open device of one mount.
pub(crate) struct Device(OwnedFd);

impl Device {
    /// Takes the device of a mount whose first words have been exchanged.
    ///
    /// # Errors
    /// The flags of the descriptor cannot be set.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Device> {
        let fd = fd.try_clone_to_owned()?;
        let flags = fcntl_getfl(&fd)?;
        fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ok(Device(fd))
    }

    /// A request, where there is one.
    fn read(&self, buffer: &mut [u8]) -> Result<usize, HostErrno> {
        rustix::io::read(&self.0, buffer).map_err(|e| HostErrno::from_raw(e.raw_os_error()))
    }

    /// Whether a request waits. None waits after the end.
    pub fn is_pending(&self) -> bool {
        self.wait(PollTimeout::ZERO)
    }

    fn wait(&self, timeout: PollTimeout) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, timeout).is_ok_and(|ready| ready > 0)
    }

    /// Answers a request. Whoever asked may have gone.
    pub fn answer(&self, bytes: &[u8]) {
        let _nobody_waits = rustix::io::write(&self.0, bytes);
    }

    /// Answers a request whose body is `value`.
    pub fn answer_with<T: IntoBytes + Immutable>(&self, unique: u64, value: Result<T, Errno>) {
        let mut bytes = Vec::new();
        let mut answer = Answer::new(&mut bytes);
        let result = value.map(|value| answer.push(value));
        self.answer(answer.finish(unique, result));
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// How requests are waited for.
pub(crate) struct Pace {
    /// How long the next one is looked for before the thread sleeps.
    pub spin: Nanos,
    /// How long the first one after a sleep is let wait for more of its kind, which the kernel then
    /// hands over together: where nobody waits for an answer.
    pub linger: Nanos,
}

/// Fetches the requests, one after the other. After each it looks for the next for a moment before
/// it sleeps: a program that makes one call after the other has the next one within microseconds,
/// while waking a sleeping thread on another processor takes tens of them.
pub(crate) struct Reader<'a> {
    device: &'a Device,
    pace: &'a Pace,
    /// How often in a row it has looked in vain.
    vain: u32,
}

impl<'a> Reader<'a> {
    pub fn new(device: &'a Device, pace: &'a Pace) -> Reader<'a> {
        Reader { device, pace, vain: 0 }
    }

    /// The next request; returns its length, and whether none was there before, or None after the
    /// end of the mount. Blocks the thread.
    ///
    /// # Errors
    /// The connection broke.
    pub fn next(&mut self, cx: &mut Cx, buffer: &mut [u8]) -> io::Result<Option<(usize, bool)>> {
        let start = cx.now();
        let (mut asleep, mut waited_for) = (false, false);
        loop {
            match self.device.read(buffer) {
                Ok(len) => {
                    let soon = cx.now().0.saturating_sub(start.0) <= self.pace.spin.0;
                    self.vain = if soon { 0 } else { self.vain };
                    return Ok(Some((len, waited_for)));
                }
                // ENOENT: it was taken back.
                Err(HostErrno::EINTR | HostErrno::ENOENT) => continue,
                Err(HostErrno::EAGAIN) => waited_for = true,
                Err(HostErrno::ENODEV) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            let waited = cx.now().0.saturating_sub(start.0);
            if !asleep && self.vain < VAIN_MAX && waited < self.pace.spin.0 {
                cx.yield_now();
                continue;
            }
            if !asleep && self.pace.spin > Nanos::ZERO {
                self.vain = (self.vain + 1).min(VAIN_MAX);
            }
            asleep = true;
            self.device.wait(PollTimeout::NONE);
            if self.pace.linger > Nanos::ZERO {
                cx.sleep(self.pace.linger);
            }
        }
    }
}

/// A request.
pub(crate) struct Request<'a> {
    pub header: InHeader,
    /// Its structure, where that stands apart.
    args: Option<&'a [u8]>,
    /// What follows the header.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// None where the bytes are no request.
    pub fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (header, body) = InHeader::read_from_prefix(bytes).ok()?;
        (header.len as usize == bytes.len()).then_some(Request { header, args: None, body })
    }

    /// A request in parts: its structure in `args`, where it has one, and what follows in `body`.
    pub fn split(header: InHeader, args: &'a [u8], body: &'a [u8]) -> Request<'a> {
        Request { header, args: Some(args), body }
    }

    /// The structure at the start of the body, and what follows it.
    ///
    /// # Errors
    /// `EIO` the body is too short.
    pub fn take<T: FromBytes>(&self) -> Result<(T, &'a [u8]), Errno> {
        let short = |_| Errno::EIO;
        match self.args {
            Some(args) => T::read_from_prefix(args).map(|(arg, _)| (arg, self.body)).map_err(short),
            None => T::read_from_prefix(self.body).map_err(short),
        }
    }
}

/// The name at the start of `bytes`, and what follows its end.
///
/// # Errors
/// `EIO` it does not end.
pub(crate) fn name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(Errno::EIO)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

/// An answer that is being made.
pub(crate) struct Answer<'a> {
    buffer: Buffer<'a>,
    /// Bytes before the body.
    head: usize,
    len: usize,
    /// Something did not fit.
    overflow: bool,
    /// For content that lies in files of the host, if splice(2) may be used.
    splicer: Option<(&'a mut Splicer, &'a Device)>,
    /// It was sent by splice(2).
    spliced: bool,
}

enum Buffer<'a> {
    /// Never shortened, so that a large one is not cleared each time.
    Grows(&'a mut Vec<u8>),
    Fixed(&'a mut [u8]),
}

const HEADER: usize = size_of::<OutHeader>();

impl<'a> Answer<'a> {
    /// An answer without a body, in a buffer of any content: a header, and a body.
    pub fn new(buffer: &'a mut Vec<u8>) -> Answer<'a> {
        let buffer = Buffer::Grows(buffer);
        let mut answer = Answer::in_buffer(buffer, HEADER);
        let _header = answer.space(0);
        answer
    }

    fn in_buffer(buffer: Buffer<'a>, head: usize) -> Answer<'a> {
        Answer { buffer, head, len: head, overflow: false, splicer: None, spliced: false }
    }

    /// Lets the answer go to `device` by splice(2), from files of the host.
    pub fn or_splice(self, splicer: &'a mut Splicer, device: &'a Device) -> Answer<'a> {
        Answer { splicer: Some((splicer, device)), ..self }
    }

    /// Whether the answer may be sent by splice(2).
    pub fn can_splice(&self) -> bool {
        self.splicer.is_some()
    }

    /// Sends the content of `ranges` as the answer by splice(2). False if that is not possible.
    pub fn splice(&mut self, unique: u64, ranges: &[HostRange<'_>]) -> bool {
        if let Some((splicer, device)) = &mut self.splicer {
            self.spliced = splicer.answer(device, unique, ranges);
        }
        self.spliced
    }

    /// Whether it was sent by splice(2) already.
    pub fn is_spliced(&self) -> bool {
        self.spliced
    }

    /// A body alone, in memory of any content.
    pub fn body(buffer: &'a mut [u8]) -> Answer<'a> {
        Answer::in_buffer(Buffer::Fixed(buffer), 0)
    }

    /// The next `more` bytes; none where they do not fit.
    fn space(&mut self, more: usize) -> Option<&mut [u8]> {
        let end = self.len + more;
        match &mut self.buffer {
            Buffer::Grows(buffer) => {
                if buffer.len() < end {
                    buffer.resize(end, 0);
                }
                buffer.get_mut(self.len..end)
            }
            Buffer::Fixed(buffer) => buffer.get_mut(self.len..end),
        }
    }

    /// Adds a structure to the body.
    pub fn push<T: IntoBytes + Immutable>(&mut self, value: T) {
        self.bytes(value.as_bytes());
    }

    /// Adds bytes to the body.
    pub fn bytes(&mut self, bytes: &[u8]) {
        match self.space(bytes.len()) {
            Some(space) => {
                space.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.overflow = true,
        }
    }

    /// Bytes of the body so far.
    pub fn len(&self) -> usize {
        self.len - self.head
    }

    /// Lets `fill` write a body of `size` bytes at most and say how many it wrote.
    ///
    /// # Errors
    /// Those of `fill`; `EIO` so many do not fit.
    pub fn fill(
        &mut self,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        self.len += fill(self.space(size).ok_or(Errno::EIO)?)?;
        Ok(())
    }

    /// The length of the body, or the error.
    ///
    /// # Errors
    /// That of `result`; `EIO` something did not fit.
    pub fn close(self, result: Result<(), Errno>) -> Result<usize, Errno> {
        result.and(if self.overflow { Err(Errno::EIO) } else { Ok(self.len()) })
    }

    /// Writes the header; returns all bytes. Where there is an error there is no body.
    pub fn finish(self, unique: u64, result: Result<(), Errno>) -> &'a [u8] {
        let (len, error) = match result {
            Ok(()) => (self.len, 0),
            Err(errno) => (self.head, -errno.0),
        };
        let header = OutHeader { len: len as u32, error, unique };
        let bytes: &'a mut [u8] = match self.buffer {
            Buffer::Grows(buffer) => buffer,
            Buffer::Fixed(buffer) => buffer,
        };
        bytes[..HEADER].copy_from_slice(header.as_bytes());
        &bytes[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_its_length_and_an_error_has_no_body() {
        let mut buffer = vec![7; 100];
        let mut answer = Answer::new(&mut buffer);
        answer.push(5u64);
        assert_eq!(answer.len(), 8);
        let bytes = answer.finish(9, Ok(()));
        assert_eq!((bytes.len(), bytes[0], bytes[8], bytes[16]), (24, 24, 9, 5));
        let mut answer = Answer::new(&mut buffer);
        let failed = answer.fill(500, |_| Err(Errno::EIO));
        let bytes = answer.finish(9, failed);
        assert_eq!((bytes.len(), i32::from_ne_bytes(bytes[4..8].try_into().unwrap())), (16, -5));
    }

    #[test]
    fn short_requests_are_none() {
        assert!(Request::parse(&[0; 39]).is_none());
        let mut bytes = [0; 48];
        bytes[0] = 48;
        let request = Request::parse(&bytes).unwrap();
        assert!(request.take::<u64>().is_ok() && request.take::<[u64; 2]>().is_err());
        assert_eq!(name(b"ab\0cd"), Ok((&b"ab"[..], &b"cd"[..])));
        assert_eq!(name(b"ab"), Err(Errno::EIO));
    }
}
