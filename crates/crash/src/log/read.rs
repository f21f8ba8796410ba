//! Opening a log: its index and its entries; the content stays where it is.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use base::Sector;
use base::map::HashMap;
use base::unit::SECTOR_SIZE;
use device::{Entry, Event, WriteLog};
use xxhash_rust::xxh3::Xxh3;

use super::frame::{self, END_MAGIC, FRAME_HEAD, HEAD, Input, Kind, TAIL};
use super::store::{Piece, Source, Store};
use super::{Chunks, Header, Inner, Log, LogError, MAGIC, Note, PIECE, PieceId, VERSION};
use crate::calls::Call;

/// Places and kinds of the frames, in order.
type Frames = Vec<(u64, Kind)>;

impl Log {
    /// Opens the log in a file.
    ///
    /// # Errors
    /// It cannot be read; it is no log, one of another version, cut short or damaged.
    pub fn open(path: &Path) -> Result<Log, LogError> {
        let file = std::fs::File::open(path).map_err(LogError::io("open the log"))?;
        // As long as it is open no recording takes its place; one may be under way.
        let _recorded_now = file.try_lock_shared();
        Log::read(Source::File(file))
    }

    /// The log in memory, as a [`LogWriter`](super::LogWriter) wrote it.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Log, LogError> {
        Log::read(Source::Bytes(bytes))
    }

    /// The log that a source of bytes has, as on a server; content is fetched when it is needed.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn from_source(source: Arc<dyn container::Source>) -> Result<Log, LogError> {
        Log::read(Source::Other(source))
    }

    fn read(source: Source) -> Result<Log, LogError> {
        let size = check_head(&source)?;
        let (frames, entries, cut) = match read_index(&source, size) {
            Ok((frames, entries)) => (frames, Some(entries), None),
            Err(LogError::Cut(_)) => (scan(&source, size)?, None, Some(size)),
            Err(error) => return Err(error),
        };
        let mut reader = Reader::default();
        let mut digest = Xxh3::new();
        for (at, kind) in &frames {
            if *kind == Kind::Content {
                reader.content.push((*at, reader.pieces.len() as u32));
                continue;
            }
            let raw = read_frame(&source, *at, *kind, size)?;
            digest.update(&raw);
            reader.frame(*kind, &raw, *at)?;
        }
        let found = reader.writes.entries.len() as u64;
        if let Some(entries) = entries.filter(|entries| *entries != found) {
            let what = format!("{found} entries, and not {entries}");
            return Err(LogError::damaged(HEAD as u64, what));
        }
        // The base is whole where entries follow.
        let header = match reader.header {
            Some(header) if cut.is_none() || found > 0 => header,
            None if cut.is_none() => return Err(LogError::damaged(HEAD as u64, "no header")),
            _ => return Err(LogError::Cut(size)),
        };
        let pieces = places(&reader.pieces, &reader.content)?;
        let Reader { writes, refs, notes, contents, base, content, .. } = reader;
        let (flushed, flushed_before) = flushed(&writes);
        let store = Arc::new(Store::new(source, size, content, pieces));
        let digest = digest.digest();
        Ok(Log {
            inner: Arc::new(Inner {
                header,
                writes,
                flushed,
                flushed_before,
                refs,
                notes,
                contents,
                base,
                digest,
                cut,
                store,
            }),
        })
    }
}

fn check_head(source: &Source) -> Result<u64, LogError> {
    let size = source.size()?;
    let mut head = vec![0; HEAD.min(size as usize)];
    source.read(0, &mut head)?;
    if head.get(..8) != Some(MAGIC) {
        head.truncate(8);
        return Err(LogError::Foreign(head));
    }
    let version = head.get(8..12).and_then(|bytes| bytes.try_into().ok());
    match version.map(u32::from_le_bytes) {
        Some(VERSION) => {}
        Some(other) => return Err(LogError::Version(other)),
        None => return Err(LogError::Cut(size)),
    }
    Ok(size)
}

/// The frames of a log that was ended, and how many entries it has.
fn read_index(source: &Source, size: u64) -> Result<(Frames, u64), LogError> {
    if size < (HEAD + TAIL) as u64 {
        return Err(LogError::Cut(size));
    }
    let tail_at = size - TAIL as u64;
    let mut tail = [0; TAIL];
    source.read(tail_at, &mut tail)?;
    if &tail[24..] != END_MAGIC {
        return Err(LogError::Cut(size));
    }
    let mut input = Input::new(&tail, tail_at);
    let at = input.fixed::<8>().map(u64::from_le_bytes)?;
    let len = input.fixed::<8>().map(u64::from_le_bytes)?;
    let sum = input.fixed::<8>().map(u64::from_le_bytes)?;
    if sum != xxhash_rust::xxh3::xxh3_64(&tail[..16]) || at.checked_add(len) != Some(tail_at) {
        return Err(LogError::damaged(tail_at, "the place of the index"));
    }
    let raw = read_frame(source, at, Kind::Index, size)?;
    let mut input = Input::new(&raw, at);
    let entries = input.number()?;
    let mut frames = Vec::new();
    for _ in 0..input.index()? {
        let place = input.number()?;
        let [kind] = input.fixed::<1>()?;
        let kind = Kind::from_number(kind.into());
        frames.push((place, kind.ok_or_else(|| input.damaged("a frame of unknown kind"))?));
    }
    match input.is_empty() {
        true => Ok((frames, entries)),
        false => Err(input.damaged("bytes behind the index")),
    }
}

