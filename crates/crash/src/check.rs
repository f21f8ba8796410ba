//! Tests that read like property tests: a workload, an invariant, and every power cut between.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base::{Errno, Nanos};
use block::Op;
use device::{Fault, FaultDevice, MemoryDevice, Rule};
use model::Profile;
use rt::{Cx, JoinHandle, SpinLock, World, WorldConfig};
use vfs::{FallocMode, FileSystem, FileType, Namespace, OpenFlags, RenameFlags, SetAttr};

use crate::disk::Disk;
use crate::explore::{Exploration, Judge, Outcome, State, explore};
use crate::log::{Header, Log};
use crate::oracle::Rules;
use crate::plan::Limits;
use crate::record::Recorder;
use crate::recover::{Format, Kind, MountOptions};
use crate::story;
use crate::verdict::Refusal;
use crate::watch::Watched;

/// Why a workload or an invariant fails: a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error(pub String);

/// What workloads and invariants answer.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<&str> for Error {
    fn from(text: &str) -> Error {
        Error(text.to_owned())
    }
}

impl From<String> for Error {
    fn from(text: String) -> Error {
        Error(text)
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error(errno.to_string())
    }
}

/// Runs `workload` on a fresh ext4 and on a fresh XFS, cuts the power everywhere, and asks
/// `invariant` about each recovered state.
///
/// # Panics
/// With the story of the smallest failure, where the invariant does not hold in some state.
pub fn check(
    workload: impl Fn(&mut Fs) -> Result<()> + Sync,
    invariant: impl Fn(&mut Fs) -> Result<()> + Sync,
) {
    Crash::on(Kind::Ext4).check(&workload, &invariant);
    Crash::on(Kind::Xfs).check(&workload, &invariant);
}

/// How late a write is that comes late: the disk has done some others meanwhile.
const LATE: Nanos = Nanos::from_millis(2);
/// Sectors of a write that may be late.
const LARGE: u64 = 16;

/// A test with choices of its own.
#[derive(Clone, Debug)]
pub struct Crash {
    /// Bytes of the disk.
    pub bytes: u64,
    /// Decides about the order of tasks, the times of the device, and random states.
    pub seed: u64,
    /// How the file system is made; None for the defaults.
    pub format: Option<Format>,
    /// How an ext4 is mounted while the workload runs.
    pub ext4: ext4::MountOptions,
    /// Chance of a large write to reach the disk so late that others overtake it.
    pub late: f64,
    /// After the workload the file system commits, as it does by itself after some seconds, and
    /// when another program syncs: what the workload has not synced may be lost then.
    pub commits: bool,
    /// What is explored.
    pub exploration: Exploration,
}

impl Crash {
    /// A fresh file system of 64 MiB (XFS: 320 MiB, the least that it takes), on a disk with a
    /// volatile cache.
    pub fn on(kind: Kind) -> Crash {
        let exploration = Exploration::new(kind);
        Crash {
            bytes: kind.usual_bytes(),
            seed: 1,
            format: None,
            ext4: MountOptions::default().ext4,
            late: 0.0,
            commits: true,
            exploration,
        }
    }

    /// Another disk.
    pub fn disk(mut self, disk: Disk) -> Crash {
        self.exploration.disk = disk;
        self
    }

    /// Another seed.
    pub fn seed(mut self, seed: u64) -> Crash {
        self.seed = seed;
        self.exploration.seed = seed;
        self
    }

    /// A file system that is made with options, ext4 or XFS as [`on`](Crash::on) said.
    pub fn format(mut self, format: Format) -> Crash {
        self.format = Some(format);
        self
    }

    /// Mounts the ext4 of the workload with options.
    pub fn ext4(mut self, options: ext4::MountOptions) -> Crash {
        self.ext4 = options;
        self
    }

    /// A disk to which large writes come late with a chance: later ones overtake them.
    pub fn late(mut self, chance: f64) -> Crash {
        self.late = chance;
        self
    }

    /// How many states are visited at each place.
    pub fn limits(mut self, limits: Limits) -> Crash {
        self.exploration.limits = limits;
        self
    }

    /// Asks in each state whether what the calls promised is there, too.
    pub fn oracle(mut self, rules: Rules) -> Crash {
        self.exploration.oracle = Some(rules);
        self
    }

