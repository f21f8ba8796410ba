//! Bounded queues between tasks.

use super::spin::SpinLock;
use super::waitqueue::WaitQueue;
use crate::Cx;
use std::collections::VecDeque;
use std::fmt;

/// A bounded first-in, first-out queue for any number of senders and receivers. Share it with an
/// `Arc`.
pub struct Channel<T> {
    state: SpinLock<State<T>>,
    limit: usize,
    not_full: WaitQueue,
    not_empty: WaitQueue,
}

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// The channel is closed; here is what could not be sent.
#[derive(PartialEq, Eq)]
pub struct Closed<T>(pub T);

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

/// Why nothing was sent without waiting.
#[derive(Debug, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel holds as much as it may.
    Full(T),
    /// The channel is closed.
    Closed(T),
}

/// Why nothing was received without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// Nothing is there yet.
    Empty,
    /// Nothing is there, and nothing will come: the channel is closed.
    Closed,
}

impl<T> Channel<T> {
    /// A channel for at most `limit` items (at least 1).
    pub fn new(limit: usize) -> Self {
        Channel::named("channel", limit)
    }

    /// A channel for at most `limit` items (at least 1) that reports call `name`.
    pub fn named(name: &'static str, limit: usize) -> Self {
        let state = State { items: VecDeque::new(), closed: false };
        Channel {
            state: SpinLock::named("channel state", state),
            limit: limit.max(1),
            not_full: WaitQueue::named(name),
            not_empty: WaitQueue::named(name),
        }
    }

    /// Adds `item` at the end. May park: waits for room.
    ///
    /// # Errors
    /// [`Closed`] with the item once the channel is closed.
    pub fn send(&self, cx: &mut Cx, item: T) -> Result<(), Closed<T>> {
        let mut item = Some(item);
        self.not_full.wait_for(cx, "room in a channel", || {
            match self.try_send(item.take().expect("the item is here until it is sent")) {
                Ok(()) => Some(Ok(())),
                Err(TrySendError::Closed(back)) => Some(Err(Closed(back))),
                Err(TrySendError::Full(back)) => {
                    item = Some(back);
                    None
                }
            }
        })
    }

    /// Takes the first item; `None` once the channel is closed and empty. May park: waits for an
    /// item.
    pub fn recv(&self, cx: &mut Cx) -> Option<T> {
        self.not_empty.wait_for(cx, "item in a channel", || match self.try_recv() {
            Ok(item) => Some(Some(item)),
            Err(TryRecvError::Closed) => Some(None),
            Err(TryRecvError::Empty) => None,
        })
    }

    /// Adds `item` at the end if there is room. Any context.
    ///
    /// # Errors
    /// Gives the item back where the channel is full or closed.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        {
            let mut state = self.state.lock_irq();
            if state.closed {
                return Err(TrySendError::Closed(item));
            }
            if state.items.len() >= self.limit {
                return Err(TrySendError::Full(item));
            }
            state.items.push_back(item);
        }
        self.not_empty.wake_one();
        Ok(())
    }

    /// Takes the first item if there is one. Any context.
    ///
    /// # Errors
    /// Says whether an item may still come.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let item = {
            let mut state = self.state.lock_irq();
            match state.items.pop_front() {
                Some(item) => item,
                None if state.closed => return Err(TryRecvError::Closed),
                None => return Err(TryRecvError::Empty),
            }
        };
        self.not_full.wake_one();
        Ok(item)
    }

    /// Lets nothing more in. What is inside can still be received. Any context.
    pub fn close(&self) {
        self.state.lock_irq().closed = true;
        self.not_full.wake_all();
        self.not_empty.wake_all();
    }

    /// Items inside now.
    pub fn len(&self) -> usize {
        self.state.lock_irq().items.len()
    }

    /// True where nothing is inside now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
