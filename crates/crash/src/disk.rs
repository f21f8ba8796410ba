//! Models of disks: what of the unflushed writes a power cut may lose or tear.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use base::unit::{SECTOR_SIZE, parse_size};
use device::Cut;

use crate::log::Log;

/// Bytes of a zone of a shingled disk.
const ZONE: u64 = 256 << 20;

/// What a disk does with writes that no flush covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Disk {
    /// Keeps any of them, in any order; a write is atomic by the sector.
    #[default]
    VolatileCache,
    /// Keeps their order: a prefix of them is there, and the last one may be torn by the sector.
    Barrier,
    /// Loses none that has completed: what was in flight may be there, torn by the sector, or not.
    Protected,
    /// As [`Disk::VolatileCache`], but writes are atomic by this many bytes (NVMe's AWUPF).
    Atomic(u64),
    /// Keeps the order inside each zone of this many bytes, and none between zones.
    Smr(u64),
    /// As [`Disk::VolatileCache`], but the last flush before the cut, and FUA since the one before
    /// it, were lies.
    Lying,
}

impl Disk {
    /// Bytes of the unit in which a write is torn.
    pub fn atomic_bytes(self) -> u64 {
        match self {
            Disk::Atomic(bytes) => bytes,
            _ => SECTOR_SIZE,
        }
    }

    /// Entries below the answer are durable behind the first `upto` entries of a log.
    pub fn durable(self, log: &Log, upto: usize) -> usize {
        match self {
            Disk::Lying => log.flushed_before(upto),
            _ => log.flushed(upto),
        }
    }

    /// Entries that a power cut behind the first `upto` entries may lose.
    pub fn at_stake(self, log: &Log, upto: usize) -> Vec<usize> {
        let part = self.durable(log, upto)..upto;
        match self {
            Disk::Lying => part.filter(|at| log.writes().entries[*at].changes()).collect(),
            _ => log.writes().volatile_in(part),
        }
    }
}

impl Disk {
    /// May a power cut on this disk leave what `cut` says, of which the writes in flight are not
    /// looked at? Those that are lost are in order.
    pub fn allows(self, log: &Log, cut: &Cut) -> bool {
        let is_lost = |index: &usize| cut.drop.binary_search(index).is_ok();
        match self {
            Disk::VolatileCache | Disk::Atomic(_) | Disk::Lying => true,
            Disk::Protected => cut.drop.is_empty(),
            Disk::Barrier => {
                let at_stake = self.at_stake(log, cut.upto);
                let (kept, lost) = at_stake.split_at(at_stake.len().saturating_sub(cut.drop.len()));
                let last = |(index, _): &(usize, Vec<bool>)| {
                    *index >= cut.upto || kept.last() == Some(index)
                };
                lost == cut.drop && cut.torn.iter().all(last)
            }
            Disk::Smr(zone) => {
                let mut broken = BTreeSet::new();
                self.at_stake(log, cut.upto).iter().all(|index| {
                    let zone = log.writes().entries[*index].start().bytes() / zone;
                    match is_lost(index) {
                        true => {
                            broken.insert(zone);
                            true
                        }
                        false => !broken.contains(&zone),
                    }
                })
            }
        }
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disk::VolatileCache => write!(f, "volatile-cache"),
            Disk::Barrier => write!(f, "barrier"),
            Disk::Protected => write!(f, "protected"),
            Disk::Atomic(bytes) => write!(f, "nvme-awun={bytes}"),
            Disk::Smr(ZONE) => write!(f, "smr"),
            Disk::Smr(bytes) => write!(f, "smr={bytes}"),
            Disk::Lying => write!(f, "lying"),
        }
    }
}

impl FromStr for Disk {
    type Err = String;

    /// # Errors
    /// A sentence with the models that are known.
    fn from_str(text: &str) -> Result<Disk, String> {
        let (name, size) = match text.split_once('=') {
            Some((name, size)) => (name, Some(parse_size(size).map_err(|e| e.to_string())?)),
            None => (text, None),
        };
        let sized = |bytes: u64| match bytes >= SECTOR_SIZE && bytes.is_multiple_of(SECTOR_SIZE) {
            true => Ok(bytes),
            false => Err(format!("{text}: {bytes} bytes are no multiple of a sector")),
        };
        match (name, size) {
            ("volatile-cache", None) => Ok(Disk::VolatileCache),
            ("barrier", None) => Ok(Disk::Barrier),
            ("protected", None) => Ok(Disk::Protected),
            ("nvme-awun", Some(bytes)) => sized(bytes).map(Disk::Atomic),
            ("smr", None) => Ok(Disk::Smr(ZONE)),
            ("smr", Some(bytes)) => sized(bytes).map(Disk::Smr),
            ("lying", None) => Ok(Disk::Lying),
            _ => Err(format!(
                "{text}: not a disk; known: volatile-cache, barrier, protected, nvme-awun=SIZE, \
                 smr, smr=SIZE, lying"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_shown() {
        for text in ["volatile-cache", "barrier", "protected", "nvme-awun=16384", "smr", "lying"] {
            assert_eq!(text.parse::<Disk>().map(|disk| disk.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("nvme-awun=16K".parse(), Ok(Disk::Atomic(16384)));
        for wrong in ["", "nvme-awun", "nvme-awun=100", "barrier=4", "ssd"] {
            assert!(wrong.parse::<Disk>().is_err(), "{wrong}");
        }
    }
}
