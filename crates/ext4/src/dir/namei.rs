//! Names: looking up, creating, linking, removing, and reading symbolic links. Renaming is in
//! [`rename`].
//!
//! Every operation takes its directory's `rwsem` first, searches, and only then opens a handle,
//! with the credits that the place it found asks for. Searching for the name and for room for it is
//! one walk.
//!
//! # Locks of several directories
//!
//! A directory before what is in it. Of two that are not in each other the one with the lower
//! number first, under [`crate::ext4::Names::rename`]: only a task that holds it moves directories,
//! so that whoever holds it knows which one is in the other. (Source: kernel
//! `Documentation/filesystems/directory-locking`.)

use std::borrow::Cow;
use std::sync::Arc;

use base::{Errno, Ino};
use fscrypt::Context;
use rt::Cx;
use vfs::{Attr, DirEntry, FileType, NewNode};

use crate::Ext4;
use crate::attr::{context, inline, xattr};
use crate::dir::{Dir, Slot, Target};
use crate::dquot::{InodeQuota, Owners};
use crate::evict;
use crate::format::features::RoCompat;
use crate::format::inode::BLOCK_AREA;
use crate::format::xattr::Xattr;
use crate::format::{At, CorruptKind, InodeFlags};
use crate::inode::fast_commit::Change;
use crate::inode::{Inode, InodeCore, NewInode};
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

mod flags;
mod link;
mod policy;
mod rename;
mod symlink;

pub(crate) use link::{create_unnamed, link};
pub(crate) use rename::rename;
pub(crate) use symlink::readlink;
use symlink::{check_target, target_of, write_target};

/// The most names of an inode, and the most subdirectories that a directory counts.
const LINK_MAX: u16 = 65000;

/// Is it `.` or `..`?
fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

impl Ext4 {
    /// The inode that an entry of `dir` points at.
    ///
    /// # Errors
    /// `EUCLEAN` where it is not in use: a name without an inode is damage.
    fn entry_inode(&self, cx: &mut Cx, dir: &Inode, ino: u32) -> Result<Arc<Inode>, Errno> {
        match self.iget(cx, Ino(ino.into())) {
            Err(Errno::ESTALE) => {
                let kind = CorruptKind::DirUnusedInode { ino };
                Err(self.sb.corrupt(cx, &kind.at(At::Inode(dir.ino))))
            }
            result => result,
        }
    }

    /// The inode of a name that was found in `dir`, neither `.` nor `..`.
    ///
    /// # Errors
    /// As [`Ext4::entry_inode`]; `EPERM` where an encrypted directory names what is not encrypted
    /// by its policy: somebody has put it there.
    fn named_inode(&self, cx: &mut Cx, dir: &Inode, ino: u32) -> Result<Arc<Inode>, Errno> {
        let inode = self.entry_inode(cx, dir, ino)?;
        if context::permits(cx, dir, &inode) { Ok(inode) } else { Err(Errno::EPERM) }
    }

    /// What stat reports.
    ///
    /// # Errors
    /// Of an encrypted symbolic link, whose length is that of what is shown of it: as
    /// [`readlink`].
    pub(crate) fn attr(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<Attr, Errno> {
        let mut attr = inode.attr(cx, self.sb.geometry.block_size);
        if attr.kind == FileType::Symlink && inode.crypt().is_some() {
            attr.size = target_of(self, cx, inode)?.len() as u64;
        }
        Ok(attr)
    }

    /// Sets the times of a directory whose names changed, and writes it: 1 credit.
    fn touch_dir(&self, cx: &mut Cx, handle: &mut Handle, dir: &Inode) -> Result<(), Errno> {
        let now = self.sb.now(cx);
        dir.with(cx, |core| {
            core.mtime = now;
            core.ctime = now;
        });
        self.inodes.mark_dirty(cx, handle, dir)
    }
}

impl Dir<'_> {
    /// The place for a name, which an earlier walk has found: Linux walks again for it.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    fn legacy_walk(&self, cx: &mut Cx, slot: Slot, name: &[u8]) -> Result<Slot, Errno> {
        if !self.fs.sb.legacy() {
            return Ok(slot);
        }
        match self.find_or_slot(cx, name)? {
            Err(again) => Ok(again),
            Ok(_) => Err(Errno::EEXIST),
        }
    }
}

