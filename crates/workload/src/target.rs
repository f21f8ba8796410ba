//! Where a workload runs: a directory on our path, or one of the host.
//!
//! On our path a workload's paths lie below a base directory, as below a mount point: `/mnt/a` and
//! `mnt/a` are both `BASE/mnt/a`, and directories that the tool expects to exist are made
//! ([`Target::make_path`]). On the host they are the host's own: absolute ones as they are,
//! relative ones below the base.

mod host;
mod ours;

use std::path::{Path, PathBuf};

use base::Errno;
use block::Segment;
use rt::Cx;
use vfs::{FallocMode, FileType, Namespace, OpenFlags, RenameFlags};

use host::HostFile;

/// Free and total space, as statfs(2) shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks in total.
    pub blocks: u64,
    /// Free blocks, the reserved ones included.
    pub free: u64,
    /// Free blocks for users other than root.
    pub available: u64,
    /// Inodes in total.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

impl Space {
    /// How much is not available, whole percent, rounded down.
    pub fn used_percent(&self) -> u64 {
        let used = self.blocks.saturating_sub(self.available) as u128;
        (used * 100 / u128::from(self.blocks.max(1))) as u64
    }

    /// Bytes that are available.
    pub fn available_bytes(&self) -> u64 {
        self.available.saturating_mul(self.block_size)
    }
}

/// A directory tree that a workload works in. A cheap handle.
///
/// Every method with a `Cx` may park, and answers the `errno` of the system call of that name.
#[derive(Clone)]
pub enum Target {
    /// Our path: a file system of ours, and the directory below which all paths lie.
    Ours(Namespace, Vec<u8>),
    /// The host: real calls on real threads, in real time only.
    Host(PathBuf),
}

impl Target {
    /// Our path; `base` is an absolute path in the file system, which exists.
    pub fn ours(namespace: Namespace, base: &[u8]) -> Target {
        Target::Ours(namespace, base.to_vec())
    }

    /// A directory of the host.
    pub fn host(base: impl AsRef<Path>) -> Target {
        Target::Host(base.as_ref().to_path_buf())
    }

