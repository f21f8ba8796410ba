//! The keeper: a small process beside the one that serves a mount.
//!
//! The process that parses the image is locked: it can neither mount nor unmount, nor open files.
//! What it needs of the host after that, the keeper does, which parses nothing and was given the
//! directory and the options before the image was opened. It does seven things (`ask`), each for
//! its own mount only, whatever it is asked; its own side is in `keeping`.
//!
//! The keeper ends with the process that serves: then its socket has no other end.

#![allow(clippy::disallowed_types, reason = "threads of the host ask for files, not tasks")]

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use zerocopy::IntoBytes;

use crate::ask::{Ask, DETACH, END, LIMIT, MOUNT, NOT_FOUND, PAGES, QOS, TUNE, receive, send};
use crate::open_file::OpenFile;

/// The way to the keeper of a mount.
pub struct Keeper {
    socket: Mutex<OwnedFd>,
    _process: Child,
}

impl Keeper {
    /// Starts a keeper: `command` must come to [`serve`] with its standard input.
    ///
    /// # Errors
    /// The system refuses the process.
    pub fn start(mut command: Command) -> io::Result<Keeper> {
        let kind = SockType::SeqPacket;
        let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?;
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Keeper { socket: Mutex::new(ours), _process: command.spawn()? })
    }

    /// Asks, and waits for the answer: a number of an error, and a file. Blocks the thread.
    fn ask(&self, what: u32, number: u64) -> io::Result<(i32, Option<OwnedFd>)> {
        let socket = self.socket.lock().map_err(|_| gone())?;
        send(socket.as_fd(), Ask { what, pid: 0, number }.as_bytes(), None)?;
        let mut answer = [0; 4];
        match receive(socket.as_fd(), &mut answer)? {
            (4, file) => Ok((i32::from_ne_bytes(answer), file)),
            _ => Err(gone()),
        }
    }

    /// Asks for what may take long, without holding up others. Blocks the thread; a signal that
    /// kills the process ends that.
    fn ask_long(&self, ask: Ask) -> io::Result<i32> {
        let (mut listens, answers) = io::pipe()?;
        let socket = self.socket.lock().map_err(|_| gone())?;
        send(socket.as_fd(), ask.as_bytes(), Some(answers.as_fd()))?;
        drop((socket, answers));
        read_number(&mut listens)
    }

    pub(crate) fn mount(&self) -> io::Result<OwnedFd> {
        match self.ask(MOUNT, 0)? {
            (0, Some(device)) => Ok(device),
            (0, None) => Err(gone()),
            // fusermount3 has words, not numbers.
            (-1, Some(text)) => {
                let mut said = String::new();
                std::fs::File::from(text).read_to_string(&mut said)?;
                Err(io::Error::other(said))
            }
            (error, _) => Err(io::Error::from_raw_os_error(error)),
        }
    }

    pub(crate) fn write_pages(&self, file: OpenFile) -> Option<io::Result<()>> {
        let ask = Ask { what: PAGES, pid: file.pid, number: file.ino.0 };
        match self.ask_long(ask).ok()? {
            0 => Some(Ok(())),
            NOT_FOUND => None,
            error => Some(Err(io::Error::from_raw_os_error(error))),
        }
    }

    pub(crate) fn limit_dirty(&self, bytes: u64) {
        let _only_a_limit = self.ask(LIMIT, bytes);
    }

    /// Whether nobody used the mount any more.
    pub(crate) fn end(&self) -> bool {
        matches!(self.ask_long(Ask { what: END, pid: 0, number: 0 }), Ok(0))
    }

    pub(crate) fn tune(&self) {
        let _only_slower = self.ask(TUNE, 0);
    }

    pub(crate) fn detach(&self) {
        let _gone_anyway = self.ask(DETACH, 0);
    }

    /// The file of PM QoS, to read and write.
    pub(crate) fn open_qos(&self) -> io::Result<OwnedFd> {
        match self.ask(QOS, 0)? {
            (0, Some(file)) => Ok(file),
            (error, _) => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn read_number(pipe: &mut PipeReader) -> io::Result<i32> {
    let mut bytes = [0; 4];
    pipe.read_exact(&mut bytes)?;
    Ok(i32::from_ne_bytes(bytes))
}

fn gone() -> io::Error {
    io::Error::other("the keeper of the mount has ended")
}
