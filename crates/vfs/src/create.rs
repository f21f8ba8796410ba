//! What a new node gets from its directory: the group, and the default ACL.

use base::Errno;
use rt::Cx;

use crate::acl::{self, Acl};
use crate::attr::{Attr, FileType, NewNode, XattrFlags};
use crate::fs::FileSystem;
use crate::permission::S_ISGID;

/// Creates `node` in `dir` with the task's ids, the directory's group where it has the set-group-id
/// bit, and the directory's default ACL or, where there is none, less the umask. Permissions are
/// the caller's to check. May park.
///
/// # Errors
/// Those of the file system.
pub fn create_in(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: &Attr,
    name: &[u8],
    mut node: NewNode<'_>,
) -> Result<Attr, Errno> {
    let directory = node.kind == FileType::Directory;
    node.uid = cx.cred().uid;
    node.gid = cx.cred().gid;
    if dir.mode & S_ISGID != 0 {
        node.gid = dir.gid;
        if directory {
            node.mode |= S_ISGID;
        }
    }
    if node.kind == FileType::Symlink {
        return fs.create(cx, dir.ino, name, &node);
    }
    let Some(default) = default_acl(cx, fs, dir)? else {
        node.mode &= !(cx.cred().umask as u16 & 0o777);
        return fs.create(cx, dir.ino, name, &node);
    };
    let list = default.inherit(node.mode);
    node.mode = node.mode & !0o777 | list.mode_bits();
    let attr = fs.create(cx, dir.ino, name, &node)?;
    let flags = XattrFlags::empty();
    if !list.is_minimal() {
        fs.setxattr(cx, attr.ino, acl::ACCESS, &list.emit(), flags)?;
    }
    if directory {
        fs.setxattr(cx, attr.ino, acl::DEFAULT, &default.emit(), flags)?;
    }
    Ok(attr)
}

fn default_acl(cx: &mut Cx, fs: &dyn FileSystem, dir: &Attr) -> Result<Option<Acl>, Errno> {
    match fs.getxattr(cx, dir.ino, acl::DEFAULT) {
        Ok(value) => Acl::parse(&value),
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
        Err(other) => Err(other),
    }
}
