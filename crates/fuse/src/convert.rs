//! Between the protocol's types and those of `vfs`.

use base::{Ino, Timespec};
use fuser::INodeNo;
use vfs::Attr;

use crate::abi::{Attributes, Statx, SxTime};

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
}

/// Attributes as stat(2) shows them.
pub(crate) fn attributes(attr: &Attr) -> Attributes {
    Attributes {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.sec,
        mtime: attr.mtime.sec,
        ctime: attr.ctime.sec,
        atimensec: attr.atime.nsec,
        mtimensec: attr.mtime.nsec,
        ctimensec: attr.ctime.nsec,
        mode: attr.st_mode(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // The low half is the kernel's 32-bit form: 12 bits of major, 20 of minor.
        rdev: attr.rdev as u32,
        blksize: attr.blksize,
        flags: 0,
    }
}

/// `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

/// Attributes as statx(2) shows them, with the time of birth where the format records it.
pub(crate) fn statx(attr: &Attr) -> Statx {
    let time = |time: Timespec| SxTime { sec: time.sec, nsec: time.nsec, reserved: 0 };
    let rdev = attr.rdev as u32;
    Statx {
        mask: STATX_BASIC_STATS | if attr.btime.is_some() { STATX_BTIME } else { 0 },
        blksize: attr.blksize,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: attr.st_mode() as u16,
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(attr.btime.unwrap_or_default()),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        rdev_major: rdev >> 8 & 0xfff,
        rdev_minor: rdev & 0xff | rdev >> 12 & 0xf_ff00,
        ..Statx::default()
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
    fn device_numbers_are_taken_apart() {
        let never = Timespec::default();
        let stat = statx(&Attr {
            ino: Ino(0),
            kind: vfs::FileType::CharDevice,
            mode: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: vfs::makedev(300, 70_000),
            size: 0,
            blocks: 0,
            atime: never,
            mtime: never,
            ctime: never,
            btime: None,
            generation: 0,
            flags: 0,
            blksize: 4096,
        });
        assert_eq!((stat.rdev_major, stat.rdev_minor), (300, 70_000));
    }
}
