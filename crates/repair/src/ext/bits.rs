//! A bit per block.

use std::ops::Range;

/// Which blocks have a mark.
#[derive(Default)]
pub struct Bits {
    map: Vec<u8>,
    count: u64,
}

impl Bits {
    /// No mark on any of `count` blocks.
    pub fn new(count: u64) -> Bits {
        Bits { map: vec![0; (count as usize).div_ceil(8)], count }
    }

    /// True where the block has a mark; false behind the end.
    pub fn get(&self, block: u64) -> bool {
        block < self.count && base::bitmap::test(&self.map, block as usize)
    }

    /// Sets a mark; returns whether it was there.
    pub fn set(&mut self, block: u64) -> bool {
        block < self.count && base::bitmap::set(&mut self.map, block as usize)
    }

    /// Sets the marks of a run.
    pub fn set_run(&mut self, run: Range<u64>) {
        let end = run.end.min(self.count);
        if run.start < end {
            base::bitmap::set_range(&mut self.map, run.start as usize, end as usize);
        }
    }

    /// Removes a mark.
    pub fn clear(&mut self, block: u64) {
        if block < self.count {
            base::bitmap::clear(&mut self.map, block as usize);
        }
    }

    /// True where none of the run has a mark.
    pub fn is_clear(&self, run: Range<u64>) -> bool {
        let end = run.end.min(self.count);
        let start = run.start.min(end);
        base::bitmap::find_next_set(&self.map, start as usize, end as usize).is_none()
    }

    /// True where there is no mark at all.
    pub fn is_empty(&self) -> bool {
        self.map.iter().all(|&byte| byte == 0)
    }
}
