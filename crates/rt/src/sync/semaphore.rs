//! Counted permits.

use super::spin::SpinLock;
use crate::Cx;
use crate::task::{Task, Wait};
use std::collections::VecDeque;
use std::sync::Arc;

struct Waiter {
    task: Arc<Task>,
    count: u64,
}

struct State {
    free: u64,
    waiters: VecDeque<Waiter>,
}

/// A number of permits that tasks take and give back, strictly first come, first served: a large
/// request is not passed by small ones.
pub struct Semaphore {
    name: &'static str,
    state: SpinLock<State>,
}

impl Semaphore {
    /// A semaphore of `permits` permits without a name.
    pub fn new(permits: u64) -> Self {
        Semaphore::named("semaphore", permits)
    }

    /// A semaphore of `permits` permits that reports call `name`.
    pub fn named(name: &'static str, permits: u64) -> Self {
        let state = State { free: permits, waiters: VecDeque::new() };
        Semaphore { name, state: SpinLock::named("semaphore state", state) }
    }

    /// Takes one permit. May park: waits for a release.
    pub fn acquire(&self, cx: &mut Cx) {
        self.acquire_many(cx, 1);
    }

    /// Takes `count` permits at once. May park: waits for releases. More permits than were ever
    /// released wait for ever.
    pub fn acquire_many(&self, cx: &mut Cx, count: u64) {
        cx.preempt_point();
        if self.try_acquire_many(count) {
            return;
        }
        cx.settle();
        let me = cx.task_arc().clone();
        me.clear_granted();
        {
            let mut state = self.state.lock_irq();
            if state.waiters.is_empty() && state.free >= count {
                state.free -= count;
                return;
            }
            state.waiters.push_back(Waiter { task: me.clone(), count });
        }
        while !me.granted() {
            cx.park_on(Wait::on_queue("semaphore", self.name));
        }
    }

    /// Takes one permit if one is free and nobody waits. Any context.
    pub fn try_acquire(&self) -> bool {
        self.try_acquire_many(1)
    }

    /// Takes `count` permits if they are free and nobody waits. Any context.
    pub fn try_acquire_many(&self, count: u64) -> bool {
        let mut state = self.state.lock_irq();
        let can = state.waiters.is_empty() && state.free >= count;
        if can {
            state.free -= count;
        }
        can
    }

    /// Gives back `count` permits (or adds new ones) and wakes those who can go on. Any context;
    /// never waits.
    pub fn release(&self, count: u64) {
        // Woken after the state is free again: waking is a system call in real time.
        let mut granted = Vec::new();
        let mut state = self.state.lock_irq();
        state.free += count;
        while state.waiters.front().is_some_and(|w| w.count <= state.free) {
            let waiter = state.waiters.pop_front().expect("the front was just seen");
            state.free -= waiter.count;
            waiter.task.grant();
            granted.push(waiter.task);
        }
        drop(state);
        granted.iter().for_each(|task| task.wake());
    }

    /// Permits that are free now.
    pub fn available(&self) -> u64 {
        self.state.lock_irq().free
    }
}