/// Closes the handle of an operation on `dir` whose result is known: an error of the operation
/// comes first. Where the directory asks for it (`chattr +D`, `+S`) the change is on the disk
/// afterwards.
fn finish<T>(
    fs: &Ext4,
    cx: &mut Cx,
    handle: Handle,
    dir: &Inode,
    result: Result<T, Errno>,
) -> Result<T, Errno> {
    let tid = handle.tid();
    let stopped = handle.stop(cx);
    let value = result?;
    stopped?;
    if wants_sync(cx, dir) {
        fs.sb.make_durable(cx, tid)?;
    }
    Ok(value)
}

/// The attributes of `inode`, to be changed in `handle`.
fn edit<'a>(
    fs: &'a Ext4,
    handle: &'a mut Handle,
    inode: &'a Arc<Inode>,
    dropped: &'a mut xattr::Dropped,
) -> xattr::Edit<'a> {
    xattr::Edit { fs: &fs.inodes, handle, inode, dropped }
}

/// Does the directory ask for its changes to be on the disk at once?
fn wants_sync(cx: &Cx, dir: &Inode) -> bool {
    dir.with(cx, |core| core.flags.intersects(InodeFlags::SYNC | InodeFlags::DIRSYNC))
}

/// Finds a name: see [`vfs::FileSystem::lookup`].
pub(crate) fn lookup(fs: &Ext4, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
    if name.len() > vfs::NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    fs.sb.check_alive()?;
    if let Some(attr) = cached(fs, cx, dir, name) {
        return Ok(attr);
    }
    let inode = fs.iget(cx, dir)?;
    let guard = inode.rwsem.read(cx);
    let view = Dir::open(fs, cx, &inode)?;
    let found = match name {
        b"." => dir.0 as u32,
        b".." => view.parent(cx)?.0 as u32,
        b"" => return Err(Errno::ENOENT),
        _ => view.find(cx, name)?.ok_or(Errno::ENOENT)?.found.ino,
    };
    let child = match is_dots(name) {
        true => fs.entry_inode(cx, &inode, found)?,
        false => fs.named_inode(cx, &inode, found)?,
    };
    // A name in another case is no entry: nobody would take it out of the cache.
    if !is_dots(name) && view.encoding.is_none() {
        fs.names.cache.insert(dir, name, child.ino);
    }
    drop(guard);
    fs.attr(cx, &child)
}

/// What stat says of a name that is in memory with its inode, without a look at the directory and
/// without its lock. A name leaves the cache before its inode can be freed, so the inode found
/// under the cache's lock is the name's, and no later one of the same number.
fn cached(fs: &Ext4, cx: &Cx, dir: Ino, name: &[u8]) -> Option<Attr> {
    let inode = fs.names.cache.find(dir, name, |ino| fs.inodes.cache.find(ino))??;
    // Of an encrypted symbolic link, `readlink` has to find out the length.
    let plain = |core: &InodeCore| {
        core.mode & 0xf000 != 0xa000 || !core.flags.contains(InodeFlags::ENCRYPT)
    };
    inode.attr_if(cx, fs.sb.geometry.block_size, |core| {
        !core.dead && !core.is_value() && plain(core)
    })
}

