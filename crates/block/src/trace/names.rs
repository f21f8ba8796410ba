//! Names of tasks.

use std::collections::BTreeMap;

/// The names of the tasks in a trace, by the numbers that the events carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessNames(BTreeMap<u32, Box<str>>);

impl ProcessNames {
    /// Remembers the name of `task`, the first one that is given.
    pub fn note(&mut self, task: u32, name: impl FnOnce() -> String) {
        self.0.entry(task).or_insert_with(|| name().into());
    }

    /// The name of `task`: `queue` for 0, `unknown` for what was never given.
    pub fn name(&self, task: u32) -> &str {
        match self.0.get(&task) {
            Some(name) => name,
            None if task == 0 => "queue",
            None => "unknown",
        }
    }

    /// All tasks by number, the queue's own included.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        let queue = (!self.0.contains_key(&0)).then_some((0, "queue"));
        queue.into_iter().chain(self.0.iter().map(|(&task, name)| (task, &**name)))
    }
}
