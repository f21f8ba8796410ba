//! The calls that may be under way at once, and the queue of those that wait for it (Linux: the
//! slot table of a transport and its backlog).
//!
//! Two kinds wait in one queue, first come first served: tasks, and calls that no task waits with.
//! So write-back puts all of a file's WRITEs into the queue and is served beside readers by its
//! number of calls; were its task to wait for each slot, it would get one in turn with every
//! reader, and behind readers that are slow, dirty data would grow old.

use std::collections::VecDeque;
use std::sync::Arc;

use rt::{Completion, Cx, SpinLock};

/// Slots for tasks and calls of type `C`.
pub(super) struct Slots<C>(SpinLock<State<C>>);

struct State<C> {
    free: u64,
    waiting: VecDeque<Waiting<C>>,
}

enum Waiting<C> {
    Task(Arc<Completion<()>>),
    Call(C),
}

impl<C> Slots<C> {
    /// So many.
    pub fn new(count: u64) -> Slots<C> {
        let state = State { free: count.max(1), waiting: VecDeque::new() };
        Slots(SpinLock::named("RPC slots", state))
    }

    /// Takes a slot. May park: waits for its turn.
    pub fn acquire(&self, cx: &mut Cx) {
        let turn = {
            let mut state = self.0.lock(cx);
            if state.take() {
                return;
            }
            let turn = Arc::new(Completion::named("RPC slot"));
            state.waiting.push_back(Waiting::Task(turn.clone()));
            turn
        };
        turn.wait(cx);
    }

    /// Gives `call` back where it has a slot now; else keeps it until a [`release`](Self::release)
    /// hands it out. Does not wait.
    pub fn acquire_for(&self, call: C) -> Option<C> {
        let mut state = self.0.lock_irq();
        if state.take() {
            return Some(call);
        }
        state.waiting.push_back(Waiting::Call(call));
        None
    }

    /// A slot is free. Returns the call that has it now, where it is a call's turn. Any context.
    #[must_use = "the call has a slot and must be sent"]
    pub fn release(&self) -> Option<C> {
        let mut state = self.0.lock_irq();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.free += 1;
        }
        drop(state);
        match next? {
            Waiting::Call(call) => Some(call),
            Waiting::Task(turn) => {
                turn.complete(());
                None
            }
        }
    }
}

impl<C> State<C> {
    fn take(&mut self) -> bool {
        let can = self.free > 0 && self.waiting.is_empty();
        self.free -= u64::from(can);
        can
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::{World, WorldConfig};

    #[test]
    fn tasks_and_calls_are_served_in_the_order_in_which_they_came() {
        World::new(WorldConfig::default()).run("test", |cx| {
            let slots = Arc::new(Slots::new(1));
            slots.acquire(cx);
            assert_eq!(slots.acquire_for(1), None);
            let theirs = slots.clone();
            let task = cx.spawn("task", move |cx| theirs.acquire(cx));
            cx.sleep(base::Nanos(1));
            assert_eq!(slots.acquire_for(2), None);
            assert_eq!(slots.release(), Some(1));
            assert!(!task.is_finished());
            assert_eq!(slots.release(), None, "it is the task's");
            task.join(cx);
            assert_eq!(slots.release(), Some(2));
            assert_eq!(slots.release(), None);
            assert_eq!(slots.acquire_for(3), Some(3));
        });
    }
}
