//! Extended attributes and access control lists.

use base::Errno;
use vfs::acl::{self, Acl, NO_ID, Tag};
use vfs::{FileType, NewNode, SetAttr, XattrFlags};

use super::{Entry, Env};

pub const CASES: &[Entry] = &[
    ("xattrs::values_come_back", values),
    ("xattrs::flags_are_kept", flags),
    ("xattrs::bad_names_are_refused", bad_names),
    ("xattrs::many_small_and_one_large", many),
    ("xattrs::an_access_list_and_the_mode_agree", access_list),
    ("xattrs::default_lists_belong_to_directories", default_list),
    ("xattrs::a_new_inode_has_them_from_the_beginning", at_create),
];

fn at_create(env: &mut Env) {
    let dir = env.dir;
    let list = Acl::new(vec![
        acl::Entry { tag: Tag::UserObj, perm: 6, id: NO_ID },
        acl::Entry { tag: Tag::User, perm: 7, id: 1000 },
        acl::Entry { tag: Tag::GroupObj, perm: 4, id: NO_ID },
        acl::Entry { tag: Tag::Mask, perm: 5, id: NO_ID },
        acl::Entry { tag: Tag::Other, perm: 0, id: NO_ID },
    ]);
    let list = list.expect("a sound list").emit();
    let label = b"system_u:object_r:tmp_t:s0\0";
    let large = vec![b'x'; 700];
    for (name, kind) in [("file", FileType::Regular), ("dir", FileType::Directory)] {
        let given: [(&[u8], Vec<u8>); 3] = [
            (acl::ACCESS, list.clone()),
            (b"security.selinux", label.to_vec()),
            (b"user.large", large.clone()),
        ];
        let node = NewNode::new(kind, 0o777);
        let attr = env.ok(name, |fs, cx| fs.create_with(cx, dir, name.as_bytes(), &node, &given));
        assert_eq!(attr.mode & 0o777, 0o650, "{}: the list sets the mode", env.case);
        for (attribute, value) in &given {
            let got = env.ok(name, |fs, cx| fs.getxattr(cx, attr.ino, attribute));
            assert_eq!(got, *value, "{}: {name}", env.case);
        }
    }
    let wrong: [(&[u8], Vec<u8>); 1] = [(acl::DEFAULT, list)];
    let node = NewNode::new(FileType::Regular, 0o644);
    let made = |fs: &dyn vfs::FileSystem, cx: &mut rt::Cx| {
        fs.create_with(cx, dir, b"wrong", &node, &wrong)
    };
    env.err(Errno::EACCES, "a default list for a file", made);
}

const ANY: XattrFlags = XattrFlags::empty();

fn values(env: &mut Env) {
    let dir = env.dir;
    let link = env.make(dir, "link", &NewNode::symlink(b"x")).ino;
    let targets = [env.file(dir, "f"), env.mkdir(dir, "d"), link];
    for ino in targets {
        for (name, value) in
            [("user.a", b"1" as &[u8]), ("trusted.empty", b""), ("security.x", &[0, 255, 0, 9])]
        {
            env.set_xattr(ino, name, value);
            let got = env.ok(name, |fs, cx| fs.getxattr(cx, ino, name.as_bytes()));
            assert_eq!(got, value, "{}: {name}", env.case);
        }
        env.set_xattr(ino, "user.a", b"a longer value");
        let got = env.ok("get", |fs, cx| fs.getxattr(cx, ino, b"user.a"));
        assert_eq!(got, b"a longer value");
        let mut names = env.ok("list", |fs, cx| fs.listxattr(cx, ino));
        names.sort();
        assert_eq!(names, [b"security.x" as &[u8], b"trusted.empty", b"user.a"]);
        env.ok("remove", |fs, cx| fs.removexattr(cx, ino, b"user.a"));
        env.err(Errno::ENODATA, "get", |fs, cx| fs.getxattr(cx, ino, b"user.a"));
        env.err(Errno::ENODATA, "remove", |fs, cx| fs.removexattr(cx, ino, b"user.a"));
        assert_eq!(env.ok("list", |fs, cx| fs.listxattr(cx, ino)).len(), 2);
    }
}

fn flags(env: &mut Env) {
    let file = env.file(env.dir, "f");
    let (create, replace) = (XattrFlags::CREATE, XattrFlags::REPLACE);
    env.err(Errno::ENODATA, "replace", |fs, cx| fs.setxattr(cx, file, b"user.a", b"1", replace));
    env.ok("create", |fs, cx| fs.setxattr(cx, file, b"user.a", b"1", create));
    env.err(Errno::EEXIST, "create", |fs, cx| fs.setxattr(cx, file, b"user.a", b"2", create));
    env.ok("replace", |fs, cx| fs.setxattr(cx, file, b"user.a", b"3", replace));
    assert_eq!(env.ok("get", |fs, cx| fs.getxattr(cx, file, b"user.a")), b"3");
}

fn bad_names(env: &mut Env) {
    let file = env.file(env.dir, "f");
    let long = [b"user." as &[u8], &[b'n'; 251]].concat();
    for (name, want) in [
        (b"nothing" as &[u8], Errno::EOPNOTSUPP),
        (b"unknown.x", Errno::EOPNOTSUPP),
        (b"system.x", Errno::EOPNOTSUPP),
        (b"user.", Errno::EINVAL),
        (&long, Errno::ERANGE),
    ] {
        env.err(want, "set", |fs, cx| fs.setxattr(cx, file, name, b"1", ANY));
        env.err(want, "get", |fs, cx| fs.getxattr(cx, file, name));
    }
    let huge = vec![0; 65_537];
    env.err(Errno::E2BIG, "65,537 bytes", |fs, cx| fs.setxattr(cx, file, b"user.a", &huge, ANY));
    env.set_xattr(file, &format!("user.{}", "n".repeat(250)), b"longest");
}

