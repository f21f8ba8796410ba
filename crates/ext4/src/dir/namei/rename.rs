//! Renaming: with replacing, without, exchanging, and moving directories.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::{Cx, WriteGuard};
use vfs::rename::{Above, RenameEntries, Side, first_locked};
use vfs::{FileType, NewNode, RenameFlags};

use super::*;
use crate::dir::EntryPlace;
use crate::evict;
use crate::format::dir::Behind;

/// The two names of a rename, with their directories locked.
struct Pair<'a> {
    fs: &'a Ext4,
    old: Dir<'a>,
    /// `None`: both names are in the same directory.
    new: Option<Dir<'a>>,
    old_name: &'a [u8],
    new_name: &'a [u8],
    /// What each of the directories lies in; empty where both are one.
    above: (Above<'a>, Above<'a>),
}

/// Moves a name: see [`vfs::FileSystem::rename`].
///
/// Credits: the old place, the new place, four inodes, two `..` entries, and the last name of an
/// inode that is replaced.
pub(crate) fn rename(
    fs: &Ext4,
    cx: &mut Cx,
    old_dir: Ino,
    old_name: &[u8],
    new_dir: Ino,
    new_name: &[u8],
    flags: RenameFlags,
) -> Result<(), Errno> {
    vfs::rename::check_call(old_name, new_name, flags)?;
    let old_inode = fs.iget(cx, old_dir)?;
    if old_dir == new_dir {
        let guard = old_inode.rwsem.write(cx);
        let old = Dir::open(fs, cx, &old_inode)?;
        let above = (Above(&[]), Above(&[]));
        let names = Pair { fs, old, new: None, old_name, new_name, above };
        return move_locked(cx, names, flags, guard, None);
    }
    let new_inode = fs.iget(cx, new_dir)?;
    let _moving = fs.names.rename.lock(cx);
    let above_old = ancestors(fs, cx, &old_inode)?;
    let above_new = ancestors(fs, cx, &new_inode)?;
    let above = (Above(&above_old), Above(&above_new));
    let (old_guard, new_guard);
    if first_locked(above.0, above.1) == Side::Old {
        old_guard = old_inode.rwsem.write(cx);
        new_guard = new_inode.rwsem.write(cx);
    } else {
        new_guard = new_inode.rwsem.write(cx);
        old_guard = old_inode.rwsem.write(cx);
    }
    let old = Dir::open(fs, cx, &old_inode)?;
    let new = Some(Dir::open(fs, cx, &new_inode)?);
    let names = Pair { fs, old, new, old_name, new_name, above };
    move_locked(cx, names, flags, old_guard, Some(new_guard))
}

/// A directory and all above it, up to the root. Under [`crate::ext4::Names::rename`], so that none
/// of them moves meanwhile.
fn ancestors(fs: &Ext4, cx: &mut Cx, inode: &Arc<Inode>) -> Result<Vec<Ino>, Errno> {
    let mut list = vec![inode.ino];
    let mut at = inode.clone();
    let mut mark = (inode.ino, 1usize);
    loop {
        // One that was just removed has no parent any more.
        let guard = at.rwsem.read(cx);
        let parent = Dir::open(fs, cx, &at)?.parent(cx)?;
        if parent == at.ino {
            return Ok(list);
        }
        // In a damaged image the way up may lead in a circle.
        if parent == mark.0 {
            let kind = CorruptKind::DirCircle { ino: parent.0 as u32 };
            return Err(fs.sb.corrupt(cx, &kind.at(At::Inode(at.ino))));
        }
        list.push(parent);
        if list.len() >= 2 * mark.1 {
            mark = (parent, list.len());
        }
        // While it is locked, what it lies in is not removed.
        let above = fs.entry_inode(cx, &at, parent.0 as u32)?;
        drop(guard);
        at = above;
    }
}

impl<'a> Pair<'a> {
    fn new_dir(&self) -> &Dir<'a> {
        self.new.as_ref().unwrap_or(&self.old)
    }

    fn new_dir_mut(&mut self) -> &mut Dir<'a> {
        self.new.as_mut().unwrap_or(&mut self.old)
    }
}

