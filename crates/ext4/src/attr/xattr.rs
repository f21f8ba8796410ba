//! Extended attributes: in the rest of the inode where they fit, else in a block, which inodes with
//! equal attributes share; with `ea_inode` a value that fits neither has an inode of its own, which
//! entries with equal values share.
//!
//! Locks: `Inode::xattr_lock` for the attributes of one inode, inside a handle when they change;
//! then [`Inodes::xattr_blocks`] while references to blocks change.

use std::sync::Arc;

use base::Errno;
use cache::BufferRef;
use rt::Cx;
use vfs::{FileType, XattrFlags};

use crate::attr::acl;
use crate::format::inode::BASE_SIZE;
use crate::format::xattr::{self as area, Xattr, XattrArea};
use crate::format::{At, CorruptKind};
use crate::inode::{Inode, Inodes};
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

mod block;
mod create;
mod delete;
mod value;

pub(crate) use create::{NewXattrs, init, of_new, prepare_new};
pub(crate) use delete::{check_freeing, delete_inode, names_values, release_values};
pub(crate) use value::{Dropped, Prepared, Totals};

/// Blocks that setting an attribute changes at most: the inode, the old block and the new one, and
/// taking and giving back a block.
pub(crate) const CREDITS: u32 = credits::INODE + 2 + 2 * credits::GROUP + credits::SUPER;

