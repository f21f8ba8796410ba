//! Renaming: with replacing, without, exchanging, and moving directories.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;
use vfs::rename::{Above, RenameEntries, Side, first_locked};
use vfs::{FileType, NewNode, RenameFlags};

use super::{EntryType, InodeFields, LINK_MAX, Name, Resources, WriteSide};
use crate::Xfs;
use crate::attr::parent::{NameIn, Room};
use crate::dir::Dir;
use crate::format::{At, CorruptKind};
use crate::inode::Inode;
use crate::namei::create::{InodePlace, NewInode};
use crate::trans::{Trans, reservations};

/// The two names of a rename.
#[derive(Clone, Copy)]
struct Names<'a> {
    old: &'a [u8],
    new: &'a [u8],
}

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct DirName<'a> {
    pub dir: Ino,
    pub name: &'a [u8],
}

/// The locked directories of a rename, and what they lie in; nothing if they are one.
#[derive(Clone, Copy)]
struct Directories<'a> {
    old: &'a Arc<Inode>,
    new: &'a Arc<Inode>,
    above_old: Above<'a>,
    above_new: Above<'a>,
}

/// The inodes of a rename, whose directories are locked.
struct Move {
    old_dir: Arc<Inode>,
    new_dir: Arc<Inode>,
    source: Arc<Inode>,
    source_is_dir: bool,
    /// What has the new name, and whether that is a directory.
    target: Option<(Arc<Inode>, bool)>,
}

impl Move {
    fn crossing(&self) -> bool {
        self.old_dir.ino != self.new_dir.ino
    }

    /// The old name and the new one with their directories.
    fn ends<'n>(&'n self, names: Names<'n>) -> (NameIn<'n>, NameIn<'n>) {
        let old = NameIn { dir: &self.old_dir, name: names.old };
        (old, NameIn { dir: &self.new_dir, name: names.new })
    }

    fn target_is_dir(&self) -> bool {
        self.target.as_ref().is_some_and(|target| target.1)
    }
}

impl Xfs {
    /// Moves a name: see [`vfs::FileSystem::rename`].
    pub(crate) fn rename_node(
        &self,
        cx: &mut Cx,
        old: DirName<'_>,
        new: DirName<'_>,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        vfs::rename::check_call(old.name, new.name, flags)?;
        let writer = self.writer()?;
        let names = Names { old: old.name, new: new.name };
        let (old, new) = (self.iget(cx, old.dir)?, self.iget(cx, new.dir)?);
        if old.ino == new.ino {
            // Holds the headers of two groups' inodes, in any order: one at a time.
            let whiteout = flags.contains(RenameFlags::WHITEOUT);
            let covering = if whiteout { Some(self.rename.lock(cx)) } else { None };
            let guard = old.lock_alone(cx)?;
            let (above_old, above_new) = (Above(&[]), Above(&[]));
            let directories = Directories { old: &old, new: &new, above_old, above_new };
            let gone = self.rename_locked(cx, writer, directories, names, flags);
            drop((guard, covering));
            return self.end_rename(cx, gone);
        }
        let moving = self.rename.lock(cx);
        let (above_old, above_new) = (self.ancestors(cx, &old)?, self.ancestors(cx, &new)?);
        let (above_old, above_new) = (Above(&above_old), Above(&above_new));
        let old_first = first_locked(above_old, above_new) == Side::Old;
        let (first, second) = if old_first { (&old, &new) } else { (&new, &old) };
        let first_guard = first.lock_alone(cx)?;
        let second_guard = second.lock_alone(cx)?;
        let directories = Directories { old: &old, new: &new, above_old, above_new };
        let gone = self.rename_locked(cx, writer, directories, names, flags);
        drop((second_guard, first_guard, moving));
        self.end_rename(cx, gone)
    }

    fn end_rename(
        &self,
        cx: &mut Cx,
        gone: Result<Option<Arc<Inode>>, Errno>,
    ) -> Result<(), Errno> {
        match gone? {
            Some(inode) => self.inactivate_if_unused(cx, &inode),
            None => Ok(()),
        }
    }

