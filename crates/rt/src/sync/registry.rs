//! Things by name that a program adds to those that are built in: elevators, machines, experiments.

use std::sync::OnceLock;

use super::spin::SpinLock;

/// What was added while the program ran, in the order of its coming. Nothing is ever taken out, so
/// a name means one thing for as long as the program runs.
pub struct Registry<T> {
    added: OnceLock<SpinLock<Vec<(&'static str, T)>>>,
}

impl<T: Copy> Registry<T> {
    /// Nothing added.
    pub const fn new() -> Registry<T> {
        Registry { added: OnceLock::new() }
    }

    fn list(&self) -> &SpinLock<Vec<(&'static str, T)>> {
        self.added.get_or_init(|| SpinLock::named("registry", Vec::new()))
    }

    /// Adds a thing.
    ///
    /// # Errors
    /// The name is taken, by one that was added or is among `built_in`, or it is none: empty, or
    /// with other characters than letters, digits, `-` and `_`.
    pub fn add(
        &self,
        mut built_in: impl Iterator<Item = &'static str>,
        name: &'static str,
        thing: T,
    ) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(plain) {
            return Err(format!("`{name}` is no name: letters, digits, - and _"));
        }
        let mut list = self.list().lock_irq();
        if built_in.any(|known| known == name) || list.iter().any(|(known, _)| *known == name) {
            return Err(format!("the name `{name}` is taken"));
        }
        list.push((name, thing));
        Ok(())
    }

    /// The names, in the order of their coming.
    pub fn names(&self) -> Vec<&'static str> {
        self.list().lock_irq().iter().map(|(name, _)| *name).collect()
    }

    /// The thing of that name.
    pub fn get(&self, name: &str) -> Option<T> {
        self.list().lock_irq().iter().find(|(known, _)| *known == name).map(|(_, thing)| *thing)
    }
}

impl<T: Copy> Default for Registry<T> {
    fn default() -> Registry<T> {
        Registry::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_once() {
        static NUMBERS: Registry<u32> = Registry::new();
        let add = |name, number| NUMBERS.add(["zero"].into_iter(), name, number);
        assert_eq!((add("one", 1), add("two", 2)), (Ok(()), Ok(())));
        for (name, why) in
            [("one", "taken"), ("zero", "taken"), ("", "no name"), ("a b", "no name")]
        {
            assert!(add(name, 3).unwrap_err().contains(why), "{name}");
        }
        assert_eq!((NUMBERS.names(), NUMBERS.get("two")), (vec!["one", "two"], Some(2)));
        assert_eq!(NUMBERS.get("three"), None);
    }
}
