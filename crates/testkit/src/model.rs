//! Random operations on a file system and on [`MemFs`], compared step by step.
//!
//! A run is a pure function of its [`Config`]: operations are drawn from the seed beforehand, dealt
//! to tasks, and carried out in a world of virtual time with that seed. Every task has a directory
//! of its own and makes names of its own in directories that all share, so that every answer is
//! determined although the tasks run at once; shared files are written in disjoint stripes.
//!
//! Compared are: each answer and `errno`, each content read, each listing; after each phase the
//! whole tree with the reference; and the whole tree, times included, before an unmount and after
//! the mount. `ENOSPC` and `EOPNOTSUPP` are the file system's to give: the reference then skips the
//! operation.
//!
//! When a run fails, operations are left out as long as it still fails, and the panic shows the
//! seed and the operations that remain.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::{Ino, Rng};
use rt::{Cx, Order, World, WorldConfig};
use vfs::{FileSystem, FileType, NewNode};

use crate::manifest::{self, Manifest};
use crate::memfs::{Limits, MemFs};

mod op;
mod task;

pub use op::Op;
use task::{Known, Task};

/// What a run does.
#[derive(Clone, Debug)]
pub struct Config {
    /// Determines the operations, and the schedule of the world.
    pub seed: u64,
    /// Operations in total, over all tasks and phases.
    pub ops: usize,
    /// Tasks at work at once.
    pub tasks: usize,
    /// Times that the file system is mounted, at least 1; the operations are spread over them.
    pub phases: usize,
    /// Largest offset of a write, bytes.
    pub offset_max: u64,
    /// Largest length of a write, bytes.
    pub write_max: u64,
    /// Largest value of an extended attribute, bytes.
    pub xattr_max: u64,
    /// Files come to share blocks ([`FileSystem::clone_range`]).
    pub clones: bool,
    /// The limits of the format under test.
    pub limits: Limits,
}

impl Config {
    /// A run of one task, 400 operations and two mounts.
    pub fn new(seed: u64) -> Config {
        Config {
            seed,
            ops: 400,
            tasks: 1,
            phases: 2,
            offset_max: 1 << 20,
            write_max: 40_000,
            xattr_max: 300,
            clones: false,
            limits: Limits::default(),
        }
    }

    /// A run of eight tasks, 1200 operations and two mounts.
    pub fn many(seed: u64) -> Config {
        Config { tasks: 8, ops: 1200, ..Config::new(seed) }
    }
}

/// A file system under test: how to mount it, and what to do after each unmount.
pub trait Subject {
    /// Mounts; the first time what was just made, later what the last unmount left.
    fn mount(&mut self, cx: &mut Cx) -> Arc<dyn FileSystem>;

    /// Looks at what an unmount left, for instance with e2fsck.
    ///
    /// # Errors
    /// What is wrong with it.
    fn inspect(&mut self, cx: &mut Cx) -> Result<(), String>;
}

/// Runs the model over seeds `from..from+count`, with `config` made of each.
///
/// # Panics
/// At the first seed that fails, with the seed and the operations left after shrinking.
pub fn check_seeds<S: Subject>(
    from: u64,
    count: u64,
    config: impl Fn(u64) -> Config,
    fresh: impl Fn(&mut Cx, u64) -> S,
) {
    for seed in from..from + count {
        check(&config(seed), |cx| fresh(cx, seed));
    }
}

/// Runs the model once; `fresh` makes the subject inside the world.
///
/// # Panics
/// If anything differs, with the seed and the operations left after shrinking.
pub fn check<S: Subject>(config: &Config, fresh: impl Fn(&mut Cx) -> S) {
    let ops = op::draw(config);
    if let Err(message) = attempt(config, &ops, &fresh) {
        let (ops, message) = shrink(config, ops, message, &fresh);
        let list: String =
            ops.iter().map(|(task, op)| format!("  task {task}: {op:?}\n")).collect();
        panic!(
            "model of seed {} failed: {message}\noperations that remain of {}:\n{list}\
             config: {config:?}\nrepeat with testkit::model::check of this config",
            config.seed, config.ops
        );
    }
}

type Dealt = (usize, Op);

/// One run in a world of its own; a panic inside is a failure like others.
fn attempt<S: Subject>(
    config: &Config,
    ops: &[Dealt],
    fresh: &impl Fn(&mut Cx) -> S,
) -> Result<(), String> {
    let world_config =
        WorldConfig { seed: config.seed, order: Order::Seeded, cpus: 2, ..WorldConfig::default() };
    let run = || World::new(world_config).run("model", |cx| in_world(cx, config, ops, fresh));
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Leaves out ever smaller stretches of operations while the run still fails; 300 runs at most.
fn shrink<S: Subject>(
    config: &Config,
    mut ops: Vec<Dealt>,
    mut message: String,
    fresh: &impl Fn(&mut Cx) -> S,
) -> (Vec<Dealt>, String) {
    let mut budget = 300;
    let mut stretch = ops.len().div_ceil(2);
    while stretch > 0 && budget > 0 {
        let mut at = 0;
        while at < ops.len() && budget > 0 {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + stretch).min(ops.len()));
            budget -= 1;
            match attempt(config, &fewer, fresh) {
                Err(new) => (ops, message) = (fewer, new),
                Ok(()) => at += stretch,
            }
        }
        stretch = if stretch == 1 { 0 } else { stretch.div_ceil(2) };
    }
    (ops, message)
}

const SHARED_DIRS: usize = 2;
const SHARED_FILES: usize = 2;

