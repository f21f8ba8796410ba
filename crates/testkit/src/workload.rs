//! Tasks that create, append, rename, remove and fsync at once, while an oracle notes what each
//! fsync promised.

use crate::content::{create, mkdir, pattern};
use crate::oracle::Oracle;
use base::{Ino, Rng};
use rt::{Cx, SpinLock};
use std::sync::Arc;
use vfs::{FileSystem, RenameFlags, SetAttr};

/// What the tasks share.
pub struct Shared {
    /// The file system at work.
    pub fs: Arc<dyn FileSystem>,
    /// What was promised.
    pub oracle: SpinLock<Oracle>,
    /// Position in the write log, now.
    pub position: Box<dyn Fn() -> usize + Send + Sync>,
}

struct File {
    id: u64,
    ino: Ino,
    path: String,
    size: u64,
}

struct Task {
    shared: Arc<Shared>,
    rng: Rng,
    number: u64,
    dir: Ino,
    files: Vec<File>,
    next: u64,
}

/// Runs `tasks` tasks of `steps` steps each and waits for them.
pub fn run(cx: &mut Cx, shared: &Arc<Shared>, seed: u64, tasks: u64, steps: u64) {
    let handles: Vec<_> = (0..tasks)
        .map(|number| {
            let shared = shared.clone();
            cx.spawn(&format!("worker{number}"), move |cx| {
                let dir = mkdir(cx, &*shared.fs, shared.fs.root(), &format!("d{number}"));
                let rng = Rng::new(seed, 100 + number);
                let mut task = Task { shared, rng, number, dir, files: Vec::new(), next: 0 };
                (0..steps).for_each(|_| task.step(cx));
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join(cx));
}

impl Task {
    fn step(&mut self, cx: &mut Cx) {
        let choice = self.rng.below(100);
        if self.files.is_empty() || choice < 25 {
            return self.create(cx);
        }
        let which = self.rng.below(self.files.len() as u64) as usize;
        match choice {
            25..=54 => self.append(cx, which),
            55..=74 => self.fsync(cx, which),
            75..=82 => self.rename(cx, which),
            83..=89 => self.unlink(cx, which),
            90..=95 => self.truncate(cx, which),
            _ => self.sync(cx),
        }
    }

    fn note(&self, cx: &Cx, id: u64, path: Option<&str>, size: u64) {
        self.shared.oracle.lock(cx).begin(id, path, size);
    }

    fn create(&mut self, cx: &mut Cx) {
        let id = self.number << 20 | self.next;
        self.next += 1;
        let name = format!("f{id:x}");
        let path = format!("/d{}/{name}", self.number);
        self.note(cx, id, None, 0);
        self.note(cx, id, Some(&path), 0);
        let ino = create(cx, &*self.shared.fs, self.dir, &name);
        self.files.push(File { id, ino, path, size: 0 });
        self.append(cx, self.files.len() - 1);
    }

    fn append(&mut self, cx: &mut Cx, which: usize) {
        let len = 1 + self.rng.below(20_000);
        let file = &mut self.files[which];
        let mut data = vec![0; len as usize];
        pattern(file.id, file.size, &mut data);
        let at = file.size;
        file.size += len;
        let (id, ino, path, size) = (file.id, file.ino, file.path.clone(), file.size);
        self.note(cx, id, Some(&path), size);
        assert_eq!(self.shared.fs.write(cx, ino, at, &data), Ok(data.len()), "{path}");
    }

    fn fsync(&mut self, cx: &mut Cx, which: usize) {
        let file = &self.files[which];
        let state = self.shared.oracle.lock(cx).state(file.id);
        let datasync = self.rng.chance(0.3);
        self.shared.fs.fsync(cx, file.ino, datasync).expect("fsync");
        let position = (self.shared.position)();
        self.shared.oracle.lock(cx).promise(file.id, state, position, datasync);
    }

    fn sync(&mut self, cx: &mut Cx) {
        // Other tasks' files may change while we look; only what is ours is certain.
        let mine: Vec<u64> = (0..self.next).map(|n| self.number << 20 | n).collect();
        let states = self.shared.oracle.lock(cx).states();
        self.shared.fs.sync(cx).expect("sync");
        let position = (self.shared.position)();
        let mut oracle = self.shared.oracle.lock(cx);
        for (file, state) in states.into_iter().filter(|(file, _)| mine.contains(file)) {
            oracle.promise(file, state, position, false);
        }
    }

    fn rename(&mut self, cx: &mut Cx, which: usize) {
        let renamed = self.rng.next_u32();
        let dir = self.dir;
        let file = &mut self.files[which];
        let old = file.path.rsplit('/').next().expect("a name").to_owned();
        let new = format!("r{:x}-{renamed:08x}", file.id);
        file.path = format!("/d{}/{new}", self.number);
        let (id, path, size) = (file.id, file.path.clone(), file.size);
        self.note(cx, id, Some(&path), size);
        let flags = RenameFlags::empty();
        let fs = &self.shared.fs;
        fs.rename(cx, dir, old.as_bytes(), dir, new.as_bytes(), flags).expect("rename");
    }

    fn unlink(&mut self, cx: &mut Cx, which: usize) {
        let file = self.files.swap_remove(which);
        self.note(cx, file.id, None, 0);
        let name = file.path.rsplit('/').next().expect("a name").to_owned();
        self.shared.fs.unlink(cx, self.dir, name.as_bytes()).expect("unlink");
    }

    fn truncate(&mut self, cx: &mut Cx, which: usize) {
        let file = &self.files[which];
        let size = self.rng.below(file.size + 1);
        let (id, ino, path) = (file.id, file.ino, file.path.clone());
        self.note(cx, id, Some(&path), size);
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.shared.fs.setattr(cx, ino, &set).expect("truncate");
        self.files[which].size = size;
    }
}
