//! Memory for a workload's data, aligned as direct I/O on the host wants it.

use base::Page;
use block::Segment;

/// Alignment in bytes of what [`AlignedBuffer`] hands out; a power of two.
const ALIGNMENT: usize = 4096;

/// A buffer whose first byte lies on a page boundary. Zeroed at first.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Page,
    len: usize,
}

impl AlignedBuffer {
    /// A buffer of `len` bytes, at most 1 GiB.
    ///
    /// # Panics
    /// Where `len` is above that.
    pub fn new(len: usize) -> AlignedBuffer {
        AlignedBuffer { memory: Page::zeroed(len.next_multiple_of(ALIGNMENT).max(ALIGNMENT)), len }
    }

    /// Bytes in the buffer.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True where it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// The content, to be changed. What was shared keeps what it had.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory.make_mut()[..self.len]
    }

    /// The first `len` bytes, shared and not copied.
    ///
    /// # Panics
    /// Where there are not so many.
    pub fn share(&self, len: usize) -> Segment {
        assert!(len <= self.len, "{len} bytes of a buffer of {}", self.len);
        Segment { page: self.memory.clone(), offset: 0, len: len as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_lies_on_a_page_boundary() {
        for len in [0, 1, 512, 4096, 100_000] {
            let mut buffer = AlignedBuffer::new(len);
            assert_eq!(buffer.bytes().len(), len);
            assert_eq!(buffer.bytes_mut().as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(buffer.is_empty(), len == 0);
            assert_eq!(buffer.share(len).len as usize, len);
        }
    }
}
