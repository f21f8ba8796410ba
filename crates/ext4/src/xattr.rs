//! Extended attributes: in the rest of the inode where they fit, else in a block, which inodes with
//! equal attributes share.
//!
//! Locks: `Inode::xattr_lock` for the attributes of one inode, inside a handle when they change;
//! then [`crate::namei::Names::xattr_blocks`] while references to blocks change.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Errno, Ino};
use cache::BufferRef;
use rt::Cx;
use vfs::{NewNode, XattrFlags};

use crate::Ext4;
use crate::acl;
use crate::credits;
use crate::ext4_jbd2::Handle;
use crate::format::inode::BASE_SIZE;
use crate::format::xattr::{self as area, Place, Xattr};
use crate::format::{At, CorruptKind};
use crate::inode::Inode;

mod block;

pub(crate) use block::SharedBlocks;

/// Blocks that setting an attribute changes at most: the inode, the old block and the new one, and
/// taking and giving back a block.
pub(crate) const CREDITS: u32 = credits::INODE + 2 + 2 * credits::GROUP + credits::SUPER;

/// The numbers of the prefixes. ACL attributes have a number of their own and no name behind it.
const PREFIXES: [(&[u8], u8); 4] =
    [(b"user.", 1), (b"trusted.", 4), (b"security.", 6), (b"system.", 7)];
/// The number of the access ACL.
pub(crate) const ACL_ACCESS: u8 = 2;
/// The number of the default ACL.
pub(crate) const ACL_DEFAULT: u8 = 3;

/// An attribute's name as the disk has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name<'a> {
    /// Number of the prefix.
    pub index: u8,
    /// What follows the prefix; empty for the ACLs.
    pub rest: &'a [u8],
}

impl<'a> Name<'a> {
    /// The access ACL.
    pub(crate) const ACCESS: Name<'static> = Name { index: ACL_ACCESS, rest: b"" };
    /// The default ACL.
    pub(crate) const DEFAULT: Name<'static> = Name { index: ACL_DEFAULT, rest: b"" };

    /// Takes a name with its prefix apart.
    ///
    /// # Errors
    /// `ERANGE` too long; `EOPNOTSUPP` unknown prefix; `EINVAL` nothing behind it.
    fn parse(name: &'a [u8]) -> Result<Name<'a>, Errno> {
        if name.len() > vfs::XATTR_NAME_MAX {
            return Err(Errno::ERANGE);
        }
        if name == vfs::acl::ACCESS {
            return Ok(Name::ACCESS);
        }
        if name == vfs::acl::DEFAULT {
            return Ok(Name::DEFAULT);
        }
        for (prefix, index) in PREFIXES {
            if let Some(rest) = name.strip_prefix(prefix) {
                return if rest.is_empty() { Err(Errno::EINVAL) } else { Ok(Name { index, rest }) };
            }
        }
        Err(Errno::EOPNOTSUPP)
    }

    /// The name with its prefix; `None` for numbers that have none.
    fn full(self) -> Option<Vec<u8>> {
        match self.index {
            ACL_ACCESS => Some(vfs::acl::ACCESS.to_vec()),
            ACL_DEFAULT => Some(vfs::acl::DEFAULT.to_vec()),
            index => {
                let (prefix, _) = PREFIXES.iter().find(|(_, number)| *number == index)?;
                Some([*prefix, self.rest].concat())
            }
        }
    }

    fn is(&self, entry: &area::Entry) -> bool {
        entry.name_index == self.index && entry.name == self.rest
    }

    fn is_acl(&self) -> bool {
        matches!(self.index, ACL_ACCESS | ACL_DEFAULT)
    }
}

/// Reads an attribute: see [`vfs::FileSystem::getxattr`].
pub(crate) fn get(fs: &Ext4, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let name = Name::parse(name)?;
    let inode = fs.iget(cx, ino)?;
    let value = read(fs, cx, &inode, name)?.ok_or(Errno::ENODATA)?;
    if name.is_acl() { acl::to_wire(&value) } else { Ok(value) }
}

/// The value of an attribute as the disk has it.
pub(crate) fn read(
    fs: &Ext4,
    cx: &mut Cx,
    inode: &Inode,
    name: Name,
) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = None;
    visit(fs, cx, inode, &mut |entry| {
        if value.is_none() && name.is(entry) {
            value = Some(entry.value.to_vec());
        }
    })?;
    Ok(value)
}

