//! Tasks with files of their own on a device that is full most of the time: buffered and direct
//! writes, space ahead of the end, holes, truncation. Each file has a copy in memory, byte for
//! byte. What a write accepted is never refused later: no sync and no fsync returns `ENOSPC`.
//! After a power cut what was synced and not touched since is there, whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Errno, Ino, Rng};
use rt::{Cx, SpinLock};
use vfs::{FallocMode, FileSystem, FileType, NewNode, SetAttr};

use crate::content::{foreign, pattern};

/// What the tasks do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Tasks at once.
    pub tasks: u64,
    /// Operations of each.
    pub steps: u64,
    /// Files of each.
    pub files: u64,
    /// Largest size of a file, bytes.
    pub size_max: u64,
    /// Blocks that are left free at the start; `None`: all.
    pub left: Option<u64>,
    /// What is left free at the start lies in single blocks, each between two of the filler's.
    pub torn: bool,
    /// What direct I/O is aligned to, bytes.
    pub align: u64,
}

/// What happened to a file, with the position in the write log.
#[derive(Clone, Debug)]
enum Event {
    /// An operation began that changes it.
    Began(usize),
    /// It was synced: with this content.
    Synced(usize, Arc<Vec<u8>>),
}

/// What happened to one file.
#[derive(Debug, Default)]
struct Events {
    /// Determines its content.
    number: u64,
    events: Vec<Event>,
}

/// What happened to all files of a run, by name.
#[derive(Debug, Default)]
pub struct History {
    files: BTreeMap<String, Events>,
    /// Operations that did something, and those that found no space.
    pub done: u64,
    /// See `done`.
    pub full: u64,
}

/// Where a file system's write log stands.
pub type Position = Arc<dyn Fn() -> usize + Send + Sync>;

struct File {
    name: String,
    /// Determines its content.
    number: u64,
    ino: Option<Ino>,
    content: Vec<u8>,
}

struct Task {
    fs: Arc<dyn FileSystem>,
    rng: Rng,
    dir: Ino,
    plan: Plan,
    files: Vec<File>,
    history: Arc<SpinLock<History>>,
    position: Position,
}

