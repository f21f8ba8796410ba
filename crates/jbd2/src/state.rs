//! The state that the journal's task, the handles and those who wait for a commit share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use base::Errno;
use block::Queue;
use cache::BufferCache;
use rt::{Cx, SpinLock, WaitQueue};

use crate::fast_area::{FastArea, FastState};
use crate::format::revoke;
use crate::log::Log;
use crate::options::JournalOptions;
use crate::stats::Counters;
use crate::transaction::{OrderedData, Tid, Transaction};

/// The running transaction as the handles share it.
pub(crate) struct Running {
    pub transaction: Arc<Transaction>,
    /// Open handles.
    pub updates: u32,
    /// Buffers dirtied plus credits of open handles.
    pub reserved: u32,
    /// Who waits for the open handles, as bits; new ones wait too.
    pub locked: u8,
}

impl Running {
    /// The commit: new handles wait for the next transaction.
    pub const BY_COMMIT: u8 = 1;
    /// A fast commit: new handles wait until it has looked.
    pub const BY_FAST_COMMIT: u8 = 2;
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
    pub fast: FastState,
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
    /// Where fast commits are written, where they are.
    pub fast_area: Option<FastArea>,
    /// Buffers that one transaction may hold.
    pub max_transaction: u32,
    /// Buffers of a transaction that has the whole log for itself.
    pub log_room: u32,
    /// Records in a revoke block.
    pub revokes_per_block: usize,
    /// For a transaction that can be joined.
    pub wait_start: WaitQueue,
    /// For the end of a commit, of a flush, or an abort.
    pub wait_commit: WaitQueue,
    /// The journal's task, for work.
    pub wait_task: WaitQueue,
    pub counters: Counters,
    /// Free bytes of the log, and all: as its task has left them. 0 before there is one.
    pub log_bytes: [AtomicU64; 2],
}
impl Shared {
    pub fn new(cache: Arc<BufferCache>, options: JournalOptions, log: &Log) -> Arc<Shared> {
        // One turn of the sequence ahead, so that no transaction is number 0.
        let next_tid = Tid((1 << 32) + u64::from(log.sequence));
        let committed = AtomicU64::new(next_tid.0 - 1);
        Arc::new(Shared {
            fast_area: FastArea::of_log(log, &options),
            max_transaction: log.max_transaction(),
            log_room: log.room(),
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
                fast: FastState::default(),
            }),
            committed,
            barrier_sent: AtomicU64::new(next_tid.0 - 1),
            flushed: AtomicU64::new(0),
            aborted: AtomicI32::new(0),
            wait_start: WaitQueue::default(),
            wait_commit: WaitQueue::default(),
            wait_task: WaitQueue::default(),
            counters: Counters::default(),
            log_bytes: Default::default(),
            options,
        })
    }

    pub fn aborted(&self) -> Option<Errno> {
        match self.aborted.load(Ordering::Relaxed) {
            0 => None,
            errno => Some(Errno(errno)),
        }
    }

    /// Writes the data of files whose blocks a commit is about to name. A failed write stays with
    /// its file, whose `fsync` reports it. May park.
    pub fn write_ordered(&self, cx: &mut Cx, ordered: &[Arc<dyn OrderedData>]) {
        Counters::add(&self.counters.ordered, ordered.len() as u64);
        for data in ordered {
            data.start(cx);
        }
        for data in ordered {
            let _ = data.flush(cx);
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
            if running.locked != 0 {
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
            locked: 0,
        });
        let idle = std::mem::take(&mut state.task_idle);
        drop(guard);
        if idle {
            self.wait_task.wake_all();
        }
        Ok(Some(transaction))
    }

    /// Begins a transaction with one handle whose size has no other limit than the log, before
    /// anybody else begins one.
    pub fn start_alone(&self, credits: u32) -> Result<Arc<Transaction>, Errno> {
        self.check_aborted()?;
        let mut state = self.state.lock_irq();
        if state.stop != Stop::No || state.running.is_some() {
            return Err(Errno::EROFS);
        }
        let tid = state.next_tid;
        state.next_tid = Tid(tid.0 + 1);
        let transaction = Transaction::new(tid, self.cache.queue().runtime().now());
        let shared = transaction.clone();
        state.running =
            Some(Running { transaction: shared, updates: 1, reserved: credits, locked: 0 });
        Ok(transaction)
    }

    /// As [`Shared::start_alone`], once the running transaction has begun to commit. Parks.
    pub fn start_large(&self, cx: &mut Cx, credits: u32) -> Result<Arc<Transaction>, Errno> {
        if credits > self.log_room {
            return Err(Errno::ENOSPC);
        }
        self.wait_start.wait_for(cx, "a transaction of its own", || {
            let mut state = self.state.lock_irq();
            let Some(running) = &state.running else {
                drop(state);
                return Some(self.start_alone(credits));
            };
            let before = running.transaction.tid;
            state.commit_request = state.commit_request.max(before);
            drop(state);
            self.wait_task.wake_all();
            self.aborted().map(|_| Err(Errno::EROFS))
        })
    }

    pub fn try_extend(&self, cx: &Cx, tid: Tid, credits: u32) -> bool {
        let mut state = self.state.lock(cx);
        let Some(running) = &mut state.running else { return false };
        debug_assert_eq!(running.transaction.tid, tid, "a handle holds its transaction open");
        if running.locked != 0 || running.reserved + credits > self.max_transaction {
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
        let last = running.locked != 0 && running.updates == 0;
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
    pub fn last_tid(&self, cx: &Cx) -> Tid {
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
        // Whoever waited for it hears why it failed; whoever comes later cannot write.
        if done() { Ok(()) } else { Err(self.aborted().unwrap_or(Errno::EROFS)) }
    }

    pub fn flush(&self, cx: &mut Cx) -> Result<(), Errno> {
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
