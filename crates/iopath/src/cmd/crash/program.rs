//! The user's check: a program that looks at a state as a directory.

use std::ffi::OsString;
use std::io::{ErrorKind, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::map::HashMap;
use crash::explore::State;
use crash::extract::{ExtractError, extract};
use crash::tree::tree_hash;
use crash::{Judge, Refusal};
use fuse::Signals;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rt::{Cx, SpinLock};
use vfs::FileSystem;

use super::directory::Scratch;
use super::interrupt;
use super::orphans;
use crate::text::printable;

/// The environment variable with the path of a file that has one line for each mark that was held.
pub const MARKS: &str = "IOPATH_CRASH_MARKS";
/// The environment variable with the last mark that was held.
pub const LAST_MARK: &str = "IOPATH_CRASH_LAST_MARK";
/// The environment variable with the number of the state.
pub const STATE: &str = "IOPATH_CRASH_STATE";

/// Bytes of a check's output that are kept, the last ones.
const OUTPUT: usize = 64 << 10;
/// Bytes of its last line that are shown.
const LINE: usize = 1000;

/// Bytes of a mark that a check has in its environment.
const MARK: usize = 32 << 10;

/// How long its output is waited for before its end is looked for.
const STEP: Duration = Duration::from_millis(100);

/// A shell's exit status is above this where a signal has ended a command.
const SIGNALLED: i32 = 128;

/// Runs a program for each tree and its marks; equal ones once.
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// How long it may take.
    pub limit: Duration,
    /// Where directories are made.
    pub parent: Option<PathBuf>,
    /// What it said about trees with marks.
    pub known: SpinLock<HashMap<u128, Result<(), Refusal>>>,
}

impl Program {
    /// Trees with marks that it looked at.
    pub fn trees(&self) -> usize {
        self.known.lock_irq().len()
    }

    fn look(&self, cx: &mut Cx, fs: &dyn FileSystem, state: &State) -> Result<(), Refusal> {
        let scratch = Scratch::new(self.parent.as_deref()).map_err(no_room)?;
        let tree = scratch.path("tree");
        std::fs::create_dir(&tree).map_err(|error| no_room(at(&tree, error)))?;
        extract(cx, fs, &tree).map_err(|error| match error {
            ExtractError::State { .. } => Refusal::State(error.to_string()),
            // Two entries of one name, or a name that is none: the state is to blame.
            ExtractError::Host { error: ref host, .. }
                if matches!(host.kind(), ErrorKind::AlreadyExists | ErrorKind::InvalidInput) =>
            {
                Refusal::State(error.to_string())
            }
            ExtractError::Host { .. } => no_room(error),
        })?;
        let marks = self.marks(&scratch, state)?;
        self.run(&tree, &marks, state, false)
    }

