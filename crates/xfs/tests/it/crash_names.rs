//! Power cuts while names change: the device's write log is cut at every flush and in between, with
//! random subsets of the unflushed writes lost and sectors torn. What is recovered is what the tree
//! was after some operation, not before the last one that a sync promised. A few seeds here, many
//! with `IOPATH_SEEDS=n`.

use crate::world::{Cell, Recording, Tree, file, mkdir, repaired, seed_count, tree};
use base::{Ino, Rng};
use device::MemoryDevice;
use rt::Cx;
use testkit::crash::{self, CrashConfig};
use testkit::format::{Recorded, recover};
use testkit::{judge, trials};
use vfs::{FileSystem, RenameFlags};
use xfs::Xfs;

/// What one task does to names, and the state after each step.
struct Work {
    rng: Rng,
    dirs: Vec<(String, Ino)>,
    files: Vec<String>,
    now: Tree,
    next: u64,
    fills: bool,
}

/// What happens between two power cuts.
#[derive(Clone, Copy)]
struct Plan {
    step: fn(&mut Work, &mut Cx, &Xfs),
    steps: usize,
    /// Steps from one sync to the next.
    every: usize,
}

const MIXED: Plan = Plan { step: Work::step, steps: 260, every: 37 };
const CHURN: Plan = Plan { step: Work::churn, steps: 1130, every: 377 };

impl Work {
    fn step(&mut self, cx: &mut Cx, fs: &Xfs) {
        let dir = self.rng.below(self.dirs.len() as u64) as usize;
        let (path, ino) = self.dirs[dir].clone();
        self.next += 1;
        let pad = "p".repeat(self.rng.below(90) as usize);
        let name = format!("{}-{pad}", self.next);
        let new = format!("{path}/{name}");
        match self.rng.below(12) {
            0 if self.dirs.len() < 12 => {
                let made = mkdir(cx, fs, ino, &name);
                self.dirs.push((new.clone(), made));
                self.now.insert(new);
            }
            1..=3 if !self.files.is_empty() => {
                let at = self.rng.below(self.files.len() as u64) as usize;
                let old = self.files.swap_remove(at);
                let (parent, last) = self.split(&old);
                fs.rename(cx, parent, last.as_bytes(), ino, name.as_bytes(), RenameFlags::empty())
                    .expect("rename");
                self.now.remove(&old);
                self.now.insert(new.clone());
                self.files.push(new);
            }
            4..=6 if self.files.len() > 30 => {
                let at = self.rng.below(self.files.len() as u64) as usize;
                let old = self.files.swap_remove(at);
                let (parent, last) = self.split(&old);
                fs.unlink(cx, parent, last.as_bytes()).expect("unlink");
                self.now.remove(&old);
            }
            _ => {
                file(cx, fs, ino, &name);
                self.now.insert(new.clone());
                self.files.push(new);
            }
        }
    }

    /// Fills a directory of its own, empties it and removes it, again and again: chunks of inodes
    /// and directory blocks come where others went in the same checkpoint.
    fn churn(&mut self, cx: &mut Cx, fs: &Xfs) {
        self.next += 1;
        let root = fs.root();
        match self.dirs.last().cloned() {
            Some((path, ino)) if !path.is_empty() && self.fills => {
                let name = format!("{}-{}", self.next, "p".repeat(150));
                let new = format!("{path}/{name}");
                file(cx, fs, ino, &name);
                self.now.insert(new.clone());
                self.files.push(new);
                self.fills = self.files.len() < 62 || self.rng.below(90) > 0;
            }
            Some((path, ino)) if !path.is_empty() => match self.files.pop() {
                Some(old) => {
                    let (_, last) = self.split(&old);
                    fs.unlink(cx, ino, last.as_bytes()).expect("unlink");
                    self.now.remove(&old);
                }
                None => {
                    fs.rmdir(cx, root, &path.as_bytes()[1..]).expect("rmdir");
                    self.now.remove(&path);
                    self.dirs.pop();
                }
            },
            _ => {
                let name = format!("d{}", self.next);
                let made = mkdir(cx, fs, root, &name);
                self.dirs.push((format!("/{name}"), made));
                self.now.insert(format!("/{name}"));
                self.fills = true;
            }
        }
    }

    fn split(&self, path: &str) -> (Ino, String) {
        let (dir, last) = path.rsplit_once('/').expect("a path");
        let parent = self.dirs.iter().find(|(name, _)| name == dir).expect("a known directory");
        (parent.1, last.to_owned())
    }
}