/// The names of all attributes: see [`vfs::FileSystem::listxattr`].
pub(crate) fn list(fs: &Ext4, cx: &mut Cx, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
    let inode = fs.iget(cx, ino)?;
    let mut names = Vec::new();
    visit(fs, cx, &inode, &mut |entry| {
        names.extend(Name { index: entry.name_index, rest: entry.name }.full());
    })?;
    Ok(names)
}

/// Where an inode's attributes are.
struct Area {
    buffer: BufferRef,
    /// Bytes of the buffer that are the area in the inode.
    range: std::ops::Range<usize>,
}

/// The area in the inode; `None` where inodes have no room for one.
fn inode_area(fs: &Ext4, cx: &mut Cx, inode: &Inode) -> Result<Option<Area>, Errno> {
    let size = fs.geometry.inode_size as usize;
    let extra = usize::from(inode.with(cx, |core| core.extra_isize));
    if size == BASE_SIZE || extra == 0 || BASE_SIZE + extra + 8 > size {
        return Ok(None);
    }
    let (buffer, offset) = fs.inode_slot(cx, inode.ino)?;
    Ok(Some(Area { buffer, range: offset + BASE_SIZE + extra..offset + size }))
}

/// Shows all attributes of an inode to `look`, first those in the inode.
fn visit(
    fs: &Ext4,
    cx: &mut Cx,
    inode: &Inode,
    look: &mut dyn FnMut(&area::Entry),
) -> Result<(), Errno> {
    let _guard = inode.xattr_lock.lock(cx);
    if inode.with(cx, |core| core.dead) {
        return Err(Errno::ESTALE);
    }
    visit_locked(fs, cx, inode, look)
}

fn visit_locked(
    fs: &Ext4,
    cx: &mut Cx,
    inode: &Inode,
    look: &mut dyn FnMut(&area::Entry),
) -> Result<(), Errno> {
    // A new inode's slot may hold what an earlier one left there.
    let fresh = inode.with(cx, |core| core.fresh);
    if let Some(area) = inode_area(fs, cx, inode)?.filter(|_| !fresh) {
        let seen = area.buffer.with(|data| walk(&data[area.range.clone()], Place::Inode, look));
        seen.map_err(|kind| fs.corrupt(cx, &kind.at(At::Inode(inode.ino))))?;
    }
    let block = inode.with(cx, |core| core.file_acl);
    if block != 0 {
        let buffer = block::read(fs, cx, inode, block)?;
        let seen = buffer.with(|data| walk(data, Place::Block, look));
        seen.map_err(|kind| fs.corrupt(cx, &kind.at(At::Block(inode.ino, block))))?;
    }
    Ok(())
}

fn walk(bytes: &[u8], place: Place, look: &mut dyn FnMut(&area::Entry)) -> Result<(), CorruptKind> {
    for entry in area::entries(bytes, place)? {
        look(&entry?);
    }
    Ok(())
}

/// Sets an attribute: see [`vfs::FileSystem::setxattr`].
///
/// Credits: [`CREDITS`].
pub(crate) fn set(
    fs: &Ext4,
    cx: &mut Cx,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    flags: XattrFlags,
) -> Result<(), Errno> {
    let name = Name::parse(name)?;
    if value.len() > vfs::XATTR_SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    let inode = fs.iget(cx, ino)?;
    if name.is_acl() {
        return acl::set(fs, cx, &inode, name, Some(value), flags);
    }
    change(fs, cx, &inode, name, Some(value), flags)
}

