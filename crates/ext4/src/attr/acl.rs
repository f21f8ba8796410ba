//! POSIX ACLs: the form on the disk, and what ties an ACL to the mode bits.
//!
//! The disk form has a version word (1) and entries of 4 bytes (tag, permissions), or 8 where the
//! entry names a user or group. The wire form of [`vfs::acl`] has version 2 and entries of 8 bytes.

use std::sync::Arc;

use base::Errno;
use rt::Cx;
use vfs::acl::{Acl, Entry, NO_ID, Tag};
use vfs::{FileType, XattrFlags};

use crate::attr::xattr::{self, ACL_ACCESS, Change, Name};
use crate::inode::{Inode, Inodes};
use crate::trans::credits;

/// Version of the disk form.
const VERSION: u32 = 1;

/// Reads the disk form.
///
/// # Errors
/// `EINVAL` as the kernel answers for a malformed one.
fn from_disk(bytes: &[u8]) -> Result<Acl, Errno> {
    let (version, mut rest) = bytes.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
    if u32::from_le_bytes(*version) != VERSION {
        return Err(Errno::EINVAL);
    }
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
        let perm = u16::from_le_bytes([head[2], head[3]]);
        let tag = u16::from_le_bytes([head[0], head[1]]);
        let tag = Tag::from_number(u32::from(tag)).ok_or(Errno::EINVAL)?;
        rest = tail;
        let mut id = NO_ID;
        if tag.has_id() {
            let (bytes, tail) = rest.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
            id = u32::from_le_bytes(*bytes);
            rest = tail;
        }
        entries.push(Entry { tag, perm, id });
    }
    Acl::new(entries)
}

/// Writes the disk form.
fn to_disk(acl: &Acl) -> Vec<u8> {
    let mut out = VERSION.to_le_bytes().to_vec();
    for entry in acl.entries() {
        out.extend_from_slice(&(entry.tag as u16).to_le_bytes());
        out.extend_from_slice(&entry.perm.to_le_bytes());
        if entry.tag.has_id() {
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
    }
    out
}

/// The wire form of a stored ACL.
///
/// # Errors
/// `EINVAL` where it is malformed.
pub(crate) fn to_wire(stored: &[u8]) -> Result<Vec<u8>, Errno> {
    Ok(from_disk(stored)?.emit())
}

/// Sets or removes an ACL given in wire form; the access ACL sets the mode bits too, and is not
/// stored where they say it all.
///
/// Credits: those of an attribute.
///
/// # Errors
/// `EOPNOTSUPP` a symbolic link; `EACCES` a default ACL for something else than a directory;
/// `EINVAL` malformed; those of [`xattr::set_in`].
pub(crate) fn set(
    fs: &Inodes,
    cx: &mut Cx,
    inode: &Arc<Inode>,
    change: Change<&[u8]>,
) -> Result<(), Errno> {
    let Change { name, value, flags } = change;
    let kind = inode.kind(cx);
    let access = name.index == ACL_ACCESS;
    if kind == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    let acl = match value {
        Some(wire) => Acl::parse(wire)?,
        None => None,
    };
    if !access && kind != FileType::Directory {
        return if acl.is_some() { Err(Errno::EACCES) } else { Ok(()) };
    }
    let mode = acl.as_ref().filter(|_| access).map(Acl::mode_bits);
    let stored = acl.filter(|acl| !access || !acl.is_minimal()).map(|acl| to_disk(&acl));
    // An ACL that is not stored may well be "created".
    let flags = if stored.is_some() { flags } else { XattrFlags::empty() };
    let stored = stored.as_deref();
    xattr::with_value(fs, cx, inode, stored, credits::INODE, &mut |cx, edit, value| {
        let changed = xattr::set_in(edit, cx, Change { name, value, flags })?;
        if !changed && mode.is_none() {
            return Ok(());
        }
        let now = fs.sb.now(cx);
        inode.with(cx, |core| {
            if let Some(bits) = mode {
                core.mode = core.mode & !0o777 | bits;
            }
            core.ctime = now;
        });
        fs.mark_dirty(cx, edit.handle, inode)
    })
}

/// The disk form of an ACL that a new inode gets (`None`: the mode says it all), and for an access
/// ACL the mode bits.
///
/// # Errors
/// As [`set`].
pub(crate) fn of_new(
    kind: FileType,
    name: Name,
    value: &[u8],
) -> Result<(Option<Vec<u8>>, Option<u16>), Errno> {
    let access = name.index == ACL_ACCESS;
    if kind == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    let Some(acl) = Acl::parse(value)? else { return Ok((None, None)) };
    if !access && kind != FileType::Directory {
        return Err(Errno::EACCES);
    }
    let stored = (!access || !acl.is_minimal()).then(|| to_disk(&acl));
    Ok((stored, access.then(|| acl.mode_bits())))
}

/// The stored access ACL with a new mode in it; `None` where there is none. The caller sets it and
/// the mode in one handle.
///
/// # Errors
/// `EINVAL` a malformed ACL; `EUCLEAN`, `EIO`.
pub(crate) fn after_chmod(
    fs: &Inodes,
    cx: &mut Cx,
    inode: &Inode,
    mode: u16,
) -> Result<Option<Vec<u8>>, Errno> {
    if inode.kind(cx) == FileType::Symlink {
        return Ok(None);
    }
    let Some(stored) = xattr::read(fs, cx, inode, Name::ACCESS)? else { return Ok(None) };
    let mut acl = from_disk(&stored)?;
    acl.chmod(mode);
    Ok(Some(to_disk(&acl)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_form_goes_round() {
        let entry = |tag, perm, id| Entry { tag, perm, id };
        let acl = Acl::new(vec![
            entry(Tag::UserObj, 7, NO_ID),
            entry(Tag::User, 5, 1000),
            entry(Tag::GroupObj, 4, NO_ID),
            entry(Tag::Group, 6, 70_000),
            entry(Tag::Mask, 7, NO_ID),
            entry(Tag::Other, 0, NO_ID),
        ])
        .expect("valid");
        let disk = to_disk(&acl);
        assert_eq!(disk.len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(from_disk(&disk), Ok(acl.clone()));
        assert_eq!(to_wire(&disk), Ok(acl.emit()));
        for cut in 0..disk.len() {
            assert!(from_disk(&disk[..cut]).is_err(), "cut at {cut}");
        }
    }
}
