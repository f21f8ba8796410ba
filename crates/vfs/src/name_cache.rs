//! The name cache: which inode a name of a directory points at, so that a name that is looked up
//! again is not searched for again (Linux: the dentry cache, without what is not there).
//!
//! A table of fixed lines, in shards. A line holds one name; a set of four lines is searched. The
//! table begins empty and doubles where a set is full, up to its bound; then a line of the set is
//! used again. Long names are not kept.
//!
//! # Coherence
//!
//! The file system puts a name in while it holds the directory's lock, and takes it out while it
//! holds that lock for writing, before it changes the directory. [`NameCache::find`] needs no lock
//! of the directory: what it finds was true when it looked.

mod walks;

use base::Ino;
use base::map::FixedState;
use rt::SpinLock;
use std::hash::{BuildHasher, Hasher};

use self::walks::Walks;

/// The longest name that is kept, in bytes: a line is one line of the processor's cache.
pub const NAME_CACHED_MAX: usize = 47;

const SHARDS: usize = 32;
const WAYS: usize = 4;
/// Sets of a shard when its first name comes.
const SETS_FIRST: usize = 4;

/// One name. `ino` is 0 where the line is free.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    dir: u64,
    ino: u64,
    len: u8,
    name: [u8; NAME_CACHED_MAX],
}

const FREE: Line = Line { dir: 0, ino: 0, len: 0, name: [0; NAME_CACHED_MAX] };

impl Line {
    fn is(&self, dir: Ino, name: &[u8]) -> bool {
        self.ino != 0
            && self.dir == dir.0
            && usize::from(self.len) == name.len()
            && self.name[..name.len()] == *name
    }

    fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.len)]
    }
}

#[derive(Default)]
struct Shard {
    /// A power of two of them, or none.
    sets: Vec<[Line; WAYS]>,
    /// The line of a full set that goes next.
    turn: usize,
}

impl Shard {
    fn set(&mut self, hash: u64) -> Option<&mut [Line; WAYS]> {
        let mask = self.sets.len().checked_sub(1)?;
        Some(&mut self.sets[hash as usize & mask])
    }

    fn insert(&mut self, hash: u64, line: Line, sets_max: usize) {
        if self.sets.is_empty() {
            self.sets = vec![[FREE; WAYS]; SETS_FIRST.min(sets_max)];
        }
        loop {
            let (turn, full) = (self.turn, self.sets.len() >= sets_max);
            let set = self.set(hash).expect("a shard with sets");
            let same = set.iter().position(|old| old.is(Ino(line.dir), line.name()));
            if let Some(way) = same.or_else(|| set.iter().position(|old| old.ino == 0)) {
                set[way] = line;
                return;
            }
            if full {
                set[turn % WAYS] = line;
                self.turn = turn.wrapping_add(1);
                return;
            }
            self.double();
        }
    }

    /// A set becomes two: no line is lost.
    fn double(&mut self) {
        let sets = self.sets.len() * 2;
        let old = std::mem::replace(&mut self.sets, vec![[FREE; WAYS]; sets]);
        for line in old.into_iter().flatten().filter(|line| line.ino != 0) {
            let hash = hash(Ino(line.dir), line.name());
            let set = self.set(hash).expect("a shard with sets");
            let way = set.iter().position(|old| old.ino == 0);
            set[way.expect("half of a set has room for all of it")] = line;
        }
    }
}

/// The upper half chooses the shard, the lower one the set.
fn hash(dir: Ino, name: &[u8]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write_u64(dir.0);
    hasher.write(name);
    hasher.finish()
}

/// Finds the inode of a name. Bounded memory.
pub struct NameCache {
    shards: Box<[SpinLock<Shard>]>,
    /// Sets of a shard at the most.
    sets_max: usize,
    pub(crate) walks: Walks,
}

impl NameCache {
    /// An empty cache of up to about `names` names; none where it is 0.
    pub fn new(names: usize) -> NameCache {
        let shards = (0..SHARDS).map(|_| SpinLock::named("name cache", Shard::default()));
        let sets = names.div_ceil(SHARDS * WAYS);
        let sets_max = if sets == 0 { 0 } else { sets.next_power_of_two() };
        NameCache { shards: shards.collect(), sets_max, walks: Walks::default() }
    }

