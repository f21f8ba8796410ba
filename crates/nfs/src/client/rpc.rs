//! Calls: slots, xids, answers, retransmission.
//!
//! A call keeps its xid for its life. It is sent again when its time is over, with the time
//! doubled, and when the connection ended; the server's cache of answers keeps it from being
//! carried out twice. One task, the keeper, does all sending again, so that a call whose answer is
//! a callback needs no task of its own; it also sends the calls that had to wait for a slot alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::{Errno, Nanos};
use rt::{Completion, Cx, JoinHandle, Runtime, SpinLock, WaitQueue};

use super::slots::Slots;
use crate::rpc::{self, Auth, CallHead};
use crate::wire::{Receiver, Wire};
use crate::xdr::Writer;

/// Settings of calls.
#[derive(Clone, Copy, Debug)]
pub struct RpcOptions {
    /// Calls that may be under way.
    pub slots: u64,
    /// After this time without an answer a call is sent again (Linux: `timeo`).
    pub timeout: Nanos,
    /// How often a call is sent before it fails with `ETIMEDOUT`; `None`: for ever (`hard`).
    pub attempts: Option<u32>,
}

/// Longest time between two transmissions of one call.
const TIMEOUT_MAX: Nanos = Nanos::from_secs(600);
/// First and longest wait before connecting again.
const BACKOFF: (Nanos, Nanos) = (Nanos::from_millis(50), Nanos::from_secs(5));

/// Answers whose memory is kept, and from which length on.
const SPARE_MAX: usize = 2;
const SPARE_BYTES: usize = 32 << 10;

/// Gets the record of the answer, or learns that there will be none. Event context.
pub(super) type Done = Box<dyn FnOnce(Result<Vec<u8>, Errno>) + Send>;

/// Writes the arguments of a call when it is sent.
pub(super) type Arguments = Box<dyn FnOnce(&mut Writer) + Send>;

/// A call that has not been sent yet.
struct Unsent {
    procedure: (u32, u32, u32),
    auth: Auth,
    write: Arguments,
    done: Done,
}

struct Pending {
    record: Arc<Vec<u8>>,
    deadline: Nanos,
    span: Nanos,
    sent: u32,
    done: Done,
}

#[derive(Default)]
struct State {
    pending: BTreeMap<u32, Pending>,
    /// Calls that have got a slot and are to be sent.
    ready: VecDeque<Unsent>,
    /// The connection ended since the keeper looked.
    cut: bool,
    stop: bool,
    dead: bool,
}

/// The calls of one client over one connection.
pub struct RpcClient {
    wire: Arc<dyn Wire>,
    runtime: Runtime,
    options: RpcOptions,
    slots: Slots<Unsent>,
    state: SpinLock<State>,
    keeper_wait: WaitQueue,
    keeper: SpinLock<Option<JoinHandle<()>>>,
    xid: AtomicU32,
    again: AtomicU64,
    /// Memory of answers that were long and are done with: clearing and mapping it anew would cost
    /// as much as receiving into it.
    spare: SpinLock<Vec<Vec<u8>>>,
}

impl RpcClient {
    /// Calls over `wire`. Starts the keeper.
    pub fn start(cx: &mut Cx, wire: Arc<dyn Wire>, options: RpcOptions) -> Arc<RpcClient> {
        let first_xid = cx.random() as u32;
        let client = Arc::new(RpcClient {
            wire,
            runtime: cx.runtime().clone(),
            options,
            slots: Slots::new(options.slots),
            state: SpinLock::named("RPC calls", State::default()),
            keeper_wait: WaitQueue::named("RPC keeper"),
            keeper: SpinLock::named("RPC keeper task", None),
            xid: AtomicU32::new(first_xid),
            again: AtomicU64::new(0),
            spare: SpinLock::named("RPC spare memory", Vec::new()),
        });
        let receiver: Arc<dyn Receiver> = client.clone();
        client.wire.attach(Arc::downgrade(&receiver));
        let own = client.clone();
        let keeper = cx.spawn("nfs-rpc", move |cx| own.keep(cx));
        *client.keeper.lock_irq() = Some(keeper);
        client
    }

