//! The journal's task: waits for work, then commits, checkpoints, or ends.

mod checkpoint;
mod commit;
mod fast_commit;
mod home;

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Errno;
use rt::Cx;

use self::checkpoint::Checkpoint;
use self::home::Flight;
use crate::log::Log;
use crate::state::{Shared, State, Stop};

/// What there is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Commit,
    Flush,
    /// Blocks are old enough to go to their places.
    StartHome,
    /// They are there.
    EndHome,
    NoteAbort,
    Finish,
    Die,
}

/// The task's own state: nobody else touches the log or what waits for its checkpoint.
pub(crate) struct Task {
    pub shared: Arc<Shared>,
    pub log: Log,
    pub pending: Checkpoint,
    /// Blocks on their way to their places, written by another task.
    pub flight: Option<Flight>,
    abort_noted: bool,
}

/// The body of the journal's task.
pub(crate) fn run(cx: &mut Cx, shared: &Arc<Shared>, log: Log) {
    let shared = shared.clone();
    let pending = Checkpoint::default();
    let mut task = Task { shared, log, pending, flight: None, abort_noted: false };
    loop {
        task.note_space();
        match task.wait(cx) {
            Work::Commit => task.commit(cx),
            Work::Flush => task.flush(cx),
            Work::NoteAbort => task.note_abort(cx),
            Work::Finish => {
                task.empty(cx);
                break;
            }
            Work::StartHome => task.start_home(cx),
            Work::EndHome => task.end_home(cx),
            Work::Die => break,
        }
    }
    task.forget_home(cx);
    task.let_go(cx);
}

impl Task {
    fn note_space(&self) {
        let block = u64::from(self.log.device.block_size);
        let blocks = [self.log.free(), self.log.capacity()];
        for (bytes, blocks) in self.shared.log_bytes.iter().zip(blocks) {
            bytes.store(block * u64::from(blocks), Ordering::Relaxed);
        }
    }

    fn wait(&mut self, cx: &mut Cx) -> Work {
        let shared = self.shared.clone();
        let interval = shared.options.commit_interval;
        let noted = self.abort_noted;
        let mut idle = false;
        let home_due = self.home_due().filter(|_| !noted);
        let finished = || self.flight.as_ref().is_some_and(Flight::is_finished);
        loop {
            let now = cx.now();
            let mut work = None;
            let timeout = {
                let mut state = shared.state.lock_irq();
                match &state.running {
                    Some(running) => {
                        idle = false;
                        let age = now.since(running.transaction.started);
                        if age >= interval && !noted && shared.aborted().is_none() {
                            return Work::Commit;
                        }
                        Some(interval.since(age)).filter(|_| shared.aborted().is_none())
                    }
                    None => {
                        state.task_idle = idle;
                        (!idle).then_some(interval)
                    }
                }
            };
            if shared.aborted().is_none() && home_due.is_some_and(|due| due <= now) {
                return Work::StartHome;
            }
            let home = home_due.map(|due| due.since(now));
            let timeout = timeout.into_iter().chain(home).min();
            // The closure runs without the state's lock held by us.
            let mut look = || {
                let state = shared.state.lock_irq();
                work = next_work(&shared, &state, noted);
                work = work.or(finished().then_some(Work::EndHome));
                work.is_some() || (idle && !state.task_idle)
            };
            match timeout {
                Some(timeout) => {
                    idle = !shared.wait_task.wait_until_timeout(cx, "journal work", timeout, look);
                }
                None => {
                    shared.wait_task.wait_until(cx, "journal work", &mut look);
                    idle = false;
                }
            }
            if let Some(work) = work {
                return work;
            }
        }
    }

    /// Drops what a transaction that will never commit holds: buffers, files and callbacks, which
    /// may hold the file system and so this journal.
    fn let_go(&mut self, cx: &Cx) {
        let running = match &self.shared.state.lock(cx).running {
            Some(running) => running.transaction.clone(),
            None => return,
        };
        let joined = take(&mut *running.joined.lock(cx));
        let extra = take(&mut *running.extra.lock(cx));
        drop((joined, extra));
    }

    /// Commits, writes everything to its place and marks the log empty; returns who waits.
    fn flush(&mut self, cx: &mut Cx) {
        let ticket = self.shared.state.lock(cx).flush_request;
        if self.empty(cx) {
            self.shared.flushed.store(ticket, Ordering::Release);
        }
        self.shared.wait_commit.wake_all();
    }

    fn empty(&mut self, cx: &mut Cx) -> bool {
        if self.shared.state.lock(cx).running.is_some() {
            self.commit(cx);
        }
        if self.shared.aborted().is_some() {
            self.note_abort(cx);
            return false;
        }
        match self.checkpoint_all(cx) {
            Ok(()) => true,
            Err(error) => {
                self.shared.abort(error.to_errno());
                self.note_abort(cx);
                false
            }
        }
    }

    /// Leaves the reason of an abort in the superblock, so that the next mount knows.
    fn note_abort(&mut self, cx: &mut Cx) {
        let errno = self.shared.aborted().unwrap_or(Errno::EIO);
        if std::mem::replace(&mut self.abort_noted, true) {
            return;
        }
        if self.shared.state.lock(cx).stop == Stop::Dead {
            return;
        }
        self.log.sb.errno = errno.0 as u32;
        let flags = self.shared.options.tail_flags(&self.log.device.queue);
        // Where even this fails nobody is left to hear of it: the journal is aborted already.
        let _ = self.log.write_superblock(cx, flags);
    }
}

fn next_work(shared: &Shared, state: &State, abort_noted: bool) -> Option<Work> {
    if state.stop == Stop::Dead {
        return Some(Work::Die);
    }
    if shared.aborted().is_some() {
        return match (abort_noted, state.stop) {
            (false, _) => Some(Work::NoteAbort),
            (true, Stop::Clean) => Some(Work::Die),
            (true, _) => None,
        };
    }
    if let Some(running) = &state.running
        && state.commit_request >= running.transaction.tid
    {
        return Some(Work::Commit);
    }
    if state.flush_request > shared.flushed.load(Ordering::Relaxed) {
        return Some(Work::Flush);
    }
    (state.stop == Stop::Clean).then_some(Work::Finish)
}
