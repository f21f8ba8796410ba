//! The journal as its users see it, and the state that its task and the handles share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use base::{Errno, Nanos};
use block::Queue;
use cache::{BufferCache, BufferRef};
use rt::{Charge, Cx, JoinHandle, SpinLock, WaitQueue};

use crate::area::{JournalArea, LogDevice};
use crate::error::JournalError;
use crate::format::{Checksums, Compat, Incompat, Superblock, revoke};
use crate::handle::Handle;
use crate::log::Log;
use crate::recovery::{self, RecoveryReport};
use crate::stats::{Counters, JournalStats};
use crate::task;
use crate::transaction::{Tid, Transaction};
use crate::variant::{CommitRecord, FlusherTimes, JournalIo};

/// What the file system sends through the journal. The journal itself only remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum JournalMode {
    /// Metadata; data reaches its place before the metadata that refers to it commits.
    #[default]
    Ordered,
    /// Metadata; data is written at any time.
    Writeback,
    /// Metadata and data. While a data block waits for its checkpoint, its newest content is in
    /// the buffer cache and not yet at its place.
    Data,
}

/// How a journal is opened.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// What goes through the journal.
    pub mode: JournalMode,
    /// Age at which a transaction commits by itself.
    pub commit_interval: Nanos,
    /// How the commit record is kept behind what it seals.
    pub commit_record: CommitRecord,
    /// What the log's writes carry.
    pub journal_io: JournalIo,
    /// Who waits for a commit yields his place in the elevator to the journal's task first (Jeff
    /// Moyer, "jbd2: yield the device queue when waiting for journal commits", 2010-07-02).
    pub yield_before_wait: bool,
    /// The commit record is handed over together with the log, with an edge between the two
    /// ([`IoGroup::then`](block::IoGroup::then)): the queue sends it, flush and all, as soon as the
    /// log has completed, and the journal's task wakes up once for both.
    pub chain_record: bool,
    /// Blocks go to their places after some time, by a task of their own, as Linux's flusher has
    /// it; `None`: when their log space is needed, and at the end.
    pub flusher: Option<FlusherTimes>,
    /// Write nothing; handles are refused with `EROFS`. A dirty log is replayed into the buffer
    /// cache only: whoever reads metadata through the cache sees the recovered state.
    pub read_only: bool,
    /// Empty a dirty log instead of replaying it: where the file system says that it needs no
    /// recovery, as Linux does then.
    pub discard_log: bool,
    /// Use 64-bit block numbers (file systems with the feature of that name).
    pub bit64: bool,
    /// Checksums to use from now on; `None` keeps what the superblock says.
    pub checksums: Option<Checksums>,
    /// UUID of the file system: an external journal must list it.
    pub fs_uuid: Option<[u8; 16]>,
    /// Panic where a handle dirties more buffers than it reserved, instead of counting it. On in
    /// builds with debug assertions.
    pub strict_credits: bool,
}

impl Default for JournalOptions {
    fn default() -> JournalOptions {
        JournalOptions {
            mode: JournalMode::Ordered,
            commit_interval: Nanos::from_secs(5),
            commit_record: CommitRecord::default(),
            journal_io: JournalIo::default(),
            yield_before_wait: false,
            chain_record: false,
            flusher: None,
            read_only: false,
            discard_log: false,
            bit64: false,
            checksums: None,
            fs_uuid: None,
            strict_credits: cfg!(debug_assertions),
        }
    }
}

/// The running transaction as the handles share it.
pub(crate) struct Running {
    pub transaction: Arc<Transaction>,
    /// Open handles.
    pub updates: u32,
    /// Buffers dirtied plus credits of open handles.
    pub reserved: u32,
    /// The commit waits for the open handles; new ones wait for the next transaction.
    pub locked: bool,
}

/// What the journal's task shall do in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Go on.
    No,
    /// Commit, checkpoint, mark the journal empty, end.
    Clean,
    /// End without writing anything.
    Dead,
}

pub(crate) struct State {
    pub running: Option<Running>,
    pub next_tid: Tid,
    /// Commit every transaction up to this one.
    pub commit_request: Tid,
    /// Somebody has waited for the commit of this one, or of a later one.
    pub waited: Tid,
    /// Requests to empty the log so far.
    pub flush_request: u64,
    pub stop: Stop,
    /// The task sleeps without a timer: whoever begins a transaction wakes it.
    pub task_idle: bool,
}