    /// Calls that were sent again.
    pub fn retransmissions(&self) -> u64 {
        self.again.load(Ordering::Relaxed)
    }

    /// Calls a procedure and calls `done` with the answer. May park: waits for a slot and for room
    /// in the connection.
    pub(super) fn begin(
        &self,
        cx: &mut Cx,
        procedure: (u32, u32, u32),
        auth: Auth,
        write: impl FnOnce(&mut Writer),
        done: Done,
    ) {
        self.slots.acquire(cx);
        self.send(cx, procedure, auth, write, done);
    }

    /// As [`begin`](Self::begin), but where no slot is free the call waits for it by itself. May
    /// park: waits for room in the connection.
    pub(super) fn queue(
        &self,
        cx: &mut Cx,
        procedure: (u32, u32, u32),
        auth: Auth,
        write: Arguments,
        done: Done,
    ) {
        if let Some(call) = self.slots.acquire_for(Unsent { procedure, auth, write, done }) {
            self.send(cx, call.procedure, call.auth, call.write, call.done);
        }
    }

    /// Sends a call that has a slot.
    fn send(
        &self,
        cx: &mut Cx,
        (program, version, procedure): (u32, u32, u32),
        auth: Auth,
        write: impl FnOnce(&mut Writer),
        done: Done,
    ) {
        let xid = self.xid.fetch_add(1, Ordering::Relaxed);
        let mut w = rpc::call(&CallHead { xid, program, version, procedure, auth: Some(auth) });
        write(&mut w);
        let record = Arc::new(rpc::seal(w));
        let span = self.options.timeout;
        let deadline = Nanos(cx.now().0.saturating_add(span.0));
        let pending = Pending { record: record.clone(), deadline, span, sent: 1, done };
        {
            let mut state = self.state.lock(cx);
            if state.stop {
                drop(state);
                return self.end(pending.done, Err(Errno::EIO));
            }
            state.pending.insert(xid, pending);
        }
        if self.wire.send(cx, &record).is_err() {
            self.cut();
        }
    }

    /// Gives back the memory of an answer. Event context.
    pub(super) fn done_with(&self, record: Vec<u8>) {
        let mut spare = self.spare.lock_irq();
        if spare.len() < SPARE_MAX && record.len() >= SPARE_BYTES {
            spare.push(record);
        }
    }

    /// Calls a procedure and waits for the answer's record. May park.
    ///
    /// # Errors
    /// `ETIMEDOUT` no answer after all attempts; `EIO` the client is stopped.
    pub fn call(
        &self,
        cx: &mut Cx,
        procedure: (u32, u32, u32),
        auth: Auth,
        write: impl FnOnce(&mut Writer),
    ) -> Result<Vec<u8>, Errno> {
        let answer = Arc::new(Completion::named("answer of a server"));
        let theirs = answer.clone();
        let done = Box::new(move |record| theirs.complete(record));
        self.begin(cx, procedure, auth, write, done);
        answer.wait(cx)
    }

    /// Ends the connection and the keeper. Calls under way fail. May park.
    pub fn stop(&self, cx: &mut Cx) {
        self.state.lock(cx).stop = true;
        self.keeper_wait.wake_all();
        let keeper = self.keeper.lock(cx).take();
        if let Some(keeper) = keeper {
            keeper.join(cx);
        }
        self.wire.close(cx);
        self.fail_all();
    }

    /// Stops without waiting: calls under way fail, none is sent any more.
    pub(super) fn stop_hard(&self) {
        {
            let mut state = self.state.lock_irq();
            state.stop = true;
            state.dead = true;
        }
        self.keeper_wait.wake_all();
        self.fail_all();
    }

