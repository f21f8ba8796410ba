//! What checks leave running: this process adopts it, and ends it when its check has ended.
//!
//! A program may leave its process group and its session, and its parent may end: then the kernel
//! gives it to this process, the subreaper. It is known by the environment of its check, in which
//! the path of the marks is its own; where it has cleared that, by its age: it was started before
//! all checks that run.
//!
//! A shell that becomes this program by `exec` leaves it children, and the first process of a
//! PID namespace gets everybody's: those are left alone, and then only the environment counts.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use crash::host::own_prefix;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};
use rustix::time::{ClockId, clock_gettime};

use super::program::MARKS;

/// How often what a check has left is looked for, while it starts more.
const ROUNDS: u32 = 1000;

/// What the kernel says of a process.
struct Stat {
    /// It has ended, and nobody has asked for its status.
    zombie: bool,
    parent: u32,
    group: i32,
    session: i32,
    /// When it was started, in ticks of a hundredth of a second since the host was.
    start: u64,
}

impl Stat {
    /// That of a process below `/proc`: `self`, or a number.
    fn of(process: &str) -> Option<Stat> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
        Some(Stat {
            zombie: fields.next()? == "Z",
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            session: fields.next()?.parse().ok()?,
            start: fields.nth(15)?.parse().ok()?,
        })
    }
}

/// A process that this one has started or adopted.
pub struct Child {
    pub pid: Pid,
    /// It has ended, and nobody has asked for its status.
    pub zombie: bool,
    /// Nobody here waits for it: it is neither a check, each of which leads a group in our session,
    /// nor a helper, in our group.
    adopted: bool,
    /// It is in our group: a program that we run for ourselves.
    helps: bool,
    start: u64,
}

impl Child {
    fn new(pid: Pid, stat: &Stat, own: &Stat) -> Child {
        let leads = stat.group == pid.as_raw_nonzero().get() && stat.session == own.session;
        let helps = stat.group == own.group;
        Child { pid, zombie: stat.zombie, adopted: !helps && !leads, helps, start: stat.start }
    }

    /// Its environment has a variable for which this holds.
    fn has(&self, is: impl Fn(&[u8]) -> bool) -> bool {
        let path = format!("/proc/{}/environ", self.pid.as_raw_nonzero());
        // Of somebody else's process it cannot be read.
        let environment = std::fs::read(path).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(is)
    }

    /// It is of a check or command of this process: by its environment where others may have left
    /// children here, too.
    pub fn is_ours(&self) -> bool {
        let own = own_prefix().as_bytes();
        let names_us = |variable: &[u8]| {
            variable.starts_with(NAMES) && variable.windows(own.len()).any(|part| part == own)
        };
        !shared() || self.has(names_us)
    }

    /// Kills it and takes its status; false where it cannot be killed: it is another user's.
    fn end(&self) -> bool {
        if kill_process(self.pid, Signal::KILL) == Err(Errno::PERM) {
            return false;
        }
        let _somebody_may_have_asked = waitpid(Some(self.pid), WaitOptions::empty());
        true
    }
}

/// This process adopts what checks leave; all that is left is ended when this is dropped, when no
/// check runs any more.
pub struct Adopting(());

impl Adopting {
    /// Begins.
    ///
    /// # Errors
    /// The kernel refuses, or does not show processes.
    pub fn begin() -> Result<Adopting> {
        Stat::of("self").context("/proc is not there: iopath crash needs it to know processes")?;
        let here = children().iter().map(|child| (child.pid, child.start)).collect();
        let _only_once = INHERITED.set(here);
        set_child_subreaper(Some(getpid())).context("adopting what checks leave running")?;
        Ok(Adopting(()))
    }

    /// Runs `work`, and ends what it has left running.
    ///
    /// # Errors
    /// As [`begin`](Adopting::begin), before `work`; those of `work`.
    pub fn around<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _until_it_is_done = Adopting::begin()?;
        work()
    }

    /// Ends all that is left, which no one waits for. Blocks until it is gone.
    fn end(&self) {
        for _ in 0..ROUNDS {
            let left = children().into_iter().filter(|child| !child.zombie && child.is_ours());
            let left: Vec<Child> = left.collect();
            if left.iter().filter(|child| child.end()).count() == 0 {
                break;
            }
        }
    }
}

impl Drop for Adopting {
    fn drop(&mut self) {
        self.end();
    }
}

/// How the names of our variables begin.
const NAMES: &[u8] = b"IOPATH_CRASH_";

/// The children that this process had when it began, and when they were started.
static INHERITED: OnceLock<Vec<(Pid, u64)>> = OnceLock::new();

/// Has this process children that are nobody's here, or may it get such?
fn shared() -> bool {
    std::process::id() == 1 || INHERITED.get().is_some_and(|inherited| !inherited.is_empty())
}

/// The children of this process, also those that it has adopted, but for those that it had before.
pub fn children() -> Vec<Child> {
    // Not by getsid(2): in a PID namespace whose first process joined a session from outside, ours
    // has the number 0, which is no process.
    let Some(own) = Stat::of("self") else { return Vec::new() };
    let parent = std::process::id();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let child = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let pid = Pid::from_raw(name.parse().ok()?)?;
        let stat = Stat::of(&name)?;
        let inherited = INHERITED.get().is_some_and(|all| all.contains(&(pid, stat.start)));
        (stat.parent == parent && !inherited).then(|| Child::new(pid, &stat, &own))
    };
    processes.filter_map(child).collect()
}

/// The present tick, of which processes have one when they start.
fn tick() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * TICKS + now.tv_nsec as u64 * TICKS / 1_000_000_000
}

/// Ticks in a second, to programs.
const TICKS: u64 = 100;

/// Ends what a check has left running, which had these marks; takes the status of what was left and
/// has ended by itself. Blocks until it is gone. `alone`: no other check runs.
///
/// What was adopted and does not have the marks in its environment may be of a check that still
/// runs, unless it was started before all of those.
pub fn end(marks: &Path, alone: bool) {
    let line = [MARKS.as_bytes(), b"=", marks.as_os_str().as_bytes()].concat();
    for _ in 0..ROUNDS {
        // What is started while we look may be of a check that we have not seen.
        let now = tick();
        let children = children();
        let checks = children.iter().filter(|child| !child.adopted).map(|child| child.start);
        let first = checks.min().unwrap_or(now).min(now);
        let mut ended = 0;
        for child in children {
            if child.zombie {
                if child.adopted {
                    let _gone = waitpid(Some(child.pid), WaitOptions::NOHANG);
                }
                continue;
            }
            let left = match alone {
                true => !child.helps,
                false => child.adopted && child.start < first,
            };
            if left && !shared() || child.has(|variable| variable == line) {
                // What it had started is ours now.
                ended += u32::from(child.end());
            }
        }
        if ended == 0 {
            break;
        }
    }
}
