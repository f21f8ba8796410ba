//! Power cuts while the log's tail moves all the time: a task writes everything to its place again
//! and again, on a device whose free space is in small pieces, so that chunks of inodes,
//! directory blocks, blocks of attributes, links and content come where others went. What is
//! recovered is the tree after some operation, and no file or attribute shows what is not its own.
//! A few seeds here, many with `IOPATH_SEEDS=n`.

#[path = "../../tests/it/world/mod.rs"]
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Errno, Ino, Rng};
use device::{MemoryDevice, RecordDevice, WriteLog};
use rt::{Cx, Nanos, World, WorldConfig};
use testkit::content::pattern;
use testkit::crash::{self, CrashConfig};
use testkit::judge;
use vfs::{FileSystem, FileType, NewNode, XattrFlags};
use world::{
    Cell, Tree, checked, file, mkdir, mount, mount_with, repaired, seed_count, timed, tree,
};

use super::Log;
use crate::{MountOptions, Xfs};

/// The directory of what only takes space.
const FILLER: &str = "filler";
/// Whose pattern content and attributes have.
const OWNER: u64 = 7;
const ATTRIBUTE: &[u8] = b"user.a";
/// Files without a name that are kept open at the most.
const OPEN_MAX: usize = 60;

/// A run and the trees that it had, one after each step.
struct Run {
    base: MemoryDevice,
    log: WriteLog,
    states: Vec<Tree>,
}

/// Fills a device and takes every second file away again.
fn fragment(cx: &mut Cx, fs: &Xfs) {
    let dir = mkdir(cx, fs, fs.root(), FILLER);
    let names = (0..).map(|number| format!("f{number}"));
    let mut made = Vec::new();
    for name in names {
        let stat = fs.statfs(cx).expect("statfs");
        if stat.blocks_free * u64::from(stat.block_size) < 2 << 20 {
            break;
        }
        let ino = file(cx, fs, dir, &name);
        fs.write(cx, ino, 0, &[1; 32 << 10]).expect("there is space");
        made.push(name);
        if made.len() % 64 == 0 {
            fs.sync(cx).expect("sync");
        }
    }
    fs.sync(cx).expect("sync");
    for name in made.iter().step_by(2) {
        fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
    }
}

/// What one task does, and the tree after each step.
struct Work {
    rng: Rng,
    dir: Option<(String, Ino)>,
    names: Vec<(String, Ino)>,
    open: Vec<Ino>,
    with_data: Option<Ino>,
    now: Tree,
    next: u64,
    fills: bool,
}

impl Work {
    fn step(&mut self, cx: &mut Cx, fs: &Xfs) {
        cx.sleep(Nanos::from_micros(self.rng.below(400)));
        if self.open.len() > OPEN_MAX || (!self.open.is_empty() && self.rng.chance(0.3)) {
            let at = self.rng.below(self.open.len() as u64) as usize;
            fs.release(cx, self.open.swap_remove(at)).expect("release");
        }
        self.next += 1;
        let root = fs.root();
        match self.dir.clone() {
            None => {
                let name = format!("d{}", self.next);
                let made = mkdir(cx, fs, root, &name);
                self.now.insert(format!("/{name}"));
                self.dir = Some((format!("/{name}"), made));
                self.fills = true;
            }
            Some((path, ino)) if self.fills => {
                let pad = "p".repeat(self.rng.below(150) as usize);
                let name = format!("{}-{pad}", self.next);
                self.make(cx, fs, ino, &name);
                self.now.insert(format!("{path}/{name}"));
                self.fills = self.names.len() < 62 || self.rng.below(60) > 0;
            }
            Some((path, ino)) => match self.names.pop() {
                Some((name, made)) => self.remove(cx, fs, (&path, ino), (&name, made)),
                None => {
                    fs.rmdir(cx, root, &path.as_bytes()[1..]).expect("rmdir");
                    self.now.remove(&path);
                    self.dir = None;
                }
            },
        }
    }