    fn fail_all(&self) {
        let (pending, ready) = {
            let mut state = self.state.lock_irq();
            (std::mem::take(&mut state.pending), std::mem::take(&mut state.ready))
        };
        pending.into_values().for_each(|call| self.end(call.done, Err(Errno::EIO)));
        ready.into_iter().for_each(|call| self.end(call.done, Err(Errno::EIO)));
    }

    /// A call is over, and the next one has its slot.
    fn end(&self, done: Done, answer: Result<Vec<u8>, Errno>) {
        done(answer);
        while let Some(call) = self.slots.release() {
            {
                let mut state = self.state.lock_irq();
                if !state.stop {
                    state.ready.push_back(call);
                    drop(state);
                    return self.keeper_wait.wake_all();
                }
            }
            (call.done)(Err(Errno::EIO));
        }
    }

    fn send_ready(&self, cx: &mut Cx) {
        loop {
            let call = self.state.lock(cx).ready.pop_front();
            let Some(call) = call else { return };
            self.send(cx, call.procedure, call.auth, call.write, call.done);
        }
    }

    fn keep(&self, cx: &mut Cx) {
        let mut backoff = BACKOFF.0;
        loop {
            let (stop, next) = {
                let state = self.state.lock(cx);
                let next = state.pending.values().map(|call| call.deadline).min();
                (state.stop, next)
            };
            if stop {
                return;
            }
            let woken = || {
                let state = self.state.lock_irq();
                state.stop || !state.ready.is_empty() || (state.cut && !state.pending.is_empty())
            };
            // Calls that begin meanwhile may be due before that one; nobody wakes us for them.
            let span = next.map_or(self.options.timeout, |next| next.since(cx.now()));
            let span = span.min(self.options.timeout);
            self.keeper_wait.wait_until_timeout(cx, "answers", span, woken);
            self.send_ready(cx);
            if self.resend(cx) {
                backoff = BACKOFF.0;
            } else {
                cx.sleep(backoff);
                backoff = Nanos((backoff.0 * 2).min(BACKOFF.1.0));
                // What could not be sent now is due as soon as there is a connection.
                self.state.lock(cx).cut = true;
            }
        }
    }

    /// Sends again what is due. False where there is no connection.
    fn resend(&self, cx: &mut Cx) -> bool {
        let now = cx.now();
        let (mut due, mut over) = (Vec::new(), Vec::new());
        {
            let mut state = self.state.lock(cx);
            let cut = std::mem::take(&mut state.cut);
            let mut late = Vec::new();
            for (&xid, call) in &mut state.pending {
                if !cut && call.deadline > now {
                    continue;
                }
                if self.options.attempts.is_some_and(|attempts| call.sent >= attempts) {
                    late.push(xid);
                    continue;
                }
                call.sent += 1;
                call.span = Nanos((call.span.0.saturating_mul(2)).min(TIMEOUT_MAX.0));
                call.deadline = Nanos(now.0.saturating_add(call.span.0));
                due.push(call.record.clone());
            }
            over.extend(late.iter().filter_map(|xid| state.pending.remove(xid)));
        }
        over.into_iter().for_each(|call| self.end(call.done, Err(Errno::ETIMEDOUT)));
        for record in due {
            self.again.fetch_add(1, Ordering::Relaxed);
            if self.wire.send(cx, &record).is_err() {
                return false;
            }
        }
        true
    }

    /// The clock that calls go by.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl Receiver for RpcClient {
    fn record(&self, record: Vec<u8>) {
        let Some(xid) = rpc::reply_xid(&record) else { return };
        let call = self.state.lock_irq().pending.remove(&xid);
        // Else an answer that came twice, or that nobody asked for.
        if let Some(call) = call {
            self.end(call.done, Ok(record));
        }
    }

    fn spare(&self) -> Option<Vec<u8>> {
        self.spare.lock_irq().pop()
    }

    fn cut(&self) {
        self.state.lock_irq().cut = true;
        self.keeper_wait.wake_all();
    }
}
