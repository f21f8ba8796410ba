//! COMMIT: the server makes durable what it has in memory.

use std::sync::Arc;

use base::{Errno, Nanos};
use rt::{Completion, Cx};

use super::folio::Folio;
use super::inode::Inode;
use super::{NfsClient, auth_of, count, read_answer};
use crate::proto::{Body, Call, Proc};
use crate::rpc;
use crate::xdr::Writer;

/// What came of the wish for a COMMIT.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Commit {
    /// It is sent.
    Begun,
    /// An earlier one is not answered.
    UnderWay,
    /// The server has nothing of the file in its memory alone.
    Nothing,
}

/// First wait after a server asked to come again later, doubled up to the second.
const LATER: (Nanos, Nanos) = (Nanos::from_millis(100), Nanos::from_secs(15));

impl NfsClient {
    /// Has the server make durable what it has. May park.
    ///
    /// # Errors
    /// COMMIT failed: everything is to be sent again, and the error is latched.
    pub(super) fn commit(&self, cx: &mut Cx, inode: &Arc<Inode>) -> Result<(), Errno> {
        let mut later = LATER.0;
        loop {
            let answer = Arc::new(Completion::named("COMMIT"));
            match self.begin_commit(cx, inode, answer.clone()) {
                Commit::Nothing => return Ok(()),
                Commit::UnderWay => {
                    let over = || !inode.state.lock_irq().committing;
                    inode.wait.wait_until(cx, "COMMIT", over);
                }
                Commit::Begun => {
                    self.send_ahead(cx, inode);
                    match answer.wait(cx) {
                        Err(Errno::EAGAIN) => {
                            cx.sleep(later);
                            later = Nanos((later.0 * 2).min(LATER.1.0));
                        }
                        done => return done,
                    }
                }
            }
        }
    }

    /// Has a COMMIT sent as soon as there is a slot, one of a file at a time. Its answer is taken
    /// when it comes, and reported to whoever waits for it; `EAGAIN`: the server wants it later.
    fn begin_commit(
        &self,
        cx: &mut Cx,
        inode: &Arc<Inode>,
        waits: Arc<Completion<Result<(), Errno>>>,
    ) -> Commit {
        let Some(own) = self.own.upgrade() else { return Commit::Nothing };
        let (verf, cred) = {
            let mut guard = inode.state.lock(cx);
            let state = &mut *guard;
            if state.committing {
                return Commit::UnderWay;
            }
            if state.ours == 0 {
                return Commit::Nothing;
            }
            let mut cred = None;
            for folio in state.folios.values_mut().filter(|folio| !folio.unstable.is_empty()) {
                folio.commit_begins();
                cred = cred.or(folio.cred.clone());
            }
            if !state.folios.values().any(|folio| !folio.committing.is_empty()) {
                return Commit::Nothing;
            }
            state.committing = true;
            (state.verf, cred)
        };
        self.change_begins(cx, inode);
        count(&self.counters.calls[Proc::Commit as usize], 1);
        let auth = auth_of(cred.as_ref().unwrap_or(cx.cred()));
        let (theirs, handle) = (inode.clone(), inode.handle);
        let write = move |w: &mut Writer| Call::Commit { handle, offset: 0, count: 0 }.write(w);
        let done = move |record: Result<Vec<u8>, Errno>| {
            let now = own.rpc.runtime().now();
            let reply = record.and_then(|record| {
                let reply = read_answer(Proc::Commit, &record)?;
                let sent = match reply.body {
                    Body::Commit { verf } => Some(verf),
                    _ => None,
                };
                Ok((reply.status.check().map(|()| sent == verf), reply.wcc.clone()))
            });
            let (answer, wcc) = match reply {
                Ok((answer, wcc)) => (answer, Some(wcc)),
                Err(errno) => (Err(errno), None),
            };
            own.take_commit(&theirs, answer);
            own.change_ends(&theirs, wcc, now);
            waits.complete(answer.map(drop));
            theirs.wait.wake_all();
        };
        let numbers = (rpc::NFS, 3, Proc::Commit as u32);
        self.rpc.queue(cx, numbers, auth, Box::new(write), Box::new(done));
        Commit::Begun
    }

    /// Event context: a COMMIT has ended; true where the server is in the life in which it took the
    /// data.
    fn take_commit(&self, inode: &Inode, answer: Result<bool, Errno>) {
        let mut guard = inode.state.lock_irq();
        let state = &mut *guard;
        state.committing = false;
        match answer {
            Ok(true) | Err(Errno::EAGAIN) => {}
            Ok(false) => {
                count(&self.counters.verifier_changes, 1);
                state.losses += 1;
                state.verf = None;
            }
            Err(errno) => {
                state.error = Some(errno);
                state.failed = true;
            }
        }
        let touched: Vec<u64> = state
            .folios
            .iter()
            .filter(|(_, folio)| !folio.committing.is_empty())
            .map(|(&index, _)| index)
            .collect();
        for &index in &touched {
            let folio = state.folios.get_mut(&index).expect("just seen");
            match answer {
                Ok(true) => folio.committing.clear(),
                Err(Errno::EAGAIN) => folio.commit_is_due(),
                _ => folio.commit_failed(),
            }
            self.recount(state, index);
        }
        if let (Some(first), Some(last), Ok(true)) = (touched.first(), touched.last(), answer) {
            let size = self.folio_size();
            self.settle(state, &(first * size..last * size));
        }
    }

    /// True where something of a folio is ours.
    pub(super) fn is_ours(&self, cx: &Cx, inode: &Inode, index: u64) -> bool {
        inode.state.lock(cx).folios.get(&index).is_some_and(Folio::is_ours)
    }
}
