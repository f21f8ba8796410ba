//! The arguments of the procedures.

use vfs::{FileType, major, makedev, minor};

use super::attr::{read_type, write_type};
use super::{DATA_MAX, Handle, NAME_MAX, NfsTime, PATH_MAX, Proc, Sattr, Stable};
use crate::xdr::{Reader, Writer, XdrError};

/// How CREATE treats a name that exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CreateHow {
    /// It is used.
    Unchecked(Sattr),
    /// It is an error.
    Guarded(Sattr),
    /// It is an error, unless it was made by this very call before.
    Exclusive([u8; 8]),
}

/// A call: one of the procedures with its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of RFC 1813")]
pub enum Call<'a> {
    Null,
    Getattr { handle: Handle },
    Setattr { handle: Handle, set: Sattr, guard: Option<NfsTime> },
    Lookup { dir: Handle, name: &'a [u8] },
    Access { handle: Handle, access: u32 },
    Readlink { handle: Handle },
    Read { handle: Handle, offset: u64, count: u32 },
    Write { handle: Handle, offset: u64, stable: Stable, data: &'a [u8] },
    Create { dir: Handle, name: &'a [u8], how: CreateHow },
    Mkdir { dir: Handle, name: &'a [u8], set: Sattr },
    Symlink { dir: Handle, name: &'a [u8], set: Sattr, target: &'a [u8] },
    Mknod { dir: Handle, name: &'a [u8], kind: FileType, set: Sattr, rdev: u64 },
    Remove { dir: Handle, name: &'a [u8] },
    Rmdir { dir: Handle, name: &'a [u8] },
    Rename { from: Handle, old: &'a [u8], to: Handle, new: &'a [u8] },
    Link { handle: Handle, dir: Handle, name: &'a [u8] },
    Readdir { dir: Handle, cookie: u64, verf: [u8; 8], count: u32 },
    Readdirplus { dir: Handle, cookie: u64, verf: [u8; 8], dircount: u32, maxcount: u32 },
    Fsstat { handle: Handle },
    Fsinfo { handle: Handle },
    Pathconf { handle: Handle },
    Commit { handle: Handle, offset: u64, count: u32 },
}

impl<'a> Call<'a> {
    /// Its procedure.
    pub fn procedure(&self) -> Proc {
        match self {
            Call::Null => Proc::Null,
            Call::Getattr { .. } => Proc::Getattr,
            Call::Setattr { .. } => Proc::Setattr,
            Call::Lookup { .. } => Proc::Lookup,
            Call::Access { .. } => Proc::Access,
            Call::Readlink { .. } => Proc::Readlink,
            Call::Read { .. } => Proc::Read,
            Call::Write { .. } => Proc::Write,
            Call::Create { .. } => Proc::Create,
            Call::Mkdir { .. } => Proc::Mkdir,
            Call::Symlink { .. } => Proc::Symlink,
            Call::Mknod { .. } => Proc::Mknod,
            Call::Remove { .. } => Proc::Remove,
            Call::Rmdir { .. } => Proc::Rmdir,
            Call::Rename { .. } => Proc::Rename,
            Call::Link { .. } => Proc::Link,
            Call::Readdir { .. } => Proc::Readdir,
            Call::Readdirplus { .. } => Proc::Readdirplus,
            Call::Fsstat { .. } => Proc::Fsstat,
            Call::Fsinfo { .. } => Proc::Fsinfo,
            Call::Pathconf { .. } => Proc::Pathconf,
            Call::Commit { .. } => Proc::Commit,
        }
    }

    /// Writes the arguments.
    pub fn write(&self, w: &mut Writer) {
        match self {
            Call::Null => {}
            Call::Getattr { handle }
            | Call::Readlink { handle }
            | Call::Fsstat { handle }
            | Call::Fsinfo { handle }
            | Call::Pathconf { handle } => handle.write(w),
            Call::Setattr { handle, set, guard } => {
                handle.write(w);
                set.write(w);
                w.option(guard.as_ref(), |w, time| time.write(w));
            }
            Call::Lookup { dir, name } | Call::Remove { dir, name } | Call::Rmdir { dir, name } => {
                place(w, dir, name);
            }
            Call::Access { handle, access } => {
                handle.write(w);
                w.u32(*access);
            }
            Call::Read { handle, offset, count } | Call::Commit { handle, offset, count } => {
                handle.write(w);
                w.u64(*offset);
                w.u32(*count);
            }
            Call::Write { handle, offset, stable, data } => {
                handle.write(w);
                w.u64(*offset);
                w.u32(data.len() as u32);
                w.u32(*stable as u32);
                w.opaque(data);
            }
            Call::Rename { from, old, to, new } => {
                place(w, from, old);
                place(w, to, new);
            }
            Call::Link { handle, dir, name } => {
                handle.write(w);
                place(w, dir, name);
            }
            Call::Readdir { dir, cookie, verf, count } => {
                dir.write(w);
                w.u64(*cookie);
                w.fixed(verf);
                w.u32(*count);
            }
            Call::Readdirplus { dir, cookie, verf, dircount, maxcount } => {
                dir.write(w);
                w.u64(*cookie);
                w.fixed(verf);
                w.u32(*dircount);
                w.u32(*maxcount);
            }
            Call::Create { .. }
            | Call::Mkdir { .. }
            | Call::Symlink { .. }
            | Call::Mknod { .. } => self.write_new(w),
        }
    }

    fn write_new(&self, w: &mut Writer) {
        match self {
            Call::Create { dir, name, how } => {
                place(w, dir, name);
                match how {
                    CreateHow::Unchecked(set) => {
                        w.u32(0);
                        set.write(w);
                    }
                    CreateHow::Guarded(set) => {
                        w.u32(1);
                        set.write(w);
                    }
                    CreateHow::Exclusive(verf) => {
                        w.u32(2);
                        w.fixed(verf);
                    }
                }
            }
            Call::Mkdir { dir, name, set } => {
                place(w, dir, name);
                set.write(w);
            }
            Call::Symlink { dir, name, set, target } => {
                place(w, dir, name);
                set.write(w);
                w.opaque(target);
            }
            Call::Mknod { dir, name, kind, set, rdev } => {
                place(w, dir, name);
                write_type(w, *kind);
                set.write(w);
                if kind.is_device() {
                    w.u32(major(*rdev));
                    w.u32(minor(*rdev));
                }
            }
            _ => unreachable!("the caller's match"),
        }
    }

    /// Reads the arguments of a procedure.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(procedure: Proc, r: &mut Reader<'a>) -> Result<Call<'a>, XdrError> {
        Ok(match procedure {
            Proc::Null => Call::Null,
            Proc::Getattr => Call::Getattr { handle: Handle::read(r)? },
            Proc::Setattr => Call::Setattr {
                handle: Handle::read(r)?,
                set: Sattr::read(r)?,
                guard: r.option(NfsTime::read)?,
            },
            Proc::Lookup => Call::Lookup { dir: Handle::read(r)?, name: r.opaque(NAME_MAX)? },
            Proc::Access => Call::Access { handle: Handle::read(r)?, access: r.u32()? },
            Proc::Readlink => Call::Readlink { handle: Handle::read(r)? },
            Proc::Read => {
                Call::Read { handle: Handle::read(r)?, offset: r.u64()?, count: r.u32()? }
            }
            Proc::Write => read_write(r)?,
            Proc::Create | Proc::Mkdir | Proc::Symlink | Proc::Mknod => read_new(procedure, r)?,
            Proc::Remove => Call::Remove { dir: Handle::read(r)?, name: r.opaque(NAME_MAX)? },
            Proc::Rmdir => Call::Rmdir { dir: Handle::read(r)?, name: r.opaque(NAME_MAX)? },
            Proc::Rename => Call::Rename {
                from: Handle::read(r)?,
                old: r.opaque(NAME_MAX)?,
                to: Handle::read(r)?,
                new: r.opaque(NAME_MAX)?,
            },
            Proc::Link => Call::Link {
                handle: Handle::read(r)?,
                dir: Handle::read(r)?,
                name: r.opaque(NAME_MAX)?,
            },
            Proc::Readdir => Call::Readdir {
                dir: Handle::read(r)?,
                cookie: r.u64()?,
                verf: r.fixed()?,
                count: r.u32()?,
            },
            Proc::Readdirplus => Call::Readdirplus {
                dir: Handle::read(r)?,
                cookie: r.u64()?,
                verf: r.fixed()?,
                dircount: r.u32()?,
                maxcount: r.u32()?,
            },
            Proc::Fsstat => Call::Fsstat { handle: Handle::read(r)? },
            Proc::Fsinfo => Call::Fsinfo { handle: Handle::read(r)? },
            Proc::Pathconf => Call::Pathconf { handle: Handle::read(r)? },
            Proc::Commit => {
                Call::Commit { handle: Handle::read(r)?, offset: r.u64()?, count: r.u32()? }
            }
        })
    }
}

fn place(w: &mut Writer, dir: &Handle, name: &[u8]) {
    dir.write(w);
    w.opaque(name);
}

pub(super) fn read_stable(r: &mut Reader<'_>) -> Result<Stable, XdrError> {
    match r.u32()? {
        0 => Ok(Stable::Unstable),
        1 => Ok(Stable::DataSync),
        2 => Ok(Stable::FileSync),
        value => Err(r.wrong(value)),
    }
}

fn read_write<'a>(r: &mut Reader<'a>) -> Result<Call<'a>, XdrError> {
    let (handle, offset, count) = (Handle::read(r)?, r.u64()?, r.u32()?);
    let stable = read_stable(r)?;
    let data = r.opaque(DATA_MAX)?;
    // `count` is what the client wants written of the data.
    let data = data.get(..count as usize).unwrap_or(data);
    Ok(Call::Write { handle, offset, stable, data })
}

fn read_new<'a>(procedure: Proc, r: &mut Reader<'a>) -> Result<Call<'a>, XdrError> {
    let (dir, name) = (Handle::read(r)?, r.opaque(NAME_MAX)?);
    Ok(match procedure {
        Proc::Create => {
            let how = match r.u32()? {
                0 => CreateHow::Unchecked(Sattr::read(r)?),
                1 => CreateHow::Guarded(Sattr::read(r)?),
                2 => CreateHow::Exclusive(r.fixed()?),
                value => return Err(r.wrong(value)),
            };
            Call::Create { dir, name, how }
        }
        Proc::Mkdir => Call::Mkdir { dir, name, set: Sattr::read(r)? },
        Proc::Symlink => {
            Call::Symlink { dir, name, set: Sattr::read(r)?, target: r.opaque(PATH_MAX)? }
        }
        _ => {
            let kind = read_type(r)?;
            let mut call = Call::Mknod { dir, name, kind, set: Sattr::default(), rdev: 0 };
            if let Call::Mknod { set, rdev, .. } = &mut call
                && !matches!(kind, FileType::Regular | FileType::Directory | FileType::Symlink)
            {
                *set = Sattr::read(r)?;
                if kind.is_device() {
                    *rdev = makedev(r.u32()?, r.u32()?);
                }
            }
            call
        }
    })
}
