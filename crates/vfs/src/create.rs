//! What a new node inherits from its directory: the group, and the default ACL.

use base::Errno;
use rt::Cx;

use crate::acl::{self, Acl};
use crate::attr::{Attr, FileType, NewNode};
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
    node: NewNode<'_>,
) -> Result<Attr, Errno> {
    create_labelled(cx, fs, dir, name, node, false)
}

/// The attribute with the security label.
const LABEL: &[u8] = b"security.selinux";

/// As [`create_in`]; with `labelled` what is made gets the label of its directory, too.
///
/// # Errors
/// Those of [`create_in`].
pub(crate) fn create_labelled(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: &Attr,
    name: &[u8],
    mut node: NewNode<'_>,
    labelled: bool,
) -> Result<Attr, Errno> {
    let mut attributes = inherit(cx, fs, dir, &mut node)?;
    if labelled {
        match fs.getxattr(cx, dir.ino, LABEL) {
            Ok(label) => attributes.push((LABEL, label)),
            Err(Errno::ENODATA | Errno::EOPNOTSUPP) => {}
            Err(other) => return Err(other),
        }
    }
    match attributes.is_empty() {
        true => fs.create(cx, dir.ino, name, &node),
        false => fs.create_with(cx, dir.ino, name, &node, &attributes),
    }
}

/// Creates a regular file without a name in `dir`, open once, with what [`create_in`] gives it.
///
/// # Errors
/// Those of [`FileSystem::create_unnamed`].
pub fn create_unnamed_in(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: &Attr,
    mut node: NewNode<'_>,
) -> Result<Attr, Errno> {
    let attributes = inherit(cx, fs, dir, &mut node)?;
    fs.create_unnamed(cx, dir.ino, &node, &attributes)
}

/// Extended attributes by name.
type Attributes = Vec<(&'static [u8], Vec<u8>)>;

/// Ids and permissions of a new node in `dir`; returns the attributes that it is to have.
fn inherit(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: &Attr,
    node: &mut NewNode<'_>,
) -> Result<Attributes, Errno> {
    let directory = node.kind == FileType::Directory;
    node.uid = cx.cred().uid;
    node.gid = cx.cred().gid;
    if dir.mode & S_ISGID != 0 {
        node.gid = dir.gid;
        if directory {
            node.mode |= S_ISGID;
        }
    }
    let mut attributes = Attributes::new();
    if node.kind != FileType::Symlink {
        if let Some(default) = default_acl(cx, fs, dir)? {
            let list = default.inherit(node.mode);
            node.mode = node.mode & !0o777 | list.mode_bits();
            if !list.is_minimal() {
                attributes.push((acl::ACCESS, list.emit()));
            }
            if directory {
                attributes.push((acl::DEFAULT, default.emit()));
            }
        } else {
            node.mode &= !(cx.cred().umask as u16 & 0o777);
        }
    }
    Ok(attributes)
}

fn default_acl(cx: &mut Cx, fs: &dyn FileSystem, dir: &Attr) -> Result<Option<Acl>, Errno> {
    match fs.getxattr(cx, dir.ino, acl::DEFAULT) {
        Ok(value) => Acl::parse(&value),
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
        Err(other) => Err(other),
    }
}
