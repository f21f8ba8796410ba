//! Parent pointers: for each name of an inode an attribute that says which directory has the name.
//!
//! The attribute has the dirent's name; its value is the directory's number and generation. It
//! changes in the transaction that changes the name, so that no intent is needed: the log holds
//! both or neither. (The kernel logs an intent first, and leaves it out of a checkpoint that holds
//! what it announces.)
//!
//! Source: "XFS Algorithms and Data Structures"; images of mkfs.xfs 7.2, `xfs_db`.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;
use vfs::FileType;

use super::fork::AttrEdit;
use super::write::{blocks_for, edit_fork, read_forks};
use super::{Attrs, Name, ParentValue};
use crate::Xfs;
use crate::alloc::Space;
use crate::bmap::{Fork, Forks};
use crate::error::Fault;
use crate::format::attr::{
    AttrFlags, NAMESPACE, PARENT_VALUE, SF_HEADER, SfAttr, emit_sf, parse_sf, sf_size,
};
use crate::format::attr_leaf::Value;
use crate::format::inode::{CORE_SIZE, ForkFormat};
use crate::format::{At, Corrupt, CorruptKind, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::inode::Inode;
use crate::trans::intent::ParentChange;
use crate::trans::{Trans, reservations};
use crate::uncached::UncachedInode;

/// Units of eight bytes that the data fork has in a new inode, and in that of a device.
const BORDER: (u8, u8) = (24, 1);
/// Bytes of the data fork in a new inode.
pub(crate) const DATA_ROOM: usize = 8 * BORDER.0 as usize;
/// Bytes of an entry in the inode without its name.
pub(super) const SMALL: usize = 3 + PARENT_VALUE;

/// One name of an inode.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ParentPointer {
    /// The directory.
    pub dir: Ino,
    /// The directory's generation.
    pub generation: u32,
    /// The name in it.
    pub name: Vec<u8>,
}

impl ParentPointer {
    /// The pointer in an attribute; none for one that is not well-formed.
    pub(crate) fn of_attribute(name: &[u8], value: &[u8]) -> Option<ParentPointer> {
        let fits = value.len() == PARENT_VALUE && (1..=vfs::NAME_MAX).contains(&name.len());
        fits.then(|| ParentPointer {
            dir: Ino(u64_at(value, 0)),
            generation: u32_at(value, 8),
            name: name.to_vec(),
        })
    }

    fn value(&self) -> ParentValue {
        let mut value = [0; PARENT_VALUE];
        put_u64(&mut value, 0, self.dir.0);
        put_u32(&mut value, 8, self.generation);
        value
    }

    fn attribute(self) -> Name {
        let parent = Some(self.value());
        Name { space: AttrFlags::PARENT, rest: self.name, parent }
    }
}

/// A name in a directory, which is in memory.
#[derive(Clone, Copy)]
pub(crate) struct NameIn<'a> {
    pub dir: &'a Inode,
    pub name: &'a [u8],
}

impl NameIn<'_> {
    fn pointer_to(&self, cx: &Cx) -> ParentPointer {
        let generation = self.dir.with(cx, |state| state.core.generation);
        ParentPointer { dir: self.dir.ino, generation, name: self.name.to_vec() }
    }
}

/// What the parent pointers of an operation take beside its names.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Room {
    /// Blocks.
    pub blocks: u64,
    /// Bytes of the log.
    pub bytes: u32,
}

impl std::ops::Add for Room {
    type Output = Room;

    fn add(self, other: Room) -> Room {
        Room { blocks: self.blocks + other.blocks, bytes: self.bytes + other.bytes }
    }
}

/// True if the attributes, which lie in the inode, are parent pointers alone.
pub(super) fn has_nothing_else(forks: &Forks) -> bool {
    let attr = &forks.attr;
    attr.format == ForkFormat::Local
        && parse_sf(&attr.bytes, At::Inode(Ino(0)))
            .is_ok_and(|list| list.iter().all(|attr| attr.flags & NAMESPACE == AttrFlags::PARENT))
}

/// Whether the data fork of an inode holds a device number, or nothing in its place.
pub(crate) fn is_device(kind: FileType) -> bool {
    !matches!(kind, FileType::Regular | FileType::Directory | FileType::Symlink)
}

/// Bytes of attributes in a new inode.
fn new_room(inode_size: u32, device: bool) -> usize {
    let border = if device { BORDER.1 } else { BORDER.0 };
    inode_size as usize - CORE_SIZE - 8 * usize::from(border)
}

/// Whether a new inode has room for the pointer of this name.
pub(crate) fn fits_new(inode_size: u32, device: bool, name: &[u8]) -> bool {
    SF_HEADER + SMALL + name.len() <= new_room(inode_size, device)
}

/// The border and the attribute fork of a new inode: with its pointer, if that fits. False if it
/// is to be set by [`change`] later.
pub(crate) fn new_fork(
    cx: &Cx,
    inode_size: u32,
    device: bool,
    name: Option<NameIn<'_>>,
) -> (u8, Fork, bool) {
    let border = if device { BORDER.1 } else { BORDER.0 };
    let room = new_room(inode_size, device);
    let Some(name) = name else { return (border, Fork::empty(room), true) };
    let pointer = name.pointer_to(cx);
    let (flags, value) = (AttrFlags::PARENT, pointer.value());
    let small = [SfAttr { flags, name: &pointer.name, value: &value }];
    if sf_size(small.iter()) > room {
        return (border, Fork::empty(room), false);
    }
    let mut bytes = vec![0; room];
    emit_sf(&mut bytes, &small);
    (border, Fork::new(ForkFormat::Local, bytes, 0), true)
}