/// Removes an attribute: see [`vfs::FileSystem::removexattr`].
///
/// Credits: [`CREDITS`].
pub(crate) fn remove(fs: &Ext4, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<(), Errno> {
    let name = Name::parse(name)?;
    let inode = fs.iget(cx, ino)?;
    if name.is_acl() {
        return acl::set(fs, cx, &inode, name, None, XattrFlags::empty());
    }
    change(fs, cx, &inode, name, None, XattrFlags::REPLACE)
}

/// Sets or removes an attribute in a handle of its own.
fn change(
    fs: &Ext4,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    name: Name,
    value: Option<&[u8]>,
    flags: XattrFlags,
) -> Result<(), Errno> {
    let mut handle = fs.journal_start(cx, CREDITS)?;
    expand_extra(fs, cx, &mut handle, inode)?;
    let result = set_in(fs, cx, &mut handle, inode, name, value, flags).and_then(|changed| {
        let now = fs.now(cx);
        if changed {
            inode.with(cx, |core| core.ctime = now);
            fs.mark_inode_dirty(cx, &mut handle, inode)?;
        }
        Ok(())
    });
    let stopped = handle.stop(cx);
    result?;
    stopped
}

/// Sets or removes (`None`) an attribute as part of `handle`: [`CREDITS`]. Answers whether anything
/// changed; the caller then writes the inode.
///
/// # Errors
/// `EEXIST`, `ENODATA` by `flags`; `ENOSPC` it fits neither the inode nor a block, or no block is
/// free; `EUCLEAN`, `EIO`.
pub(crate) fn set_in(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Arc<Inode>,
    name: Name,
    value: Option<&[u8]>,
    flags: XattrFlags,
) -> Result<bool, Errno> {
    let _guard = inode.xattr_lock.lock(cx);
    if inode.with(cx, |core| core.dead) {
        return Err(Errno::ESTALE);
    }
    write_fresh(fs, cx, handle, inode)?;
    let (mut inside, mut outside) = load(fs, cx, inode)?;
    let same = |x: &Xattr| x.name_index == name.index && x.name == name.rest;
    let old = inside.iter().chain(&outside).find(|x| same(x));
    match old {
        Some(_) if flags.contains(XattrFlags::CREATE) => return Err(Errno::EEXIST),
        None if flags.contains(XattrFlags::REPLACE) => return Err(Errno::ENODATA),
        None if value.is_none() => return Ok(false),
        Some(old) if value == Some(&old.value) => return Ok(true),
        _ => {}
    }
    let was_outside = outside.iter().any(same);
    inside.retain(|x| !same(x));
    outside.retain(|x| !same(x));
    let mut change_outside = was_outside;
    if let Some(value) = value {
        let new = Xattr { name_index: name.index, name: name.rest.to_vec(), value: value.to_vec() };
        let room = inode_area(fs, cx, inode)?.map_or(0, |area| area.range.len());
        inside.push(new);
        if area::space(&inside, Place::Inode) > room {
            outside.extend(inside.pop());
            change_outside = true;
        }
        if change_outside && area::space(&outside, Place::Block) > fs.geometry.block_size as usize {
            return Err(Errno::ENOSPC);
        }
    }
    // The block first: only there space can run out.
    if change_outside {
        block::replace(fs, cx, handle, inode, &outside)?;
    }
    store_inside(fs, cx, handle, inode, &inside)?;
    Ok(true)
}

/// The attributes of a new inode as the disk has them, and its mode, which an access ACL sets.
///
/// # Errors
/// As [`set`]; `EEXIST` a name is given twice.
pub(crate) fn of_new(
    node: &NewNode,
    attributes: &[(&[u8], Vec<u8>)],
) -> Result<(Vec<Xattr>, u16), Errno> {
    let mut list: Vec<Xattr> = Vec::with_capacity(attributes.len());
    let mut mode = node.mode;
    for (name, value) in attributes {
        let name = Name::parse(name)?;
        if value.len() > vfs::XATTR_SIZE_MAX {
            return Err(Errno::E2BIG);
        }
        let value = match name.is_acl() {
            false => Some(value.clone()),
            true => {
                let (stored, bits) = acl::of_new(node.kind, name, value)?;
                mode = bits.map_or(mode, |bits| mode & !0o777 | bits);
                stored
            }
        };
        if list.iter().any(|x| x.name_index == name.index && x.name == name.rest) {
            return Err(Errno::EEXIST);
        }
        let new = |value| Xattr { name_index: name.index, name: name.rest.to_vec(), value };
        list.extend(value.map(new));
    }
    Ok((list, mode))
}

/// Gives a new inode its attributes, all at once, as part of the handle that makes it:
/// [`CREDITS`].
///
/// # Errors
/// `ENOSPC`, `EDQUOT`; `EUCLEAN`, `EIO`.
pub(crate) fn init(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Arc<Inode>,
    list: &[Xattr],
) -> Result<(), Errno> {
    let _guard = inode.xattr_lock.lock(cx);
    write_fresh(fs, cx, handle, inode)?;
    let room = inode_area(fs, cx, inode)?.map_or(0, |area| area.range.len());
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for new in list {
        inside.push(new.clone());
        if area::space(&inside, Place::Inode) > room {
            outside.extend(inside.pop());
        }
    }
    if area::space(&outside, Place::Block) > fs.geometry.block_size as usize {
        return Err(Errno::ENOSPC);
    }
    if !outside.is_empty() {
        block::replace(fs, cx, handle, inode, &outside)?;
    }
    store_inside(fs, cx, handle, inode, &inside)?;
    fs.mark_inode_dirty(cx, handle, inode)
}

/// Gives a new inode its slot before attributes are put behind it.
fn write_fresh(fs: &Ext4, cx: &mut Cx, handle: &mut Handle, inode: &Inode) -> Result<(), Errno> {
    if inode.with(cx, |core| core.fresh) { fs.mark_inode_dirty(cx, handle, inode) } else { Ok(()) }
}

/// All attributes: those in the inode and those in the block.
fn load(fs: &Ext4, cx: &mut Cx, inode: &Inode) -> Result<(Vec<Xattr>, Vec<Xattr>), Errno> {
    let own = |entry: &area::Entry| Xattr {
        name_index: entry.name_index,
        name: entry.name.to_vec(),
        value: entry.value.to_vec(),
    };
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    if let Some(area) = inode_area(fs, cx, inode)? {
        let seen = area.buffer.with(|data| {
            let bytes = &data[area.range.clone()];
            walk(bytes, Place::Inode, &mut |entry| inside.push(own(entry)))
        });
        seen.map_err(|kind| fs.corrupt(cx, &kind.at(At::Inode(inode.ino))))?;
    }
    let block = inode.with(cx, |core| core.file_acl);
    if block != 0 {
        let buffer = block::read(fs, cx, inode, block)?;
        let seen =
            buffer.with(|data| walk(data, Place::Block, &mut |entry| outside.push(own(entry))));
        seen.map_err(|kind| fs.corrupt(cx, &kind.at(At::Block(inode.ino, block))))?;
    }
    Ok((inside, outside))
}

/// Writes the attributes in the inode. The caller writes the inode afterwards, with its checksum.
fn store_inside(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Inode,
    list: &[Xattr],
) -> Result<(), Errno> {
    let Some(area) = inode_area(fs, cx, inode)? else { return Ok(()) };
    handle.write_access(cx, &area.buffer)?;
    let range = area.range.clone();
    let fits = area.buffer.with_mut(|data| area::emit(&mut data[range], Place::Inode, list));
    assert!(fits, "the space in the inode was counted before");
    handle.dirty(cx, &area.buffer)
}

/// Makes room for the extra fields that the superblock wants in new inodes, where the attributes
/// leave it: an inode from an older system then gets times of nanoseconds and beyond 2038. The
/// caller writes the inode.
///
/// # Errors
/// `EUCLEAN`, `EIO`.
pub(crate) fn expand_extra(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Inode,
) -> Result<(), Errno> {
    let size = fs.geometry.inode_size as usize;
    let want = fs.geometry.want_extra_isize;
    if inode.with(cx, |core| core.fresh || core.extra_isize >= want)
        || BASE_SIZE + usize::from(want) > size
    {
        return Ok(());
    }
    let _guard = inode.xattr_lock.lock(cx);
    if inode.with(cx, |core| core.dead) {
        return Ok(());
    }
    let mut inside = Vec::new();
    if let Some(area) = inode_area(fs, cx, inode)? {
        let seen = area.buffer.with(|data| {
            walk(&data[area.range.clone()], Place::Inode, &mut |entry| {
                inside.push(Xattr {
                    name_index: entry.name_index,
                    name: entry.name.to_vec(),
                    value: entry.value.to_vec(),
                });
            })
        });
        seen.map_err(|kind| fs.corrupt(cx, &kind.at(At::Inode(inode.ino))))?;
    }
    let room = size - BASE_SIZE - usize::from(want);
    if !inside.is_empty() && area::space(&inside, Place::Inode) > room {
        return Ok(());
    }
    let (buffer, offset) = fs.inode_slot(cx, inode.ino)?;
    handle.write_access(cx, &buffer)?;
    let old = inode.with(cx, |core| std::mem::replace(&mut core.values.extra_isize, want));
    buffer.with_mut(|data| {
        let slot = &mut data[offset..offset + size];
        slot[BASE_SIZE + usize::from(old.max(2))..BASE_SIZE + usize::from(want)].fill(0);
        let fits = area::emit(&mut slot[BASE_SIZE + usize::from(want)..], Place::Inode, &inside);
        assert!(fits, "the space in the inode was counted before");
    });
    handle.dirty(cx, &buffer)
}

/// Gives up the attribute block of an inode that is being freed: [`CREDITS`]. The caller writes the
/// inode.
///
/// # Errors
/// `EUCLEAN`, `EIO`.
pub(crate) fn delete_inode(
    fs: &Ext4,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Arc<Inode>,
) -> Result<(), Errno> {
    // Whoever comes later finds the inode dead.
    let _guard = inode.xattr_lock.lock(cx);
    if inode.with(cx, |core| core.file_acl) == 0 {
        return Ok(());
    }
    block::replace(fs, cx, handle, inode, &[])
}

/// Attribute blocks by the hash of their content.
pub(crate) type ByHash = BTreeMap<u32, Vec<u64>>;
