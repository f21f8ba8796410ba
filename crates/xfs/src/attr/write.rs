//! Attributes of a mounted file system: set, removed, and kept in step with the mode.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;
use vfs::acl::Acl;
use vfs::{FileType, NewNode, XattrFlags};

use super::fork::{AttrEdit, ROOT_MIN, local_max};
use super::{Attrs, Name, acl, parent};
use crate::Xfs;
use crate::alloc::BlockReservation;
use crate::bmap::{Fork, Which};
use crate::dir::edit::{DirContext, DirEdit};
use crate::format::attr::AttrFlags;
use crate::format::da::DEPTH_MAX;
use crate::format::inode::{CORE_SIZE, ForkFormat};
use crate::format::remote;
use crate::fs::Resources;
use crate::inode::Inode;
use crate::log::inode_item::InodeFields;
use crate::symlink::write_target;
use crate::trans::{Trans, reservations};

/// A change of one attribute.
pub(crate) struct Change {
    name: Name,
    /// None removes it.
    value: Option<Vec<u8>>,
}

/// Blocks that setting a value may take.
pub(super) fn blocks_for(fs: &Xfs, value: usize) -> u64 {
    let size = fs.geometry().block_size as usize;
    let value = remote::blocks(value as u64, size);
    // Leaf and nodes are cut in two, one of them in three; and the maps of both forks grow.
    value + 2 * u64::from(DEPTH_MAX) + 2 + value.div_ceil(8) + 6
}

/// Sets an attribute: see [`vfs::FileSystem::setxattr`].
pub(crate) fn set(
    fs: &Xfs,
    cx: &mut Cx,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    flags: XattrFlags,
) -> Result<(), Errno> {
    fs.writer()?;
    let wanted = Name::parse(name)?;
    if value.len() > vfs::XATTR_SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    let inode = fs.iget(cx, ino)?;
    let guard = inode.lock_alone(cx)?;
    let result = match acl::disk_name(name) {
        Some(_) => set_acl(fs, cx, &inode, name, wanted, Some(value), flags),
        None => {
            let change = Change { name: wanted, value: Some(value.to_vec()) };
            change_one(fs, cx, &inode, change, flags, None)
        }
    };
    drop(guard);
    result
}

