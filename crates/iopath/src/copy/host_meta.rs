//! Names, owners, times and types as the host has them.

use anyhow::{Context, Result, bail};
use base::Timespec;
use rustix::fs::{self as sys, Gid, Stat, Timestamps, Uid};
use vfs::FileType;

use super::{FileId, Meta, Old};
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