    /// A directory and all above it, up to the root. Under [`Xfs::rename`], so that none of them
    /// moves meanwhile.
    fn ancestors(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<Vec<Ino>, Errno> {
        let mut list = vec![inode.ino];
        let mut at = inode.clone();
        let mut mark = (inode.ino, 1usize);
        loop {
            let guard = at.lock_shared(cx)?;
            self.check_directory(cx, &at)?;
            let parent = Dir::open(self, cx, &at)?.lookup(cx, b"..")?;
            if parent == at.ino {
                return Ok(list);
            }
            // In a damaged image the way up may lead in a circle.
            if parent == mark.0 {
                let kind = CorruptKind::DirCircle { ino: parent.0 };
                return Err(self.fault(kind.at(At::Inode(at.ino)).into()));
            }
            list.push(parent);
            if list.len() >= 2 * mark.1 {
                mark = (parent, list.len());
            }
            // While it is locked, what it lies in is not removed.
            let above = self.entry_inode(cx, at.ino, parent)?;
            drop(guard);
            at = above;
        }
    }

    /// The checks of a rename, in the order that the trait states.
    fn check_rename(
        &self,
        cx: &Cx,
        found: &Move,
        flags: RenameFlags,
        directories: &Directories<'_>,
    ) -> Result<(), Errno> {
        self.check_project(cx, &found.new_dir, &found.source)?;
        if let (Some((target, _)), true) = (&found.target, flags.contains(RenameFlags::EXCHANGE)) {
            self.check_project(cx, &found.old_dir, target)?;
        }
        let above = (directories.above_old, directories.above_new);
        let source = (found.source.ino, found.source_is_dir);
        let target = found.target.as_ref().map(|(inode, is_dir)| (inode.ino, *is_dir));
        let gains = match (RenameEntries { source, target, above }).check(flags)? {
            Some(Side::Old) => &found.old_dir,
            Some(Side::New) => &found.new_dir,
            None => return Ok(()),
        };
        let full = gains.with(cx, |state| state.core.links) >= LINK_MAX;
        if full { Err(Errno::EMLINK) } else { Ok(()) }
    }

    /// A rename whose directories are locked; returns the inode that lost a name.
    fn rename_locked(
        &self,
        cx: &mut Cx,
        writer: &WriteSide,
        directories: Directories<'_>,
        names: Names<'_>,
        flags: RenameFlags,
    ) -> Result<Option<Arc<Inode>>, Errno> {
        let Directories { old, new, .. } = directories;
        self.check_directory(cx, old)?;
        self.check_directory(cx, new)?;
        let source = self.child(cx, old, names.old)?;
        let target = match self.child(cx, new, names.new) {
            Ok(inode) => Some(inode),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(errno),
        };
        let same = target.as_ref().is_some_and(|target| target.ino == source.ino);
        if same && flags != RenameFlags::NOREPLACE {
            return Ok(None);
        }
        let is_dir = |cx: &Cx, inode: &Inode| inode.kind(cx) == FileType::Directory;
        let source_is_dir = is_dir(cx, &source);
        let target = target.map(|target| {
            let directory = is_dir(cx, &target);
            (target, directory)
        });
        let (old_dir, new_dir) = (old.clone(), new.clone());
        let found = Move { old_dir, new_dir, source, source_is_dir, target };
        self.check_rename(cx, &found, flags, &directories)?;
        // Directories first, then by number: each is in a locked directory, and neither is above
        // the other.
        let mut children = vec![(&found.source, source_is_dir)];
        children.extend(found.target.as_ref().map(|(inode, directory)| (inode, *directory)));
        children.sort_by_key(|(inode, directory)| (!directory, inode.ino));
        for (child, _) in children.iter().filter(|child| child.1) {
            self.check_child(old, child)?;
            self.check_child(new, child)?;
        }
        let guards: Vec<_> = children.iter().map(|(child, _)| child.rwsem.write(cx)).collect();
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if let Some((inode, true)) = &found.target
            && !exchange
            && !Dir::open(self, cx, inode)?.is_empty(cx)?
        {
            // Linux answers so on XFS alone; POSIX allows both.
            return Err(Errno::EEXIST);
        }
        self.names.remove(old.ino, names.old);
        self.names.remove(new.ino, names.new);
        let moved = self.carry_out(cx, writer, &found, names, flags, &children);
        self.names.outdate_walks_if(children.iter().any(|child| child.1));
        moved?;
        drop(guards);
        Ok(found.target.map(|target| target.0).filter(|_| !exchange))
    }

    /// The transaction of a rename in which all inodes are locked.
    fn carry_out(
        &self,
        cx: &mut Cx,
        writer: &WriteSide,
        found: &Move,
        names: Names<'_>,
        flags: RenameFlags,
        children: &[(&Arc<Inode>, bool)],
    ) -> Result<(), Errno> {
        // A small directory may need a block for a wide inode number in place of a narrow one.
        let block = 3 * u64::from(self.geometry().dir_blocks()) + 2;
        let whiteout = flags.contains(RenameFlags::WHITEOUT);
        let chunk = if whiteout { u64::from(self.geometry().chunks.blocks) } else { 0 };
        let new = &found.new_dir;
        let room = self.move_room(cx, found, names, flags)?;
        let blocks = 3 * block + chunk + room.blocks;
        let mut holds = vec![self.hold_name(cx, new, names.new)?];
        holds.push(self.reserve_quota_blocks(cx, &found.source, room.blocks)?);
        if whiteout {
            let node = NewNode::whiteout().owner(cx.cred().uid, cx.cred().gid);
            holds.extend(self.hold_new(cx, &found.old_dir, None, &node, 0)?);
        }
        let reserved = self.set_aside(cx, writer, new, names.new, blocks);
        let reserved = reserved.map_err(|error| self.fail(error))?;
        let mut resources = Resources { writer, reserved };
        let resources = &mut resources;
        let mut cover = None;
        let mut reservation = reservations::rename(self.geometry());
        reservation.bytes += room.bytes;
        self.transact(cx, reservation, |cx, trans| {
            let mut items: Vec<_> = children.iter().map(|(child, _)| &child.item).collect();
            items.sort_by_key(|item| item.place().ino);
            items.into_iter().for_each(|item| trans.join_inode(cx, item));
            if whiteout {
                // Before any change: making inodes ends what the transaction has done so far.
                let node = NewNode::whiteout().owner(cx.cred().uid, cx.cred().gid);
                let new = NewInode { node: &node, attributes: &[] };
                let place = InodePlace { parent: &found.old_dir, name: Some(names.old) };
                cover = Some(self.new_inode(cx, trans, resources, place, new)?);
            }
            match flags.contains(RenameFlags::EXCHANGE) {
                true => self.exchange_in(cx, trans, resources, found, names),
                false => self.replace_in(cx, trans, resources, found, names, cover.as_deref()),
            }
        })?;
        drop(holds);
        if let Some(cover) = cover {
            self.inodes.replace(cover);
        }
        Ok(())
    }

    /// What the parent pointers of a rename may take.
    fn move_room(
        &self,
        cx: &mut Cx,
        found: &Move,
        names: Names<'_>,
        flags: RenameFlags,
    ) -> Result<Room, Errno> {
        let mut room = self.parent_room(cx, &found.source, Some(names.new))?;
        if let Some((target, _)) = &found.target {
            let new = flags.contains(RenameFlags::EXCHANGE).then_some(names.old);
            room = room + self.parent_room(cx, target, new)?;
        }
        if flags.contains(RenameFlags::WHITEOUT) {
            room = room + self.new_parent_room(&NewNode::whiteout(), names.old);
        }
        Ok(room)
    }

    fn entry<'n>(&self, cx: &Cx, name: &'n [u8], inode: &Inode) -> Name<'n> {
        let mode = inode.with(cx, |state| state.core.mode);
        Name { name, ino: inode.ino, file_type: EntryType::of_mode(mode) }
    }

    /// Notes the change of an inode that got another name.
    fn touch_moved(&self, cx: &mut Cx, trans: &mut Trans, inode: &Inode) {
        let now = cx.realtime();
        inode.with(cx, |state| state.core.ctime = now);
        let fields = self.name_fields(InodeFields::CORE | InodeFields::DATA);
        inode.log(cx, trans, self.geometry(), fields);
    }

    /// Tells a directory that moved which one it is in now.
    fn set_parent(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        resources: &mut Resources<'_>,
        inode: &Inode,
        parent: &Inode,
    ) -> crate::Result<()> {
        let entry = self.entry(cx, b"..", parent);
        self.edit(cx, trans, resources, inode, |cx, edit| edit.replace(cx, entry))
    }

    /// Gives the source its new name, takes the old one away, or lets it lead to `cover`, and drops
    /// what had the new name.
    fn replace_in(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        resources: &mut Resources<'_>,
        found: &Move,
        names: Names<'_>,
        cover: Option<&Inode>,
    ) -> crate::Result<()> {
        let Move { old_dir, new_dir, source, source_is_dir, target } = found;
        if let Some((target, _)) = target {
            let name = NameIn { dir: new_dir, name: names.new };
            self.drop_names(cx, trans, resources.writer, target, name, false)?;
        }
        let (from, to) = found.ends(names);
        self.change_parent(cx, trans, source, Some(from), Some(to))?;
        let entry = self.entry(cx, names.new, source);
        self.edit(cx, trans, resources, new_dir, |cx, edit| match target {
            Some(_) => edit.replace(cx, entry),
            None => edit.add(cx, entry),
        })?;
        let covered = cover.map(|inode| self.entry(cx, names.old, inode));
        self.edit(cx, trans, resources, old_dir, |cx, edit| match covered {
            Some(entry) => edit.replace(cx, entry),
            None => edit.remove(cx, names.old),
        })?;
        let change = |cx: &mut Cx, inode: &Inode, by: i32| {
            inode.with(cx, |state| {
                state.core.links = state.core.links.saturating_add_signed(by);
            });
        };
        if *source_is_dir && found.crossing() {
            self.set_parent(cx, trans, resources, source, new_dir)?;
            change(cx, old_dir, -1);
            change(cx, new_dir, 1);
        }
        if found.target_is_dir() {
            change(cx, new_dir, -1);
        }
        self.touch_moved(cx, trans, source);
        self.touch(cx, trans, old_dir);
        if found.crossing() {
            self.touch(cx, trans, new_dir);
        }
        Ok(())
    }

    /// Lets two names change places. A directory that goes to another one is changed by that (its
    /// `..` is), as the kernel's XFS sees it here, and not in a plain rename.
    fn exchange_in(
        &self,
        cx: &mut Cx,
        trans: &mut Trans,
        resources: &mut Resources<'_>,
        found: &Move,
        names: Names<'_>,
    ) -> crate::Result<()> {
        let Move { old_dir, new_dir, source, source_is_dir, target } = found;
        let (other, other_is_dir) = target.as_ref().expect("an exchange has two names");
        let (to_new, to_old) =
            (self.entry(cx, names.new, source), self.entry(cx, names.old, other));
        let (from, to) = found.ends(names);
        self.change_parent(cx, trans, source, Some(from), Some(to))?;
        self.change_parent(cx, trans, other, Some(to), Some(from))?;
        self.edit(cx, trans, resources, new_dir, |cx, edit| edit.replace(cx, to_new))?;
        self.edit(cx, trans, resources, old_dir, |cx, edit| edit.replace(cx, to_old))?;
        if found.crossing() {
            if *source_is_dir {
                self.set_parent(cx, trans, resources, source, new_dir)?;
                self.touch(cx, trans, source);
            }
            if *other_is_dir {
                self.set_parent(cx, trans, resources, other, old_dir)?;
                self.touch(cx, trans, other);
            }
            let moved = i32::from(*source_is_dir) - i32::from(*other_is_dir);
            for (dir, by) in [(old_dir, -moved), (new_dir, moved)] {
                dir.with(cx, |state| {
                    state.core.links = state.core.links.saturating_add_signed(by);
                });
            }
        }
        self.touch_moved(cx, trans, source);
        self.touch_moved(cx, trans, other);
        self.touch(cx, trans, old_dir);
        if found.crossing() {
            self.touch(cx, trans, new_dir);
        }
        Ok(())
    }
}
