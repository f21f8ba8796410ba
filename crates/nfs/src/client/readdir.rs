//! Listing a directory: READDIRPLUS, whose attributes are remembered, or READDIR.
//!
//! `.` and `..` come first and are ours, with the two largest cookies; those of the server are left
//! out, since not every server has them.

use std::sync::atomic::Ordering;

use base::{Errno, Ino};
use rt::Cx;
use vfs::{DirEntry, FileType};

use super::NfsClient;
use super::inode::Inode;
use crate::proto::{Body, Call, Reply};

const DOT: u64 = u64::MAX - 1;
const DOT_DOT: u64 = u64::MAX;

struct Name {
    ino: Ino,
    kind: Option<FileType>,
    name: Vec<u8>,
    cookie: u64,
}

struct Page {
    names: Vec<Name>,
    eof: bool,
    last: u64,
}

impl NfsClient {
    pub(super) fn list_dir(
        &self,
        cx: &mut Cx,
        dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let inode = self.inode(cx, dir)?;
        if inode.state.lock(cx).attr.kind != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        let kind = Some(FileType::Directory);
        if cookie == 0 && !emit(DirEntry { ino: dir, kind, name: b".", cookie: DOT }) {
            return Ok(());
        }
        if cookie == 0 || cookie == DOT {
            let parent = self.find(cx, dir, b"..")?.ino;
            if !emit(DirEntry { ino: parent, kind, name: b"..", cookie: DOT_DOT }) {
                return Ok(());
            }
        }
        let mut at = if cookie >= DOT { 0 } else { cookie };
        loop {
            let page = self.dir_page(cx, &inode, at)?;
            for entry in &page.names {
                let Name { ino, kind, name, cookie } = entry;
                if !emit(DirEntry { ino: *ino, kind: *kind, name, cookie: *cookie }) {
                    return Ok(());
                }
            }
            if page.eof {
                return Ok(());
            }
            if page.last == at {
                // An empty page that is not the end: it would go on for ever.
                return Err(Errno::EIO);
            }
            at = page.last;
        }
    }

    fn dir_page(&self, cx: &mut Cx, inode: &Inode, cookie: u64) -> Result<Page, Errno> {
        let verf = match cookie {
            0 => [0; 8],
            _ => inode.state.lock(cx).cookie_verf,
        };
        let (dir, count) = (inode.handle, self.limits.dtpref);
        if !self.no_plus.load(Ordering::Relaxed) {
            let maxcount = count.saturating_mul(4).min(self.limits.rsize.max(count));
            let call = Call::Readdirplus { dir, cookie, verf, dircount: count, maxcount };
            match self.ask_page(cx, inode, &call, cookie) {
                Err(Errno::EOPNOTSUPP) => self.no_plus.store(true, Ordering::Relaxed),
                page => return page,
            }
        }
        self.ask_page(cx, inode, &Call::Readdir { dir, cookie, verf, count }, cookie)
    }

    fn ask_page(
        &self,
        cx: &mut Cx,
        inode: &Inode,
        call: &Call<'_>,
        cookie: u64,
    ) -> Result<Page, Errno> {
        let listed = self.call(cx, call, |reply| -> Result<_, Errno> {
            reply.status.check()?;
            let (names, nodes, verf, eof) = take_page(reply).ok_or(Errno::EIO)?;
            Ok((names, nodes, verf, eof, reply.attr.clone()))
        })?;
        let (names, nodes, verf, eof, attr) = listed?;
        inode.state.lock(cx).cookie_verf = verf;
        if let Some(attr) = attr {
            self.refresh(cx, inode, attr);
        }
        for (handle, attr) in nodes {
            if attr.fsid == self.fsid && !self.is_overtaken(cx, &handle, &attr) {
                self.note(cx, handle, attr);
            }
        }
        let last = names.last().map_or(cookie, |name| name.cookie);
        let dots = |name: &Name| name.name == b"." || name.name == b"..";
        let names = names.into_iter().filter(|name| !dots(name)).collect();
        Ok(Page { names, eof, last })
    }
}

type Answer = (Vec<Name>, Vec<(crate::proto::Handle, crate::proto::Fattr)>, [u8; 8], bool);

fn take_page(reply: &Reply<'_>) -> Option<Answer> {
    let Body::Entries { verf, entries, eof } = &reply.body else { return None };
    let (mut names, mut nodes) = (Vec::with_capacity(entries.len()), Vec::new());
    for entry in entries {
        // A name with a slash would be another file on the way down.
        let dots = entry.name == b"." || entry.name == b"..";
        if !dots && vfs::check_name(entry.name).is_err() {
            return None;
        }
        let kind = entry.attr.as_ref().map(|attr| attr.kind);
        let name = entry.name.to_vec();
        names.push(Name { ino: Ino(entry.fileid), kind, name, cookie: entry.cookie });
        if let (Some(handle), Some(attr), false) = (entry.handle, &entry.attr, dots) {
            nodes.push((handle, attr.clone()));
        }
    }
    Some((names, nodes, *verf, *eof))
}
