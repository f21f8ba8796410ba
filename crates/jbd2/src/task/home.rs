//! Writes blocks home by age, even if no log space is needed. In Linux the flusher does this: it
//! finds the buffers of committed transactions dirty after some seconds.
//!
//! The journal's task hands the content that waits to a task of its own, which writes it as plain
//! asynchronous requests in its own I/O context, while commits go on. When it is done, the tail
//! moves: what is no longer remembered here must not be replayed either, since a block that is
//! freed later would not be revoked. While a batch is on its way nobody else writes blocks home,
//! and no commit with revoked blocks ends: their old content must not come after new data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Errno, Nanos};
use block::DeviceError;
use rt::{Cx, JoinHandle};

use super::Task;
use super::checkpoint::Contents;
use crate::stats::Counters;

/// A batch on its way.
pub(crate) struct Flight {
    writer: JoinHandle<Result<(), DeviceError>>,
    /// Set before the journal's task is woken, which is before the writer has quite ended.
    done: Arc<AtomicBool>,
    /// What is written.
    contents: Contents,
}

impl Flight {
    /// True where the batch has been written, or has failed.
    pub fn is_finished(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

impl Task {
    /// When the next batch is due; `None` where nothing waits, one is on its way, or nobody wants
    /// it.
    pub fn home_due(&self) -> Option<Nanos> {
        let times = self.shared.options.flusher?;
        let since = self.pending.dirty_since().filter(|_| self.flight.is_none())?;
        // The flusher wakes at whole intervals and finds what is old enough then.
        let interval = times.interval.0.max(1);
        Some(Nanos((since.0 + times.expire.0).div_ceil(interval) * interval))
    }

    /// Hands over everything that waits now.
    pub fn start_home(&mut self, cx: &mut Cx) {
        let (writes, contents) = self.pending.hand_out();
        let (shared, done) = (self.shared.clone(), Arc::new(AtomicBool::new(false)));
        let counters = &shared.counters;
        Counters::add(&counters.home_batches, 1);
        Counters::add(&counters.checkpoint_blocks, writes.len() as u64);
        let noted = done.clone();
        let writer = cx.spawn("flusher", move |cx| {
            let written = shared.cache.write_snapshots(cx, writes.into_iter());
            noted.store(true, Ordering::Release);
            shared.wait_task.wake_all();
            written
        });
        self.flight = Some(Flight { writer, done, contents });
    }

    /// Waits for a batch that is on its way, lets go of what it wrote and moves the tail. May park.
    ///
    /// # Errors
    /// The batch's, or that of the superblock's write.
    pub fn finish_home(&mut self, cx: &mut Cx) -> Result<(), DeviceError> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        flight.writer.join(cx)?;
        if self.shared.aborted().is_some() {
            return Ok(());
        }
        self.pending.written(&flight.contents, cx.now());
        let tail = self.pending.tail(&self.log);
        self.move_tail(cx, tail)
    }

    /// The same for the task's loop: an error aborts the journal.
    pub fn end_home(&mut self, cx: &mut Cx) {
        if let Err(error) = self.finish_home(cx) {
            self.shared.abort(Errno::from(error));
        }
    }

    /// Waits for a batch without caring for its outcome: the journal ends.
    pub fn forget_home(&mut self, cx: &mut Cx) {
        if let Some(flight) = self.flight.take() {
            let _ = flight.writer.join(cx);
        }
    }
}