/// What a rename has found.
struct Move {
    /// Where the old name is.
    place: EntryPlace,
    /// What lies behind it.
    behind: Vec<u8>,
    source: Arc<Inode>,
    source_is_dir: bool,
    /// Where the new name is, with its inode, or where it can be put.
    to: Result<(EntryPlace, Arc<Inode>, bool), Slot>,
}

fn look_up(cx: &mut Cx, names: &Pair) -> Result<Move, Errno> {
    let fs = names.fs;
    names.old.inode.check_key()?;
    names.new_dir().inode.check_key()?;
    let place = names.old.find(cx, names.old_name)?.ok_or(Errno::ENOENT)?;
    let source = fs.named_inode(cx, names.old.inode, place.found.ino)?;
    let source_is_dir = source.kind(cx) == FileType::Directory;
    let behind = names.old.behind(&place);
    let to = match names.new_dir().find_or_slot_with(cx, names.new_name, &Behind::of(&behind))? {
        Err(slot) => Err(slot),
        Ok(place) => {
            let inode = fs.named_inode(cx, names.new_dir().inode, place.found.ino)?;
            let is_dir = inode.kind(cx) == FileType::Directory;
            Ok((place, inode, is_dir))
        }
    };
    Ok(Move { place, behind, source, source_is_dir, to })
}

/// The checks of a rename, in the order of the trait.
fn check(cx: &Cx, names: &Pair, found: &Move, flags: RenameFlags) -> Result<(), Errno> {
    let enters = |dir: &Inode, inode: &Inode| {
        dir.check_project(cx, inode)?;
        if context::permits(cx, dir, inode) { Ok(()) } else { Err(Errno::EXDEV) }
    };
    enters(names.new_dir().inode, &found.source)?;
    if let (true, Ok((_, target, _))) = (flags.contains(RenameFlags::EXCHANGE), &found.to) {
        enters(names.old.inode, target)?;
    }
    let source = (found.source.ino, found.source_is_dir);
    let target = found.to.as_ref().ok().map(|(_, inode, is_dir)| (inode.ino, *is_dir));
    match (RenameEntries { source, target, above: names.above }).check(flags)? {
        Some(Side::Old) => check_subdirectories(names.fs, cx, &names.old),
        Some(Side::New) => check_subdirectories(names.fs, cx, names.new_dir()),
        None => Ok(()),
    }
}

/// Whether what the new name pointed at may lose it: an empty directory, and attributes that can be
/// let go of.
fn check_replaced(fs: &Ext4, cx: &mut Cx, inode: &Arc<Inode>, is_dir: bool) -> Result<(), Errno> {
    if !is_dir {
        return check_last_name(fs, cx, inode);
    }
    if !Dir::open(fs, cx, inode)?.is_empty(cx)? {
        return Err(Errno::ENOTEMPTY);
    }
    xattr::check_freeing(&fs.inodes, cx, inode)
}

