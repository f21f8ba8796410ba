//! A disk that becomes longer.
//!
//! The table of the first level is made anew where it is too short, and what the file behind would
//! show past the old end becomes zeros. The size in the header comes last.

use super::{Changing, State};
use crate::Error;
use crate::image::Image as _;
use crate::qcow2::L1_MAX;
use crate::qcow2::map::{ClusterPlace, ZERO};
use crate::target;

/// Bytes of a sector: the unit of a size.
const SECTOR: u64 = 512;

impl Changing {
    /// Makes the disk so many bytes long, rounded up to sectors, where it is shorter.
    pub(super) fn lengthen(&self, size: u64) -> Result<(), Error> {
        let size = size.next_multiple_of(SECTOR);
        if size <= self.size() {
            return Ok(());
        }
        self.refuse_size(size)?;
        self.change(|state| {
            self.unmark(state)?;
            state.sync(self)?;
            let needed = size.div_ceil(self.image.header.l1_span()) as usize;
            if needed > state.l1.len() {
                state.move_l1(self, needed)?;
            }
            self.hide(state, size)?;
            state.sync(self)?;
            target::write(&*self.file, 24, &size.to_be_bytes())?;
            target::flush(&*self.file)?;
            state.size = size;
            Ok(())
        })
    }

    fn refuse_size(&self, size: u64) -> Result<(), Error> {
        let (header, subject) = (&self.image.header, &self.image.subject);
        if size.div_ceil(header.l1_span()) > L1_MAX / 8 {
            let most = L1_MAX / 8 * header.l1_span();
            let what = format!("its clusters make a disk of {most} bytes at most");
            return Err(subject.unsupported(what, ""));
        }
        if self.image.snapshots.iter().any(|snapshot| snapshot.size.is_none()) {
            let what = "it has snapshots that do not say how long their disk is";
            let hint = format!("convert it: qemu-img amend -o compat=1.1 {}", subject.name);
            return Err(subject.unsupported(what, hint));
        }
        Ok(())
    }

    /// Makes zeros of what would show past the old end: the rest of its cluster, and the file
    /// behind.
    fn hide(&self, state: &mut State, size: u64) -> Result<(), Error> {
        let (header, old) = (&self.image.header, state.size);
        let cluster = header.cluster();
        let behind = self.image.backing.as_ref().map_or(0, |image| image.size());
        let edge = old.next_multiple_of(cluster);
        if old < edge {
            let shows = match self.place(state, old)?.0 {
                ClusterPlace::Zero => false,
                ClusterPlace::Absent => behind > old,
                ClusterPlace::At(_) | ClusterPlace::Packed { .. } => true,
            };
            if shows {
                self.write_cluster(state, old, &vec![0; (edge - old) as usize])?;
            }
        }
        for at in (edge..behind.min(size)).step_by(cluster as usize) {
            state.make_room(self)?;
            let (index, slot) = header.entries_of(at);
            let absent = self.place(state, at)?.0 == ClusterPlace::Absent;
            if header.version < 3 || !absent {
                self.write_cluster(state, at, &vec![0; cluster as usize])?;
                continue;
            }
            state.table_to_change(self, index)?;
            if let Some(table) = state.tables.get_mut(&index) {
                table.entries[slot] = ZERO;
                table.changed.insert(slot);
            }
        }
        Ok(())
    }
}

impl State {
    /// Writes the table of the first level to another place, with so many entries. Everything else
    /// has been written.
    fn move_l1(&mut self, changing: &Changing, entries: usize) -> Result<(), Error> {
        let (file, header) = (&*changing.file, &changing.image.header);
        let clusters = |entries: usize| (entries as u64 * 8).div_ceil(header.cluster());
        let old = self.l1_at >> header.cluster_bits;
        let gone = old..old + clusters(self.l1.len());
        let new = self.counts.take_run(file, clusters(entries))?;
        let old_counts = self.counts.write(file)?;
        self.l1.resize(entries, 0);
        let mut bytes: Vec<u8> = self.l1.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        bytes.resize((clusters(entries) * header.cluster()) as usize, 0);
        self.l1_at = new << header.cluster_bits;
        target::write(file, self.l1_at, &bytes)?;
        target::flush(file)?;
        // One sector: both or none.
        let mut words = (entries as u32).to_be_bytes().to_vec();
        words.extend(self.l1_at.to_be_bytes());
        target::write(file, 36, &words)?;
        target::flush(file)?;
        for cluster in gone.chain(old_counts.into_iter().flatten()) {
            self.counts.release(file, cluster)?;
        }
        self.counts.write(file).map(drop)
    }
}
