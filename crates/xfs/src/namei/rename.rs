//! Renaming: with replacing, without, exchanging, and moving directories.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;
use vfs::rename::{Above, RenameEntries, Side, first_locked};
use vfs::{FileType, NewNode, RenameFlags};

use super::{EntryType, InodeFields, LINK_MAX, Name, Resources, WriteSide};
use crate::Xfs;
use crate::attr::parent::{NameIn, Room, change_parent, parent_room};
use crate::dir::Dir;
use crate::format::{At, CorruptKind};
use crate::inactive::inactivate_if_unused;
use crate::inode::Inode;
use crate::namei::create::{InodePlace, NewInode, new_inode};
use crate::namei::{
    check_child, check_directory, check_project, child, drop_names, edit, entry_inode, hold_name,
    hold_new, name_fields, new_parent_room, set_aside, stored_name, touch,
};
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

/// Moves a name: see [`vfs::FileSystem::rename`].
pub(crate) fn rename_node(
    fs: &Xfs,
    cx: &mut Cx,
    old: DirName<'_>,
    new: DirName<'_>,
    flags: RenameFlags,
) -> Result<(), Errno> {
    vfs::rename::check_call(old.name, new.name, flags)?;
    let writer = fs.writer()?;
    let names = Names { old: old.name, new: new.name };
    let (old, new) = (fs.iget(cx, old.dir)?, fs.iget(cx, new.dir)?);
    if old.ino == new.ino {
        // Holds the headers of two groups' inodes, in any order: one at a time.
        let whiteout = flags.contains(RenameFlags::WHITEOUT);
        let covering = if whiteout { Some(fs.rename.lock(cx)) } else { None };
        let guard = old.lock_alone(cx)?;
        let (above_old, above_new) = (Above(&[]), Above(&[]));
        let directories = Directories { old: &old, new: &new, above_old, above_new };
        let gone = rename_locked(fs, cx, writer, directories, names, flags);
        drop((guard, covering));
        return end_rename(fs, cx, gone);
    }
    let moving = fs.rename.lock(cx);
    let (above_old, above_new) = (ancestors(fs, cx, &old)?, ancestors(fs, cx, &new)?);
    let (above_old, above_new) = (Above(&above_old), Above(&above_new));
    let old_first = first_locked(above_old, above_new) == Side::Old;
    let (first, second) = if old_first { (&old, &new) } else { (&new, &old) };
    let first_guard = first.lock_alone(cx)?;
    let second_guard = second.lock_alone(cx)?;
    let directories = Directories { old: &old, new: &new, above_old, above_new };
    let gone = rename_locked(fs, cx, writer, directories, names, flags);
    drop((second_guard, first_guard, moving));
    end_rename(fs, cx, gone)
}

fn end_rename(fs: &Xfs, cx: &mut Cx, gone: Result<Option<Arc<Inode>>, Errno>) -> Result<(), Errno> {
    match gone? {
        Some(inode) => inactivate_if_unused(fs, cx, &inode),
        None => Ok(()),
    }
}

/// A directory and all above it, up to the root. Under [`Xfs::rename`], so that none of them
/// moves meanwhile.
fn ancestors(fs: &Xfs, cx: &mut Cx, inode: &Arc<Inode>) -> Result<Vec<Ino>, Errno> {
    let mut list = vec![inode.ino];
    let mut at = inode.clone();
    let mut mark = (inode.ino, 1usize);
    loop {
        let guard = at.lock_shared(cx)?;
        check_directory(cx, &at)?;
        let parent = Dir::open(fs, cx, &at)?.lookup(cx, b"..")?;
        if parent == at.ino {
            return Ok(list);
        }
        // In a damaged image the way up may lead in a circle.
        if parent == mark.0 {
            let kind = CorruptKind::DirCircle { ino: parent.0 };
            return Err(fs.fault(kind.at(At::Inode(at.ino)).into()));
        }
        list.push(parent);
        if list.len() >= 2 * mark.1 {
            mark = (parent, list.len());
        }
        // While it is locked, what it lies in is not removed.
        let above = entry_inode(fs, cx, at.ino, parent)?;
        drop(guard);
        at = above;
    }
}

