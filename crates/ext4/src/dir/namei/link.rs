//! Further names of an inode, and files that begin without one (`O_TMPFILE`).
//!
//! A file without a name is an orphan from the transaction that makes it to the one that names it:
//! a crash between them frees it, and its last release does.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;
use vfs::{Attr, FileType, NewNode};

use super::{LINK_MAX, Making, edit, finish, is_dots, new_node, with_context};
use crate::Ext4;
use crate::attr::{context, xattr};
use crate::dir::{Dir, Slot, Target};
use crate::dquot::Owners;
use crate::format::xattr::Xattr;
use crate::inode::Inode;
use crate::inode::fast_commit::Change;
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

/// Creates a file without a name: see [`vfs::FileSystem::create_unnamed`].
///
/// Credits: the inode, its attributes, and the list of orphans.
pub(crate) fn create_unnamed(
    fs: &Ext4,
    cx: &mut Cx,
    dir: Ino,
    node: &NewNode,
    attributes: &[Xattr],
) -> Result<Attr, Errno> {
    node.kind.check_regular()?;
    fs.inodes.retry_alloc(cx, |cx| create_once(fs, cx, dir, node, attributes))
}

fn create_once(
    fs: &Ext4,
    cx: &mut Cx,
    dir: Ino,
    node: &NewNode,
    attributes: &[Xattr],
) -> Result<Attr, Errno> {
    let parent = fs.iget(cx, dir)?;
    let _guard = parent.rwsem.read(cx);
    Dir::open(fs, cx, &parent)?;
    let context = context::of_new(cx, &parent, node.kind)?;
    let owners = Owners([node.uid, node.gid, parent.project_for_new(cx)]);
    let quota = fs.new_inode_quota(cx, owners, 0)?;
    let attributes = with_context(attributes, context.as_ref());
    let attributes = xattr::prepare_new(&fs.inodes, cx, &parent, false, None, &attributes)?;
    let mut dropped = xattr::Dropped::default();
    let own = credits::NEW_INODE + 2 * credits::INODE + credits::SUPER + credits::ORPHAN;
    let result = fs.sb.journal_start(cx, own + attributes.credits()).and_then(|mut handle| {
        let new = Making { node, attributes: &attributes, quota, context };
        let made = create(cx, fs, &mut handle, &parent, new, &mut dropped);
        finish(fs, cx, handle, &parent, made)
    });
    let freed = attributes.release(&fs.inodes, cx).and(dropped.free(&fs.inodes, cx));
    let inode = result?;
    freed?;
    Ok(inode.attr(cx, fs.sb.geometry.block_size))
}

/// A new inode that is open and an orphan, in an open handle.
fn create(
    cx: &mut Cx,
    fs: &Ext4,
    handle: &mut Handle,
    parent: &Arc<Inode>,
    making: Making,
    dropped: &mut xattr::Dropped,
) -> Result<Arc<Inode>, Errno> {
    let Making { node, attributes, quota, context } = making;
    let inode = fs.inodes.new_inode(cx, handle, parent, &new_node(node), quota)?;
    context::begin(&fs.inodes, cx, &inode, context.as_ref());
    inode.with(cx, |core| {
        core.links = 0;
        core.linkable = true;
        core.opens = 1;
    });
    let mut filled = Ok(());
    if !attributes.is_empty() {
        filled = xattr::init(&mut edit(fs, handle, &inode, dropped), cx, attributes);
    }
    if let Err(errno) = filled {
        xattr::delete_inode(&mut edit(fs, handle, &inode, dropped), cx)?;
        fs.inodes.drop_new_inode(cx, handle, &inode)?;
        return Err(errno);
    }
    fs.inodes.orphan_add(cx, handle, &inode)?;
    fs.inodes.mark_dirty(cx, handle, &inode)?;
    Ok(inode)
}

/// Gives an inode a further name: see [`vfs::FileSystem::link`].
///
/// Credits: the place for the name, both inodes, and the list of orphans.
pub(crate) fn link(fs: &Ext4, cx: &mut Cx, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
    vfs::check_name(name)?;
    let parent = fs.iget(cx, dir)?;
    let _guard = parent.rwsem.write(cx);
    let mut view = Dir::open(fs, cx, &parent)?;
    if is_dots(name) {
        return Err(Errno::EEXIST);
    }
    let Err(slot) = view.find_or_slot(cx, name)? else { return Err(Errno::EEXIST) };
    let inode = fs.iget(cx, ino)?;
    if inode.kind(cx) == FileType::Directory {
        return Err(Errno::EPERM);
    }
    parent.check_project(cx, &inode)?;
    if !context::permits(cx, &parent, &inode) {
        return Err(Errno::EXDEV);
    }
    // A truncate under way needs its orphan until its end.
    let unnamed = inode.with(cx, |core| core.links == 0 && core.linkable);
    let _alone = unnamed.then(|| inode.rwsem.write(cx));
    let own = 2 * credits::INODE + credits::ORPHAN;
    let mut handle = fs.sb.journal_start_tracked(cx, slot.credits() + own)?;
    let result = link_in(cx, &mut handle, &mut view, slot, name, &inode);
    finish(fs, cx, handle, &parent, result)?;
    fs.attr(cx, &inode)
}

fn link_in(
    cx: &mut Cx,
    handle: &mut Handle,
    dir: &mut Dir,
    slot: Slot,
    name: &[u8],
    inode: &Inode,
) -> Result<(), Errno> {
    let fs = dir.fs;
    let now = fs.sb.now(cx);
    let first = inode.with(cx, |core| match core.links {
        0 if !core.linkable || core.dead => Err(Errno::ENOENT),
        LINK_MAX.. => Err(Errno::EMLINK),
        _ => {
            core.links += 1;
            core.ctime = now;
            Ok(std::mem::take(&mut core.linkable))
        }
    })?;
    let target = Target::of(cx, inode);
    if let Err(errno) = dir.add(cx, handle, slot, name, target) {
        inode.with(cx, |core| {
            core.links -= 1;
            core.linkable = first;
        });
        return Err(errno);
    }
    if first {
        // No fast commit has reported it so far.
        handle.mark_ineligible();
        fs.inodes.orphan_del(cx, handle, inode)?;
    }
    dir.track_name(cx, handle, inode, Change::Come(name));
    fs.inodes.mark_dirty(cx, handle, inode)?;
    fs.touch_dir(cx, handle, dir.inode)
}