/// Everything that handles, waiters and the journal's task share.
///
/// Lock order: `state`, then a transaction's locks; all are spin locks.
pub(crate) struct Shared {
    pub options: JournalOptions,
    pub cache: Arc<BufferCache>,
    /// The device that the log is on.
    pub log_queue: Arc<Queue>,
    /// The I/O context of the journal's task; 0 before there is one.
    pub task_ioc: AtomicU64,
    pub state: SpinLock<State>,
    pub committed: AtomicU64,
    /// Transactions up to this one have sent, or are sending, their barrier.
    pub barrier_sent: AtomicU64,
    pub flushed: AtomicU64,
    /// 0, or the errno of the abort.
    pub aborted: AtomicI32,
    /// Buffers that one transaction may hold.
    pub max_transaction: u32,
    /// Records in a revoke block.
    pub revokes_per_block: usize,
    /// For a transaction that can be joined.
    pub wait_start: WaitQueue,
    /// For the end of a commit, of a flush, or an abort.
    pub wait_commit: WaitQueue,
    /// The journal's task, for work.
    pub wait_task: WaitQueue,
    pub counters: Counters,
}

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
        let read_only = options.read_only;
        let mut held = Vec::new();
        let report = match (log.sb.start != 0, read_only) {
            (false, _) => None,
            (true, true) if options.discard_log => None,
            (true, false) if options.discard_log => {
                recovery::discard(cx, &cache, &mut log)?;
                None
            }
            (true, false) => Some(recovery::recover(cx, &cache, &mut log)?),
            (true, true) => {
                let (report, buffers) = recovery::recover_in_memory(cx, &cache, &log)?;
                held = buffers;
                Some(report)
            }
        };
        if !read_only {
            choose_features(&mut log.sb, &options);
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

    /// Commits transaction `tid`, if that has not happened, and waits for it. All who wait for the
    /// same transaction share its commit. May park. Must not be called with an open handle.
    ///
    /// # Errors
    /// `EROFS` where the journal was aborted before.
    pub fn commit_tid(&self, cx: &mut Cx, tid: Tid) -> Result<(), Errno> {
        self.shared.commit_tid(cx, tid)
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
        let tid = self.shared.last_tid(cx);
        self.shared.commit_tid(cx, tid)
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

impl Shared {
    fn new(cache: Arc<BufferCache>, options: JournalOptions, log: &Log) -> Arc<Shared> {
        // One turn of the sequence ahead, so that no transaction is number 0.
        let next_tid = Tid((1 << 32) + u64::from(log.sequence));
        let committed = AtomicU64::new(next_tid.0 - 1);
        Arc::new(Shared {
            max_transaction: log.max_transaction(),
            revokes_per_block: revoke::per_block(&log.layout),
            cache,
            log_queue: log.device.queue.clone(),
            task_ioc: AtomicU64::new(0),
            state: SpinLock::new(State {
                running: None,
                next_tid,
                commit_request: Tid(0),
                waited: Tid(0),
                flush_request: 0,
                stop: if options.read_only { Stop::Dead } else { Stop::No },
                task_idle: true,
            }),
            committed,
            barrier_sent: AtomicU64::new(next_tid.0 - 1),
            flushed: AtomicU64::new(0),
            aborted: AtomicI32::new(0),
            wait_start: WaitQueue::default(),
            wait_commit: WaitQueue::default(),
            wait_task: WaitQueue::default(),
            counters: Counters::default(),
            options,
        })
    }

    pub fn aborted(&self) -> Option<Errno> {
        match self.aborted.load(Ordering::Relaxed) {
            0 => None,
            errno => Some(Errno(errno)),
        }
    }

    #[inline]
    pub fn check_aborted(&self) -> Result<(), Errno> {
        match self.aborted.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(Errno::EROFS),
        }
    }

    pub fn abort(&self, errno: Errno) {
        let _ = self.aborted.compare_exchange(0, errno.0, Ordering::AcqRel, Ordering::Relaxed);
        self.wait_start.wake_all();
        self.wait_commit.wake_all();
        self.wait_task.wake_all();
    }

    #[inline]
    pub fn start(&self, cx: &mut Cx, credits: u32) -> Result<Arc<Transaction>, Errno> {
        if let Some(transaction) = self.try_start(credits)? {
            return Ok(transaction);
        }
        self.start_slow(cx, credits)
    }

    #[cold]
    fn start_slow(&self, cx: &mut Cx, credits: u32) -> Result<Arc<Transaction>, Errno> {
        Counters::add(&self.counters.start_waits, 1);
        // Every look is a full try: it also asks for the commit of the transaction that is full
        // now, which may be another one than the one that we began to wait for.
        self.wait_start
            .wait_for(cx, "a transaction to join", || self.try_start(credits).transpose())
    }

    /// Joins or begins the running transaction; `None` where that must wait.
    #[inline]
    fn try_start(&self, credits: u32) -> Result<Option<Arc<Transaction>>, Errno> {
        let mut guard = self.state.lock_irq();
        let state = &mut *guard;
        if self.aborted.load(Ordering::Relaxed) != 0 || state.stop != Stop::No {
            return Err(Errno::EROFS);
        }
        if let Some(running) = &mut state.running {
            if running.locked {
                return Ok(None);
            }
            if running.reserved + credits <= self.max_transaction {
                running.reserved += credits;
                running.updates += 1;
                return Ok(Some(running.transaction.clone()));
            }
            let full = running.transaction.tid;
            state.commit_request = state.commit_request.max(full);
            drop(guard);
            self.wait_task.wake_all();
            return if credits > self.max_transaction { Err(Errno::ENOSPC) } else { Ok(None) };
        }
        if credits > self.max_transaction {
            return Err(Errno::ENOSPC);
        }
        let tid = state.next_tid;
        state.next_tid = Tid(tid.0 + 1);
        let transaction = Transaction::new(tid, self.cache.queue().runtime().now());
        state.running = Some(Running {
            transaction: transaction.clone(),
            updates: 1,
            reserved: credits,
            locked: false,
        });
        let idle = std::mem::take(&mut state.task_idle);
        drop(guard);
        if idle {
            self.wait_task.wake_all();
        }
        Ok(Some(transaction))
    }

    pub fn try_extend(&self, cx: &Cx, tid: Tid, credits: u32) -> bool {
        let mut state = self.state.lock(cx);
        let Some(running) = &mut state.running else { return false };
        debug_assert_eq!(running.transaction.tid, tid, "a handle holds its transaction open");
        if running.locked || running.reserved + credits > self.max_transaction {
            return false;
        }
        running.reserved += credits;
        true
    }

    #[inline]
    pub fn stop_handle(&self, unused: u32) {
        let mut state = self.state.lock_irq();
        let running = state.running.as_mut().expect("a handle holds its transaction open");
        running.updates -= 1;
        running.reserved -= unused;
        let last = running.locked && running.updates == 0;
        drop(state);
        Counters::add(&self.counters.handles, 1);
        if last {
            self.wait_task.wake_all();
        }
    }

    /// Makes the running transaction larger by one block, whatever its limit.
    pub fn reserve_more(&self) {
        if let Some(running) = &mut self.state.lock_irq().running {
            running.reserved += 1;
        }
    }

    pub fn count_overdraft(&self) {
        Counters::add(&self.counters.overdrafts, 1);
    }

    pub fn count_revoke(&self) {
        Counters::add(&self.counters.revokes, 1);
    }

    /// The running transaction, else the last one that was.
    fn last_tid(&self, cx: &Cx) -> Tid {
        Tid(self.state.lock(cx).next_tid.0 - 1)
    }

    pub fn request_commit(&self, tid: Tid) {
        let mut state = self.state.lock_irq();
        // A transaction that has not begun cannot be asked for.
        let tid = tid.min(Tid(state.next_tid.0 - 1));
        if state.commit_request >= tid {
            return;
        }
        state.commit_request = tid;
        drop(state);
        self.wait_task.wake_all();
    }

    /// Somebody is going to wait for `tid`.
    fn note_waiter(&self, cx: &Cx, tid: Tid) {
        let mut state = self.state.lock(cx);
        state.waited = state.waited.max(tid);
    }

    pub fn commit_tid(&self, cx: &mut Cx, tid: Tid) -> Result<(), Errno> {
        let done = || self.committed.load(Ordering::Acquire) >= tid.0;
        if done() {
            return Ok(());
        }
        self.check_aborted()?;
        self.note_waiter(cx, tid);
        self.request_commit(tid);
        if self.options.yield_before_wait {
            Counters::add(&self.counters.yields, 1);
            self.log_queue.yield_to(cx.ioc(), self.task_ioc.load(Ordering::Relaxed));
        }
        self.wait_commit.wait_until(cx, "a commit", || done() || self.aborted().is_some());
        if done() { Ok(()) } else { Err(Errno::EROFS) }
    }

    fn flush(&self, cx: &mut Cx) -> Result<(), Errno> {
        self.check_aborted()?;
        let mut state = self.state.lock(cx);
        if state.stop != Stop::No {
            return Err(Errno::EROFS);
        }
        state.flush_request += 1;
        let ticket = state.flush_request;
        drop(state);
        self.wait_task.wake_all();
        let done = || self.flushed.load(Ordering::Acquire) >= ticket;
        self.wait_commit
            .wait_until(cx, "the journal's flush", || done() || self.aborted().is_some());
        if done() { Ok(()) } else { Err(Errno::EROFS) }
    }
}