/// A rename whose directories are locked. The guards go before the rest of a replaced inode is
/// freed.
fn move_locked(
    cx: &mut Cx,
    mut names: Pair,
    flags: RenameFlags,
    old_guard: WriteGuard<()>,
    new_guard: Option<WriteGuard<()>>,
) -> Result<(), Errno> {
    let fs = names.fs;
    let found = look_up(cx, &names)?;
    if let Ok((_, target, _)) = &found.to
        && target.ino == found.source.ino
        && flags != RenameFlags::NOREPLACE
    {
        return Ok(());
    }
    check(cx, &names, &found, flags)?;
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    let Move { source, source_is_dir, .. } = &found;
    let (source, source_is_dir) = (source.clone(), *source_is_dir);
    let replaced = found.to.as_ref().ok().map(|(_, inode, is_dir)| (inode.clone(), *is_dir));

    // Directories among the two, lower number first: each is in a locked directory, neither above.
    let mut children: Vec<&Arc<Inode>> = Vec::new();
    children.extend(source_is_dir.then_some(&source));
    children.extend(replaced.as_ref().and_then(|(inode, is_dir)| is_dir.then_some(inode)));
    children.sort_by_key(|inode| inode.ino);
    for child in &children {
        check_child(fs, cx, names.old.inode, child)?;
        check_child(fs, cx, names.new_dir().inode, child)?;
    }
    let child_guards: Vec<_> = children.iter().map(|inode| inode.rwsem.write(cx)).collect();
    if let (Some((inode, is_dir)), false) = (&replaced, exchange) {
        check_replaced(fs, cx, inode, *is_dir)?;
    }

    if replaced.is_some() && !exchange {
        fs.inodes.place_delayed(cx, &source);
    }
    let place = found.to.as_ref().map_or_else(Slot::credits, |_| 1);
    let mut credits = place + 2 + 2 + 4 * credits::INODE + credits::SUPER + credits::UNLINK;
    let mut whiteout = None;
    if flags.contains(RenameFlags::WHITEOUT) {
        let node = whiteout_of(cx);
        let owners = Owners([node.uid, node.gid, names.old.inode.project_for_new(cx)]);
        whiteout = Some(fs.new_inode_quota(cx, owners, 0)?);
        credits += credits::NEW_INODE + credits::INODE;
    }
    fs.names.cache.remove(names.old.inode.ino, names.old_name);
    fs.names.cache.remove(names.new_dir().inode.ino, names.new_name);
    let plain = !source_is_dir && !exchange && whiteout.is_none();
    let mut handle = rename_handle(fs, cx, credits, plain)?;
    let result = if exchange {
        exchange_in(cx, &mut handle, &mut names, found).map(|()| None)
    } else {
        match whiteout {
            None => replace_in(cx, &mut handle, &mut names, found, None),
            Some(quota) => cover_in(cx, &mut handle, &mut names, found, quota),
        }
    };
    let (old, new) = (names.old.inode, names.new_dir().inode);
    let dir = if wants_sync(cx, new) { new } else { old };
    let leftover = finish(fs, cx, handle, dir, result);
    fs.names.cache.outdate_walks_if(!children.is_empty());
    let leftover = leftover?;
    drop((child_guards, new_guard, old_guard));
    if let (Some(leftover), Some((inode, _))) = (leftover, replaced) {
        evict::finish_unlink(&fs.inodes, cx, &inode, leftover)?;
    }
    Ok(())
}

/// A handle of a rename; fast commits report `plain` ones of files.
fn rename_handle(fs: &Ext4, cx: &mut Cx, credits: u32, plain: bool) -> Result<Handle, Errno> {
    match plain {
        true => fs.sb.journal_start_tracked(cx, credits),
        false => fs.sb.journal_start(cx, credits),
    }
}

/// The whiteout that the caller leaves.
fn whiteout_of(cx: &Cx) -> NewNode<'static> {
    NewNode::whiteout().owner(cx.cred().uid, cx.cred().gid)
}

/// As [`replace_in`], with a new whiteout under the old name.
fn cover_in(
    cx: &mut Cx,
    handle: &mut Handle,
    names: &mut Pair,
    found: Move,
    quota: Option<Box<InodeQuota>>,
) -> Result<Leftover, Errno> {
    let (fs, dir, node) = (names.fs, names.old.inode, whiteout_of(cx));
    let inode = fs.inodes.new_inode(cx, handle, dir, &new_node(&node), quota)?;
    let filled = fill(fs, cx, handle, dir, &inode, &node, false);
    let target = Target::of(cx, &inode);
    match filled.and_then(|()| replace_in(cx, handle, names, found, Some(target))) {
        Ok(leftover) => Ok(leftover),
        Err(errno) => {
            fs.inodes.drop_new_inode(cx, handle, &inode)?;
            Err(errno)
        }
    }
}

