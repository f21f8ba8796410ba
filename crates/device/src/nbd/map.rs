//! The answer to `base:allocation`: which parts of an export are holes.

use std::fs::File;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};

use super::wire::{STATE_HOLE, STATE_ZERO};

/// Knows where an export has holes.
pub trait Allocation: Send + Sync {
    /// Runs of bytes from `offset` on, up to `len` bytes together: length and state bits
    /// ([`STATE_HOLE`], [`STATE_ZERO`]). At least one; neighbours may have the same state.
    fn extents(&self, offset: u64, len: u64) -> Vec<(u64, u32)>;
}

/// The holes of an image file, or of a part of it.
pub struct FileMap {
    file: File,
    start: u64,
}

/// Runs that one answer shows.
const RUNS_MAX: usize = 1024;

impl FileMap {
    /// The holes of the file from byte `start` on.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new(path: &Path, start: u64) -> std::io::Result<FileMap> {
        Ok(FileMap { file: File::open(path)?, start })
    }
}

impl Allocation for FileMap {
    fn extents(&self, offset: u64, len: u64) -> Vec<(u64, u32)> {
        let (mut at, end) = (self.start + offset, self.start + offset + len);
        let mut runs = Vec::new();
        while at < end && runs.len() < RUNS_MAX {
            // No data behind here: a hole up to the end. A host that cannot say so has data only.
            let data = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data.min(end),
                Err(rustix::io::Errno::NXIO) => end,
                Err(_) => at,
            };
            if data > at {
                runs.push((data - at, STATE_HOLE | STATE_ZERO));
                at = data;
                continue;
            }
            let hole = seek(&self.file, SeekFrom::Hole(at)).map_or(end, |hole| hole.min(end));
            runs.push((hole.max(at + 1) - at, 0));
            at = hole.max(at + 1);
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_of_a_file_are_told_in_the_numbers_of_the_export() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        file.as_file().write_all_at(&[1; 65536], 256 << 10).unwrap();
        let map = FileMap::new(file.path(), 128 << 10).unwrap();
        let hole = STATE_HOLE | STATE_ZERO;
        let runs = map.extents(0, 512 << 10);
        assert_eq!(runs, vec![(128 << 10, hole), (64 << 10, 0), (320 << 10, hole)]);
    }
}