    /// Runs the check. `alone`: no other one runs meanwhile.
    #[allow(clippy::disallowed_methods, reason = "a program of the host runs in the host's time")]
    fn run(&self, tree: &Path, marks: &Path, state: &State, alone: bool) -> Result<(), Refusal> {
        let failed = |error: std::io::Error| self.cannot_run(&error);
        // A pipe: what opens /dev/stderr cannot open a socket.
        let (mut ours, output) = std::io::pipe().map_err(failed)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(|errno| failed(errno.into()))?;
        let errors = output.try_clone().map_err(failed)?;
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .current_dir(tree)
            .env(MARKS, marks)
            .env(LAST_MARK, variable(state.marks().last().unwrap_or(&"")))
            .env(STATE, state.index.to_string())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0);
        Signals::reach(&mut command);
        let started = interrupt::unless_ended(|| command.spawn());
        let mut child = started.map_err(failed)?;
        drop(command); // It holds their end of the output.
        let waited = self.wait(&mut child, &mut ours);
        orphans::end(marks, alone);
        let (said, status) = waited.map_err(failed)?;
        if status.is_some_and(|status| status.signal().is_some() || status.code() > Some(SIGNALLED))
        {
            // Who ends the job signals us as well, a moment before or after.
            std::thread::sleep(STEP);
        }
        interrupt::unless_ended(|| ());
        let mut lines = said.rsplit(|byte| matches!(byte, b'\n' | b'\r'));
        let last = lines.find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
        let last = printable(&last[..last.len().min(LINE)]);
        Err(Refusal::State(match status {
            Some(status) if status.success() => return Ok(()),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("check: exit status {code}: {last}"),
                (_, Some(signal)) => format!("check: killed by signal {signal}: {last}"),
                _ => format!("check: {status}: {last}"),
            },
            None => format!("check: still running after {:?}, ended: {last}", self.limit),
        }))
    }

    /// The check cannot be started, or not be waited for.
    fn cannot_run(&self, error: &std::io::Error) -> Refusal {
        let name = self.command[0].display();
        Refusal::host(format_args!("the check {name} cannot be run"), error)
    }

    /// Reads what a check prints until it ends; ends it, and all that it started, when the time is
    /// over.
    #[allow(clippy::disallowed_methods, reason = "a program of the host runs in the host's time")]
    fn wait(
        &self,
        child: &mut Child,
        output: &mut PipeReader,
    ) -> std::io::Result<(Vec<u8>, Option<ExitStatus>)> {
        let (mut left, mut before) = (self.limit, Instant::now());
        let (mut said, mut part) = (Vec::new(), [0; 4096]);
        let keep = |said: &mut Vec<u8>, part: &[u8]| {
            if said.len() + part.len() > 2 * OUTPUT {
                said.drain(..said.len() - OUTPUT);
            }
            said.extend_from_slice(part);
        };
        let mut open = true;
        let status = loop {
            // Time in which everything was stopped is not the check's.
            let passed = before.elapsed().min(2 * STEP);
            (left, before) = (left.saturating_sub(passed), Instant::now());
            if let Some(status) = child.try_wait()?
                && !open
            {
                break Some(status);
            }
            if left.is_zero() {
                break child.try_wait()?;
            }
            if !open {
                std::thread::sleep(left.min(Duration::from_millis(1)));
                continue;
            }
            let timeout = left.clamp(Duration::from_millis(1), STEP);
            let timeout = PollTimeout::try_from(timeout).expect("a short time");
            let mut readable = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
            let _a_signal_may_come = poll(&mut readable, timeout);
            match output.read(&mut part) {
                Ok(0) => open = false,
                Ok(len) => keep(&mut said, &part[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Something that it has started holds the output open, and says nothing; what
                    // it said itself after we had looked is there.
                    if let Some(status) = child.try_wait()? {
                        while let Ok(len @ 1..) = output.read(&mut part) {
                            keep(&mut said, &part[..len]);
                        }
                        break Some(status);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => open = false,
            }
        };
        let group = rustix::process::Pid::from_child(child);
        // What the check left running must not outlive its state.
        let killed = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        // One that has become another user's cannot be ended, nor waited for.
        if status.is_some() || killed != Err(rustix::io::Errno::PERM) {
            let _it_has_ended = child.wait();
        }
        Ok((said, status))
    }
}

/// A mark as the value of an environment variable, which has no NUL and an end.
fn variable(mark: &str) -> String {
    mark[..mark.floor_char_boundary(MARK)].replace('\0', "\u{fffd}")
}

/// The host gives the check no directory.
fn no_room(error: impl Into<anyhow::Error>) -> Refusal {
    let error = error.into();
    let what = "the directory for the check cannot be made";
    Refusal::host(what, format!("{error:#} (--dir DIR chooses another place)"))
}

/// An error of the host at a path.
fn at(path: &Path, error: std::io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(path.display().to_string())
}

impl Program {
    /// Looks at a tree that the kernel has mounted.
    pub fn judge_mounted(&self, dir: &Path, state: &State) -> Result<(), Refusal> {
        let scratch = Scratch::new(self.parent.as_deref()).map_err(no_room)?;
        let marks = self.marks(&scratch, state)?;
        let judged = self.run(dir, &marks, state, true);
        super::directory::unmount_below(dir)
            .map_err(|error| Refusal::host(dir.display(), error))?;
        judged
    }

    /// A file with the marks of a state.
    fn marks(&self, scratch: &Scratch, state: &State) -> Result<PathBuf, Refusal> {
        let marks = scratch.path("marks");
        let lines: String = state.marks().iter().map(|mark| format!("{mark}\n")).collect();
        let readable = std::fs::Permissions::from_mode(0o644);
        std::fs::write(&marks, lines)
            .and_then(|()| std::fs::set_permissions(&marks, readable))
            .map_err(|error| no_room(at(&marks, error)))?;
        Ok(marks)
    }
}

impl Judge for Program {
    fn judge(&self, cx: &mut Cx, fs: &Arc<dyn FileSystem>, state: &State) -> Result<(), Refusal> {
        let tree = tree_hash(cx, &**fs)?;
        let key = tree ^ u128::from(state.marks().len() as u64);
        if let Some(known) = self.known.lock_irq().get(&key) {
            return known.clone();
        }
        let result = self.look(cx, &**fs, state);
        if !matches!(result, Err(Refusal::Host(_))) {
            self.known.lock_irq().insert(key, result.clone());
        }
        result
    }
}
