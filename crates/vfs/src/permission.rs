//! Permission checks: mode bits, access control lists, the sticky bit, and the rights of root.
//!
//! The rules are those of Linux without user namespaces: uid 0 has all capabilities, everybody else
//! none. The checks take attributes that the caller has at hand; only an ACL may have to be read.

use base::Errno;
use bitflags::bitflags;
use rt::{Cred, Cx};

use crate::acl::{self, Acl};
use crate::attr::{Attr, FileType, SetAttr};
use crate::fs::FileSystem;

/// Set-user-id bit.
pub const S_ISUID: u16 = 0o4000;
/// Set-group-id bit.
pub const S_ISGID: u16 = 0o2000;
/// Sticky bit.
pub const S_ISVTX: u16 = 0o1000;
/// `FS_VERITY_FL` of `Attr::flags`: the content never changes.
pub const VERITY: u32 = 0x10_0000;
/// `FS_IMMUTABLE_FL` of `Attr::flags`: nothing may change.
pub const IMMUTABLE: u32 = 0x10;
/// `FS_APPEND_FL` of `Attr::flags`: content may only grow.
pub const APPEND_ONLY: u32 = 0x20;

bitflags! {
    /// What is wanted of a file; the values are those of access(2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Access: u16 {
        /// Read, or list a directory.
        const READ = 4;
        /// Write, or change the names in a directory.
        const WRITE = 2;
        /// Execute, or pass through a directory.
        const EXEC = 1;
    }
}

/// May the task of `cx` access this inode? May park: reads the ACL where the mode bits leave it
/// open.
///
/// # Errors
/// `EACCES`; `EPERM` writing to an immutable inode, or to a file with verity; those of reading the
/// ACL.
pub fn access(cx: &mut Cx, fs: &dyn FileSystem, attr: &Attr, want: Access) -> Result<(), Errno> {
    if want.contains(Access::WRITE) && attr.flags & (IMMUTABLE | VERITY) != 0 {
        return Err(Errno::EPERM);
    }
    if cx.cred().is_root() && root_may(attr, want) || granted(cx, fs, attr, want.bits())? {
        Ok(())
    } else {
        Err(Errno::EACCES)
    }
}

/// May root access this inode? `CAP_DAC_OVERRIDE`: all but executing a file that nobody may.
pub fn root_may(attr: &Attr, want: Access) -> bool {
    attr.is_dir() || !want.contains(Access::EXEC) || attr.mode & 0o111 != 0
}

fn granted(cx: &mut Cx, fs: &dyn FileSystem, attr: &Attr, want: u16) -> Result<bool, Errno> {
    if cx.cred().uid == attr.uid {
        return Ok(attr.mode >> 6 & want == want);
    }
    // The group bits are the mask of the list: if they are empty, it cannot grant anything that the
    // bits of others do not, and need not be read.
    if attr.mode & 0o070 != 0 && attr.kind != FileType::Symlink {
        match fs.getxattr(cx, attr.ino, acl::ACCESS) {
            Ok(value) => {
                if let Some(list) = Acl::parse(&value)? {
                    return Ok(list.permits(cx.cred(), attr.uid, attr.gid, want));
                }
            }
            Err(Errno::ENODATA | Errno::EOPNOTSUPP) => {}
            Err(other) => return Err(other),
        }
    }
    let shift = if in_group(cx.cred(), attr.gid) { 3 } else { 0 };
    Ok(attr.mode >> shift & want == want)
}

/// Is the group among those of the credentials?
pub fn in_group(cred: &Cred, gid: u32) -> bool {
    cred.gid == gid || cred.groups.contains(&gid)
}

/// Whether an inode keeps its names, mode, owner and size: it is immutable or append-only.
pub fn is_fixed(attr: &Attr) -> bool {
    attr.flags & (IMMUTABLE | APPEND_ONLY) != 0
}

