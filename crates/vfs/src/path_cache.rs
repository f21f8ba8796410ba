//! Where the last walks ended: the directory of the files that a task works on, so that the next
//! path through it is not walked again (Linux's walks under RCU cost as little; here every step
//! takes locks that all tasks share).
//!
//! # Coherence
//!
//! A file system that has [`FileSystem::walk_version`](crate::FileSystem::walk_version) counts
//! every change that could make a walk over directories end elsewhere, before the operation that
//! makes it returns. An entry holds the count from before its walk began and is good while that is
//! the count.

use base::Ino;
use rt::{Cred, Cx, SpinLock};

use crate::attr::Attr;
use crate::fs::NAME_MAX;

/// Places, each used by the tasks of a remainder of their ids.
const SLOTS: usize = 16;
/// The longest path that is kept, in bytes.
const PREFIX_MAX: usize = 256;

/// A walk that ended in a directory, over directories alone.
struct Entry {
    version: u64,
    start: Ino,
    prefix: Vec<u8>,
    cred: Cred,
    /// Directories that the walk looked up.
    steps: u64,
    dir: Attr,
}

// Of a cache line of its own, so that tasks do not disturb one another.
#[derive(Default)]
#[repr(align(128))]
struct Slot(SpinLock<Option<Box<Entry>>>);

/// The last walk of each of some tasks.
#[derive(Default)]
pub(crate) struct PathCache([Slot; SLOTS]);

/// The part of a path before its last component, slashes included, and that component. `None`
/// where the last component is not a plain name, or the path is too long to be kept.
pub(crate) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let (prefix, name) = path.split_at(at);
    let plain = !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    let short = prefix.len() <= PREFIX_MAX && name.len() <= NAME_MAX;
    (plain && short).then_some((prefix, name))
}

impl PathCache {
    fn slot(&self, cx: &Cx) -> &SpinLock<Option<Box<Entry>>> {
        &self.0[cx.task().0 as usize % SLOTS].0
    }

    /// The directory where a walk over `prefix` from `start` ends, and the steps that it takes.
    pub fn find(&self, cx: &Cx, version: u64, start: Ino, prefix: &[u8]) -> Option<(Attr, u64)> {
        let slot = self.slot(cx).lock(cx);
        let entry = slot.as_ref()?;
        let good = entry.version == version
            && entry.start == start
            && entry.prefix == prefix
            && entry.cred == *cx.cred();
        good.then(|| (entry.dir.clone(), entry.steps))
    }

    /// Keeps where a walk ended that began when the count was `version`.
    pub fn keep(&self, cx: &Cx, version: u64, start: Ino, prefix: &[u8], dir: &Attr, steps: u64) {
        let mut slot = self.slot(cx).lock(cx);
        match slot.as_mut() {
            Some(entry) => {
                entry.prefix.clear();
                entry.prefix.extend_from_slice(prefix);
                if entry.cred != *cx.cred() {
                    entry.cred = cx.cred().clone();
                }
                (entry.version, entry.start, entry.steps) = (version, start, steps);
                entry.dir = dir.clone();
            }
            None => {
                let (cred, dir, prefix) = (cx.cred().clone(), dir.clone(), prefix.to_vec());
                *slot = Some(Box::new(Entry { version, start, prefix, cred, steps, dir }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_component_is_a_name_or_nothing_is_kept() {
        let split = |path: &'static str| {
            let (prefix, name) = split(path.as_bytes())?;
            Some((str::from_utf8(prefix).ok()?, str::from_utf8(name).ok()?))
        };
        assert_eq!(split("/a//b"), Some(("/a//", "b")));
        assert_eq!(split("b"), Some(("", "b")));
        assert_eq!(split("/b"), Some(("/", "b")));
        for path in ["", "/", "a/", "/a/.", "..", "a/..", "a\0"] {
            assert_eq!(split(path), None, "{path:?}");
        }
    }
}