/// Lists a directory: see [`vfs::FileSystem::readdir`].
pub(crate) fn readdir(
    fs: &Ext4,
    cx: &mut Cx,
    dir: Ino,
    cookie: u64,
    emit: &mut dyn FnMut(DirEntry) -> bool,
) -> Result<(), Errno> {
    let inode = fs.iget(cx, dir)?;
    let _guard = inode.rwsem.read(cx);
    match Dir::open(fs, cx, &inode) {
        Ok(view) => view.list(cx, cookie, emit),
        // Whoever has a removed directory open sees it empty.
        Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Creates a node of any type: see [`vfs::FileSystem::create`].
///
/// Credits: the inode, its directory's inode, the place for its name, and for a directory or a long
/// symbolic link its first block.
pub(crate) fn create(
    fs: &Ext4,
    cx: &mut Cx,
    dir: Ino,
    name: &[u8],
    node: &NewNode,
    attributes: &[Xattr],
) -> Result<Attr, Errno> {
    vfs::check_name(name)?;
    fs.inodes.retry_alloc(cx, |cx| create_once(fs, cx, dir, name, node, attributes))
}

fn create_once(
    fs: &Ext4,
    cx: &mut Cx,
    dir: Ino,
    name: &[u8],
    node: &NewNode,
    attributes: &[Xattr],
) -> Result<Attr, Errno> {
    let parent = fs.iget(cx, dir)?;
    let _guard = parent.rwsem.write(cx);
    let mut view = Dir::open(fs, cx, &parent)?;
    if is_dots(name) {
        return Err(Errno::EEXIST);
    }
    let Err(slot) = view.find_or_slot(cx, name)? else { return Err(Errno::EEXIST) };
    let context = context::of_new(cx, &parent, node.kind)?;
    let stored = check_target(fs, node, context.as_ref())?;
    if node.kind == FileType::Directory {
        check_subdirectories(fs, cx, &view)?;
    }
    let symlink = node.kind == FileType::Symlink;
    // What is encrypted never lies in the inode.
    let tail = if context.is_none() { inline_tail(fs, node) } else { None };
    let attributes = with_context(attributes, context.as_ref());
    let attributes = xattr::prepare_new(&fs.inodes, cx, &parent, symlink, tail, &attributes)?;
    // A target that does not fit into the place of the map needs more.
    let has_content = node.kind == FileType::Directory || stored >= BLOCK_AREA;
    let own_block = has_content && !attributes.inline;
    // Where its name then finds no space, the block goes back.
    let blocks = if own_block { credits::APPEND + credits::REMOVE } else { 0 };
    let own = credits::NEW_INODE + 2 * credits::INODE + credits::SUPER;
    let owners = Owners([node.uid, node.gid, parent.project_for_new(cx)]);
    let space = if own_block { fs.sb.geometry.cluster_sectors() * 512 } else { 0 };
    let quota = fs.new_inode_quota(cx, owners, space);
    let mut dropped = xattr::Dropped::default();
    let credits = own + blocks + attributes.credits() + slot.credits();
    let result = quota.and_then(|quota| {
        let mut handle = fs.sb.journal_start_tracked(cx, credits)?;
        let new = Making { node, attributes: &attributes, quota, context };
        let result = create_in(cx, &mut handle, &mut view, slot, name, new, &mut dropped);
        finish(fs, cx, handle, &parent, result)
    });
    let freed = attributes.release(&fs.inodes, cx).and(dropped.free(&fs.inodes, cx));
    let inode = result?;
    freed?;
    if view.encoding.is_none() {
        fs.names.cache.insert(dir, name, inode.ino);
    }
    fs.attr(cx, &inode)
}

/// The attributes of a new inode, its encryption context among them.
fn with_context<'a>(attributes: &'a [Xattr], context: Option<&Context>) -> Cow<'a, [Xattr]> {
    match context {
        None => Cow::Borrowed(attributes),
        Some(context) => Cow::Owned([&[context::attribute(context)], attributes].concat()),
    }
}

/// The inode of a node.
fn new_node(node: &NewNode) -> NewInode {
    let mode = node.kind.mode_bits() | node.mode & 0o7777;
    NewInode { mode, uid: node.uid, gid: node.gid, times: node.times }
}

/// What is being made.
struct Making<'a> {
    node: &'a NewNode<'a>,
    attributes: &'a xattr::NewXattrs,
    quota: Option<Box<InodeQuota>>,
    context: Option<Context>,
}

/// A new inode, its name, and its directory's times, in an open handle.
fn create_in(
    cx: &mut Cx,
    handle: &mut Handle,
    dir: &mut Dir,
    slot: Slot,
    name: &[u8],
    making: Making,
    dropped: &mut xattr::Dropped,
) -> Result<Arc<Inode>, Errno> {
    let fs = dir.fs;
    let Making { node, attributes, quota, context } = making;
    let inode = fs.inodes.new_inode(cx, handle, dir.inode, &new_node(node), quota)?;
    context::begin(&fs.inodes, cx, &inode, context.as_ref());
    let filled = fill(fs, cx, handle, dir.inode, &inode, node, attributes.inline);
    let named = filled.and_then(|()| {
        if !attributes.is_empty() {
            handle.mark_ineligible();
            xattr::init(&mut edit(fs, handle, &inode, dropped), cx, attributes)?;
        }
        fs.inodes.legacy_slot(cx, inode.ino, 1)?;
        let slot = dir.legacy_walk(cx, slot, name)?;
        let target = Target::of(cx, &inode);
        dir.add(cx, handle, slot, name, target)?;
        dir.track_name(cx, handle, &inode, Change::Come(name));
        Ok(())
    });
    if let Err(errno) = named {
        xattr::delete_inode(&mut edit(fs, handle, &inode, dropped), cx)?;
        if inode.with(cx, |core| core.blocks) > 0 {
            fs.inodes.bmap(&inode).map_remove(cx, handle, 0..u32::MAX)?;
        }
        fs.inodes.drop_new_inode(cx, handle, &inode)?;
        return Err(errno);
    }
    if node.kind == FileType::Directory {
        add_subdirectory(cx, dir);
    }
    fs.touch_dir(cx, handle, dir.inode)?;
    fs.inodes.legacy_slot(cx, inode.ino, 1)?;
    Ok(inode)
}

