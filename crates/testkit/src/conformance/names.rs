//! Names: lookup, create, link, unlink, rename.

use base::{Errno, Ino};
use vfs::{FileType, NewNode, RenameFlags};

use super::{Entry, Env};

pub const CASES: &[Entry] = &[
    ("names::a_created_name_is_found", created_is_found),
    ("names::bad_names_are_refused", bad_names),
    ("names::every_byte_but_slash_and_nul_is_a_name", every_byte),
    ("names::links_share_an_inode", links),
    ("names::unlink_and_rmdir_know_types", unlink_types),
    ("names::an_open_file_outlives_its_name", open_unlinked),
    ("names::rename_moves_and_replaces", rename_replaces),
    ("names::rename_refuses_what_makes_no_sense", rename_errors),
    ("names::rename_flags", rename_flags),
    ("names::rename_leaves_a_whiteout", rename_whiteout),
    ("names::rename_of_directories_moves_dotdot", rename_dirs),
    ("names::a_removed_directory_takes_no_names", removed_dir),
];

const NONE: RenameFlags = RenameFlags::empty();

fn rename(
    env: &mut Env,
    from: (Ino, &str),
    to: (Ino, &str),
    flags: RenameFlags,
) -> Result<(), Errno> {
    env.fs.rename(env.cx, from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags)
}

fn created_is_found(env: &mut Env) {
    let dir = env.dir;
    for (name, kind) in [
        ("file", FileType::Regular),
        ("dir", FileType::Directory),
        ("fifo", FileType::Fifo),
        ("socket", FileType::Socket),
        ("char", FileType::CharDevice),
        ("block", FileType::BlockDevice),
    ] {
        let rdev = if kind.is_device() { vfs::makedev(259, 70_000) } else { 0 };
        let node = NewNode { rdev, ..NewNode::new(kind, 0o640).owner(1000, 100_000) };
        let made = env.make(dir, name, &node);
        let found = env.look(dir, name);
        assert_eq!(made, found, "{}: create and lookup of {name} differ", env.case);
        assert_eq!((found.kind, found.mode, found.rdev), (kind, 0o640, rdev), "{name}");
        assert_eq!((found.uid, found.gid), (1000, 100_000), "{name}");
        assert_eq!(found.nlink, if kind == FileType::Directory { 2 } else { 1 }, "{name}");
        env.err(Errno::EEXIST, name, |fs, cx| fs.create(cx, dir, name.as_bytes(), &node));
    }
    let file = env.look(dir, "file").ino;
    env.err(Errno::ENOENT, "missing", |fs, cx| fs.lookup(cx, dir, b"missing"));
    env.err(Errno::ENOTDIR, "lookup in a file", |fs, cx| fs.lookup(cx, file, b"x"));
    let node = NewNode::new(FileType::Regular, 0o644);
    env.err(Errno::ENOTDIR, "create in a file", |fs, cx| fs.create(cx, file, b"x", &node));
    assert_eq!(env.look(dir, ".").ino, dir);
    let sub = env.look(dir, "dir").ino;
    assert_eq!(env.look(sub, "..").ino, dir);
    assert_eq!(env.look(env.fs.root(), "..").ino, env.fs.root());
}

fn bad_names(env: &mut Env) {
    let dir = env.dir;
    let node = NewNode::new(FileType::Regular, 0o644);
    let long = [b'n'; 256];
    for (name, want) in [
        (b"." as &[u8], Errno::EEXIST),
        (b"..", Errno::EEXIST),
        (b"", Errno::ENOENT),
        (b"a/b", Errno::EINVAL),
        (b"a\0b", Errno::EINVAL),
        (&long, Errno::ENAMETOOLONG),
    ] {
        env.err(want, "create", |fs, cx| fs.create(cx, dir, name, &node));
    }
    env.err(Errno::ENAMETOOLONG, "lookup", |fs, cx| fs.lookup(cx, dir, &long));
    env.err(Errno::ENAMETOOLONG, "unlink", |fs, cx| fs.unlink(cx, dir, &long));
    let longest = env.ok("255 bytes", |fs, cx| fs.create(cx, dir, &long[..255], &node));
    let found = env.ok("255 bytes", |fs, cx| fs.lookup(cx, dir, &long[..255]));
    assert_eq!(found.ino, longest.ino);
}

