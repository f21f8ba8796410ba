//! From a byte of the disk to its place: the two levels of tables.

use std::sync::Arc;

use crate::Error;
use crate::bytes::be64;
use crate::source;

use super::{COUNT_MAX, Qcow2, SLICE};

/// Bits of an entry that are an address.
pub(super) const ADDRESS: u64 = 0x00ff_ffff_ffff_fe00;
/// The cluster is compressed.
pub(super) const PACKED: u64 = 1 << 62;
/// The cluster reads as zeros (version 3).
pub(super) const ZERO: u64 = 1;

/// Where some bytes of the disk are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClusterPlace {
    /// In the file behind.
    Absent,
    /// Nowhere: they are zeros.
    Zero,
    /// At this byte of the data.
    At(u64),
    /// In a compressed cluster of at most so many bytes.
    Packed { offset: u64, len: usize },
}

/// An entry of a table of the second level.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub word: u64,
    /// What the subclusters hold, where tables are extended.
    pub subclusters: u64,
}

impl Qcow2 {
    /// The place of the byte `at`, and how many bytes from there on lie in a row, at most `want`.
    pub(super) fn run(&self, at: u64, want: usize) -> Result<(ClusterPlace, usize), Error> {
        let want = want as u64;
        let (first, mut len) = self.place(at)?;
        while len < want && !matches!(first, ClusterPlace::Packed { .. }) {
            let (next, more) = self.place(at + len)?;
            let joins = match (first, next) {
                (ClusterPlace::At(host), ClusterPlace::At(next)) => host + len == next,
                (first, next) => first == next,
            };
            if !joins {
                break;
            }
            len += more;
        }
        Ok((first, len.min(want) as usize))
    }

    /// The place of the byte `at`, and the bytes from there to the end of its (sub)cluster.
    fn place(&self, at: u64) -> Result<(ClusterPlace, u64), Error> {
        let header = &self.header;
        let (l1_index, index) = header.entries_of(at);
        let table = self.table(l1_index)?;
        let Some(table) = table else {
            return Ok((ClusterPlace::Absent, header.l1_span() - at % header.l1_span()));
        };
        let entry = self.entry(table, index)?;
        self.decode(table, index, entry, at)
    }

    /// The place of the byte `at` by an entry of the table at byte `table`,
    /// and the bytes from there to the end of its (sub)cluster.
    pub(super) fn decode(
        &self,
        table: u64,
        index: usize,
        entry: Entry,
        at: u64,
    ) -> Result<(ClusterPlace, u64), Error> {
        let header = &self.header;
        let Entry { word: entry, subclusters: bits } = entry;
        let within = at % header.cluster();
        let left = header.cluster() - within;
        if entry & PACKED != 0 {
            let shift = 62 - (header.cluster_bits - 8);
            let offset = entry & ((1 << shift) - 1);
            let sectors = (entry & (PACKED - 1)) >> shift;
            let len = ((sectors + 1) * 512 - offset % 512) as usize;
            return Ok((ClusterPlace::Packed { offset, len }, left));
        }
        let host = entry & ADDRESS;
        if !host.is_multiple_of(header.cluster()) {
            let place = format!("table of the second level (L2) at byte {table}, entry {index}");
            return Err(self.subject.damaged(place, format!("cluster at byte {host}")));
        }
        // With a data file the entry is the address even where it is 0.
        let there = host != 0 || (header.data_file.is_some() && entry & !ZERO != 0);
        if header.extended_l2 {
            let sub = header.cluster() / 32;
            let bit = within / sub;
            let (allocated, zero) = (bits >> bit & 1 != 0, bits >> (32 + bit) & 1 != 0);
            let left = sub - within % sub;
            return match (allocated, zero) {
                (_, true) => Ok((ClusterPlace::Zero, left)),
                (true, _) if there => Ok((ClusterPlace::At(host + within), left)),
                (true, _) => {
                    let place =
                        format!("table of the second level (L2) at byte {table}, entry {index}");
                    Err(self.subject.damaged(place, "content without a cluster"))
                }
                _ => Ok((ClusterPlace::Absent, left)),
            };
        }
        match there {
            _ if header.version >= 3 && entry & ZERO != 0 => Ok((ClusterPlace::Zero, left)),
            true => Ok((ClusterPlace::At(host + within), left)),
            false => Ok((ClusterPlace::Absent, left)),
        }
    }

    /// The byte of a table of the second level; none where there is none.
    fn table(&self, index: usize) -> Result<Option<u64>, Error> {
        self.table_of(self.l1.get(index).copied(), index)
    }

    /// The same by the entry of the first level.
    pub(super) fn table_of(&self, entry: Option<u64>, index: usize) -> Result<Option<u64>, Error> {
        let table = entry.unwrap_or(0) & ADDRESS;
        if table == 0 {
            return Ok(None);
        }
        let size = self.source.size();
        let fits = table.checked_add(self.header.l2_bytes()).is_some_and(|end| end <= size);
        if !fits || !table.is_multiple_of(self.header.cluster()) {
            let place = format!("table of the first level (L1), entry {index}");
            let what = format!("a table at byte {table}, the file has {size}");
            return Err(self.subject.damaged(place, what));
        }
        Ok(Some(table))
    }

    /// An entry of a table of the second level, and its bits of subclusters.
    fn entry(&self, table: u64, index: usize) -> Result<Entry, Error> {
        let width = self.header.l2_entry();
        let slice_len = self.header.l2_bytes().min(SLICE);
        let byte = index as u64 * width;
        let start = table + byte / slice_len * slice_len;
        let slice = self.slices.get(start, || {
            let mut bytes = vec![0; slice_len as usize];
            source::read(&*self.source, start, &mut bytes)?;
            Ok::<_, Error>(Arc::new(bytes))
        })?;
        let at = (byte % slice_len) as usize;
        let subclusters = if width == 16 { be64(&slice, at + 8) } else { 0 };
        Ok(Entry { word: be64(&slice, at), subclusters })
    }

    /// Clusters with content of their own, and the compressed ones among them; none where that
    /// would mean reading too many tables.
    pub(super) fn count(&self) -> Result<Option<(u64, u64)>, Error> {
        let header = &self.header;
        let tables = self.l1.iter().filter(|&&entry| entry & ADDRESS != 0).count() as u64;
        let most = if self.source.threads() > 0 { COUNT_MAX / 64 } else { COUNT_MAX };
        if tables * header.l2_bytes() > most {
            return Ok(None);
        }
        let (mut used, mut packed) = (0, 0);
        for index in 0..self.l1.len() {
            let Some(table) = self.table(index)? else { continue };
            let bytes = source::read_some(&*self.source, table, header.l2_bytes() as usize)?;
            for entry in bytes.chunks_exact(header.l2_entry() as usize) {
                let entry = be64(entry, 0);
                used += u64::from(entry & (ADDRESS | PACKED) != 0);
                packed += u64::from(entry & PACKED != 0);
            }
        }
        Ok(Some((used, packed)))
    }
}
