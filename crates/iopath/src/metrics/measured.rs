//! A file system whose requests are counted.

use std::sync::Arc;

use base::{Errno, Ino};
use block::{HostRange, Segment};
use rt::Cx;
use vfs::{
    Attr, DirEntry, FallocMode, FilePlace, FileRead, FileSystem, Iomap, NewNode, RenameFlags,
    SeekWhence, SetAttr, StatFs, XattrFlags,
};

use super::requests::Requests;

/// An attribute of the root directory that is not on the disk and is not listed: where the metrics
/// of the mount are. So that who sees the mount finds them.
pub const ATTRIBUTE: &[u8] = b"iopath.metrics";

/// The operations of a file system, by the names of their metrics.
macro_rules! operations {
    ($($operation:ident $name:literal)*) => {
        #[derive(Clone, Copy)]
        enum Operation { $($operation,)* }

        /// The names of the operations that are counted.
        pub const OPERATIONS: &[&str] = &[$($name),*];
    };
}

operations! {
    Lookup "lookup" Getattr "getattr" Setattr "setattr" Create "create" Link "link"
    Unlink "unlink" Rmdir "rmdir" Rename "rename" Readlink "readlink" Readdir "readdir"
    Open "open" Release "release" Read "read" Write "write" Fsync "fsync" Sync "sync"
    SetFlags "set_flags" Fallocate "fallocate" Clone "clone_range" Seek "seek"
    Fiemap "fiemap" Getxattr "getxattr" Setxattr "setxattr" Listxattr "listxattr"
    Removexattr "removexattr" Statfs "statfs" Dedupe "dedupe_range" Exchange "exchange_range"
    Grow "grow"
}

/// Passes every call on, and counts it.
pub struct Measured {
    fs: Arc<dyn FileSystem>,
    requests: Arc<Requests>,
    place: Vec<u8>,
}

impl Measured {
    /// Counts the requests to `fs`; the metrics are at this place.
    pub fn new(fs: Arc<dyn FileSystem>, requests: Arc<Requests>, place: Vec<u8>) -> Measured {
        Measured { fs, requests, place }
    }

    fn call<T>(
        &self,
        cx: &mut Cx,
        operation: Operation,
        work: impl FnOnce(&mut Cx) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.requests.begin();
        let began = cx.now();
        let done = work(cx);
        let failed = done.as_ref().err().copied();
        self.requests.end(operation as usize, cx.now() - began, failed);
        done
    }

    /// A call that reads or writes; `bytes` says how many of its answer.
    fn moving<T>(
        &self,
        cx: &mut Cx,
        operation: Operation,
        bytes: impl Fn(&T) -> u64,
        work: impl FnOnce(&mut Cx) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let done = self.call(cx, operation, work)?;
        match operation {
            Operation::Read => self.requests.note_read(bytes(&done)),
            _ => self.requests.note_written(bytes(&done)),
        }
        Ok(done)
    }
}

/// Calls that are passed on with the name of their operation.
macro_rules! counted {
    ($($operation:ident $method:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $method(&self, cx: &mut Cx, $($arg: $type),*) -> Result<$out, Errno> {
            self.call(cx, Operation::$operation, |cx| self.fs.$method(cx, $($arg),*))
        })*
    };
    (
        bytes $count:expr;
        $($operation:ident $method:ident($($arg:ident: $type:ty),*) -> $out:ty;)*
    ) => {
        $(fn $method(&self, cx: &mut Cx, $($arg: $type),*) -> Result<$out, Errno> {
            self.moving(cx, Operation::$operation, $count, |cx| self.fs.$method(cx, $($arg),*))
        })*
    };
}

impl FileSystem for Measured {
    vfs::forward!(fs:
        name root walk_version ignores_case names_of lost note_lost commit unmount shutdown_hard
        xfs_geometry extent_hints set_extent_hints
    );