    fn make(&mut self, cx: &mut Cx, fs: &Xfs, dir: Ino, name: &str) {
        let choice = self.rng.below(10);
        if choice == 0 {
            let target = vec![b't'; 900 + self.rng.below(100) as usize];
            let made = fs.create(cx, dir, name.as_bytes(), &NewNode::symlink(&target));
            self.names.push((name.to_string(), made.expect("a link").ino));
            return;
        }
        let ino = file(cx, fs, dir, name);
        self.names.push((name.to_string(), ino));
        let len = 4096 + self.rng.below(6000) as usize;
        let mut bytes = vec![0; len];
        match choice {
            1 | 2 => {
                pattern(OWNER, 0, &mut bytes);
                fs.setxattr(cx, ino, ATTRIBUTE, &bytes, XattrFlags::empty()).expect("setxattr");
            }
            3 | 4 => {
                pattern(OWNER, 0, &mut bytes);
                fs.write(cx, ino, 0, &bytes).expect("write");
                self.with_data = Some(ino);
            }
            5 => {
                if let Some(from) = self.with_data {
                    fs.clone_range(cx, (from, 0), (ino, 0), 4096).expect("clone");
                    pattern(OWNER, 2000, &mut bytes[..300]);
                    fs.write(cx, ino, 2000, &bytes[..300]).expect("copy on write");
                }
            }
            _ => {}
        }
    }

    fn remove(
        &mut self,
        cx: &mut Cx,
        fs: &Xfs,
        (path, dir): (&str, Ino),
        (name, ino): (&str, Ino),
    ) {
        if self.rng.chance(0.4) && fs.getattr(cx, ino).expect("getattr").kind == FileType::Regular {
            fs.open(cx, ino).expect("open");
            self.open.push(ino);
        }
        self.with_data.take_if(|with| *with == ino);
        fs.unlink(cx, dir, name.as_bytes()).expect("unlink");
        self.now.remove(&format!("{path}/{name}"));
    }
}

/// Writes back whatever is not pinned or locked, and names the tail, after rests of any length.
fn move_tail(cx: &mut Cx, log: &Arc<Log>, seed: u64, ended: &AtomicBool) {
    let mut rng = Rng::new(seed, 12);
    while !ended.load(Ordering::Relaxed) {
        cx.sleep(Nanos::from_micros(rng.below(3000)));
        log.write_back(cx, log.newest()).expect("written back");
        if rng.chance(0.5) {
            log.push(cx, None, rng.chance(0.5)).expect("pushed");
        }
    }
}

fn record(cell: Cell, seed: u64) -> Run {
    World::new(WorldConfig::exploring(seed)).run("crash", |cx| {
        let memory = cell.fresh(cx, 64 << 20);
        let (fs, _) = mount(cx, memory.clone(), 2 << 20);
        fragment(cx, &fs);
        fs.unmount(cx).expect("unmount");
        let base = memory.fork();
        let device = Arc::new(RecordDevice::new(timed(cx, &memory, seed)));
        let options = MountOptions { buffer_limit_bytes: 1 << 20, ..MountOptions::default() };
        let (fs, _) = mount_with(cx, device.clone(), 2 << 20, options);
        let ended = Arc::new(AtomicBool::new(false));
        let (log, theirs) = (fs.writer().expect("a writer").log.clone(), ended.clone());
        let task = cx.spawn("tail", move |cx| move_tail(cx, &log, seed, &theirs));
        let mut work = Work {
            rng: Rng::new(seed, 11),
            dir: None,
            names: Vec::new(),
            open: Vec::new(),
            with_data: None,
            now: Tree::new(),
            next: 0,
            fills: false,
        };
        let mut states = vec![Tree::new()];
        for step in 1..=600u64 {
            work.step(cx, &fs);
            states.push(work.now.clone());
            match step % 97 {
                0 => {
                    fs.sync(cx).expect("sync");
                    device.mark(step);
                }
                30 => fs.fsync(cx, fs.root(), false).expect("fsync"),
                _ => {}
            }
        }
        ended.store(true, Ordering::Relaxed);
        task.join(cx);
        fs.shutdown_hard();
        Run { base, log: device.log(), states }
    })
}

