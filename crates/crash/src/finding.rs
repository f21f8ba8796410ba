//! What an exploration found: states that fail alike are one finding.
//!
//! The list is a function of the states alone, so that one run, runs that go on, and joined shards
//! come to the same: each kind is known by what its first state said before it was shrunk,
//! kinds are in the order of their first states, and the first few of them are shrunk.

use base::map::HashMap;
use device::Cut;
use serde::{Deserialize, Serialize};

use crate::verdict::Verdict;

/// Kinds of findings that are kept; of further states nothing is known but that they are wrong.
pub const KINDS_MAX: usize = 256;
/// Kinds of findings that are shown, unless somebody wants more.
pub const FINDINGS: usize = 16;

/// A state that is wrong, with the fewest losses that were found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The number of the first such state.
    pub index: u64,
    /// Who says so.
    pub verdict: Verdict,
    /// What is wrong.
    pub message: String,
    /// The cut, after losses that do not matter were taken back.
    #[serde(with = "cuts")]
    pub cut: Cut,
    /// Further states with a message that looks alike.
    pub also: u64,
}

impl Finding {
    /// What it looks like: its message without the numbers, which differ between states that fail
    /// in one way.
    pub fn look(&self) -> String {
        look(self.verdict, &self.message)
    }
}

/// What a verdict looks like, as [`Finding::look`] says.
pub(crate) fn look(verdict: Verdict, message: &str) -> String {
    let digits = |c: char| if c.is_ascii_digit() { '#' } else { c };
    let mut look: String = message.chars().map(digits).collect();
    let mut last = ' ';
    look.retain(|c| !(std::mem::replace(&mut last, c) == '#' && c == '#'));
    format!("{verdict:?} {look}")
}

/// A cut in JSON.
mod cuts {
    use device::Cut;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Parts {
        upto: usize,
        drop: Vec<usize>,
        torn: Vec<(usize, Vec<bool>)>,
        early: Vec<usize>,
    }

    pub(super) fn serialize<S: Serializer>(cut: &Cut, out: S) -> Result<S::Ok, S::Error> {
        let Cut { upto, drop, torn, early } = cut.clone();
        Parts { upto, drop, torn, early }.serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Cut, D::Error> {
        let Parts { upto, drop, torn, early } = Parts::deserialize(input)?;
        Ok(Cut { upto, drop, torn, early })
    }
}

/// States that fail alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alike {
    /// What the first of them looked like before it was shrunk.
    pub look: String,
    /// The first of them.
    pub finding: Finding,
    /// Its losses are the fewest that were found.
    pub shrunk: bool,
}

/// What an exploration did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// States that the plan names, of all shards.
    pub planned: u64,
    /// Those with a content or marks of their own.
    pub distinct: u64,
    /// Those that were judged here.
    pub judged: u64,
    /// Those of them that were recovered for it; the others differ from one of these only in blocks
    /// that nobody reads. How many it is depends on the number of threads.
    #[serde(default)]
    pub recovered: u64,
    /// Those that the host's checker was asked about.
    #[serde(default)]
    pub asked: u64,
    /// States that are wrong.
    pub wrong: u64,
    /// What is wrong, by its first state: the kinds that are shown. Those that look alike with
    /// fewer losses are one.
    pub findings: Vec<Finding>,
    /// Kinds that are known and not among these.
    #[serde(default)]
    pub further: u64,
    /// All kinds, at most [`KINDS_MAX`]: what going on and joining need.
    #[serde(default)]
    pub kinds: Vec<Alike>,
    /// All states are judged: false while it goes on, and where `states_max` ended it.
    pub complete: bool,
    /// The state at which another run goes on.
    pub next: u64,
    /// Entries of the log up to which the power has failed.
    #[serde(default)]
    pub entries: u64,
}

impl Outcome {
    /// Takes what was found, and shows the first `most` kinds.
    pub(crate) fn show_of(&mut self, found: &Findings, most: usize) {
        self.kinds.clone_from(&found.kinds);
        self.show(most);
    }

    /// Shows the first `most` kinds, and counts the others.
    pub fn show(&mut self, most: usize) {
        let shown = &self.kinds[..most.min(self.kinds.len())];
        self.further = (self.kinds.len() - shown.len()) as u64;
        self.findings.clear();
        for Alike { finding, .. } in shown {
            // With fewer losses it may be one that is known.
            let look = finding.look();
            match self.findings.iter_mut().find(|known| known.look() == look) {
                Some(known) => known.also += finding.also + 1,
                None => self.findings.push(finding.clone()),
            }
        }
    }

    /// Two shards of one exploration together; what is [shown](Outcome::show) is still to be said.
    pub fn join(self, other: Outcome) -> Outcome {
        let mut found = Findings::new(self.kinds);
        for alike in other.kinds {
            found.join(alike);
        }
        found.kinds.sort_by_key(|alike| alike.finding.index);
        found.kinds.truncate(KINDS_MAX);
        Outcome {
            planned: self.planned.max(other.planned),
            distinct: self.distinct.max(other.distinct),
            judged: self.judged.saturating_add(other.judged),
            recovered: self.recovered.saturating_add(other.recovered),
            asked: self.asked.saturating_add(other.asked),
            entries: self.entries.max(other.entries),
            wrong: self.wrong.saturating_add(other.wrong),
            complete: self.complete && other.complete,
            next: self.next.max(other.next),
            kinds: found.kinds,
            ..Outcome::default()
        }
    }
}

/// Kinds of findings in the order of their first states.
#[derive(Default)]
pub(crate) struct Findings {
    places: HashMap<String, usize>,
    kinds: Vec<Alike>,
}

impl Findings {
    /// Those that an earlier run found.
    pub(crate) fn new(kinds: Vec<Alike>) -> Findings {
        let places = kinds.iter().enumerate().map(|(at, alike)| (alike.look.clone(), at));
        Findings { places: places.collect(), kinds }
    }

    /// The first `most` kinds, as far as they are not shrunk yet.
    pub(crate) fn not_shrunk(&mut self, most: usize) -> impl Iterator<Item = &mut Alike> {
        self.kinds.iter_mut().take(most).filter(|alike| !alike.shrunk)
    }

    /// Adds a state that comes behind all that were added.
    pub(crate) fn add(&mut self, finding: Finding) {
        let look = finding.look();
        match self.places.get(&look) {
            Some(&at) => self.kinds[at].finding.also += 1,
            None if self.kinds.len() >= KINDS_MAX => {}
            None => self.push(Alike { look, finding, shrunk: false }),
        }
    }

    fn push(&mut self, alike: Alike) {
        self.places.insert(alike.look.clone(), self.kinds.len());
        self.kinds.push(alike);
    }

    /// Adds what another shard found.
    fn join(&mut self, alike: Alike) {
        let Some(&at) = self.places.get(&alike.look) else { return self.push(alike) };
        let known = &mut self.kinds[at];
        let also = known.finding.also + alike.finding.also + 1;
        if alike.finding.index < known.finding.index {
            *known = alike;
        }
        known.finding.also = also;
    }
}
