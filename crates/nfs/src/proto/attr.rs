//! Attributes, handles and times on the wire.

use std::fmt;

use base::{Errno, Timespec};
use vfs::{Attr, FileType, SetAttr, major, makedev, minor};

use super::HANDLE_MAX;
use crate::xdr::{Reader, Writer, XdrError};

/// A file handle: opaque to the client.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    len: u8,
    bytes: [u8; HANDLE_MAX],
}

impl Handle {
    /// The handle of these bytes, at most [`HANDLE_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Handle> {
        let mut handle = Handle { len: bytes.len() as u8, bytes: [0; HANDLE_MAX] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.opaque(self.bytes());
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Handle, XdrError> {
        Ok(Handle::new(r.opaque(HANDLE_MAX)?).expect("bounded by the reader"))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Seconds since 1970 and nanoseconds, both without sign.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct NfsTime {
    /// Seconds.
    pub sec: u32,
    /// Nanoseconds below one second.
    pub nsec: u32,
}

impl NfsTime {
    /// The nearest time that the protocol can say.
    pub fn of(time: Timespec) -> NfsTime {
        let sec = time.sec.clamp(0, u32::MAX.into()) as u32;
        NfsTime { sec, nsec: if i64::from(sec) == time.sec { time.nsec } else { 0 } }
    }

    /// The same as everybody else says it.
    pub fn timespec(self) -> Timespec {
        Timespec { sec: self.sec.into(), nsec: self.nsec.min(999_999_999) }
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.u32(self.sec);
        w.u32(self.nsec);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<NfsTime, XdrError> {
        Ok(NfsTime { sec: r.u32()?, nsec: r.u32()? })
    }
}

fn type_number(kind: FileType) -> u32 {
    match kind {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::BlockDevice => 3,
        FileType::CharDevice => 4,
        FileType::Symlink => 5,
        FileType::Socket => 6,
        FileType::Fifo => 7,
    }
}

pub(super) fn write_type(w: &mut Writer, kind: FileType) {
    w.u32(type_number(kind));
}

pub(super) fn read_type(r: &mut Reader<'_>) -> Result<FileType, XdrError> {
    Ok(match r.u32()? {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::BlockDevice,
        4 => FileType::CharDevice,
        5 => FileType::Symlink,
        6 => FileType::Socket,
        7 => FileType::Fifo,
        value => return Err(r.wrong(value)),
    })
}

/// Attributes of a node: `fattr3`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fattr {
    /// Type.
    pub kind: FileType,
    /// Permission bits, 12.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes in use on the medium.
    pub used: u64,
    /// Device number as stat(2) has it.
    pub rdev: u64,
    /// File system.
    pub fsid: u64,
    /// Inode number.
    pub fileid: u64,
    /// Last read.
    pub atime: NfsTime,
    /// Last change of the content.
    pub mtime: NfsTime,
    /// Last change of the inode.
    pub ctime: NfsTime,
}

impl Fattr {
    /// The attributes of one of our inodes.
    pub fn of(attr: &Attr, fsid: u64) -> Fattr {
        Fattr {
            kind: attr.kind,
            mode: attr.mode.into(),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            used: attr.blocks.saturating_mul(512),
            rdev: attr.rdev,
            fsid,
            fileid: attr.ino.0,
            atime: NfsTime::of(attr.atime),
            mtime: NfsTime::of(attr.mtime),
            ctime: NfsTime::of(attr.ctime),
        }
    }

    /// What identifies the content: changes whenever it does.
    pub fn stamp(&self) -> WccAttr {
        WccAttr { size: self.size, mtime: self.mtime, ctime: self.ctime }
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        write_type(w, self.kind);
        w.words(&[self.mode, self.nlink, self.uid, self.gid]);
        w.u64(self.size);
        w.u64(self.used);
        w.u32(major(self.rdev));
        w.u32(minor(self.rdev));
        w.u64(self.fsid);
        w.u64(self.fileid);
        [self.atime, self.mtime, self.ctime].iter().for_each(|time| time.write(w));
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Fattr, XdrError> {
        Ok(Fattr {
            kind: read_type(r)?,
            mode: r.u32()? & 0o7777,
            nlink: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            size: r.u64()?,
            used: r.u64()?,
            rdev: makedev(r.u32()?, r.u32()?),
            fsid: r.u64()?,
            fileid: r.u64()?,
            atime: NfsTime::read(r)?,
            mtime: NfsTime::read(r)?,
            ctime: NfsTime::read(r)?,
        })
    }
}

/// What changes with every change of a file: size and times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct WccAttr {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime: NfsTime,
    /// Last change of the inode.
    pub ctime: NfsTime,
}

/// Attributes before and after an operation, where the server shows them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wcc {
    /// Before.
    pub before: Option<WccAttr>,
    /// After.
    pub after: Option<Fattr>,
}

impl Wcc {
    pub(crate) fn write(&self, w: &mut Writer) {
        w.option(self.before, |w, before| {
            w.u64(before.size);
            before.mtime.write(w);
            before.ctime.write(w);
        });
        w.option(self.after.as_ref(), |w, after| after.write(w));
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Wcc, XdrError> {
        let before = r.option(|r| {
            let (size, mtime, ctime) = (r.u64()?, NfsTime::read(r)?, NfsTime::read(r)?);
            Ok(WccAttr { size, mtime, ctime })
        })?;
        Ok(Wcc { before, after: r.option(Fattr::read)? })
    }
}

/// A time to be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetTime {
    /// As it is.
    #[default]
    Keep,
    /// The server's now.
    Now,
    /// This.
    To(NfsTime),
}

impl SetTime {
    fn write(&self, w: &mut Writer) {
        match self {
            SetTime::Keep => w.u32(0),
            SetTime::Now => w.u32(1),
            SetTime::To(time) => {
                w.u32(2);
                time.write(w);
            }
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<SetTime, XdrError> {
        match r.u32()? {
            0 => Ok(SetTime::Keep),
            1 => Ok(SetTime::Now),
            2 => Ok(SetTime::To(NfsTime::read(r)?)),
            value => Err(r.wrong(value)),
        }
    }

    fn resolve(self, now: Timespec) -> Option<Timespec> {
        match self {
            SetTime::Keep => None,
            SetTime::Now => Some(now),
            SetTime::To(time) => Some(time.timespec()),
        }
    }
}

/// Attributes to be set: `sattr3`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sattr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Last read.
    pub atime: SetTime,
    /// Last change.
    pub mtime: SetTime,
}

impl Sattr {
    /// What the protocol can say of a request.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a change time, `EINVAL` for a time that does not fit.
    pub fn of(set: &SetAttr) -> Result<Sattr, Errno> {
        if set.ctime.is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        let time = |time: Option<Timespec>| match time {
            None => Ok(SetTime::Keep),
            Some(time) if NfsTime::of(time).timespec() == time => {
                Ok(SetTime::To(NfsTime::of(time)))
            }
            Some(_) => Err(Errno::EINVAL),
        };
        Ok(Sattr {
            mode: set.mode.map(u32::from),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: time(set.atime)?,
            mtime: time(set.mtime)?,
        })
    }

    /// The request as our file systems take it.
    pub fn resolve(&self, now: Timespec) -> SetAttr {
        SetAttr {
            mode: self.mode.map(|mode| (mode & 0o7777) as u16),
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            atime: self.atime.resolve(now),
            mtime: self.mtime.resolve(now),
            ctime: None,
        }
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        for word in [self.mode, self.uid, self.gid] {
            w.option(word, |w, word| w.u32(word));
        }
        w.option(self.size, |w, size| w.u64(size));
        self.atime.write(w);
        self.mtime.write(w);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Sattr, XdrError> {
        Ok(Sattr {
            mode: r.option(|r| r.u32())?,
            uid: r.option(|r| r.u32())?,
            gid: r.option(|r| r.u32())?,
            size: r.option(|r| r.u64())?,
            atime: SetTime::read(r)?,
            mtime: SetTime::read(r)?,
        })
    }
}
