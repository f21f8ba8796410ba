//! When fast commits may be written: between two transactions of the log.

use rt::Cx;

use super::Task;

impl Task {
    /// A transaction has been written: fast commits may stand for the next one, from the area's
    /// first block on.
    pub fn allow_fast_commits(&self, cx: &Cx) {
        if self.shared.fast_area.is_none() {
            return;
        }
        let allowed = self.log.allows_fast_commits().then_some(self.log.sequence);
        let mut state = self.shared.state.lock(cx);
        // Where nothing was logged the last ones still mean something.
        if state.fast.sequence != allowed {
            state.fast.sequence = allowed;
            state.fast.next = 0;
        }
    }

    /// No fast commits until the next transaction has been written; false where there are some.
    pub fn forbid_fast_commits(&self, cx: &Cx) -> bool {
        if self.shared.fast_area.is_none() {
            return true;
        }
        let mut state = self.shared.state.lock(cx);
        let free = state.fast.next == 0 && !state.fast.busy;
        if free {
            state.fast.sequence = None;
        }
        free
    }
}