/// The tree without what only takes space.
fn found(cx: &mut Cx, fs: &Xfs) -> Tree {
    let mut found = tree(cx, fs);
    found.retain(|path| !path[1..].starts_with(FILLER));
    found
}

/// Every byte of a file is zero or its own, attributes are whole.
fn verify(cx: &mut Cx, fs: &Xfs, names: &Tree) -> Result<(), String> {
    for path in names {
        let mut attr = fs.getattr(cx, fs.root()).expect("the root");
        for name in path[1..].split('/') {
            attr = fs.lookup(cx, attr.ino, name.as_bytes()).map_err(|e| format!("{path}: {e}"))?;
        }
        if attr.kind == FileType::Symlink {
            let target = fs.readlink(cx, attr.ino).map_err(|e| format!("{path}: {e}"))?;
            if target.iter().any(|&byte| byte != b't') {
                return Err(format!("{path} has another target"));
            }
        }
        if attr.kind != FileType::Regular {
            continue;
        }
        let mut content = vec![0; attr.size as usize];
        fs.read(cx, attr.ino, 0, &mut content).map_err(|e| format!("{path}: {e}"))?;
        let mut own = vec![0; content.len()];
        pattern(OWNER, 0, &mut own);
        if content.iter().zip(&own).any(|(a, b)| *a != 0 && a != b) {
            return Err(format!("{path} has content that is not its own"));
        }
        match fs.getxattr(cx, attr.ino, ATTRIBUTE) {
            Err(Errno::ENODATA) => {}
            Err(errno) => return Err(format!("the attribute of {path}: {errno}")),
            Ok(value) => {
                let mut own = vec![0; value.len()];
                pattern(OWNER, 0, &mut own);
                if value != own {
                    return Err(format!("{path} has an attribute that is not its own"));
                }
            }
        }
    }
    Ok(())
}

fn campaign(cell: Cell, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let run = record(cell, seed);
        let config = CrashConfig { random: 30, at_flushes_max: 40, ..CrashConfig::new(seed) };
        let report = crash::explore(&config, &run.base, &run.log, |image, case| {
            let promised = case.promised.last().map_or(0, |&mark| mark as usize);
            let dirty = image.fork();
            rt::testing::real(|cx| {
                let (fs, _) = mount(cx, image.clone(), 2 << 20);
                let found = found(cx, &fs);
                let verified = verify(cx, &fs, &found);
                fs.unmount(cx).expect("unmount after recovery");
                if !run.states[promised..].contains(&found) {
                    return Err(format!("{} names are none of the states", found.len()));
                }
                verified.and(checked(cx, &image))
            })?;
            if case.index % 24 == 0 {
                repaired(&image)?;
                // Linux believes the number of a block that was torn on its way to its place.
                if case.cut.torn.is_empty() {
                    kernel(&dirty)?;
                }
            }
            Ok(())
        });
        println!("{cell:?} seed {seed}: {report:?}");
    }
}

/// The kernel recovers it too, and leaves nothing that is wrong.
fn kernel(dirty: &MemoryDevice) -> Result<(), String> {
    let image = testkit::image::write_device(dirty);
    drop(judge::LoopMount::new(image.path(), "xfs", "rw")?);
    judge::xfs_repair(image.path()).map_err(|message| format!("the kernel's replay: {message}"))
}

#[test]
fn a_tail_that_moves_leaves_nothing_behind() {
    const CELLS: [&[(char, &str)]; 4] = [
        &[('d', "agcount=2")],
        &[('n', "size=16384"), ('d', "agcount=2"), ('i', "size=1024")],
        &[('b', "size=1024"), ('d', "agcount=2")],
        &[('b', "size=1024"), ('n', "size=8192"), ('m', "rmapbt=1"), ('d', "agcount=2")],
    ];
    for edits in CELLS {
        campaign(Cell(edits), 0..seed_count(1));
    }
}
