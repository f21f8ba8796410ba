//! A command that is recorded, and the signals that come meanwhile: they are for it, not for us.

use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use fuse::{Signal, Signals};
use rt::{Cx, SpinLock};
use rustix::process::{self, Pid, WaitId, WaitIdOptions};

/// Runs a command and passes signals on to it.
pub struct Passing {
    state: SpinLock<State>,
    /// The command leads a group of its own: where it has the terminal it has its signals, too.
    group: bool,
}

#[derive(Default)]
struct State {
    /// The command while it runs.
    child: Option<Pid>,
    /// The first signal.
    caught: Option<Signal>,
}

impl Passing {
    /// Takes the signals from now on. Call it before there is any other thread.
    pub fn begin(cx: &mut Cx) -> Arc<Passing> {
        let signals = Signals::block();
        let state = SpinLock::named("recorded command", State::default());
        let passing = Arc::new(Passing { state, group: !std::io::stdin().is_terminal() });
        let taking = passing.clone();
        cx.spawn("signals", move |_cx| {
            loop {
                taking.take(signals.wait());
            }
        });
        passing
    }

    /// The first one ends the command as its sender wants, the second one at once.
    fn take(&self, signal: Signal) {
        let mut state = self.state.lock_irq();
        let again = state.caught.is_some();
        state.caught.get_or_insert(signal);
        if let Some(child) = state.child {
            self.send(child, if again { Signal::SIGKILL } else { signal });
        }
    }

    fn send(&self, child: Pid, signal: Signal) {
        let signal = process::Signal::from_named_raw(signal as i32).expect("a signal of the host");
        let _it_may_have_ended = match self.group {
            true => process::kill_process_group(child, signal),
            false => process::kill_process(child, signal),
        };
    }

    /// Runs a command in a directory until it ends. Blocks the thread.
    ///
    /// # Errors
    /// It cannot be started, or a signal came before.
    pub fn run(&self, command: &mut Command, dir: &Path) -> Result<ExitStatus> {
        if self.group {
            command.process_group(0);
        }
        Signals::reach_in(command, dir)?;
        let name = command.get_program().to_string_lossy().into_owned();
        if let Some(signal) = self.caught() {
            bail!("{name}: not started: {signal}");
        }
        let mut child = command.spawn().with_context(|| name.clone())?;
        self.wait(&mut child).with_context(|| name)
    }

    fn wait(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        let pid = Pid::from_child(child);
        {
            let mut state = self.state.lock_irq();
            state.child = Some(pid);
            if let Some(signal) = state.caught {
                self.send(pid, signal);
            }
        }
        // While it is not reaped its number is no other's.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(error) = process::waitid(WaitId::Pid(pid), ended) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        let interrupted = {
            let mut state = self.state.lock_irq();
            state.child = None;
            state.caught.is_some()
        };
        if interrupted && self.group {
            // What it started works for nobody.
            self.send(pid, Signal::SIGKILL);
        }
        child.wait()
    }

    /// The signal that came, if one did.
    pub fn caught(&self) -> Option<Signal> {
        self.state.lock_irq().caught
    }

    /// Our exit status where the command's is `status`, as a shell has it.
    pub fn status(&self, status: ExitStatus) -> u8 {
        let signal = self.caught().map(|signal| signal as i32).or(status.signal());
        signal.map_or_else(|| status.code().unwrap_or(0), |signal| 128 + signal) as u8
    }
}
