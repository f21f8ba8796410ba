//! Tasks that do anything to the same few names at once. Nothing is predicted; what must hold is
//! that errors are those of races, that every byte of a file is zero or its own, that nobody waits
//! for ever, and that the file system is in order afterwards.

use crate::content::{foreign, pattern};
use base::{Errno, Ino, Rng};
use rt::Cx;
use std::sync::Arc;
use vfs::{
    FallocMode, FileSystem, FileType, NewNode, RenameFlags, SeekWhence, SetAttr, XattrFlags,
};

/// What the tasks do.
#[derive(Clone, Copy, Debug)]
pub struct Chaos {
    /// Tasks at once.
    pub tasks: u64,
    /// Operations of each.
    pub steps: u64,
    /// Largest offset of a write, bytes.
    pub size_max: u64,
    /// The device may become full.
    pub small: bool,
    /// The device may fail.
    pub faults: bool,
}

/// Answers that a race explains.
const RACES: [Errno; 11] = [
    Errno::ENOENT,
    Errno::EEXIST,
    Errno::ESTALE,
    Errno::ENOTEMPTY,
    Errno::EISDIR,
    Errno::ENOTDIR,
    Errno::EINVAL,
    Errno::ENODATA,
    Errno::EMLINK,
    Errno::ENXIO,
    // `fallocate` of a number that has become a symbolic link's.
    Errno::ENODEV,
];