/// The checks of a rename, in the order that the trait states.
fn check_rename(
    cx: &Cx,
    found: &Move,
    flags: RenameFlags,
    directories: &Directories<'_>,
) -> Result<(), Errno> {
    check_project(cx, &found.new_dir, &found.source)?;
    if let (Some((target, _)), true) = (&found.target, flags.contains(RenameFlags::EXCHANGE)) {
        check_project(cx, &found.old_dir, target)?;
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
    fs: &Xfs,
    cx: &mut Cx,
    writer: &WriteSide,
    directories: Directories<'_>,
    names: Names<'_>,
    flags: RenameFlags,
) -> Result<Option<Arc<Inode>>, Errno> {
    let Directories { old, new, .. } = directories;
    check_directory(cx, old)?;
    check_directory(cx, new)?;
    let stored = (stored_name(fs, cx, old, names.old)?, stored_name(fs, cx, new, names.new)?);
    let names = Names { old: &stored.0, new: &stored.1 };
    let source = child(fs, cx, old, names.old)?;
    let target = match child(fs, cx, new, names.new) {
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
    check_rename(cx, &found, flags, &directories)?;
    // Directories first, then by number: each is in a locked directory, and neither is above
    // the other.
    let mut children = vec![(&found.source, source_is_dir)];
    children.extend(found.target.as_ref().map(|(inode, directory)| (inode, *directory)));
    children.sort_by_key(|(inode, directory)| (!directory, inode.ino));
    for (child, _) in children.iter().filter(|child| child.1) {
        check_child(fs, old, child)?;
        check_child(fs, new, child)?;
    }
    let guards: Vec<_> = children.iter().map(|(child, _)| child.rwsem.write(cx)).collect();
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    if let Some((inode, true)) = &found.target
        && !exchange
        && !Dir::open(fs, cx, inode)?.is_empty(cx)?
    {
        // Linux answers so on XFS alone; POSIX allows both.
        return Err(Errno::EEXIST);
    }
    fs.names.remove(old.ino, names.old);
    fs.names.remove(new.ino, names.new);
    let moved = carry_out(fs, cx, writer, &found, names, flags, &children);
    fs.names.outdate_walks_if(children.iter().any(|child| child.1));
    moved?;
    drop(guards);
    Ok(found.target.map(|target| target.0).filter(|_| !exchange))
}

/// The transaction of a rename in which all inodes are locked.
fn carry_out(
    fs: &Xfs,
    cx: &mut Cx,
    writer: &WriteSide,
    found: &Move,
    names: Names<'_>,
    flags: RenameFlags,
    children: &[(&Arc<Inode>, bool)],
) -> Result<(), Errno> {
    // A small directory may need a block for a wide inode number in place of a narrow one.
    let block = 3 * u64::from(fs.geometry().dir_blocks()) + 2;
    let whiteout = flags.contains(RenameFlags::WHITEOUT);
    let chunk = if whiteout { u64::from(fs.geometry().chunks.blocks) } else { 0 };
    let new = &found.new_dir;
    let room = move_room(fs, cx, found, names, flags)?;
    let blocks = 3 * block + chunk + room.blocks;
    let mut holds = vec![hold_name(fs, cx, new, names.new)?];
    holds.push(fs.reserve_quota_blocks(cx, &found.source, room.blocks)?);
    if whiteout {
        let node = NewNode::whiteout().owner(cx.cred().uid, cx.cred().gid);
        holds.extend(hold_new(fs, cx, &found.old_dir, None, &node, 0)?);
    }
    let reserved = set_aside(fs, cx, writer, new, names.new, blocks);
    let reserved = reserved.map_err(|error| fs.fail(error))?;
    let mut resources = Resources { writer, reserved };
    let resources = &mut resources;
    let mut cover = None;
    let mut reservation = reservations::rename(fs.geometry());
    reservation.bytes += room.bytes;
    fs.transact(cx, reservation, |cx, trans| {
        let mut items: Vec<_> = children.iter().map(|(child, _)| &child.item).collect();
        items.sort_by_key(|item| item.place().ino);
        items.into_iter().for_each(|item| trans.join_inode(cx, item));
        if whiteout {
            // Before any change: making inodes ends what the transaction has done so far.
            let node = NewNode::whiteout().owner(cx.cred().uid, cx.cred().gid);
            let new = NewInode { node: &node, attributes: &[] };
            let place = InodePlace { parent: &found.old_dir, name: Some(names.old) };
            cover = Some(new_inode(fs, cx, trans, resources, place, new)?);
        }
        match flags.contains(RenameFlags::EXCHANGE) {
            true => exchange_in(fs, cx, trans, resources, found, names),
            false => replace_in(fs, cx, trans, resources, found, names, cover.as_deref()),
        }
    })?;
    drop(holds);
    if let Some(cover) = cover {
        fs.inodes.replace(cover);
    }
    Ok(())
}

/// What the parent pointers of a rename may take.
fn move_room(
    fs: &Xfs,
    cx: &mut Cx,
    found: &Move,
    names: Names<'_>,
    flags: RenameFlags,
) -> Result<Room, Errno> {
    let mut room = parent_room(fs, cx, &found.source, Some(names.new))?;
    if let Some((target, _)) = &found.target {
        let new = flags.contains(RenameFlags::EXCHANGE).then_some(names.old);
        room = room + parent_room(fs, cx, target, new)?;
    }
    if flags.contains(RenameFlags::WHITEOUT) {
        room = room + new_parent_room(fs, &NewNode::whiteout(), names.old);
    }
    Ok(room)
}

fn entry_of<'n>(cx: &Cx, name: &'n [u8], inode: &Inode) -> Name<'n> {
    let mode = inode.with(cx, |state| state.core.mode);
    Name { name, ino: inode.ino, file_type: EntryType::of_mode(mode) }
}

