//! Errors after which a copy continues, as with cp(1): each name is reported, and the command ends
//! with status 1.

use crate::out::Out;

/// Messages that are kept; the rest is counted.
const KEPT_MAX: usize = 1000;

/// The sink has stopped: the source has nobody to send to.
#[derive(Clone, Copy, Debug)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the copy was stopped")
    }
}

impl std::error::Error for Stopped {}

/// What could not be copied.
#[derive(Debug, Default)]
pub struct Problems {
    messages: Vec<String>,
    count: u64,
    /// A directory that could not be made: nothing below it is tried.
    lost: Option<Vec<u8>>,
}

impl Problems {
    /// None so far.
    pub fn new() -> Problems {
        Problems::default()
    }

    /// Notes one.
    pub fn report(&mut self, message: impl Into<String>) {
        self.count += 1;
        if self.messages.len() < KEPT_MAX {
            self.messages.push(message.into());
        }
    }

    /// The messages, and how many more there were.
    pub fn messages(&self) -> (&[String], u64) {
        (&self.messages, self.count - self.messages.len() as u64)
    }

    /// Prints them.
    pub fn show(&self, out: &Out) {
        let (messages, more) = self.messages();
        messages.iter().for_each(|message| out.problem(message));
        if more > 0 {
            out.problem(format!("{more} further errors"));
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes those of another copy over.
    pub fn append(&mut self, other: Problems) {
        let unkept = other.messages().1;
        other.messages.into_iter().for_each(|message| self.report(message));
        self.count += unkept;
    }

    /// Says that nothing below `path` can be copied.
    pub fn lose(&mut self, path: &[u8]) {
        self.lost = Some(path.to_vec());
    }

    /// True where a path lies below a directory that could not be made.
    pub fn is_lost(&self, path: &[u8]) -> bool {
        let below = |lost: &Vec<u8>| {
            lost.is_empty() || path.starts_with(lost) && path.get(lost.len()) == Some(&b'/')
        };
        self.lost.as_ref().is_some_and(below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_bounded_and_counted() {
        let mut problems = Problems::new();
        (0..1500).for_each(|n| problems.report(n.to_string()));
        assert_eq!((problems.messages().0.len(), problems.messages().1), (1000, 500));
        let mut all = Problems::new();
        all.report("first");
        all.append(problems);
        assert_eq!((all.count(), all.messages().0.len()), (1501, 1000));
    }

    #[test]
    fn what_is_below_a_lost_directory_is_lost() {
        let mut problems = Problems::new();
        assert!(!problems.is_lost(b"a/b"));
        problems.lose(b"a/b");
        let paths = [b"a/b/c" as &[u8], b"a/b", b"a/bc/d", b"a"];
        assert_eq!(paths.map(|path| problems.is_lost(path)), [true, false, false, false]);
    }
}
