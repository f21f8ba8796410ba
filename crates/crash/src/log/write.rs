//! Writing a log while the run goes on.

use std::io::{self, Write};

use base::map::HashMap;
use base::page::is_zero;
use base::unit::SECTOR_SIZE;
use device::{Content, Event};

use super::frame::{self, END_MAGIC, HEAD, Kind};
use super::{Header, LogError, MAGIC, Note, PIECE, VERSION, content_hash};
use crate::calls::Call;

/// Bytes of content in one frame.
const CONTENT_FRAME: usize = 1 << 20;
/// Bytes of packed entries in one frame.
const ENTRIES_FRAME: usize = 256 << 10;
/// Blocks of the base in one frame.
const BASE_FRAME: usize = 64 << 10;

/// What lies beside the bytes of a call in its pages.
static NOTHING: [u8; PIECE] = [0; PIECE];

/// Writes a log. Memory grows by about 40 bytes with each distinct piece of 4 KiB.
///
/// An error of the file is kept and reported by [`finish`](LogWriter::finish): whoever records
/// cannot do anything about it in the middle of a request.
pub struct LogWriter {
    out: Box<dyn Write + Send>,
    at: u64,
    header: Header,
    known: HashMap<u128, u32>,
    /// Pieces so far.
    pieces: u32,
    content: Vec<u8>,
    /// Length and hash of every piece of `content`.
    table: Vec<u8>,
    /// Content was written since the last frame of entries.
    ahead: bool,
    entries: Vec<u8>,
    count: u64,
    base: Vec<u8>,
    base_count: usize,
    base_last: u32,
    /// Place and kind of every frame.
    frames: Vec<(u64, Kind)>,
    failed: Option<LogError>,
}

impl LogWriter {
    /// Begins a log.
    ///
    /// # Errors
    /// The head cannot be written.
    pub fn new(out: Box<dyn Write + Send>, header: Header) -> Result<LogWriter, LogError> {
        let mut writer = LogWriter {
            out,
            at: 0,
            header,
            known: HashMap::default(),
            pieces: 0,
            content: Vec::new(),
            table: Vec::new(),
            ahead: false,
            entries: Vec::new(),
            count: 0,
            base: Vec::new(),
            base_count: 0,
            base_last: 0,
            frames: Vec::new(),
            failed: None,
        };
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        writer.emit(&head).map_err(LogError::io("write the log"))?;
        let header = serde_json::to_vec(&writer.header).expect("a header has string keys only");
        writer.end(Kind::Header, header);
        Ok(writer)
    }

    /// Number of entries so far.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// True where nothing happened yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A block of 4 KiB of the medium before anything happened. Blocks come in rising order; those
    /// of zeroes need not come.
    pub fn base_block(&mut self, block: u32, bytes: &[u8]) {
        if is_zero(bytes) {
            return;
        }
        let piece = self.piece(bytes);
        frame::put(&mut self.base, u64::from(block - self.base_last));
        frame::put(&mut self.base, u64::from(piece));
        self.base_last = block;
        self.base_count += 1;
        if self.base_count >= BASE_FRAME {
            self.end_base();
        }
    }

