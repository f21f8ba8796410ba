//! The system-call layer: operations on paths with the credentials of the calling task.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::{Charge, Cx};

use crate::attr::*;
use crate::create::create_labelled;
use crate::file::{File, OpenFlags};
use crate::fs::FileSystem;
use crate::path::{FoundPath, Last, Parent, Walk};
use crate::path_cache::{self, PathCache};
use crate::permission::{self, Access};

/// A file system seen through paths, with a root and a current directory.
///
/// Every method may park, and returns the `errno` that the Linux system call of that name would.
#[derive(Clone)]
pub struct Namespace {
    fs: Arc<dyn FileSystem>,
    root: Ino,
    cwd: Ino,
    labelled: bool,
    walks: Arc<PathCache>,
}

impl Namespace {
    /// Paths of this file system; the current directory is its root.
    pub fn new(fs: Arc<dyn FileSystem>) -> Namespace {
        let root = fs.root();
        Namespace { fs, root, cwd: root, labelled: false, walks: Arc::default() }
    }

    /// The same with security labels: what is made gets the `security.selinux` of its directory,
    /// as a system with SELinux does where no rule says otherwise.
    pub fn labelled(self) -> Namespace {
        Namespace { labelled: true, ..self }
    }

    /// The file system.
    pub fn fs(&self) -> &Arc<dyn FileSystem> {
        &self.fs
    }

    /// Makes a directory the current one.
    ///
    /// # Errors
    /// `ENOTDIR`; `EACCES` no search permission; those of the walk ([`Walk::parent`]).
    pub fn chdir(&mut self, cx: &mut Cx, path: &[u8]) -> Result<(), Errno> {
        let attr = self.stat(cx, path)?;
        if !attr.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        permission::access(cx, &*self.fs, &attr, Access::EXEC)?;
        self.cwd = attr.ino;
        Ok(())
    }

    /// The attributes of what a path leads to; a final symlink is followed.
    ///
    /// # Errors
    /// `ENOENT` and those of the walk.
    pub fn stat(&self, cx: &mut Cx, path: &[u8]) -> Result<Attr, Errno> {
        self.find(cx, path, true)?.attr.ok_or(Errno::ENOENT)
    }

    /// The attributes of what a path names; a final symlink is itself.
    ///
    /// # Errors
    /// `ENOENT` and those of the walk.
    pub fn lstat(&self, cx: &mut Cx, path: &[u8]) -> Result<Attr, Errno> {
        self.find(cx, path, false)?.attr.ok_or(Errno::ENOENT)
    }

    /// May the task do this with the file?
    ///
    /// # Errors
    /// `EACCES`, `ENOENT` and those of the walk.
    pub fn access(&self, cx: &mut Cx, path: &[u8], want: Access) -> Result<(), Errno> {
        let attr = self.stat(cx, path)?;
        permission::access(cx, &*self.fs, &attr, want)
    }

    /// Opens a file; with `CREATE` one that does not exist is created with `mode` less the umask.
    ///
    /// # Errors
    /// `ENOENT`; `EEXIST` with `EXCL`; `EISDIR` a directory for writing or creating; `ENOTDIR` with
    /// `DIRECTORY`; `ELOOP` with `NOFOLLOW`; `EACCES`; `EPERM` writing an append-only file without
    /// `APPEND`; `ENXIO` a device, fifo or socket (they are names here, not devices); those of the
    /// walk.
    pub fn open(
        &self,
        cx: &mut Cx,
        path: &[u8],
        flags: OpenFlags,
        mode: u16,
    ) -> Result<File, Errno> {
        let exclusive = flags.contains(OpenFlags::CREATE | OpenFlags::EXCL);
        if exclusive && !path.ends_with(b"/") {
            let attr = self.make(cx, path, NewNode::new(FileType::Regular, mode))?;
            return File::open(cx, &self.fs, &attr, flags);
        }
        let follow = !exclusive && !flags.contains(OpenFlags::NOFOLLOW);
        let found = self.find(cx, path, follow)?;
        let Some(attr) = found.attr else {
            return self.open_new(cx, &found, flags, mode);
        };
        if exclusive {
            return Err(Errno::EEXIST);
        }
        let attr = self.may_open(cx, attr, flags)?;
        let file = File::open(cx, &self.fs, &attr, flags)?;
        if flags.contains(OpenFlags::TRUNC) && attr.kind == FileType::Regular {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            let set = permission::may_set(cx.cred(), &attr, &set)?;
            if let Err(error) = self.fs.setattr(cx, attr.ino, &set) {
                file.close(cx)?;
                return Err(error);
            }
        }
        Ok(file)
    }

