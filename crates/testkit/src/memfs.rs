//! A file system in memory: the reference that others are compared with.
//!
//! One lock around one map of inodes, ordered maps everywhere, every operation written in the words
//! of its manual page. Speed is no goal. There is no device, so `sync` does nothing and `fiemap` is
//! not supported; [`MemFs::remount`] imitates what an unmount and a mount do to open files.

use std::collections::BTreeMap;

use base::{Errno, Ino, Timespec};
use rt::{Cx, Mutex, MutexGuard};
use vfs::{
    Attr, DirEntry, FallocMode, FileSystem, FileType, NewNode, RenameFlags, SeekWhence, SetAttr,
    StatFs, XattrFlags, check_name,
};

mod clone;
mod content;
mod limits;
mod names;
mod xattrs;

use content::Content;
pub use limits::Limits;
use names::Names;

/// The reference file system.
pub struct MemFs {
    state: Mutex<State>,
    limits: Limits,
}

struct State {
    nodes: BTreeMap<Ino, Node>,
    next_ino: u64,
    /// Numbers of inodes that are gone are used again.
    reuse: bool,
    made: u32,
    down: bool,
}

/// An inode. `body` holds what its type is about.
struct Node {
    attr: Attr,
    body: Body,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    opens: u32,
}

enum Body {
    File(Content),
    Dir { names: Names, parent: Ino },
    Symlink(Vec<u8>),
    Other,
}

const ROOT: Ino = Ino(2);

impl MemFs {
    /// An empty file system with the limits of ext4.
    pub fn new() -> MemFs {
        MemFs::with_limits(Limits::default())
    }

    /// An empty file system with these limits.
    pub fn with_limits(limits: Limits) -> MemFs {
        let body = Body::Dir { names: Names::default(), parent: ROOT };
        let node = NewNode::new(FileType::Directory, 0o755);
        let root = Node::new(ROOT, &node, Timespec::default(), body);
        let nodes = BTreeMap::from([(ROOT, root)]);
        let state = State { nodes, next_ino: 11, reuse: false, made: 0, down: false };
        MemFs { state: Mutex::named("memfs", state), limits }
    }

    /// An empty file system that uses the lowest free inode number for a new inode, as ext4 does,
    /// with another generation.
    pub fn reusing() -> MemFs {
        let mut fs = MemFs::new();
        fs.state.get_mut().reuse = true;
        fs
    }

    /// What an unmount and a mount leave: open counts are gone, and with them inodes without names.
    pub fn remount(&self, cx: &mut Cx) {
        let mut state = self.state.lock(cx);
        state.down = false;
        for node in state.nodes.values_mut() {
            node.opens = 0;
        }
        state.nodes.retain(|_, node| node.attr.nlink > 0);
    }

    fn lock(&self, cx: &mut Cx) -> Result<MutexGuard<'_, State>, Errno> {
        let state = self.state.lock(cx);
        if state.down { Err(Errno::EIO) } else { Ok(state) }
    }
}

impl Default for MemFs {
    fn default() -> MemFs {
        MemFs::new()
    }
}

impl Node {
    fn new(ino: Ino, node: &NewNode, now: Timespec, body: Body) -> Node {
        let (atime, mtime) = node.times.unwrap_or((now, now));
        let directory = node.kind == FileType::Directory;
        let attr = Attr {
            ino,
            kind: node.kind,
            mode: node.mode & 0o7777,
            nlink: if directory { 2 } else { 1 },
            uid: node.uid,
            gid: node.gid,
            rdev: if node.kind.is_device() { node.rdev } else { 0 },
            size: if directory { 4096 } else { node.target.map_or(0, |t| t.len() as u64) },
            blocks: 0,
            atime,
            mtime,
            ctime: now,
            btime: Some(now),
            generation: 1,
            flags: 0,
            blksize: 4096,
        };
        Node { attr, body, xattrs: BTreeMap::new(), opens: 0 }
    }

