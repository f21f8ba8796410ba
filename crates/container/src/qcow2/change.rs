//! A qcow2 image that is written in place.
//!
//! Whatever a power cut leaves is a sound image: nothing refers to a cluster before its count and
//! its content are durable, and nothing is freed before nothing refers to it. What was not flushed
//! may be old, and clusters may stay counted that nobody uses: `qemu-img check -r leaks`.
//!
//! ```text
//!   content, counts | flush | L2 | flush, where a table is new | L1 | flush | counts of the free
//! ```

#![allow(clippy::disallowed_types, reason = "threads of the host, not tasks, meet here")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Qcow2;
use super::counts::{Counts, Place};
use super::header::incompatible;
use super::map::{ADDRESS, ClusterPlace, Entry, PACKED};
use crate::Error;
use crate::bytes::{be32, be64};
use crate::image::{Fact, Image};
use crate::kind::Format;
use crate::source;
use crate::target::{self, Target};

mod discard;
mod grow;

/// This cluster has one reference, and may be written in place.
const COPIED: u64 = 1 << 63;
/// Bytes of tables of the second level that are kept in memory.
const TABLES_BYTES: u64 = 16 << 20;

/// An image that is written.
pub(super) struct Changing {
    /// What is behind it, and what does not change.
    image: Qcow2,
    file: Arc<dyn Target>,
    state: Mutex<State>,
}

struct State {
    /// Bytes of the disk.
    size: u64,
    /// Where the table of the first level lies, and its entries.
    l1_at: u64,
    l1: Vec<u64>,
    /// Entries of the first level that changed.
    l1_changed: BTreeSet<usize>,
    /// Tables of the second level, by their entry of the first.
    tables: BTreeMap<usize, Table>,
    counts: Counts,
    /// Clusters that nobody refers to once the tables are durable.
    gone: Vec<u64>,
    /// Data was written since the last flush.
    written: bool,
    /// The header says that others may trust what we do not keep up.
    marked: bool,
    /// Writing failed: what is in memory and on the device may differ.
    failed: bool,
}

struct Table {
    at: u64,
    entries: Vec<u64>,
    changed: BTreeSet<usize>,
    /// Nothing refers to it yet.
    new: bool,
}

/// Makes an image one that can be written.
pub(super) fn open(image: Qcow2, file: Arc<dyn Target>) -> Result<Changing, Error> {
    refuse(&image)?;
    let start = source::read_some(&*file, 0, 104)?;
    let new = image.header.version >= 3;
    let place = Place {
        table_at: be64(&start, 48),
        table_clusters: be32(&start, 56),
        order: if new { be32(&start, 96) } else { 4 },
        cluster_bits: image.header.cluster_bits,
    };
    let counts = Counts::open(&*file, &image.subject, &place)?;
    let state = State {
        size: image.header.size,
        l1_at: image.header.l1_offset,
        l1: image.l1.clone(),
        l1_changed: BTreeSet::new(),
        tables: BTreeMap::new(),
        counts,
        gone: Vec::new(),
        written: false,
        marked: new && be64(&start, 88) != 0,
        failed: false,
    };
    Ok(Changing { image, file, state: Mutex::new(state) })
}

/// Refuses what would not be kept correct.
fn refuse(image: &Qcow2) -> Result<(), Error> {
    let (header, subject) = (&image.header, &image.subject);
    let name = &subject.name;
    let (what, hint) = match () {
        () if image.shown.is_some() => ("a snapshot is read, not written", String::new()),
        () if header.is(incompatible::DIRTY) => {
            ("its counts are stale (dirty)", format!("repair it: qemu-img check -r all {name}"))
        }
        () if header.extended_l2 => (
            "extended tables (subclusters) are read, not written",
            format!("convert it: qemu-img convert -O qcow2 {name} disk.qcow2"),
        ),
        () if header.data_file.is_some() => (
            "an image with a data file is read, not written",
            format!("convert it: qemu-img convert -O qcow2 {name} disk.qcow2"),
        ),
        () if header.bitmaps => (
            "it holds dirty bitmaps for backups, which writing would make wrong",
            format!("remove them: qemu-img bitmap --remove {name} NAME"),
        ),
        () => return Ok(()),
    };
    Err(subject.unsupported(what, hint))
}

impl State {
    /// Takes a cluster; answers its byte.
    fn take(&mut self, changing: &Changing) -> Result<u64, Error> {
        Ok(self.counts.take(&*changing.file)? << changing.image.header.cluster_bits)
    }

