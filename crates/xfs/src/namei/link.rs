//! Further names of an inode, and files that begin without one (`O_TMPFILE`).
//!
//! A file without a name is on its group's list of unlinked inodes from the transaction that makes
//! it to the one that names it: a crash between them frees it, and its last release does.

use base::{Errno, Ino};
use rt::Cx;
use vfs::{Attr, FileType};

use super::{LINK_MAX, is_dots};
use crate::alloc::BlockReservation;
use crate::attr::parent::NameIn;
use crate::dir::edit::Name;
use crate::format::dir::FileType as EntryType;
use crate::fs::Resources;
use crate::log::inode_item::InodeFields;
use crate::namei::create::{InodePlace, NewInode};
use crate::trans::reservations;
use crate::{Xfs, attr};

impl Xfs {
    /// Creates a file without a name: see [`vfs::FileSystem::create_unnamed`].
    pub(crate) fn create_unnamed_node(
        &self,
        cx: &mut Cx,
        dir: Ino,
        new: NewInode<'_>,
    ) -> Result<Attr, Errno> {
        let NewInode { node, attributes } = new;
        node.kind.check_regular()?;
        let writer = self.writer()?;
        let parent = self.iget(cx, dir)?;
        let guard = parent.lock_shared(cx)?;
        self.check_directory(cx, &parent)?;
        let (blocks, bytes) = attr::room_for(self, attributes);
        let holds = self.hold_new(cx, &parent, None, node, blocks)?;
        let reserved = self
            .reserve_inode(writer, |chunk| BlockReservation::new(&writer.space, blocks + chunk))?;
        let mut resources = Resources { writer, reserved };
        let mut reservation = reservations::create(self.geometry());
        reservation.bytes += bytes + reservations::unlinked(self.geometry());
        let created = self.transact(cx, reservation, |cx, trans| {
            let place = InodePlace { parent: &parent, name: None };
            let inode = self.new_inode(cx, trans, &mut resources, place, new)?;
            inode.with(cx, |state| {
                state.core.links = 0;
                state.linkable = true;
                state.opens = 1;
            });
            writer.inodes.add_unlinked(cx, trans, inode.ino)?;
            inode.log(cx, trans, self.geometry(), InodeFields::CORE);
            Ok(inode)
        })?;
        drop(holds);
        self.inodes.replace(created.clone());
        drop(guard);
        Ok(created.attr(cx, self.geometry()))
    }

    /// Gives an inode a further name: see [`vfs::FileSystem::link`].
    pub(crate) fn link_node(
        &self,
        cx: &mut Cx,
        ino: Ino,
        dir: Ino,
        name: &[u8],
    ) -> Result<Attr, Errno> {
        vfs::check_name(name)?;
        let writer = self.writer()?;
        let parent = self.iget(cx, dir)?;
        let guard = parent.lock_alone(cx)?;
        self.check_directory(cx, &parent)?;
        if is_dots(name) || self.has(cx, &parent, name)? {
            return Err(Errno::EEXIST);
        }
        let inode = self.iget(cx, ino)?;
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
        self.check_project(cx, &parent, &inode)?;
        let room = self.parent_room(cx, &inode, Some(name))?;
        let holds = [
            self.hold_name(cx, &parent, name)?,
            self.reserve_quota_blocks(cx, &inode, room.blocks)?,
        ];
        let reserved = self.set_aside(cx, writer, &parent, name, room.blocks);
        let reserved = reserved.map_err(|error| self.fail(error))?;
        let mut resources = Resources { writer, reserved };
        let mut reservation = reservations::link(self.geometry());
        reservation.bytes += room.bytes;
        self.transact(cx, reservation, |cx, trans| {
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
            self.change_parent(cx, trans, &inode, None, Some(to))?;
            inode.log(cx, trans, self.geometry(), self.name_fields(InodeFields::CORE));
            let entry = Name { name, ino, file_type: EntryType::of_mode(mode) };
            self.edit(cx, trans, &mut resources, &parent, |cx, edit| edit.add(cx, entry))?;
            self.touch(cx, trans, &parent);
            Ok(())
        })?;
        drop((holds, child_guard, guard));
        Ok(inode.attr(cx, self.geometry()))
    }
}
