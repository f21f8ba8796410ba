//! The host's own calls, through `rustix`.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::Errno;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use vfs::{FallocMode, FileType, OpenFlags};

use super::Space;

/// An open file of the host.
pub struct HostFile(OwnedFd);

fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

fn full(base: &Path, path: &[u8]) -> PathBuf {
    base.join(OsStr::from_bytes(path))
}

pub fn mkdir(base: &Path, path: &[u8]) -> Result<(), Errno> {
    rustix::fs::mkdir(full(base, path), Mode::from_raw_mode(0o777)).map_err(errno)
}

pub fn unlink(base: &Path, path: &[u8]) -> Result<(), Errno> {
    rustix::fs::unlink(full(base, path)).map_err(errno)
}

pub fn rmdir(base: &Path, path: &[u8]) -> Result<(), Errno> {
    rustix::fs::rmdir(full(base, path)).map_err(errno)
}

pub fn rename(base: &Path, old: &[u8], new: &[u8]) -> Result<(), Errno> {
    rustix::fs::rename(full(base, old), full(base, new)).map_err(errno)
}

pub fn sync() {
    rustix::fs::sync();
}

pub fn stat(base: &Path, path: &[u8]) -> Result<(FileType, u64), Errno> {
    let stat = rustix::fs::stat(full(base, path)).map_err(errno)?;
    let kind = FileType::from_mode(stat.st_mode).ok_or(Errno::EIO)?;
    Ok((kind, stat.st_size as u64))
}

pub fn space(base: &Path, path: &[u8]) -> Result<Space, Errno> {
    let state = rustix::fs::statfs(full(base, path)).map_err(errno)?;
    Ok(Space {
        block_size: state.f_bsize as u64,
        blocks: state.f_blocks,
        free: state.f_bfree,
        available: state.f_bavail,
        inodes: state.f_files,
        inodes_free: state.f_ffree,
    })
}

fn open_flags(flags: OpenFlags) -> OFlags {
    let both = OpenFlags::READ | OpenFlags::WRITE;
    let mut host = match flags & both {
        OpenFlags::WRITE => OFlags::WRONLY,
        access if access == both => OFlags::RDWR,
        _ => OFlags::RDONLY,
    };
    for (ours, theirs) in [
        (OpenFlags::CREATE, OFlags::CREATE),
        (OpenFlags::EXCL, OFlags::EXCL),
        (OpenFlags::TRUNC, OFlags::TRUNC),
        (OpenFlags::APPEND, OFlags::APPEND),
        (OpenFlags::DIRECT, OFlags::DIRECT),
        (OpenFlags::SYNC, OFlags::SYNC),
        (OpenFlags::DSYNC, OFlags::DSYNC),
        (OpenFlags::DIRECTORY, OFlags::DIRECTORY),
        (OpenFlags::NOFOLLOW, OFlags::NOFOLLOW),
    ] {
        host.set(theirs, host.contains(theirs) || flags.contains(ours));
    }
    host | OFlags::CLOEXEC
}

pub fn open(base: &Path, path: &[u8], flags: OpenFlags, mode: u16) -> Result<HostFile, Errno> {
    let mode = Mode::from_raw_mode(u32::from(mode));
    rustix::fs::open(full(base, path), open_flags(flags), mode).map(HostFile).map_err(errno)
}

impl HostFile {
    /// Reads until `buf` is full or the file ends.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| rustix::io::pread(&self.0, &mut *buf, offset)).map_err(errno)
    }

    pub(super) fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.0, data, offset)).map_err(errno)
    }

    pub(super) fn size(&self) -> Result<u64, Errno> {
        rustix::fs::fstat(&self.0).map(|stat| stat.st_size as u64).map_err(errno)
    }

    pub(super) fn truncate(&self, size: u64) -> Result<(), Errno> {
        rustix::fs::ftruncate(&self.0, size).map_err(errno)
    }

    pub(super) fn fallocate(&self, mode: FallocMode, offset: u64, len: u64) -> Result<(), Errno> {
        let keep = |keep_size| match keep_size {
            true => FallocateFlags::KEEP_SIZE,
            false => FallocateFlags::empty(),
        };
        let flags = match mode {
            FallocMode::Allocate { keep_size } => keep(keep_size),
            FallocMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocMode::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
            FallocMode::InsertRange => FallocateFlags::INSERT_RANGE,
            FallocMode::ZeroRange { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
        };
        rustix::fs::fallocate(&self.0, flags, offset, len).map_err(errno)
    }

    pub(super) fn forget(&self) {
        // Advice only: where the host does not take it, the pages stay.
        let _ = rustix::fs::fadvise(&self.0, 0, None, rustix::fs::Advice::DontNeed);
    }

    pub(super) fn fsync(&self, data_only: bool) -> Result<(), Errno> {
        let done = match data_only {
            true => rustix::fs::fdatasync(&self.0),
            false => rustix::fs::fsync(&self.0),
        };
        done.map_err(errno)
    }
}
