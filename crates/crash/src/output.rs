//! Files that a run writes anew.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Opens a file that is going to be written anew, and changes nothing yet: one that is made, an
/// empty one, or one that begins as `begins`. Any other file, and a block device, may be what the
/// user wants to keep.
///
/// # Errors
/// The host refuses; the file is another one (`AlreadyExists`).
pub fn open(path: &Path, begins: &[u8]) -> io::Result<File> {
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    let kind = file.metadata()?.file_type();
    let refused = |what: &str| Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    if kind.is_block_device() {
        return refused("it is a device, and is not overwritten; name a file");
    }
    if kind.is_file() {
        let mut found = Vec::new();
        (&mut file).take(begins.len() as u64).read_to_end(&mut found)?;
        if !found.is_empty() && !found.eq_ignore_ascii_case(begins) {
            return refused("it exists and is something else, not overwritten; name another file");
        }
    }
    Ok(file)
}

/// Empties what [`open`] opened. Nothing happens to what is no file.
///
/// # Errors
/// The host refuses.
pub fn empty(mut file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
        io::Seek::rewind(&mut file)?;
    }
    Ok(())
}

/// Bytes that wait in memory at most.
const WAITS: usize = 64 << 20;

/// A file that stays as it is until something is ready, and is written anew then.
pub struct WhenReady {
    file: File,
    ready: Arc<AtomicBool>,
    /// What is written before.
    waits: Option<Vec<u8>>,
}

impl WhenReady {
    /// Nothing is written to `file` before `ready` is true, unless it is more than 64 MiB. What
    /// never is ready leaves it alone.
    pub fn new(file: File, ready: Arc<AtomicBool>) -> WhenReady {
        WhenReady { file, ready, waits: Some(Vec::new()) }
    }
}

impl Write for WhenReady {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(waits) = &mut self.waits {
            waits.extend_from_slice(bytes);
            if waits.len() > WAITS {
                self.ready.store(true, Ordering::SeqCst);
            }
            self.flush()?;
            return Ok(bytes.len());
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.ready.load(Ordering::SeqCst)
            && let Some(waits) = self.waits.take()
        {
            empty(&self.file)?;
            self.file.write_all(&waits)?;
        }
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_kind_of_file_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let anew = |path: &Path| open(path, b"<!doctype").map(|file| empty(&file).unwrap());
        let left = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            let refused = anew(&path).map_err(|error| error.kind());
            (refused, std::fs::read(&path).unwrap())
        };
        assert!(anew(&path).is_ok() && path.exists());
        assert_eq!(left(b"<!DOCTYPE html>"), (Ok(()), Vec::new()));
        let exists = Err(io::ErrorKind::AlreadyExists);
        assert_eq!(left(b"iopcrash"), (exists, b"iopcrash".to_vec()));
        assert_eq!(left(b"<!"), (exists, b"<!".to_vec()));
        assert!(anew(Path::new("/dev/null")).is_ok());
    }
}