/// May the task remove or replace `victim`'s name in `dir`? Write access to `dir` is checked too.
///
/// # Errors
/// `EACCES` no write or search access; `EPERM` sticky directory and neither owner, or an
/// append-only or immutable flag is in the way.
pub fn may_delete(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: &Attr,
    victim: &Attr,
) -> Result<(), Errno> {
    access(cx, fs, dir, Access::WRITE | Access::EXEC)?;
    let uid = cx.cred().uid;
    let sticky = dir.mode & S_ISVTX != 0 && uid != 0 && uid != dir.uid && uid != victim.uid;
    let fixed = is_fixed(victim) || dir.flags & APPEND_ONLY != 0;
    if sticky || fixed { Err(Errno::EPERM) } else { Ok(()) }
}

/// May the task give an inode these flags?
///
/// # Errors
/// `EPERM`: not the owner; or a change of [`IMMUTABLE`] or [`APPEND_ONLY`], which is root's.
pub fn may_set_flags(cred: &Cred, attr: &Attr, flags: u32) -> Result<(), Errno> {
    let fixed = (attr.flags ^ flags) & (IMMUTABLE | APPEND_ONLY) != 0;
    let owner = cred.uid == 0 || cred.uid == attr.uid;
    if !owner || fixed && cred.uid != 0 { Err(Errno::EPERM) } else { Ok(()) }
}

/// May the task change these attributes? Returns the request as it is to be carried out: set-id
/// bits are dropped where chown and truncate drop them, and set-group-id where a stranger to the
/// group sets the mode. `size` needs write access, which is the caller's to check.
///
/// # Errors
/// `EPERM`: not the owner, or owner and group that only root may give; an immutable inode; mode,
/// owner or size of an append-only one.
pub fn may_set(cred: &Cred, attr: &Attr, set: &SetAttr) -> Result<SetAttr, Errno> {
    let changes_owner = set.uid.is_some() || set.gid.is_some();
    let more_than_times = changes_owner || set.mode.is_some() || set.size.is_some();
    if set.size.is_some() && attr.flags & VERITY != 0 {
        return Err(Errno::EPERM);
    }
    if attr.flags & IMMUTABLE != 0 || attr.flags & APPEND_ONLY != 0 && more_than_times {
        return Err(Errno::EPERM);
    }
    let root = cred.uid == 0;
    let owner = root || cred.uid == attr.uid;
    let times = set.atime.is_some() || set.mtime.is_some() || set.ctime.is_some();
    if !owner && (set.mode.is_some() || times) {
        return Err(Errno::EPERM);
    }
    if !root && set.uid.is_some_and(|uid| uid != attr.uid || cred.uid != attr.uid) {
        return Err(Errno::EPERM);
    }
    let gives_group = |gid| cred.uid == attr.uid && (gid == attr.gid || in_group(cred, gid));
    if !root && set.gid.is_some_and(|gid| !gives_group(gid)) {
        return Err(Errno::EPERM);
    }
    let mut set = set.clone();
    let gid = set.gid.unwrap_or(attr.gid);
    if let Some(mode) = &mut set.mode
        && !root
        && !in_group(cred, gid)
    {
        *mode &= !S_ISGID;
    }
    let drops_set_id = (changes_owner || (set.size.is_some() && !root)) && !attr.is_dir();
    if drops_set_id && set.mode.is_none() && without_set_id(attr.mode) != attr.mode {
        set.mode = Some(without_set_id(attr.mode));
    }
    Ok(set)
}

/// The mode after a write by somebody who is not root: without set-user-id, and without
/// set-group-id where the group may execute (else that bit means mandatory locking and stays).
pub fn without_set_id(mode: u16) -> u16 {
    let group = if mode & 0o010 != 0 { S_ISGID } else { 0 };
    mode & !(S_ISUID | group)
}

