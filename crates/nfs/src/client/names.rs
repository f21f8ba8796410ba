//! Operations on names.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;
use vfs::{Attr, FileType, NewNode, RenameFlags, check_name};

use super::NfsClient;
use super::inode::Inode;
use crate::proto::{Body, Call, CreateHow, Fattr, Handle, NfsTime, Reply, Sattr, SetTime};

/// Begin of the names that open files get when theirs are removed.
const SILLY: &[u8] = b".nfs";
/// How often a name is asked for where the answer was overtaken.
const OVERTAKEN_MAX: u32 = 3;

/// What an answer reports of the object that it found or made.
struct Object {
    handle: Option<Handle>,
    attr: Option<Fattr>,
    dir: Option<Fattr>,
}

fn object(reply: &Reply<'_>) -> Result<Object, Errno> {
    reply.status.check()?;
    let Body::Object { handle, attr } = &reply.body else { return Err(Errno::EIO) };
    Ok(Object { handle: *handle, attr: attr.clone(), dir: reply.attr.clone() })
}

impl NfsClient {
    pub(super) fn find(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<Arc<Inode>, Errno> {
        let inode = self.inode(cx, dir)?;
        if dir == self.root && name == b".." {
            return Ok(inode);
        }
        match name {
            b"." | b".." => {}
            name => check_name(name)?,
        }
        let call = Call::Lookup { dir: inode.handle, name };
        let mut tries = 0;
        loop {
            let found = self.call(cx, &call, object)??;
            if let Some(attr) = found.dir {
                self.refresh(cx, &inode, attr);
            }
            let handle = found.handle.ok_or(Errno::EIO)?;
            tries += 1;
            // A server's clock may have been set back: then it gives the same each time.
            let overtaken = |attr: &Fattr| self.is_overtaken(cx, &handle, attr);
            if tries == OVERTAKEN_MAX || !found.attr.as_ref().is_some_and(overtaken) {
                return self.known(cx, handle, found.attr);
            }
        }
    }

    /// The node with a handle; its attributes are asked for where they were not given.
    fn known(&self, cx: &mut Cx, handle: Handle, attr: Option<Fattr>) -> Result<Arc<Inode>, Errno> {
        let attr = match attr {
            Some(attr) => attr,
            None => self.call(cx, &Call::Getattr { handle }, |reply| {
                reply.status.check().and_then(|()| reply.attr.clone().ok_or(Errno::EIO))
            })??,
        };
        if attr.fsid != self.fsid {
            // Another file system of the server: its inode numbers mean other things.
            return Err(Errno::EXDEV);
        }
        Ok(self.note(cx, handle, attr))
    }

    /// CREATE, MKDIR, SYMLINK or MKNOD, with GUARDED semantics.
    pub(super) fn make(
        &self,
        cx: &mut Cx,
        dir: Ino,
        name: &[u8],
        node: &NewNode<'_>,
    ) -> Result<Arc<Inode>, Errno> {
        self.must_write()?;
        match name {
            b"." | b".." => return Err(Errno::EEXIST),
            name => check_name(name)?,
        }
        let parent = self.inode(cx, dir)?;
        let set = attributes(cx, node);
        let handle = parent.handle;
        let call = match node.kind {
            FileType::Regular => Call::Create { dir: handle, name, how: CreateHow::Guarded(set) },
            FileType::Directory => Call::Mkdir { dir: handle, name, set },
            FileType::Symlink => {
                let target = node.target.unwrap_or_default();
                if target.is_empty() {
                    return Err(Errno::ENOENT);
                }
                Call::Symlink { dir: handle, name, set, target }
            }
            kind => Call::Mknod { dir: handle, name, kind, set, rdev: node.rdev },
        };
        let made = self.changing(cx, &parent, &call, object)??;
        let inode = match made.handle {
            Some(handle) => self.known(cx, handle, made.attr)?,
            None => self.find(cx, dir, name)?,
        };
        inode.state.lock(cx).made = true;
        Ok(inode)
    }

    /// A call that changes a directory.
    fn changing<R>(
        &self,
        cx: &mut Cx,
        dir: &Inode,
        call: &Call<'_>,
        take: impl FnOnce(&Reply<'_>) -> R,
    ) -> Result<R, Errno> {
        self.change_begins(cx, dir);
        let done = self.call(cx, call, |reply| (reply.wcc.clone(), take(reply)));
        let (wcc, result) = match done {
            Ok((wcc, result)) => (Some(wcc), Ok(result)),
            Err(errno) => (None, Err(errno)),
        };
        self.change_ends(dir, wcc, cx.now());
        result
    }

    pub(super) fn make_link(
        &self,
        cx: &mut Cx,
        ino: Ino,
        dir: Ino,
        name: &[u8],
    ) -> Result<Attr, Errno> {
        self.must_write()?;
        check_name(name)?;
        let (inode, parent) = (self.inode(cx, ino)?, self.inode(cx, dir)?);
        if inode.state.lock(cx).attr.kind == FileType::Directory {
            return Err(Errno::EPERM);
        }
        let call = Call::Link { handle: inode.handle, dir: parent.handle, name };
        let attr = self.changing(cx, &parent, &call, |reply| {
            reply.status.check().map(|()| reply.attr.clone())
        })??;
        match attr {
            Some(attr) => self.refresh_own(cx, &inode, attr),
            None => self.fetch_attr(cx, &inode)?,
        }
        self.keep(cx, &inode);
        Ok(self.attr(cx, &inode))
    }

    /// Takes attributes after a change of ours that leaves the content as it is.
    pub(super) fn refresh_own(&self, cx: &Cx, inode: &Inode, attr: Fattr) {
        let now = cx.now();
        let mut state = inode.state.lock(cx);
        if state.changing == 0 {
            state.adopt(attr, now);
        }
    }

    /// Removes a name; where its node is open and this is its last name, gives it a silly one.
    pub(super) fn remove(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        self.must_write()?;
        match name {
            b"." | b".." => return Err(Errno::EISDIR),
            name => check_name(name)?,
        }
        let parent = self.inode(cx, dir)?;
        let victim = self.find(cx, dir, name)?;
        let (kind, last) = {
            let state = victim.state.lock(cx);
            (state.attr.kind, state.attr.nlink <= 1)
        };
        if kind == FileType::Directory {
            return Err(Errno::EISDIR);
        }
        if self.make_silly(cx, &victim, dir, name, last)? {
            return Ok(());
        }
        let call = Call::Remove { dir: parent.handle, name };
        self.changing(cx, &parent, &call, |reply| reply.status.check())??;
        if last {
            self.forget(cx, &victim);
        } else {
            let _told_at_the_next_use = self.fetch_attr(cx, &victim);
        }
        Ok(())
    }

    /// True where the node had to be renamed instead of removed.
    fn make_silly(
        &self,
        cx: &mut Cx,
        victim: &Arc<Inode>,
        dir: Ino,
        name: &[u8],
        last: bool,
    ) -> Result<bool, Errno> {
        {
            let mut state = victim.state.lock(cx);
            if state.opens == 0 || state.silly.is_some() || !last {
                return Ok(false);
            }
            // Held open: a close meanwhile would be the last and not know the name to remove.
            state.opens += 1;
        }
        let done = self.name_silly(cx, victim, dir, name);
        if self.closes(cx, victim) {
            // Who closed it last is not here any more to get the error.
            let _latched = self.last_close(cx, victim);
        }
        done.map(|()| true)
    }

    /// Gives an open node a silly name instead of its own.
    fn name_silly(&self, cx: &mut Cx, victim: &Inode, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        let parent = self.inode(cx, dir)?;
        let number = cx.random() as u32;
        let silly = [SILLY, format!("{:016x}{number:08x}", victim.ino.0).as_bytes()].concat();
        let call = Call::Rename { from: parent.handle, old: name, to: parent.handle, new: &silly };
        self.changing(cx, &parent, &call, |reply| reply.status.check())??;
        victim.state.lock(cx).silly = Some((dir, silly));
        Ok(())
    }

    /// The last close of a node with a silly name removes it.
    pub(super) fn remove_silly(&self, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
        let Some((dir, name)) = inode.state.lock(cx).silly.take() else { return Ok(()) };
        let parent = self.inode(cx, dir)?;
        let call = Call::Remove { dir: parent.handle, name: &name };
        self.changing(cx, &parent, &call, |reply| reply.status.check())??;
        self.forget(cx, inode);
        Ok(())
    }

    pub(super) fn remove_dir(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        self.must_write()?;
        match name {
            b"." => return Err(Errno::EINVAL),
            b".." => return Err(Errno::ENOTEMPTY),
            name => check_name(name)?,
        }
        let parent = self.inode(cx, dir)?;
        let call = Call::Rmdir { dir: parent.handle, name };
        self.changing(cx, &parent, &call, |reply| reply.status.check())?
    }

    pub(super) fn rename_name(
        &self,
        cx: &mut Cx,
        (old_dir, old): (Ino, &[u8]),
        (new_dir, new): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.must_write()?;
        if !flags.is_empty() {
            // The protocol has neither.
            return Err(Errno::EINVAL);
        }
        for name in [old, new] {
            match name {
                b"." | b".." => return Err(Errno::EBUSY),
                name => check_name(name)?,
            }
        }
        let (from, to) = (self.inode(cx, old_dir)?, self.inode(cx, new_dir)?);
        let target = match self.find(cx, new_dir, new) {
            Ok(target) => Some(target),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(errno),
        };
        if let Some(target) = &target {
            let source = self.find(cx, old_dir, old)?;
            let (kind, last) = {
                let state = target.state.lock(cx);
                (state.attr.kind, state.attr.nlink <= 1)
            };
            let source_is_dir = source.state.lock(cx).attr.kind == FileType::Directory;
            if source.ino != target.ino && kind != FileType::Directory && !source_is_dir {
                self.make_silly(cx, target, new_dir, new, last)?;
            }
        }
        let call = Call::Rename { from: from.handle, old, to: to.handle, new };
        let opened = self
            .changing(cx, &from, &call, |reply| (reply.status.check(), reply.wcc_to.after.clone()));
        let (done, after) = opened?;
        if let Some(attr) = after
            && from.ino != to.ino
        {
            self.refresh(cx, &to, attr);
        }
        done
    }
}

/// Attributes of a new node: the owner only where it is not the caller, the times where given.
fn attributes(cx: &Cx, node: &NewNode<'_>) -> Sattr {
    let cred = cx.cred();
    let other = |given: u32, own: u32| (given != own).then_some(given);
    let time = |time| SetTime::To(NfsTime::of(time));
    Sattr {
        mode: Some(node.mode.into()),
        uid: other(node.uid, cred.uid),
        gid: other(node.gid, cred.gid),
        size: None,
        atime: node.times.map_or(SetTime::Keep, |times| time(times.0)),
        mtime: node.times.map_or(SetTime::Keep, |times| time(times.1)),
    }
}
