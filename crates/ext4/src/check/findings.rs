//! What a check found: the report of every format ([`vfs::check`]), with the rules of this one.

use super::rule::Rule;
use crate::format::{At, Corrupt};

/// One violation of one rule.
pub type Finding = vfs::check::Finding<Rule, At>;

/// The result of a check.
pub type CheckReport = vfs::check::CheckReport<Rule, At>;

/// Collects findings up to a limit.
pub type Findings = vfs::check::Findings<Rule, At>;

impl vfs::check::Rule for Rule {
    fn is_note(&self) -> bool {
        self.severity() == super::rule::Severity::Note
    }
}

impl From<&Corrupt> for Finding {
    fn from(corrupt: &Corrupt) -> Finding {
        let Corrupt { kind, at, .. } = corrupt;
        Finding { rule: Rule::of(kind), at: *at, detail: kind.to_string() }
    }
}
