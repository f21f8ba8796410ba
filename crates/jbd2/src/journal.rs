//! The journal: the interface for file systems.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Errno, Page};
use cache::{BufferCache, BufferRef};
use rt::{Charge, Cx, JoinHandle, SpinLock};

use crate::area::{JournalArea, LogDevice};
use crate::error::JournalError;
use crate::fast_commit::FastChanges;
use crate::format::fast_commit::FastCommits;
use crate::format::{Checksums, Compat, Incompat, Superblock};
use crate::handle::Handle;
use crate::log::Log;
use crate::options::{JournalMode, JournalOptions};
use crate::recovery::{self, RecoveryReport};
use crate::state::{Shared, Stop};
use crate::stats::JournalStats;
use crate::task;
use crate::transaction::Tid;

/// An open journal.
///
/// Its task is spawned by [`Journal::open`] and ended by [`Journal::shutdown`]. Dropping the
/// journal ends the task too, without writing anything, as a crash would.
pub struct Journal {
    shared: Arc<Shared>,
    task: SpinLock<Option<JoinHandle<()>>>,
    recorded_errno: Option<Errno>,
    /// Replayed blocks of a read-only journal: their places on the device are out of date.
    _held: Vec<BufferRef>,
}

impl Journal {
    /// Opens the journal that lies in `area`, over the file system's buffers `cache`; where it is
    /// dirty, recovers it first (read-only: in memory). Spawns the journal's task unless read-only.
    /// What the caller has read from `cache` before may have changed. May park.
    ///
    /// # Errors
    /// A superblock or a log that cannot be used, with the numbers; nothing was written then but
    /// what a device error has interrupted.
    pub fn open(
        cx: &mut Cx,
        cache: Arc<BufferCache>,
        area: JournalArea,
        options: JournalOptions,
    ) -> Result<(Arc<Journal>, Option<RecoveryReport>), JournalError> {
        let device = LogDevice::new(cache.queue(), area, cache.block_size())?;
        let mut log = Log::load(cx, device, &options)?;
        let recorded_errno = match log.sb.errno {
            0 => None,
            errno => Some(Errno(errno as i32)),
        };
        let (read_only, keep) = (options.read_only, options.keep_fast_commits);
        let mut held = Vec::new();
        let report = match (log.sb.start != 0, read_only) {
            (false, _) => None,
            (true, true) if options.discard_log => None,
            (true, false) if options.discard_log => {
                recovery::discard(cx, &cache, &mut log)?;
                None
            }
            (true, false) => Some(recovery::recover(cx, &cache, &mut log, keep)?),
            (true, true) => {
                let (report, buffers) = recovery::recover_in_memory(cx, &cache, &log, keep)?;
                held = buffers;
                Some(report)
            }
        };
        if !read_only {
            choose_features(&mut log.sb, &options);
            if options.fast_commit {
                log.keep_fast_commits();
            }
            log.layout = crate::format::Layout::new(&log.sb);
        }
        let shared = Shared::new(cache, options, &log);
        let task = (!read_only).then(|| {
            let theirs = shared.clone();
            let task = cx.spawn("jbd2", move |cx| task::run(cx, &theirs, log));
            shared.task_ioc.store(task.task().0, Ordering::Relaxed);
            task
        });
        let journal = Journal { shared, task: SpinLock::new(task), recorded_errno, _held: held };
        Ok((Arc::new(journal), report))
    }