/// Runs a plan; the trees that there were, one after each operation.
fn record(cell: Cell, seed: u64, plan: Plan) -> Recorded<Cell, Vec<Tree>> {
    Recording { cell, seed, bytes: 160 << 20, cache: 2 << 20 }.run(|cx, fs, device| {
        let dirs = vec![(String::new(), fs.root())];
        let rng = Rng::new(seed, 9);
        let (files, now) = (Vec::new(), Tree::new());
        let mut work = Work { rng, dirs, files, now, next: 0, fills: false };
        let mut states = vec![Tree::new()];
        for step in 1..=plan.steps {
            (plan.step)(&mut work, cx, fs);
            states.push(work.now.clone());
            match step % plan.every {
                0 => fs.sync(cx).expect("sync"),
                20 => fs.fsync(cx, fs.root(), false).expect("fsync"),
                _ => continue,
            }
            if step % plan.every == 0 {
                device.mark(step as u64);
            }
        }
        states
    })
}

fn campaign(cell: Cell, plan: Plan, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let run = record(cell, seed, plan);
        let config = CrashConfig { random: 40, at_flushes_max: 30, ..CrashConfig::new(seed) };
        let report = crash::explore(&config, &run.base, &run.log, |image, case| {
            let promised = case.promised.last().map_or(0, |&mark| mark as usize);
            let (dirty, mut found) = (image.fork(), Tree::new());
            recover(cell, &image, |cx, fs| {
                found = tree(cx, fs);
                Ok(())
            })?;
            if !run.left[promised..].contains(&found) {
                return Err(format!("{} names are none of the states", found.len()));
            }
            if case.index % 12 == 0 {
                repaired(&image)?;
                // Linux of today mounts no file system that ignores case.
                let ignores_case = cell.0.contains(&('n', "version=ci"));
                if !ignores_case {
                    kernel(&dirty, &found)?;
                }
            }
            Ok(())
        });
        println!("{cell:?} seed {seed}: {report:?}");
    }
}

/// The kernel recovers the same tree.
fn kernel(dirty: &MemoryDevice, ours: &Tree) -> Result<(), String> {
    let image = testkit::image::write_device(dirty);
    let mount = judge::LoopMount::new(image.path(), "xfs", "rw")?;
    let tree = testkit::manifest::of_dir(&mount.path()).map_err(|error| error.to_string())?;
    let theirs: Tree = tree
        .keys()
        .filter(|path| !path.is_empty())
        .map(|path| format!("/{}", String::from_utf8_lossy(path)))
        .collect();
    if theirs == *ours { Ok(()) } else { Err("the kernel recovers another tree".to_string()) }
}

#[test]
fn unnamed_files_are_freed_and_named_ones_are_kept() {
    let other: &[_] = &[('m', "rmapbt=1"), ('d', "agcount=2"), ('l', "size=64m")];
    for (edits, seed) in [&[][..], other].into_iter().zip(0..) {
        for seed in (seed..seed_count(1) * 2).step_by(2) {
            let run = Recording { cell: Cell(edits), seed, bytes: 160 << 20, cache: 2 << 20 };
            let config = CrashConfig { random: 30, at_flushes_max: 30, ..CrashConfig::new(seed) };
            trials::unnamed_files(run, &config);
        }
    }
}

#[test]
fn names_survive_power_cuts() {
    campaign(Cell(&[]), MIXED, 0..seed_count(2));
}

#[test]
fn names_in_large_directory_blocks_survive_power_cuts() {
    // The kernel asks for a log that takes a few of them.
    let edits = &[('n', "size=65536"), ('m', "rmapbt=1"), ('l', "size=64m"), ('d', "agcount=2")];
    campaign(Cell(edits), MIXED, 0..seed_count(1));
}

#[test]
fn names_in_small_blocks_survive_power_cuts() {
    campaign(Cell(&[('b', "size=1024"), ('n', "size=4096")]), MIXED, 3..3 + seed_count(1));
}

#[test]
fn inodes_where_others_went_survive_power_cuts() {
    // Directory blocks smaller than clusters of inodes, as large, and larger.
    const CELLS: [&[(char, &str)]; 4] = [
        &[('d', "agcount=2")],
        &[('n', "size=16384"), ('d', "agcount=2")],
        &[('n', "size=65536"), ('m', "rmapbt=1"), ('d', "agcount=2"), ('l', "size=64m")],
        &[('b', "size=1024"), ('d', "agcount=2")],
    ];
    for edits in CELLS {
        campaign(Cell(edits), CHURN, 0..seed_count(1));
    }
}

#[test]
fn names_without_case_survive_power_cuts() {
    campaign(Cell(&[('n', "version=ci")]), MIXED, 0..seed_count(1));
}

/// Goal: a name and its parent pointer, kept where the kernel keeps it, come and go together.
#[test]
fn names_with_parent_pointers_survive_power_cuts() {
    let edits: &[_] = &[('m', "rmapbt=1"), ('i', "nrext64=1,exchange=1"), ('n', "parent=1")];
    let small: &[_] = &[('b', "size=1024"), ('m', "rmapbt=1"), ('n', "parent=1,size=4096")];
    campaign(Cell(edits), MIXED, 0..seed_count(1));
    campaign(Cell(small), MIXED, 1..1 + seed_count(1));
    campaign(Cell(edits), CHURN, 0..seed_count(1));
}
