//! The results of the procedures.

use super::call::read_stable;
use super::{
    DATA_MAX, ENTRIES_MAX, Fattr, Handle, NAME_MAX, NfsTime, PATH_MAX, Proc, Stable, Status, Wcc,
    WriteVerf,
};
use crate::xdr::{Reader, Writer, XdrError};

/// Space and inodes: FSSTAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsStat {
    /// Bytes in total, free, and free for this user.
    pub bytes: [u64; 3],
    /// Inodes in total, free, and free for this user.
    pub files: [u64; 3],
}

/// Limits of a server: FSINFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsInfo {
    /// Largest READ, bytes.
    pub rtmax: u32,
    /// READ that the server likes best.
    pub rtpref: u32,
    /// Largest WRITE, bytes.
    pub wtmax: u32,
    /// WRITE that the server likes best.
    pub wtpref: u32,
    /// READDIR that the server likes best.
    pub dtpref: u32,
    /// Largest file, bytes.
    pub maxfilesize: u64,
    /// Steps of times.
    pub time_delta: NfsTime,
    /// What the server can do: links 1, symlinks 2, the same everywhere 8, times set 16.
    pub properties: u32,
}

/// A name in a directory. READDIR shows neither attributes nor handle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Inode number.
    pub fileid: u64,
    /// Name.
    pub name: &'a [u8],
    /// Where to go on behind it.
    pub cookie: u64,
    /// Attributes.
    pub attr: Option<Fattr>,
    /// Handle.
    pub handle: Option<Handle>,
}

/// What a procedure gives beside the attributes that are common.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of RFC 1813")]
pub enum Body<'a> {
    None,
    /// LOOKUP (always with a handle), CREATE, MKDIR, SYMLINK, MKNOD.
    Object {
        handle: Option<Handle>,
        attr: Option<Fattr>,
    },
    Access(u32),
    Target(&'a [u8]),
    Read {
        eof: bool,
        data: &'a [u8],
    },
    Write {
        count: u32,
        committed: Stable,
        verf: WriteVerf,
    },
    Entries {
        verf: [u8; 8],
        entries: Vec<Entry<'a>>,
        eof: bool,
    },
    Fsstat(FsStat),
    Fsinfo(FsInfo),
    Pathconf {
        linkmax: u32,
        name_max: u32,
    },
    Commit {
        verf: WriteVerf,
    },
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// What it came to.
    pub status: Status,
    /// Attributes of the object (GETATTR, ACCESS, READ, .., and the directory of LOOKUP).
    pub attr: Option<Fattr>,
    /// Of the object or directory that changes; of RENAME's old directory.
    pub wcc: Wcc,
    /// Of RENAME's new directory.
    pub wcc_to: Wcc,
    /// The rest; [`Body::None`] with an error.
    pub body: Body<'a>,
}

/// Which of the common attributes a procedure has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Common {
    Nothing,
    Attr,
    Wcc,
    TwoWccs,
    AttrWcc,
}

fn common(procedure: Proc) -> Common {
    match procedure {
        Proc::Null | Proc::Getattr => Common::Nothing,
        Proc::Rename => Common::TwoWccs,
        Proc::Link => Common::AttrWcc,
        Proc::Setattr
        | Proc::Write
        | Proc::Create
        | Proc::Mkdir
        | Proc::Symlink
        | Proc::Mknod
        | Proc::Remove
        | Proc::Rmdir
        | Proc::Commit => Common::Wcc,
        _ => Common::Attr,
    }
}

