//! The open files of one copy of a job, and the calls that its engine makes.

use base::{Errno, Page};
use block::Segment;
use rt::Cx;
use vfs::{FallocMode, OpenFlags};

use super::job::{Direction, Engine, Job};
use super::layout::JobPath;
use super::place::Unit;
use crate::{AlignedBuffer, Target, TargetFile};

/// The files of one copy of a job. Shared by the tasks that are its depth.
pub struct JobFiles {
    target: Target,
    engine: Engine,
    flags: OpenFlags,
    paths: Vec<JobPath>,
    open: Vec<TargetFile>,
    /// The memory of all direct writes of zeros on our path: one page, as often as it takes.
    zeros: Option<Page>,
    /// Direct writes on our path share the job's memory, as a kernel pins it, and copy nothing.
    shares: bool,
}

/// Bytes of that page.
const ZEROS: u64 = 64 << 10;

/// Flags with which a job's files are opened.
fn open_flags(job: &Job) -> OpenFlags {
    let mut flags = OpenFlags::READ;
    if job.pattern.writes || job.pattern.trims || job.verify.is_some() && !job.verify_only {
        flags |= OpenFlags::WRITE | OpenFlags::CREATE;
    }
    flags.set(OpenFlags::DIRECT, job.direct);
    flags.set(OpenFlags::SYNC, job.sync);
    flags.set(OpenFlags::DSYNC, job.dsync);
    flags
}

/// `len` bytes of one page over and over.
fn repeated(page: &Page, len: u64) -> Vec<Segment> {
    let size = page.len() as u64;
    let starts = (0..len.div_ceil(size)).map(|n| n * size);
    let segment =
        |at: u64| Segment { page: page.clone(), offset: 0, len: size.min(len - at) as u32 };
    starts.map(segment).collect()
}

impl JobFiles {
    /// Opens the files.
    ///
    /// # Errors
    /// The path that failed, and why.
    pub fn open(
        cx: &mut Cx,
        target: &Target,
        job: &Job,
        paths: Vec<JobPath>,
    ) -> Result<JobFiles, (String, Errno)> {
        let flags = open_flags(job);
        let shares = job.direct && matches!(target, Target::Ours(..));
        let mut files = JobFiles {
            target: target.clone(),
            engine: job.engine,
            flags,
            paths,
            open: Vec::new(),
            zeros: (shares && job.zero_buffers).then(|| Page::zeroed(ZEROS as usize)),
            shares,
        };
        if job.engine.is_per_file() || job.engine == Engine::Null {
            return Ok(files);
        }
        for number in 0..files.paths.len() {
            let path = files.paths[number].path.clone();
            match target.open(cx, path.as_bytes(), flags, 0o600) {
                Ok(file) => {
                    if job.invalidate && !job.pre_read {
                        file.forget();
                    }
                    files.open.push(file);
                }
                Err(errno) => {
                    let _ = files.close(cx);
                    return Err((path, errno));
                }
            }
        }
        Ok(files)
    }

    /// The path of a file.
    pub fn path(&self, number: usize) -> &str {
        &self.paths[number].path
    }

    /// The parts of the files that are worked on.
    pub fn extents(&self) -> Vec<super::place::Extent> {
        self.paths.iter().map(|path| path.extent).collect()
    }

    /// Carries out an operation; returns its bytes.
    ///
    /// # Errors
    /// Those of the call.
    pub fn perform(
        &self,
        cx: &mut Cx,
        unit: &Unit,
        buffer: &mut AlignedBuffer,
    ) -> Result<u64, Errno> {
        let path = self.paths[unit.file].path.as_bytes();
        let per_file = match self.engine {
            Engine::Null => Some(Ok(())),
            Engine::FileCreate => {
                let flags = OpenFlags::WRITE | OpenFlags::CREATE;
                let made = self.target.open(cx, path, flags, 0o600);
                Some(made.and_then(|file| file.close(cx)))
            }
            Engine::FileStat => Some(self.target.stat(cx, path).map(drop)),
            Engine::FileDelete => Some(self.target.unlink(cx, path)),
            _ => None,
        };
        if let Some(done) = per_file {
            return done.map(|()| unit.len);
        }
        let file = &self.open[unit.file];
        let hole = unit.direction == Direction::Trim;
        if hole || self.engine == Engine::Falloc {
            let mode = match hole {
                true => FallocMode::PunchHole,
                false => FallocMode::Allocate { keep_size: unit.direction == Direction::Read },
            };
            return file.fallocate(cx, mode, unit.offset, unit.len).map(|()| unit.len);
        }
        if let (Direction::Write, Some(page)) = (unit.direction, &self.zeros) {
            return file.write_pages_at(cx, unit.offset, &repeated(page, unit.len));
        }
        let bytes = unit.len as usize;
        if unit.direction == Direction::Write && self.shares {
            return file.write_pages_at(cx, unit.offset, &[buffer.share(bytes)]);
        }
        let count = match unit.direction {
            Direction::Read => file.read_at(cx, unit.offset, &mut buffer.bytes_mut()[..bytes]),
            _ => file.write_at(cx, unit.offset, &buffer.bytes()[..bytes]),
        };
        count.map(|count| count as u64)
    }

    /// fsync(2) or fdatasync(2) of a file.
    ///
    /// # Errors
    /// Those of the call.
    pub fn fsync(&self, cx: &mut Cx, number: usize, data_only: bool) -> Result<(), Errno> {
        match self.open.get(number) {
            Some(file) if self.flags.contains(OpenFlags::WRITE) => file.fsync(cx, data_only),
            _ => Ok(()),
        }
    }

    /// Reads all of the files, so that what can be cached is.
    ///
    /// # Errors
    /// Those of the reads.
    pub fn pre_read(&self, cx: &mut Cx) -> Result<(), Errno> {
        let mut buffer = AlignedBuffer::new(1 << 20);
        for (file, path) in self.open.iter().zip(&self.paths) {
            let (mut offset, end) = (path.extent.offset, path.extent.offset + path.extent.len);
            while offset < end {
                let len = (end - offset).min(buffer.len() as u64) as usize;
                match file.read_at(cx, offset, &mut buffer.bytes_mut()[..len])? {
                    0 => break,
                    count => offset += count as u64,
                }
            }
        }
        Ok(())
    }

    /// Closes the files; the first error is reported, and all of them are closed.
    ///
    /// # Errors
    /// That of the first close that failed.
    pub fn close(&mut self, cx: &mut Cx) -> Result<(), Errno> {
        let mut all = Ok(());
        for file in self.open.drain(..) {
            all = all.and(file.close(cx));
        }
        all
    }

    /// Removes the files.
    ///
    /// # Errors
    /// Those of the calls, but `ENOENT`.
    pub fn unlink(&self, cx: &mut Cx) -> Result<(), Errno> {
        for path in &self.paths {
            match self.target.unlink(cx, path.path.as_bytes()) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
