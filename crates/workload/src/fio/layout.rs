//! The files of a job: their sizes, and their content before a run.

use base::{Errno, Rng};
use rt::Cx;
use vfs::{FallocMode, OpenFlags};

use super::job::{Job, Preallocate};
use super::place::Extent;
use crate::{AlignedBuffer, Target, TargetFile};

/// Bytes of one write that lays out a file.
const CHUNK: u64 = 1 << 20;
/// The extent of a file that is written until the device is full.
const ENDLESS: u64 = 1 << 60;

/// A file of a job and the part of it that is worked on.
#[derive(Clone, Debug)]
pub struct JobPath {
    /// The path in the target.
    pub path: String,
    /// The part.
    pub extent: Extent,
}

/// Why a file could not be laid out.
#[derive(Clone, Debug)]
pub struct LayoutError {
    /// The call.
    pub call: &'static str,
    /// The file.
    pub path: String,
    /// Why.
    pub errno: Errno,
}

/// Finds out the files of copy `number` of a job, and makes what has to be there before it runs.
/// `laid_out` is called for each file that is written.
pub fn prepare(
    cx: &mut Cx,
    target: &Target,
    job: &Job,
    number: u64,
    seed: u64,
    laid_out: &mut dyn FnMut(&Job, u64),
) -> Result<Vec<JobPath>, LayoutError> {
    let mut sizes = Rng::new(seed, 4);
    let mut files = Vec::new();
    for file in 0..job.files() {
        let path = job.file_name(number, file);
        let fail = |call, errno| LayoutError { call, path: path.clone(), errno };
        let made = target.make_path(cx, path.as_bytes());
        made.map_err(|errno| fail("mkdir", errno))?;
        let existing = match target.stat(cx, path.as_bytes()) {
            Ok((_, size)) => Some(size),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(fail("stat", errno)),
        };
        let extent = match &job.replay {
            Some(replay) => Some(Extent { offset: 0, len: replay.size(file as usize) }),
            None => extent(job, number, existing.unwrap_or(0), &mut sizes),
        };
        let extent = extent.ok_or_else(|| fail("total_file_size", Errno::EINVAL))?;
        let wanted = extent.offset + extent.len;
        if needs_layout(job, existing, wanted) {
            laid_out(job, wanted);
            lay_out(cx, target, job, &path, wanted, existing)
                .map_err(|(call, errno)| fail(call, errno))?;
        }
        files.push(JobPath { path, extent });
    }
    Ok(files)
}

/// The part of a file that copy `number` of a job works on; `None` where nothing gives a size.
fn extent(job: &Job, number: u64, existing: u64, sizes: &mut Rng) -> Option<Extent> {
    if job.engine.is_per_file() {
        return Some(Extent { offset: 0, len: job.unit() });
    }
    let step = job.offset_increment.checked_mul(number)?;
    if let Some((low, high)) = job.filesize {
        let size = if low == high { low } else { sizes.range(low..high + 1) };
        let offset = job.offset.of(size).checked_add(step)?;
        return Some(Extent { offset: offset.min(size), len: size.saturating_sub(offset) });
    }
    let offset = job.offset.of(existing).checked_add(step)?;
    let len = match job.size {
        Some(super::Amount::Bytes(bytes)) => bytes / job.files(),
        Some(percent) => percent.of(existing),
        None if job.fill_device => ENDLESS,
        None if existing > offset => existing - offset,
        None => return None,
    };
    offset.checked_add(len)?;
    Some(Extent { offset, len })
}

fn needs_layout(job: &Job, existing: Option<u64>, wanted: u64) -> bool {
    use super::Engine::{FileCreate, FileDelete, FileStat, Null};
    match job.engine {
        Null | FileCreate => false,
        FileStat | FileDelete => existing.is_none(),
        _ if job.fill_device || job.create_on_open => false,
        _ => existing.is_none_or(|size| size < wanted),
    }
}

type Failed = (&'static str, Errno);

fn lay_out(
    cx: &mut Cx,
    target: &Target,
    job: &Job,
    path: &str,
    size: u64,
    existing: Option<u64>,
) -> Result<(), Failed> {
    let filled = (job.pattern.reads || job.overwrite) && !job.engine.is_per_file();
    let mut flags = OpenFlags::WRITE | OpenFlags::CREATE;
    if filled && existing.is_some() {
        flags |= OpenFlags::TRUNC;
    }
    let file = target.open(cx, path.as_bytes(), flags, 0o644).map_err(|errno| ("open", errno))?;
    let done = content(cx, &file, job, size, filled);
    let closed = file.close(cx).map_err(|errno| ("close", errno));
    done.and(closed)
}

fn content(
    cx: &mut Cx,
    file: &TargetFile,
    job: &Job,
    size: u64,
    filled: bool,
) -> Result<(), Failed> {
    if job.engine.is_per_file() || size == 0 {
        return Ok(());
    }
    match job.fallocate {
        Preallocate::None => {}
        Preallocate::Truncate => file.truncate(cx, size).map_err(|errno| ("ftruncate", errno))?,
        kind => {
            let keep_size = kind == Preallocate::Keep;
            match file.fallocate(cx, FallocMode::Allocate { keep_size }, 0, size) {
                // What a file system cannot pre-allocate is allocated by writing.
                Ok(()) | Err(Errno::EOPNOTSUPP) => {}
                Err(errno) => return Err(("fallocate", errno)),
            }
        }
    }
    if !filled {
        return Ok(());
    }
    file.truncate(cx, size).map_err(|errno| ("ftruncate", errno))?;
    let mut buffer = AlignedBuffer::new(CHUNK.min(size) as usize);
    Rng::new(size, 5).fill(buffer.bytes_mut());
    let mut offset = 0;
    while offset < size {
        let len = (size - offset).min(buffer.len() as u64) as usize;
        let count = file.write_at(cx, offset, &buffer.bytes()[..len]);
        offset += count.map_err(|errno| ("write", errno))? as u64;
    }
    if job.create_fsync {
        file.fsync(cx, false).map_err(|errno| ("fsync", errno))?;
    }
    Ok(())
}
