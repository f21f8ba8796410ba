//! The LRU of one CPU: a short array of buffers, most recent first.
//!
//! Linux keeps eight, later sixteen buffer heads per CPU in front of the page-cache index, because
//! directory operations look up the same few blocks again and again. The array is scanned; a hit
//! behind the front is rotated to the front; a miss installs the found buffer at the front and
//! drops the last one.

use crate::buffer::BufferRef;

/// The largest size that can be configured.
pub const LRU_MAX: usize = 64;
/// The smallest size that can be configured.
pub const LRU_MIN: usize = 1;

/// References to the buffers that one CPU used last.
///
/// Each entry keeps its buffer in memory. Not synchronised: the owner holds a spin lock.
pub struct Lru {
    keys: [u64; LRU_MAX],
    buffers: Vec<BufferRef>,
    size: usize,
    hits: [u64; LRU_MAX],
    misses: u64,
}

impl Lru {
    /// An empty LRU of `size` entries, bounded to 1..=64.
    pub fn new(size: usize) -> Lru {
        let size = size.clamp(LRU_MIN, LRU_MAX);
        Lru {
            keys: [u64::MAX; LRU_MAX],
            buffers: Vec::with_capacity(size),
            size,
            hits: [0; LRU_MAX],
            misses: 0,
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
            return None;
        };
        if self.buffers[depth].forgotten() {
            self.remove(depth);
            self.misses += 1;
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

    /// Hits counted per depth (index 0 is the front).
    pub fn hits(&self) -> &[u64] {
        &self.hits[..self.size]
    }

    /// Lookups that found nothing.
    pub fn misses(&self) -> u64 {
        self.misses
    }
}
