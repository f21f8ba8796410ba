//! The functions of `std::fs`, on the file system of an image.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base::Errno;
use rt::Cx;
use vfs::{FileType, Namespace, RenameFlags, SetAttr, XattrFlags};

use crate::bytes;
use crate::dir::{DirBuilder, ReadDir};
use crate::error::{Error, Result};
use crate::file::{File, OpenOptions};
use crate::metadata::{Metadata, timespec};
use crate::mounted::Fs;
use crate::walk::Walk;

/// Bytes of a file that are copied at once.
const COPY_SIZE: usize = 1 << 20;

/// Space and inodes of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Size of a block, bytes.
    pub block_size: u32,
    /// Bytes for content in total.
    pub bytes: u64,
    /// Bytes that are free.
    pub bytes_free: u64,
    /// Bytes that are free for users other than root.
    pub bytes_available: u64,
    /// Inodes in total.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest name, bytes.
    pub name_max: u32,
    /// An id of the file system, from its UUID.
    pub id: u64,
}

impl Fs {
    /// Returns when everything done before survives a power cut.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn sync(&self) -> Result<()> {
        self.mounted().call(Path::new("/"), |cx, names, _| names.fs().sync(cx))
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// `EIO`.
    pub fn space(&self) -> Result<Space> {
        let stat = self.mounted().call(Path::new("/"), |cx, names, _| names.fs().statfs(cx))?;
        let block = u64::from(stat.block_size);
        Ok(Space {
            block_size: stat.block_size,
            bytes: stat.blocks * block,
            bytes_free: stat.blocks_free * block,
            bytes_available: stat.blocks_available * block,
            inodes: stat.inodes,
            inodes_free: stat.inodes_free,
            name_max: stat.name_max,
            id: stat.fsid,
        })
    }