/// Removes an attribute: see [`vfs::FileSystem::removexattr`].
pub(crate) fn remove(fs: &Xfs, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<(), Errno> {
    fs.writer()?;
    let wanted = Name::parse(name)?;
    let inode = fs.iget(cx, ino)?;
    let guard = inode.lock_alone(cx)?;
    let result = match acl::disk_name(name) {
        Some(_) => set_acl(fs, cx, &inode, name, wanted, None, XattrFlags::empty()),
        None => {
            let change = Change { name: wanted, value: None };
            change_one(fs, cx, &inode, change, XattrFlags::REPLACE, None)
        }
    };
    drop(guard);
    result
}

/// Sets or removes an ACL given in wire form. The access ACL sets the mode bits too, and is not
/// stored where they say it all.
fn set_acl(
    fs: &Xfs,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    shown: &[u8],
    name: Name,
    value: Option<&[u8]>,
    flags: XattrFlags,
) -> Result<(), Errno> {
    let (value, mode) = stored_acl(inode.kind(cx), shown, value)?;
    // An ACL that is not stored may well be "created".
    let flags = if value.is_some() { flags } else { XattrFlags::empty() };
    change_one(fs, cx, inode, Change { name, value }, flags, mode)
}

/// What of an ACL in wire form is stored, and the mode bits that it sets.
fn stored_acl(
    kind: FileType,
    shown: &[u8],
    value: Option<&[u8]>,
) -> Result<(Option<Vec<u8>>, Option<u16>), Errno> {
    let access = shown == vfs::acl::ACCESS;
    if kind == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    let acl = match value {
        Some(wire) => Acl::parse(wire)?,
        None => None,
    };
    if !access && kind != FileType::Directory {
        return if acl.is_some() { Err(Errno::EACCES) } else { Ok((None, None)) };
    }
    let mode = acl.as_ref().filter(|_| access).map(Acl::mode_bits);
    let stored = acl.filter(|acl| !access || !acl.is_minimal());
    Ok((stored.map(|acl| acl::to_disk(&acl)), mode))
}

/// The attributes that a new node has from the beginning, and the mode that an access ACL among
/// them gives it.
///
/// # Errors
/// As [`vfs::FileSystem::setxattr`]; `EEXIST` a name that is there twice.
pub(crate) fn of_new(
    node: &NewNode<'_>,
    attributes: &[(&[u8], Vec<u8>)],
) -> Result<(Vec<Change>, u16), Errno> {
    let mut list: Vec<Change> = Vec::with_capacity(attributes.len());
    let mut mode = node.mode;
    for (shown, value) in attributes {
        let name = Name::parse(shown)?;
        if value.len() > vfs::XATTR_SIZE_MAX {
            return Err(Errno::E2BIG);
        }
        if list.iter().any(|change| change.name == name) {
            return Err(Errno::EEXIST);
        }
        let value = match acl::disk_name(shown) {
            None => Some(value.clone()),
            Some(_) => {
                let (stored, bits) = stored_acl(node.kind, shown, Some(value))?;
                mode = bits.map_or(mode, |bits| mode & !0o777 | bits);
                stored
            }
        };
        if value.is_some() {
            list.push(Change { name, value });
        }
    }
    Ok((list, mode))
}

/// True if a new directory of this name has room for these in its inode.
pub(crate) fn fit_inside(fs: &Xfs, name: &[u8], list: &[Change]) -> bool {
    let room = fs.geometry().inode_size as usize - CORE_SIZE - ROOT_MIN.0;
    let each =
        |change: &Change| 3 + change.name.rest.len() + change.value.as_ref().map_or(0, Vec::len);
    let pointer = if fs.geometry().features.parent() { parent::SMALL + name.len() } else { 0 };
    4 + pointer + list.iter().map(each).sum::<usize>() <= room
}

/// Blocks that the attributes of a new node may take, and bytes of the log.
pub(crate) fn room_for(fs: &Xfs, list: &[Change]) -> (u64, u32) {
    let each = |change: &Change| {
        let len = change.value.as_ref().map_or(0, Vec::len);
        (blocks_for(fs, len), reservations::attribute(fs.geometry(), len as u64))
    };
    list.iter().map(each).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Changes one attribute, and the mode bits with it, in a transaction of its own. The caller holds
/// the inode's `rwsem` for writing.
fn change_one(
    fs: &Xfs,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    change: Change,
    flags: XattrFlags,
    mode: Option<u16>,
) -> Result<(), Errno> {
    let old = Attrs { fs, inode }.get(cx, &change.name).map_err(|fault| fs.fault(fault))?;
    match &old {
        Some(_) if flags.contains(XattrFlags::CREATE) => return Err(Errno::EEXIST),
        None if flags.contains(XattrFlags::REPLACE) => return Err(Errno::ENODATA),
        None if change.value.is_none() && mode.is_none() => return Ok(()),
        _ => {}
    }
    let same = old == change.value;
    let room = blocks_for(fs, change.value.as_ref().map_or(0, Vec::len));
    let grows = change.value.is_some() && !same;
    let hold = fs.reserve_quota_blocks(cx, inode, if grows { room } else { 0 })?;
    let reserved =
        BlockReservation::new(&fs.writer()?.space, room).map_err(|error| fs.fail(error))?;
    read_forks(fs, cx, inode)?;
    leave_room(fs, cx, inode)?;
    let done = fs.transact(cx, reservations::set_xattr(fs.geometry()), |cx, trans| {
        trans.join_inode(cx, &inode.item);
        if !same {
            apply(fs, cx, trans, inode, &change)?;
        }
        let now = cx.realtime();
        inode.with(cx, |state| {
            if let Some(bits) = mode {
                state.core.mode = state.core.mode & !0o777 | bits;
            }
            state.core.ctime = now;
        });
        inode.log(cx, trans, fs.geometry(), InodeFields::all());
        Ok(())
    });
    drop((reserved, hold));
    done
}

/// Moves the content of a small directory or of a symbolic link out of the inode where it would
/// leave no room for attributes.
fn leave_room(fs: &Xfs, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
    let (geometry, writer) = (fs.geometry(), fs.writer()?);
    let first = inode.with(cx, |state| state.core.forkoff == 0);
    let target = {
        let data = &inode.forks.read(cx).data;
        let large = data.bytes.len() > local_max(geometry.inode_size);
        (first && large && data.format == ForkFormat::Local).then(|| data.bytes.clone())
    };
    let Some(target) = target else { return Ok(()) };
    let blocks = u64::from(geometry.dir_blocks()) + 2;
    let hold = fs.reserve_quota_blocks(cx, inode, blocks)?;
    let reserved = BlockReservation::new(&writer.space, blocks).map_err(|error| fs.fail(error))?;
    let mut resources = Resources { writer, reserved };
    let kind = inode.kind(cx);
    let done = fs.transact(cx, reservations::create(geometry), |cx, trans| {
        trans.join_inode(cx, &inode.item);
        if kind == FileType::Directory {
            let (reserved, known) = (&mut resources.reserved, &mut DirContext::default());
            DirEdit::new(&writer.space, inode, trans, reserved, fs.leaf_gaps, known)
                .local_to_block(cx)?;
        } else {
            let room = geometry.inode_size as usize - CORE_SIZE;
            inode.forks.write(cx).data = Fork::empty(room);
            write_target(fs, cx, trans, &mut resources, inode, &target)?;
        }
        inode.log(cx, trans, geometry, InodeFields::CORE | InodeFields::DATA);
        Ok(())
    });
    drop(hold);
    done
}

/// Brings the extents of both forks into memory.
pub(super) fn read_forks(fs: &Xfs, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
    for which in [Which::Data, Which::Attr] {
        inode.extents(cx, which, |_| ()).map_err(|fault| fs.fault(fault))?;
    }
    Ok(())
}

/// Changes an attribute as part of a transaction that has joined the inode, and logs it afterwards
/// with both forks.
pub(crate) fn apply(
    fs: &Xfs,
    cx: &mut Cx,
    trans: &mut Trans,
    inode: &Arc<Inode>,
    change: &Change,
) -> crate::Result<()> {
    edit_fork(fs, cx, trans, inode, |cx, edit| edit.set(cx, &change.name, change.value.as_deref()))
}

/// Lets `change` work on the attribute fork of an inode that the transaction has joined.
pub(super) fn edit_fork(
    fs: &Xfs,
    cx: &mut Cx,
    trans: &mut Trans,
    inode: &Inode,
    change: impl FnOnce(&mut Cx, &mut AttrEdit<'_>) -> crate::Result<()>,
) -> crate::Result<()> {
    let space = fs.writer()?.space.clone();
    let mut forks = inode.forks.write(cx);
    let mut core = inode.with(cx, |state| state.core.clone());
    let ino = inode.ino;
    let mut edit = AttrEdit { space: &space, trans, ino, core: &mut core, forks: &mut forks };
    change(cx, &mut edit)?;
    inode.with(cx, |state| {
        (state.core.forkoff, state.core.blocks) = (core.forkoff, core.blocks);
    });
    Ok(())
}

/// What a new mode changes in a stored access ACL. The caller holds the inode's `rwsem` for
/// writing, and applies the change together with the mode.
///
/// # Errors
/// A malformed ACL; the attributes cannot be read.
pub(crate) fn chmod(
    fs: &Xfs,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    mode: u16,
) -> Result<Option<Change>, Errno> {
    if inode.kind(cx) == FileType::Symlink {
        return Ok(None);
    }
    let rest = acl::disk_name(vfs::acl::ACCESS).unwrap_or_default();
    let name = Name::new(AttrFlags::ROOT, rest);
    let stored = Attrs { fs, inode }.get(cx, &name).map_err(|fault| fs.fault(fault))?;
    let Some(stored) = stored else { return Ok(None) };
    let mut acl = acl::from_disk(&stored)?;
    acl.chmod(mode);
    read_forks(fs, cx, inode)?;
    Ok(Some(Change { name, value: Some(acl::to_disk(&acl)) }))
}
