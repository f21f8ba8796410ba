//! Changing an inode's attributes.

use std::sync::Arc;

use base::{Errno, Timespec};
use rt::Cx;
use vfs::quota::Project;
use vfs::{Attr, ExtentHints, FileType, SetAttr};

use crate::file::DataFile;
use crate::format::inode::{Flags, Flags2, InodeCore, may_be_hint};
use crate::format::time;
use crate::inode::{Inode, USER_FLAGS};
use crate::log::dquot_item::Owners;
use crate::log::inode_item::InodeFields;
use crate::trans::reservations;
use crate::{Xfs, attr};

/// Changes attributes. May park.
///
/// # Errors
/// See [`vfs::FileSystem::setattr`].
pub(crate) fn set_attr(
    fs: &Xfs,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    set: &SetAttr,
) -> Result<Attr, Errno> {
    fs.writer()?;
    let guard = match set.size {
        Some(_) => DataFile::new(fs, inode).begin_write(cx)?,
        None => inode.lock_alone(cx)?,
    };
    let sized =
        set.size.map_or(Ok(()), |size| vfs::iomap::set_size(cx, &DataFile::new(fs, inode), size));
    let done = sized.and_then(|()| set_fields(fs, cx, inode, set));
    drop(guard);
    done?;
    Ok(inode.attr(cx, fs.geometry()))
}

/// The times of a file whose content waits to be written go to the log with it: true if
/// that is all that was asked for.
fn set_times(fs: &Xfs, cx: &Cx, inode: &Inode, set: &SetAttr) -> bool {
    let other = SetAttr { atime: None, mtime: None, ..set.clone() };
    if other != SetAttr::default() || fs.synchronous {
        return false;
    }
    // Before the look: what is logged after it has these times.
    let now = cx.realtime();
    inode.with(cx, |state| change_times(&mut state.core, set, now));
    let io = inode.io.lock(cx);
    io.times_dirty && !io.delayed.is_empty()
}

fn set_fields(fs: &Xfs, cx: &mut Cx, inode: &Arc<Inode>, set: &SetAttr) -> Result<(), Errno> {
    if set_times(fs, cx, inode, set) {
        return Ok(());
    }
    let acl = match set.mode {
        Some(mode) => attr::chmod(fs, cx, inode, mode)?,
        None => None,
    };
    let (reservation, fields) = match acl {
        Some(_) => (reservations::set_xattr(fs.geometry()), InodeFields::all()),
        None => (reservations::set_attr(fs.geometry()), InodeFields::CORE),
    };
    let old = fs.owners_of(cx, inode);
    let (uid, gid) = (set.uid.unwrap_or(old.uid), set.gid.unwrap_or(old.gid));
    let new = Owners { uid, gid, ..old };
    let hold = fs.ask_new_owners(cx, inode, &new)?;
    let done = fs.transact(cx, reservation, |cx, trans| {
        trans.join_inode(cx, &inode.item);
        if let Some(change) = &acl {
            attr::apply(fs, cx, trans, inode, change)?;
        }
        let now = cx.realtime();
        inode.with(cx, |state| {
            let core = &mut state.core;
            if let Some(mode) = set.mode {
                core.mode = core.file_type() | mode & 0o7777;
            }
            (core.uid, core.gid) = (uid, gid);
            change_times(core, set, now);
        });
        fs.move_reserved(cx, inode, &old, &new);
        inode.log(cx, trans, fs.geometry(), fields);
        Ok(())
    });
    drop(hold);
    done
}

/// Gives an inode the flags of chattr(1): see [`vfs::FileSystem::set_flags`]. May park.
///
/// # Errors
/// `EOPNOTSUPP` there is no such flag, or not for this type; `EROFS`, `ESTALE`, `EIO`.
pub(crate) fn set_inode_flags(
    fs: &Xfs,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    flags: u32,
) -> Result<Attr, Errno> {
    fs.writer()?;
    let known = USER_FLAGS.iter().fold(0, |word, row| word | row.1);
    let directory = inode.kind(cx) == FileType::Directory;
    let inherits = flags & user_word(Flags::PROJINHERIT) != 0;
    if flags & !known != 0 || inherits && !directory {
        return Err(Errno::EOPNOTSUPP);
    }
    let guard = inode.lock_alone(cx)?;
    let done = fs.transact(cx, reservations::set_attr(fs.geometry()), |cx, trans| {
        trans.join_inode(cx, &inode.item);
        let now = cx.realtime();
        inode.with(cx, |state| {
            for (flag, word) in USER_FLAGS {
                state.core.flags.set(flag, flags & word != 0);
            }
            state.core.ctime = now;
        });
        inode.log(cx, trans, fs.geometry(), InodeFields::CORE);
        Ok(())
    });
    drop(guard);
    done?;
    Ok(inode.attr(cx, fs.geometry()))
}

/// A flag as chattr(1) has it.
fn user_word(flag: Flags) -> u32 {
    USER_FLAGS.iter().filter(|row| row.0 == flag).fold(0, |word, row| word | row.1)
}