/// Completes a new inode as its type needs, and writes it; `inline`: its content lies in it.
fn fill(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    parent: &Arc<Inode>,
    inode: &Arc<Inode>,
    node: &NewNode,
    inline: bool,
) -> Result<(), Errno> {
    match (node.kind, node.target) {
        (FileType::Directory, _) => {
            inode.with(cx, |core| core.links = 2);
            let mut dir = Dir::open(fs, cx, inode)?;
            match inline {
                true => dir.init_inline(cx, parent.ino.0 as u32),
                false => dir.init(cx, handle, parent.ino)?,
            }
        }
        (FileType::Symlink, Some(target)) if inline => inline::begin(cx, inode, target),
        (FileType::Symlink, Some(target)) => return write_target(fs, cx, handle, inode, target),
        (FileType::CharDevice | FileType::BlockDevice, _) => {
            inode.with(cx, |core| core.set_device(node.rdev));
        }
        _ => {}
    }
    fs.inodes.mark_dirty(cx, handle, inode)
}

/// The bytes behind the first 60 of content that may lie in the new inode; `None` where it has no
/// content, or a map.
fn inline_tail<'a>(fs: &Ext4, node: &NewNode<'a>) -> Option<&'a [u8]> {
    match (fs.sb.geometry.inline_data(), node.kind, node.target) {
        (true, FileType::Directory, _) => Some(&[]),
        // e2fsck leaves such a link out when it counts inodes for quota.
        (true, FileType::Symlink, Some(target)) if !fs.sb.counts_quota() => {
            target.get(BLOCK_AREA..)
        }
        _ => None,
    }
}

/// May the directory get another subdirectory?
fn check_subdirectories(fs: &Ext4, cx: &Cx, dir: &Dir) -> Result<(), Errno> {
    let links = dir.inode.with(cx, |core| core.links);
    let uncounted = dir.indexed && fs.sb.geometry.features.ro_compat.contains(RoCompat::DIR_NLINK);
    if links >= LINK_MAX && !uncounted { Err(Errno::EMLINK) } else { Ok(()) }
}

/// Counts a new subdirectory. An indexed directory that has too many stops counting: its count is
/// then 1 (`dir_nlink`). The caller writes the inode.
fn add_subdirectory(cx: &Cx, dir: &Dir) {
    dir.inode.with(cx, |core| {
        if core.links != 1 {
            core.links += 1;
        }
        if dir.indexed && core.links >= LINK_MAX {
            core.links = 1;
        }
    });
}

/// Counts a subdirectory less. The caller writes the inode.
fn drop_subdirectory(cx: &Cx, dir: &Inode) {
    dir.with(cx, |core| {
        if core.links > 2 {
            core.links -= 1;
        }
    });
}

/// Removes a name of anything but a directory: see [`vfs::FileSystem::unlink`].
///
/// Credits: the block with the name, the directory's inode, and for the last name the inode.
pub(crate) fn unlink(fs: &Ext4, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
    if is_dots(name) {
        return Err(Errno::EISDIR);
    }
    if name.len() > vfs::NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let parent = fs.iget(cx, dir)?;
    let guard = parent.rwsem.write(cx);
    let view = Dir::open(fs, cx, &parent)?;
    let place = view.find(cx, name)?.ok_or(Errno::ENOENT)?;
    let inode = fs.named_inode(cx, &parent, place.found.ino)?;
    if inode.kind(cx) == FileType::Directory {
        return Err(Errno::EISDIR);
    }
    check_last_name(fs, cx, &inode)?;
    fs.names.cache.remove(dir, name);
    let credits = 1 + 2 * credits::INODE + credits::UNLINK;
    let mut handle = fs.sb.journal_start_tracked(cx, credits)?;
    let result = view.remove(cx, &mut handle, &place).and_then(|()| {
        fs.touch_dir(cx, &mut handle, &parent)?;
        let leftover = drop_name(fs, cx, &mut handle, &inode)?;
        view.track_name(cx, &handle, &inode, Change::Go(name));
        Ok(leftover)
    });
    let deferred = finish(fs, cx, handle, &parent, result)?;
    drop(guard);
    if let Some(deferred) = deferred {
        evict::finish_unlink(&fs.inodes, cx, &inode, deferred)?;
    }
    Ok(())
}

