//! Reads in a row, and how far to read ahead of them.

use std::ops::Range;

/// Bytes of a KiB.
const KIB: u64 = 1 << 10;

/// Rows that are known at once.
const STREAMS: usize = 8;
/// Bytes that a read may be behind its row: several threads carry them out in any order.
const NEAR: u64 = 8 << 20;
/// Bytes that a read may be ahead of its row.
const GAP: u64 = 1 << 20;
/// Reads in a row before anything is read ahead.
const ROW: u32 = 3;
/// First bytes that are read ahead; twice as many each time.
const FIRST: u64 = 256 * KIB;
/// A read of so many bytes is somebody's own reading ahead: he knows where the file ends.
const LONG: u64 = 512 * KIB;
/// Most bytes that are read ahead.
const MOST: u64 = 16 << 20;

/// One row of reads.
#[derive(Clone, Copy)]
struct Stream {
    /// The byte behind the last one.
    next: u64,
    reads: u32,
    window: u64,
    used: u64,
}

/// The rows of reads of one object.
#[derive(Default)]
pub(crate) struct Streams {
    all: Vec<Stream>,
    clock: u64,
}

impl Streams {
    /// Notes a read; returns what to read ahead of it.
    pub fn read(&mut self, range: &Range<u64>) -> Range<u64> {
        self.clock += 1;
        if range.end - range.start >= LONG {
            return range.end..range.end;
        }
        let near = |stream: &&mut Stream| {
            range.start <= stream.next.saturating_add(GAP)
                && range.end.saturating_add(NEAR) >= stream.next
        };
        if let Some(stream) = self.all.iter_mut().find(near) {
            stream.used = self.clock;
            if range.end <= stream.next {
                // Behind the row's head; it is on its way already.
                return stream.next..stream.next;
            }
            // A gap is no row yet; in a row, the read before comes a moment later.
            let joins = range.start <= stream.next || stream.reads >= ROW;
            stream.reads = if joins { stream.reads + 1 } else { 1 };
            stream.next = range.end;
            if stream.reads < ROW {
                stream.window = 0;
                return stream.next..stream.next;
            }
            let most = stream.window.saturating_mul(2);
            stream.window = most.clamp(FIRST, MOST);
            return stream.next..stream.next + stream.window;
        }
        let new = Stream { next: range.end, reads: 1, window: 0, used: self.clock };
        match self.all.len() < STREAMS {
            true => self.all.push(new),
            false => {
                let oldest = self.all.iter_mut().min_by_key(|stream| stream.used);
                *oldest.expect("there are some") = new;
            }
        }
        range.end..range.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_in_a_row_is_read_ahead_and_nothing_else() {
        let mut streams = Streams::default();
        let step = 128 * KIB;
        let mut ahead = 0;
        for number in 0..20 {
            let range = number * step..(number + 1) * step;
            let wanted = streams.read(&range);
            assert_eq!(wanted.start, range.end);
            if number < 2 {
                assert!(wanted.is_empty());
            } else {
                assert!(wanted.end - wanted.start >= ahead);
                ahead = wanted.end - wanted.start;
            }
        }
        assert_eq!(ahead, MOST);
        for number in 0..20 {
            let at = (1 << 40) + number * LONG;
            assert!(streams.read(&(at..at + LONG)).is_empty());
        }
        for number in 1..30u64 {
            let at = number * 997 * (1 << 20);
            assert!(streams.read(&(at..at + 4096)).is_empty());
        }
    }
}