/// Runs the tasks below the directory `top` and waits for them. Returns the operations that did
/// something, and those that found no space.
pub fn run(cx: &mut Cx, fs: &Arc<dyn FileSystem>, top: Ino, seed: u64, chaos: Chaos) -> (u64, u64) {
    let handles: Vec<_> = (0..chaos.tasks)
        .map(|number| {
            let fs = fs.clone();
            cx.spawn(&format!("chaos{number}"), move |cx| {
                let rng = Rng::new(seed, 300 + number);
                let mut task = Task { fs, rng, top, chaos, done: 0, full: 0 };
                (0..chaos.steps).for_each(|_| task.step(cx));
                (task.done, task.full)
            })
        })
        .collect();
    let results = handles.into_iter().map(|handle| handle.join(cx));
    results.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

/// Lets the tasks run below a directory `top`, reads what they left, and, on a device that was made
/// small for it, removes everything: then as much must be free as before.
pub fn session(cx: &mut Cx, fs: &Arc<dyn FileSystem>, seed: u64, plan: Chaos) -> String {
    fs.sync(cx).expect("sync");
    let before = fs.statfs(cx).expect("statfs");
    let top = crate::content::mkdir(cx, &**fs, fs.root(), "top");
    if plan.small {
        fill_up(cx, &**fs, top);
    }
    let (done, full) = run(cx, fs, top, seed, plan);
    let names = verify(cx, &**fs);
    if plan.small {
        remove_tree(cx, &**fs, fs.root(), b"top");
        fs.sync(cx).expect("sync");
        let after = fs.statfs(cx).expect("statfs");
        assert_eq!(after.blocks_free, before.blocks_free, "free blocks after removing everything");
        assert_eq!(after.inodes_free, before.inodes_free, "free inodes after removing everything");
    }
    format!("{done} operations, {full} without space, {names} names left")
}

/// Leaves half a megabyte.
fn fill_up(cx: &mut Cx, fs: &dyn FileSystem, top: Ino) {
    let filler = fs
        .create(cx, top, b"filler", &NewNode::new(FileType::Regular, 0o600))
        .expect("a file that fills")
        .ino;
    let data = vec![1; 64 << 10];
    let mut offset = 0;
    loop {
        let stat = fs.statfs(cx).expect("statfs");
        if stat.blocks_free * u64::from(stat.block_size) < 512 << 10 {
            return;
        }
        offset += fs.write(cx, filler, offset, &data).expect("there is space") as u64;
    }
}

struct Task {
    fs: Arc<dyn FileSystem>,
    rng: Rng,
    top: Ino,
    chaos: Chaos,
    done: u64,
    full: u64,
}

impl Task {
    fn step(&mut self, cx: &mut Cx) {
        let choice = self.rng.below(100);
        let dir = self.directory(cx);
        let name = self.name();
        let result = match choice {
            0..=15 => self.create(cx, dir, &name, FileType::Regular),
            16..=21 => self.create(cx, dir, &name, FileType::Directory),
            22..=23 => self.symlink(cx, dir, &name),
            24..=44 => self.with_file(cx, dir, &name, Task::write),
            45..=54 => self.with_file(cx, dir, &name, Task::read),
            55..=61 => self.with_file(cx, dir, &name, Task::truncate),
            62..=70 => self.fs.unlink(cx, dir, name.as_bytes()),
            71..=74 => self.fs.rmdir(cx, dir, name.as_bytes()),
            75..=86 => self.rename(cx, dir, &name),
            87..=88 => self.link(cx, dir, &name),
            89..=91 => self.with_file(cx, dir, &name, Task::fsync),
            92..=93 => self.list(cx, dir),
            94..=95 => self.with_file(cx, dir, &name, Task::fallocate),
            96..=97 => self.with_file(cx, dir, &name, Task::attribute),
            98 => self.with_file(cx, dir, &name, Task::keep_open),
            _ => self.fs.sync(cx),
        };
        match result {
            Ok(()) => self.done += 1,
            Err(Errno::ENOSPC) if self.chaos.small => self.full += 1,
            Err(Errno::EIO | Errno::EROFS | Errno::EUCLEAN) if self.chaos.faults => {}
            Err(errno) => assert!(RACES.contains(&errno), "operation {choice}: {errno}"),
        }
    }

    /// A directory: the top, or one some levels below it.
    fn directory(&mut self, cx: &mut Cx) -> Ino {
        let mut dir = self.top;
        while self.rng.chance(0.6) {
            let name = self.name();
            match self.fs.lookup(cx, dir, name.as_bytes()) {
                Ok(attr) if attr.is_dir() => dir = attr.ino,
                _ => break,
            }
        }
        dir
    }

    fn name(&mut self) -> String {
        let n = self.rng.below(24);
        // Some are long, so that directories have several blocks.
        format!("n{n}{}", "-long".repeat((n % 3 * 15) as usize))
    }

    fn with_file(
        &mut self,
        cx: &mut Cx,
        dir: Ino,
        name: &str,
        action: fn(&mut Task, &mut Cx, Ino) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let attr = self.fs.lookup(cx, dir, name.as_bytes())?;
        if attr.kind != FileType::Regular {
            return Err(Errno::EINVAL);
        }
        action(self, cx, attr.ino)
    }

    fn create(&mut self, cx: &mut Cx, dir: Ino, name: &str, kind: FileType) -> Result<(), Errno> {
        self.fs.create(cx, dir, name.as_bytes(), &NewNode::new(kind, 0o755)).map(|_| ())
    }

    fn symlink(&mut self, cx: &mut Cx, dir: Ino, name: &str) -> Result<(), Errno> {
        let target = vec![b't'; 1 + self.rng.below(200) as usize];
        let node = NewNode { target: Some(&target), ..NewNode::new(FileType::Symlink, 0o777) };
        let ino = self.fs.create(cx, dir, name.as_bytes(), &node)?.ino;
        let read = self.fs.readlink(cx, ino)?;
        // Somebody may have removed it, and made another in its place.
        assert!(read.iter().all(|&byte| byte == b't'));
        Ok(())
    }

    fn offset(&mut self) -> u64 {
        let offset = self.rng.below(self.chaos.size_max);
        if self.rng.chance(0.5) { offset % 9000 } else { offset }
    }

    fn write(&mut self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let most = if self.chaos.small { 300_000 } else { 30_000 };
        let (offset, len) = (self.offset(), 1 + self.rng.below(most));
        let mut data = vec![0; len as usize];
        pattern(ino.0, offset, &mut data);
        self.fs.write(cx, ino, offset, &data).map(|_| ())
    }

    fn read(&mut self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let mut bytes = vec![0; 40_000];
        let offset = self.offset();
        let read = self.fs.read(cx, ino, offset, &mut bytes)?;
        own_bytes(ino, offset, &bytes[..read]);
        self.fs.seek(cx, ino, 0, SeekWhence::Hole).map(|_| ())
    }

    fn truncate(&mut self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let size = if self.rng.chance(0.3) { 0 } else { self.offset() };
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr(cx, ino, &set).map(|_| ())
    }

    fn rename(&mut self, cx: &mut Cx, dir: Ino, name: &str) -> Result<(), Errno> {
        let (other, new) = (self.directory(cx), self.name());
        let flags = match self.rng.below(5) {
            0 => RenameFlags::NOREPLACE,
            1 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        self.fs.rename(cx, dir, name.as_bytes(), other, new.as_bytes(), flags)
    }

    fn link(&mut self, cx: &mut Cx, dir: Ino, name: &str) -> Result<(), Errno> {
        let attr = self.fs.lookup(cx, dir, name.as_bytes())?;
        let (other, new) = (self.directory(cx), self.name());
        match self.fs.link(cx, attr.ino, other, new.as_bytes()) {
            Err(Errno::EPERM) => Ok(()),
            result => result.map(|_| ()),
        }
    }

    fn fsync(&mut self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let datasync = self.rng.chance(0.5);
        self.fs.fsync(cx, ino, datasync)
    }

    fn list(&mut self, cx: &mut Cx, dir: Ino) -> Result<(), Errno> {
        let (mut cookie, mut more) = (0, true);
        while std::mem::take(&mut more) {
            let mut left = 10;
            self.fs.readdir(cx, dir, cookie, &mut |entry| {
                left -= 1;
                (cookie, more) = (entry.cookie, left == 0);
                left > 0
            })?;
        }
        Ok(())
    }

    fn fallocate(&mut self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let keep_size = self.rng.chance(0.5);
        let mode = match self.rng.below(3) {
            0 => FallocMode::Allocate { keep_size },
            1 => FallocMode::PunchHole,
            _ => FallocMode::ZeroRange { keep_size },
        };
        let (offset, len) = (self.offset(), 1 + self.rng.below(60_000));
        match self.fs.fallocate(cx, ino, mode, offset, len) {
            Err(Errno::EOPNOTSUPP) => Ok(()),
            result => result,
        }
    }

    fn attribute(&mut self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        let value = vec![self.rng.below(3) as u8; self.rng.below(400) as usize];
        let _names = self.fs.listxattr(cx, ino)?;
        if self.rng.chance(0.7) {
            self.fs.setxattr(cx, ino, b"user.chaos", &value, XattrFlags::empty())
        } else {
            self.fs.removexattr(cx, ino, b"user.chaos")
        }
    }

    /// Works on a file that others may remove meanwhile.
    fn keep_open(&mut self, cx: &mut Cx, ino: Ino) -> Result<(), Errno> {
        self.fs.open(cx, ino)?;
        let worked = self.write(cx, ino).and_then(|()| {
            cx.yield_now();
            self.read(cx, ino)
        });
        self.fs.release(cx, ino)?;
        worked
    }
}

/// Every byte is zero or what a writer of this file puts there.
fn own_bytes(ino: Ino, offset: u64, bytes: &[u8]) {
    if let Some(at) = foreign(ino.0, bytes, offset) {
        panic!("inode {ino} has {:#x} at {}, which is not its own", bytes[at], offset + at as u64);
    }
}

/// Reads every file below the root (but `filler`, whose bytes are others).
pub fn verify(cx: &mut Cx, fs: &dyn FileSystem) -> usize {
    let tree = crate::oracle::tree(cx, fs).expect("the tree is readable");
    for (path, &ino) in &tree {
        let attr = fs.getattr(cx, ino).unwrap_or_else(|errno| panic!("{path}: {errno}"));
        if attr.kind != FileType::Regular || path.ends_with("/filler") {
            continue;
        }
        let mut bytes = vec![0; 1 << 16];
        for offset in (0..attr.size).step_by(bytes.len()) {
            let read = fs.read(cx, ino, offset, &mut bytes).expect("readable");
            own_bytes(ino, offset, &bytes[..read]);
        }
    }
    tree.len()
}

/// Removes a directory and everything below it.
pub fn remove_tree(cx: &mut Cx, fs: &dyn FileSystem, parent: Ino, name: &[u8]) {
    let dir = fs.lookup(cx, parent, name).expect("lookup").ino;
    let mut names = Vec::new();
    fs.readdir(cx, dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })
    .expect("readdir");
    for child in names.iter().filter(|name| *name != b"." && *name != b"..") {
        if fs.lookup(cx, dir, child).expect("lookup").is_dir() {
            remove_tree(cx, fs, dir, child);
        } else {
            fs.unlink(cx, dir, child).expect("unlink");
        }
    }
    fs.rmdir(cx, parent, name).expect("rmdir");
}
