//! The report of a file-system check, the same for every format.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use base::Ino;

/// A rule that a sound file system keeps. Its display is its name, which is stable.
pub trait Rule: fmt::Display {
    /// Whether a violation is a note: Linux mounts the file system and uses it as if all were well,
    /// or its next mount puts this right.
    fn is_note(&self) -> bool;
}

/// One violation of one rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding<R, A> {
    /// The rule.
    pub rule: R,
    /// The structure.
    pub at: A,
    /// The numbers, in words.
    pub detail: String,
}

impl<R: fmt::Display, A: fmt::Display> fmt::Display for Finding<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.rule, self.at, self.detail)
    }
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckReport<R, A> {
    /// Violations, in the order in which they were found, up to a limit.
    pub findings: Vec<Finding<R, A>>,
    /// Violations that were found and not kept.
    pub more: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Directories.
    pub directories: u64,
}

impl<R: Rule, A> CheckReport<R, A> {
    /// True if nothing is wrong; notes do not count.
    pub fn is_clean(&self) -> bool {
        self.more == 0 && self.findings.iter().all(|found| found.rule.is_note())
    }
}

/// A finding without the types of its format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedFinding {
    /// The rule's name.
    pub rule: String,
    /// The structure.
    pub at: String,
    /// The numbers, in words.
    pub detail: String,
    /// It is a note ([`Rule::is_note`]), else damage.
    pub note: bool,
}

impl fmt::Display for NamedFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = if self.note { " (note)" } else { "" };
        write!(f, "{}: {}: {}{note}", self.rule, self.at, self.detail)
    }
}

/// A report without the types of its format: rules and structures by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Nothing is wrong; notes do not count.
    pub clean: bool,
    /// The findings, up to a limit.
    pub findings: Vec<NamedFinding>,
    /// Findings that are not listed.
    pub more: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Directories.
    pub directories: u64,
}

impl<R: Rule, A: fmt::Display> From<CheckReport<R, A>> for Summary {
    fn from(report: CheckReport<R, A>) -> Summary {
        let clean = report.is_clean();
        let CheckReport { findings, more, inodes_used, directories } = report;
        let named = |found: Finding<R, A>| {
            let Finding { rule, at, detail } = found;
            let note = rule.is_note();
            NamedFinding { rule: rule.to_string(), at: at.to_string(), detail, note }
        };
        let findings = findings.into_iter().map(named).collect();
        Summary { clean, findings, more, inodes_used, directories }
    }
}

/// Collects findings up to a limit.
pub struct Findings<R, A> {
    report: CheckReport<R, A>,
    max: usize,
}

impl<R, A> Findings<R, A> {
    /// None yet; keeps at most `max`.
    pub fn new(max: usize) -> Findings<R, A> {
        let (findings, more, inodes_used, directories) = (Vec::new(), 0, 0, 0);
        Findings { report: CheckReport { findings, more, inodes_used, directories }, max }
    }

    /// Adds a finding.
    pub fn add(&mut self, rule: R, at: A, detail: impl Into<String>) {
        self.keep(Finding { rule, at, detail: detail.into() });
    }

    /// Adds what the format's own checks found.
    pub fn corrupt(&mut self, found: impl Into<Finding<R, A>>) {
        self.keep(found.into());
    }

    fn keep(&mut self, found: Finding<R, A>) {
        if self.report.findings.len() < self.max {
            self.report.findings.push(found);
        } else {
            self.report.more += 1;
        }
    }

    /// None so far.
    pub fn is_empty(&self) -> bool {
        self.report.findings.is_empty() && self.report.more == 0
    }

    /// How many are kept.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Adds those of another report, without its counts.
    pub fn append(&mut self, other: CheckReport<R, A>) {
        other.findings.into_iter().for_each(|found| self.keep(found));
        self.report.more += other.more;
    }

    /// The counts, to be filled in.
    pub fn counts(&mut self) -> &mut CheckReport<R, A> {
        &mut self.report
    }

    /// The report.
    pub fn report(self) -> CheckReport<R, A> {
        self.report
    }
}

/// Who holds a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The structure, in words.
    pub what: String,
    /// The inode that it belongs to.
    pub ino: Option<Ino>,
    /// The byte of the file's content that the block begins with.
    pub offset: Option<u64>,
}