fn in_world<S: Subject>(
    cx: &mut Cx,
    config: &Config,
    ops: &[Dealt],
    fresh: &impl Fn(&mut Cx) -> S,
) -> Result<(), String> {
    let mut subject = fresh(cx);
    let mem = Arc::new(MemFs::with_limits(config.limits.clone()));
    let mut tasks: Vec<Option<Task>> = Vec::new();
    let mut before: Option<Manifest> = None;
    let phases = config.phases.max(1);
    for phase in 0..phases {
        let fs = subject.mount(cx);
        if phase == 0 {
            tasks = prepare(cx, config, &fs, &mem)?.into_iter().map(Some).collect();
        }
        if let Some(before) = before.take() {
            let after = tree(cx, &*fs)?;
            if before != after {
                let diff = manifest::diff(&before, &after);
                return Err(format!("the tree before unmount and after mount {phase}:\n{diff}"));
            }
        }
        let slice = ops.len() * phase / phases..ops.len() * (phase + 1) / phases;
        run_phase(cx, &fs, &mem, &mut tasks, &ops[slice])?;
        for task in tasks.iter_mut().flatten() {
            task.close_all(cx, &*fs, &mem)?;
        }
        compare_trees(cx, &*fs, &mem)?;
        before = Some(tree(cx, &*fs)?);
        fs.unmount(cx).map_err(|errno| format!("unmount {phase}: {errno}"))?;
        drop(fs);
        mem.remount(cx);
        subject.inspect(cx).map_err(|text| format!("after unmount {phase}: {text}"))?;
    }
    Ok(())
}

/// Makes the directories and files that tasks start with, in both file systems.
fn prepare(
    cx: &mut Cx,
    config: &Config,
    fs: &Arc<dyn FileSystem>,
    mem: &Arc<MemFs>,
) -> Result<Vec<Task>, String> {
    let mut both = |name: String, kind| -> Result<Known, String> {
        let node = NewNode::new(kind, 0o755);
        let real = fs.create(cx, fs.root(), name.as_bytes(), &node);
        let real = real.map_err(|errno| format!("preparing {name}: {errno}"))?;
        let model = mem.create(cx, mem.root(), name.as_bytes(), &node);
        let model = model.map_err(|errno| format!("preparing {name}: {errno}"))?;
        Ok(Known { fs: real.ino, mem: model.ino, kind, opens: 0, shared: true })
    };
    let mut shared = Vec::new();
    for i in 0..SHARED_DIRS {
        shared.push(both(format!("shared-dir-{i}"), FileType::Directory)?);
    }
    let mut stripes = Vec::new();
    for i in 0..SHARED_FILES {
        stripes.push(both(format!("shared-file-{i}"), FileType::Regular)?);
    }
    let mut tasks = Vec::new();
    for index in 0..config.tasks {
        let mut nodes = vec![both(format!("task-{index}"), FileType::Directory)?];
        nodes[0].shared = false;
        nodes.extend(shared.iter().cloned());
        tasks.push(Task::new(index, config.tasks, nodes, stripes.clone()));
    }
    Ok(tasks)
}

fn run_phase(
    cx: &mut Cx,
    fs: &Arc<dyn FileSystem>,
    mem: &Arc<MemFs>,
    tasks: &mut [Option<Task>],
    ops: &[Dealt],
) -> Result<(), String> {
    let mut running = Vec::new();
    for (index, slot) in tasks.iter_mut().enumerate() {
        let mut task = slot.take().expect("the last phase gave the task back");
        let mine: Vec<Op> =
            ops.iter().filter(|(owner, _)| *owner == index).map(|(_, op)| op.clone()).collect();
        let (fs, mem) = (fs.clone(), mem.clone());
        running.push(cx.spawn(&format!("model-{index}"), move |cx| {
            for (at, op) in mine.iter().enumerate() {
                if let Err(text) = task.apply(cx, &*fs, &mem, op) {
                    return (task, Err(format!("task {index}, its {at}th: {op:?}: {text}")));
                }
            }
            (task, Ok(()))
        }));
    }
    let mut outcome = Ok(());
    for (slot, handle) in tasks.iter_mut().zip(running) {
        let (task, result) = handle.join(cx);
        *slot = Some(task);
        outcome = outcome.and(result);
    }
    outcome
}

fn tree(cx: &mut Cx, fs: &dyn FileSystem) -> Result<Manifest, String> {
    let mut tree = manifest::of_fs(cx, fs).map_err(|errno| format!("listing the tree: {errno}"))?;
    tree.remove(&b"lost+found"[..]);
    Ok(tree)
}

/// Compares all but times, which differ by the moment of the call.
fn compare_trees(cx: &mut Cx, fs: &dyn FileSystem, mem: &MemFs) -> Result<(), String> {
    let (mut real, mut model) = (tree(cx, fs)?, tree(cx, mem)?);
    for tree in [&mut real, &mut model] {
        if let Some(root) = tree.get_mut(&Vec::new()) {
            // lost+found counts in one of them only.
            (root.nlink, root.mode) = (0, 0);
        }
        tree.values_mut().for_each(|entry| entry.mtime_ns = 0);
    }
    if real == model {
        return Ok(());
    }
    let diff = manifest::diff(&real, &model);
    Err(format!("the file system (left) and the reference (right) differ:\n{diff}"))
}

/// A stream of random numbers for one purpose of this run.
fn stream(config: &Config, purpose: u64) -> Rng {
    Rng::new(config.seed, 0x6d6f_6465_6c00 + purpose)
}

/// An inode number that no file system hands out; for operations without an object.
const NOWHERE: Ino = Ino(0);
