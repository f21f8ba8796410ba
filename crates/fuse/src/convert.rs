//! Between the protocol's types and those of `vfs`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::{Errno, Ino, Timespec};
use fuser::{FileAttr, Generation, INodeNo};
use vfs::{Attr, FileType};

/// The number of the root in the protocol, whatever it is in the file system.
const ROOT: u64 = 1;

/// Node numbers of the kernel and inode numbers of the file system: the same but for the root. An
/// inode that happens to have the root's number changes places with it.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    root: u64,
}

impl Numbers {
    pub fn new(root: Ino) -> Numbers {
        Numbers { root: root.0 }
    }

    fn swap(self, number: u64) -> u64 {
        match number {
            ROOT => self.root,
            number if number == self.root => ROOT,
            number => number,
        }
    }

    /// The inode of a node.
    pub fn ino(self, node: INodeNo) -> Ino {
        Ino(self.swap(node.0))
    }

    /// The node of an inode.
    pub fn node(self, ino: Ino) -> INodeNo {
        INodeNo(self.swap(ino.0))
    }

    /// Attributes as an answer that names the node: the crate puts the attribute's number there.
    pub fn attr(self, attr: &Attr) -> FileAttr {
        FileAttr { ino: self.node(attr.ino), ..file_attr(attr) }
    }
}

/// Attributes as stat(2) shows them.
pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime.unwrap_or_default()),
        kind: kind(attr.kind),
        perm: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // The low half is the kernel's 32-bit form: 12 bits of major, 20 of minor.
        rdev: attr.rdev as u32,
        blksize: attr.blksize,
        flags: 0,
    }
}

pub(crate) fn generation(attr: &Attr) -> Generation {
    Generation(attr.generation.into())
}

pub(crate) fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::Directory => fuser::FileType::Directory,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Socket => fuser::FileType::Socket,
    }
}

pub(crate) fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.0)
}

fn system_time(time: Timespec) -> SystemTime {
    let nanos = Duration::from_nanos(time.nsec.into());
    let seconds = Duration::from_secs(time.sec.unsigned_abs());
    if time.sec >= 0 { UNIX_EPOCH + seconds + nanos } else { UNIX_EPOCH - seconds + nanos }
}

/// The time of a request. `fuser` 0.18 reads seconds and nanoseconds before 1970 as if both counted
/// backwards; this undoes it.
pub(crate) fn timespec(time: SystemTime) -> Timespec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timespec { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Timespec { sec: -(before.as_secs() as i64), nsec: before.subsec_nanos() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_and_its_number_change_places() {
        let numbers = Numbers::new(Ino(128));
        assert_eq!(numbers.ino(INodeNo(1)), Ino(128));
        assert_eq!(numbers.node(Ino(128)), INodeNo(1));
        assert_eq!(numbers.node(Ino(1)), INodeNo(128));
        assert_eq!(numbers.ino(INodeNo(77)), Ino(77));
    }

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let time = system_time(Timespec { sec: -2, nsec: 250_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(time).unwrap(), Duration::from_millis(1750));
        // What the crate makes of the request (-2 s, 250 ms).
        let asked = UNIX_EPOCH - Duration::new(2, 250_000_000);
        assert_eq!(timespec(asked), Timespec { sec: -2, nsec: 250_000_000 });
    }
}