    /// The table of the second level of an entry of the first, as it is to be changed: one that
    /// shares nothing with a snapshot.
    fn table_to_change(&mut self, changing: &Changing, index: usize) -> Result<(), Error> {
        let entry = self.l1[index];
        let old = entry & ADDRESS;
        self.load(changing, index)?;
        let cluster_bits = changing.image.header.cluster_bits;
        let own = match old {
            0 => false,
            _ if self.tables.get(&index).is_some_and(|table| table.new) => true,
            _ => self.counts.get(&*changing.file, old >> cluster_bits)? == 1,
        };
        if !own {
            let at = self.take(changing)?;
            let len = (changing.image.header.l2_bytes() / 8) as usize;
            let entries = self.tables.remove(&index).map(|table| table.entries);
            let entries = entries.unwrap_or_else(|| vec![0; len]);
            let table = Table { at, entries, changed: BTreeSet::new(), new: true };
            self.tables.insert(index, table);
            if old != 0 {
                self.gone.push(old >> cluster_bits);
            }
        }
        let at = self.tables.get(&index).map_or(old, |table| table.at);
        if self.l1[index] != COPIED | at {
            self.l1[index] = COPIED | at;
            self.l1_changed.insert(index);
        }
        Ok(())
    }

    /// Brings a table into memory, where there is one.
    fn load(&mut self, changing: &Changing, index: usize) -> Result<(), Error> {
        if self.tables.contains_key(&index) {
            return Ok(());
        }
        let Some(at) = changing.image.table_of(self.l1.get(index).copied(), index)? else {
            return Ok(());
        };
        let bytes = changing.image.header.l2_bytes() as usize;
        let mut read = vec![0; bytes];
        source::read(&*changing.file, at, &mut read)?;
        let entries = read.chunks_exact(8).map(|entry| be64(entry, 0)).collect();
        let table = Table { at, entries, changed: BTreeSet::new(), new: false };
        self.tables.insert(index, table);
        Ok(())
    }

    /// Writes all tables in the order that keeps the image sound, and makes everything durable.
    fn sync(&mut self, changing: &Changing) -> Result<(), Error> {
        let file = &*changing.file;
        let changed = |table: &Table| table.new || !table.changed.is_empty();
        let tables = self.tables.values().any(changed);
        if !tables && self.l1_changed.is_empty() && !self.counts.is_dirty() {
            if std::mem::take(&mut self.written) {
                target::flush(file)?;
            }
            return Ok(());
        }
        let old_table = self.counts.write(file)?;
        target::flush(file)?;
        let any_new = self.tables.values().any(|table| table.new);
        for table in self.tables.values_mut() {
            table.write(file)?;
        }
        if any_new {
            target::flush(file)?;
        }
        for index in std::mem::take(&mut self.l1_changed) {
            let at = self.l1_at + index as u64 * 8;
            target::write(file, at, &self.l1[index].to_be_bytes())?;
        }
        target::flush(file)?;
        self.written = false;
        let gone = std::mem::take(&mut self.gone);
        self.release(changing, gone.into_iter().chain(old_table.into_iter().flatten()).collect())?;
        // Where they are lost, something stays counted.
        self.counts.write(file)?;
        Ok(())
    }

    /// Keeps memory bounded between two clusters.
    fn make_room(&mut self, changing: &Changing) -> Result<(), Error> {
        let most = (TABLES_BYTES / changing.image.header.l2_bytes()).max(4) as usize;
        if self.tables.len() < most && !self.counts.is_crowded() {
            return Ok(());
        }
        self.sync(changing)?;
        self.counts.forget();
        self.tables.clear();
        Ok(())
    }
}

impl Table {
    /// Writes what changed: all of it, where it is new.
    fn write(&mut self, file: &dyn Target) -> Result<(), Error> {
        let changed = std::mem::take(&mut self.changed);
        let bytes = |entries: &[u64]| -> Vec<u8> {
            entries.iter().flat_map(|entry| entry.to_be_bytes()).collect()
        };
        if std::mem::take(&mut self.new) {
            return target::write(file, self.at, &bytes(&self.entries));
        }
        // Sectors of 512 bytes, each of which is written whole or not at all.
        let sectors: BTreeSet<usize> = changed.iter().map(|index| index / 64).collect();
        for sector in sectors {
            let entries = &self.entries[sector * 64..(sector + 1) * 64];
            target::write(file, self.at + sector as u64 * 512, &bytes(entries))?;
        }
        Ok(())
    }
}

