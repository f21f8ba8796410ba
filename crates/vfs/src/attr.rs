//! The types that file systems and their callers exchange: attributes, requests, directory entries.

use base::{Errno, Ino, Timespec};
use bitflags::bitflags;

/// The type of an inode: the upper four bits of `st_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum FileType {
    /// Named pipe.
    Fifo = 1,
    /// Character device; `rdev` is valid.
    CharDevice = 2,
    /// Directory.
    Directory = 4,
    /// Block device; `rdev` is valid.
    BlockDevice = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileType {
    /// The type in the upper four bits of a full `st_mode`, or `None` for a value that means
    /// nothing.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        Some(match mode >> 12 & 0xf {
            1 => FileType::Fifo,
            2 => FileType::CharDevice,
            4 => FileType::Directory,
            6 => FileType::BlockDevice,
            8 => FileType::Regular,
            10 => FileType::Symlink,
            12 => FileType::Socket,
            _ => return None,
        })
    }

    /// Whether this type has data that can be read and written.
    ///
    /// # Errors
    /// `EISDIR` for a directory, `EINVAL` for all but regular files.
    pub fn check_regular(self) -> Result<(), Errno> {
        match self {
            FileType::Regular => Ok(()),
            FileType::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The `S_IFMT` bits of this type, for instance `0o100000` for a regular file.
    pub fn mode_bits(self) -> u16 {
        (self as u16) << 12
    }

    /// The letter of `ls -l`.
    pub fn letter(self) -> char {
        match self {
            FileType::Fifo => 'p',
            FileType::CharDevice => 'c',
            FileType::Directory => 'd',
            FileType::BlockDevice => 'b',
            FileType::Regular => '-',
            FileType::Symlink => 'l',
            FileType::Socket => 's',
        }
    }

    /// A word for messages and JSON: `file`, `directory`, `symlink`, `fifo`, `char`, `block`,
    /// `socket`.
    pub fn word(self) -> &'static str {
        match self {
            FileType::Fifo => "fifo",
            FileType::CharDevice => "char",
            FileType::Directory => "directory",
            FileType::BlockDevice => "block",
            FileType::Regular => "file",
            FileType::Symlink => "symlink",
            FileType::Socket => "socket",
        }
    }

    /// Is it a character or block device?
    pub fn is_device(self) -> bool {
        matches!(self, FileType::CharDevice | FileType::BlockDevice)
    }
}

/// The attributes of an inode: what stat(2) and statx(2) report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Type.
    pub kind: FileType,
    /// Permission, set-id and sticky bits: 12 bits, `0..=0o7777`.
    pub mode: u16,
    /// Number of names (for a directory 2 + number of subdirectories; 1 = not counted).
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number as stat(2) gives it ([`makedev`]); 0 unless the inode is a device.
    pub rdev: u64,
    /// Size in bytes; for a symlink the length of its target.
    pub size: u64,
    /// Space in use, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: Timespec,
    /// Last change of the content.
    pub mtime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
    /// Birth, where the format records it.
    pub btime: Option<Timespec>,
    /// Generation: differs between two lives of one inode number.
    pub generation: u32,
    /// `FS_*_FL` flags as `lsattr` shows them (append only, immutable, ..); 0 where unknown.
    pub flags: u32,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
}

impl Attr {
    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Type and permission bits together: `st_mode`.
    pub fn st_mode(&self) -> u32 {
        u32::from(self.kind.mode_bits() | self.mode)
    }
}

/// Changes of attributes; what is `None` stays.
///
/// The file system applies what is given. Besides, a change of anything sets ctime to now unless
/// `ctime` is given, and a change of `size` sets mtime to now unless `mtime` is given.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct SetAttr {
    /// New permission bits, `0..=0o7777`.
    pub mode: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size in bytes: truncate or extend with a hole.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<Timespec>,
    /// New modification time.
    pub mtime: Option<Timespec>,
    /// New change time (restore tools only; no system call can set it).
    pub ctime: Option<Timespec>,
}

/// A node to be created: what mknod(2), mkdir(2) and symlink(2) pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewNode<'a> {
    /// Type.
    pub kind: FileType,
    /// Permission bits, `0..=0o7777`, umask already applied.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group; the set-group-id rule of directories is applied by the caller ([`crate::Namespace`]).
    pub gid: u32,
    /// Device number ([`makedev`]) for devices, else 0.
    pub rdev: u64,
    /// Target of a symlink, `None` for all others.
    pub target: Option<&'a [u8]>,
    /// Times to set instead of now: access, modification. (Birth and change time are now.)
    pub times: Option<(Timespec, Timespec)>,
}

