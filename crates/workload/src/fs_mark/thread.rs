//! One thread of an iteration: the loop that writes files, the syncs behind it, the removal.

use base::{Errno, Nanos};
use rt::Cx;
use vfs::OpenFlags;

use super::options::{Options, SyncMethod};
use super::run::{CallStats, Calls, Failure};
use crate::{Stop, Target, TargetFile, Timeline};

/// How long the time-based choice stays in a subdirectory.
const LINGER: Nanos = Nanos::from_secs(180);
const LETTERS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// What a thread did.
pub(super) struct ThreadResult {
    pub files: u64,
    /// Time from the first file to the last sync.
    pub writing: Nanos,
    pub calls: Calls,
    pub file: CallStats,
    pub timeline: Timeline,
    pub failure: Option<Failure>,
    pub complete: bool,
}

/// A thread and the files that it made.
pub(super) struct Thread {
    target: Target,
    options: Options,
    stop: Stop,
    directory: String,
    first: u64,
    paths: Vec<Vec<u8>>,
    content: Vec<u8>,
    result: ThreadResult,
}

impl Thread {
    /// Thread `number`, which begins in subdirectory `first`.
    pub fn new(
        target: &Target,
        options: &Options,
        stop: &Stop,
        number: u64,
        first: u64,
        timeline: Timeline,
    ) -> Thread {
        let directory = number as usize % options.directories.len();
        let largest = options.write_size.min(options.file_size);
        Thread {
            target: target.clone(),
            options: options.clone(),
            stop: stop.clone(),
            directory: options.directories[directory].clone(),
            first,
            paths: Vec::new(),
            content: vec![0; largest as usize],
            result: ThreadResult {
                files: 0,
                writing: Nanos::ZERO,
                calls: Calls::default(),
                file: CallStats::default(),
                timeline,
                failure: None,
                complete: false,
            },
        }
    }

    /// Carries it all out.
    pub fn run(mut self, cx: &mut Cx) -> ThreadResult {
        match self.steps(cx) {
            Ok(complete) => self.result.complete = complete,
            Err(failure) => self.result.failure = Some(failure),
        }
        self.result
    }

    /// False where the run was stopped on the way.
    fn steps(&mut self, cx: &mut Cx) -> Result<bool, Failure> {
        self.prepare(cx)?;
        let begin = cx.now();
        let written = self.write_files(cx).and_then(|all| {
            let go_on = all && !self.stop.is_due(cx);
            if go_on { self.sync_behind(cx) } else { Ok(false) }
        });
        self.result.writing = cx.now().since(begin);
        match written? {
            true if !self.options.keep => self.remove(cx),
            complete => Ok(complete),
        }
    }

