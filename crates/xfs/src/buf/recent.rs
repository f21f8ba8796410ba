//! Blocks that were used lately.

use std::sync::{Arc, Weak};

use super::Buf;

/// How many are remembered: of a large directory the root of its index, a few leaves, the data
/// block and the free block that names go to.
const PLACES: usize = 8;

/// Blocks of one structure that were used lately, by their places in it: they are found without a
/// look at its map and at the index of all buffers. A place is forgotten when it is given another
/// block, or none. The references are weak, so that reclaim takes the buffers as it takes others.
#[derive(Debug, Default)]
pub(crate) struct RecentBlocks(Vec<(u64, Weak<Buf>)>);

impl RecentBlocks {
    /// The block at a place, if it is known and in memory.
    pub fn get(&mut self, place: u64) -> Option<Arc<Buf>> {
        let at = self.0.iter().position(|known| known.0 == place)?;
        let buf = self.0[at].1.upgrade();
        // What is asked for again moves to the front, what is not falls out behind.
        self.0.swap(at, at.saturating_sub(1));
        buf
    }

    /// Remembers the block at a place, and forgets the last one where there are many.
    pub fn put(&mut self, place: u64, buf: &Arc<Buf>) {
        let entry = (place, Arc::downgrade(buf));
        match self.0.iter_mut().find(|known| known.0 == place) {
            Some(known) => *known = entry,
            None => {
                self.0.truncate(PLACES - 1);
                self.0.push(entry);
            }
        }
    }

    /// The place holds another block from now on, or none.
    pub fn forget(&mut self, place: u64) {
        self.0.retain(|known| known.0 != place);
    }
}