impl<'a> NewNode<'a> {
    /// A node of this type and mode owned by root, with neither target nor times.
    pub fn new(kind: FileType, mode: u16) -> NewNode<'a> {
        NewNode { kind, mode, uid: 0, gid: 0, rdev: 0, target: None, times: None }
    }

    /// A symlink, mode 0o777, owned by root.
    pub fn symlink(target: &'a [u8]) -> NewNode<'a> {
        NewNode { target: Some(target), ..NewNode::new(FileType::Symlink, 0o777) }
    }

    /// What covers a name of a lower layer in an overlay: a character device 0, 0 without
    /// permissions.
    pub fn whiteout() -> NewNode<'a> {
        NewNode::new(FileType::CharDevice, 0)
    }

    /// The same with another owner and group.
    pub fn owner(self, uid: u32, gid: u32) -> NewNode<'a> {
        NewNode { uid, gid, ..self }
    }
}

bitflags! {
    /// Flags of rename, with the values of renameat2(2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RenameFlags: u32 {
        /// Fail with `EEXIST` if the new name exists.
        const NOREPLACE = 1;
        /// Both names exist and change places.
        const EXCHANGE = 2;
        /// A whiteout takes the place of the old name: [`NewNode::whiteout`].
        const WHITEOUT = 4;
    }
}

bitflags! {
    /// Flags of setxattr, with the values of setxattr(2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct XattrFlags: u32 {
        /// Fail with `EEXIST` if the attribute exists.
        const CREATE = 1;
        /// Fail with `ENODATA` if it does not.
        const REPLACE = 2;
    }
}

/// One name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub ino: Ino,
    /// Type, or `None` where the directory format does not record it (ext2 without `filetype`).
    pub kind: Option<FileType>,
    /// Name: 1..=255 bytes without `/` and NUL.
    pub name: &'a [u8],
    /// Opaque position *after* this entry, never 0: give it to `readdir` to go on behind the entry.
    pub cookie: u64,
}

/// State and limits of a file system: what statvfs(3) reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Blocks for data in total.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for users other than root.
    pub blocks_available: u64,
    /// Inodes in total.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// An id of this file system (from its UUID).
    pub fsid: u64,
}

/// What fallocate(2) is to do with a byte range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FallocMode {
    /// Allocate space that reads as zeros where nothing is allocated; grow the file unless
    /// `keep_size`.
    Allocate {
        /// The size stays.
        keep_size: bool,
    },
    /// Make a hole; the size stays.
    PunchHole,
    /// Make the range read as zeros, keeping or allocating its space; grow the file unless
    /// `keep_size`.
    ZeroRange {
        /// The size stays.
        keep_size: bool,
    },
    /// Take the range out: what is behind it moves to its front, and the file gets shorter.
    CollapseRange,
    /// Put a hole in: what is behind the front moves behind it, and the file gets longer.
    InsertRange,
}

/// What to look for with `seek`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekWhence {
    /// `SEEK_DATA`: the next byte that is not in a hole.
    Data,
    /// `SEEK_HOLE`: the next byte in a hole; the end of the file is one.
    Hole,
}

impl SeekWhence {
    /// The answer for a file of `size` bytes, from `offset` on, which lies before its end.
    /// `piece(at)` says whether there is data at `at`, and where the next piece begins.
    ///
    /// # Errors
    /// `ENXIO` where no data follows; those of `piece`.
    pub fn find(
        self,
        offset: u64,
        size: u64,
        mut piece: impl FnMut(u64) -> Result<(bool, u64), Errno>,
    ) -> Result<u64, Errno> {
        let mut at = offset;
        while at < size {
            let (data, next) = piece(at)?;
            if data == (self == SeekWhence::Data) {
                return Ok(at);
            }
            at = next;
        }
        match self {
            SeekWhence::Hole => Ok(size),
            SeekWhence::Data => Err(Errno::ENXIO),
        }
    }
}

/// A device number as stat(2) encodes it: 12 bits of major and 8 of minor in the low 20 bits, the
/// rest above.
pub fn makedev(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff
}

/// The major number of a device number.
pub fn major(rdev: u64) -> u32 {
    ((rdev >> 32 & 0xffff_f000) | (rdev >> 8 & 0xfff)) as u32
}

/// The minor number of a device number.
pub fn minor(rdev: u64) -> u32 {
    ((rdev >> 12 & 0xffff_ff00) | (rdev & 0xff)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_packing() {
        for (a, b) in [(0, 0), (8, 1), (259, 70000), (0xfff, 0xfffff), (u32::MAX, u32::MAX)] {
            let dev = makedev(a, b);
            assert_eq!((major(dev), minor(dev)), (a, b));
        }
        assert_eq!(makedev(8, 1), 0x801);
    }

    #[test]
    fn a_file_type_and_its_mode_bits_name_each_other() {
        for mode in 0..16u32 {
            if let Some(kind) = FileType::from_mode(mode << 12) {
                assert_eq!(u32::from(kind.mode_bits()), mode << 12);
            }
        }
        assert_eq!(FileType::from_mode(0o100644), Some(FileType::Regular));
        assert_eq!(FileType::from_mode(0), None);
    }
}
