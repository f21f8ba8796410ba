//! Names: creating, linking and removing. Renaming is in [`rename`].
//!
//! Every operation takes its directory's `rwsem` first, looks everything up, finds out what can go
//! wrong, sets blocks aside, and only then begins its transaction. (A creation in a large directory
//! looks for its name in the transaction, before it changes anything.)
//!
//! # Locks of several directories
//!
//! A directory before what is in it. Of two that are not in each other the one with the lower
//! number first, under [`Xfs::rename`](crate::Xfs): only a task that holds it moves directories, so
//! that whoever holds it can find out which one is in the other. (Source: kernel
//! `Documentation/filesystems/directory-locking`.)

use std::borrow::Cow;
use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;
use vfs::{Attr, FileType, NewNode};

use crate::alloc::BlockReservation;
use crate::attr::parent::{self, NameIn, Room, change_parent, largest_parent_room, parent_room};
use crate::dir::edit::{DirContext, DirEdit, Name, blocks_needed};
use crate::dir::{Dir, Form};
use crate::error::XfsError;
use crate::format::dir::FileType as EntryType;
use crate::format::hash::Case;
use crate::format::inode::Flags;
use crate::format::{At, CorruptKind};
use crate::fs::{Resources, WriteSide};
use crate::inactive::{Inactive, inactivate_if_unused};
use crate::inode::Inode;
use crate::log::dquot_item::Usage;
use crate::log::inode_item::InodeFields;
use crate::namei::batch::create_in_turn;
use crate::quota::QuotaHold;
use crate::trans::{Trans, reservations};
use crate::{Xfs, attr};

mod batch;
mod create;
mod link;
mod rename;

pub(crate) use create::NewInode;
use create::{InodePlace, new_inode, owners_of_new};
pub(crate) use link::{create_unnamed_node, link_node};
pub(crate) use rename::{DirName, rename_node};

/// The most names of an inode.
const LINK_MAX: u32 = 0x7fff_ffff;
/// What of a directory changes with its names.
const DIRECTORY: InodeFields = InodeFields::CORE.union(InodeFields::DATA);

/// Is it `.` or `..`?
fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// The inode that an entry of `dir` points at.
///
/// # Errors
/// `EUCLEAN` where it is not in use: a name without an inode is damage.
pub(crate) fn entry_inode(fs: &Xfs, cx: &mut Cx, dir: Ino, ino: Ino) -> Result<Arc<Inode>, Errno> {
    match fs.iget(cx, ino) {
        Err(Errno::ESTALE) => {
            let kind = CorruptKind::DirUnusedInode { ino: ino.0 };
            Err(fs.fault(kind.at(At::Inode(dir)).into()))
        }
        other => other,
    }
}

/// Finds a name: see [`vfs::FileSystem::lookup`].
pub(crate) fn look_up(fs: &Xfs, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
    fs.check_alive()?;
    if let Some(attr) = known(fs, cx, dir, name) {
        return Ok(attr);
    }
    let inode = fs.iget(cx, dir)?;
    let guard = inode.lock_shared(cx)?;
    check_directory(cx, &inode)?;
    let ino = Dir::open(fs, cx, &inode)?.lookup(cx, name)?;
    let found = if ino == dir { inode.clone() } else { entry_inode(fs, cx, dir, ino)? };
    if !is_dots(name) {
        fs.names.insert(dir, name, ino);
    }
    drop(guard);
    Ok(found.attr(cx, fs.geometry()))
}

/// What stat describes a name that is in memory with its inode, without a look at the directory
/// and without its lock. A name leaves the cache before its inode can be freed, so the inode
/// found under the cache's lock is the name's, and no later one of the same number.
fn known(fs: &Xfs, cx: &mut Cx, dir: Ino, name: &[u8]) -> Option<Attr> {
    let inode = fs.names.find(dir, name, |ino| fs.inodes.find(ino))??;
    inode.attr_if(cx, fs.geometry(), |state| !state.freed && state.core.links > 0)
}

