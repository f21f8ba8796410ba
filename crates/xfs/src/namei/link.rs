//! Further names of an inode, and files that begin without one (`O_TMPFILE`).
//!
//! A file without a name is on its group's list of unlinked inodes from the transaction that makes
//! it to the one that names it: a crash between them frees it, and its last release does.

use base::{Errno, Ino};
use rt::Cx;
use vfs::{Attr, FileType};

use super::{LINK_MAX, is_dots};
use crate::alloc::BlockReservation;
use crate::attr::parent::{NameIn, change_parent, parent_room};
use crate::dir::edit::Name;
use crate::format::dir::FileType as EntryType;
use crate::fs::Resources;
use crate::log::inode_item::InodeFields;
use crate::namei::create::{InodePlace, NewInode, new_inode};
use crate::namei::{
    check_directory, check_project, edit, has, hold_name, hold_new, name_fields, reserve_inode,
    set_aside, touch,
};
use crate::trans::reservations;
use crate::{Xfs, attr};

/// Creates a file without a name: see [`vfs::FileSystem::create_unnamed`].
pub(crate) fn create_unnamed_node(
    fs: &Xfs,
    cx: &mut Cx,
    dir: Ino,
    new: NewInode<'_>,
) -> Result<Attr, Errno> {
    let NewInode { node, attributes } = new;
    node.kind.check_regular()?;
    let writer = fs.writer()?;
    let parent = fs.iget(cx, dir)?;
    let guard = parent.lock_shared(cx)?;
    check_directory(cx, &parent)?;
    let (blocks, bytes) = attr::room_for(fs, attributes);
    let holds = hold_new(fs, cx, &parent, None, node, blocks)?;
    let reserved =
        reserve_inode(fs, writer, |chunk| BlockReservation::new(&writer.space, blocks + chunk))?;
    let mut resources = Resources { writer, reserved };
    let mut reservation = reservations::create(fs.geometry());
    reservation.bytes += bytes + reservations::unlinked(fs.geometry());
    let created = fs.transact(cx, reservation, |cx, trans| {
        let place = InodePlace { parent: &parent, name: None };
        let inode = new_inode(fs, cx, trans, &mut resources, place, new)?;
        inode.with(cx, |state| {
            state.core.links = 0;
            state.linkable = true;
            state.opens = 1;
        });
        writer.inodes.add_unlinked(cx, trans, inode.ino)?;
        inode.log(cx, trans, fs.geometry(), InodeFields::CORE);
        Ok(inode)
    })?;
    drop(holds);
    fs.inodes.replace(created.clone());
    drop(guard);
    Ok(created.attr(cx, fs.geometry()))
}

/// Gives an inode a further name: see [`vfs::FileSystem::link`].
pub(crate) fn link_node(
    fs: &Xfs,
    cx: &mut Cx,
    ino: Ino,
    dir: Ino,
    name: &[u8],
) -> Result<Attr, Errno> {
    vfs::check_name(name)?;
    let writer = fs.writer()?;
    let parent = fs.iget(cx, dir)?;
    let guard = parent.lock_alone(cx)?;
    check_directory(cx, &parent)?;
    if is_dots(name) || has(fs, cx, &parent, name)? {
        return Err(Errno::EEXIST);
    }
    let inode = fs.iget(cx, ino)?;
    if inode.kind(cx) == FileType::Directory {
        return Err(Errno::EPERM);
    }
    let child_guard = inode.lock_alone(cx)?;
    let first = inode.with(cx, |state| match state.core.links {
        0 if state.linkable && !state.freed => Ok(true),
        0 => Err(Errno::ENOENT),
        LINK_MAX.. => Err(Errno::EMLINK),
        _ => Ok(false),
    })?;
    check_project(cx, &parent, &inode)?;
    let room = parent_room(fs, cx, &inode, Some(name))?;
    let holds =
        [hold_name(fs, cx, &parent, name)?, fs.reserve_quota_blocks(cx, &inode, room.blocks)?];
    let reserved = set_aside(fs, cx, writer, &parent, name, room.blocks);
    let reserved = reserved.map_err(|error| fs.fail(error))?;
    let mut resources = Resources { writer, reserved };
    let mut reservation = reservations::link(fs.geometry());
    reservation.bytes += room.bytes;
    fs.transact(cx, reservation, |cx, trans| {
        trans.join_inode(cx, &inode.item);
        if first {
            // Before the directory is changed, since that may lock a group's free space.
            writer.inodes.remove_unlinked(cx, trans, ino)?;
        }
        let now = cx.realtime();
        let mode = inode.with(cx, |state| {
            state.linkable = false;
            state.core.links += 1;
            state.core.ctime = now;
            state.core.mode
        });
        let to = NameIn { dir: &parent, name };
        change_parent(fs, cx, trans, &inode, None, Some(to))?;
        inode.log(cx, trans, fs.geometry(), name_fields(fs, InodeFields::CORE));
        let entry = Name { name, ino, file_type: EntryType::of_mode(mode) };
        edit(fs, cx, trans, &mut resources, &parent, |cx, edit| edit.add(cx, entry))?;
        touch(fs, cx, trans, &parent);
        Ok(())
    })?;
    drop((holds, child_guard, guard));
    Ok(inode.attr(cx, fs.geometry()))
}