/// The whole frames of a log without an end, from the front.
fn scan(source: &Source, size: u64) -> Result<Frames, LogError> {
    let (mut at, mut frames) = (HEAD as u64, Vec::new());
    while at + FRAME_HEAD as u64 <= size {
        let mut head = [0; FRAME_HEAD];
        source.read(at, &mut head)?;
        if head == [0; FRAME_HEAD] {
            break; // A host that failed may have left zeroes.
        }
        let head = frame::head(&head, at)?;
        let end = at + (FRAME_HEAD + head.packed) as u64;
        match head.kind {
            _ if end > size => break,
            Kind::Index if size - end >= TAIL as u64 => {
                return Err(LogError::damaged(end, "the end of the log"));
            }
            Kind::Index => {}
            kind => frames.push((at, kind)),
        }
        at = end;
    }
    Ok(frames)
}

/// Where every piece lies: its frame and its offset there.
fn places(pieces: &[(u16, u128)], frames: &[(u64, u32)]) -> Result<Vec<Piece>, LogError> {
    let mut placed = Vec::with_capacity(pieces.len());
    let mut frame = 0;
    let mut offset = 0u32;
    for (index, &(len, hash)) in pieces.iter().enumerate() {
        while frames.get(frame + 1).is_some_and(|next| next.1 as usize <= index) {
            frame += 1;
            offset = 0;
        }
        if frames.get(frame).is_none_or(|own| own.1 as usize > index) {
            return Err(LogError::damaged(HEAD as u64, format!("piece {index} has no frame")));
        }
        placed.push(Piece { frame: frame as u32, offset, len, hash });
        offset += u32::from(len);
    }
    Ok(placed)
}

/// Reads and checks the frame at a place.
pub(super) fn read_frame(
    source: &Source,
    at: u64,
    kind: Kind,
    size: u64,
) -> Result<Vec<u8>, LogError> {
    let end = |len: usize| at.checked_add(len as u64).is_some_and(|end| end <= size);
    if !end(FRAME_HEAD) {
        return Err(LogError::damaged(at, "a frame behind the end"));
    }
    let mut head = [0; FRAME_HEAD];
    source.read(at, &mut head)?;
    let head = frame::head(&head, at)?;
    if head.kind != kind || !end(FRAME_HEAD + head.packed) {
        let what = format!("a frame of {:?}, {} bytes", head.kind, head.packed);
        return Err(LogError::damaged(at, what));
    }
    let mut bytes = vec![0; head.packed];
    source.read(at + FRAME_HEAD as u64, &mut bytes)?;
    frame::unpack(&bytes, &head, at)
}

/// What is being put together.
#[derive(Default)]
struct Reader {
    header: Option<Header>,
    sectors: u64,
    /// Length and hash of every piece.
    pieces: Vec<(u16, u128)>,
    /// Place and first piece of each frame of content.
    content: Vec<(u64, u32)>,
    writes: WriteLog<Chunks>,
    refs: Vec<PieceId>,
    notes: Vec<Note>,
    contents: HashMap<u32, Range<usize>>,
    base: Vec<(u32, PieceId)>,
}

impl Reader {
    fn frame(&mut self, kind: Kind, raw: &[u8], at: u64) -> Result<(), LogError> {
        match kind {
            Kind::Header => {
                let header: Header = serde_json::from_slice(raw)
                    .map_err(|error| LogError::damaged(at, format!("header: {error}")))?;
                self.sectors = header.sectors;
                self.header = Some(header);
                Ok(())
            }
            Kind::Pieces => self.table(raw, at),
            Kind::Entries => self.entries(raw, at),
            Kind::Base => self.base(raw, at),
            Kind::Content | Kind::Index => Err(LogError::damaged(at, "a frame out of place")),
        }
    }

    fn table(&mut self, raw: &[u8], at: u64) -> Result<(), LogError> {
        let mut input = Input::new(raw, at);
        while !input.is_empty() {
            let len = input.number()?.saturating_mul(SECTOR_SIZE);
            if len == 0 || len > PIECE as u64 {
                let number = self.pieces.len() + 1;
                return Err(input.damaged(format!("piece {number} has {len} bytes")));
            }
            self.pieces.push((len as u16, input.fixed::<16>().map(u128::from_le_bytes)?));
        }
        Ok(())
    }

