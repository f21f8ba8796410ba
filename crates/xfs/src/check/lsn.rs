//! Whether the log has come as far as the metadata.
//!
//! Metadata that was written behind a record that is still to come has lost its log: recovery after
//! the next power cut would take it for newer than the changes to it. So it is with inodes, whose
//! numbers neither Linux nor xfs_repair compares.

use super::{Checker, Rule};
use crate::format::At;
use crate::format::log::Lsn;

/// What was written last.
#[derive(Clone, Copy)]
pub(super) struct Newest {
    lsn: u64,
    at: At,
}

impl Newest {
    pub fn none() -> Newest {
        Newest { lsn: 0, at: At::Log(0) }
    }

    /// Something was written behind this record, if it says so.
    pub fn note(&mut self, lsn: Option<u64>, at: At) {
        if let Some(lsn) = lsn.filter(|&lsn| lsn > self.lsn) {
            *self = Newest { lsn, at };
        }
    }

    pub fn join(&mut self, other: Newest) {
        self.note(Some(other.lsn), other.at);
    }
}

impl Checker<'_> {
    /// What was written last, of all that was read.
    pub(super) fn newest(&self) -> Newest {
        let (lsn, sector) = self.reader.bufs.lsns().newest();
        let mut newest = self.newest;
        newest.note(Some(lsn), At::Block(sector.0));
        newest
    }

    /// Compares it with the end of the log.
    pub(super) fn log_pass(&mut self, end: Option<Lsn>) {
        let Newest { lsn, at } = self.newest();
        if let Some(end) = end.filter(|end| lsn >= end.bits()) {
            let lsn = Lsn::from_bits(lsn);
            let text = format!("was written behind record {lsn} of the log, which ends at {end}");
            self.findings.add(Rule::LogBehind, at, text);
        }
    }
}
