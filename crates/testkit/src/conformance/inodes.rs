//! Attributes, times and symlinks.

use base::{Errno, Ino, Timespec};
use vfs::{FileType, NewNode, RenameFlags, SetAttr};

use super::{Entry, Env};

pub const CASES: &[Entry] = &[
    ("inodes::attributes_are_set_one_by_one", set_each),
    ("inodes::times_keep_nanoseconds", times),
    ("inodes::operations_touch_the_times_they_should", touched),
    ("inodes::symlinks_keep_their_target", symlinks),
    ("inodes::stale_numbers_are_refused", stale),
    ("inodes::the_file_system_counts_its_space", space),
];

fn set_each(env: &mut Env) {
    let dir = env.dir;
    let file = env.make(dir, "f", &NewNode::new(FileType::Regular, 0o4751).owner(1, 2));
    assert_eq!((file.mode, file.uid, file.gid), (0o4751, 1, 2));
    let none = SetAttr::default();
    let mut apply = |set: SetAttr| env.ok("setattr", |fs, cx| fs.setattr(cx, file.ino, &set));
    assert_eq!(apply(SetAttr { mode: Some(0o7777), ..none.clone() }).mode, 0o7777);
    assert_eq!(apply(SetAttr { uid: Some(70_000), ..none.clone() }).uid, 70_000);
    assert_eq!(apply(SetAttr { gid: Some(u32::MAX - 1), ..none.clone() }).gid, u32::MAX - 1);
    let all = apply(SetAttr { mode: Some(0), uid: Some(3), size: Some(9), ..none.clone() });
    assert_eq!((all.mode, all.uid, all.gid, all.size), (0, 3, u32::MAX - 1, 9));
    assert_eq!(env.attr(file.ino), all);
    assert_eq!(env.look(dir, "f"), all);
}

/// Nanoseconds and the years up to 2446; where a format has room for seconds up to 2038 alone
/// (inodes of 128 bytes), or for nothing behind 2038 (XFS without `bigtime`), the nearest time that
/// fits.
fn times(env: &mut Env) {
    let dir = env.dir;
    let file = env.file(dir, "f");
    let mut stored = |sec: i64| {
        let set = SetAttr { mtime: Some(Timespec { sec, nsec: 1 }), ..SetAttr::default() };
        env.ok("setattr", |fs, cx| fs.setattr(cx, file, &set)).mtime
    };
    let (narrow, last) = (stored(1).nsec == 0, i64::from(i32::MAX));
    let short = stored(1 << 32).sec == last;
    let nearest = |time: Timespec| match narrow {
        true => Timespec { sec: time.sec.min(last), nsec: 0 },
        false if short && time.sec >= last => Timespec::from_secs(last),
        false => time,
    };
    for (sec, nsec) in [
        (0, 0),
        (1, 1),
        (1_700_000_000, 999_999_999),
        (-1, 5),
        (-2_147_483_648, 0),
        (2_147_483_648, 7),
        (4_294_967_296, 123_456_789),
        (15_032_385_534, 999_999_999),
        // The last second, as the first, has no nanoseconds on Linux.
        (15_032_385_535, 0),
    ] {
        let time = Timespec { sec, nsec };
        let set = SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() };
        let attr = env.ok("setattr", |fs, cx| fs.setattr(cx, file, &set));
        let time = nearest(time);
        assert_eq!((attr.atime, attr.mtime), (time, time), "{}", env.case);
    }
    let (a, m) = (Timespec { sec: 5, nsec: 6 }, Timespec { sec: 7, nsec: 8 });
    let node = NewNode { times: Some((a, m)), ..NewNode::new(FileType::Fifo, 0o600) };
    let attr = env.make(dir, "fifo", &node);
    let given = (nearest(a), nearest(m));
    assert_eq!((attr.atime, attr.mtime), given, "times given at creation");
}

const OLD: Timespec = Timespec { sec: 1_000_000_000, nsec: 0 };

/// Makes the times of an inode old.
fn age(env: &mut Env, ino: Ino) {
    let old = Some(OLD);
    let set = SetAttr { atime: old, mtime: old, ctime: old, ..SetAttr::default() };
    env.ok("setattr", |fs, cx| fs.setattr(cx, ino, &set));
}

/// Which of mtime and ctime are new since [`age`]?
fn new_times(env: &mut Env, ino: Ino) -> (bool, bool) {
    let attr = env.attr(ino);
    (attr.mtime != OLD, attr.ctime != OLD)
}