    fn file(&mut self) -> Result<&mut Content, Errno> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Dir { .. } => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn names(&mut self) -> Result<&mut Names, Errno> {
        match &mut self.body {
            Body::Dir { names, .. } => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn attr(&self) -> Attr {
        let mut attr = self.attr.clone();
        if let Body::File(content) = &self.body {
            attr.size = content.size();
            attr.blocks = content.blocks();
        }
        attr
    }
}

impl State {
    /// The number of a new inode.
    fn number(&mut self) -> Ino {
        if self.reuse {
            return (11..).map(Ino).find(|ino| !self.nodes.contains_key(ino)).expect("endless");
        }
        self.next_ino += 1;
        Ino(self.next_ino - 1)
    }

    fn node(&mut self, ino: Ino) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).ok_or(Errno::ESTALE)
    }

    /// Finds a name; `.` and `..` too.
    fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Ino, Errno> {
        let node = self.node(dir)?;
        let Body::Dir { names, parent } = &node.body else { return Err(Errno::ENOTDIR) };
        match name {
            b"." => Ok(dir),
            b".." => Ok(*parent),
            _ => {
                check_name(name)?;
                names.get(name).ok_or(Errno::ENOENT)
            }
        }
    }

    /// May `name` be created in `dir`?
    fn vacant(&mut self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        match self.find(dir, name) {
            Ok(_) => Err(Errno::EEXIST),
            Err(Errno::ENOENT) if name.is_empty() || self.node(dir)?.attr.nlink == 0 => {
                Err(Errno::ENOENT)
            }
            Err(Errno::ENOENT) => Ok(()),
            Err(other) => Err(other),
        }
    }

    fn is_dir(&self, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.attr.is_dir())
    }

    fn parent(&self, dir: Ino) -> Ino {
        match self.nodes.get(&dir).map(|node| &node.body) {
            Some(Body::Dir { parent, .. }) => *parent,
            _ => ROOT,
        }
    }

    /// Is `above` the directory `below` or one of those that hold it?
    fn holds(&self, above: Ino, below: Ino) -> bool {
        let mut at = below;
        while at != above && at != ROOT {
            at = self.parent(at);
        }
        at == above
    }

    fn is_empty(&self, dir: Ino) -> bool {
        match self.nodes.get(&dir).map(|node| &node.body) {
            Some(Body::Dir { names, .. }) => names.is_empty(),
            _ => true,
        }
    }

    /// Notes a change of the names in `dir`; `links` is the change of its number of subdirectories.
    fn touch_dir(&mut self, dir: Ino, now: Timespec, links: i32) {
        if let Some(node) = self.nodes.get_mut(&dir) {
            node.attr.mtime = now;
            node.attr.ctime = now;
            node.attr.nlink = node.attr.nlink.saturating_add_signed(links);
        }
    }

    /// Takes one name (of a directory: all) from an inode, and the inode if nothing holds it.
    fn drop_link(&mut self, ino: Ino, now: Timespec) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.attr.nlink = if node.attr.is_dir() { 0 } else { node.attr.nlink - 1 };
            node.attr.ctime = now;
        }
        self.reap(ino);
    }

    fn reap(&mut self, ino: Ino) {
        if self.nodes.get(&ino).is_some_and(|node| node.attr.nlink == 0 && node.opens == 0) {
            self.nodes.remove(&ino);
        }
    }
}

