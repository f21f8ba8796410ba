//! The keeper's own side: it waits for requests, and does what they ask for its mount.

use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use zerocopy::IntoBytes;

use crate::ask::{Ask, DETACH, END, LIMIT, MOUNT, NOT_FOUND, PAGES, QOS, TUNE, receive, send};
use crate::options::Options;
use crate::outside::Outside;

/// The keeper's own work: answers what comes through its standard input, until there is nobody.
/// Blocks the thread.
///
/// # Errors
/// Standard input is no such socket.
pub fn serve(dir: &Path, options: &Options) -> io::Result<()> {
    let outside = Arc::new(Outside::here(dir, options));
    let stdin = io::stdin();
    let mounted = OnceLock::new();
    loop {
        let mut ask = Ask { what: 0, pid: 0, number: 0 };
        let (len, replies) = receive(stdin.as_fd(), ask.as_mut_bytes())?;
        if len != size_of::<Ask>() {
            return Ok(());
        }
        let result = match (ask.what, replies) {
            (PAGES | END, Some(replies)) => {
                answer_later(&outside, ask, replies.into());
                continue;
            }
            (MOUNT, None) if mounted.set(()).is_ok() => outside.mount(),
            (QOS, None) => outside.open_qos(),
            (LIMIT | TUNE | DETACH, None) => {
                match ask.what {
                    LIMIT => outside.limit_dirty(ask.number),
                    TUNE => outside.tune(),
                    _ => outside.detach(),
                }
                send(stdin.as_fd(), &0_i32.to_ne_bytes(), None)?;
                continue;
            }
            _ => Err(io::Error::from_raw_os_error(nix::libc::EINVAL)),
        };
        reply(stdin.as_fd(), result)?;
    }
}

/// Sends a file, or the number or the words of an error.
fn reply(socket: BorrowedFd<'_>, result: io::Result<OwnedFd>) -> io::Result<()> {
    match result {
        Ok(file) => send(socket, &0_i32.to_ne_bytes(), Some(file.as_fd())),
        Err(error) => match error.raw_os_error() {
            Some(number) => send(socket, &number.to_ne_bytes(), None),
            None => {
                let (listens, mut says) = io::pipe()?;
                // A pipe takes a message of fusermount3 whole.
                says.write_all(error.to_string().as_bytes())?;
                drop(says);
                send(socket, &(-1_i32).to_ne_bytes(), Some(listens.as_fd()))
            }
        },
    }
}

/// Does what waits for the mount itself, in a thread of its own.
fn answer_later(outside: &Arc<Outside>, ask: Ask, mut replies: PipeWriter) {
    let outside = outside.clone();
    let work = move || {
        let number = match ask.what {
            PAGES => {
                let file = outside.open_file(ask.pid, base::Ino(ask.number));
                match file.and_then(|file| outside.write_pages(file)) {
                    None => NOT_FOUND,
                    Some(Ok(())) => 0,
                    Some(Err(error)) => error.raw_os_error().unwrap_or(nix::libc::EIO),
                }
            }
            _ => i32::from(!outside.end()),
        };
        let _nobody_waits = replies.write_all(&number.to_ne_bytes());
    };
    // Without a thread the pipe closes, which is an answer too.
    let _closed = std::thread::Builder::new().spawn(work);
}
