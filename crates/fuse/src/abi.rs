//! The structures of the kernel's FUSE protocol, version 7.40, as fuse(4) and the crate `fuser`
//! describe them. All numbers are in the host's byte order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Numbers of the requests that are answered here.
pub mod op {
    #![allow(missing_docs)]
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const READDIR: u32 = 28;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// The request of ioctl(2) that makes a mounted file system larger, `EXT4_IOC_RESIZE_FS`: the
/// number of its blocks. Here of every format.
pub const RESIZE_FS: u32 = 0x4008_6610;
/// The same for XFS, `XFS_IOC_FSGROWFSDATA`: the number of blocks, and the share of inodes, which
/// stays as it is.
pub const XFS_GROW: u32 = 0x4010_586e;
/// `XFS_IOC_FSGEOMETRY`.
pub const XFS_GEOMETRY: u32 = 0x8100_587e;

/// Commands in the entries of a ring.
pub mod ring_command {
    #![allow(missing_docs)]
    pub const REGISTER: u32 = 1;
    pub const COMMIT_AND_FETCH: u32 = 2;
}

/// What stands before the payload of a request or answer in a ring: `struct fuse_uring_req_header`.
#[derive(FromBytes, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, dead_code, reason = "as long as the kernel's, with fields that stay unread")]
pub struct RingHeaders {
    /// [`InHeader`], then [`OutHeader`].
    pub in_out: [u8; 128],
    /// The structure of the request.
    pub op_in: [u8; 128],
    pub flags: u64,
    /// Which request an answer belongs to.
    pub commit_id: u64,
    pub payload_sz: u32,
    padding: u32,
    reserved: u64,
}

/// Bits of [`SetattrIn::valid`].
pub mod fattr {
    #![allow(missing_docs)]
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
}

/// Bit of [`GetattrIn::getattr_flags`]: of an open file.
pub const GETATTR_FH: u32 = 1 << 0;
/// Bit of [`WriteIn::write_flags`]: from the kernel's page cache.
pub const WRITE_CACHE: u32 = 1 << 0;
/// Bit of [`WriteIn::write_flags`]: set-id bits go.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Bit of [`FsyncIn::fsync_flags`]: content only.
pub const FSYNC_DATASYNC: u32 = 1 << 0;
/// Bit of [`OpenOut::open_flags`]: pages that are cached stay.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;

/// A structure of a request.
macro_rules! input {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ty),+ $(,)? })+) => {
        $($(#[$meta])*
        #[derive(FromBytes, KnownLayout, Immutable, Clone, Copy)]
        #[repr(C)]
        #[allow(missing_docs, dead_code, reason = "the kernel's names and its layout")]
        pub struct $name { $(pub $field: $kind),+ })+
    };
}

/// A structure of an answer.
macro_rules! output {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ty),+ $(,)? })+) => {
        $($(#[$meta])*
        #[derive(IntoBytes, KnownLayout, Immutable, Clone, Copy, Default)]
        #[repr(C)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: $kind),+ })+
    };
}

input! {
    /// Before every request.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, rest: u32,
    }
    ForgetIn { nlookup: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: i64, mtime: i64, ctime: i64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    AccessIn { mask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    LinkIn { oldnodeid: u64 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// READ, READDIR and READDIRPLUS.
    ReadIn {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    SetxattrIn { size: u32, flags: u32 }
    /// GETXATTR and LISTXATTR.
    GetxattrIn { size: u32, padding: u32 }
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn { fh: u64, offset: i64, whence: u32, padding: u32 }
    CopyFileRangeIn {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
}

output! {
    /// Before every answer.
    OutHeader { len: u32, error: i32, unique: u64 }
    Attributes {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32,
        rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attributes,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attributes }
    OpenOut { fh: u64, open_flags: u32, backing_id: i32 }
    /// WRITE and COPY_FILE_RANGE.
    WriteOut { size: u32, padding: u32 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    GetxattrOut { size: u32, padding: u32 }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    LseekOut { offset: u64 }
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    SxTime { sec: i64, nsec: u32, reserved: i32 }
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime,
        btime: SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32,
        dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx,
    }
}

const _: () = {
    assert!(size_of::<InHeader>() == 40 && size_of::<OutHeader>() == 16);
    assert!(size_of::<SetattrIn>() == 88 && size_of::<WriteIn>() == 40);
    assert!(size_of::<Attributes>() == 88 && size_of::<EntryOut>() == 128);
    assert!(size_of::<AttrOut>() == 104 && size_of::<StatfsOut>() == 80);
    assert!(size_of::<Statx>() == 256 && size_of::<StatxOut>() == 288);
    assert!(size_of::<RingHeaders>() == 288);
    assert!(size_of::<Dirent>() == 24 && size_of::<CopyFileRangeIn>() == 56);
};