/// The numbers of the prefixes. ACL attributes have a number of their own and no name behind it;
/// what else is of the system (7) is not for programs.
const PREFIXES: [(&[u8], u8); 3] =
    [(b"user.", 1), (b"trusted.", 4), (b"security.", area::SECURITY_INDEX)];
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
    pub(crate) fn parse(name: &'a [u8]) -> Result<Name<'a>, Errno> {
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
pub(crate) fn get(fs: &Inodes, cx: &mut Cx, inode: &Inode, name: Name) -> Result<Vec<u8>, Errno> {
    let value = read(fs, cx, inode, name)?.ok_or(Errno::ENODATA)?;
    if name.is_acl() { acl::to_wire(&value) } else { Ok(value) }
}

/// The value of an attribute as the disk has it.
pub(crate) fn read(
    fs: &Inodes,
    cx: &mut Cx,
    inode: &Inode,
    name: Name,
) -> Result<Option<Vec<u8>>, Errno> {
    let _guard = inode.xattr_lock.lock(cx);
    if inode.with(cx, |core| core.dead) {
        return Err(Errno::ESTALE);
    }
    let mut found = None;
    visit_locked(fs, cx, inode, &mut |entry| {
        if found.is_none() && name.is(entry) {
            found = Some((entry.value.to_vec(), entry.large));
        }
    })?;
    match found {
        Some((_, Some(large))) => value::read(fs, cx, inode, name.rest, &large).map(Some),
        other => Ok(other.map(|(value, _)| value)),
    }
}

/// The names of all attributes: see [`vfs::FileSystem::listxattr`].
pub(crate) fn list(fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    visit(fs, cx, inode, &mut |entry| {
        names.extend(Name { index: entry.name_index, rest: entry.name }.full());
    })?;
    Ok(names)
}

/// Where an inode's attributes are.
pub(super) struct Area {
    buffer: BufferRef,
    /// Bytes of the buffer that are the area in the inode.
    pub range: std::ops::Range<usize>,
}

/// The area in the inode; `None` where inodes have no room for one.
pub(super) fn inode_area(fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<Option<Area>, Errno> {
    let size = fs.sb.geometry.inode_size as usize;
    let extra = usize::from(inode.with(cx, |core| core.extra_isize));
    if size == BASE_SIZE || extra == 0 || BASE_SIZE + extra + 8 > size {
        return Ok(None);
    }
    let (buffer, offset) = fs.inode_slot(cx, inode.ino)?;
    Ok(Some(Area { buffer, range: offset + BASE_SIZE + extra..offset + size }))
}

/// Shows all attributes of an inode to `look`, first those in the inode.
fn visit(
    fs: &Inodes,
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
    fs: &Inodes,
    cx: &mut Cx,
    inode: &Inode,
    look: &mut dyn FnMut(&area::Entry),
) -> Result<(), Errno> {
    // A new inode's slot may hold what an earlier one left there.
    let fresh = inode.with(cx, |core| core.fresh);
    let large = fs.sb.geometry.large_values();
    if let Some(area) = inode_area(fs, cx, inode)?.filter(|_| !fresh) {
        let range = area.range.clone();
        let seen = area.buffer.with(|data| walk(&data[range], XattrArea::Inode, large, look));
        seen.map_err(|kind| fs.sb.corrupt(cx, &kind.at(At::Inode(inode.ino))))?;
    }
    let block = inode.with(cx, |core| core.file_acl);
    if block != 0 {
        let buffer = block::read(fs, cx, inode, block)?;
        let seen = buffer.with(|data| walk(data, XattrArea::Block, large, look));
        seen.map_err(|kind| fs.sb.corrupt(cx, &kind.at(At::Block(inode.ino, block))))?;
    }
    Ok(())
}

fn walk(
    bytes: &[u8],
    place: XattrArea,
    large: bool,
    look: &mut dyn FnMut(&area::Entry),
) -> Result<(), CorruptKind> {
    for entry in area::entries(bytes, place, large)? {
        look(&entry?);
    }
    Ok(())
}

/// Sets or removes (`None`) an attribute: see [`vfs::FileSystem::setxattr`].
///
/// Credits: [`CREDITS`].
pub(crate) fn set(
    fs: &Inodes,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    change: Change<&[u8]>,
) -> Result<(), Errno> {
    if change.name.is_acl() {
        return acl::set(fs, cx, inode, change);
    }
    let Change { name, value, flags } = change;
    with_value(fs, cx, inode, value, 0, &mut |cx, edit, value| {
        expand_extra(fs, cx, edit.handle, inode)?;
        if set_in(edit, cx, Change { name, value, flags })? {
            let now = fs.sb.now(cx);
            inode.with(cx, |core| core.ctime = now);
            fs.mark_dirty(cx, edit.handle, inode)?;
        }
        Ok(())
    })
}

/// A new value: its bytes, or an inode that holds them.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    /// To be stored in the inode or in the block.
    Bytes(&'a [u8]),
    /// In an inode of its own.
    Large(&'a Prepared),
}

impl Value<'_> {
    fn named(&self, name: Name) -> Xattr {
        let (value, large) = match self {
            Value::Bytes(bytes) => (bytes.to_vec(), None),
            Value::Large(prepared) => (Vec::new(), Some(prepared.entry(name.rest))),
        };
        Xattr { name_index: name.index, name: name.rest.to_vec(), value, large }
    }
}

/// An attribute that is set, or removed (`None`).
#[derive(Clone, Copy)]
pub(crate) struct Change<'a, V> {
    pub name: Name<'a>,
    pub value: Option<V>,
    pub flags: XattrFlags,
}

/// A handle in which the attributes of an inode change.
pub(crate) struct Edit<'a> {
    pub fs: &'a Inodes,
    pub handle: &'a mut Handle,
    pub inode: &'a Arc<Inode>,
    /// Inodes of values whose last reference goes.
    pub dropped: &'a mut Dropped,
}

/// What happens in the handle of [`with_value`].
pub(crate) type Act<'a, T> = dyn FnMut(&mut Cx, &mut Edit, Option<Value>) -> Result<T, Errno> + 'a;

/// Runs `act` in a handle that has credits for setting an attribute of `inode` to `value` (`None`:
/// for removing one) and `credits` more; a value for which there is no room gets an inode, and
/// `act` runs again.
///
/// # Errors
/// Those of `act`; those of [`crate::sb::SuperBlock::journal_start`].
pub(crate) fn with_value<T>(
    fs: &Inodes,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    value: Option<&[u8]>,
    credits: u32,
    act: &mut Act<'_, T>,
) -> Result<T, Errno> {
    let mut prepared = None;
    let result = loop {
        let held = values_of_block(fs, cx, inode)?;
        let mut handle = fs.sb.journal_start(cx, CREDITS + value_credits(fs, held) + credits)?;
        let mut dropped = Dropped::default();
        let given = match &prepared {
            Some(prepared) => Some(Value::Large(prepared)),
            None => value.map(Value::Bytes),
        };
        let mut edit = Edit { fs, handle: &mut handle, inode, dropped: &mut dropped };
        let result = act(cx, &mut edit, given);
        let stopped = handle.stop(cx);
        let freed = dropped.free(fs, cx);
        let may_grow = fs.sb.geometry.large_values() && prepared.is_none();
        match (result, value) {
            // The attributes changed while they were counted.
            (Err(Errno::EAGAIN), _) => {}
            (Err(Errno::ENOSPC), Some(value)) if may_grow && !value.is_empty() => {
                prepared = Some(value::prepare(fs, cx, inode, value)?);
            }
            (result, _) => break result.and_then(|done| stopped.and(freed).map(|()| done)),
        }
    };
    let released = prepared.map_or(Ok(()), |prepared| prepared.release(fs, cx));
    result.and_then(|done| released.map(|()| done))
}

/// Credits for the references to values that change with an attribute, where the inode's block
/// names `held`: they all change where the inode leaves a shared block.
fn value_credits(fs: &Inodes, held: u32) -> u32 {
    if fs.sb.geometry.large_values() { held * credits::INODE + 3 * value::REFERENCE } else { 0 }
}

/// How many values in inodes the block of an inode names.
fn values_of_block(fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<u32, Errno> {
    let block = inode.with(cx, |core| core.file_acl);
    if !fs.sb.geometry.large_values() || block == 0 {
        return Ok(0);
    }
    let _guard = inode.xattr_lock.lock(cx);
    let block = inode.with(cx, |core| core.file_acl);
    if block == 0 {
        return Ok(0);
    }
    let buffer = block::read(fs, cx, inode, block)?;
    let list = block::entries(fs, cx, inode, &buffer)?;
    Ok(Totals::of(&fs.sb.geometry, list.iter()).count)
}

/// How many values in inodes an inode names: what quota counts.
///
/// # Errors
/// `EUCLEAN`, `EIO`.
pub(crate) fn large_values(fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<u32, Errno> {
    let mut count = 0;
    if fs.sb.geometry.large_values() {
        visit_locked(fs, cx, inode, &mut |entry| count += u32::from(entry.large.is_some()))?;
    }
    Ok(count)
}

/// Sets or removes (`None`) an attribute as part of the handle of [`with_value`]. Returns whether
/// anything changed; the caller then writes the inode.
///
/// # Errors
/// `EEXIST`, `ENODATA` by `flags`; `ENOSPC` it fits neither the inode nor a block, or no block is
/// free; `EDQUOT`; `EAGAIN` the handle has too few credits; `EOPNOTSUPP` the old value has Lustre's
/// older form; `EUCLEAN`, `EIO`.
pub(crate) fn set_in(edit: &mut Edit, cx: &mut Cx, change: Change<Value>) -> Result<bool, Errno> {
    let Edit { fs, inode, .. } = *edit;
    let Change { name, value, flags } = change;
    let _guard = inode.xattr_lock.lock(cx);
    if inode.with(cx, |core| core.dead) {
        return Err(Errno::ESTALE);
    }
    write_fresh(fs, cx, edit.handle, inode)?;
    let (mut inside, mut outside) = load(fs, cx, inode)?;
    let same = |x: &Xattr| x.name_index == name.index && x.name == name.rest;
    let old = inside.iter().chain(&outside).find(|x| same(x));
    let new = value.as_ref().map(|value| value.named(name));
    match old {
        Some(_) if flags.contains(XattrFlags::CREATE) => return Err(Errno::EEXIST),
        None if flags.contains(XattrFlags::REPLACE) => return Err(Errno::ENODATA),
        None if value.is_none() => return Ok(false),
        Some(old) if new.as_ref() == Some(old) => return Ok(true),
        Some(Xattr { large: Some(large), .. }) => {
            value::refuse_old_form(fs, cx, inode, name.rest, large)?;
        }
        _ => {}
    }
    let before = Totals::of(&fs.sb.geometry, inside.iter().chain(&outside));
    let held = Totals::of(&fs.sb.geometry, outside.iter()).count;
    if held > 0 && !edit.handle.ensure(cx, CREDITS + value_credits(fs, held))? {
        return Err(Errno::EAGAIN);
    }
    let was_inside = inside.clone();
    let was_outside = outside.iter().any(same);
    inside.retain(|x| !same(x));
    outside.retain(|x| !same(x));
    let mut change_outside = was_outside;
    if let Some(new) = new {
        let room = inode_area(fs, cx, inode)?.map_or(0, |area| area.range.len());
        let symlink = inode.kind(cx) == FileType::Symlink;
        let apart = new.belongs_outside(symlink);
        inside.push(new);
        if apart || area::space(&inside, XattrArea::Inode) > room {
            outside.extend(inside.pop());
            change_outside = true;
        }
        if change_outside
            && area::space(&outside, XattrArea::Block) > fs.sb.geometry.block_size as usize
        {
            return Err(Errno::ENOSPC);
        }
    }
    let after = Totals::of(&fs.sb.geometry, inside.iter().chain(&outside));
    let bytes = 512 * after.sectors.saturating_sub(before.sectors);
    if after.count > before.count {
        inode.reserve_value(cx, &fs.sb, bytes)?;
    }
    // The block first: only there space can run out.
    if change_outside && let Err(errno) = block::replace(edit, cx, &outside) {
        if after.count > before.count {
            inode.unreserve_value(cx, bytes);
        }
        return Err(errno);
    }
    store_inside(edit, cx, &was_inside, &inside)?;
    charge(cx, inode, before, after);
    Ok(true)
}

/// Counts what an inode's values in other inodes add to it. The caller writes the inode.
fn charge(cx: &Cx, inode: &Inode, before: Totals, after: Totals) {
    inode.with(cx, |core| {
        core.values.blocks = (core.blocks + after.sectors).saturating_sub(before.sectors);
        core.large_values = (core.large_values + after.count).saturating_sub(before.count);
    });
}

/// Gives a new inode its slot before attributes are put behind it.
pub(super) fn write_fresh(
    fs: &Inodes,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Inode,
) -> Result<(), Errno> {
    if inode.with(cx, |core| core.fresh) { fs.mark_dirty(cx, handle, inode) } else { Ok(()) }
}

/// The attributes in the inode.
pub(super) fn load_inside(fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<Vec<Xattr>, Errno> {
    let mut inside = Vec::new();
    if let Some(area) = inode_area(fs, cx, inode)? {
        let large = fs.sb.geometry.large_values();
        let seen = area.buffer.with(|data| {
            let bytes = &data[area.range.clone()];
            walk(bytes, XattrArea::Inode, large, &mut |entry| inside.push(Xattr::of(entry)))
        });
        seen.map_err(|kind| fs.sb.corrupt(cx, &kind.at(At::Inode(inode.ino))))?;
    }
    Ok(inside)
}

/// All attributes: those in the inode and those in the block.
fn load(fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<(Vec<Xattr>, Vec<Xattr>), Errno> {
    let inside = load_inside(fs, cx, inode)?;
    let block = inode.with(cx, |core| core.file_acl);
    if block == 0 {
        return Ok((inside, Vec::new()));
    }
    let buffer = block::read(fs, cx, inode, block)?;
    let outside = block::entries(fs, cx, inode, &buffer)?;
    Ok((inside, outside))
}

/// Writes the attributes in the inode, `after` in place of `before`. The caller writes the inode
/// afterwards, with its checksum.
fn store_inside(
    edit: &mut Edit,
    cx: &mut Cx,
    before: &[Xattr],
    after: &[Xattr],
) -> Result<(), Errno> {
    let Edit { fs, inode, .. } = *edit;
    if before.iter().chain(after).any(|xattr| xattr.large.is_some()) {
        let mut shared = fs.xattr_blocks.lock(cx);
        value::follow(edit, cx, &mut shared, before, after)?;
    }
    store_area(fs, cx, edit.handle, inode, after)
}

/// The bytes of [`store_inside`], where no value in another inode comes or goes.
pub(super) fn store_area(
    fs: &Inodes,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Inode,
    list: &[Xattr],
) -> Result<(), Errno> {
    let Some(area) = inode_area(fs, cx, inode)? else { return Ok(()) };
    handle.write_access(cx, &area.buffer)?;
    let range = area.range.clone();
    let fits = area.buffer.with_mut(|data| area::emit(&mut data[range], XattrArea::Inode, list));
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
    fs: &Inodes,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Inode,
) -> Result<(), Errno> {
    let size = fs.sb.geometry.inode_size as usize;
    let want = fs.sb.geometry.want_extra_isize;
    if inode.with(cx, |core| core.fresh || core.extra_isize >= want)
        || BASE_SIZE + usize::from(want) > size
    {
        return Ok(());
    }
    let _guard = inode.xattr_lock.lock(cx);
    if inode.with(cx, |core| core.dead) {
        return Ok(());
    }
    let inside = load_inside(fs, cx, inode)?;
    let room = size - BASE_SIZE - usize::from(want);
    if !inside.is_empty() && area::space(&inside, XattrArea::Inode) > room {
        return Ok(());
    }
    let (buffer, offset) = fs.inode_slot(cx, inode.ino)?;
    handle.write_access(cx, &buffer)?;
    let old = inode.with(cx, |core| std::mem::replace(&mut core.values.extra_isize, want));
    buffer.with_mut(|data| {
        let slot = &mut data[offset..offset + size];
        slot[BASE_SIZE + usize::from(old.max(2))..BASE_SIZE + usize::from(want)].fill(0);
        let fits =
            area::emit(&mut slot[BASE_SIZE + usize::from(want)..], XattrArea::Inode, &inside);
        assert!(fits, "the space in the inode was counted before");
    });
    handle.dirty(cx, &buffer)
}
