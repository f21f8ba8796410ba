//! Paths, permissions and open files on top of the reference file system.

use std::sync::Arc;

use base::Errno;
use rt::{Cred, Cx, World, WorldConfig};
use testkit::memfs::MemFs;
use vfs::acl::{self, Acl, Entry, NO_ID, Tag};
use vfs::permission::Access;
use vfs::{FileType, Namespace, OpenFlags, RenameFlags, SetAttr, XattrFlags};

/// Runs a test as root on an empty file system.
fn with(test: impl FnOnce(&mut Cx, &Namespace)) {
    let mut world = World::new(WorldConfig::default());
    world.run("test", |cx| test(cx, &Namespace::new(Arc::new(MemFs::new()))));
}

fn user(cx: &mut Cx, uid: u32) {
    cx.set_cred(Cred::user(uid, uid));
}

fn put(cx: &mut Cx, ns: &Namespace, path: &[u8], content: &[u8]) {
    let file = ns.open(cx, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644).unwrap();
    assert_eq!(file.write(cx, content), Ok(content.len()));
    file.close(cx).unwrap();
}

fn get(cx: &mut Cx, ns: &Namespace, path: &[u8]) -> Vec<u8> {
    let file = ns.open(cx, path, OpenFlags::READ, 0).unwrap();
    let mut buf = vec![0; 100];
    let count = file.read(cx, &mut buf).unwrap();
    file.close(cx).unwrap();
    buf.truncate(count);
    buf
}

/// A tree with symlinks of every kind, walked by paths of every kind.
#[test]
fn paths_lead_where_path_resolution_says() {
    with(|cx, ns| {
        ns.mkdir(cx, b"/a", 0o755).unwrap();
        ns.mkdir(cx, b"/a/b/", 0o755).unwrap();
        put(cx, ns, b"/a/b/file", b"x");
        ns.symlink(cx, b"b/file", b"/a/relative").unwrap();
        ns.symlink(cx, b"/a/b", b"/a/absolute").unwrap();
        ns.symlink(cx, b"../../a/./b/../relative", b"/a/b/winding").unwrap();
        ns.symlink(cx, b"nowhere", b"/dangling").unwrap();
        let file = ns.stat(cx, b"/a/b/file").unwrap().ino;
        let dir = ns.stat(cx, b"/a/b").unwrap().ino;
        for path in [
            &b"/a/b/file"[..],
            b"a/b/file",
            b"//a///b//file",
            b"/../../a/b/./file",
            b"/a/relative",
            b"/a/absolute/file",
            b"/a/b/winding",
            b"/a/absolute/../b/winding",
        ] {
            let found = ns.stat(cx, path).map(|attr| attr.ino);
            assert_eq!(found, Ok(file), "{}", String::from_utf8_lossy(path));
        }
        assert_eq!(ns.lstat(cx, b"/a/absolute").unwrap().kind, FileType::Symlink);
        assert_eq!(ns.lstat(cx, b"/a/absolute/").unwrap().ino, dir, "a slash follows the link");
        for (path, errno) in [
            (&b""[..], Errno::ENOENT),
            (b"/missing", Errno::ENOENT),
            (b"/missing/x", Errno::ENOENT),
            (b"/dangling", Errno::ENOENT),
            (b"/a/b/file/", Errno::ENOTDIR),
            (b"/a/b/file/x", Errno::ENOTDIR),
            (b"/a/relative/", Errno::ENOTDIR),
            (&[b'x'; 256], Errno::ENAMETOOLONG),
            (&[b'/'; 4096], Errno::ENAMETOOLONG),
            (b"/a\0", Errno::EINVAL),
        ] {
            let answer = ns.stat(cx, path).map(|attr| attr.ino);
            assert_eq!(answer, Err(errno), "{}", String::from_utf8_lossy(path));
        }
    });
}