    /// The complete fast commits of the dirty journal in `area`: what
    /// [`JournalOptions::keep_fast_commits`] leaves to the caller. Writes nothing. May park.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn fast_commits(
        cx: &mut Cx,
        cache: &Arc<BufferCache>,
        area: JournalArea,
        options: &JournalOptions,
    ) -> Result<Option<FastCommits>, JournalError> {
        let device = LogDevice::new(cache.queue(), area, cache.block_size())?;
        let log = Log::load(cx, device, options)?;
        recovery::fast_commits(cx, &log)
    }

    /// Commits the content of `buffers` as the first transaction after a recovery, whole or not at
    /// all: it takes the place of the fast commits that were kept, and may be as long as the log.
    /// May park.
    ///
    /// # Errors
    /// There are more than the log holds: nothing was changed. Or why it could not be written.
    pub fn commit_replay(
        &self,
        cx: &mut Cx,
        buffers: &[(BufferRef, Page)],
    ) -> Result<(), JournalError> {
        if buffers.is_empty() {
            return Ok(());
        }
        let (blocks, room) = (buffers.len(), self.shared.log_room);
        if blocks > room as usize {
            return Err(JournalError::ReplaySize { blocks, room });
        }
        let wrap = |errno| JournalError::Replay { errno };
        let transaction = self.shared.start_alone(blocks as u32).map_err(wrap)?;
        let tid = transaction.tid;
        let mut handle = Handle::new(self.shared.clone(), transaction, blocks as u32);
        for (buffer, page) in buffers {
            handle.write_access(cx, buffer).map_err(wrap)?;
            buffer.replace(page.clone());
            handle.dirty(cx, buffer).map_err(wrap)?;
        }
        handle.stop(cx).map_err(wrap)?;
        self.shared.commit_tid(cx, tid).map_err(wrap)
    }

    /// Starts an operation that dirties at most `credits` buffers. May park: for the commit of a
    /// transaction that is full or about to commit, and so for log space.
    ///
    /// The caller may hold locks, but none that somebody with an open handle waits for.
    ///
    /// # Errors
    /// `EROFS` after an abort or on a read-only journal, `ENOSPC` where the log could never hold
    /// as many buffers.
    #[inline]
    pub fn start(&self, cx: &mut Cx, credits: u32) -> Result<Handle, Errno> {
        cx.charge_for(Charge::JournalHandle, 1);
        let transaction = self.shared.start(cx, credits)?;
        Ok(Handle::new(self.shared.clone(), transaction, credits))
    }

    /// Credits that one handle may have at the most.
    pub fn max_credits(&self) -> u32 {
        self.shared.max_transaction
    }

    /// Starts an operation that shares its transaction with nobody, and that may dirty as many
    /// buffers as the log holds. Others wait until it is committed. May park like
    /// [`Journal::start`].
    ///
    /// # Errors
    /// As [`Journal::start`].
    pub fn start_large(&self, cx: &mut Cx, credits: u32) -> Result<Handle, Errno> {
        cx.charge_for(Charge::JournalHandle, 1);
        let transaction = self.shared.start_large(cx, credits)?;
        Ok(Handle::new(self.shared.clone(), transaction, credits))
    }

    /// Credits that one handle of [`Journal::start_large`] may have at the most.
    pub fn max_large_credits(&self) -> u32 {
        self.shared.log_room
    }

    /// Commits transaction `tid`, if that has not happened, and waits for it. All who wait for the
    /// same transaction share its commit. May park. Must not be called with an open handle.
    ///
    /// # Errors
    /// The reason of the abort where this commit failed, `EROFS` where the journal was aborted
    /// before.
    pub fn commit_tid(&self, cx: &mut Cx, tid: Tid) -> Result<(), Errno> {
        self.shared.commit_tid(cx, tid)
    }

    /// Makes what transaction `tid` has changed so far durable by a fast commit, if it can be. All
    /// who ask meanwhile share it. May park. Must not be called with an open handle. False: only
    /// [`Journal::commit_tid`] does it, or has done it.
    ///
    /// # Errors
    /// `EROFS` where the journal was aborted.
    pub fn fast_commit(
        &self,
        cx: &mut Cx,
        tid: Tid,
        changes: &dyn FastChanges,
    ) -> Result<bool, Errno> {
        self.shared.fast_commit(cx, tid, changes)
    }

    /// Bytes that fast commits have between two transactions; `None` where none are written.
    pub fn fast_commit_bytes(&self) -> Option<usize> {
        self.shared.fast_area.as_ref().map(|area| area.bytes())
    }

    /// Asks for the commit of `tid` without waiting.
    pub fn request_commit(&self, tid: Tid) {
        self.shared.request_commit(tid);
    }

    /// Commits everything that has stopped so far and waits. May park.
    ///
    /// # Errors
    /// As [`Journal::commit_tid`].
    pub fn force_commit(&self, cx: &mut Cx) -> Result<(), Errno> {
        let tid = self.last_tid(cx);
        self.shared.commit_tid(cx, tid)
    }

    /// The running transaction, else the last one: all that has been done until now is in it, or in
    /// an earlier one.
    pub fn last_tid(&self, cx: &Cx) -> Tid {
        self.shared.last_tid(cx)
    }

    /// True where the commit of `tid` is still going to flush the device: then an `fsync` that
    /// waits for it need not flush by itself.
    pub fn will_send_barrier(&self, tid: Tid) -> bool {
        self.shared.options.commit_record.is_safe()
            && self.shared.aborted().is_none()
            && self.shared.barrier_sent.load(Ordering::Acquire) < tid.0
    }

    /// Commits everything, writes all blocks to their places, and marks the log empty. May park.
    /// Where others go on writing meanwhile, their part is not waited for.
    ///
    /// # Errors
    /// As [`Journal::commit_tid`].
    pub fn flush(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.shared.flush(cx)
    }

    /// Flushes, ends the journal's task, and waits for its end. Handles must be closed. May park.
    ///
    /// # Errors
    /// `EROFS` where the journal was aborted: it stays dirty.
    pub fn shutdown(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.stop(Stop::Clean);
        self.join(cx);
        self.shared.check_aborted()
    }

    /// Ends the journal's task without writing anything more, as a crash would, and waits for it.
    pub fn kill(&self, cx: &mut Cx) {
        self.die();
        self.join(cx);
    }

    fn join(&self, cx: &mut Cx) {
        let task = self.task.lock_irq().take();
        if let Some(task) = task {
            task.join(cx);
        }
    }

    /// As [`Journal::kill`], without waiting for the task's end.
    ///
    /// The task is stopped first, so that it does not note the abort, and then all who wait.
    pub fn die(&self) {
        self.stop(Stop::Dead);
        self.abort(Errno::EIO);
    }

    fn stop(&self, stop: Stop) {
        let mut state = self.shared.state.lock_irq();
        if state.stop != Stop::Dead {
            state.stop = stop;
        }
        drop(state);
        self.shared.wait_task.wake_all();
    }

    /// Gives up: nothing more is logged, all who wait or come get `EROFS`, and the task notes
    /// `errno` in the journal's superblock. The first abort counts.
    pub fn abort(&self, errno: Errno) {
        self.shared.abort(errno);
    }

    /// The I/O context in which the log is written; 0 on a read-only journal.
    pub fn task_ioc(&self) -> u64 {
        self.shared.task_ioc.load(Ordering::Relaxed)
    }

    /// The reason of an abort, if there was one.
    pub fn aborted(&self) -> Option<Errno> {
        self.shared.aborted()
    }

    /// The error that an earlier mount had left in the superblock. It stays there until
    /// [`Journal::shutdown`] has left a clean journal.
    pub fn recorded_errno(&self) -> Option<Errno> {
        self.recorded_errno
    }

    /// The transaction that handles join now, if there is one.
    pub fn running_tid(&self) -> Option<Tid> {
        self.shared.state.lock_irq().running.as_ref().map(|running| running.transaction.tid)
    }

    /// The last transaction that is safe on the device.
    pub fn committed_tid(&self) -> Tid {
        Tid(self.shared.committed.load(Ordering::Acquire))
    }

    /// What goes through the journal.
    pub fn mode(&self) -> JournalMode {
        self.shared.options.mode
    }

    /// Counters since the journal was opened.
    pub fn stats(&self) -> JournalStats {
        self.shared.counters.snapshot()
    }

    /// Bytes of the log that are free, of how many; as the journal's task has last left them, and
    /// both 0 where nothing is written.
    pub fn space(&self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.shared.log_bytes[at].load(Ordering::Relaxed))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.die();
    }
}

/// Sets the features that the options ask for. The log is empty, so nothing old is misread.
fn choose_features(sb: &mut Superblock, options: &JournalOptions) {
    if options.bit64 {
        sb.version = 2;
        sb.incompat |= Incompat::BIT64;
    }
    let Some(checksums) = options.checksums else { return };
    sb.incompat.remove(Incompat::CSUM_V2 | Incompat::CSUM_V3);
    sb.compat.remove(Compat::CHECKSUM);
    match checksums {
        Checksums::None => {}
        Checksums::V1 => sb.compat |= Compat::CHECKSUM,
        Checksums::V2 => sb.incompat |= Incompat::CSUM_V2,
        Checksums::V3 => sb.incompat |= Incompat::CSUM_V3,
    }
    if checksums != Checksums::None {
        sb.version = 2;
    }
}
