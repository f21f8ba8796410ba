//! Flags of inodes that are set by hand (chattr(1)).

use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;
use vfs::FileType;

use crate::Ext4;
use crate::dir::Dir;
use crate::format::InodeFlags;
use crate::inode::Inode;
use crate::trans::credits;

/// Flags that can be changed.
const FREE: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME);
/// Further ones of directories.
const OF_DIRECTORIES: InodeFlags = InodeFlags::DIRSYNC
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD);

impl Ext4 {
    /// Gives an inode these flags: see [`vfs::FileSystem::set_flags`].
    pub(crate) fn change_flags(&self, cx: &mut Cx, ino: Ino, flags: u32) -> Result<(), Errno> {
        self.sb.check_writable()?;
        let inode = self.iget(cx, ino)?;
        let _guard = inode.rwsem.write(cx);
        let flags = InodeFlags::from_bits_retain(flags);
        let old = inode.with(cx, |core| if core.dead { None } else { Some(core.flags) });
        let changed = old.ok_or(Errno::ESTALE)? ^ flags;
        let free = if inode.kind(cx) == FileType::Directory { FREE | OF_DIRECTORIES } else { FREE };
        if !(changed - free).is_empty() {
            return Err(Errno::EOPNOTSUPP);
        }
        if changed.contains(InodeFlags::CASEFOLD) {
            self.check_casefold(cx, &inode)?;
        }
        let mut handle = self.sb.journal_start(cx, credits::INODE + credits::SUPER)?;
        let now = self.sb.now(cx);
        inode.with(cx, |core| {
            core.flags = flags;
            core.ctime = now;
        });
        let written = self.inodes.mark_dirty(cx, &mut handle, &inode);
        let stopped = handle.stop(cx);
        written.and(stopped)
    }

    /// May the directory begin to ignore case, or cease to? Its names would have other hashes.
    fn check_casefold(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        if self.sb.geometry.encoding.is_none() {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(crypt) = inode.crypt() {
            crypt.dir_hash(&self.sb)?;
        }
        let empty = Dir::open(self, cx, inode)?.is_empty(cx)?;
        if empty { Ok(()) } else { Err(Errno::ENOTEMPTY) }
    }
}
