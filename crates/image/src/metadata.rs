//! The metadata of a file: [`Metadata`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::Timespec;
use vfs::Attr;

/// The type of a file.
pub use vfs::FileType;

/// The attributes of a file, with the methods of `std::fs::Metadata`.
#[derive(Clone, Debug)]
pub struct Metadata(pub(crate) Attr);

impl Metadata {
    /// The type.
    pub fn file_type(&self) -> FileType {
        self.0.kind
    }

    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.0.is_dir()
    }

    /// Is it a regular file?
    pub fn is_file(&self) -> bool {
        self.0.kind == FileType::Regular
    }

    /// Is it a symbolic link?
    pub fn is_symlink(&self) -> bool {
        self.0.kind == FileType::Symlink
    }

    /// Size in bytes; of a symbolic link the length of its target.
    #[expect(clippy::len_without_is_empty, reason = "std has none either")]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Permission, set-id and sticky bits: `0..=0o7777`.
    pub fn mode(&self) -> u16 {
        self.0.mode
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.0.ino.0
    }

    /// Number of names.
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Device number of a device, as stat(2) encodes it, else 0.
    pub fn rdev(&self) -> u64 {
        self.0.rdev
    }

    /// Space in use, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Preferred size of reads and writes, bytes.
    pub fn blksize(&self) -> u32 {
        self.0.blksize
    }

    /// Last change of the content.
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.mtime)
    }

    /// Last read.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.atime)
    }

    /// Last change of the inode.
    pub fn changed(&self) -> SystemTime {
        system_time(self.0.ctime)
    }

    /// Birth, where the format records it.
    pub fn created(&self) -> Option<SystemTime> {
        self.0.btime.map(system_time)
    }
}

fn system_time(time: Timespec) -> SystemTime {
    let whole = Duration::from_secs(time.sec.unsigned_abs());
    let base = if time.sec < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    base + Duration::from_nanos(time.nsec.into())
}

/// The time as the disk formats keep it.
pub(crate) fn timespec(time: SystemTime) -> Timespec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timespec { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Timespec { sec: -(before.as_secs() as i64), nsec: 0 },
                nsec => {
                    Timespec { sec: -(before.as_secs() as i64) - 1, nsec: 1_000_000_000 - nsec }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_round_trip() {
        for time in [(-2, 1), (-1, 999_999_999), (-1, 0), (0, 0), (7, 5), (1 << 33, 42)] {
            let time = Timespec { sec: time.0, nsec: time.1 };
            assert_eq!(timespec(system_time(time)), time);
        }
    }
}
