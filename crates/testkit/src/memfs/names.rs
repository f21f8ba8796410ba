//! The names of a directory, and rename.

use std::collections::BTreeMap;

use base::{Errno, Ino, Timespec};
use rt::Cred;
use vfs::{NewNode, RenameFlags, check_name};

use super::{Body, Node, State};

/// Names with the position at which listings show them. Positions are never reused; 1 and 2 are `.`
/// and `..`.
#[derive(Default)]
pub struct Names {
    by_name: BTreeMap<Vec<u8>, (u64, Ino)>,
    last: u64,
}

impl Names {
    pub fn get(&self, name: &[u8]) -> Option<Ino> {
        self.by_name.get(name).map(|&(_, ino)| ino)
    }

    /// Adds a name, or lets an existing one lead to another inode without moving it.
    pub fn insert(&mut self, name: &[u8], ino: Ino) {
        match self.by_name.get_mut(name) {
            Some(entry) => entry.1 = ino,
            None => {
                self.last = self.last.max(2) + 1;
                self.by_name.insert(name.to_vec(), (self.last, ino));
            }
        }
    }

    pub fn remove(&mut self, name: &[u8]) {
        self.by_name.remove(name);
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// What a listing shows after position `cookie`, in order.
    pub fn after(&self, cookie: u64) -> Vec<(u64, Vec<u8>, Ino)> {
        let later = self.by_name.iter().filter(|(_, (at, _))| *at > cookie);
        let mut list: Vec<_> = later.map(|(name, &(at, ino))| (at, name.clone(), ino)).collect();
        list.sort();
        list
    }
}

type EntryName<'a> = (Ino, &'a [u8]);

/// rename(2) and renameat2(2), with the checks in the order of [`vfs::FileSystem::rename`].
pub fn rename(
    state: &mut State,
    old: EntryName,
    new: EntryName,
    flags: RenameFlags,
    (now, cred): (Timespec, &Cred),
) -> Result<(), Errno> {
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    let unknown = flags.bits() & !RenameFlags::all().bits() != 0;
    if unknown || (exchange && flags != RenameFlags::EXCHANGE) {
        return Err(Errno::EINVAL);
    }
    for (dir, name) in [old, new] {
        if !state.node(dir)?.attr.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        if name == b"." || name == b".." {
            return Err(Errno::EBUSY);
        }
        check_name(name)?;
    }
    let source = state.find(old.0, old.1)?;
    let target = match state.find(new.0, new.1) {
        Ok(ino) => Some(ino),
        Err(Errno::ENOENT) if !exchange => None,
        Err(error) => return Err(error),
    };
    if target.is_some() && flags.contains(RenameFlags::NOREPLACE) {
        return Err(Errno::EEXIST);
    }
    let source_dir = state.is_dir(source);
    if source_dir && state.holds(source, new.0) {
        return Err(Errno::EINVAL);
    }
    if target.is_some_and(|ino| state.is_dir(ino) && state.holds(ino, old.0)) {
        return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
    }
    if target == Some(source) {
        return Ok(());
    }
    if state.node(new.0)?.attr.nlink == 0 {
        return Err(Errno::ENOENT);
    }
    let moved = i32::from(source_dir);
    match target {
        Some(target) if exchange => {
            put(state, old, target, now)?;
            let back = i32::from(state.is_dir(target));
            state.touch_dir(old.0, now, back);
            state.touch_dir(new.0, now, -back);
        }
        Some(target) => {
            may_replace(state, source_dir, target)?;
            state.touch_dir(new.0, now, -moved);
            state.node(old.0)?.names()?.remove(old.1);
            state.drop_link(target, now);
        }
        None => state.node(old.0)?.names()?.remove(old.1),
    }
    put(state, new, source, now)?;
    state.touch_dir(old.0, now, -moved);
    state.touch_dir(new.0, now, moved);
    if flags.contains(RenameFlags::WHITEOUT) {
        let ino = state.number();
        let whiteout = NewNode::whiteout().owner(cred.uid, cred.gid);
        state.nodes.insert(ino, Node::new(ino, &whiteout, now, Body::Other));
        state.node(old.0)?.names()?.insert(old.1, ino);
    }
    Ok(())
}

/// May `target` give way to something that is a directory, or is not?
fn may_replace(state: &State, source_dir: bool, target: Ino) -> Result<(), Errno> {
    match (source_dir, state.is_dir(target)) {
        (true, false) => Err(Errno::ENOTDIR),
        (false, true) => Err(Errno::EISDIR),
        (true, true) if !state.is_empty(target) => Err(Errno::ENOTEMPTY),
        _ => Ok(()),
    }
}

/// Lets a name lead to `ino`, whose `..` follows.
fn put(state: &mut State, place: EntryName, ino: Ino, now: Timespec) -> Result<(), Errno> {
    state.node(place.0)?.names()?.insert(place.1, ino);
    let node = state.node(ino)?;
    node.attr.ctime = now;
    if let Body::Dir { parent, .. } = &mut node.body {
        *parent = place.0;
    }
    Ok(())
}
