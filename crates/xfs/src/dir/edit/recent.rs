//! Blocks of a directory that were used lately.

use std::sync::{Arc, Weak};

use crate::buf::Buf;

/// How many are remembered: the root of the index, a few leaves, the data block and the free block
/// that names go to.
const PLACES: usize = 8;

/// Blocks of a directory that were used lately, by their places in the fork: a change of a large
/// directory finds them without a look at its map and at the index of all buffers. A block is
/// forgotten when its place is given another one, or none. The references are weak, so that
/// reclaim takes the buffers as it takes others.
#[derive(Debug, Default)]
pub(crate) struct RecentBlocks(Vec<(u64, Weak<Buf>)>);

impl RecentBlocks {
    /// The block at `offset` of the fork, if it is known and in memory.
    pub fn get(&mut self, offset: u64) -> Option<Arc<Buf>> {
        let at = self.0.iter().position(|(place, _)| *place == offset)?;
        let buf = self.0[at].1.upgrade();
        // What is asked for again moves to the front, what is not falls out behind.
        self.0.swap(at, at.saturating_sub(1));
        buf
    }

    /// Remembers the block at `offset`, and forgets the last one where there are many.
    pub fn put(&mut self, offset: u64, buf: &Arc<Buf>) {
        let entry = (offset, Arc::downgrade(buf));
        match self.0.iter_mut().find(|(place, _)| *place == offset) {
            Some(known) => *known = entry,
            None => {
                self.0.truncate(PLACES - 1);
                self.0.push(entry);
            }
        }
    }

    /// The place holds another block from now on, or none.
    pub fn forget(&mut self, offset: u64) {
        self.0.retain(|(place, _)| *place != offset);
    }
}