    counted! {
        Lookup lookup(dir: Ino, name: &[u8]) -> Attr;
        Getattr getattr(ino: Ino) -> Attr;
        Setattr setattr(ino: Ino, set: &SetAttr) -> Attr;
        Create create(dir: Ino, name: &[u8], node: &NewNode) -> Attr;
        Create create_with(
            dir: Ino, name: &[u8], node: &NewNode, attributes: &[(&[u8], Vec<u8>)]
        ) -> Attr;
        Create create_unnamed(dir: Ino, node: &NewNode, attributes: &[(&[u8], Vec<u8>)]) -> Attr;
        Link link(ino: Ino, dir: Ino, name: &[u8]) -> Attr;
        Unlink unlink(dir: Ino, name: &[u8]) -> ();
        Rmdir rmdir(dir: Ino, name: &[u8]) -> ();
        Rename rename(
            old_dir: Ino, old_name: &[u8], new_dir: Ino, new_name: &[u8], flags: RenameFlags
        ) -> ();
        Readlink readlink(ino: Ino) -> Vec<u8>;
        Readdir readdir(dir: Ino, cookie: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> ();
        Open open(ino: Ino) -> ();
        Release release(ino: Ino) -> ();
        Fsync fsync(ino: Ino, datasync: bool) -> ();
        Sync sync() -> ();
        Grow grow(blocks: u64) -> ();
        SetFlags set_flags(ino: Ino, flags: u32) -> Attr;
        Fallocate fallocate(ino: Ino, mode: FallocMode, offset: u64, len: u64) -> ();
        Fallocate unshare_range(ino: Ino, offset: u64, len: u64) -> ();
        Clone clone_range(from: (Ino, u64), to: (Ino, u64), len: u64) -> ();
        Dedupe dedupe_range(from: FilePlace, to: FilePlace, len: u64) -> bool;
        Exchange exchange_range(sides: [FilePlace; 2], len: Option<u64>) -> ();
        Seek seek(ino: Ino, offset: u64, whence: SeekWhence) -> u64;
        Fiemap fiemap(ino: Ino, offset: u64, len: u64) -> Vec<Iomap>;
        Setxattr setxattr(ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> ();
        Listxattr listxattr(ino: Ino) -> Vec<Vec<u8>>;
        Removexattr removexattr(ino: Ino, name: &[u8]) -> ();
        Statfs statfs() -> StatFs;
    }

    counted! {
        bytes |bytes| *bytes as u64;
        Read read(ino: Ino, offset: u64, buf: &mut [u8]) -> usize;
        Read read_direct(ino: Ino, offset: u64, buf: &mut [u8]) -> usize;
        Write write(ino: Ino, offset: u64, data: &[u8]) -> usize;
        Write write_direct(ino: Ino, offset: u64, data: &[u8]) -> usize;
    }

    counted! {
        bytes |bytes| *bytes;
        Write write_direct_pages(ino: Ino, offset: u64, pages: &[Segment]) -> u64;
    }

    counted! {
        bytes |(_, bytes)| *bytes as u64;
        Write append(ino: Ino, data: &[u8]) -> (u64, usize);
    }

    fn getxattr(&self, cx: &mut Cx, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        if name == ATTRIBUTE && ino == self.fs.root() {
            return Ok(self.place.clone());
        }
        self.call(cx, Operation::Getxattr, |cx| self.fs.getxattr(cx, ino, name))
    }

    /// Each is a read that took as long as all.
    fn read_many(&self, cx: &mut Cx, reads: &mut [FileRead<'_>]) {
        let began = cx.now();
        self.fs.read_many(cx, reads);
        let took = cx.now() - began;
        for read in reads {
            self.requests.note(Operation::Read as usize, took, read.done.err());
            self.requests.note_read(read.done.map_or(0, |bytes| bytes as u64));
        }
    }

    /// Counted where it reads: else the caller reads in another way.
    fn read_at_host(
        &self,
        cx: &mut Cx,
        ino: Ino,
        offset: u64,
        len: u64,
        give: &mut dyn FnMut(&[HostRange<'_>]) -> bool,
    ) -> Result<bool, Errno> {
        let began = cx.now();
        let mut bytes = 0;
        let done = self.fs.read_at_host(cx, ino, offset, len, &mut |ranges| {
            bytes = ranges.iter().map(|range| range.len).sum();
            give(ranges)
        });
        if done != Ok(false) {
            self.requests.note(Operation::Read as usize, cx.now() - began, done.err());
            self.requests.note_read(bytes);
        }
        done
    }
}
