//! The array of Linux: scanned from the front, most recent first.

use super::{LRU_MAX, LruCounts};
use crate::buffer::BufferRef;

/// References to the buffers that one CPU used last, most recent first.
///
/// A hit behind the front moves to the front; a buffer that was found elsewhere is installed at
/// the front, and the last one leaves. Each entry keeps its buffer in memory.
pub struct ArrayLru {
    keys: [u64; LRU_MAX],
    buffers: Vec<BufferRef>,
    size: usize,
    hits: [u64; LRU_MAX],
    misses: u64,
    /// Keys compared by lookups that missed; those of hits follow from their depths.
    missed_compares: u64,
}

impl ArrayLru {
    /// An empty array of `size` entries, bounded to 1..=64.
    pub fn new(size: usize) -> ArrayLru {
        let size = size.clamp(1, LRU_MAX);
        ArrayLru {
            keys: [u64::MAX; LRU_MAX],
            buffers: Vec::with_capacity(size),
            size,
            hits: [0; LRU_MAX],
            misses: 0,
            missed_compares: 0,
        }
    }

    /// Finds `block`, moves it to the front and counts the depth at which it was.
    ///
    /// An entry that the cache has forgotten is dropped and counts as a miss.
    #[inline]
    pub fn lookup(&mut self, block: u64) -> Option<BufferRef> {
        let len = self.buffers.len();
        let Some(depth) = self.keys[..len].iter().position(|&key| key == block) else {
            self.misses += 1;
            self.missed_compares += len as u64;
            return None;
        };
        if self.buffers[depth].forgotten() {
            self.remove(depth);
            self.misses += 1;
            self.missed_compares += depth as u64 + 1;
            return None;
        }
        self.hits[depth] += 1;
        if depth > 0 {
            self.keys.copy_within(0..depth, 1);
            self.keys[0] = block;
            self.buffers[..=depth].rotate_right(1);
        }
        Some(self.buffers[0].clone())
    }

    /// Puts a buffer that was just found in the index to the front; the last one leaves.
    pub fn install(&mut self, buffer: BufferRef) {
        let block = buffer.block();
        let len = self.buffers.len();
        // Only where two tasks of one CPU looked at once is it here already.
        if let Some(depth) = self.keys[..len].iter().position(|&key| key == block) {
            self.remove(depth);
        }
        if self.buffers.len() < self.size {
            self.buffers.push(buffer);
        } else {
            *self.buffers.last_mut().expect("the size is at least 1") = buffer;
        }
        let len = self.buffers.len();
        self.keys.copy_within(0..len - 1, 1);
        self.keys[0] = block;
        self.buffers.rotate_right(1);
    }

    fn remove(&mut self, depth: usize) {
        let len = self.buffers.len();
        self.keys.copy_within(depth + 1..len, depth);
        self.keys[len - 1] = u64::MAX;
        self.buffers.remove(depth);
    }

    /// Drops all references.
    pub fn clear(&mut self) {
        self.buffers.clear();
        self.keys = [u64::MAX; LRU_MAX];
    }

    /// What was counted so far.
    pub fn counts(&self) -> LruCounts {
        let hits = self.hits[..self.size].to_vec();
        let found: u64 = (1..).zip(&hits).map(|(compares, hits)| compares * hits).sum();
        LruCounts {
            hits,
            misses: self.misses,
            compares: found + self.missed_compares,
            pinned: self.buffers.len(),
        }
    }
}