/// Gives an inode to a project: see [`vfs::quota::Quota::set_project`].
pub(crate) fn set_inode_project(
    fs: &Xfs,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    project: Project,
) -> Result<(), Errno> {
    fs.writer()?;
    let guard = inode.lock_alone(cx)?;
    let old = fs.owners_of(cx, inode);
    let new = Owners { project: project.id, ..old };
    let hold = fs.ask_new_owners(cx, inode, &new)?;
    let done = fs.transact(cx, reservations::set_attr(fs.geometry()), |cx, trans| {
        trans.join_inode(cx, &inode.item);
        let now = cx.realtime();
        inode.with(cx, |state| {
            state.core.project = project.id;
            state.core.flags.set(Flags::PROJINHERIT, project.inherit);
            state.core.ctime = now;
        });
        fs.move_reserved(cx, inode, &old, &new);
        inode.log(cx, trans, fs.geometry(), InodeFields::CORE);
        Ok(())
    });
    drop((hold, guard));
    done
}

/// What an inode says of the length of its extents, and a directory of those of its new files.
pub(crate) fn extent_hints(fs: &Xfs, cx: &Cx, inode: &Inode) -> ExtentHints {
    let bits = fs.geometry().block_bits;
    inode.with(cx, |state| {
        let core = &state.core;
        let extent = core.flags.intersects(Flags::EXTSIZE | Flags::EXTSZINHERIT);
        let cow = core.flags2.contains(Flags2::COWEXTSIZE);
        ExtentHints {
            extent: if extent { core.extsize << bits } else { 0 },
            cow: if cow { core.cowextsize << bits } else { 0 },
            realtime: core.flags.intersects(Flags::REALTIME | Flags::RTINHERIT),
        }
    })
}

/// Changes what [`extent_hints`] answers. May park.
///
/// # Errors
/// See [`vfs::FileSystem::set_extent_hints`].
pub(crate) fn set_inode_hints(
    fs: &Xfs,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    hints: ExtentHints,
) -> Result<(), Errno> {
    fs.writer()?;
    let guard = inode.lock_alone(cx)?;
    let (flag, section) = match inode.kind(cx) {
        FileType::Regular => (Flags::EXTSIZE, Flags::REALTIME),
        FileType::Directory => (Flags::EXTSZINHERIT, Flags::RTINHERIT),
        _ if hints == ExtentHints::default() => return Ok(()),
        _ => return Err(Errno::EINVAL),
    };
    let geometry = fs.geometry();
    let old = extent_hints(fs, cx, inode);
    check_hints(fs, cx, inode, old, hints)?;
    let done = fs.transact(cx, reservations::set_attr(geometry), |cx, trans| {
        trans.join_inode(cx, &inode.item);
        let now = cx.realtime();
        inode.with(cx, |state| {
            let core = &mut state.core;
            core.flags.set(flag, hints.extent > 0);
            core.flags.set(section, hints.realtime);
            core.flags2.set(Flags2::COWEXTSIZE, hints.cow > 0);
            core.extsize = hints.extent >> geometry.block_bits;
            core.cowextsize = hints.cow >> geometry.block_bits;
            core.ctime = now;
        });
        inode.log(cx, trans, geometry, InodeFields::CORE);
        Ok(())
    });
    if done.is_ok() && flag == Flags::EXTSIZE {
        inode.forks.write(cx).data.realtime = hints.realtime;
    }
    drop(guard);
    done
}

/// Whether an inode may have these hints.
fn check_hints(
    fs: &Xfs,
    cx: &mut Cx,
    inode: &Inode,
    old: ExtentHints,
    hints: ExtentHints,
) -> Result<(), Errno> {
    let geometry = fs.geometry();
    let realtime = hints.realtime;
    let unit = if realtime { geometry.realtime.extent_blocks } else { 1 };
    let valid = |bytes: u32, of: u32| {
        let blocks = bytes >> geometry.block_bits;
        let whole = blocks << geometry.block_bits == bytes && blocks.is_multiple_of(of);
        bytes == 0 || whole && may_be_hint(blocks, realtime, geometry)
    };
    let mapped = inode.forks.read(cx).data.count > 0;
    let has_blocks = mapped || !inode.io.lock(cx).delayed.is_empty();
    let (file, moves) = (inode.kind(cx) == FileType::Regular, realtime != old.realtime);
    let fixed = file && (moves || hints.extent != old.extent) && has_blocks;
    let nowhere = moves && realtime && fs.realtime.is_none();
    let shares = hints.cow == 0 || geometry.features.reflink();
    if fixed || nowhere || !shares || !valid(hints.extent, unit) || !valid(hints.cow, 1) {
        return Err(Errno::EINVAL);
    }
    // Its pages are written to the device that it had first.
    if file && moves && inode.mapping.get().is_some() { Err(Errno::EBUSY) } else { Ok(()) }
}

fn change_times(core: &mut InodeCore, set: &SetAttr, now: Timespec) {
    let bigtime = core.flags2.contains(Flags2::BIGTIME);
    let stored = |time| time::stored(time, bigtime);
    core.atime = set.atime.map_or(core.atime, stored);
    let mtime = if set.size.is_some() { now } else { core.mtime };
    core.mtime = set.mtime.map_or(mtime, stored);
    core.ctime = set.ctime.map_or(now, stored);
}
