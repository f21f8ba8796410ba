//! A directory of a file system as if it were the root: for what no root can be, such as encrypted.

use std::sync::Arc;

use base::{Errno, Ino};
use rt::Cx;
use vfs::{Attr, DirEntry, FileSystem, NewNode, RenameFlags, SetAttr};

/// A file system whose root is a directory of another one.
pub struct Below<F> {
    fs: Arc<F>,
    root: Ino,
}

impl<F: FileSystem> Below<F> {
    /// What is below `root`, a directory of `fs`.
    pub fn new(fs: Arc<F>, root: Ino) -> Below<F> {
        Below { fs, root }
    }
}

impl<F: FileSystem> FileSystem for Below<F> {
    vfs::forward!(fs:
        name walk_version ignores_case getattr names_of readlink open release read read_direct
        read_many read_at_host sync grow set_flags fallocate seek fiemap getxattr setxattr
        listxattr removexattr statfs lost note_lost commit unmount shutdown_hard
    );
    vfs::forward!(? fs setattr(ino: Ino, set: &SetAttr) -> Attr);
    vfs::forward!(? fs create(dir: Ino, name: &[u8], node: &NewNode) -> Attr);
    vfs::forward!(? fs create_with(
        dir: Ino, name: &[u8], node: &NewNode, attributes: &[(&[u8], Vec<u8>)]
    ) -> Attr);
    vfs::forward!(? fs create_unnamed(
        dir: Ino, node: &NewNode, attributes: &[(&[u8], Vec<u8>)]
    ) -> Attr);
    vfs::forward!(? fs link(ino: Ino, dir: Ino, name: &[u8]) -> Attr);
    vfs::forward!(? fs unlink(dir: Ino, name: &[u8]) -> ());
    vfs::forward!(? fs rmdir(dir: Ino, name: &[u8]) -> ());
    vfs::forward!(? fs rename(
        old_dir: Ino, old_name: &[u8], new_dir: Ino, new_name: &[u8], flags: RenameFlags
    ) -> ());
    vfs::forward!(? fs write(ino: Ino, offset: u64, data: &[u8]) -> usize);
    vfs::forward!(? fs append(ino: Ino, data: &[u8]) -> (u64, usize));
    vfs::forward!(? fs write_direct(ino: Ino, offset: u64, data: &[u8]) -> usize);
    vfs::forward!(? fs fsync(ino: Ino, datasync: bool) -> ());

    fn root(&self) -> Ino {
        self.root
    }

    fn lookup(&self, cx: &mut Cx, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        let above = dir == self.root && name == b"..";
        self.fs.lookup(cx, dir, if above { b"." } else { name })
    }

    fn readdir(
        &self,
        cx: &mut Cx,
        dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), Errno> {
        self.fs.readdir(cx, dir, cookie, &mut |entry| {
            let above = dir == self.root && entry.name == b"..";
            emit(DirEntry { ino: if above { dir } else { entry.ino }, ..entry })
        })
    }
}