    /// Something happened; `came` is what the length of the log was when its request came. A mark
    /// goes through [`note`](LogWriter::note).
    pub fn entry<'a>(
        &mut self,
        came: u64,
        event: &'a Event<impl Content>,
        bytes: impl Iterator<Item = &'a [u8]>,
    ) {
        let ago = self.count.saturating_sub(came);
        match event {
            Event::Write { sector, segs, fua } => {
                let pieces = self.content(sector.bytes(), bytes);
                self.start(if *fua { 2 } else { 1 }, ago);
                frame::put(&mut self.entries, sector.0);
                frame::put(&mut self.entries, segs.bytes() / SECTOR_SIZE);
                pieces.iter().for_each(|piece| frame::put(&mut self.entries, u64::from(*piece)));
            }
            Event::Zero { sector, count, discard } => {
                self.start(if *discard { 4 } else { 3 }, ago);
                frame::put(&mut self.entries, sector.0);
                frame::put(&mut self.entries, *count);
            }
            Event::Flush => self.start(5, ago),
            Event::Mark(_) => debug_assert!(false, "marks are notes"),
        }
        self.ended();
    }

    /// Notes something that was reached; `came` is the length of the log when it began.
    pub fn note(&mut self, came: u64, note: &Note) {
        let ago = self.count.saturating_sub(came);
        let text = serde_json::to_vec(note).expect("a note has string keys only");
        self.start(6, ago);
        frame::put(&mut self.entries, text.len() as u64);
        self.entries.extend_from_slice(&text);
        self.ended();
    }

    /// Notes a call that returned; `came` as in [`note`](LogWriter::note). Of a write `bytes` are
    /// what was written, at `offset` of the file.
    pub fn call<'a>(
        &mut self,
        came: u64,
        call: &Call,
        offset: u64,
        bytes: impl Iterator<Item = &'a [u8]>,
    ) {
        // Whole pages of the file, most of which the device gets, too.
        let start = offset % PIECE as u64;
        let mut len = start as usize;
        let mut padded = vec![&NOTHING[..len]];
        padded.extend(bytes.inspect(|bytes| len += bytes.len()));
        padded.push(&NOTHING[..len.next_multiple_of(PIECE) - len]);
        let pieces = self.content(offset - start, padded.into_iter());
        let ago = self.count.saturating_sub(came);
        let text = serde_json::to_vec(call).expect("a call has string keys only");
        self.start(7, ago);
        frame::put(&mut self.entries, text.len() as u64);
        self.entries.extend_from_slice(&text);
        frame::put(&mut self.entries, pieces.len() as u64);
        pieces.iter().for_each(|piece| frame::put(&mut self.entries, u64::from(*piece)));
        self.ended();
    }

    /// Writes what is complete so far, so that it is there where this process is killed.
    pub fn settle(&mut self) {
        self.end_base();
        self.end_content();
        self.end_entries();
        if self.failed.is_none()
            && let Err(error) = self.out.flush()
        {
            self.failed = Some(LogError::Io { what: "write the log", error });
        }
    }

    /// Writes what is left, and the index.
    ///
    /// # Errors
    /// The first error of the file, whenever it came.
    pub fn finish(mut self) -> Result<(), LogError> {
        self.end_base();
        self.end_content();
        self.end_entries();
        let index = self.index();
        let at = self.at;
        let packed = frame::pack(Kind::Index, &index)?;
        let mut tail = Vec::new();
        tail.extend_from_slice(&at.to_le_bytes());
        tail.extend_from_slice(&(packed.len() as u64).to_le_bytes());
        tail.extend_from_slice(&xxhash_rust::xxh3::xxh3_64(&tail[..16]).to_le_bytes());
        tail.extend_from_slice(END_MAGIC);
        self.keep(packed);
        self.keep(tail);
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.out.flush().map_err(LogError::io("write the log"))
    }

    fn start(&mut self, kind: u8, ago: u64) {
        self.end_base();
        self.entries.push(kind);
        frame::put(&mut self.entries, ago);
    }

    fn ended(&mut self) {
        self.count += 1;
        // Where the recording is killed, entries are good as far as their content is there.
        if self.ahead || self.entries.len() >= ENTRIES_FRAME {
            self.end_content();
            self.end_entries();
        }
    }

    /// The pieces of a write: cut where the medium has multiples of 4 KiB.
    fn content<'a>(&mut self, start: u64, bytes: impl Iterator<Item = &'a [u8]>) -> Vec<u32> {
        let mut pieces = Vec::new();
        let (mut at, mut part) = (start, Vec::new());
        for mut seg in bytes {
            while !seg.is_empty() {
                let left = PIECE - (at % PIECE as u64) as usize;
                let len = left.min(seg.len());
                at += len as u64;
                if len == left && part.is_empty() {
                    pieces.push(self.piece(&seg[..len]));
                } else {
                    part.extend_from_slice(&seg[..len]);
                    if len == left {
                        pieces.push(self.piece(&part));
                        part.clear();
                    }
                }
                seg = &seg[len..];
            }
        }
        if !part.is_empty() {
            pieces.push(self.piece(&part));
        }
        pieces
    }

    /// The number of a content, new or known.
    fn piece(&mut self, bytes: &[u8]) -> u32 {
        if is_zero(bytes) {
            return 0;
        }
        let hash = content_hash(bytes);
        let next = self.pieces + 1;
        match self.known.entry(hash) {
            base::map::hash_map::Entry::Occupied(known) => *known.get(),
            base::map::hash_map::Entry::Vacant(free) => {
                free.insert(next);
                self.pieces = next;
                frame::put(&mut self.table, bytes.len() as u64 / SECTOR_SIZE);
                self.table.extend_from_slice(&hash.to_le_bytes());
                self.content.extend_from_slice(bytes);
                if self.content.len() >= CONTENT_FRAME {
                    self.end_content();
                }
                next
            }
        }
    }

    fn end_content(&mut self) {
        let (content, table) = (std::mem::take(&mut self.content), std::mem::take(&mut self.table));
        self.ahead |= !content.is_empty();
        self.end(Kind::Content, content);
        self.end(Kind::Pieces, table);
    }

    fn end_entries(&mut self) {
        self.ahead = false;
        let raw = std::mem::take(&mut self.entries);
        self.end(Kind::Entries, raw);
    }

    fn end_base(&mut self) {
        if self.base.is_empty() {
            return;
        }
        self.end_content();
        self.ahead = false;
        self.base_count = 0;
        let raw = std::mem::take(&mut self.base);
        self.end(Kind::Base, raw);
    }

    fn end(&mut self, kind: Kind, raw: Vec<u8>) {
        if raw.is_empty() {
            return;
        }
        self.frames.push((self.at, kind));
        match frame::pack(kind, &raw) {
            Ok(packed) => self.keep(packed),
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
    }

    fn index(&self) -> Vec<u8> {
        let mut index = Vec::new();
        frame::put(&mut index, self.count);
        frame::put(&mut index, self.frames.len() as u64);
        for (at, kind) in &self.frames {
            frame::put(&mut index, *at);
            index.push(*kind as u8);
        }
        index
    }

    fn keep(&mut self, bytes: Vec<u8>) {
        if self.failed.is_none()
            && let Err(error) = self.emit(&bytes)
        {
            self.failed = Some(LogError::Io { what: "write the log", error });
        }
    }

    fn emit(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
