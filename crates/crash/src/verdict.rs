//! Which test found that a state is wrong: recovery, the check, the oracle or the user's program.

use std::fmt::Display;

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

/// Why a state does not pass.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    /// Something is wrong with the state.
    #[error("{0}")]
    State(String),
    /// The host could not do what judging takes; nothing is known about the state.
    #[error("{0}")]
    Host(String),
}

impl From<String> for Refusal {
    fn from(message: String) -> Refusal {
        Refusal::State(message)
    }
}

impl Refusal {
    /// A failure of the host: what it could not do, and its error.
    pub fn host(what: impl Display, error: impl Display) -> Refusal {
        Refusal::Host(format!("{what}: {error}"))
    }

    /// What is wrong, where that is about the state: this verdict says so.
    pub(crate) fn by(self, verdict: Verdict) -> Failed {
        match self {
            Refusal::State(message) => Failed::Wrong((verdict, message)),
            Refusal::Host(message) => Failed::Host(message),
        }
    }
}

/// Why a visit ended.
pub(crate) enum Failed {
    /// The state is wrong.
    Wrong(Wrong),
    /// The host failed.
    Host(String),
}

impl From<Wrong> for Failed {
    fn from(wrong: Wrong) -> Failed {
        Failed::Wrong(wrong)
    }
}
