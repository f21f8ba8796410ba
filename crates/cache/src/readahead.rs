//! Readahead: how much to read where a reader misses, and when to read on before it asks.
//!
//! The rules are those of Linux's on-demand readahead (Fengguang Wu, 2007): a window that starts
//! at a small multiple of the request, doubles while the reader goes on in sequence and is bounded;
//! a marker inside the window which, when the reader gets there, sends for the next window while
//! the reader still has data. With the default bound of 128 KiB, a sequential reader of 4 KiB
//! causes reads of 16, 32, 64, 128, 128, .. KiB.
//!
//! This module only counts; it reads nothing and never waits.

use std::ops::Range;

/// Unit in bytes that windows are multiples of, whatever the folio size is.
pub const READAHEAD_UNIT: u64 = 4096;

/// What is known of one reader that goes through a file. Offsets and sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAhead {
    /// Where the last window begins.
    start: u64,
    /// Its length; 0 where there is none.
    size: u64,
    /// Length of its part that was read ahead of need: reaching it sends for the next window.
    ahead: u64,
    /// Where the last read ended; `None` before the first.
    last_end: Option<u64>,
}

fn units(bytes: u64) -> u64 {
    bytes.div_ceil(READAHEAD_UNIT) * READAHEAD_UNIT
}

/// The first window for a request of `request` bytes.
fn first_window(request: u64, max: u64) -> u64 {
    let size = request.next_power_of_two();
    if size <= max / 32 {
        size * 4
    } else if size <= max / 4 {
        size * 2
    } else {
        max
    }
}

/// The window after one of `size` bytes.
fn next_window(size: u64, max: u64) -> u64 {
    if size < max / 16 {
        size * 4
    } else if size <= max / 2 {
        size * 2
    } else {
        max
    }
}

impl ReadAhead {
    /// A reader that has not read yet.
    pub const fn new() -> ReadAhead {
        ReadAhead { start: 0, size: 0, ahead: 0, last_end: None }
    }

    fn end(&self) -> u64 {
        self.start + self.size
    }

    /// The next window, to be read ahead of need, where a read of `range` reaches the marker.
    /// `max` is the bound of a window in bytes; 0 switches readahead off.
    pub fn on_hit(&mut self, range: Range<u64>, max: u64) -> Option<Range<u64>> {
        let marker = self.end() - self.ahead;
        if self.ahead == 0 || max == 0 || !(range.start <= marker && marker < range.end) {
            return None;
        }
        self.advance(max);
        Some(self.start..self.end())
    }

    /// What to read where the byte at `miss`, which a reader of `miss..end` needs now, is not in
    /// memory. The answer begins at `miss`, rounded down to the unit, and is never empty.
    pub fn on_miss(&mut self, miss: u64, end: u64, max: u64) -> Range<u64> {
        let at = miss / READAHEAD_UNIT * READAHEAD_UNIT;
        let request = units(end - at).max(READAHEAD_UNIT);
        if max < READAHEAD_UNIT {
            return at..at + request;
        }
        let in_sequence = self.size > 0 && (at == self.end() || at == self.end() - self.ahead);
        let touches_last = self
            .last_end
            .is_some_and(|last| at <= units(last) && last / READAHEAD_UNIT * READAHEAD_UNIT <= at);
        if at != 0 && in_sequence {
            self.advance(max);
            self.start = at;
        } else if at == 0 || request > max || touches_last {
            self.start = at;
            self.size = first_window(request, max);
            self.ahead = if self.size > request { self.size - request } else { self.size };
        } else {
            return at..at + request; // a lone read: nothing more
        }
        if self.ahead == self.size {
            // All of the window is wanted now: have the next one behind the marker.
            let more = next_window(self.size, max);
            if self.size + more <= max {
                self.ahead = more;
                self.size += more;
            } else {
                self.size = max;
                self.ahead = max / 2 / READAHEAD_UNIT * READAHEAD_UNIT;
            }
        }
        self.start..self.end()
    }

    /// Notes that a read ended at `end`.
    pub fn note(&mut self, end: u64) {
        self.last_end = Some(end);
    }

    fn advance(&mut self, max: u64) {
        self.start = self.end();
        self.size = next_window(self.size, max);
        self.ahead = self.size;
    }

    /// How well a read at `offset` goes on where this reader is: 0 not at all.
    fn affinity(&self, offset: u64) -> u32 {
        if self.last_end == Some(offset) {
            2
        } else if self.size > 0 && (self.start..=self.end()).contains(&offset) {
            1
        } else {
            0
        }
    }
}

