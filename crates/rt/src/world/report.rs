//! The report of a world that cannot continue: its last events, and who waits for what.

use super::fiber::Fiber;
use super::state::Virtual;
use base::Nanos;
use std::fmt::Write;

/// Events that the ring remembers.
const RING: usize = 64;
/// Waiting tasks that a report lists.
const LISTED: usize = 100;

/// One thing that happened, as hashed and remembered.
#[derive(Clone, Copy)]
pub(crate) enum Record {
    /// A task was given the processor.
    Run(u64),
    /// A timer fired, by sequence number.
    Event(u64),
    Spawn(u64),
    Exit(u64),
    /// A layer's observation: tag and value.
    Note(u64, u64),
}

impl Record {
    #[inline]
    pub fn parts(self) -> (u64, u64, u64) {
        match self {
            Record::Run(task) => (1, task, 0),
            Record::Event(seq) => (2, seq, 0),
            Record::Spawn(task) => (3, task, 0),
            Record::Exit(task) => (4, task, 0),
            Record::Note(tag, value) => (5, tag, value),
        }
    }
}

/// The last events of a world.
#[derive(Default)]
pub(crate) struct Ring {
    records: Vec<(Nanos, Record)>,
    next: usize,
}

impl Ring {
    #[inline]
    pub fn push(&mut self, now: Nanos, record: Record) {
        if self.records.len() < RING {
            self.records.push((now, record));
        } else {
            self.records[self.next] = (now, record);
            self.next = (self.next + 1) % RING;
        }
    }

    fn iter(&self) -> impl Iterator<Item = &(Nanos, Record)> {
        self.records[self.next..].iter().chain(&self.records[..self.next])
    }
}

/// The lines that every report ends with: seed, time, last events, and how to see it again.
pub(crate) fn trailer(virt: &Virtual, fibers: &[Option<Fiber>]) -> String {
    let mut text = String::new();
    let state = virt.lock();
    let _ = writeln!(text, "  seed {}, virtual time {}, last events:", virt.seed, virt.now());
    for (time, record) in state.ring.iter() {
        let what = match record {
            Record::Run(id) => format!("run     {}", label(*id, fibers)),
            Record::Event(seq) => format!("event   #{seq}"),
            Record::Spawn(id) => format!("spawn   {}", label(*id, fibers)),
            Record::Exit(id) => format!("exit    {}", label(*id, fibers)),
            Record::Note(tag, value) => format!("note    {tag:#x} = {value}"),
        };
        let _ = writeln!(text, "    {:>16} {what}", time.0);
    }
    drop(state);
    let _ = write!(text, "  replay: {}", replay_line(virt.seed));
    text
}

/// A shell line that runs this test again with this seed.
fn replay_line(seed: u64) -> String {
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main");
    match (std::env::var("CARGO_PKG_NAME"), test) {
        (Ok(package), Some(test)) => {
            format!("IOPATH_SEED={seed} cargo test -p {package} -- {test} --exact")
        }
        _ => {
            let args: Vec<String> = std::env::args().collect();
            format!("IOPATH_SEED={seed} {}", args.join(" "))
        }
    }
}

fn label(id: u64, fibers: &[Option<Fiber>]) -> String {
    let fiber = fibers.iter().flatten().find(|f| f.task.id.0 == id);
    fiber.map_or_else(|| format!("task {id}"), |f| format!("task {id} `{}`", f.task.name))
}

/// Who waits for what.
pub(crate) fn waiters(now: Nanos, fibers: &[Option<Fiber>]) -> String {
    let mut text = String::new();
    let mut waiting: Vec<&Fiber> = fibers.iter().flatten().filter(|f| f.wait.is_some()).collect();
    waiting.sort_by_key(|f| f.task.id);
    for fiber in waiting.iter().take(LISTED) {
        let wait = fiber.wait.expect("only waiting fibers are listed");
        let _ = write!(text, "  {} waits for {}", label(fiber.task.id.0, fibers), wait.why);
        if !wait.name.is_empty() {
            let _ = write!(text, " `{}`", wait.name);
        }
        if wait.what != 0 {
            let _ = write!(text, " ({})", wait.what);
        }
        match fiber.holder() {
            0 => {}
            holder => {
                let _ = write!(text, ", held by {}", label(holder, fibers));
            }
        }
        let _ = writeln!(text, ", for {}", now.since(fiber.since));
    }
    if waiting.len() > LISTED {
        let _ = writeln!(text, "  .. and {} more", waiting.len() - LISTED);
    }
    if let Some(cycle) = cycle(&waiting) {
        let names: Vec<String> = cycle.iter().map(|id| label(*id, fibers)).collect();
        let _ = writeln!(text, "  cycle: {}", names.join(" -> "));
    }
    text
}

/// Tasks that wait for each other in a ring, if there are such.
fn cycle(waiting: &[&Fiber]) -> Option<Vec<u64>> {
    let holder_of = |id: u64| {
        let fiber = waiting.iter().find(|f| f.task.id.0 == id)?;
        Some(fiber.holder()).filter(|&holder| holder != 0)
    };
    waiting.iter().find_map(|start| {
        let start = start.task.id.0;
        let mut path = vec![start];
        while path.len() <= waiting.len() {
            let next = holder_of(*path.last().expect("the path begins with a task"))?;
            path.push(next);
            if next == start {
                return Some(path);
            }
        }
        None
    })
}
