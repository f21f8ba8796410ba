//! What a disk does wrong while a command is recorded.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use block::{Cause, Op};
use crash::watch::Watched;
use device::{FaultDevice, Rule};
use vfs::FileSystem;

/// A kind of fault, and which requests meet it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: FaultKind,
    /// How many requests pass first.
    skip: u64,
    /// How many of the following are met.
    count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    Write,
    Read,
    Flush,
    Full,
    Flip,
}

/// The kinds with their words.
const KINDS: [(FaultKind, &str); 5] = [
    (FaultKind::Write, "eio-write"),
    (FaultKind::Read, "eio-read"),
    (FaultKind::Flush, "eio-fsync"),
    (FaultKind::Full, "enospc"),
    (FaultKind::Flip, "flip"),
];

impl FromStr for Fault {
    type Err = String;

    /// # Errors
    /// A sentence with what is known.
    fn from_str(text: &str) -> Result<Fault, String> {
        let wrong = || {
            format!(
                "{text}: not a fault; known: eio-write=N, eio-read=N, eio-fsync=N, enospc=N, \
                 flip=N, each with N.. for all from the Nth on"
            )
        };
        let (name, which) = text.split_once('=').ok_or_else(wrong)?;
        let known = KINDS.iter().find(|(_, word)| *word == name);
        let (kind, _) = *known.ok_or_else(wrong)?;
        let (first, count) = match which.strip_suffix("..") {
            Some(first) => (first, u64::MAX),
            None => (which, 1),
        };
        match first.parse::<u64>() {
            Ok(first @ 1..) => Ok(Fault { kind, skip: first - 1, count }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = KINDS.iter().find(|(kind, _)| *kind == self.kind);
        let (_, name) = known.expect("every kind has its word");
        let more = if self.count == 1 { "" } else { ".." };
        write!(f, "{name}={}{more}", self.skip + 1)
    }
}

impl Fault {
    /// It is one of write calls, not of the disk.
    pub fn is_of_calls(&self) -> bool {
        self.kind == FaultKind::Full
    }
}

/// Lets the faults begin: what was read and written until now does not count.
pub fn begin(watched: Watched, disk: &FaultDevice, faults: &[Fault]) -> Arc<dyn FileSystem> {
    begin_on(disk, faults);
    let full = faults.iter().filter(|fault| fault.is_of_calls());
    let meet = |watched: Watched, Fault { skip, count, .. }: &Fault| {
        watched.full_at(*skip..skip.saturating_add(*count))
    };
    Arc::new(full.fold(watched, meet))
}

/// Lets those of the disk begin.
pub fn begin_on(disk: &FaultDevice, faults: &[Fault]) {
    for Fault { kind, skip, count } in faults.iter().copied() {
        let (op, fault) = match kind {
            FaultKind::Write => (Op::Write, device::Fault::Fail(Cause::Io)),
            FaultKind::Read => (Op::Read, device::Fault::Fail(Cause::Io)),
            FaultKind::Flush => (Op::Flush, device::Fault::Fail(Cause::Io)),
            FaultKind::Flip => (Op::Read, device::Fault::BitFlip),
            FaultKind::Full => continue,
        };
        disk.add(Rule { count, ..Rule::nth(op, skip, fault) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let fault = |text: &str| text.parse::<Fault>().map(|f| (f.kind, f.skip, f.count));
        assert_eq!(fault("eio-write=3"), Ok((FaultKind::Write, 2, 1)));
        assert_eq!(fault("enospc=1.."), Ok((FaultKind::Full, 0, u64::MAX)));
        for text in ["eio-write=3", "eio-read=1..", "eio-fsync=2", "enospc=1..", "flip=9"] {
            assert_eq!(text.parse::<Fault>().map(|fault| fault.to_string()), Ok(text.into()));
        }
        for wrong in ["", "eio", "eio-write", "eio-write=0", "lie=1", "flip=1..2"] {
            assert!(fault(wrong).is_err_and(|error| error.contains("known: eio-write")), "{wrong}");
        }
    }
}