/// Readers of one file that are distinguished by where they read: the file-system interface names
/// inodes, not open files.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [(ReadAhead, u64); 4],
    clock: u64,
}

/// A reader in sequence that was not seen for this many reads gives its place away.
const STREAM_AGE_MAX: u64 = 64;

impl Streams {
    /// The reader that a read at `offset` belongs to; a new one takes the place of the one least
    /// worth keeping.
    pub(crate) fn select(&mut self, offset: u64) -> &mut ReadAhead {
        self.clock += 1;
        let clock = self.clock;
        let best = (0..self.streams.len())
            .max_by_key(|&at| (self.streams[at].0.affinity(offset), self.streams[at].1))
            .expect("there are streams");
        let at = if self.streams[best].0.affinity(offset) > 0 {
            best
        } else {
            let worth = |&at: &usize| {
                let (stream, used) = &self.streams[at];
                (stream.size > 0 && clock - used < STREAM_AGE_MAX, *used)
            };
            let victim = (0..self.streams.len()).min_by_key(worth).expect("there are streams");
            self.streams[victim].0 = ReadAhead::new();
            victim
        };
        self.streams[at].1 = clock;
        &mut self.streams[at].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    const KIB: u64 = 1024;

    /// Plays `reads` of (offset, length) in KiB through one reader with an infinite cache and
    /// writes down the windows: `s` for those the reader waits for, `a` for those ahead.
    fn play(reads: impl IntoIterator<Item = (u64, u64)>, max: u64) -> String {
        let (mut ra, mut cached, mut out) =
            (ReadAhead::new(), base::range::RangeSet::new(), String::new());
        let mut read = |kind: char, window: Range<u64>, cached: &mut base::range::RangeSet| {
            cached.insert(window.start as u32..window.end as u32);
            write!(out, " {kind}{}+{}", window.start / KIB, (window.end - window.start) / KIB)
                .expect("strings take all");
        };
        for (off, len) in reads {
            let (mut at, end) = (off * KIB, (off + len) * KIB);
            while at < end {
                let step = (at + READAHEAD_UNIT).min(end);
                if let Some(window) = ra.on_hit(at..step, max * KIB) {
                    read('a', window, &mut cached);
                }
                if !cached.contains(at as u32) {
                    let window = ra.on_miss(at, end, max * KIB);
                    read('s', window, &mut cached);
                }
                at = step;
            }
            ra.note(end);
        }
        out.trim().to_string()
    }

    /// The windows of usual readers, as a table. The first line is that of Linux with 128 KiB.
    #[test]
    fn windows_grow_as_the_table_says() {
        let seq = |len: u64, count: u64| (0..count).map(move |n| (n * len, len));
        assert_eq!(play(seq(4, 60), 128), "s0+16 a16+32 a48+64 a112+128 a240+128");
        assert_eq!(play(seq(16, 20), 128), "s0+32 a32+64 a96+128 a224+128 a352+128");
        assert_eq!(play(seq(128, 3), 128), "s0+128 a128+128 a256+128 a384+128");
        assert_eq!(play(seq(4, 30), 512), "s0+16 a16+64 a80+128 a208+256");
        assert_eq!(play([(400, 4), (40, 4), (800, 8)], 128), "s400+4 s40+4 s800+8");
        assert_eq!(play([(400, 4), (404, 4), (408, 4)], 128), "s400+4 s404+16 a420+32");
        assert_eq!(play(seq(4, 3), 0), "s0+4 s4+4 s8+4");
    }

    /// Two readers in sequence and a random one do not disturb each other.
    #[test]
    fn readers_of_one_file_are_told_apart() {
        let mut streams = Streams::default();
        let mut windows = Vec::new();
        for n in 0..40u64 {
            for base in [0, 1 << 30] {
                let (at, end) = (base + n * 4096, base + (n + 1) * 4096);
                let stream = streams.select(at);
                windows.extend(stream.on_hit(at..end, 128 * KIB));
                if n < 2 && (base == 0 && n == 0 || base > 0) {
                    stream.on_miss(at, end, 128 * KIB);
                }
                stream.note(end);
            }
            let random = streams.select((n * 7919 + 100_000) * 4096 + 1);
            random.on_miss(n * 7919, n * 7919 + 10, 128 * KIB);
        }
        let far = windows.iter().filter(|window| window.start >= 1 << 30).count();
        assert!(far >= 3 && windows.len() - far >= 3, "{windows:?}");
    }
}