/// Chains of 40 symlinks are followed, of 41 are not; a loop ends.
#[test]
fn forty_symlinks_are_followed() {
    with(|cx, ns| {
        put(cx, ns, b"/l0", b"end");
        for i in 1..=41 {
            let (target, name) = (format!("l{}", i - 1), format!("/l{i}"));
            ns.symlink(cx, target.as_bytes(), name.as_bytes()).unwrap();
        }
        assert!(ns.stat(cx, b"/l40").is_ok());
        assert_eq!(ns.stat(cx, b"/l41").map(drop), Err(Errno::ELOOP));
        ns.symlink(cx, b"loop", b"/loop").unwrap();
        assert_eq!(ns.stat(cx, b"/loop").map(drop), Err(Errno::ELOOP));
        assert_eq!(ns.stat(cx, b"/loop/x").map(drop), Err(Errno::ELOOP));
        assert!(ns.lstat(cx, b"/loop").is_ok());
    });
}

/// The flags of open(2), each where it decides.
#[test]
fn open_keeps_its_flags() {
    use OpenFlags as F;
    with(|cx, ns| {
        put(cx, ns, b"/file", b"content");
        ns.mkdir(cx, b"/dir", 0o755).unwrap();
        ns.symlink(cx, b"made", b"/dangling").unwrap();
        let mut open = |path: &[u8], flags| ns.open(cx, path, flags, 0o600).map(drop);
        assert_eq!(open(b"/none", F::READ), Err(Errno::ENOENT));
        assert_eq!(open(b"/file", F::WRITE | F::CREATE | F::EXCL), Err(Errno::EEXIST));
        assert_eq!(open(b"/dangling", F::WRITE | F::CREATE | F::EXCL), Err(Errno::EEXIST));
        assert_eq!(open(b"/dangling", F::READ | F::NOFOLLOW), Err(Errno::ELOOP));
        assert_eq!(open(b"/dangling", F::WRITE | F::CREATE), Ok(()));
        assert_eq!(open(b"/dir", F::WRITE), Err(Errno::EISDIR));
        assert_eq!(open(b"/dir", F::READ | F::DIRECTORY), Ok(()));
        assert_eq!(open(b"/file", F::READ | F::DIRECTORY), Err(Errno::ENOTDIR));
        assert_eq!(open(b"/new/", F::WRITE | F::CREATE), Err(Errno::EISDIR));
        assert!(ns.stat(cx, b"/made").is_ok(), "created through the dangling symlink");
        let file = ns.open(cx, b"/file", F::READ, 0).unwrap();
        assert_eq!(file.write(cx, b"x"), Err(Errno::EBADF));
        assert_eq!(file.read_at(cx, 0, &mut [0; 4]), Ok(4));
        let log = ns.open(cx, b"/file", F::WRITE | F::APPEND, 0).unwrap();
        log.seek(cx, 0).unwrap();
        log.write(cx, b"+more").unwrap();
        assert_eq!(get(cx, ns, b"/file"), b"content+more");
        ns.open(cx, b"/file", F::WRITE | F::TRUNC, 0).unwrap();
        assert_eq!(get(cx, ns, b"/file"), b"");
    });
}

/// Mode bits, search permission, the sticky bit.
#[test]
fn strangers_are_kept_out() {
    with(|cx, ns| {
        ns.mkdir(cx, b"/closed", 0o700).unwrap();
        put(cx, ns, b"/closed/file", b"");
        put(cx, ns, b"/readable", b"r");
        ns.mkdir(cx, b"/tmp", 0o777).unwrap();
        let mode = SetAttr { mode: Some(0o1777), ..SetAttr::default() };
        ns.setattr(cx, b"/tmp", &mode, true).unwrap();
        user(cx, 5);
        assert_eq!(ns.stat(cx, b"/closed/file").map(drop), Err(Errno::EACCES));
        assert_eq!(ns.list(cx, b"/closed").map(drop), Err(Errno::EACCES));
        assert_eq!(ns.access(cx, b"/readable", Access::READ), Ok(()));
        assert_eq!(ns.access(cx, b"/readable", Access::WRITE), Err(Errno::EACCES));
        assert_eq!(ns.mkdir(cx, b"/x", 0o755).map(drop), Err(Errno::EACCES));
        put(cx, ns, b"/tmp/mine", b"");
        user(cx, 6);
        assert_eq!(ns.unlink(cx, b"/tmp/mine"), Err(Errno::EPERM), "sticky");
        let none = RenameFlags::empty();
        assert_eq!(ns.rename(cx, b"/tmp/mine", b"/tmp/x", none), Err(Errno::EPERM));
        user(cx, 5);
        assert_eq!(ns.unlink(cx, b"/tmp/mine"), Ok(()));
    });
}

