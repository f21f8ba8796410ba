//! The plan of a repair: its findings and actions.

use base::map::HashMap;

/// One thing that is wrong, what is done about it, and what is lost by it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The name of the rule of `check` that is broken.
    pub rule: &'static str,
    /// The structure, in words.
    pub at: String,
    /// What is wrong, with its numbers.
    pub detail: String,
    /// What is done.
    pub action: String,
    /// What is lost or may be wrong afterwards; None where nothing is.
    pub loss: Option<String>,
    /// The action follows from what is there: nothing is guessed, nothing is lost.
    pub safe: bool,
}

/// A block that changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Where it begins on the device, in bytes.
    pub offset: u64,
    /// What is there.
    pub old: Box<[u8]>,
    /// What will be there; as long as `old`.
    pub new: Box<[u8]>,
}

/// The plan of a repair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// What was found, in the order in which it is decided.
    pub findings: Vec<Finding>,
    /// The findings that were declined, by their index.
    pub declined: Vec<usize>,
    /// What stays wrong after the plan: findings of the check over the changed blocks.
    pub left: Vec<String>,
    /// The blocks to write, in the order of their places.
    pub changes: Vec<Change>,
    /// Where the superblock lies: it is written first, with a mark, and last without.
    pub superblock: u64,
}

impl Plan {
    /// True where there is nothing to do.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.changes.is_empty() && self.left.is_empty()
    }

    /// True where the plan may be carried out: nothing stays wrong but what was declined.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() || !self.declined.is_empty()
    }

    /// True where no action guesses or loses anything.
    pub fn is_safe(&self) -> bool {
        self.findings.iter().all(|finding| finding.safe)
    }
}

/// Collects findings and their decisions. Each finding is decided once.
pub struct Decisions<'a> {
    decide: &'a mut dyn FnMut(&Finding) -> bool,
    known: HashMap<String, bool>,
    findings: Vec<Finding>,
    declined: Vec<usize>,
}

impl<'a> Decisions<'a> {
    /// `decide` says for each finding whether its action is wanted.
    pub fn new(decide: &'a mut dyn FnMut(&Finding) -> bool) -> Decisions<'a> {
        Decisions { decide, known: HashMap::default(), findings: Vec::new(), declined: Vec::new() }
    }

    /// Adds a finding; true where its action is wanted.
    pub fn ask(&mut self, finding: Finding) -> bool {
        let key = format!("{} {} {}", finding.rule, finding.at, finding.action);
        if let Some(&wanted) = self.known.get(&key) {
            return wanted;
        }
        let wanted = (self.decide)(&finding);
        if !wanted {
            self.declined.push(self.findings.len());
        }
        self.known.insert(key, wanted);
        self.findings.push(finding);
        wanted
    }

    /// How many findings there are.
    pub fn count(&self) -> usize {
        self.findings.len()
    }

    /// Findings, and the indices of those that were declined.
    pub fn finish(self) -> (Vec<Finding>, Vec<usize>) {
        (self.findings, self.declined)
    }
}