/// The inode of a name. The caller holds the directory's `rwsem`.
fn child(fs: &Xfs, cx: &mut Cx, parent: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>, Errno> {
    // Under that lock what the cache says is what the directory says.
    if let Some(Some(inode)) = fs.names.find(parent.ino, name, |ino| fs.inodes.find(ino))
        && !inode.with(cx, |state| state.freed)
    {
        return Ok(inode);
    }
    let ino = Dir::open(fs, cx, parent)?.lookup(cx, name)?;
    entry_inode(fs, cx, parent.ino, ino)
}

/// A name as a directory that ignores case has it; as it was given where it is not there. The
/// caller holds its `rwsem`.
///
/// # Errors
/// `EUCLEAN`, `EIO`.
fn stored_name<'n>(
    fs: &Xfs,
    cx: &mut Cx,
    parent: &Arc<Inode>,
    name: &'n [u8],
) -> Result<Cow<'n, [u8]>, Errno> {
    if fs.geometry().features.case() == Case::Matters {
        return Ok(name.into());
    }
    match Dir::open(fs, cx, parent)?.find(cx, name) {
        Ok(found) => Ok(found.stored.map_or(name.into(), Cow::Owned)),
        Err(Errno::ENOENT) => Ok(name.into()),
        Err(errno) => Err(errno),
    }
}

