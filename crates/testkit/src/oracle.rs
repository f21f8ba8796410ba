//! What a crash test remembers: the states that every file went through, and what was promised
//! when. At a cut of the write log, a recovered file must be in its last promised state or in one
//! that came after it.
//!
//! One thing is allowed besides: a truncate makes the rest of its last block zero, in place, and
//! the cut may come after this write and before the commit of the new size. The file then has its
//! old size and zeroes where bytes were about to be cut off (so it is with the kernel's ext4, too).

use crate::content::pattern;
use base::{Errno, Ino};
use rt::Cx;
use std::collections::BTreeMap;
use vfs::FileSystem;

/// A state of one file: where it is (`None`: removed) and its size.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Its only name.
    pub path: Option<String>,
    /// Bytes.
    pub size: u64,
}

/// One file's history.
#[derive(Default, Debug)]
struct History {
    states: Vec<State>,
    promises: Vec<Promise>,
}

/// A state that an fsync promised.
#[derive(Debug)]
struct Promise {
    /// Position in the write log when it was made.
    position: usize,
    /// Index of the state.
    state: usize,
    /// Only size and content (fdatasync): a later name may still be lost.
    data_only: bool,
}

/// All files' histories.
#[derive(Default)]
pub struct Oracle {
    files: BTreeMap<u64, History>,
}

impl Oracle {
    /// Notes that an operation is about to bring `file` into a state.
    pub fn begin(&mut self, file: u64, path: Option<&str>, size: u64) {
        let state = State { path: path.map(str::to_owned), size };
        self.files.entry(file).or_default().states.push(state);
    }

    /// The state that an fsync starting now would promise.
    pub fn state(&self, file: u64) -> usize {
        self.files[&file].states.len() - 1
    }

    /// Notes that an fsync, or with `data_only` an fdatasync, returned when the log had `position`
    /// entries: state `state` of `file` is promised.
    pub fn promise(&mut self, file: u64, state: usize, position: usize, data_only: bool) {
        let history = self.files.get_mut(&file).expect("known file");
        history.promises.push(Promise { position, state, data_only });
    }

    /// States of all files, for a sync.
    pub fn states(&self) -> Vec<(u64, usize)> {
        self.files.iter().map(|(&file, history)| (file, history.states.len() - 1)).collect()
    }

    /// How many promises were made.
    pub fn promises(&self) -> usize {
        self.files.values().map(|history| history.promises.len()).sum()
    }

    /// Compares a recovered file system with what was promised up to `position`.
    ///
    /// # Errors
    /// The first file that is not as it was promised.
    pub fn verify(&self, cx: &mut Cx, fs: &dyn FileSystem, position: usize) -> Result<(), String> {
        let found = tree(cx, fs)?;
        let block = u64::from(fs.getattr(cx, fs.root()).map_err(|e| e.to_string())?.blksize);
        for (&file, history) in &self.files {
            let made = || history.promises.iter().filter(|promise| promise.position <= position);
            let first = made().map(|promise| promise.state).max();
            let named = made().filter(|p| !p.data_only).map(|p| p.state).max();
            let allowed = &history.states[first.unwrap_or(0)..];
            // Whatever was promised, the file was made before.
            let places = &history.states[named.unwrap_or(usize::from(first.is_some()))..];
            let here: Vec<_> = history
                .states
                .iter()
                .filter_map(|state| state.path.as_ref())
                .filter_map(|path| found.get(path).map(|ino| (path, *ino)))
                .collect();
            let mut names: Vec<&String> = here.iter().map(|(path, _)| *path).collect();
            names.sort();
            names.dedup();
            let gone_is_right = first.is_none() || allowed.iter().any(|state| state.path.is_none());
            let Some(&(path, ino)) = here.last() else {
                if gone_is_right {
                    continue;
                }
                return Err(format!("file {file} is lost; promised: {allowed:?}"));
            };
            if names.len() > 1 {
                return Err(format!("file {file} has the names {names:?}"));
            }
            if !places.iter().any(|state| state.path.as_ref() == Some(path)) {
                return Err(format!("file {file} is at {path}; allowed: {places:?}"));
            }
            let sizes = allowed.iter().filter(|state| state.path.is_some()).map(|state| state.size);
            let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
            let least = if first.is_none() { 0 } else { least };
            let size = fs.getattr(cx, ino).map_err(|e| format!("{path}: {e}"))?.size;
            if !(least..=most).contains(&size) {
                return Err(format!("{path}: file {file} has {size} bytes, not {least}..={most}"));
            }
            let cuts: Vec<_> = allowed
                .windows(2)
                .filter(|two| two[1].size < two[0].size)
                .map(|two| two[1].size..two[1].size.next_multiple_of(block))
                .collect();
            content(cx, fs, ino, file, size, &cuts).map_err(|e| format!("{path}: {e}"))?;
        }
        Ok(())
    }
}

/// Reads the file whole: every byte is the pattern's, or zero where a cut may have made it so.
fn content(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    ino: Ino,
    file: u64,
    size: u64,
    cuts: &[std::ops::Range<u64>],
) -> Result<(), String> {
    let mut bytes = vec![0; size as usize];
    let mut expected = vec![0; size as usize];
    let read = fs.read(cx, ino, 0, &mut bytes).map_err(|e| e.to_string())?;
    pattern(file, 0, &mut expected);
    let cut = |at: usize| cuts.iter().any(|range| range.contains(&(at as u64)));
    let wrong = |at: &usize| bytes[*at] != expected[*at] && !(bytes[*at] == 0 && cut(*at));
    match (0..bytes.len()).find(wrong) {
        None if read as u64 == size => Ok(()),
        None => Err(format!("read {read} of {size} bytes")),
        Some(at) => Err(format!(
            "file {file} of {size} bytes differs from byte {at}: {:#x} instead of {:#x}; \
             cuts {cuts:?}",
            bytes[at], expected[at]
        )),
    }
}

/// Every path below the root with its inode.
///
/// # Errors
/// What could not be read.
pub fn tree(cx: &mut Cx, fs: &dyn FileSystem) -> Result<BTreeMap<String, Ino>, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(String::new(), fs.root())];
    while let Some((path, dir)) = folders.pop() {
        let mut names = Vec::new();
        let listed = fs.readdir(cx, dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            true
        });
        listed.map_err(|e: Errno| format!("{path}: {e}"))?;
        for name in names {
            let child = format!("{path}/{}", String::from_utf8_lossy(&name));
            let attr = fs.lookup(cx, dir, &name).map_err(|e| format!("{child}: {e}"))?;
            if attr.is_dir() {
                folders.push((child.clone(), attr.ino));
            }
            found.insert(child, attr.ino);
        }
    }
    Ok(found)
}
