//! Directories that get something once all names are in them, deepest first.
//!
//! Each is kept as the part in which its path differs from the one before: the paths of a tree of
//! 100,000 levels would take gigabytes.

/// Directories in the order in which they came, each with what it is to get.
pub struct LateDirs<T> {
    list: Vec<Late<T>>,
    /// Path of the last one.
    path: Vec<u8>,
}

struct Late<T> {
    /// Bytes that its path shares with the one before ..
    same: usize,
    /// .. and the rest of the one before.
    before: Box<[u8]>,
    what: T,
}

impl<T> LateDirs<T> {
    /// None yet.
    pub fn new() -> LateDirs<T> {
        LateDirs { list: Vec::new(), path: Vec::new() }
    }

    /// Adds the directory at a path.
    pub fn push(&mut self, path: &[u8], what: T) {
        let same = shared(&self.path, path);
        let before = self.path.split_off(same).into();
        self.path.extend_from_slice(&path[same..]);
        self.list.push(Late { same, before, what });
    }

    /// Takes the one that came last, with its path.
    pub fn pop(&mut self) -> Option<(Vec<u8>, T)> {
        let Late { same, before, what } = self.list.pop()?;
        let path = self.path.clone();
        self.path.truncate(same);
        self.path.extend_from_slice(&before);
        Some((path, what))
    }
}

/// Bytes with which both begin: compared in large parts, since paths may be long.
fn shared(one: &[u8], two: &[u8]) -> usize {
    const PART: usize = 4096;
    let parts = one.chunks_exact(PART).zip(two.chunks_exact(PART));
    let at = PART * parts.take_while(|(one, two)| one == two).count();
    let rest = one[at..].iter().zip(&two[at..]);
    at + rest.take_while(|(one, two)| one == two).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_back_from_the_last_to_the_first() {
        let paths: [&[u8]; 8] = [b"", b"t", b"t/a", b"t/a/b/c", b"t/a/bc", b"t/a", b"t/ab", b"u/v"];
        let mut dirs = LateDirs::new();
        paths.iter().enumerate().for_each(|(at, path)| dirs.push(path, at));
        for (at, path) in paths.iter().enumerate().rev() {
            assert_eq!(dirs.pop(), Some((path.to_vec(), at)));
        }
        assert_eq!(dirs.pop(), None);
    }

    #[test]
    fn a_deep_tree_takes_as_much_as_its_names() {
        let (mut dirs, mut path) = (LateDirs::new(), b"d".to_vec());
        for _ in 0..2000 {
            dirs.push(&path, ());
            path.extend_from_slice(b"/d");
        }
        dirs.push(b"e", ());
        assert_eq!(dirs.list.iter().map(|late| late.before.len()).sum::<usize>(), 3999);
        assert_eq!(shared(&[7; 9000], &[7; 8999]), 8999);
        assert_eq!(dirs.pop().map(|(path, ())| path), Some(b"e".to_vec()));
        assert_eq!(dirs.pop().map(|(path, ())| path.len()), Some(3999));
    }
}