impl<'a> Reply<'a> {
    /// An answer with nothing but a status.
    pub fn of(status: Status) -> Reply<'a> {
        let (wcc, wcc_to) = (Wcc::default(), Wcc::default());
        Reply { status, attr: None, wcc, wcc_to, body: Body::None }
    }

    fn write_common(&self, shape: Common, w: &mut Writer) {
        let attr = |w: &mut Writer| w.option(self.attr.as_ref(), |w, attr| attr.write(w));
        match shape {
            Common::Nothing => {}
            Common::Attr => attr(w),
            Common::Wcc => self.wcc.write(w),
            Common::TwoWccs => {
                self.wcc.write(w);
                self.wcc_to.write(w);
            }
            Common::AttrWcc => {
                attr(w);
                self.wcc.write(w);
            }
        }
    }

    fn read_common(&mut self, shape: Common, r: &mut Reader<'_>) -> Result<(), XdrError> {
        if matches!(shape, Common::Attr | Common::AttrWcc) {
            self.attr = r.option(Fattr::read)?;
        }
        if matches!(shape, Common::Wcc | Common::TwoWccs | Common::AttrWcc) {
            self.wcc = Wcc::read(r)?;
        }
        if shape == Common::TwoWccs {
            self.wcc_to = Wcc::read(r)?;
        }
        Ok(())
    }

    /// Writes the results of a procedure.
    ///
    /// # Panics
    /// Where the body is not one of the procedure.
    pub fn write(&self, procedure: Proc, w: &mut Writer) {
        if procedure == Proc::Null {
            return;
        }
        w.u32(self.status.0);
        let shape = common(procedure);
        if self.status != Status::OK {
            return self.write_common(shape, w);
        }
        if let (Proc::Lookup, Body::Object { handle, attr }) = (procedure, &self.body) {
            handle.as_ref().expect("LOOKUP has a handle").write(w);
            w.option(attr.as_ref(), |w, attr| attr.write(w));
            return self.write_common(shape, w);
        }
        if let Body::Object { handle, attr } = &self.body {
            w.option(handle.as_ref(), |w, handle| handle.write(w));
            w.option(attr.as_ref(), |w, attr| attr.write(w));
            return self.write_common(shape, w);
        }
        if procedure == Proc::Getattr {
            return self.attr.as_ref().expect("GETATTR has attributes").write(w);
        }
        self.write_common(shape, w);
        self.write_body(procedure, w);
    }

    fn write_body(&self, procedure: Proc, w: &mut Writer) {
        match &self.body {
            Body::None | Body::Object { .. } => {}
            Body::Access(access) => w.u32(*access),
            Body::Target(target) => w.opaque(target),
            Body::Read { eof, data } => {
                w.u32(data.len() as u32);
                w.bool(*eof);
                w.opaque(data);
            }
            Body::Write { count, committed, verf } => {
                w.u32(*count);
                w.u32(*committed as u32);
                w.fixed(verf);
            }
            Body::Entries { verf, entries, eof } => {
                w.fixed(verf);
                for entry in entries {
                    w.bool(true);
                    entry.write(procedure == Proc::Readdirplus, w);
                }
                w.bool(false);
                w.bool(*eof);
            }
            Body::Fsstat(stat) => {
                stat.bytes.into_iter().chain(stat.files).for_each(|word| w.u64(word));
                w.u32(0);
            }
            Body::Fsinfo(info) => {
                let FsInfo { rtmax, rtpref, wtmax, wtpref, dtpref, .. } = *info;
                w.words(&[rtmax, rtpref, 1, wtmax, wtpref, 1, dtpref]);
                w.u64(info.maxfilesize);
                info.time_delta.write(w);
                w.u32(info.properties);
            }
            Body::Pathconf { linkmax, name_max } => {
                w.u32(*linkmax);
                w.u32(*name_max);
                w.words(&[1, 1, 0, 1]);
            }
            Body::Commit { verf } => w.fixed(verf),
        }
    }

    /// Reads the results of a procedure.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(procedure: Proc, r: &mut Reader<'a>) -> Result<Reply<'a>, XdrError> {
        let mut reply = Reply::of(Status::OK);
        if procedure == Proc::Null {
            return Ok(reply);
        }
        reply.status = Status(r.u32()?);
        let shape = common(procedure);
        if reply.status != Status::OK {
            reply.read_common(shape, r)?;
            return Ok(reply);
        }
        match procedure {
            Proc::Getattr => reply.attr = Some(Fattr::read(r)?),
            Proc::Lookup => {
                let handle = Some(Handle::read(r)?);
                reply.body = Body::Object { handle, attr: r.option(Fattr::read)? };
                reply.read_common(shape, r)?;
            }
            Proc::Create | Proc::Mkdir | Proc::Symlink | Proc::Mknod => {
                let handle = r.option(Handle::read)?;
                reply.body = Body::Object { handle, attr: r.option(Fattr::read)? };
                reply.read_common(shape, r)?;
            }
            _ => {
                reply.read_common(shape, r)?;
                reply.body = Body::read(procedure, r)?;
            }
        }
        Ok(reply)
    }
}

