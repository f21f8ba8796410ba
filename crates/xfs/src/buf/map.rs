//! Where a buffer lies on the device.

use base::Sector;

/// One extent of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BufMap {
    /// Where it begins on the device.
    pub daddr: Sector,
    /// Length in blocks of 512 bytes, above 0.
    pub len: u32,
}

impl BufMap {
    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.len as usize * 512
    }
}
