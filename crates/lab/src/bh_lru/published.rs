//! What the document says.

use super::bed::Setup;

/// The four sets of the mail of 8 July 2014.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Set {
    /// mdtest, one shared directory, large ACL and SELinux.
    A,
    /// The same without SELinux.
    B,
    /// mds-survey, quota, one shared directory.
    C,
    /// mds-survey, quota, a directory for each thread.
    D,
}

/// Per cent of change from 8 to 16 entries: create, stat or lookup, remove or destroy.
pub type Published = [f64; 3];

/// Tasks, names before, change.
const MDTEST_A: &[(u64, u64, Published)] = &[
    (1, 0, [-8.7, -2.7, -0.5]),
    (1, 100_000, [-5.2, -0.5, -1.1]),
    (1, 500_000, [-5.1, -3.7, -1.5]),
    (1, 2_000_000, [-5.1, -4.0, -8.5]),
    (1, 5_000_000, [-4.2, -5.3, -10.2]),
    (1, 10_000_000, [-3.5, -8.0, -10.9]),
    (8, 0, [-0.3, -3.8, -1.2]),
    (8, 100_000, [-1.2, -3.7, -1.5]),
    (8, 500_000, [0.5, -3.2, -5.3]),
    (8, 2_000_000, [-1.7, -6.1, -8.7]),
    (8, 5_000_000, [-5.9, -7.7, -11.9]),
    (8, 10_000_000, [-4.1, -8.8, -13.6]),
];

const MDTEST_B: &[(u64, u64, Published)] = &[
    (1, 0, [0.0, -0.9, -1.1]),
    (1, 100_000, [1.0, -3.0, -3.5]),
    (1, 500_000, [3.7, -3.0, -2.4]),
    (1, 2_000_000, [1.1, 3.6, -0.2]),
    (1, 5_000_000, [3.5, 0.1, 5.9]),
    (1, 10_000_000, [9.0, 3.8, 6.4]),
    (8, 0, [2.4, -1.2, -4.3]),
    (8, 100_000, [-0.2, -1.8, -2.4]),
    (8, 500_000, [1.1, -0.3, 2.0]),
    (8, 2_000_000, [-0.3, -2.8, -3.3]),
    (8, 5_000_000, [0.3, -3.1, -1.3]),
    (8, 10_000_000, [1.5, 0.0, 0.7]),
];

/// Threads, change.
const SURVEY_C: &[(u64, Published)] = &[
    (1, [11.3, 1.2, 7.2]),
    (2, [6.4, 2.3, 6.9]),
    (4, [1.9, 3.0, 1.3]),
    (8, [-0.6, 4.3, 0.7]),
    (16, [0.5, 4.4, 0.6]),
];

const SURVEY_D: &[(u64, Published)] =
    &[(4, [3.2, 28.5, 5.3]), (8, [1.2, 33.9, 2.0]), (16, [0.6, 7.9, -0.2])];

impl Set {
    /// Its letter.
    pub fn letter(self) -> char {
        self.case().as_bytes()[0].into()
    }

    /// Its name among the parts of the experiment.
    pub(super) fn case(self) -> &'static str {
        match self {
            Set::A => "a",
            Set::B => "b",
            Set::C => "c",
            Set::D => "d",
        }
    }

    /// In words.
    pub fn title(self) -> &'static str {
        match self {
            Set::A => "mdtest, shared directory, large ACL, labels",
            Set::B => "mdtest, shared directory, large ACL",
            Set::C => "mds-survey, quota, shared directory",
            Set::D => "mds-survey, quota, a directory for each thread",
        }
    }

    /// Does it go through paths, as mdtest, or below names, as mds-survey?
    pub(super) fn by_path(self) -> bool {
        matches!(self, Set::A | Set::B)
    }

    pub(super) fn setup(self, names: u64) -> Setup {
        Setup {
            kind: "ext4",
            features: if self.by_path() { "large_dir" } else { "large_dir,quota" },
            block: 4096,
            acl: self.by_path(),
            label: self == Set::A,
            names,
        }
    }

    /// What the document has for this cell.
    pub(super) fn published(self, names: u64, tasks: u64) -> Option<Published> {
        let mdtest = |table: &[(u64, u64, Published)]| {
            table.iter().find(|row| (row.0, row.1) == (tasks, names)).map(|row| row.2)
        };
        let survey =
            |table: &[(u64, Published)]| table.iter().find(|row| row.0 == tasks).map(|row| row.1);
        match self {
            Set::A => mdtest(MDTEST_A),
            Set::B => mdtest(MDTEST_B),
            Set::C => survey(SURVEY_C),
            Set::D => survey(SURVEY_D),
        }
    }
}
