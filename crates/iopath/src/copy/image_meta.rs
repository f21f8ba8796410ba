//! What already exists in an image at the destination of a copy.

use std::collections::BTreeSet;

use base::{Errno, Ino};
use rt::Cx;
use vfs::{Attr, FileSystem};

use super::{FileId, Keep, Old};

/// Which file of the image it is.
pub fn id_of(ino: Ino) -> FileId {
    FileId { device: 0, ino: ino.0 }
}

/// What a copy has to know of it.
pub fn standing(attr: &Attr) -> Old {
    let (nlink, id) = (attr.nlink.into(), id_of(attr.ino));
    Old { kind: attr.kind, nlink, mtime: attr.mtime, id }
}

/// Removes attributes that a node has and is not to have beside these.
///
/// # Errors
/// One stays.
pub fn take_away(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    keep: &Keep,
    ino: Ino,
    names: &BTreeSet<&[u8]>,
) -> Result<(), Errno> {
    for name in fs.listxattr(cx, ino)? {
        if !names.contains(&name[..]) && keep.takes_away(&name) {
            fs.removexattr(cx, ino, &name)?;
        }
    }
    Ok(())
}
