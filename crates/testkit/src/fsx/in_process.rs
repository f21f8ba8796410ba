//! The stream on a file system in process, in any sort of world.

use std::sync::Arc;

use base::{Errno, Ino, Nanos};
use rt::{Cx, JoinHandle, SpinLock};
use vfs::{FallocMode, FileSystem, SetAttr};

use crate::content::{create, mkdir, pattern};
use crate::fsx::neighbour::{Gate, Ground, Neighbour};
use crate::fsx::run::{Report, Trial, run};
use crate::fsx::{FsxTarget, Op, Refused, SOURCE_NUMBER, SOURCE_SIZE, Way};

/// Virtual time from one operation to the next, and from one step of the neighbour to the next.
const TURN: Nanos = Nanos::from_micros(200);

/// A mounted file system, which others use as well and which may be mounted anew.
type Shared = Arc<SpinLock<Arc<dyn FileSystem>>>;

/// Unmounts a file system and mounts it again.
pub type Remount<'a> = &'a mut dyn FnMut(&mut Cx, Arc<dyn FileSystem>) -> Arc<dyn FileSystem>;

struct InProcess<'a> {
    cx: &'a mut Cx,
    shared: Shared,
    file: Ino,
    second: Ino,
    gate: Arc<Gate>,
    remount: Remount<'a>,
}

/// Runs a trial on a new file `fsx` of the root, with a neighbour of at most `budget` bytes in
/// `beside`, after a filler has left `left` blocks free (`None`: all). Returns the file system as
/// it is mounted in the end.
///
/// # Errors
/// As [`run`]; what the neighbour says.
pub fn run_in_process(
    cx: &mut Cx,
    fs: Arc<dyn FileSystem>,
    trial: &Trial,
    (left, budget): (Option<u64>, u64),
    remount: Remount<'_>,
) -> (Arc<dyn FileSystem>, Result<Report, String>) {
    let root = fs.root();
    let second = create(cx, &*fs, root, "second");
    let mut bytes = vec![0; SOURCE_SIZE as usize];
    pattern(SOURCE_NUMBER, 0, &mut bytes);
    assert_eq!(fs.write(cx, second, 0, &bytes), Ok(bytes.len()), "the second file");
    let file = create(cx, &*fs, root, "fsx");
    let dir = mkdir(cx, &*fs, root, "beside");
    fs.open(cx, file).expect("open");
    if let Some(left) = left {
        crate::full::fill(cx, &*fs, root, left);
    }
    let (shared, gate) = (Arc::new(SpinLock::new(fs)), Arc::new(Gate::default()));
    let neighbour = Neighbour::new(trial.seed, budget);
    let beside = live(cx, neighbour, shared.clone(), dir, gate.clone());
    let mut place = InProcess {
        cx: &mut *cx,
        shared: shared.clone(),
        file,
        second,
        gate: gate.clone(),
        remount,
    };
    let report = run(&mut place, trial);
    gate.end();
    gate.open();
    let lived = beside.join(cx);
    let fs = shared.lock(cx).clone();
    fs.release(cx, file).expect("release");
    (fs, report.and_then(|report| lived.map(|_| report)))
}

fn live(
    cx: &Cx,
    neighbour: Neighbour,
    shared: Shared,
    dir: Ino,
    gate: Arc<Gate>,
) -> JoinHandle<Result<u64, String>> {
    cx.spawn("neighbour", move |cx| neighbour.live(&mut Beside { cx, shared, dir }, &gate))
}