    /// Runs the workload and explores what it leaves.
    ///
    /// # Panics
    /// With the story of the first failure.
    pub fn check(
        &self,
        workload: impl FnOnce(&mut Fs) -> Result<()>,
        invariant: impl Fn(&mut Fs) -> Result<()> + Sync,
    ) -> Outcome {
        let (log, outcome) = self.find(workload, invariant);
        if let Some(finding) = outcome.findings.first() {
            let story = story::story(&log, self.exploration.kind, finding);
            let story = story.map_or_else(|error| error.to_string(), |story| story.to_string());
            panic!(
                "a power cut on {} breaks it (seed {}, {} of {} states are wrong)\n{story}",
                self.exploration.kind, self.seed, outcome.wrong, outcome.judged
            );
        }
        outcome
    }

    /// As [`Crash::check`], and returns what was found.
    ///
    /// # Panics
    /// Where the workload itself fails.
    pub fn find(
        &self,
        workload: impl FnOnce(&mut Fs) -> Result<()>,
        invariant: impl Fn(&mut Fs) -> Result<()> + Sync,
    ) -> (Log, Outcome) {
        let log = self.record(workload);
        let judge = Invariant(invariant);
        let outcome = explore(&log, &self.exploration, &judge, &mut |_| {});
        (log, outcome.unwrap_or_else(|error| panic!("the log in memory: {error}")))
    }

    /// Runs the workload on a fresh file system, and answers the log of its device.
    ///
    /// # Panics
    /// Where the workload fails.
    pub fn record(&self, workload: impl FnOnce(&mut Fs) -> Result<()>) -> Log {
        let bytes = Arc::new(SpinLock::new(Vec::new()));
        self.record_into(Box::new(Shared(bytes.clone())), workload);
        let bytes = std::mem::take(&mut *bytes.lock_irq());
        Log::from_bytes(bytes).unwrap_or_else(|error| panic!("the log in memory: {error}"))
    }

    /// As [`Crash::record`], into a file: the log takes little memory however long it is.
    ///
    /// # Panics
    /// Where the workload fails, or the file.
    pub fn record_to(&self, path: &Path, workload: impl FnOnce(&mut Fs) -> Result<()>) -> Log {
        let failed = |error: &dyn fmt::Display| -> ! { panic!("{}: {error}", path.display()) };
        let file = std::fs::File::create(path).unwrap_or_else(|error| failed(&error));
        self.record_into(Box::new(std::io::BufWriter::new(file)), workload);
        Log::open(path).unwrap_or_else(|error| failed(&error))
    }

    fn record_into(
        &self,
        out: Box<dyn std::io::Write + Send>,
        workload: impl FnOnce(&mut Fs) -> Result<()>,
    ) {
        let kind = self.exploration.kind;
        let fresh = |cx: &mut Cx| -> std::result::Result<(), String> {
            let memory = Arc::new(MemoryDevice::new(self.bytes));
            match &self.format {
                Some(format) => format.make(cx, memory.clone())?,
                None => kind.mkfs(cx, memory.clone())?,
            }
            let flash = Profile::built_in("flash-nvme").device(cx.runtime(), memory);
            let disk = FaultDevice::new(cx.runtime(), flash.map_err(|error| error.to_string())?);
            if self.late > 0.0 {
                let late = Rule::always(Fault::Delay(LATE));
                let (op, at_least) = (Some(Op::Write), LARGE);
                disk.add(Rule { op, at_least, chance: self.late, ..late });
            }
            let options = MountOptions { ext4: self.ext4.clone(), ..Default::default() };
            let header = Header {
                file_system: kind.to_string(),
                command: "in process".into(),
                mount_options: options.promising_less(),
                ..Header::default()
            };
            let recorder = Recorder::new(cx, Arc::new(disk), out, header);
            let recorder = Arc::new(recorder.map_err(|error| error.to_string())?);
            let fs = kind.mount_with(cx, recorder.device(), &options)?;
            let fs: Arc<dyn FileSystem> = Arc::new(Watched::new(fs, recorder.clone()));
            let held = Held::Run(recorder.clone());
            let done = workload(&mut Fs { cx, names: Arc::new(Namespace::new(fs.clone())), held });
            if self.commits && done.is_ok() {
                fs.commit(cx).map_err(|errno| format!("the last commit: {errno}"))?;
            }
            fs.shutdown_hard();
            recorder.finish().map_err(|error| error.to_string())?;
            done.map_err(|error| format!("the workload itself failed: {error}"))
        };
        let mut world = World::new(WorldConfig::exploring(self.seed));
        if let Err(message) = world.run("workload", fresh) {
            panic!("{kind}, seed {}: {message}", self.seed);
        }
    }
}