    /// True where the clock of `cx` fits: the host has no virtual time.
    pub fn fits(&self, cx: &Cx) -> bool {
        !(cx.is_virtual() && matches!(self, Target::Host(_)))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOSPC`, ..
    pub fn mkdir(&self, cx: &mut Cx, path: &[u8]) -> Result<(), Errno> {
        match self {
            Target::Ours(ns, base) => ns.mkdir(cx, &ours::join(base, path), 0o777).map(drop),
            Target::Host(base) => host::mkdir(base, path),
        }
    }

    /// On our path makes the directories that lead to `path`, as a mount point would be there. On
    /// the host nothing.
    ///
    /// # Errors
    /// Those of [`mkdir`](Self::mkdir) but `EEXIST`.
    pub fn make_path(&self, cx: &mut Cx, path: &[u8]) -> Result<(), Errno> {
        match self {
            Target::Ours(ns, base) => ours::make_path(cx, ns, base, path),
            Target::Host(_) => Ok(()),
        }
    }

    /// Opens a file; with `CREATE` one that does not exist is made with `mode`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOSPC`, ..
    pub fn open(
        &self,
        cx: &mut Cx,
        path: &[u8],
        flags: OpenFlags,
        mode: u16,
    ) -> Result<TargetFile, Errno> {
        match self {
            Target::Ours(ns, base) => {
                ns.open(cx, &ours::join(base, path), flags, mode).map(TargetFile::Ours)
            }
            Target::Host(base) => host::open(base, path, flags, mode).map(TargetFile::Host),
        }
    }

    /// Removes a name of a file.
    ///
    /// # Errors
    /// `ENOENT`, ..
    pub fn unlink(&self, cx: &mut Cx, path: &[u8]) -> Result<(), Errno> {
        match self {
            Target::Ours(ns, base) => ns.unlink(cx, &ours::join(base, path)),
            Target::Host(base) => host::unlink(base, path),
        }
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTEMPTY`, ..
    pub fn rmdir(&self, cx: &mut Cx, path: &[u8]) -> Result<(), Errno> {
        match self {
            Target::Ours(ns, base) => ns.rmdir(cx, &ours::join(base, path)),
            Target::Host(base) => host::rmdir(base, path),
        }
    }

    /// Moves a name.
    ///
    /// # Errors
    /// `ENOENT`, ..
    pub fn rename(&self, cx: &mut Cx, old: &[u8], new: &[u8]) -> Result<(), Errno> {
        match self {
            Target::Ours(ns, base) => {
                let (old, new) = (ours::join(base, old), ours::join(base, new));
                ns.rename(cx, &old, &new, RenameFlags::empty())
            }
            Target::Host(base) => host::rename(base, old, new),
        }
    }

    /// Type and size of what a path leads to.
    ///
    /// # Errors
    /// `ENOENT`, ..
    pub fn stat(&self, cx: &mut Cx, path: &[u8]) -> Result<(FileType, u64), Errno> {
        match self {
            Target::Ours(ns, base) => {
                ns.stat(cx, &ours::join(base, path)).map(|attr| (attr.kind, attr.size))
            }
            Target::Host(base) => host::stat(base, path),
        }
    }

    /// Space of the file system that holds `path`.
    ///
    /// # Errors
    /// `ENOENT`, ..
    pub fn space(&self, cx: &mut Cx, path: &[u8]) -> Result<Space, Errno> {
        match self {
            Target::Ours(ns, base) => {
                ns.stat(cx, &ours::join(base, path))?;
                let state = ns.fs().statfs(cx)?;
                Ok(Space {
                    block_size: u64::from(state.block_size),
                    blocks: state.blocks,
                    free: state.blocks_free,
                    available: state.blocks_available,
                    inodes: state.inodes,
                    inodes_free: state.inodes_free,
                })
            }
            Target::Host(base) => host::space(base, path),
        }
    }

    /// sync(2): on the host all of its file systems.
    ///
    /// # Errors
    /// `EIO`; on the host none.
    pub fn sync(&self, cx: &mut Cx) -> Result<(), Errno> {
        match self {
            Target::Ours(ns, _) => ns.fs().sync(cx),
            Target::Host(_) => {
                host::sync();
                Ok(())
            }
        }
    }
}

/// An open file of a [`Target`]. Close it with [`close`](Self::close), which may wait.
pub enum TargetFile {
    /// On our path.
    Ours(vfs::File),
    /// On the host.
    Host(HostFile),
}

impl TargetFile {
    /// Reads at byte `offset`; less than asked only at the end of the file.
    ///
    /// # Errors
    /// `EIO`; `EINVAL` not aligned, with direct I/O.
    pub fn read_at(&self, cx: &mut Cx, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        match self {
            TargetFile::Ours(file) => file.read_at(cx, offset, buf),
            TargetFile::Host(file) => file.read_at(offset, buf),
        }
    }

    /// Writes at byte `offset`.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; `EINVAL` not aligned, with direct I/O.
    pub fn write_at(&self, cx: &mut Cx, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        match self {
            TargetFile::Ours(file) => file.write_at(cx, offset, data),
            TargetFile::Host(file) => file.write_at(offset, data),
        }
    }

    /// Writes pages at byte `offset`, past the cache and, on our path, without a copy.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); `EINVAL` not open for direct I/O.
    pub fn write_pages_at(
        &self,
        cx: &mut Cx,
        offset: u64,
        pages: &[Segment],
    ) -> Result<u64, Errno> {
        match self {
            TargetFile::Ours(file) => file.write_pages_at(cx, offset, pages),
            TargetFile::Host(file) => {
                let bytes: Vec<u8> = pages.iter().flat_map(|page| page.bytes()).copied().collect();
                file.write_at(offset, &bytes).map(|count| count as u64)
            }
        }
    }

    /// The size in bytes.
    ///
    /// # Errors
    /// `EIO`.
    pub fn size(&self, cx: &mut Cx) -> Result<u64, Errno> {
        match self {
            TargetFile::Ours(file) => file.attr(cx).map(|attr| attr.size),
            TargetFile::Host(file) => file.size(),
        }
    }

    /// Sets the size in bytes.
    ///
    /// # Errors
    /// `EINVAL` not open for writing; `EFBIG`.
    pub fn truncate(&self, cx: &mut Cx, size: u64) -> Result<(), Errno> {
        match self {
            TargetFile::Ours(file) => file.truncate(cx, size),
            TargetFile::Host(file) => file.truncate(size),
        }
    }

    /// Allocates, punches or zeroes a byte range.
    ///
    /// # Errors
    /// `EOPNOTSUPP` the file system cannot; `ENOSPC`.
    pub fn fallocate(
        &self,
        cx: &mut Cx,
        mode: FallocMode,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        match self {
            TargetFile::Ours(file) => file.fallocate(cx, mode, offset, len),
            TargetFile::Host(file) => file.fallocate(mode, offset, len),
        }
    }

    /// fsync(2), or fdatasync(2) with `data_only`.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`: a write-back failed.
    pub fn fsync(&self, cx: &mut Cx, data_only: bool) -> Result<(), Errno> {
        match self {
            TargetFile::Ours(file) if data_only => file.fdatasync(cx),
            TargetFile::Ours(file) => file.fsync(cx),
            TargetFile::Host(file) => file.fsync(data_only),
        }
    }

    /// Asks the host to forget the file's pages; on our path nothing is forgotten.
    pub fn forget(&self) {
        if let TargetFile::Host(file) = self {
            file.forget();
        }
    }

    /// Closes the file.
    ///
    /// # Errors
    /// Those of freeing an inode without a name.
    pub fn close(self, cx: &mut Cx) -> Result<(), Errno> {
        match self {
            TargetFile::Ours(file) => file.close(cx),
            TargetFile::Host(file) => {
                drop(file);
                Ok(())
            }
        }
    }
}