impl FsxTarget for InProcess<'_> {
    fn run(&mut self, op: &Op, bytes: &mut [u8]) -> Result<u64, Refused> {
        let fs = self.shared.lock(self.cx).clone();
        let (cx, file) = (&mut *self.cx, self.file);
        // Where the device takes no time the neighbour would never have a turn.
        cx.sleep(TURN);
        let moved = match *op {
            Op::Write { way: Way::Cached, at, .. } => fs.write(cx, file, at, bytes)?,
            Op::Write { way: Way::Direct, at, .. } => fs.write_direct(cx, file, at, bytes)?,
            Op::Read { way: Way::Cached, at, .. } => fs.read(cx, file, at, bytes)?,
            Op::Read { way: Way::Direct, at, .. } => fs.read_direct(cx, file, at, bytes)?,
            _ => return self.run_other(&fs, op).map(|()| 0).map_err(Refused::from),
        };
        Ok(moved as u64)
    }

    fn size(&mut self) -> Result<u64, Refused> {
        let fs = self.shared.lock(self.cx).clone();
        Ok(fs.getattr(self.cx, self.file)?.size)
    }

    fn free(&mut self) -> u64 {
        let fs = self.shared.lock(self.cx).clone();
        fs.statfs(self.cx).expect("statfs").blocks_free
    }

    fn rest(&mut self, rest: bool) {
        match rest {
            true => self.gate.close(|| self.cx.sleep(Nanos::from_micros(50))),
            false => self.gate.open(),
        }
    }
}

impl InProcess<'_> {
    fn run_other(&mut self, fs: &Arc<dyn FileSystem>, op: &Op) -> Result<(), Errno> {
        let (cx, file) = (&mut *self.cx, self.file);
        match *op {
            Op::Clone { second, from, to, len } => {
                let source = if second { self.second } else { file };
                fs.clone_range(cx, (source, from), (file, to), len)
            }
            Op::Punch { at, len } => fs.fallocate(cx, file, FallocMode::PunchHole, at, len),
            Op::Collapse { at, len } => fs.fallocate(cx, file, FallocMode::CollapseRange, at, len),
            Op::Insert { at, len } => fs.fallocate(cx, file, FallocMode::InsertRange, at, len),
            Op::Zero { at, len, keep_size } => {
                fs.fallocate(cx, file, FallocMode::ZeroRange { keep_size }, at, len)
            }
            Op::Allocate { at, len, keep_size } => {
                fs.fallocate(cx, file, FallocMode::Allocate { keep_size }, at, len)
            }
            Op::Truncate { size } => {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                fs.setattr(cx, file, &set).map(|_| ())
            }
            Op::Sync { data_only } => fs.fsync(cx, file, data_only),
            Op::Reopen => {
                fs.open(cx, file)?;
                fs.release(cx, file)?;
                fs.release(cx, file)?;
                fs.open(cx, file)
            }
            Op::Remount => {
                self.gate.close(|| self.cx.sleep(Nanos::from_micros(50)));
                fs.release(self.cx, file)?;
                let fs = (self.remount)(self.cx, fs.clone());
                *self.shared.lock(self.cx) = fs.clone();
                fs.open(self.cx, file)
            }
            // Nothing is mapped in process, and what the trait has not.
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// The neighbour's directory.
struct Beside<'a> {
    cx: &'a mut Cx,
    shared: Shared,
    dir: Ino,
}

impl Ground for Beside<'_> {
    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<u64, Errno> {
        let fs = self.shared.lock(self.cx).clone();
        let ino = match fs.lookup(self.cx, self.dir, name.as_bytes()) {
            Ok(attr) => attr.ino,
            Err(Errno::ENOENT) => {
                let node = vfs::NewNode::new(vfs::FileType::Regular, 0o600);
                fs.create(self.cx, self.dir, name.as_bytes(), &node)?.ino
            }
            Err(errno) => return Err(errno),
        };
        fs.write(self.cx, ino, at, bytes).map(|count| count as u64)
    }

    fn read(&mut self, name: &str, bytes: &mut [u8]) -> Result<u64, Errno> {
        let fs = self.shared.lock(self.cx).clone();
        let ino = fs.lookup(self.cx, self.dir, name.as_bytes())?.ino;
        fs.read(self.cx, ino, 0, bytes).map(|count| count as u64)
    }

    fn remove(&mut self, name: &str) -> Result<(), Errno> {
        let fs = self.shared.lock(self.cx).clone();
        match fs.unlink(self.cx, self.dir, name.as_bytes()) {
            Err(Errno::ENOENT) => Ok(()),
            other => other,
        }
    }

    fn nap(&mut self) {
        self.cx.sleep(TURN);
    }
}
