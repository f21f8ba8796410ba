//! Memory for a workload's data, aligned as direct I/O on the host wants it.

/// Alignment in bytes of what [`AlignedBuffer`] hands out; a power of two.
const ALIGNMENT: usize = 4096;

/// A buffer whose first byte lies on a page boundary. Zeroed at first.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// A buffer of `len` bytes.
    pub fn new(len: usize) -> AlignedBuffer {
        let memory = vec![0u8; len + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        AlignedBuffer { memory, start, len }
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
        &self.memory[self.start..self.start + self.len]
    }

    /// The content, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
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
        }
    }
}
