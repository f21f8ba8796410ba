//! The signals that end a command.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use rustix::process::{chdir, getpid, getppid, set_parent_process_death_signal};

/// What users and service managers send to end a program.
const HELD: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// SIGINT, SIGTERM and SIGHUP, held back so that one task can wait for them.
pub struct Signals(SigSet);

impl Signals {
    /// Holds the signals back in this thread and in all that it starts from now on. Call it before
    /// there is any other thread. Programs that are started inherit it; see
    /// [`reach`](Signals::reach). Their ends are reported, whatever our parent did about its own.
    pub fn block() -> Signals {
        // SAFETY: no handler is installed; what there is by default stays.
        let _known = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) };
        let set = SigSet::from_iter(HELD);
        set.thread_block().expect("these signals can be blocked");
        Signals(set)
    }

    /// Waits for one of them. Blocks the thread.
    pub fn wait(&self) -> Signal {
        loop {
            if let Ok(signal) = self.0.wait() {
                return signal;
            }
        }
    }

    /// Lets them reach a program that is going to be started: with them held back, neither Ctrl-C
    /// nor timeout(1) would end it. Where the thread that starts it is killed, so is the program.
    pub fn reach(command: &mut Command) {
        Signals::reach_then(command, || Ok(()));
    }

    /// As [`reach`](Signals::reach); the program runs in `dir`, which may be in a mount that this
    /// process serves. A child that enters it, and holds what it has not closed yet, waits for ever
    /// where we are killed meanwhile. So it enters as one that dies with us.
    ///
    /// # Errors
    /// `dir` has a NUL in its name.
    pub fn reach_in(command: &mut Command, dir: &Path) -> io::Result<()> {
        let (dir, parent) = (CString::new(dir.as_os_str().as_bytes())?, getpid());
        Signals::reach_then(command, move || {
            // Killed before the child could hear of it: nobody waits for this error.
            if getppid() != Some(parent) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            Ok(chdir(dir.as_c_str())?)
        });
        Ok(())
    }

    /// `then` is called between fork and exec: it makes system calls, and nothing else.
    fn reach_then(
        command: &mut Command,
        then: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) {
        let let_through = move || {
            set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            then()?;
            Ok(SigSet::from_iter(HELD).thread_unblock()?)
        };
        // SAFETY: between fork and exec there are only system calls: prctl(2), getppid(2), chdir(2)
        // and sigprocmask(2), which are safe in a signal handler, too; nothing is allocated or
        // locked.
        unsafe { command.pre_exec(let_through) };
    }
}
