//! The log of a partition: what the log of its disk says of it.

use std::ops::Range;
use std::sync::Arc;

use base::Sector;
use base::unit::SECTOR_SIZE;
use device::{Content, Entry, Event, WriteLog};

use super::read::flushed;
use super::{Chunks, Header, Inner, Log, LogError, PIECE};

/// Sectors of a piece.
const PIECE_SECTORS: u64 = PIECE as u64 / SECTOR_SIZE;

impl Log {
    /// The log of the `count` sectors from `start`: what was written beside them is left out; all
    /// flushes, marks and calls stay. Its [`digest`](Log::digest) is one of its own.
    ///
    /// # Errors
    /// They do not lie on the medium, or do not begin at a multiple of 4 KiB.
    pub fn part(&self, start: Sector, count: u64) -> Result<Log, LogError> {
        let sectors = self.header().sectors;
        let fits = start.0.checked_add(count).is_some_and(|end| end <= sectors);
        if !fits || count == 0 || !start.0.is_multiple_of(PIECE_SECTORS) {
            return Err(LogError::Part { start: start.0, count, sectors });
        }
        let part = Part { start: start.0, end: start.0 + count };
        let whole = &*self.inner;
        let mut writes = WriteLog::default();
        // How many entries of the part stand before each of the whole.
        let mut before = Vec::with_capacity(self.len() + 1);
        for entry in &whole.writes.entries {
            before.push(writes.entries.len());
            let came = before.get(entry.came).copied().unwrap_or(writes.entries.len());
            writes.entries.extend(part.event(&entry.event).map(|event| Entry { came, event }));
        }
        let (flushed, flushed_before) = flushed(&writes);
        let block = |&(block, piece): &(u32, _)| {
            let sector = u64::from(block) * PIECE_SECTORS;
            let within = (part.start..part.end).contains(&sector);
            within.then(|| (((sector - part.start) / PIECE_SECTORS) as u32, piece))
        };
        let place = [start.0.to_le_bytes(), count.to_le_bytes()].concat();
        let digest = xxhash_rust::xxh3::xxh3_64_with_seed(&place, whole.digest);
        let header = Header {
            sectors: count,
            file_system: Header::UNKNOWN.to_owned(),
            ..whole.header.clone()
        };
        Ok(Log {
            inner: Arc::new(Inner {
                header,
                writes,
                flushed,
                flushed_before,
                refs: whole.refs.clone(),
                notes: whole.notes.clone(),
                contents: whole.contents.clone(),
                base: whole.base.iter().filter_map(block).collect(),
                digest,
                cut: whole.cut,
                store: whole.store.clone(),
            }),
        })
    }
}

/// The sectors of a part, on its medium.
struct Part {
    start: u64,
    end: u64,
}

impl Part {
    /// What an event does within the part, with the part's addresses.
    fn event(&self, event: &Event<Chunks>) -> Option<Event<Chunks>> {
        match *event {
            Event::Flush => Some(Event::Flush),
            Event::Mark(number) => Some(Event::Mark(number)),
            Event::Zero { sector, count, discard } => {
                let sectors = self.within(sector.0..sector.0 + count)?;
                let (sector, count) =
                    (Sector(sectors.start - self.start), sectors.end - sectors.start);
                Some(Event::Zero { sector, count, discard })
            }
            Event::Write { sector, segs, fua } => {
                let Range { start: first, end } =
                    self.within(sector.0..sector.0 + segs.bytes() / SECTOR_SIZE)?;
                // The part begins with a piece: what lies before it are whole ones.
                let skipped = first / PIECE_SECTORS - sector.0 / PIECE_SECTORS;
                let segs = Chunks {
                    first: segs.first + skipped as u32,
                    bytes: ((end - first) * SECTOR_SIZE) as u32,
                };
                Some(Event::Write { sector: Sector(first - self.start), segs, fua })
            }
        }
    }

    /// What a range of sectors has within the part.
    fn within(&self, sectors: Range<u64>) -> Option<Range<u64>> {
        let within = sectors.start.max(self.start)..sectors.end.min(self.end);
        Some(within).filter(|range| !range.is_empty())
    }
}
