//! The trait that every file system implements.

use base::{Errno, Ino};
use block::{HostRange, Segment};
use cache::{Iomap, Lost};
use rt::Cx;

use crate::attr::*;

/// Longest name in a directory, bytes.
pub const NAME_MAX: usize = 255;
/// Longest path and longest symlink target, bytes, the closing NUL of C included.
pub const PATH_MAX: usize = 4096;
/// Longest name of an extended attribute, bytes, prefix included.
pub const XATTR_NAME_MAX: usize = 255;
/// Longest value of an extended attribute, bytes.
pub const XATTR_SIZE_MAX: usize = 65536;

/// Is this a name that can be created or removed?
///
/// # Errors
/// `ENOENT` for an empty name, `EINVAL` for a slash or NUL inside, `ENAMETOOLONG` above
/// [`NAME_MAX`].
pub fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if name.iter().any(|&b| b == b'/' || b == 0) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// One of several reads that are asked for together.
#[derive(Debug)]
pub struct FileRead<'a> {
    /// The file.
    pub ino: Ino,
    /// Where to begin, bytes.
    pub offset: u64,
    /// Memory for the content.
    pub buf: &'a mut [u8],
    /// The answer, as that of [`FileSystem::read`].
    pub done: Result<usize, Errno>,
}

/// A byte of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePlace {
    /// The file.
    pub ino: Ino,
    /// Bytes before it.
    pub offset: u64,
}

/// Where the extents of a file should lie and units in which they should come, in bytes, or those
/// of what is made in a directory; 0 where it asks for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExtentHints {
    /// Of extents for new content.
    pub extent: u32,
    /// Of extents that replace shared ones.
    pub cow: u32,
    /// The content lies in the realtime section.
    pub realtime: bool,
}

/// A name of an inode, as the inode itself knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParentName {
    /// The directory.
    pub dir: Ino,
    /// The name in it.
    pub name: Vec<u8>,
}

/// A mounted file system: operations on inode numbers.
///
/// **Division of work.** An implementation does exactly what it is asked: it checks what concerns
/// its own structure (types, names, existence, space) and no permission, applies no umask, no
/// set-group-id inheritance and no default ACL, and clears no set-id bit. [`crate::Namespace`] does
/// that above it. Two things concern the ACL of an inode itself and are the file system's: a `mode`
/// given to [`setattr`](Self::setattr) also changes a stored access ACL
/// ([`crate::acl::Acl::chmod`]), and setting `system.posix_acl_access` also changes the mode
/// ([`crate::acl::Acl::mode_bits`]).
///
/// **Names** are bytes, 1..=255, without `/` and NUL ([`check_name`]). `lookup` knows `.` and `..`
/// (the parent of the root is the root).
///
/// **Inode numbers** stay valid while the inode has a name or is open; afterwards `ESTALE`. An
/// inode without names that is open ([`open`](Self::open)) lives until its last
/// [`release`](Self::release).
///
/// **Blocking.** Every method with `cx` may park: it may read the device, wait for log space or for
/// other tasks. Methods may be called from many tasks at once.
///
/// # Errors
/// Besides those of each method: `EIO` device failed, `EUCLEAN` the image is damaged there, `EROFS`
/// a change on a read-only mount, `ENOSPC` no block or inode is left, `ESTALE` no such inode,
/// `ENOTDIR` where `dir` is not a directory.
pub trait FileSystem: Send + Sync {
    /// The kind of file system for messages: `ext2`, `ext4`, `memfs`, ..
    fn name(&self) -> &'static str;

    /// The root directory.
    fn root(&self) -> Ino;

    /// A count of the changes that may make a walk over directories end elsewhere, or be refused:
    /// a directory that is moved or removed, or whose owner, mode, flags or ACL change. It is
    /// raised after the change is seen and before the operation returns, so that a walk may be
    /// kept while the count stays. `None`: walks are not kept. Never waits.
    fn walk_version(&self) -> Option<u64> {
        None
    }

    /// Has it directories in which a name is found in another case too? Then who keeps names for
    /// others does not hear of all that change. Never waits.
    fn ignores_case(&self) -> bool {
        false
    }

