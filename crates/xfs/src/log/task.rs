//! The background task, Linux's xfsaild and log worker: pushes the CIL when it is large, writes
//! items back when the log fills, and writes out what has waited for long.

use std::sync::Arc;

use rt::{Cx, Nanos, SpinLock, WaitQueue};

use super::Log;
use crate::error::Result;
use crate::format::log::Lsn;

#[derive(Default)]
struct Wishes {
    kicked: bool,
    end: bool,
    /// The task will look at what waits by itself.
    timed: bool,
}

/// How others ask the task for work.
pub(crate) struct TaskState {
    wishes: SpinLock<Wishes>,
    queue: WaitQueue,
}

impl TaskState {
    pub fn new() -> TaskState {
        TaskState {
            wishes: SpinLock::named("xfsaild wishes", Wishes::default()),
            queue: WaitQueue::named("xfsaild"),
        }
    }

    /// Asks it to look around. Any context.
    pub fn kick(&self) {
        let mut wishes = self.wishes.lock_irq();
        if !wishes.kicked {
            wishes.kicked = true;
            drop(wishes);
            self.queue.wake_all();
        }
    }

    /// Wakes it: something waits where nothing did. Any context.
    pub fn stir(&self) {
        if !self.wishes.lock_irq().timed {
            self.kick();
        }
    }

    /// Asks it to end.
    pub fn end(&self) {
        self.wishes.lock_irq().end = true;
        self.queue.wake_all();
    }
}

/// The body of the task.
pub(crate) fn run(cx: &mut Cx, log: &Arc<Log>) {
    let state = &log.task;
    let mut due: Option<Nanos> = None;
    loop {
        let ready = || {
            let wishes = state.wishes.lock_irq();
            wishes.kicked || wishes.end
        };
        let woken = match due {
            // Nothing is dirty: no timer, so that a world can come to rest.
            None => {
                state.queue.wait_until(cx, "xfsaild work", ready);
                true
            }
            Some(due) => {
                let left = due.since(cx.now());
                state.queue.wait_until_timeout(cx, "xfsaild", left, ready)
            }
        };
        {
            let mut wishes = state.wishes.lock(cx);
            if wishes.end {
                return;
            }
            wishes.kicked = false;
        }
        if log.shut_down().is_some() {
            due = None;
            continue;
        }
        let worked = if woken {
            log.relieve(cx)
        } else {
            due = None;
            log.write_out(cx)
        };
        if worked.is_err() && log.shut_down().is_none() {
            // Write-back is tried again: at the next kick, and after the next interval.
            log.stats.note_failure();
        }
        due = log.next_write_out(cx, due);
    }
}

impl Log {
    /// When what waits to be written is written out: as it was `due`, else an interval from now;
    /// never, where nothing waits.
    fn next_write_out(&self, cx: &Cx, due: Option<Nanos>) -> Option<Nanos> {
        // What comes from here on stirs the task.
        self.task.wishes.lock(cx).timed = false;
        if self.is_quiet(cx) {
            return None;
        }
        self.task.wishes.lock(cx).timed = true;
        Some(due.unwrap_or_else(|| cx.now() + self.options.interval))
    }

    /// True if nothing waits to be written.
    pub(super) fn is_quiet(&self, cx: &Cx) -> bool {
        self.ail.is_empty() && self.cil.lock(cx).items.is_empty()
    }

    /// Writes the CIL into the log, and to its place what is there; what is locked comes the next
    /// time.
    fn write_out(self: &Arc<Self>, cx: &mut Cx) -> Result<()> {
        self.force(cx)?;
        self.write_back(cx, self.newest())?;
        Ok(())
    }

    /// Bytes in the CIL above which it is pushed in the background.
    pub(crate) fn cil_limit(&self) -> u64 {
        (self.geometry.bytes() / 8).min(32 << 20).min(self.options.dirty_max / 4)
    }

    /// Pushes and writes back as far as the fill of CIL and log asks for it.
    fn relieve(self: &Arc<Self>, cx: &mut Cx) -> Result<()> {
        if self.cil.lock(cx).used > self.cil_limit() {
            self.push(cx, None, false)?;
        }
        let mut rounds = 0u32;
        loop {
            let (free, capacity) = self.grant.space();
            let waiting = self.grant.has_waiters();
            let full = free < capacity / 4 || capacity - free > self.options.dirty_max;
            if !full && !waiting {
                return Ok(());
            }
            let left = self.write_back(cx, self.push_target())?;
            if left.pinned || waiting {
                self.push(cx, None, false)?;
            }
            self.name_new_tail(cx)?;
            if !self.grant.has_waiters() && rounds > 2 {
                return Ok(());
            }
            if rounds > 2 {
                // What holds the tail is locked or pinned by somebody who is at work.
                cx.sleep(rt::Nanos::from_micros(100 << rounds.min(6)));
            }
            self.check()?;
            rounds += 1;
        }
    }

    /// How far the tail must move so that half of the log is free, and half of what may be dirty.
    fn push_target(&self) -> u64 {
        let (free, capacity) = self.grant.space();
        let Some(tail) = self.ail.tail() else { return 0 };
        let used = (capacity / 2).min(self.options.dirty_max / 2);
        let missing = (capacity - free).saturating_sub(used);
        let blocks = (missing / 512) as u32;
        super::record::advance(Lsn::from_bits(tail), blocks, self.geometry.blocks).bits()
    }

    /// If the items have moved on and nothing is committed that would say so, an empty
    /// checkpoint names the new tail, so that the space can be used.
    fn name_new_tail(self: &Arc<Self>, cx: &mut Cx) -> Result<()> {
        let (named, head) = {
            let writer = self.writer.lock(cx);
            (writer.tail(), writer.head())
        };
        let tail = self.ail.tail().unwrap_or(head.bits());
        let behind = self.position(tail) - self.position(named.bits());
        let (free, capacity) = self.grant.space();
        let worth = (capacity / 16).min(self.options.dirty_max / 4);
        if behind >= worth || (self.grant.has_waiters() && behind > 4096 && free < capacity) {
            self.push(cx, None, true)?;
        }
        Ok(())
    }
}