/// May extended attributes of the `user.` and `trusted.` families be read or changed here? Read or
/// write access to the inode is the caller's to check.
///
/// # Errors
/// `EPERM` (`ENODATA` for reading): `user.` on anything but files and directories, or on another's
/// sticky directory; `trusted.` for others than root; `security.` changed by others than root.
pub fn may_xattr(cred: &Cred, attr: &Attr, name: &[u8], change: bool) -> Result<(), Errno> {
    let refused = if change { Errno::EPERM } else { Errno::ENODATA };
    if change && attr.flags & (IMMUTABLE | APPEND_ONLY) != 0 {
        return Err(Errno::EPERM);
    }
    if name.starts_with(b"trusted.") && cred.uid != 0 {
        return Err(refused);
    }
    if name.starts_with(b"security.") && change && cred.uid != 0 {
        return Err(Errno::EPERM);
    }
    if name.starts_with(b"system.") && change && cred.uid != 0 && cred.uid != attr.uid {
        return Err(Errno::EPERM);
    }
    if name.starts_with(b"user.") {
        if !matches!(attr.kind, FileType::Regular | FileType::Directory) {
            return Err(refused);
        }
        let sticky = attr.is_dir() && attr.mode & S_ISVTX != 0;
        if sticky && change && cred.uid != 0 && cred.uid != attr.uid {
            return Err(Errno::EPERM);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Ino, Timespec};

    fn attr(kind: FileType, mode: u16, uid: u32, gid: u32) -> Attr {
        let now = Timespec::default();
        Attr {
            ino: Ino(12),
            kind,
            mode,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: None,
            generation: 0,
            flags: 0,
            blksize: 4096,
        }
    }

    fn cred(uid: u32, gid: u32) -> Cred {
        Cred { uid, gid, groups: [7].into(), umask: 0 }
    }

    #[test]
    fn only_the_owner_and_root_change_mode_and_times() {
        let file = attr(FileType::Regular, 0o644, 5, 6);
        let chmod = SetAttr { mode: Some(0o2755), ..SetAttr::default() };
        assert_eq!(may_set(&cred(9, 6), &file, &chmod), Err(Errno::EPERM));
        assert_eq!(may_set(&cred(5, 6), &file, &chmod).unwrap().mode, Some(0o2755));
        assert_eq!(may_set(&cred(5, 1), &file, &chmod).unwrap().mode, Some(0o755));
        assert_eq!(may_set(&cred(0, 0), &file, &chmod).unwrap().mode, Some(0o2755));
    }

    #[test]
    fn an_owner_gives_a_file_only_to_his_groups_and_loses_set_id() {
        let file = attr(FileType::Regular, 0o6755, 5, 6);
        let group = |gid| SetAttr { gid: Some(gid), ..SetAttr::default() };
        assert_eq!(may_set(&cred(5, 6), &file, &group(7)).unwrap().mode, Some(0o755));
        assert_eq!(may_set(&cred(5, 6), &file, &group(8)), Err(Errno::EPERM));
        let chown = SetAttr { uid: Some(5), ..SetAttr::default() };
        assert!(may_set(&cred(5, 6), &file, &chown).is_ok());
        let chown = SetAttr { uid: Some(9), ..SetAttr::default() };
        assert_eq!(may_set(&cred(5, 6), &file, &chown), Err(Errno::EPERM));
    }

    #[test]
    fn user_attributes_belong_on_files_and_directories() {
        let link = attr(FileType::Symlink, 0o777, 5, 6);
        assert_eq!(may_xattr(&cred(5, 6), &link, b"user.a", true), Err(Errno::EPERM));
        assert_eq!(may_xattr(&cred(5, 6), &link, b"user.a", false), Err(Errno::ENODATA));
        let file = attr(FileType::Regular, 0o644, 5, 6);
        assert_eq!(may_xattr(&cred(5, 6), &file, b"user.a", true), Ok(()));
        assert_eq!(may_xattr(&cred(5, 6), &file, b"trusted.a", true), Err(Errno::EPERM));
        assert_eq!(may_xattr(&cred(0, 0), &file, b"trusted.a", true), Ok(()));
    }
}