    fn entries(&mut self, raw: &[u8], at: u64) -> Result<(), LogError> {
        let mut input = Input::new(raw, at);
        while !input.is_empty() {
            let [kind] = input.fixed::<1>()?;
            let ago = input.number()?;
            let now = self.writes.entries.len() as u64;
            let came = now
                .checked_sub(ago)
                .ok_or_else(|| input.damaged(format!("entry {now} came {ago} entries ago")))?;
            let event = self.event(kind, &mut input)?;
            self.writes.entries.push(Entry { came: came as usize, event });
        }
        Ok(())
    }

    fn event(&mut self, kind: u8, input: &mut Input) -> Result<Event<Chunks>, LogError> {
        Ok(match kind {
            1 | 2 => {
                let (sector, count) = self.range(input)?;
                let first = self.refs.len() as u32;
                let (start, end) = (sector * SECTOR_SIZE, (sector + count) * SECTOR_SIZE);
                let pieces = end.div_ceil(PIECE as u64) - start / PIECE as u64;
                for _ in 0..pieces {
                    let piece = self.piece(input)?;
                    self.refs.push(piece);
                }
                let bytes = u32::try_from(count * SECTOR_SIZE)
                    .map_err(|_| input.damaged(format!("a write of {count} sectors")))?;
                Event::Write {
                    sector: Sector(sector),
                    segs: Chunks { first, bytes },
                    fua: kind == 2,
                }
            }
            3 | 4 => {
                let (sector, count) = self.range(input)?;
                Event::Zero { sector: Sector(sector), count, discard: kind == 4 }
            }
            5 => Event::Flush,
            6 => {
                let len = input.index()? as usize;
                let note = serde_json::from_slice(input.bytes(len)?)
                    .map_err(|error| input.damaged(format!("note: {error}")))?;
                self.notes.push(note);
                Event::Mark(self.notes.len() as u64 - 1)
            }
            7 => {
                let len = input.index()? as usize;
                let call = serde_json::from_slice(input.bytes(len)?)
                    .map_err(|error| input.damaged(format!("call: {error}")))?;
                self.call(call, input)?;
                Event::Mark(self.notes.len() as u64 - 1)
            }
            other => return Err(input.damaged(format!("an entry of kind {other}"))),
        })
    }

    /// A call, with the pages that it wrote.
    fn call(&mut self, call: Call, input: &mut Input) -> Result<(), LogError> {
        let first = self.refs.len();
        for _ in 0..input.index()? {
            let piece = self.piece(input)?;
            self.refs.push(piece);
        }
        let pages = (self.refs.len() - first) as u64;
        if let Call::Write { offset, len, .. } = call {
            let page = PIECE as u64;
            let end = offset.checked_add(len);
            let end = end.ok_or_else(|| input.damaged(format!("a write to {offset}+{len}")))?;
            if pages != end.div_ceil(page) - offset / page {
                return Err(input.damaged(format!("{pages} pages of a write of {len} bytes")));
            }
            self.contents.insert(self.notes.len() as u32, first..self.refs.len());
        }
        self.notes.push(Note::Call(call));
        Ok(())
    }

    fn range(&self, input: &mut Input) -> Result<(u64, u64), LogError> {
        let (sector, count) = (input.number()?, input.number()?);
        match sector.checked_add(count) {
            Some(end) if end <= self.sectors && count > 0 => Ok((sector, count)),
            _ => Err(input.damaged(format!(
                "{count} sectors at {sector} do not lie on a medium of {}",
                self.sectors
            ))),
        }
    }

    fn piece(&self, input: &mut Input) -> Result<PieceId, LogError> {
        let (piece, count) = (input.index()?, self.pieces.len());
        match piece as usize <= count {
            true => Ok(PieceId(piece)),
            false => Err(input.damaged(format!("piece {piece} of {count} is named"))),
        }
    }

    fn base(&mut self, raw: &[u8], at: u64) -> Result<(), LogError> {
        let mut input = Input::new(raw, at);
        let blocks = (self.sectors * SECTOR_SIZE).div_ceil(PIECE as u64);
        while !input.is_empty() {
            let last = self.base.last().map_or(0, |(block, _)| *block);
            let block = u64::from(last) + u64::from(input.index()?);
            if block >= blocks {
                return Err(input.damaged(format!("block {block} of {blocks} in the base")));
            }
            let piece = self.piece(&mut input)?;
            self.base.push((block as u32, piece));
        }
        Ok(())
    }
}

/// For each length of the log, the entries that flushes have made durable; and the same without
/// the last flush that made a difference.
pub(super) fn flushed(writes: &WriteLog<Chunks>) -> (Vec<u32>, Vec<u32>) {
    let (mut done, mut before) = (0, 0);
    let (mut all, mut less) = (vec![0], vec![0]);
    for entry in &writes.entries {
        if matches!(entry.event, Event::Flush) && entry.came as u32 > done {
            (before, done) = (done, entry.came as u32);
        }
        all.push(done);
        less.push(before);
    }
    (all, less)
}