/// Notes the change of an inode that got another name.
fn touch_moved(fs: &Xfs, cx: &mut Cx, trans: &mut Trans, inode: &Inode) {
    let now = cx.realtime();
    inode.with(cx, |state| state.core.ctime = now);
    let fields = name_fields(fs, InodeFields::CORE | InodeFields::DATA);
    inode.log(cx, trans, fs.geometry(), fields);
}

/// Sets which directory a directory that moved is in now.
fn set_parent(
    fs: &Xfs,
    cx: &mut Cx,
    trans: &mut Trans,
    resources: &mut Resources<'_>,
    inode: &Inode,
    parent: &Inode,
) -> crate::Result<()> {
    let entry = entry_of(cx, b"..", parent);
    edit(fs, cx, trans, resources, inode, |cx, edit| edit.replace(cx, entry))
}

/// Gives the source its new name, takes the old one away, or lets it lead to `cover`, and drops
/// what had the new name.
fn replace_in(
    fs: &Xfs,
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
        drop_names(fs, cx, trans, resources.writer, target, name, false)?;
    }
    let (from, to) = found.ends(names);
    change_parent(fs, cx, trans, source, Some(from), Some(to))?;
    let entry = entry_of(cx, names.new, source);
    edit(fs, cx, trans, resources, new_dir, |cx, edit| match target {
        Some(_) => edit.replace(cx, entry),
        None => edit.add(cx, entry),
    })?;
    let covered = cover.map(|inode| entry_of(cx, names.old, inode));
    edit(fs, cx, trans, resources, old_dir, |cx, edit| match covered {
        Some(entry) => edit.replace(cx, entry),
        None => edit.remove(cx, names.old),
    })?;
    let change = |cx: &mut Cx, inode: &Inode, by: i32| {
        inode.with(cx, |state| {
            state.core.links = state.core.links.saturating_add_signed(by);
        });
    };
    if *source_is_dir && found.crossing() {
        set_parent(fs, cx, trans, resources, source, new_dir)?;
        change(cx, old_dir, -1);
        change(cx, new_dir, 1);
    }
    if found.target_is_dir() {
        change(cx, new_dir, -1);
    }
    touch_moved(fs, cx, trans, source);
    touch(fs, cx, trans, old_dir);
    if found.crossing() {
        touch(fs, cx, trans, new_dir);
    }
    Ok(())
}

/// Lets two names change places. A directory that goes to another one is changed by that (its
/// `..` is), as the kernel's XFS sees it here, and not in a plain rename.
fn exchange_in(
    fs: &Xfs,
    cx: &mut Cx,
    trans: &mut Trans,
    resources: &mut Resources<'_>,
    found: &Move,
    names: Names<'_>,
) -> crate::Result<()> {
    let Move { old_dir, new_dir, source, source_is_dir, target } = found;
    let (other, other_is_dir) = target.as_ref().expect("an exchange has two names");
    let (to_new, to_old) = (entry_of(cx, names.new, source), entry_of(cx, names.old, other));
    let (from, to) = found.ends(names);
    change_parent(fs, cx, trans, source, Some(from), Some(to))?;
    change_parent(fs, cx, trans, other, Some(to), Some(from))?;
    edit(fs, cx, trans, resources, new_dir, |cx, edit| edit.replace(cx, to_new))?;
    edit(fs, cx, trans, resources, old_dir, |cx, edit| edit.replace(cx, to_old))?;
    if found.crossing() {
        if *source_is_dir {
            set_parent(fs, cx, trans, resources, source, new_dir)?;
            touch(fs, cx, trans, source);
        }
        if *other_is_dir {
            set_parent(fs, cx, trans, resources, other, old_dir)?;
            touch(fs, cx, trans, other);
        }
        let moved = i32::from(*source_is_dir) - i32::from(*other_is_dir);
        for (dir, by) in [(old_dir, -moved), (new_dir, moved)] {
            dir.with(cx, |state| {
                state.core.links = state.core.links.saturating_add_signed(by);
            });
        }
    }
    touch_moved(fs, cx, trans, source);
    touch_moved(fs, cx, trans, other);
    touch(fs, cx, trans, old_dir);
    if found.crossing() {
        touch(fs, cx, trans, new_dir);
    }
    Ok(())
}