/// Gives the source its new name, takes the old one away, or lets it lead to `cover`, and drops
/// what the new name pointed at.
fn replace_in(
    cx: &mut Cx,
    handle: &mut Handle,
    names: &mut Pair,
    found: Move,
    cover: Option<Target>,
) -> Result<Leftover, Errno> {
    let fs = names.fs;
    let Move { source, source_is_dir, place, behind, to } = found;
    let target = Target::of(cx, &source);
    let crossing = names.new.is_some();
    let replaced = match to {
        Ok((new_place, inode, is_dir)) => {
            names.new_dir().replace(cx, handle, &new_place, target)?;
            names.new_dir().put_behind(cx, handle, &new_place, &behind)?;
            Some((inode, is_dir))
        }
        Err(slot) => {
            let (new_name, behind) = (names.new_name, Behind::of(&behind));
            names.new_dir_mut().add_with(cx, handle, slot, new_name, target, &behind)?;
            None
        }
    };
    let now = fs.sb.now(cx);
    source.with(cx, |core| core.ctime = now);
    fs.inodes.mark_dirty(cx, handle, &source)?;
    let place = if crossing {
        place
    } else {
        // The new name may have moved the old one, or lie before it now.
        names.old.find(cx, names.old_name)?.ok_or(Errno::EFSCORRUPTED)?
    };
    match cover {
        Some(cover) => names.old.replace(cx, handle, &place, cover)?,
        None => names.old.remove(cx, handle, &place)?,
    }
    let replaced_dir = replaced.as_ref().is_some_and(|(_, is_dir)| *is_dir);
    if source_is_dir && crossing {
        Dir::open(fs, cx, &source)?.set_parent(cx, handle, names.new_dir().inode.ino)?;
        drop_subdirectory(cx, names.old.inode);
        if !replaced_dir {
            add_subdirectory(cx, names.new_dir());
        }
    } else if replaced_dir {
        drop_subdirectory(cx, names.old.inode);
    }
    let dropped = replaced.as_ref().map(|(inode, _)| inode.clone());
    let leftover = match replaced {
        Some((inode, true)) => drop_directory(fs, cx, handle, &inode)?,
        Some((inode, false)) => drop_name(fs, cx, handle, &inode)?,
        None => None,
    };
    touch_both(cx, handle, names)?;
    if let Some(inode) = &dropped {
        names.new_dir().track_name(cx, handle, inode, Change::Go(names.new_name));
    }
    names.new_dir().track_name(cx, handle, &source, Change::Come(names.new_name));
    names.old.track_name(cx, handle, &source, Change::Go(names.old_name));
    Ok(leftover)
}

/// Lets two names change places.
fn exchange_in(
    cx: &mut Cx,
    handle: &mut Handle,
    names: &mut Pair,
    found: Move,
) -> Result<(), Errno> {
    let fs = names.fs;
    let (new_place, other, other_is_dir) = found.to.map_err(|_| Errno::ENOENT)?;
    let (source, source_is_dir) = (found.source, found.source_is_dir);
    let (to_new, to_old) = (Target::of(cx, &source), Target::of(cx, &other));
    let behind = [found.behind, names.new_dir().behind(&new_place)];
    names.new_dir().replace(cx, handle, &new_place, to_new)?;
    names.old.replace(cx, handle, &found.place, to_old)?;
    names.new_dir().put_behind(cx, handle, &new_place, &behind[0])?;
    names.old.put_behind(cx, handle, &found.place, &behind[1])?;
    let now = fs.sb.now(cx);
    for inode in [&source, &other] {
        inode.with(cx, |core| core.ctime = now);
        fs.inodes.mark_dirty(cx, handle, inode)?;
    }
    if names.new.is_some() {
        let (old_dir, new_dir) = (&names.old, names.new_dir());
        if source_is_dir {
            Dir::open(fs, cx, &source)?.set_parent(cx, handle, new_dir.inode.ino)?;
        }
        if other_is_dir {
            Dir::open(fs, cx, &other)?.set_parent(cx, handle, old_dir.inode.ino)?;
        }
        match (source_is_dir, other_is_dir) {
            (true, false) => {
                drop_subdirectory(cx, old_dir.inode);
                add_subdirectory(cx, new_dir);
            }
            (false, true) => {
                drop_subdirectory(cx, new_dir.inode);
                add_subdirectory(cx, old_dir);
            }
            _ => {}
        }
    }
    touch_both(cx, handle, names)
}

/// Sets the times of both directories and writes them.
fn touch_both(cx: &mut Cx, handle: &mut Handle, names: &Pair) -> Result<(), Errno> {
    names.fs.touch_dir(cx, handle, names.old.inode)?;
    match &names.new {
        Some(new) => names.fs.touch_dir(cx, handle, new.inode),
        None => Ok(()),
    }
}