fn every_byte(env: &mut Env) {
    let dir = env.dir;
    let node = NewNode::new(FileType::Regular, 0o644);
    let mut made = Vec::new();
    // Where case may be ignored a letter has one name.
    let folds = env.fs.ignores_case();
    let one_each = |b: &u8| *b != b'/' && *b != b'.' && !(folds && b.is_ascii_uppercase());
    for byte in (1..=255u8).filter(one_each) {
        let name = vec![byte];
        let attr = env.ok("one byte", |fs, cx| fs.create(cx, dir, &name, &node));
        made.push((name, attr.ino, Some(FileType::Regular)));
    }
    let mut list = env.list(dir);
    list.retain(|(name, ..)| name != b"." && name != b"..");
    list.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(list.len(), made.len());
    for (listed, made) in list.iter().zip(&made) {
        assert_eq!((&listed.0, listed.1), (&made.0, made.1));
    }
}

fn links(env: &mut Env) {
    let dir = env.dir;
    let file = env.file(dir, "a");
    let sub = env.mkdir(dir, "sub");
    env.write(file, 0, b"shared");
    let attr = env.ok("link", |fs, cx| fs.link(cx, file, sub, b"b"));
    assert_eq!((attr.ino, attr.nlink), (file, 2));
    assert_eq!(env.look(sub, "b").ino, file);
    env.err(Errno::EEXIST, "link onto a name", |fs, cx| fs.link(cx, file, sub, b"b"));
    env.err(Errno::EPERM, "link of a directory", |fs, cx| fs.link(cx, sub, dir, b"c"));
    env.ok("unlink", |fs, cx| fs.unlink(cx, dir, b"a"));
    assert_eq!(env.attr(file).nlink, 1);
    assert_eq!(env.read(file, 0, 9), b"shared");
}

fn unlink_types(env: &mut Env) {
    let dir = env.dir;
    let (sub, _) = (env.mkdir(dir, "sub"), env.file(dir, "file"));
    env.file(sub, "inside");
    env.err(Errno::ENOENT, "unlink", |fs, cx| fs.unlink(cx, dir, b"missing"));
    env.err(Errno::ENOENT, "rmdir", |fs, cx| fs.rmdir(cx, dir, b"missing"));
    env.err(Errno::EISDIR, "unlink", |fs, cx| fs.unlink(cx, dir, b"sub"));
    env.err(Errno::EISDIR, "unlink .", |fs, cx| fs.unlink(cx, dir, b"."));
    env.err(Errno::EISDIR, "unlink ..", |fs, cx| fs.unlink(cx, dir, b".."));
    env.err(Errno::ENOTDIR, "rmdir", |fs, cx| fs.rmdir(cx, dir, b"file"));
    env.err(Errno::ENOTEMPTY, "rmdir", |fs, cx| fs.rmdir(cx, dir, b"sub"));
    env.err(Errno::EINVAL, "rmdir .", |fs, cx| fs.rmdir(cx, dir, b"."));
    env.err(Errno::ENOTEMPTY, "rmdir ..", |fs, cx| fs.rmdir(cx, dir, b".."));
    env.ok("unlink", |fs, cx| fs.unlink(cx, sub, b"inside"));
    env.ok("rmdir", |fs, cx| fs.rmdir(cx, dir, b"sub"));
    env.err(Errno::ENOENT, "lookup", |fs, cx| fs.lookup(cx, dir, b"sub"));
    env.err(Errno::ESTALE, "getattr of a removed directory", |fs, cx| fs.getattr(cx, sub));
}

fn open_unlinked(env: &mut Env) {
    let dir = env.dir;
    let file = env.file(dir, "file");
    env.write(file, 0, b"still here");
    env.ok("open", |fs, cx| fs.open(cx, file));
    env.ok("open again", |fs, cx| fs.open(cx, file));
    env.ok("unlink", |fs, cx| fs.unlink(cx, dir, b"file"));
    assert_eq!(env.attr(file).nlink, 0);
    assert_eq!(env.read(file, 0, 20), b"still here");
    env.write(file, 10, b", and growing");
    env.err(Errno::ENOENT, "link of a nameless file", |fs, cx| fs.link(cx, file, dir, b"back"));
    env.ok("release", |fs, cx| fs.release(cx, file));
    assert_eq!(env.read(file, 12, 20), b"and growing");
    env.ok("last release", |fs, cx| fs.release(cx, file));
    env.err(Errno::ESTALE, "getattr", |fs, cx| fs.getattr(cx, file));
}

