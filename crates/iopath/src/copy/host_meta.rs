//! Names, owners, times and types as the host has them.

use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::{Context, Result, bail};
use base::Timespec;
use rustix::fs::{self as sys, Gid, Mode, OFlags, Stat, Timestamps, Uid};
use rustix::io::Errno;
use vfs::FileType;

use super::{FileId, Keep, Meta, Old};
use crate::text;

/// What stands at a name of the host.
///
/// # Errors
/// The type is unknown.
pub fn standing(stat: &Stat) -> Result<Old> {
    let kind = FileType::from_mode(stat.st_mode);
    let kind = kind.with_context(|| format!("unknown file type {:#o}", stat.st_mode))?;
    let mtime = Timespec { sec: stat.st_mtime, nsec: stat.st_mtime_nsec as u32 };
    Ok(Old {
        kind,
        nlink: stat.st_nlink,
        mtime,
        id: FileId { device: stat.st_dev, ino: stat.st_ino },
    })
}

/// A component that stays below its directory.
///
/// # Errors
/// It would lead out of it.
pub fn safe_name(name: &[u8]) -> Result<&[u8]> {
    let bad = matches!(name, b"" | b"." | b"..") || name.iter().any(|&b| b == b'/' || b == 0);
    if bad {
        bail!("the source holds the name `{}`, which is refused", text::printable(name));
    }
    Ok(name)
}

/// Owner and group of a node.
pub fn owner(meta: &Meta) -> (Uid, Gid) {
    (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid))
}

/// Times of a node.
pub fn times(meta: &Meta) -> Timestamps {
    let time = |time: Timespec| sys::Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() };
    Timestamps { last_access: time(meta.atime), last_modification: time(meta.mtime) }
}

/// Names of attributes, and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// A file whose content stays.
///
/// # Errors
/// It cannot be opened.
pub fn standing_file(dir: BorrowedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    sys::openat(dir, name, flags, Mode::empty())
}

/// Removes attributes that a node has and is not to have beside these.
///
/// # Errors
/// One stays.
pub fn take_away(keep: &Keep, fd: &OwnedFd, xattrs: &Xattrs) -> rustix::io::Result<()> {
    let mut names = vec![0; 64 << 10];
    let listed = match sys::flistxattr(fd, &mut names[..]) {
        Err(Errno::NOTSUP) => 0,
        other => other?,
    };
    for name in names[..listed].split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let stays = xattrs.iter().any(|(kept, _)| kept == name);
        if !stays && keep.takes_away(name) {
            sys::fremovexattr(fd, name)?;
        }
    }
    Ok(())
}