fn touched(env: &mut Env) {
    let dir = env.dir;
    let file = env.file(dir, "f");
    age(env, file);
    assert_eq!(new_times(env, file), (false, false));
    env.write(file, 0, b"x");
    assert_eq!(new_times(env, file), (true, true), "write");
    age(env, file);
    let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    env.ok("chmod", |fs, cx| fs.setattr(cx, file, &chmod));
    assert_eq!(new_times(env, file), (false, true), "chmod");
    age(env, file);
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    env.ok("truncate", |fs, cx| fs.setattr(cx, file, &cut));
    assert_eq!(new_times(env, file), (true, true), "truncate");
    age(env, file);
    age(env, dir);
    env.ok("link", |fs, cx| fs.link(cx, file, dir, b"g"));
    assert_eq!(new_times(env, file), (false, true), "link: the file");
    assert_eq!(new_times(env, dir), (true, true), "link: the directory");
    age(env, file);
    age(env, dir);
    env.ok("unlink", |fs, cx| fs.unlink(cx, dir, b"g"));
    assert_eq!(new_times(env, file), (false, true), "unlink: the file");
    assert_eq!(new_times(env, dir), (true, true), "unlink: the directory");
    age(env, file);
    age(env, dir);
    let flags = RenameFlags::empty();
    env.ok("rename", |fs, cx| fs.rename(cx, dir, b"f", dir, b"h", flags));
    assert_eq!(new_times(env, file), (false, true), "rename: the file");
    assert_eq!(new_times(env, dir), (true, true), "rename: the directory");
    age(env, file);
    env.set_xattr(file, "user.a", b"1");
    assert_eq!(new_times(env, file), (false, true), "setxattr");
}

fn symlinks(env: &mut Env) {
    let dir = env.dir;
    // 59 and 60 are the border of ext4's inode, 1000 of a block of 1 KiB.
    for len in [1, 59, 60, 61, 255, 1000] {
        let target = vec![b't'; len];
        let name = format!("link{len}");
        let attr = env.make(dir, &name, &NewNode::symlink(&target));
        assert_eq!((attr.kind, attr.size), (FileType::Symlink, len as u64));
        assert_eq!(env.ok("readlink", |fs, cx| fs.readlink(cx, attr.ino)), target);
    }
    let bytes: Vec<u8> = (1..=255).collect();
    let attr = env.make(dir, "bytes", &NewNode::symlink(&bytes));
    assert_eq!(env.ok("readlink", |fs, cx| fs.readlink(cx, attr.ino)), bytes);
    let long = vec![b't'; 4096];
    env.err(Errno::ENAMETOOLONG, "a target of 4096 bytes", |fs, cx| {
        fs.create(cx, dir, b"long", &NewNode::symlink(&long))
    });
    env.err(Errno::ENOENT, "an empty target", |fs, cx| {
        fs.create(cx, dir, b"empty", &NewNode::symlink(b""))
    });
    let file = env.file(dir, "f");
    env.err(Errno::EINVAL, "readlink of a file", |fs, cx| fs.readlink(cx, file));
}

fn stale(env: &mut Env) {
    let dir = env.dir;
    let file = env.file(dir, "f");
    env.ok("unlink", |fs, cx| fs.unlink(cx, dir, b"f"));
    env.err(Errno::ESTALE, "getattr", |fs, cx| fs.getattr(cx, file));
    env.err(Errno::ESTALE, "read", |fs, cx| fs.read(cx, file, 0, &mut [0; 4]));
    env.err(Errno::ESTALE, "open", |fs, cx| fs.open(cx, file));
    env.err(Errno::ESTALE, "number 0", |fs, cx| fs.getattr(cx, Ino(0)));
    env.err(Errno::ESTALE, "a huge number", |fs, cx| fs.getattr(cx, Ino(1 << 50)));
}

fn space(env: &mut Env) {
    let before = env.ok("statfs", |fs, cx| fs.statfs(cx));
    let file = env.file(env.dir, "f");
    env.write(file, 0, &vec![1; 1 << 20]);
    env.ok("sync", |fs, cx| fs.sync(cx));
    let after = env.ok("statfs", |fs, cx| fs.statfs(cx));
    let used = (before.blocks_free - after.blocks_free) * u64::from(after.block_size);
    assert!((1 << 20..1200 << 10).contains(&used), "1 MiB took {used} bytes");
    assert_eq!(before.inodes_free - after.inodes_free, 1);
    assert!(env.attr(file).blocks >= 2048);
    assert_eq!((after.name_max, after.blocks), (255, before.blocks));
}
