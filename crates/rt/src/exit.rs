//! Callbacks for the end of an I/O context.

use crate::SpinLock;
use crate::sync::shim::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// Somebody who keeps state per I/O context.
pub trait OnIocExit: Send + Sync {
    /// The task whose own context `ioc` was has ended. Called once per task, from its end, without
    /// any lock; may not wait.
    fn ioc_exit(self: Arc<Self>, ioc: u64);
}

/// Those who want to hear of ends, in the order of registration.
#[derive(Default)]
pub(crate) struct ExitHooks {
    count: AtomicU32,
    hooks: SpinLock<Vec<Weak<dyn OnIocExit>>>,
}

impl ExitHooks {
    pub fn add(&self, hook: Weak<dyn OnIocExit>) {
        let mut hooks = self.hooks.lock_irq();
        hooks.retain(|hook| hook.strong_count() > 0);
        hooks.push(hook);
        self.count.store(hooks.len() as u32, Ordering::Relaxed);
    }

    pub fn call(&self, ioc: u64) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Upgraded under the lock, called and dropped outside of it.
        let living: Vec<_> = self.hooks.lock_irq().iter().filter_map(Weak::upgrade).collect();
        living.into_iter().for_each(|hook| hook.ioc_exit(ioc));
    }
}