impl Holder {
    /// A structure of no inode.
    pub fn of(what: impl Into<String>) -> Holder {
        Holder { what: what.into(), ino: None, offset: None }
    }

    /// A structure of an inode, or its content from `offset` on.
    pub fn of_inode(what: &str, ino: Ino, offset: Option<u64>) -> Holder {
        Holder { what: what.to_owned(), ino: Some(ino), offset }
    }
}

/// Blocks whose holders a check notes as it meets them.
#[derive(Default)]
pub struct Watch(BTreeMap<u64, Vec<Holder>>);

impl Watch {
    /// For these blocks, by their numbers on the device.
    pub fn new(blocks: impl IntoIterator<Item = u64>) -> Watch {
        Watch(blocks.into_iter().map(|block| (block, Vec::new())).collect())
    }

    /// Nobody's holders were asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These blocks have a holder: `holder` of the block's number.
    #[inline]
    pub fn note(&mut self, run: Range<u64>, holder: impl Fn(u64) -> Holder) {
        if self.0.is_empty() || run.is_empty() {
            return;
        }
        for (&block, holders) in self.0.range_mut(run) {
            holders.push(holder(block));
        }
    }

    /// The blocks with their holders: several where they contradict each other or share it.
    pub fn into_holders(self) -> BTreeMap<u64, Vec<Holder>> {
        self.0
    }
}

/// The rules of a format: an enum `Rule` with the names and the words for them, each with what it
/// says as its documentation.
#[macro_export]
macro_rules! check_rules {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A rule that a sound file system keeps. The names are stable.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Rule { $($(#[$doc])* $name,)* }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Rule] = &[$(Rule::$name,)*];

            /// The name, in kebab case.
            pub fn name(self) -> &'static str {
                match self { $(Rule::$name => $text,)* }
            }
        }

        impl ::std::fmt::Display for Rule {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

/// How many tasks look at a file system at once.
#[derive(Clone, Copy, Debug)]
pub struct Tasks {
    /// Tasks at the most.
    pub count: usize,
    /// Items that are worth one.
    pub worth: u64,
}

impl Tasks {
    /// One alone.
    pub const ONE: Tasks = Tasks { count: 1, worth: 1 };

    /// So many tasks, or one for each processor where each has `worth` items. In virtual time,
    /// where no task saves another one time, there is one.
    pub fn new(runtime: &rt::Runtime, wanted: Option<usize>, worth: u64) -> Tasks {
        match wanted {
            _ if runtime.is_virtual() => Tasks::ONE,
            Some(count) => Tasks { count, worth: 1 },
            None => Tasks { count: runtime.cpus(), worth },
        }
    }

    /// Divides items into as many neighbouring shares as there are tasks, by their weights; into
    /// fewer where there is too little for so many.
    pub fn divide(&self, weights: &[u64]) -> Vec<Range<usize>> {
        let all: u64 = weights.iter().sum();
        let tasks = (self.count as u64).min(all / self.worth).max(1);
        let (mut shares, mut begin, mut sum) = (Vec::new(), 0, 0);
        for (index, weight) in weights.iter().enumerate() {
            sum += weight;
            if sum * tasks >= all * (shares.len() as u64 + 1) {
                shares.push(begin..index + 1);
                begin = index + 1;
            }
        }
        match shares.last_mut() {
            Some(last) => last.end = weights.len(),
            None => shares.push(0..weights.len()),
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_each_other_and_none_is_too_small() {
        let weights = [30_000, 0, 0, 20_000, 10_000, 0, 0];
        let divide = |weights: &[u64], count| Tasks { count, worth: 16_384 }.divide(weights);
        assert_eq!(divide(&weights, 2), [0..1, 1..7]);
        assert_eq!(divide(&weights, 1).len(), 1);
        assert_eq!(
            divide(&weights, 100),
            divide(&weights, 3),
            "60,000 inodes are worth three tasks"
        );
        assert_eq!(divide(&weights, 3), [0..1, 1..4, 4..7]);
        assert_eq!(divide(&[5, 5], 8), vec![0..2; 1]);
        assert_eq!(divide(&[], 8), vec![0..0; 1]);
    }
}