/// Group and default ACL of a directory go to what is made in it; the umask applies without one.
#[test]
fn new_files_inherit_from_their_directory() {
    with(|cx, ns| {
        put(cx, ns, b"/plain", b"");
        assert_eq!(ns.stat(cx, b"/plain").unwrap().mode, 0o644);
        let dir = ns.mkdir(cx, b"/dir", 0o755).unwrap().ino;
        let set = SetAttr { mode: Some(0o2775), gid: Some(77), ..SetAttr::default() };
        ns.fs().setattr(cx, dir, &set).unwrap();
        let sub = ns.mkdir(cx, b"/dir/sub", 0o777).unwrap();
        assert_eq!((sub.gid, sub.mode), (77, 0o2755));
        let entry = |tag, perm, id| Entry { tag, perm, id };
        let list = Acl::new(vec![
            entry(Tag::UserObj, 7, NO_ID),
            entry(Tag::User, 6, 42),
            entry(Tag::GroupObj, 5, NO_ID),
            entry(Tag::Mask, 7, NO_ID),
            entry(Tag::Other, 0, NO_ID),
        ]);
        let value = list.unwrap().emit();
        ns.setxattr(cx, b"/dir", acl::DEFAULT, &value, XattrFlags::empty()).unwrap();
        put(cx, ns, b"/dir/file", b"secret");
        let attr = ns.stat(cx, b"/dir/file").unwrap();
        assert_eq!(attr.mode & 0o777, 0o640, "0644 asked, others get nothing by the list");
        ns.mkdir(cx, b"/dir/deeper", 0o777).unwrap();
        assert_eq!(ns.getxattr(cx, b"/dir/deeper", acl::DEFAULT), Ok(value));
        cx.set_cred(Cred::user(42, 42));
        assert_eq!(ns.access(cx, b"/dir/file", Access::READ), Ok(()), "by the entry of user 42");
        user(cx, 43);
        assert_eq!(ns.access(cx, b"/dir/file", Access::READ), Err(Errno::EACCES));
    });
}

/// Writing by somebody else than root takes set-id bits away.
#[test]
fn writes_clear_set_id_bits() {
    with(|cx, ns| {
        put(cx, ns, b"/tool", b"#!");
        let set = SetAttr { mode: Some(0o6777), uid: Some(9), ..SetAttr::default() };
        let ino = ns.stat(cx, b"/tool").unwrap().ino;
        ns.fs().setattr(cx, ino, &set).unwrap();
        put(cx, ns, b"/tool", b"by root");
        assert_eq!(ns.stat(cx, b"/tool").unwrap().mode, 0o6777);
        user(cx, 5);
        put(cx, ns, b"/tool", b"by a user");
        assert_eq!(ns.stat(cx, b"/tool").unwrap().mode, 0o777);
    });
}

/// Trailing slashes on names that are made, removed and moved.
#[test]
fn a_trailing_slash_means_a_directory() {
    with(|cx, ns| {
        put(cx, ns, b"/file", b"");
        ns.mkdir(cx, b"/dir", 0o755).unwrap();
        assert_eq!(ns.unlink(cx, b"/file/"), Err(Errno::ENOTDIR));
        assert_eq!(ns.unlink(cx, b"/dir/"), Err(Errno::EISDIR));
        assert_eq!(ns.symlink(cx, b"x", b"/link/").map(drop), Err(Errno::ENOENT));
        let none = RenameFlags::empty();
        assert_eq!(ns.rename(cx, b"/file", b"/other/", none), Err(Errno::ENOTDIR));
        assert_eq!(ns.rename(cx, b"/dir/", b"/moved/", none), Ok(()));
        assert_eq!(ns.rmdir(cx, b"/moved/."), Err(Errno::EINVAL));
        assert_eq!(ns.rmdir(cx, b"/moved/.."), Err(Errno::ENOTEMPTY));
        assert_eq!(ns.rmdir(cx, b"/"), Err(Errno::EBUSY));
        assert_eq!(ns.rmdir(cx, b"/moved/"), Ok(()));
    });
}