impl Changing {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of the byte `at`, and the bytes from there to the end of its cluster.
    fn place(&self, state: &mut State, at: u64) -> Result<(ClusterPlace, u64), Error> {
        let header = &self.image.header;
        let (index, entry) = header.entries_of(at);
        state.load(self, index)?;
        match state.tables.get(&index) {
            None => Ok((ClusterPlace::Absent, header.cluster() - at % header.cluster())),
            Some(table) => {
                let word = table.entries[entry];
                self.image.decode(table.at, entry, Entry { word, subclusters: 0 }, at)
            }
        }
    }

    /// Writes what lies in one cluster.
    fn write_cluster(&self, state: &mut State, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let header = &self.image.header;
        let (cluster, bits) = (header.cluster(), header.cluster_bits);
        let (index, slot) = header.entries_of(at);
        let (place, _) = self.place(state, at)?;
        let old = state.tables.get(&index).map_or(0, |table| table.entries[slot]);
        let host = old & ADDRESS;
        let plain = old & PACKED == 0 && host != 0;
        let count = if plain { state.counts.get(&*self.file, host >> bits)? } else { 0 };
        let own = count == 1;
        if plain && count == 0 {
            let place = format!("cluster at byte {host}");
            return Err(self.image.subject.damaged(place, "it is in use, and its count is 0"));
        }
        state.written = true;
        if let (ClusterPlace::At(host), true) = (place, own) {
            return target::write(&*self.file, host, bytes);
        }
        state.table_to_change(self, index)?;
        // All of the cluster: what it held, and what is new.
        let start = at - at % cluster;
        let mut whole = vec![0; cluster as usize];
        if (bytes.len() as u64) < cluster {
            let there = state.size.saturating_sub(start).min(cluster) as usize;
            let (place, _) = self.place(state, start)?;
            self.image.fetch(place, start, &mut whole[..there])?;
        }
        let skip = (at - start) as usize;
        whole[skip..skip + bytes.len()].copy_from_slice(bytes);
        // A cluster that is kept for zeros serves, too.
        let new = if own { host } else { state.take(self)? };
        target::write(&*self.file, new, &whole)?;
        match place {
            ClusterPlace::Packed { offset, len } => {
                let last = (offset + len as u64 - 1) >> bits;
                state.gone.extend(offset >> bits..=last);
            }
            _ if host != 0 && !own => state.gone.push(host >> bits),
            _ => {}
        }
        if let Some(table) = state.tables.get_mut(&index) {
            table.entries[slot] = COPIED | new;
            table.changed.insert(slot);
        }
        Ok(())
    }

    /// Others may have noted in the header what does not hold any more after a write.
    fn unmark(&self, state: &mut State) -> Result<(), Error> {
        if std::mem::take(&mut state.marked) {
            target::write(&*self.file, 88, &[0; 8])?;
            target::flush(&*self.file)?;
        }
        Ok(())
    }

    /// Runs `work` on the state; after an error nothing is written any more.
    fn change(&self, work: impl FnOnce(&mut State) -> Result<(), Error>) -> Result<(), Error> {
        let mut state = self.lock();
        if state.failed {
            let what = "an earlier write failed, nothing more is written";
            return Err(self.image.subject.unsupported(what, ""));
        }
        let done = work(&mut state);
        state.failed = done.is_err();
        done
    }
}

impl Image for Changing {
    fn format(&self) -> &'static str {
        Format::Qcow2.name()
    }

    fn size(&self) -> u64 {
        self.lock().size
    }

    fn grow(&self, size: u64) -> Result<(), Error> {
        self.lengthen(size)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (place, left) = {
                let mut state = self.lock();
                state.make_room(self)?;
                self.place(&mut state, at)?
            };
            let len = left.min((buf.len() - done) as u64) as usize;
            self.image.fetch(place, at, &mut buf[done..done + len])?;
            done += len;
        }
        Ok(())
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let cluster = self.image.header.cluster();
        self.change(|state| {
            self.unmark(state)?;
            let mut done = 0;
            while done < bytes.len() {
                let at = offset + done as u64;
                let len = (cluster - at % cluster).min((bytes.len() - done) as u64) as usize;
                state.make_room(self)?;
                self.write_cluster(state, at, &bytes[done..done + len])?;
                done += len;
            }
            Ok(())
        })
    }

    fn discards(&self) -> bool {
        true
    }

    fn discard(&self, range: Range<u64>) -> Result<(), Error> {
        self.give_back(range)
    }

    fn flush(&self) -> Result<(), Error> {
        self.change(|state| state.sync(self))
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        self.image.facts()
    }

    fn threads(&self) -> usize {
        self.image.threads()
    }
}

impl Drop for Changing {
    /// What was not flushed goes to the file, as with a file that is closed.
    fn drop(&mut self) {
        let _nobody_waits = self.change(|state| state.sync(self));
    }
}
