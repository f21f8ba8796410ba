//! A file that has no name before it is complete, so that nothing half written looks whole: also
//! not after Ctrl-C.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{self as sys, AtFlags, CWD, Mode, OFlags};
use tempfile::{NamedTempFile, TempPath};

/// The file that becomes `path`.
pub struct Output {
    path: PathBuf,
    file: File,
    /// Its name for the time being, on file systems that have no files without.
    named: Option<TempPath>,
}

impl Output {
    /// A new file in the folder of `path`, which may exist; a symlink there is followed.
    ///
    /// # Errors
    /// The host refuses.
    pub fn new(path: &Path) -> Result<Output> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let folder = folder_of(&path);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = match path.metadata() {
            Ok(meta) => {
                Mode::from_raw_mode(std::os::unix::fs::PermissionsExt::mode(&meta.permissions()))
            }
            Err(_) => Mode::from_raw_mode(0o666),
        };
        let (file, named): (OwnedFd, _) = match sys::open(folder, flags, mode) {
            Ok(file) => (file, None),
            Err(_) => {
                let named = NamedTempFile::with_prefix_in(".iopath-", folder);
                let named = named.with_context(|| folder.display().to_string())?;
                let (file, name) = named.into_parts();
                (file.into(), Some(name))
            }
        };
        Ok(Output { path, file: file.into(), named })
    }

    /// A path that opens the file.
    pub fn place(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes it out, and gives it its name, in place of what had that before.
    ///
    /// # Errors
    /// The host refuses; nothing has changed then.
    pub fn publish(self) -> Result<()> {
        let shown = || self.path.display().to_string();
        self.file.sync_all().with_context(shown)?;
        let named = match self.named {
            Some(named) => named,
            None => link(&self.file, &self.path).with_context(shown)?,
        };
        named.persist(&self.path).with_context(|| self.path.display().to_string())?;
        let folder = File::open(folder_of(&self.path)).and_then(|folder| folder.sync_all());
        folder.with_context(|| self.path.display().to_string())
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Gives a file without a name one beside `path`.
fn link(file: &File, path: &Path) -> Result<TempPath> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    let pid = std::process::id();
    let mut number = 0;
    loop {
        let name = folder_of(path).join(format!(".iopath-{pid}-{number}"));
        match sys::linkat(CWD, &from, CWD, &name, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => return Ok(TempPath::try_from_path(name)?),
            Err(rustix::io::Errno::EXIST) => number += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_name_when_it_is_complete() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        std::fs::write(&path, "old").expect("written");
        let dropped = Output::new(&path).expect("made");
        std::fs::write(dropped.place(), "lost").expect("written");
        drop(dropped);
        let output = Output::new(&path).expect("made");
        std::fs::write(output.place(), "new").expect("written");
        assert_eq!(std::fs::read(&path).expect("read"), b"old");
        output.publish().expect("published");
        assert_eq!(std::fs::read(&path).expect("read"), b"new");
        assert_eq!(dir.path().read_dir().expect("read").count(), 1);
    }
}