/// Bytes that somebody else takes in the end.
struct Shared(Arc<SpinLock<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock_irq().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An invariant as a judge, for [`explore`].
pub fn judge(invariant: impl Fn(&mut Fs) -> Result<()> + Sync) -> impl Judge {
    Invariant(invariant)
}

/// The invariant as a judge.
struct Invariant<F>(F);

impl<F: Fn(&mut Fs) -> Result<()> + Sync> Judge for Invariant<F> {
    fn judge(
        &self,
        cx: &mut Cx,
        fs: &Arc<dyn FileSystem>,
        state: &State,
    ) -> std::result::Result<(), Refusal> {
        let held = state.marks().into_iter().map(str::to_owned).collect();
        let names = Arc::new(Namespace::new(fs.clone()));
        self.0(&mut Fs { cx, names, held: Held::State(held) })
            .map_err(|error| Refusal::State(error.0))
    }
}

/// What marks are there.
#[derive(Clone)]
enum Held {
    /// The workload makes them.
    Run(Arc<Recorder>),
    /// Those that a state held.
    State(Vec<String>),
}

/// A file system as workloads and invariants use it: by paths, as root.
///
/// Every call may park. Errors name the path.
pub struct Fs<'a> {
    cx: &'a mut Cx,
    names: Arc<Namespace>,
    held: Held,
}

/// A task of a workload.
pub struct Task(JoinHandle<Result<()>>);

impl Task {
    /// Waits for its end.
    ///
    /// # Errors
    /// Its own.
    pub fn join(self, fs: &mut Fs) -> Result<()> {
        self.0.join(fs.cx)
    }
}

fn named(path: &str) -> impl FnOnce(Errno) -> Error {
    move |errno| Error(format!("{path}: {errno}"))
}