/// What changing a pointer of an inode may take: nothing where the inode has room for it, or,
/// without a new name, where its pointers lie there. The caller holds the inode's `rwsem`
/// for writing. May park.
///
/// # Errors
/// A map that cannot be read.
pub(crate) fn parent_room(
    fs: &Xfs,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    new_name: Option<&[u8]>,
) -> Result<Room, Errno> {
    if !fs.geometry().features.parent() {
        return Ok(Room::default());
    }
    let forkoff = inode.with(cx, |state| state.core.forkoff);
    let fits = {
        let attr = &inode.forks.read(cx).attr;
        let used = match attr.format {
            ForkFormat::Local => Some(usize::from(u16_at(&attr.bytes, 0))),
            ForkFormat::Extents if attr.count == 0 => Some(SF_HEADER),
            _ => None,
        };
        let more = new_name.map_or(0, |name| SMALL + name.len());
        forkoff != 0 && used.is_some_and(|used| used + more <= attr.room())
    };
    if fits {
        return Ok(Room::default());
    }
    read_forks(fs, cx, inode)?;
    Ok(largest_parent_room(fs))
}

/// What changing a pointer may take at the most.
pub(crate) fn largest_parent_room(fs: &Xfs) -> Room {
    let bytes = reservations::attribute(fs.geometry(), PARENT_VALUE as u64);
    Room { blocks: blocks_for(fs, PARENT_VALUE), bytes }
}

/// Takes a pointer from an inode that the transaction has joined, gives it one, or both; the
/// caller logs it afterwards with both forks. A pointer that is not there is none to take.
pub(crate) fn change_parent(
    fs: &Xfs,
    cx: &mut Cx,
    trans: &mut Trans,
    inode: &Inode,
    old: Option<NameIn<'_>>,
    new: Option<NameIn<'_>>,
) -> crate::Result<()> {
    if !fs.geometry().features.parent() {
        return Ok(());
    }
    let [old, new] = [old, new].map(|name| name.map(|name| name.pointer_to(cx)));
    edit_fork(fs, cx, trans, inode, |cx, edit| change_pointer(cx, edit, old, new))
}

/// The names of an inode, as its parent pointers say; none where the file system has none.
pub(crate) fn parents_of(
    fs: &Xfs,
    cx: &mut Cx,
    ino: Ino,
) -> Result<Option<Vec<ParentPointer>>, Errno> {
    if !fs.geometry().features.parent() {
        return Ok(None);
    }
    let inode = fs.iget(cx, ino)?;
    let guard = inode.lock_shared(cx)?;
    let list = Attrs { fs, inode: &inode }.parent_pointers(cx);
    drop(guard);
    list.map(Some).map_err(|fault| fs.fault(fault))
}

/// Changes a pointer as an intent in the log asks for; the caller stores and logs the inode.
///
/// # Errors
/// A value that is not that of a pointer; as any change of attributes.
pub(crate) fn recover(
    cx: &mut Cx,
    space: &Space,
    trans: &mut Trans,
    inode: &mut UncachedInode,
    forks: &mut Forks,
    change: &ParentChange,
) -> crate::Result<()> {
    let at = At::Inode(inode.ino);
    let pointer = |pair: &Option<(Vec<u8>, Vec<u8>)>| -> Result<Option<ParentPointer>, Corrupt> {
        let Some((name, value)) = pair else { return Ok(None) };
        let kind = CorruptKind::ParentPointer { name: name.len(), value: value.len() };
        ParentPointer::of_attribute(name, value).map(Some).ok_or_else(|| kind.at(at))
    };
    let (old, new) = (pointer(&change.old)?, pointer(&change.new)?);
    let core = &mut inode.core;
    let mut edit = AttrEdit { space, trans, ino: inode.ino, core, forks };
    change_pointer(cx, &mut edit, old, new)
}

/// Takes a pointer away, gives one, or both.
fn change_pointer(
    cx: &mut Cx,
    edit: &mut AttrEdit<'_>,
    old: Option<ParentPointer>,
    new: Option<ParentPointer>,
) -> crate::Result<()> {
    let old = old.map(ParentPointer::attribute);
    let new = new.map(|new| (new.value(), new.attribute()));
    match (old, new) {
        (Some(old), Some((value, new))) => edit.replace(cx, &old, &new, &value),
        (Some(old), None) => edit.set(cx, &old, None),
        (None, Some((value, new))) => edit.set(cx, &new, Some(&value)),
        (None, None) => Ok(()),
    }
}

impl Attrs<'_> {
    fn parent_pointers(&self, cx: &mut Cx) -> Result<Vec<ParentPointer>, Fault> {
        let wanted = |flags: AttrFlags| {
            flags & NAMESPACE == AttrFlags::PARENT && !flags.contains(AttrFlags::INCOMPLETE)
        };
        let mut list = Vec::new();
        match self.format(cx) {
            None => {}
            Some(ForkFormat::Local) => {
                let forks = self.inode.forks.read(cx);
                let attrs = parse_sf(&forks.attr.bytes, At::Inode(self.inode.ino))?;
                let ours = attrs.iter().filter(|attr| wanted(attr.flags));
                list.extend(
                    ours.filter_map(|attr| ParentPointer::of_attribute(attr.name, attr.value)),
                );
            }
            Some(_) => self.visit_leaves(cx, 0, &mut |attr| {
                if let (true, Value::Local(value)) = (wanted(attr.flags), attr.value) {
                    list.extend(ParentPointer::of_attribute(attr.name, value));
                }
                true
            })?,
        }
        list.sort();
        Ok(list)
    }
}
