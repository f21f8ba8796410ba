//! The messages of NFS version 3 (RFC 1813), for both sides: what is written by one is read by the
//! other.

mod attr;
mod call;
mod reply;

pub use attr::{Fattr, Handle, NfsTime, Sattr, SetTime, Wcc, WccAttr};
pub use call::{Call, CreateHow};
pub use reply::{Body, Entry, FsInfo, FsStat, Reply};

use base::Errno;

/// Longest file handle, bytes.
pub const HANDLE_MAX: usize = 64;
/// Longest name that is taken from a peer, bytes. Longer ones than the file system has are refused
/// by it.
pub const NAME_MAX: usize = 1024;
/// Longest target of a symlink that is taken from a peer, bytes.
pub const PATH_MAX: usize = 4096;
/// Largest READ and WRITE, bytes.
pub const DATA_MAX: usize = 1 << 20;
/// Entries of one READDIR answer that are taken.
pub const ENTRIES_MAX: usize = 1 << 16;

/// The procedures, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Proc {
    Null = 0,
    Getattr = 1,
    Setattr = 2,
    Lookup = 3,
    Access = 4,
    Readlink = 5,
    Read = 6,
    Write = 7,
    Create = 8,
    Mkdir = 9,
    Symlink = 10,
    Mknod = 11,
    Remove = 12,
    Rmdir = 13,
    Rename = 14,
    Link = 15,
    Readdir = 16,
    Readdirplus = 17,
    Fsstat = 18,
    Fsinfo = 19,
    Pathconf = 20,
    Commit = 21,
}

impl Proc {
    /// How many there are.
    pub const COUNT: usize = 22;

    /// Their names, in order.
    pub const NAMES: [&str; Proc::COUNT] = [
        "null",
        "getattr",
        "setattr",
        "lookup",
        "access",
        "readlink",
        "read",
        "write",
        "create",
        "mkdir",
        "symlink",
        "mknod",
        "remove",
        "rmdir",
        "rename",
        "link",
        "readdir",
        "readdirplus",
        "fsstat",
        "fsinfo",
        "pathconf",
        "commit",
    ];

    /// All of them, in order.
    pub const ALL: [Proc; Proc::COUNT] = [
        Proc::Null,
        Proc::Getattr,
        Proc::Setattr,
        Proc::Lookup,
        Proc::Access,
        Proc::Readlink,
        Proc::Read,
        Proc::Write,
        Proc::Create,
        Proc::Mkdir,
        Proc::Symlink,
        Proc::Mknod,
        Proc::Remove,
        Proc::Rmdir,
        Proc::Rename,
        Proc::Link,
        Proc::Readdir,
        Proc::Readdirplus,
        Proc::Fsstat,
        Proc::Fsinfo,
        Proc::Pathconf,
        Proc::Commit,
    ];

    /// The procedure of that number.
    pub fn of(number: u32) -> Option<Proc> {
        Proc::ALL.get(number as usize).copied()
    }

    /// Carried out twice, it may answer otherwise the second time.
    pub fn is_idempotent(self) -> bool {
        !matches!(
            self,
            Proc::Setattr
                | Proc::Write
                | Proc::Create
                | Proc::Mkdir
                | Proc::Symlink
                | Proc::Mknod
                | Proc::Remove
                | Proc::Rmdir
                | Proc::Rename
                | Proc::Link
        )
    }
}

/// What an operation came to: `nfsstat3`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub u32);

/// Status numbers and the errors that they are.
const STATUSES: &[(u32, Errno)] = &[
    (1, Errno::EPERM),
    (2, Errno::ENOENT),
    (5, Errno::EIO),
    (6, Errno::ENXIO),
    (13, Errno::EACCES),
    (17, Errno::EEXIST),
    (18, Errno::EXDEV),
    (19, Errno::ENODEV),
    (20, Errno::ENOTDIR),
    (21, Errno::EISDIR),
    (22, Errno::EINVAL),
    (27, Errno::EFBIG),
    (28, Errno::ENOSPC),
    (30, Errno::EROFS),
    (31, Errno::EMLINK),
    (63, Errno::ENAMETOOLONG),
    (66, Errno::ENOTEMPTY),
    (69, Errno::EDQUOT),
    (70, Errno::ESTALE),
];

impl Status {
    /// Done.
    pub const OK: Status = Status(0);
    /// The handle is not one of the server's.
    pub const BADHANDLE: Status = Status(10001);
    /// SETATTR with a guard that does not hold.
    pub const NOT_SYNC: Status = Status(10002);
    /// READDIR with a cookie that is not valid any more.
    pub const BAD_COOKIE: Status = Status(10003);
    /// The operation is not supported.
    pub const NOTSUPP: Status = Status(10004);
    /// The caller's buffer is too small.
    pub const TOOSMALL: Status = Status(10005);
    /// The server failed in a way that has no other number.
    pub const SERVERFAULT: Status = Status(10006);
    /// A type of node that is not supported.
    pub const BADTYPE: Status = Status(10007);
    /// Ask again later.
    pub const JUKEBOX: Status = Status(10008);

    /// The number for an error.
    pub fn of(errno: Errno) -> Status {
        match errno {
            Errno::EOPNOTSUPP => Status::NOTSUPP,
            Errno::EAGAIN | Errno::EBUSY | Errno::ENOMEM => Status::JUKEBOX,
            Errno::EUCLEAN | Errno::EBADMSG => Status(5),
            other => STATUSES
                .iter()
                .find(|(_, errno)| *errno == other)
                .map_or(Status::SERVERFAULT, |(number, _)| Status(*number)),
        }
    }

    /// The error of a number.
    ///
    /// # Errors
    /// It, unless the status is that of success. A number that RFC 1813 does not have is `EIO`.
    pub fn check(self) -> Result<(), Errno> {
        if self == Status::OK {
            return Ok(());
        }
        Err(match self {
            Status::BADHANDLE => Errno::ESTALE,
            Status::NOTSUPP | Status::BADTYPE => Errno::EOPNOTSUPP,
            Status::BAD_COOKIE | Status::TOOSMALL | Status::NOT_SYNC => Errno::EINVAL,
            Status::JUKEBOX => Errno::EAGAIN,
            Status(number) => STATUSES
                .iter()
                .find(|(known, _)| *known == number)
                .map_or(Errno::EIO, |(_, errno)| *errno),
        })
    }
}

/// How durable a WRITE is to be, or was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Stable {
    /// In the server's memory; a COMMIT makes it durable.
    Unstable = 0,
    /// The data, and what is needed to find it.
    DataSync = 1,
    /// Everything.
    FileSync = 2,
}

/// Distinguishes two lives of a server.
pub type WriteVerf = [u8; 8];

/// ACCESS: the object may be read.
pub const ACCESS_READ: u32 = 1;
/// ACCESS: names may be looked up in the directory.
pub const ACCESS_LOOKUP: u32 = 2;
/// ACCESS: content may be changed.
pub const ACCESS_MODIFY: u32 = 4;
/// ACCESS: content may be added.
pub const ACCESS_EXTEND: u32 = 8;
/// ACCESS: names may be removed.
pub const ACCESS_DELETE: u32 = 16;
/// ACCESS: the file may be executed.
pub const ACCESS_EXECUTE: u32 = 32;

#[cfg(test)]
mod tests;
