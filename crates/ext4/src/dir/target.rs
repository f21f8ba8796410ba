//! What entries point at.

use rt::Cx;
use vfs::FileType;

use crate::format::FileKind;
use crate::inode::Inode;

/// What an entry points at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub ino: u32,
    /// The number of its type in directory entries.
    pub dir_type: u8,
}

impl Target {
    /// This inode.
    pub(crate) fn of(cx: &Cx, inode: &Inode) -> Target {
        let mode = inode.with(cx, |core| core.mode);
        let dir_type = FileKind::from_mode(mode).map_or(0, FileKind::dir_type);
        Target { ino: inode.ino.0 as u32, dir_type }
    }
}

/// The type that an entry's number means; `None` where it is not recorded.
pub(crate) fn file_type(dir_type: u8) -> Option<FileType> {
    let kind = FileKind::from_dir_type(dir_type)?;
    FileType::from_mode(u32::from(kind.mode_bits()))
}