fn rename_replaces(env: &mut Env) {
    let dir = env.dir;
    let (a, b, sub) = (env.file(dir, "a"), env.file(dir, "b"), env.mkdir(dir, "sub"));
    env.write(a, 0, b"A");
    rename(env, (dir, "a"), (sub, "moved"), NONE).unwrap();
    assert_eq!(env.look(sub, "moved").ino, a);
    env.err(Errno::ENOENT, "old name", |fs, cx| fs.lookup(cx, dir, b"a"));
    rename(env, (sub, "moved"), (dir, "b"), NONE).unwrap();
    assert_eq!(env.look(dir, "b").ino, a);
    env.err(Errno::ESTALE, "the replaced file", |fs, cx| fs.getattr(cx, b));
    assert!(env.names(sub).is_empty());
    env.ok("link", |fs, cx| fs.link(cx, a, dir, b"c"));
    rename(env, (dir, "b"), (dir, "c"), NONE).unwrap();
    assert_eq!(env.names(dir), ["b", "c", "sub"], "two names of one inode: nothing happens");
    rename(env, (dir, "b"), (dir, "b"), NONE).unwrap();
    assert_eq!(env.attr(a).nlink, 2);
    let long = "l".repeat(255);
    rename(env, (dir, "b"), (dir, &long), NONE).unwrap();
    assert_eq!(env.look(dir, &long).ino, a);
}

fn rename_errors(env: &mut Env) {
    let dir = env.dir;
    let (sub, full) = (env.mkdir(dir, "sub"), env.mkdir(dir, "full"));
    env.file(dir, "file");
    env.file(full, "inside");
    let deep = env.mkdir(sub, "deep");
    let long = "n".repeat(256);
    for (from, to, want) in [
        ((dir, "missing"), (dir, "x"), Errno::ENOENT),
        ((dir, "."), (dir, "x"), Errno::EBUSY),
        ((dir, "file"), (dir, ".."), Errno::EBUSY),
        ((dir, "file"), (dir, &*long), Errno::ENAMETOOLONG),
        ((dir, "sub"), (dir, "file"), Errno::ENOTDIR),
        ((dir, "file"), (dir, "sub"), Errno::EISDIR),
        ((dir, "sub"), (dir, "full"), Errno::ENOTEMPTY),
        ((dir, "sub"), (sub, "x"), Errno::EINVAL),
        ((dir, "sub"), (deep, "x"), Errno::EINVAL),
        ((sub, "deep"), (dir, "sub"), Errno::ENOTEMPTY),
    ] {
        let mut answer = rename(env, from, to, NONE);
        // POSIX allows both, and Linux answers so on XFS.
        if from.1 == "sub" && to.1 == "full" && answer == Err(Errno::EEXIST) {
            answer = Err(Errno::ENOTEMPTY);
        }
        assert_eq!(answer, Err(want), "{}: {} to {}", env.case, from.1, to.1);
    }
    assert_eq!(env.names(dir), ["file", "full", "sub"]);
}

fn rename_flags(env: &mut Env) {
    let dir = env.dir;
    let (a, sub) = (env.file(dir, "a"), env.mkdir(dir, "sub"));
    let inner = env.mkdir(sub, "inner");
    let both = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
    assert_eq!(rename(env, (dir, "a"), (dir, "b"), both), Err(Errno::EINVAL));
    let both = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    assert_eq!(rename(env, (dir, "a"), (dir, "b"), both), Err(Errno::EINVAL));
    let no = RenameFlags::NOREPLACE;
    assert_eq!(rename(env, (dir, "a"), (dir, "sub"), no), Err(Errno::EEXIST));
    assert_eq!(rename(env, (dir, "a"), (dir, "b"), no), Ok(()));
    let swap = RenameFlags::EXCHANGE;
    assert_eq!(rename(env, (dir, "b"), (dir, "c"), swap), Err(Errno::ENOENT));
    assert_eq!(rename(env, (dir, "sub"), (sub, "inner"), swap), Err(Errno::EINVAL));
    assert_eq!(rename(env, (sub, "inner"), (dir, "sub"), swap), Err(Errno::EINVAL));
    assert_eq!(rename(env, (dir, "b"), (sub, "inner"), swap), Ok(()));
    assert_eq!((env.look(dir, "b").ino, env.look(sub, "inner").ino), (inner, a));
    assert_eq!(env.look(inner, "..").ino, dir);
    assert_eq!((env.attr(dir).nlink, env.attr(sub).nlink), (4, 2), "links follow the swap");
}

