//! Structs that are passed between C and Rust. Structs that may grow begin with their size.

use std::ffi::c_char;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use image::{FileType, Metadata};

/// How an image is opened. Zeros are the defaults.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct iopath_open_options {
    /// sizeof(struct iopath_open_options).
    pub size: u32,
    /// Not 0: for writing too. The journal is replayed on the image, which is locked.
    pub write: u32,
    /// Not 0: past the page cache of the host (O_DIRECT).
    pub direct: u32,
    /// The partition, counted from 1; 0: the whole image.
    pub partition: u32,
    /// Bytes of memory for cached content; 0: 256 MiB.
    pub cache_size: u64,
}

/// What a new file system is like. Zeros are the defaults.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct iopath_mkfs_options {
    /// sizeof(struct iopath_mkfs_options).
    pub size: u32,
    /// Not 0: XFS; else ext4.
    pub xfs: u32,
    /// Not 0: an image that exists is overwritten.
    pub overwrite: u32,
    /// 0, for the future.
    pub reserved: u32,
    /// Label, or NULL.
    pub label: *const c_char,
}

/// A time since 1970, UTC.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct iopath_time {
    /// Seconds, below 0 before 1970.
    pub seconds: i64,
    /// Nanoseconds after it, 0 to 999,999,999.
    pub nanoseconds: u32,
    /// 0, or 1 where the format does not record this time.
    pub missing: u32,
}

/// The attributes of a file.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct iopath_stat {
    /// Inode number.
    pub ino: u64,
    /// Bytes; of a symbolic link the length of its target.
    pub size: u64,
    /// Space that it takes, in units of 512 bytes.
    pub blocks: u64,
    /// The device that a device node stands for, as makedev(3) makes it.
    pub rdev: u64,
    /// Type and permission bits, as st_mode.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The best unit of transfers, bytes.
    pub blksize: u32,
    /// 0.
    pub reserved: u32,
    /// Last read.
    pub atime: iopath_time,
    /// Last change of the content.
    pub mtime: iopath_time,
    /// Last change of the inode.
    pub ctime: iopath_time,
    /// Birth.
    pub btime: iopath_time,
}

/// Space of a file system.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct iopath_space {
    /// Bytes for content in total.
    pub bytes: u64,
    /// Bytes that are free.
    pub bytes_free: u64,
    /// Bytes that are free for users other than root.
    pub bytes_available: u64,
    /// Inodes in total.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Size of a block, bytes.
    pub block_size: u32,
    /// Longest name, bytes.
    pub name_max: u32,
}

/// A name of a directory.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct iopath_dirent {
    /// Inode number.
    pub ino: u64,
    /// The bits of S_IFMT, or 0 where the directory does not record them.
    pub type_: u32,
    /// Bytes of the name, without the zero at its end.
    pub name_len: u32,
    /// The name; valid until the next call on this directory.
    pub name: *const c_char,
}

/// The bits of `S_IFMT`.
pub(crate) fn type_bits(kind: FileType) -> u32 {
    match kind {
        FileType::Regular => libc::S_IFREG,
        FileType::Directory => libc::S_IFDIR,
        FileType::Symlink => libc::S_IFLNK,
        FileType::CharDevice => libc::S_IFCHR,
        FileType::BlockDevice => libc::S_IFBLK,
        FileType::Fifo => libc::S_IFIFO,
        FileType::Socket => libc::S_IFSOCK,
    }
}

fn time(time: SystemTime) -> iopath_time {
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
        Err(before) => match (before.duration().as_secs() as i64, before.duration().subsec_nanos())
        {
            (seconds, 0) => (-seconds, 0),
            (seconds, nanoseconds) => (-seconds - 1, 1_000_000_000 - nanoseconds),
        },
    };
    iopath_time { seconds, nanoseconds, missing: 0 }
}

/// A time as the host has it; None where it is none.
pub(crate) fn system_time(time: &iopath_time) -> Option<SystemTime> {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let base = match time.seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    base.filter(|_| time.nanoseconds < 1_000_000_000)?
        .checked_add(Duration::from_nanos(time.nanoseconds.into()))
}

impl From<&Metadata> for iopath_stat {
    fn from(meta: &Metadata) -> iopath_stat {
        let missing = iopath_time { seconds: 0, nanoseconds: 0, missing: 1 };
        iopath_stat {
            ino: meta.ino(),
            size: meta.len(),
            blocks: meta.blocks(),
            rdev: meta.rdev(),
            mode: type_bits(meta.file_type()) | u32::from(meta.mode()),
            nlink: meta.nlink(),
            uid: meta.uid(),
            gid: meta.gid(),
            blksize: meta.blksize(),
            reserved: 0,
            atime: time(meta.accessed()),
            mtime: time(meta.modified()),
            ctime: time(meta.changed()),
            btime: meta.created().map_or(missing, time),
        }
    }
}
