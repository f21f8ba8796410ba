//! A file of the mount that a program has open, opened once more by the program's table.

use std::io;

use base::Ino;
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

/// Returns when the kernel's pages of a file have been written. None where it is not found in its
/// program's table. Blocks the thread.
pub(crate) fn write(file: OpenFile) -> Option<io::Result<()>> {
    let opened = open(file).ok().flatten()?;
    Some(rt::write_pages(&opened))
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
