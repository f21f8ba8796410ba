//! Marks from other processes: what a recorded program says that it has reached.
//!
//! `iopath crash record` gives its command the environment variable [`SOCKET`], the path of a
//! socket; [`mark`] sends a line there and waits until it is in the log. Programs of any language
//! can write lines to the FIFO that [`FIFO`] names; nobody answers there, so that such a mark may
//! come a little later into the log than it was written.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

/// The environment variable with the path of the socket.
pub const SOCKET: &str = "IOPATH_CRASH_SOCKET";
/// The environment variable with the path of the FIFO.
pub const FIFO: &str = "IOPATH_CRASH_MARKS";

/// Notes in the log of the recording process that something was reached; returns when it is in the
/// log. Does nothing in a process that is not recorded.
///
/// # Errors
/// The recording process does not answer.
pub fn mark(text: &str) -> io::Result<()> {
    match std::env::var_os(SOCKET) {
        Some(path) => mark_at(path.as_ref(), text),
        None => Ok(()),
    }
}

/// As [`mark`], to the socket at a path.
///
/// # Errors
/// As [`mark`].
pub fn mark_at(path: &std::path::Path, text: &str) -> io::Result<()> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(text.replace('\n', " ").as_bytes())?;
    stream.write_all(b"\n")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    match answer.trim_end() {
        "ok" => Ok(()),
        other => Err(io::Error::other(format!("the recording process answers {other:?}"))),
    }
}
