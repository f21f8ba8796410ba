//! Where to begin to look for room among the data blocks of a large directory.

/// Sizes of entries in units of eight bytes, up to that of the longest name.
const CLASSES: usize = 35;

/// For each size of an entry: no data block before this one has room for it. Kept while the inode
/// is in memory, so that adding a name does not look at all blocks that are full.
#[derive(Debug, Default)]
pub(crate) struct SpaceHints(Option<Box<[u32; CLASSES]>>);

fn class(size: usize) -> usize {
    (size / 8).min(CLASSES - 1)
}

impl SpaceHints {
    /// The first block that may have room for an entry of `size` bytes.
    pub fn first(&self, size: usize) -> u64 {
        self.0.as_ref().map_or(0, |below| u64::from(below[class(size)]))
    }

    /// No block before `index` has room for `size` bytes.
    pub fn none_before(&mut self, size: usize, index: u64) {
        let below = self.0.get_or_insert_with(|| Box::new([0; CLASSES]));
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        below[class(size)..].iter_mut().for_each(|first| *first = index.max(*first));
    }

    /// A block has `room` bytes now.
    pub fn note(&mut self, index: u64, room: usize) {
        let Some(below) = &mut self.0 else { return };
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        // What has room for more has room for less: no entry is above those behind it.
        if below[class(room)] <= index {
            return;
        }
        below[..=class(room)].iter_mut().for_each(|first| *first = index.min(*first));
    }

    /// Nothing is known any more.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_never_pass_a_block_with_room() {
        // Goal: beside a plain list of rooms, the hint never lies behind the first block that fits.
        let mut rooms = vec![0usize; 40];
        let mut hints = SpaceHints::default();
        let mut state = 7u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (index, size) = ((state >> 33) as usize % 40, (state >> 50) as usize % 34 * 8 + 8);
            if state >> 20 & 1 == 0 {
                rooms[index] = size;
                hints.note(index as u64, size);
                continue;
            }
            let fits = rooms.iter().position(|&room| room >= size);
            let first = fits.map_or(40, |first| first as u64);
            assert!(hints.first(size) <= first, "{size} bytes: {} > {first}", hints.first(size));
            hints.none_before(size, first);
        }
    }
}
