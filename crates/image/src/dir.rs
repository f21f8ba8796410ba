//! Listing directories.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Errno, Ino};
use vfs::FileType;

use crate::bytes;
use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::mounted::{Fs, Mounted};

/// Names that are fetched at once.
const BATCH: usize = 1024;

/// The names of a directory: [`Fs::read_dir`](crate::Fs::read_dir). Holds some 1,024 of them in
/// memory, however many there are.
pub struct ReadDir {
    mounted: Arc<Mounted>,
    path: PathBuf,
    ino: Ino,
    fetched: VecDeque<(Vec<u8>, Ino, Option<FileType>)>,
    /// Where the next batch begins; None at the end.
    cookie: Option<u64>,
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.path).finish()
    }
}

impl ReadDir {
    pub(crate) fn open(mounted: &Arc<Mounted>, path: &Path) -> Result<ReadDir> {
        let attr = mounted.call(path, |cx, names, path| names.stat(cx, path))?;
        if !attr.is_dir() {
            return Err(Error::new(mounted.place(path), Errno::ENOTDIR));
        }
        ReadDir::of(mounted, path.to_owned(), attr.ino)
    }

    /// The directory `ino`, which is found at `path`.
    pub(crate) fn of(mounted: &Arc<Mounted>, path: PathBuf, ino: Ino) -> Result<ReadDir> {
        mounted.call(&path, |cx, names, _| names.fs().open(cx, ino))?;
        let mounted = mounted.clone();
        Ok(ReadDir { mounted, path, ino, fetched: VecDeque::new(), cookie: Some(0) })
    }

    fn fetch(&mut self, from: u64) -> Result<()> {
        let (ino, fetched) = (self.ino, &mut self.fetched);
        let mut last = None;
        let mut list = |entry: vfs::DirEntry<'_>| {
            if fetched.len() == BATCH {
                return false;
            }
            last = Some(entry.cookie);
            if entry.name != b"." && entry.name != b".." {
                fetched.push_back((entry.name.to_vec(), entry.ino, entry.kind));
            }
            true
        };
        let path = &self.path;
        self.mounted.call(path, |cx, names, _| names.fs().readdir(cx, ino, from, &mut list))?;
        self.cookie = last;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        while self.fetched.is_empty() {
            let from = self.cookie.take()?;
            if let Err(error) = self.fetch(from) {
                return Some(Err(error));
            }
        }
        let (name, ino, kind) = self.fetched.pop_front()?;
        let name = bytes::name(name);
        let path = self.path.join(&name);
        Some(Ok(DirEntry { mounted: self.mounted.clone(), path, ino, kind }))
    }
}

impl Drop for ReadDir {
    fn drop(&mut self) {
        let (fs, ino) = (&self.mounted.fs, self.ino);
        let _nothing_to_do = self.mounted.enter("close", |cx| fs.release(cx, ino));
    }
}

/// One name of a directory.
#[derive(Clone)]
pub struct DirEntry {
    mounted: Arc<Mounted>,
    path: PathBuf,
    ino: Ino,
    kind: Option<FileType>,
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path).finish()
    }
}

impl DirEntry {
    /// The path of the directory with this name.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The name.
    pub fn file_name(&self) -> OsString {
        // Not `Path::file_name`: what a damaged directory holds may be no name for it.
        let path = bytes::of(self.path.as_os_str());
        let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        bytes::name(path[start..].to_vec())
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.ino.0
    }

    /// The type that the directory records; None where it does not.
    pub fn known_type(&self) -> Option<FileType> {
        self.kind
    }

    /// The type; from the directory where it records types, else from the inode.
    ///
    /// # Errors
    /// The inode cannot be read.
    pub fn file_type(&self) -> Result<FileType> {
        match self.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.metadata()?.file_type()),
        }
    }

    /// The attributes of what the name stands for: a symbolic link is not followed.
    ///
    /// # Errors
    /// The inode cannot be read.
    pub fn metadata(&self) -> Result<Metadata> {
        let ino = self.ino;
        self.mounted.call(&self.path, |cx, names, _| names.fs().getattr(cx, ino)).map(Metadata)
    }

    pub(crate) fn read_dir(&self) -> Result<ReadDir> {
        ReadDir::of(&self.mounted, self.path.clone(), self.ino)
    }
}

/// Options for making a directory, as `std::fs::DirBuilder`.
#[derive(Clone, Copy, Debug)]
pub struct DirBuilder {
    mode: u16,
    recursive: bool,
}

impl Default for DirBuilder {
    fn default() -> DirBuilder {
        DirBuilder::new()
    }
}

impl DirBuilder {
    /// One directory, with mode 0o755.
    pub fn new() -> DirBuilder {
        DirBuilder { mode: 0o755, recursive: false }
    }

    /// Permission bits.
    pub fn mode(mut self, mode: u16) -> DirBuilder {
        self.mode = mode & 0o7777;
        self
    }

    /// Missing parents are made, too; a directory that exists is no error.
    pub fn recursive(mut self, recursive: bool) -> DirBuilder {
        self.recursive = recursive;
        self
    }

    /// Makes the directory.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOSPC`, those of the walk; `ENOTDIR` something else is in the way.
    pub fn create(self, fs: &Fs, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if !self.recursive {
            return self.create_one(fs, path);
        }
        let mut missing = vec![path];
        while let Some(&last) = missing.last() {
            match self.create_one(fs, last) {
                Ok(()) => drop(missing.pop()),
                Err(error) if error.errno() == Errno::EEXIST && fs.metadata(last)?.is_dir() => {
                    missing.pop();
                }
                Err(error) if error.errno() == Errno::ENOENT => match last.parent() {
                    Some(above) if above != Path::new("") => missing.push(above),
                    _ => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn create_one(self, fs: &Fs, path: &Path) -> Result<()> {
        fs.mounted().call(path, |cx, names, path| names.mkdir(cx, path, self.mode).map(drop))
    }
}