    fn shard(&self, hash: u64) -> &SpinLock<Shard> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// What `look` makes of the inode of `name` in `dir`; `None` where the name is not here. While
    /// `look` runs, under a spin lock, the name is not taken out.
    #[inline]
    pub fn find<R>(&self, dir: Ino, name: &[u8], look: impl FnOnce(Ino) -> R) -> Option<R> {
        if self.sets_max == 0 || name.len() > NAME_CACHED_MAX {
            return None;
        }
        let hash = hash(dir, name);
        let mut shard = self.shard(hash).lock_irq();
        let line = shard.set(hash)?.iter().find(|line| line.is(dir, name))?;
        Some(look(Ino(line.ino)))
    }

    /// False for a cache that keeps nothing.
    pub fn is_used(&self) -> bool {
        self.sets_max > 0
    }

    /// Keeps a name. The caller holds the lock of `dir`.
    pub fn insert(&self, dir: Ino, name: &[u8], ino: Ino) {
        if self.sets_max == 0 || name.len() > NAME_CACHED_MAX {
            return;
        }
        let mut line = Line { dir: dir.0, ino: ino.0, len: name.len() as u8, ..FREE };
        line.name[..name.len()].copy_from_slice(name);
        let hash = hash(dir, name);
        self.shard(hash).lock_irq().insert(hash, line, self.sets_max);
    }

    /// Takes a name out, before it changes. The caller holds the lock of `dir` for writing.
    pub fn remove(&self, dir: Ino, name: &[u8]) {
        if self.sets_max == 0 || name.len() > NAME_CACHED_MAX {
            return;
        }
        let hash = hash(dir, name);
        let mut shard = self.shard(hash).lock_irq();
        let Some(set) = shard.set(hash) else { return };
        if let Some(line) = set.iter_mut().find(|line| line.is(dir, name)) {
            *line = FREE;
        }
    }

    /// Takes everything out, at the end of the mount.
    pub fn clear(&self) {
        for shard in &self.shards {
            drop(std::mem::take(&mut *shard.lock_irq()));
        }
    }

    /// Memory that the names take now, in bytes.
    pub fn bytes(&self) -> u64 {
        let sets: usize = self.shards.iter().map(|shard| shard.lock_irq().sets.len()).sum();
        (sets * size_of::<[Line; WAYS]>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_line_is_a_line_of_the_processors_cache() {
        assert_eq!(size_of::<Line>(), 64);
    }

    #[test]
    fn it_never_says_what_is_not_so_and_stays_within_its_bound() {
        // Goal: random changes beside a map that forgets nothing: what is found is what the map
        // says; while everything fits nothing is forgotten; beyond that memory does not grow.
        for (names, space, all) in [(4096, 100, true), (256, 5000, false), (0, 100, false)] {
            let cache = NameCache::new(names);
            let mut truth = BTreeMap::new();
            let mut rng = base::Rng::new(11, names as u64);
            let (mut hits, mut forgotten) = (0, 0);
            for step in 1..20_000u64 {
                let (dir, number) = (Ino(2 + rng.below(3)), rng.below(space));
                let name = format!("name {number:x}").into_bytes();
                match rng.below(4) {
                    0 => {
                        cache.insert(dir, &name, Ino(step));
                        truth.insert((dir, name), step);
                    }
                    1 => {
                        cache.remove(dir, &name);
                        truth.remove(&(dir, name));
                    }
                    _ => match cache.find(dir, &name, |ino| ino.0) {
                        Some(ino) => {
                            hits += 1;
                            assert_eq!(truth.get(&(dir, name)), Some(&ino));
                        }
                        None => forgotten += u64::from(truth.contains_key(&(dir, name))),
                    },
                }
                let bound = names.next_multiple_of(SHARDS * WAYS).next_power_of_two();
                assert!(cache.bytes() <= if names == 0 { 0 } else { 64 * bound as u64 });
            }
            assert_eq!(hits > 0, names > 0);
            assert_eq!(forgotten == 0, all, "{forgotten} of {space} names");
            cache.clear();
            assert_eq!(cache.bytes(), 0);
        }
    }

    #[test]
    fn a_long_name_is_not_kept() {
        let cache = NameCache::new(100);
        let name = [b'n'; NAME_CACHED_MAX + 1];
        cache.insert(Ino(2), &name, Ino(3));
        assert_eq!(cache.find(Ino(2), &name, |ino| ino), None);
        cache.insert(Ino(2), &name[1..], Ino(3));
        assert_eq!(cache.find(Ino(2), &name[1..], |ino| ino), Some(Ino(3)));
        cache.remove(Ino(2), &name);
        assert!(cache.find(Ino(2), &name[1..], |_| ()).is_some());
    }
}
