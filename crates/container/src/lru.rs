//! A small cache that forgets what was not used for longest.

#![allow(clippy::disallowed_types, reason = "threads of the host, not tasks, meet here")]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use base::map::HashMap;

/// At most `capacity` values, each behind a number. Its lock is held for look-ups alone.
pub(crate) struct Lru<V> {
    capacity: usize,
    state: Mutex<State<V>>,
}

struct State<V> {
    values: HashMap<u64, (V, u64)>,
    /// Keys by their last use.
    uses: BTreeMap<u64, u64>,
    clock: u64,
}

impl<V: Clone> Lru<V> {
    pub fn new(capacity: usize) -> Lru<V> {
        let state = State { values: HashMap::default(), uses: BTreeMap::new(), clock: 0 };
        Lru { capacity: capacity.max(1), state: Mutex::new(state) }
    }

    /// The value of `key`, made by `make` where it is not there. Two threads that miss the same key
    /// make it twice.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get<E>(&self, key: u64, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.known(key) {
            return Ok(value);
        }
        let value = make()?;
        self.put(key, value.clone());
        Ok(value)
    }

    /// The value of `key`, where it is there.
    pub fn known(&self, key: u64) -> Option<V> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let (value, used) = state.values.get_mut(&key)?;
        state.uses.remove(used);
        state.clock += 1;
        *used = state.clock;
        state.uses.insert(state.clock, key);
        Some(value.clone())
    }

    /// Keeps a value; the one that was not used for longest goes where there is no room.
    pub fn put(&self, key: u64, value: V) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.clock += 1;
        let clock = state.clock;
        if let Some((_, used)) = state.values.insert(key, (value, clock)) {
            state.uses.remove(&used);
        }
        state.uses.insert(clock, key);
        while state.values.len() > self.capacity {
            let Some((_, oldest)) = state.uses.pop_first() else { break };
            state.values.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_was_not_used_for_longest_goes_first() {
        let cache = Lru::new(2);
        for key in [1, 2] {
            cache.put(key, key * 10);
        }
        assert_eq!(cache.known(1), Some(10));
        cache.put(3, 30);
        assert_eq!((cache.known(1), cache.known(2), cache.known(3)), (Some(10), None, Some(30)));
        assert_eq!(cache.get(2, || Err("asked")), Err("asked"));
        assert_eq!(cache.get::<()>(2, || Ok(20)), Ok(20));
        assert_eq!(cache.known(1), None);
    }
}