/// True if a directory has a name. The caller holds its `rwsem`.
fn has(fs: &Xfs, cx: &mut Cx, parent: &Arc<Inode>, name: &[u8]) -> Result<bool, Errno> {
    match Dir::open(fs, cx, parent)?.lookup(cx, name) {
        Ok(_) => Ok(true),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// A directory that has names, and can get more: one that was not removed.
pub(crate) fn check_directory(cx: &mut Cx, inode: &Inode) -> Result<(), Errno> {
    match inode.kind(cx) {
        FileType::Directory if inode.with(cx, |state| state.core.links) > 0 => Ok(()),
        FileType::Directory => Err(Errno::ENOENT),
        _ => Err(Errno::ENOTDIR),
    }
}

/// Blocks for a name in a directory and `more`.
fn set_aside(
    fs: &Xfs,
    cx: &mut Cx,
    writer: &WriteSide,
    parent: &Inode,
    name: &[u8],
    more: u64,
) -> Result<BlockReservation, XfsError> {
    let blocks = blocks_needed(cx, fs.geometry(), parent, name.len())?;
    BlockReservation::new(&writer.space, blocks + more)
}

/// Blocks for a new inode, by `reserve`, which adds those of a chunk of inodes: 0 where there
/// is no space for one and a free inode will do.
fn reserve_inode(
    fs: &Xfs,
    writer: &WriteSide,
    mut reserve: impl FnMut(u64) -> Result<BlockReservation, XfsError>,
) -> Result<BlockReservation, Errno> {
    let mut reserved = reserve(u64::from(fs.geometry().chunks.blocks));
    if writer.inodes.counts()[1] > 0 && matches!(reserved, Err(XfsError::NoSpace)) {
        reserved = reserve(0);
    }
    reserved.map_err(|error| fs.fail(error))
}

/// Changes the names of a directory in a transaction.
fn edit<R>(
    fs: &Xfs,
    cx: &mut Cx,
    trans: &mut Trans,
    resources: &mut Resources<'_>,
    inode: &Inode,
    change: impl FnOnce(&mut Cx, &mut DirEdit<'_>) -> crate::Result<R>,
) -> crate::Result<R> {
    let mut known = DirContext::default();
    change(cx, &mut dir_edit(fs, trans, resources, inode, &mut known))
}

/// A directory that a transaction changes, of which it knows something already.
fn dir_edit<'a>(
    fs: &Xfs,
    trans: &'a mut Trans,
    resources: &'a mut Resources<'_>,
    inode: &'a Inode,
    known: &'a mut DirContext,
) -> DirEdit<'a> {
    let space = &resources.writer.space;
    DirEdit::new(space, inode, trans, &mut resources.reserved, fs.leaf_gaps, known)
}

/// What of an inode changes with its names, beside `fields`.
fn name_fields(fs: &Xfs, fields: InodeFields) -> InodeFields {
    if fs.geometry().features.parent() { InodeFields::all() } else { fields }
}

/// What the parent pointer of a new node may take: nothing where it fits into the inode.
fn new_parent_room(fs: &Xfs, node: &NewNode<'_>, name: &[u8]) -> Room {
    let device = parent::is_device(node.kind);
    match fs.geometry().features.parent()
        && !parent::fits_new(fs.geometry().inode_size, device, name)
    {
        true => largest_parent_room(fs),
        false => Room::default(),
    }
}

/// Sets the times of a directory whose names changed, and logs it.
fn touch(fs: &Xfs, cx: &mut Cx, trans: &mut Trans, inode: &Inode) {
    let now = cx.realtime();
    inode.with(cx, |state| (state.core.mtime, state.core.ctime) = (now, now));
    inode.log(cx, trans, fs.geometry(), DIRECTORY);
}

/// Creates a node with its attributes: see [`vfs::FileSystem::create_with`].
pub(crate) fn create_node(
    fs: &Xfs,
    cx: &mut Cx,
    dir: Ino,
    name: &[u8],
    new: NewInode<'_>,
) -> Result<Attr, Errno> {
    vfs::check_name(name)?;
    fs.writer()?;
    let parent = fs.iget(cx, dir)?;
    if batch::can_wait(&new) {
        return create_in_turn(fs, cx, &parent, name, new.node);
    }
    let guard = parent.lock_alone(cx)?;
    let created = create_locked(fs, cx, &parent, name, new);
    drop(guard);
    created
}

/// Creates a node in a directory whose `rwsem` the caller holds for writing.
fn create_locked(
    fs: &Xfs,
    cx: &mut Cx,
    parent: &Arc<Inode>,
    name: &[u8],
    new: NewInode<'_>,
) -> Result<Attr, Errno> {
    let (writer, NewInode { node, attributes }) = (fs.writer()?, new);
    check_directory(cx, parent)?;
    // A large one is looked at in the transaction, which needs the same blocks.
    let large = Dir::open(fs, cx, parent)?.form == Form::Indexed;
    if is_dots(name) || !large && has(fs, cx, parent, name)? {
        return Err(Errno::EEXIST);
    }
    let barred = || parent.with(cx, |state| state.core.flags.contains(Flags::NOSYMLINKS));
    if node.kind == FileType::Symlink && barred() {
        return Err(Errno::EPERM);
    }
    let (blocks, bytes) = attr::room_for(fs, attributes);
    let blocks = blocks + create::target_blocks(fs.geometry(), node, !attributes.is_empty());
    let room = new_parent_room(fs, node, name);
    let blocks = blocks + room.blocks;
    let (reserved, holds) = match prepare(fs, cx, writer, parent, name, node, blocks) {
        Ok(prepared) => prepared,
        Err(_) if large && has(fs, cx, parent, name)? => return Err(Errno::EEXIST),
        Err(errno) => return Err(errno),
    };
    let mut resources = Resources { writer, reserved };
    let directory = node.kind == FileType::Directory;
    let mut reservation = reservations::create(fs.geometry());
    reservation.bytes += bytes + room.bytes;
    let created = fs.transact(cx, reservation, |cx, trans| {
        let mut known = DirContext::default();
        if large {
            let mut edit = dir_edit(fs, trans, &mut resources, parent, &mut known);
            if edit.has_indexed(cx, name)? {
                return Err(XfsError::Answer(Errno::EEXIST));
            }
        }
        let place = InodePlace { parent, name: Some(name) };
        let inode = new_inode(fs, cx, trans, &mut resources, place, new)?;
        let file_type = EntryType::of_mode(inode.with(cx, |state| state.core.mode));
        let entry = Name { name, ino: inode.ino, file_type };
        dir_edit(fs, trans, &mut resources, parent, &mut known).add(cx, entry)?;
        if directory {
            parent.with(cx, |state| state.core.links += 1);
        }
        touch(fs, cx, trans, parent);
        Ok(inode)
    })?;
    drop(holds);
    fs.inodes.replace(created.clone());
    fs.names.insert(parent.ino, name, created.ino);
    Ok(created.attr(cx, fs.geometry()))
}

/// What can be wrong with a new node before its transaction, and blocks for it: its name, its
/// inode and so many more; and what its owner and its directory's may have.
fn prepare(
    fs: &Xfs,
    cx: &mut Cx,
    writer: &WriteSide,
    parent: &Inode,
    name: &[u8],
    node: &NewNode<'_>,
    blocks: u64,
) -> Result<(BlockReservation, [QuotaHold; 2]), Errno> {
    create::check_node(node)?;
    let directory = node.kind == FileType::Directory;
    if directory && parent.with(cx, |state| state.core.links) >= LINK_MAX {
        return Err(Errno::EMLINK);
    }
    let holds = hold_new(fs, cx, parent, Some(name), node, blocks)?;
    let set_aside = |chunk| set_aside(fs, cx, writer, parent, name, blocks + chunk);
    Ok((reserve_inode(fs, writer, set_aside)?, holds))
}

/// Asks whether the owner of a new node may have an inode and so many blocks, and that of its
/// directory what the name takes there.
pub(super) fn hold_new(
    fs: &Xfs,
    cx: &mut Cx,
    parent: &Inode,
    name: Option<&[u8]>,
    node: &NewNode<'_>,
    blocks: u64,
) -> Result<[QuotaHold; 2], Errno> {
    if fs.quota().is_none() {
        return Ok(Default::default());
    }
    let owners = owners_of_new(cx, parent, node);
    let usage = Usage { inodes: 1, ..Usage::of_blocks(blocks) };
    let own = fs.reserve_quota(cx, &owners, usage)?;
    let directory = match name {
        Some(name) => hold_name(fs, cx, parent, name)?,
        None => QuotaHold::default(),
    };
    Ok([own, directory])
}

/// Asks whether the owner of a directory may have the blocks that a name may take there.
pub(super) fn hold_name(
    fs: &Xfs,
    cx: &mut Cx,
    parent: &Inode,
    name: &[u8],
) -> Result<QuotaHold, Errno> {
    if fs.quota().is_none() {
        return Ok(QuotaHold::default());
    }
    let blocks = blocks_needed(cx, fs.geometry(), parent, name.len());
    let blocks = blocks.map_err(|error| fs.fail(error))?;
    fs.reserve_quota_blocks(cx, parent, blocks)
}

/// A directory whose project is inherited takes only what belongs to that already: the usage of
/// a project stays below it.
///
/// # Errors
/// `EXDEV`.
pub(super) fn check_project(cx: &Cx, parent: &Inode, inode: &Inode) -> Result<(), Errno> {
    let (inherited, project) = parent
        .with(cx, |state| (state.core.flags.contains(Flags::PROJINHERIT), state.core.project));
    let own = inode.with(cx, |state| state.core.project);
    if inherited && own != project { Err(Errno::EXDEV) } else { Ok(()) }
}

/// Takes a name from an inode (all names from a directory), and puts it on the list of those
/// without any if that was the last one: before its directory is changed, since that may lock a
/// group's free space. One that is `bare` (see [`Inode::is_bare`]) and not open is freed at
/// once, where that takes no more than changes of records: true then.
fn drop_names(
    fs: &Xfs,
    cx: &mut Cx,
    trans: &mut Trans,
    writer: &WriteSide,
    inode: &Inode,
    name: NameIn<'_>,
    bare: bool,
) -> crate::Result<bool> {
    let now = cx.realtime();
    let directory = inode.kind(cx) == FileType::Directory;
    let (left, unused) = inode.with(cx, |state| {
        let core = &mut state.core;
        core.links = if directory { 0 } else { core.links.saturating_sub(1) };
        core.ctime = now;
        (core.links, bare && core.links == 0 && state.opens == 0)
    });
    if unused && writer.inodes.free_in_place(cx, trans, inode.ino)? {
        // Without a name nobody opens it, so that it is as unused as it was.
        inode.with(cx, |state| state.freed = true);
        Inactive::log_free(cx, trans, fs.geometry(), inode);
        return Ok(true);
    }
    if left == 0 {
        writer.inodes.add_unlinked(cx, trans, inode.ino)?;
    }
    change_parent(fs, cx, trans, inode, Some(name), None)?;
    inode.log(cx, trans, fs.geometry(), name_fields(fs, InodeFields::CORE));
    Ok(false)
}

/// Removes a name: see [`vfs::FileSystem::unlink`] and [`vfs::FileSystem::rmdir`].
pub(crate) fn remove_node(
    fs: &Xfs,
    cx: &mut Cx,
    dir: Ino,
    name: &[u8],
    directory: bool,
) -> Result<(), Errno> {
    match name {
        _ if is_dots(name) && !directory => return Err(Errno::EISDIR),
        b"." => return Err(Errno::EINVAL),
        b".." => return Err(Errno::ENOTEMPTY),
        _ if name.len() > vfs::NAME_MAX => return Err(Errno::ENAMETOOLONG),
        _ => {}
    }
    let writer = fs.writer()?;
    let parent = fs.iget(cx, dir)?;
    let guard = parent.lock_alone(cx)?;
    let name = &*stored_name(fs, cx, &parent, name)?;
    let inode = child(fs, cx, &parent, name)?;
    match (inode.kind(cx) == FileType::Directory, directory) {
        (true, false) => return Err(Errno::EISDIR),
        (false, true) => return Err(Errno::ENOTDIR),
        _ => {}
    }
    if directory {
        check_child(fs, &parent, &inode)?;
    }
    let child_guard = inode.lock_alone(cx)?;
    if directory && !Dir::open(fs, cx, &inode)?.is_empty(cx)? {
        return Err(Errno::ENOTEMPTY);
    }
    fs.names.remove(dir, name);
    // Taking a name out may cut an extent in two.
    let reserved = BlockReservation::new(&writer.space, 0).map_err(|error| fs.fail(error))?;
    let mut reservation = reservations::remove(fs.geometry());
    reservation.bytes += parent_room(fs, cx, &inode, None)?.bytes;
    let mut resources = Resources { writer, reserved };
    let bare = inode.is_bare(cx);
    let removed = fs.transact(cx, reservation, |cx, trans| {
        trans.join_inode(cx, &inode.item);
        let from = NameIn { dir: &parent, name };
        let freed = drop_names(fs, cx, trans, writer, &inode, from, bare)?;
        if directory {
            parent.with(cx, |state| state.core.links = state.core.links.saturating_sub(1));
        }
        edit(fs, cx, trans, &mut resources, &parent, |cx, edit| edit.remove(cx, name))?;
        touch(fs, cx, trans, &parent);
        Ok(freed)
    });
    fs.names.outdate_walks_if(directory);
    if removed? {
        fs.inodes.outdate(inode.ino);
        return Ok(());
    }
    drop((child_guard, guard));
    inactivate_if_unused(fs, cx, &inode)
}

/// A directory that holds itself, or the root, exists only in a damaged image; to lock it again
/// would wait for ever.
fn check_child(fs: &Xfs, parent: &Inode, child: &Inode) -> Result<(), Errno> {
    if child.ino == parent.ino || child.ino == fs.geometry().root_ino {
        let kind = CorruptKind::DirCircle { ino: child.ino.0 };
        return Err(fs.fault(kind.at(At::Inode(parent.ino)).into()));
    }
    Ok(())
}