    /// Finds a name in a directory; `.` and `..` are answered too.
    ///
    /// # Errors
    /// `ENOENT` no such name; `ENOTDIR`; `ENAMETOOLONG`.
    fn lookup(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<Attr, Errno>;

    /// The attributes of an inode.
    fn getattr(&self, cx: &mut Cx, ino: Ino) -> Result<Attr, Errno>;

    /// The names of an inode, each with its directory, in any order; None if the format does not
    /// keep them with the inode (the default). XFS does, in parent pointers.
    ///
    /// # Errors
    /// What reading attributes can answer.
    fn names_of(&self, cx: &mut Cx, ino: Ino) -> Result<Option<Vec<ParentName>>, Errno> {
        let _ = (cx, ino);
        Ok(None)
    }

    /// Changes attributes; either all that is given is applied or nothing.
    ///
    /// # Errors
    /// With `size`: `EISDIR` for a directory, `EINVAL` for other non-regular files, `EFBIG` beyond
    /// the largest file.
    fn setattr(&self, cx: &mut Cx, ino: Ino, set: &SetAttr) -> Result<Attr, Errno>;

    /// Creates a node of any type under a new name.
    ///
    /// # Errors
    /// `EEXIST` the name exists (also `.` and `..`); `ENOENT` the directory itself was removed or
    /// the target of a symlink is empty; `ENAMETOOLONG` name or target too long; `EMLINK` a further
    /// subdirectory does not fit; `EINVAL` bad name.
    fn create(&self, cx: &mut Cx, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr, Errno>;

    /// As [`create`](Self::create), with attributes (name, value) that the new inode has from the
    /// beginning: inherited ACLs, a security label. A file system that can makes it one step, so
    /// that no crash leaves a file without them; here they follow one by one.
    ///
    /// # Errors
    /// Those of `create` and of [`setxattr`](Self::setxattr).
    fn create_with(
        &self,
        cx: &mut Cx,
        dir: Ino,
        name: &[u8],
        node: &NewNode,
        attributes: &[(&[u8], Vec<u8>)],
    ) -> Result<Attr, Errno> {
        let attr = self.create(cx, dir, name, node)?;
        for (name, value) in attributes {
            self.setxattr(cx, attr.ino, name, value, XattrFlags::empty())?;
        }
        if attributes.is_empty() { Ok(attr) } else { self.getattr(cx, attr.ino) }
    }

    /// Creates a regular file without a name (`O_TMPFILE`), with attributes as
    /// [`create_with`](Self::create_with), which is open once: it goes with its last
    /// [`release`](Self::release), or by a crash, unless [`link`](Self::link) gives it a name
    /// before. It inherits from `dir` and lies near it.
    ///
    /// # Errors
    /// `EOPNOTSUPP` the format cannot (the default); `ENOENT` the directory was removed; those of
    /// [`setxattr`](Self::setxattr).
    fn create_unnamed(
        &self,
        cx: &mut Cx,
        dir: Ino,
        node: &NewNode,
        attributes: &[(&[u8], Vec<u8>)],
    ) -> Result<Attr, Errno> {
        let _ = (cx, dir, node, attributes);
        Err(Errno::EOPNOTSUPP)
    }

    /// Gives an inode a further name, or one that was created without
    /// ([`create_unnamed`](Self::create_unnamed)) its first.
    ///
    /// # Errors
    /// `EPERM` a directory; `EEXIST`; `EMLINK` too many names; `ENOENT` `ino` has no name any more
    /// or the directory was removed; `ENAMETOOLONG`, `EINVAL` bad name.
    fn link(&self, cx: &mut Cx, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Errno>;

    /// Removes a name of anything but a directory. The inode goes with its last name and last
    /// release.
    ///
    /// # Errors
    /// `ENOENT`; `EISDIR` a directory (also `.` and `..`); `ENAMETOOLONG`.
    fn unlink(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`; `ENOTDIR` not a directory; `ENOTEMPTY` (also for `..`); `EINVAL` for `.`;
    /// `ENAMETOOLONG`.
    fn rmdir(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<(), Errno>;

    /// Moves a name; the new name is replaced in one step if it exists. If both names belong to one
    /// inode nothing happens. With `WHITEOUT` the old name stays, for a whiteout that belongs to
    /// the caller ([`NewNode::whiteout`]).
    ///
    /// # Errors
    /// In this order: `EINVAL` unknown flags, or `EXCHANGE` with another one; `EBUSY` `.` or `..`;
    /// `ENOENT` no old name, or with `EXCHANGE` no new one; `EEXIST` with `NOREPLACE`; `EINVAL` a
    /// directory would move into itself; `ENOTEMPTY` (with `EXCHANGE` `EINVAL`) the new name is an
    /// ancestor of the old one; then, except with `EXCHANGE`, `ENOTDIR` a directory onto another
    /// type, `EISDIR` the reverse, `ENOTEMPTY` (XFS: `EEXIST`) onto a directory with entries;
    /// `EMLINK`; `ENAMETOOLONG`.
    fn rename(
        &self,
        cx: &mut Cx,
        old_dir: Ino,
        old_name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno>;

    /// The target of a symlink.
    ///
    /// # Errors
    /// `EINVAL` not a symlink.
    fn readlink(&self, cx: &mut Cx, ino: Ino) -> Result<Vec<u8>, Errno>;

    /// Lists a directory from `cookie` (0 = start) until its end or until `emit` returns false; the
    /// entry refused that way is not counted as seen. `.` and `..` are listed, first.
    ///
    /// A name that exists during the whole listing comes exactly once, also when others are created
    /// and removed meanwhile and when the listing is continued with a cookie after a remount.
    /// `emit` is called with the directory locked: it must not call this file system.
    fn readdir(
        &self,
        cx: &mut Cx,
        dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), Errno>;

    /// Counts an open: the inode stays when its last name goes.
    fn open(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno>;

    /// Counts a close. At the last one an inode without names is freed.
    fn release(&self, cx: &mut Cx, ino: Ino) -> Result<(), Errno>;

    /// Reads up to `buf.len()` bytes at byte `offset`; less only at the end of the file, 0 behind
    /// it.
    ///
    /// # Errors
    /// `EISDIR`; `EINVAL` other non-regular files.
    fn read(&self, cx: &mut Cx, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize, Errno>;

    /// Carries out several reads, each with the answer that [`read`](Self::read) would give, in no
    /// particular order (as `lio_listio`). A file system may ask its device for neighbours
    /// together, and need not keep the content in its cache: this is for whom reads many small
    /// files once.
    fn read_many(&self, cx: &mut Cx, reads: &mut [FileRead<'_>]) {
        for read in reads {
            read.done = self.read(cx, read.ino, read.offset, read.buf);
        }
    }

    /// Writes at byte `offset`, growing the file; mtime and ctime become now. Returns less than
    /// `data.len()` only when an error comes after the first part.
    ///
    /// # Errors
    /// `EISDIR`; `EINVAL` other non-regular files; `EFBIG`; `ENOSPC`.
    fn write(&self, cx: &mut Cx, ino: Ino, offset: u64, data: &[u8]) -> Result<usize, Errno>;

    /// Writes at the end of the file; returns where it began and how much was written.
    ///
    /// The default reads the size and writes there; two tasks that append at once may then
    /// overwrite each other, so a file system that can hold the inode over both steps does it
    /// itself.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    fn append(&self, cx: &mut Cx, ino: Ino, data: &[u8]) -> Result<(u64, usize), Errno> {
        let start = self.getattr(cx, ino)?.size;
        Ok((start, self.write(cx, ino, start, data)?))
    }

    /// Reads past the page cache (`O_DIRECT`). Offset and length are multiples of the logical
    /// block.
    ///
    /// # Errors
    /// `EINVAL` not aligned, or direct I/O is not supported (the default).
    fn read_direct(
        &self,
        _cx: &mut Cx,
        _ino: Ino,
        _offset: u64,
        _buf: &mut [u8],
    ) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// Gives `give` the places in files of the host that have the `len` bytes of a file from byte
    /// `offset` on, less only at its end, in their order, and returns what it does. They stay what
    /// they are until it returns, so that it must not wait for the file. False without asking it
    /// where there are no such places (the default).
    ///
    /// # Errors
    /// Those of [`read_direct`](Self::read_direct).
    fn read_at_host(
        &self,
        _cx: &mut Cx,
        _ino: Ino,
        _offset: u64,
        _len: u64,
        _give: &mut dyn FnMut(&[HostRange<'_>]) -> bool,
    ) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Writes past the page cache (`O_DIRECT`). Offset and length are multiples of the logical
    /// block.
    ///
    /// # Errors
    /// `EINVAL` not aligned, or direct I/O is not supported (the default).
    fn write_direct(
        &self,
        _cx: &mut Cx,
        _ino: Ino,
        _offset: u64,
        _data: &[u8],
    ) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// As [`write_direct`](Self::write_direct) of the caller's pages, which are shared and not
    /// copied; returns the bytes.
    ///
    /// # Errors
    /// As [`write_direct`](Self::write_direct).
    fn write_direct_pages(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        pages: &[Segment],
    ) -> Result<u64, Errno> {
        let mut done = 0;
        for page in pages {
            let count = self.write_direct(cx, ino, offset + done, page.bytes())? as u64;
            done += count;
            if count < u64::from(page.len) {
                break;
            }
        }
        Ok(done)
    }

    /// Returns when the inode's content and what is needed to find it (with `datasync` no more than
    /// that) survive a power cut. Works on directories too.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`: an earlier write-back failed; reported once.
    fn fsync(&self, cx: &mut Cx, ino: Ino, datasync: bool) -> Result<(), Errno>;

    /// Returns when everything done before survives a power cut.
    fn sync(&self, cx: &mut Cx) -> Result<(), Errno>;

    /// Makes it larger while it is in use: `blocks` blocks, counted in those of
    /// [`FileSystem::statfs`]. As many as it has: nothing happens. A few less than asked for where
    /// the rest is too short to be used. The device must have them by now. Durable afterwards; a
    /// power cut before leaves the old size or the new one.
    ///
    /// # Errors
    /// `EINVAL` it has more; `ENOSPC` the device has less; `EOPNOTSUPP` the format or this one
    /// cannot grow while it is in use; `EROFS`.
    fn grow(&self, _cx: &mut Cx, _blocks: u64) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// The structure that the ioctl `XFS_IOC_FSGEOMETRY` answers, in the host's byte order.
    ///
    /// # Errors
    /// `ENOTTY` another format; `EOPNOTSUPP` a version of it that the structure cannot describe.
    fn xfs_geometry(&self, _cx: &mut Cx) -> Result<Vec<u8>, Errno> {
        Err(Errno::ENOTTY)
    }

    /// Changes the flags that lsattr(1) shows ([`Attr::flags`]) to these.
    ///
    /// # Errors
    /// `EOPNOTSUPP` the format or this inode has not one of them; `EROFS`.
    fn set_flags(&self, _cx: &mut Cx, _ino: Ino, _flags: u32) -> Result<Attr, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Units in which an inode's extents should come.
    ///
    /// # Errors
    /// `EOPNOTSUPP` the format keeps none.
    fn extent_hints(&self, _cx: &mut Cx, _ino: Ino) -> Result<ExtentHints, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Changes the units in which an inode's extents should come to these.
    ///
    /// # Errors
    /// `EOPNOTSUPP` the format keeps none; `EINVAL` not of whole blocks, too long, not for an inode
    /// of this type, or the file has blocks and another unit, or none of them is in the section
    /// asked for; `EBUSY` the file, which has no blocks, was read or written since the mount, and
    /// would change the section; `EROFS`.
    fn set_extent_hints(&self, _cx: &mut Cx, _ino: Ino, _hints: ExtentHints) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Allocates, punches or zeroes the bytes `offset..offset+len`, takes them out or puts them in.
    ///
    /// # Errors
    /// `EINVAL` `len` is 0, a range that is taken out or put in is not of whole blocks or reaches
    /// the end of the file; `EFBIG`; `EISDIR`; `ENODEV` other non-regular files; `EOPNOTSUPP` the
    /// format or this inode's mapping cannot do it.
    fn fallocate(
        &self,
        cx: &mut Cx,
        ino: Ino,
        mode: FallocMode,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno>;

    /// Lets `len` bytes of a file share the blocks of another one, or of another part of the same
    /// one: `from` and `to` are inode and offset. What `to` had there is gone; it grows where it
    /// must. 0 bytes stand for all up to the end of `from`. What either file writes later the other
    /// does not see.
    ///
    /// # Errors
    /// `EOPNOTSUPP` the format cannot share blocks; `EINVAL` offsets or length are not whole blocks
    /// (the end of `from` may be half a one, where `to` ends as well), the range ends behind
    /// `from`, or both ranges overlap; `EISDIR`; `ENOSPC`, `EROFS`.
    fn clone_range(
        &self,
        cx: &mut Cx,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> Result<(), Errno> {
        let _ = (cx, from, to, len);
        Err(Errno::EOPNOTSUPP)
    }

    /// As [`FileSystem::clone_range`], where both ranges have the same bytes already; nobody sees
    /// more than the space that becomes free. False, and nothing changed, where they differ.
    ///
    /// # Errors
    /// Those of [`FileSystem::clone_range`]; `EINVAL` also where `to` ends before its range.
    fn dedupe_range(
        &self,
        cx: &mut Cx,
        from: FilePlace,
        to: FilePlace,
        len: u64,
    ) -> Result<bool, Errno> {
        let _ = (cx, from, to, len);
        Err(Errno::EOPNOTSUPP)
    }

    /// Exchanges `len` bytes of two files, or of two parts of one: afterwards each has what the
    /// other had, and a crash leaves all of it done or nothing. None stands for all up to the ends
    /// of both, from one offset on; then the sizes follow.
    ///
    /// # Errors
    /// `EOPNOTSUPP` the format cannot do that; `EINVAL` offsets or length are not whole blocks (the
    /// length may be a part of one where both files end), a range ends behind its file, both
    /// overlap, offsets differ without a length, or the files lie on different devices; `EISDIR`;
    /// `EDQUOT`, `ENOSPC`, `EROFS`.
    fn exchange_range(
        &self,
        cx: &mut Cx,
        sides: [FilePlace; 2],
        len: Option<u64>,
    ) -> Result<(), Errno> {
        let _ = (cx, sides, len);
        Err(Errno::EOPNOTSUPP)
    }

    /// Gives a file blocks of its own where it shares some within `offset..offset + len`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` the format cannot share blocks; `EISDIR`; `ENOSPC`, `EROFS`.
    fn unshare_range(&self, cx: &mut Cx, ino: Ino, offset: u64, len: u64) -> Result<(), Errno> {
        let _ = (cx, ino, offset, len);
        Err(Errno::EOPNOTSUPP)
    }

    /// The next byte at or after `offset` that is data, or is in a hole. Whole blocks may count as
    /// data, and unwritten extents as either.
    ///
    /// # Errors
    /// `ENXIO` `offset` is not below the size, or no data follows; `EINVAL` not a regular file.
    fn seek(&self, cx: &mut Cx, ino: Ino, offset: u64, whence: SeekWhence) -> Result<u64, Errno>;

    /// Where `offset..offset+len` lies on the device, in file order.
    ///
    /// # Errors
    /// `EOPNOTSUPP` not backed by a device.
    fn fiemap(&self, cx: &mut Cx, ino: Ino, offset: u64, len: u64) -> Result<Vec<Iomap>, Errno>;

    /// The value of an extended attribute, `name` with its prefix (`user.x`). POSIX ACLs are the
    /// attributes `system.posix_acl_access` and `system.posix_acl_default` in the wire form of
    /// [`crate::acl`], whatever the disk holds.
    ///
    /// # Errors
    /// `ENODATA`; `EOPNOTSUPP` unknown prefix; `EINVAL` nothing after the prefix; `ERANGE` name
    /// above [`XATTR_NAME_MAX`].
    fn getxattr(&self, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno>;

    /// Sets an extended attribute. Setting the access ACL sets the mode bits with it, and an ACL
    /// that the mode bits alone express is not stored. ctime becomes now.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA` by `flags`; `E2BIG` value above [`XATTR_SIZE_MAX`]; `ENOSPC` it does not
    /// fit into the format; `EINVAL` a malformed ACL; `EACCES` a default ACL for a non-directory;
    /// `EOPNOTSUPP` an ACL for a symlink; those of [`getxattr`](Self::getxattr) for the name.
    fn setxattr(
        &self,
        cx: &mut Cx,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno>;

    /// The names of all extended attributes with their prefixes, in no particular order.
    fn listxattr(&self, cx: &mut Cx, ino: Ino) -> Result<Vec<Vec<u8>>, Errno>;

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` (except for ACLs, which may be removed twice); those of
    /// [`getxattr`](Self::getxattr) for the name.
    fn removexattr(&self, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<(), Errno>;

    /// State and limits.
    fn statfs(&self, cx: &mut Cx) -> Result<StatFs, Errno>;

    /// Data that was accepted and later dropped for want of space, to be reported at unmount.
    /// Also after the unmount.
    fn lost(&self) -> Lost {
        Lost::default()
    }

    /// Notes that a face of the file system (FUSE) dropped what it had accepted.
    fn note_lost(&self, ino: Ino, bytes: u64, errno: Errno) {
        let _ = (ino, bytes, errno);
    }

    /// Makes durable what its timer would by itself: changes of names and attributes, without the
    /// data that have no place yet. May park.
    ///
    /// # Errors
    /// Those of the journal or the log.
    fn commit(&self, cx: &mut Cx) -> Result<(), Errno> {
        let _ = cx;
        Ok(())
    }

    /// Writes everything out and leaves the file system clean; afterwards every call returns `EIO`.
    fn unmount(&self, cx: &mut Cx) -> Result<(), Errno>;

    /// Stops at once without writing, as a power cut does: background tasks end, every later call
    /// returns `EIO`.
    fn shutdown_hard(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(check_name(b"a"), Ok(()));
        assert_eq!(check_name(b""), Err(Errno::ENOENT));
        assert_eq!(check_name(b"a/b"), Err(Errno::EINVAL));
        assert_eq!(check_name(b"a\0"), Err(Errno::EINVAL));
        assert_eq!(check_name(&[b'x'; 255]), Ok(()));
        assert_eq!(check_name(&[b'x'; 256]), Err(Errno::ENAMETOOLONG));
    }
}
