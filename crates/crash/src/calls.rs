//! The system calls of a recorded mount: what the oracles know of the promises that were made.

use serde::{Deserialize, Serialize};

/// A call that returned without an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// What it was.
    pub op: String,
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.op)
    }
}
