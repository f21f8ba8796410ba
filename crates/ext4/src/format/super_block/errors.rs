//! What the superblock says of errors that were found while the file system was mounted.

use base::Errno;

use super::{RawSuper, STATE_ERROR, trim, wide_time};

/// An error that was noted: the first one since the last full check, or the last one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NotedError {
    /// When, seconds since 1970.
    pub time: i64,
    /// The inode it was about; 0 where it was none.
    pub ino: u32,
    /// The block; 0 where it was none.
    pub block: u64,
    /// The function that found it, or a word about it; up to 31 bytes are kept.
    pub place: Vec<u8>,
    /// Line in the source, 0 where it is unknown.
    pub line: u32,
    /// Number of the errno as the superblock has it ([`error_code`]).
    pub code: u8,
}

/// The superblock's number of an errno, as `dumpe2fs` names them; 1 where it has none.
pub fn error_code(errno: Errno) -> u8 {
    match errno {
        Errno::EIO => 2,
        Errno::ENOMEM => 3,
        Errno::EFSBADCRC => 4,
        Errno::EFSCORRUPTED => 5,
        Errno::ENOSPC => 6,
        Errno::EROFS => 8,
        _ => 1,
    }
}

impl RawSuper {
    /// The first error since the last full check.
    pub fn first_error(&self) -> Option<NotedError> {
        (self.s_first_error_time.get() != 0).then(|| NotedError {
            time: wide_time(self.s_first_error_time, self.s_first_error_time_hi),
            ino: self.s_first_error_ino.get(),
            block: self.s_first_error_block.get(),
            place: trim(&self.s_first_error_func).to_vec(),
            line: self.s_first_error_line.get(),
            code: self.s_first_error_errcode,
        })
    }

    /// The last error.
    pub fn last_error(&self) -> Option<NotedError> {
        (self.s_last_error_time.get() != 0).then(|| NotedError {
            time: wide_time(self.s_last_error_time, self.s_last_error_time_hi),
            ino: self.s_last_error_ino.get(),
            block: self.s_last_error_block.get(),
            place: trim(&self.s_last_error_func).to_vec(),
            line: self.s_last_error_line.get(),
            code: self.s_last_error_errcode,
        })
    }

    /// Takes over what `other` says of errors: an older copy of the superblock, brought back by
    /// the journal, knows nothing of them.
    pub fn keep_errors_of(&mut self, other: &RawSuper) {
        self.s_state.set(self.s_state.get() | other.s_state.get() & STATE_ERROR);
        if other.s_error_count.get() <= self.s_error_count.get() {
            return;
        }
        self.s_error_count = other.s_error_count;
        self.s_first_error_time = other.s_first_error_time;
        self.s_first_error_time_hi = other.s_first_error_time_hi;
        self.s_first_error_ino = other.s_first_error_ino;
        self.s_first_error_block = other.s_first_error_block;
        self.s_first_error_func = other.s_first_error_func;
        self.s_first_error_line = other.s_first_error_line;
        self.s_first_error_errcode = other.s_first_error_errcode;
        self.s_last_error_time = other.s_last_error_time;
        self.s_last_error_time_hi = other.s_last_error_time_hi;
        self.s_last_error_ino = other.s_last_error_ino;
        self.s_last_error_block = other.s_last_error_block;
        self.s_last_error_func = other.s_last_error_func;
        self.s_last_error_line = other.s_last_error_line;
        self.s_last_error_errcode = other.s_last_error_errcode;
    }

    /// Notes an error as the last one, and as the first where none was noted.
    pub fn note_error(&mut self, error: &NotedError) {
        let mut place = [0; 32];
        let len = error.place.len().min(place.len() - 1);
        place[..len].copy_from_slice(&error.place[..len]);
        let (time, time_hi) = (error.time as u32, (error.time >> 32) as u8);
        if self.first_error().is_none() {
            self.s_first_error_time.set(time);
            self.s_first_error_time_hi = time_hi;
            self.s_first_error_ino.set(error.ino);
            self.s_first_error_block.set(error.block);
            self.s_first_error_func = place;
            self.s_first_error_line.set(error.line);
            self.s_first_error_errcode = error.code;
        }
        self.s_last_error_time.set(time);
        self.s_last_error_time_hi = time_hi;
        self.s_last_error_ino.set(error.ino);
        self.s_last_error_block.set(error.block);
        self.s_last_error_func = place;
        self.s_last_error_line.set(error.line);
        self.s_last_error_errcode = error.code;
        self.s_error_count.set(self.s_error_count.get().saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_stays_and_the_last_follows() {
        let mut raw = RawSuper::zeroed();
        assert_eq!((raw.first_error(), raw.last_error()), (None, None));
        let first = NotedError {
            time: 5_000_000_000,
            ino: 12,
            block: 1 << 33,
            place: b"extent header".to_vec(),
            line: 7,
            code: error_code(Errno::EFSCORRUPTED),
        };
        raw.note_error(&first);
        let second = NotedError { time: 5_000_000_001, place: vec![b'x'; 40], ..first.clone() };
        raw.note_error(&second);
        assert_eq!(raw.first_error(), Some(first));
        assert_eq!(raw.last_error(), Some(NotedError { place: vec![b'x'; 31], ..second }));
        assert_eq!(raw.s_error_count.get(), 2);
        let mut older = RawSuper::zeroed();
        older.keep_errors_of(&raw);
        assert_eq!(
            (older.first_error(), older.last_error()),
            (raw.first_error(), raw.last_error())
        );
        assert_eq!(older.s_error_count.get(), 2);
    }
}
