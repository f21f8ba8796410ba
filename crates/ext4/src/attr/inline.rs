//! Content in the inode (feature `inline_data`): its first 60 bytes lie where the map would, the
//! rest is the value of the attribute `system.data`, which is there even where it is empty.
//!
//! Regular files, directories and symbolic links have it. It changes in the handle's transaction,
//! as the inode does; once it has left for blocks it never comes back.
//!
//! Locks: `Inode::xattr_lock`, since the attributes share the space. Who reads or changes content
//! holds the inode's `rwsem`.
//!
//! Source: kernel `Documentation/filesystems/ext4/inlinedata.rst`; the rest was observed on Linux
//! 6.18 and `e2fsck`.

use std::sync::Arc;

use base::Errno;
use rt::Cx;

use super::xattr::{inode_area, load_inside, store_area, write_fresh};
use crate::format::features::Incompat;
use crate::format::inode::BLOCK_AREA;
use crate::format::xattr::{self as area, Xattr, XattrArea};
use crate::format::{At, CorruptKind, Geometry, InodeFlags, extent};
use crate::inode::{Inode, InodeCore, Inodes};
use crate::trans::credits;
use crate::trans::ext4_jbd2::Handle;

/// Credits for changing content in an inode.
pub(crate) const CREDITS: u32 = credits::INODE + credits::SUPER;

impl Geometry {
    /// May content lie in inodes?
    pub(crate) fn inline_data(&self) -> bool {
        self.features.incompat.contains(Incompat::INLINE_DATA)
    }
}

impl InodeCore {
    /// The content lies in the inode.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.flags.contains(InodeFlags::INLINE_DATA)
    }

    /// From now on it does.
    fn begin_inline(&mut self) {
        self.flags.remove(InodeFlags::EXTENTS);
        self.flags.insert(InodeFlags::INLINE_DATA);
    }

    /// From now on it lies in blocks, of which there are none yet.
    fn end_inline(&mut self, geometry: &Geometry) {
        self.flags.remove(InodeFlags::INLINE_DATA);
        self.values.block = [0; BLOCK_AREA];
        if geometry.features.incompat.contains(Incompat::EXTENTS) {
            self.flags.insert(InodeFlags::EXTENTS);
            extent::init_node(&mut self.values.block, extent::ROOT_MAX, 0);
        }
    }
}

/// The attribute with this value.
pub(crate) fn entry(value: &[u8]) -> Xattr {
    let (name_index, name) = (area::INLINE_INDEX, area::INLINE_NAME.to_vec());
    Xattr { name_index, name, value: value.to_vec(), large: None }
}

/// All bytes that an inode has for its content: no fewer than its size, but for a regular file,
/// which ends with zeros then.
///
/// # Errors
/// `ESTALE` freed; `EUCLEAN` the attribute is missing or too short; `EIO`.
pub(crate) fn read(fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<Vec<u8>, Errno> {
    let _guard = inode.xattr_lock.lock(cx);
    let inside = load_inside(fs, cx, inode)?;
    let tail = inside.iter().find(|xattr| xattr.is_inline_data());
    let (content, size) = inode.with(cx, |core| {
        if core.dead {
            return Err(Errno::ESTALE);
        }
        let mut content = core.block.to_vec();
        content.extend_from_slice(tail.map_or(&[], |xattr| &xattr.value));
        Ok((content, if core.mode & 0xf000 == 0x8000 { 0 } else { core.size }))
    })?;
    let has = content.len() as u64;
    if tail.is_none_or(|xattr| xattr.large.is_some()) || size > has {
        let kind = CorruptKind::InlineSize { size, has };
        return Err(fs.sb.corrupt_kind(cx, kind, At::Inode(inode.ino)));
    }
    Ok(content)
}

/// How many bytes of content the inode has room for, beside its other attributes.
///
/// # Errors
/// `EUCLEAN`, `EIO`.
pub(crate) fn capacity(fs: &Inodes, cx: &mut Cx, inode: &Inode) -> Result<usize, Errno> {
    let _guard = inode.xattr_lock.lock(cx);
    let room = inode_area(fs, cx, inode)?.map_or(0, |area| area.range.len());
    let mut inside = load_inside(fs, cx, inode)?;
    inside.retain(|xattr| !xattr.is_inline_data());
    Ok(area::inline_room(&inside, room).map_or(0, |tail| BLOCK_AREA + tail))
}

/// Makes `content` the content of the inode: [`CREDITS`]. False, and nothing has changed, where
/// there is no room. The caller sets the size and writes the inode.
///
/// # Errors
/// `EUCLEAN`, `EIO`; the journal's errno once it has aborted.
pub(crate) fn write(
    fs: &Inodes,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Arc<Inode>,
    content: &[u8],
) -> Result<bool, Errno> {
    let _guard = inode.xattr_lock.lock(cx);
    write_fresh(fs, cx, handle, inode)?;
    let Some(room) = inode_area(fs, cx, inode)?.map(|area| area.range.len()) else {
        return Ok(false);
    };
    let mut inside = load_inside(fs, cx, inode)?;
    let head = content.len().min(BLOCK_AREA);
    let new = entry(&content[head..]);
    match inside.iter_mut().find(|xattr| xattr.is_inline_data()) {
        Some(old) => *old = new,
        None => inside.push(new),
    }
    if area::space(&inside, XattrArea::Inode) > room {
        return Ok(false);
    }
    store_area(fs, cx, handle, inode, &inside)?;
    inode.with(cx, |core| {
        core.begin_inline();
        core.values.block = [0; BLOCK_AREA];
        core.values.block[..head].copy_from_slice(&content[..head]);
    });
    Ok(true)
}

/// Takes the content out of the inode, which maps no blocks then: [`CREDITS`]. The caller gives it
/// blocks with what [`read`] returned before in the same handle, and writes the inode.
///
/// # Errors
/// As [`write`].
pub(crate) fn remove(
    fs: &Inodes,
    cx: &mut Cx,
    handle: &mut Handle,
    inode: &Inode,
) -> Result<(), Errno> {
    let _guard = inode.xattr_lock.lock(cx);
    let mut inside = load_inside(fs, cx, inode)?;
    inside.retain(|xattr| !xattr.is_inline_data());
    store_area(fs, cx, handle, inode, &inside)?;
    inode.with(cx, |core| core.end_inline(&fs.sb.geometry));
    Ok(())
}

/// Makes the first 60 bytes of a new inode's content; the attribute with the rest is among those
/// that it gets ([`super::xattr::NewXattrs::inline`]).
pub(crate) fn begin(cx: &Cx, inode: &Inode, content: &[u8]) {
    inode.with(cx, |core| {
        core.begin_inline();
        core.values.block = [0; BLOCK_AREA];
        let head = content.len().min(BLOCK_AREA);
        core.values.block[..head].copy_from_slice(&content[..head]);
        core.size = content.len() as u64;
        core.values.size = core.size;
    });
}