/// Whether a name of an inode that is not a directory may be taken: see [`xattr::check_freeing`].
fn check_last_name(fs: &Ext4, cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
    let last = fs.sb.geometry.large_values() && inode.with(cx, |core| core.links <= 1);
    if last { xattr::check_freeing(&fs.inodes, cx, inode) } else { Ok(()) }
}

/// What is left to do for an inode after the handle that removed its last name.
type Leftover = Option<evict::Deferred>;

/// Takes one name from an inode that is not a directory.
fn drop_name(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Arc<Inode>,
) -> Result<Leftover, Errno> {
    let now = fs.sb.now(cx);
    let left = inode.with(cx, |core| {
        core.links = core.links.saturating_sub(1);
        core.ctime = now;
        core.links
    });
    if left == 0 {
        evict::unlinked(&fs.inodes, cx, handle, inode).map(Some)
    } else {
        fs.inodes.mark_dirty(cx, handle, inode).map(|()| None)
    }
}

/// Takes the only name from an empty directory.
fn drop_directory(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Arc<Inode>,
) -> Result<Leftover, Errno> {
    let now = fs.sb.now(cx);
    inode.with(cx, |core| {
        core.links = 0;
        core.ctime = now;
    });
    evict::unlinked(&fs.inodes, cx, handle, inode).map(Some)
}

/// Removes an empty directory: see [`vfs::FileSystem::rmdir`].
///
/// Credits: as for unlink.
pub(crate) fn rmdir(fs: &Ext4, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno> {
    match name {
        b"." => return Err(Errno::EINVAL),
        b".." => return Err(Errno::ENOTEMPTY),
        _ if name.len() > vfs::NAME_MAX => return Err(Errno::ENAMETOOLONG),
        _ => {}
    }
    let parent = fs.iget(cx, dir)?;
    let guard = parent.rwsem.write(cx);
    let view = Dir::open(fs, cx, &parent)?;
    let place = view.find(cx, name)?.ok_or(Errno::ENOENT)?;
    let inode = fs.named_inode(cx, &parent, place.found.ino)?;
    if inode.kind(cx) != FileType::Directory {
        return Err(Errno::ENOTDIR);
    }
    check_child(fs, cx, &parent, &inode)?;
    let child_guard = inode.rwsem.write(cx);
    if !Dir::open(fs, cx, &inode)?.is_empty(cx)? {
        return Err(Errno::ENOTEMPTY);
    }
    xattr::check_freeing(&fs.inodes, cx, &inode)?;
    fs.names.cache.remove(dir, name);
    let mut handle = fs.sb.journal_start(cx, 1 + 2 * credits::INODE + credits::UNLINK)?;
    let result = view.remove(cx, &mut handle, &place).and_then(|()| {
        drop_subdirectory(cx, &parent);
        fs.touch_dir(cx, &mut handle, &parent)?;
        drop_directory(fs, cx, &mut handle, &inode)
    });
    let deferred = finish(fs, cx, handle, &parent, result);
    fs.names.cache.outdate_walks();
    let deferred = deferred?;
    drop(child_guard);
    drop(guard);
    if let Some(deferred) = deferred {
        evict::finish_unlink(&fs.inodes, cx, &inode, deferred)?;
    }
    Ok(())
}

/// A directory that holds itself, or the root, exists only in a damaged image; to lock it again
/// would wait for ever.
fn check_child(fs: &Ext4, cx: &Cx, parent: &Inode, child: &Inode) -> Result<(), Errno> {
    if child.ino == parent.ino || child.ino.0 == u64::from(crate::format::super_block::ROOT_INO) {
        let kind = CorruptKind::DirCircle { ino: child.ino.0 as u32 };
        return Err(fs.sb.corrupt(cx, &kind.at(At::Inode(parent.ino))));
    }
    Ok(())
}
