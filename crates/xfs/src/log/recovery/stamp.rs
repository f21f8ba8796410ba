//! Which content is newer: the log's or the device's.
//!
//! What carries the number of its last change, an LSN, is left alone where that is not below the
//! LSN of a transaction. But Linux writes several checkpoints into one record, and all have its
//! LSN: what recovery has brought in for one of them is older than the next one.
//!
//! Source: logs that Linux 6.18 wrote for tasks that sync at the same time, and what it recovers
//! from them.

use std::collections::BTreeSet;

/// What recovery has changed for transactions of one LSN.
#[derive(Default)]
pub(super) struct Stamps {
    lsn: u64,
    /// Bytes from the start of the device.
    places: BTreeSet<u64>,
}

impl Stamps {
    /// Goes on with a transaction.
    pub fn begin(&mut self, lsn: u64) {
        if self.lsn != lsn {
            (self.lsn, self.places) = (lsn, BTreeSet::new());
        }
    }

    /// The LSN of the transaction.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Recovery has changed what lies there.
    pub fn insert(&mut self, place: u64) {
        self.places.insert(place);
    }

    /// What lies at a place.
    pub fn at(&self, place: u64) -> Stamped<'_> {
        Stamped { stamps: self, by_us: self.places.contains(&place) }
    }
}

/// A place, as recovery knows it.
pub(super) struct Stamped<'a> {
    stamps: &'a Stamps,
    by_us: bool,
}

impl Stamped<'_> {
    /// True where content with the LSN `own` has the change already: none does with 0 or all ones,
    /// which Linux puts where there is no LSN.
    pub fn is_newer(&self, own: u64) -> bool {
        match own {
            0 | u64::MAX => false,
            own if own == self.stamps.lsn => !self.by_us,
            own => own > self.stamps.lsn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_checkpoint_of_one_record_is_newer_than_the_first() {
        let mut stamps = Stamps::default();
        stamps.begin(7);
        assert!(stamps.at(512).is_newer(7) && stamps.at(512).is_newer(8));
        assert!(
            !stamps.at(512).is_newer(6)
                && !stamps.at(512).is_newer(0)
                && !stamps.at(512).is_newer(u64::MAX)
        );
        stamps.insert(512);
        stamps.begin(7);
        assert!(
            !stamps.at(512).is_newer(7)
                && stamps.at(1024).is_newer(7)
                && stamps.at(512).is_newer(8)
        );
        stamps.begin(8);
        assert!(stamps.at(512).is_newer(8) && !stamps.at(512).is_newer(7));
    }
}
