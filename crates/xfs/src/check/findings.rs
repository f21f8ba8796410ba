//! What a check found.

use std::fmt;

use super::rule::Rule;
use crate::format::{At, Corrupt};

/// One violation of one rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The structure.
    pub at: At,
    /// The numbers, in words.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.rule, self.at, self.detail)
    }
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// Violations, in the order in which they were found; at most `findings_max`.
    pub findings: Vec<Finding>,
    /// Violations that were found and not kept.
    pub more: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Directories.
    pub directories: u64,
}

impl CheckReport {
    /// True if nothing is wrong; a log that the next mount recovers is not.
    pub fn is_clean(&self) -> bool {
        self.more == 0 && self.findings.iter().all(|found| found.rule == Rule::LogReplayed)
    }
}

/// Collects findings up to a limit.
pub(super) struct Findings {
    report: CheckReport,
    max: usize,
}

impl Findings {
    pub fn new(max: usize) -> Findings {
        Findings { report: CheckReport::default(), max }
    }

    pub fn add(&mut self, rule: Rule, at: At, detail: impl Into<String>) {
        if self.report.findings.len() < self.max {
            self.report.findings.push(Finding { rule, at, detail: detail.into() });
        } else {
            self.report.more += 1;
        }
    }

    /// Adds what the format module found.
    pub fn corrupt(&mut self, corrupt: &Corrupt) {
        self.add(Rule::of(&corrupt.kind), corrupt.at, corrupt.kind.to_string());
    }

    pub fn counts(&mut self) -> &mut CheckReport {
        &mut self.report
    }

    pub fn report(self) -> CheckReport {
        self.report
    }
}