/// Fills the attribute space; where it is full (`ENOSPC`) everything set before must still be
/// there.
fn many(env: &mut Env) {
    let file = env.file(env.dir, "f");
    let mut set = Vec::new();
    for i in 0..30 {
        let (name, value) = (format!("user.name{i}"), vec![i as u8; 5 * i]);
        match env.fs.setxattr(env.cx, file, name.as_bytes(), &value, ANY) {
            Ok(()) => set.push((name, value)),
            Err(Errno::ENOSPC) => break,
            Err(errno) => panic!("{}: {name}: {errno}", env.case),
        }
    }
    assert!(set.len() >= 8, "only {} small attributes fit", set.len());
    let large = vec![7; 60_000];
    match env.fs.setxattr(env.cx, file, b"user.large", &large, ANY) {
        Ok(()) => set.push(("user.large".into(), large)),
        Err(Errno::ENOSPC) => {}
        Err(errno) => panic!("{}: 60,000 bytes: {errno}", env.case),
    }
    for (name, value) in &set {
        let got = env.ok(name, |fs, cx| fs.getxattr(cx, file, name.as_bytes()));
        assert_eq!(&got, value, "{}: {name}", env.case);
    }
    assert_eq!(env.ok("list", |fs, cx| fs.listxattr(cx, file)).len(), set.len());
    for (name, _) in set.iter().step_by(2) {
        env.ok(name, |fs, cx| fs.removexattr(cx, file, name.as_bytes()));
    }
    for (name, value) in set.iter().skip(1).step_by(2) {
        let got = env.ok(name, |fs, cx| fs.getxattr(cx, file, name.as_bytes()));
        assert_eq!(&got, value, "{}: {name} after removals", env.case);
    }
}

fn list_with_user(perm: u16, mask: u16) -> Acl {
    let entry = |tag, perm, id| acl::Entry { tag, perm, id };
    let entries = vec![
        entry(Tag::UserObj, 7, NO_ID),
        entry(Tag::User, perm, 1234),
        entry(Tag::GroupObj, 5, NO_ID),
        entry(Tag::Mask, mask, NO_ID),
        entry(Tag::Other, 1, NO_ID),
    ];
    Acl::new(entries).expect("a valid list")
}

fn access_list(env: &mut Env) {
    let file = env.make(env.dir, "f", &NewNode::new(FileType::Regular, 0o4640)).ino;
    let list = list_with_user(6, 4);
    env.ok("set", |fs, cx| fs.setxattr(cx, file, acl::ACCESS, &list.emit(), ANY));
    assert_eq!(env.attr(file).mode, 0o4741, "the mode follows the list");
    let got = env.ok("get", |fs, cx| fs.getxattr(cx, file, acl::ACCESS));
    assert_eq!(Acl::parse(&got), Ok(Some(list.clone())));
    let chmod = SetAttr { mode: Some(0o625), ..SetAttr::default() };
    env.ok("chmod", |fs, cx| fs.setattr(cx, file, &chmod));
    let got = env.ok("get", |fs, cx| fs.getxattr(cx, file, acl::ACCESS));
    let mut want = list;
    want.chmod(0o625);
    assert_eq!(Acl::parse(&got), Ok(Some(want)), "the list follows the mode");
    assert_eq!(env.ok("list", |fs, cx| fs.listxattr(cx, file)), [acl::ACCESS.to_vec()]);
    let minimal = Acl::from_mode(0o604).emit();
    env.ok("set", |fs, cx| fs.setxattr(cx, file, acl::ACCESS, &minimal, ANY));
    assert_eq!(env.attr(file).mode, 0o604);
    env.err(Errno::ENODATA, "a minimal list", |fs, cx| fs.getxattr(cx, file, acl::ACCESS));
    env.err(Errno::EINVAL, "garbage", |fs, cx| {
        fs.setxattr(cx, file, acl::ACCESS, b"\x02\0\0\0garbage!", ANY)
    });
    let link = env.make(env.dir, "link", &NewNode::symlink(b"f")).ino;
    env.err(Errno::EOPNOTSUPP, "symlink", |fs, cx| {
        fs.setxattr(cx, link, acl::ACCESS, &minimal, ANY)
    });
}

fn default_list(env: &mut Env) {
    let dir = env.dir;
    let (sub, file) = (env.mkdir(dir, "sub"), env.file(dir, "f"));
    let list = list_with_user(7, 7).emit();
    env.ok("set", |fs, cx| fs.setxattr(cx, sub, acl::DEFAULT, &list, ANY));
    assert_eq!(env.ok("get", |fs, cx| fs.getxattr(cx, sub, acl::DEFAULT)), list);
    assert_eq!(env.attr(sub).mode, 0o755, "a default list leaves the mode");
    env.err(Errno::EACCES, "a file", |fs, cx| fs.setxattr(cx, file, acl::DEFAULT, &list, ANY));
    env.ok("remove", |fs, cx| fs.removexattr(cx, sub, acl::DEFAULT));
    env.err(Errno::ENODATA, "get", |fs, cx| fs.getxattr(cx, sub, acl::DEFAULT));
}