impl FileSystem for MemFs {
    fn name(&self) -> &'static str {
        "memfs"
    }

    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        let mut state = self.lock(cx)?;
        let ino = state.find(dir, name)?;
        Ok(state.node(ino)?.attr())
    }

    fn getattr(&self, cx: &mut Cx, ino: Ino) -> Result<Attr, Errno> {
        Ok(self.lock(cx)?.node(ino)?.attr())
    }

    fn setattr(&self, cx: &mut Cx, ino: Ino, set: &SetAttr) -> Result<Attr, Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        let node = state.node(ino)?;
        if let Some(size) = set.size {
            let content = node.file()?;
            if size > self.limits.size_max {
                return Err(Errno::EFBIG);
            }
            content.truncate(size);
            node.attr.mtime = now;
        }
        if let Some(mode) = set.mode {
            node.attr.mode = mode & 0o7777;
            xattrs::follow_mode(&mut node.xattrs, mode);
        }
        node.attr.uid = set.uid.unwrap_or(node.attr.uid);
        node.attr.gid = set.gid.unwrap_or(node.attr.gid);
        node.attr.atime = self.limits.stored(set.atime.unwrap_or(node.attr.atime));
        node.attr.mtime = self.limits.stored(set.mtime.unwrap_or(node.attr.mtime));
        node.attr.ctime = set.ctime.unwrap_or(now);
        Ok(node.attr())
    }

    fn create(&self, cx: &mut Cx, dir: Ino, name: &[u8], new: &NewNode) -> Result<Attr, Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        state.vacant(dir, name)?;
        let body = match new.kind {
            FileType::Directory => Body::Dir { names: Names::default(), parent: dir },
            FileType::Regular => Body::File(Content::default()),
            FileType::Symlink => {
                let target = new.target.unwrap_or_default();
                if target.is_empty() {
                    return Err(Errno::ENOENT);
                }
                if target.len() > self.limits.target_max {
                    return Err(Errno::ENAMETOOLONG);
                }
                Body::Symlink(target.to_vec())
            }
            _ => Body::Other,
        };
        let ino = state.number();
        let mut node = Node::new(ino, new, now, body);
        state.made += 1;
        if state.reuse {
            node.attr.generation = state.made;
        }
        let attr = node.attr();
        state.nodes.insert(ino, node);
        state.node(dir)?.names()?.insert(name, ino);
        state.touch_dir(dir, now, i32::from(attr.is_dir()));
        Ok(attr)
    }

    fn link(&self, cx: &mut Cx, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        state.vacant(dir, name)?;
        let node = state.node(ino)?;
        if node.attr.is_dir() {
            return Err(Errno::EPERM);
        }
        if node.attr.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        if node.attr.nlink >= self.limits.links_max {
            return Err(Errno::EMLINK);
        }
        node.attr.nlink += 1;
        node.attr.ctime = now;
        let attr = node.attr();
        state.node(dir)?.names()?.insert(name, ino);
        state.touch_dir(dir, now, 0);
        Ok(attr)
    }

    fn unlink(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        let ino = state.find(dir, name)?;
        if state.is_dir(ino) {
            return Err(Errno::EISDIR);
        }
        state.node(dir)?.names()?.remove(name);
        state.touch_dir(dir, now, 0);
        state.drop_link(ino, now);
        Ok(())
    }

    fn rmdir(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        let ino = state.find(dir, name)?;
        match name {
            b"." => return Err(Errno::EINVAL),
            b".." => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        if !state.is_dir(ino) {
            return Err(Errno::ENOTDIR);
        }
        if !state.is_empty(ino) {
            return Err(Errno::ENOTEMPTY);
        }
        state.node(dir)?.names()?.remove(name);
        state.touch_dir(dir, now, -1);
        state.drop_link(ino, now);
        Ok(())
    }

    fn rename(
        &self,
        cx: &mut Cx,
        old_dir: Ino,
        old_name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        let by = (now, cx.cred());
        names::rename(&mut state, (old_dir, old_name), (new_dir, new_name), flags, by)
    }

    fn readlink(&self, cx: &mut Cx, ino: Ino) -> Result<Vec<u8>, Errno> {
        match &self.lock(cx)?.node(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn readdir(
        &self,
        cx: &mut Cx,
        dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), Errno> {
        let mut state = self.lock(cx)?;
        let parent = state.parent(dir);
        let listed = state.node(dir)?.names()?.after(cookie);
        let dots = [(b"." as &[u8], dir, 1), (b"..", parent, 2)];
        for (name, ino, at) in dots {
            let kind = Some(FileType::Directory);
            if cookie < at && !emit(DirEntry { ino, kind, name, cookie: at }) {
                return Ok(());
            }
        }
        for (at, name, ino) in listed {
            let kind = Some(state.node(ino)?.attr.kind);
            if !emit(DirEntry { ino, kind, name: &name, cookie: at }) {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        self.lock(cx)?.node(ino)?.opens += 1;
        Ok(())
    }

    fn release(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let mut state = self.lock(cx)?;
        let node = state.node(ino)?;
        node.opens = node.opens.checked_sub(1).ok_or(Errno::EBADF)?;
        state.reap(ino);
        Ok(())
    }

    fn read(&self, cx: &mut Cx, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        Ok(self.lock(cx)?.node(ino)?.file()?.read(offset, buf))
    }

    fn write(&self, cx: &mut Cx, ino: Ino, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        let node = state.node(ino)?;
        let content = node.file()?;
        if data.is_empty() {
            return Ok(0);
        }
        let room = self.limits.size_max.checked_sub(offset).filter(|&room| room > 0);
        let count = room.ok_or(Errno::EFBIG)?.min(data.len() as u64) as usize;
        content.write(offset, &data[..count]);
        (node.attr.mtime, node.attr.ctime) = (now, now);
        Ok(count)
    }

    fn append(&self, cx: &mut Cx, ino: Ino, data: &[u8]) -> Result<(u64, usize), Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        let node = state.node(ino)?;
        let content = node.file()?;
        let start = content.size();
        if start + data.len() as u64 > self.limits.size_max {
            return Err(Errno::EFBIG);
        }
        content.write(start, data);
        (node.attr.mtime, node.attr.ctime) = (now, now);
        Ok((start, data.len()))
    }

    fn fsync(&self, cx: &mut Cx, ino: Ino, _datasync: bool) -> Result<(), Errno> {
        self.lock(cx)?.node(ino).map(drop)
    }

    fn sync(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.lock(cx).map(drop)
    }

    fn fallocate(
        &self,
        cx: &mut Cx,
        ino: Ino,
        mode: FallocMode,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        let node = state.node(ino)?;
        let content =
            node.file().map_err(|e| if e == Errno::EINVAL { Errno::ENODEV } else { e })?;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(len).filter(|&end| end <= self.limits.size_max);
        let end = end.ok_or(Errno::EFBIG)?;
        let keep_size = match mode {
            FallocMode::Allocate { keep_size } => keep_size,
            FallocMode::PunchHole => {
                content.punch(offset, end);
                true
            }
            FallocMode::ZeroRange { keep_size } => {
                content.punch(offset, end);
                keep_size
            }
            FallocMode::CollapseRange | FallocMode::InsertRange => {
                return Err(Errno::EOPNOTSUPP);
            }
        };
        if !keep_size && end > content.size() {
            content.truncate(end);
        }
        (node.attr.mtime, node.attr.ctime) = (now, now);
        Ok(())
    }

    fn clone_range(
        &self,
        cx: &mut Cx,
        (from, offset): (Ino, u64),
        (to, target): (Ino, u64),
        len: u64,
    ) -> Result<(), Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        clone::clone_range((&mut state, &self.limits), (from, offset), (to, target), len, now)
    }

    fn seek(&self, cx: &mut Cx, ino: Ino, offset: u64, whence: SeekWhence) -> Result<u64, Errno> {
        match &self.lock(cx)?.node(ino)?.body {
            Body::File(content) => content.seek(offset, whence).ok_or(Errno::ENXIO),
            _ => Err(Errno::EINVAL),
        }
    }

    fn fiemap(
        &self,
        _cx: &mut Cx,
        _ino: Ino,
        _offset: u64,
        _len: u64,
    ) -> Result<Vec<vfs::Iomap>, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn getxattr(&self, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        xattrs::check(name)?;
        let mut state = self.lock(cx)?;
        state.node(ino)?.xattrs.get(name).cloned().ok_or(Errno::ENODATA)
    }

    fn setxattr(
        &self,
        cx: &mut Cx,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        xattrs::set(state.node(ino)?, name, value, flags, now)
    }

    fn listxattr(&self, cx: &mut Cx, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(self.lock(cx)?.node(ino)?.xattrs.keys().cloned().collect())
    }

    fn removexattr(&self, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        let now = cx.realtime();
        let mut state = self.lock(cx)?;
        xattrs::remove(state.node(ino)?, name, now)
    }

    fn statfs(&self, cx: &mut Cx) -> Result<StatFs, Errno> {
        let state = self.lock(cx)?;
        let used: u64 = state.nodes.values().map(|node| node.attr().blocks / 8).sum();
        let (blocks, inodes) = (1 << 20, 1 << 20);
        Ok(StatFs {
            block_size: 4096,
            blocks,
            blocks_free: blocks - used,
            blocks_available: blocks - used,
            inodes,
            inodes_free: inodes - state.nodes.len() as u64,
            name_max: 255,
            fsid: 0,
        })
    }

    fn unmount(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.lock(cx)?.down = true;
        Ok(())
    }

    fn shutdown_hard(&self) {
        // Nothing is lost that a power cut would lose: there is no device.
    }
}