/// What overlayfs asks for: in one step the name moves and a device 0, 0 stays in its place.
fn rename_whiteout(env: &mut Env) {
    let (dir, white) = (env.dir, RenameFlags::WHITEOUT);
    let (upper, work) = (env.mkdir(dir, "upper"), env.mkdir(dir, "work"));
    let (file, under) = (env.file(upper, "file"), env.mkdir(upper, "under"));
    assert_eq!(rename(env, (upper, "none"), (work, "a"), white), Err(Errno::ENOENT));
    assert_eq!(rename(env, (upper, "file"), (work, "a"), white), Ok(()));
    assert_eq!(rename(env, (upper, "under"), (work, "under"), white), Ok(()));
    // Onto a file, in one directory; and onto a whiteout, which goes.
    let other = env.file(upper, "other");
    env.file(upper, "target");
    assert_eq!(rename(env, (upper, "other"), (upper, "target"), white), Ok(()));
    let both = white | RenameFlags::NOREPLACE;
    assert_eq!(rename(env, (upper, "target"), (upper, "file"), both), Err(Errno::EEXIST));
    assert_eq!(rename(env, (upper, "target"), (upper, "file"), white), Ok(()));
    assert_eq!((env.look(work, "a").ino, env.look(upper, "file").ino), (file, other));
    assert_eq!((env.look(work, "under").ino, env.look(under, "..").ino), (under, work));
    assert_eq!(env.names(upper), ["file", "other", "target", "under"]);
    assert_eq!((env.attr(upper).nlink, env.attr(work).nlink), (2, 3));
    for name in ["other", "target", "under"] {
        let attr = env.look(upper, name);
        assert_eq!((attr.kind, attr.rdev), (FileType::CharDevice, 0), "{name}");
        assert_eq!((attr.mode, attr.nlink), (0, 1), "{name}");
    }
}

fn rename_dirs(env: &mut Env) {
    let dir = env.dir;
    let (one, two) = (env.mkdir(dir, "one"), env.mkdir(dir, "two"));
    let moved = env.mkdir(one, "moved");
    env.file(moved, "inside");
    assert_eq!((env.attr(one).nlink, env.attr(two).nlink), (3, 2));
    rename(env, (one, "moved"), (two, "here"), NONE).unwrap();
    assert_eq!((env.attr(one).nlink, env.attr(two).nlink), (2, 3));
    assert_eq!(env.look(moved, "..").ino, two);
    assert_eq!(env.names(moved), ["inside"]);
    // Onto an empty directory: that one goes.
    let gone = env.mkdir(one, "target");
    rename(env, (two, "here"), (one, "target"), NONE).unwrap();
    assert_eq!((env.attr(one).nlink, env.attr(two).nlink), (3, 2));
    assert_eq!(env.look(moved, "..").ino, one);
    env.err(Errno::ESTALE, "the replaced directory", |fs, cx| fs.getattr(cx, gone));
}

fn removed_dir(env: &mut Env) {
    let dir = env.dir;
    let sub = env.mkdir(dir, "sub");
    let file = env.file(dir, "file");
    env.ok("open", |fs, cx| fs.open(cx, sub));
    env.ok("rmdir", |fs, cx| fs.rmdir(cx, dir, b"sub"));
    let node = NewNode::new(FileType::Regular, 0o644);
    env.err(Errno::ENOENT, "create", |fs, cx| fs.create(cx, sub, b"x", &node));
    env.err(Errno::ENOENT, "link", |fs, cx| fs.link(cx, file, sub, b"x"));
    let answer = rename(env, (dir, "file"), (sub, "x"), NONE);
    assert_eq!(answer, Err(Errno::ENOENT), "rename into a removed directory");
    env.err(Errno::ENOENT, "lookup", |fs, cx| fs.lookup(cx, sub, b"x"));
    assert_eq!(env.attr(sub).nlink, 0);
    env.ok("release", |fs, cx| fs.release(cx, sub));
}