impl Fs<'_> {
    /// Notes that something was reached, for the invariant to ask for. In a state it does nothing.
    pub fn mark(&mut self, text: &str) {
        if let Held::Run(recorder) = &self.held {
            recorder.mark(text);
        }
    }

    /// The marks that had been reached when the power failed, in order.
    pub fn marks(&self) -> &[String] {
        match &self.held {
            Held::Run(_) => &[],
            Held::State(marks) => marks,
        }
    }

    /// Whether a mark had been reached.
    pub fn held(&self, text: &str) -> bool {
        self.marks().iter().any(|mark| mark == text)
    }

    /// Starts a task beside this one; it begins when this one waits.
    pub fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Fs) -> Result<()> + Send + 'static,
    ) -> Task {
        let (names, held) = (self.names.clone(), self.held.clone());
        Task(self.cx.spawn(name, move |cx| work(&mut Fs { cx, names, held })))
    }

    /// Waits, in virtual time.
    pub fn sleep_ms(&mut self, milliseconds: u64) {
        self.cx.sleep(Nanos::from_millis(milliseconds));
    }

    /// Makes a file with this content, or replaces the content of one.
    ///
    /// # Errors
    /// Those of open(2) and write(2).
    pub fn write(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
        self.put(path, flags, None, content)
    }

    /// Appends to a file, which is made where it is missing.
    ///
    /// # Errors
    /// Those of open(2) and write(2).
    pub fn append(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::APPEND;
        self.put(path, flags, None, content)
    }

    /// Writes inside a file, which is made where it is missing.
    ///
    /// # Errors
    /// Those of open(2) and pwrite(2).
    pub fn write_at(&mut self, path: &str, offset: u64, content: &[u8]) -> Result<()> {
        self.put(path, OpenFlags::WRITE | OpenFlags::CREATE, Some(offset), content)
    }

    fn put(
        &mut self,
        path: &str,
        flags: OpenFlags,
        offset: Option<u64>,
        content: &[u8],
    ) -> Result<()> {
        let file = self.names.open(self.cx, path.as_bytes(), flags, 0o644).map_err(named(path))?;
        let written = match offset {
            Some(offset) => file.write_at(self.cx, offset, content),
            None => file.write(self.cx, content),
        };
        let closed = file.close(self.cx);
        let written = written.map_err(named(path))?;
        closed.map_err(named(path))?;
        match written == content.len() {
            true => Ok(()),
            false => Err(format!("{path}: {written} of {} bytes written", content.len()).into()),
        }
    }

    /// The whole content of a file.
    ///
    /// # Errors
    /// Those of open(2) and read(2).
    pub fn read(&mut self, path: &str) -> Result<Vec<u8>> {
        let attr = self.names.stat(self.cx, path.as_bytes()).map_err(named(path))?;
        let mut bytes = vec![0; attr.size as usize];
        let read = self.names.fs().read(self.cx, attr.ino, 0, &mut bytes).map_err(named(path))?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Whether a name is there.
    ///
    /// # Errors
    /// Those of stat(2), but for a missing name.
    pub fn exists(&mut self, path: &str) -> Result<bool> {
        match self.names.lstat(self.cx, path.as_bytes()) {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(named(path)(errno)),
        }
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// Those of readdir(3).
    pub fn list(&mut self, path: &str) -> Result<Vec<String>> {
        let entries = self.names.list(self.cx, path.as_bytes()).map_err(named(path))?;
        let text = |(name, _): (Vec<u8>, _)| String::from_utf8_lossy(&name).into_owned();
        let mut names: Vec<String> = entries.into_iter().map(text).collect();
        names.retain(|name| name != "." && name != ".." && name != "lost+found");
        names.sort();
        Ok(names)
    }

    /// Moves a name; one that is there is replaced.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(&mut self, old: &str, new: &str) -> Result<()> {
        let flags = RenameFlags::empty();
        let done = self.names.rename(self.cx, old.as_bytes(), new.as_bytes(), flags);
        done.map_err(named(old))
    }

    /// Gives a file a further name.
    ///
    /// # Errors
    /// Those of link(2).
    pub fn link(&mut self, old: &str, new: &str) -> Result<()> {
        let done = self.names.link(self.cx, old.as_bytes(), new.as_bytes());
        done.map(drop).map_err(named(new))
    }

    /// Removes a name of a file.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn remove(&mut self, path: &str) -> Result<()> {
        self.names.unlink(self.cx, path.as_bytes()).map_err(named(path))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn mkdir(&mut self, path: &str) -> Result<()> {
        self.names.mkdir(self.cx, path.as_bytes(), 0o755).map(drop).map_err(named(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of rmdir(2).
    pub fn rmdir(&mut self, path: &str) -> Result<()> {
        self.names.rmdir(self.cx, path.as_bytes()).map_err(named(path))
    }

    /// Makes a symbolic link at `path`.
    ///
    /// # Errors
    /// Those of symlink(2).
    pub fn symlink(&mut self, target: &str, path: &str) -> Result<()> {
        let done = self.names.symlink(self.cx, target.as_bytes(), path.as_bytes());
        done.map(drop).map_err(named(path))
    }

    /// Makes a hole of `len` bytes at `offset` of a file, whose size stays.
    ///
    /// # Errors
    /// Those of open(2) and fallocate(2).
    pub fn punch(&mut self, path: &str, offset: u64, len: u64) -> Result<()> {
        self.fallocate(path, FallocMode::PunchHole, offset, len)
    }

    /// Allocates `len` bytes at `offset` of a file, which grows to their end where it is shorter.
    ///
    /// # Errors
    /// Those of open(2) and fallocate(2).
    pub fn allocate(&mut self, path: &str, offset: u64, len: u64) -> Result<()> {
        self.fallocate(path, FallocMode::Allocate { keep_size: false }, offset, len)
    }

    fn fallocate(&mut self, path: &str, mode: FallocMode, offset: u64, len: u64) -> Result<()> {
        let attr = self.names.stat(self.cx, path.as_bytes()).map_err(named(path))?;
        let done = self.names.fs().fallocate(self.cx, attr.ino, mode, offset, len);
        done.map_err(named(path))
    }

    /// Sets the size of a file.
    ///
    /// # Errors
    /// Those of truncate(2).
    pub fn truncate(&mut self, path: &str, size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.names.setattr(self.cx, path.as_bytes(), &set, true).map(drop).map_err(named(path))
    }

    /// fsync(2) of a file or a directory.
    ///
    /// # Errors
    /// Those of fsync(2).
    pub fn fsync(&mut self, path: &str) -> Result<()> {
        self.force(path, false)
    }

    /// fdatasync(2) of a file.
    ///
    /// # Errors
    /// Those of fdatasync(2).
    pub fn fdatasync(&mut self, path: &str) -> Result<()> {
        self.force(path, true)
    }

    fn force(&mut self, path: &str, datasync: bool) -> Result<()> {
        let attr = self.names.stat(self.cx, path.as_bytes()).map_err(named(path))?;
        debug_assert!(matches!(attr.kind, FileType::Regular | FileType::Directory));
        self.names.fs().fsync(self.cx, attr.ino, datasync).map_err(named(path))
    }

    /// sync(2).
    ///
    /// # Errors
    /// Writing failed.
    pub fn sync(&mut self) -> Result<()> {
        self.names.fs().sync(self.cx).map_err(named("sync"))
    }

    /// The file system itself, and the task, for what is not here.
    pub fn parts(&mut self) -> (&mut Cx, &Arc<dyn FileSystem>) {
        (self.cx, self.names.fs())
    }
}
