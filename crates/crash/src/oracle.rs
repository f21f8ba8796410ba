//! What a file system promised, from the calls of a recorded run: is it there after a power cut?
//!
//! The calls of a log are put in time: each began behind some entry of the log and returned at its
//! own. What a promise covers must be there. What began and is not covered may be there or not, and
//! for every name and every byte the state may show any version that is not older than a covered
//! one. Calls that ran at the same time may have happened in either order.
//!
//! ```text
//!   history    the calls as versions of names, contents and rights; the promises, in time
//!   names      a recovered tree: the names in each directory, and the order of changes
//!   content    sizes and bytes of its files
//!   missing    what is not there though its call had returned, and which call would have kept it
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rt::Cx;
use vfs::FileSystem;

use crate::log::{Log, LogError};
use crate::recover::Kind;
use crate::verdict::{Verdict, Wrong};

mod content;
mod history;
mod missing;
mod names;
mod order;

use history::{History, Moment};

/// Whose promises are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Rules {
    /// fsync keeps a file, not its name; fsync of a directory keeps its names.
    Posix,
    /// ext4 with `data=ordered` and `auto_da_alloc`, without `fast_commit`: a call that commits
    /// brings every earlier change of names, and changes of names appear in their order. A file
    /// that replaces another one by rename has its content, where that waited for blocks. No bytes
    /// appear that were not written.
    Ext4,
    /// XFS: fsync of a file brings its names and their directories; changes of names that depend on
    /// one another appear in their order. No bytes appear that were never written.
    Xfs,
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rules::Posix => "posix",
            Rules::Ext4 => "ext4",
            Rules::Xfs => "xfs",
        })
    }
}

impl FromStr for Rules {
    type Err = String;

    /// # Errors
    /// A sentence with those that are known.
    fn from_str(text: &str) -> Result<Rules, String> {
        match text {
            "posix" => Ok(Rules::Posix),
            "ext4" => Ok(Rules::Ext4),
            "xfs" => Ok(Rules::Xfs),
            _ => Err(format!("{text}: not an oracle; known: posix, ext4, xfs")),
        }
    }
}

/// Why a log cannot be explored, or an oracle not be asked about it.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// It has no calls.
    #[error(
        "the log has no calls of a file system: it was recorded below one that is not ours, \
         and only a check can judge it"
    )]
    NoCalls,
    /// The file system before the run cannot be read.
    #[error("the file system before the run: {0}")]
    Before(String),
    /// The host could not do what an exploration takes.
    #[error("{0}")]
    Host(String),
}

/// Knows what was promised when.
pub struct Oracle {
    log: Log,
    rules: Rules,
    history: History,
}

impl fmt::Debug for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Oracle({}, {:?})", self.rules, self.log)
    }
}

impl Oracle {
    /// Reads the calls of a log. Recovers the medium as it was before the run, to know its tree.
    ///
    /// # Errors
    /// The log cannot be read or has no calls.
    pub fn new(log: &Log, kind: Kind, rules: Rules) -> Result<Oracle, OracleError> {
        let history = History::new(log, kind, rules)?;
        Ok(Oracle { log: log.clone(), rules, history })
    }

    /// Compares a recovered file system with what was promised when the log had `upto` entries.
    /// Parks.
    ///
    /// # Errors
    /// The first promise that is broken, or the first thing that was never promised and that
    /// programs rely on all the same.
    pub fn verify(&self, cx: &mut Cx, fs: &Arc<dyn FileSystem>, upto: usize) -> Result<(), Wrong> {
        let at = Moment::new(upto);
        let found = self.names(cx, &**fs, at)?;
        found.into_iter().try_for_each(|found| self.inode(cx, &**fs, &found, at))
    }
}

fn broken(message: String) -> Wrong {
    (Verdict::Broken, message)
}
