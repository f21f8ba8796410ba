//! The kernel is asked to write its pages of a file to us, by a thread that may wait for it.
//!
//! That thread waits for requests which the others answer. It has no part in their open files
//! ([`rt::spawn_apart`]), so that the kernel gives up what it waits for when the process is killed.

use std::io;
use std::sync::{Arc, mpsc};

use base::{Errno, Ino};
use rt::{Channel, Cx};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, StatxFlags};

/// A file that a program has open.
#[derive(Clone, Copy)]
pub(crate) struct OpenFile {
    /// The thread that called, 0 where it has no number here.
    pub pid: u32,
    /// As stat(2) shows it.
    pub ino: Ino,
    /// The numbers of the mount's device, major and minor.
    pub device: (u32, u32),
}

/// The way to the thread that asks and waits.
pub(crate) struct Pages {
    asked: mpsc::Sender<OpenFile>,
    done: Arc<Channel<Option<Result<(), Errno>>>>,
}

impl Pages {
    /// Starts the thread. It ends after this has been dropped.
    pub fn start() -> Pages {
        let (asked, files) = mpsc::channel();
        let done = Arc::new(Channel::named("fuse pages", 1));
        let answers = done.clone();
        rt::spawn_apart("fuse pages", move |apart| {
            for file in files {
                let written = if apart { write(file) } else { None };
                if answers.try_send(written).is_err() {
                    break;
                }
            }
            answers.close();
        });
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

fn write(file: OpenFile) -> Option<Result<(), Errno>> {
    let opened = open(file).ok().flatten()?;
    let written = rt::write_pages(&opened);
    Some(written.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno)))
}

/// Opens a file once more, by the table of the program that has it open.
fn open(file: OpenFile) -> io::Result<Option<std::os::fd::OwnedFd>> {
    if file.pid == 0 {
        return Ok(None);
    }
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let table = format!("/proc/{}/fd", file.pid);
    let table = rustix::fs::open(table, directory, Mode::empty())?;
    for entry in Dir::read_from(&table)? {
        let entry = entry?;
        let name = entry.file_name();
        // What the kernel knows: no file system is asked, neither this one nor one that hangs.
        let look = AtFlags::STATX_DONT_SYNC;
        let Ok(stat) = rustix::fs::statx(&table, name, look, StatxFlags::INO) else { continue };
        if (stat.stx_dev_major, stat.stx_dev_minor) != file.device || stat.stx_ino != file.ino.0 {
            continue;
        }
        for access in [OFlags::RDONLY, OFlags::WRONLY] {
            let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
            if let Ok(opened) = rustix::fs::openat(&table, name, flags, Mode::empty()) {
                return Ok(Some(opened));
            }
        }
    }
    Ok(None)
}
