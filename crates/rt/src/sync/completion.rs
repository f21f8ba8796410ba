//! One value that arrives once.

use super::spin::SpinLock;
use super::waitqueue::WaitQueue;
use crate::Cx;
use crate::task::Wait;

enum State<T> {
    Pending,
    Done(T),
    Taken,
}

/// A value that event context delivers once and one task waits for. Share it with an `Arc`.
pub struct Completion<T> {
    state: SpinLock<State<T>>,
    queue: WaitQueue,
}

impl<T> Completion<T> {
    /// A completion that has not happened.
    pub fn new() -> Self {
        Completion::named("completion")
    }

    /// A completion that has not happened and that reports call `name`.
    pub fn named(name: &'static str) -> Self {
        Completion {
            state: SpinLock::named("completion state", State::Pending),
            queue: WaitQueue::named(name),
        }
    }

    /// Delivers the value and wakes the waiter. Any context; never waits.
    ///
    /// # Panics
    /// On the second delivery.
    pub fn complete(&self, value: T) {
        {
            let mut state = self.state.lock_irq();
            assert!(matches!(*state, State::Pending), "a completion completes once");
            *state = State::Done(value);
        }
        self.queue.wake_all();
    }

    /// Takes the value. May park: waits for [`complete`](Completion::complete).
    ///
    /// # Panics
    /// Where the value has been taken before.
    pub fn wait(&self, cx: &mut Cx) -> T {
        self.wait_reporting(cx, Wait::on_queue("completion", self.queue.name()))
    }

    pub(crate) fn wait_reporting(&self, cx: &mut Cx, wait: Wait) -> T {
        let value = self.queue.wait_deadline(cx, wait, None, || self.try_take());
        value.expect("a wait without a deadline gets its value")
    }

    /// Takes the value if it is there. Any context.
    ///
    /// # Panics
    /// Where the value has been taken before.
    pub fn try_take(&self) -> Option<T> {
        let mut state = self.state.lock_irq();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(value) => Some(value),
            State::Pending => {
                *state = State::Pending;
                None
            }
            State::Taken => panic!("the value of a completion is taken once"),
        }
    }

    /// True once the value is there or taken. Any context.
    pub fn is_done(&self) -> bool {
        !matches!(*self.state.lock_irq(), State::Pending)
    }
}

impl<T> Default for Completion<T> {
    fn default() -> Self {
        Completion::new()
    }
}
