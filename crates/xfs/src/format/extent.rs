//! The extents of a file's map, packed into 128 bits.
//!
//! From the highest bit: 1 unwritten, 54 file block, 52 file system block, 21 count.
//! Source: "XFS Algorithms and Data Structures", chapter on data extents.

use base::FsBlock;

use super::{At, Corrupt, CorruptKind, FsExtent, Geometry, put_u64, u64_at};

/// Bytes of a packed extent.
pub const EXTENT_SIZE: usize = 16;
/// Blocks of an extent at the most.
pub const COUNT_MAX: u64 = (1 << 21) - 1;
/// The highest file block.
pub const OFFSET_MAX: u64 = (1 << 54) - 1;

/// A run of file blocks that lies in a run of blocks of the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First file block.
    pub offset: u64,
    /// First block of the file system, its group in the high bits.
    pub start: FsBlock,
    /// Blocks, 1..=2,097,151.
    pub count: u32,
    /// Allocated and never written: reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// Its blocks on the device.
    pub fn blocks(&self) -> FsExtent {
        FsExtent { start: self.start, len: self.count }
    }

    /// The packed extent.
    pub fn record(&self) -> [u8; EXTENT_SIZE] {
        let mut data = [0; EXTENT_SIZE];
        self.write(&mut data);
        data
    }

    /// The extent in the first 16 bytes of `data`.
    pub fn read(data: &[u8]) -> Extent {
        let (high, low) = (u64_at(data, 0), u64_at(data, 8));
        Extent {
            offset: high >> 9 & OFFSET_MAX,
            start: FsBlock((high & 0x1ff) << 43 | low >> 21),
            count: (low & COUNT_MAX) as u32,
            unwritten: high >> 63 != 0,
        }
    }

    /// Writes the extent.
    pub fn write(&self, data: &mut [u8]) {
        let high = u64::from(self.unwritten) << 63 | self.offset << 9 | self.start.0 >> 43;
        put_u64(data, 0, high);
        put_u64(data, 8, self.start.0 << 21 | u64::from(self.count));
    }

    /// The file block behind its last one.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.count)
    }

    /// Checks the extent alone: it has blocks, within one group of the file system or in the
    /// `realtime` section, and ends before the last file block.
    ///
    /// # Errors
    /// [`CorruptKind::ExtentEmpty`], [`CorruptKind::ExtentPlace`], [`CorruptKind::ExtentOffset`].
    pub fn check(&self, geometry: &Geometry, realtime: bool, at: At) -> Result<(), Corrupt> {
        let Extent { offset, count, .. } = *self;
        if count == 0 {
            return Err(CorruptKind::ExtentEmpty { offset }.at(at));
        }
        let valid = match realtime {
            true => geometry.realtime.holds(self.start, u64::from(count)),
            false => geometry.extent_valid(self.start, u64::from(count)),
        };
        if !valid {
            let start = self.start.0;
            return Err(CorruptKind::ExtentPlace { offset, start, count }.at(at));
        }
        if self.end() > OFFSET_MAX {
            return Err(CorruptKind::ExtentOffset { offset, count }.at(at));
        }
        Ok(())
    }

    /// Whether `next` lies behind this extent, in the file and on the device.
    pub fn goes_on(&self, next: &Extent) -> bool {
        self.end() == next.offset && self.start.0 + u64::from(self.count) == next.start.0
    }

    /// Whether `next` continues this extent, so that one record can hold both.
    pub fn joins(&self, next: &Extent) -> bool {
        self.goes_on(next)
            && self.unwritten == next.unwritten
            && u64::from(self.count) + u64::from(next.count) <= COUNT_MAX
    }
}

/// The extents packed one behind the other in `data`.
pub fn list(data: &[u8]) -> impl ExactSizeIterator<Item = Extent> + use<'_> {
    data.chunks_exact(EXTENT_SIZE).map(Extent::read)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn extents_come_back(
            offset in 0..=OFFSET_MAX, start in 0u64..1 << 52, count in 1..=COUNT_MAX as u32,
            unwritten: bool,
        ) {
            let extent = Extent { offset, start: FsBlock(start), count, unwritten };
            let mut data = [0xff; 16];
            extent.write(&mut data);
            prop_assert_eq!(Extent::read(&data), extent);
        }
    }
}
