//! The kernel is asked to write its pages of a file to us, by a thread that may wait for it.
//!
//! That thread waits for requests which the others answer. It has no part in their open files
//! ([`rt::spawn_apart`]), so that the kernel gives up what it waits for when the process is killed.
//! In a locked process the keeper asks, which may open the files of others.

use std::io;
use std::sync::{Arc, mpsc};

use base::Errno;
use rt::{Channel, Cx};

use crate::open_file::OpenFile;
use crate::outside::Outside;

/// The way to the thread that asks and waits.
pub(crate) struct Pages {
    asked: mpsc::Sender<OpenFile>,
    done: Arc<Channel<Option<Result<(), Errno>>>>,
}

impl Pages {
    /// Starts the thread. It ends after this has been dropped.
    pub fn start(outside: Arc<Outside>) -> Pages {
        let (asked, files) = mpsc::channel();
        let done = Arc::new(Channel::named("fuse pages", 1));
        let answers = done.clone();
        let asks = outside.has_keeper();
        let work = move |apart: bool| {
            for file in files {
                let written = if apart || asks { outside.write_pages(file) } else { None };
                let errno = |error: io::Error| error.raw_os_error().map_or(Errno::EIO, Errno);
                if answers.try_send(written.map(|written| written.map_err(errno))).is_err() {
                    break;
                }
            }
            answers.close();
        };
        match asks {
            true => drop(std::thread::Builder::new().spawn(move || work(false))),
            false => rt::spawn_apart("fuse pages", work),
        }
        Pages { asked, done }
    }

    /// Returns when the kernel's pages of a file have come to us; one caller at a time. None where
    /// it cannot be asked: the file is not found in its program's table. May park.
    ///
    /// # Errors
    /// A page could not be written.
    pub fn write(&self, cx: &mut Cx, file: OpenFile) -> Option<Result<(), Errno>> {
        self.asked.send(file).ok()?;
        self.done.recv(cx).flatten()
    }
}