    fn prepare(&mut self, cx: &mut Cx) -> Result<(), Failure> {
        let directory = self.directory.clone();
        match self.target.mkdir(cx, directory.as_bytes()) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(Failure::Mkdir { path: directory, errno }),
        }
        let space = self.target.space(cx, directory.as_bytes());
        let space = space.map_err(|errno| failure("statfs", directory.as_bytes(), errno))?;
        let files = self.options.files;
        if files.saturating_mul(self.options.file_size) > space.available_bytes() {
            return Err(Failure::NoSpace { directory, files });
        }
        Ok(())
    }

    fn write_files(&mut self, cx: &mut Cx) -> Result<bool, Failure> {
        let begin = cx.now();
        for number in 0..self.options.files {
            if self.stop.is_due(cx) {
                return Ok(false);
            }
            let folder = self.folder(cx, begin, number);
            match self.target.mkdir(cx, &folder) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => {
                    let path = String::from_utf8_lossy(&folder).into_owned();
                    return Err(Failure::Mkdir { path, errno });
                }
            }
            let path = self.name(cx, folder);
            self.write_file(cx, &path)?;
            self.paths.push(path);
        }
        Ok(true)
    }

    /// The directory of the next file, with a slash at its end.
    fn folder(&self, cx: &Cx, begin: Nanos, number: u64) -> Vec<u8> {
        let mut folder = self.directory.clone().into_bytes();
        folder.push(b'/');
        if self.options.subdirectories > 0 {
            let step = match self.options.files_per_subdirectory {
                0 => cx.now().since(begin).0 / LINGER.0,
                files => number / files,
            };
            let subdirectory = self.first.wrapping_add(step) % self.options.subdirectories;
            folder.extend_from_slice(format!("{subdirectory:02x}").as_bytes());
        }
        folder
    }

    /// A name in the folder: the time in hexadecimal, filled with `~`, then random characters.
    fn name(&mut self, cx: &mut Cx, mut folder: Vec<u8>) -> Vec<u8> {
        if !folder.ends_with(b"/") {
            folder.push(b'/');
        }
        let length = self.options.stamp_length().max(0) as usize;
        let stamp = format!("{:08x}", cx.realtime().sec as u32);
        // The tool keeps the low digits, which differ, where there is no room for all.
        let kept = &stamp.as_bytes()[stamp.len().saturating_sub(length)..];
        folder.extend_from_slice(kept);
        folder.resize(folder.len() + length - kept.len(), b'~');
        for _ in 0..self.options.random_length {
            folder.push(*cx.rng().pick(LETTERS));
        }
        folder
    }

    fn write_file(&mut self, cx: &mut Cx, path: &[u8]) -> Result<(), Failure> {
        let begin = cx.now();
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
        let file = self.target.open(cx, path, flags, 0o666).map_err(Failure::Create)?;
        self.result.calls.create.add(cx.now().since(begin));
        if let Err(failure) = self.fill(cx, &file) {
            // The write is what failed; that the close of the same file may fail too adds nothing.
            let _ = file.close(cx);
            return Err(failure);
        }
        if self.options.sync == SyncMethod::Inband {
            self.fsync(cx, &file, path)?;
        }
        self.close(cx, file, path)?;
        self.result.file.add(cx.now().since(begin));
        self.result.files += 1;
        self.result.timeline.add(cx.now(), self.options.file_size);
        Ok(())
    }

    fn fill(&mut self, cx: &mut Cx, file: &TargetFile) -> Result<(), Failure> {
        let mut offset = 0;
        while offset < self.options.file_size {
            let len = (self.options.file_size - offset).min(self.content.len() as u64);
            let begin = cx.now();
            let count = file.write_at(cx, offset, &self.content[..len as usize]);
            self.result.calls.write.add(cx.now().since(begin));
            match count.map_err(Failure::Write)? {
                0 => return Err(Failure::Write(Errno::ENOSPC)),
                count => offset += count as u64,
            }
        }
        Ok(())
    }

    fn fsync(&mut self, cx: &mut Cx, file: &TargetFile, path: &[u8]) -> Result<(), Failure> {
        let begin = cx.now();
        let done = file.fsync(cx, false);
        self.result.calls.fsync.add(cx.now().since(begin));
        done.map_err(|errno| failure("fsync", path, errno))
    }

    fn close(&mut self, cx: &mut Cx, file: TargetFile, path: &[u8]) -> Result<(), Failure> {
        let begin = cx.now();
        let done = file.close(cx);
        self.result.calls.close.add(cx.now().since(begin));
        done.map_err(|errno| failure("close", path, errno))
    }

    fn sync_behind(&mut self, cx: &mut Cx) -> Result<bool, Failure> {
        if self.options.sync.syncs() {
            let begin = cx.now();
            let done = self.target.sync(cx);
            self.result.calls.sync.add(cx.now().since(begin));
            done.map_err(|errno| failure("sync", self.directory.as_bytes(), errno))?;
        }
        let paths = std::mem::take(&mut self.paths);
        let done = match self.options.sync {
            SyncMethod::None | SyncMethod::Inband => Ok(true),
            SyncMethod::System => self.sync_each(cx, paths.iter().take(1)),
            SyncMethod::Post | SyncMethod::SyncPost => self.sync_each(cx, paths.iter()),
            _ => self.sync_each(cx, paths.iter().rev()),
        };
        self.paths = paths;
        done
    }

    fn sync_each<'a>(
        &mut self,
        cx: &mut Cx,
        paths: impl Iterator<Item = &'a Vec<u8>>,
    ) -> Result<bool, Failure> {
        for path in paths {
            if self.stop.is_due(cx) {
                return Ok(false);
            }
            let file = self.target.open(cx, path, OpenFlags::READ, 0);
            let file = file.map_err(|errno| failure("open", path, errno))?;
            self.fsync(cx, &file, path)?;
            file.close(cx).map_err(|errno| failure("close", path, errno))?;
        }
        Ok(true)
    }

    fn remove(&mut self, cx: &mut Cx) -> Result<bool, Failure> {
        for path in std::mem::take(&mut self.paths) {
            let begin = cx.now();
            let done = self.target.unlink(cx, &path);
            self.result.calls.unlink.add(cx.now().since(begin));
            match done {
                // Short names meet each other within a second, as the tool's do.
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(failure("unlink", &path, errno)),
            }
        }
        Ok(true)
    }
}

fn failure(call: &'static str, path: &[u8], errno: Errno) -> Failure {
    Failure::Call { call, path: String::from_utf8_lossy(path).into_owned(), errno }
}