/// Fills the device as the plan says, runs the tasks in the directory `dir`, and waits for them.
/// The file that fills it is `filler`.
pub fn run(
    cx: &mut Cx,
    fs: &Arc<dyn FileSystem>,
    dir: Ino,
    seed: u64,
    plan: Plan,
    position: &Position,
) -> History {
    if let Some(left) = plan.left {
        fill(cx, &**fs, dir, if plan.torn { 0 } else { left });
        if plan.torn {
            tear(cx, &**fs, dir, left);
        }
    }
    let history = Arc::new(SpinLock::new(History::default()));
    let handles: Vec<_> = (0..plan.tasks)
        .map(|number| {
            let files = (0..plan.files).map(|n| File {
                name: format!("t{number}f{n}"),
                number: 1 + number * plan.files + n,
                ino: None,
                content: Vec::new(),
            });
            let mut task = Task {
                fs: fs.clone(),
                rng: Rng::new(seed, 900 + number),
                dir,
                plan,
                files: files.collect(),
                history: history.clone(),
                position: position.clone(),
            };
            cx.spawn(&format!("full{number}"), move |cx| {
                (0..plan.steps).for_each(|_| task.step(cx));
                (0..task.files.len()).for_each(|which| task.compare(cx, which));
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join(cx));
    std::mem::take(&mut *history.lock(cx))
}

/// Writes the file `filler` until so many blocks are left that a write may have.
///
/// # Panics
/// At an error but `ENOSPC`.
pub fn fill(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, left: u64) {
    let node = NewNode::new(FileType::Regular, 0o600);
    let filler = fs.create(cx, dir, b"filler", &node).expect("a file that fills").ino;
    let data = vec![1; 16 << 10];
    let mut offset = 0;
    loop {
        let stat = fs.statfs(cx).expect("statfs");
        if stat.blocks_free <= left {
            break;
        }
        match fs.write(cx, filler, offset, &data) {
            Ok(count) => offset += count as u64,
            Err(Errno::ENOSPC) => break,
            Err(errno) => panic!("the filler: {errno}"),
        }
    }
    fs.fsync(cx, filler, false).expect("what the filler was promised");
}

/// Punches single blocks out of the filler until so many are free.
fn tear(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino, left: u64) {
    let filler = fs.lookup(cx, dir, b"filler").expect("the filler");
    let block = u64::from(fs.statfs(cx).expect("statfs").block_size);
    let mut offset = 0;
    while fs.statfs(cx).expect("statfs").blocks_free < left && offset + block < filler.size {
        let punched = fs.fallocate(cx, filler.ino, FallocMode::PunchHole, offset, block);
        punched.expect("a punch finds its node in the pool");
        offset += 2 * block;
    }
    fs.sync(cx).expect("sync");
}

impl Task {
    fn step(&mut self, cx: &mut Cx) {
        let which = self.rng.below(self.files.len() as u64) as usize;
        let choice = self.rng.below(100);
        if self.files[which].ino.is_none() {
            return self.create(cx, which);
        }
        let result = match choice {
            0..=27 => self.write(cx, which, false),
            28..=47 => self.write(cx, which, true),
            48..=62 => self.allocate(cx, which),
            63..=69 => self.punch(cx, which),
            70..=75 => self.truncate(cx, which),
            76..=79 => self.unlink(cx, which),
            80..=93 => self.sync_file(cx, which),
            94..=95 => {
                self.fs.sync(cx).expect("what was accepted has its place");
                Ok(())
            }
            _ => {
                self.compare(cx, which);
                Ok(())
            }
        };
        let mut history = self.history.lock(cx);
        match result {
            Ok(()) => history.done += 1,
            Err(Errno::ENOSPC | Errno::EDQUOT) => history.full += 1,
            Err(errno) => panic!("{}, operation {choice}: {errno}", self.files[which].name),
        }
    }

    /// Notes that the file is about to change.
    fn begin(&self, cx: &Cx, which: usize) {
        self.note(cx, which, Event::Began((self.position)()));
    }

    fn note(&self, cx: &Cx, which: usize, event: Event) {
        let File { name, number, .. } = &self.files[which];
        let mut history = self.history.lock(cx);
        let file = history.files.entry(name.clone()).or_default();
        file.number = *number;
        file.events.push(event);
    }

    fn ino(&self, which: usize) -> Ino {
        self.files[which].ino.expect("the file is there")
    }

    fn create(&mut self, cx: &mut Cx, which: usize) {
        self.begin(cx, which);
        let node = NewNode::new(FileType::Regular, 0o600);
        let name = self.files[which].name.clone();
        match self.fs.create(cx, self.dir, name.as_bytes(), &node) {
            Ok(attr) => self.files[which].ino = Some(attr.ino),
            Err(Errno::ENOSPC | Errno::EDQUOT) => {}
            Err(errno) => panic!("{name}: {errno}"),
        }
    }

    /// A range within the largest size; in the middle of the file, at its end or behind it.
    fn range(&mut self, longest: u64) -> (u64, u64) {
        let offset = self.rng.below(self.plan.size_max - 1);
        let len = 1 + self.rng.below(longest.min(self.plan.size_max - offset));
        (offset, len)
    }

    fn write(&mut self, cx: &mut Cx, which: usize, direct: bool) -> Result<(), Errno> {
        let (mut offset, mut len) = self.range(120_000);
        if direct {
            offset = offset / self.plan.align * self.plan.align;
            len = len.next_multiple_of(self.plan.align);
        }
        self.begin(cx, which);
        let mut data = vec![0; len as usize];
        pattern(self.files[which].number, offset, &mut data);
        let ino = self.ino(which);
        let written = match direct {
            true => self.fs.write_direct(cx, ino, offset, &data),
            false => self.fs.write(cx, ino, offset, &data),
        }?;
        let content = &mut self.files[which].content;
        let (from, to) = (offset as usize, offset as usize + written);
        content.resize(content.len().max(to), 0);
        content[from..to].copy_from_slice(&data[..written]);
        Ok(())
    }

    fn allocate(&mut self, cx: &mut Cx, which: usize) -> Result<(), Errno> {
        let keep_size = self.rng.chance(0.6);
        let zero = self.rng.chance(0.25);
        let (offset, len) = self.range(200_000);
        self.begin(cx, which);
        let mode = match zero {
            true => FallocMode::ZeroRange { keep_size },
            false => FallocMode::Allocate { keep_size },
        };
        let result = self.fs.fallocate(cx, self.ino(which), mode, offset, len);
        if result == Err(Errno::EOPNOTSUPP) {
            return Ok(());
        }
        // Where the space ran out, a range that was to be zero is so, and the size may follow.
        self.take_over(cx, which, zero.then_some((offset, len)));
        result
    }

    fn punch(&mut self, cx: &mut Cx, which: usize) -> Result<(), Errno> {
        let (offset, len) = self.range(90_000);
        self.begin(cx, which);
        let punched = self.fs.fallocate(cx, self.ino(which), FallocMode::PunchHole, offset, len);
        if punched == Err(Errno::EOPNOTSUPP) {
            return Ok(());
        }
        assert_eq!(punched, Ok(()), "a punch needs no space of a write's");
        self.take_over(cx, which, Some((offset, len)));
        Ok(())
    }

    /// The file has a new size, and zeros in a range.
    fn take_over(&mut self, cx: &mut Cx, which: usize, zeros: Option<(u64, u64)>) {
        let size = self.fs.getattr(cx, self.ino(which)).expect("the file is there").size as usize;
        let content = &mut self.files[which].content;
        assert!(size >= content.len(), "{} became shorter", self.files[which].name);
        content.resize(size, 0);
        if let Some((offset, len)) = zeros {
            let (from, to) = ((offset as usize).min(size), ((offset + len) as usize).min(size));
            content[from..to].fill(0);
        }
    }

    fn truncate(&mut self, cx: &mut Cx, which: usize) -> Result<(), Errno> {
        let (size, _) = self.range(1);
        let size = if self.rng.chance(0.2) { 0 } else { size };
        self.begin(cx, which);
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr(cx, self.ino(which), &set)?;
        self.files[which].content.resize(size as usize, 0);
        Ok(())
    }

    fn unlink(&mut self, cx: &mut Cx, which: usize) -> Result<(), Errno> {
        self.begin(cx, which);
        let name = self.files[which].name.clone();
        self.fs.unlink(cx, self.dir, name.as_bytes())?;
        self.files[which].ino = None;
        self.files[which].content.clear();
        Ok(())
    }

    fn sync_file(&mut self, cx: &mut Cx, which: usize) -> Result<(), Errno> {
        let datasync = self.rng.chance(0.5);
        let synced = self.fs.fsync(cx, self.ino(which), datasync);
        assert_eq!(synced, Ok(()), "{}: what was accepted has its place", self.files[which].name);
        let content = Arc::new(self.files[which].content.clone());
        self.note(cx, which, Event::Synced((self.position)(), content));
        Ok(())
    }

    fn compare(&mut self, cx: &mut Cx, which: usize) {
        let Some(ino) = self.files[which].ino else { return };
        let name = &self.files[which].name;
        let found = read(cx, &*self.fs, ino, name);
        same(name, &found, &self.files[which].content)
            .unwrap_or_else(|message| panic!("{message}"));
    }
}

fn read(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino, name: &str) -> Vec<u8> {
    let size = fs.getattr(cx, ino).unwrap_or_else(|errno| panic!("{name}: {errno}")).size;
    let mut bytes = vec![0; size as usize];
    let mut done = 0;
    while done < bytes.len() {
        let read = fs.read(cx, ino, done as u64, &mut bytes[done..]);
        let read = read.unwrap_or_else(|errno| panic!("{name} at {done}: {errno}"));
        assert!(read > 0, "{name} ends at {done} of {size}");
        done += read;
    }
    bytes
}

fn same(name: &str, found: &[u8], expected: &[u8]) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    let (found, expected) = (found.len(), expected.len());
    Err(format!("{name}: {found} bytes, {expected} expected, the first other one {at:?}"))
}

/// After a power cut that left the first `upto` entries of the write log: what was synced by then
/// is there, whole where nothing had begun to change it, and no file has bytes of another.
///
/// # Errors
/// What is missing or foreign.
pub fn verify(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: Ino,
    history: &History,
    upto: usize,
) -> Result<(), String> {
    for (name, Events { number, events }) in &history.files {
        let begun = events.iter().take_while(|event| match event {
            Event::Began(at) => *at <= upto,
            Event::Synced(at, _) => *at <= upto,
        });
        let last = begun.last();
        let found = fs.lookup(cx, dir, name.as_bytes());
        match (last, found) {
            (Some(Event::Synced(_, content)), Ok(attr)) => {
                same(name, &read(cx, fs, attr.ino, name), content)?;
            }
            (Some(Event::Synced(..)), Err(errno)) => {
                return Err(format!("{name} was synced: {errno}"));
            }
            (_, Ok(attr)) => own_bytes(*number, name, &read(cx, fs, attr.ino, name))?,
            (_, Err(Errno::ENOENT)) => {}
            (_, Err(errno)) => return Err(format!("{name}: {errno}")),
        }
    }
    Ok(())
}

/// Every byte is zero or the file's.
fn own_bytes(number: u64, name: &str, bytes: &[u8]) -> Result<(), String> {
    match foreign(number, bytes, 0) {
        Some(at) => Err(format!("{name} has {:#x} at {at}, which is not its own", bytes[at])),
        None => Ok(()),
    }
}
