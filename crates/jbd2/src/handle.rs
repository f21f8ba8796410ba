//! Handles: one file-system operation's share in the running transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Errno;
use cache::BufferRef;
use rt::Cx;

use crate::state::Shared;
use crate::transaction::{OnCommit, OrderedData, Tid, Transaction};

/// An open operation. All that is changed under it becomes durable together, or not at all.
///
/// A handle holds its transaction open: the commit waits for it to stop. While one is open, its
/// task must not start another, nor wait for a lock that somebody holds while starting one.
/// Dropping a handle stops it without waiting for a synchronous commit.
pub struct Handle {
    shared: Arc<Shared>,
    transaction: Arc<Transaction>,
    /// Buffers that may still be dirtied for the first time.
    credits: u32,
    sync: bool,
    open: bool,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>, transaction: Arc<Transaction>, credits: u32) -> Handle {
        Handle { shared, transaction, credits, sync: false, open: true }
    }

    /// The transaction that this handle belongs to (another one after [`Handle::restart`]).
    #[inline]
    pub fn tid(&self) -> Tid {
        self.transaction.tid
    }

    /// Buffers that may still be dirtied for the first time.
    #[inline]
    pub fn credits(&self) -> u32 {
        self.credits
    }

    /// Makes [`Handle::stop`] wait for the commit.
    pub fn set_sync(&mut self) {
        self.sync = true;
    }

    /// Announces that `buffer` is going to be changed. Cheap where it belongs to the transaction
    /// already. The buffer must be up to date, or be filled whole.
    ///
    /// # Errors
    /// `EROFS` after an abort.
    #[inline]
    pub fn write_access(&mut self, cx: &mut Cx, buffer: &BufferRef) -> Result<(), Errno> {
        if buffer.journal_head.joined.load(Ordering::Relaxed) == self.transaction.tid.0 {
            return Ok(());
        }
        self.join(cx, buffer)
    }

    /// As [`Handle::write_access`], for a block that was just allocated: its old content does not
    /// matter, the caller fills it whole.
    ///
    /// # Errors
    /// `EROFS` after an abort.
    #[inline]
    pub fn create_access(&mut self, cx: &mut Cx, buffer: &BufferRef) -> Result<(), Errno> {
        self.write_access(cx, buffer)
    }

    #[cold]
    fn join(&mut self, cx: &Cx, buffer: &BufferRef) -> Result<(), Errno> {
        self.shared.check_aborted()?;
        self.transaction.join(cx, buffer);
        Ok(())
    }

    /// Says that `buffer` has been changed (or is about to be, under this handle): the commit logs
    /// its content. Costs a credit the first time in a transaction.
    ///
    /// # Errors
    /// `EROFS` after an abort.
    ///
    /// # Panics
    /// Where `write_access` was not called. With `strict_credits`, where the credits are used up.
    #[inline]
    pub fn dirty(&mut self, cx: &mut Cx, buffer: &BufferRef) -> Result<(), Errno> {
        let tid = self.transaction.tid.0;
        if buffer.journal_head.dirtied.load(Ordering::Relaxed) == tid {
            return Ok(());
        }
        self.first_dirty(cx, buffer)
    }

    #[cold]
    fn first_dirty(&mut self, _cx: &Cx, buffer: &BufferRef) -> Result<(), Errno> {
        self.shared.check_aborted()?;
        let tid = self.transaction.tid.0;
        let head = &buffer.journal_head;
        assert_eq!(
            head.joined.load(Ordering::Relaxed),
            tid,
            "block {} is dirtied without write access",
            buffer.block()
        );
        buffer.set_uptodate();
        if head.dirtied.swap(tid, Ordering::Relaxed) != tid {
            self.spend(buffer.block());
        }
        Ok(())
    }

    fn spend(&mut self, block: u64) {
        if self.credits > 0 {
            self.credits -= 1;
            return;
        }
        assert!(
            !self.shared.options.strict_credits,
            "a handle ran out of credits at block {block}: it must reserve or extend"
        );
        // The commit can always make room, so nothing breaks; but the count shows the defect.
        self.shared.reserve_more();
        self.shared.count_overdraft();
    }

    /// Takes `buffer` out of the transaction: its content will not be written. For a block that was
    /// allocated and given back; where the block may stand in the log it is revoked as well.
    ///
    /// # Errors
    /// `EROFS` after an abort.
    pub fn forget(&mut self, cx: &mut Cx, buffer: &BufferRef) -> Result<(), Errno> {
        self.shared.check_aborted()?;
        if buffer.journal_head.logged.load(Ordering::Relaxed) != 0 {
            return self.revoke(cx, buffer.block());
        }
        self.leave(buffer);
        self.shared.cache.forget_one(buffer.block());
        Ok(())
    }

    /// Gives up a metadata block that is being freed: it leaves the transaction and the cache, and
    /// no older copy of it in the log will be replayed over what the block is used for next. The
    /// block may be used again when this transaction has committed. Costs a credit, where there is
    /// one, for every block full of revoke records.
    ///
    /// # Errors
    /// `EROFS` after an abort.
    pub fn revoke(&mut self, cx: &mut Cx, block: u64) -> Result<(), Errno> {
        self.shared.check_aborted()?;
        if let Some(buffer) = self.shared.cache.forget_one(block) {
            self.leave(&buffer);
        }
        if let Some(count) = self.transaction.revoke(cx, block) {
            self.shared.count_revoke();
            // The first record of each revoke block pays for that block, so that an operation that
            // revokes without end meets the limit of its transaction.
            if count % self.shared.revokes_per_block == 1 {
                match self.credits.checked_sub(1) {
                    Some(rest) => self.credits = rest,
                    None => self.shared.reserve_more(),
                }
            }
        }
        Ok(())
    }

    fn leave(&mut self, buffer: &BufferRef) {
        let tid = self.transaction.tid.0;
        let head = &buffer.journal_head;
        let _ = head.joined.compare_exchange(tid, 0, Ordering::Relaxed, Ordering::Relaxed);
        if head.dirtied.compare_exchange(tid, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.credits += 1;
        }
    }

    /// Reserves `credits` more. `Ok(false)`: the transaction is full or about to commit, and the
    /// caller brings its change to a consistent point and calls [`Handle::restart`].
    ///
    /// # Errors
    /// `EROFS` after an abort.
    pub fn extend(&mut self, cx: &mut Cx, credits: u32) -> Result<bool, Errno> {
        self.shared.check_aborted()?;
        let extended = self.shared.try_extend(cx, self.transaction.tid, credits);
        if extended {
            self.credits += credits;
        }
        Ok(extended)
    }

    /// Says that fast commits cannot report what this transaction changes: it commits whole.
    #[inline]
    pub fn mark_ineligible(&self) {
        self.shared.mark_ineligible(self.transaction.tid);
    }

    /// Ends this operation's part in its transaction and begins anew with `credits`, perhaps in
    /// another transaction: write access to buffers must be taken again. May park, as
    /// [`Journal::start`](crate::Journal::start) does.
    ///
    /// # Errors
    /// As `start`; the handle is then closed and only good to be dropped.
    pub fn restart(&mut self, cx: &mut Cx, credits: u32) -> Result<(), Errno> {
        // Half of an operation is not for a fast commit.
        self.mark_ineligible();
        self.close();
        self.transaction = self.shared.start(cx, credits)?;
        self.credits = credits;
        self.open = true;
        self.mark_ineligible();
        Ok(())
    }

    /// Files whose data must reach the device before this transaction commits. Once per file and
    /// transaction is enough; repetitions are dropped.
    pub fn add_ordered(&mut self, cx: &mut Cx, data: Arc<dyn OrderedData>) {
        self.transaction.add_ordered(cx, data);
    }

    /// Calls `f` in the journal's task when this transaction has committed, before those who wait
    /// for the commit wake up. Not called after an abort. It must not start a handle.
    pub fn on_commit(&mut self, cx: &mut Cx, f: OnCommit) {
        self.transaction.extra.lock(cx).on_commit.push(f);
    }

    /// Calls `f` in the journal's task when all handles of this transaction have stopped and the
    /// next one has not begun: what memory has is what the log gets. For assertions. `f` must
    /// neither wait nor start a handle.
    #[cfg(debug_assertions)]
    pub fn on_freeze(&mut self, cx: &mut Cx, f: OnCommit) {
        self.transaction.extra.lock(cx).on_freeze.push(f);
    }

    /// Ends the operation. Waits for the commit where [`Handle::set_sync`] was called.
    ///
    /// # Errors
    /// `EROFS` after an abort.
    #[inline]
    pub fn stop(mut self, cx: &mut Cx) -> Result<(), Errno> {
        if self.sync {
            self.transaction.synchronous.store(true, Ordering::Relaxed);
        }
        self.close();
        if self.sync {
            return self.shared.commit_tid(cx, self.transaction.tid);
        }
        self.shared.check_aborted()
    }

    #[inline]
    fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            self.shared.stop_handle(std::mem::take(&mut self.credits));
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