    /// The content of a file.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, those of the walk to it.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open(&path)?;
        let size = file.metadata()?.len();
        let mut content = vec![0; usize::try_from(size).unwrap_or(0)];
        let mut filled = 0;
        while filled < content.len() {
            match file.read_at(&mut content[filled..], filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        content.truncate(filled);
        Ok(content)
    }

    /// The content of a file as text.
    ///
    /// # Errors
    /// As [`Fs::read`]; `EILSEQ` if it is no UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        String::from_utf8(self.read(&path)?).map_err(|error| {
            Error::because(self.mounted().place(path.as_ref()), Errno::EILSEQ, error.utf8_error())
        })
    }

    /// Makes a file with this content, or replaces the content of the one that is there.
    ///
    /// # Errors
    /// `EISDIR`, `ENOSPC`, `EROFS`, those of the walk.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let file = self.create(&path)?;
        file.write_all_at(content.as_ref(), 0)
    }

    /// Copies content and permission bits of a file; what the new name leads to is emptied first.
    /// Returns the bytes.
    ///
    /// # Errors
    /// As [`Fs::read`] and [`Fs::write`]; `EINVAL` both are one file.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open(&from)?;
        let metadata = source.metadata()?;
        if self.metadata(&to).is_ok_and(|there| there.ino() == metadata.ino()) {
            return Err(Error::new(self.mounted().place(to.as_ref()), Errno::EINVAL));
        }
        let target = self.create(&to)?;
        let mut buffer = vec![0; COPY_SIZE.min(metadata.len() as usize + 1)];
        let mut at = 0;
        loop {
            let count = source.read_at(&mut buffer, at)?;
            if count == 0 {
                break;
            }
            target.write_all_at(&buffer[..count], at)?;
            at += count as u64;
        }
        self.set_mode(to, metadata.mode())?;
        Ok(at)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Opens a file for writing; it is made, or emptied.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(self, path)
    }

    /// The attributes of what a path leads to.
    ///
    /// # Errors
    /// `ENOENT`, those of the walk.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.mounted().call(path.as_ref(), |cx, names, path| names.stat(cx, path)).map(Metadata)
    }

    /// The attributes of what a path names: a symbolic link is not followed.
    ///
    /// # Errors
    /// `ENOENT`, those of the walk.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.mounted().call(path.as_ref(), |cx, names, path| names.lstat(cx, path)).map(Metadata)
    }

    /// Whether a path leads to something.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.metadata(path).is_ok()
    }

    /// The names in a directory, without `.` and `..`, in the order of the file system.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, those of the walk.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        ReadDir::open(self.mounted(), path.as_ref())
    }

    /// Everything below a directory: each directory before what it holds. Symbolic links are not
    /// followed. Ends on damaged file systems too, where a directory lies below itself.
    ///
    /// # Errors
    /// As [`Fs::read_dir`].
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        Walk::open(self.mounted(), path.as_ref())
    }

    /// Makes a directory with mode 0o755.
    ///
    /// # Errors
    /// As [`DirBuilder::create`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        DirBuilder::new().create(self, path)
    }

    /// Makes a directory, and those above it that do not exist.
    ///
    /// # Errors
    /// As [`DirBuilder::create`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        DirBuilder::new().recursive(true).create(self, path)
    }

    /// Makes a further name for a file.
    ///
    /// # Errors
    /// `EPERM` for a directory; `EEXIST`, `EMLINK`.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let original = bytes::of(original.as_ref().as_os_str());
        self.mounted()
            .call(link.as_ref(), |cx, names, link| names.link(cx, &original, link).map(drop))
    }

    /// Makes a symbolic link that holds `target`.
    ///
    /// # Errors
    /// `EEXIST`, `ENAMETOOLONG`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let target = bytes::of(target.as_ref().as_os_str());
        self.mounted()
            .call(link.as_ref(), |cx, names, link| names.symlink(cx, &target, link).map(drop))
    }

    /// What a symbolic link holds.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let target =
            self.mounted().call(path.as_ref(), |cx, names, path| names.readlink(cx, path))?;
        Ok(PathBuf::from(bytes::name(target)))
    }

    /// Makes a FIFO, a socket, a device (`rdev` as `vfs::makedev` gives it) or an empty file.
    ///
    /// # Errors
    /// `EEXIST`; `EPERM` for a directory or a symbolic link.
    pub fn make_node(
        &self,
        path: impl AsRef<Path>,
        kind: FileType,
        mode: u16,
        rdev: u64,
    ) -> Result<()> {
        let make = |cx: &mut Cx, names: &Namespace, path: &[u8]| {
            names.mknod(cx, path, kind, mode, rdev).map(drop)
        };
        self.mounted().call(path.as_ref(), make)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.mounted().call(path.as_ref(), |cx, names, path| names.unlink(cx, path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.mounted().call(path.as_ref(), |cx, names, path| names.rmdir(cx, path))
    }

    /// Removes a directory and everything below it; symbolic links are removed, not followed.
    ///
    /// # Errors
    /// The first failure; what came before it is gone.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut directories = vec![path.as_ref().to_owned()];
        let walk = self.walk(&path)?;
        for entry in walk {
            let entry = entry?;
            if entry.file_type()? == FileType::Directory {
                directories.push(entry.path());
            } else {
                self.remove_file(entry.path())?;
            }
        }
        directories.iter().rev().try_for_each(|directory| self.remove_dir(directory))
    }

    /// Moves a name; what the new name was is replaced in one step.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTEMPTY`, `EISDIR`, `EINVAL` a directory into itself.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// Moves a name, with the flags of renameat2(2): without replacing, or both names change
    /// places.
    ///
    /// # Errors
    /// As [`Fs::rename`]; `EEXIST` with `NOREPLACE`; `EINVAL` both flags, or the format cannot.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        let to = bytes::of(to.as_ref().as_os_str());
        self.mounted().call(from.as_ref(), |cx, names, from| names.rename(cx, from, &to, flags))
    }

    fn set(&self, path: &Path, follow: bool, set: SetAttr) -> Result<()> {
        self.mounted().call(path, |cx, names, path| names.setattr(cx, path, &set, follow).map(drop))
    }

    /// Sets permission, set-id and sticky bits: `0..=0o7777`.
    ///
    /// # Errors
    /// `ENOENT`, `EROFS`.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        self.set(path.as_ref(), true, SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() })
    }

    /// Sets owner and group; None leaves what is there.
    ///
    /// # Errors
    /// `ENOENT`, `EROFS`, `EDQUOT`.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set(path.as_ref(), true, SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// As [`Fs::chown`]; of a symbolic link its own.
    ///
    /// # Errors
    /// As [`Fs::chown`].
    pub fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set(path.as_ref(), false, SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets the times of the last read and of the last change.
    ///
    /// # Errors
    /// `ENOENT`, `EROFS`.
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: SystemTime,
        modified: SystemTime,
    ) -> Result<()> {
        let (atime, mtime) = (Some(timespec(accessed)), Some(timespec(modified)));
        self.set(path.as_ref(), true, SetAttr { atime, mtime, ..SetAttr::default() })
    }

    /// As [`Fs::set_times`]; of a symbolic link its own.
    ///
    /// # Errors
    /// As [`Fs::set_times`].
    pub fn set_times_nofollow(
        &self,
        path: impl AsRef<Path>,
        accessed: SystemTime,
        modified: SystemTime,
    ) -> Result<()> {
        let (atime, mtime) = (Some(timespec(accessed)), Some(timespec(modified)));
        self.set(path.as_ref(), false, SetAttr { atime, mtime, ..SetAttr::default() })
    }

    /// The value of an extended attribute, `name` with its prefix (`user.x`).
    ///
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP` unknown prefix.
    pub fn xattr(&self, path: impl AsRef<Path>, name: &str) -> Result<Vec<u8>> {
        self.mounted()
            .call(path.as_ref(), |cx, names, path| names.getxattr(cx, path, name.as_bytes()))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `ENOSPC` it does not fit; `EOPNOTSUPP` unknown prefix; `EROFS`.
    pub fn set_xattr(&self, path: impl AsRef<Path>, name: &str, value: &[u8]) -> Result<()> {
        let (name, flags) = (name.as_bytes(), XattrFlags::empty());
        self.mounted()
            .call(path.as_ref(), |cx, names, path| names.setxattr(cx, path, name, value, flags))
    }

    /// The names of the extended attributes.
    ///
    /// # Errors
    /// `ENOENT`, those of the walk.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        self.mounted().call(path.as_ref(), |cx, names, path| {
            let ino = names.stat(cx, path)?.ino;
            names.fs().listxattr(cx, ino)
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `EROFS`.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: &str) -> Result<()> {
        self.mounted().call(path.as_ref(), |cx, names, path| {
            let ino = names.stat(cx, path)?.ino;
            names.fs().removexattr(cx, ino, name.as_bytes())
        })
    }
}
