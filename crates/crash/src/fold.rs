//! States that are the same to recovery: one of them is recovered for all.
//!
//! Recovery, the oracle, the judge and the check run in virtual time, so that what they do is a
//! function of what they read. Where two states have the same content in every block that was read
//! of one of them, both come out the same. That is exact, and it holds for two lengths of the way:
//!
//! - [`Visits`]: the whole way, for states at one place in the log (the oracle and the marks know
//!   where the power failed);
//! - [`Checks`]: the check of a recovered file system, for all states of a log.

use std::sync::Arc;

use base::map::{HashMap, HashSet};
use rt::SpinLock;

use crate::medium::{BlockSet, Change, Medium, Stable};
use crate::verdict::Wrong;

/// Sets of blocks that are kept for the states of one place, and for the checks.
const SETS_MAX: usize = 16;
/// Contents that are kept for each set: 16 bytes each.
const CONTENTS_MAX: usize = 1 << 20;

/// The hash of a content, restricted to some blocks, beside that of the durable part.
fn key(changes: &[Change], blocks: &BlockSet) -> u128 {
    let inside = changes.iter().filter(|change| blocks.contains(&change.block));
    inside.fold(0, |key, change| key ^ change.share)
}

/// What a visit read, and what came out for which contents.
struct Visited {
    blocks: BlockSet,
    verdicts: HashMap<u128, Result<(), Wrong>>,
}

/// Visits of states by the place in the log.
pub struct Visits(SpinLock<HashMap<usize, Vec<Visited>>>);

impl Default for Visits {
    fn default() -> Visits {
        Visits(SpinLock::named("visits of crash states", HashMap::default()))
    }
}

impl Visits {
    /// What came out for a state that has the same content where it matters.
    pub fn find(&self, upto: usize, changes: &[Change]) -> Option<Result<(), Wrong>> {
        let places = self.0.lock_irq();
        let known =
            |visited: &Visited| visited.verdicts.get(&key(changes, &visited.blocks)).cloned();
        places.get(&upto)?.iter().find_map(known)
    }

    /// Notes what came out for a state whose blocks in `blocks` were read.
    pub fn add(
        &self,
        upto: usize,
        blocks: BlockSet,
        changes: &[Change],
        verdict: Result<(), Wrong>,
    ) {
        let key = key(changes, &blocks);
        let mut places = self.0.lock_irq();
        let sets = places.entry(upto).or_default();
        let full = sets.len() >= SETS_MAX;
        match sets.iter_mut().find(|visited| visited.blocks == blocks) {
            Some(known) => {
                known.verdicts.insert(key, verdict);
            }
            None if full => {}
            None => {
                let verdicts = [(key, verdict)].into_iter().collect();
                sets.push(Visited { blocks, verdicts });
            }
        }
    }

    /// Forgets the places before this one: no further state has them.
    pub fn forget_before(&self, upto: usize) {
        self.0.lock_irq().retain(|place, _| *place >= upto);
    }
}

/// What a check read, and for which contents it found nothing.
struct Checked {
    blocks: Arc<BlockSet>,
    clean: HashSet<u128>,
    /// The hash of these blocks in the durable part up to an entry.
    durable: (usize, u128),
}

/// Checks that found nothing.
pub struct Checks(SpinLock<Vec<Checked>>);

impl Default for Checks {
    fn default() -> Checks {
        Checks(SpinLock::named("checks of crash states", Vec::new()))
    }
}

impl Checks {
    /// The blocks of a check that found nothing in a file system that is the same in all of them.
    pub fn find(&self, medium: &Medium) -> Option<Arc<BlockSet>> {
        let mut sets = self.0.lock_irq();
        let sets = &mut *sets;
        let changes = medium.changes_in(|block| sets.iter().any(|set| set.blocks.contains(&block)));
        let same = |checked: &mut Checked| {
            let key = checked.durable(medium.stable()) ^ key(&changes, &checked.blocks);
            checked.clean.contains(&key)
        };
        let at = sets.iter_mut().position(same)?;
        let blocks = sets[at].blocks.clone();
        // The one that was right last is asked first; the one that never is falls off the end.
        sets[..=at].rotate_right(1);
        Some(blocks)
    }

    /// Notes that a check that read these blocks found nothing.
    pub fn add(&self, medium: &Medium, blocks: BlockSet) {
        let blocks = Arc::new(blocks);
        let changes = medium.changes_in(|block| blocks.contains(&block));
        let mut sets = self.0.lock_irq();
        let at = sets.iter().position(|checked| *checked.blocks == *blocks).unwrap_or_else(|| {
            sets.truncate(SETS_MAX - 1);
            let clean = HashSet::default();
            sets.insert(0, Checked { blocks: blocks.clone(), clean, durable: (usize::MAX, 0) });
            0
        });
        let checked = &mut sets[at];
        let key = checked.durable(medium.stable()) ^ key(&changes, &blocks);
        if checked.clean.len() >= CONTENTS_MAX {
            checked.clean.clear();
        }
        checked.clean.insert(key);
    }
}

impl Checked {
    fn durable(&mut self, stable: &Stable) -> u128 {
        if self.durable.0 != stable.upto() {
            self.durable = (stable.upto(), stable.hash_of(self.blocks.iter().copied()));
        }
        self.durable.1
    }
}
