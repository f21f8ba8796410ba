//! READDIR and READDIRPLUS. Cookies are those of the file system, which stay valid while names come
//! and go and after a restart; so the cookie verifier is always the same.

use base::{Errno, Ino};
use rt::Cx;
use vfs::permission::{self, Access};

use super::Server;
use crate::proto::{Body, Entry, Handle, Proc, Reply, Status};
use crate::xdr::Writer;

/// Largest answer, bytes, whatever the client would take.
const ANSWER_MAX: u32 = 256 << 10;
/// Everything of an answer but its entries: status, attributes, verifier, end.
const AROUND: usize = 4 + 4 + 84 + 8 + 4 + 4;

struct Name {
    ino: Ino,
    name: Vec<u8>,
    cookie: u64,
}

impl Server {
    pub(super) fn readdir(
        &self,
        cx: &mut Cx,
        procedure: Proc,
        dir: &Handle,
        cookie: u64,
        count: u32,
        w: &mut Writer,
    ) {
        let mut reply = Reply::of(Status::OK);
        let plus = procedure == Proc::Readdirplus;
        let room = count.min(ANSWER_MAX) as usize;
        let listed = self.list(cx, dir, cookie, (plus, room), &mut reply);
        let (names, eof) = match listed {
            Ok(listed) => listed,
            Err(status) => return Reply { status, ..reply }.write(procedure, w),
        };
        let mut entries = Vec::with_capacity(names.len());
        for name in &names {
            let attr = plus.then(|| self.fs.getattr(cx, name.ino).ok()).flatten();
            entries.push(Entry {
                fileid: name.ino.0,
                name: &name.name,
                cookie: name.cookie,
                handle: attr.as_ref().map(|attr| self.handle(attr)),
                attr: attr.map(|attr| self.fattr(&attr)),
            });
        }
        reply.body = Body::Entries { verf: [0; 8], entries, eof };
        reply.write(procedure, w);
    }

    /// The names that fit, and whether they are the last.
    fn list(
        &self,
        cx: &mut Cx,
        dir: &Handle,
        cookie: u64,
        (plus, room): (bool, usize),
        reply: &mut Reply<'_>,
    ) -> Result<(Vec<Name>, bool), Status> {
        let dir = self.object(cx, dir)?;
        reply.attr = Some(self.fattr(&dir));
        if !dir.is_dir() {
            return Err(Status::of(Errno::ENOTDIR));
        }
        permission::access(cx, &*self.fs, &dir, Access::READ).map_err(Status::of)?;
        let (mut names, mut size, mut eof) = (Vec::new(), AROUND, true);
        // Attributes and handle that READDIRPLUS adds to each.
        let added = if plus { 4 + 84 + 4 + 4 + 32 } else { 0 };
        let listed = self.fs.readdir(cx, dir.ino, cookie, &mut |entry| {
            size += 4 + 8 + 4 + entry.name.len().next_multiple_of(4) + 8 + added;
            eof = size <= room;
            if eof {
                let (name, cookie) = (entry.name.to_vec(), entry.cookie);
                names.push(Name { ino: entry.ino, name, cookie });
            }
            eof
        });
        listed.map_err(Status::of)?;
        if names.is_empty() && !eof {
            return Err(Status::TOOSMALL);
        }
        Ok((names, eof))
    }
}
