//! Which test found that a state is wrong: recovery, the check, the oracle or the user's program.

use serde::{Deserialize, Serialize};

/// What was wrong with a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The file system could not be recovered, or is damaged.
    Damaged,
    /// The judge refused it.
    Refused,
    /// The file system promised something, and it is not there.
    Broken,
    /// Nothing was promised: the program relies on what it did not sync.
    Unsynced,
}

/// What is wrong with a state, and who says so.
pub type Wrong = (Verdict, String);
