//! The attributes of a new inode: inherited ACLs, security labels, all at once.

use base::Errno;
use rt::Cx;
use vfs::NewNode;

use super::value::{self, Prepared, Totals};
use super::{CREDITS, Edit, Name, block, charge, inode_area, store_inside, write_fresh};
use crate::attr::{acl, inline};
use crate::format::inode::BASE_SIZE;
use crate::format::xattr::{self as area, Xattr, XattrArea};
use crate::inode::{Inode, Inodes};

/// The attributes of a new inode as the disk has them, and its mode, which an access ACL sets.
///
/// # Errors
/// As [`super::set`]; `EEXIST` a name is given twice.
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
        let (name_index, name) = (name.index, name.rest.to_vec());
        list.extend(value.map(|value| Xattr { name_index, name, value, large: None }));
    }
    Ok((list, mode))
}

/// Where the attributes of a new inode go. [`NewXattrs::release`] at the end, whatever happened.
#[derive(Default)]
pub(crate) struct NewXattrs {
    inside: Vec<Xattr>,
    outside: Vec<Xattr>,
    prepared: Vec<Prepared>,
    /// The inode's content lies in it, behind its first 60 bytes in one of these.
    pub inline: bool,
}

impl NewXattrs {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.outside.is_empty()
    }

    /// Credits for setting them, and for taking them back.
    pub fn credits(&self) -> u32 {
        let own = if self.is_empty() { 0 } else { CREDITS };
        own + 2 * self.prepared.len() as u32 * value::REFERENCE
    }

    /// Lets go of values in inodes. No handle is open.
    ///
    /// # Errors
    /// `EUCLEAN`, `EIO`.
    pub fn release(self, fs: &Inodes, cx: &mut Cx) -> Result<(), Errno> {
        self.prepared.into_iter().try_for_each(|prepared| prepared.release(fs, cx))
    }
}

/// Finds places for the attributes of a new inode (or symbolic link) in `dir`: in it, in its block,
/// and for the largest ones inodes of their own where the block is too small. Content that is to
/// lie in the inode behind its first 60 bytes (`inline`) comes first, if it fits. No handle is
/// open.
///
/// # Errors
/// `ENOSPC` they do not fit; `EUCLEAN`, `EIO`, `EROFS`.
pub(crate) fn prepare_new(
    fs: &Inodes,
    cx: &mut Cx,
    dir: &Inode,
    symlink: bool,
    inline: Option<&[u8]>,
    list: &[Xattr],
) -> Result<NewXattrs, Errno> {
    let mut new = NewXattrs::default();
    if list.is_empty() && inline.is_none() {
        return Ok(new);
    }
    let mut list = list.to_vec();
    let extra = usize::from(fs.sb.geometry.new_extra_isize());
    let room = (fs.sb.geometry.inode_size as usize).saturating_sub(BASE_SIZE + extra);
    let room = if extra == 0 || room < 8 { 0 } else { room };
    let content = inline.filter(|tail| area::inline_room(&[], room) >= Some(tail.len()));
    if let Some(tail) = content {
        list.insert(0, inline::entry(tail));
        new.inline = true;
    }
    loop {
        (new.inside, new.outside) = place(&list, room, symlink);
        if area::space(&new.outside, XattrArea::Block) <= fs.sb.geometry.block_size as usize {
            return Ok(new);
        }
        let others = list.iter_mut().filter(|xattr| !xattr.is_inline_data());
        let largest = others.max_by_key(|xattr| xattr.value.len());
        let largest =
            largest.filter(|xattr| fs.sb.geometry.large_values() && !xattr.value.is_empty());
        let result = match largest {
            Some(largest) => value::prepare(fs, cx, dir, &largest.value).map(|prepared| {
                largest.value.clear();
                largest.large = Some(prepared.entry(&largest.name));
                new.prepared.push(prepared);
            }),
            None => Err(Errno::ENOSPC),
        };
        if let Err(errno) = result {
            new.release(fs, cx)?;
            return Err(errno);
        }
    }
}

/// Those that fit into `room` bytes of an inode, and the others.
fn place(list: &[Xattr], room: usize, symlink: bool) -> (Vec<Xattr>, Vec<Xattr>) {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for new in list {
        inside.push(new.clone());
        if new.belongs_outside(symlink) || area::space(&inside, XattrArea::Inode) > room {
            outside.extend(inside.pop());
        }
    }
    (inside, outside)
}

/// Gives a new inode its attributes, all at once, as part of the handle that makes it:
/// [`NewXattrs::credits`].
///
/// # Errors
/// `ENOSPC`, `EDQUOT`; `EUCLEAN`, `EIO`.
pub(crate) fn init(edit: &mut Edit, cx: &mut Cx, new: &NewXattrs) -> Result<(), Errno> {
    let Edit { fs, inode, .. } = *edit;
    let _guard = inode.xattr_lock.lock(cx);
    write_fresh(fs, cx, edit.handle, inode)?;
    let room = inode_area(fs, cx, inode)?.map_or(0, |area| area.range.len());
    let fits = new.inside.is_empty() || area::space(&new.inside, XattrArea::Inode) <= room;
    assert!(fits, "a new inode has the room that its geometry says");
    let values = || new.inside.iter().chain(&new.outside);
    for large in values().filter_map(|xattr| xattr.large) {
        let one = Totals::default().plus(&fs.sb.geometry, large);
        inode.reserve_value(cx, &fs.sb, one.sectors * 512)?;
    }
    if !new.outside.is_empty() {
        block::replace(edit, cx, &new.outside)?;
        charge(cx, inode, Totals::default(), Totals::of(&fs.sb.geometry, new.outside.iter()));
    }
    store_inside(edit, cx, &[], &new.inside)?;
    charge(cx, inode, Totals::default(), Totals::of(&fs.sb.geometry, new.inside.iter()));
    fs.mark_dirty(cx, edit.handle, inode)
}
