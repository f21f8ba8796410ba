//! What POSIX and Linux ask of every operation of a file system, `errno` by `errno`.
//!
//! A file system passes when [`run_all`] returns. Each case works in a directory of its own, which
//! is emptied and removed at the end, so that removal is tried on everything that was made. Where
//! formats differ (no fallocate on indirect blocks, small attribute space), a case accepts
//! `EOPNOTSUPP` or `ENOSPC` where its comment says so.

use base::{Errno, Ino};
use rt::Cx;
use vfs::{Attr, FileSystem, FileType, NewNode, XattrFlags};

mod dirs;
mod files;
mod inodes;
mod names;
mod xattrs;

/// One case: a name and what to do.
pub struct Case {
    /// `area::fact`.
    pub name: &'static str,
    run: fn(&mut Env),
}

/// All cases, in the order in which [`run_all`] takes them.
pub fn cases() -> Vec<Case> {
    let groups = [names::CASES, dirs::CASES, files::CASES, inodes::CASES, xattrs::CASES];
    groups.concat().into_iter().map(|(name, run)| Case { name, run }).collect()
}

/// Runs every case; afterwards the root holds what it held before.
///
/// # Panics
/// At the first answer that is not the right one; the message begins with the case's name.
pub fn run_all(cx: &mut Cx, fs: &dyn FileSystem) {
    for case in cases() {
        run_case(cx, fs, &case);
    }
}

/// Runs one case in a fresh directory of the root.
///
/// # Panics
/// As [`run_all`].
pub fn run_case(cx: &mut Cx, fs: &dyn FileSystem, case: &Case) {
    let root = fs.root();
    let name = format!("case {}", case.name.replace(':', " "));
    let before = fs.getattr(cx, root).expect("the root has attributes").nlink;
    let node = NewNode::new(FileType::Directory, 0o755);
    let dir = fs.create(cx, root, name.as_bytes(), &node);
    let dir = dir.unwrap_or_else(|e| panic!("{}: cannot make its directory: {e}", case.name)).ino;
    let mut env = Env { cx, fs, dir, case: case.name };
    (case.run)(&mut env);
    env.empty(dir);
    env.ok("rmdir of the case's directory", |fs, cx| fs.rmdir(cx, root, name.as_bytes()));
    let after = env.fs.getattr(env.cx, root).expect("the root has attributes").nlink;
    assert_eq!(before, after, "{}: link count of the root", case.name);
}

type Entry = (&'static str, fn(&mut Env));

/// What a case works with: the file system and its own directory.
struct Env<'a> {
    cx: &'a mut Cx,
    fs: &'a dyn FileSystem,
    dir: Ino,
    case: &'static str,
}

impl Env<'_> {
    #[track_caller]
    fn ok<T>(
        &mut self,
        what: &str,
        op: impl FnOnce(&dyn FileSystem, &mut Cx) -> Result<T, Errno>,
    ) -> T {
        match op(self.fs, self.cx) {
            Ok(value) => value,
            Err(errno) => panic!("{}: {what} failed: {errno}", self.case),
        }
    }

    #[track_caller]
    fn err<T: std::fmt::Debug>(
        &mut self,
        want: Errno,
        what: &str,
        op: impl FnOnce(&dyn FileSystem, &mut Cx) -> Result<T, Errno>,
    ) {
        match op(self.fs, self.cx) {
            Err(errno) if errno == want => {}
            other => panic!("{}: {what} answered {other:?}, not {want:?}", self.case),
        }
    }

    #[track_caller]
    fn make(&mut self, dir: Ino, name: &str, node: &NewNode) -> Attr {
        self.ok(name, |fs, cx| fs.create(cx, dir, name.as_bytes(), node))
    }

    #[track_caller]
    fn file(&mut self, dir: Ino, name: &str) -> Ino {
        self.make(dir, name, &NewNode::new(FileType::Regular, 0o644)).ino
    }

    #[track_caller]
    fn mkdir(&mut self, dir: Ino, name: &str) -> Ino {
        self.make(dir, name, &NewNode::new(FileType::Directory, 0o755)).ino
    }

    #[track_caller]
    fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) {
        let count = self.ok("write", |fs, cx| fs.write(cx, ino, offset, data));
        assert_eq!(count, data.len(), "{}: short write", self.case);
    }

    #[track_caller]
    fn read(&mut self, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0xee; len];
        let count = self.ok("read", |fs, cx| fs.read(cx, ino, offset, &mut buf));
        buf.truncate(count);
        buf
    }

    #[track_caller]
    fn attr(&mut self, ino: Ino) -> Attr {
        self.ok("getattr", |fs, cx| fs.getattr(cx, ino))
    }

    #[track_caller]
    fn look(&mut self, dir: Ino, name: &str) -> Attr {
        self.ok(name, |fs, cx| fs.lookup(cx, dir, name.as_bytes()))
    }

    /// Names, numbers and types of a directory in listed order, `.` and `..` included.
    #[track_caller]
    fn list(&mut self, dir: Ino) -> Vec<(Vec<u8>, Ino, Option<FileType>)> {
        let mut list = Vec::new();
        self.ok("readdir", |fs, cx| {
            fs.readdir(cx, dir, 0, &mut |entry| {
                list.push((entry.name.to_vec(), entry.ino, entry.kind));
                true
            })
        });
        list
    }

    /// The sorted names of a directory without `.` and `..`.
    #[track_caller]
    fn names(&mut self, dir: Ino) -> Vec<String> {
        let list = self.list(dir).into_iter();
        let names = list.map(|(name, ..)| String::from_utf8_lossy(&name).into_owned());
        let mut names: Vec<_> = names.filter(|name| name != "." && name != "..").collect();
        names.sort();
        names
    }

    /// Removes everything below a directory.
    #[track_caller]
    fn empty(&mut self, dir: Ino) {
        for (name, ino, _) in self.list(dir) {
            if name == b"." || name == b".." {
                continue;
            }
            if self.attr(ino).is_dir() {
                self.empty(ino);
                self.ok("rmdir in clean-up", |fs, cx| fs.rmdir(cx, dir, &name));
            } else {
                self.ok("unlink in clean-up", |fs, cx| fs.unlink(cx, dir, &name));
            }
        }
        assert!(self.names(dir).is_empty(), "{}: names left after removal", self.case);
    }

    #[track_caller]
    fn set_xattr(&mut self, ino: Ino, name: &str, value: &[u8]) {
        self.ok(name, |fs, cx| fs.setxattr(cx, ino, name.as_bytes(), value, XattrFlags::empty()));
    }
}
