//! The content of a log, fetched by number; frames and pages that were used last stay in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use base::Page;
use base::map::HashMap;
use rt::SpinLock;

use super::frame::Kind;
use super::read::read_frame;
use super::{LogError, PIECE, PieceId};

/// Frames that are kept unpacked, about 1 MiB each.
const FRAMES_KEPT: usize = 32;
/// Pages that are kept, 4 KiB each.
const PAGES_KEPT: usize = 32 << 10;

/// Where the bytes of a log are.
pub(super) enum Source {
    File(File),
    Bytes(Vec<u8>),
    Other(Arc<dyn container::Source>),
}

impl Source {
    pub(super) fn size(&self) -> Result<u64, LogError> {
        match self {
            Source::File(file) => Ok(file.metadata().map_err(LogError::io("read the log"))?.len()),
            Source::Bytes(bytes) => Ok(bytes.len() as u64),
            Source::Other(source) => Ok(source.size()),
        }
    }

    pub(super) fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), LogError> {
        match self {
            Source::File(file) => file.read_exact_at(buf, at).map_err(LogError::io("read the log")),
            Source::Other(source) => source.read_at(at, buf).map_err(LogError::io("read the log")),
            Source::Bytes(bytes) => {
                let at = at as usize;
                match bytes.get(at..at + buf.len()) {
                    Some(part) => {
                        buf.copy_from_slice(part);
                        Ok(())
                    }
                    None => Err(LogError::Cut(bytes.len() as u64)),
                }
            }
        }
    }
}

/// Where a piece lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) frame: u32,
    pub(super) offset: u32,
    pub(super) len: u16,
    pub(super) hash: u128,
}

/// All content of a log.
pub(super) struct Store {
    source: Source,
    size: u64,
    /// Place and first piece of each frame of content.
    frames: Vec<(u64, u32)>,
    pieces: Vec<Piece>,
    kept: SpinLock<Kept>,
    zero: Page,
    zero_hash: u128,
}

/// What stays in memory.
#[derive(Default)]
struct Kept {
    frames: Vec<(u32, Arc<Vec<u8>>)>,
    pages: HashMap<u32, Page>,
}

impl Store {
    pub(super) fn new(
        source: Source,
        size: u64,
        frames: Vec<(u64, u32)>,
        pieces: Vec<Piece>,
    ) -> Store {
        let zero = Page::zeroed(PIECE);
        let zero_hash = super::content_hash(&zero);
        let kept = SpinLock::named("content of a crash log", Kept::default());
        Store { source, size, frames, pieces, kept, zero, zero_hash }
    }

    pub(super) fn sizes(&self) -> (u64, u64) {
        (self.pieces.iter().map(|piece| u64::from(piece.len)).sum(), self.size)
    }

    pub(super) fn hash(&self, piece: PieceId) -> u128 {
        match piece.0.checked_sub(1) {
            None => self.zero_hash,
            Some(index) => self.pieces[index as usize].hash,
        }
    }

    /// The content of a piece, filled with zeroes to 4 KiB.
    pub(super) fn page(&self, piece: PieceId) -> Result<Page, LogError> {
        let Some(index) = piece.0.checked_sub(1) else { return Ok(self.zero.clone()) };
        if let Some(page) = self.kept.lock_irq().pages.get(&index) {
            return Ok(page.clone());
        }
        let place = self.pieces[index as usize];
        let frame = self.frame(place.frame)?;
        let (start, len) = (place.offset as usize, usize::from(place.len));
        let bytes = frame.get(start..start + len).ok_or_else(|| {
            LogError::damaged(self.frames[place.frame as usize].0, format!("piece {index}"))
        })?;
        let page = Page::padded(bytes, PIECE);
        let mut kept = self.kept.lock_irq();
        if kept.pages.len() >= PAGES_KEPT {
            kept.pages.clear();
        }
        kept.pages.insert(index, page.clone());
        Ok(page)
    }

    fn frame(&self, number: u32) -> Result<Arc<Vec<u8>>, LogError> {
        let kept = self.kept.lock_irq().frames.iter().find(|kept| kept.0 == number).cloned();
        if let Some((_, bytes)) = kept {
            return Ok(bytes);
        }
        let at = self.frames[number as usize].0;
        let raw = read_frame(&self.source, at, Kind::Content, self.size)?;
        let bytes = Arc::new(raw);
        let mut kept = self.kept.lock_irq();
        if kept.frames.len() >= FRAMES_KEPT {
            kept.frames.remove(0);
        }
        kept.frames.push((number, bytes.clone()));
        Ok(bytes)
    }
}
