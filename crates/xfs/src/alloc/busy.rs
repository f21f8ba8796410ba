//! Extents that were freed by checkpoints that are not on the device yet.

use std::collections::BTreeMap;

use crate::format::AgBlock;
use crate::trans::Trans;

/// Freed extents by group and block, with the checkpoint that frees them.
#[derive(Default)]
pub(crate) struct Busy {
    extents: BTreeMap<(u32, u32), (u32, u64)>,
    longest: u32,
}

impl Busy {
    /// Extents were freed in checkpoint `seq`.
    pub fn add(&mut self, freed: &[(AgBlock, u32)], seq: u64) {
        for &(place, len) in freed {
            let entry = self.extents.entry((place.ag, place.block)).or_insert((len, seq));
            *entry = (entry.0.max(len), entry.1.max(seq));
            self.longest = self.longest.max(len);
        }
    }

    /// Forgets what is on the device up to checkpoint `done`.
    pub fn clear(&mut self, done: u64) {
        self.extents.retain(|_, &mut (_, seq)| seq > done);
        if self.extents.is_empty() {
            self.longest = 0;
        }
    }

    /// The first busy blocks in `start..end` of a group.
    fn first(&self, ag: u32, start: u32, end: u32) -> Option<(u32, u32)> {
        let from = start.saturating_sub(self.longest);
        let mut within = self.extents.range((ag, from)..(ag, end));
        let hit = within.find(|&(&(_, block), &(len, _))| block + len > start);
        hit.map(|(&(_, block), &(len, _))| (block, block + len))
    }
}

/// The first blocks in `start..end` that a list of extents has.
fn first_of(list: &[(AgBlock, u32)], ag: u32, start: u32, end: u32) -> Option<(u32, u32)> {
    let hits = list
        .iter()
        .filter(|(place, len)| place.ag == ag && place.block < end && place.block + len > start);
    hits.map(|&(place, len)| (place.block, place.block + len)).min()
}

/// The first blocks in `start..end` that were freed by this transaction or by a checkpoint that is
/// not on the device.
pub(super) fn first_busy(trans: &Trans, ag: u32, start: u32, end: u32) -> Option<(u32, u32)> {
    let own = first_of(trans.freed(), ag, start, end);
    let others = trans.log().busy.lock_irq().first(ag, start, end);
    match (own, others) {
        (Some(own), Some(other)) => Some(own.min(other)),
        (own, other) => own.or(other),
    }
}