    fn open_new(
        &self,
        cx: &mut Cx,
        found: &FoundPath,
        flags: OpenFlags,
        mode: u16,
    ) -> Result<File, Errno> {
        if !flags.contains(OpenFlags::CREATE) {
            return Err(Errno::ENOENT);
        }
        if found.parent.trailing_slash {
            return Err(Errno::EISDIR);
        }
        let attr = self.create(cx, found, NewNode::new(FileType::Regular, mode))?;
        File::open(cx, &self.fs, &attr, flags)
    }

    fn may_open(&self, cx: &mut Cx, attr: Attr, flags: OpenFlags) -> Result<Attr, Errno> {
        let write = flags.contains(OpenFlags::WRITE);
        match attr.kind {
            FileType::Symlink => return Err(Errno::ELOOP),
            FileType::Directory if write || flags.contains(OpenFlags::CREATE) => {
                return Err(Errno::EISDIR);
            }
            FileType::Directory => {}
            _ if flags.contains(OpenFlags::DIRECTORY) => return Err(Errno::ENOTDIR),
            FileType::Regular => {}
            _ => return Err(Errno::ENXIO),
        }
        let mut want = Access::empty();
        want.set(Access::READ, flags.contains(OpenFlags::READ));
        want.set(Access::WRITE, write || flags.contains(OpenFlags::TRUNC));
        permission::access(cx, &*self.fs, &attr, want)?;
        let append_only = attr.flags & permission::APPEND_ONLY != 0;
        let cuts = flags.contains(OpenFlags::TRUNC) || !flags.contains(OpenFlags::APPEND);
        if append_only && write && cuts {
            return Err(Errno::EPERM);
        }
        Ok(attr)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// `EEXIST`, `EACCES`, those of the walk and of the file system's `create`.
    pub fn mkdir(&self, cx: &mut Cx, path: &[u8], mode: u16) -> Result<Attr, Errno> {
        self.make(cx, path, NewNode::new(FileType::Directory, mode))
    }

    /// Makes a symlink at `path` that leads to `target`.
    ///
    /// # Errors
    /// As [`mkdir`](Self::mkdir); `ENOENT` for an empty target.
    pub fn symlink(&self, cx: &mut Cx, target: &[u8], path: &[u8]) -> Result<Attr, Errno> {
        self.make(cx, path, NewNode::symlink(target))
    }

    /// Makes a regular file, device, fifo or socket.
    ///
    /// # Errors
    /// As [`mkdir`](Self::mkdir); `EPERM` a directory, a symlink, or a device made by others than
    /// root.
    pub fn mknod(
        &self,
        cx: &mut Cx,
        path: &[u8],
        kind: FileType,
        mode: u16,
        rdev: u64,
    ) -> Result<Attr, Errno> {
        let found = self.find_last(cx, path)?;
        if matches!(kind, FileType::Directory | FileType::Symlink)
            || (kind.is_device() && cx.cred().uid != 0)
        {
            return Err(Errno::EPERM);
        }
        self.create(cx, &found, NewNode { rdev, ..NewNode::new(kind, mode) })
    }

    /// Gives the file at `old` (a final symlink is itself) the further name `new`.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EACCES`, `EPERM` a directory, those of the walk.
    pub fn link(&self, cx: &mut Cx, old: &[u8], new: &[u8]) -> Result<Attr, Errno> {
        let attr = self.lstat(cx, old)?;
        let found = self.find_last(cx, new)?;
        let name = self.may_create(cx, &found, false)?;
        if permission::is_fixed(&attr) {
            return Err(Errno::EPERM);
        }
        cx.charge_for(Charge::Create, 1);
        self.fs.link(cx, attr.ino, found.parent.dir.ino, name)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`; `EISDIR`; `ENOTDIR` a slash after a non-directory; `EACCES`, `EPERM`; the walk's.
    pub fn unlink(&self, cx: &mut Cx, path: &[u8]) -> Result<(), Errno> {
        let found = self.find_last(cx, path)?;
        let Last::Name(name) = &found.parent.last else { return Err(Errno::EISDIR) };
        let attr = found.attr.as_ref().ok_or(Errno::ENOENT)?;
        if found.parent.trailing_slash && !attr.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        permission::may_delete(cx, &*self.fs, &found.parent.dir, attr)?;
        cx.charge_for(Charge::Create, 1);
        self.fs.unlink(cx, found.parent.dir.ino, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY` (also for `..`), `EINVAL` for `.`, `EBUSY` the root,
    /// `EACCES`, `EPERM`; those of the walk.
    pub fn rmdir(&self, cx: &mut Cx, path: &[u8]) -> Result<(), Errno> {
        let found = self.find_last(cx, path)?;
        let name = match &found.parent.last {
            Last::Name(name) => name,
            Last::Dot => return Err(Errno::EINVAL),
            Last::DotDot => return Err(Errno::ENOTEMPTY),
            Last::Root => return Err(Errno::EBUSY),
        };
        let attr = found.attr.as_ref().ok_or(Errno::ENOENT)?;
        permission::may_delete(cx, &*self.fs, &found.parent.dir, attr)?;
        cx.charge_for(Charge::Create, 1);
        self.fs.rmdir(cx, found.parent.dir.ino, name)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// Those of the file system's `rename`; `ENOTDIR` a slash after a non-directory; `EACCES`,
    /// `EPERM`; those of the walk.
    pub fn rename(
        &self,
        cx: &mut Cx,
        old: &[u8],
        new: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let old = self.find_last(cx, old)?;
        let new = self.find_last(cx, new)?;
        let (Last::Name(old_name), Last::Name(new_name)) = (&old.parent.last, &new.parent.last)
        else {
            return Err(Errno::EBUSY);
        };
        let source = old.attr.as_ref().ok_or(Errno::ENOENT)?;
        let slash = old.parent.trailing_slash || new.parent.trailing_slash;
        if slash && !source.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        permission::may_delete(cx, &*self.fs, &old.parent.dir, source)?;
        match &new.attr {
            Some(target) => permission::may_delete(cx, &*self.fs, &new.parent.dir, target)?,
            None => {
                let want = Access::WRITE | Access::EXEC;
                permission::access(cx, &*self.fs, &new.parent.dir, want)?;
            }
        }
        if source.is_dir() && old.parent.dir.ino != new.parent.dir.ino {
            // Its `..` changes.
            permission::access(cx, &*self.fs, source, Access::WRITE)?;
        }
        cx.charge_for(Charge::Create, 1);
        let (from, to) = (old.parent.dir.ino, new.parent.dir.ino);
        self.fs.rename(cx, from, old_name, to, new_name, flags)
    }

    /// The target of a symlink.
    ///
    /// # Errors
    /// `EINVAL` not a symlink; `ENOENT`; those of the walk.
    pub fn readlink(&self, cx: &mut Cx, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let attr = self.lstat(cx, path)?;
        self.fs.readlink(cx, attr.ino)
    }

    /// Lists a directory without `.` and `..`, in the order of the file system.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`, `ENOENT`; those of the walk.
    pub fn list(&self, cx: &mut Cx, path: &[u8]) -> Result<Vec<(Vec<u8>, Ino)>, Errno> {
        let attr = self.stat(cx, path)?;
        permission::access(cx, &*self.fs, &attr, Access::READ)?;
        let mut names = Vec::new();
        self.fs.readdir(cx, attr.ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push((entry.name.to_vec(), entry.ino));
            }
            true
        })?;
        Ok(names)
    }

    /// Changes attributes: chmod, chown, utimensat and truncate in one.
    ///
    /// # Errors
    /// `EPERM` not the owner or not root; `EACCES` truncate without write permission; the file
    /// system's; those of the walk.
    pub fn setattr(
        &self,
        cx: &mut Cx,
        path: &[u8],
        set: &SetAttr,
        follow: bool,
    ) -> Result<Attr, Errno> {
        let attr = self.find(cx, path, follow)?.attr.ok_or(Errno::ENOENT)?;
        if set.size.is_some() {
            permission::access(cx, &*self.fs, &attr, Access::WRITE)?;
        }
        let set = permission::may_set(cx.cred(), &attr, set)?;
        self.fs.setattr(cx, attr.ino, &set)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `EACCES`; those of the file system and the walk.
    pub fn getxattr(&self, cx: &mut Cx, path: &[u8], name: &[u8]) -> Result<Vec<u8>, Errno> {
        let attr = self.stat(cx, path)?;
        permission::may_xattr(cx.cred(), &attr, name, false)?;
        if name.starts_with(b"user.") {
            permission::access(cx, &*self.fs, &attr, Access::READ)?;
        }
        self.fs.getxattr(cx, attr.ino, name)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`; those of the file system and the walk.
    pub fn setxattr(
        &self,
        cx: &mut Cx,
        path: &[u8],
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let attr = self.stat(cx, path)?;
        permission::may_xattr(cx.cred(), &attr, name, true)?;
        if name.starts_with(b"user.") {
            permission::access(cx, &*self.fs, &attr, Access::WRITE)?;
        }
        self.fs.setxattr(cx, attr.ino, name, value, flags)
    }

    fn find(&self, cx: &mut Cx, path: &[u8], follow: bool) -> Result<FoundPath, Errno> {
        let (mut walk, parent) = self.parent(cx, path)?;
        walk.find_last(cx, parent, follow)
    }

    /// Walks to the directory of the last component; where this task's last walk led there, too, it
    /// is taken from there.
    fn parent(&self, cx: &mut Cx, path: &[u8]) -> Result<(Walk<'_>, Parent), Errno> {
        cx.charge_for(Charge::Syscall, 1);
        let start = if path.first() == Some(&b'/') { self.root } else { self.cwd };
        let kept = self.fs.walk_version().zip(path_cache::split(path));
        if let Some((version, (prefix, name))) = kept
            && let Some((dir, steps)) = self.walks.find(cx, version, start, prefix)
        {
            (0..steps).for_each(|_| cx.charge_for(Charge::PathComponent, 1));
            let walk = Walk::resume(&*self.fs, self.root, dir.clone());
            let last = Last::Name(name.to_vec());
            return Ok((walk, Parent { dir, last, trailing_slash: false }));
        }
        let mut walk = Walk::new(cx, &*self.fs, self.root, start)?;
        let parent = walk.parent(cx, path)?;
        if let Some((version, (prefix, _))) = kept
            && let Some(steps) = walk.steps()
        {
            self.walks.keep(cx, version, start, prefix, &parent.dir, steps);
        }
        Ok((walk, parent))
    }

    /// For operations on names: the last component is looked up but never followed, not even with a
    /// slash behind it.
    fn find_last(&self, cx: &mut Cx, path: &[u8]) -> Result<FoundPath, Errno> {
        let (_, parent) = self.parent(cx, path)?;
        self.look_up_last(cx, parent)
    }

    fn look_up_last(&self, cx: &mut Cx, parent: Parent) -> Result<FoundPath, Errno> {
        cx.charge_for(Charge::PathComponent, 1);
        let attr = match &parent.last {
            Last::Name(name) => match self.fs.lookup(cx, parent.dir.ino, name) {
                Ok(attr) => Some(attr),
                Err(Errno::ENOENT) => None,
                Err(other) => return Err(other),
            },
            _ => Some(parent.dir.clone()),
        };
        Ok(FoundPath { parent, attr })
    }

    /// Makes what must not exist yet. Where walks are kept the file system is asked at once,
    /// without a look for the name before; where it refuses, what such a look says comes first.
    fn make(&self, cx: &mut Cx, path: &[u8], node: NewNode) -> Result<Attr, Errno> {
        let (_, parent) = self.parent(cx, path)?;
        let mut refused = None;
        if let Last::Name(name) = &parent.last
            && !parent.trailing_slash
            && self.fs.walk_version().is_some()
            && permission::access(cx, &*self.fs, &parent.dir, Access::WRITE | Access::EXEC).is_ok()
        {
            cx.charge_for(Charge::PathComponent, 1);
            let made =
                create_labelled(cx, &*self.fs, &parent.dir, name, node.clone(), self.labelled);
            // A name that exists costs the look for it.
            if made != Err(Errno::EEXIST) {
                cx.charge_for(Charge::Create, 1);
            }
            match made {
                Err(error) if error != Errno::EEXIST => refused = Some(error),
                result => return result,
            }
        }
        let found = self.look_up_last(cx, parent)?;
        match refused {
            Some(_) if found.attr.is_some() => Err(Errno::EEXIST),
            Some(error) => Err(error),
            None => self.create(cx, &found, node),
        }
    }

    fn may_create<'f>(
        &self,
        cx: &mut Cx,
        found: &'f FoundPath,
        directory: bool,
    ) -> Result<&'f [u8], Errno> {
        let Last::Name(name) = &found.parent.last else { return Err(Errno::EEXIST) };
        if found.attr.is_some() {
            return Err(Errno::EEXIST);
        }
        if found.parent.trailing_slash && !directory {
            return Err(Errno::ENOENT);
        }
        permission::access(cx, &*self.fs, &found.parent.dir, Access::WRITE | Access::EXEC)?;
        Ok(name)
    }

    /// Creates with the task's ids, the umask or the directory's default ACL, its group rule, and
    /// its label where labels are used.
    fn create(&self, cx: &mut Cx, found: &FoundPath, node: NewNode) -> Result<Attr, Errno> {
        let name = self.may_create(cx, found, node.kind == FileType::Directory)?;
        cx.charge_for(Charge::Create, 1);
        create_labelled(cx, &*self.fs, &found.parent.dir, name, node, self.labelled)
    }
}
