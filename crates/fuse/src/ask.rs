//! The messages between the process that serves a mount and its keeper: requests of one length,
//! answers of a number, and files with either.
//!
//! Unsafe: a descriptor that the kernel has made for us is owned from then on.

#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What is asked of the keeper.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Ask {
    pub what: u32,
    /// The thread that has a file open.
    pub pid: u32,
    /// The file's inode, or a number of bytes.
    pub number: u64,
}

/// Mount.
pub(crate) const MOUNT: u32 = 1;
/// Write the pages of a file.
pub(crate) const PAGES: u32 = 2;
/// Limit dirty bytes.
pub(crate) const LIMIT: u32 = 3;
/// Write all pages, and unmount.
pub(crate) const END: u32 = 4;
/// Take away a mount that broke.
pub(crate) const DETACH: u32 = 5;
/// Open the file of PM QoS.
pub(crate) const QOS: u32 = 6;
/// Turn the kernel's knobs of the mount.
pub(crate) const TUNE: u32 = 7;

/// The answer of [`PAGES`] where the file cannot be asked for.
pub(crate) const NOT_FOUND: i32 = -1;

/// Sends a message, and a file with it.
///
/// # Errors
/// The socket broke.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let files: Vec<RawFd> = file.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&files)];
    let control = if files.is_empty() { &rights[..0] } else { &rights[..] };
    let to: Option<&UnixAddr> = None;
    let parts = [IoSlice::new(bytes)];
    sendmsg(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, to)?;
    Ok(())
}

/// Receives a message, and a file where one came with it. Blocks the thread.
///
/// # Errors
/// The socket broke, or the message was longer than `bytes`.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = nix::cmsg_space!(RawFd);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let mut files = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = part {
            // SAFETY: the kernel has just made these descriptors for us, and nobody else has them.
            files.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    match message.flags.contains(MsgFlags::MSG_TRUNC) {
        true => Err(io::Error::other("a message that is too long")),
        false => Ok((message.bytes, files.into_iter().next())),
    }
}