impl<'a> Entry<'a> {
    /// Bytes that the entry takes in an answer.
    pub fn size(&self, plus: bool) -> usize {
        let name = 4 + 8 + 4 + self.name.len().next_multiple_of(4) + 8;
        let attr = 4 + self.attr.as_ref().map_or(0, |_| 84);
        let handle = |handle: &Handle| 4 + handle.bytes().len().next_multiple_of(4);
        name + if plus { attr + 4 + self.handle.as_ref().map_or(0, handle) } else { 0 }
    }

    fn write(&self, plus: bool, w: &mut Writer) {
        w.u64(self.fileid);
        w.opaque(self.name);
        w.u64(self.cookie);
        if plus {
            w.option(self.attr.as_ref(), |w, attr| attr.write(w));
            w.option(self.handle.as_ref(), |w, handle| handle.write(w));
        }
    }

    fn read(plus: bool, r: &mut Reader<'a>) -> Result<Entry<'a>, XdrError> {
        let (fileid, name, cookie) = (r.u64()?, r.opaque(NAME_MAX)?, r.u64()?);
        let mut entry = Entry { fileid, name, cookie, attr: None, handle: None };
        if plus {
            entry.attr = r.option(Fattr::read)?;
            entry.handle = r.option(Handle::read)?;
        }
        Ok(entry)
    }
}

impl<'a> Body<'a> {
    fn read(procedure: Proc, r: &mut Reader<'a>) -> Result<Body<'a>, XdrError> {
        Ok(match procedure {
            Proc::Access => Body::Access(r.u32()?),
            Proc::Readlink => Body::Target(r.opaque(PATH_MAX)?),
            Proc::Read => {
                let (count, eof) = (r.u32()?, r.bool()?);
                let data = r.opaque(DATA_MAX)?;
                Body::Read { eof, data: data.get(..count as usize).unwrap_or(data) }
            }
            Proc::Write => {
                Body::Write { count: r.u32()?, committed: read_stable(r)?, verf: r.fixed()? }
            }
            Proc::Readdir | Proc::Readdirplus => {
                let (verf, mut entries) = (r.fixed()?, Vec::new());
                while r.bool()? {
                    if entries.len() == ENTRIES_MAX {
                        return Err(r.wrong(ENTRIES_MAX as u32));
                    }
                    entries.push(Entry::read(procedure == Proc::Readdirplus, r)?);
                }
                Body::Entries { verf, entries, eof: r.bool()? }
            }
            Proc::Fsstat => {
                let mut word = || r.u64();
                let bytes = [word()?, word()?, word()?];
                Body::Fsstat(FsStat { bytes, files: [word()?, word()?, word()?] })
            }
            Proc::Fsinfo => {
                let (rtmax, rtpref, _) = (r.u32()?, r.u32()?, r.u32()?);
                let (wtmax, wtpref, _) = (r.u32()?, r.u32()?, r.u32()?);
                let (dtpref, maxfilesize) = (r.u32()?, r.u64()?);
                let (time_delta, properties) = (NfsTime::read(r)?, r.u32()?);
                Body::Fsinfo(FsInfo {
                    rtmax,
                    rtpref,
                    wtmax,
                    wtpref,
                    dtpref,
                    maxfilesize,
                    time_delta,
                    properties,
                })
            }
            Proc::Pathconf => Body::Pathconf { linkmax: r.u32()?, name_max: r.u32()? },
            Proc::Commit => Body::Commit { verf: r.fixed()? },
            _ => Body::None,
        })
    }
}
