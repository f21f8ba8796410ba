//! Clusters that the disk's user does not need any more are given back.
//!
//! A cluster is free once no table that is durable refers to it; then it becomes a hole of the
//! file. A disk with a file behind it must not show that file's content instead: version 3 marks
//! such clusters as zeros, version 2 keeps them.

use std::ops::Range;

use super::{Changing, State};
use crate::Error;
use crate::qcow2::map::{ADDRESS, ClusterPlace, PACKED, ZERO};

/// Smaller holes free no block of the host.
const HOLE_MIN: u64 = 4096;

impl Changing {
    /// Gives back the clusters that lie in a range of the disk as a whole. They read as zeros from
    /// then on, or as before.
    pub(super) fn give_back(&self, range: Range<u64>) -> Result<(), Error> {
        let cluster = self.image.header.cluster();
        self.change(|state| {
            let end = range.end.min(state.size);
            // The last cluster of a disk may be longer than what is left of the disk.
            let end = if end == state.size { end } else { end / cluster * cluster };
            let mut at = range.start.next_multiple_of(cluster);
            if at < end {
                self.unmark(state)?;
            }
            while at < end {
                state.make_room(self)?;
                let (index, slot) = self.image.header.entries_of(at);
                state.load(self, index)?;
                match state.tables.contains_key(&index) {
                    true => self.give_back_cluster(state, at)?,
                    // Nothing of this table is in the file.
                    false => at += (self.entries() - slot as u64 - 1) * cluster,
                }
                at += cluster;
            }
            Ok(())
        })
    }

    /// Entries of a table of the second level.
    fn entries(&self) -> u64 {
        self.image.header.l1_span() / self.image.header.cluster()
    }

    fn give_back_cluster(&self, state: &mut State, at: u64) -> Result<(), Error> {
        let (index, slot) = self.image.header.entries_of(at);
        let (place, _) = self.place(state, at)?;
        let bits = self.image.header.cluster_bits;
        let old = state.tables.get(&index).map_or(0, |table| table.entries[slot]);
        let host = old & ADDRESS;
        let shows_behind = self.image.backing.as_ref().is_some_and(|image| image.size() > at);
        let new = match (shows_behind, self.image.header.version) {
            (true, ..3) => return Ok(()),
            (true, _) => ZERO,
            (false, _) => 0,
        };
        let gone = match place {
            ClusterPlace::Absent => return Ok(()),
            ClusterPlace::Packed { offset, len } => {
                offset >> bits..=(offset + len as u64 - 1) >> bits
            }
            ClusterPlace::Zero if host == 0 || old & PACKED != 0 => return Ok(()),
            ClusterPlace::Zero | ClusterPlace::At(_) => host >> bits..=host >> bits,
        };
        state.table_to_change(self, index)?;
        state.gone.extend(gone);
        if let Some(table) = state.tables.get_mut(&index) {
            table.entries[slot] = new;
            table.changed.insert(slot);
        }
        Ok(())
    }
}

impl State {
    /// One reference less to each of these clusters, which no durable table names any more. Those
    /// that nobody uses become holes.
    pub(super) fn release(&mut self, changing: &Changing, gone: Vec<u64>) -> Result<(), Error> {
        let (file, bits) = (&*changing.file, changing.image.header.cluster_bits);
        let mut free = Vec::new();
        for cluster in gone {
            self.counts.release(file, cluster)?;
            if self.counts.get(file, cluster)? == 0 {
                free.push(cluster);
            }
        }
        free.sort_unstable();
        for run in free.chunk_by(|before, next| before + 1 == *next) {
            let (start, len) = (run[0] << bits, (run.len() as u64) << bits);
            if len >= HOLE_MIN {
                // The space is free for others of this image anyway.
                let _no_hole = file.punch(start..start + len);
            }
        }
        Ok(())
    }
}
