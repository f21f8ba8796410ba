//! The bytes of a regular file: pages that exist, holes that do not.

use std::collections::BTreeMap;

use vfs::SeekWhence;

const PAGE: u64 = 4096;

/// A size and the pages that were written. Bytes beyond the size are zero in every page.
#[derive(Default)]
pub struct Content {
    size: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
}

impl Content {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn blocks(&self) -> u64 {
        self.pages.len() as u64 * (PAGE / 512)
    }

    pub fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let count = self.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (page, at, range) in pieces(offset, count) {
            match self.pages.get(&page) {
                Some(bytes) => buf[range.clone()].copy_from_slice(&bytes[at..at + range.len()]),
                None => buf[range].fill(0),
            }
        }
        count
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (page, at, range) in pieces(offset, data.len()) {
            let bytes = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE as usize]));
            bytes[at..at + range.len()].copy_from_slice(&data[range]);
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, self.size.next_multiple_of(PAGE));
        }
        self.size = size;
    }

    /// Makes `from..to` read as zeros; whole pages become holes.
    pub fn punch(&mut self, from: u64, to: u64) {
        for (&page, bytes) in self.pages.range_mut(from / PAGE..to.div_ceil(PAGE)) {
            let start = from.saturating_sub(page * PAGE).min(PAGE) as usize;
            let end = (to - page * PAGE).min(PAGE) as usize;
            bytes[start..end].fill(0);
        }
        self.pages.retain(|&page, _| page * PAGE < from || (page + 1) * PAGE > to);
    }

    /// The next data or hole at or after `offset`, or `None` at the end.
    pub fn seek(&self, offset: u64, whence: SeekWhence) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        match whence {
            SeekWhence::Data => {
                let (&page, _) = self.pages.range(offset / PAGE..).next()?;
                Some(offset.max(page * PAGE)).filter(|&at| at < self.size)
            }
            SeekWhence::Hole => {
                let mut page = offset / PAGE;
                while self.pages.contains_key(&page) {
                    page += 1;
                }
                Some(offset.max(page * PAGE).min(self.size))
            }
        }
    }
}

/// Cuts `offset..offset+len` at page borders: page, offset in it, range in the caller's buffer.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let count = (PAGE - at % PAGE).min((len - done) as u64) as usize;
        let piece = (at / PAGE, (at % PAGE) as usize, done..done + count);
        done += count;
        (count > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random writes, cuts and punches agree with a plain vector of bytes.
    #[test]
    fn content_behaves_like_a_vector() {
        let mut rng = base::Rng::new(1, 1);
        let (mut content, mut plain) = (Content::default(), Vec::new());
        for _ in 0..2000 {
            let offset = rng.below(40_000);
            let len = rng.below(10_000) as usize;
            match rng.below(3) {
                0 => {
                    let data = vec![rng.next_u32() as u8 | 1; len + 1];
                    content.write(offset, &data);
                    let end = offset as usize + data.len();
                    plain.resize(plain.len().max(end), 0);
                    plain[offset as usize..end].copy_from_slice(&data);
                }
                1 => {
                    content.truncate(offset);
                    plain.resize(offset as usize, 0);
                }
                _ => {
                    content.punch(offset, offset + len as u64 + 1);
                    let end = (offset as usize + len + 1).min(plain.len());
                    let start = (offset as usize).min(end);
                    plain[start..end].fill(0);
                }
            }
            let mut read = vec![9; plain.len() + 5];
            assert_eq!(content.read(0, &mut read), plain.len());
            assert_eq!(read[..plain.len()], plain);
        }
    }

    #[test]
    fn holes_and_data_are_found() {
        let mut content = Content::default();
        content.write(2 * PAGE, b"x");
        content.truncate(5 * PAGE);
        assert_eq!(content.seek(0, SeekWhence::Hole), Some(0));
        assert_eq!(content.seek(0, SeekWhence::Data), Some(2 * PAGE));
        assert_eq!(content.seek(2 * PAGE + 1, SeekWhence::Hole), Some(3 * PAGE));
        assert_eq!(content.seek(3 * PAGE, SeekWhence::Data), None);
        assert_eq!(content.seek(5 * PAGE, SeekWhence::Hole), None);
    }
}
