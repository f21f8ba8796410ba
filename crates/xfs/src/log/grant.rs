//! Log space: a transaction first reserves what it may need.
//!
//! Free is the ring without what lies between tail and head, without what the CIL will need when
//! it is pushed, and without what running transactions may still use. Transactions that go on
//! after a roll come before new ones and may use a last slice that new ones leave alone: they
//! hold locks, and what they hold may be what keeps the tail where it is.

use std::collections::VecDeque;

use rt::{Cx, SpinLock, WaitQueue};

use super::{Log, LogError, LogGeometry, LogHead, LogOptions, OP_HEADER};
use crate::error::Result;
use crate::format::log::{Lsn, header_blocks};

/// Bytes of the ring that are never handed out, so that head and tail do not meet.
const GAP: u64 = 4096;

struct State {
    /// Places on a line that never wraps, in bytes.
    head: u64,
    tail: u64,
    tickets: u64,
    cil: u64,
    /// Those who wait, by number.
    queue: VecDeque<u64>,
    next: u64,
    /// Rolling transactions that wait.
    urgent: u32,
}

/// The account of a log's space.
pub(crate) struct Grant {
    capacity: u64,
    state: SpinLock<State>,
    waiters: WaitQueue,
}

impl Grant {
    pub fn new(geometry: LogGeometry, head: LogHead) -> Grant {
        let state = State {
            head: geometry.position(head.head),
            tail: geometry.position(head.tail),
            tickets: 0,
            cil: 0,
            queue: VecDeque::new(),
            next: 0,
            urgent: 0,
        };
        Grant {
            capacity: geometry.bytes(),
            state: SpinLock::named("log grant", state),
            waiters: WaitQueue::named("log space"),
        }
    }

    fn free(&self, state: &State) -> u64 {
        let used = state.head - state.tail + state.tickets + state.cil + GAP;
        self.capacity.saturating_sub(used)
    }

    /// Free bytes, and the capacity.
    pub fn space(&self) -> (u64, u64) {
        (self.free(&self.state.lock_irq()), self.capacity)
    }

    /// True if a task waits for space.
    pub fn has_waiters(&self) -> bool {
        let state = self.state.lock_irq();
        !state.queue.is_empty() || state.urgent > 0
    }

    pub fn wake(&self) {
        self.waiters.wake_all();
    }

    /// Bytes that a record at the head may take.
    pub fn space_left(&self) -> u64 {
        let state = self.state.lock_irq();
        self.capacity.saturating_sub(state.head - state.tail)
    }

    /// A record was written.
    pub fn advance_head(&self, bytes: u64) {
        self.state.lock_irq().head += bytes;
    }

    /// A record on the device names this tail; the space of the checkpoint is accounted by the head
    /// from now on.
    pub fn checkpoint_done(&self, tail: u64, reserved: u64) {
        let mut state = self.state.lock_irq();
        state.tail = state.tail.max(tail);
        state.cil -= reserved;
        drop(state);
        self.wake();
    }

    /// A running transaction uses `bytes` of its reservation for the CIL.
    pub fn use_for_cil(&self, bytes: u64, of_ticket: u64) {
        let mut state = self.state.lock_irq();
        state.tickets -= of_ticket;
        state.cil += bytes;
    }

    /// Gives back what was reserved and not used.
    pub fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.state.lock_irq().tickets -= bytes;
            self.wake();
        }
    }

    fn try_take(&self, bytes: u64, reserve: u64) -> bool {
        let mut state = self.state.lock_irq();
        let can = self.free(&state) >= bytes + reserve;
        if can {
            state.tickets += bytes;
        }
        can
    }

    /// As [`Grant::try_take`], where nobody waits or the caller is `urgent`; returns what is left.
    fn take_at_once(&self, bytes: u64, reserve: u64, urgent: bool) -> Option<u64> {
        let mut state = self.state.lock_irq();
        let free = self.free(&state);
        if !(urgent || state.queue.is_empty()) || free < bytes + reserve {
            return None;
        }
        state.tickets += bytes;
        Some(free - bytes)
    }

    /// What new transactions leave to those that roll.
    fn slice(&self) -> u64 {
        self.capacity / 8
    }
}

impl Log {
    /// Bytes that `payload` bytes of regions take on the device at the most: as a checkpoint of
    /// their own, with all headers and the padding of records.
    pub(crate) fn wire_bytes(&self, payload: u64) -> u64 {
        wire_bytes(&self.geometry, &self.options, payload)
    }

    /// Reserves `bytes`. May park: waits until the tail moves.
    ///
    /// # Errors
    /// If the log could never have that much; after a shutdown.
    pub(crate) fn reserve(&self, cx: &mut Cx, bytes: u64, urgent: bool) -> Result<()> {
        self.check()?;
        let grant = &self.grant;
        let slice = if urgent { 0 } else { grant.slice() };
        if bytes + slice + GAP > grant.capacity {
            return Err(LogError::LogReservation { bytes, log: grant.capacity }.into());
        }
        if let Some(free) = grant.take_at_once(bytes, slice, urgent) {
            if free < grant.capacity / 4 {
                self.task.kick();
            }
            return Ok(());
        }
        if urgent {
            self.wait_urgent(cx, bytes)
        } else {
            self.wait_in_turn(cx, bytes, slice)
        }
        self.check()
    }

    fn wait_urgent(&self, cx: &mut Cx, bytes: u64) {
        let grant = &self.grant;
        grant.state.lock(cx).urgent += 1;
        self.task.kick();
        grant.waiters.wait_until(cx, "log space to go on", || {
            self.shut_down().is_some() || grant.try_take(bytes, 0)
        });
        grant.state.lock(cx).urgent -= 1;
    }

    fn wait_in_turn(&self, cx: &mut Cx, bytes: u64, slice: u64) {
        let grant = &self.grant;
        let turn = {
            let mut state = grant.state.lock(cx);
            state.next += 1;
            let turn = state.next;
            state.queue.push_back(turn);
            turn
        };
        self.stats.note_space_wait();
        self.task.kick();
        grant.waiters.wait_until(cx, "log space", || {
            let first = grant.state.lock_irq().queue.front() == Some(&turn);
            self.shut_down().is_some() || (first && grant.try_take(bytes, slice))
        });
        grant.state.lock(cx).queue.retain(|&waiting| waiting != turn);
        grant.wake();
    }

    /// Wakes the task where less than a quarter is free.
    pub(crate) fn push_when_low(&self) {
        let (free, capacity) = self.grant.space();
        if free < capacity / 4 {
            self.task.kick();
        }
    }

    /// The position of a sequence number, in bytes.
    pub(crate) fn position(&self, lsn: u64) -> u64 {
        self.geometry.position(Lsn::from_bits(lsn))
    }
}

/// See [`Log::wire_bytes`].
pub(crate) fn wire_bytes(geometry: &LogGeometry, options: &LogOptions, payload: u64) -> u64 {
    // Start, transaction header, commit: three operations, one of them with 16 bytes.
    let total = payload + 3 * OP_HEADER as u64 + 16;
    let headers = header_blocks(options.record_bytes as usize) as u64 * 512;
    // A record may end with up to 16 bytes that hold no operation.
    let capacity = u64::from(options.filled(geometry)) - headers - 2 * OP_HEADER as u64 - 16;
    let records = total.div_ceil(capacity);
    let padding = u64::from(geometry.stripe.max(512));
    total + records * (headers + 2 * OP_HEADER as u64 + 16) + records * padding
}
