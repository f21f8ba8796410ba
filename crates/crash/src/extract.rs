//! A recovered tree as a directory of the host, for checks that are programs.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base::map::HashMap;
use base::{Errno, Ino};
use rt::Cx;
use vfs::walk::next_data;
use vfs::{Attr, FileSystem, FileType};

use crate::tree::names;

/// Bytes that are read at once.
const PART: usize = 1 << 20;

/// Why a tree could not be brought to the host.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    /// The recovered file system refused.
    #[error("{path}: {errno}")]
    State {
        /// The path inside.
        path: String,
        /// Its answer.
        errno: Errno,
    },
    /// The host refused.
    #[error("{}: {error}", path.display())]
    Host {
        /// The path on the host.
        path: PathBuf,
        /// Its answer.
        error: io::Error,
    },
}

/// Writes the tree of a file system below a directory: directories, files with their sizes and
/// contents, symlinks, hard links, permission bits (of files without the set-id bits). Devices,
/// pipes, owners and extended attributes are left out, and so is `lost+found` where it is empty.
/// Parks.
///
/// # Errors
/// What could not be read or written.
pub fn extract(cx: &mut Cx, fs: &dyn FileSystem, dir: &Path) -> Result<(), ExtractError> {
    let mut out = Extract { fs, links: HashMap::default() };
    out.directory(cx, fs.root(), dir, String::new())
}

struct Extract<'a> {
    fs: &'a dyn FileSystem,
    /// Where inodes of several names were written first.
    links: HashMap<u64, PathBuf>,
}

fn host(path: &Path) -> impl FnOnce(io::Error) -> ExtractError {
    move |error| ExtractError::Host { path: path.to_owned(), error }
}

fn inside(path: &str) -> impl FnOnce(Errno) -> ExtractError {
    move |errno| ExtractError::State { path: path.to_owned(), errno }
}

impl Extract<'_> {
    fn directory(
        &mut self,
        cx: &mut Cx,
        ino: Ino,
        to: &Path,
        path: String,
    ) -> Result<(), ExtractError> {
        let root = self.fs.getattr(cx, ino).map_err(inside(&path))?;
        let mut folders = vec![(ino, to.to_owned(), path)];
        // Set in the end, from below: in some of them nothing can be made.
        let mut modes = vec![(to.to_owned(), root.mode)];
        while let Some((ino, to, path)) = folders.pop() {
            for name in names(cx, self.fs, ino).map_err(inside(&path))? {
                let child = format!("{path}/{}", String::from_utf8_lossy(&name));
                let attr = self.fs.lookup(cx, ino, &name).map_err(inside(&child))?;
                if child == "/lost+found" && attr.nlink == 2 && self.is_empty(cx, attr.ino) {
                    continue;
                }
                let target = to.join(std::ffi::OsStr::from_bytes(&name));
                match attr.kind {
                    FileType::Directory => {
                        fs::create_dir(&target).map_err(host(&target))?;
                        modes.push((target.clone(), attr.mode));
                        folders.push((attr.ino, target, child));
                    }
                    _ => self.leaf(cx, &attr, &target, &child)?,
                }
            }
        }
        for (dir, mode) in modes.into_iter().rev() {
            let mode = fs::Permissions::from_mode(u32::from(mode));
            fs::set_permissions(&dir, mode).map_err(host(&dir))?;
        }
        Ok(())
    }

    fn is_empty(&self, cx: &mut Cx, dir: Ino) -> bool {
        let mut names = 0;
        let listed = self.fs.readdir(cx, dir, 0, &mut |_| {
            names += 1;
            true
        });
        listed.is_ok() && names <= 2
    }

    fn leaf(
        &mut self,
        cx: &mut Cx,
        attr: &Attr,
        to: &Path,
        path: &str,
    ) -> Result<(), ExtractError> {
        if !matches!(attr.kind, FileType::Regular | FileType::Symlink) {
            return Ok(());
        }
        if attr.nlink > 1 {
            if let Some(first) = self.links.get(&attr.ino.0) {
                return fs::hard_link(first, to).map_err(host(to));
            }
            self.links.insert(attr.ino.0, to.to_owned());
        }
        match attr.kind {
            FileType::Regular => self.file(cx, attr, to, path),
            FileType::Symlink => {
                let target = self.fs.readlink(cx, attr.ino).map_err(inside(path))?;
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&target), to)
                    .map_err(host(to))
            }
            _ => Ok(()),
        }
    }

    fn file(
        &mut self,
        cx: &mut Cx,
        attr: &Attr,
        to: &Path,
        path: &str,
    ) -> Result<(), ExtractError> {
        let file = fs::File::create(to).map_err(host(to))?;
        file.set_len(attr.size).map_err(host(to))?;
        let mut bytes = vec![0; PART.min(attr.size as usize)];
        let mut at = 0;
        while let Some(data) = next_data(cx, self.fs, attr.ino, at).map_err(inside(path))? {
            at = data.start;
            while at < data.end {
                let read = self.fs.read(cx, attr.ino, at, &mut bytes).map_err(inside(path))?;
                if read == 0 {
                    break;
                }
                if !base::page::is_zero(&bytes[..read]) {
                    file.write_all_at(&bytes[..read], at).map_err(host(to))?;
                }
                at += read as u64;
            }
            at = at.max(data.end);
        }
        // It is ours here, whose it may not have been: no program of another's may become us.
        let mode = fs::Permissions::from_mode(u32::from(attr.mode) & !0o6000);
        file.set_permissions(mode).map_err(host(to))
    }
}
